"""Scores finished durable runs in the background of the flow: ``flow.score``.

A run is chosen when it ends, by a number derived from its id and the scorer's name, so that a run that ends again is chosen again
and no other process chooses otherwise. Scores are stored with the run; if its process dies before that, the run has none.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, cast

from agentflow.core.data.errors import AgentflowError, ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.results import NO_USAGE
from agentflow.core.events.journal_rows import RunRow, StoredResult
from agentflow.core.events.live_scores import LiveScore, ScoreObserver
from agentflow.durable.handle import RunEnd, RunInfo
from agentflow.durable.run_filter import fits, run_filter, score_key
from agentflow.durable.runs import DurableRuns
from agentflow.evals.cases import Case, Scorer
from agentflow.evals.judges import Judge
from agentflow.evals.sample import Sample, SampleStatus
from agentflow.evals.scorers import ToolUse
from agentflow.evals.scoring import Scoring, check_scorer, name_of
from agentflow.lib.option_table import wrong_value
from agentflow.lib.text.filters import Filter
from agentflow.run.engine import Engine

_log = logging.getLogger(__name__)
_AT_ONCE = 4
"""Runs scored at a time."""
_WAITING = 1_000
"""Runs that wait to be scored; beyond them a run is dropped, and counted."""
_CLOSING_S = 5.0


@frozen
class _Watch:
    """A scorer of live runs: which part of the runs that fit it scores."""

    scorer: Scorer
    sample: float
    where: Filter
    purse: str | None

    def takes(self, run: RunInfo) -> bool:
        """Whether it scores a run that has ended."""
        digest = blake2b(
            f"{run.run_id}\0{name_of(self.scorer)}".encode("utf-8", "surrogatepass"), digest_size=8
        ).digest()
        return int.from_bytes(digest, "big") < self.sample * 2**64 and fits(run, self.where)


async def tell_scores(observers: Iterable[object], told: Sequence[LiveScore]) -> None:
    """Notify those of the ``observers`` of a flow that take scores."""
    for observer in observers:
        if isinstance(observer, ScoreObserver):
            try:
                for each in told:
                    if inspect.isawaitable(taken := observer.scored(each)):
                        await taken
            except Exception:  # noqa: BLE001 - foreign code: its failure is neither a score's nor another observer's
                _log.warning("observer %r failed to take a score", observer, exc_info=True)


class OnlineScoring:
    """Scores the durable runs of a flow as they end. ``ask`` asks a model for a judge.

    ``scored`` runs have their scores, ``failed`` counts scores that a scorer did not give because it raised, ``dropped`` runs that
    were chosen and not scored: too many waited, or the flow was closed.
    """

    def __init__(self, engine: Engine, runs: DurableRuns, ask: Callable[..., Any]) -> None:
        self._engine = engine
        self._runs = runs
        self._ask = ask
        self._watches: list[_Watch] = []
        self._waiting: deque[tuple[RunRow, RunEnd, list[_Watch]]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._closed = False
        self.scored = self.failed = self.dropped = 0
        runs.tell_ends(self._ended)

    def add(self, scorers: Sequence[Scorer], sample: float, where: str, purse: str | None) -> None:
        """Score later runs with ``scorers`` too. Raises ConfigurationError."""
        if type(sample) not in (int, float) or not 0 < sample <= 1:
            raise wrong_value(
                "score()", "sample", sample, "is not a fraction of the runs", "from above 0 to 1: sample=0.05"
            )
        if purse is not None:
            self._engine.payer(purse)
        names = {name_of(each.scorer) for each in self._watches}
        chosen = run_filter(where)
        for scorer in scorers:
            check_scorer(scorer)
            name = name_of(scorer)
            if isinstance(scorer, Judge) and scorer.pairwise:
                raise _wrong(
                    f"the judge '{name}' compares two answers, and a live run has one", "judge('Is it polite?')"
                )
            if name == "<lambda>":
                raise _wrong("a scorer of live runs has no name", "def polite(case, run): return 'please' in run.value")
            if getattr(scorer, "needs_expected", False):
                problem = f"'{name}' compares with an expected value, and a live run has none"
                raise _wrong(problem, "contains('text'), matches('...'), judge('...'), or a function of your own")
            if name in names:
                raise _wrong(
                    f"two scorers of live runs are called '{name}'", "give one another name: judge('...', name='tone')"
                )
            names.add(name)
        self._watches += [_Watch(each, sample, chosen, purse) for each in scorers]

    def _ended(self, row: RunRow, end: RunEnd) -> None:
        """Choose the scorers of a run that has just ended, and return at once."""
        try:
            self._choose(row, end)
        except Exception:  # noqa: BLE001 - an error without readable text, for example: it fails no run
            self.failed += 1

    def _choose(self, row: RunRow, end: RunEnd) -> None:
        if row.parent is not None or end.status not in ("done", "failed") or self._closed:
            return
        info = replace(
            RunInfo.of(row),
            status=end.status,
            cost_usd=getattr(end.error, "cost", None) if end.result is None else end.result.cost,
            updated=time.time(),
            error=None if end.error is None else str(end.error),
        )
        watches = [each for each in self._watches if each.takes(info)]
        if not watches:
            return
        if len(self._waiting) >= _WAITING:
            self.dropped += 1
            return
        self._waiting.append((row, end, watches))
        if len(self._workers) < _AT_ONCE:
            worker = asyncio.create_task(self._work(), name="scoring of live runs")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        while self._waiting:
            row, end, watches = self._waiting.popleft()
            try:
                await self._tell(row.run, *await self._score(row, end, watches))
            except asyncio.CancelledError:
                self.dropped += 1
                raise
            except Exception:  # noqa: BLE001 - a database that cannot be used fails no run: the score is missing
                self.failed += len(watches)

    async def _tell(self, run_id: str, scores: Mapping[str, Any], missing: Mapping[str, str]) -> None:
        """Notify the observers of the flow that take scores."""
        told = [LiveScore(run_id=run_id, name=name, value=value) for name, value in scores.items()]
        told += [LiveScore(run_id=run_id, name=name, error=error) for name, error in missing.items()]
        await tell_scores(self._engine.observers, told)

    async def _score(
        self, row: RunRow, end: RunEnd, watches: Sequence[_Watch]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The scores of a run and the errors of the missing ones, once they are stored."""
        sample = await self._sample(row, end)
        scores: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for watch in watches:
            purse = None if watch.purse is None else self._engine.payer(watch.purse)
            scoring = Scoring(
                self._runs.samples,
                self._ask,
                tasks=self._runs.samples.changed({}, None, deps=None),
                whose=f"score {row.run}",
                purse=purse,
            )
            try:
                judged = await scoring.scored(sample, [watch.scorer], None)
            except AgentflowError as error:  # the purse is empty
                missing[name_of(watch.scorer)] = f"{error.code}: {clip(error.message, 300)}"
                continue
            scores |= {name: score == 1.0 if name in judged.passing else score for name, score in judged.scores.items()}
            missing |= judged.missing
        self.failed += len(missing)
        value = {"scores": scores, "missing": missing}
        stored = StoredResult(kind="score", name="", value=value, turns=None, usage=None, cost=0.0, at=time.time())
        await self._runs.results.keep(score_key(row.run), stored)
        self.scored += 1
        return scores, missing

    async def _sample(self, row: RunRow, end: RunEnd) -> Sample:
        """A run that has ended as scorers see it."""
        result, error = end.result, end.error
        _, rows = await self._runs.samples.case(row.run)
        case = Case(run_id=row.run, name=row.run, inputs=self._runs.samples.inputs(row))
        return Sample(
            case=case,
            digest=case.digest,
            variant="live",
            draw=0,
            status=cast(SampleStatus, end.status),
            value=None if result is None else result.value,
            error=error,
            usage=NO_USAGE if result is None else result.usage,
            cost_usd=None if result is None else result.cost,
            latency_s=row.spent_s,
            steps=0 if result is None else result.steps,
            tools=tuple([ToolUse(each.path, each.name, None) for each in rows if each.kind == "tool"]),
        )

    async def aclose(self) -> None:
        """Score the waiting runs, for at most five seconds, and drop the rest."""
        self._closed = True
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=_CLOSING_S)
            for worker in late:
                worker.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self.dropped += len(self._waiting)
        self._waiting.clear()


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="evals/scorer", hint=hint)
