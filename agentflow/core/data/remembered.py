"""Notes: facts that programs, models and hosts keep beyond one conversation."""

from __future__ import annotations

from typing import Literal

from agentflow.core.data.frozen import frozen
from agentflow.core.data.mapping_records import Record

NoteSharing = Literal["session", "flow"]
"""Who can recall a note: later runs in the same conversation, or all runs of the flow."""

MAX_NOTE = 64 * 1024
"""Characters of a note."""
MAX_KEY = 200
"""Characters of a note's key."""


@frozen
class Note(Record):
    """A remembered text.

    ``id`` identifies it; ``scope`` is its owner (``flow:ROOT``, ``session:NAME``); ``key`` its name, under which it can be
    replaced, or None; ``created`` and ``updated`` are in Unix seconds; ``score`` in 0..1 is its relevance to the question.
    """

    id: str
    scope: str
    text: str
    key: str | None
    created: float
    updated: float
    score: float = 1.0
