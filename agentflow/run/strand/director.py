"""The director-evaluator loop: plan, execute, evaluate, decide, a bounded number of times."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.labels import bare, because_of, box, outer_sources, strip
from agentflow.core.data.source import Span
from agentflow.core.data.values import Symbol, as_list, name_of
from agentflow.lang.builtins.registry import type_name
from agentflow.lang.environment import unbound
from agentflow.lang.printer import print_value
from agentflow.lang.support import apply
from agentflow.lang.trace import annotate
from agentflow.run.strand.strand import Strand


async def director_loop(rt: Strand, d: int, span: Span, names: tuple[str, ...], *values: Any) -> Any:
    """Run the loop and return its value. Raises SexpEvaluationError for an invalid count, phase or decision, and the errors
    of phases, which name the phase."""
    clauses = dict(zip(names, values, strict=True))
    limit = bare(clauses["max-iterations"])
    if type(limit) is not int or limit < 0:
        wrong = SexpEvaluationError(
            "max-iterations is a non-negative integer, not " + print_value(limit, limit=80),
            code="director/max-iterations",
            span=span,
        )
        raise because_of(wrong, clauses["max-iterations"])
    for phase in ("director", "executor", "evaluator", "controller"):
        function = bare(clauses[phase])
        if type_name(function) != "procedure" and name_of(function) is None:
            wrong = SexpEvaluationError(
                f"'{phase}' is a procedure, not {print_value(function, limit=80)}",
                code="director/phase",
                span=span,
                hint=f"give {phase} a function, or the name of a task",
            )
            raise because_of(wrong, clauses[phase])
    first = clauses["initial-director-input"]
    outer = rt.loop_config
    rt.loop_config = [("max-iterations", limit), ("initial-director-input", first)]
    try:
        return await _iterate(rt, d, span, clauses, limit, first)
    finally:
        rt.loop_config = outer


async def _iterate(rt: Strand, d: int, span: Span, clauses: dict[str, Any], limit: int, task_input: Any) -> Any:
    result: Any = []
    for i in range(1, limit + 1):

        async def phase(name: str, *arguments: Any, iteration: int = i) -> Any:
            try:
                return await apply(rt, clauses[name], arguments, d)
            except AgentflowError as error:
                annotate(error)
                error.add_frame(f"{name}, iteration {iteration} of director-evaluator-loop", span)
                error.details.setdefault("phase", name)
                error.details.setdefault("iteration", iteration)
                raise

        plan = await phase("director", task_input, i)
        result = await phase("executor", plan, i)
        feedback = await phase("evaluator", result, plan, i)
        decision = await phase("controller", feedback, plan, result, i)
        pair = as_list(bare(decision)) or []
        word = name_of(bare(pair[0])) if len(pair) == 2 else None
        if word == "stop":
            return box(pair[1], outer_sources(decision))
        if word != "continue":
            wrong = SexpEvaluationError(
                f"controller, iteration {i}: {print_value(strip(decision)[0], limit=200)} is not a decision",
                code="director/decision",
                span=span,
                hint="return (list 'continue next-input) or (list 'stop value)",
                details={"phase": "controller", "iteration": i},
            )
            raise because_of(wrong, decision)
        task_input = box(pair[1], outer_sources(decision))
    return result


async def loop_config(rt: Strand, d: int, span: Span) -> list[Any]:
    """The value of ``*loop-config*``. Raises UnboundSymbolError outside a director-evaluator loop."""
    if rt.loop_config is None:
        raise unbound(
            "*loop-config*",
            "'*loop-config*' is not bound here",
            "it has a value inside the phases of a director-evaluator-loop",
        )
    return [[Symbol(name), value] for name, value in rt.loop_config]
