"""Errors of twins of what texts in Python call: they depend on all that was looked at to raise them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NoReturn

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import Label, blame, stripped
from agentflow.core.data.values import OrderedSet, SharedList
from agentflow.core.data.walk import Work
from agentflow.lang.calling import Sliced, begun

_DATA = frozenset((Label, list, tuple, dict, OrderedSet, SharedList))
"""Types of arguments that are boxes, or may hold some."""


def blaming(function: Callable[..., Any]) -> Callable[..., Any]:
    """A twin whose errors depend on all that it was given, which is read when there is one."""

    @wraps(function)
    def twin(*arguments: Any, **named: Any) -> Any:
        try:
            value = function(*arguments, **named)
        except AgentflowError as error:
            return begun(_blamed(error, (*arguments, *named.values())))
        return Sliced(rest(value.work, arguments)) if type(value) is Sliced else value

    def rest(work: Work[Any], arguments: tuple[Any, ...]) -> Work[Any]:
        try:
            return (yield from work)
        except AgentflowError as error:
            return (yield from _blamed(error, arguments))

    @wraps(function)
    async def waiting(rt: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return await function(rt, *arguments, **named)
        except AgentflowError as error:
            return await rt.work(_blamed(error, (*arguments, *named.values())))

    return waiting if inspect.iscoroutinefunction(function) else twin


def _blamed(error: AgentflowError, arguments: Iterable[Any]) -> Work[NoReturn]:
    """Raise an error, which depends on these arguments."""
    _, sources = yield from stripped([each for each in arguments if type(each) in _DATA])
    blame(error, sources)
    try:
        raise error
    finally:  # else it would hold the frame that holds it, and with that what else is looked for by who refers to it
        del error
