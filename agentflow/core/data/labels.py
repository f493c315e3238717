"""Boxes: values of programs together with their sources.

Where a flow has a policy (:mod:`agentflow.core.call.provenance`), a value that did not come only from the program and its
user is in a box: a :class:`Label` holds the value and its sources. Values of the user stay unboxed. Data, closures and
variables may contain boxes like any other value; only operations that look *into* a value open them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.fields import HOLDING, field_names, field_values
from agentflow.core.data.values import SharedList, Symbol, as_list
from agentflow.core.data.walk import ELEMENTS_PER_STEP, LEAVES, PART, Work, finish, slices

Sources: TypeAlias = frozenset[str]
"""A source of a value: ``tool:fetch``, ``web``, ``file:docs/a.md``. Empty: from the program and its user."""
NO_SOURCES: Sources = frozenset()
UNKNOWN: Sources = frozenset(("unknown",))
"""The sources of a value recorded without tracking sources."""
Following: TypeAlias = "bool | Literal['strict']"
"""How values of a program are tracked: not at all, as data, or ``"strict"``: also by the conditions on the way to them."""
UNBOXED = frozenset((*LEAVES, Symbol))
"""Types of values that neither are boxes nor hold any."""


def joined(one: Sources, other: Sources) -> Sources:
    """The union of two sets of sources; the same object for the same sources."""
    if not other or one is other:
        return one
    return _union(one, other) if one else other


@lru_cache(4_096)
def _union(one: Sources, other: Sources) -> Sources:
    return one | other


# Boxes, not marks on classes: values of the user cost nothing (decision 24)
class Label:
    """A value with at least one of ``sources``; ``value`` itself is not a box, but may contain boxes.

    Truth and equality are those of its value, so conditions and dict keys look through it.
    """

    __slots__ = ("sources", "value")

    def __init__(self, value: Any, sources: Sources) -> None:
        self.value = value
        self.sources = sources

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, Label) else other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"#<labelled {', '.join(sorted(self.sources))}>"


BOXED_KEYS = frozenset((Label, tuple))
"""Types of keys that may contain boxes."""


def box(value: Any, sources: Sources) -> Any:
    """``value`` with ``sources`` added to its own; unchanged if there are none."""
    if not sources:
        return value
    if type(value) is Label:
        return value if sources <= value.sources else Label(value.value, joined(value.sources, sources))
    return Label(value, sources)


def bare(value: Any) -> Any:
    """The value in a box, which may contain further boxes; any other value unchanged."""
    return value.value if type(value) is Label else value


def outer_sources(value: Any) -> Sources:
    """The sources of a value as a whole, not those of its parts."""
    return value.sources if type(value) is Label else NO_SOURCES


def sources_within(elements: Any) -> Work[Sources]:
    """The sources of the elements of a list, each as a whole; none for other values."""
    sources = NO_SOURCES
    listed = as_list(elements) or ()
    for part in slices(listed):
        for each in part:
            if type(each) is Label:
                sources = joined(sources, each.sources)
        if len(part) < len(listed):
            yield len(part) // ELEMENTS_PER_STEP
    return sources


def strip(value: Any) -> tuple[Any, Sources]:
    """``value`` without any boxes, and the sources of all that it holds. It is the same object if it holds none."""
    kind = cast("type[Any]", type(value))
    if kind in UNBOXED:
        return value, NO_SOURCES
    if kind is Label and type(value.value) in UNBOXED:
        return value.value, value.sources
    return finish(stripped(value))


def stripped(value: Any) -> Work[tuple[Any, Sources]]:
    """The work of :func:`strip`: each list, dict and record is searched once, for any number of occurrences, and copied if it holds
    boxes.

    The same for records of the host (:mod:`agentflow.core.data.fields`). Values of other classes, including procedures, stay
    unchanged: they control access to their contents themselves.
    """
    sets, holders = yield from _survey(value)
    sources = NO_SOURCES
    for each in sets:
        sources = joined(sources, each)
    value = bare(value)
    if id(value) not in holders:
        return value, sources
    from agentflow.core.data.unboxed_copies import unboxed_copy

    return (yield from unboxed_copy(value, holders, bare)), sources


def sources_of(value: Any) -> Sources:
    """The sources of a value and all its parts."""
    return strip(value)[1]


def because_of(error: AgentflowError, value: Any) -> AgentflowError:
    """``error``, which shows a value or was raised because of it, and so depends on where that came from."""
    blame(error, sources_of(value))
    return error


def blame(error: AgentflowError, sources: Sources) -> None:
    """Note that the texts of an error depend on ``sources``."""
    if sources:
        error.sources = joined(error.sources, sources)


def _parts(item: Any) -> list[Any]:
    if type(item) is dict:
        entries = cast("dict[Any, Any]", item)
        return [*entries.values(), *[key for key in entries if type(key) in BOXED_KEYS]]
    if type(item) not in HOLDING:
        return field_values(item)
    return item.plain() if type(item) is SharedList else list(item)


def _holds(value: Any) -> bool:
    """Whether boxes are looked for in a value: in a record, too, as a program may put them into its lists."""
    kind = cast("type[Any]", type(value))
    return kind in HOLDING or (kind not in UNBOXED and bool(field_names(kind)))


def _survey(value: Any) -> Work[tuple[set[Sources], set[int]]]:
    """The sets of sources that occur, and the identities of the containers that hold boxes at any depth."""
    sets: set[Sources] = set()
    inside: dict[int, list[int]] = {}  # by identity: the containers that it is part of
    keep: list[Any] = []
    holders: list[int] = []
    count = 0
    if type(value) is Label:
        sets.add(value.sources)
        value = value.value
    pending: list[Any] = []
    if _holds(value):
        inside[id(value)] = []
        pending.append(value)
    while pending:
        item = pending.pop()
        keep.append(item)
        for parts in slices(_parts(item)):
            count += len(parts) + 1
            if count >= PART:
                yield count // ELEMENTS_PER_STEP
                count = 0
            if UNBOXED.issuperset(map(type, parts)):
                continue
            if Label in map(type, parts):
                holders.append(id(item))
            for each in parts:
                if type(each) is Label:
                    sets.add(each.sources)
                    each = each.value
                if _holds(each):
                    around = inside.get(id(each))
                    if around is None:
                        inside[id(each)] = [id(item)]
                        pending.append(each)
                    else:
                        around.append(id(item))
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    holding: set[int] = set()
    count = 0
    while holders:
        at = holders.pop()
        count += 1
        if count >= PART:
            yield 0
            count = 0
        if at not in holding:
            holding.add(at)
            holders += inside[at]
    return sets, holding


def boxed_elements(value: Any, sources: Sources) -> Work[list[Any]]:
    """The work of :func:`each_boxed`, for a list that may be long."""
    elements = cast("Sequence[Any]", value if isinstance(value, list | tuple) else list(value))
    if len(elements) <= PART:
        return each_boxed(elements, sources)
    boxed: list[Any] = []
    for part in slices(elements):
        boxed += each_boxed(part, sources)
        yield len(part) // ELEMENTS_PER_STEP
    return boxed


def each_boxed(value: Any, sources: Sources) -> list[Any]:
    """The elements of a list, each with the sources of the list and its own."""
    return [box(each, sources) for each in cast("Iterable[Any]", value)]
