"""Host code at work: its calls in flight in its run, whether it is being stopped, and how long it may clean up then."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Generator, Iterable
from itertools import islice
from types import CodeType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

from agentflow.core.call.run_port import RunPortOf
from agentflow.core.data.errors import AgentflowError, LimitExceeded, ProviderError, RunStopped, StrayExit
from agentflow.core.data.results import TaskResult

MAX_PARTIAL = 1_000
"""Number of values that an error which cut a form has of it."""

CUTTING = (AgentflowError, asyncio.CancelledError)
"""The cause that cuts a form."""


class PartialValues(tuple[Any, ...]):
    """The values of a form that an error interrupted. They belong to the host, raw like a run's value: they are not
    searched for secrets, and no event or record contains them."""

    __slots__ = ()


def keep_partial(error: BaseException, values: Iterable[Any]) -> None:
    """Attach the ``values`` of a form to the ``error`` that interrupted it, replacing those of a form within it.

    A ProviderError keeps its own ``partial`` text. A run that took too much memory gets none: the error would keep the
    values alive that have to be freed.
    """
    if isinstance(error, LimitExceeded) and error.limit == "memory":
        error.partial = ()
    elif not isinstance(error, ProviderError):
        error.partial = PartialValues(islice(values, MAX_PARTIAL))  # pyright: ignore[reportAttributeAccessIssue]


AccumulationFormat: TypeAlias = Literal["notes_only", "full_output"]
"""The information a step gets about the earlier ones: their notes, or their outputs too."""
StepEntry: TypeAlias = tuple[str, TaskResult, "frozenset[str] | None"]
"""A finished step: its name, its result, and the grants it was run with (None: the host's authority)."""


class StepLog(Protocol):
    """The steps that came before a call in its sequence. ``grants`` are those of who asks (None: the host)."""

    @property
    def sources(self) -> frozenset[str]:
        """The sources of the steps' results, in a flow with a policy."""
        ...

    def append(self, entry: StepEntry, /) -> None:
        """Add a step that has finished."""
        ...

    def previous_outputs(self, format: AccumulationFormat, grants: frozenset[str] | None) -> str:
        """The text that the next step is given."""
        ...

    def failure(self, name: str, result: TaskResult, grants: frozenset[str] | None) -> TaskResult:
        """The FAILED result of a sequence after its step ``name`` failed with ``result``: with all steps so far."""
        ...


T = TypeVar("T")
CLEANUP_S = 5.0
"""Seconds that a tool, or other code of the host that a run calls, may take to clean up once it is cancelled."""
LINE_S = 10.0
"""Seconds that the code of a workflow may take; in a tool, this includes clean-up."""
_QUICK = 10
_PAUSE_S = 0.05
_NAME = "code of the host"
_log = logging.getLogger("agentflow")
_EXIT_OF_GROUP: CodeType | None = asyncio.TaskGroup.__aexit__.__code__ if sys.version_info < (3, 13) else None


class HostCalls:
    """Host code at work in a task, with ``count`` calls of public methods in flight. ``run`` is the run as they see it,
    once there is one.

    Cancelled is a state: once a cancellation was raised in the code, ``stopped``, each further call raises another, even if
    the code caught it, until its task is not cancelled any more (:func:`asyncio.timeout` takes its cancellation back). Calls
    that it makes while it handles the cancellation clean up, and work. ``outer`` is the bounded code that awaits it, if
    any.
    """

    __slots__ = (
        "_around",
        "_before",
        "_held",
        "_outer",
        "_over",
        "_refused",
        "_task",
        "_timer",
        "count",
        "expired",
        "run",
        "seconds",
        "stopped",
    )

    def __init__(self, outer: HostCalls | None = None) -> None:
        self.count = 0
        self.run: RunPortOf[Any] | None = None
        self.stopped = False
        self._outer = outer
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0
        self._around = sys.exception()
        self._refused = 0
        self._timer: asyncio.TimerHandle | None = None
        self.seconds = CLEANUP_S
        self._held = 0
        self.expired = False
        self._over = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the code."""
        return None if self._task is None else self._task.get_loop()

    def cancelled(self) -> bool:
        """Whether the task that started the code has been cancelled since."""
        return self._task is not None and self._task.cancelling() > self._before

    def handles_a_stop(self) -> bool:
        """Whether the code handles a cancellation or a limit where this is called: in ``except``, ``finally`` or ``__aexit__``."""
        error, seen = sys.exception(), 0
        while error is not None and error is not self._around and seen < 1000:
            if isinstance(error, asyncio.CancelledError | RunStopped):
                return True
            error, seen = error.__context__, seen + 1
        return False

    async def check(self) -> None:
        """Raise CancelledError for a call that the code begins after it was cancelled, unless it cleans up."""
        if self.stopped and self.cancelled() and not self.handles_a_stop():
            await self.refuse()
            raise asyncio.CancelledError

    async def refuse(self) -> None:
        """Let others run before a call is refused once more: code may try for ever. From now on its time is bounded."""
        await asyncio.sleep(
            0
        )  # before all else: this ends code that was given up and tries again while it is collected
        self._over = True
        self._bound()
        self._refused += 1
        if self._refused > _QUICK:
            await asyncio.sleep(_PAUSE_S)

    def to_end(self, work: Awaitable[T], name: str = _NAME, seconds: float = CLEANUP_S) -> Awaitable[T]:
        """The value of ``work``, awaited in the task of this object: the code itself.

        Cancelled code may take ``seconds`` to end, and is given up then. However it ends, it was cancelled.
        """
        self.seconds = seconds
        return _ToEnd(self, work, name)

    def _bound(self) -> None:
        """Begin to count the time that the code has left, unless it is counted already."""
        if self._timer is None and self._task is not None:
            self._timer = self._task.get_loop().call_later(self.seconds, self._expire)
            if self._outer is not None:
                self._outer._held += 1

    def _expire(self) -> None:
        assert self._task is not None
        if not (self._over or self.cancelled()):  # the cancellation was taken back
            self.end()
        elif self._held:  # the awaited code cleans up itself
            self._timer = self._task.get_loop().call_later(self.seconds, self._expire)
        else:
            self.expired = True
            self._task.cancel()

    def end(self) -> None:
        """Stop counting the remaining time: the code has ended, or its cancellation was taken back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if self._outer is not None:
                self._outer._held -= 1

    def note_cancelled(self, work: Any) -> None:
        """Note that a cancellation is raised in ``work``."""
        task = self._task
        assert task is not None
        if self.expired:
            task.uncancel()
            return
        if self.cancelled() and _keeps_count(work):
            task.uncancel()
        count = task.cancelling() - self._before
        if count == 1:  # those before were taken back, and their time with them
            self.end()
        if count > 0:
            self.stopped = True
            self._bound()


class _ToEnd:
    __slots__ = ("host", "name", "work")

    def __init__(self, host: HostCalls, work: Awaitable[Any], name: str) -> None:
        self.host = host
        self.work = work
        self.name = name

    def __await__(self) -> Generator[Any, None, Any]:
        host = self.host
        steps = cast("Generator[Any, None, Any]", self.work.__await__())
        error: BaseException | None = None
        try:
            while True:
                try:
                    waiting = next(steps) if error is None else steps.throw(error)
                except StopIteration as done:
                    value = done.value
                    break
                if host.expired:
                    raise self._given_up(steps)
                error = None
                try:
                    yield waiting
                except GeneratorExit:
                    steps.close()
                    raise
                except asyncio.CancelledError as cancelled:
                    host.note_cancelled(self.work)
                    if host.expired:
                        _log.warning("%s", self._late())
                    error = cancelled
                except BaseException as thrown:  # noqa: BLE001 - as "yield from" does
                    error = thrown
        except Exception as failure:
            if host.stopped and host.cancelled():
                raise asyncio.CancelledError from failure
            raise
        finally:
            host.end()
        if host.stopped and host.cancelled():
            raise asyncio.CancelledError
        return value

    def _given_up(self, steps: Generator[Any, None, Any]) -> BaseException:
        """End code after its time limit expired, and return the error raised in its place."""
        try:
            steps.close()
        except BaseException as error:  # noqa: BLE001 - it is given up, no matter its answer
            _log.debug("%s did not let itself be closed: %r", self.name, error)
        return (
            asyncio.CancelledError()
            if self.host.cancelled()
            else StrayExit(self._late(), hint="make its clean-up short")
        )

    def _late(self) -> str:
        return f"{self.name} did not end within {self.host.seconds:g} s of being stopped, and is given up"


def _keeps_count(work: Any) -> bool:
    """Whether ``work`` waits at the end of a task group that cancelled its task, which Python before 3.13 does not take back."""
    awaiting: Any = _ToEnd.__await__
    while work is not None and _EXIT_OF_GROUP is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        if frame is not None and frame.f_code is _EXIT_OF_GROUP:
            return bool(getattr(frame.f_locals["self"], "_parent_cancel_requested", False))
        if frame is not None and frame.f_code is awaiting.__code__:
            work = frame.f_locals["self"].work
        else:
            work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return False
