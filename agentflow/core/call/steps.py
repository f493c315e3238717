"""The finished steps of a sequence, as a call of its next step sees them."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from agentflow.core.data.results import TaskResult

AccumulationFormat: TypeAlias = Literal["notes_only", "full_output"]
"""What a step is told of the earlier ones: their notes, or their outputs too."""
StepEntry: TypeAlias = tuple[str, TaskResult, "frozenset[str] | None"]
"""A finished step: its name, its result, and the grants it was run with (None: the host's authority)."""


class StepLog(Protocol):
    """The steps that came before a call in its sequence. ``grants`` are those of who asks (None: the host)."""

    @property
    def sources(self) -> frozenset[str]:
        """Where what the steps gave came from, in a flow with a policy."""
        ...

    def append(self, entry: StepEntry, /) -> None:
        """Add a step that has finished."""
        ...

    def previous_outputs(self, format: AccumulationFormat, grants: frozenset[str] | None) -> str:
        """The text that the next step is given."""
        ...

    def failure(self, name: str, result: TaskResult, grants: frozenset[str] | None) -> TaskResult:
        """The FAILED result of a sequence whose step ``name`` failed with ``result``: with all steps so far."""
        ...
