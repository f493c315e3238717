"""SequentialHistory: the results of the steps of a sequence, for later steps and for reports of failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from agentflow.core.call.host_calls import AccumulationFormat, StepEntry
from agentflow.core.data.errors import AgentflowError, RunStopped
from agentflow.core.data.labels import blame
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.result_notes import ErrorInfo
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import to_json

MAX_CHARS = 100_000
"""Default maximum length of the text passed to the next step."""
MAX_STEP_CHARS = 40_000
"""Default maximum length of one step's output in that text."""
_NO_NOTES = frozenset({"context_files", "error", "parts", "failed_parts", "parseError", "stdout", "stderr", "matches"})
"""Notes that repeat an output, or are long."""


MAX_HEAD_CHARS = 200
"""The kept part of an output no longer passed on."""
MAX_STEPS = 400
"""Maximum number of steps a bounded history keeps."""
MAX_UNFOLDED = 16
"""Maximum number of a program's steps kept whole."""
_SMALL = 2**64


class FinishedStep(NamedTuple):
    """A finished step: its ``name`` and ``result``, and the ``grants`` it was run with (None: the host's authority).

    ``omitted`` is the number of dropped characters of its output.
    """

    name: str
    result: TaskResult
    grants: frozenset[str] | None = None
    omitted: int = 0


class SequentialHistory:
    """The results of a sequence, in order.

    Parameters: ``format`` is the part of earlier steps that the next step sees, ``notes_only`` or ``full_output``;
    ``max_chars`` bounds the whole text, ``max_step_chars`` each step. :attr:`steps` keeps complete results; only the text
    is bounded: first the oldest outputs shrink to their notes, then steps are left out, and the text says how many. A
    ``bounded`` history, as programs have, keeps no more than the text can say: it cuts outputs and forgets the oldest
    steps. :attr:`handed_on`: earlier steps were passed on.
    """

    def __init__(
        self,
        *,
        format: AccumulationFormat = "notes_only",
        max_chars: int = MAX_CHARS,
        max_step_chars: int = MAX_STEP_CHARS,
        bounded: bool = False,
    ) -> None:
        self.format: AccumulationFormat = format
        self.max_chars = max_chars
        self.max_step_chars = max_step_chars
        self.bounded = bounded
        self.steps: list[FinishedStep] = []
        self.handed_on = False
        self._forgotten = 0
        self._cut = 0
        self._chars = 0

    def copy(self) -> SequentialHistory:
        """An independent copy of the history."""
        other = SequentialHistory(
            format=self.format, max_chars=self.max_chars, max_step_chars=self.max_step_chars, bounded=self.bounded
        )
        other.steps = list(self.steps)
        other._forgotten, other._cut, other._chars = self._forgotten, self._cut, self._chars
        return other

    def add(self, name: str, result: TaskResult, grants: frozenset[str] | None = None) -> None:
        """Append the result of a step run with ``grants``."""
        self.extend([(name, result, grants)])

    def extend(self, entries: Iterable[StepEntry]) -> None:
        """Append steps, each as :meth:`add` does. A program comes here with every step it takes: no call per step."""
        if not self.bounded:
            self.steps.extend([FinishedStep(*entry) for entry in entries])
            return
        steps, limit = self.steps, self.max_step_chars
        for entry in entries:
            result = entry[1]
            size, data = len(result.content), result.parsed_content
            step = FinishedStep(*entry)
            if size > limit or not (data is None or (type(data) is int and -_SMALL < data < _SMALL)):
                step = _cut(step, limit)
                size = len(step.result.content)
            steps.append(step)
            self._chars += size
            if self._chars > self.max_chars or len(steps) > MAX_STEPS:
                self._shrink()

    def _shrink(self) -> None:
        """Cut the oldest outputs until the text has its maximum size, and forget the first step if there are too many."""
        steps = self.steps
        while self._chars > self.max_chars and self._cut < len(steps) - 1:
            step = steps[self._cut]
            steps[self._cut] = _cut(step, MAX_HEAD_CHARS)
            self._chars -= len(step.result.content)
            self._cut += 1
        if len(steps) > MAX_STEPS:
            first = steps.pop(0)
            self._forgotten += 1
            if self._cut:
                self._cut -= 1
            else:
                self._chars -= len(first.result.content)

    def __len__(self) -> int:
        return len(self.steps) + self._forgotten

    @property
    def last(self) -> TaskResult | None:
        """The last result, or None."""
        return self.steps[-1].result if self.steps else None

    def previous_outputs(self, format: AccumulationFormat | None = None, grants: frozenset[str] | None = None) -> str:
        """The text passed to the next step as ``previousOutputs``, at most ``max_chars`` long.

        ``format`` replaces the history's own. A step with ``grants`` only sees steps that had no more grants.
        """
        self.handed_on = True
        texts: list[str] = []
        room = self.max_chars
        full = (format or self.format) == "full_output"
        numbered = self._numbered(grants)
        for left, (number, step) in reversed(list(enumerate(numbered, self._forgotten + 1))):
            full = full and number > self._forgotten + self._cut
            head = f"Step {number}, {step.name} ({step.result.status}):"
            text = f"{head}\n{_output(step, self.max_step_chars)}" if full else ""
            if not full or len(text) > room:
                full = False
                text = f"{head} {_notes(step)}"
            if len(text) + 80 > room:
                texts.append(_left_out(left))
                break
            texts.append(text)
            room -= len(text) + 2
        else:
            if self._forgotten and texts:
                texts.append(_left_out(self._forgotten))
        return "\n\n".join(reversed(texts))

    def _numbered(self, grants: frozenset[str] | None) -> list[tuple[int, FinishedStep]]:
        """The steps visible with ``grants``, with their numbers."""
        steps = enumerate(self.steps, self._forgotten + 1)
        return [each for each in steps if grants is None or (each[1].grants is not None and each[1].grants <= grants)]

    def partial_results(self, grants: frozenset[str] | None = None) -> list[dict[str, Any]]:
        """All steps so far as JSON data, for a failure seen with ``grants``."""
        return [
            {"step": number, "name": step.name, "status": step.result.status, "content": step.result.content}
            for number, step in self._numbered(grants)
        ]

    def failure(self, name: str, result: TaskResult, grants: frozenset[str] | None = None) -> TaskResult:
        """The FAILED result of a sequence after its step ``name`` failed with ``result``: the error and all steps."""
        self.handed_on = True
        error = result.notes.error or ErrorInfo(result.content, "subtask_failure")
        step = len(self) + 1
        details = {
            **error.details,
            "failed_step": name,
            "step": step,
            "partial_results": self.partial_results(grants),
        }
        message = f"step {step} ({name}) failed: {result.content}"
        notes = replace(result.notes, error=replace(error, message=message, details=details))
        return TaskResult("FAILED", message, notes=notes, usage=result.usage, exception=result.error)

    async def run(
        self, requests: Iterable[SubtaskRequest], execute: Callable[[SubtaskRequest, str], Awaitable[TaskResult]]
    ) -> TaskResult:
        """Run requests one after another; ``execute`` takes a request and the :meth:`previous_outputs` of those before.

        Returns the last result or, at the first FAILED one (or TaskError, converted to one), a failure with the partial
        results. RunStopped and cancellation pass through.
        """
        last = TaskResult.complete()
        for request in requests:
            name = request.name or f"{request.type}:{request.subtype}"
            try:
                last = await execute(request, self.previous_outputs())
            except RunStopped:
                raise
            except AgentflowError as error:
                last = TaskResult.from_error(error)
            if last.failed:
                return self.failure(name, last)
            self.add(name, last)
        return last


class ProgramSteps(list[StepEntry]):
    """The steps of one strand of a program: those since they were last asked for, and the ``history`` of the others.

    A list, so that a step costs a program no more than an entry. A branch begins with the steps ``before`` it.
    """

    history: SequentialHistory | None = None
    before: ProgramSteps | None = None
    sources: frozenset[str] = frozenset()
    """The sources of the steps' results, in a flow with a policy."""

    def fold(self) -> SequentialHistory:
        """The history of all steps."""
        history = self.history
        if history is None:
            prefix = self.before.fold() if self.before is not None else None
            history = self.history = SequentialHistory(bounded=True) if prefix is None else prefix.copy()
            self.before = None
        history.extend(self)
        self.clear()
        return history

    def previous_outputs(self, format: AccumulationFormat, grants: frozenset[str] | None) -> str:
        """The text that the next step is given."""
        return self.fold().previous_outputs(format, grants)

    def failure(self, name: str, result: TaskResult, grants: frozenset[str] | None) -> TaskResult:
        """The FAILED result of a sequence after its step ``name`` failed with ``result``: with all steps so far."""
        return self.fold().failure(name, result, grants)

    def explain(self, error: AgentflowError, grants: frozenset[str] | None) -> None:
        """Add the results of the steps to an error that ends the sequence, if they were passed from step to step."""
        if self.history is not None and self.history.handed_on:
            error.details.setdefault("partial_results", self.fold().partial_results(grants))
            blame(error, self.sources)


def _output(step: FinishedStep, limit: int) -> str:
    text = step.result.content
    omitted = step.omitted + max(0, len(text) - limit)
    return f"{text[:limit]} ... ({omitted} characters more)" if omitted else text


def _cut(step: FinishedStep, limit: int) -> FinishedStep:
    """The part of a step that a bounded history keeps: small scalar data only, and the beginning of a long output."""
    result = step.result
    if len(result.content) <= limit and _is_small(result.parsed_content):
        return step
    omitted = step.omitted + max(0, len(result.content) - limit)
    return FinishedStep(
        step.name, TaskResult(result.status, result.content[:limit], notes=result.notes), step.grants, omitted
    )


def _is_small(value: object) -> bool:
    kind = type(value)
    return value is None or kind is bool or kind is float or (kind is int and -_SMALL < cast(int, value) < _SMALL)


def _left_out(count: int) -> str:
    return f"({count} earlier step{'s' * (count != 1)} left out)"


def _notes(step: FinishedStep) -> str:
    """The notes of a step that say something about its output and hold none of it."""
    content = step.result.content
    notes = {
        key: value
        for key, value in step.result.notes.items()
        if key not in _NO_NOTES and not (isinstance(value, str) and value and (value in content or content in value))
    }
    text = to_json(notes)
    return text if len(text) <= 2_000 else text[:2_000] + " ..."


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
