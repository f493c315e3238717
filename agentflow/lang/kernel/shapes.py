"""The labels of containers in a run under a strict policy.

The length of a container, its keys and their order depend on the tests because of which it was made or changed. That is its own label,
kept by its identity in a table of the run. Each reader of a value asks for it, since values reach functions only in the boxes that
:func:`outside` and :func:`exported` make. A change is allowed where the label says already why it happens (:func:`permit`).
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentflow.core.data.errors import ChangeRefused
from agentflow.core.data.fields import field_names, field_values
from agentflow.core.data.labels import NO_SOURCES, UNBOXED, Label, Sources, bare, blame, box, joined, outer_sources
from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import PART, Work, slices
from agentflow.lang.kernel.container_labels import CONTAINERS
from agentflow.lang.python.errors import kind_of

_WALKED = frozenset((*CONTAINERS, tuple))


def parts_of(container: Any) -> Any:
    """The parts of a container, tuple or record that may hold others: those of a set hold none."""
    kind = type(container)
    if kind not in _WALKED:
        return field_values(container)
    return () if kind is OrderedSet else list(container.values()) if kind is dict else container


def is_walked(value: Any) -> bool:
    """Whether a value may lead to containers: those of a record of the host are changed like any other."""
    kind = type(value)
    return kind in _WALKED or (kind not in UNBOXED and bool(field_names(kind)))


def shape(rt: Any, value: Any) -> Sources:
    """The sources of a container itself."""
    return rt.containers.sources(value) if type(value) in CONTAINERS else NO_SOURCES


def shapes(rt: Any, value: Any) -> Work[Sources]:
    """The sources of all containers within a value."""
    sources = NO_SOURCES
    first = bare(value)
    if not is_walked(first) or rt.containers.is_empty:
        return sources
    seen: set[int] = set()
    pending: list[Any] = [first]
    count = 0
    while pending:
        at = pending.pop()
        if not is_walked(at) or id(at) in seen:
            continue
        seen.add(id(at))
        sources = joined(sources, shape(rt, at))
        for part in slices(parts_of(at)):
            count += 1 + len(part)
            if count >= PART:
                yield 0  # no step: a run takes as many in all modes
                count = 0
            pending += [bare(each) for each in part if type(each) not in UNBOXED]
    return sources


def outside(rt: Any, value: Any) -> Any:
    """A value for a function that reads its outermost container, and keeps the parts as they are."""
    return value if type(value) in UNBOXED else box(value, shape(rt, bare(value)))


def exported(rt: Any, value: Any) -> Work[Any]:
    """A value for a reader of all of it."""
    return value if type(value) in UNBOXED else box(value, (yield from shapes(rt, value)))


def all_exported(rt: Any, values: Iterable[Any]) -> Work[list[Any]]:
    """Values for a reader of all of them."""
    shown: list[Any] = []
    for each in values:
        shown.append(each if type(each) in UNBOXED else (yield from exported(rt, each)))
    return shown


async def give_out(rt: Any, values: list[Any]) -> list[Any]:
    """The same, where that can wait."""
    if not any([type(each) is Label or is_walked(each) for each in values]) or rt.containers.is_empty:
        return values
    return await rt.work(all_exported(rt, values))


def fresh(rt: Any, value: Any) -> Any:
    """A value with a new container: that depends on the place of the code, and on the values that it is made of."""
    inner = bare(value)
    if type(inner) in CONTAINERS:
        sources = joined(rt.ambient, outer_sources(value))
        if sources:
            rt.containers.note(inner, sources)
    return value


def hold(rt: Any, value: Any, because: Sources, now: Sources) -> Work[None]:
    """Mark the containers of a variable that an arm may change: its own in any case, and those in it that may say more.

    ``because`` is where the code was before the test, ``now`` where it is after it.
    """
    seen: set[int] = set()
    pending: list[tuple[Any, Sources]] = [(value, because)]
    count = 0
    while pending:
        at, reason = pending.pop()
        reason, inner = joined(reason, outer_sources(at)), bare(at)
        if not is_walked(inner) or id(inner) in seen:
            continue
        seen.add(id(inner))
        if type(inner) in CONTAINERS:
            if not reason <= shape(rt, inner):
                continue
            reason = joined(reason, shape(rt, inner))  # which ones are within depends on it
            rt.containers.note(inner, now)
        for part in slices(parts_of(inner)):
            count += 1 + len(part)
            if count >= PART:
                yield 0
                count = 0
            pending += [(each, reason) for each in part if type(each) not in UNBOXED]


def permit(rt: Any, reference: Any, more: Sources, since: Sources) -> None:
    """Refuse a change of a container with a label that does not say already why it happens; the label says ``more`` after it.

    The reason is the place of the code and the reference, by which the container was chosen. ``since`` is the place where the innermost ``try``
    began: at its end the container is marked. Raises ChangeRefused.
    """
    container, said = bare(reference), outer_sources(reference)
    if type(container) not in CONTAINERS:
        return
    reason = joined(rt.ambient, said)
    if rt.trying:
        rt.raise_to(joined(more, said))
    if not reason and not more:
        return
    label = shape(rt, container)
    if not reason <= label and not joined(since, said) <= label:
        kind, shown = kind_of(container), sorted(joined(reason, more))
        error = ChangeRefused(
            f"a {kind} would be changed because of {', '.join(shown)}, and another reference to it would not carry these sources",
            hint="make a new one: xs = [*xs, x] if test else xs, or {**d, key: value}; and return it instead of changing a parameter",
            details={"kind": kind, "sources": shown},
        )
        blame(error, joined(reason, more))
        rt.forbid(error)
    rt.containers.note(container, joined(reason, more))
