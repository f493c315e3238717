"""Makes the strands of runs with a policy, which follow where values came from."""

from __future__ import annotations

from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.run.policy.labelled import HostStrand, LabelledStrand
from agentflow.run.policy.labelled_operations import LABELLED_OPERATIONS
from agentflow.run.policy.strict import StrictStrand
from agentflow.run.policy.strict_operations import STRICT_OPERATIONS
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.operations import OPERATIONS
from agentflow.run.strand.strand import EffectHandler, Strand


def followed_strand(call: CallContext, budget: Budget, performer: EffectHandler, **parts: Any) -> Strand:
    """A strand for a program at ``call``; ``parts`` are the other parameters of :class:`~agentflow.run.strand.strand.Strand`."""
    if call.reading is not None and call.reading.guard.following == "strict":
        return StrictStrand(call, budget, performer, STRICT_OPERATIONS, **parts)
    return LabelledStrand(call, budget, performer, LABELLED_OPERATIONS, **parts)


def followed_host_strand(call: CallContext, budget: Budget, performer: EffectHandler) -> Strand:
    """A strand for code of the host at ``call``."""
    return HostStrand(call, budget, performer, OPERATIONS)
