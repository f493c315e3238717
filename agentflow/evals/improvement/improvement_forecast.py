"""The forecast of an improvement: the cost of its first evaluation, and the most that follows."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.evals.forecast import Forecast


@frozen(kw_only=True)
class ImprovementForecast:
    """The forecast of an improvement. ``first`` is that of the evaluation of the unchanged program.

    After it come at most ``proposals`` model calls for new instructions, ``candidates`` with at most ``samples`` samples, and ``decision`` samples
    on the held-out cases, drawn anew. ``limit_usd`` bounds all of it; None: there is no limit of dollars.
    """

    first: Forecast
    proposals: int
    candidates: int
    samples: int
    decision: int
    limit_usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """The forecast as JSON data."""
        names = ("proposals", "candidates", "samples", "decision", "limit_usd")
        return {"first": self.first.to_dict(), **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        limit = "no limit of dollars" if self.limit_usd is None else f"a limit of ${self.limit_usd:g}"
        return "\n".join(
            [
                str(self.first),
                "",
                f"Then at most {self.proposals:,} proposals, and {self.candidates:,} candidates in {self.samples:,} samples, of which only the"
                " changed calls run;",
                f"and at most {self.decision:,} samples to decide, drawn anew. There is {limit}.",
            ]
        )
