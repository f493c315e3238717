"""Procedures whose result is no longer than the lists they are given together: a merge of two lists, a filter, a copy.

Worked out from the text of the procedure: each recursive call has to lose as many elements of its lists as are added to its
result. The lengths of what recursion puts together say nothing of this, as they do not tell one path from another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import as_list
from agentflow.lang import ir
from agentflow.lang.bounds.polynomial import ZERO, Bound
from agentflow.lang.bounds.values import Value
from agentflow.lang.ir import IR, Lambda, Var

Length: TypeAlias = tuple[frozenset[int], int]
"""An upper bound of a length: that of some parameters together, by position, and a number besides."""

_NOTHING: Length = frozenset[int](), 0
_MOST_NODES = 400
"""Nodes of a procedure that are looked at."""
_DEEPEST = 60
"""Levels of a procedure that are looked at."""


@frozen
class Gathering:
    """A procedure that gathers: the positions of the lists whose elements it returns. It is one only if all ``operators`` of its recursive
    calls are the procedure itself."""

    listed: Sequence[int]
    operators: Sequence[IR]

    def longest(self, values: Sequence[Value]) -> Bound | None:
        """An upper bound of the length of the result for these arguments; None if a length is not known."""
        total = ZERO
        for at in self.listed:
            length = values[at].length
            if length is None or length.terms is None:
                return None
            total = total + length
        return total


def gathering(code: Lambda) -> Gathering | None:
    """How a procedure gathers; None if it is not seen to."""
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
    """Goes over a procedure. ``listed`` are the parameters that count as lists, ``touched`` those that are used as such."""

    code: Lambda
    listed: frozenset[int]
    touched: set[int] = field(default_factory=set[int])
    operators: list[IR] = field(default_factory=list[IR])
    _local: dict[Var, IR] = field(default_factory=dict[Var, IR])
    _nodes: int = 0
    _level: int = 0

    def length(self, node: IR, *, passed: bool = False) -> Length | None:
        """An upper bound of the length of a list; None if it is not seen. ``passed``: it is an argument as it stands."""
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
                return more_of(self.length(whole), -1)  # of an empty list it is an error
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
    """A length and ``by`` elements more."""
    return None if length is None else (length[0], length[1] + by)


def together(lengths: Sequence[Length | None]) -> Length | None:
    """The length of several lists one after the other; None if one of them is there twice."""
    used, more = _NOTHING
    for each in lengths:
        if each is None or used & each[0]:
            return None
        used, more = used | each[0], more + each[1]
    return used, more
