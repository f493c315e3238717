"""Converts data that leaves the language: the arguments of an effect become plain Python data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.shared_list import HELD, unshared
from agentflow.core.data.source import Span
from agentflow.core.data.values import text_size
from agentflow.core.data.work import LONG_TEXT, Work
from agentflow.core.events.effects import Effect, LogMessage, TaskCall, ToolCall


def carries_data(effect: Effect) -> bool:
    """Whether a list or dict is among the data of an effect."""
    if effect.data is None:
        return False
    data: Any = getattr(effect, effect.data)
    if data is None or type(data) is str:
        return False
    return not HELD.isdisjoint(map(type, cast("Iterable[object]", data if type(data) is tuple else data.values())))


def carries_long_text(effect: Effect) -> bool:
    """Whether a long text is logged, or among the arguments of a task or tool."""
    if isinstance(effect, LogMessage):
        return len(effect.text) > LONG_TEXT
    if not isinstance(effect, TaskCall | ToolCall):
        return False
    return any([len(each) > LONG_TEXT for each in effect.arguments.values() if type(each) is str])


def leaving(effect: Effect, allowed: int, span: Span | None) -> Work[Effect]:
    """``effect`` with Python lists in its arguments.

    Templates, schemas, models and records write arguments as text, where shared parts are repeated: data is refused if its
    text would have more than ``allowed`` characters. Raises LimitExceeded
    (``limits/string``).
    """
    arguments: Any = data_of(effect)
    changed, repeated = yield from unshared(arguments)
    if repeated and effect.written:
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
    plain = tuple(changed) if type(arguments) is tuple else changed
    return replace(effect, **{cast(str, effect.data): plain})


def data_of(effect: Effect) -> Any:
    """The program's data in an effect; None if it has none."""
    return None if effect.data is None else getattr(effect, effect.data)
