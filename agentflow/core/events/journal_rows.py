"""Rows of a journal: the stored form of a durable run. Only the runtime's codec knows the meaning of the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from agentflow.core.data.errors import SessionBusy
from agentflow.core.data.frozen import frozen

RunStatus: TypeAlias = Literal["queued", "running", "waiting", "interrupted", "done", "failed", "cancelled"]
"""``queued`` will be resumed, ``waiting`` waits for an answer or a time, ``interrupted`` for a decision about calls that
were in flight, the last three are ends."""
OnInflight: TypeAlias = Literal["retry", "ask", "fail"]
"""The treatment of an unrepeatable tool that was at work when its run was interrupted: it is carried out again, the run
waits for a decision, or the tool has failed."""
ENDED: frozenset[RunStatus] = frozenset({"done", "failed", "cancelled"})
"""The statuses of runs that have ended."""

Sync: TypeAlias = Literal["normal", "full"]
"""The failures a commit of a file survives: ``normal`` a killed process, ``full`` a power cut too."""


class EffectState(IntEnum):
    """The state of an effect."""

    OPEN = 0
    """It has started, or waits."""
    OK = 1
    FAILED = 2
    LOST = 3
    """It was cancelled: only its cost is kept."""


AGAIN = "~"
"""End of the path of a message that is unread again: what had read it was cancelled before it went on."""
SAID, SENT = "said", "sent"
"""The kinds of messages to a run: a text, and a signal."""
BATCH = "batch"
"""The kind of the records of model calls that wait for a batch."""


def effect_key(path: str) -> bytes:
    """The key of the effect at ``path``."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class JsonText(str):
    """JSON data as text, parsed only when needed."""

    __slots__ = ()


@frozen(kw_only=True)
class EffectRow:
    """The record of one effect.

    ``path`` names it within its run; ``leaf`` is the key of the recorded effect that it is a step of; ``content`` a digest
    of the request. ``value`` and ``turns`` are JSON data, the latter perhaps as its JsonText; ``usage`` the tokens (the
    fields of Usage in order) and ``cost`` the USD that the effect itself used, without its own recorded steps: None for an
    unknown price. ``started`` and ``ended`` are unix seconds.
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
    """The arguments of an effect, by their names in messages."""
    return {f"the argument '{name}'": each for name, each in arguments.items()}


@frozen(kw_only=True)
class BranchEnd:
    """The end of a branch with a run of its own: its ``record`` in the run around it, and whether it ``settles`` the form.

    A form is settled by the first failure of a branch where it needs all of them, and by the first success of a race.
    """

    record: EffectRow
    settles: bool


@frozen(kw_only=True)
class StoredResult:
    """The result of a task or tool that other runs may reuse.

    ``value`` and ``turns`` are JSON data, ``usage`` and ``cost`` its cost, ``at`` the time of its execution (unix seconds).
    """

    kind: str
    name: str
    value: Any
    turns: Any
    usage: tuple[int, ...] | None
    cost: float | None
    at: float


@frozen(kw_only=True)
class NewRun:
    """The beginning of a run: its ``program`` text with its ``digest``, and ``input``, JSON data with everything else.

    ``base`` is the run with the records it may reuse; ``session`` the stored conversation that it holds until it has ended;
    ``opening`` are the earlier exchanges, oldest first, JSON data: None stands for those of the base. With ``takes_over``,
    the epoch of its owner, the base ends as cancelled, with this run as its ``successor``. ``queue`` is the queue of its
    workers, with ``priority`` and for ``tenant``; None if the starting process carries it out.
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


@frozen(kw_only=True)
class RunRow:
    """A stored run.

    ``epoch`` counts its owners and ``slice`` its stretches of work; ``seq`` the answers it received. ``wake_at`` is the
    time at which a waiting run continues by itself; ``spent_s`` its working time in seconds; ``result`` and ``error`` are
    JSON data. ``created`` and ``updated`` are unix seconds. ``deaths`` counts the owners that died one after the other
    while they worked on it, and recorded nothing in between. ``queue`` is the queue of its workers, ``tenant`` the tenant
    to charge; ``cancelling``: the workers are to cancel it. ``parent`` is the run it is a branch of. ``build`` is the
    build of its last worker.
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


# A row of totals: contents are gone, costs remain countable (decision 25)
@frozen(kw_only=True)
class PastRow:
    """A run with removed records, without its input and output.

    ``name`` is the name of its program, ``error`` the code of its failure; ``usage`` the tokens and ``cost`` the USD of all
    its records, with those of its branches on workers. The rest is as in :class:`RunRow`.
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


@frozen(kw_only=True)
class Claim:
    """A job that this worker has claimed: the next slice of a run, which had ``slice`` of them when the job was queued."""

    run: str
    slice: int


@frozen(kw_only=True)
class QueueLoad:
    """The work in one queue for one tenant: the number of runs in each status.

    ``interrupted`` runs count as waiting. ``oldest_s`` is the age of the oldest queued run in seconds.
    """

    queue: str
    tenant: str
    queued: int
    running: int
    waiting: int
    oldest_s: float


@frozen(kw_only=True)
class WorkerInfo:
    """A worker of a fleet: the process ``pid`` on ``host``, which carries out ``runs`` at present, at most ``slots``.

    ``build`` is a digest of everything its runs may call, equal for workers with the same tools, tasks and workflows.
    ``started`` and ``seen``, its last sign of life, are unix seconds.
    """

    host: str
    pid: int
    build: str
    slots: int
    runs: int
    started: float
    seen: float


@frozen(kw_only=True)
class FleetCounts:
    """Counters of this process among those that share a store, since it opened the store.

    ``takeovers``: runs of dead processes that it had queued again; ``sessions_lost``: how often it lost the session that
    owns its runs; ``refused``: batches of unstored records, since another process had taken the run over;
    ``commits`` transactions, which took ``commit_s`` seconds from start to stored.
    """

    takeovers: int = 0
    sessions_lost: int = 0
    refused: int = 0
    commits: int = 0
    commit_s: float = 0.0


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class OwnedRun:
    """A run that this process may now work on, with the records that can answer.

    Records below a finished one are left out. ``usage`` and ``cost`` are totals over all records, also those; ``cost`` is
    None if one has no price. ``leased``: it shares money and tokens with the runs of its branches and takes shares as
    needed. ``other_build`` is the build of its last worker, if different from this one's; ``retried`` the paths of failures tried again.
    """

    run: RunRow
    records: list[EffectRow]
    usage: tuple[int, ...]
    cost: float | None
    leased: bool = False
    other_build: str | None = None
    retried: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Deposit:
    """The rest of a run's US dollars and tokens, for itself and the runs of its branches; None: no limit.

    ``held_usd`` and ``held_tokens`` are set aside by the run itself for calls in progress.
    """

    usd: float | None
    tokens: int | None
    held_usd: float
    held_tokens: int


@frozen(kw_only=True)
class Leased:
    """The part granted of the US dollars and tokens that a run requested.

    It is smaller than the request if no more is left. With ``later`` it is zero, but other runs will return some.
    """

    usd: float
    tokens: int
    later: bool = False


@frozen(kw_only=True)
class StoredSession:
    """A stored conversation: its ``turns``, oldest first, and its ``state``, everything else; JSON data.

    ``holder`` is the unfinished run that uses it; ``last`` the last run that ended with it.
    """

    name: str
    turns: list[Any]
    state: Mapping[str, Any]
    holder: str | None = None
    last: str | None = None


@frozen(kw_only=True)
class SessionInfo:
    """A stored conversation in a listing: the number of its exchanges, and the unfinished run that holds it.

    ``created`` and ``updated`` are unix seconds.
    """

    name: str
    exchanges: int
    created: float
    updated: float
    run_id: str | None = None


@frozen(kw_only=True)
class SessionChanges:
    """Changes of a stored conversation: ``turns`` are added, after all others are dropped if ``reset``.

    Entries of ``state`` replace those it has. Turns and entries are JSON data.
    """

    turns: list[Any]
    state: Mapping[str, Any]
    reset: bool = False


def session_held(name: str, run: str) -> SessionBusy:
    """The error for a stored conversation that an unfinished run holds."""
    return SessionBusy(
        f"the session '{name}' belongs to the run '{run}', which has not ended",
        code="session/held",
        hint=f"resume it, flow.resume('{run}'), or give it up, flow.cancel('{run}')",
        details={"run_id": run},
    )
