"""The facts that a test establishes about parameters, for the branch where it is true and the one where it is false."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.lang import ir
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.values import Mark, Parameter, Value, constant
from agentflow.lang.checks import children
from agentflow.lang.ir import IR, Var

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
    steady: frozenset[Var] | None = None


Guards: TypeAlias = "tuple[list[GuardFact], list[GuardFact]]"
Peek: TypeAlias = Callable[[IR], Value]

_ZERO = constant(0)
_OPPOSITE: Mapping[str, str] = {"<": ">=", ">": "<=", "<=": ">", ">=": "<"}
_MIRRORED: Mapping[str, str] = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "="}
_RELATIONS: Mapping[str, Relation] = {"<": "below", ">": "above", "<=": "most", ">=": "least"}


def guards_of(test: IR, peek: Peek) -> Guards:
    """The facts that hold if a test is true, and if it is false."""
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
    """The facts of a comparison of two values, each with the variables that determine it."""
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
    """The facts that a number above ``least`` implies about the lists with lengths that determine it."""
    facts: list[GuardFact] = []
    for parameter, mark in value.length_of.items():
        above = mark.divisor * (least + 1) - 1 if value.whole else mark.divisor * least
        facts.append(GuardFact("longer", {parameter: Mark(mark.drop)}, constant(above - (mark.delta or 0))))
    return facts


def _not_negative(value: Value) -> bool:
    """Whether a number computed from lengths is at least 0."""
    return all((mark.delta or 0) >= 0 for mark in value.length_of.values())


def _read(node: IR) -> frozenset[Var] | None:
    """The variables that a pure expression reads; None for any other expression."""
    if isinstance(node, ir.Const | ir.Global | ir.Unknown):  # a variable with an assignment is unknown
        return frozenset()
    if isinstance(node, ir.Local):
        return None if node.var.mutated else frozenset({node.var})
    if isinstance(node, ir.PrimCall) and not node.primitive.is_async:
        parts = [_read(each) for each in node.args]
        tests = [each for each in parts if each is not None]
        return frozenset[Var]().union(*tests) if len(tests) == len(parts) else None
    return None


@dataclass(slots=True)
class Setters:
    """The assignments and definitions of each variable of a program; a global variable by its name."""

    sets: dict[Any, list[ir.SetLocal | ir.SetGlobal]] = field(
        default_factory=dict[Any, "list[ir.SetLocal | ir.SetGlobal]"]
    )
    definitions: dict[Any, int] = field(default_factory=dict[Any, int])

    def note(self, node: IR) -> None:
        """Record a node that changes a variable."""
        if isinstance(node, ir.SetLocal):
            self.sets.setdefault(node.var, []).append(node)
        elif isinstance(node, ir.SetGlobal):
            self.sets.setdefault(node.name, []).append(node)
        elif isinstance(node, ir.Define):
            self.definitions[node.var] = self.definitions.get(node.var, 0) + 1
        elif isinstance(node, ir.DefineGlobal):
            self.definitions[node.name] = self.definitions.get(node.name, 0) + 1


@frozen
class Counter:
    """A variable that each completed round changes by ``step``; ``variable`` is a Var, or the name of a global one."""

    variable: Var | str
    step: int


def counters(loop: ir.While, setters: Setters) -> Iterator[Counter]:
    """The counters of a loop: each is changed by one assignment, which every completed round executes once."""
    for node in _surely(loop.body):
        if not isinstance(node, ir.SetLocal | ir.SetGlobal):
            continue
        variable = node.var if isinstance(node, ir.SetLocal) else node.name
        step = _step(node.value, variable)
        once = len(setters.sets.get(variable, ())) == 1 and setters.definitions.get(variable, 0) <= 1
        if step and once and not any(_defines(each, variable) for each in _within(loop)):
            yield Counter(variable, step)


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


def _step(value: IR, variable: Var | str) -> int | None:
    """The constant that an assignment adds to its variable; None for any other assignment."""
    if not isinstance(value, ir.PrimCall) or len(value.args) != 2 or value.primitive.canonical not in ("+", "-"):
        return None
    left, right = value.args
    if value.primitive.canonical == "+" and isinstance(left, ir.Const):
        left, right = right, left
    read = left.var if isinstance(left, ir.Local) else left.name if isinstance(left, ir.Global) else None
    by = right.value if isinstance(right, ir.Const) else None
    if type(by) is not int or read is None or read != variable:
        return None
    return by if value.primitive.canonical == "+" else -by


def _surely(node: IR) -> Iterator[IR]:
    """The parts of a node evaluated once if it completes."""
    pending = [node]
    while pending:
        each = pending.pop()
        yield each
        if isinstance(each, ir.Seq):
            pending.extend(each.items)
        elif isinstance(each, ir.Let):
            pending.extend([*[init for _, init in each.inits], each.body])
        elif isinstance(each, ir.If):
            pending.append(each.test)


def _within(node: IR) -> Iterator[Any]:
    pending: list[Any] = [node]
    while pending:
        each = pending.pop()
        yield each
        pending.extend(children(each))


def _defines(node: Any, variable: Var | str) -> bool:
    if isinstance(node, ir.Define):
        return node.var is variable
    return isinstance(node, ir.DefineGlobal) and node.name == variable
