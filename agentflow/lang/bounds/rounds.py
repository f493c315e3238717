"""How often a procedure calls itself, and what the tests before such a call say of its arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentflow.core.data.frozen import frozen
from agentflow.lang.bounds.guards import GuardFact
from agentflow.lang.bounds.polynomial import Bound
from agentflow.lang.bounds.values import Parameter, Value


@frozen
class AgainCall:
    """A recursive call: its arguments, and the guards on the way to it."""

    arguments: Sequence[Value]
    guards: Sequence[GuardFact]


@frozen
class Rounds:
    """An upper bound of recursive calls. ``sure``: the last round takes a path without a recursive call. ``tree``: the number
    of calls that recur, if each calls twice; None if unknown."""

    count: Bound
    sure: bool
    tree: Bound | None = None


def longer(call: AgainCall, parameter: Parameter) -> int:
    """The minimum length of a list according to the tests before a call."""
    least = [
        guard.marks[parameter].drop + int(guard.bound.low or 0) + 1
        for guard in call.guards
        if guard.relation == "longer" and parameter in guard.marks
    ]
    return max(least, default=0)


def least_above_zero(call: AgainCall, parameter: Parameter, initial: Value) -> int | None:
    """The lower bound of a number according to the tests before a call: 1 if it is at least 1, 0 if above 0, else None."""
    whole = initial.whole and call.arguments[parameter[1]].whole
    above_zero = False
    for guard in call.guards:
        mark, low = guard.marks.get(parameter), guard.bound.low
        if mark is None or mark.delta != 0 or low is None:
            continue
        if low >= 1 and guard.relation in ("above", "least"):
            return 1
        nonzero = guard.relation == "not" and guard.bound.exactly == 0 and initial.low is not None and initial.low >= 0
        above_zero = above_zero or nonzero or (guard.relation == "above" and low >= 0)
    return int(whole) if above_zero else None


def fewest(candidates: Sequence[Rounds]) -> Rounds | None:
    """The smallest of several upper bounds, as far as they can be compared: by what depends on sizes, then by the number besides."""
    best = candidates[0] if candidates else None
    for each in candidates[1:]:
        if best is not None and _is_less(each.count, best.count):
            best = each
    return best


def _is_less(a: Bound, b: Bound) -> bool:
    a_grows, b_grows = a.growing, b.growing
    if a_grows == b_grows:
        return a != b and a.join(b) == b
    return a_grows.join(b_grows) == b_grows


def settles_at(factor: float, more: Bound) -> Bound:
    """What a length that becomes ``factor`` of itself and ``more``, again and again, does not exceed if it begins below."""
    if factor == 0:
        return more
    whole = more * Bound.of(math.nextafter(1 / (1 - factor), math.inf))
    return whole if whole.number is None else Bound.of(math.ceil(round(whole.number, 6)))


def surely_below(a: Value, b: Value, by: int) -> bool:
    """Whether ``a`` is certainly at most ``b + by``."""
    return a.high is not None and a.high.number is not None and b.low is not None and a.high.number <= b.low + by
