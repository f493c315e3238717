"""The facts that a test establishes about parameters, for the branch where it is true and the one where it is false."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.lang import ir
from agentflow.lang.bounds.values import Mark, Parameter, Value, constant
from agentflow.lang.ir import IR, Var

Relation: TypeAlias = Literal["longer", "above", "least", "below", "most", "not"]
"""Of a list: it has more elements than the bound. Of a number: it is above, at least, below, at most, or not the bound."""


@frozen
class GuardFact:
    """A fact about values that derive from parameters.

    ``steady`` are the variables that the bound is worked out from, None if it may be another one at each look.
    """

    relation: Relation
    marks: Mapping[Parameter, Mark]
    bound: Value
    steady: frozenset[Var] | None = None


Guards: TypeAlias = "tuple[list[GuardFact], list[GuardFact]]"
Peek: TypeAlias = Callable[[IR], Value]

_ZERO = constant(0)
_OPPOSITE: Mapping[str, str] = {"<": ">=", ">": "<=", "<=": ">", ">=": "<"}
_MIRRORED: Mapping[str, str] = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "="}
_RELATIONS: Mapping[str, Relation] = {"<": "below", ">": "above", "<=": "most", ">=": "least"}


def guards_of(test: IR, peek: Peek) -> Guards:
    """The facts of a test that is true, and those of one that is false."""
    if isinstance(test, ir.Logic):
        parts = [guards_of(each, peek) for each in test.items]
        every = [guard for part in parts for guard in part[0 if test.every else 1]]
        return (every, []) if test.every else ([], every)
    if not isinstance(test, ir.PrimCall):
        return [], []
    name, arguments = test.primitive.canonical, test.args
    if name == "not" and len(arguments) == 1:
        if_true, if_false = guards_of(arguments[0], peek)
        return if_false, if_true
    if name in ("null?", "pair?") and len(arguments) == 1:
        filled = [GuardFact("longer", peek(arguments[0]).marks, _ZERO)]
        return ([], filled) if name == "null?" else (filled, [])
    if name in ("zero?", "positive?", "negative?") and len(arguments) == 1:
        operator = {"zero?": "=", "positive?": ">", "negative?": "<"}[name]
        return compared(operator, peek(arguments[0]), _ZERO, frozenset())
    if name in _MIRRORED and len(arguments) == 2:
        left, right = arguments
        a, b = peek(left), peek(right)
        return both_ways(name, (a, _read(left)), (b, _read(right)))
    return [], []


def both_ways(
    operator: str, left: tuple[Value, frozenset[Var] | None], right: tuple[Value, frozenset[Var] | None]
) -> Guards:
    """The facts of a comparison of two values, each with the variables that it is worked out from."""
    one = compared(operator, left[0], right[0], right[1])
    other = compared(_MIRRORED[operator], right[0], left[0], left[1])
    return one[0] + other[0], one[1] + other[1]


def compared(operator: str, value: Value, bound: Value, steady: frozenset[Var] | None) -> Guards:
    """The facts of ``value operator bound`` about ``value``."""
    if value.length_of and bound.low is not None and bound.low >= 0:
        least = math.floor(bound.low)
        longer, as_long = lengths_above(value, least), lengths_above(value, least - 1)
        if operator == ">" or (operator == ">=" and least >= 1):
            return longer if operator == ">" else as_long, []
        if (
            (operator == "=" and bound.exactly == 0 and _not_negative(value))
            or operator == "<="
            or (operator == "<" and least >= 1)
        ):
            return [], as_long if operator == "<" else longer
    if not value.marks:
        return [], []
    if operator == "=":
        return [], [GuardFact("not", value.marks, bound, steady)]
    return (
        [GuardFact(_RELATIONS[operator], value.marks, bound, steady)],
        [GuardFact(_RELATIONS[_OPPOSITE[operator]], value.marks, bound, steady)],
    )


def lengths_above(value: Value, least: int) -> list[GuardFact]:
    """The facts of a number that is above ``least`` about the lists whose lengths it is worked out from."""
    facts: list[GuardFact] = []
    for parameter, mark in value.length_of.items():
        above = mark.divisor * (least + 1) - 1 if value.whole else mark.divisor * least
        facts.append(GuardFact("longer", {parameter: Mark(mark.drop)}, constant(above - (mark.delta or 0))))
    return facts


def _not_negative(value: Value) -> bool:
    """Whether a number that is worked out from lengths is at least 0."""
    return all((mark.delta or 0) >= 0 for mark in value.length_of.values())


def _read(node: IR) -> frozenset[Var] | None:
    """The variables that a pure expression reads; None for any other expression."""
    if isinstance(node, ir.Const | ir.Global | ir.Unknown):  # a variable that is set is not known at all
        return frozenset()
    if isinstance(node, ir.Local):
        return None if node.var.mutated else frozenset({node.var})
    if isinstance(node, ir.PrimCall) and not node.primitive.is_async:
        parts = [_read(each) for each in node.args]
        tests = [each for each in parts if each is not None]
        return frozenset[Var]().union(*tests) if len(tests) == len(parts) else None
    return None
