"""Labelled twins of the functions that texts in Python call; they report the sources they read to the strand, and ask
before a change (``strict`` policies).

All of them take the strand first.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import (
    NO_SOURCES,
    UNBOXED,
    Label,
    Sources,
    bare,
    box,
    boxed_elements,
    joined,
    outer_sources,
    sources_of,
)
from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import Work
from agentflow.lang import changeable
from agentflow.lang.builtins.strict import Called, look_outside
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.changeable import CONTAINERS
from agentflow.lang.environment import UNBOUND, Cell, SexpEnvironment
from agentflow.lang.python import builtins, changes, labelled, methods, strict, support, values
from agentflow.lang.python.copies import own_copy
from agentflow.lang.python.rows import Row, traits_of
from agentflow.lang.python.sharing import allowed
from agentflow.lang.python.strict import (
    CHANGING,
    born,
    decides,
    depends,
    fresh,
    keyed,
    leave,
    permit,
    sources_of_key,
)

_STORE = labelled.twin_of(changes.store)
_REMOVE = labelled.twin_of(changes.remove)
_ADD_TO = labelled.twin_of(changes.add_to)
_BITWISE_TO = labelled.twin_of(changes.bitwise_to)
_SUBTRACT_FROM = labelled.twin_of(changes.subtract_from)
_APPEND = labelled.twin_of(methods.append)
_METHOD = labelled.twin_of(methods.method)
_ROUNDS = labelled.twin_of(builtins.rounds)
_SORT = labelled.twin_of(builtins.sort)


def _unbound_name(rt: Any, env: SexpEnvironment, name: str, near: str | None = None) -> Any:
    rt.raise_to(rt.changeable.unbound.get(name, NO_SOURCES))
    return support.unbound_name(rt, env, name, near)


def strict_twin_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a function that code calls, which takes the strand first."""
    return _twin(function)


@cache
def _twin(function: Callable[..., Any]) -> Callable[..., Any]:
    own = _OWN.get(function)
    if own is not None or function.__module__ in (__name__, strict.__name__):
        return own or function
    twin, traits = labelled.twin_of(function), traits_of(function)
    needs_rt = _needs_rt(function)
    if inspect.iscoroutinefunction(function):
        return twin if traits.silent else _waiting(twin)
    if traits.silent:
        return twin if needs_rt else _without_rt(twin)
    return _telling(twin, "r" if traits.within else traits.flow, needs_rt, keys=traits.keys)


def _needs_rt(function: Callable[..., Any]) -> bool:
    try:
        return next(iter(inspect.signature(function).parameters), None) == "rt"
    except ValueError:
        return False


def _without_rt(function: Callable[..., Any]) -> Callable[..., Any]:
    def twin(rt: Any, *arguments: Any) -> Any:
        return function(*arguments)

    return twin


def _seen(word: str, arguments: Iterable[Any]) -> Sources:
    """The sources that a function reads: those of the parts it reads whole, else of the arguments themselves."""
    sources = NO_SOURCES
    for at, each in enumerate(arguments):
        if type(each) in UNBOXED:
            continue
        letter = word[min(at, len(word) - 1)]
        sources = joined(sources, sources_of(each) if letter == "r" else outer_sources(each))
    return sources


def _telling(twin: Callable[..., Any], word: str, needs_rt: bool, *, keys: bool) -> Callable[..., Any]:
    def with_strand(rt: Any, *arguments: Any, **named: Any) -> Any:
        if rt.trying:
            rt.raise_to(_seen(word, arguments))
            for each in named.values():
                rt.raise_to(sources_of(each))
        value = twin(rt, *arguments, **named)
        return keyed(rt, value) if keys else born(rt, (value,))

    def alone(rt: Any, *arguments: Any) -> Any:
        if rt.trying:
            rt.raise_to(_seen(word, arguments))
        value = twin(*arguments)
        return keyed(rt, value) if keys else born(rt, (value,))

    return with_strand if needs_rt else alone


def _waiting(twin: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls procedures: once for each element, so that their effects depend on the list."""

    async def calling(rt: Any, d: int, *arguments: Any, key: Any = None, **named: Any) -> Any:
        before = rt.ambient
        for each in arguments:
            rt.raise_to(outer_sources(each))
        if rt.trying:
            rt.raise_to(sources_of([*arguments, *named.values()]))
        look_outside(rt, key)
        if bare(key) is not None:
            named["key"] = Called(key)
        value = await twin(rt, d, *arguments, **named)
        if rt.trying:
            look_outside(rt, value)
        value = rt.left(before, value)
        return born(rt, (value,))

    return calling


_SORTED = _waiting(labelled.twin_of(builtins.sorted_))


async def _map(rt: Any, d: int, function: Any, *iterables: Any) -> Any:
    before = rt.ambient
    for each in iterables:
        rt.raise_to(outer_sources(each))
    opened = [values.elements(rt, each, "map") for each in iterables]
    value = await builtins.map_(rt, d, Called(function), *opened)
    fresh(rt, value)
    return rt.left(before, value)


async def _filter(rt: Any, d: int, function: Any, iterable: Any) -> Any:
    before = rt.ambient
    rt.raise_to(joined(outer_sources(iterable), outer_sources(function)))
    kept: list[Any] = []
    for each in list(values.elements(rt, iterable, "filter")):
        answer = each if bare(function) is None else await _call(rt, d, function, (each,))
        if decides(rt, answer):
            kept.append(each)
    fresh(rt, kept)
    return rt.left(before, kept)


async def _sort(rt: Any, d: int, value: Any, *, key: Any = None, reverse: Any = False) -> None:
    """``value.sort(...)``: the order depends on everything compared, and carries its sources."""
    inner = bare(value)
    permit(rt, value, NO_SOURCES)
    if type(inner) is not list:
        await _SORT(rt, d, inner, key=key, reverse=reverse)
        return
    before = rt.ambient
    rt.raise_to(outer_sources(value))
    await rt.work(allowed(rt, inner))
    try:
        ordered = await _SORTED(rt, d, inner, key=key, reverse=reverse)
    except Exception as error:  # an unchanged order reveals that it failed
        looked_at = joined(rt.ambient, error.sources if isinstance(error, AgentflowError) else NO_SOURCES)
        inner[:] = await rt.work(boxed_elements(inner, looked_at))
        raise
    inner[:] = await rt.work(boxed_elements(bare(ordered), outer_sources(ordered)))
    leave(rt, before)


async def _call(rt: Any, d: int, function: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...] = ()) -> Any:
    before = rt.ambient
    look_outside(rt, function)
    value = await support.call(rt, d, bare(function), arguments, keywords)
    return rt.left(before, value)


def _iterated(rt: Any, value: Any) -> Any:
    if type(value) is Label:
        rt.raise_to(value.sources)
        return begun(boxed_elements(values.elements(rt, value.value, "for"), value.sources))
    return values.iterated(rt, value)


def _rounds(rt: Any, *bounds: Any) -> Iterable[Any]:
    rt.raise_to(_seen("r", bounds))
    return _ROUNDS(*bounds)


def _listed(rt: Any, value: Any) -> Any:
    """The iterable of branches: their number, and whether it can be iterated, depends on its sources."""
    if rt.trying:
        rt.raise_to(outer_sources(value))
    return box(support.listed(rt, bare(value)), outer_sources(value))


def _store(rt: Any, new: Any, value: Any, at: Any) -> Any:
    container = bare(value)
    if rt.trying:
        rt.raise_to(joined(outer_sources(value), sources_of_key(at)))
    if type(at) is Label and type(container) is list and rt.fork is None and not _is_said(rt, value, at.sources):
        permit(rt, value, NO_SOURCES)
        return begun(_stored_by(rt, new, value, at))
    permit(rt, value, sources_of_key(at))
    return _STORE(rt, new, value, at)


def _is_said(rt: Any, value: Any, sources: Sources) -> bool:
    """Whether all references to a container carry these sources, so that its elements need not: most often, since a variable is marked before."""
    return sources <= rt.changeable.sources(bare(value))


def _stored_by(rt: Any, new: Any, value: Any, at: Label) -> Work[None]:
    """Store by an index with sources: each element gets them, since they decide which one is replaced."""
    container = bare(value)
    container[:] = yield from boxed_elements(container, at.sources)
    done = _STORE(rt, new, value, at)
    if type(done) is Sliced:
        yield from done.work


def _remove(rt: Any, value: Any, at: Any) -> Any:
    if rt.trying:
        rt.raise_to(joined(outer_sources(value), sources_of_key(at)))
    permit(rt, value, sources_of_key(at))
    return _REMOVE(rt, value, at)


def _added_to(rt: Any, a: Any, b: Any) -> Any:
    if type(bare(a)) is list:
        permit(rt, a, depends("+=", a, (b,)))
    elif rt.trying:
        rt.raise_to(_seen("r", (a, b)))
    return _ADD_TO(rt, a, b)


def _bitwise_to(rt: Any, sign: str, a: Any, b: Any) -> Any:
    if type(bare(a)) in CONTAINERS:
        permit(rt, a, depends(f"{sign}=", a, (b,)))
        return _BITWISE_TO(rt, sign, a, b)
    if rt.trying:
        rt.raise_to(_seen("r", (a, b)))
    return keyed(rt, _BITWISE_TO(rt, sign, a, b))


def _subtract_from(rt: Any, a: Any, b: Any) -> Any:
    if type(bare(a)) in CONTAINERS:
        permit(rt, a, depends("-=", a, (b,)))
    elif rt.trying:
        rt.raise_to(_seen("r", (a, b)))
    return _SUBTRACT_FROM(rt, a, b)


def _append(rt: Any, value: Any, item: Any) -> Any:
    permit(rt, value, NO_SOURCES)
    return _APPEND(rt, value, item)


def _method(rt: Any, name: str, value: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...] = ()) -> Any:
    container = bare(value)
    if type(container) in CONTAINERS:
        if name in CHANGING:
            permit(rt, value, depends(name, value, arguments))
        if rt.trying:
            whole = name in labelled.WITHIN or type(container) is OrderedSet
            rt.raise_to(joined(sources_of(value) if whole else outer_sources(value), sources_of(list(arguments))))
    elif rt.trying:
        rt.raise_to(sources_of([value, *arguments]))
    result = _METHOD(rt, name, value, arguments, keywords)
    if type(container) is OrderedSet or (name == "copy" and type(container) is dict):
        return keyed(rt, result)
    return born(rt, (result,))


def _rebound(rt: Any, env: SexpEnvironment, cell: Cell, name: str) -> Callable[..., Any]:
    function = _unbound_name(rt, env, name) if cell.v is UNBOUND else cell.v

    async def code(rt: Any, d: int, *arguments: Any) -> Any:
        given_ones = list(arguments)
        while given_ones and given_ones[-1] is values.MISSING:
            given_ones.pop()
        return await _call(rt, d - 1, function, tuple(given_ones))

    return code


async def _data_of(rt: Any, *arguments: Any) -> Any:
    return await _of_effect(rt, await support.data_of(rt, *arguments))


async def _data_of_dict(rt: Any, *arguments: Any) -> Any:
    return await _of_effect(rt, await support.data_of_dict(rt, *arguments))


async def _of_effect(rt: Any, value: Any) -> Any:
    """The result of an effect, without other references to it: events and records keep lists and dicts as long as they have
    readers."""
    sources = outer_sources(value)
    copy, containers = await rt.work(own_copy(bare(value)))
    if sources:
        for each in containers:
            rt.changeable.note(each, sources)
    return box(copy, sources)


def set_default(rt: Any, value: Any, key: Any, default: Any) -> Any:
    """``value.setdefault(key, [])``: the added value is in no other container, so all references to it carry the sources of
    those to the dict."""
    result = _method(rt, "setdefault", value, (key, default))
    if bare(result) is bare(default) and type(bare(default)) in CONTAINERS:
        rt.changeable.note(bare(default), changeable.said(rt.changeable, value))
    return result


_OWN: dict[Callable[..., Any], Callable[..., Any]] = {
    values.iterated: _iterated,
    values.truth: decides,
    builtins.rounds: _rounds,
    builtins.map_: _map,
    builtins.filter_: _filter,
    builtins.sort: _sort,
    changes.store: _store,
    changes.remove: _remove,
    changes.add_to: _added_to,
    changes.bitwise_to: _bitwise_to,
    changes.subtract_from: _subtract_from,
    methods.append: _append,
    methods.method: _method,
    support.call: _call,
    support.listed: _listed,
    support.unbound_name: _unbound_name,
    support.rebound: _rebound,
    support.data_of: _data_of,
    support.data_of_dict: _data_of_dict,
}


@cache
def strict_entry(entry: Row) -> Row:
    """A row with the twin of its function."""
    return replace(entry, function=strict_twin_of(entry.function))
