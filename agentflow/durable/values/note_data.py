"""Notes of results as entries that can be stored: those of most results are written as they are, without a walk."""

from __future__ import annotations

from typing import Any, cast

from agentflow.core.data.message_json import CONTENT_PARTS
from agentflow.core.data.notes import FailedPart, Notes
from agentflow.core.data.records import Entries
from agentflow.core.data.values import plain

LONG_NOTE = 1_000
"""Characters up to which a text is written as it is."""
SMALL = 1 << 62
"""The size of integers above which they are not."""


def entries_of(notes: Notes) -> dict[str, Any]:
    """The entries of notes, read from its fields: reading them through the mapping takes four times as long."""
    entries = {key: _note(entry) for key, name in Notes.FIELDS.items() if (entry := getattr(notes, name)) is not None}
    for key, entry in notes.others.items():
        entries[key] = _note(entry)
    return entries


def is_short(entries: dict[Any, Any], depth: int = 1) -> bool:
    """Whether entries are written as they are: short texts and numbers, in dicts no deeper than ``depth``."""
    for key, each in entries.items():
        kind: Any = type(each)  # pyright: ignore[reportUnknownVariableType]
        if type(key) is not str or key[:1] == "$" or not key.isascii():
            return False
        if kind is str:
            if len(each) > LONG_NOTE or not each.isascii():
                return False
        elif kind is dict:
            if not depth or not is_short(each, depth - 1):
                return False
        elif kind is not bool and (kind is not int or not -SMALL < each < SMALL):
            return False
    return True


def _note(entry: Any) -> Any:
    """An entry of notes as data from which :meth:`Notes.of` restores it; a dict as a copy."""
    if type(entry) is dict:
        return dict(cast("dict[Any, Any]", entry))
    if isinstance(entry, Entries):
        return {key: each for key, name in entry.FIELDS.items() if (each := getattr(entry, name)) is not None}
    if isinstance(entry, tuple):
        items = cast("tuple[Any, ...]", entry)
        if items and isinstance(items[0], FailedPart):
            return [{"part": part.part, "error": dict(part.error)} for part in cast("tuple[FailedPart, ...]", items)]
        return [plain(part) if isinstance(part, CONTENT_PARTS) else part for part in items]
    return entry


__all__ = ["entries_of", "is_short"]
