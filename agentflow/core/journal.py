"""Rows of a journal: what is stored of a durable run. What the values mean is for the runtime's codec alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

RunStatus: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""``queued`` is to be gone on with, ``waiting`` is for an answer or a time, the last three are ends."""
ENDED: frozenset[RunStatus] = frozenset({"done", "failed", "cancelled"})
"""The statuses of runs that have ended."""


class EffectState(IntEnum):
    """What became of an effect."""

    OPEN = 0
    """It has started, or waits."""
    OK = 1
    FAILED = 2
    LOST = 3
    """It was cancelled: only what it had cost is kept."""


def effect_key(path: str) -> bytes:
    """The key of the effect at ``path``."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow:
    """The record of one effect.

    ``path`` names it within its run; ``leaf`` is the key of the recorded effect that it is a step of; ``content`` a digest
    of what was asked for. ``value`` and ``turns`` are JSON data; ``usage`` the tokens (the fields of Usage in order) and
    ``cost`` the USD that the effect itself used, without its own recorded steps: None for an unknown price. ``started`` and
    ``ended`` are unix seconds.
    """

    path: str
    kind: str
    name: str
    content: bytes
    state: EffectState
    leaf: bytes | None = None
    value: Any = None
    turns: Any = None
    usage: tuple[int, ...] | None = None
    cost: float | None = 0.0
    started: float | None = None
    ended: float | None = None

    @property
    def key(self) -> bytes:
        """The key of the effect within its run."""
        return effect_key(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What a run begins with: its ``program`` text with its ``digest``, and ``input``, JSON data with all the rest.

    ``base`` is the run whose records it may reuse.
    """

    program: str
    digest: str
    input: Mapping[str, Any]
    base: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run as it is stored.

    ``epoch`` counts its owners and ``slice`` the stretches in which it was worked on; ``seq`` the answers it was given.
    ``wake_at`` is when a waiting run goes on by itself; ``spent_s`` the seconds it has worked; ``result`` and ``error`` are
    JSON data. ``created`` and ``updated`` are unix seconds.
    """

    run: str
    base: str | None
    program: str
    digest: str
    input: Mapping[str, Any]
    status: RunStatus
    epoch: int
    seq: int
    slice: int
    wake_at: float | None
    spent_s: float
    result: Any
    error: Any
    created: float
    updated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRun:
    """A run that this process may now work on, with the records that can answer.

    Records below a finished one are left out. ``usage`` and ``cost`` are totals over all records, also those; ``cost`` is
    None if one has no price.
    """

    run: RunRow
    records: list[EffectRow]
    usage: tuple[int, ...]
    cost: float | None


__all__ = [
    "ENDED",
    "EffectRow",
    "EffectState",
    "NewRun",
    "OwnedRun",
    "RunRow",
    "RunStatus",
    "effect_key",
]
