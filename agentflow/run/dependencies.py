"""The dependencies that a flow makes for each of its runs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.call.call import containing
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.session import Session
from agentflow.run.run_spec import RunSpec

_NAMES = ("run_id", "session", "bindings", "labels")
_HINT = "write a function of any of run_id, session, bindings and labels: def deps(run_id): return Bank(run_id)"


class Dependencies:
    """Makes the dependencies of runs with ``make``, a function of the host.

    It may take ``run_id``, ``session``, ``bindings`` and ``labels`` of the run by these names, and gives the dependencies, an
    awaitable of them, or a context manager (plain or async) entered for the run. It is called when a run begins, at
    every resume of a durable run, and on workers, since dependencies are never stored. Raises ConfigurationError
    (``config/deps``) for a function that needs other arguments.
    """

    def __init__(self, make: object) -> None:
        self._takes = _parameters(make)
        self._make = cast(Callable[..., Any], make)

    @asynccontextmanager
    async def of_run(self, run_id: str, session: Session, spec: RunSpec) -> AsyncGenerator[Any]:
        """A block with the dependencies of one run. Raises the errors of the function."""
        facts = {
            "run_id": run_id,
            "session": session,
            "bindings": MappingProxyType(dict(spec.bindings or {})),
            "labels": MappingProxyType(dict(spec.labels or {})),
        }
        if _making.get() is self:
            raise ConfigurationError(
                "the function deps= of the flow begins a run of the same flow, which would need dependencies itself",
                code="config/deps",
                hint="give that run its own: flow.ask(..., deps={}); or let a tool ask, when the run has begun",
            )
        stack = AsyncExitStack()
        with containing() as code, self._at_work():
            value: Any = self._make(**{name: facts[name] for name in self._takes})
            if inspect.isawaitable(value):
                value = await code.to_end(value, "the function deps= of the flow")
            kind: type[Any] = type(cast(object, value))
            if hasattr(kind, "__aenter__"):
                value = await code.to_end(stack.enter_async_context(value), "the dependencies of the run")
            elif hasattr(kind, "__enter__"):
                value = stack.enter_context(value)
        try:
            yield value
        except BaseException as error:  # of any kind: the context managers are left as ``async with`` leaves them
            with self._at_work():
                if not await stack.__aexit__(type(error), error, error.__traceback__):
                    raise
        else:
            with self._at_work():
                await stack.aclose()

    @contextmanager
    def _at_work(self) -> Generator[None]:
        """A block for the time the function is at work, so that runs of its flow that begin there need dependencies of their own."""
        token = _making.set(self)
        try:
            yield
        finally:
            _making.reset(token)


_making: ContextVar[Dependencies | None] = ContextVar("agentflow_making_dependencies", default=None)


def _parameters(make: object) -> tuple[str, ...]:
    """The names of the arguments that the function is called with."""
    if not callable(make):
        raise _wrong(make, "is not a function: it would be one object for all runs")
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:  # a callable without a signature
        return ()
    open_ended = any([each.kind is each.VAR_KEYWORD for each in parameters])
    named = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    missing = [
        each.name
        for each in parameters
        if each.default is each.empty
        and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        and (each.name not in _NAMES or each.kind is each.POSITIONAL_ONLY)
    ]
    if missing:
        raise _wrong(make, f"needs '{missing[0]}', which no run has")
    return tuple([name for name in _NAMES if open_ended or name in named])


def _wrong(make: object, problem: str) -> ConfigurationError:
    return ConfigurationError(f"deps={clip(repr(make), 120)} {problem}", code="config/deps", hint=_HINT)
