"""Calls from Python: awaited within a run, or runs themselves."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from agentflow.core.call import CallContext
from agentflow.core.errors import ConfigurationError, LimitExceeded, WorkflowError
from agentflow.core.frozen import frozen
from agentflow.core.host_code import executing, executing_line
from agentflow.core.source import Source, Span
from agentflow.runtime.engine import Engine, budget_of
from agentflow.runtime.line import Line, carried_out, close
from agentflow.runtime.places import Places
from agentflow.runtime.python_program import PythonTarget

R_co = TypeVar("R_co", covariant=True)


class Host(Protocol):
    """The flow as its functions see it."""

    @property
    def engine(self) -> Engine: ...
    @property
    def places(self) -> Places: ...
    async def run_alone(self, call: FlowCall[Any]) -> Any:
        """The value of a call that is a run of its own."""
        ...

    def offer(self, function: Callable[..., Any]) -> str:
        """The name of a function as a tool, which it is made unless it is one."""
        ...


class AsCoroutine(Coroutine[Any, Any, R_co]):
    """What is awaited, as asyncio takes it: ``asyncio.run`` and ``create_task`` want a coroutine and nothing less.

    Who inherits it sets ``_steps`` to None.
    """

    __slots__ = ("_steps",)

    _steps: Generator[Any, None, R_co] | None

    def send(self, value: Any, /) -> Any:
        """Go on up to the next wait."""
        return self._begun_steps().send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an exception where it waits."""
        return self._begun_steps().throw(*error)

    def close(self) -> None:
        """End it where it waits, if it has begun so."""
        if self._steps is not None:
            self._steps.close()

    def _begun_steps(self) -> Generator[Any, None, R_co]:
        if self._steps is None:
            self._steps = cast("Generator[Any, None, R_co]", self.__await__())
        return self._steps


class FlowCall(AsCoroutine[R_co]):
    """A call that has not begun: await it, once, or hand it to ``flow.run``, ``flow.stream`` or ``flow.start``.

    In a workflow it is done there, in a tool within the tool's run, elsewhere it is a run of its own. ``name`` is that of
    what is called, ``span`` where in the host's file; ``parts`` are awaited in it, and closed with it; ``read`` makes its
    value of what ``work`` gives.
    """

    __slots__ = (
        "__weakref__",
        "_begun",
        "_host",
        "_line",
        "_parts",
        "_stored",
        "_work",
        "name",
        "read",
        "source",
        "span",
    )

    def __init__(
        self,
        host: Host,
        name: str,
        work: Callable[[Line], Awaitable[R_co]],
        span: Span | None,
        source: Source | None = None,
        *,
        parts: Sequence[Awaitable[Any]] = (),
        stored: Callable[[], tuple[PythonTarget, dict[str, Any]]] | None = None,
        read: Callable[[Any], R_co] | None = None,
    ) -> None:
        self._begun = False
        self.read = read
        self._stored = stored
        self._parts = parts
        self._line: Line | None = executing_line()
        self._host = host
        self.name = name
        self._work = work
        self.span = span
        self.source = source
        self._steps = None

    def __await__(self) -> Generator[Any, None, R_co]:
        return self._carry_out().__await__()

    def __str__(self) -> str:
        return f"{self.name}(...)" + (f" at {self.span}" if self.span is not None else "")

    def __repr__(self) -> str:
        return f"<call {self}, {'begun' if self._begun else 'not awaited'}>"

    if not TYPE_CHECKING:  # checkers name the slip themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"{self!r} has no '{name}': write (await {self.name}(...)).{name}")

    def __del__(self) -> None:
        if self._begun:
            return
        self.close()
        if self._line is not None:
            self._line.forgotten = str(self)
        else:
            warnings.warn(f"{self} was never awaited", RuntimeWarning, stacklevel=2, source=self)

    def close(self) -> None:
        """Give the call up, so that nobody misses an ``await``."""
        super().close()
        self._begun = True
        for part in self._parts:
            close(part)

    def begin(self) -> None:
        """Note that it begins. Raises WorkflowError the second time."""
        if self._begun:
            raise WorkflowError(
                f"{self} has begun already, and a call is awaited once",
                code="python/awaited-twice",
                hint="keep what it gave, or call again",
            )
        self._begun = True

    def work(self, line: Line) -> Awaitable[R_co]:
        """Carry it out on a line, once it has begun."""
        return self._work(line)

    def stored(self) -> tuple[PythonTarget, dict[str, Any]]:
        """What a durable run stores of it, which begins by this: the function and its arguments as JSON data.

        Raises ConfigurationError (``python/not-durable``) for what is no call of a task or workflow.
        """
        self.begin()
        if self._stored is None:
            raise ConfigurationError(
                f"{self} is no call of a task or workflow, so nobody could find it again after a kill",
                code="python/not-durable",
                hint="start a function that @flow.workflow made one",
            )
        return self._stored()

    async def evaluate(self, call: CallContext) -> R_co:
        """Carry it out, once it has begun, at the place ``call`` of a run, which is its own."""
        value = await carried_out(Line(self._host.engine.strand(call)), self, self.source)
        budget_of(call).check_over()
        return value

    def _carry_out(self) -> Coroutine[Any, Any, R_co]:
        call, line = executing()
        if call is None:
            return self._host.run_alone(self)
        self.begin()
        if line is not None and call.run.services is self._host.engine:
            return line.do(self)
        return self._join(call)

    async def _join(self, call: CallContext) -> R_co:
        """Carry it out within the run of ``call``, that of a tool or of another flow's workflow."""
        engine = self._host.engine
        if call.host is not None and call.host.loop is not asyncio.get_running_loop():
            raise WorkflowError(
                f"{self} was awaited in another thread than its run works in",
                code="python/thread",
                hint="make the tool an async function; it may hand blocking work to asyncio.to_thread",
            )
        async with engine.called_back(call):
            if call.run.services is not engine:
                call = engine.join(call, call.next_path(self.name), session=call.session)[1]
            strand = engine.strand(call)
            try:
                value = await self.work(Line(strand))
                return value if self.read is None else self.read(value)
            except LimitExceeded as error:
                strand.budget.meet(error)
                raise
            finally:
                strand.end()


@frozen
class FlowWork:
    """What a run does: its name, a digest of its text, and ``evaluate``, which does it at a call of the run."""

    name: str
    digest: str
    evaluate: Callable[[CallContext], Awaitable[Any]]


def no_bindings(call: FlowCall[Any]) -> ConfigurationError:
    """The error for a call that is given what a program alone has."""
    call.close()
    return ConfigurationError(
        f"{call} takes no bindings and no environment, which are a program's",
        code="python/bindings",
        hint="pass what it needs as arguments",
    )


def python_work(call: FlowCall[Any], bindings: object = None, env: object = None) -> FlowWork:
    """The work of a call, which begins by this. Raises WorkflowError, ConfigurationError for what a program alone has."""
    call.begin()
    if bindings is not None or env is not None:
        raise no_bindings(call)
    source = call.source or (None if call.span is None else call.span.source)
    return FlowWork(call.name, "" if source is None else source.digest, call.evaluate)


def check_arguments(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise WorkflowError for an argument that is a call whose ``await`` was forgotten."""
    for value in (*arguments, *named.values()):
        if isinstance(value, FlowCall):
            call = cast("FlowCall[Any]", value)
            call.close()
            raise WorkflowError(
                f"'{name}' is given {call} itself, not what it gives",
                code="python/not-awaited",
                hint=f"write await: {name}(await {call.name}(...))",
            )
