"""Lines: the sequence of the effects that the code of a Python workflow performs, on a strand like a program's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from inspect import isawaitable
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from agentflow.core.call.call import LineCall, LineCode, calling, contained, is_stray, view_of
from agentflow.core.call.host_calls import LINE_S, HostCalls
from agentflow.core.data.errors import AgentflowError, LimitExceeded, WorkflowError
from agentflow.core.data.session import Session
from agentflow.core.data.source import Source, Span
from agentflow.core.events.effects import Effect
from agentflow.lang.abi import Runtime
from agentflow.run.strand import branches, recovery
from agentflow.run.strand.strand import Strand

if TYPE_CHECKING:
    from agentflow.core.call.deliveries_port import Deliveries
    from agentflow.flow.asyncio_tasks import LineTasks

T = TypeVar("T")
Start = Callable[[], Awaitable[Any]]
_LOOKED_AT = 100
"""Number of parts of a list to check for calls that were not awaited: if one was forgotten, usually all were."""
_NOWHERE = Source("<python>", "").span(0, 0)


class LineWork(Protocol):
    """A call carried out on a line: see :class:`~agentflow.flow.python.FlowCall`."""

    @property
    def label(self) -> str: ...
    @property
    def work(self) -> Callable[[Any], Awaitable[Any]]: ...
    @property
    def read(self) -> Callable[[Any], Any]: ...


class HostFailure(AgentflowError):
    """Carries a host exception through the runtime, which handles only its own errors."""

    default_code = "host/raised"

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error
        self.__cause__ = error


class Line:
    """One sequential line of Python code: its ``strand``, the task ``at_work`` on that code, and the call ``in_flight``, which
    the task ``flying`` awaits.

    ``forgotten`` names the call dropped without being awaited; ``entered`` says that code runs on the line, ``converses``
    that a session was given for the task which is called on it. ``calls`` is the number of calls so far. Once the code has created
    tasks of asyncio, ``tasks`` are these, which are seen from the beginning if the loop is ``seen``; ``timers`` is the number of
    timers that it made before; ``cut`` is there once calls of
    a durable run were cancelled, now or before it was resumed. In host code without a fixed order, such as that of a tool,
    each call has a line of its own.
    """

    __slots__ = (
        "at_work",
        "calls",
        "code",
        "converses",
        "cut",
        "entered",
        "flying",
        "forgotten",
        "in_flight",
        "seen",
        "strand",
        "tasks",
        "timers",
    )

    def __init__(self, strand: Strand) -> None:
        self.strand = strand
        self.entered = False
        self.seen = False
        self.converses = False
        self.forgotten: str | None = None
        self.in_flight: LineWork | str | None = None
        self.flying: asyncio.Task[Any] | None = None
        self.at_work: asyncio.Task[Any] | None = None
        self.code: HostCalls | None = None
        self.calls = 0
        self.timers = 0
        self.cut: Deliveries | None = None
        self.tasks: LineTasks | None = None

    # A task is a branch: its effects are named by the task, not by the order of arrival (decision 53)
    def here(self) -> Line:
        """The line of the executing task: this one, or that of a task which the line's code has created.

        Raises PythonOverlap for a task that outlived the workflow.
        """
        at_work, task = self.at_work, asyncio.current_task()
        if at_work is task or task is None or _in_other_loop(at_work, task):
            return self
        if task is self.flying and self.in_flight is not None:
            return self
        if self.tasks is None:
            if at_work is None:
                return self
            from agentflow.flow.asyncio_tasks import LineTasks

            self.tasks = LineTasks(self)
        return cast("Line", self.tasks.line_of(task))

    def carry(self) -> None:
        """Note that the executing task carries out the call in flight on this line."""
        task = self.flying = asyncio.current_task()
        if self.tasks is not None and task is not None:
            self.tasks.carried(task, self)

    def beside(self, strand: Strand, task: asyncio.Task[Any], *, shared: bool = False) -> Line:
        """A line for ``task``, created by the code of this one, on ``strand``; ``shared`` says that other lines are on it too."""
        line = Line(strand)
        line.entered, line.at_work, line.tasks = True, task, self.tasks
        if not shared:
            strand.call = strand.call.of_line(line)
        return line

    async def run(self, start: Start, *, source: Source | None = None) -> Any:
        """Run host code to its end and return its value, with its effects numbered on this line.

        A call left in flight is cancelled and has ended. Raises WorkflowError for a call that was not awaited.
        """
        call = self.strand.call = self.strand.call.of_line(self)
        self.entered = True
        if source is not None and source.text:
            call.program_loaded(source, "python")
        with LineCode(call):
            try:
                value = await self.body(start)
            except BaseException as error:  # of any kind: no task that makes calls outlives the code
                if self.tasks is not None:
                    await self.tasks.close(error)
                raise
            if self.tasks is not None:
                await self.tasks.close()
        self._check_awaited()
        return value

    async def do(self, call: LineWork) -> Any:
        """Carry out one call and return its value. Raises as :meth:`flight` does, and again once the code was cancelled or met a limit."""
        if self.tasks is not None:
            async with self.tasks.turn(self, call):
                return await self.carried_out(call)
        with self.flight(call) if self.goes_on() else await self.turn(call):
            number, before = self.calls, self.strand.call.effects
            try:
                if self.cut is None or self.stopping():
                    return await self.carried_out(call)
                from agentflow.flow.asyncio_tasks import as_recorded

                return await as_recorded(self, self.cut, partial(self.carried_out, call))
            except asyncio.CancelledError:
                self.lose(number, before)
                raise

    def lose(self, number: int, effects: int = -1) -> None:
        """Note in a durable run that the call of this number was cancelled, in case the code does more. It may have had no effect yet
        if there were ``effects`` before it."""
        call = self.strand.call
        journal = call.run.journal
        if journal is not None and not journal.suspending and not self.over():
            call.number_from(effects + 1)
            self.cut = journal.deliveries(call)
            self.cut.lost(f"{call.path}#{number}", call.path)

    def stopping(self) -> bool:
        """Whether the code was cancelled or met a limit, so that its calls clean up."""
        return self.code is not None and (self.code.cancelled() or self.strand.budget.met is not None)

    def over(self) -> bool:
        """Whether a limit ends the work on this line."""
        budget = self.strand.budget
        return budget.met is not None or budget.out_of_time()

    async def carried_out(self, call: LineWork) -> Any:
        """Carry out the call in flight, and note the limit that ends it."""
        try:
            return call.read(await call.work(self))
        except LimitExceeded as error:
            self.strand.budget.meet(error)
            raise

    def goes_on(self) -> bool:
        """Whether a new call is an ordinary one: a :meth:`flight`, and no :meth:`turn`."""
        return self.code is None or not (self.code.stopped or self.strand.budget.met is not None)

    async def turn(self, call: LineWork | str) -> AbstractContextManager[None]:
        """The block of :meth:`flight` for a new call. A call that cleans up has no model and is not counted; any other
        raises again the error that stopped the code, even if the code caught it."""
        code, strand = self.code, self.strand
        journal, met = strand.call.run.journal, strand.budget.met
        if code is None or not (code.cancelled() or met is not None):
            return self.flight(call)
        if (journal is not None and journal.suspending) or not code.handles_a_stop():
            await code.refuse()
            raise met or asyncio.CancelledError()
        return self._cleaning_up(call, limited=met is not None or strand.budget.out_of_time())

    @contextmanager
    def _cleaning_up(self, call: LineWork | str, *, limited: bool) -> Generator[None]:
        with self.flight(call), recovery.cleaning(self.strand, limited=limited):
            yield

    @contextmanager
    def flight(self, call: LineWork | str) -> Generator[None, None, None]:
        """A block during which a call, or something with this name, is in flight.

        Raises PythonOverlap if another call is in flight, WorkflowError if one was forgotten before.
        """
        task = asyncio.current_task()
        if self.in_flight is not None or (self.at_work is not None and self.at_work is not task):
            from agentflow.flow.asyncio_tasks import overlap

            other = None if self.in_flight is None else _label(self.in_flight)
            raise overlap(_label(call), other, beside=_in_other_loop(self.at_work, task))
        if self.forgotten is not None:
            self._check_awaited()
        self.in_flight, self.flying = call, task
        self.calls += 1
        try:
            yield
        finally:
            self.in_flight = None

    async def body(self, start: Start) -> Any:
        """Run host code as part of the call in flight: its own calls are made on this line."""
        around, self.in_flight = self.in_flight, None
        outer, self.at_work = self.at_work, asyncio.current_task()
        caller, self.code = self.code, HostCalls(self.code if outer is self.at_work else None)
        code, tasks = self.code, self.tasks
        try:
            with nullcontext() if tasks is None or around is None else tasks.own_code():
                return await code.to_end(started(start), "the code of a workflow", LINE_S)
        except BaseException as error:  # of any kind: an Exception is raised again, any other is a failure of that code
            met = self.strand.budget.met
            if met is not None and error is not met and not code.cancelled():
                raise met from error
            if is_stray(error, code.cancelled()):
                raise contained(error) from error
            raise
        finally:
            left = self.flying if self.in_flight is not None else None
            self.in_flight, self.at_work, self.code = around, outer, caller
            if left is not None:
                left.cancel()
                await asyncio.wait([left])

    def perform(self, effect: Effect, span: Span | None) -> Coroutine[Any, Any, Any]:
        """Carry out an effect (to be awaited)."""
        strand = self.strand
        call = strand.call
        if span is None:
            span = call.span
        elif call.run.watched and span.source.text:
            call.program_loaded(span.source, "python")
        return strand.perform(effect, span)

    @asynccontextmanager
    async def conversing(self, session: Session) -> AsyncGenerator[None]:
        """A block for the call in flight to take part in ``session`` instead of that of the run. Raises the errors of
        :meth:`Session.used`."""
        call = self.strand.call
        outer = call.session
        async with session.used() as call.session:
            self.converses = True
            try:
                yield
            finally:
                if call.run.journal is not None:
                    call.session.forget_stopped()
                self.converses, call.session = False, outer

    @contextmanager
    def depending(self, deps: Any) -> Generator[None]:
        """A block for the call in flight with the dependencies ``deps`` instead of those of the run; None: those."""
        call = self.strand.call
        outer = call.run
        if deps is not None and outer.deps is not deps:
            call.run = view_of(outer, deps=deps)
        try:
            yield
        finally:
            call.run = outer

    # -- branches and recovery, as programs have them --------------------------------------------------------------

    async def map(
        self, function: Callable[[Any], Awaitable[Any]], items: Iterable[Any], limit: int | None, span: Span | None
    ) -> list[Any]:
        """The values of ``function`` on all items, in order, each in a branch."""

        def code(strand: Any, d: int, item: Any) -> Coroutine[Any, Any, Any]:
            return _in_branch(strand, lambda: function(item))

        return await _unwrapped(branches.each(self.strand, span or _NOWHERE, code, items, limit))

    async def fork(self, form: Callable[..., Awaitable[T]], parts: tuple[Awaitable[Any], ...], span: Span | None) -> T:
        """The value of ``form`` (parallel or race) for ``parts``, each awaited in a branch. Parts that never began are closed."""

        def code(part: Awaitable[Any]) -> Callable[[Any, int], Coroutine[Any, Any, Any]]:
            return lambda strand, d: _in_branch(strand, lambda: part)

        try:
            return await _unwrapped(form(self.strand, 0, span or _NOWHERE, [code(part) for part in parts]))
        finally:
            for part in parts:
                close(part)

    async def timeout(self, seconds: float, part: Awaitable[T], span: Span | None) -> T:
        """The value of ``part``, which may take ``seconds``."""
        try:
            return await _unwrapped(
                recovery.timeout(self.strand, 0, span or _NOWHERE, seconds, self._thunk(lambda: part))
            )
        finally:
            close(part)

    async def retry(
        self,
        times: int,
        start: Callable[[], Awaitable[T]],
        span: Span | None,
        worth: Callable[[BaseException | None], bool] | None = None,
    ) -> T:
        """The value of ``start()``, called again when a task, tool or step in it fails, at most ``times`` times in all; ``worth`` says
        after which failures (None: all)."""
        return await _unwrapped(
            recovery.retry(self.strand, 0, span or _NOWHERE, times, self._thunk(start), worth, steps=True)
        )

    def _thunk(self, start: Start) -> Callable[[Runtime, int], Coroutine[Any, Any, Any]]:
        return lambda rt, d: _guarded(self.body(start))

    def _check_awaited(self) -> None:
        forgotten, self.forgotten = self.forgotten, None
        if forgotten is not None:
            raise WorkflowError(
                f"{forgotten} was called and never awaited, so it did nothing",
                code="python/not-awaited",
                hint="write await before it; close() drops a call that is not wanted",
            )


async def carried_out(line: Line, work: LineWork, source: Source | None = None) -> Any:
    """The value of ``work``, carried out on a line of its own."""
    strand = line.strand
    try:
        return await line.run(lambda: line.do(work), source=source)
    except LimitExceeded as error:
        strand.budget.meet(error)
        raise
    finally:
        strand.end()


def taking_turn(line: Line | None, name: str) -> AbstractAsyncContextManager[None]:
    """A block that counts as a call on ``line``, in the code of a workflow; without a line it does nothing. Raises as :meth:`Line.turn`."""
    if line is None:
        return nullcontext()
    return _in_turn(line, name) if line.tasks is None else line.tasks.turn(line, name)


@asynccontextmanager
async def _in_turn(line: Line, name: str) -> AsyncGenerator[None]:
    with await line.turn(name):
        yield


async def started(start: Start) -> Any:
    """The value of awaiting ``start()``. Raises WorkflowError if that cannot be awaited, or if its value is awaitable itself."""
    awaitable = start()
    if not isawaitable(awaitable):
        raise WorkflowError(
            f"the workflow's function returns {type(awaitable).__name__}, which cannot be awaited",
            code="python/not-async",
            hint="pass a task, a workflow or an async function; flow.step takes plain functions too",
        )
    value = await awaitable
    _check_value(value)
    return value


def _check_value(value: Any) -> None:
    """Raise WorkflowError if ``value``, or one of its first parts, should have been awaited."""
    parts = cast("Iterable[Any]", value) if isinstance(value, list | tuple) else (value,)
    for part in islice(parts, _LOOKED_AT):
        if isawaitable(part):
            close(part)
            raise WorkflowError(
                f"{getattr(part, 'label', None) or repr(part)} is returned itself, instead of its value",
                code="python/not-awaited",
                hint="write await before it; for several calls flow.map or flow.parallel returns all values",
            )


def close(part: Any) -> None:
    """Close something that may not have begun, so that Python does not warn about it."""
    end = getattr(part, "close", None)
    if end is not None and hasattr(part, "__await__"):
        end()


async def _in_branch(strand: Strand, start: Start) -> Any:
    return await _guarded(own_code(Line(strand), start))


async def own_code(line: Line, start: Start, *, source: Source | None = None) -> Any:
    """The value of the host's code ``start`` on ``line``, with the tasks that it creates as branches. Raises as :meth:`Line.run`."""
    journal, outer = line.strand.call.run.journal, calling()
    if journal is not None and (deliveries := journal.deliveries(line.strand.call)).cuts:
        line.cut = deliveries
    seen = type(outer) is LineCall and outer.line.seen  # in a block around this one
    line.seen = True
    if seen:
        return await (line.body(start) if line.entered else line.run(start, source=source))
    from agentflow.flow.seen_loop import seeing

    with seeing(timers=journal is not None):
        return await (line.body(start) if line.entered else line.run(start, source=source))


async def _guarded(work: Awaitable[T]) -> T:
    try:
        return await work
    except AgentflowError:
        raise
    except Exception as error:
        raise HostFailure(error) from error


async def _unwrapped(work: Awaitable[T]) -> T:
    try:
        return await work
    except HostFailure as failure:
        error = failure.error
    raise error from error.__cause__


def _in_other_loop(at_work: asyncio.Task[Any] | None, task: asyncio.Task[Any] | None) -> bool:
    return at_work is not None and task is not None and at_work.get_loop() is not task.get_loop()


def _label(call: LineWork | str) -> str:
    return call if isinstance(call, str) else call.label
