"""Twins of primitives for programs with values that may be in boxes (:mod:`agentflow.core.data.labels`).

A twin computes the same as its primitive. It opens the boxes of its arguments according to the primitive's word ``flow``, and
puts the result in a box with their sources. Without boxes it calls the primitive after a test of each argument's type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import (
    NO_SOURCES,
    UNBOXED,
    Label,
    Sources,
    blame,
    box,
    boxed_elements,
    joined,
    sources_within,
    stripped,
)
from agentflow.core.data.values import as_list
from agentflow.core.data.walk import ELEMENTS_PER_STEP, PART, Work, slices
from agentflow.lang.builtins.registry import FlowLetter, Primitive
from agentflow.lang.calling import MANY_OPERANDS, TAIL, Sentinel, Sliced, begun, bounce

_LAST_OPENED = frozenset({"apply", "reduce"})
"""Primitives that call procedures with the elements of their last argument, and with the arguments before it as they are."""


_FEW = 8
"""Numbers of arguments with precomputed letters."""
_LEFT_OUT = Sentinel("argument left out")


def letters_of(primitive: Primitive, count: int) -> tuple[FlowLetter, ...]:
    """The treatment of each of ``count`` arguments (see :meth:`~agentflow.lang.builtins.registry.Primitive.flow_at`)."""
    return _few_letters(primitive, count) if count < MANY_OPERANDS else _letters(primitive, count)


@cache
def _few_letters(primitive: Primitive, count: int) -> tuple[FlowLetter, ...]:
    return _letters(primitive, count)


def _letters(primitive: Primitive, count: int) -> tuple[FlowLetter, ...]:
    name = primitive.canonical or primitive.name
    if name in _LAST_OPENED:
        kept: tuple[FlowLetter, ...] = ("k",) * (count - 1)
        return (*kept, "e") if count else ()
    if name == "sort" and count == 2:
        return ("e", "k")  # the procedure is called with the elements
    # A word is shorter than this, and ends in its repeating letters.
    some: tuple[FlowLetter, ...] = tuple([primitive.flow_at(at) for at in range(min(count, _FEW))])
    return (some + some[-2:] * ((count - len(some)) // 2 + 1))[:count]


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
    return replace(primitive, function=function, of_many=None if primitive.is_async else partial(_of_many, primitive))


def opened(letters: Sequence[FlowLetter], arguments: Sequence[Any]) -> Work[tuple[list[Any], Sources]]:
    """The arguments in the form that a primitive takes, and the sources of all that it reads."""
    values: list[Any] = []
    sources = NO_SOURCES
    for at, (letter, each) in enumerate(zip(letters, arguments, strict=True), 1):
        if not at % PART:
            yield PART // ELEMENTS_PER_STEP
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


_Tests: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@cache
def _tests_of(letters: tuple[FlowLetter, ...]) -> _Tests:
    """The positions of the arguments to read whole, and of those to open."""
    reads = tuple([at for at, letter in enumerate(letters) if letter == "r"])
    return reads, tuple([at for at, letter in enumerate(letters) if letter in ("o", "e")])


class _Words:
    """The treatment of the arguments of a primitive, for each number of them."""

    __slots__ = ("_few", "_primitive")

    def __init__(self, primitive: Primitive) -> None:
        self._primitive = primitive
        self._few = [self._looked_up(count) for count in range(_FEW)]

    def _looked_up(self, count: int) -> tuple[tuple[FlowLetter, ...], _Tests]:
        letters = letters_of(self._primitive, count)
        return letters, _tests_of(letters)

    def __call__(self, count: int) -> tuple[tuple[FlowLetter, ...], _Tests]:
        return self._few[count] if count < _FEW else self._looked_up(count)


def _of_many(primitive: Primitive, rt: Any, arguments: tuple[Any, ...]) -> Work[Any]:
    """The work of the twin of a primitive, not an async one, for many arguments."""
    values, sources = arguments, NO_SOURCES
    for some in slices(arguments):
        yield len(some) // ELEMENTS_PER_STEP
        if Label in map(type, some) or primitive.sliced:
            values, sources = yield from opened(letters_of(primitive, len(arguments)), arguments)
            break
    operands = (rt, *values) if primitive.needs_rt else values
    yield 0
    value = called(lambda: primitive.function(*operands), sources)
    return (yield from value.work) if type(value) is Sliced else value


def _twin(primitive: Primitive) -> Callable[..., Any]:
    """The twin of a primitive that is neither async nor long, with inline tests of types for the most common arities.

    Such a primitive reads numbers, texts and symbols only (a test ensures it), so boxes inside a list do not matter to it:
    the list is an error, and the message states its length.
    """
    function, words = primitive.function, _Words(primitive)

    def general(first: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        if len(arguments) >= MANY_OPERANDS:
            return begun(_of_many(primitive, first[0] if first else None, arguments))
        letters, _ = words(len(arguments))
        sources = NO_SOURCES
        values: list[Any] = []
        for letter, each in zip(letters, arguments, strict=True):
            if letter != "k" and type(each) is Label:
                sources = joined(sources, each.sources)
                each = each.value
            values.append(each)
        try:
            return given_back(function(*first, *values), sources)
        except AgentflowError as error:
            blame(error, sources)
            raise

    reads_all = not primitive.flow.strip("r")
    if reads_all and primitive.arity == (1, 1):
        return _of_one(function, general, primitive.needs_rt)
    if reads_all and primitive.arity == (2, 2):
        return _of_two(function, general, primitive.needs_rt)

    return _of_any(function, general, primitive.needs_rt)


General = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]


def _of_one(function: Callable[..., Any], general: General, needs_rt: bool) -> Callable[..., Any]:
    def with_strand(rt: Any, a: Any) -> Any:
        return general((rt,), (a,)) if type(a) is Label else function(rt, a)

    def alone(a: Any) -> Any:
        return general((), (a,)) if type(a) is Label else function(a)

    return with_strand if needs_rt else alone


def _of_two(function: Callable[..., Any], general: General, needs_rt: bool) -> Callable[..., Any]:
    def with_strand(rt: Any, a: Any, b: Any) -> Any:
        return general((rt,), (a, b)) if type(a) is Label or type(b) is Label else function(rt, a, b)

    def alone(a: Any, b: Any) -> Any:
        return general((), (a, b)) if type(a) is Label or type(b) is Label else function(a, b)

    return with_strand if needs_rt else alone


def _of_any(function: Callable[..., Any], general: General, needs_rt: bool) -> Callable[..., Any]:
    """For any number of arguments; two are most often given, and named parameters are passed on in half the time."""

    def with_strand(rt: Any, a: Any = _LEFT_OUT, b: Any = _LEFT_OUT, *others: Any) -> Any:
        if b is _LEFT_OUT or others:
            arguments = () if a is _LEFT_OUT else (a,) if b is _LEFT_OUT else (a, b, *others)
            if len(others) >= MANY_OPERANDS or Label in map(type, arguments):
                return general((rt,), arguments)
            return function(rt, *arguments)
        return general((rt,), (a, b)) if type(a) is Label or type(b) is Label else function(rt, a, b)

    def alone(a: Any = _LEFT_OUT, b: Any = _LEFT_OUT, *others: Any) -> Any:
        if b is _LEFT_OUT or others:
            arguments = () if a is _LEFT_OUT else (a,) if b is _LEFT_OUT else (a, b, *others)
            if len(others) >= MANY_OPERANDS or Label in map(type, arguments):
                return general((), arguments)
            return function(*arguments)
        return general((), (a, b)) if type(a) is Label or type(b) is Label else function(a, b)

    return with_strand if needs_rt else alone


def called(work: Callable[[], Any], sources: Sources) -> Any:
    """The value of ``work``, or of its slices, with the sources it read."""
    try:
        value = work()
    except AgentflowError as error:
        blame(error, sources)
        raise
    return given_back(value, sources)


def given_back(value: Any, sources: Sources) -> Any:
    """The result of a primitive, including sliced work, with the sources it read."""
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
        value = called(lambda: function(rt, *values), sources)
        return (yield from value.work) if type(value) is Sliced else value

    words = _Words(primitive)

    def twin(rt: Any, *arguments: Any) -> Any:
        if len(arguments) >= MANY_OPERANDS:
            return begun(in_slices(rt, letters_of(primitive, len(arguments)), arguments))
        letters, (reads, opens) = words(len(arguments))
        for at in reads:
            if type(arguments[at]) not in UNBOXED:
                return begun(in_slices(rt, letters, arguments))
        for at in opens:
            if type(arguments[at]) is Label:
                return begun(in_slices(rt, letters, arguments))
        return function(rt, *arguments)

    return twin


def box_elements(letters: Sequence[FlowLetter], values: list[Any], arguments: Sequence[Any]) -> Work[None]:
    """Distribute the box of each list among ``values`` with treatment ``e`` over its elements."""
    for index, (letter, argument) in enumerate(zip(letters, arguments, strict=True)):
        if letter == "e" and as_list(values[index]) is not None and type(argument) is Label:
            values[index] = yield from boxed_elements(values[index], argument.sources)


def _async_twin(primitive: Primitive) -> Callable[..., Any]:
    function = primitive.function

    async def twin(rt: Any, d: int, *arguments: Any) -> Any:
        letters = letters_of(primitive, len(arguments))
        values, sources = await rt.work(opened(letters, arguments))
        if primitive.name == "sort" and len(values) == 2:  # the order depends on every element
            sources = joined(sources, await rt.work(sources_within(values[0])))
        if not sources:
            return await function(rt, d, *values)
        await rt.work(box_elements(letters, values, arguments))
        if "r" in letters:  # the procedure may act on the values read: log a line, ask a person
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
