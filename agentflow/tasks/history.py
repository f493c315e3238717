"""SequentialHistory: the results of the steps of a sequence, for later steps and for reports of failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from agentflow.core.errors import AgentflowError, LimitExceeded
from agentflow.core.notes import ErrorInfo, Notes
from agentflow.core.requests import SubtaskRequest
from agentflow.core.results import TaskResult
from agentflow.core.values import to_json

MAX_CHARS = 100_000
"""Default maximum length of the text passed to the next step."""
MAX_STEP_CHARS = 40_000
"""Default maximum length of one step's output in that text."""


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step: its ``name`` and ``result``."""

    name: str
    result: TaskResult


class SequentialHistory:
    """The results of a sequence, in order.

    Parameters: ``format`` what the next step sees of the earlier ones, ``notes_only`` or ``full_output``; ``max_chars``
    bounds the whole text, ``max_step_chars`` each step. :attr:`steps` keeps complete results; only the text is bounded:
    first the oldest outputs shrink to their notes, then steps are left out, and the text says how many.
    """

    def __init__(
        self,
        *,
        format: Literal["notes_only", "full_output"] = "notes_only",
        max_chars: int = MAX_CHARS,
        max_step_chars: int = MAX_STEP_CHARS,
    ) -> None:
        self.format = format
        self.max_chars = max_chars
        self.max_step_chars = max_step_chars
        self.steps: list[Step] = []

    def add(self, name: str, result: TaskResult) -> None:
        """Append the result of a step."""
        self.steps.append(Step(name, result))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> TaskResult | None:
        """The last result, or None."""
        return self.steps[-1].result if self.steps else None

    def previous_outputs(self) -> str:
        """The text passed to the next step as ``previousOutputs``, at most ``max_chars`` long."""
        texts: list[str] = []
        room = self.max_chars
        full = self.format == "full_output"
        for number, step in reversed(list(enumerate(self.steps, 1))):
            head = f"Step {number}, {step.name} ({step.result.status}):"
            text = f"{head}\n{_output(step, self.max_step_chars)}" if full else ""
            if not full or len(text) > room:
                full = False
                text = f"{head} {_notes(step)}"
            if len(text) + 80 > room:
                texts.append(f"({number} earlier step{'s' * (number != 1)} left out)")
                break
            texts.append(text)
            room -= len(text) + 2
        return "\n\n".join(reversed(texts))

    def partial_results(self) -> list[dict[str, Any]]:
        """All steps so far as JSON data, for a failure."""
        return [
            {"step": number, "name": step.name, "status": step.result.status, "content": step.result.content}
            for number, step in enumerate(self.steps, 1)
        ]

    def failure(self, name: str, result: TaskResult) -> TaskResult:
        """The FAILED result of a sequence whose step ``name`` failed with ``result``: the error and all steps."""
        error = result.notes.error or ErrorInfo(result.content, "subtask_failure")
        step = len(self.steps) + 1
        details = {
            **error.details,
            "failed_step": name,
            "step": step,
            "partial_results": self.partial_results(),
        }
        message = f"step {step} ({name}) failed: {result.content}"
        return TaskResult(
            "FAILED",
            message,
            notes=Notes(error=replace(error, message=message, details=details)),
            usage=result.usage,
            exception=result.error,
        )

    async def run(
        self, requests: Iterable[SubtaskRequest], execute: Callable[[SubtaskRequest, str], Awaitable[TaskResult]]
    ) -> TaskResult:
        """Run requests one after another; ``execute`` takes a request and the :meth:`previous_outputs` of those before.

        Returns the last result or, at the first FAILED one (or TaskError, converted to one), a failure with the partial
        results. LimitExceeded and cancellation pass through.
        """
        last = TaskResult.complete()
        for request in requests:
            name = request.name or f"{request.type}:{request.subtype}"
            try:
                last = await execute(request, self.previous_outputs())
            except LimitExceeded:
                raise
            except AgentflowError as error:
                last = TaskResult.from_error(error)
            if last.failed:
                return self.failure(name, last)
            self.add(name, last)
        return last


def _output(step: Step, limit: int) -> str:
    text = step.result.content
    return text if len(text) <= limit else f"{text[:limit]} ... ({len(text) - limit} characters more)"


def _notes(step: Step) -> str:
    notes = {key: value for key, value in step.result.notes.items() if key not in ("context_files", "error")}
    head = step.result.content.strip().partition("\n")[0]
    head = head if len(head) <= 200 else head[:197] + "..."
    text = to_json(notes)
    return f"{head}\n{text if len(text) <= 2_000 else text[:2_000] + ' ...'}"


def previous_outputs_text(outputs: object) -> str:
    """``previous_outputs`` as text: from a SequentialHistory, text, a result, or a sequence of results or values."""
    if outputs is None:
        return ""
    if isinstance(outputs, str):
        return outputs
    if isinstance(outputs, SequentialHistory):
        return outputs.previous_outputs()
    items = cast(Sequence[Any], outputs) if isinstance(outputs, list | tuple) else [outputs]
    history = SequentialHistory(format="full_output")
    for item in items:
        result = TaskResult.of(item)
        history.add(result.notes.template_used or "task", result)
    return history.previous_outputs()
