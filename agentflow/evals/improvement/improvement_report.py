"""The result of an improvement: the candidate to use, as a diff with its evidence, and as a file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import ConfigurationError, PurseEmpty
from agentflow.core.data.source import Source
from agentflow.durable.override_files import OVERRIDES, overrides_text
from agentflow.evals.figures import BASE
from agentflow.evals.forms import aligned, missing_scores
from agentflow.evals.improvement.candidates import CHEAPER, ProgramCandidate, fails, figures_of, is_better
from agentflow.evals.improvement.editable import EditableTask, as_text
from agentflow.evals.report import EvaluationReport
from agentflow.evals.statistics import Difference

_SUFFIXES = {"sexp": ".sexp", "python": ".py"}


class ImprovementReport:
    """The outcome of an improvement. ``report.best`` is the candidate to use, which is the unchanged program if nothing is better.

    ``candidates`` are all of them, the unchanged program first; ``score`` is the name of the score to raise. ``finals`` is the
    evaluation of the finalists on the held-out cases (None if no candidate came that far), ``searched_on`` the number of the other
    cases. ``stopped`` is the error of the limit that ended it early; ``run_id`` carries it on, with a higher limit. ``paid_usd`` and
    ``paid_calls`` were paid now, judges and the task that writes instructions included; ``reused_calls`` were answered by stored
    answers.
    """

    def __init__(
        self,
        *,
        run_id: str,
        score: str,
        candidates: Sequence[ProgramCandidate],
        tasks: Mapping[str, EditableTask],
        program: Any,
        finals: EvaluationReport | None,
        searched_on: int,
        stopped: PurseEmpty | None = None,
        paid_usd: float | None = 0.0,
        paid_calls: int = 0,
        reused_calls: int = 0,
    ) -> None:
        self.run_id = run_id
        self.score = score
        self.candidates = tuple(candidates)
        self.finals = finals
        self.searched_on = searched_on
        self.stopped = stopped
        self.paid_usd = paid_usd
        self.paid_calls = paid_calls
        self.reused_calls = reused_calls
        self._tasks = tasks
        self._program = program
        self._by_name = {each.name: each for each in candidates}

    @property
    def partial(self) -> bool:
        """Whether a limit ended the search early."""
        return self.stopped is not None

    @property
    def finalists(self) -> tuple[ProgramCandidate, ...]:
        """The candidates that were drawn on the held-out cases, the unchanged program first."""
        return tuple([self._by_name[name] for name in (() if self.finals is None else self.finals.variants)])

    @property
    def front(self) -> tuple[ProgramCandidate, ...]:
        """The finalists that no other one beats in score, cost and p95 latency together, on the held-out cases."""
        if self.finals is None or self.finals.partial:
            return (self._by_name[BASE],)
        axes = {each.name: self._axes(self.finals, each.name) for each in self.finalists}

        def is_beaten(name: str) -> bool:
            mine = axes[name]
            return any(
                [other != mine and all([a >= b for a, b in zip(other, mine, strict=True)]) for other in axes.values()]
            )

        return tuple([each for each in self.finalists if not is_beaten(each.name)])

    @property
    def best(self) -> ProgramCandidate:
        """The finalist with the best score on the held-out cases (of equal ones, the cheapest), among those that are better there than the unchanged program,
        score no less than their parent, and fail in no more cases than either. The unchanged program if there is none."""
        finals, base = self.finals, self._by_name[BASE]
        if finals is None or finals.partial:
            return base
        chosen = [each for each in self.finalists if each.name != BASE and self._holds(finals, each)]
        return max(chosen, key=lambda each: self._axes(finals, each.name)[:2], default=base)  # latency is noisy

    @property
    def improved(self) -> bool:
        """Whether :attr:`best` is another one than the unchanged program."""
        return self.best.name != BASE

    @property
    def difference(self) -> Difference | None:
        """The difference of the best candidate from the unchanged program in the score, paired by held-out case; None if it is
        the unchanged program."""
        return self.finals[self.best.name].difference(self.score) if self.finals is not None and self.improved else None

    @property
    def overrides(self) -> Mapping[str, Mapping[str, Any]]:
        """The overrides of the best candidate: of ``flow.start``, ``flow.resume``, or a variant of ``flow.evaluate``."""
        return self.best.overrides

    @property
    def program(self) -> Source | None:
        """The program text of the best candidate; None if that is unchanged."""
        return self.best.program

    @property
    def diff(self) -> str:
        """The change of the best candidate, as a unified diff; empty if it is the unchanged program."""
        return self.diff_of(self.best)

    def diff_of(self, candidate: ProgramCandidate) -> str:
        """The change of a candidate, as a unified diff."""
        lines: list[str] = []
        for task, fields in candidate.overrides.items():
            for name, value in fields.items():
                own = self._tasks.get(task)
                before = own.instructions if name == "instructions" and own is not None else ""
                lines += _diff(before, value if isinstance(value, str) else repr(value), f"{task}.{name}")
        if candidate.program is not None:
            before = as_text(self._program)
            lines += _diff("" if before is None else before.text, candidate.program.text, candidate.program.name)
        return "\n".join(lines)

    @property
    def evidence(self) -> str:
        """The figures that support the best candidate, as text."""
        difference = self.difference
        if difference is None or self.finals is None:
            return "no candidate is better on the held-out cases"
        best, base = (figures_of(self.finals, name, self.score) for name in (self.best.name, BASE))
        clear = "" if difference.is_clear else "; the interval includes no difference"
        lines = [
            f"{self.score}: {base[0]:.3g} -> {best[0]:.3g} on {difference.count} held-out cases, difference {difference},"
            f" p={difference.p:.2g}{clear}",
            f"cost of a case: {_usd(base[1])} -> {_usd(best[1])}",
            f"p95 latency: {_seconds(self.finals, BASE)} -> {_seconds(self.finals, self.best.name)}",
            f"failures: {fails(self.finals, BASE, self.score)} -> {fails(self.finals, self.best.name, self.score)}",
        ]
        return "\n".join(lines)

    def save(self, path: str | Path) -> list[Path]:
        """Write the best candidate: its overrides to ``path`` with the ending ``.toml``, its program, if that changed, to the ending
        of its language. Returns the paths. Raises ConfigurationError (``evals/improvement``) if nothing is better, or for another ending; OSError."""
        path = Path(path)
        best = self.best
        files = {OVERRIDES: overrides_text(best.overrides, self.evidence)} if best.overrides else {}
        if best.program is not None:
            files[_SUFFIXES[best.program.surface]] = best.program.text
        if path.suffix not in files:
            problem = f"this improvement has no file '{path.name}'" if files else "there is nothing better to save"
            hint = f"end the name with {' or '.join(files)}" if files else "report.candidates are those that were tried"
            raise ConfigurationError(problem, code="evals/improvement", hint=hint)
        written = [path.with_suffix(suffix) for suffix in files]
        for each, text in zip(written, files.values(), strict=True):
            each.write_bytes(text.encode("utf-8", "backslashreplace"))
        return written

    def to_dict(self) -> dict[str, Any]:
        """The improvement as JSON data."""
        return {
            "run_id": self.run_id,
            "score": self.score,
            "best": self.best.name,
            "improved": self.improved,
            "front": [each.name for each in self.front],
            "diff": self.diff,
            "evidence": self.evidence,
            "candidates": [each.to_dict() for each in self.candidates],
            "partial": self.partial,
            "paid_usd": self.paid_usd,
            "paid_calls": self.paid_calls,
            "reused_calls": self.reused_calls,
        }

    def __str__(self) -> str:
        head = ["candidate", "from", "change", "stage", self.score, "cost", "held-out", ""]
        rows = [head, *[self._row(each) for each in self.candidates]]
        lines = [
            f"Improvement {self.run_id} of {self.score}, searched on {self.searched_on} cases",
            "",
            *aligned(rows),
            "",
        ]
        if self.stopped is not None:
            lines += [f"stopped: {self.stopped.message}; run_id='{self.run_id}' and a higher limit continue it", ""]
        lines += [f"paid {_usd(self.paid_usd)} for {self.paid_calls} model calls; {self.reused_calls} were reused", ""]
        absent = {} if self.finals is None else missing_scores(self.finals)
        if absent:
            lines += ["missing on the held-out cases:", *[f"  {count} x {why}" for why, count in absent.items()], ""]
        if self.improved:
            lines += [f"The best is {self.best.name}:", "", self.diff, ""]
        return "\n".join([*lines, self.evidence])

    def _row(self, candidate: ProgramCandidate) -> list[str]:
        score = "" if candidate.score is None else f"{candidate.score:.3g}"
        held = (
            ""
            if self.finals is None or candidate not in self.finalists
            else f"{self._mean(self.finals, candidate.name):.3g}"
        )
        cost = "" if candidate.score is None else _usd(candidate.cost_usd)
        why = candidate.why or ("best" if candidate.name == self.best.name else "")
        return [candidate.name, candidate.parent, candidate.change, candidate.stage, score, cost, held, why]

    def _mean(self, finals: EvaluationReport, name: str) -> float:
        return finals[name].score(self.score).mean

    def _axes(self, finals: EvaluationReport, name: str) -> tuple[float, float, float]:
        """Score, cost and latency of a finalist; more is better."""
        score, cost = figures_of(finals, name, self.score)
        return score, -(cost or 0.0), -(finals[name].latency_p95_s or 0.0)

    def _holds(self, finals: EvaluationReport, candidate: ProgramCandidate) -> bool:
        """Whether a finalist is better than the unchanged program, and no worse than its parent, on the held-out cases."""
        if candidate.parent not in finals.variants:  # drawn as the parent of another one only
            return False
        mine, most = figures_of(finals, candidate.name, self.score), fails(finals, candidate.name, self.score)
        before = {name: figures_of(finals, name, self.score) for name in (BASE, candidate.parent)}
        return (is_better(mine, before[BASE]) or self._is_faster(finals, candidate)) and all(
            [mine[0] >= score and most <= fails(finals, name, self.score) for name, (score, _) in before.items()]
        )

    def _is_faster(self, finals: EvaluationReport, candidate: ProgramCandidate) -> bool:
        """Whether a finalist that can only be faster is."""
        mine, before = finals[candidate.name].latency_p95_s, finals[BASE].latency_p95_s
        return candidate.faster and mine is not None and before is not None and mine <= CHEAPER * before


def _diff(before: str, after: str, name: str) -> list[str]:
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2))


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.4f}"


def _seconds(finals: EvaluationReport, name: str) -> str:
    value = finals[name].latency_p95_s
    return "unknown" if value is None else f"{value:.3g} s"
