"""The search: chooses the answers to try next, and interprets the runs.

It starts with the simplest answers and changes one decision at a time, or one for all answers of a name. The next script is a
change to a run that reached something new, simplest changes first. Nothing is random.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.data.source import Span
from agentflow.exploration.findings import Exploration, Finding, in_order, shortened
from agentflow.exploration.rehearsal import EFFECTS, STEPS, Rehearsal, Trial
from agentflow.exploration.stand_ins import ANOTHER, Choice, ChosenAnswers, Point, Script

RUNS = 300
SURE_EFFECTS = 600
SURE_STEPS = 500_000
"""Multiples of the limits granted to a run once more before it counts as endless."""
_EFFECTS_A_RUN = 9
"""Average limits per run: many endless runs reveal no more than a few."""
_ALIKE = 12
_ALIKE_ENDLESS = 3
"""Maximum number of answers of a name that are changed individually, in a run and in an endless one; more reveal little."""
_NEVER_LIVE = 3
_LAST = 12
"""The loss of priority per try of a change if its decision made no difference yet, and the number of ranks beyond the last option."""
_ANOTHER_RANK = 2
"""The rank of answers that all differ from each other."""
_DOUBTS = 5
"""Maximum number of loops examined this way."""
_OWN = frozenset({"program/error", "program/raised"})
"""Codes of errors that a program raises itself."""
_WORD = re.compile(r"[\s()].*", re.DOTALL)
"""The part of a call after the name at its head, in either surface."""
_FAILURES = frozenset({"context/failed", "timeout/elapsed", "task/invalid-output", "question/unanswered"})
"""Codes of failures that are faults of the program only if unhandled."""


_Change: TypeAlias = tuple[Point, int]
"""A decision, and the option taken."""


class _Key(NamedTuple):
    """The identity of a finding."""

    kind: str
    code: str
    start: int


@dataclass(slots=True)
class _Run:
    """A finished run: its script, the decisions made in it, and its outcome."""

    script: Script
    chosen: ChosenAnswers
    trial: Trial

    @property
    def trace(self) -> object:
        """The course of a run, apart from its values."""
        error = self.trial.error
        return (
            dict(self.trial.reached),
            [(each.name, each.branch) for each in self.chosen.answers],
            None if error is None else (error.code, error.span),
        )

    @property
    def length(self) -> tuple[int, int]:
        """The order of runs by length: fewer answers first, then fewer changes."""
        return len(self.chosen.answers), len(self.script)


class _Parent:
    """A run with changes to try: ``novelty`` is 0 if it reached something new, else 1; ``most`` is the highest rank of its changes.

    The rank of a change is the index of its option: 0 is the simplest.
    """

    def __init__(self, run: _Run, novelty: int) -> None:
        self.run = run
        self.novelty = novelty
        choices = run.chosen.choices
        goods = [choice.point.for_good for choice in choices]
        often = Counter(goods)
        most = _ALIKE_ENDLESS if isinstance(run.trial.error, LimitExceeded) else _ALIKE
        seen: Counter[Point] = Counter()
        self._good = {good: choice.options for good, choice in zip(goods, choices, strict=True)}
        self._single: list[tuple[Choice, Point]] = []
        for choice, good in zip(choices, goods, strict=True):
            seen[good] += 1
            if often[good] > 1 and seen[good] <= most:
                self._single.append((choice, good))
        self.most = max([options - 1 for options in self._good.values()], default=-1) + _LAST
        self._yielded: set[_Change] = set()
        self._repeated = frozenset([good for good, count in often.items() if count > 1])

    def changes(self, rank: int, penalty: Callable[[_Change], int]) -> Iterator[tuple[Script, _Change]]:
        """Scripts of at most ``rank`` that differ from the run's script in one decision, with that decision; each is yielded once.

        ``penalty`` returns how much earlier tries of a change raise its rank.
        """
        script = self.run.script
        for good, options in self._good.items():
            for taken in (*range(min(options, rank + 1)), *self._another(good, rank)):
                change = good, taken
                if change not in self._yielded and taken + penalty(change) <= rank:
                    self._yielded.add(change)
                    others = {point: each for point, each in script.items() if point.for_good != good}
                    yield ({**others, good: taken} if taken else others), change
        for choice, good in self._single:
            for taken in range(min(choice.options, rank + 1)):
                change, alike = (choice.point, taken), (good, taken)
                if taken != choice.taken and change not in self._yielded and taken + penalty(alike) <= rank:
                    self._yielded.add(change)
                    yield {**script, choice.point: taken}, alike

    def _another(self, good: Point, rank: int) -> tuple[int, ...]:
        """The option "all different" for the answers of a name, if there are several of them with many options."""
        return (ANOTHER,) if rank >= _ANOTHER_RANK and good in self._repeated and self._good[good] > 2 else ()


async def explore(rehearsal: Rehearsal, runs: int = RUNS, stopped: Callable[[], bool] = lambda: False) -> Exploration:
    """Explore a program in at most ``runs`` runs, and a few more to shorten the findings. ``stopped`` is polled between runs."""
    return await _Search(rehearsal, stopped).explore(runs)


class _Search:
    def __init__(self, rehearsal: Rehearsal, stopped: Callable[[], bool]) -> None:
        self._rehearsal = rehearsal
        self._stopped = stopped
        self._queue: list[tuple[int, int, int, int, _Parent]] = []
        self._pushed = 0
        self._tries: Counter[_Change] = Counter()
        self._idle: Counter[_Change] = Counter()
        self._live: set[Point] = set()
        self._from: tuple[_Run, _Change] | None = None
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
            self._compare(run)
            if is_new or not isinstance(run.trial.error, LimitExceeded):
                self._push(_Parent(run, 0 if is_new else 1), 0)
            await asyncio.sleep(0)
            script = self._next()
        findings = [await self._finding(key, run) for key, run in self._shortest.items()]
        arms = self._rehearsal.arms
        shown = [arm for arm in arms if arm.kind != "round"]
        missed = [arm for number, arm in enumerate(arms) if number not in self._reached and arm.kind != "round"]
        return Exploration(
            in_order(findings), tuple(shown), tuple(missed), self.runs, self._rehearsal.values.assumptions.warnings
        )

    def _compare(self, run: _Run) -> None:
        """Note whether the change that a run was made by made a difference."""
        if self._from is None:
            return
        parent, change = self._from
        if run.trace == parent.trace:
            self._idle[change] += 1
        else:
            self._tries[change] += 1
            self._live.add(change[0])

    def _push(self, parent: _Parent, rank: int) -> None:
        """Queue the changes of a run up to ``rank``."""
        self._pushed += 1
        heapq.heappush(self._queue, (parent.novelty, rank, len(parent.run.script), self._pushed, parent))

    def _next(self) -> Script | None:
        """The next script not tried yet; None if there is none."""
        while self._queue:
            _, rank, _, _, parent = self._queue[0]
            for script, change in parent.changes(rank, self._penalty):
                key = frozenset(script.items())
                if key not in self._tried:
                    self._tried.add(key)
                    self._from = parent.run, change
                    return script
            heapq.heappop(self._queue)
            if rank < parent.most:
                self._push(parent, rank + 1)
        return None

    def _penalty(self, change: _Change) -> int:
        """The loss of priority of a change from earlier tries, in any run.

        A try without a difference says little about runs that continue differently, unless no change of this decision ever made one.
        """
        idle = self._idle[change]
        return self._tries[change] + (idle if change[0] in self._live else _NEVER_LIVE * idle)

    async def _run(self, script: Script, steps: int = STEPS, effects: int = EFFECTS) -> _Run:
        self.runs += 1
        chosen = ChosenAnswers(script, self._rehearsal.values, self._rehearsal.constants.deadlines)
        return _Run(script, chosen, await self._rehearsal.run(chosen, steps=steps, effects=effects))

    async def _learn(self, run: _Run) -> bool:
        """Record the results of a run; whether any of them is new."""
        before = len(self._reached), len(self._shortest)
        self._reached.update(run.trial.reached)
        key = await self._key(run)
        if key is not None:
            shortest = self._shortest.get(key)
            if shortest is None or run.length < shortest.length:
                self._shortest[key] = run
            error = run.trial.error
            if error is not None and error.span is not None:
                self._places.setdefault(key, {})[error.span] = None
        return (len(self._reached), len(self._shortest)) != before

    async def _key(self, run: _Run) -> _Key | None:
        """The finding that a run shows; None if there is none."""
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
        """The index of the loop that does not end; None if it ends after all, or there is none."""
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
        """A finding with its shortest run, without the changes that it does not need."""
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
            message = f"{who} does not give JSON" if error.code == "task/invalid-output" else f"{who} fails"
            if error.code == "timeout/elapsed":
                message = "a time-out expires"
            return replace(finding, kind="unhandled", message=message, places=places, who=who)
        return finding


def _is_active(loop: Span | None, error: AgentflowError | None) -> bool:
    """Whether an error interrupted code within a loop or procedure."""
    if loop is None or error is None:
        return False
    spans = [error.span, *(frame.span for frame in error.frames)]
    return any([span is not None and loop.start <= span.start < loop.end for span in spans])


def _who_failed(error: AgentflowError) -> str | None:
    """The name of the effect that failed without being handled; None if the error is the program's own."""
    who: Any = error.details.get("rehearsed")
    if who is not None:
        return str(who)
    if error.code not in _FAILURES and error.reason != "output_format_failure":
        return None
    if error.span is None:
        return error.code
    return _WORD.sub("", error.span.text.lstrip("(")) or error.code
