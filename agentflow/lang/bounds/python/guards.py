"""What a test of a text in Python says about values, where it is true and where it is false."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from agentflow.lang.bounds.guards import GuardFact, Guards, both_ways, lengths_above
from agentflow.lang.bounds.values import Value, constant
from agentflow.lang.ir import Var

Peek = Callable[[ast.expr], Value]
Steady = Callable[[ast.expr], "frozenset[Var] | None"]

_OPERATORS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "=",
    ast.NotEq: "=",
}
_ZERO = constant(0)
_MOST = 200
"""Operands of a test that are looked at."""


def guards_of(test: ast.expr, peek: Peek, steady: Steady) -> Guards:
    """The facts of a test that is true, and those of one that is false. ``steady`` gives the variables that an operand depends on."""
    if isinstance(test, ast.BoolOp):
        every = isinstance(test.op, ast.And)
        parts = [guards_of(each, peek, steady) for each in test.values[:_MOST]]
        facts = [guard for part in parts for guard in part[0 if every else 1]]
        return (facts, []) if every else ([], facts)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        if_true, if_false = guards_of(test.operand, peek, steady)
        return if_false, if_true
    if isinstance(test, ast.Compare):
        return _compared(test, peek, steady)
    if isinstance(test, ast.Name | ast.Call):
        return _true(peek(test))
    return [], []


def _true(value: Value) -> Guards:
    """What holds where a value counts as true: a list has elements, a number is not 0."""
    facts: list[GuardFact] = []
    if value.marks:
        facts = [GuardFact("longer", value.marks, _ZERO), GuardFact("not", value.marks, _ZERO, frozenset())]
    if value.low is not None and value.low >= 0:
        facts += lengths_above(value, 0)
    return facts, []


def _compared(test: ast.Compare, peek: Peek, steady: Steady) -> Guards:
    if_true: list[GuardFact] = []
    if_false: list[GuardFact] = []
    operands = [test.left, *test.comparators]
    for at, op in enumerate(test.ops[:_MOST]):
        operator = _OPERATORS.get(type(op))
        if operator is None:
            continue
        left, right = operands[at], operands[at + 1]
        facts = both_ways(operator, (peek(left), steady(left)), (peek(right), steady(right)))
        if isinstance(op, ast.NotEq):
            facts = facts[1], facts[0]
        if_true += facts[0]
        if_false += facts[1]
    return if_true, if_false if len(test.ops) == 1 else []
