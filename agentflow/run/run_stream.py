"""The handle of a running program: the object behind ``async with flow.stream(...) as run``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from agentflow.core.call.inbox import has_ended
from agentflow.core.data.errors import AgentflowError, RunCancelled
from agentflow.core.events.events import Event, EventBase
from agentflow.lib.event_loop import running_loop
from agentflow.observe.stream import Subscriber
from agentflow.run.handle import Account, AccountedRun, RunResult, account_of, state_in

T = TypeVar("T", default=Any)
E = TypeVar("E", bound=EventBase)


class OwnReader(Subscriber):
    """The queue of the caller's own stream; ``run`` is the run that it reads, once it is open. ``begun`` is set then, or when it
    has ended before."""

    __slots__ = ("_run", "begun")

    def __init__(self) -> None:
        super().__init__(lossy=False)
        self._run: AccountedRun | None = None
        self.begun = asyncio.Event()

    @property
    def run(self) -> AccountedRun | None:
        return self._run

    @run.setter
    def run(self, run: AccountedRun) -> None:
        self._run = run
        self.begun.set()


class RunSender(Protocol):
    """Sends to a run by its id, wherever that works."""

    async def say(self, run_id: str, text: str, *, task: str | None = None) -> None:
        """Say a text to the run."""
        ...

    async def send_signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Send a signal to the run."""
        ...


class RunDoors(RunSender, Protocol):
    """The actions on a stored run by its id, wherever that works."""

    async def cancel(self, run_id: str) -> None:
        """Cancel the run for good."""
        ...

    async def state(self, run_id: str) -> dict[str, Any]:
        """A copy of the state of the run."""
        ...


class RunStream(Generic[T]):
    """A run and its events. Use it with ``async with``; nothing outlives the block.

    Iterate over it for typed events, at most once; await :meth:`value` for the program's value. If you leave the block
    early, the run is cancelled, and the block waits for its end. A failed run raises its error from :meth:`value` or, if you did not await it, at
    the end of the block. ``in_turn`` gives a context manager held while the run lasts: in the code of a workflow
    the run is one of its calls. ``run_id`` is the id that the run will have; ``sender`` reaches it by that.
    """

    def __init__(
        self,
        main: Callable[[OwnReader], Awaitable[RunResult[T]]],
        in_turn: Callable[[], AbstractAsyncContextManager[None]] | None = None,
        *,
        run_id: str,
        sender: RunSender,
    ) -> None:
        self._run_id = run_id
        self._sender = sender
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
            self._events.begun.set()

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

    @property
    def run_id(self) -> str:
        """The id of the run; in a call of another run, that of this other run, which it is a part of."""
        run = self._events.run
        return self._run_id if run is None else run.run_id

    async def cancel(self) -> None:
        """Cancel the run, and wait until it has cleaned up. Its events end; :meth:`value` raises RunCancelled."""
        task = self._opened()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def say(self, text: str, *, task: str | None = None) -> None:
        """Say something to the run: its outermost loop of a model with tools, or the ``task`` of this name, reads it before its next
        model call; one that is about to end has one more turn for it.

        The event TextSaid says that the text has come, TextRead that a model call has it; the conversation has it as a message of the
        user. Raises DataError: ``run/ended`` when the run has ended, ``say/task`` for a task that the flow does not have, ``say/text``,
        ``say/full``.
        """
        await self._sender.say(await self._id_at_work(), text, task=task)

    async def signal(self, name: str, value: Any = None) -> None:
        """Send a signal: ``flow.signal(name)`` in the workflow waits for it, or will. Signals of one name are received in the order
        they were sent.

        ``value`` is JSON data, a dataclass or pydantic model. Raises the errors of :meth:`~agentflow.AgentFlow.send_signal`.
        """
        await self._sender.send_signal(await self._id_at_work(), name, value)

    async def state(self) -> dict[str, Any]:
        """A copy of the state that the run has published (``ctx.state``, ``flow.publish``), also after its end."""
        self._opened()
        await self._events.begun.wait()
        run = self._events.run
        return {} if run is None else state_in(run)

    async def _id_at_work(self) -> str:
        """The id of the run, once it has begun. Raises DataError (``run/ended``)."""
        task = self._opened()
        await self._events.begun.wait()
        if task.done():
            raise has_ended(self.run_id, stored=True)
        return self.run_id

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
                hint="await run.value() inside of the async with block, before run.cancel()",
            )
            error.run_id, error.usage, error.cost = account.run_id, account.usage, account.cost
            raise error
        return self._result
