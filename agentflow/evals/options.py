"""The options of an evaluation, for the signatures of :meth:`agentflow.AgentFlow.evaluate`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from agentflow.core.call.approval import Approver
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Batching
from agentflow.core.events.questions import Answerer
from agentflow.durable.override_files import OVERRIDES, read_overrides
from agentflow.evals.cases import Cases, Scorer
from agentflow.evals.evaluation import (
    AT_ONCE,
    AT_ONCE_IN_BATCHES,
    Plan,
    Variant,
    check_program,
    names_in,
    read_baseline,
    read_listed,
)
from agentflow.evals.report import EvaluationReport
from agentflow.evals.sample import Sample
from agentflow.evals.scoring import listed_scorers
from agentflow.flow.program_methods import check_run
from agentflow.lib.text.suggest import did_you_mean


class EvaluationOptions(TypedDict, total=False):
    """The options of :meth:`agentflow.AgentFlow.evaluate`, which has their defaults."""

    variants: Mapping[str, Variant] | None
    scorers: Sequence[Scorer]
    repeat: int
    limits: Limits | None
    approve: Approver | None
    answer: Answerer | Callable[..., Any] | None
    live_tools: Iterable[str]
    rerun: Iterable[str]
    deps: Any
    baseline: str | Path | EvaluationReport | None
    primary: Iterable[str]
    until: float | None
    concurrency: int
    batch: Batching
    seed: int
    run_id: str | None
    told: Callable[[Sample, int, int], None] | None


def _read_variants(variants: Mapping[str, Variant]) -> Mapping[str, Variant]:
    """The variants, with the overrides in the place of files of them. Raises JournalError (``durable/override``)."""
    if not isinstance(cast(object, variants), Mapping):
        return variants
    return {
        name: read_overrides(each) if isinstance(each, Path) and each.suffix == OVERRIDES else each
        for name, each in variants.items()
    }


_NAMES = tuple(EvaluationOptions.__annotations__)


async def plan_of(program: Any, cases: Cases, options: EvaluationOptions) -> Plan:
    """The plan of an evaluation with these options. Raises ConfigurationError (``config/option``) for an unknown one, and the
    errors of :func:`~agentflow.evals.read_cases`."""
    chosen = dict(options)
    for name in chosen:
        if name not in _NAMES:
            hint = did_you_mean(name, _NAMES) or f"the options are {', '.join(sorted(_NAMES))}"
            raise ConfigurationError(
                f"flow.evaluate has no option '{clip(name, 80)}'",
                code="config/option",
                hint=hint,
                details={"option": name},
            )
    check_program(program)
    check_run(None, options.get("limits"), batch=options.get("batch", False))
    for name in ("live_tools", "rerun", "primary"):
        chosen[name] = names_in(name, cast("Iterable[str]", chosen.get(name, ())))
    chosen |= {
        "variants": await asyncio.to_thread(_read_variants, options.get("variants") or {}),
        "scorers": listed_scorers(options.get("scorers", ())),
        "primary": tuple(sorted(cast("frozenset[str]", chosen["primary"]))),
        "concurrency": options.get("concurrency", AT_ONCE_IN_BATCHES if options.get("batch") else AT_ONCE),
        "baseline": await read_baseline(options.get("baseline")),
    }
    return Plan(program=program, cases=await read_listed(cases), **cast("dict[str, Any]", chosen))
