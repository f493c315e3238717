"""The search: which answers to try next, and what their runs show.

It begins with the plainest answers and changes one choice at a time, or one for good in all answers of a name. What is tried next
is a change of a run that reached something new, in the order of how plain the change is. Nothing is random.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from agentflow.core.errors import AgentflowError, LimitExceeded
from agentflow.core.source import Span
from agentflow.exploration.answers import ANOTHER, Choice, ChosenAnswers, Point, Script
from agentflow.exploration.findings import Exploration, Finding, in_order, shortened
from agentflow.exploration.rehearsal import EFFECTS, STEPS, Rehearsal, Trial

RUNS = 300
SURE_EFFECTS = 600
SURE_STEPS = 500_000
"""What a run that does not end is given once more before it is said to have no end."""
_EFFECTS_A_RUN = 12
"""What runs may take on average: many that do not end tell no more than a few."""
_ALIKE = 12
_ALIKE_ENDLESS = 3
"""How many answers of a name are changed one by one, in a run and in one that does not end: more of them tell little more."""
_RETRIED = 2
_LAST = 12
"""How much lower a change ranks for each time it was tried, and how far beyond the last option ranks go."""
_ANOTHER_RANK = 2
"""The rank of answers that are each another."""
_DOUBTS = 5
"""Loops that are looked at so."""
_OWN = frozenset({"program/error", "program/raised"})
"""Codes of what a program raises itself."""
_FAILURES = frozenset({"context/failed", "timeout/elapsed", "task/invalid-output", "question/unanswered"})
"""Codes of failures that are no mistake of the program but for not being handled."""


class _Key(NamedTuple):
    """What tells findings apart."""

    kind: str
    code: str
    start: int


@dataclass(slots=True)
class _Run:
    """A run that was made: its script, what was chosen in it, and what came of it."""

    script: Script
    chosen: ChosenAnswers
    trial: Trial

    @property
    def length(self) -> tuple[int, int]:
        """The shortest run is the one with the fewest answers, then the fewest changes."""
        return len(self.chosen.answers), len(self.script)


class _Parent:
    """A run whose changes are tried: ``novelty`` is 0 if it reached something new, else 1; ``most`` is the highest rank of a change.

    The rank of a change is how far down its options the choice is: 0 is the plainest.
    """

    def __init__(self, run: _Run, novelty: int) -> None:
        self.run = run
        self.novelty = novelty
        choices = run.chosen.choices
        often = Counter([choice.point.for_good for choice in choices])
        most = _ALIKE_ENDLESS if isinstance(run.trial.error, LimitExceeded) else _ALIKE
        seen: Counter[Point] = Counter()
        self._good = {choice.point.for_good: choice.options for choice in choices}
        self._single: list[Choice] = []
        for choice in choices:
            good = choice.point.for_good
            seen[good] += 1
            if often[good] > 1 and seen[good] <= most:
                self._single.append(choice)
        self.most = max([options - 1 for options in self._good.values()], default=-1) + _LAST
        self._yielded: set[tuple[Point, int]] = set()
        self._repeated = frozenset([good for good, count in often.items() if count > 1])

    def changes(self, rank: int, tries: Counter[tuple[Point, int]]) -> Iterator[tuple[Script, tuple[Point, int]]]:
        """The scripts of at most this rank that differ from that of the run in one choice, each once, and what is changed.

        A change that was tried in other runs ranks lower by :data:`_RETRIED` for each time.
        """
        script = self.run.script
        for good, options in self._good.items():
            for taken in (*range(min(options, rank + 1)), *self._another(good, rank)):
                change = good, taken
                if change not in self._yielded and taken + _RETRIED * tries[change] <= rank:
                    self._yielded.add(change)
                    others = {point: each for point, each in script.items() if point.for_good != good}
                    yield ({**others, good: taken} if taken else others), change
        for choice in self._single:
            for taken in range(min(choice.options, rank + 1)):
                change = choice.point, taken
                alike = choice.point.for_good, taken
                if taken != choice.taken and change not in self._yielded and taken + _RETRIED * tries[alike] <= rank:
                    self._yielded.add(change)
                    yield {**script, choice.point: taken}, alike

    def _another(self, good: Point, rank: int) -> tuple[int, ...]:
        """Whether the answers of a name may each be another: where there are several, of many options."""
        return (ANOTHER,) if rank >= _ANOTHER_RANK and good in self._repeated and self._good[good] > 2 else ()


async def explore(rehearsal: Rehearsal, runs: int = RUNS, stopped: Callable[[], bool] = lambda: False) -> Exploration:
    """Explore a program in at most ``runs`` runs, and a few to shorten what is found. ``stopped`` is asked between them."""
    return await _Search(rehearsal, stopped).explore(runs)


class _Search:
    def __init__(self, rehearsal: Rehearsal, stopped: Callable[[], bool]) -> None:
        self._rehearsal = rehearsal
        self._stopped = stopped
        self._queue: list[tuple[int, int, int, int, _Parent]] = []
        self._pushed = 0
        self._tries: Counter[tuple[Point, int]] = Counter()
        self._tried: set[frozenset[tuple[Point, int]]] = {frozenset()}
        self._reached: set[int] = set()
        self._shortest: dict[_Key, _Run] = {}
        self._places: dict[_Key, dict[Span, None]] = {}
        self._ends: set[int] = set()
        self._endless: set[int] = set()
        self.runs = 0

    async def explore(self, runs: int) -> Exploration:
        effects = 0
        script: Script | None = {}
        while script is not None and self.runs < runs and effects < runs * _EFFECTS_A_RUN and not self._stopped():
            run = await self._run(script)
            effects += run.trial.effects
            is_new = await self._learn(run)
            if is_new or not isinstance(run.trial.error, LimitExceeded):
                self._push(_Parent(run, 0 if is_new else 1), 0)
            await asyncio.sleep(0)
            script = self._next()
        found = [await self._finding(key, run) for key, run in self._shortest.items()]
        arms = self._rehearsal.arms
        shown = [arm for arm in arms if arm.kind != "round"]
        missed = [arm for number, arm in enumerate(arms) if number not in self._reached and arm.kind != "round"]
        return Exploration(in_order(found), tuple(shown), tuple(missed), self.runs)

    def _push(self, parent: _Parent, rank: int) -> None:
        """Have the changes of a run of this rank tried in their turn."""
        self._pushed += 1
        heapq.heappush(self._queue, (parent.novelty, rank, len(parent.run.script), self._pushed, parent))

    def _next(self) -> Script | None:
        """The next script that was not tried yet; None if there is none."""
        while self._queue:
            _, rank, _, _, parent = self._queue[0]
            for script, change in parent.changes(rank, self._tries):
                key = frozenset(script.items())
                if key not in self._tried:
                    self._tried.add(key)
                    self._tries[change] += 1
                    return script
            heapq.heappop(self._queue)
            if rank < parent.most:
                self._push(parent, rank + 1)
        return None

    async def _run(self, script: Script, steps: int = STEPS, effects: int = EFFECTS) -> _Run:
        self.runs += 1
        chosen = ChosenAnswers(script, self._rehearsal.values, self._rehearsal.constants.deadlines)
        return _Run(script, chosen, await self._rehearsal.run(chosen, steps=steps, effects=effects))

    async def _learn(self, run: _Run) -> bool:
        """Note what a run shows; whether any of it is new."""
        before = len(self._reached), len(self._shortest)
        self._reached.update(run.trial.reached)
        key = await self._key(run)
        if key is not None:
            known = self._shortest.get(key)
            if known is None or run.length < known.length:
                self._shortest[key] = run
            error = run.trial.error
            if error is not None and error.span is not None:
                self._places.setdefault(key, {})[error.span] = None
        return (len(self._reached), len(self._shortest)) != before

    async def _key(self, run: _Run) -> _Key | None:
        """What a run comes to that is worth saying; None if nothing is."""
        error = run.trial.error
        if error is None:
            return None
        if isinstance(error, LimitExceeded) and error.limit in ("steps", "effects"):
            loop = await self._endless_loop(run)
            return None if loop is None else _Key("endless", "", self._rehearsal.arms[loop].span.start)
        who = _who_failed(error)
        if who is not None:
            return _Key("unhandled", who, -1)
        if error.code in _OWN:
            return None
        return _Key("error", error.code, error.span.start if error.span is not None else -1)

    async def _endless_loop(self, run: _Run) -> int | None:
        """The loop that does not end; None if it does, later, or there is none."""
        arms = self._rehearsal.arms
        rounds = {arm: count for arm, count in run.trial.reached.items() if arms[arm].kind == "round"}
        if not rounds:
            return None
        active = {arm: count for arm, count in rounds.items() if _is_active(arms[arm].loop, run.trial.error)}
        loop = max(active or rounds, key=lambda arm: rounds[arm])
        if loop in self._endless:
            return loop
        if loop in self._ends or len(self._ends) >= _DOUBTS:
            return None
        again = await self._run(run.script, SURE_STEPS, SURE_EFFECTS)
        (self._endless if isinstance(again.trial.error, LimitExceeded) else self._ends).add(loop)
        return loop if loop in self._endless else None

    async def _finding(self, key: _Key, run: _Run) -> Finding:
        """A finding with its shortest run, without changes that it does not need."""
        for point in sorted(run.script, key=str):
            shorter = await self._run({each: taken for each, taken in run.script.items() if each != point})
            if await self._key(shorter) == key:
                run = shorter
        error, chosen = run.trial.error, run.chosen
        assert error is not None
        deciding = [(answer, places) for answer, places in zip(chosen.answers, chosen.changed, strict=True) if places]
        finding = Finding(
            "error",
            error.code,
            error.message,
            error.span,
            tuple(chosen.answers),
            tuple([shortened(answer, places) for answer, places in deciding]),
            frozenset([point.name for point, taken in run.script.items() if point.number is None and taken != ANOTHER]),
            error,
        )
        places = tuple(self._places.get(key, {}))
        if key.kind == "endless":
            span = next(arm.span for arm in self._rehearsal.arms if arm.kind == "round" and arm.span.start == key.start)
            return replace(finding, kind="endless", span=span, effects=run.trial.effects)
        if key.kind == "unhandled":
            who = key.code
            message = f"{who} gives no JSON" if error.code == "task/invalid-output" else f"{who} fails"
            if error.code == "timeout/elapsed":
                message = "a time-out is over"
            return replace(finding, kind="unhandled", message=message, places=places, who=who)
        return finding


def _is_active(loop: Span | None, error: AgentflowError | None) -> bool:
    """Whether what an error interrupted was within a loop, or a procedure."""
    if loop is None or error is None:
        return False
    spans = [error.span, *(frame.span for frame in error.frames)]
    return any([span is not None and loop.start <= span.start < loop.end for span in spans])


def _who_failed(error: AgentflowError) -> str | None:
    """Whose failure an error is that the program did not handle; None if it is an error of the program."""
    who: Any = error.details.get("rehearsed")
    if who is not None:
        return str(who)
    if error.code not in _FAILURES and error.reason != "output_format_failure":
        return None
    if error.span is None:
        return error.code
    word = error.span.text.lstrip("(").split(None, 1)
    return word[0].rstrip(")") if word else error.code


__all__ = ["RUNS", "SURE_EFFECTS", "SURE_STEPS", "explore"]
