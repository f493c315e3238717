"""Twins of functions of the language, for programs with values that may be in boxes (:mod:`agentflow.core.data.labels`).

A twin computes the same as its function. It opens the boxes of its arguments according to the function's word ``flow``, and
puts the result in a box with their sources. It is made once, from the word: after a test of the types of one or two arguments it
calls the function itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import NO_SOURCES, UNBOXED, Label, Sources, bare, blame, box
from agentflow.core.data.walk import ELEMENTS_PER_STEP, Work, slices
from agentflow.lang.builtins.opening import AT_ONCE, FREE, PLAIN, opened, opened_now
from agentflow.lang.builtins.registry import Out, Primitive, letters_of
from agentflow.lang.calling import MANY_OPERANDS, TAIL, Sentinel, Sliced, begun, bounce

_LEFT_OUT = Sentinel("argument left out")
_FEW = 8
"""Numbers of arguments with letters that are known before."""


def _blamed(error: AgentflowError, sources: Sources) -> AgentflowError:
    blame(error, sources)
    return error


_PUT: dict[Out, Callable[[Any, Sources], Any]] = {
    "box": box,
    "bare": lambda value, sources: bare(value),
    "each": lambda elements, sources: (box(each, sources) for each in elements),
    "error": _blamed,
}


def called(work: Callable[[], Any], sources: Sources) -> Any:
    """The value of ``work``, or of its slices, with the sources that were read."""
    try:
        value = work()
    except AgentflowError as error:
        blame(error, sources)
        raise
    return Sliced(_finished(value.work, sources)) if type(value) is Sliced else box(value, sources)


def _finished(work: Work[Any], sources: Sources) -> Work[Any]:
    try:
        value = yield from work
    except AgentflowError as error:
        blame(error, sources)
        raise
    return box(value, sources)


def following(function: Callable[..., Any], word: str, first: int, *, long: bool = True, out: Out = "box") -> Any:
    """The twin of a function, by its word. Before the arguments of the word it takes ``first`` others.

    Only a twin that is ``long`` may give unfinished work. Another one is that of a function of numbers, texts and keys.
    """
    if inspect.iscoroutinefunction(function):
        return _waiting(function, word, first)
    read = "r" if long else AT_ONCE
    word = word.replace("r", read) if word else read
    few, put = [letters_of(word, count) for count in range(_FEW)], _PUT[out]

    def general(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        hidden, values = arguments[:first], arguments[first:]
        letters = few[len(values)] if len(values) < _FEW else letters_of(word, len(values))
        if named:
            letters, values = letters + read * len(named), (*values, *named.values())
        now = opened_now(letters, values) if len(values) < MANY_OPERANDS else None
        return begun(in_slices(hidden, letters, values, named)) if now is None else passed(hidden, named, *now)

    def in_slices(hidden: Any, letters: str, values: Sequence[Any], named: dict[str, Any]) -> Work[Any]:
        value = passed(hidden, named, *(yield from opened(letters, values)))
        return (yield from value.work) if type(value) is Sliced else value

    def passed(hidden: Any, named: dict[str, Any], values: list[Any], sources: Sources) -> Any:
        try:  # as in `called`, without a function for the call: most values in boxes come here
            value = function(*hidden, *values) if not named else _passed(function, hidden, values, named)
        except AgentflowError as error:
            blame(error, sources)
            raise
        if not sources:
            return value
        return Sliced(_finished(value.work, sources)) if type(value) is Sliced else put(value, sources)

    free, other_free = [each in FREE for each in few[2]]
    kinds, other_kinds = [PLAIN[each] for each in few[2]]

    # Two arguments are most often given, and named parameters are passed on in half the time
    def after_strand(rt: Any, a: Any = _LEFT_OUT, b: Any = _LEFT_OUT, *others: Any, **named: Any) -> Any:
        if ((free and type(a) is not Label) or type(a) in kinds) and not named:
            if b is _LEFT_OUT:
                if a is not _LEFT_OUT:
                    return function(rt, a)
            elif (other_free and type(b) is not Label) or type(b) in other_kinds:
                if not others:
                    return function(rt, a, b)
                if len(others) < MANY_OPERANDS and UNBOXED.issuperset(map(type, others)):
                    return function(rt, a, b, *others)
        return general((rt,) if a is _LEFT_OUT else (rt, a) if b is _LEFT_OUT else (rt, a, b, *others), named)

    def alone(a: Any = _LEFT_OUT, b: Any = _LEFT_OUT, *others: Any, **named: Any) -> Any:
        if ((free and type(a) is not Label) or type(a) in kinds) and not named:
            if b is _LEFT_OUT:
                if a is not _LEFT_OUT:
                    return function(a)
            elif (other_free and type(b) is not Label) or type(b) in other_kinds:
                if not others:
                    return function(a, b)
                if len(others) < MANY_OPERANDS and UNBOXED.issuperset(map(type, others)):
                    return function(a, b, *others)
        return general(() if a is _LEFT_OUT else (a,) if b is _LEFT_OUT else (a, b, *others), named)

    return after_strand if first else alone


def _passed(function: Callable[..., Any], hidden: Sequence[Any], values: Sequence[Any], named: dict[str, Any]) -> Any:
    """A call of a function; the last of the values have names."""
    if not named:
        return function(*hidden, *values)
    count = len(values) - len(named)
    return function(*hidden, *values[:count], **dict(zip(named, values[count:], strict=True)))


def _waiting(function: Callable[..., Any], word: str, first: int) -> Callable[..., Any]:
    async def reading(rt: Any, d: Any, *arguments: Any, **named: Any) -> Any:
        hidden, shown = (rt, d, *arguments)[:first], (*(rt, d, *arguments)[first:], *named.values())
        letters = letters_of(word, len(shown) - len(named)) + "r" * len(named)
        now = opened_now(letters, shown)
        values, sources = await rt.work(opened(letters, shown)) if now is None else now
        if "k" in letters:
            values = [twin_of(each) if type(each) is Primitive else each for each in values]
        if not sources:
            return await _passed(function, hidden, values, named)
        if "r" in letters or "p" in letters:  # it may act on the values read: log a line, ask a person
            return await rt.under(sources, _passed(function, hidden, values, named))
        try:
            value = await _passed(function, hidden, values, named)
            if value is TAIL:
                value = await bounce(rt, d)
        except AgentflowError as error:
            blame(error, sources)
            raise
        return box(value, sources)

    def of_first(rt: Any, d: Any, a: Any, *others: Any) -> Any:
        return reading(rt, d, a, *others) if type(a) is Label else function(rt, d, a, *others)

    return of_first if word[:1] in FREE and not word[1:].strip("k") else reading


# -- primitives ---------------------------------------------------------------------------------------------------


@cache
def twin_of(primitive: Primitive) -> Primitive:
    """The labelled twin of a primitive: itself if it looks into none of its arguments."""
    if set(primitive.flow) == {"k"}:
        return primitive
    first = 2 if primitive.is_async else int(primitive.needs_rt)
    # One that is neither async nor long reads numbers, texts and symbols only (a test ensures it)
    function = following(primitive.function, primitive.flow, first, long=primitive.sliced)
    return replace(primitive, function=function, of_many=None if primitive.is_async else partial(_of_many, primitive))


def _of_many(primitive: Primitive, rt: Any, arguments: tuple[Any, ...]) -> Work[Any]:
    """The work of the twin of a primitive, not an async one, for many arguments."""
    values, sources = arguments, NO_SOURCES
    for some in slices(arguments):
        yield len(some) // ELEMENTS_PER_STEP
        if Label in map(type, some) or primitive.sliced:
            values, sources = yield from opened(letters_of(primitive.flow, len(arguments)), arguments)
            break
    operands = (rt, *values) if primitive.needs_rt else values
    yield 0
    value = called(lambda: primitive.function(*operands), sources)
    return (yield from value.work) if type(value) is Sliced else value
