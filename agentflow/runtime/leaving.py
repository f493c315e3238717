"""What leaves the language: the arguments of an effect, as the rest of the package and the host expect data to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentflow.core.effects import AskHuman, Draw, Effect, HostCall, LogMessage, Solve, Step, TaskCall, Timer, ToolCall
from agentflow.core.errors import LimitExceeded
from agentflow.core.shared_list import HELD, unshared
from agentflow.core.source import Span
from agentflow.core.values import text_size
from agentflow.core.work import LONG_TEXT, Work


def carries_data(effect: Effect) -> bool:
    """Whether a list or dict is among the arguments of an effect."""
    if type(effect) is ToolCall or type(effect) is TaskCall:  # nearly all effects: asked before each of them
        return not HELD.isdisjoint(map(type, effect.arguments.values()))
    match effect:
        case LogMessage() | Timer() | Draw():
            return False
        case HostCall() | Step():
            return not HELD.isdisjoint(map(type, effect.arguments))
        case AskHuman():
            return effect.schema is not None
        case Solve():
            return not HELD.isdisjoint(map(type, effect.inputs.values()))
        case _:
            return not HELD.isdisjoint(map(type, effect.arguments.values()))


def carries_long_text(effect: Effect) -> bool:
    """Whether a long text is logged, or among the arguments of a task or tool."""
    if isinstance(effect, LogMessage):
        return len(effect.text) > LONG_TEXT
    if not isinstance(effect, TaskCall | ToolCall):
        return False
    return any([len(each) > LONG_TEXT for each in effect.arguments.values() if type(each) is str])


def leaving(effect: Effect, allowed: int, span: Span | None) -> Work[Effect]:
    """``effect`` with Python lists in its arguments.

    Templates, schemas, models and records write arguments out. Data that shares its parts may take much more room there
    than here: it is refused if its text would have more than ``allowed`` characters. Raises LimitExceeded
    (``limits/string``).
    """
    arguments: Any = data_of(effect)
    changed, repeated = yield from unshared(arguments)
    if repeated and not isinstance(effect, HostCall | Step):
        size = yield from text_size(changed)
        if size > allowed:
            name = getattr(effect, "name", "") or type(effect).__name__
            raise LimitExceeded(
                f"the arguments of {name} share their parts, and written out would have "
                f"{size if size < 10**18 else 'more than 10^18'} characters; at most {allowed} are allowed",
                limit="string",
                allowed=allowed,
                span=span,
            )
    if changed is arguments:
        return effect
    if isinstance(effect, HostCall | Step):
        return replace(effect, arguments=tuple(changed))
    return replace(effect, **{_field(effect): changed})


def data_of(effect: Any) -> Any:
    """The data that an effect carries."""
    return getattr(effect, _field(effect), None)


def _field(effect: Effect) -> str:
    """The field of an effect that holds data."""
    match effect:
        case Solve():
            return "inputs"
        case AskHuman():
            return "schema"
        case LogMessage():
            return "text"
        case _:
            return "arguments"
