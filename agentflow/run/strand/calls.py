"""Calls of primitives and host functions as procedure values, and the errors of wrong calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.source import Span
from agentflow.core.events.effects import HostCall
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.builtins import Primitive
from agentflow.lang.builtins.registry import type_name
from agentflow.lang.calling import Sliced
from agentflow.lang.closure import Closure
from agentflow.lang.printer import print_value
from agentflow.lang.trace import annotate, span_of_instruction
from agentflow.run.strand.definitions import name_of_function


def calling_span(level: int) -> Span | None:
    """The span of the nearest generated frame, starting ``level`` frames above the caller."""
    frame = sys._getframe(level + 1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        span = span_of_instruction(frame.f_code, frame.f_lasti)
        if span is not None:
            return span
        frame = frame.f_back
    return None


def primitive_code(primitive: Primitive) -> Code:
    """The code of a primitive used as a procedure value; each call takes a step, as a call of a closure does."""
    function = primitive.function

    async def calling(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        return await function(rt, d, *arguments)

    async def charging(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        value = function(rt, *arguments)
        return value if type(value) is not Sliced else await rt.work(value.work)

    async def plain(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        value = function(*arguments)
        return value if type(value) is not Sliced else await rt.work(value.work)

    return calling if primitive.is_async else charging if primitive.needs_rt else plain


def host_code(function: Callable[..., Any]) -> Code:
    """The code of a Python callable as a procedure value."""

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        return await rt.perform(HostCall(function, arguments, name_of_function(function)), calling_span(1))

    return code


def located_error(error: Exception) -> AgentflowError:
    """``error`` with its span; a foreign exception becomes the cause of an error with a span."""
    placed = annotate(error)
    if placed is not error:
        placed.__cause__ = error
    return placed


def not_callable(value: Any) -> SexpEvaluationError:
    """The error for calling a value that is not a procedure."""
    kind = type_name(value)
    return SexpEvaluationError(
        f"cannot apply non-callable {print_value(value, limit=80)}, {'an' if kind[0] in 'aeiou' else 'a'} {kind}",
        code="call/not-callable",
        hint="the first element of a form is a procedure, or the name of a primitive, task or tool",
    )


def wrong_count(function: Closure, count: int) -> SexpEvaluationError:
    """The error for calling a closure with a wrong number of arguments; names both numbers and its definition."""
    least = function.info.least
    expected = f"{least}" if function.arity >= 0 else f"at least {least}"
    return SexpEvaluationError(
        f"{function.name or 'this lambda'} takes {expected} argument{'' if expected == '1' else 's'}, and was given {count};"
        f" it is written at {function.info.span}",
        code="arity/closure",
        hint=f"its parameters are ({' '.join(function.parameters)})",
    )


def shared_set(name: str) -> SexpEvaluationError:
    """The error for ``set!`` of a variable that another strand may be reading."""
    return SexpEvaluationError(
        f"set!: '{name}' belongs to the code around this branch, which runs at the same time",
        code="concurrency/shared-set",
        hint="return the value from the branch and combine the results after the join",
    )
