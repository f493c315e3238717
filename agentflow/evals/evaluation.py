"""Carries out an evaluation: cases times variants times draws, under one purse."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

from agentflow.core.call.approval import Approver, Denied
from agentflow.core.call.call import CallContext
from agentflow.core.data.allowances import Allowance
from agentflow.core.data.errors import AgentflowError, ConfigurationError, PurseEmpty, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Batching
from agentflow.core.data.results import NO_USAGE, TaskResult
from agentflow.core.data.source import Source
from agentflow.core.events.journal_rows import EffectRow, RunRow
from agentflow.core.events.live_scores import LiveScore, ScoreObserver
from agentflow.core.events.questions import Answerer
from agentflow.core.ports.ports import ToolCall
from agentflow.durable.generations import Overrides, TaskOverrides
from agentflow.durable.runs import DurableRuns
from agentflow.durable.samples import Anew, SampleEnd, SampleRecords, names_below, plain_row
from agentflow.durable.stored_input import PythonProgram
from agentflow.evals.apart import value_pairs
from agentflow.evals.case_files import named, read_cases
from agentflow.evals.cases import Case, Scorer
from agentflow.evals.figures import BASE, BEFORE
from agentflow.evals.judges import Judge
from agentflow.evals.persons import person_of
from agentflow.evals.report import EvaluationReport
from agentflow.evals.sample import Sample, SampleStatus
from agentflow.evals.saved import SavedBaseline, read_report
from agentflow.evals.scorers import ToolUse
from agentflow.evals.scoring import SampleBlocked, Scoring, check_scorer, is_function
from agentflow.evals.sequences import Narrowing
from agentflow.flow.program_files import ProgramLike, load_program
from agentflow.flow.python import FlowCall
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.option_table import wrong_value
from agentflow.lib.text.suggest import did_you_mean
from agentflow.run.engine import Engine, PythonTarget
from agentflow.run.purses import Purse
from agentflow.run.run import new_run_id
from agentflow.run.run_spec import RunSpec


@frozen(kw_only=True)
class Variation:
    """A form of the program with both: another ``program`` (None: the unchanged one), and ``overrides`` of tasks by name.

    ``first_draw`` is the number of its first draw, so that two searches do not share their draws.
    """

    program: Any = None
    overrides: Overrides = field(default_factory=dict[str, Any])
    first_draw: int = 0


Variant: TypeAlias = "Mapping[str, Mapping[str, Any]] | ProgramLike | PythonTarget | Variation"
"""A form of the program to compare with the unchanged program: overrides of tasks by name (``*``: all) or a TOML file of them, another
program or workflow, or a :class:`Variation`."""


_CONTINUED_S = 30 * 86_400.0
"""Seconds during which you can continue an evaluation under one limit, from its first call on."""


AT_ONCE = 16
"""The usual number of cases that are carried out at a time."""
AT_ONCE_IN_BATCHES = 10_000
"""The number of cases at a time in batches: their model calls together fill these."""


@frozen(kw_only=True)
class Plan:
    """The plan of an evaluation: the ``program`` (None: that of each recorded case), its ``variants`` by name, and how.

    ``limits`` bound the whole evaluation in dollars and tokens, and each of its samples in everything else. ``live_tools`` are
    carried out although they are not repeatable, tools and tasks in ``rerun`` although records answer. ``seed`` orders the cases. ``told`` is called after each sample.
    """

    program: Any
    cases: Sequence[Case]
    variants: Mapping[str, Variant]
    scorers: Sequence[Scorer]
    repeat: int = 1
    limits: Limits | None = None
    approve: Approver | None = None
    answer: Answerer | Callable[..., Any] | None = None
    live_tools: frozenset[str] = frozenset()
    rerun: frozenset[str] = frozenset()
    deps: Any = None
    concurrency: int = AT_ONCE
    batch: Batching = False
    seed: int = 0
    run_id: str | None = None
    baseline: str | EvaluationReport | None = None
    primary: tuple[str, ...] = ()
    until: float | None = None
    told: Callable[[Sample, int, int], None] | None = None

    @property
    def programs(self) -> list[Any]:
        """The program and its variants."""
        return [self.program, *self.variants.values()]


@frozen
class Subject:
    """A variant to carry out: its program (None: the recorded run's) and its overrides."""

    name: str
    program: Any
    overrides: Overrides
    tasks: TaskOverrides
    fresh: bool = False
    """Whether it is the same again: its draws are others than the baseline's."""
    first_draw: int = 0

    def number(self, draw: int) -> int:
        """The number of a draw in the keys of kept results."""
        return -draw - 1 if self.fresh else self.first_draw + draw


class Evaluation:
    """One evaluation in a flow. Parameters: ``runs`` are the flow's durable runs; ``first_draw`` is the number of the first draw of the
    unchanged program."""

    def __init__(
        self, engine: Engine, runs: DurableRuns, ask: Callable[..., Any], plan: Plan, *, first_draw: int = 0
    ) -> None:
        self._engine = engine
        self._first_draw = first_draw
        self._runs = runs
        self._plan = plan
        self._id = plan.run_id or new_run_id()
        self._purse = self._opened_purse()
        self._empty: PurseEmpty | None = None
        self._began = time.time()
        self._compiled: dict[tuple[str, frozenset[str]], Program] = {}
        self._anew = Anew(plan.rerun, time.time()) if plan.rerun else None
        self._check()
        self._subjects = self._all_subjects()
        saved = plan.baseline if isinstance(plan.baseline, EvaluationReport) else None
        self._before = None if saved is None else SavedBaseline(saved, plan.cases)
        self._baseline = BEFORE if self._before is not None else str(plan.baseline or self._subjects[0].name)
        self._scoring = Scoring(
            runs.samples,
            ask,
            tasks=self._subjects[0].tasks,
            whose=self._id,
            purse=self._purse,
            anew=self._anew,
            batch=plan.batch,
        )

    def _check(self) -> None:
        plan = self._plan
        for option, value in (("repeat", plan.repeat), ("concurrency", plan.concurrency)):
            if type(value) is not int or value < 1:
                raise wrong_value(
                    "an evaluation", option, value, "is not a whole number from 1 up", f"for example {option}=3"
                )
        alone = next((each.name for each in plan.cases if each.run_id is None), None) if plan.program is None else None
        if alone is not None:
            raise ConfigurationError(
                f"the case '{alone}' is not a recorded run, and there is no program to run it with",
                code="evals/cases",
                hint="flow.evaluate(answer, cases), or cases of recorded runs: Case(run_id='...')",
            )
        self._check_rerun()
        until, grouped = plan.until, any([each.group for each in plan.cases])
        if until is not None and not (type(until) in (int, float) and 0 < until < math.inf):
            raise wrong_value(
                "an evaluation", "until", until, "is not the half width of an interval", "for example until=0.02"
            )
        if until is not None and grouped:
            raise wrong_value("an evaluation", "until", until, "needs cases without a group", "leave until= out")
        if not isinstance(cast(object, plan.variants), Mapping):
            raise _wrong(
                f"variants={clip(repr(plan.variants), 80)}: variants have names",
                "{'short': {'reply': {'instructions': '...'}}}, or {'critic': with_critic}",
            )
        for scorer in [*plan.scorers, *[each for case in plan.cases for each in case.scorers]]:
            check_scorer(scorer)

    def _check_rerun(self) -> None:
        """Raise ConfigurationError (``evals/rerun``) for a name that no tool or task has; a text may define others."""
        plan, tasks, tools = self._plan, self._engine.tasks, self._engine.tools
        if not plan.rerun or not all([is_function(each) or isinstance(each, Mapping) for each in plan.programs]):
            return
        names = {*tools.names(), *[each.name for each in self._engine.functions.values()]}
        for name in tasks.template_names():
            compiled = tasks.find_compiled(name)
            names |= set() if compiled is None else names_below(compiled, tools.find, tasks.find_compiled)
        for name in sorted(plan.rerun - names):
            hint = did_you_mean(name, names) or "name tools and tasks: rerun=['search', 'reply']"
            raise ConfigurationError(f"rerun: no tool or task here is called '{name}'", code="evals/rerun", hint=hint)

    async def report(self) -> EvaluationReport:
        """Carry it out. Raises ConfigurationError for an invalid plan, and cancellation; the failure of a sample is part
        of the report."""
        plan = self._plan
        if self._purse is not None:
            await self._purse.load()
        order = list(plan.cases)
        random.Random(plan.seed).shuffle(order)
        waiting = deque(order)
        samples: list[Sample] = []
        stop = Narrowing([each.name for each in order], lambda: self._reported(order, samples).is_narrow)
        total = len(order) * len(self._subjects) * plan.repeat

        async def work() -> None:
            while waiting and self._empty is None and not stop.met:
                case = waiting.popleft()
                for sample in await self._case(case):
                    samples.append(sample)
                    if plan.told is not None:
                        plan.told(sample, len(samples), total)
                if plan.until is not None:
                    stop.ended(case.name)

        async with asyncio.TaskGroup() as group:
            for number in range(max(1, min(plan.concurrency, len(order)))):
                group.create_task(work(), name=f"evaluation {self._id}, {number}")
        if self._purse is not None:
            await self._purse.settled()
        return self._reported(order, samples, enough=stop.met)

    def _reported(self, order: Sequence[Case], samples: Sequence[Sample], *, enough: bool = False) -> EvaluationReport:
        """The report of the samples so far."""
        plan = self._plan
        judges = [
            each
            for each in (*plan.scorers, *[each for case in plan.cases for each in case.scorers])
            if isinstance(each, Judge)
        ]
        return EvaluationReport(
            run_id=self._id,
            variants=[*([] if self._before is None else [BEFORE]), *[each.name for each in self._subjects]],
            baseline=self._baseline,
            order=tuple([each.name for each in order]),
            samples=[
                *([] if self._before is None else self._before.samples),
                *self._scoring.with_fails(samples, plan.scorers),
            ],
            repeat=plan.repeat,
            stopped=self._empty,
            began=self._began,
            took_s=time.time() - self._began,
            judging_calls=self._scoring.calls,
            judging_usd=self._scoring.usd,
            primary=plan.primary,
            until=plan.until,
            enough=enough,
            bounded=[each.name for each in judges],
            before=None if self._before is None else BEFORE,
        )

    # -- the samples of a case ----------------------------------------------------------------------------------------

    async def _case(self, case: Case) -> list[Sample]:
        """All samples of a case, with the variants taking turns; the scores that compare come last."""
        plan, samples = self._plan, list[Sample]()
        record = await self._record(case)
        ends: dict[tuple[str, int], SampleEnd] = {}
        for draw in range(plan.repeat):
            for subject in self._subjects:
                end = await self._end(case, record, subject, draw)
                ends[subject.name, draw] = end
                samples.append(self._sample(case, subject, draw, end))
        for at, each in enumerate(samples):
            base = ends[self._baseline, each.draw] if self._before is None else self._before.end(case, each.draw)
            if self._before is None and each.variant != self._baseline:
                each = replace(each, apart=value_pairs(base.rows, ends[each.variant, each.draw].rows))
            samples[at] = await self._scored(each, base, ends[each.variant, each.draw].run_id)
        return samples

    async def _record(self, case: Case) -> tuple[RunRow, Sequence[EffectRow]] | AgentflowError | None:
        """The recorded run that a case is, with its effects, or the error of one that cannot be read; None for another case."""
        if case.run_id is None:
            return None
        try:
            return await self._runs.samples.case(case.run_id)
        except AgentflowError as error:
            return error

    async def _end(
        self,
        case: Case,
        record: tuple[RunRow, Sequence[EffectRow]] | AgentflowError | None,
        subject: Subject,
        draw: int,
    ) -> SampleEnd:
        if self._empty is not None:
            return SampleEnd(status="unpaid", error=self._empty)
        try:
            if record is None:
                return await self._fresh(case, subject, draw)
            if isinstance(record, AgentflowError):
                raise record
            return await self._copied(case, *record, subject, draw)
        except (AgentflowError, TypeError) as error:  # a case that does not fit is an error of that case
            return SampleEnd(status="failed", error=error)

    async def _fresh(self, case: Case, subject: Subject, draw: int) -> SampleEnd:
        program, bindings = await self._program(subject.program, case.inputs)
        row = plain_row(f"{self._id}.{case.digest}", program.source.name, program.source.text)
        return await self._carried_out(case, row, program, bindings, subject, draw)

    async def _copied(
        self, case: Case, row: RunRow, rows: Sequence[EffectRow], subject: Subject, draw: int
    ) -> SampleEnd:
        same = subject.program is None and not subject.overrides and subject.number(draw) == 0
        if same and not case.inputs and self._anew is None:
            return await self._as_recorded(row, rows)
        program, bindings = await self._runs.samples.program(row)
        if subject.program is not None:
            program, bindings = await self._program(subject.program, {**bindings, **case.inputs})
        return await self._carried_out(case, row, program, {**bindings, **case.inputs}, subject, draw, rows)

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
        spec, number = self._spec(case, bindings, subject, draw), subject.number(draw)
        end = await self._runs.samples.carry_out(
            row, program, spec, rows=rows, tasks=subject.tasks, draw=number, anew=self._anew
        )
        if isinstance(end.error, PurseEmpty):
            self._empty = end.error
            return replace(end, status="unpaid")
        if isinstance(end.error, SampleBlocked):
            return replace(end, status="blocked")
        if end.status == "blocked":
            asks = "a time that has not come" if end.question is None else f"an answer to: {end.question.question}"
            error = SampleBlocked(f"it waits for {asks}", hint="give the evaluation answer=, or approve=")
            return replace(end, error=error)
        return end

    def _spec(self, case: Case, bindings: Mapping[str, Any], subject: Subject, draw: int) -> RunSpec:
        """How the run of a sample is opened."""
        plan = self._plan
        return RunSpec(
            bindings=bindings,
            limits=None if plan.limits is None else replace(plan.limits, usd=None, tokens=None),
            approve=plan.approve,
            answer=person_of(case, plan.answer, partial(self._scoring.play, draw=subject.number(draw))),
            attended=False,
            purse=self._purse,
            deps=plan.deps,
            labels={"evaluation": self._id, "variant": subject.name, "draw": str(draw)},
            around_tool=(self._only_repeatable,),
            batch=plan.batch,
        )

    async def _only_repeatable(
        self, call: ToolCall, run: Callable[[ToolCall], Any], ctx: CallContext
    ) -> TaskResult | Denied:
        """Middleware: carry out a tool that may be repeated, and end the sample at any other."""
        if not (call.repeatable or call.name in self._plan.live_tools):
            raise SampleBlocked(
                f"the sample would call the tool '{call.name}', which does not declare that it may be repeated",
                hint=f"declare it read_only=True or idempotent=True, or name it: live_tools=['{call.name}']",
            )
        journal = ctx.run.journal
        records = getattr(journal, "records", None)
        if isinstance(records, SampleRecords):
            records.calls.append((ctx.path, call.name, dict(call.arguments)))
        return await run(call)

    async def _as_recorded(self, row: RunRow, rows: Sequence[EffectRow]) -> SampleEnd:
        """The recorded run itself, as a sample."""
        calls = tuple([(each.path, each.name, None) for each in rows if each.kind == "tool"])
        end = SampleEnd(status="done", rows=tuple(rows), calls=calls, reused=len(rows))
        try:
            result = await self._runs.recorded_result(row.run)
        except AgentflowError as error:
            return replace(end, status="failed", error=error, usage=error.usage or NO_USAGE, cost=error.cost)
        if result is None:
            error = SampleBlocked(f"the run '{row.run}' has not ended", hint="take runs that have")
            return replace(end, status="blocked", error=error)
        return replace(end, value=result.value, usage=result.usage, cost=result.cost, steps=result.steps)

    # -- programs -------------------------------------------------------------------------------------------------------

    async def _program(
        self, program: Any, inputs: Mapping[str, Any]
    ) -> tuple[Program | PythonProgram, Mapping[str, Any]]:
        """A program for a case with these inputs, and its bindings. Raises TypeError for a function with other parameters."""
        if is_function(program):
            target, values = program(**inputs).stored()
            return PythonProgram(target), values
        key = (program if isinstance(program, str) else str(program), frozenset(inputs))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiler, environment = self._engine.compiler, SexpEnvironment(dict(inputs))
            source = await load_program(cast("str | Path | Source", program))
            grants = await compiler.granted(None, source, environment)
            compiled = await compiler.compiled(source, env=environment, grants=grants)
            self._compiled[key] = compiled
        return compiled, inputs

    def _all_subjects(self) -> list[Subject]:
        plan = self._plan
        subjects = [self._subject(BASE, plan.program, {}, first_draw=self._first_draw)]
        for name, variant in plan.variants.items():
            if name == BASE or (name == BEFORE and isinstance(plan.baseline, EvaluationReport)):
                which = "the program as it is" if name == BASE else "the saved report"
                raise _wrong(f"a variant is called '{name}', which is {which}", "give it another name")
            if isinstance(variant, Mapping):
                overrides: Overrides = variant
                for task, fields in overrides.items():
                    if not isinstance(cast(object, fields), Mapping):
                        hint = f"{{'{name}': {{'{task}': {{'model': 'openai:gpt-5-mini'}}}}}}"
                        raise _wrong(f"the variant '{name}' gives the task '{task}' {clip(repr(fields), 60)}", hint)
                subjects.append(self._subject(name, plan.program, overrides, fresh=not overrides))
            elif isinstance(variant, Variation):
                program = plan.program if variant.program is None else variant.program
                subjects.append(self._subject(name, program, variant.overrides, first_draw=variant.first_draw))
            elif is_function(variant) or isinstance(variant, str | Path | Source):
                subjects.append(self._subject(name, variant, {}))
            else:
                shown = clip(repr(variant), 80)
                raise _wrong(
                    f"the variant '{name}' is {shown}, and neither overrides nor a program",
                    "overrides of tasks ({'reply': {'model': ...}}), a workflow, a task, a text, or a Path",
                )
        names = [each.name for each in subjects]
        if isinstance(plan.baseline, str) and plan.baseline not in names:
            if plan.baseline.endswith(".jsonl"):
                raise _wrong(
                    f"baseline='{plan.baseline}' is not a variant", f"a saved report is Path('{plan.baseline}')"
                )
            hint = did_you_mean(plan.baseline, names) or f"it is one of {', '.join(names)}"
            raise _wrong(f"baseline='{plan.baseline}' is not a variant", hint)
        return subjects

    def _subject(
        self, name: str, program: Any, overrides: Overrides, *, fresh: bool = False, first_draw: int = 0
    ) -> Subject:
        text = "" if is_function(program) else program if isinstance(program, str) else None
        tasks = self._runs.samples.changed(overrides, text, deps=self._plan.deps)
        return Subject(name, program, overrides, tasks, fresh, first_draw)

    # -- scores -----------------------------------------------------------------------------------------------------------

    def _sample(self, case: Case, subject: Subject, draw: int, end: SampleEnd) -> Sample:
        return Sample(
            case=case,
            digest=case.digest,
            variant=subject.name,
            draw=draw,
            status=cast(SampleStatus, end.status),
            value=end.value,
            error=end.error,
            usage=end.usage,
            cost_usd=end.cost,
            paid_usd=end.paid,
            paid_calls=end.paid_usage.requests,
            latency_s=end.duration_s if end.reused == 0 and end.rows else None,
            steps=end.steps,
            reused=end.reused,
            ran=len(end.rows) - end.reused if end.reused <= len(end.rows) else 0,
            tools=tuple([ToolUse(path, name, arguments) for path, name, arguments in end.calls]),
        )

    async def _scored(self, sample: Sample, rival: SampleEnd, run_id: str) -> Sample:
        if sample.status in ("unpaid", "blocked"):
            return sample
        scorers = (*self._plan.scorers, *sample.case.scorers)
        try:
            scored = await self._scoring.scored(sample, scorers, None if sample.variant == self._baseline else rival)
        except PurseEmpty as error:
            self._empty = error
            return replace(sample, status="unpaid", error=error)
        if any([isinstance(each, ScoreObserver) for each in self._engine.observers]):
            await self._tell(scored, run_id or sample.case.run_id or "")
        return scored

    async def _tell(self, sample: Sample, run_id: str) -> None:
        """Notify the observers of the flow that take scores of those of a sample."""
        from agentflow.evals.online import tell_scores  # few flows have such observers

        def told(name: str, value: float | bool | None, error: str | None = None) -> LiveScore:
            return LiveScore(
                run_id=run_id,
                name=name,
                value=value,
                error=error,
                evaluation=self._id,
                case=sample.case.name,
                variant=sample.variant,
            )

        live = [told(name, bool(value) if name in sample.passing else value) for name, value in sample.scores.items()]
        live += [told(name, None, error) for name, error in sample.missing.items()]
        await tell_scores(self._engine.observers, live)

    # -- money --------------------------------------------------------------------------------------------------------

    def _opened_purse(self) -> Purse | None:
        """The purse of the evaluation, in the flow's database: an evaluation carried out again pays from the same."""
        return opened_purse(self._id, self._plan.limits, self._runs)


def opened_purse(run_id: str, limits: Limits | None, runs: DurableRuns) -> Purse | None:
    """The purse of the evaluation ``run_id``; None without limits of dollars or tokens."""
    if limits is None or (limits.usd is None and limits.tokens is None):
        return None
    allowance = Allowance(usd=limits.usd, tokens=limits.tokens)
    whose = f"the evaluation '{run_id}'"
    return Purse(f"evaluation {run_id}", allowance, store=runs.purses, kept_s=_CONTINUED_S, whose=whose)


def check_program(program: object) -> None:
    """Raise AgentflowError (``program/kind``) for a program that is called for each case and cannot be: a call, or a plain function."""
    if isinstance(program, FlowCall):
        shown, hint = f"a call of '{program.name}'", f"pass {program.name} itself, uncalled: it is called for each case"
    elif program is None or is_function(program) or isinstance(program, str | Path | Source | Program):
        return
    elif callable(program):
        name = getattr(program, "__name__", "answer")
        shown, hint = (
            f"the plain function '{name}'",
            f"make it a workflow: write @flow.workflow above 'async def {name}'",
        )
    else:
        shown, hint = clip(repr(program), 80), "a workflow, a task, a text, a Path, or None for recorded runs"
    raise AgentflowError(
        f"a program for cases is a workflow, a task, a text or a Path, not {shown}", code="program/kind", hint=hint
    )


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="evals/variant", hint=hint)


async def read_listed(cases: Iterable[Any] | str | Path) -> list[Case]:
    """The cases of a list or a file, with a name each. Raises ConfigurationError (``evals/cases``)."""
    if isinstance(cases, str | Path):
        return await asyncio.to_thread(read_cases, cases)
    return named(read_cases(cases))


async def read_baseline(baseline: str | Path | EvaluationReport | None) -> str | EvaluationReport | None:
    """The name of a variant, or a saved report, which a Path names. Raises ConfigurationError (``evals/report``)."""
    return await asyncio.to_thread(read_report, baseline) if isinstance(baseline, Path) else baseline


def names_in(option: str, names: Iterable[str]) -> frozenset[str]:
    """The names that an option lists. Raises ConfigurationError (``config/option``) for one text: its letters are not names."""
    if isinstance(names, str):
        raise wrong_value(
            "an evaluation", option, names, "is one text, and a list of names is wanted", f"{option}=['{names}']"
        )
    return frozenset(names)
