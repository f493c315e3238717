"""The allowance of one program's macros while it is compiled, and of its analysis for bounds."""

from __future__ import annotations

from agentflow.core.data.errors import LimitExceeded


class CompilationStopped(Exception):
    """The compilation was stopped: its caller no longer waits for it."""


class StepAllowance:
    """The steps that all expansions of one compilation share, or the visits of one analysis: at most ``steps`` (None: any number); ``used`` so far.

    A compilation may run in a thread; its caller ends it with :meth:`stop`, which is checked at every slice of steps.
    """

    def __init__(self, steps: int | None = None) -> None:
        self._steps = steps
        self._stopped = False
        self.used = 0

    def take(self, steps: int) -> None:
        """Count steps before they are taken. Raises LimitExceeded (``limits/steps``), and CompilationStopped."""
        if self._stopped:
            raise CompilationStopped
        allowed = self._steps
        if allowed is not None and self.used + steps > allowed:
            raise LimitExceeded(
                f"the run has used its {allowed:,} steps while a program was compiled or followed",
                limit="steps",
                allowed=allowed,
                used=allowed,
            )
        self.used += steps

    def allocate(self, count: int) -> None:
        """Count bytes before they are allocated."""

    def stop(self) -> None:
        """End the compilation."""
        self._stopped = True
