"""Procedures with a result no longer than their lists together: a merge of two lists, a filter, a copy.

Derived from the text of the procedure: each recursive call has to remove as many elements of its lists as are added to its
result. The lengths of lists that recursion builds do not show this, because they do not distinguish one path from another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import as_list
from agentflow.lang import ir
from agentflow.lang.bounds.polynomial import ZERO, Bound
from agentflow.lang.bounds.values import Mark, Value
from agentflow.lang.ir import IR, Lambda, Var


@frozen
class Dropping:
    """A procedure that drops elements: the positions of its list and of the number to drop. This holds only if all ``operators`` of its recursive calls
    are the procedure itself."""

    listed: int
    count: int
    operators: Sequence[IR]


def dropping(code: Lambda) -> Dropping | None:
    """The dropping that a procedure performs; None if it is not recognised.

    It calls itself in tail position with the rest of the list and one less, and returns the list when the number is not above
    0, or an empty list. At most as many elements as the list has, less the number, are then left.
    """
    first = next(_recursive_calls(code.body), None)
    if first is None or code.rest is not None or len(first.args) != len(code.params):
        return None
    listed = [at for at, each in enumerate(first.args) if _is_call(each, "rest", code.params[at])]
    count = [at for at, each in enumerate(first.args) if _is_call(each, "-", code.params[at], 1)]
    if len(listed) != 1 or len(count) != 1:
        return None
    walk = _DroppingWalk(code, listed[0], count[0])
    return Dropping(listed[0], count[0], walk.operators) if walk.leaves(code.body, ended=False) else None


def left_of(listed: Value, count: Value) -> Bound | None:
    """An upper bound of the length of a list without its first ``count`` elements; None if no relation of the two is known."""
    length = listed.elements
    if length is None or length.terms is None:
        return None
    for parameter, mark in count.length_of.items():
        if mark.delta is not None and mark.drop == 0 and listed.marks.get(parameter) == Mark():
            share, more = 1 - 1 / mark.divisor, (mark.divisor - 1 - mark.delta) / mark.divisor
            return length * Bound.of(share) + Bound.of(more)
    return None


class _DroppingWalk:
    """Walks the ways that a procedure returns."""

    def __init__(self, code: Lambda, listed: int, count: int) -> None:
        self.operators: list[IR] = []
        self._code = code
        self._at = listed, count
        self._listed, self._count = code.params[listed], code.params[count]

    def leaves(self, node: IR, *, ended: bool) -> bool:
        """Whether every result is the remainder of the list; ``ended``: enough was dropped, or nothing is left."""
        match node:
            case ir.If():
                then = self.leaves(node.then, ended=ended or self._ends(node.test, truth=True))
                return then and self.leaves(node.other, ended=ended or self._ends(node.test, truth=False))
            case ir.Cond():
                for clause in node.clauses:
                    if not self.leaves(clause.body, ended=ended or self._ends(clause.test, truth=True)):
                        return False
                    ended = ended or self._ends(clause.test, truth=False)
                return self.leaves(node.other, ended=ended)
            case ir.Call(self_tail=True):
                return self._goes_on(node)
            case ir.Const() | ir.Quote():
                return node.value is None or node.value == []
            case _:
                return (ended and _is(node, self._listed)) or (isinstance(node, ir.PrimCall) and _is_empty(node))

    def _goes_on(self, node: ir.Call) -> bool:
        listed, count = self._at
        self.operators.append(node.operator)
        return (
            len(node.args) == len(self._code.params)
            and _is_call(node.args[listed], "rest", self._listed)
            and _is_call(node.args[count], "-", self._count, 1)
        )

    def _ends(self, test: IR, *, truth: bool) -> bool:
        """Whether the outcome ``truth`` of a test implies that the number is not above 0, or the list empty."""
        if isinstance(test, ir.Logic):
            each = [self._ends(item, truth=truth) for item in test.items]
            return any(each) if test.every == truth else all(each)
        if not isinstance(test, ir.PrimCall):
            return False
        name, first = test.primitive.canonical, test.args[0] if test.args else None
        if name == "not" and first is not None:
            return self._ends(first, truth=not truth)
        if first is not None and _is(first, self._listed):
            return (name, truth) in (("null?", True), ("pair?", False))
        if first is None or not _is(first, self._count):
            return False
        bound = test.args[1].value if len(test.args) == 2 and isinstance(test.args[1], ir.Const) else None
        return (name, bound if isinstance(bound, int) else None, truth) in _NOT_ABOVE_ZERO


_NOT_ABOVE_ZERO = frozenset(
    {
        ("=", 0, True),
        ("<=", 0, True),
        ("<", 1, True),
        (">", 0, False),
        (">=", 1, False),
        ("zero?", None, True),
        ("positive?", None, False),
    }
)
"""Tests of a number that counts down in steps of 1, with their outcome when it is not above 0 - or, with ``<`` and ``>=``, below 1."""


def _recursive_calls(node: IR) -> Iterator[ir.Call]:
    """The recursive tail calls of a procedure."""
    pending: list[IR] = [node]
    while pending:
        each = pending.pop()
        match each:
            case ir.If():
                pending += [each.then, each.other]
            case ir.Cond():
                pending += [*(clause.body for clause in each.clauses), each.other]
            case ir.Call(self_tail=True):
                yield each
            case _:
                pass


def _is(node: IR, var: Var) -> bool:
    return isinstance(node, ir.Local) and node.var is var and not var.mutated


def _is_call(node: IR, name: str, var: Var, number: int | None = None) -> bool:
    """Whether a node is ``(name var)``, or ``(name var number)``."""
    if not isinstance(node, ir.PrimCall) or node.primitive.canonical != name or not node.args:
        return False
    others = [each.value if isinstance(each, ir.Const) else None for each in node.args[1:]]
    return _is(node.args[0], var) and others == ([] if number is None else [number])


def _is_empty(node: ir.PrimCall) -> bool:
    return node.primitive.canonical == "list" and not node.args


Length: TypeAlias = tuple[frozenset[int], int]
"""An upper bound of a length: the lengths of some parameters together, by position, plus a number."""

_NOTHING: Length = frozenset[int](), 0
_MOST_NODES = 400
"""The most nodes of a procedure to examine."""
_DEEPEST = 60
"""The most levels of a procedure to examine."""


@frozen
class Gathering:
    """A procedure that gathers: the positions of the lists that its result takes elements from. This holds only if all ``operators`` of its recursive
    calls are the procedure itself."""

    listed: Sequence[int]
    operators: Sequence[IR]

    def longest(self, values: Sequence[Value]) -> Bound | None:
        """An upper bound of the length of the result for these arguments; None if a length is unknown."""
        total = ZERO
        for at in self.listed:
            length = values[at].length
            if length is None or length.terms is None:
                return None
            total = total + length
        return total


def gathering(code: Lambda) -> Gathering | None:
    """The gathering that a procedure performs; None if it is not recognised."""
    if code.rest is not None or any(var.mutated for var in code.params):
        return None
    first = _Walk(code, frozenset(range(len(code.params))))
    first.length(code.body)
    walk = _Walk(code, frozenset(first.touched))
    length = walk.length(code.body) if first.touched else None
    if length is None or length[1] > 0 or not walk.operators:
        return None
    return Gathering(sorted(walk.listed), walk.operators)


@dataclass(slots=True)
class _Walk:
    """Walks a procedure. ``listed`` are the parameters that count as lists, ``touched`` those used as lists."""

    code: Lambda
    listed: frozenset[int]
    touched: set[int] = field(default_factory=set[int])
    operators: list[IR] = field(default_factory=list[IR])
    _local: dict[Var, IR] = field(default_factory=dict[Var, IR])
    _nodes: int = 0
    _level: int = 0

    def length(self, node: IR, *, passed: bool = False) -> Length | None:
        """An upper bound of the length of a list; None if unknown. ``passed``: it is an unchanged argument."""
        self._nodes += 1
        if self._nodes > _MOST_NODES or self._level > _DEEPEST:
            return None
        self._level += 1
        try:
            return self._length(node, passed=passed)
        finally:
            self._level -= 1

    def _length(self, node: IR, *, passed: bool) -> Length | None:
        match node:
            case ir.If():
                return self._either([node.then, node.other])
            case ir.Cond():
                return self._either([*(clause.body for clause in node.clauses), node.other])
            case ir.Seq() if node.items:
                return self.length(node.items[-1])
            case ir.Let():
                self._local.update(node.inits)
                return self.length(node.body)
            case ir.Local():
                return self._variable(node.var, passed=passed)
            case ir.Const() | ir.Quote():
                elements = [] if node.value is None else as_list(node.value)
                return None if elements is None else (frozenset[int](), len(elements))
            case ir.PrimCall():
                return self._primitive(node)
            case ir.Call() if node.pairs is None and len(node.args) == len(self.code.params):
                self.operators.append(node.operator)
                each = [self.length(arg, passed=True) for at, arg in enumerate(node.args) if at in self.listed]
                return together(each)
            case _:
                return None

    def _variable(self, var: Var, *, passed: bool) -> Length | None:
        if var in self.code.params:
            at = self.code.params.index(var)
            if not passed:
                self.touched.add(at)
            return (frozenset({at}), 0) if at in self.listed else None
        value = self._local.get(var)
        return None if value is None or var.mutated else self.length(value)

    def _primitive(self, node: ir.PrimCall) -> Length | None:
        match node.primitive.size, node.args:
            case "cons", [_, rest]:
                return more_of(self.length(rest), 1)
            case "rest", [whole]:
                return more_of(self.length(whole), -1)  # an error for an empty list
            case "append", lists:
                return together([self.length(each) for each in lists])
            case "same-length", [whole, *_]:
                return self.length(whole)
            case "list", items:
                return frozenset[int](), len(items)
            case _:
                return None

    def _either(self, nodes: Sequence[IR]) -> Length | None:
        each = [self.length(node) for node in nodes]
        lengths = [length for length in each if length is not None]
        if len(lengths) < len(each):
            return None
        return frozenset[int]().union(*(used for used, _ in lengths)), max(more for _, more in lengths)


def more_of(length: Length | None, by: int) -> Length | None:
    """A length plus ``by`` elements."""
    return None if length is None else (length[0], length[1] + by)


def together(lengths: Sequence[Length | None]) -> Length | None:
    """The length of several lists in sequence; None if one of them occurs twice."""
    used, more = _NOTHING
    for each in lengths:
        if each is None or used & each[0]:
            return None
        used, more = used | each[0], more + each[1]
    return used, more
