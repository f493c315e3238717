"""``while`` loops with a counter: a variable that only the loop's own body changes, by the same step in every round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.lang import ir
from agentflow.lang.bounds.guards import GuardFact
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.values import Mark, Parameter, Value
from agentflow.lang.checks import children
from agentflow.lang.ir import IR, Var


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
    """The parts of a node that are evaluated once whenever it completes."""
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
