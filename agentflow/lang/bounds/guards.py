"""The facts that a test establishes about parameters, for the branch where it is true and the one where it is false."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.values import Mark, Parameter, Value, constant
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.inline import owned
from agentflow.lang.kernel.nodes import Const, Node, Prim, Set, Variable

Relation: TypeAlias = Literal["longer", "above", "least", "below", "most", "not"]
"""For a list: it has more elements than the bound. For a number: it is above, at least, below, at most, or not the bound."""


@frozen
class GuardFact:
    """A fact about values that derive from parameters.

    ``steady`` are the variables that determine the bound, None if each evaluation may give another bound.
    """

    relation: Relation
    marks: Mapping[Parameter, Mark]
    bound: Value
    steady: frozenset[Variable] | None = None


Guards: TypeAlias = "tuple[list[GuardFact], list[GuardFact]]"
Peek: TypeAlias = Callable[[Node], Value]
Steady: TypeAlias = "Callable[[Node], frozenset[Variable] | None]"
Signs: TypeAlias = Mapping[Any, str]
"""The operators that functions of Python are; none for S-expressions: their primitives have names."""

_ZERO = constant(0)
_OPPOSITE: Mapping[str, str] = {"<": ">=", ">": "<=", "<=": ">", ">=": "<"}
_MIRRORED: Mapping[str, str] = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "="}
_AGAINST_ZERO: Mapping[str, str] = {"zero?": "=", "positive?": ">", "negative?": "<"}
_OF_ONE = ("not", "null?", "pair?")
_TESTS = frozenset({*_MIRRORED, *_AGAINST_ZERO, *_OF_ONE, "!="})
_MOST = 200
"""The most operands of a test to examine."""
_RELATIONS: Mapping[str, Relation] = {"<": "below", ">": "above", "<=": "most", ">=": "least"}


def guards_of(test: Node, peek: Peek, steady: Steady, signs: Signs) -> Guards:
    """The facts that hold if a test is true, and if it is false. ``steady`` gives the variables that determine an operand."""
    if isinstance(test, Set):
        return guards_of(test.value, peek, steady, signs)
    if isinstance(test, nodes.Logic):
        parts = [guards_of(each, peek, steady, signs) for each in test.items[:_MOST]]
        every = [guard for part in parts for guard in part[0 if test.every else 1]]
        return (every, []) if test.every else ([], every)
    name, operands = operator_of(test, signs)
    if name not in _TESTS:
        return _true(peek(test)) if signs else ([], [])
    if name == "not":
        if_true, if_false = guards_of(operands[0], peek, steady, signs)
        return if_false, if_true
    if name in ("null?", "pair?"):
        filled = [GuardFact("longer", peek(operands[0]).marks, _ZERO)]
        return ([], filled) if name == "null?" else (filled, [])
    if len(operands) == 1:
        return compared(_AGAINST_ZERO[name], peek(operands[0]), _ZERO, frozenset())
    left, right = operands
    operator = "=" if name == "!=" else name
    facts = both_ways(operator, (peek(left), steady(left)), (peek(right), steady(right)))
    return (facts[1], facts[0]) if name == "!=" else facts


def operator_of(node: Node, signs: Signs) -> tuple[str, Sequence[Node]]:
    """The operator of a node by its name in S-expressions, and the operands; an empty name for any other node."""
    if not isinstance(node, Prim):
        return "", ()
    if isinstance(node.row, Primitive):
        name = node.row.canonical
        return (
            (name, node.args) if len(node.args) == (1 if name in _OF_ONE or name in _AGAINST_ZERO else 2) else ("", ())
        )
    sign = signs.get(node.function, "")
    if sign == "ordered":
        order, *operands = node.args
        return (str(order.value), operands) if isinstance(order, Const) else ("", ())
    return sign, node.args


def _true(value: Value) -> Guards:
    """The facts that hold if a value of Python is true: a list has elements, a number is not 0."""
    facts: list[GuardFact] = []
    if value.marks:
        facts = [GuardFact("longer", value.marks, _ZERO), GuardFact("not", value.marks, _ZERO, frozenset())]
    if value.low is not None and value.low >= 0:
        facts += lengths_above(value, 0)
    return facts, []


def both_ways(
    operator: str, left: tuple[Value, frozenset[Variable] | None], right: tuple[Value, frozenset[Variable] | None]
) -> Guards:
    """The facts of a comparison of two values, each with the variables that determine it."""
    one = compared(operator, left[0], right[0], right[1])
    other = compared(_MIRRORED[operator], right[0], left[0], left[1])
    return one[0] + other[0], one[1] + other[1]


def compared(operator: str, value: Value, bound: Value, steady: frozenset[Variable] | None) -> Guards:
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
    """The facts that a number above ``least`` implies about the lists with lengths that determine it."""
    facts: list[GuardFact] = []
    for parameter, mark in value.length_of.items():
        above = mark.divisor * (least + 1) - 1 if value.whole else mark.divisor * least
        facts.append(GuardFact("longer", {parameter: Mark(mark.drop)}, constant(above - (mark.delta or 0))))
    return facts


def _not_negative(value: Value) -> bool:
    """Whether a number computed from lengths is at least 0."""
    return all((mark.delta or 0) >= 0 for mark in value.length_of.values())


def rounds(guards: Sequence[GuardFact], parameter: Parameter, initial: Value, step: int) -> Bound | None:
    """The number of rounds until the test of a counter fails; None if the test does not bound it."""
    for guard in guards:
        mark, bound = guard.marks.get(parameter), guard.bound
        if mark is None or mark.delta is None:
            continue
        if step > 0 and guard.relation in ("below", "most") and bound.high is not None and initial.low is not None:
            rest = distance(bound.high, initial.low + mark.delta)
        elif step < 0 and guard.relation in ("above", "least") and bound.low is not None and initial.high is not None:
            rest = distance(initial.high, bound.low - mark.delta)
        else:
            continue
        if guard.relation in ("most", "least"):
            rest = rest + ONE
        if rest.terms is not None:
            return in_steps(rest, abs(step))
    return None


def in_steps(far: Bound, step: int, *, whole: bool = False) -> Bound:
    """The number of steps in a distance, rounded up; ``whole``: it is a distance of integers."""
    if far.number is not None:
        return Bound.of(math.ceil(far.number / step))
    if step == 1 and whole:
        return far
    return far + (ONE if any(each % 1 for each in (far.terms or {}).values()) else ZERO)


def marked(initial: Value, parameter: Parameter, step: int) -> Value:
    """The abstract value of a counter during its loop."""
    low, high = (initial.low, None) if step > 0 else (None, initial.high)
    return Value(low=low, high=high, whole=initial.whole, marks={parameter: Mark()})


def distance(high: Bound, low: float) -> Bound:
    """The maximum distance from ``low`` to ``high``."""
    if low < 0:
        return high + Bound.of(-low)
    return Bound.of(max(0, high.number - low)) if high.number is not None else high


def step_of(
    node: Node, signs: Signs, variable: Callable[[Variable | str], Variable | None]
) -> tuple[Variable, int] | None:
    """The variable that a node changes by a number, and the number; None for any other node."""
    if not isinstance(node, Set):
        return None
    value = node.value
    if isinstance(value, Prim) and value.function is owned:
        value = value.args[0]
    name, operands = operator_of(value, signs)
    if name not in ("+", "-"):
        return None
    left, right = operands
    if name == "+" and isinstance(left, Const):
        left, right = right, left
    counter = variable(node.variable)
    by: Any = right.value if isinstance(right, Const) else None
    read = variable(left.variable) if isinstance(left, nodes.Ref) else None
    if counter is None or read is not counter or type(by) is not int or not by:
        return None
    return counter, by if name == "+" else -by
