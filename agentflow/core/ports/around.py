"""Middleware: checks the functions that the host puts around calls of tools and models, and runs their code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

from agentflow.core.call.approval import Denied
from agentflow.core.call.call import CallContext, HostCode, view_of
from agentflow.core.data.errors import AgentflowError, ConfigurationError, TaskError, clip

AROUND: Mapping[str, Literal["tool", "model"]] = {"around_tool": "tool", "around": "tool", "around_model": "model"}
"""The options that hold middleware, with the calls that it is around."""
_WRITTEN: Mapping[str, str] = {
    "tool": "async def careful(call, run, ctx): return await run(call)",
    "model": "async def careful(request, run, ctx): return await run(request)",
}


def middleware_in(option: str, value: object, where: str) -> tuple[Any, ...]:
    """The functions of an ``option`` that holds middleware, as ``where`` states it; empty for None.

    Raises ConfigurationError (``config/middleware``) for anything but a list of async functions of three parameters.
    """
    if value is None:
        return ()
    kind = AROUND[option]
    if callable(value) or isinstance(value, str) or not isinstance(value, Sequence):
        name = name_of(value) if callable(value) else "careful"
        raise _wrong(f"{where}: {option}= takes a list of functions", f"write {option}=[{name}]")
    functions = tuple(cast("Iterable[Any]", value))
    for each in functions:
        _check(each, kind, f"{where}: {option}=")
    return functions


def _check(function: Any, kind: Literal["tool", "model"], label: str) -> None:
    written = _WRITTEN[kind]
    if not callable(function) or isinstance(function, type):
        raise _wrong(f"{label} holds {clip(repr(function), 120)}, which is not a function", f"write {written}")
    name = name_of(function)
    target = _inner(function)
    if inspect.isasyncgenfunction(target):
        if kind == "tool":
            raise _wrong(
                f"{label} the middleware '{name}' is a generator, and the result of a tool is not a stream",
                f"return the result: {written}",
            )
    elif not inspect.iscoroutinefunction(target):
        raise _wrong(
            f"{label} the middleware '{name}' is not async, so it could not await the call", f"write {written}"
        )
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        names = ", ".join(inspect.signature(function).parameters) or "none"
        raise _wrong(
            f"{label} the middleware '{name}' takes three arguments: its parameters are {names}", written
        ) from None
    except ValueError:  # a callable without a signature is called unchanged
        pass


def _inner(function: Any) -> Any:
    """The function that a call of ``function`` runs: of a partial, or of an object that can be called."""
    while isinstance(function, partial):
        function = cast(Any, function).func
    if inspect.isroutine(function):
        return function
    return type(function).__call__


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="config/middleware", hint=hint)


def name_of(function: Any) -> str:
    """The name of a middleware in messages and paths."""
    while isinstance(function, partial):
        function = cast(Any, function).func
    return getattr(function, "__name__", type(function).__name__)


def inside(function: Any, call: CallContext) -> CallContext:
    """The call for the code of a middleware, within ``call``. Its own calls are not wrapped by it again."""
    inner = call.at(call.marked_path("around", name_of(function)))
    run = call.run
    inner.run = view_of(
        run,
        around_tool=tuple([each for each in run.around_tool if each is not function]),
        around_model=tuple([each for each in run.around_model if each is not function]),
    )
    inner.toolbox = None
    return inner


async def outcome_of(
    function: Any, work: Awaitable[Any], ctx: CallContext, answers: tuple[type[Exception], ...] = (Denied,)
) -> Any:
    """The value that a middleware returns, or the exception that it raises if it is one of ``answers``.

    Errors of the run and of tasks pass. Raises TaskError (``middleware/raised``) in place of any other exception.
    """
    try:
        with HostCode(ctx) as code:
            return await code.to_end(work, f"the middleware '{name_of(function)}'")
    except answers as answer:
        return answer
    except (AgentflowError, asyncio.CancelledError):
        raise
    except Exception as error:
        raise raised(function, error) from error


def raised(function: Any, error: Exception) -> TaskError:
    """The error that stands for the exception of a middleware."""
    return TaskError(
        f"the middleware '{name_of(function)}' raised {type(error).__name__}: {clip(str(error), 500)}",
        code="middleware/raised",
        reason="tool_execution_error",
        details={"exception": type(error).__name__},
    )


def wrong_outcome(function: Any, value: object, wanted: str, hint: str) -> ConfigurationError:
    """The error for a middleware that returned ``value`` where ``wanted`` is taken."""
    shown = "None" if value is None else f"a value of type {type(value).__name__}"
    return _wrong(f"the middleware '{name_of(function)}' returned {shown}, and {wanted} is wanted", hint)
