"""Which of some recorded requests is the most like another one, and where the two differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, cast

from agentflow.core.errors import clip

_SHOWN = 10
"""Number of differences that are written out."""
_COMPARED = 2_000
"""Number of characters by which two texts are compared."""
_AROUND = 40
"""Number of characters shown before and after the first one that differs."""
_ABSENT = object()
_OF_THE_CACHE = frozenset({"cache_control", "prompt_cache_key"})


def said(value: Any) -> Any:
    """A request, or a part of it, without what it says of the provider's cache: that depends on what was sent before."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        kept = {key: said(inner) for key, inner in entries.items() if key not in _OF_THE_CACHE}
        return kept["text"] if len(kept) == 2 and kept.get("type") == "text" and "text" in kept else kept
    if isinstance(value, list):
        parts = [said(inner) for inner in cast("list[Any]", value)]
        return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    return value


def nearest(recorded: Sequence[dict[str, Any]], request: dict[str, Any]) -> int:
    """The index of the recorded request with the smallest distance to ``request``, the first of several."""
    leaves = dict(_leaves(request))
    return min(range(len(recorded)), key=lambda index: _distance(dict(_leaves(recorded[index])), leaves))


def describe_difference(recorded: dict[str, Any], request: dict[str, Any]) -> str:
    """The fields in which two requests differ, a line each; long texts from a little before they part."""
    before, after = dict(_leaves(recorded)), dict(_leaves(request))
    paths = [path for path in {**before, **after} if before.get(path, _ABSENT) != after.get(path, _ABSENT)]
    lines = [f"  {path}: {_change(before.get(path, _ABSENT), after.get(path, _ABSENT))}" for path in paths[:_SHOWN]]
    if len(paths) > _SHOWN:
        lines.append(f"  and {len(paths) - _SHOWN} more")
    return "\n".join(lines)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths of data, as ``body.messages[0].content``, with what is there: scalars and empty containers."""
    if isinstance(value, dict) and value:
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def _distance(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Number of fields that differ; two texts count by how much they do."""
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
        return f"recorded {_excerpt(old, start)}, asked {_excerpt(new, start)}"
    return f"recorded {_written(old)}, asked {_written(new)}"


def _excerpt(text: str, start: int) -> str:
    end = start + 2 * _AROUND
    shown = json.dumps(text[start:end], ensure_ascii=False)
    return f"{'...' if start else ''}{shown}{'...' if end < len(text) else ''}"


def _written(value: Any) -> str:
    return "nothing" if value is _ABSENT else clip(json.dumps(value, ensure_ascii=False), 2 * _AROUND)
