"""Whom runs are done for, where several share what they may spend."""

from __future__ import annotations

from agentflow.core.frozen import frozen
from agentflow.runtime.reservation import RunPurse


@frozen
class Tenant:
    """Whom a run is done for.

    ``purse`` pays for its model calls, besides the run's own limits, and may pay for other runs too: together they never
    spend more. None counts nothing. The run's questions and approvals stay open for ``approval_ttl`` seconds; None is as long
    as the flow says.
    """

    purse: RunPurse | None = None
    approval_ttl: float | None = None


__all__ = ["Tenant"]
