"""Recursive procedures and loops: the number of calls, and how their arguments change from call to call.

A parameter that loses an element in each call, or a number that moves towards the limit tested before the call, bounds the
number of rounds. The effects are those of the recursive paths times the rounds, plus those of the last, non-recursive path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Span
from agentflow.lang.bounds.cost import FREE, MANY, Cost, Effects
from agentflow.lang.bounds.guards import GuardFact, distance, in_steps
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.values import DATA, FOREIGN, NEVER, AbstractScope, Mark, Parameter, Value, joined, sequence
from agentflow.lang.kernel.nodes import Lambda


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
    """The smallest of several upper bounds, as far as they can be compared: by the part that depends on sizes, then by the constant."""
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
    """A limit of a length that repeatedly becomes ``factor`` of itself plus ``more``, if it begins below the limit."""
    if factor == 0:
        return more
    whole = more * Bound.of(math.nextafter(1 / (1 - factor), math.inf))
    return whole if whole.number is None else Bound.of(math.ceil(round(whole.number, 6)))


def surely_below(a: Value, b: Value, by: int) -> bool:
    """Whether ``a`` is certainly at most ``b + by``."""
    return a.high is not None and a.high.number is not None and b.low is not None and a.high.number <= b.low + by


Body: TypeAlias = "Callable[[list[Value]], tuple[Value, Cost]]"
_PASSES = 7
_WIDENED = 4
"""The pass after which a result that still grows is approximated by data of any form."""
_HIGHEST = 24
"""The greatest depth of doubly recursive calls with a computed number."""
_SMALLEST_HALVES = 1_100
"""An upper bound of the halvings of a fraction below 1 before it is 0."""
_DEEPEST = 8


@frozen
class Loose:
    """A part of a program with effects that have no upper bound, and the reason."""

    at: Span | None
    reason: str


@dataclass(slots=True)
class Reach:
    """The effects that a program can reach, by kind and name, and the spans of calls with a callee from data."""

    effects: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    loose: list[Loose] = field(default_factory=list[Loose])
    any_name: dict[Any, Span | None] = field(default_factory=dict[Any, Span | None])

    def noted(self) -> int:
        """The number of reasons so far."""
        return len(self.loose)

    def forget(self, count: int) -> None:
        """Drop the reasons after the first ``count``: those of a pass to be repeated."""
        del self.loose[count:]


class Follower(Protocol):
    """The analysis that the call belongs to."""

    frames: list[CallFrame]
    guards: list[GuardFact]
    beside: int
    rest_of_none_fails: bool
    reach: Reach

    def next_number(self) -> int: ...
    def loose(self, at: Span | None, reason: str, cost: Cost) -> Cost: ...


class CallFrame:
    """A procedure under analysis. ``number`` identifies it; ``result`` is the assumed result of recursive calls, which is at most as long as
    the argument at ``no_longer_than``, if set; ``beside``: whether some of them run concurrently with other code."""

    def __init__(self, number: int, code: Lambda, scope: AbstractScope, guards: int, level: int) -> None:
        self.number = number
        self.code = code
        self.scope = scope
        self.result = NEVER
        self.no_longer_than: int | None = None
        self.calls: list[AgainCall] = []
        self.beside = False
        self._guards = guards
        self._level = level

    def called_again(self, arguments: list[Value], guards: Sequence[GuardFact], level: int) -> Value:
        """Record a recursive call at a ``level`` of concurrent forms, and return its assumed result."""
        self.beside = self.beside or level > self._level
        values = parameter_values(self.code, arguments)
        if values is None or any(each.never for each in values):
            return NEVER
        self.calls.append(AgainCall(values, tuple(guards[self._guards :])))
        if self.no_longer_than is None or self.result.never:
            return self.result
        return self.result.but(size=values[self.no_longer_than].length)


def parameter_values(code: Lambda, arguments: list[Value]) -> list[Value] | None:
    """The values of a procedure's parameters, with the rest as one list; None if the number of arguments is wrong."""
    count = len(code.params)
    if code.rest is None:
        return arguments if len(arguments) == count else None
    if len(arguments) < count:
        return None
    rest = arguments[count:]
    return [*arguments[:count], sequence(len(rest), joined(rest))]


class Recursion:
    """A call of a procedure, or of a loop, that may be recursive."""

    def __init__(
        self, interpreter: Follower, at: Span | None, code: Lambda, scope: AbstractScope, name: str | None, body: Body
    ) -> None:
        self._i = interpreter
        self._at = at
        self._name = name
        self._body = body
        self._frame = CallFrame(interpreter.next_number(), code, scope, len(interpreter.guards), interpreter.beside)

    def outcome(self, values: list[Value]) -> tuple[Value, Cost]:
        """The result of a call with ``values``, and its effects."""
        notes = self._i.reach.noted()
        value, cost = self._pass(values, NEVER)
        if not self._frame.calls:
            return value, cost
        self._i.reach.forget(notes)
        settled = self._settled(values, value)
        if settled is None:
            _, cost = self._pass([FOREIGN] * len(values), FOREIGN)
            return FOREIGN, self._cost(cost, None)
        final, result, rounds = settled
        _, cost = self._pass(final, result)
        return result, self._cost(cost, rounds)

    # -- passes over the body -------------------------------------------------------------------------------------

    def _pass(self, values: Sequence[Value], result: Value) -> tuple[Value, Cost]:
        frame = self._frame
        frame.calls = []
        frame.result = result
        self._i.frames.append(frame)
        try:
            marked = [
                each.but(marks={**each.marks, (frame.number, at): Mark()}) if not each.never else each
                for at, each in enumerate(values)
            ]
            return self._body(marked)
        finally:
            self._i.frames.pop()

    def _settled(self, values: list[Value], first: Value) -> tuple[list[Value], Value, Rounds | None] | None:
        """The parameters and the result over all rounds, and the number of rounds; None if the passes reach no fixed point.

        Reasons recorded on the way are dropped.
        """
        notes = self._i.reach.noted()
        result = self._clean(first)
        general = list(values)
        value = first
        for number in range(_PASSES):
            before = general, result
            general = [self._general(at, initial) for at, initial in enumerate(values)]
            result = self._clean(result.join(value))
            if number >= _WIDENED and result != before[1]:
                result = result.plain().but(texts=None)  # nested lists, deeper by one with each round
            value, _ = self._pass(general, self._symbolic(result))
            if before == (general, result):
                break
        else:
            self._i.reach.forget(notes)
            return None
        rounds = self._rounds(values)
        final = [self._final(at, initial, rounds) for at, initial in enumerate(values)]
        size = self._result_size(first, value, rounds, final)
        if size is None and first.length is not None:
            size = self._kept_size(values, general, result)
        self._i.reach.forget(notes)
        return final, self._sized(self._clean(result.join(value)), size).but(origins={}), rounds

    def _size_name(self, at: int | str) -> str:
        return f"\0{self._frame.number}.{at}"

    def _own(self, bound: Bound | None) -> bool:
        """Whether a bound depends on sizes of this call."""
        return bound is not None and any(name.startswith(f"\0{self._frame.number}.") for name in bound.sizes)

    def _unchanged(self, at: int) -> bool:
        parameter = (self._frame.number, at)
        return all(call.arguments[at].marks.get(parameter) == Mark() for call in self._frame.calls)

    def _passed(self, at: int) -> list[Value]:
        return [self._clean(call.arguments[at]) for call in self._frame.calls]

    def _general(self, at: int, initial: Value) -> Value:
        """A parameter in any round, with a symbolic size."""
        if self._unchanged(at):
            return initial
        value = joined([initial, *self._passed(at)])
        size = Bound.size(self._size_name(at)) if initial.length is not None else None
        whole = initial.whole and all(each.whole for each in self._passed(at))
        return self._sized(value, size).but(low=None, high=None, exactly=None, whole=whole)

    def _symbolic(self, result: Value) -> Value:
        size = Bound.size(self._size_name("result")) if result.length is not None else None
        return self._sized(result, size).but(low=None, high=None, exactly=None)

    def _sized(self, value: Value, size: Bound | None) -> Value:
        if self._own(value.size) or value.size is not None or value.origins or size is not None:
            return value.but(size=size)
        return value

    def _final(self, at: int, initial: Value, rounds: Rounds | None) -> Value:
        """A parameter in any round, with upper bounds of its size and range."""
        if self._unchanged(at):
            return initial
        general = self._general(at, initial)
        size = self._grown(initial.length, [each.length for each in self._passed(at)], self._size_name(at), rounds)
        value = self._sized(general, size).but(origins=general.origins if size is not None else {})
        deltas = [self._delta(call, at) for call in self._frame.calls]
        steps = [each for each in deltas if each is not None]
        if len(steps) < len(deltas) or (not initial.whole and initial.high is None):
            return value
        low, high = initial.low, initial.high
        if min(steps) < 0:
            low = None
        if max(steps) > 0:
            high = high + rounds.count * Bound.of(max(steps)) if high is not None and rounds is not None else None
        return value.but(low=low, high=high)

    def _grown(
        self, initial: Bound | None, sizes: Sequence[Bound | None], name: str, rounds: Rounds | None
    ) -> Bound | None:
        """An upper bound over all rounds of a size that starts at ``initial`` and changes per round as ``sizes`` say of ``name``."""
        if initial is None:
            return None
        growth, other = ZERO, initial
        for size in sizes:
            parts = None if size is None else size.without(name)
            if parts is None or self._own(parts[1]):
                return None
            factor, rest = parts
            if factor == ONE:
                growth = growth.join(rest)
            elif factor.number is not None and factor.number < 1:
                other = other.join(settles_at(factor.number, rest))
            else:
                return None
        if growth == ZERO:
            return other
        return None if rounds is None else other + rounds.count * growth

    def _result_size(self, first: Value, value: Value, rounds: Rounds | None, final: Sequence[Value]) -> Bound | None:
        base = first.length
        if base is None or self._own(base):
            return None
        replaced = {self._size_name(at): each.length for at, each in enumerate(final) if each.length is not None}
        size = value.length
        if size is not None:
            size = size.replaced(replaced)
        return self._grown(base, [size], self._size_name("result"), rounds)

    def _kept_size(self, values: Sequence[Value], general: Sequence[Value], result: Value) -> Bound | None:
        """The length of a list that bounds the result: a property that holds for a call if it holds for the calls within it."""
        for at, initial in enumerate(values):
            name = self._size_name(at)
            if initial.length is None or general[at].size != Bound.size(name):
                continue
            self._frame.no_longer_than = at
            length = self._pass(general, self._symbolic(result))[0].length
            parts = None if length is None else length.without(name)
            share, more = (None, None) if parts is None else (parts[0].number, parts[1].number)
            if share is not None and more is not None and share <= 1 and more < 1:  # both lengths are integers
                return initial.length
            self._frame.no_longer_than = None
        return None

    def _clean(self, value: Value, depth: int = 0) -> Value:
        """``value`` for another round: without its origin, and without procedures that capture variables of this round."""
        inside = frozenset(each for each in value.procedures if _sees(each, self._frame.scope))
        if depth > _DEEPEST:
            return FOREIGN if value.holds_procedures else DATA
        return value.but(
            procedures=value.procedures - inside,
            foreign=value.foreign or bool(inside),
            item=None if value.item is None else self._clean(value.item, depth + 1),
            fields=None
            if value.fields is None
            else {key: self._clean(each, depth + 1) for key, each in value.fields.items()},
            marks={key: mark for key, mark in value.marks.items() if depth == 0 and key[0] < self._frame.number},
            length_of={},
        )

    # -- rounds ---------------------------------------------------------------------------------------------------

    def _delta(self, call: AgainCall, at: int) -> int | None:
        mark = call.arguments[at].marks.get((self._frame.number, at))
        return None if mark is None else mark.delta

    def _rounds(self, values: Sequence[Value]) -> Rounds | None:
        """An upper bound of recursive calls, from the first parameter that bounds them, preferring a constant bound."""
        calls = self._frame.calls
        if not calls:
            return Rounds(ZERO, sure=True)
        measured = [each for at, initial in enumerate(values) if (each := self._measure(at, initial)) is not None]
        numbers = [each for each in measured if each.count.number is not None]
        return fewest(numbers or measured) or self._in_turn(values)

    def _drops(self, call: AgainCall, at: int) -> bool:
        """Whether a call is given fewer elements of a list than the parameter has."""
        parameter = self._frame.number, at
        mark = call.arguments[at].marks.get(parameter)
        return mark is not None and mark.drop >= 1 and (self._i.rest_of_none_fails or longer(call, parameter) > 0)

    def _in_turn(self, values: Sequence[Value]) -> Rounds | None:
        """The number of rounds where each call shortens one of several lists and lengthens none of them."""
        calls, number = self._frame.calls, self._frame.number
        dropped = [[at for at in range(len(values)) if self._drops(call, at)] for call in calls]
        shortened = sorted({at for each in dropped for at in each})
        lengths = [values[at].elements for at in shortened]
        kept = all((number, at) in call.arguments[at].marks for call in calls for at in shortened)
        if not all(dropped) or not kept:
            return None
        total = ZERO
        for each in lengths:
            if each is None or each.terms is None:
                return None
            total = total + each
        tested = [any(longer(call, (number, at)) > 0 for at in each) for call, each in zip(calls, dropped, strict=True)]
        return Rounds(total, sure=all(tested))

    def _measure(self, at: int, initial: Value) -> Rounds | None:
        calls, parameter = self._frame.calls, (self._frame.number, at)
        marks = [call.arguments[at].marks.get(parameter) for call in calls]
        marked = [mark for mark in marks if mark is not None]
        if len(marked) < len(marks):
            return self._shortened(at, initial)
        if all(mark.drop >= 1 for mark in marked):
            length = initial.elements
            if length is None or length.terms is None or not all(self._drops(call, at) for call in calls):
                return None
            return Rounds(length, sure=all(longer(call, parameter) > 0 for call in calls))
        deltas = [mark.delta for mark in marked if mark.delta is not None]
        if all(mark.divisor >= 2 for mark in marked):
            return self._divided(parameter, initial, min(mark.divisor for mark in marked))
        if len(deltas) < len(marked):
            return self._shortened(at, initial)
        if max(deltas) < 0 or min(deltas) > 0:
            step = min(map(abs, deltas))
            counts = [self._towards(call, parameter, initial, deltas) for call in calls]
            bounded = [each for each in counts if each is not None]
            if len(bounded) < len(counts):
                return None
            most = bounded[0]
            for each in bounded[1:]:
                most = most.join(each)
            tests = [guard for call in calls for guard in call.guards if parameter in guard.marks]
            most = in_steps(most, step, whole=initial.whole and all(guard.bound.whole for guard in tests))
            return None if self._own(most) or most.terms is None else Rounds(most, sure=True)
        return None

    def _divided(self, parameter: Parameter, initial: Value, divisor: int) -> Rounds | None:
        """The number of divisions of a number while it stays above 0."""
        high = initial.high
        if high is None or high.terms is None or self._own(high):
            return None
        least = [least_above_zero(call, parameter, initial) for call in self._frame.calls]
        if None in least:
            return None
        fraction = ZERO if all(least) else Bound.of(_SMALLEST_HALVES)
        tree = high * Bound.of(2) if fraction == ZERO else None
        if high.number is None:
            return Rounds(
                high + fraction, sure=True, tree=tree
            )  # an upper bound of the logarithm of any number of at least 1
        count, left = 0, int(high.number)
        while left > 0:
            count, left = count + 1, left // divisor
        return Rounds(Bound.of(count) + fraction, sure=True, tree=tree)

    def _shortened(self, at: int, initial: Value) -> Rounds | None:
        """The number of times that a list can be shortened by a fraction of it while it keeps the tested minimum length."""
        length, name, calls = initial.elements, self._size_name(at), self._frame.calls
        if length is None or length.terms is None:
            return None
        factor, more = 0.0, 0.0
        for call in calls:
            passed = call.arguments[at].length
            parts = None if passed is None else passed.without(name)
            share, rest = (None, None) if parts is None else (parts[0].number, parts[1].number)
            if share is None or rest is None:
                return None
            factor, more = max(factor, share), max(more, rest)
        least = min(longer(call, (self._frame.number, at)) for call in calls)
        if factor >= 1 or least * (1 - factor) <= more:
            return None
        # A call with at least two elements that calls itself with no more than half of them, rounded up, twice.
        halved = factor <= 0.5 and (more == 0 or (more <= 0.5 and least >= 2))
        tree = length * Bound.of(2) if halved else None
        if length.number is None:
            return Rounds(length, sure=True, tree=tree)
        count, left = 0, int(length.number)
        while left >= least:
            count, left = count + 1, int(left * factor + more)
        return Rounds(Bound.of(count), sure=True, tree=tree)

    def _towards(self, call: AgainCall, parameter: Parameter, initial: Value, deltas: Sequence[int]) -> Bound | None:
        """The number of rounds until the test before the recursive call fails, for a counter."""
        down = deltas[0] < 0
        for guard in call.guards:
            mark = guard.marks.get(parameter)
            if mark is None or mark.delta is None:
                continue
            bound, ahead = guard.bound, mark.delta
            if down and guard.relation in ("above", "least") and bound.low is not None:
                if initial.high is not None:
                    return distance(initial.high, bound.low - ahead) + (ONE if guard.relation == "least" else ZERO)
            elif not down and guard.relation in ("below", "most") and bound.high is not None:
                if initial.low is not None and not self._own(bound.high):
                    return distance(bound.high, initial.low + ahead) + (ONE if guard.relation == "most" else ZERO)
            elif guard.relation == "not" and {*deltas} in ({1}, {-1}) and initial.whole and self._steady(guard):
                start, end = (bound, initial) if down else (initial, bound)
                ordered = surely_below(bound, initial, ahead) if down else surely_below(initial, bound, -ahead)
                comparable = bound.whole and ordered and start.low is not None and end.high is not None
                if comparable and start.low is not None and end.high is not None and not self._own(end.high):
                    return distance(end.high, start.low + (-ahead if down else ahead))
        return None

    def _steady(self, guard: GuardFact) -> bool:
        """Whether the limit of a guard is the same in all rounds."""
        if guard.steady is None:
            return False
        positions = {var: at for at, var in enumerate(self._frame.code.params)}
        return all(
            self._unchanged(positions[var]) if var in positions else self._frame.scope.has(var) for var in guard.steady
        )

    # -- cost -----------------------------------------------------------------------------------------------------

    def _cost(self, cost: Cost, rounds: Rounds | None) -> Cost:
        once: dict[Any, Effects] = {}
        round_: dict[Any, Effects] = {}
        most = 0
        for key, effects in cost.paths.items():
            times = dict(key).get(self._frame.number, 0)
            rest = tuple(each for each in key if each[0] != self._frame.number)
            most = max(most, times)
            where = once if times == 0 else round_
            where[rest] = where[rest].join(effects) if rest in where else effects
        last = Cost(once) if once else FREE
        going = Cost(round_) if round_ else FREE
        who = f"'{self._name}'" if self._name else "the loop"
        tree = rounds.tree if rounds is not None else None
        if rounds is not None and (depth := rounds.count.number) is not None and depth <= _HIGHEST:
            tree = Bound.of(2 ** math.ceil(depth) - 1)
        if most == MANY or (most > 1 and (rounds is None or tree is None)):
            reason = f"{who} calls itself more than once per round"
            return self._i.loose(self._at, reason, last.otherwise(going))
        if rounds is None:
            reason = f"{who} calls itself, but none of its arguments gets smaller"
            return self._i.loose(self._at, reason, going).then(last)
        end = last if rounds.sure else last.otherwise(going)
        count, beside = rounds.count, self._frame.beside
        if most > 1 and tree is not None:
            count, end = tree, end.times(tree + ONE, tree + ONE if beside else ONE)
        return going.times(count, count if beside else ONE).then(end, beside=beside)


def _sees(procedure: Any, outer: AbstractScope) -> bool:
    """Whether a procedure was created within a call of one that was created in ``outer``."""
    scope = getattr(procedure, "scope", None)
    return scope is not None and scope is not outer and scope.inside(outer)
