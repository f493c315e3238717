"""The forecast of an evaluation: which calls are reused, which run, and their cost, before the first call."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

from agentflow.core.call.spending import BATCHED
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import total
from agentflow.core.data.messages import Batching
from agentflow.core.data.source import Source
from agentflow.core.events.journal_rows import EffectRow, RunRow
from agentflow.core.ports.batch_ports import BatchProvider
from agentflow.durable.dry_replay import Action
from agentflow.durable.dry_samples import DryEnd, dry_sample
from agentflow.durable.pool import Pool
from agentflow.durable.runs import DurableRuns
from agentflow.durable.samples import SampleEnd, plain_row
from agentflow.durable.stored_input import PythonProgram
from agentflow.evals.cases import Case
from agentflow.evals.evaluation import Evaluation, Plan, Subject
from agentflow.evals.figures import check_variant
from agentflow.evals.forms import aligned
from agentflow.evals.judges import Judge
from agentflow.evals.scoring import ModelQuestion, is_function, name_of
from agentflow.flow.python_functions import TaskFunction
from agentflow.handler.batched_model import batch_model
from agentflow.lang.program import Program
from agentflow.run.engine import Engine
from agentflow.run.purses import Purse
from agentflow.run.run_spec import RunSpec

JUDGES = "judges"
"""The name of the part of a forecast for judges."""


@frozen(kw_only=True)
class ForecastPart:
    """The forecast of one variant, of the judges, or of all.

    Of the model calls of ``samples`` samples, ``reused`` come from kept answers and records; ``runs`` are made;
    ``may_run`` depend on their answers. A call that several variants or draws share is made once, and reused by the others.
    ``about`` is the cost of the same tasks before, for the calls that run or may run, and ``at_most`` a static bound at the
    longest inputs and answers, both in US dollars; None if unknown. ``ended`` samples
    have a first call without an earlier answer: the calls after it are not counted.
    """

    name: str
    samples: int
    reused: int
    runs: int
    may_run: int
    about: float | None
    at_most: float | None
    ended: int = 0


@frozen(kw_only=True)
class Forecast:
    """The calls of an evaluation and their cost. ``forecast["short"]`` is the part of a variant, ``forecast.judges`` that of the judges.

    ``all`` is the sum. Its ``at_most`` is the lesser of the static bound and ``limit_usd``, the limit of the evaluation in US dollars;
    None if there is neither. With ``batch`` the calls are made in batches, where their provider has them: ``about`` is at the price of batches,
    ``at_most`` at that of ordinary calls, as which those without an answer are made. ``repeats`` is the part of ``about`` for the draws after the first. ``print(forecast)`` is a table.
    """

    variants: tuple[ForecastPart, ...]
    judges: ForecastPart
    all: ForecastPart
    cases: int
    repeat: int
    repeats: float | None = 0.0
    limit_usd: float | None = None
    batch: bool = False

    def __getitem__(self, name: str) -> ForecastPart:
        parts = {each.name: each for each in self.variants}
        check_variant(name, tuple(parts))
        return parts[name]

    @property
    def free(self) -> bool:
        """Whether no call runs, and none may."""
        return not (self.all.runs or self.all.may_run or self.all.ended)

    def to_dict(self) -> dict[str, Any]:
        """The forecast as JSON data."""
        parts = [
            {each.name: getattr(part, each.name) for each in fields(part)} for part in (*self.variants, self.judges)
        ]
        whole = {each.name: getattr(self.all, each.name) for each in fields(self.all)}
        return {
            **whole,
            "parts": parts,
            "cases": self.cases,
            "repeat": self.repeat,
            "repeats": self.repeats,
            "batch": self.batch,
        }

    def __str__(self) -> str:
        parts = [*self.variants, *([self.judges] if self.judges.samples else []), self.all]
        draws = f", {self.repeat} draws each" if self.repeat > 1 else ""
        head = ["variant", "samples", "reuses", "runs", "may run", "about", "at most"]
        lines = [f"Forecast in model calls: {self.cases} cases{draws}", "", *aligned([head, *map(self._row, parts)])]
        if self.repeat > 1:
            lines += ["", f"Draws 2 to {self.repeat}: about {_usd(self.repeats)} of it"]
        if self.batch:
            lines += [
                "",
                "About: at the price of batches. At most: as if no batch answered, and all calls were ordinary ones",
            ]
        if self.all.ended:
            lines += [
                "",
                f"{self.all.ended} samples have a call without an earlier answer: the calls after it are not counted",
            ]
        return "\n".join(lines)

    def _row(self, part: ForecastPart) -> list[str]:
        most = "no bound" if self.limit_usd is None else "no bound: stops at the limit"
        numbers = [str(part.samples), str(part.reused), str(part.runs), str(part.may_run)]
        return [part.name, *numbers, _usd(part.about), most if part.at_most is None else _usd(part.at_most)]


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.4f}"


class _Counts:
    """The counts of one part. ``unpriced`` are the names and actions of calls that have no earlier one at their place, each with the part
    of the ordinary price that it costs."""

    def __init__(self) -> None:
        self.samples = self.reused = self.runs = self.may_run = self.ended = 0
        self.costs: list[float | None] = []
        self.most: list[float | None] = []
        self.unpriced: list[tuple[str, Action, float]] = []

    def add(self, action: Action, calls: int, cost: float | None) -> None:
        """Count model calls that run or may run."""
        if action == "run":
            self.runs += calls
        else:
            self.may_run += calls
        self.costs.append(cost)

    def unknown(self, action: Action, name: str, price: float) -> None:
        """Count a call of this task, or judge, without a bound; ``price`` is the part of the ordinary price that it costs."""
        self.unpriced.append((name, action, price))


class Forecaster(Evaluation):
    """Forecasts an evaluation; ``bounds`` computes those of programs, as ``flow.bounds``."""

    def __init__(
        self, engine: Engine, runs: DurableRuns, ask: Callable[..., Any], plan: Plan, bounds: Callable[..., Any]
    ) -> None:
        super().__init__(engine, runs, ask, plan)
        self._ask = ask
        self._bounds = bounds
        self._static: dict[tuple[str, str], float | None] = {}
        self._seen: defaultdict[str, list[EffectRow]] = defaultdict(list)
        """The effects of the samples of each case; their values serve as old ones for its later samples."""
        self._made: set[tuple[Any, ...]] = set()
        """The calls made once for all samples: by their keys, and those that may run by the keys that they depend on, too."""
        self._prices: defaultdict[str, list[tuple[int, float | None]]] = defaultdict(list)
        """The model calls and US dollars of each earlier call of a task, by name."""
        self._tallies: defaultdict[tuple[str, int], _Counts] = defaultdict(_Counts)

    def _opened_purse(self) -> Purse | None:
        return None

    async def forecast(self) -> Forecast:
        """Replay all samples dry. Raises ConfigurationError as :meth:`report`."""
        waiting = list(reversed(self._plan.cases))

        async def work() -> None:
            while waiting:
                await self._foresee(waiting.pop())

        async with asyncio.TaskGroup() as group:
            for number in range(max(1, min(self._plan.concurrency, len(waiting)))):
                group.create_task(work(), name=f"forecast {number}")
        names = [each.name for each in self._subjects]
        parts = {name: [part for (each, _), part in self._tallies.items() if each == name] for name in (*names, JUDGES)}
        variants = tuple([self._part(name, parts[name]) for name in names])
        judges = self._part(JUDGES, parts[JUDGES])
        whole = self._part("all", list(self._tallies.values()))
        limit = None if self._plan.limits is None else self._plan.limits.usd
        most = [each for each in (whole.at_most, limit) if each is not None]
        later = [part for (_, draw), part in self._tallies.items() if draw > 0]
        return Forecast(
            variants=variants,
            judges=judges,
            all=replace(whole, samples=sum([each.samples for each in variants]), at_most=min(most, default=None)),
            cases=len(self._plan.cases),
            repeat=self._plan.repeat,
            repeats=self._part("repeats", later).about,
            limit_usd=limit,
            batch=self._plan.batch is not False,
        )

    # -- samples --------------------------------------------------------------------------------------------------------

    async def _foresee(self, case: Case) -> None:
        """Replay the samples of a case, the baseline first, and then ask for the verdicts of judges."""
        record = await self._record(case)
        ends: dict[tuple[str, int], SampleEnd] = {}
        for draw in range(self._plan.repeat):
            for subject in self._subjects:
                end = ends[subject.name, draw] = await self._end(case, record, subject, draw)
                tally = self._tallies[subject.name, draw]
                tally.samples += 1
                if not isinstance(end, DryEnd):
                    tally.reused += end.usage.requests
        for (name, draw), end in ends.items():
            rival = ends[self._baseline, draw] if self._before is None else self._before.end(case, draw)
            await self._judge(case, name, draw, end, rival)

    async def _carried_out(
        self,
        case: Case,
        row: RunRow,
        program: Program | PythonProgram,
        bindings: Mapping[str, Any],
        subject: Subject,
        draw: int,
        rows: Sequence[EffectRow] = (),
    ) -> SampleEnd:
        old = [*rows, *self._seen[row.run]]
        end = await dry_sample(
            self._runs.samples,
            row,
            program,
            self._spec(case, bindings, subject, draw),
            rows=rows,
            tasks=subject.tasks,
            draw=subject.number(draw),
            anew=self._anew,
            old=old,
        )
        tally = self._tallies[subject.name, draw]
        self._count(tally, end, old, lambda name: self._price(name, subject))
        tally.most.append(0.0 if end.answered else await self._static_bound(subject, program, bindings))
        here = [replace(each.row, path=each.path) for each, _ in end.effects if each.fits and each.row is not None]
        self._seen[row.run] += here
        return end

    def _count(self, tally: _Counts, end: DryEnd, old: Sequence[EffectRow], price: Callable[[str], float]) -> None:
        """Count the calls of a dry sample; ``old`` are the records with their costs, ``price`` is :meth:`_price` for a name."""
        tally.ended += end.status == "open"
        spent = Pool(old).ordinary
        changed = frozenset([effect.key for effect, action in end.effects if action == "run"])
        for effect, action in end.effects:
            calls, cost = 0, cast("float | None", 0.0)
            if effect.row is not None:
                usage, cost = spent(effect.row)
                calls = usage.requests
                if effect.kind in _ASKING:
                    self._prices[effect.name].append((calls, cost))
            call = (effect.key, action, None if action == "run" else (effect.path, changed))
            shared = effect.key is not None and (action == "run" or None not in changed)
            if action == "reused" or (shared and call in self._made):
                tally.reused += calls if effect.row is not None else 1
                continue
            self._made.add(call)
            if effect.row is not None:
                tally.add(action, calls, None if cost is None else cost * price(effect.name))
            elif effect.kind in _ASKING:
                tally.unknown(action, effect.name, price(effect.name))

    def _price(self, name: str, subject: Subject) -> float:
        """The part of the ordinary price that the calls of a task cost: less in batches."""
        compiled = self._engine.tasks.find_compiled(name, subject.tasks)
        if compiled is None:
            return self._batched(self._plan.batch, None)
        template = compiled.template
        return self._batched(self._plan.batch if template.batch is None else template.batch, template.model)

    def _batched(self, batch: Batching, model: str | None) -> float:
        router = self._engine.router
        if not batch or router is None:
            return 1.0
        try:
            adapter, _, _ = batch_model(router, model)
        except AgentflowError:  # its calls will raise it
            return 1.0
        return BATCHED if isinstance(adapter, BatchProvider) and adapter.batches is not None else 1.0

    async def _static_bound(
        self, subject: Subject, program: Program | PythonProgram, bindings: Mapping[str, Any]
    ) -> float | None:
        """The most that one sample may cost, in US dollars; None without a bound."""
        source, fixed = program.source, (subject.name, program.source.digest)
        if is_function(self._plan.answer):
            return None  # a task plays the person, as often as it is asked
        if fixed in self._static:
            return self._static[fixed]
        if isinstance(program, PythonProgram):
            name = program.target.name
            if not isinstance(cast(object, program.target), TaskFunction):
                return None
            source = Source.of(name, f"({name} {' '.join([f'({each} {each})' for each in bindings])})")
        elif subject.overrides and ("defatom" in source.text or "@task" in source.text):
            return None  # an override may be of a task that the text defines
        try:
            bounds = await self._bounds(source, bindings=bindings, limits=self._plan.limits, defined=subject.tasks)
        except AgentflowError:
            return None
        authority = bounds.authority  # the work of tools is in no bound
        holds = authority.complete and not (authority.tools or bounds.unbounded or bounds.by_data or bounds.sizes)
        return bounds.usd.at({}) if holds else None

    # -- judges ---------------------------------------------------------------------------------------------------------

    async def _judge(self, case: Case, name: str, draw: int, end: SampleEnd, rival: SampleEnd) -> None:
        """Count the calls of the judges of one sample: asked for where the answer is certain."""
        certain = not isinstance(end, DryEnd) or end.answered
        if certain and end.status != "done":
            return
        compared = not isinstance(rival, DryEnd) or rival.answered
        tally = self._tallies[JUDGES, draw]
        for scorer in (*self._plan.scorers, *case.scorers):
            if is_function(scorer):
                tally.samples += 1
                tally.unknown("may run", name_of(scorer), 1.0)
                tally.most.append(None)
            elif isinstance(scorer, Judge):
                if scorer.pairwise and (name == self._baseline or (compared and rival.status != "done")):
                    continue
                tally.samples += 1
                prompts = [scorer.prompt(case, end.value)]
                if scorer.pairwise:
                    pairs = ((end.value, rival.value), (rival.value, end.value))
                    prompts = [scorer.prompt(case, one, other) for one, other in pairs]
                for prompt in prompts:
                    if certain and (compared or not scorer.pairwise):
                        await self._verdict(tally, scorer, prompt)
                    else:
                        tally.unknown("may run", scorer.name, self._batched(self._plan.batch, scorer.model))
                        tally.most.append(None)

    async def _verdict(self, tally: _Counts, judge: Judge, prompt: str) -> None:
        """Look for the kept verdict of a judge."""
        settings = {} if judge.model is None else {"model": judge.model}
        question = ModelQuestion(judge.name, lambda: self._ask(prompt, output=judge.verdict, **settings))
        program = PythonProgram(question)
        row = plain_row(f"{self._id}.score", program.source.name, program.source.text)
        spec = RunSpec(bindings={}, attended=False)
        end = await dry_sample(self._runs.samples, row, program, spec, tasks=self._subjects[0].tasks, anew=self._anew)
        renamed = [(replace(effect, name=judge.name), action) for effect, action in end.effects]
        price = self._batched(self._plan.batch, judge.model)
        self._count(tally, replace(end, effects=renamed, status="done"), (), lambda _: price)
        tally.most.append(0.0 if end.answered else None)

    # -- sums -----------------------------------------------------------------------------------------------------------

    def _part(self, name: str, tallies: Sequence[_Counts]) -> ForecastPart:
        runs, may_run = sum([each.runs for each in tallies]), sum([each.may_run for each in tallies])
        costs = [cost for each in tallies for cost in each.costs]
        for task, action, price in [call for each in tallies for call in each.unpriced]:
            calls, cost = self._usual(task)
            runs, may_run = (runs + calls, may_run) if action == "run" else (runs, may_run + calls)
            costs.append(None if cost is None else cost * price)
        ended = sum([each.ended for each in tallies])
        about, most = None if ended else total(costs), total([most for each in tallies for most in each.most])
        if most is not None and about is not None and most < about:
            most = None  # the server states its costs itself, and they are higher than the listed prices
        return ForecastPart(
            name=name,
            samples=sum([each.samples for each in tallies]),
            reused=sum([each.reused for each in tallies]),
            runs=runs,
            may_run=may_run,
            about=about,
            at_most=most,
            ended=ended,
        )

    def _usual(self, task: str) -> tuple[int, float | None]:
        """The model calls, at least one, and US dollars of a call of this task, on average."""
        priced = [(calls, cost) for calls, cost in self._prices[task] if cost is not None]
        if not priced:
            return 1, None
        count = len(priced)
        return max(1, round(sum([calls for calls, _ in priced]) / count)), sum([cost for _, cost in priced]) / count


_ASKING = frozenset({"task", "solve"})
