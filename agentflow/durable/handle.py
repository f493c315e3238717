"""The handle of a durable run, its summary in listings, and the state of one in progress in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

from agentflow.core.data.batches import BatchWait
from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.source import Source
from agentflow.core.events.journal_rows import ENDED, PastRow, RunRow, RunStatus
from agentflow.core.events.questions import Question
from agentflow.durable.deriving import successor_of
from agentflow.durable.run_records import Records, Rest
from agentflow.durable.stored_input import PythonProgram
from agentflow.durable.values.codec import read_usage
from agentflow.lang.program import Program
from agentflow.run.handle import Account, RunResult, account_of
from agentflow.run.run_spec import RunSpec
from agentflow.run.run_stream import RunDoors

T = TypeVar("T", default=Any)


@frozen(kw_only=True)
class RunInfo:
    """A durable run in a listing.

    ``status`` is queued (to be resumed), running, waiting (for an answer or a time), interrupted (you must decide),
    done, failed or cancelled. ``name`` is its program's name; ``slices`` the number of times it was started or resumed;
    ``error`` the message of its failure; ``wake_at`` when a waiting run continues by itself. ``base`` is the run with the
    records it may reuse, ``successor`` the generation that continues it. ``program`` is the digest of its text, ``labels``
    the labels given at its start, ``queue`` the queue of its workers, ``tenant`` the tenant to charge. ``parent`` is
    the run it is a branch of. ``cost_usd`` is its cost in US dollars, None for an unknown price and for an unfinished run,
    ``duration_s`` its working time in seconds; ``scores`` are those of :meth:`~agentflow.AgentFlow.score`, by name, if requested; ``batches``, read for one run,
    its model calls that wait for batches. Times are unix seconds.
    """

    run_id: str
    status: RunStatus
    name: str
    slices: int
    created: float
    updated: float
    error: str | None = None
    base: str | None = None
    successor: str | None = None
    program: str = ""
    wake_at: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    queue: str | None = None
    tenant: str = ""
    parent: str | None = None
    cost_usd: float | None = None
    duration_s: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    batches: Sequence[BatchWait] = ()

    @classmethod
    def of(cls, row: RunRow) -> RunInfo:
        """The summary of a stored run."""
        return cls(
            run_id=row.run,
            status=row.status,
            name=str(row.input.get("name", "")),
            slices=row.slice,
            created=row.created,
            updated=row.updated,
            error=row.error[1].get("message") if row.error else None,
            base=row.base,
            successor=successor_of(row),
            program=Source("", row.program).digest,
            wake_at=row.wake_at if row.status == "waiting" else None,
            labels=row.input.get("labels") or {},
            queue=row.queue,
            tenant=row.tenant,
            parent=row.parent,
            cost_usd=cost_of(row),
            duration_s=row.spent_s,
        )


def cost_of(row: RunRow) -> float | None:
    """The cost of a stored run in US dollars; None for an unknown price, and for an unfinished run."""
    return None if row.result is None else row.result.get("cost")


@frozen(kw_only=True)
class PastRun:
    """A durable run with removed records, without its input and output.

    ``name`` is its program's name, ``error`` the code of its failure, ``slices`` the number of times it was started or
    resumed, ``spent_s`` its working time in seconds. ``usage`` and ``cost_usd`` (None for an unknown price) are those of
    all its slices. Times are unix seconds.
    """

    run_id: str
    status: RunStatus
    name: str
    slices: int
    spent_s: float
    usage: Usage
    cost_usd: float | None
    created: float
    updated: float
    error: str | None = None
    queue: str | None = None
    tenant: str = ""

    @classmethod
    def of(cls, row: PastRow) -> PastRun:
        """The summary of a stored row."""
        return cls(
            run_id=row.run,
            status=row.status,
            name=row.name,
            slices=row.slices,
            spent_s=row.spent_s,
            usage=read_usage(row.usage),
            cost_usd=row.cost,
            created=row.created,
            updated=row.updated,
            error=row.error,
            queue=row.queue,
            tenant=row.tenant,
        )


class RunEnd(NamedTuple):
    """How a run ended in this process: its status with its result, its error or its successor."""

    status: RunStatus
    result: RunResult | None = None
    error: Exception | None = None
    successor: str | None = None


class DurableRun(Generic[T]):
    """A durable run started or resumed here, or one that had already ended.

    ``run_id`` is its id. ``replayed`` is the number of its effects answered from records; ``saved`` and
    ``saved_cost`` are the tokens and US dollars of those records, its own and those it took over from the run it is based
    on. ``wake_at`` is when a waiting run continues by itself, in unix seconds; None if it waits for answers only.
    """

    def __init__(
        self,
        run_id: str,
        end: RunEnd | None = None,
        *,
        doors: RunDoors,
    ) -> None:
        self.run_id = run_id
        self.wake_at: float | None = None
        self._doors = doors
        self._resting = False
        self._elsewhere: RunStatus | None = None
        self._questions: list[Question] = []
        self._ended = asyncio.Event()
        self._still = asyncio.Event()
        self._before: tuple[Usage, float | None] = (NO_USAGE, 0.0)
        self._end: RunEnd | None = end
        self._records: Records | None = None
        if end is not None:
            self._still.set()
            self._ended.set()

    @property
    def status(self) -> RunStatus:
        """``running`` or ``waiting`` until it ends: ``done``, ``failed``, ``cancelled``, or ``queued`` when interrupted.

        A run waits when it can only continue after an answer or at a certain time.
        """
        if self._end is not None:
            return self._end.status
        return "waiting" if self._resting else self._elsewhere or "running"

    @property
    def waiting(self) -> list[Question]:
        """The open questions and approvals, each with ``key``, ``question``, ``schema``, ``reason`` and ``path``.

        ``flow.send`` answers them, also while other branches of the run continue.
        """
        if self._resting or self._records is None or self._end is not None:
            return list(self._questions)
        leaving = self._records.rest  # its waits end one after the other then, but its questions stay open
        return self._records.parking.questions if leaving is None else list(leaving.questions)

    @property
    def replayed(self) -> int:
        """The number of effects answered from records so far."""
        return 0 if self._records is None else self._records.replayed

    @property
    def saved(self) -> Usage:
        """The tokens that did not have to be used again."""
        return self._before[0] if self._records is None else self._before[0] + self._records.adopted_usage

    @property
    def saved_cost(self) -> float | None:
        """The USD that did not have to be paid again; None if a price is unknown."""
        before, adopted = self._before[1], 0.0 if self._records is None else self._records.adopted_cost
        return None if before is None or adopted is None else before + adopted

    @property
    def account(self) -> Account:
        """The steps, tokens and cost of the run so far, in all processes."""
        end = self._end
        if end is not None and end.result is not None:
            return Account(self.run_id, end.result.usage, end.result.cost, end.result.steps)
        if end is not None and self._records is None and isinstance(end.error, AgentflowError):
            return Account(self.run_id, end.error.usage or NO_USAGE, end.error.cost)
        run = None if self._records is None else self._records.live
        return Account(self.run_id, *self._before) if run is None else account_of(run)

    async def result(self) -> RunResult[T]:
        """Wait for the end of the run and return its result. Raises the program's error, and JournalError.

        Its codes are ``durable/cancelled``, ``durable/superseded``, and if the flow closes first ``durable/interrupted`` or
        ``durable/waiting``. Usage and cost of the result are those of the whole run, in all processes.
        """
        await self._ended.wait()
        assert self._end is not None
        if self._end.error is not None:
            raise self._end.error
        if self._end.result is None:
            raise _no_result(self.run_id, self._end, elsewhere=self._elsewhere is not None)
        return self._end.result

    async def wait(self) -> RunStatus:
        """Wait until the run has ended or has to wait itself. Returns its status."""
        await self._still.wait()
        return self.status

    async def cancel(self) -> None:
        """Cancel the run for good, and wait until it has cleaned up. It cannot be resumed afterwards.

        Cancelling it again, from anywhere, waits for the same end.
        """
        if self._end is None:
            await self._doors.cancel(self.run_id)

    async def say(self, text: str, *, task: str | None = None) -> None:
        """Say something to the run: its outermost loop of a model with tools, or the ``task`` of this name, reads it before its next
        model call; one that is about to end has one more turn for it.

        The event TextSaid says that the text has come, TextRead that it is read; the conversation has it as a message of the user.
        Raises DataError: ``run/ended`` when the run has ended, ``say/task`` for a task that the flow does not have, ``say/text``,
        ``say/full``; and JournalError.
        """
        await self._doors.say(self.run_id, text, task=task)

    async def signal(self, name: str, value: Any = None) -> None:
        """Send a signal: :meth:`~agentflow.AgentFlow.signal` in the workflow waits for one of this name, or will. Signals of one name
        are received in the order they were sent.

        ``value`` is JSON data, a dataclass or pydantic model. Raises DataError: ``signal/value`` if the run waits for a signal
        of another type, ``run/ended``, ``say/full``; and JournalError.
        """
        await self._doors.send_signal(self.run_id, name, value)

    async def state(self) -> dict[str, Any]:
        """The state that the run has published, also after its end and from any process: a copy. Raises JournalError."""
        return await self._doors.state(self.run_id)


def _no_result(run_id: str, end: RunEnd, *, elsewhere: bool) -> JournalError:
    if elsewhere and end.status not in ENDED:
        return JournalError(
            f"the run '{run_id}' had not ended when this flow was closed; workers resume it",
            code="durable/elsewhere",
            hint=f"flow.start with run_id='{run_id}' follows it again, flow.find_run('{run_id}') shows its status",
        )
    if end.successor is not None:
        return JournalError(
            f"the run '{run_id}' is continued by '{end.successor}'",
            code="durable/superseded",
            hint=f"flow.resume('{end.successor}')",
            details={"successor": end.successor},
        )
    if end.status == "cancelled":
        return JournalError(f"the run '{run_id}' was cancelled", code="durable/cancelled", hint="start another")
    if end.status == "waiting":
        return JournalError(
            f"the run '{run_id}' waits for an answer or a time",
            code="durable/waiting",
            hint=f"flow.send answers its question, and flow.resume('{run_id}') resumes it",
        )
    return JournalError(
        f"the run '{run_id}' was interrupted",
        code="durable/interrupted",
        hint=f"flow.resume('{run_id}') resumes it",
    )


class RunWork(NamedTuple):
    """Everything needed to resume a run in this process. ``again``: it had ended before."""

    program: Program | PythonProgram
    spec: RunSpec
    again: bool


class LiveRun(DurableRun):
    """The handle of a run that works or waits here, or is followed while workers carry it out.

    ``work`` resumes it; None if it is only followed. ``cancelled``: it is being cancelled for good. ``adopted``: this
    process took it over from one that died, and no caller has requested it since.
    """

    def __init__(
        self,
        run_id: str,
        doors: RunDoors,
        work: RunWork | None = None,
        *,
        cancelled: bool = False,
    ) -> None:
        super().__init__(run_id, doors=doors)
        self.work = work
        self.cancelled = cancelled
        self.adopted = False
        self.task: asyncio.Task[None] | None = None

    @property
    def resting(self) -> bool:
        """Whether it waits, and is not in memory."""
        return self._resting

    @property
    def records(self) -> Records | None:
        """Its records in its present slice, or the last one."""
        return self._records

    @property
    def at_work(self) -> bool:
        """Whether this process executes it."""
        return self.task is not None and not self.task.done()

    @property
    def is_live(self) -> bool:
        """Whether this process works on the run, or resumes it when it has waited."""
        return self._end is None and (self._resting or self.at_work)

    @property
    def is_lost(self) -> bool:
        """Whether its work stopped without an end, a wait or another process that continues it."""
        return self._end is None and not self._resting and self._elsewhere is None

    @property
    def on_trial(self) -> bool:
        """Whether it is at work here and has recorded nothing yet."""
        return not self._still.is_set() and (self._records is None or not self._records.advanced)

    async def ended(self) -> None:
        """Wait until it has ended or was given up."""
        await self._ended.wait()

    def wake(self) -> Callable[[], None] | None:
        """End the rest of a waiting run. Returns a function that restores it, None if it did not rest."""
        if not self._resting:
            return None
        self._resting = False
        return self._wait_again

    def _wait_again(self) -> None:
        self._resting = True

    def begin(self, task: asyncio.Task[None], before: tuple[Usage, float | None]) -> None:
        """Record that ``task`` works on it; ``before`` is the usage of earlier slices."""
        self._still.clear()
        self._before = before
        self.task = task

    def write_to(self, records: Records) -> None:
        """Record where the slice that begins keeps its records."""
        self._records = records

    def stop(self) -> asyncio.Task[None] | None:
        """Cancel it for good, once. Returns its work, to be awaited; None if it is not at work."""
        work = self.task
        if work is None or work.done() or self._resting:
            return None
        if not self.cancelled:
            self.cancelled = True
            # A task cancelled before its first step would never run its handlers.
            asyncio.get_running_loop().call_soon(work.cancel)
        return work

    def settle(self, end: RunEnd) -> None:
        """Record the end, and wake all who wait for it."""
        if end.status != "waiting":
            self._resting, self._questions, self.wake_at = False, [], None
        self._end = end
        self._still.set()
        self._ended.set()

    def cancelled_late(self) -> None:
        """Record that it is cancelled for good, if it was given up: it began to wait just then, or to store its end."""
        if self._end == RunEnd("queued"):
            self.settle(RunEnd("cancelled"))

    def abandon(self) -> None:
        """Give up the run: its event loop was closed, so nothing can wait for it there any more."""
        self._ended, self._still = asyncio.Event(), asyncio.Event()
        self.settle(RunEnd("waiting" if self._resting else "queued"))

    def follow(self, status: RunStatus, rest: Rest | None = None) -> None:
        """Record the status of a run that workers carry out; ``rest`` is its wait."""
        self._elsewhere = status
        if rest is not None:
            self.rest(rest)
        elif self._resting:
            self._resting, self._questions, self.wake_at = False, [], None
            self._still.clear()

    def rest(self, rest: Rest) -> None:
        """Record that the run waits and has left the memory."""
        self._resting = True
        self._questions, self.wake_at = rest.questions, rest.wake_at
        self._still.set()

    def suspend(self) -> None:
        """Give the run up, to be resumed later."""
        if self._resting:
            self.settle(RunEnd("waiting"))
        if self._records is not None:
            self._records.suspending = True
        if self.task is not None:
            self.task.cancel()
