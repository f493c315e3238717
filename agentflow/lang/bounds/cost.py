"""Upper bounds of the effects of a part of a program, separate for recursive paths and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.lang.bounds.polynomial import ONE, UNBOUNDED, Bound

Again: TypeAlias = tuple[tuple[int, int], ...]
"""The recursive calls on a path: each call on the stack by its number, with 1 or 2 for its count, or 3 for more."""

WIDTH = "width"
"""The key of the number of concurrent effects; all other keys are counts."""
MANY = 3
GROWN = "\1"
"""The prefix of keys that count the growth of lists in a text in Python: these are not effects."""


@frozen
class Effects:
    """Upper bounds by key."""

    counts: Mapping[str, Bound]

    def plus(self, other: Effects, *, beside: bool = False) -> Effects:
        """The sum of both in sequence; or ``beside`` one another, at the same time."""
        if not other.counts:
            return self
        if not self.counts:
            return other
        counts = dict(self.counts)
        other.add_to(counts, beside=beside)
        return Effects(counts)

    def add_to(self, counts: dict[str, Bound], *, beside: bool = False) -> None:
        """Add these effects to ``counts`` of others before them, or ``beside`` them."""
        for key, bound in self.counts.items():
            before = counts.get(key)
            if before is None:
                counts[key] = bound
            elif key == WIDTH and not beside:
                counts[key] = before.join(bound)
            else:
                counts[key] = before + bound

    def join(self, other: Effects) -> Effects:
        """An upper bound of both, key by key."""
        if self is other or not other.counts:
            return self
        counts = dict(self.counts)
        for key, bound in other.counts.items():
            before = counts.get(key)
            counts[key] = bound if before is None else before.join(bound)
        return Effects(counts)

    def times(self, count: Bound, wide: Bound = ONE) -> Effects:
        """The effects repeated ``count`` times, ``wide`` of them at once."""
        if not self.counts or count == ONE:
            return self
        return Effects({key: bound * (wide if key == WIDTH else count) for key, bound in self.counts.items()})


NONE = Effects({})


@frozen
class Cost:
    """The effects of all paths through a part of a program, by the recursive calls on them."""

    paths: Mapping[Again, Effects]

    @property
    def free(self) -> bool:
        """Whether no path has an effect or a recursive call."""
        return not any(self.paths) and not self.total.counts

    @property
    def calls_nothing_again(self) -> bool:
        """Whether no path has a recursive call."""
        return len(self.paths) == 1 and () in self.paths

    @property
    def quiet(self) -> bool:
        """Whether no path has an effect or a recursive call, though lists may grow on it."""
        return not any(self.paths) and all(key.startswith(GROWN) for key in self.total.counts)

    @property
    def total(self) -> Effects:
        """An upper bound of the effects of all paths."""
        if self.calls_nothing_again:
            return self.paths[()]
        whole = NONE
        for effects in self.paths.values():
            whole = whole.join(effects)
        return whole

    def then(self, other: Cost, *, beside: bool = False) -> Cost:
        """The cost of both in sequence; or ``beside`` one another, at the same time."""
        if other is FREE:
            return self
        if self is FREE:
            return other
        if self.calls_nothing_again and other.calls_nothing_again:
            return Cost({(): self.paths[()].plus(other.paths[()], beside=beside)})
        paths: dict[Again, Effects] = {}
        for left, a in self.paths.items():
            for right, b in other.paths.items():
                key = _added(left, right)
                both = a.plus(b, beside=beside)
                paths[key] = paths[key].join(both) if key in paths else both
        return Cost(paths)

    def otherwise(self, other: Cost) -> Cost:
        """The cost of one of both."""
        if self is other:
            return self
        paths = dict(self.paths)
        for key, effects in other.paths.items():
            paths[key] = paths[key].join(effects) if key in paths else effects
        return Cost(paths)

    def times(self, count: Bound | None, wide: Bound = ONE) -> Cost:
        """The cost repeated ``count`` times (None: without an upper bound), ``wide`` of them at once."""
        if self is FREE or self.free:
            return FREE
        if count == ONE:
            return self
        often = UNBOUNDED if count is None else count
        paths: dict[Again, Effects] = {}
        for key, effects in self.paths.items():
            more = tuple((call, MANY) for call, _ in key)
            scaled = effects.times(often, wide)
            paths[more] = paths[more].join(scaled) if more in paths else scaled
        return Cost(paths)


FREE = Cost({(): NONE})


def in_sequence(costs: Sequence[Cost]) -> Cost:
    """The total cost of all, in sequence: as with :meth:`Cost.then`, without intermediate objects."""
    if len(costs) > 1 and all(each.calls_nothing_again for each in costs):
        counts: dict[str, Bound] = {}
        for each in costs:
            each.paths[()].add_to(counts)
        return Cost({(): Effects(counts)}) if counts else FREE
    cost = FREE
    for each in costs:
        cost = cost.then(each)
    return cost


def _added(left: Again, right: Again) -> Again:
    if not left or not right:
        return left or right
    counts = dict(left)
    for call, times in right:
        counts[call] = min(MANY, counts.get(call, 0) + times)
    return tuple(sorted(counts.items()))


def again(call: int) -> Cost:
    """The cost of a recursive call: that of ``call``, which is on the stack."""
    return Cost({((call, 1),): NONE})
