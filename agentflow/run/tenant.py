"""Tenants: on whose behalf runs are done, and what they may spend together."""

from __future__ import annotations

from agentflow.core.data.frozen import frozen
from agentflow.run.reservation import RunPurse


@frozen
class Tenant:
    """On whose behalf a run is done.

    ``purse`` is charged for its model calls, besides the run's own limits, and may be shared with other runs: together they
    never spend more. None: nothing is charged. The run's questions and approvals stay open for ``approval_ttl`` seconds;
    None: as long as the flow's.
    """

    purse: RunPurse | None = None
    approval_ttl: float | None = None


__all__ = ["Tenant"]
