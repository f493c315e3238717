"""Opening values in boxes for functions of both surfaces, by the letters of their words (:func:`~agentflow.lang.builtins.registry.letters_of`)."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentflow.core.data.labels import (
    NO_SOURCES,
    UNBOXED,
    Label,
    Sources,
    bare,
    box,
    boxed_elements,
    each_boxed,
    joined,
    sources_within,
    strip,
    stripped,
)
from agentflow.core.data.values import OrderedSet, SharedList
from agentflow.core.data.walk import ELEMENTS_PER_STEP, PART, Work, finish, slices
from agentflow.lang.calling import Sentinel
from agentflow.lang.equality import is_key

KEYED = frozenset((dict, OrderedSet))
"""The types with keys as parts."""
AT_ONCE = "s"
"""The letter ``r`` of a function of numbers, texts and keys: any list is an error for it, so nothing is searched."""
FREE = frozenset("kop")
"""The letters of arguments that are read as a whole alone, if at all."""
_LISTED = frozenset((*UNBOXED, list, tuple))
PLAIN: dict[str, frozenset[Any]] = {
    **dict.fromkeys("koprsw", frozenset((*UNBOXED, Sentinel))),
    **dict.fromkeys("nei", _LISTED),
    "c": frozenset((*UNBOXED, *KEYED)),
}
"""The types of values outside of boxes that are passed on as they are, for each letter."""
_FOR_ELEMENTS = frozenset("eiw")
_WITH_KEYS = frozenset("nei")


def pushed(value: Any, sources: Sources) -> Work[Any]:
    """A list, tuple, set or dict with ``sources`` added to those of its parts; any other value in a box."""
    kind: Any = type(value)
    if not sources:
        return value
    if kind is dict:
        entries: dict[Any, Any] = {}
        for part in slices(list(value.items())):
            entries.update([(box(key, sources), box(each, sources)) for key, each in part])
            if len(part) < len(value):
                yield len(part) // ELEMENTS_PER_STEP
        return entries
    if kind not in (list, tuple, SharedList, OrderedSet):
        return box(value, sources)
    parts: list[Any] = []
    for part in slices(value if kind in (list, tuple) else value.plain()):
        parts += each_boxed(part, sources)
        if len(part) < len(value):
            yield len(part) // ELEMENTS_PER_STEP
    return tuple(parts) if kind is tuple else OrderedSet(parts) if kind is OrderedSet else parts


def sources_of_keys(value: Any) -> Work[Sources]:
    """The sources of a dict's keys or a set's elements: the number of distinct ones depends on them."""
    sources = NO_SOURCES
    keys = value if type(value) is dict else value.items
    for part in slices(list(keys)) if len(keys) > PART else (keys,):
        if len(keys) > PART:
            yield len(part) // ELEMENTS_PER_STEP
        kinds = set(map(type, part))
        if Label in kinds or tuple in kinds:
            for each in part:
                sources = joined(sources, strip(each)[1])
    return sources


def opened(letters: str, arguments: Sequence[Any]) -> Work[tuple[list[Any], Sources]]:
    """The arguments in the form that a function takes, and the sources of all it reads."""
    values: list[Any] = []
    sources = NO_SOURCES
    for at, (letter, each) in enumerate(zip(letters, arguments, strict=True), 1):
        if not at % PART:
            yield PART // ELEMENTS_PER_STEP
        if type(each) not in UNBOXED and letter != "k":
            inner, read = (each.value, each.sources) if type(each) is Label else (each, NO_SOURCES)
            if letter == "r" or (letter == "c" and type(inner) not in KEYED):
                inner, read = yield from stripped(each)
            elif letter == "i" and read and type(inner) is str:
                inner = yield from boxed_elements(inner, read)
            elif letter in _FOR_ELEMENTS:
                inner = bare((yield from pushed(inner, read)))
            if letter in _WITH_KEYS and type(inner) in KEYED:
                read = joined(read, (yield from sources_of_keys(inner)))
            elif letter == "w":
                read = joined(read, (yield from sources_within(inner)))
            each, sources = inner, joined(sources, read)
        values.append(each)
    return values, sources


def _is_short(value: Any) -> bool:
    """Whether a value is a list that is seen at once to hold no box."""
    return type(value) in (list, tuple) and len(value) < ELEMENTS_PER_STEP and UNBOXED.issuperset(map(type, value))


def opened_now(letters: str, arguments: Sequence[Any]) -> tuple[list[Any], Sources] | None:
    """The same, if no box needs to be searched for; otherwise None."""
    values: list[Any] = []
    sources = NO_SOURCES
    for letter, each in zip(letters, arguments, strict=True):
        if type(each) not in UNBOXED and letter != "k":
            if type(each) is Label:
                if letter in _FOR_ELEMENTS:
                    return None
                sources = joined(sources, each.sources)
                each = each.value
            if type(each) not in PLAIN[letter] and letter not in FREE:
                if letter in _WITH_KEYS and type(each) in KEYED and len(each) <= PART:
                    sources = joined(sources, finish(sources_of_keys(each)))
                elif letter == AT_ONCE:
                    if type(each) is tuple and is_key(each):  # a key, which has few parts
                        each, read = strip(each)
                        sources = joined(sources, read)
                elif letter not in "rc" or not _is_short(each):
                    return None
        values.append(each)
    return values, sources
