"""Operations of texts in Python on values that may be in boxes (:mod:`agentflow.core.data.labels`).

Code tests exact types before it operates itself, so boxes reach the functions of this package: in code of a flow with a
policy, their twins, which are made from their rows (:mod:`agentflow.lang.builtins.labelled`). A few follow data by rules of their own.
A list, dict or set may be changed through other references, so an added element carries its own sources; keys of dicts and
elements of sets are in boxes, which are equal to their contents.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, lru_cache, wraps
from typing import Any, NoReturn, cast

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import (
    NO_SOURCES,
    UNBOXED,
    Label,
    Sources,
    bare,
    blame,
    box,
    joined,
    outer_sources,
    strip,
    stripped,
)
from agentflow.core.data.values import OrderedSet, SharedList
from agentflow.core.data.walk import Work
from agentflow.lang.builtins.labelled import called, following
from agentflow.lang.builtins.opening import KEYED, opened, opened_now
from agentflow.lang.builtins.registry import letters_of
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.python import builtins, changes, compare, displays, support, values
from agentflow.lang.python.boxed.sharing import allowed
from agentflow.lang.python.errors import wrong_value
from agentflow.lang.python.methods import METHOD_ROWS, METHODS, method
from agentflow.lang.python.rows import Row, takes_long, traits_of
from agentflow.lang.python.sorting import sorted_values
from agentflow.lang.python.values import MISSING

_DATA = frozenset((Label, list, tuple, dict, OrderedSet, SharedList))
"""Types of arguments that are, or may hold, boxes."""
_HIDDEN = ("rt", "d", "env")
"""Parameters that texts give nothing for: the strand, the depth, the environment."""


def blaming(function: Callable[..., Any]) -> Callable[..., Any]:
    """A twin with errors that depend on all its arguments, which are read when an error occurs."""

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
    """Raise an error that depends on these arguments."""
    _, sources = yield from stripped([each for each in arguments if type(each) in _DATA])
    blame(error, sources)
    try:
        raise error
    finally:  # else error and frame would refer to each other, and a search for referrers would find the frame
        del error


@cache
def twin_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The labelled twin of a function that code calls: the function itself if it reads none of its arguments."""
    own = _OWN.get(function)
    if own is not None:
        return own
    traits = traits_of(function)
    if set(traits.flow) == {"k"}:
        return function
    first = 0
    for name in inspect.signature(function).parameters:
        if name not in _HIDDEN:
            break
        first += 1
    twin = following(function, traits.flow, first, long=takes_long(function, labelled=True), out=traits.out)
    return blaming(twin) if traits.within else twin


@cache
def labelled_entry(entry: Row) -> Row:
    """A row with the twin of its function."""
    return replace(entry, function=twin_of(entry.function))


# -- parts and changes --------------------------------------------------------------------------------------------


def _unpacked(rt: Any, value: Any, shape: tuple[Any, ...]) -> Any:
    if type(value) is Label or type(value) in KEYED or any(type(each) is tuple for each in shape):
        return begun(_parts(rt, value, shape))
    return values.unpacked(rt, value, shape)


def _parts(rt: Any, value: Any, shape: tuple[Any, ...]) -> Work[list[Any]]:
    """The parts, flat; the length of the list for a starred name depends on the sources of the value's own length."""
    [items], sources = yield from opened("i", [value])
    outer = tuple(None if type(each) is tuple else each for each in shape)
    parts = bare(called(lambda: values.unpacked(rt, items, outer), sources))
    flat: list[Any] = []
    for part, inner in zip(parts, shape, strict=True):
        if type(inner) is tuple:
            flat += yield from _parts(rt, part, inner)
        else:
            flat.append(box(part, sources) if inner == "*" else part)
    return flat


def _store(rt: Any, new: Any, value: Any, at: Any) -> Any:
    container = bare(value)
    if type(at) is not Label:
        return changes.store(rt, new, container, at)
    new = box(new, at.sources)
    name = at.value
    if type(container) is dict and compare.key(name) not in container:
        name = at  # the key itself has sources
    return changes.store(rt, new, container, name)


def _entries(rt: Any, *parts: tuple[bool, Any, Any]) -> Any:
    """A dict of entries: a value depends on the sources of its key."""
    sources = NO_SOURCES
    bare_ones: list[tuple[bool, Any, Any]] = []
    for spread, key, value in parts:
        if spread:
            sources = joined(sources, outer_sources(value))
        bare_ones.append((spread, key, bare(value) if spread else box(value, strip(key)[1])))
    return called(lambda: displays.entries(rt, *bare_ones), sources)


def _gathered(rt: Any, *parts: tuple[bool, Any]) -> Any:
    """A list of items, some of them lists of items."""
    sources = NO_SOURCES
    for starred, value in parts:
        if starred:
            sources = joined(sources, outer_sources(value))
    return box(displays.gathered(rt, *[(starred, bare(each) if starred else each) for starred, each in parts]), sources)


_EXTENDED = following(changes.add_to, traits_of(changes.add_to).flow, 1)
_ADDED = following(changes.add_to, "oo", 1)


def _add_to(rt: Any, a: Any, b: Any) -> Any:
    """``a += b``: for a list, the elements of ``b`` carry their sources, since others may refer to the list; two texts are joined."""
    return (_EXTENDED if type(bare(a)) is list else _ADDED)(rt, a, b)


# -- methods ------------------------------------------------------------------------------------------------------

OF_KEYS = frozenset(row.name for row in METHOD_ROWS if row.keys)
"""Methods of dicts and sets with a result that depends on the set of keys."""


@lru_cache(1_024)
def method_word(kind: type[Any], name: str) -> str:
    """The word of a method for its receiver and its arguments. A text is read whole, and a value without such a method."""
    row = METHODS[kind].get(name) if kind in METHODS else None
    if row is None or kind is str:
        return "r"
    return ("r" if row.within and row.changes is None else "n" if row.keys else "o") + row.flow


def _method(rt: Any, name: str, value: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...] = ()) -> Any:
    kind = type(bare(value))
    word = method_word(list if kind is SharedList else kind, name)
    if word[0] == "o" and name != "remove" and type(value) is not Label and UNBOXED.issuperset(map(type, arguments)):
        return method(rt, name, value, arguments, keywords)
    letters = letters_of(word, len(arguments) + 1)
    now = opened_now(letters, (value, *arguments)) if name not in ("remove", "setdefault") else None
    if now is None:
        return begun(_method_opened(rt, name, letters, [value, *arguments], keywords))
    [receiver, *others], sources = now
    return called(lambda: method(rt, name, receiver, tuple(others), keywords), sources)


def _method_opened(rt: Any, name: str, letters: str, arguments: list[Any], keywords: tuple[str, ...]) -> Work[Any]:
    [value, *others], sources = yield from opened(letters, arguments)
    if name == "remove" and type(value) is list:
        read, more = yield from stripped(value)
        sources = joined(sources, more)
        if read is not value and others:
            return (yield from _removed(rt, cast("list[Any]", value), read, others[0]))
    if name == "setdefault" and type(value) is dict and others:
        keywords, more = yield from _with_key(others, keywords)
        sources = joined(sources, more)
    result = called(lambda: method(rt, name, value, tuple(others), keywords), sources)
    return (yield from result.work) if type(result) is Sliced else result


def _with_key(opened: list[Any], keywords: tuple[str, ...]) -> Work[tuple[tuple[str, ...], Sources]]:
    """The sources of the key of ``setdefault``: the default carries them, if it is put under the key, and so does the value that is there."""
    count = len(opened) - len(keywords)
    at = {name: count + index for index, name in enumerate(keywords)}
    _, sources = yield from stripped(opened[at.get("key", 0)])
    if count < 2 and "default" not in at:
        opened.append(None)
        at["default"] = len(opened) - 1
        keywords = (*keywords, "default") if keywords else keywords
    default = at.get("default", 1)
    opened[default] = box(opened[default], sources)
    return keywords, sources


def _removed(rt: Any, value: list[Any], read: list[Any], item: Any) -> Work[None]:
    """Remove the first element with content equal to ``item``; ``read`` are the contents."""
    yield from allowed(rt, value)
    at = yield from compare.position(item, read)
    if at is None:
        wrong_value("the list has no such element")
    del value[at]


# -- order --------------------------------------------------------------------------------------------------------


async def _keyed(rt: Any, d: int, key: Any, iterable: Any, who: str) -> tuple[list[Any], list[Any], Sources]:
    """The elements that are put in order, their keys, and the sources of the order."""
    sources = outer_sources(iterable)
    items = list(values.elements(rt, bare(iterable), who))
    call = twin_of(support.call)
    asked = items if bare(key) is None else [await call(rt, d, key, (box(each, sources),)) for each in items]
    keys, more = await rt.work(stripped(asked))
    return items, keys, joined(joined(sources, more), outer_sources(key))


def _extreme(function: Callable[..., Any], who: str) -> Callable[..., Any]:
    without_key = following(function, "r", 2)

    async def chosen(rt: Any, d: int, *arguments: Any, key: Any = None, default: Any = MISSING) -> Any:
        if bare(key) is None or not arguments:
            return await without_key(rt, d, *arguments, key=key, default=default)
        items, keys, sources = await _keyed(rt, d, key, arguments[0] if len(arguments) == 1 else arguments, who)
        if not items:
            return await function(rt, d, items, default=default)
        order = await rt.work(sorted_values(rt, list(range(len(keys))), keys, reverse=who == "max"))
        return box(items[order[0]], sources)

    return chosen


async def _sorted(rt: Any, d: int, iterable: Any, *, key: Any = None, reverse: Any = False) -> Any:
    order, last = strip(reverse)
    backwards = builtins.is_backwards(order)
    items, keys, sources = await _keyed(rt, d, key, iterable, "sorted")
    return box(await rt.work(sorted_values(rt, items, keys, reverse=backwards)), joined(sources, last))


async def _sort(rt: Any, d: int, value: Any, *, key: Any = None, reverse: Any = False) -> None:
    inner = bare(value)
    if type(inner) is not list:
        await builtins.sort(rt, d, inner, key=key, reverse=reverse)
        return
    await rt.work(allowed(rt, inner))
    inner[:] = bare(await _sorted(rt, d, value, key=key, reverse=reverse))


_OWN: dict[Callable[..., Any], Callable[..., Any]] = {
    values.unpacked: _unpacked,
    changes.add_to: _add_to,
    changes.store: blaming(_store),
    changes.remove: blaming(following(changes.remove, "oo", 1, out="bare")),
    displays.entries: _entries,
    displays.gathered: _gathered,
    method: blaming(_method),
    builtins.min_: blaming(_extreme(builtins.min_, "min")),
    builtins.max_: blaming(_extreme(builtins.max_, "max")),
    builtins.sorted_: blaming(_sorted),
    builtins.sort: blaming(_sort),
}
