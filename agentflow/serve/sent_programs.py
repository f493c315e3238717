"""Programs sent by clients: checked before a run starts, so that all errors are reported with their positions."""

from __future__ import annotations

from collections.abc import Iterable

from agentflow.app import AgentFlow
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.lang.allowance import Allowance
from agentflow.lang.diagnosis import check_program
from agentflow.run.strand.program_compiler import beside_the_loop
from agentflow.serve.faults import ProgramRefused


async def check_sent(
    flow: AgentFlow, text: str, *, allow: frozenset[str], variables: Iterable[str], limits: Limits | None = None
) -> None:
    """Check a program that may call the names in ``allow``, with ``variables`` bound; long ones on a worker thread.

    Raises ProgramRefused with all errors of the program, LimitExceeded if checking it takes too long.
    """
    names, bounds, bound = flow.engine.names(), limits or flow.limits, list(variables)

    def check(allowance: Allowance) -> list[AgentflowError]:
        return check_program(text, names=names, limits=bounds, allow=allow, env_names=bound, allowance=allowance)

    wrong = await beside_the_loop(text, check, bounds)
    if wrong:
        raise ProgramRefused(wrong)
