"""Programs that come from elsewhere (a model, a workflow file): checked first, then run at a place of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentflow.core.call import CallContext
from agentflow.core.errors import AgentflowError
from agentflow.lang.environment import SexpEnvironment
from agentflow.runtime.budget import Budget
from agentflow.runtime.evaluator import budget_of
from agentflow.runtime.hops import on_fresh_task
from agentflow.runtime.strand import run_program

if TYPE_CHECKING:
    from agentflow.runtime.evaluator import SexpEvaluator


class Programs:
    """Checks and runs program texts for the task system.

    Parameters: ``evaluator`` gives the evaluator when a program is there to be checked or run: it is built last, since
    it can start everything the task system can.
    """

    def __init__(self, evaluator: Callable[[], SexpEvaluator]) -> None:
        self._evaluator = evaluator

    def check(self, text: str, allow: frozenset[str], names: frozenset[str]) -> Sequence[AgentflowError]:
        """Everything wrong with a program that may call the names in ``allow`` only; empty when it may run."""
        return self._evaluator().diagnostics(text, grants=allow, bindings=names)

    async def run(
        self,
        text: str,
        allow: frozenset[str] | None,
        inputs: Mapping[str, Any],
        call: CallContext,
        *,
        steps: int | None = None,
    ) -> Any:
        """Run a program, numbered below ``call``; ``inputs`` are its variables; ``allow`` None: the call's authority.

        ``steps`` bounds it below what the run has left. Raises what the program raises.
        """
        place = call.at(call.next_path("program", text, inputs), grants=allow)
        evaluator = self._evaluator()
        env = SexpEnvironment(dict(inputs))
        program = evaluator.compile(text, env=env, grants=place.grants)
        budget = budget_of(place)
        if steps is not None:
            budget = Budget(budget.limits, parent=budget, steps=steps)
        # Programs start programs (workflows that call workflows): each begins where the Python stack is empty.
        return await on_fresh_task(run_program(program, env, performer=evaluator.performer, call=place, budget=budget))
