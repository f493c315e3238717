"""Facts about the functions that nodes call: the twin that follows data, how each operand is read, the operand that is changed, and the result.

Most of it is declared where the functions are (:mod:`agentflow.lang.python.rows`, the registry of primitives). A function of which nothing
is known is read whole, changes nothing, and gives nothing new: that refuses more, and tells nothing.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

from agentflow.core.data.frozen import frozen
from agentflow.core.data.labels import bare, box, outer_sources
from agentflow.lang.builtins.labelled import twin_of as primitive_twin_of
from agentflow.lang.builtins.registry import Primitive, letters_of
from agentflow.lang.kernel import inline, lowered_functions, nodes
from agentflow.lang.kernel.container_labels import CONTAINERS
from agentflow.lang.python import builtins, changes, compare, displays, methods, requests, support, values
from agentflow.lang.python.boxed import labelled
from agentflow.lang.python.boxed.repeated import set_of
from agentflow.lang.python.rows import Row, traits_of
from agentflow.lang.support import fresh

Gives = Literal["", "new", "part", "same"]


@frozen
class CallFacts:
    """``letters`` are those of :class:`~agentflow.lang.python.rows.RowTraits`, the last for all operands that follow.

    ``looks`` are the letters by which it may fail. ``changes`` is the input that decides how it changes the operand ``holder``, as in
    :class:`~agentflow.lang.python.rows.Row`. ``gives``: a container of its own (``new``), the operand that it changed (``same``), a part of
    an operand, or none of these. ``twin`` takes the strand first.
    """

    twin: Callable[..., Any]
    letters: str
    looks: str = ""
    changes: str | None = None
    holder: int = 0
    gives: Gives = ""

    def letter(self, at: int) -> str:
        """How the operand at a position is read."""
        return self.letters[min(at, len(self.letters) - 1)]

    def look(self, at: int) -> str:
        """How much of it the function may fail by."""
        word = self.looks or self.letters
        return word[min(at, len(word) - 1)]


_NEW = frozenset(
    (
        values.add,
        values.subtract,
        values.multiply,
        values.shift,
        values.bitwise,
        values.part,
        displays.as_set,
        support.context_paths,
    )
)
_GIVES_PARTS = frozenset(
    [
        row.name
        for row in methods.METHOD_ROWS
        if row.size in ("entry", "setdefault") or (row.size == "removed" and row.changes == "i")
    ]
)
"""The methods that may give a part of their value."""
_STATEMENTS: dict[Any, tuple[str, int, Gives]] = {
    changes.store: ("i", 1, ""),
    changes.remove: ("i", 0, ""),
    changes.add_to: ("i", 0, "same"),
    changes.subtract_from: ("d", 0, "same"),
    changes.bitwise_to: ("d", 1, "same"),
    methods.append: ("", 0, ""),
    builtins.sort: ("", 0, ""),
}
CHANGING = {row.name: row.changes for row in methods.METHOD_ROWS if row.changes is not None}
"""The methods that change their value, with the input that decides how."""


def method_in(node: nodes.Prim) -> tuple[str, tuple[str, ...]] | None:
    """The name of the method that a node calls, and its keywords."""
    function = node.function
    return function.args if isinstance(function, partial) and function.func is lowered_functions.call_method else None


def changes_of(node: nodes.Prim) -> tuple[str, int] | None:
    """The input that decides how a node changes an operand, and that operand; None for a node without changes."""
    method = method_in(node)
    if method is not None:
        return (CHANGING[method[0]], 0) if method[0] in CHANGING else None
    entry = None if isinstance(node.function, partial) else _STATEMENTS.get(node.function)
    return None if entry is None else entry[:2]


def changed(node: nodes.Prim) -> int | None:
    """The operand that a node may change."""
    change = changes_of(node)
    return None if change is None else change[1]


def makes_container(row: Row) -> bool:
    """Whether a function gives a container of its own."""
    return row.gives in CONTAINERS or row.size == "data"


@cache
def facts_of_method(kind: type[Any], name: str, names: tuple[str, ...]) -> CallFacts:
    """Those of a method of a value of exactly this type."""
    row = methods.METHODS.get(kind, {}).get(name)
    twin = labelled.twin_of(methods.method)

    def called(rt: Any, value: Any, *more: Any) -> Any:
        return twin(rt, name, value, more, *([names] if names else []))

    gives: Gives = "part" if name in _GIVES_PARTS else "new"
    looks = "r" if row is not None and row.within else ""
    return CallFacts(
        called, labelled.method_word(kind, name), looks, CHANGING.get(name) if kind in CONTAINERS else None, 0, gives
    )


def facts_of(node: nodes.Prim) -> CallFacts:
    """Those of the function that a node calls, which is no method and does not wait."""
    function, row = node.function, node.row
    if isinstance(row, Primitive):
        return _of_primitive(row, len(node.args))
    if isinstance(row, Row):
        return _of_builtin(row, function.args[1] if isinstance(function, partial) else ())
    inner = function.func if isinstance(function, partial) else function
    special = _SPECIAL.get(inner)
    if special is not None:
        return special(function)
    if isinstance(
        getattr(inner, "__self__", None), Primitive
    ):  # its check of a number of operands, which the text gives
        return _kept(lambda rt, count: inner(count))
    return _of_function(inner, takes_rt=node.takes_rt)


@cache
def _of_primitive(primitive: Primitive, count: int) -> CallFacts:
    if primitive.canonical == "sources":
        return _SOURCES
    twin = primitive_twin_of(primitive)
    letters = letters_of(primitive.flow, max(count, 1))
    return CallFacts(twin.function if twin.needs_rt else _without_rt(twin.function), letters, gives="new")


@cache
def _of_builtin(row: Row, names: tuple[str, ...]) -> CallFacts:
    entry = labelled.labelled_entry(row)
    twin = partial(lowered_functions.call_with_names, entry.function, names) if names else entry.function
    looks = "r" if row.within else ""
    return CallFacts(twin, row.flow, looks, gives="new" if makes_container(row) else "")


@cache
def _of_function(function: Callable[..., Any], *, takes_rt: bool) -> CallFacts:
    traits = traits_of(function)
    twin = labelled.twin_of(function)
    statement = _STATEMENTS.get(function)
    letters = "kok" if function is changes.store else traits.flow
    looks = "oor" if function is changes.store else "r" if traits.within else ""
    if statement is not None:
        how, operand, gives = statement
        return CallFacts(twin if takes_rt else _without_rt(twin), letters, looks, how, operand, gives)
    gives = "new" if function in _NEW else "part" if function in (values.element, values.member) else ""
    return CallFacts(twin if takes_rt else _without_rt(twin), letters, looks, gives=gives)


def reads(node: nodes.Prim, index: int) -> bool:
    """Whether a function reads, or changes, an operand, and keeps it nowhere."""
    if index == changed(node):
        return True
    if node.waits is not None or (index > 0 and isinstance(node.row, Row) and node.row.size == "sum"):
        return False  # the sum of nothing is the value that it starts with
    method = method_in(node)
    if method is not None:
        return index == 0 and method[0] not in _GIVES_PARTS
    return facts_of(node).letter(index) != "k" and facts_of(node).gives != "same"


def gives_back(node: nodes.Prim) -> int | None:
    """The operand that is the value of a function, as it changed it; None if it gives something else."""
    entry = None if isinstance(node.function, partial) else _STATEMENTS.get(node.function)
    return entry[1] if entry is not None and entry[2] == "same" else None


def is_new(node: nodes.Prim) -> bool:
    """Whether a function gives a container of its own."""
    method = method_in(node)
    if method is not None:
        return method[0] not in _GIVES_PARTS
    if node.waits is not None:
        return isinstance(node.row, Row) and makes_container(node.row)
    return facts_of(node).gives == "new"


# -- functions of lowered texts alone ---------------------------------------------------------------------------------


def _without_rt(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda rt, *operands: function(*operands)


def _kept(twin: Callable[..., Any], gives: Gives = "new", looks: str = "") -> CallFacts:
    return CallFacts(twin, "k", looks, gives=gives)


def _entries(function: Any) -> CallFacts:
    spread = function.args[0]
    twin = labelled.twin_of(displays.entries)

    def made(rt: Any, *items: Any) -> Any:
        return twin(rt, *[(each, items[2 * at], items[2 * at + 1]) for at, each in enumerate(spread)])

    return _kept(made, looks="r")


def _gathered(function: Any) -> CallFacts:
    spread = function.args[0]
    twin = labelled.twin_of(displays.gathered)
    return _kept(lambda rt, *items: twin(rt, *zip(spread, items, strict=True)))


def _made(function: Any) -> CallFacts:
    return _kept(lambda rt, *items: function(*items))


def _listed(rt: Any, value: Any) -> Any:
    return box(support.listed(rt, bare(value)), outer_sources(value))


_AS_TUPLE = labelled.twin_of(displays.as_tuple)
_SOURCES = CallFacts(requests.sources_of, "r", looks="k", gives="new")
"""``sources(value)`` takes boxes, and the noted sources of containers with them: of the length of a list, for example."""
_SPECIAL: dict[Any, Callable[[Any], CallFacts]] = {
    lowered_functions.is_within: lambda _: CallFacts(labelled.twin_of(compare.contains), "rc"),
    lowered_functions.entries_of: _entries,
    lowered_functions.gathered_of: _gathered,
    lowered_functions.as_set: lambda _: _kept(lambda rt, *keys: set_of(list(keys)), looks="r"),
    **dict.fromkeys((inline.as_list, inline.as_dict, lowered_functions.as_tuple, fresh), _made),
    inline.owned: lambda function: _kept(function, "part"),
    inline.operator_of: lambda function: _kept(function, "part"),
    requests.sources_of: lambda _: _SOURCES,
    values.iterated: _kept,  # a list itself, to loops alone
    support.listed: lambda _: CallFacts(_listed, "o", gives="new"),
    tuple: lambda _: _kept(lambda rt, items: _AS_TUPLE(items)),
    list: lambda _: _kept(lambda rt: []),
    operator.getitem: lambda _: _kept(lambda rt, parts, at: parts[at], gives="part"),
}
