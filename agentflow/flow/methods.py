"""Tasks and workflows as methods: the function, and the functions among its options, on an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MethodType
from typing import Any, cast

from agentflow.core.call.endings import Handoff
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.lib.signature import is_method

NOBODY = object()
"""Takes the place of an object while a method is checked in its class, where there is none yet."""


def settings_on(settings: Mapping[str, Any], method: MethodType) -> dict[str, Any]:
    """The options of a method, with those functions, tasks and workflows among them written in the same class as
    methods of the same object."""
    home = _home(method)
    return {name: _on(value, home, method.__self__) for name, value in settings.items()}


def _on(value: Any, home: tuple[str, str], owner: object) -> Any:
    if isinstance(value, list | tuple):
        return [_on(each, home, owner) for each in cast("Sequence[Any]", value)]
    if isinstance(value, Handoff):
        return replace(value, task=_on(value.task, home, owner))
    if getattr(value, "of_class", False) and _home(value) == home:
        return value.on(owner)
    return MethodType(value, owner) if is_method(value) and _home(value) == home else value


def _home(function: Any) -> tuple[str, str]:
    """The module and the class of a method."""
    return function.__module__, function.__qualname__.rpartition(".")[0]


def first_of(arguments: tuple[Any, ...], function: Callable[..., Any]) -> object:
    """The object among the arguments of a method called through its class. Raises ConfigurationError (``python/method``)
    if there is none of that class."""
    home = _home(function)[1]
    if arguments and home in [each.__qualname__ for each in type(arguments[0]).__mro__]:
        return arguments[0]
    raise ConfigurationError(
        f"'{clip(function.__qualname__, 160)}' is a method, and was called without an object",
        code="python/method",
        hint=f"call it on one: {home}(...).{function.__name__}(...)",
    )
