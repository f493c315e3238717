"""Digests of the content of effects, by which a record is matched with the effect that asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast
from zlib import crc32

from agentflow.core.data.values import is_long
from agentflow.core.events.journal import named_arguments
from agentflow.durable.values.codec import LONG_TEXT, comparable
from agentflow.tasks.content import PARTS

_FEW = 16
_SMALL = 1 << 62
"""Limits below which data is first checked for being plain JSON, which is written unchanged."""


def fingerprint(kind: str, *content: Any) -> bytes:
    """A digest of the content of an effect, equal for equal content in every process and for any order of keys.

    A value that is not data counts by its type.
    """
    quick = quick_fingerprint(kind, *content)
    return _digest(comparable([kind, *content])) if quick is None else quick


def quick_fingerprint(kind: str, *content: Any) -> bytes | None:
    """The :func:`fingerprint` of small content that is plain JSON, as that of most effects; None for any other content."""
    written: list[Any] = [kind]
    for each in content:
        if not _stands(each, 2):
            return None
        entries: Any = each
        written.append(dict(sorted(entries.items())) if type(each) is dict and len(entries) > 1 else each)
    return _digest(written)


_MARK = 4
_UNKNOWN = "0" * _MARK


def parts_of(arguments: Any, definition: Any) -> dict[str, Any]:
    """The parts of an effect's content, by what messages call them, in the same order for equal names."""
    parts: dict[str, Any] = {}
    if isinstance(arguments, dict):
        parts = named_arguments(dict(sorted(cast("dict[str, Any]", arguments).items())))
    elif isinstance(arguments, list | tuple):
        parts = {f"argument {at}": each for at, each in enumerate(cast("Sequence[Any]", arguments), 1)}
    if isinstance(definition, list):
        parts |= dict(zip(PARTS, cast("list[Any]", definition), strict=False))
    elif definition is not None:
        parts["the definition"] = definition
    return parts


def marks_of(arguments: Any, definition: Any = None) -> str:
    """Short digests of the parts of an effect's content, one after the other as :func:`parts_of` has them; zeros for one that is
    long, nothing for one that is alone.

    They tell which part of a recorded effect differs, where :func:`fingerprint` has told that one does. Every record has them, so
    they are checksums of 16 bits, one in 65,536 of which says nothing, and the names of the parts are those of whoever compares.
    """
    parts: list[Any] = []
    if isinstance(arguments, dict):
        entries = cast("dict[str, Any]", arguments)
        parts += entries.values() if len(entries) < 2 else [entries[name] for name in sorted(entries)]
    elif isinstance(arguments, list | tuple):
        parts += cast("Sequence[Any]", arguments)
    if isinstance(definition, list):
        parts += cast("list[Any]", definition)
    elif definition is not None:
        parts.append(definition)
    if len(parts) < 2:
        return ""
    marks = ""
    for each in parts:
        kind: Any = type(each)  # pyright: ignore[reportUnknownVariableType]
        if (kind is str and len(each) <= LONG_TEXT) or (kind is int and -_SMALL < each < _SMALL):
            written = ascii(each)  # what most arguments are; this runs for every effect
        elif is_long(each):
            marks += _UNKNOWN
            continue
        else:
            written = ascii(comparable(each))
        marks += f"{crc32(written.encode('ascii')) & 0xFFFF:0{_MARK}x}"
    return marks


def differing(was: str, parts: Mapping[str, Any]) -> list[str]:
    """The parts in which content differs from that with the marks ``was``; none where its parts are not as many."""
    now = marks_of([*parts.values()])
    if len(was) != len(now):
        return []
    if len(parts) == 1:
        return list(parts)
    pairs = [(was[at : at + _MARK], now[at : at + _MARK]) for at in range(0, len(now), _MARK)]
    return [
        name for name, (one, other) in zip(parts, pairs, strict=True) if one != other and _UNKNOWN not in (one, other)
    ]


def _digest(written: Any) -> bytes:
    return blake2b(ascii(written).encode("ascii"), digest_size=16).digest()


def _stands(value: Any, depth: int) -> bool:
    """Whether a value is small plain JSON. A dict may only be at the top level: its keys are sorted there."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return len(value) <= LONG_TEXT and value.isascii()
    if kind is list or kind is dict:
        if len(value) > _FEW or not depth or (kind is dict and depth < 2 and len(value) > 1):
            return False
        for key in value:
            if kind is dict and (type(key) is not str or key[:1] == "$" or not key.isascii()):
                return False
            each = value[key] if kind is dict else key
            if each is not None and not _stands(each, depth - 1):
                return False
        return True
    return value is None or kind is bool or (kind is int and -_SMALL < value < _SMALL)
