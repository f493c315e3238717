"""The search for a better form of a program: generations of candidates, and a decision on cases that it has not seen.

An improvement has no state of its own. It is a sequence of evaluations and of questions to a model, each decided by the results
before it, and their answers are kept by content and draw. So an improvement that is carried out again repeats its earlier course
for nothing, and continues where it was interrupted.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import blake2b
from itertools import combinations
from typing import Any, cast

from agentflow.core.call.approval import Approver
from agentflow.core.data.errors import AgentflowError, ConfigurationError, PurseEmpty
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits, total
from agentflow.core.data.source import Source
from agentflow.core.events.journal_rows import EffectRow
from agentflow.core.events.questions import Answerer
from agentflow.durable.generations import Overrides
from agentflow.durable.runs import DurableRuns
from agentflow.durable.samples import SampleEnd
from agentflow.evals.cases import Case, Scorer
from agentflow.evals.evaluation import Evaluation, Plan, Subject, Variation, opened_purse
from agentflow.evals.figures import BASE
from agentflow.evals.forecast import Forecast, Forecaster
from agentflow.evals.improvement.candidates import (
    Figures,
    ProgramCandidate,
    base_candidate,
    chosen_score,
    figures_of,
    front,
    is_better,
    split,
)
from agentflow.evals.improvement.editable import EditableTask, as_text, check_called, editable_tasks
from agentflow.evals.improvement.gates import Explore, Gates, TextReach
from agentflow.evals.improvement.improvement_forecast import ImprovementForecast
from agentflow.evals.improvement.improvement_report import ImprovementReport
from agentflow.evals.improvement.operators import Material, changes_of
from agentflow.evals.improvement.proposals import (
    ProposedInstructions,
    Trace,
    TriedInstructions,
    proposal_prompt,
    worst_traces,
)
from agentflow.evals.report import EvaluationReport
from agentflow.evals.sample import Sample
from agentflow.evals.scorers import ACCOUNT
from agentflow.evals.scoring import ModelQuestion, Scoring, name_of
from agentflow.run.engine import Engine
from agentflow.run.run import new_run_id

_MARGIN = 1.25
"""The share of its expected cost that is held back for the decision on the held-out cases."""
_ATTEMPTS = 3
"""Number of earlier attempts shown to the task that writes instructions."""


@frozen(kw_only=True)
class ImprovementPlan:
    """The plan of an improvement; the fields are the options of :meth:`agentflow.AgentFlow.improve`, which documents them."""

    program: Any
    cases: Sequence[Case]
    scorers: Sequence[Scorer]
    edit: Sequence[Any] | None = None
    limits: Limits | None = None
    holdout: float = 0.3
    generations: int = 4
    width: int = 3
    finalists: int = 2
    shown: int = 4
    repeat: int = 1
    primary: str | None = None
    model: str | None = None
    approve: Approver | None = None
    answer: Answerer | Callable[..., Any] | None = None
    live_tools: frozenset[str] = frozenset()
    deps: Any = None
    concurrency: int = 16
    seed: int = 0
    run_id: str | None = None
    told: Callable[[ProgramCandidate], None] | None = None
    operators: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


class TracedEvaluation(Evaluation):
    """An evaluation that keeps the records of its samples, by variant and case."""

    def __init__(
        self, engine: Engine, runs: DurableRuns, ask: Callable[..., Any], plan: Plan, *, first_draw: int = 0
    ) -> None:
        super().__init__(engine, runs, ask, plan, first_draw=first_draw)
        self._rows: dict[tuple[str, str, int], tuple[EffectRow, ...]] = {}

    def _sample(self, case: Case, subject: Subject, draw: int, end: SampleEnd) -> Sample:
        self._rows[subject.name, case.name, draw] = end.rows
        return super()._sample(case, subject, draw, end)

    def traces(self, report: EvaluationReport, variant: str) -> dict[str, list[Trace]]:
        """The samples of a variant with their records, by case."""
        traces: dict[str, list[Trace]] = {}
        for each in report[variant].samples:
            rows = self._rows[variant, each.case.name, each.draw]
            traces.setdefault(each.case.name, []).append(Trace(each, rows))
        return traces

    @property
    def judging_usd(self) -> float | None:
        """The cost of judging in US dollars, as if no verdict had been reused."""
        return self._scoring.whole_usd


class Search:
    """One improvement in a flow. Parameters: as for :class:`~agentflow.evals.forecast.Forecaster`; ``explore`` tries the texts of
    candidates."""

    def __init__(
        self,
        engine: Engine,
        runs: DurableRuns,
        ask: Callable[..., Any],
        plan: ImprovementPlan,
        bounds: Callable[..., Any],
        explore: Explore,
    ) -> None:
        self._engine = engine
        self._runs = runs
        self._ask = ask
        self._plan = plan
        self._bounds = bounds
        self._explore = explore
        self._id = plan.run_id or new_run_id()
        self._limits = plan.limits
        self._check_scorers()
        self.train, self.held = split(plan.cases, plan.holdout, plan.seed)
        self.tasks: Mapping[str, EditableTask] = {}
        self.score = ""
        """The name of the score to raise, known after the first evaluation."""
        self._perfect: float | None = None
        self._traces: dict[str, dict[str, list[Trace]]] = {}
        self._all: list[ProgramCandidate] = [base_candidate()]
        self._text: Source | None = None
        self._gates: Gates | None = None
        self._reaches: dict[str, TextReach] = {}
        self._asked: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._stopped: PurseEmpty | None = None
        self._calls = self._reused = 0
        self._usd: float | None = 0.0

    def _check_scorers(self) -> None:
        plan = self._plan
        judging = [*plan.scorers, *[each for case in plan.cases for each in case.scorers]]
        if all([not isinstance(each, type) and name_of(each) in ACCOUNT for each in judging]):
            raise ConfigurationError(
                "an improvement needs a score to raise, and there is no scorer of the answer",
                code="evals/scorer",
                hint="flow.improve(answer, cases, [contains()], edit=[reply])",
            )

    async def report(self, course: Callable[[Search], Awaitable[None]]) -> ImprovementReport:
        """Carry it out; ``course`` proposes candidates until the search is over. Raises ConfigurationError for an invalid plan and for a limit below one evaluation, and cancellation."""
        plan = self._plan
        self.tasks = await editable_tasks(self._engine, plan.program, plan.edit, self.train)
        self._text = await asyncio.to_thread(as_text, plan.program)
        await self._check_forecast()
        await self._measure_base()
        await course(self)
        if self._stopped is not None and not [each for each in self._all if each.stage in ("screened", "searched")]:
            raise self._too_small(self._stopped)
        self._limits = plan.limits
        finals = await self._decided()
        return ImprovementReport(
            run_id=self._id,
            score=self.score,
            candidates=tuple(self._all),
            tasks=self.tasks,
            program=plan.program,
            finals=finals,
            searched_on=len(self.train),
            stopped=self._stopped,
            paid_usd=self._usd,
            paid_calls=self._calls,
            reused_calls=self._reused,
        )

    # -- evaluations --------------------------------------------------------------------------------------------------

    def _evaluation(self, cases: Sequence[Case], variants: Mapping[str, Variation]) -> Plan:
        plan = self._plan
        return Plan(
            program=plan.program,
            cases=cases,
            variants=variants,
            scorers=plan.scorers,
            repeat=plan.repeat,
            limits=self._limits,
            approve=plan.approve,
            answer=plan.answer,
            live_tools=plan.live_tools,
            deps=plan.deps,
            concurrency=plan.concurrency,
            seed=plan.seed,
            run_id=self._id,
            primary=() if not self.score else (self.score,),
        )

    async def evaluate(
        self, cases: Sequence[Case], candidates: Sequence[Variation], names: Sequence[str], first_draw: int = 0
    ) -> tuple[TracedEvaluation, EvaluationReport]:
        """Evaluate candidates under these names, together with the unchanged program, which costs nothing again."""
        variants = dict(zip(names, candidates, strict=True))
        plan = self._evaluation(cases, variants)
        evaluation = TracedEvaluation(self._engine, self._runs, self._ask, plan, first_draw=first_draw)
        report = await evaluation.report()
        self._calls += sum([each.paid_calls for each in report.samples]) + report.judging_calls
        again = BASE if candidates and not first_draw else None  # the unchanged program is measured once
        whole = [each for each in report.samples if each.variant != again]
        self._reused += sum([each.usage.requests - each.paid_calls for each in whole])
        self._usd = total((self._usd, report.judging_usd, *[each.paid_usd for each in report.samples]))
        self._stopped = report.stopped or self._stopped
        return evaluation, report

    async def forecast(self) -> ImprovementForecast:
        """The forecast, which makes no call. Raises ConfigurationError as :meth:`report`."""
        plan = self._plan
        await editable_tasks(self._engine, plan.program, plan.edit, self.train)
        operated = self.rounds if plan.operators else 0
        screened = (self.rounds + 2 * operated) * min(plan.shown, len(self.train))
        candidates = self.rounds + operated
        return ImprovementForecast(
            first=await self._first_forecast(),
            proposals=self.rounds,
            candidates=candidates,
            samples=(screened + candidates * len(self.train)) * plan.repeat,
            decision=(1 + 2 * plan.finalists) * len(self.held) * plan.repeat,
            limit_usd=None if plan.limits is None else plan.limits.usd,
        )

    async def _first_forecast(self) -> Forecast:
        plan = self._evaluation(self.train, {})
        return await Forecaster(self._engine, self._runs, self._ask, plan, self._bounds).forecast()

    async def _check_forecast(self) -> None:
        """Raise ConfigurationError (``evals/budget``) if the first evaluation is known to cost more than the limit."""
        limit = None if self._limits is None else self._limits.usd
        about = None if limit is None else (await self._first_forecast()).all.about
        if limit is not None and about is not None and about > limit:
            raise _budget(
                f"the limit of ${limit:g} is below the cost of the unchanged program, about ${about:.4f}", self._id
            )

    async def _measure_base(self) -> None:
        """Evaluate the unchanged program, and hold back the money for the decision."""
        evaluation, report = await self.evaluate(self.train, (), ())
        if report.partial:
            raise self._too_small(cast(PurseEmpty, report.stopped))
        self.score = chosen_score(report, self._plan.primary, ACCOUNT)
        self._perfect = 1.0 if report.is_bounded(self.score) else None
        self._traces[BASE] = evaluation.traces(report, BASE)
        self._all[0] = self._all[0].measured(report, self.score, "base")
        self.tasks = check_called(
            self.tasks, [each for traces in self._traces[BASE].values() for each in traces], self._plan.edit
        )
        self._limits = self._without_reserve(report, evaluation.judging_usd)

    def _without_reserve(self, report: EvaluationReport, judging_usd: float | None) -> Limits | None:
        """The limits of the search: without the expected cost of the decision."""
        plan, base = self._plan, report[BASE]
        if plan.limits is None or not base.samples:
            return plan.limits
        share = _MARGIN * (1 + plan.finalists) * len(self.held) * plan.repeat / len(base.samples)
        cost = total((base.cost_usd, judging_usd))
        tokens = sum([each.usage.total_tokens for each in base.samples])
        usd, most = plan.limits.usd, plan.limits.tokens
        if usd is not None:
            usd -= usd * share / (1 + share) if cost is None else cost * share
        if most is not None:
            most -= round(tokens * share)
        if (usd is not None and usd <= 0) or (most is not None and most <= 0):
            raise self._too_small(None)
        return replace(plan.limits, usd=usd, tokens=most)

    def _too_small(self, stopped: PurseEmpty | None) -> ConfigurationError:
        limits = cast(Limits, self._plan.limits)
        limit = f"${limits.usd:g}" if limits.usd is not None else f"{limits.tokens:,} tokens"
        count = len(self.train) + (1 + self._plan.finalists) * len(self.held)
        why = "" if stopped is None else f": {stopped.message}"
        return _budget(
            f"the limit of {limit} ends before one candidate can be compared, which takes {count} samples and more{why}",
            self._id,
        )

    # -- generations --------------------------------------------------------------------------------------------------

    async def generations(self) -> None:
        """The course of the own search: propose, screen and evaluate candidates, until a limit, a perfect score, or the last generation."""
        for generation in range(self._plan.generations):
            parents = front([each for each in self._all if each.stage in ("base", "searched")])
            if self._stopped is not None or (self.is_perfect(parents[0]) and not self._plan.operators):
                return
            try:
                children = await self._proposed(generation, parents)
                operated = await self._operated(parents[0])
            except PurseEmpty as error:
                self._stopped = error
                return
            for parent in parents:
                await self._screened([each for each in children if each.parent == parent.name], parent)
            await self._screened(operated, parents[0], best=True)
            names = [each.name for each in (*children, *operated)]
            chosen = [each for each in self._all if each.name in names and each.stage == "screened" and not each.why]
            await self.measure(chosen)

    @property
    def rounds(self) -> int:
        """The greatest number of proposals."""
        return self._plan.generations * self._plan.width

    @property
    def seed(self) -> int:
        """The seed of all random choices."""
        return self._plan.seed

    @property
    def candidates(self) -> Sequence[ProgramCandidate]:
        """All candidates so far, the unchanged program first."""
        return self._all

    def stop(self, error: PurseEmpty) -> None:
        """End the search at a limit."""
        self._stopped = error

    def is_perfect(self, candidate: ProgramCandidate) -> bool:
        """Whether the candidate has the best possible score in all cases of the search."""
        return self._perfect is not None and (candidate.score or 0.0) >= self._perfect

    async def _proposed(self, generation: int, parents: Sequence[ProgramCandidate]) -> list[ProgramCandidate]:
        """New instructions for one task each: the tasks and the best candidates take turns."""
        plan, names = self._plan, list(self.tasks)
        asked: list[tuple[ProgramCandidate, str]] = []
        if self.is_perfect(parents[0]):
            return []
        for number in range(plan.width):
            parent = parents[number % len(parents)]
            asked.append((parent, names[(generation * plan.width + number) % len(names)]))
        async with self.asking() as scoring:
            answers = await _all_of([self._ask_for(scoring, parent, task) for parent, task in asked])
        children = self._joined()
        for (parent, task), text in zip(asked, answers, strict=True):
            child = self.child(parent, task, text)
            children += [] if child is None else [child]
        return children

    async def _operated(self, parent: ProgramCandidate) -> list[ProgramCandidate]:
        """The next ``width`` candidates that operators derive from the best one, among those that pass the gates."""
        children: list[ProgramCandidate] = []
        if not self._plan.operators:
            return children
        text = parent.program or self._text
        good = [each for each in self._in_order(parent) if each.sample.scores.get(self.score, 0.0) > 0]
        material = Material(parent, text, self.tasks, good[::-1], self._plan.models)
        for change in changes_of(material, self._plan.operators):
            if len(children) == self._plan.width:
                break
            overrides = parent.overrides if change.overrides is None else change.overrides
            program = parent.program if change.program is None else change.program
            if self._is_there(overrides, program):
                continue
            why = None if change.program is None else await self._refused(change.program, text)
            child = self.added(
                parent, change.text, overrides=overrides, program=program, faster=change.faster, why_not=why
            )
            children += [] if child is None else [child]
        return children

    async def _refused(self, program: Source, before: Source | None) -> str | None:
        """Why a changed text does not pass the gates."""
        if self._gates is None:
            case = self.train[0]
            inputs = case.inputs
            if case.run_id is not None:
                row, _ = await self._runs.samples.case(case.run_id)
                inputs = {**self._runs.samples.inputs(row), **case.inputs}
            usd = None if self._limits is None else self._limits.usd
            self._gates = Gates(self._engine, self._bounds, self._explore, inputs, usd)
        assert before is not None
        if before.text not in self._reaches:
            try:
                self._reaches[before.text] = await self._gates.reach(before)
            except AgentflowError as error:
                return f"its parent cannot be explored: {error.message}"
        return await self._gates.why_refused(program, self._reaches[before.text])

    def _in_order(self, candidate: ProgramCandidate) -> list[Trace]:
        """The first traces of a candidate in each case, the lowest score first."""
        return worst_traces(self._traces[candidate.name], self.score, len(self.train), None)

    def _joined(self) -> list[ProgramCandidate]:
        """Pairs of candidates that are better than the unchanged program, with the changes of both."""
        base, children = self._all[0].figures, list[ProgramCandidate]()
        better = [each for each in self._all if each.stage == "searched" and is_better(each.figures, base)]
        better.sort(key=lambda each: each.figures[0], reverse=True)
        for one, other in combinations(better, 2):
            if one.fields.isdisjoint(other.fields) and one.text == other.text:
                joined = {
                    task: {**one.overrides.get(task, {}), **other.overrides.get(task, {})}
                    for task in (*one.overrides, *other.overrides)
                }
                child = self.added(one, f"the changes of {other.name}", overrides=joined)
                children += [] if child is None else [child]
        return children

    @asynccontextmanager
    async def asking(self) -> AsyncGenerator[Scoring]:
        """Questions to a model that the improvement pays for, with answers that are kept."""
        purse = opened_purse(self._id, self._limits, self._runs)
        tasks = self._runs.samples.changed({}, "", deps=None)
        scoring = Scoring(self._runs.samples, self._ask, tasks=tasks, whose=self._id, purse=purse)
        if purse is not None:
            await purse.load()
        try:
            yield scoring
        finally:
            self._calls += scoring.calls
            self._usd = total((self._usd, scoring.usd))
            if purse is not None:
                await purse.settled()

    def question(self, prompt: str, **options: Any) -> ModelQuestion:
        """A question to the model that proposes."""
        settings = options if self._plan.model is None else {**options, "model": self._plan.model}
        return ModelQuestion("improve", lambda: self._ask(prompt, **settings))

    async def _ask_for(self, scoring: Scoring, parent: ProgramCandidate, task: str) -> str | None:
        """New instructions of a task; None where there is no case to learn from, or no usable answer."""
        plan, template = self._plan, self.tasks[task]
        traces = worst_traces(self._traces[parent.name], self.score, plan.shown, self._perfect)
        tried = [
            TriedInstructions(each.overrides[task]["instructions"], each.score)
            for each in self._all
            if each.parent == parent.name and each.score is not None and "instructions" in each.overrides.get(task, {})
        ]
        prompt = proposal_prompt(
            task, self.instructions(parent, task), template.parameters, traces, self.score, tried[-_ATTEMPTS:]
        )
        draw = self._asked[parent.name, task]
        self._asked[parent.name, task] += 1
        try:
            return cast(
                ProposedInstructions, await scoring.ask(self.question(prompt, output=ProposedInstructions), draw=draw)
            ).instructions
        except PurseEmpty:
            raise
        except AgentflowError:  # an answer of another form is no proposal
            return None

    def instructions(self, candidate: ProgramCandidate, task: str) -> str:
        """The instructions of a task in a candidate."""
        return candidate.overrides.get(task, {}).get("instructions", self.tasks[task].instructions)

    def child(self, parent: ProgramCandidate, task: str, text: str | None) -> ProgramCandidate | None:
        """The candidate with other instructions of a task, among all candidates from now on; None if it is refused."""
        if text is None or text.strip() == self.instructions(parent, task).strip():
            return None
        return self.added(parent, f"instructions of {task}", overrides=parent.with_field(task, "instructions", text))

    def _is_there(self, overrides: Overrides, program: Source | None) -> bool:
        text = None if program is None else program.text
        return any([each.overrides == overrides and each.text == text for each in self._all])

    def added(
        self, parent: ProgramCandidate, change: str, *, why_not: str | None = None, **fields: Any
    ) -> ProgramCandidate | None:
        """A new candidate, unless there is an equal one, or it did not pass (``why_not``), or its tasks are invalid: then it stays as a
        refused one."""
        name = f"{len(self._all)}"
        fresh = ProgramCandidate(name=name, parent=parent.name, change=change)
        child = replace(fresh, **{"overrides": parent.overrides, "program": parent.program, **fields})
        if self._is_there(child.overrides, child.program):
            return None
        why = why_not or self.why_invalid(child.overrides)
        child = replace(child, stage="proposed" if why is None else "refused", why=why or "")
        self._all.append(child)
        if child.stage == "refused":
            self._tell(child)
            return None
        return child

    def why_invalid(self, overrides: Overrides) -> str | None:
        """Why tasks cannot have these overrides; None if they can."""
        try:
            self._runs.samples.changed(overrides, None, deps=self._plan.deps)
        except AgentflowError as error:
            return error.message
        return None

    async def _screened(
        self, children: Sequence[ProgramCandidate], parent: ProgramCandidate, *, best: bool = False
    ) -> None:
        """Evaluate the children of a candidate on the cases that it is worst in, and also ``best`` in, which a step less may spoil. Those
        that are no better stay screened."""
        if not children or self._stopped is not None:
            return
        order, shown = self._in_order(parent), self._plan.shown
        chosen = [*order[:shown], *order[max(shown, len(order) - shown) :]] if best else order[:shown]
        cases = [each.sample.case for each in chosen]
        _, report = await self.evaluate(cases, children, [each.name for each in children])
        if report.partial:
            return
        before = self._figures(parent, cases)
        for each in children:
            after = figures_of(report, each.name, self.score)
            holds = is_better(after, before) or (each.faster and after[0] >= before[0])
            why = "" if holds else "no better in the worst cases"
            if math.isnan(after[0]):
                lacking = [at.missing[self.score] for at in report[each.name].samples if self.score in at.missing]
                why = f"no score in the worst cases: {lacking[0] if lacking else 'none could run'}"
            self._replace(each.measured(report, self.score, "screened", why))

    def _figures(self, candidate: ProgramCandidate, cases: Sequence[Case]) -> Figures:
        """The score and the cost of a candidate that was searched, in these cases."""
        samples = [each.sample for case in cases for each in self._traces[candidate.name].get(case.name, ())]
        scores = [each.scores[self.score] for each in samples if self.score in each.scores]
        cost = total([each.cost_usd for each in samples])
        return sum(scores) / max(1, len(scores)), None if cost is None else cost / max(1, len(samples))

    async def measure(self, chosen: Sequence[ProgramCandidate]) -> None:
        """Evaluate candidates in all cases of the search."""
        if not chosen or self._stopped is not None:
            return
        evaluation, report = await self.evaluate(self.train, chosen, [each.name for each in chosen])
        for each in chosen if not report.partial else ():
            self._traces[each.name] = evaluation.traces(report, each.name)
            self._replace(each.measured(report, self.score, "searched"))

    def _replace(self, candidate: ProgramCandidate) -> None:
        self._all[[each.name for each in self._all].index(candidate.name)] = candidate
        if candidate.stage == "searched" or candidate.why:
            self._tell(candidate)

    def _tell(self, candidate: ProgramCandidate) -> None:
        if self._plan.told is not None:
            self._plan.told(candidate)

    # -- the decision -------------------------------------------------------------------------------------------------

    async def _decided(self) -> EvaluationReport | None:
        """Draw the best candidates and their parents on the held-out cases, each from its first step; None without any."""
        named = {each.name: each for each in self._all}
        base = self._all[0]
        searched = [each for each in self._all if each.stage in ("base", "searched")]
        best = [each for each in front(searched) if is_better(each.figures, base.figures) or each.faster]
        names = dict.fromkeys([name for each in best[: self._plan.finalists] for name in (each.name, each.parent)])
        finalists = [named[name] for name in names if name != BASE]
        if not finalists:
            return None
        drawn = [replace(each, first_draw=self._first_draw(each.name)) for each in finalists]
        before = self._stopped
        _, report = await self.evaluate(self.held, drawn, [each.name for each in drawn], self._first_draw(BASE))
        if not report.partial:
            self._stopped = before
        return report

    def _first_draw(self, name: str) -> int:
        """The number of the first draw of a finalist: no search and no other finalist has it."""
        digest = blake2b(f"{self._id}/{name}".encode(), digest_size=4).digest()
        return 1_000 + int.from_bytes(digest, "big")


async def _all_of(works: Sequence[Any]) -> list[Any]:
    """The results of coroutines that run at once. Raises the first error of one."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in works]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [each.result() for each in tasks]


def _budget(problem: str, run_id: str) -> ConfigurationError:
    return ConfigurationError(
        problem,
        code="evals/budget",
        hint=f"raise it: limits=Limits(usd=...), and run_id='{run_id}' to continue with the answers paid for",
    )
