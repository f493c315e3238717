"""Digests of the content of effects, by which a record is matched with the effect that asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast

from agentflow.core.values import is_long
from agentflow.runtime.codec import LONG_TEXT, comparable

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


DEFINITIONS = (
    "the definition of the task",
    "the model",
    "the conversation",
    "the data context",
    "what earlier steps gave",
)
"""What the parts of a task's content are called, in their order; see :mod:`agentflow.tasks.content`."""


def marks_of(arguments: Any, definition: Any) -> dict[str, str]:
    """Short digests of the parts of an effect's content, by what messages call them; without one for an argument that is long.

    They tell which part of a recorded effect differs, where :func:`fingerprint` has told that one does.
    """
    parts: dict[str, Any] = {}
    if isinstance(arguments, dict):
        parts = {f"the argument '{name}'": each for name, each in cast("dict[Any, Any]", arguments).items()}
    elif isinstance(arguments, list | tuple):
        parts = {f"argument {at}": each for at, each in enumerate(cast("Sequence[Any]", arguments), 1)}
    if isinstance(definition, list):
        parts |= dict(zip(DEFINITIONS, cast("list[Any]", definition), strict=False))
    elif definition is not None:
        parts["the definition"] = definition
    return {name: "" if is_long(each) else fingerprint("part", each)[:4].hex() for name, each in parts.items()}


def differing(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The parts in which two contents differ by their marks."""
    names = dict.fromkeys([*now, *was])
    return [name for name in names if "" not in (one := was.get(name), other := now.get(name)) and one != other]


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
