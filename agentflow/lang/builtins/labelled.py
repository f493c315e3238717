"""Twins of primitives for programs whose values may stand in boxes (:mod:`agentflow.core.labels`).

A twin does what its primitive does. It opens the boxes of its arguments as the primitive's word ``flow`` says, and puts the result
in a box with their sources. Where there are no boxes it is the primitive after a test of each argument's type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

from agentflow.core.errors import AgentflowError
from agentflow.core.labels import (
    NO_SOURCES,
    UNBOXED,
    Label,
    Sources,
    box,
    each_boxed,
    joined,
    outer_sources,
    sources_within,
    strip,
    stripped,
)
from agentflow.core.shared_list import as_list
from agentflow.core.work import Work
from agentflow.lang.builtins.registry import FlowLetter, Primitive
from agentflow.lang.calling import TAIL, Sliced, begun, bounce

_LAST_OPENED = frozenset({"apply", "reduce"})
"""Primitives that call procedures with the elements of their last argument, and with the arguments before it as they are."""


@cache
def letters_of(primitive: Primitive, count: int) -> tuple[FlowLetter, ...]:
    """What becomes of each of ``count`` arguments (see :meth:`~agentflow.lang.builtins.registry.Primitive.flow_at`)."""
    name = primitive.canonical or primitive.name
    if name in _LAST_OPENED:
        return (*("k" for _ in range(count - 1)), "e")
    if name == "sort" and count == 2:
        return ("e", "k")  # the elements are what the procedure is called with
    return tuple([primitive.flow_at(at) for at in range(count)])


@cache
def twin_of(primitive: Primitive) -> Primitive:
    """The labelled twin of a primitive: itself if it looks into none of its arguments."""
    if set(primitive.flow) == {"k"}:
        return primitive
    if primitive.is_async:
        function = _async_twin(primitive)
    elif primitive.sliced:
        function = _sliced_twin(primitive)
    else:
        function = _twin(primitive)
    return replace(primitive, function=function)


def blame(error: AgentflowError, sources: Sources) -> None:
    """Note that what an error says depends on ``sources``."""
    if sources:
        error.sources = joined(error.sources, sources)


def opened(letters: Sequence[FlowLetter], arguments: Sequence[Any]) -> Work[tuple[list[Any], Sources]]:
    """The arguments as a primitive takes them, and the sources of all that it was given a look at."""
    values: list[Any] = []
    sources = NO_SOURCES
    for letter, each in zip(letters, arguments, strict=True):
        if letter == "r" and type(each) not in UNBOXED:
            each, more = yield from stripped(each)
            sources = joined(sources, more)
        elif type(each) is Label and letter != "k":
            sources = joined(sources, each.sources)
            each = each.value
        elif letter == "k" and type(each) is Primitive:
            each = twin_of(each)
        values.append(each)
    return values, sources


def _plain(letters: Sequence[FlowLetter], arguments: Sequence[Any]) -> bool:
    """Whether no argument can hold a box that the primitive would look into."""
    for letter, each in zip(letters, arguments, strict=True):
        kind = cast("type[Any]", type(each))
        if (kind not in UNBOXED) if letter == "r" else (kind is Label and letter != "k"):
            return False
    return True


def _twin(primitive: Primitive) -> Callable[..., Any]:
    function = primitive.function
    only_reads = not primitive.flow

    def general(first: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        letters = letters_of(primitive, len(arguments))
        if _plain(letters, arguments):
            return function(*first, *arguments)
        work = _opened_at_once(letters, arguments)
        values, sources = work
        return _called(function, [*first, *values], sources)

    if primitive.needs_rt:

        def with_strand(rt: Any, *arguments: Any) -> Any:
            if only_reads:
                for each in arguments:
                    if type(each) not in UNBOXED:
                        break
                else:
                    return function(rt, *arguments)
            return general((rt,), arguments)

        return with_strand

    def alone(*arguments: Any) -> Any:
        if only_reads:
            for each in arguments:
                if type(each) not in UNBOXED:
                    break
            else:
                return function(*arguments)
        return general((), arguments)

    return alone


def _opened_at_once(letters: Sequence[FlowLetter], arguments: Sequence[Any]) -> tuple[list[Any], Sources]:
    work = opened(letters, arguments)
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def _called(function: Callable[..., Any], arguments: list[Any], sources: Sources) -> Any:
    try:
        value = function(*arguments)
    except AgentflowError as error:
        blame(error, sources)
        raise
    if type(value) is Sliced:
        return Sliced(_finished(value.work, sources)) if sources else value
    return box(value, sources)


def _finished(work: Work[Any], sources: Sources) -> Work[Any]:
    try:
        value = yield from work
    except AgentflowError as error:
        blame(error, sources)
        raise
    return box(value, sources)


def _sliced_twin(primitive: Primitive) -> Callable[..., Any]:
    function = primitive.function

    def in_slices(rt: Any, letters: Sequence[FlowLetter], arguments: tuple[Any, ...]) -> Work[Any]:
        values, sources = yield from opened(letters, arguments)
        value = _called(function, [rt, *values], sources)
        return (yield from value.work) if type(value) is Sliced else value

    def twin(rt: Any, *arguments: Any) -> Any:
        letters = letters_of(primitive, len(arguments))
        if _plain(letters, arguments):
            return function(rt, *arguments)
        return begun(in_slices(rt, letters, arguments))

    return twin


def _async_twin(primitive: Primitive) -> Callable[..., Any]:
    function = primitive.function

    async def twin(rt: Any, d: int, *arguments: Any) -> Any:
        letters = letters_of(primitive, len(arguments))
        values, sources = await rt.work(opened(letters, arguments))
        if primitive.name == "sort" and len(values) == 2:  # the order depends on every element
            sources = joined(sources, sources_within(values[0]))
        if not sources:
            return await function(rt, d, *values)
        values = [
            each_boxed(value, outer_sources(argument)) if letter == "e" and as_list(value) is not None else value
            for letter, value, argument in zip(letters, values, arguments, strict=True)
        ]
        if "r" in letters:  # what is done with what was read: a line is logged, somebody is asked
            return await rt.under(sources, function(rt, d, *values))
        try:
            value = await function(rt, d, *values)
            if value is TAIL:
                value = await bounce(rt, d)
        except AgentflowError as error:
            blame(error, sources)
            raise
        return box(value, sources)

    return twin


__all__ = ["blame", "opened", "strip", "twin_of"]
