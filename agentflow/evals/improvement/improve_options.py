"""The options of an improvement, for the signature of :meth:`agentflow.AgentFlow.improve`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, cast, get_args

from agentflow.core.call.approval import Approver
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.limits import Limits
from agentflow.core.events.questions import Answerer
from agentflow.evals.cases import Cases, Scorer
from agentflow.evals.evaluation import check_program, names_in, read_listed
from agentflow.evals.improvement.candidates import ProgramCandidate
from agentflow.evals.improvement.improvement_report import ImprovementReport
from agentflow.evals.improvement.operators import OF_TEXTS, OPERATORS
from agentflow.evals.improvement.search import ImprovementPlan, Search
from agentflow.evals.scoring import is_function, listed_scorers, name_of
from agentflow.flow.program_methods import check_run
from agentflow.lib.option_table import wrong_value
from agentflow.lib.text.suggest import did_you_mean

By: TypeAlias = Literal["own", "gepa"]
"""Who proposes instructions: the question of this package, or the optimiser of the package ``gepa``."""


class ImproveOptions(TypedDict, total=False):
    """The options of :meth:`agentflow.AgentFlow.improve`, which has their defaults."""

    edit: Sequence[Any] | None
    by: By
    limits: Limits | None
    holdout: float
    generations: int
    width: int
    finalists: int
    shown: int
    repeat: int
    primary: str | None
    model: str | None
    approve: Approver | None
    answer: Answerer | Callable[..., Any] | None
    live_tools: Iterable[str]
    deps: Any
    concurrency: int
    seed: int
    run_id: str | None
    told: Callable[[ProgramCandidate], None] | None
    operators: Iterable[str]
    models: Iterable[str]


_NAMES = tuple(ImproveOptions.__annotations__)
_COUNTS = ("generations", "width", "finalists", "shown", "repeat", "concurrency")


async def improvement_plan_of(
    program: Any, cases: Cases, scorers: Sequence[Scorer], options: ImproveOptions
) -> ImprovementPlan:
    """The plan of an improvement with these options. Raises ConfigurationError (``config/option``) for an unknown or invalid one,
    and the errors of :func:`~agentflow.evals.read_cases`."""
    chosen = dict(options)
    for name in chosen:
        if name not in _NAMES:
            hint = did_you_mean(name, _NAMES) or f"the options are {', '.join(sorted(_NAMES))}"
            raise ConfigurationError(
                f"flow.improve has no option '{clip(name, 80)}'",
                code="config/option",
                hint=hint,
                details={"option": name},
            )
    check_run(None, options.get("limits"))
    for name in _COUNTS:
        value = chosen.get(name, 1)
        if type(value) is not int or value < 1:
            raise wrong_value("flow.improve", name, value, "is not a whole number from 1 up", f"for example {name}=3")
    if (by := chosen.pop("by", "own")) not in get_args(By):
        raise wrong_value("flow.improve", "by", by, "is not an optimiser", "by='own' or by='gepa'")
    check_program(program)
    chosen["operators"], chosen["models"] = (
        _operators(options, program),
        tuple(sorted(names_in("models", options.get("models", ())))),
    )
    chosen["live_tools"] = names_in("live_tools", options.get("live_tools", ()))
    listed = await read_listed(cases)
    return ImprovementPlan(
        program=program, cases=listed, scorers=listed_scorers(scorers), **cast("dict[str, Any]", chosen)
    )


def _operators(options: ImproveOptions, program: Any) -> tuple[str, ...]:
    """The names of operators, in the order of their table. Raises ConfigurationError (``config/option``)."""
    asked = names_in("operators", options.get("operators", ()))
    for name in sorted(asked):
        if name not in OPERATORS:
            hint = did_you_mean(name, OPERATORS) or f"they are {', '.join(OPERATORS)}"
            raise wrong_value("flow.improve", "operators", name, "is not an operator", hint)
    if asked and options.get("by", "own") != "own":
        raise wrong_value("flow.improve", "operators", sorted(asked), "are those of the own search", "by='own'")
    if ("model" in asked) != bool(options.get("models")):
        raise wrong_value(
            "flow.improve",
            "models",
            options.get("models"),
            "goes with the operator 'model'",
            "operators=['model'], models=['openai:gpt-5-mini']",
        )
    if (of_texts := sorted(asked & OF_TEXTS)) and (program is None or is_function(program)):
        which = "recorded runs have their own" if program is None else f"'{name_of(program)}' is a Python function"
        raise wrong_value(
            "flow.improve",
            "operators",
            of_texts,
            f"change the text of a program, and {which}",
            "give the program as a text, such as Path('answer.py'), or leave them out: operators=['few_shot', 'effort']",
        )
    return tuple([name for name in OPERATORS if name in asked])


async def carried_out(search: Search, by: By) -> ImprovementReport:
    """The report of a search with this optimiser. Raises the errors of :meth:`~agentflow.evals.improvement.search.Search.report`."""
    if by == "own":
        return await search.report(Search.generations)
    from agentflow.evals.improvement.gepa_adapter import search_by_gepa  # an extra

    return await search.report(search_by_gepa)
