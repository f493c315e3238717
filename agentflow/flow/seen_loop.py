"""Observe the event loop for the code of workflows while they run: which tasks it creates, and which timers.

A task factory sees the tasks, and calls the factory of the host. Of a durable run the timers are seen too: they have their place
in the order of outcomes, and a run that waits leaves the memory only when no time limit of asyncio's own is counting there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from types import CellType, CodeType
from typing import Any, Protocol, cast

from agentflow.core.call.call import LineCall, called_in, calling
from agentflow.flow.asyncio_tasks import LineTasks, LineTimer, TaskLine

_EAGER: Any = getattr(asyncio, "eager_task_factory", None)  # since Python 3.12


class Factory(Protocol):
    """A task factory of an event loop."""

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]: ...


# A set of tasks has the same order whenever the run is resumed (decision 53)
class BranchTask(asyncio.Task[Any]):
    """A task of a workflow's code. Its hash is the same whenever the run is resumed, so that sets of tasks keep their order."""

    def __init__(self, coro: Any, *, mark: int, **options: Any) -> None:
        self._mark = mark
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._mark


class TaskFactory:
    """A task factory that notifies the line when its code creates a task, and has ``inner`` create it; None: the loop's own way.

    ``users`` is the number of workflows that need it.
    """

    __slots__ = ("inner", "users")

    def __init__(self, inner: Factory | None) -> None:
        self.inner = inner
        self.users = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
        inner = self.inner
        tasks = _tasks_here(options.get("context"))
        if tasks is None:
            return asyncio.Task(coro, loop=loop, **options) if inner is None else inner(loop, coro, **options)
        if inner is None:
            return _born(tasks, partial(_branch, asyncio.Task), coro, loop=loop, **options)
        if inner is _EAGER:
            return _born(tasks, partial(_branch, asyncio.Task), coro, loop=loop, eager_start=True, **options)
        return _born(tasks, partial(_by_host, inner, loop), coro, **options)

    # anyio knows the eager factories of asyncio by their code, and goes round them to the class of task in their closure,
    # since its groups cannot start a task eagerly. So an eager factory must be visible through this one.
    @property
    def __code__(self) -> CodeType:
        return cast(Any, self.inner).__code__

    @property
    def __closure__(self) -> tuple[CellType, ...] | None:
        cells: tuple[CellType, ...] | None = cast(Any, self.inner).__closure__
        return cells and (CellType(partial(_later, cells[0].cell_contents)), *cells[1:])


def _later(constructor: Any, coro: Any, **options: Any) -> asyncio.Future[Any]:
    """Create a task by its class, in place of an eager factory."""
    tasks = _tasks_here(options.get("context"))
    if tasks is None:
        return constructor(coro, **options)
    return _born(tasks, partial(_branch, constructor), coro, **options)


def _branch(constructor: Any, mark: int, coro: Any, **options: Any) -> asyncio.Future[Any]:
    """A task of the class ``constructor``: a BranchTask, unless the host has a class of its own."""
    return BranchTask(coro, mark=mark, **options) if constructor is asyncio.Task else constructor(coro, **options)


def _by_host(
    inner: Factory, loop: asyncio.AbstractEventLoop, mark: int, coro: Any, **options: Any
) -> asyncio.Future[Any]:
    """A task of the host's factory, of the host's class."""
    return inner(loop, coro, **options)


def _born(tasks: LineTasks, create: Callable[..., Any], coro: Any, **options: Any) -> asyncio.Future[Any]:
    """The task that ``create`` gives for a coroutine, named in the line of ``tasks``."""
    with tasks.birth(coro) as (mark, noted):
        task = create(mark, coro, **options)
        noted(task)
    return task


def _tasks_here(context: Any) -> LineTasks | None:
    """The tasks of the line now executing its own code; None elsewhere, and for a task with a context of another run."""
    line = _line_here()
    if line is None or (context is not None and called_in(context) is not calling()):
        return None
    tasks = line.tasks
    if tasks is None:
        tasks = line.tasks = LineTasks(line)
    return None if tasks.closed or tasks.at_birth() else tasks


def _line_here() -> TaskLine | None:
    """The line now executing its own code, not a call of agentflow, in its task or in one that was seen."""
    call, task = calling(), asyncio.current_task()
    if type(call) is not LineCall or task is None:
        return None
    line: TaskLine = call.line
    if line.at_work is task:
        return line if line.in_flight is None else None
    return line if line.tasks is not None and line.tasks.knows(task) else None


class _Timers:
    """A method of a loop that makes timers, in its place: those that the code of a durable run makes fire in their turn.

    ``inner`` is the method, ``users`` the number of workflows that need this.
    """

    __slots__ = ("inner", "name", "users")

    def __init__(self, name: str, inner: Callable[..., asyncio.TimerHandle]) -> None:
        self.name = name
        self.inner = inner
        self.users = 0

    def __call__(self, *values: Any, context: Context | None = None, **named: Any) -> asyncio.TimerHandle:
        # the loop's methods have different names for the time, and each argument may be passed by name
        when, callback, *arguments = (
            *values,
            *[named[each] for each in ("delay", "when", "callback") if each in named],
        )
        line = None if isinstance(callback, LineTimer) else _line_here()
        if line is None or (journal := line.strand.call.run.journal) is None:
            return self.inner(when, callback, *arguments, context=context)
        timer = LineTimer(line, partial(callback, *arguments), context or copy_context())
        timer.handle = handle = self.inner(when, timer, context=timer.context)
        journal.keep_until(handle)
        timer.announce()
        return handle

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the loop its own method back, once this one is not needed."""
        self.users -= 1
        if not self.users and getattr(loop, self.name) is self:
            delattr(loop, self.name)
            if getattr(loop, self.name) != self.inner:  # the host has put that there
                setattr(loop, self.name, self.inner)


def _timers_of(loop: asyncio.AbstractEventLoop, name: str) -> _Timers:
    timers: Any = getattr(loop, name)
    if not isinstance(timers, _Timers):
        timers = _Timers(name, timers)
        setattr(loop, name, timers)
    timers.users += 1
    return timers


@contextmanager
def seeing(*, timers: bool) -> Generator[None]:
    """A block that observes the tasks that code creates on the running loop, and the ``timers`` too."""
    loop = asyncio.get_running_loop()
    factory: Any = loop.get_task_factory()
    if not isinstance(factory, TaskFactory):
        factory = TaskFactory(factory)
        loop.set_task_factory(factory)
    factory.users += 1
    seen = [_timers_of(loop, name) for name in ("call_at", "call_later")] if timers else ()
    try:
        yield
    finally:
        for each in seen:
            each.leave(loop)
        factory.users -= 1
        if not factory.users and loop.get_task_factory() is factory:
            loop.set_task_factory(factory.inner)
