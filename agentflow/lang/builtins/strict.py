"""Twins of primitives under a ``strict`` policy: labelled twins that also report the sources they read to the strand.

A list carries information beyond its elements: a procedure called for each of them is called because of the list. So the
strand's ambient sources are raised meanwhile. For primitives that read a procedure's results, they stay raised after
each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, ClassVar

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import Label, box, stripped
from agentflow.core.data.walk import Work
from agentflow.lang.abi import Code, StrictRuntime
from agentflow.lang.builtins.labelled import twin_of
from agentflow.lang.builtins.opening import opened
from agentflow.lang.builtins.registry import Primitive, letters_of
from agentflow.lang.calling import TAIL, Sliced, begun, bounce, whole

_LOOKED_AT = frozenset({"filter", "sort"})
"""Primitives that read the result of the procedure they call."""


class Called:
    """A procedure in the form for primitives and the runtime: after each call the ambient sources are restored, and its
    value carries them.

    With ``look``, they are raised permanently by the sources it returns for the value: the caller reads the value.
    """

    is_procedure: ClassVar[bool] = True
    __slots__ = ("function", "look")

    def __init__(self, function: Any, look: Callable[[StrictRuntime, Any], None] | None = None) -> None:
        self.function = function
        self.look = look

    def code(self, code: Code) -> Code:
        """The code of a call, which makes its tail calls itself."""
        return whole(code, self.look)


def look_outside(rt: StrictRuntime, value: Any) -> None:
    """Make later effects depend on a value as a whole."""
    if type(value) is Label:
        rt.raise_to(value.sources)


@cache
def strict_twin_of(primitive: Primitive) -> Primitive:
    """The twin of a primitive under a strict policy: the primitive itself if it reads none of its arguments."""
    if set(primitive.flow) == {"k"} and not primitive.is_async:
        return primitive
    if primitive.is_async:
        return replace(primitive, function=_async(primitive))
    return replace(
        primitive, function=_noticing(primitive), needs_rt=True, of_many=partial(_noticing_many, twin_of(primitive))
    )


def _noticing(primitive: Primitive) -> Callable[..., Any]:
    """A twin that reports the sources it read to the strand if its error may be caught."""
    function, needs_rt = twin_of(primitive).function, primitive.needs_rt

    def twin(rt: StrictRuntime, *arguments: Any) -> Any:
        operands = (rt, *arguments) if needs_rt else arguments
        if not rt.trying:
            return function(*operands)
        return begun(_noticed(rt, arguments, _carried_out(function, operands)))

    return twin


def _noticing_many(twin: Primitive, rt: StrictRuntime, arguments: tuple[Any, ...]) -> Work[Any]:
    assert twin.of_many is not None
    work = twin.of_many(rt, arguments)
    return (yield from (_noticed(rt, arguments, work) if rt.trying else work))


def _carried_out(function: Callable[..., Any], operands: tuple[Any, ...]) -> Work[Any]:
    value = function(*operands)
    return (yield from value.work) if type(value) is Sliced else value


def _noticed(rt: StrictRuntime, arguments: tuple[Any, ...], work: Work[Any]) -> Work[Any]:
    """The value of a primitive's ``work``, reported to the strand, with the sources it read if it fails."""
    try:
        value = yield from work
    except AgentflowError:
        raise  # it carries its own sources
    except Exception:  # it continues: an error from outside the language carries no sources
        rt.raise_to((yield from stripped(list(arguments)))[1])
        raise
    look_outside(rt, value)
    return value


def _async(primitive: Primitive) -> Callable[..., Any]:
    function = primitive.function
    name = primitive.canonical or primitive.name
    at = None if primitive.tails else primitive.calls
    look = look_outside if name in _LOOKED_AT else None

    async def twin(rt: Any, d: int, *arguments: Any) -> Any:
        values, sources = await rt.work(opened(letters_of(primitive.flow, len(arguments)), arguments))
        before = rt.ambient
        if sources:
            rt.raise_to(sources)
        values = [strict_twin_of(each) if type(each) is Primitive else each for each in values]
        if at is not None and at < len(values):
            values[at] = Called(values[at], look)
        value = await function(rt, d, *values)
        if value is TAIL:
            if not sources:
                return value
            value = await bounce(rt, d)
        return rt.left(before, box(value, sources))

    return twin
