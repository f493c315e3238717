"""Functions called by code of texts in Python under a ``strict`` policy: conditions are reported to the strand, variables
carry the sources of the conditions that determined them.

Containers are changed in place, and other references to one are unknown: so a change depending on a condition, or by a key
with sources, is refused unless all references carry these sources (:mod:`agentflow.lang.changeable`). A variable through
which a text changes its container by name has been marked before.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

from sys import getrefcount
from typing import Any

from agentflow.core.data.errors import AgentflowError, ChangeRefused
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
    sources_of,
)
from agentflow.core.data.walk import Work, finish
from agentflow.lang import changeable
from agentflow.lang.abi import StrictRuntime
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.changeable import CONTAINERS
from agentflow.lang.environment import UNBOUND, Cell
from agentflow.lang.python import values
from agentflow.lang.python.errors import kind_of
from agentflow.lang.python.methods import METHOD_ROWS
from agentflow.lang.python.opening import KEYED, sources_of_keys
from agentflow.lang.trace import too_early

# -- tests --------------------------------------------------------------------------------------------------------


def decides(rt: StrictRuntime, value: Any) -> bool:
    """Whether a value counts as true, for a choice."""
    if type(value) is Label:
        rt.raise_to(value.sources)
        value = value.value
    return values.truth(value)


def failed(rt: StrictRuntime, error: Exception) -> None:
    """An error leaves a function during a condition: everything read to raise it counts as part of the condition."""
    if rt.trying and isinstance(error, AgentflowError):
        rt.raise_to(error.sources)


def leave(rt: StrictRuntime, before: Sources) -> None:
    """Restore the ambient sources after a statement with a condition."""
    if not rt.trying:
        rt.ambient = before


# -- variables ----------------------------------------------------------------------------------------------------


def upgraded(rt: StrictRuntime, held: tuple[Any], since: Sources, private: bool) -> Any:
    """The value of a variable, ``held`` for :data:`~agentflow.lang.changeable.HELD`, which the last choice may change, or change
    the contents of.

    It is marked if it is ``private``, so that only the function here sees it: any jump over a change of it ends the
    function, or marks it too. Otherwise only if it already carries ``since``, the ambient sources before the choice.
    """
    others = getrefcount(held[0]) - changeable.HELD
    return _upgraded(rt, held[0], since, private, others)


def _upgraded(rt: StrictRuntime, value: Any, since: Sources, private: bool, others: int) -> Any:
    if rt.ambient and (private or since <= changeable.said(rt.changeable, value)):
        return changeable.upgraded(rt.changeable, value, rt.ambient, others)
    return value


def readied(rt: StrictRuntime, held: tuple[Any], since: Sources, private: bool, more: Sources) -> Any:
    """The value of a variable before a change of its contents, now also depending on ``more``."""
    others = getrefcount(held[0]) - changeable.HELD
    return _readied(rt, held[0], since, private, more, others)


def _readied(rt: StrictRuntime, value: Any, since: Sources, private: bool, more: Sources, others: int) -> Any:
    sources = joined(joined(rt.ambient, more), outer_sources(value))
    if sources and (private or since <= changeable.said(rt.changeable, value)):
        return changeable.upgraded(rt.changeable, value, sources, others)
    return value


def upgrade(rt: StrictRuntime, cell: Cell, name: str, since: Sources, assigned: bool) -> None:
    """The same as :func:`upgraded` for a variable of the environment, which may have no value; ``assigned``: it may get one."""
    if cell.v is not UNBOUND:
        others = getrefcount(cell.v) - changeable.IN_ENTRY
        cell.v = _upgraded(rt, cell.v, since, False, others)
    elif assigned and since <= rt.changeable.unbound.get(name, NO_SOURCES):
        rt.changeable.unbound[name] = joined(rt.changeable.unbound.get(name, NO_SOURCES), rt.ambient)


def ready(rt: StrictRuntime, cell: Cell, since: Sources, more: Sources) -> None:
    """The same as :func:`readied` for a variable of the environment."""
    if cell.v is not UNBOUND:
        others = getrefcount(cell.v) - changeable.IN_ENTRY
        cell.v = _readied(rt, cell.v, since, False, more, others)


def value_before(rt: StrictRuntime, cell: Cell, name: str) -> Any:
    """The value of a variable of the environment before it is written."""
    return cell.v if cell.v is not UNBOUND else box(UNBOUND, rt.changeable.unbound.get(name, NO_SOURCES))


def unbind(rt: StrictRuntime, cell: Cell, name: str, since: Sources) -> None:
    """``del name`` of a variable of the environment."""
    rt.written(name, cell.v, None, since)
    rt.changeable.unbound[name] = joined(outer_sources(cell.v), rt.ambient)
    cell.v = UNBOUND


def bound(rt: StrictRuntime, value: Any, name: str) -> Any:
    """The value of a local variable that may have none. Raises UnboundSymbolError."""
    if bare(value) is UNBOUND:
        if type(value) is Label:
            rt.raise_to(value.sources)
        raise too_early(name)
    return there(rt, value)


def there(rt: StrictRuntime, value: Any) -> Any:
    """The value of a variable that might have been unbound: if an error may be caught, its absence carries information."""
    if rt.trying and type(value) is Label:
        rt.raise_to(value.sources)
    return value


def assigned(rt: StrictRuntime, cell: Cell, name: str, value: Any, since: Sources) -> Any:
    """``name := value`` of a variable of the environment."""
    if rt.ambient:
        value = rt.written(name, value_before(rt, cell, name), value, since)
    cell.v = value
    return value


# -- changes ------------------------------------------------------------------------------------------------------


def fresh(rt: StrictRuntime, container: Any) -> None:
    """A new list, dict or set: references to it will carry the sources of this position."""
    rt.changeable.note(bare(container), rt.ambient)


def born(rt: StrictRuntime, held: tuple[Any]) -> Any:
    """A function's result, in a variable there and ``held``: for a container in this box only, all later
    references carry the sources of the box."""
    others = getrefcount(held[0]) - changeable.HELD
    value = held[0]
    if type(value) is Sliced:
        return begun(_born(rt, value))
    changeable.note_if_alone(rt.changeable, value, others)
    return value


def _born(rt: StrictRuntime, value: Sliced) -> Work[Any]:
    result = yield from value.work
    return born(rt, (result,))


def permit(rt: StrictRuntime, reference: Any, more: Sources) -> None:
    """Refuse to change the container of a ``reference`` unless all references to it carry the sources of the change.

    These are the sources of the conditions, ``more``, and the sources of the reference, on which the choice of the
    container depends.
    """
    container = bare(reference)
    sources = joined(joined(rt.ambient, more), outer_sources(reference))
    if type(container) not in CONTAINERS:
        return
    if rt.trying:
        rt.raise_to(joined(more, outer_sources(reference)))
    if not sources or sources <= rt.changeable.sources(container):
        return
    kind, shown = kind_of(container), sorted(sources)
    error = ChangeRefused(
        f"a {kind} would be changed because of {', '.join(shown)}, and another reference to it would not carry these sources",
        hint="make a new one: xs = [*xs, x] if test else xs, or {**d, key: value}; and return it instead of changing a parameter",
        details={"kind": kind, "sources": shown},
    )
    blame(error, joined(sources, outer_sources(reference)))
    rt.forbid(error)


_CHANGING: dict[str, str] = {
    **{row.name: row.changes for row in METHOD_ROWS if row.changes is not None},
    "[]=": "i",
    "del": "i",
    "+=": "i",
    **dict.fromkeys(("|=", "&=", "-=", "^="), "d"),
}
"""The arguments that methods and statements use to change containers (:class:`~agentflow.lang.python.rows.Row`)."""
CHANGING = frozenset(_CHANGING)


def depends(how: str, value: Any, arguments: tuple[Any, ...]) -> Sources:
    """The sources that the contents and order of a container depend on after a change; not those of its elements."""
    word = _CHANGING[how]
    if not word or not arguments:
        return NO_SOURCES
    if word == "i":
        first = arguments[0]
        if type(first) is Label or type(first) is tuple:
            return sources_of_key(first)
        return finish(_of_keys(first)) if how == "extend" or how == "+=" else NO_SOURCES
    if word == "a":
        return sources_of([arguments[0], value]) if type(bare(value)) is list else sources_of_key(arguments[0])
    sources = NO_SOURCES
    for each in arguments:
        sources = joined(sources, outer_sources(each))
        opened = bare(each)
        if type(opened) in KEYED:
            sources = joined(sources, finish(sources_of_keys(opened)))
        elif type(opened) is list or type(opened) is tuple:
            for part in opened:
                sources = joined(sources, outer_sources(part))
                key = bare(part) if type(bare(value)) is dict else part
                key = key[0] if key is not part and type(key) in (list, tuple) and key else part
                sources = joined(sources, sources_of_key(key))
    return sources


def depends_on(how: str) -> str:
    """The arguments that a method or statement uses to change a container; empty if these have no sources."""
    return _CHANGING[how]


def is_plain(value: Any) -> bool:
    """Whether a value neither is a box nor contains one."""
    return type(value) in UNBOXED


def sources_of_key(key: Any) -> Sources:
    """The sources of a key, and of its contents."""
    return NO_SOURCES if type(key) in UNBOXED else sources_of(key)


def _of_keys(container: Any) -> Work[Sources]:
    return (yield from sources_of_keys(container)) if type(container) in KEYED else NO_SOURCES


def keyed(rt: StrictRuntime, value: Any) -> Any:
    """A new dict or set, in a box with the sources of its keys: its set of keys depends on them."""
    return begun(_keyed(rt, value))


def _keyed(rt: StrictRuntime, value: Any) -> Work[Any]:
    if type(value) is Sliced:
        value = yield from value.work
    sources = yield from _of_keys(bare(value))
    value = box(value, sources)
    if type(bare(value)) in CONTAINERS and type(value) is Label:
        rt.changeable.note(value.value, value.sources)
    return value
