"""The handle of a running program: the object behind ``async with flow.stream(...) as run``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from agentflow.core.data.errors import AgentflowError, ConfigurationError, RunCancelled, clip
from agentflow.core.data.event_log import EventId
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.events.events import Event, EventBase
from agentflow.lang.printer import print_value
from agentflow.lib.event_loop import running_loop
from agentflow.lib.file_writer import write_private
from agentflow.observe.stream import Subscriber

T = TypeVar("T", default=Any)
E = TypeVar("E", bound=EventBase)
_SHOWN = 20_000


class Recorded(Protocol):
    """The recorded events of runs. ``wire`` returns the HTTP request of a model call, if it is known."""

    @property
    def wire(self) -> Callable[..., Any] | None: ...

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """The recorded events of a run, as JSON data."""
        ...

    async def has(self, run_id: str) -> bool:
        """Whether events of a run were recorded."""
        ...

    def batches(self, run_id: str, after: EventId) -> AsyncGenerator[list[dict[str, Any]]]:
        """The recorded events of a run after ``after``, some at a time."""
        ...


@frozen
class RunResult(Generic[T]):
    """A finished run: its ``value``, the tokens used, the ``cost`` in US dollars (None: a price is unknown), its id.

    ``steps`` is the number of steps taken; ``records`` reads its recorded events, None if there are none; ``reports`` are
    the paths of the pages written about it. ``sources`` are the sources of the value, other than the program and its user,
    in a flow with a policy (``AgentFlow(provenance=)``); empty otherwise.
    """

    value: T
    usage: Usage
    cost: float | None
    run_id: str
    steps: int = 0
    records: Recorded | None = field(default=None, repr=False, compare=False)
    reports: list[str] = field(default_factory=list[str], repr=False, compare=False)
    sources: frozenset[str] = frozenset()

    async def report(self, path: str | Path) -> None:
        """Write the run as an HTML page to ``path``; only the file's owner may read it.

        Raises ConfigurationError (``report/not-recorded``) for a run of a flow without records, OSError.
        """
        if self.records is None:
            raise ConfigurationError(
                f"run {self.run_id} was not recorded, so there is nothing to report",
                code="report/not-recorded",
                hint="AgentFlow(record=True), or subscribe a Report before the run",
            )
        from agentflow.observe.report.html import report_html

        events, wire = await self.records.events(self.run_id), self.records.wire
        await asyncio.to_thread(lambda: write_private(Path(path), report_html(events, wire=wire)))
        self.reports.append(str(path))

    def _repr_html_(self) -> str:
        """The value, the account, and a link to the report that was written last, for notebooks."""
        import html

        cost = "an unknown price" if self.cost is None else f"${self.cost:.4f}"
        tokens = f"{self.usage.input_tokens:,} tokens in, {self.usage.output_tokens:,} out"
        value = self.value if isinstance(self.value, str) else print_value(self.value, limit=_SHOWN)
        if self.reports:
            page = html.escape(self.reports[-1])
            seen = f' · <a href="{page}">{page}</a>'
        else:
            seen = "" if self.records is None else " · <code>await result.report('run.html')</code> shows it"
        account = f"run {html.escape(self.run_id)}: {tokens}, {cost}, {self.steps:,} steps{seen}"
        return f"<pre>{html.escape(clip(value, _SHOWN))}</pre><small>{account}</small>"


@frozen
class Account:
    """The usage of a run so far: its id, the tokens, the ``cost`` in US dollars (None: a price is unknown), the steps.

    A model call in progress counts with its input and the received part of its answer, by estimate; so does an aborted
    one. ``estimated_tokens`` are those among the tokens. ``reserved_tokens`` and ``reserved_usd`` are the most that the
    calls in progress may cost, reserved from the run's limits and its purse; 0 for a run without both.
    """

    run_id: str = ""
    usage: Usage = NO_USAGE
    cost: float | None = 0.0
    steps: int = 0
    reserved_tokens: int = 0
    reserved_usd: float = 0.0

    @property
    def estimated_tokens(self) -> int:
        """Tokens that count by estimate."""
        return self.usage.estimated_tokens


class AccountedRun(Protocol):
    """The attributes of a run used for its account."""

    run_id: str

    @property
    def steps_used(self) -> int: ...
    @property
    def reserved(self) -> tuple[int, float]:
        """The tokens and US dollars reserved for calls in progress."""
        ...

    def so_far(self) -> tuple[Usage, float | None]:
        """Its usage and cost, with the calls in progress."""
        ...


def account_of(run: AccountedRun) -> Account:
    """The usage of ``run`` so far."""
    return Account(run.run_id, *run.so_far(), run.steps_used, *run.reserved)


class OwnReader(Subscriber):
    """The queue of the caller's own stream; ``run`` is the run that it reads, once it is open."""

    __slots__ = ("run",)

    def __init__(self) -> None:
        super().__init__(lossy=False)
        self.run: AccountedRun | None = None


class RunStream(Generic[T]):
    """A run and its events. Use it with ``async with``; nothing outlives the block.

    Iterate over it for typed events, at most once; await :meth:`value` for the program's value. If you leave the block
    early, the run is cancelled, and the block waits for its end. A failed run raises its error from :meth:`value` or, if you did not await it, at
    the end of the block. ``in_turn`` gives a context manager held while the run lasts: in the code of a workflow
    the run is one of its calls.
    """

    def __init__(
        self,
        main: Callable[[OwnReader], Awaitable[RunResult[T]]],
        in_turn: Callable[[], AbstractAsyncContextManager[None]] | None = None,
    ) -> None:
        self._main = main
        self._in_turn = in_turn
        self._block = AsyncExitStack()
        self._events = OwnReader()
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None
        self._result: RunResult[T] | None = None
        self._error: Exception | None = None
        self._seen = False
        self._iterated = False

    async def __aenter__(self) -> RunStream[T]:
        running_loop()  # raises a clear error if there is none
        if self._in_turn is not None:
            await self._block.enter_async_context(self._in_turn())
        await self._group.__aenter__()
        self._task = self._group.create_task(self._run())
        return self

    async def _run(self) -> None:
        try:
            self._result = await self._main(self._events)
        except Exception as error:  # noqa: BLE001 - handed to the caller that asks; a task group would wrap it
            self._error = error
        finally:
            await self._block.aclose()
            self._events.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        task = self._task
        assert task is not None
        finished = task.done()
        self._events.discard()
        if not finished:
            task.cancel()
        try:
            await self._group.__aexit__(None if not isinstance(error, asyncio.CancelledError) else kind, error, trace)
        finally:
            await self._block.aclose()  # a task cancelled before its first step did not close it
        if error is None and finished and self._error is not None and not self._seen:
            raise self._error
        return None

    @property
    def account(self) -> Account:
        """The steps, tokens and cost of the run so far."""
        run = self._events.run
        return Account() if run is None else account_of(run)

    def _opened(self) -> asyncio.Task[None]:
        if self._task is None:
            raise AgentflowError(
                "this stream is not open",
                code="stream/not-open",
                hint="write: async with flow.stream(...) as run: async for event in run: ...",
            )
        return self._task

    def __aiter__(self) -> AsyncIterator[Event]:
        self._opened()
        if self._iterated:
            raise AgentflowError(
                "the events of a run can be iterated over once",
                code="stream/iterated",
                hint="subscribe a second reader with flow.subscribe before the run",
            )
        self._iterated = True
        return self._events.__aiter__()

    async def of(self, kind: type[E]) -> AsyncIterator[E]:
        """The events of one kind, as in ``async for part in run.of(PartialOutput)``; all others are skipped."""
        async for event in self:
            if isinstance(event, kind):
                yield event

    async def value(self) -> T:
        """Wait for the end of the run, discarding unread events, and return the program's value. Raises its error."""
        return (await self.result()).value

    async def result(self) -> RunResult[T]:
        """Like :meth:`value`, but return the whole result."""
        task = self._opened()
        self._events.discard()
        if not task.done():
            await asyncio.wait([task])
        self._seen = True
        if self._error is not None:
            raise self._error
        if self._result is None:
            account = self.account
            error = RunCancelled(
                "the run was cancelled before its end, so it has no value",
                hint="await run.value() inside of the async with block",
            )
            error.run_id, error.usage, error.cost = account.run_id, account.usage, account.cost
            raise error
        return self._result
