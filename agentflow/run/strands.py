"""Makes strands: plain ones, and in runs with a policy those that follow where values came from."""

from __future__ import annotations

from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import ProgramCache
from agentflow.run.policy.labelled import HostStrand, LabelledStrand
from agentflow.run.policy.labelled_operations import LABELLED_OPERATIONS
from agentflow.run.policy.strict import Called, StrictStrand
from agentflow.run.policy.strict_operations import STRICT_OPERATIONS
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.naming import EffectHandler, Publish
from agentflow.run.strand.operations import OPERATIONS
from agentflow.run.strand.strand import Strand


def strand_at(
    call: CallContext,
    budget: Budget,
    performer: EffectHandler,
    *,
    programs: ProgramCache | None = None,
    env: SexpEnvironment | None = None,
    publish: Publish | None = None,
) -> Strand:
    """A strand for a program at ``call``."""
    if call.reading is None:
        return Strand(call, budget, performer, OPERATIONS, programs=programs, env=env, publish=publish)
    if call.reading.guard.following == "strict":
        return StrictStrand(call, budget, performer, STRICT_OPERATIONS, programs=programs, env=env, publish=publish)
    return LabelledStrand(call, budget, performer, LABELLED_OPERATIONS, programs=programs, env=env, publish=publish)


def procedure_for(strand: Strand, function: Any) -> Any:
    """A procedure as code of the host calls it on a strand of its own: its value says all that it depends on."""
    return Called(function) if isinstance(strand, StrictStrand) else function


def host_strand_at(call: CallContext, budget: Budget, performer: EffectHandler) -> Strand:
    """A strand for code of the host at ``call``."""
    return (Strand if call.reading is None else HostStrand)(call, budget, performer, OPERATIONS)
