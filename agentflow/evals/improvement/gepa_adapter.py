"""The optimiser of the package ``gepa`` over the evaluations of a search: it proposes, and records answer where nothing changed."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from agentflow.core.data.errors import PurseEmpty
from agentflow.evals.cases import Case
from agentflow.evals.evaluation import Variation
from agentflow.evals.improvement.candidates import ProgramCandidate
from agentflow.evals.improvement.proposals import Trace
from agentflow.evals.improvement.search import Search
from agentflow.lib.distribution import extra_missing

T = TypeVar("T")


# The optimiser is not durable: it is repeated, with the same seed, over answers that are kept (decision 71)
class RecordedAdapter:
    """A ``GEPAAdapter`` of the search: GEPA runs in a thread, the evaluations on the loop of the search."""

    propose_new_texts = None

    def __init__(self, search: Search) -> None:
        self._search = search
        self._loop = asyncio.get_running_loop()
        self._at_work: Future[Any] | None = None
        self._prompts: dict[str, int] = {}
        self._batch = importlib.import_module("gepa.core.adapter").EvaluationBatch
        self.stopped = False
        """Whether GEPA is to stop: at a limit, or because the search was cancelled."""

    def evaluate(self, batch: list[Case], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """The scores of a candidate in some cases; 0 without one, as GEPA wants it."""
        traces = self._wait(self._evaluated(batch, candidate))
        chosen = [traces.get(case.name) for case in batch]
        scores = [0.0 if each is None else each.sample.scores.get(self._search.score, 0.0) for each in chosen]
        outputs = [None if each is None else each.sample.value for each in chosen]
        return self._batch(outputs=outputs, scores=scores, trajectories=chosen if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The runs as text, for each task to rewrite."""
        traces: list[Trace] = [each for each in eval_batch.trajectories if each is not None]
        records = [{"Run": each.shown(self._search.score)} for each in traces]
        return dict.fromkeys(components_to_update, records)

    def reflect(self, prompt: str) -> str:
        """The answer of a model to a prompt of GEPA; the same prompt again is another draw."""
        draw = self._prompts[prompt] = self._prompts.get(prompt, -1) + 1
        return self._wait(self._reflected(prompt, draw))

    def cancel(self) -> None:
        """Stop GEPA in its thread."""
        self.stopped = True
        if self._at_work is not None:
            self._at_work.cancel()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        self._at_work = future = asyncio.run_coroutine_threadsafe(work, self._loop)
        if self.stopped:
            future.cancel()
        return future.result()

    async def _evaluated(self, batch: Sequence[Case], candidate: Mapping[str, str]) -> dict[str, Trace]:
        search, overrides = self._search, _overrides(self._search, candidate)
        if search.why_invalid(overrides) is not None:
            return {}
        cases = list({case.name: case for case in batch}.values())
        evaluation, report = await search.evaluate(cases, [Variation(overrides=overrides)], ["candidate"])
        self.stopped = self.stopped or report.partial
        return {name: each[0] for name, each in evaluation.traces(report, "candidate").items()}

    async def _reflected(self, prompt: str, draw: int) -> str:
        try:
            async with self._search.asking() as scoring:
                return str(await scoring.ask(self._search.question(prompt), draw=draw))
        except PurseEmpty as error:
            self.stopped = True
            self._search.stop(error)
            return ""  # no proposal


async def search_by_gepa(search: Search) -> None:
    """Let GEPA search: its candidates become those of ``search``. Raises ConfigurationError (``config/extra``) without the package."""
    try:
        gepa = importlib.import_module("gepa")
    except ImportError:
        raise extra_missing("by='gepa' needs the package gepa", "gepa") from None
    adapter = RecordedAdapter(search)

    def is_done(state: Any) -> bool:
        return adapter.stopped or state.i + 1 >= search.rounds

    def optimize() -> Any:
        return gepa.optimize(
            seed_candidate={name: each.instructions for name, each in search.tasks.items()},
            trainset=search.train,
            adapter=adapter,
            reflection_lm=adapter.reflect,
            stop_callbacks=is_done,
            logger=_Silent(),
            seed=search.seed,
        )

    work = asyncio.ensure_future(asyncio.to_thread(optimize))
    try:
        result: Any = await asyncio.shield(work)
    except asyncio.CancelledError:
        adapter.cancel()
        await asyncio.wait([work])
        raise
    candidates: list[dict[str, str]] = result.candidates
    parents: list[list[int | None]] = result.parents
    base = search.candidates[0]
    children: list[ProgramCandidate | None] = [base]
    for texts, before in zip(candidates[1:], parents[1:], strict=True):
        parent = next((each for at in before if at is not None and (each := children[at]) is not None), base)
        tasks = [name for name, text in texts.items() if text != search.instructions(parent, name)]
        children.append(
            search.added(parent, f"instructions of {', '.join(tasks)}", overrides=_overrides(search, texts))
        )
    await search.measure([each for each in children[1:] if each is not None])


class _Silent:
    def log(self, message: str) -> None:
        """Nothing: the report lists all candidates."""


def _overrides(search: Search, texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"instructions": text} for name, text in texts.items() if text != search.tasks[name].instructions}
