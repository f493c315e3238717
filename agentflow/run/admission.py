"""Whether a program written by a model may run: its errors, its upper bounds against the rest of the limits, and its
grants."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.reading import following
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source
from agentflow.core.events.events import ProgramBounds
from agentflow.core.ports.ports import ToolPort
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.program import Program, as_source
from agentflow.run.bounds.estimator import LateEstimator
from agentflow.run.strand.budget import budget_of
from agentflow.run.strand.program_compiler import ProgramCompiler, beside_the_loop

if TYPE_CHECKING:
    from agentflow.run.bounds.estimate import Bounds, ProgramEstimator


class Admission:
    """Judges programs before their first effect; implements :class:`~agentflow.core.call.run_port.AdmissionOf`.

    Parameters: ``compiler`` knows the names that programs find, ``tools`` which tools need approval; ``estimator`` computes
    upper bounds of programs. Without one no program is refused for its bounds, and each call that needs approval asks for
    it.
    """

    def __init__(self, compiler: ProgramCompiler, tools: ToolPort, estimator: LateEstimator | None = None) -> None:
        self._compiler = compiler
        self._tools = tools
        self._estimator = estimator

    async def errors(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str], call: CallContext
    ) -> Sequence[AgentflowError]:
        here, source = self._compiler.names(None, call.definitions), as_source(program)

        def check(allowance: StepAllowance) -> Sequence[AgentflowError]:
            from agentflow.lang.diagnosis import check_program  # most flows check no program before they run it

            return check_program(
                source, names=here, limits=call.run.limits, allow=allow, env_names=names, allowance=allowance
            )

        return await beside_the_loop(source, check, call.run.limits, budget_of(call))

    async def past_budget(
        self,
        program: str | Source,
        allow: frozenset[str] | None,
        bindings: Mapping[str, Any],
        call: CallContext,
        taken: int = 0,
    ) -> AgentflowError | None:
        """The error for a program that may make more model calls, or cost more, than the run has left; None if it may run.

        Writing it took at least ``taken`` model calls: under a strict policy, where arms must not count, these are all that does.

        A program without a bound, or with one that depends on unknown sizes, is not refused: the run's limits apply to it.
        """
        run, whole = call.run, following(call.reading) == "strict"  # there the rest would tell how much arms have used
        calls = run.limits.model_calls if whole else run.calls_left()
        if whole and calls is not None:
            calls = max(0, calls - taken)
        usd = run.limits.usd if whole else None if run.funds is None else run.funds.usd_left
        source = as_source(program)
        if self._estimator is None or (calls is None and usd is None):
            return None
        bounds = await self._bounds(self._estimator, source, allow, bindings, call)
        from agentflow.run.bounds.estimate import over_budget

        return over_budget(bounds, calls, usd, "are allowed" if whole else "are left")

    async def granted(
        self, program: str | Source, bindings: Mapping[str, Any], call: CallContext
    ) -> frozenset[str] | None:
        """The grants of a program written by a model, about to run at ``call``, after the approval it needs.

        A program that calls tools which need approval is approved once, and its grants are exactly the approved ones. A program
        that may run code outside its text asks for each call. Raises AgentflowError (``bounds/not-approved``).
        """
        grants, estimator, source = call.grants, self._estimator, as_source(program)
        if grants is None:
            return None
        call.run.cover(call.path, {})
        if estimator is None:
            return grants
        if not any(tool.approval for name in grants if (tool := self._tools.find(name))):
            return grants
        names = self._compiler.names(None, call.definitions)
        bounds = await self._bounds(estimator, source, grants, bindings, call)
        from agentflow.run.manifest import approved

        return await approved(source.text, bounds, call, lambda name: names.describe(name) is not None)

    async def announce(
        self, program: Program, bindings: Mapping[str, Any] | None, grants: frozenset[str] | None, call: CallContext
    ) -> None:
        """Publish the upper bounds of a program that begins at ``call``. A program that cannot be analyzed runs
        nevertheless."""
        estimator = self._estimator
        if estimator is None:
            return
        work = self._estimating(await estimator.ready(), program.source, grants, bindings, call)
        with contextlib.suppress(AgentflowError):
            result = await beside_the_loop(program, work, call.run.limits, at_once=False)
            call.emit(ProgramBounds, most=result.to_text())

    def _estimating(
        self,
        estimator: ProgramEstimator,
        source: Source,
        allow: frozenset[str] | None,
        bindings: Mapping[str, Any] | None,
        call: CallContext,
    ) -> Callable[[StepAllowance], Bounds]:
        """The computation of the bounds of a program that runs within ``call``."""
        names = self._compiler.names(None, call.definitions)

        def work(allowance: StepAllowance) -> Bounds:
            return estimator.bounds(
                source,
                names,
                bindings=bindings,
                allow=allow,
                defined=call.definitions,
                allowance=allowance,
                limits=call.run.limits,
            )

        return work

    async def _bounds(
        self,
        estimator: LateEstimator,
        source: Source,
        allow: frozenset[str] | None,
        bindings: Mapping[str, Any],
        call: CallContext,
    ) -> Bounds:
        """The bounds of a program about to run within ``call``, computed within its time and off the event loop."""
        work = self._estimating(await estimator.ready(), source, allow, bindings, call)
        return await beside_the_loop(source, work, call.run.limits, budget_of(call), at_once=False)
