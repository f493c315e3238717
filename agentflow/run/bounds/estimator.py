"""The estimator of a flow. The analysis of programs is a tenth of the package, so it is imported with the first estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentflow.core.data.limits import Limits
from agentflow.core.ports.ports import NameFacts
from agentflow.lib.own_threads import loaded
from agentflow.providers.table import Router

if TYPE_CHECKING:
    from agentflow.run.bounds.estimate import ProgramEstimator


class LateEstimator:
    """Makes the :class:`~agentflow.run.bounds.estimate.ProgramEstimator` of a flow; takes its parameters."""

    def __init__(
        self, facts: NameFacts, router: Router, limits: Limits, *, looks_up: bool, fallbacks: Sequence[str]
    ) -> None:
        self._facts = facts
        self._router = router
        self._limits = limits
        self._looks_up = looks_up
        self._fallbacks = fallbacks
        self._estimator: ProgramEstimator | None = None

    async def ready(self) -> ProgramEstimator:
        """The estimator, with the prices of models and the saved workflows loaded."""
        await loaded("agentflow.run.bounds.estimate")
        from agentflow.run.bounds.estimate import ProgramEstimator

        if self._estimator is None:
            self._estimator = ProgramEstimator(
                self._facts, self._router, self._limits, looks_up=self._looks_up, fallbacks=self._fallbacks
            )
        await self._estimator.ready()
        return self._estimator
