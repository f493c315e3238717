"""How far a judge agrees with people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.evals.figures import EvaluationFigures
from agentflow.evals.statistics import LEVEL, Interval, interval, mean_of


@frozen
class Agreement:
    """How far a judge and people agree on ``count`` answers.

    ``share`` is the share of answers where they agree, ``kappa`` Cohen's kappa: 1 for all, 0 for as many as chance would give, not
    a number where both always gave one verdict. ``verdicts`` counts the answers by the verdicts of people and of the judge, in
    this order.
    """

    share: Interval
    kappa: Interval
    verdicts: Mapping[tuple[float, float], int]

    @property
    def count(self) -> int:
        """The number of answers that both judged."""
        return sum(self.verdicts.values())

    def __str__(self) -> str:
        return f"{self.count} answers, the same verdict on {self.share}, kappa {self.kappa}"


def agreement(
    report: EvaluationFigures,
    judge: str = "judge",
    people: str | Mapping[str, bool | float] = "people",
    *,
    variant: str | None = None,
) -> Agreement:
    """How far the score called ``judge`` agrees with the verdicts of ``people`` on the same answers.

    ``people`` are their verdicts by the name of the case, True and False or the numbers of the score, or the entry of the cases'
    ``metadata`` that holds them. The answers are the first draws of ``variant``, by default of the baseline: for recorded runs the
    recorded answers, which people saw. Cases without a verdict are left out.

    Raises ConfigurationError: ``evals/score``, ``evals/variant``, and ``evals/people`` where no person judged an answer that the
    judge judged too, or where a verdict is neither a bool nor a number.
    """
    report.check_score(judge)
    verdicts: dict[str, tuple[float, float]] = {}
    for each in report[report.baseline if variant is None else variant].samples:
        said: Any = each.case.metadata.get(people) if isinstance(people, str) else people.get(each.case.name)
        if said is None or each.draw or each.status != "done" or judge not in each.scores:
            continue
        if not isinstance(said, bool | int | float):
            raise _wrong(f"of the case '{clip(each.case.name, 80)}' people said {clip(repr(said), 80)}")
        verdicts[each.case.name] = (float(said), each.scores[judge])
    if not verdicts:
        raise _wrong(f"no answer has both a score '{clip(judge, 80)}' and a verdict of people")
    same = {name: [float(one == other)] for name, (one, other) in verdicts.items()}
    share = mean_of(same, report.groups, passing=True)
    return Agreement(
        share,
        _kappa(list(verdicts.values()), share, [report.groups.get(name) for name in verdicts]),
        Counter(verdicts.values()),
    )


# The interval that holds two, since neither covers enough alone (decision 60)
def _kappa(pairs: Sequence[tuple[float, float]], share: Interval, groups: Sequence[str | None]) -> Interval:
    """Cohen's kappa (Cohen 1960) with its interval: the one that holds that of its variance (Fleiss, Cohen and Everitt 1969), by
    the quantiles of other means, and that of the share of equal verdicts for the chance that was seen."""
    count = len(pairs)
    rows, columns = [_shares([pair[side] for pair in pairs]) for side in (0, 1)]
    chance = sum([part * columns.get(verdict, 0.0) for verdict, part in rows.items()])
    if chance > 1 - 1e-12:
        return Interval(math.nan, math.nan, math.nan, count, "none")
    kappa = (share.mean - chance) / (1 - chance)
    # the contribution of each answer: their mean is kappa, and their variance that of kappa
    parts: dict[object, tuple[float, int]] = {}
    for at, (one, other) in enumerate(pairs):
        by_chance = columns.get(one, 0.0) + rows.get(other, 0.0) - 2 * chance
        part = kappa + ((one == other) - share.mean - (1 - kappa) * by_chance) / (1 - chance)
        key = at if groups[at] is None else (groups[at],)
        total, cases = parts.get(key, (0.0, 0))
        parts[key] = total + part, cases + 1
    low, high = interval(list(parts.values()), kappa, LEVEL)
    least, most = [(edge - chance) / (1 - chance) for edge in (share.low, share.high)]
    return Interval(kappa, max(-1.0, min(low, least)), min(1.0, max(high, most)), share.count, "Fleiss and Wilson")


def _shares(verdicts: Sequence[float]) -> dict[float, float]:
    return {each: number / len(verdicts) for each, number in Counter(verdicts).items()}


def _wrong(problem: str) -> ConfigurationError:
    hint = "agreement(report, 'judge', {'case 1': True, ...}), or metadata={'people': True} of the cases"
    return ConfigurationError(problem, code="evals/people", hint=hint)
