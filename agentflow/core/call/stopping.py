"""Refuses model calls in code that is being stopped, from any caller and by any path."""

from __future__ import annotations

from collections.abc import Callable

from agentflow.core.call.call import CallContext, ForwardingRun, RunPort
from agentflow.core.data.errors import SexpEvaluationError


class StoppingRun(ForwardingRun):
    """A run as seen by code that may be stopped: once ``stopping()``, no model call begins.

    ``budget`` is the rest of that code's limit; None: that of the run.
    """

    def __init__(self, run: RunPort, stopping: Callable[[], bool], budget: object = None) -> None:
        super().__init__(run)
        self._stopping = stopping
        self._budget = budget

    @property
    def budget(self) -> object:
        """The rest of the limits."""
        return self._run.budget if self._budget is None else self._budget

    def charge_model_call(self) -> None:
        """Count a model call on the run. Raises SexpEvaluationError (``finally/model-call``) once it is being stopped."""
        if self._stopping():
            raise SexpEvaluationError(
                "what is being stopped, by a limit or a cancellation, may start no model call",
                code="finally/model-call",
                hint="clean up with tools",
            )
        super().charge_model_call()


def run_of_host_code(call: CallContext) -> RunPort:
    """The run of ``call`` for effects of its host code: no model call begins there once that code is cancelled."""
    host = call.host
    if host is None:
        return call.run
    if host.run is None:
        host.run = StoppingRun(call.run, host.cancelled)
    return host.run
