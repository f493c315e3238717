"""Calls of primitives and host functions as procedure values, the errors of wrong calls, and the names that rules have for effects."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from agentflow.core.call.reading import ASKED
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.labels import NO_SOURCES, Sources, joined
from agentflow.core.data.source import Span
from agentflow.core.events.effects import (
    AskHuman,
    AwaitSignal,
    Effect,
    GetContext,
    HostCall,
    LogMessage,
    NamedCall,
    Publish,
    Solve,
    Step,
)
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.builtins import Primitive
from agentflow.lang.builtins.registry import type_name
from agentflow.lang.calling import Sliced
from agentflow.lang.closure import Closure
from agentflow.lang.printer import print_value
from agentflow.lang.trace import annotate, span_of_frame


def calling_span(level: int) -> Span | None:
    """The span of the nearest frame of a program, starting ``level`` frames above the caller."""
    frame = sys._getframe(level + 1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        span = span_of_frame(frame)
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
    """The error for calling a value other than a procedure."""
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


def name_of_effect(effect: Effect) -> str:
    """The name of an effect in policies; "" if policies cannot name it."""
    if isinstance(effect, NamedCall | HostCall | Step):
        return effect.name
    if isinstance(effect, GetContext):
        return "get_context"
    if isinstance(effect, LogMessage):
        return "log-message"
    if isinstance(effect, AskHuman | AwaitSignal | Publish):
        return effect.grant or ""
    return "solve" if isinstance(effect, Solve) else ""


def by_names(effect: Effect, labels: Mapping[str, Sources]) -> Mapping[str, Sources]:
    """The sources of an effect's arguments by the names that a rule has for them: of a function of the host those of its parameters."""
    if isinstance(effect, HostCall | Step):
        names, rest = parameters_of(effect.function)
        named: dict[str, Sources] = {}
        for at, (number, sources) in enumerate(labels.items()):
            name = names[at] if at < len(names) else rest or number
            named[name] = joined(named.get(name, NO_SOURCES), sources)
        return named
    more = ASKED.get(name_of_effect(effect))
    if isinstance(effect, Publish) and more is not None:
        return dict(zip(more, [labels.get(each, NO_SOURCES) for each in ("1", "2")], strict=True))
    return labels if more is None else {**dict.fromkeys(more, NO_SOURCES), **labels}


def values_by_name(effect: Effect) -> Mapping[str, Any]:
    """The values of an effect's arguments by name, where they have names."""
    if isinstance(effect, HostCall | Step):
        return dict(zip(parameters_of(effect.function)[0], effect.arguments, strict=False))
    data: Any = None if effect.data is None else getattr(effect, effect.data)
    return cast("dict[str, Any]", data) if type(data) is dict else {}


def name_of_function(function: Callable[..., Any]) -> str:
    """The name of a function of the host."""
    return str(getattr(function, "__name__", type(function).__name__))


def parameters_of(function: Callable[..., Any]) -> tuple[tuple[str, ...], str | None]:
    """The names of the parameters that a function of the host has by position, and of the one that takes all others.

    Functions without signatures, for example many written in C, have none: rules number their parameters from 1.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return (), None
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = next((each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
    return tuple([each.name for each in parameters if each.kind in by_position]), rest
