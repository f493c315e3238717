"""Finds the recorded request most similar to another one, and describes the differences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, cast

from agentflow.core.data.errors import clip

_SHOWN = 10
"""Number of differences to describe."""
_COMPARED = 2_000
"""Number of characters of two texts that are compared."""
_AROUND = 40
"""Number of characters shown before and after the first difference."""
_ABSENT = object()
_OF_THE_CACHE = frozenset({"cache_control", "prompt_cache_key"})


def without_cache_markers(value: Any) -> Any:
    """A request, or a part of it, without cache markers, which depend on the requests sent before."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        kept = {key: without_cache_markers(inner) for key, inner in entries.items() if key not in _OF_THE_CACHE}
        return kept["text"] if len(kept) == 2 and kept.get("type") == "text" and "text" in kept else kept
    if isinstance(value, list):
        parts = [without_cache_markers(inner) for inner in cast("list[Any]", value)]
        return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    return value


def nearest(recorded: Sequence[dict[str, Any]], request: dict[str, Any]) -> int:
    """The index of the recorded request with the smallest distance to ``request``; the first of equals."""
    leaves = dict(_leaves(request))
    return min(range(len(recorded)), key=lambda index: _distance(dict(_leaves(recorded[index])), leaves))


def describe_difference(recorded: dict[str, Any], request: dict[str, Any]) -> str:
    """The fields in which two requests differ, one per line; long texts are cut around the first difference."""
    before, after = dict(_leaves(recorded)), dict(_leaves(request))
    paths = [path for path in {**before, **after} if before.get(path, _ABSENT) != after.get(path, _ABSENT)]
    lines = [f"  {path}: {_change(before.get(path, _ABSENT), after.get(path, _ABSENT))}" for path in paths[:_SHOWN]]
    if len(paths) > _SHOWN:
        lines.append(f"  and {len(paths) - _SHOWN} more")
    return "\n".join(lines)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths in JSON data, such as ``body.messages[0].content``, with their scalars and empty containers."""
    if isinstance(value, dict) and value:
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def _distance(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Number of fields that differ; two texts count by the share that differs."""
    total = 0.0
    for path in {**before, **after}:
        old, new = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if old == new:
            continue
        if isinstance(old, str) and isinstance(new, str):
            total += 1 - SequenceMatcher(None, old[:_COMPARED], new[:_COMPARED], autojunk=False).quick_ratio() / 2
        else:
            total += 1
    return total


def _change(old: Any, new: Any) -> str:
    if isinstance(old, str) and isinstance(new, str):
        parted = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(0, parted - _AROUND)
        return f"recorded {_excerpt(old, start)}, sent {_excerpt(new, start)}"
    return f"recorded {_written(old)}, sent {_written(new)}"


def _excerpt(text: str, start: int) -> str:
    end = start + 2 * _AROUND
    shown = json.dumps(text[start:end], ensure_ascii=False)
    return f"{'...' if start else ''}{shown}{'...' if end < len(text) else ''}"


def _written(value: Any) -> str:
    return "nothing" if value is _ABSENT else clip(json.dumps(value, ensure_ascii=False), 2 * _AROUND)
