"""Operations of texts in Python on values that may be in boxes (:mod:`agentflow.core.data.labels`).

Code tests exact types before it operates itself, so boxes reach the functions of this package: in code of a flow with a
policy, their twins. A twin opens its arguments by the words of primitives
(:meth:`~agentflow.lang.builtins.registry.Primitive.flow_at`), and puts its result in a box. A list, dict or set may be
changed through other references, so an added element carries its own sources; keys of dicts and elements of sets are in
boxes, which are equal to their contents.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import cache, wraps
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
from agentflow.lang.builtins.labelled import called
from agentflow.lang.calling import Sentinel, Sliced, begun
from agentflow.lang.python import builtins, changes, compare, failure, support, values
from agentflow.lang.python.boxed.opening import (
    KEYED,
    all_bare,
    all_opened,
    few_opened,
    leaves_opened,
    letters_of,
    opened_by,
    pushed,
    sources_of_keys,
)
from agentflow.lang.python.boxed.sharing import allowed
from agentflow.lang.python.errors import wrong_value
from agentflow.lang.python.methods import METHOD_ROWS, method
from agentflow.lang.python.rows import Row, code, takes_long, traits_of
from agentflow.lang.python.sorting import sorted_values
from agentflow.lang.python.values import MISSING

_DATA = frozenset((Label, list, tuple, dict, OrderedSet, SharedList))
"""Types of arguments that are, or may hold, boxes."""


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


@code("o")
def negated(value: Any) -> bool:
    """``not value``."""
    return not values.truth(value)


def twin_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The labelled twin of a function that code calls: the function itself if it reads none of its arguments."""
    return _twin(function)


@cache
def _twin(function: Callable[..., Any]) -> Callable[..., Any]:
    own = _OWN.get(function)
    if own is not None:
        return own
    traits = traits_of(function)
    if traits.maker:
        return _MAKERS[traits.maker](function)
    word = traits.flow
    if set(word) == {"k"}:
        return function
    hidden = _hidden(function)
    if inspect.iscoroutinefunction(function):
        return _waiting(function, word, hidden)
    twin = _plain(function, word, hidden)
    return blaming(twin) if traits.within else twin


def _hidden(function: Callable[..., Any]) -> int:
    """The number of parameters before those that texts give: the strand, the depth, the environment."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:
        return 0
    count = 0
    while count < len(names) and names[count] in ("rt", "d", "env"):
        count += 1
    return count


_LEFT_OUT = Sentinel("argument left out")


def _plain(function: Callable[..., Any], word: str, hidden: int) -> Callable[..., Any]:
    """The twin of a function that is not async. Most such twins test one or two arguments and then pass all on."""
    letters = letters_of(word, hidden)
    opens = hidden == 1 and letters[1] == "o"
    waits = takes_long(function, labelled=True)

    def twin(*arguments: Any, **named: Any) -> Any:
        if not named and all_bare(letters, arguments):
            return function(*arguments)
        few = None if named else leaves_opened(letters, hidden, arguments)
        if few is not None:
            bare_ones, sources = few
            return called(lambda: function(*bare_ones), sources)
        if waits:
            return begun(in_slices(arguments, named))
        opened, sources = few_opened(word, [*arguments[hidden:], *named.values()])
        others = dict(zip(named, opened[len(arguments) - hidden :], strict=True))
        opened = [*arguments[:hidden], *opened[: len(arguments) - hidden]]
        return called(lambda: function(*opened, **others), sources)

    def in_slices(arguments: tuple[Any, ...], named: dict[str, Any]) -> Work[Any]:
        opened, others, sources = yield from all_opened(word, hidden, arguments, named)
        value = called(lambda: function(*opened, **others), sources)
        return (yield from value.work) if type(value) is Sliced else value

    def with_strand(rt: Any, a: Any = _LEFT_OUT, b: Any = _LEFT_OUT, *others: Any, **named: Any) -> Any:
        if others or named or a is _LEFT_OUT:
            arguments = () if a is _LEFT_OUT else (a,) if b is _LEFT_OUT else (a, b, *others)
            return twin(rt, *arguments, **named)
        plain = type(a) in UNBOXED or (opens and type(a) is not Label)
        if b is _LEFT_OUT:
            return function(rt, a) if plain else twin(rt, a)
        return function(rt, a, b) if plain and type(b) in UNBOXED else twin(rt, a, b)

    return with_strand if hidden == 1 and "rt" in inspect.signature(function).parameters else twin


def _waiting(function: Callable[..., Awaitable[Any]], word: str, hidden: int) -> Callable[..., Any]:
    letters = letters_of(word, hidden)

    async def twin(*arguments: Any, **named: Any) -> Any:
        if not named and all_bare(letters, arguments):
            return await function(*arguments)
        opened, others, sources = await arguments[0].work(all_opened(word, hidden, arguments, named))
        try:
            return box(await function(*opened, **others), sources)
        except AgentflowError as error:
            blame(error, sources)
            raise

    return twin


# -- twins of their own -------------------------------------------------------------------------------------------


def _truth(value: Any) -> bool:
    return values.truth(bare(value))


def _iterated(rt: Any, value: Any) -> Iterable[Any]:
    if type(value) is Label:
        sources = value.sources
        return (box(each, sources) for each in values.iterated(rt, value.value))
    return values.iterated(rt, value)


def _elements(rt: Any, value: Any, who: str) -> Any:
    if type(value) is Label or type(value) in KEYED:
        return begun(_spread(rt, value, who))
    return values.elements(rt, value, who)


def _spread(rt: Any, value: Any, who: str) -> Work[Any]:
    """The elements, in a box with the sources that their number depends on."""
    items, sources = yield from _counted(rt, value, who)
    return box(items, sources)


def _counted(rt: Any, value: Any, who: str) -> Work[tuple[list[Any], Sources]]:
    sources = outer_sources(value)
    inner = bare(value)
    items = list((yield from pushed(bare(called(lambda: values.elements(rt, inner, who), sources)), sources)))
    if type(inner) in KEYED:
        sources = joined(sources, (yield from sources_of_keys(inner)))
    return items, sources


def _unpacked(rt: Any, value: Any, shape: tuple[Any, ...]) -> Any:
    if type(value) is Label or type(value) in KEYED or any(type(each) is tuple for each in shape):
        return begun(_parts(rt, value, shape))
    return values.unpacked(rt, value, shape)


def _parts(rt: Any, value: Any, shape: tuple[Any, ...]) -> Work[list[Any]]:
    """The parts, flat; the length of the list for a starred name depends on the sources of the value's own length."""
    items, sources = yield from _counted(rt, value, "unpacking")
    outer = tuple(None if type(each) is tuple else each for each in shape)
    parts = bare(called(lambda: values.unpacked(rt, items, outer), sources))
    flat: list[Any] = []
    for part, inner in zip(parts, shape, strict=True):
        if type(inner) is tuple:
            flat += yield from _parts(rt, part, inner)
        else:
            flat.append(box(part, sources) if inner == "*" else part)
    return flat


def _listed(rt: Any, value: Any) -> Any:
    return begun(_branched(rt, value)) if type(value) is Label else support.listed(rt, value)


def _branched(rt: Any, value: Label) -> Work[list[Any]]:
    return (yield from _counted(rt, value, "pmap"))[0]


def _rounds(*bounds: Any) -> Iterable[int]:
    if UNBOXED.issuperset(map(type, bounds)):
        return builtins.rounds(*bounds)
    opened, sources = few_opened("r", bounds)
    numbers: Any = builtins.rounds(*opened)
    return (box(each, sources) for each in numbers) if sources else numbers


def _store(rt: Any, new: Any, value: Any, at: Any) -> Any:
    container = bare(value)
    if type(at) is not Label:
        return changes.store(rt, new, container, at)
    new = box(new, at.sources)
    name = at.value
    if type(container) is dict and compare.key(name) not in container:
        name = at  # the key itself has sources
    return changes.store(rt, new, container, name)


def _entries(function: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a function that makes a dict from entries: a value depends on the sources of its key."""

    def twin(rt: Any, *parts: tuple[bool, Any, Any]) -> Any:
        sources = NO_SOURCES
        opened: list[tuple[bool, Any, Any]] = []
        for spread, key, value in parts:
            if spread:
                sources = joined(sources, outer_sources(value))
                opened.append((spread, key, bare(value)))
            else:
                opened.append((spread, key, box(value, strip(key)[1])))
        return called(lambda: function(rt, *opened), sources)

    return twin


def _gathered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a function that makes a list of items, some of them lists of items."""

    def twin(rt: Any, *parts: tuple[bool, Any]) -> Any:
        sources = NO_SOURCES
        opened: list[tuple[bool, Any]] = []
        for starred, value in parts:
            if starred:
                sources = joined(sources, outer_sources(value))
                value = bare(value)
            opened.append((starred, value))
        return box(function(rt, *opened), sources)

    return twin


def _of_items(function: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a function of such a list."""

    def twin(items: Any) -> Any:
        return called(lambda: function(bare(items)), outer_sources(items))

    return twin


_MAKERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "entries": _entries,
    "gathered": _gathered,
    "items": _of_items,
}
"""The makers of twins for functions of parts (:class:`~agentflow.lang.python.rows.RowTraits`)."""


def _remove(rt: Any, value: Any, at: Any) -> Any:
    return changes.remove(rt, bare(value), bare(at))


def _contains(rt: Any, value: Any, container: Any) -> Any:
    if type(value) in UNBOXED and type(container) in (str, dict, OrderedSet):
        return compare.contains(rt, value, container)
    return begun(_found(rt, value, container))


def _found(rt: Any, value: Any, container: Any) -> Work[Any]:
    value, sources = yield from stripped(value)
    if type(container) is Label:
        sources = joined(sources, container.sources)
        container = container.value
    if type(container) not in (dict, OrderedSet):
        container, more = yield from stripped(container)
        sources = joined(sources, more)
    result = called(lambda: compare.contains(rt, value, container), sources)
    return (yield from result.work) if type(result) is Sliced else result


_KEPT = {row.name: row.flow for row in METHOD_ROWS if str not in row.kinds}
"""The treatment of arguments by methods of lists, tuples, sets and dicts."""
OF_KEYS = frozenset(row.name for row in METHOD_ROWS if row.keys)
"""Methods of dicts and sets with a result that depends on the set of keys."""
WITHIN = frozenset(row.name for row in METHOD_ROWS if row.within)
"""Methods of lists and tuples that read their elements."""


def _method(rt: Any, name: str, value: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...] = ()) -> Any:
    sources = NO_SOURCES
    if type(value) is Label:
        sources, value = value.sources, value.value
    elif not (type(value) in (list, tuple) or name in OF_KEYS) and UNBOXED.issuperset(map(type, arguments)):
        return method(rt, name, value, arguments, keywords)
    return begun(_method_opened(rt, name, value, arguments, keywords, sources))


def _method_opened(
    rt: Any, name: str, value: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...], sources: Sources
) -> Work[Any]:
    word = "r" if type(value) is str else _KEPT.get(name, "r")
    opened, more = yield from opened_by(word, arguments)
    sources = joined(sources, more)
    if type(value) in (list, tuple) and name in WITHIN:
        read, more = yield from stripped(value)
        sources = joined(sources, more)
        if name == "remove" and read is not value:
            return (yield from _removed(rt, cast("list[Any]", value), read, opened[0]))
        value = value if name == "remove" else read
    if name in OF_KEYS and type(value) in KEYED:
        sources = joined(sources, (yield from sources_of_keys(value)))
    if name == "setdefault" and type(value) is dict and opened:
        keywords, more = yield from _with_key(opened, keywords)
        sources = joined(sources, more)
    result = called(lambda: method(rt, name, value, tuple(opened), keywords), sources)
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


async def _call(rt: Any, d: int, function: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...] = ()) -> Any:
    if type(function) is Label:
        return await rt.under(function.sources, support.call(rt, d, function.value, arguments, keywords))
    return await support.call(rt, d, function, arguments, keywords)


def _raised(name: str, message: Any) -> AgentflowError:
    text, sources = strip(message)
    error = failure.raised(name, text)
    blame(error, sources)
    return error


def _raised_again(value: Any) -> Any:
    return bare(called(lambda: failure.raised_again(bare(value)), outer_sources(value)))


def _caught(raised: Exception, value: Any) -> Any:
    sources = value.sources if type(value) is Label else NO_SOURCES
    return box(failure.caught(raised, bare(value)), sources)


def _matches(caught: Any, names: tuple[str, ...]) -> bool:
    return failure.matches(bare(caught), names)


async def _log_text(rt: Any, separator: Any, parts: tuple[Any, ...]) -> Any:
    opened, sources = await rt.work(stripped([bare(separator), *parts]))
    return box(await support.log_text(rt, opened[0], tuple(opened[1:])), sources)


async def _extreme(rt: Any, d: int, who: str, arguments: tuple[Any, ...], key: Any, default: Any) -> Any:
    function = builtins.min_ if who == "min" else builtins.max_
    if bare(key) is None:
        opened, sources = await rt.work(opened_by("r", (*arguments, key)))
        opened.pop()
        other, more = await rt.work(stripped(default))
        return box(await function(rt, d, *opened, default=other), joined(sources, more))
    sources = outer_sources(arguments[0]) if len(arguments) == 1 else NO_SOURCES
    items = list(values.elements(rt, bare(arguments[0]), who)) if len(arguments) == 1 else list(arguments)
    if not items:
        return await function(rt, d, items, default=default)
    keys, more = await rt.work(stripped([await _call(rt, d, key, (box(each, sources),)) for each in items]))
    order = await rt.work(sorted_values(rt, list(range(len(keys))), keys, reverse=who == "max"))
    return box(items[order[0]], joined(sources, more))


async def _min(rt: Any, d: int, *arguments: Any, key: Any = None, default: Any = MISSING) -> Any:
    return await _extreme(rt, d, "min", arguments, key, default)


async def _max(rt: Any, d: int, *arguments: Any, key: Any = None, default: Any = MISSING) -> Any:
    return await _extreme(rt, d, "max", arguments, key, default)


def _add_to(rt: Any, a: Any, b: Any) -> Any:
    """``a += b``: for a list, the elements of ``b`` carry their sources, since others may refer to the list; two texts are joined."""
    return (_EXTENDED if type(bare(a)) is list else _ADDED)(rt, a, b)


async def _sorted(rt: Any, d: int, iterable: Any, *, key: Any = None, reverse: Any = False) -> Any:
    sources = outer_sources(iterable)
    order, last = strip(reverse)
    backwards = builtins.is_backwards(order)
    items = list(values.elements(rt, bare(iterable), "sorted"))
    asked = [*items, key] if bare(key) is None else [await _call(rt, d, key, (box(each, sources),)) for each in items]
    keys, more = await rt.work(stripped(asked))
    ordered = await rt.work(sorted_values(rt, items, list(keys)[: len(items)], reverse=backwards))
    return box(ordered, joined(joined(sources, more), last))


async def _sort(rt: Any, d: int, value: Any, *, key: Any = None, reverse: Any = False) -> None:
    inner = bare(value)
    if type(inner) is not list:
        await builtins.sort(rt, d, inner, key=key, reverse=reverse)
        return
    await rt.work(allowed(rt, inner))
    inner[:] = bare(await _sorted(rt, d, value, key=key, reverse=reverse))


_EXTENDED = _plain(changes.add_to, traits_of(changes.add_to).flow, 1)
_ADDED = _plain(changes.add_to, "oo", 1)
_OWN: dict[Callable[..., Any], Callable[..., Any]] = {
    values.truth: _truth,
    values.iterated: blaming(_iterated),
    values.elements: _elements,
    values.unpacked: _unpacked,
    support.listed: _listed,
    changes.add_to: _add_to,
    changes.store: blaming(_store),
    changes.remove: blaming(_remove),
    compare.contains: _contains,
    method: blaming(_method),
    support.call: _call,
    support.log_text: blaming(_log_text),
    failure.raised: _raised,
    failure.raised_again: _raised_again,
    failure.caught: _caught,
    failure.matches: _matches,
    builtins.rounds: blaming(_rounds),
    builtins.min_: blaming(_min),
    builtins.max_: blaming(_max),
    builtins.sorted_: blaming(_sorted),
    builtins.sort: blaming(_sort),
}


@cache
def labelled_entry(entry: Row) -> Row:
    """A row with the twin of its function."""
    return replace(entry, function=twin_of(entry.function))
