"""Renders a plan as text and as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentflow.cli.shared.amounts import counted
from agentflow.core.data.money import total
from agentflow.core.data.values import plain

if TYPE_CHECKING:
    from agentflow.durable.plan import PlannedEffect, RunPlan


def plan_data(plan: RunPlan) -> dict[str, Any]:
    """A plan as JSON data."""
    return {
        "run_id": plan.run_id,
        "complete": plan.complete,
        "error": plan.error,
        "reused": [_data(each) for each in plan.reused],
        "run": [_data(each) for each in plan.runs],
        "unused": [_data(each) for each in plan.unused],
    }


def plan_text(plan: RunPlan) -> str:
    """A plan as text: what is reused, what runs and at what cost, and what is unknown."""
    are = "is" if len(plan.reused) == 1 else "are"
    lines = [f"{counted(len(plan.reused), 'effect')} {are} answered from records, which saves {_cost(plan.reused)}"]
    if plan.runs:
        first = "is carried out first, at" if len(plan.runs) == 1 else "are carried out first, at"
        lines.append(
            f"{counted(len(plan.runs), 'effect')} {first} about {_cost(plan.runs)} by what such calls cost before:"
        )
        lines += [f"  {each.path}  {each.kind} {each.name}{_location(each)}  {_cost([each])}" for each in plan.runs]
        lines.append("what follows depends on the results")
        if plan.unused:
            lines.append(f"{counted(len(plan.unused), 'more record')}, of {_cost(plan.unused)}, may answer then")
    elif plan.error is not None:
        lines.append(f"nothing runs; the program ends with {plan.error}")
    elif plan.complete:
        lines.append("nothing runs")
    if plan.complete and plan.unused:
        are = "is" if len(plan.unused) == 1 else "are"
        lines.append(f"{counted(len(plan.unused), 'record')}, of {_cost(plan.unused)}, {are} no longer needed")
    return "\n".join(lines)


def _cost(effects: Sequence[PlannedEffect]) -> str:
    requests = sum(each.usage.requests for each in effects if each.usage is not None)
    tokens = sum(each.usage.total_tokens for each in effects if each.usage is not None)
    unknown = [each for each in effects if each.usage is None or each.cost is None]
    dollars = total([each.cost for each in effects if each.cost is not None])
    cost = f" and ${dollars:.4f}" if dollars else ""
    more = f", and {len(unknown)} of unknown cost" if unknown else ""
    return f"{counted(requests, 'model call')}, {tokens:,} tokens{cost}{more}"


def _location(effect: PlannedEffect) -> str:
    if effect.span is None:
        return ""
    line, column = effect.span.source.position(effect.span.start)
    return f" ({effect.span.source.name}:{line}:{column})"


def _data(effect: PlannedEffect) -> dict[str, Any]:
    location = _location(effect).strip(" ()") or None
    return {
        "path": effect.path,
        "kind": effect.kind,
        "name": effect.name,
        "recorded_at": effect.recorded_at,
        "place": location,
        "usage": plain(effect.usage),
        "cost_usd": effect.cost,
    }
