"""Functions of a text in Python whose result is no longer than the lists they are given together (:mod:`agentflow.lang.bounds.gathering`).

What is said holds of a call that returns, if none of the lists changes: ``xs[1:]`` is one shorter than ``xs`` only where ``xs`` has an
element, which a test before it says, or ``xs[0]`` beside it, which is an error otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentflow.lang.bounds.gathering import Gathering, Length, more_of, together
from agentflow.lang.bounds.python.facts import Text
from agentflow.lang.ir import Lambda, Var
from agentflow.lang.python.names import FUNCTIONS, Function

_COPIES = frozenset(("list", "sorted", "reversed", "tuple"))
_MOST_NODES = 400
"""Expressions of a function that are looked at."""
_LONGER = frozenset(((ast.Gt, 0), (ast.GtE, 1), (ast.NotEq, 0)))
_EMPTY = frozenset(((ast.Lt, 1), (ast.LtE, 0), (ast.Eq, 0)))
"""Comparisons of a length with a number that say of a list that it has elements, and, if they are false, so."""


def python_gathering(text: Text, code: Lambda, function: Function) -> Gathering | None:
    """How a function gathers; None if it is not seen to."""
    if isinstance(function, ast.Lambda) or not all(map(text.once, code.params)) or function.args.kwonlyargs:
        return None
    first = _PythonWalk(text, code.params, function, frozenset(range(len(code.params))))
    first.block(function.body, frozenset())
    walk = _PythonWalk(text, code.params, function, frozenset(first.touched))
    walk.block(function.body, frozenset())
    lengths = [each for each in walk.lengths if each is not None]
    if not walk.recurs or not first.touched or len(lengths) < len(walk.lengths):
        return None
    return Gathering(sorted(walk.listed), ()) if max(more for _, more in lengths) <= 0 else None


@dataclass(slots=True)
class _PythonWalk:
    """Goes over a function. ``listed`` are the parameters that count as lists, ``touched`` those that are used as such; ``lengths``
    are those of all that it returns. ``full`` are the parameters that have an element where a part is reached."""

    text: Text
    params: Sequence[Var]
    function: Function
    listed: frozenset[int]
    touched: set[int] = field(default_factory=set[int])
    lengths: list[Length | None] = field(default_factory=list["Length | None"])
    recurs: bool = False
    _local: dict[Var, Length | None] = field(default_factory=dict[Var, "Length | None"])
    _nodes: int = 0

    def block(self, nodes: Sequence[ast.stmt], full: frozenset[int]) -> frozenset[int] | None:
        """Statements in sequence: the parameters that have an element behind them; None if nothing is."""
        for node in nodes:
            after = self._statement(node, full)
            if after is None:
                return None
            full = after
        return full

    def _statement(self, node: ast.stmt, full: frozenset[int]) -> frozenset[int] | None:
        match node:
            case ast.Return():
                if node.value is not None:
                    self.lengths.append(self.length(node.value, full | self._opened(node.value)))
                return None
            case ast.Raise():
                return None
            case ast.If():
                if_true, if_false = self._facts(node.test)
                then = self.block(node.body, full | if_true)
                other = self.block(node.orelse, full | if_false)
                if then is None or other is None:
                    return other if then is None else then
                return then & other
            case ast.Assign(targets=[ast.Name() as target]):
                var = self.text.variables.get(target)
                if var is not None and self.text.once(var):
                    self._local[var] = self.length(node.value, full | self._opened(node.value))
                return full
            case _ if isinstance(node, FUNCTIONS):
                return full
            case _:
                for name in ("body", "orelse", "finalbody"):
                    self.block(getattr(node, name, ()), full)
                for handler in getattr(node, "handlers", ()):
                    self.block(handler.body, full)
                return full

    def length(self, node: ast.expr, full: frozenset[int], *, passed: bool = False) -> Length | None:
        """An upper bound of the length of a list; None if it is not seen. ``passed``: it is an argument as it stands."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            return None
        match node:
            case ast.Name():
                return self._variable(node, passed=passed)
            case ast.List() | ast.Tuple():
                return self._elements(node.elts, full)
            case ast.BinOp(op=ast.Add()):
                return together([self.length(node.left, full), self.length(node.right, full)])
            case ast.IfExp():
                if_true, if_false = self._facts(node.test)
                return _either(self.length(node.body, full | if_true), self.length(node.orelse, full | if_false))
            case ast.Await():
                return self.length(node.value, full, passed=passed)
            case ast.Subscript(slice=ast.Slice(step=None) as part):
                at = self._position(node.value)
                drops = at in full and isinstance(part.lower, ast.Constant) and _above_zero(part.lower.value)
                return more_of(self.length(node.value, full), -1 if drops else 0)
            case ast.Call():
                return self._call(node, full)
            case _:
                return None

    def _variable(self, node: ast.Name, *, passed: bool) -> Length | None:
        at = self._position(node)
        if at is None:
            var = self.text.variables.get(node)
            return None if var is None else self._local.get(var)
        if not passed:
            self.touched.add(at)
        return (frozenset({at}), 0) if at in self.listed else None

    def _elements(self, nodes: Sequence[ast.expr], full: frozenset[int]) -> Length | None:
        spread = [self.length(each.value, full) for each in nodes if isinstance(each, ast.Starred)]
        return more_of(together(spread), len(nodes) - len(spread))

    def _call(self, node: ast.Call, full: frozenset[int]) -> Length | None:
        kind, about = self.text.meaning(node) or ("unknown", None)
        if kind == "builtin" and about in _COPIES and len(node.args) == 1:
            return self.length(node.args[0], full)
        if kind == "method" and about == "copy" and isinstance(node.func, ast.Attribute):
            return self.length(node.func.value, full)
        itself = kind == "direct" and about is self.function
        if not itself or node.keywords or len(node.args) != len(self.params):
            return None
        self.recurs = True
        return together(
            [self.length(each, full, passed=True) for at, each in enumerate(node.args) if at in self.listed]
        )

    def _position(self, node: ast.expr) -> int | None:
        """The position of the parameter that a node is; None if it is none."""
        var = self.text.variables.get(node) if isinstance(node, ast.Name) else None
        return self.params.index(var) if var in self.params else None

    def _opened(self, node: ast.expr) -> frozenset[int]:
        """The parameters whose first or last element an expression takes whenever it has a value."""
        opened: set[int] = set()
        pending: list[ast.expr] = [node]
        while pending:
            each = pending.pop()
            match each:
                case (
                    ast.Subscript(slice=ast.Constant(value=0 | -1))
                    | ast.Subscript(slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)))
                ):
                    at = self._position(each.value)
                    opened |= set() if at is None else {at}
                case ast.List() | ast.Tuple():
                    pending += each.elts
                case ast.BinOp():
                    pending += [each.left, each.right]
                case ast.Starred() | ast.Await():
                    pending.append(each.value)
                case ast.Call():
                    pending += each.args
                case _:
                    pass
        return frozenset(opened)

    def _facts(self, test: ast.expr) -> tuple[frozenset[int], frozenset[int]]:
        """The parameters that have an element where a test is true, and where it is false."""
        nothing = frozenset[int]()
        match test:
            case ast.UnaryOp(op=ast.Not()):
                if_true, if_false = self._facts(test.operand)
                return if_false, if_true
            case ast.BoolOp():
                each = [self._facts(value) for value in test.values]
                every = isinstance(test.op, ast.And)
                whole = nothing.union(*(facts[0 if every else 1] for facts in each))
                return (whole, nothing) if every else (nothing, whole)
            case ast.Name():
                at = self._position(test)
                return (nothing if at is None else frozenset({at})), nothing
            case ast.Compare(
                left=ast.Call(args=[measured]) as call, ops=[op], comparators=[ast.Constant(value=number)]
            ):
                at = self._position(measured)
                if at is None or self.text.meaning(call) != ("builtin", "len") or type(number) is not int:
                    return nothing, nothing
                here, test_of = frozenset({at}), (type(op), number)
                return (here if test_of in _LONGER else nothing), (here if test_of in _EMPTY else nothing)
            case _:
                return nothing, nothing


def _either(a: Length | None, b: Length | None) -> Length | None:
    return None if a is None or b is None else (a[0] | b[0], max(a[1], b[1]))


def _above_zero(number: Any) -> bool:
    return type(number) is int and number > 0
