"""Applies scorers to runs: the samples of an evaluation, and finished runs of a flow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ConfigurationError, PurseEmpty, RunStopped, clip
from agentflow.core.data.limits import total
from agentflow.core.data.messages import Batching
from agentflow.durable.generations import TaskOverrides
from agentflow.durable.samples import Anew, SampleEnd, Samples, plain_row
from agentflow.durable.stored_input import PythonProgram
from agentflow.evals.cases import Scorer
from agentflow.evals.foreign import foreign_name, foreign_score, is_foreign
from agentflow.evals.judges import Judge, judge
from agentflow.evals.sample import Sample
from agentflow.evals.scorers import ACCOUNT, close, contains, exact, json_equal, matches, schema_ok, tool_called
from agentflow.flow.python import FlowCall
from agentflow.run.engine import PythonTarget
from agentflow.run.purses import Purse
from agentflow.run.run_spec import RunSpec

_NONE: Mapping[str, Any] = MappingProxyType({})


class SampleBlocked(RunStopped):
    """A sample would have done something that may not be repeated."""

    default_code = "evals/blocked"


class Scoring:
    """Scores samples, and counts the cost of judging.

    Parameters: ``samples`` carry out the tasks that judge, with the ``tasks`` of :meth:`~agentflow.durable.samples.Samples.changed`; ``ask`` asks a
    model; ``whose`` names the evaluation or the run in the records of judges; ``purse`` pays for them; ``anew`` are the
    samples without answers in records; with ``batch`` judges are asked in batches.
    """

    def __init__(
        self,
        samples: Samples,
        ask: Callable[..., Any],
        *,
        tasks: TaskOverrides,
        whose: str,
        purse: Purse | None,
        anew: Anew | None = None,
        batch: Batching = False,
    ) -> None:
        self._samples = samples
        self._ask = ask
        self._tasks = tasks
        self._whose = whose
        self._purse = purse
        self._anew = anew
        self._batch: Batching = batch
        self.calls = 0
        """The model calls that judging paid for."""
        self.usd: float | None = 0.0
        """Their cost in US dollars; None for an unknown price."""
        self.whole_usd: float | None = 0.0
        """Their cost with that of the verdicts that were reused."""
        self.names: dict[str, set[str]] = {}
        """The names of the scores that each scorer gave, by its own name."""

    async def scored(self, sample: Sample, scorers: Sequence[Scorer], rival: SampleEnd | None) -> Sample:
        """The sample with its scores; ``rival`` is the end that it is compared with, None for a sample of the baseline itself.

        A scorer that raises is a missing score, which the sample explains. Raises PurseEmpty, and cancellation.
        """
        scores: dict[str, float] = {}
        passing: set[str] = set()
        missing: dict[str, str] = {}
        for scorer in scorers:
            name = name_of(scorer)
            if sample.status == "failed" and not judges_failures(scorer):
                continue
            try:
                judged = await self._score(scorer, sample, rival)
            except PurseEmpty:
                raise
            except Exception as error:  # noqa: BLE001 - a scorer that raises is a missing score, counted and shown
                missing[name] = f"{type(error).__name__}: {clip(str(error), 300)}"
                continue
            for key, score in _by_name(name, judged, missing).items():
                self.names.setdefault(name, set()).add(key)
                scores[key] = float(score)
                if isinstance(score, bool):
                    passing.add(key)
        return replace(sample, scores=scores, missing=missing, passing=frozenset(passing))

    def with_fails(self, samples: Sequence[Sample], scorers: Sequence[Scorer]) -> list[Sample]:
        """The samples; a failed one has 0 where others have a score, and so counts in the mean."""
        passing = {name for each in samples for name in each.passing}
        whole: list[Sample] = []
        for each in samples:
            if each.status == "failed":
                judging = (*scorers, *each.case.scorers)
                names = {key for scorer in judging for key in self.names.get(name_of(scorer), ())}
                missing = dict.fromkeys(sorted(names - each.scores.keys()), 0.0)
                each = replace(
                    each, scores={**each.scores, **missing}, passing=each.passing | (passing & missing.keys())
                )
            whole.append(each)
        return whole

    async def _score(self, scorer: Scorer, sample: Sample, rival: SampleEnd | None) -> Any:
        if isinstance(scorer, Judge):
            return await self._judged(scorer, sample, rival)
        if is_function(scorer):
            return await self._by_task(scorer, sample)
        if is_foreign(scorer):
            return await foreign_score(scorer, sample.case, sample)
        score = cast("Callable[..., Any]", scorer)(sample.case, sample)
        return await score if inspect.isawaitable(score) else score

    async def _by_task(self, scorer: Any, sample: Sample) -> Any:
        """The value of a task or workflow as the score: its parameters are taken from the case and the sample by name."""
        case = sample.case
        there = {
            **case.inputs,
            "case": case.to_dict(),
            "value": sample.value,
            "expected": case.expected if case.expects else None,
        }
        return await self.play(scorer, there)

    async def play(self, function: Any, values: Mapping[str, Any], *, draw: int = 0) -> Any:
        """The value of a task or workflow that takes its parameters from these values, by name. Raises TypeError for one that wants
        others, and its error."""
        wanted = inspect.signature(function).parameters
        unknown = [name for name in wanted if name not in values]
        if unknown:
            raise TypeError(f"'{name_of(function)}' wants '{unknown[0]}': it may have {', '.join(values)}")
        return await self.ask(*function(**{name: values[name] for name in wanted}).stored(), draw=draw)

    async def ask(self, target: PythonTarget, values: Mapping[str, Any] = _NONE, *, draw: int = 0) -> Any:
        """The value of a task that judges, as a sample of its own: kept, and paid by the evaluation. Raises its error."""
        program = PythonProgram(target)
        row = plain_row(f"{self._whose}.score", program.source.name, program.source.text)
        spec = RunSpec(bindings=values, purse=self._purse, attended=False, batch=self._batch)
        end = await self._samples.carry_out(row, program, spec, tasks=self._tasks, draw=draw, anew=self._anew)
        self.calls += end.paid_usage.requests
        self.usd = total((self.usd, end.paid))
        self.whole_usd = total((self.whole_usd, end.cost))
        if end.error is not None:
            raise end.error
        if end.status != "done":
            raise SampleBlocked(f"'{target.name}' waits for an answer or a time")
        return end.value

    async def _judged(self, judge: Judge, sample: Sample, rival: SampleEnd | None) -> float | bool | None:
        if not judge.pairwise:
            return judge.score(await self._asked(judge, judge.prompt(sample.case, sample.value)))
        if rival is None:
            return 0.5
        if rival.status != "done":
            return None
        first = judge.score(await self._asked(judge, judge.prompt(sample.case, sample.value, rival.value)))
        second = judge.score(await self._asked(judge, judge.prompt(sample.case, rival.value, sample.value)))
        return float(first) if first == 1 - second else 0.5

    async def _asked(self, judge: Judge, prompt: str) -> Any:
        settings = {} if judge.model is None else {"model": judge.model}
        return await self.ask(ModelQuestion(judge.name, lambda: self._ask(prompt, output=judge.verdict, **settings)))


class ModelQuestion:
    """A question to a model as the whole program of a sample; a :class:`~agentflow.run.engine.PythonTarget`."""

    digest = ""

    def __init__(self, name: str, ask: Callable[[], FlowCall[Any]]) -> None:
        self.name = self.reference = name
        self._ask = ask

    async def carry_out(self, bindings: Mapping[str, Any], call: CallContext) -> Any:
        """Ask at the outermost call of the sample."""
        work = self._ask()
        work.begin()
        return await work.evaluate(call)

    def store(self, value: Any) -> Any:
        """The answer; a sample's value is not stored."""
        return value

    def restore(self, value: Any) -> Any:
        """The answer."""
        return value


def name_of(scorer: Any) -> str:
    """The name of the score that a scorer gives."""
    if is_foreign(scorer):
        return foreign_name(scorer)
    name = getattr(scorer, "name", None) or getattr(scorer, "__name__", None)
    return name if isinstance(name, str) else type(scorer).__name__


def listed_scorers(scorers: object) -> tuple[Any, ...]:
    """The scorers in a list. Raises ConfigurationError (``evals/scorer``) for one without a list."""
    if isinstance(scorers, Iterable) and not isinstance(scorers, str):
        return tuple(cast("Iterable[Any]", scorers))
    name = scorers if isinstance(scorers, str) else name_of(scorers)
    raise ConfigurationError(
        f"scorers={clip(name, 80)} is one scorer, and a list of them is wanted",
        code="evals/scorer",
        hint="scorers=[exact(), cost]",
    )


def check_scorer(scorer: object) -> None:
    """Raise ConfigurationError (``evals/scorer``) for anything but a scorer."""
    if isinstance(scorer, Judge) or is_function(scorer) or is_foreign(scorer):
        return
    if callable(scorer):
        try:
            inspect.signature(scorer).bind(None, None)
            return
        except ValueError:  # a callable without a signature
            return
        except TypeError:
            name = name_of(scorer)
            hint = f"write {name}()" if scorer in _FACTORIES else "def polite(case, run): return 'please' in run.value"
            problem = f"the scorer '{name}' does not take a case and a run"
    else:
        problem, hint = f"{clip(repr(scorer), 80)} is not a scorer", "give functions: scorers=[exact(), cost]"
    raise ConfigurationError(problem, code="evals/scorer", hint=hint)


_FACTORIES: tuple[object, ...] = (exact, contains, matches, json_equal, close, schema_ok, tool_called, judge)


def is_function(program: object) -> bool:
    """Whether it is a task or workflow of Python."""
    return all([hasattr(program, name) for name in ("carry_out", "reference", "digest")])


def judges_failures(scorer: Any) -> bool:
    """Whether a scorer has something to say of a sample that failed: its cost, for example."""
    return name_of(scorer) in ACCOUNT or bool(getattr(scorer, "judges_failures", False))


def _by_name(name: str, value: Any, missing: dict[str, str]) -> dict[str, float | bool]:
    """The scores that a scorer gave, by name; anything else is noted in ``missing``."""
    entries: dict[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {name: value}
    scores: dict[str, float | bool] = {}
    for key, score in entries.items():
        if score is None:
            continue
        if isinstance(score, bool | int | float):
            scores[str(key)] = score
        else:
            missing[str(key)] = f"it gave {clip(repr(score), 80)}, and a number, True, False or None is wanted"
    return scores
