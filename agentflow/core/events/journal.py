"""Rows of a journal: the stored form of a durable run. Only the runtime's codec knows the meaning of the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from agentflow.core.data.errors import SessionBusy
from agentflow.core.data.frozen import frozen

RunStatus: TypeAlias = Literal["queued", "running", "waiting", "interrupted", "done", "failed", "cancelled"]
"""``queued`` is to be resumed, ``waiting`` is for an answer or a time, ``interrupted`` for a decision about what was
in flight, the last three are ends."""
OnInflight: TypeAlias = Literal["retry", "ask", "fail"]
"""What becomes of a tool that may not be repeated and was at work when its run was interrupted: it is carried out again,
the run waits for a decision, or the tool has failed."""
ENDED: frozenset[RunStatus] = frozenset({"done", "failed", "cancelled"})
"""The statuses of runs that have ended."""

Sync: TypeAlias = Literal["normal", "full"]
"""What a commit of a file survives: ``normal`` a killed process, ``full`` a power cut too."""


class EffectState(IntEnum):
    """The state of an effect."""

    OPEN = 0
    """It has started, or waits."""
    OK = 1
    FAILED = 2
    LOST = 3
    """It was cancelled: only what it had cost is kept."""


def effect_key(path: str) -> bytes:
    """The key of the effect at ``path``."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class JsonText(str):
    """JSON data as its text, which is parsed by whoever wants to know what it says."""

    __slots__ = ()


@frozen(kw_only=True)
class EffectRow:
    """The record of one effect.

    ``path`` names it within its run; ``leaf`` is the key of the recorded effect that it is a step of; ``content`` a digest
    of what was asked for. ``value`` and ``turns`` are JSON data, the latter perhaps as its JsonText; ``usage`` the tokens (the fields of Usage in order) and
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


def named_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an effect, by what messages call them."""
    return {f"the argument '{name}'": each for name, each in arguments.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchEnd:
    """The end of a branch that is a run of its own: its ``record`` in the run around it, and whether it ``settles`` the form.

    A form is settled by the first failure of a branch where it needs all of them, and by the first success of a race.
    """

    record: EffectRow
    settles: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """The result of a task or tool that other runs may reuse.

    ``value`` and ``turns`` are JSON data, ``usage`` and ``cost`` what it took, ``at`` when it was carried out (unix seconds).
    """

    kind: str
    name: str
    value: Any
    turns: Any
    usage: tuple[int, ...] | None
    cost: float | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """The beginning of a run: its ``program`` text with its ``digest``, and ``input``, JSON data with all the rest.

    ``base`` is the run whose records it may reuse; ``session`` the stored conversation that it holds until it has ended;
    ``opening`` are the exchanges before it, oldest first, JSON data: None stands for those of the base.
    With ``takes_over``, the epoch of its owner, the base ends as cancelled, with this run as its ``successor``.
    ``queue`` is the queue of the workers that do it, with ``priority`` and for ``tenant``; None for the process that starts it.
    """

    program: str
    digest: str
    input: Mapping[str, Any]
    base: str | None = None
    session: str | None = None
    opening: Sequence[Any] | None = None
    takes_over: int | None = None
    queue: str | None = None
    tenant: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run as it is stored.

    ``epoch`` counts its owners and ``slice`` the stretches in which it was worked on; ``seq`` the answers it was given.
    ``wake_at`` is when a waiting run goes on by itself; ``spent_s`` the seconds it has worked; ``result`` and ``error`` are
    JSON data. ``created`` and ``updated`` are unix seconds. ``deaths`` counts the owners that died one after the other while
    they worked on it, and recorded nothing in between. ``queue`` is the queue of the workers that do it, ``tenant`` whom they do
    it for; ``cancelling`` says that they are to cancel it. ``parent`` is the run that it does a branch of. ``build`` is that of the
    worker who had it last.
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
    deaths: int = 0
    queue: str | None = None
    tenant: str = ""
    cancelling: bool = False
    parent: str | None = None
    build: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRow:
    """What is kept of a run whose records were removed: nothing of what it was given and gave.

    ``name`` is that of its program, ``error`` the code of its failure; ``usage`` the tokens and ``cost`` the USD of all its
    records, with those of its branches on workers. The rest is as in :class:`RunRow`.
    """

    run: str
    name: str
    status: RunStatus
    slices: int
    spent_s: float
    usage: tuple[int, ...]
    cost: float | None
    error: str | None
    created: float
    updated: float
    queue: str | None = None
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job that this worker has claimed: the next slice of a run, which had ``slice`` of them when the job was queued."""

    run: str
    slice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """What workers have to do in one queue for one tenant: how many runs are in which status.

    ``interrupted`` ones count as waiting. ``oldest_s`` is for how many seconds the first of the queued ones has been so.
    """

    queue: str
    tenant: str
    queued: int
    running: int
    waiting: int
    oldest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker of a fleet: the process ``pid`` on ``host``, which does ``runs`` at present, at most ``slots``.

    ``build`` is a digest of what its runs may call, equal for workers with the same tools, tasks and workflows. ``started`` and
    ``seen``, when it was last heard of, are unix seconds.
    """

    host: str
    pid: int
    build: str
    slots: int
    runs: int
    started: float
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCounts:
    """What has happened to this process among those that share a store, since it opened the store.

    ``takeovers``: runs of dead processes that it had queued again; ``sessions_lost``: how often it lost the session that owns
    its runs; ``refused``: batches of records that were not stored because another process had taken the run over;
    ``commits`` transactions, which took ``commit_s`` seconds, from when they were begun until they were stored.
    """

    takeovers: int = 0
    sessions_lost: int = 0
    refused: int = 0
    commits: int = 0
    commit_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A program that workers run at certain times.

    ``cron`` is a line of cron's, in the time zone ``zone``; ``program`` its display name. ``next`` is the unix time of the next
    run, which will be called ``name@time``; ``last`` the id of the last one.
    """

    name: str
    cron: str
    zone: str
    program: str
    queue: str
    next: float
    last: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRun:
    """A run that this process may now work on, with the records that can answer.

    Records below a finished one are left out. ``usage`` and ``cost`` are totals over all records, also those; ``cost`` is
    None if one has no price. ``leased``: it shares money and tokens with the runs of branches, and takes what it needs.
    ``other_build`` is that of the worker who had it last, where this one's is another.
    """

    run: RunRow
    records: list[EffectRow]
    usage: tuple[int, ...]
    cost: float | None
    leased: bool = False
    other_build: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """What a run has left of its US dollars and tokens, for itself and the runs of its branches; None: no limit.

    ``held_usd`` and ``held_tokens`` are set aside by the run itself for calls that are being made.
    """

    usd: float | None
    tokens: int | None
    held_usd: float
    held_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """What a run was given of the US dollars and tokens that it asked for.

    It is less where there is no more. With ``later`` it is nothing, but other runs will give something back.
    """

    usd: float
    tokens: int
    later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A stored conversation: its ``turns``, oldest first, and its ``state``, all the rest; JSON data.

    ``holder`` is the run that has not ended and resumes it; ``last`` the run that ended with it last.
    """

    name: str
    turns: list[Any]
    state: Mapping[str, Any]
    holder: str | None = None
    last: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A conversation that lasts: how many exchanges it has, and the run that holds it and has not ended.

    ``created`` and ``updated`` are unix seconds.
    """

    name: str
    exchanges: int
    created: float
    updated: float
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChanges:
    """Changes of a stored conversation: ``turns`` are added, after all others are dropped if ``reset``.

    Entries of ``state`` replace those it has. Turns and entries are JSON data.
    """

    turns: list[Any]
    state: Mapping[str, Any]
    reset: bool = False


def session_held(name: str, run: str) -> SessionBusy:
    """The error for a stored conversation that a run has which has not ended."""
    return SessionBusy(
        f"the session '{name}' belongs to the run '{run}', which has not ended",
        code="session/held",
        hint=f"resume it, flow.resume('{run}'), or give it up, flow.cancel('{run}')",
        details={"run_id": run},
    )
