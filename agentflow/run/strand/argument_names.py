"""By which names a policy knows effects and their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from agentflow.core.call.reading import ASKED
from agentflow.core.data.labels import NO_SOURCES, Sources, joined
from agentflow.core.events.effects import AskHuman, Effect, GetContext, HostCall, LogMessage, NamedCall, Solve, Step


def name_of_effect(effect: Effect) -> str:
    """The name by which a policy knows an effect; "" for one that nobody has to know."""
    if isinstance(effect, NamedCall | HostCall | Step):
        return effect.name
    if isinstance(effect, GetContext):
        return "get_context"
    if isinstance(effect, LogMessage):
        return "log-message"
    if isinstance(effect, AskHuman):
        return "ask-human"
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

    What says nothing of its parameters, such as many functions written in C, has none: a rule knows them by number, from 1.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return (), None
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = next((each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
    return tuple([each.name for each in parameters if each.kind in by_position]), rest


__all__ = ["by_names", "name_of_effect", "name_of_function", "parameters_of", "values_by_name"]
