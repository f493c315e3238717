"""Procedures of a program that return a list without its first elements, ``(drop xs n)``, as programs write them themselves.

Only what such a procedure leaves of a list says that its second half is one: a length is an upper bound otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentflow.core.data.frozen import frozen
from agentflow.lang import ir
from agentflow.lang.bounds.polynomial import Bound
from agentflow.lang.bounds.values import Mark, Value
from agentflow.lang.ir import IR, Lambda, Var


@frozen
class Dropping:
    """A procedure that drops elements: the positions of its list and of how many to drop. It is one only if all ``operators`` of its recursive calls
    are the procedure itself."""

    listed: int
    count: int
    operators: Sequence[IR]


def dropping(code: Lambda) -> Dropping | None:
    """How a procedure drops elements; None if it is not seen to.

    It calls itself in tail position with the rest of the list and one less, and returns the list when the number is not above
    0, or an empty list. The elements that are left are then at most as many as the list has, less the number.
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
    """An upper bound of the length of a list without its first ``count`` elements; None if nothing is known of how the two are related."""
    length = listed.elements
    if length is None or length.terms is None:
        return None
    for parameter, mark in count.length_of.items():
        if mark.delta is not None and mark.drop == 0 and listed.marks.get(parameter) == Mark():
            share, more = 1 - 1 / mark.divisor, (mark.divisor - 1 - mark.delta) / mark.divisor
            return length * Bound.of(share) + Bound.of(more)
    return None


class _DroppingWalk:
    """Goes over the ways that a procedure returns."""

    def __init__(self, code: Lambda, listed: int, count: int) -> None:
        self.operators: list[IR] = []
        self._code = code
        self._at = listed, count
        self._listed, self._count = code.params[listed], code.params[count]

    def leaves(self, node: IR, *, ended: bool) -> bool:
        """Whether every result is what is left of the list; ``ended``: enough was dropped, or there is nothing left."""
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
        """Whether a test that comes out as ``truth`` says that the number is not above 0, or the list empty."""
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
"""Tests of a number that counts down in steps of 1, and how they come out where it is not above 0 - or, with ``<`` and ``>=``, below 1."""


def _recursive_calls(node: IR) -> Iterator[ir.Call]:
    """The calls of itself that a procedure ends in."""
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
