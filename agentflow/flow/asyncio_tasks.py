"""Tasks of asyncio that the code of a workflow starts: each is a branch of its own, named by the order of its creation.

The order is seen by the task factory of :mod:`agentflow.flow.seen_loop`. A task that another factory created is not seen
until it makes a call: its calls are named by their content.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import Context
from functools import partial
from types import CodeType
from typing import Any, Protocol
from zlib import crc32

from agentflow.core.call.deliveries_port import Deliveries, timer_event
from agentflow.core.call.host_calls import LINE_S, HostCalls
from agentflow.core.data.errors import ConfigurationError, JournalError, PythonOverlap, RunStopped
from agentflow.core.data.known_names import content_mark, label_mark
from agentflow.core.data.session import Session
from agentflow.core.events.effects import AskHuman, Draw, Step
from agentflow.run.strand.budget import without_permit
from agentflow.run.strand.strand import Strand

_LOOK_S = 1.0
"""Seconds before a run being suspended cancels its tasks again, in case they caught it."""
_NOT_DELIVERED = (RunStopped, ConfigurationError, JournalError)
"""Errors that end the call they are raised in; a replay does not repeat them."""


class TaskWork(Protocol):
    """The parts of a call needed here: see :class:`~agentflow.flow.line.LineWork`."""

    @property
    def label(self) -> str: ...


class TaskLine(Protocol):
    """The parts of a :class:`~agentflow.flow.line.Line` needed here."""

    strand: Strand
    at_work: asyncio.Task[Any] | None
    code: HostCalls | None
    calls: int
    timers: int
    cut: Deliveries | None
    tasks: LineTasks | None

    @property
    def in_flight(self) -> object: ...
    def beside(self, strand: Strand, task: asyncio.Task[Any], *, shared: bool = False) -> TaskLine: ...
    def goes_on(self) -> bool: ...
    def flight(self, call: Any) -> AbstractContextManager[None]: ...
    async def turn(self, call: Any) -> AbstractContextManager[None]: ...
    def stopping(self) -> bool: ...
    def over(self) -> bool: ...


class _Birth:
    """A task as its creation named it. ``names`` counts the tasks that it creates itself, by the name of their code."""

    __slots__ = ("line", "names", "number", "parent", "path", "session", "timers")

    def __init__(self, number: int, path: str, session: Session, parent: _Birth | None) -> None:
        self.number = number
        self.path = path
        self.session = session
        self.timers = 0
        self.parent = parent
        self.names: dict[str, int] = {}
        self.line: TaskLine | None = None

    def child(self, number: int, code: object) -> _Birth:
        """The birth of a task that runs ``code``, created by this one."""
        name = _name_of(code)
        if _from_a_set():
            name += content_mark("", _content(code))
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        session = self.session if self.line is None else self.line.strand.call.session
        return _Birth(number, f"{self.path}/{label_mark(name)}.{count}", session.fork(), self)


class LineTasks:
    """The tasks created by the code of one line, ``root``, and by each other.

    Once there are any, a line holds a permit of the run only while one of its calls is in flight: code that awaits its
    tasks, or anything else outside agentflow, waits. In a durable run the outcomes of calls reach the code one by
    one, in a recorded order.
    """

    def __init__(self, root: TaskLine) -> None:
        self.closed = False
        self._root = root
        self._call = root.strand.call
        self._permits = root.strand.budget.permits
        self._base = _Birth(0, self._call.path, self._call.session, None)
        self._base.line = root
        self._base.timers = root.timers
        self._births: dict[asyncio.Task[Any], _Birth] = {}
        self._number = 0
        self._pending: _Birth | None = None
        self._lines: dict[asyncio.Task[Any], TaskLine] = {}
        self._carried: dict[asyncio.Task[Any], TaskLine] = {}
        self._code: dict[TaskLine, HostCalls] = {}
        self._used: list[_Birth] = []
        self._strange: TaskLine | None = None
        self._loose: set[asyncio.Task[Any]] = set() if root.at_work is None else {root.at_work}
        journal = self._call.run.journal
        self.deliveries = None if journal is None else journal.deliveries(self._call)
        if self.deliveries is not None:
            self.deliveries.watch(self.calm)
        self._permits.give()

    # -- births ----------------------------------------------------------------------------------------------------

    def knows(self, task: asyncio.Task[Any]) -> bool:
        """Whether ``task``, which is executing, was seen when it was created, and runs its own code now."""
        if self._birth_of(task) is None:
            return False
        line = self._lines.get(task)
        return line is None or line.in_flight is None

    def timer_name(self) -> str:
        """The name of a timer that the executing task makes now: the same whenever the run is resumed."""
        task = asyncio.current_task()
        birth = self._base if task is None else self._birth_of(task) or self._base
        birth.timers += 1
        return timer_event(birth.path, birth.timers)

    def at_birth(self) -> bool:
        """Whether a task is being created, by this factory further out."""
        return self._pending is not None

    def _birth_of(self, task: asyncio.Task[Any]) -> _Birth | None:
        if task is self._root.at_work:
            return self._base
        birth = self._births.get(task)
        if birth is None and self._pending is not None:  # eager: it runs before the factory has returned it
            birth, self._pending = self._pending, None
            self._note(birth, task)
        return birth

    @contextmanager
    def birth(self, code: object) -> Generator[tuple[int, Callable[[asyncio.Future[Any]], None]]]:
        """A block for the executing task to create one that runs ``code``.

        It yields a number that the task keeps whenever the run is resumed, and a function to be called with the task.
        """
        task = asyncio.current_task()
        assert task is not None
        parent = self._birth_of(task)
        assert parent is not None
        self._number += 1
        born = self._pending = parent.child(self._number, code)

        def noted(child: asyncio.Future[Any]) -> None:
            if isinstance(child, asyncio.Task) and child not in self._births:
                self._note(born, child)

        try:
            yield crc32(f"{self._call.run.run_id} {born.path}".encode()), noted
        finally:
            self._pending = None

    def _note(self, birth: _Birth, task: asyncio.Task[Any]) -> None:
        self._births[task] = birth
        self._loose.add(task)
        if self.deliveries is not None:
            self.deliveries.stir()
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._loose.discard(task)
        self._births.pop(task, None)
        line = self._lines.pop(task, None)
        if line is None:
            return
        if (code := self._code.pop(line, None)) is not None:
            code.end()
        if line is not self._strange:
            line.strand.end()

    # -- lines -----------------------------------------------------------------------------------------------------

    def line_of(self, task: asyncio.Task[Any]) -> TaskLine:
        """The line of ``task``, which makes a call. Raises PythonOverlap when the workflow has ended."""
        line = self._lines.get(task) or self._carried.get(task)
        if line is not None:
            return line
        if self.closed:
            raise PythonOverlap(
                "a task made a call of agentflow after the workflow that created it had ended",
                hint="await the task in the workflow",
            )
        birth = self._birth_of(task)
        line = self._lines[task] = self._stranger(task) if birth is None else self._child(birth, task)
        self._code[line] = HostCalls()
        return line

    def _child(self, birth: _Birth, task: asyncio.Task[Any]) -> TaskLine:
        root = self._root
        call = self._call.at(birth.path)
        call.session = birth.session
        root.strand.budget.charge_branches(1, call.span)
        line = birth.line = root.beside(root.strand.child(call, branch=True), task)
        self._used.append(birth)
        return line

    def _stranger(self, task: asyncio.Task[Any]) -> TaskLine:
        """The line of a task that was created unobserved. All of these are numbered together, by content."""
        root = self._root
        if self._strange is None:
            call = self._call.at(f"{self._call.path}/{label_mark('tasks')}.0", ordered=False)
            self._strange = root.beside(root.strand.child(call, branch=True), task)
            self._strange.strand.call.is_ordered = False
        self._loose.add(task)
        task.add_done_callback(self._forget)
        return root.beside(self._strange.strand, task, shared=True)

    def carried(self, task: asyncio.Task[Any], line: TaskLine) -> None:
        """Note that ``task`` carries out the call in flight on ``line``."""
        self._carried[task] = line
        task.add_done_callback(self._carried.pop)

    # -- calls -----------------------------------------------------------------------------------------------------

    def calm(self) -> bool:
        """Whether the code of all these tasks waits for something, as far as that can be seen."""
        return all(_waits(each) for each in self._loose)

    @contextmanager
    def own_code(self) -> Generator[None]:
        """A block for a call in flight to run the workflow's own code, which holds no permit."""
        task = asyncio.current_task()
        assert task is not None
        self._loose.add(task)
        self._permits.give()
        try:
            yield
        finally:
            self._permits.take_anyway()
            self._loose.discard(task)

    @asynccontextmanager
    async def turn(self, line: TaskLine, call: TaskWork | str) -> AsyncGenerator[None]:
        """A block with ``call`` in flight on ``line``. In a durable run its outcome passes in its turn."""
        task = asyncio.current_task()
        assert task is not None
        self._join_ended()
        if not line.strand.call.is_ordered:
            _check_content(call)
        with line.flight(call) if line.goes_on() else await line.turn(call):
            self._loose.discard(task)
            try:
                if self.deliveries is None or self.closed or line.stopping():
                    async with self._permit(line):
                        yield
                else:
                    async with self._delivered(line, call):
                        yield
            finally:
                self._loose.add(task)

    @property
    def _alone(self) -> bool:
        """Whether only the code of the root is there."""
        return not self._births and not self._lines

    @asynccontextmanager
    async def _permit(self, line: TaskLine) -> AsyncGenerator[None]:
        await self._permits.take(line.strand.call)
        try:
            yield
        finally:
            self._permits.give()

    @asynccontextmanager
    async def _delivered(self, line: TaskLine, call: TaskWork | str) -> AsyncGenerator[None]:
        deliveries = self.deliveries
        assert deliveries is not None
        at = line.strand.call
        label = call if isinstance(call, str) else call.label
        event = f"{at.path}#{line.calls}" if at.is_ordered else f"{at.path}#{label}"
        before = at.effects
        try:
            await deliveries.begins(event, at.path)
            try:
                try:
                    async with self._permit(line):
                        yield
                finally:
                    deliveries.ends(at.path, at.effects)
            except Exception as error:
                if not isinstance(error, _NOT_DELIVERED):
                    await deliveries.passes(event, alone=self._alone)
                raise
            await deliveries.passes(event, alone=self._alone)
        except asyncio.CancelledError:
            if not self.closed and at.is_ordered and not line.over():
                at.number_from(before + 1)
                deliveries.lost(event, at.path)
            raise

    # -- the end ---------------------------------------------------------------------------------------------------

    def _join_ended(self) -> None:
        if self._used and all(each.done() for each in reversed(self._lines)):
            self._join()

    def _join(self) -> None:
        """Merge the conversations of the tasks that have ended, in the order of their creation."""
        used, self._used = self._used, []
        children: defaultdict[int, list[_Birth]] = defaultdict(list)
        every = {self._base.number: self._base}
        for birth in used:
            at = birth
            while at.parent is not None and at.number not in every:
                every[at.number] = at
                children[at.parent.number].append(at)
                at = at.parent
        for number in sorted(children, reverse=True):
            parent = every[number]
            session = self._call.session if parent is self._base else parent.session
            born = sorted(children[number], key=lambda each: each.number)
            grown = [each.session for each in born if each.session.grown]
            if grown:
                session.join(grown)

    async def close(self, error: BaseException | None = None) -> None:
        """End with the workflow, or with its ``error``: tasks that made calls are cancelled and have ended, others are left alone."""
        self.closed = True
        if isinstance(error, GeneratorExit):  # nothing can be awaited
            self._leave()
            return
        if error is None:
            self._warn_of_left()
        # A task may catch any error, as anywhere in asyncio, until its workflow ends: then its calls clean up, or raise again
        for line, code in self._code.items():
            line.code, code.stopped = code, True
        try:
            await self._end(task for task in self._lines if task is not self._root.at_work)
        finally:
            self._leave()

    def _warn_of_left(self) -> None:
        left = [task for task in self._lines if not task.done() and task is not self._root.at_work]
        if left:
            names = ", ".join(sorted({_name_of(task.get_coro()) for task in left}))
            self._call.warn(
                "python/task-left",
                f"the workflow ended while tasks of it were at work, which are cancelled: {names}",
                hint="await them, or cancel them",
            )

    def _leave(self) -> None:
        self._join()
        if self._strange is not None:
            self._strange.strand.end()
        if self.deliveries is not None:
            self.deliveries.unwatch(self.calm)
        self._permits.take_anyway()

    async def _end(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        loop, journal = asyncio.get_running_loop(), self._call.run.journal
        left: set[asyncio.Task[Any]] = {task for task in tasks if not task.done()}
        latest, cancelled = loop.time() + LINE_S, None
        for task in left:
            task.cancel()
        while left and loop.time() < latest:
            try:
                await asyncio.wait(left, timeout=_LOOK_S)
            except asyncio.CancelledError as error:
                cancelled = error
            left = {task for task in left if not task.done()}
            if journal is not None and journal.suspending:
                for task in left:
                    task.cancel()
        for task in left:
            task.cancel()
        if cancelled is not None:
            raise cancelled


_ITERATOR: Any = getattr(asyncio.tasks, "_AsCompletedIterator", None)  # since Python 3.13
_AS_COMPLETED: CodeType = asyncio.as_completed.__code__ if _ITERATOR is None else _ITERATOR.__init__.__code__
_DEEP = 16
"""Frames between a task factory and the function of asyncio that wants the task, at most."""


def _from_a_set() -> bool:
    """Whether ``asyncio.as_completed`` creates the task, which goes through a set: its order differs from process to process."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] - inspect's way to a frame takes a hundred times as long
    for _ in range(_DEEP):
        if frame is None or frame.f_code is _AS_COMPLETED:
            return frame is not None
        frame = frame.f_back
    return False


def _name_of(code: object) -> str:
    """The name of the function that a task runs, or of the call."""
    name: str = getattr(code, "__qualname__", None) or getattr(code, "name", None) or type(code).__name__
    return name.rpartition("<locals>.")[2]


def _content(code: Any) -> tuple[Any, ...]:
    """The arguments of an unstarted coroutine or call."""
    frame = getattr(code, "cr_frame", None)
    if frame is None:
        return tuple(getattr(code, "content", ()))
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
    return tuple([frame.f_locals.get(name) for name in names])


class LineTimer:
    """A timer that the code of a durable run on ``line`` has made. Called by the loop, it fires ``callback`` in its turn among the
    outcomes that reach the tasks of the code; without tasks at once.

    ``handle`` is the loop's; ``context`` that of the callback.
    """

    __slots__ = ("_callback", "_line", "context", "event", "handle")

    def __init__(self, line: TaskLine, callback: partial[Any], context: Context) -> None:
        self._line = line
        self._callback = callback
        self.context = context
        if line.tasks is None:
            line.timers += 1
        self.event = timer_event(line.strand.call.path, line.timers) if line.tasks is None else line.tasks.timer_name()
        self.handle: asyncio.TimerHandle | None = None

    @property
    def cancelled(self) -> bool:
        return self.handle is not None and self.handle.cancelled()

    @property
    def may_be_early(self) -> bool:
        """Whether it may fire before its time when a resumed run comes to it: asyncio's own timers do not look at the clock again."""
        module: object = getattr(self._callback.func, "__module__", None)
        return isinstance(module, str) and module.startswith("asyncio.")

    def announce(self) -> None:
        """Let a resumed run know it, which may have its place in the order."""
        deliveries = self._order()
        if deliveries is not None:
            deliveries.expects(self)

    def _order(self) -> Deliveries | None:
        tasks = self._line.tasks
        return None if tasks is None or tasks.closed else tasks.deliveries

    def __call__(self) -> None:
        deliveries = self._order()
        if deliveries is None:
            self._callback()
        else:
            deliveries.fires(self)

    def fire(self, _: object = None) -> None:
        """Carry out the callback, in its context."""
        if not self.cancelled:
            self._callback()

    def fire_early(self) -> None:
        """Fire now in place of at its time."""
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.cancel()
        self()


async def as_recorded(line: TaskLine, cut: Deliveries, carry_out: Callable[[], Awaitable[Any]]) -> Any:
    """Carry out the call in flight on a line without tasks. A call that was cancelled according to the records waits for that, even
    with an outcome."""
    here, event = line.strand.call, f"{line.strand.call.path}#{line.calls}"

    async def stay() -> None:
        if cut.loses(event):
            async with without_permit(line.strand.budget.permits):
                await cut.passes(event, alone=False)

    await cut.begins(event, here.path)
    try:
        try:
            value = await carry_out()
        finally:
            cut.ends(here.path, here.effects)
    except Exception as error:
        if not isinstance(error, _NOT_DELIVERED):
            await stay()
        raise
    await stay()
    return value


def overlap(label: str, other: str | None, *, beside: bool) -> PythonOverlap:
    """The error for the call ``label`` while ``other`` is in flight, or the code around it; ``beside``: on another event loop."""
    if beside:
        return PythonOverlap(
            f"{label} was begun on another event loop than its workflow's, as that of asyncio.run in a thread",
            hint="hand blocking work to asyncio.to_thread, and make the calls in the workflow or in tasks of it",
        )
    while_ = "the code around it is in flight" if other is None else f"{other} is in flight on the same branch"
    return PythonOverlap(
        f"{label} was begun while {while_}: their order would differ from run to run",
        hint="await one before the other, or make them branches: flow.parallel, flow.map, asyncio.gather, tasks of your own",
    )


def _waits(task: asyncio.Task[Any]) -> bool:
    """Whether a task still waits for something."""
    if task.done():
        return True
    waiter = getattr(task, "_fut_waiter", task)
    return waiter is task or (waiter is not None and not waiter.done())


def _check_content(call: TaskWork | str) -> None:
    """Raise PythonOverlap for a call that cannot be distinguished from its equals, in a task that was created unobserved."""
    effect = getattr(call, "effect", None)
    if isinstance(effect, AskHuman | Draw) or (isinstance(effect, Step) and not effect.arguments):
        label = call if isinstance(call, str) else call.label
        raise PythonOverlap(
            f"{label} was begun in a task whose creation was not observed, and the call is not distinguishable from others:"
            " the loop's task factory was replaced while the workflow ran",
            hint="set the task factory before the workflow starts, or use flow.map or flow.parallel",
        )
