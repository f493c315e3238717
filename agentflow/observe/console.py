"""Progress for people: one plain line per effect started and finished, and totals at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from agentflow.core.events import (
    ENDINGS,
    AttemptFinished,
    AttemptStarted,
    BranchStarted,
    ContextFinished,
    ContextStarted,
    Event,
    FinishedBase,
    Log,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunStarted,
    SubtaskStarted,
    TaskFinished,
    TaskStarted,
    TextDelta,
    ToolStarted,
    WaitStarted,
    Warning,
)
from agentflow.core.results import TaskResult
from agentflow.core.values import as_text, plain

_WIDTH = 110


class Totals:
    """Counts over the events of a run, for the closing lines. A plain observer."""

    deltas = False

    def __init__(self) -> None:
        self.model_calls = 0
        self.tasks = 0
        self.tools = 0
        self.running = 0
        self.peak = 0
        self.finished: RunFinished | None = None

    def __call__(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, ModelStarted):
            self.model_calls += 1
            self.running += 1
            self.peak = max(self.peak, self.running)
        elif isinstance(event, ModelFinished):
            self.running -= 1
        elif isinstance(event, TaskStarted):
            self.tasks += 1
        elif isinstance(event, ToolStarted):
            self.tools += 1
        elif isinstance(event, RunFinished):
            self.finished = event


class Console:
    """A plain observer that writes progress lines to ``stream``.

    ``clean`` is applied to everything that came from a model, a tool or a file (it strips control sequences and
    secrets). ``answer`` gets the text deltas of the task called ``answer_task``, where both are given.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        clean: Callable[[str], str] = str,
        answer: Callable[[str], None] | None = None,
        answer_task: str | None = None,
    ) -> None:
        self._stream = stream
        self._clean = clean
        self._answer = answer
        self._answer_task = answer_task
        self._answer_paths: set[str] = set()
        self.deltas = answer is not None
        self._began = time.monotonic()
        self._open: dict[int, str] = {}

    def __call__(self, event: Event) -> None:
        """Write the line for one event, if it has one."""
        if isinstance(event, TextDelta):
            if self._answer is not None and any(event.path.startswith(p) for p in self._answer_paths):
                self._answer(self._clean(event.text))
            return
        match event:
            case TaskStarted():
                if event.name == self._answer_task:
                    self._answer_paths.add(event.path)
                self._start(event.seq, f"task {event.name}", _arguments(event.request.inputs if event.request else {}))
            case ToolStarted():
                self._start(event.seq, f"tool {event.name}", _arguments(event.arguments))
            case ContextStarted():
                self._start(event.seq, "context", _quoted(event.input.text if event.input else ""))
            case ModelStarted():
                self._start(event.seq, f"model {event.model}".rstrip(), f"turn {event.turn}" if event.turn > 1 else "")
            case SubtaskStarted():
                request = event.request
                self._start(event.seq, "subtask", (request.name or request.description) if request else "")
            case WaitStarted():
                self._start(event.seq, f"wait for {event.reason}", "")
            case AttemptFinished() if event.retry_in_s is not None:
                self._line("!", f"attempt {event.number} failed, next in {event.retry_in_s:.1f} s: {event.error}")
            case Warning():
                self._line("!", f"warning[{event.code}]: {event.message}")
            case Log():
                self._line("-", event.message)
            case RunStarted() | BranchStarted() | AttemptStarted():
                pass
            case FinishedBase():
                self._finish(event)
            case _ if type(event) in ENDINGS:
                self._start(
                    event.seq, f"{event.type.removesuffix('_started')} {getattr(event, 'name', '')}".rstrip(), ""
                )
            case _:
                pass

    def _start(self, seq: int, what: str, detail: str) -> None:
        self._open[seq] = what
        self._line(">", f"{what}  {detail}" if detail else what)

    def _finish(self, event: FinishedBase) -> None:
        what = self._open.pop(event.started, None)
        if what is None:
            return
        if isinstance(event, TaskFinished) and event.path in self._answer_paths and self._answer is not None:
            self._answer("\n")
        extra = ""
        if event.usage is not None and isinstance(event, ModelFinished):
            extra = f"  {event.usage.input_tokens:,} in, {event.usage.output_tokens:,} out"
        elif isinstance(event, ContextFinished):
            extra = f"  {len(event.paths)} files"
        if event.outcome != "ok":
            result: TaskResult | None = getattr(event, "result", None)
            described = None if result is None else result.notes.error
            reason = event.error or (None if described is None else described.reason)
            extra += f"  {event.outcome}" + (f": {reason}" if reason else "")
        self._line("<" if event.outcome == "ok" else "x", f"{what}  {event.duration_s * 1000:,.0f} ms{extra}")

    def _line(self, mark: str, text: str) -> None:
        line = self._clean(" ".join(text.split()))
        if len(line) > _WIDTH:
            line = line[: _WIDTH - 1] + "…"
        self._stream.write(f"{time.monotonic() - self._began:7.2f}s {mark} {line}\n")
        self._stream.flush()


def _arguments(arguments: object) -> str:
    values = plain(arguments)
    if not isinstance(values, dict):
        return ""
    return ", ".join(f"{name}={_quoted(as_text(value))}" for name, value in values.items())  # pyright: ignore


def _quoted(text: str) -> str:
    line = " ".join(text[:200].split())
    return f'"{line[:48]}…"' if len(line) > 48 else f'"{line}"'
