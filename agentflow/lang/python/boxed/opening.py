"""Opening values in boxes by the words of functions (:mod:`agentflow.lang.python.rows`)."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Iterable
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
    strip,
    stripped,
)
from agentflow.core.data.values import OrderedSet, SharedList
from agentflow.core.data.walk import ELEMENTS_PER_STEP, PART, Work, finish, slices
from agentflow.lang.python.compare import is_key


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


KEYED = frozenset((dict, OrderedSet))
"""The types with keys as parts."""


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


def opened_by(word: str, arguments: Iterable[Any]) -> Work[tuple[list[Any], Sources]]:
    """The arguments in the form that a function with this word takes, and the sources of all that it reads."""
    opened: list[Any] = []
    sources = NO_SOURCES
    for at, each in enumerate(arguments):
        letter = word[min(at, len(word) - 1)]
        if type(each) in UNBOXED or letter == "k":
            opened.append(each)
            continue
        if letter == "r":
            each, more = yield from stripped(each)
            sources = joined(sources, more)
        elif type(each) is Label:
            sources = joined(sources, each.sources)
            if letter == "i" and type(each.value) is str:
                each = yield from boxed_elements(each.value, each.sources)
            else:
                each = bare((yield from pushed(each.value, each.sources)) if letter in "ei" else each.value)
        if letter in "nei" and type(each) in KEYED:
            sources = joined(sources, (yield from sources_of_keys(each)))
        opened.append(each)
    return opened, sources


def few_opened(word: str, arguments: Iterable[Any]) -> tuple[list[Any], Sources]:
    """The same for functions of numbers and texts, which never take long: any list is an error for them."""
    opened: list[Any] = []
    sources = NO_SOURCES
    for at, each in enumerate(arguments):
        letter = word[min(at, len(word) - 1)]
        if type(each) is Label and letter != "k":
            sources = joined(sources, each.sources)
            each = each.value
        if letter == "r" and type(each) is tuple and is_key(each):  # a key, which has few parts
            each, more = strip(each)
            sources = joined(sources, more)
        if letter == "n" and type(each) in KEYED:
            sources = joined(sources, finish(sources_of_keys(each)))
        opened.append(each)
    return opened, sources


def all_opened(
    word: str, hidden: int, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work[tuple[list[Any], dict[str, Any], Sources]]:
    """The same for arguments after ``hidden`` ones, and keyword arguments, which are read whole."""
    opened, sources = yield from opened_by(word, arguments[hidden:])
    others: dict[str, Any] = {}
    for key, each in named.items():
        others[key], more = yield from stripped(each)
        sources = joined(sources, more)
    return [*arguments[:hidden], *opened], others, sources


_FEW = 8
"""The most arguments, including hidden ones, with types that are tested first."""


def letters_of(word: str, hidden: int) -> tuple[str, ...]:
    """The letter of each of the first arguments, ``k`` for hidden ones."""
    return (*("k" * hidden), *[word[min(at, len(word) - 1)] for at in range(_FEW - hidden)])


def all_bare(letters: tuple[str, ...], arguments: tuple[Any, ...]) -> bool:
    """Whether none of the arguments that the function reads is a box or can hold one."""
    if len(arguments) > _FEW:
        return False
    for letter, each in zip(letters, arguments, strict=False):
        if letter == "r":
            if type(each) not in UNBOXED:
                return False
        elif (type(each) is Label and letter != "k") or (letter in "nei" and type(each) in KEYED):
            return False
    return True


def leaves_opened(
    letters: tuple[str, ...], hidden: int, arguments: tuple[Any, ...]
) -> tuple[list[Any], Sources] | None:
    """The contents of arguments that are numbers and texts, boxed or not, and their sources; None if there are others."""
    if len(arguments) > _FEW:
        return None
    opened = list(arguments)
    sources = NO_SOURCES
    for at in range(hidden, len(arguments)):
        each = arguments[at]
        if type(each) is Label and letters[at] != "k":
            sources = joined(sources, each.sources)
            each = opened[at] = each.value
        if type(each) not in UNBOXED:
            return None
    return opened, sources
