"""One sample of an evaluation: a case, under a variant, drawn once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.values import plain
from agentflow.evals.apart import ValuePair
from agentflow.evals.cases import Case
from agentflow.evals.scorers import ToolUse

SampleStatus: TypeAlias = Literal["done", "failed", "blocked", "unpaid"]
"""How a sample ended: ``blocked`` would have done something that may not be repeated, or waits for a person; ``unpaid`` met the
limit of the evaluation."""


@frozen(kw_only=True)
class Sample:
    """One sample: the ``case`` under the variant ``variant``, drawn the ``draw``-th time (from 0).

    ``value`` is its value, ``error`` why it failed or is blocked. ``cost_usd`` (None for an unknown price) and ``usage`` are
    those of all its calls, as if none had been reused; ``paid_usd`` was paid in this evaluation. ``latency_s`` is its time in
    seconds, None if an answer in it was reused; ``reused`` and ``ran`` count its effects. ``scores`` are by name; ``missing`` says
    why a scorer gave none.
    """

    case: Case
    variant: str
    draw: int
    status: SampleStatus
    value: Any = None
    error: BaseException | None = None
    usage: Usage = NO_USAGE
    cost_usd: float | None = 0.0
    paid_usd: float | None = 0.0
    paid_calls: int = 0
    latency_s: float | None = None
    steps: int = 0
    reused: int = 0
    ran: int = 0
    tools: tuple[ToolUse, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    passing: frozenset[str] = frozenset()
    """The names of the yes-or-no scores: 1.0 and 0.0 in ``scores``."""
    apart: tuple[ValuePair, ...] = ()
    """Its effects, each with that of the baseline's sample, from the first value that differs."""
    digest: str = ""
    """That of its case, also where a saved report has no more of the case."""

    @property
    def reason(self) -> str:
        """Why it did not end well; empty for one that did."""
        if self.error is None:
            return ""
        if isinstance(self.error, AgentflowError):
            return f"{self.error.code}: {self.error.message}"
        return f"{type(self.error).__name__}: {self.error}"

    def to_dict(self) -> dict[str, Any]:
        """Its form as a JSON line of a report."""
        data: dict[str, Any] = {
            "case": self.case.name,
            "digest": self.digest or self.case.digest,
            "variant": self.variant,
            "draw": self.draw,
            "status": self.status,
            "value": plain(self.value),
            "scores": {name: bool(score) if name in self.passing else score for name, score in self.scores.items()},
            "cost_usd": self.cost_usd,
            "paid_usd": self.paid_usd,
            "latency_s": self.latency_s,
            "calls": self.usage.requests,
            "paid_calls": self.paid_calls,
            "reused": self.reused,
            "ran": self.ran,
        }
        if self.reason:
            data["error"] = self.reason
        if self.missing:
            data["missing"] = dict(self.missing)
        if self.tools:
            data["tools"] = [{"name": use.name, "arguments": plain(use.arguments)} for use in self.tools]
        if self.apart:
            data["apart"] = [each.to_dict() for each in self.apart]
        if self.case.group:
            data["group"] = self.case.group
        return data
