"""Progress for people: a line per effect, what is running below them, and totals at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from rich.text import Text

from agentflow.cli.terminal import LiveLine, is_interactive, print_line, same_screen, screen
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
    WaitFinished,
    WaitStarted,
    Warning,
)
from agentflow.core.results import TaskResult
from agentflow.core.values import as_text, plain

_STYLES = {">": "dim", "<": "green", "x": "bold red", "!": "yellow", "-": "cyan"}


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


class Answer:
    """The text that one task streams, as it comes.

    Parameters: ``out`` where it is written; ``task`` the name of the task that gives it.
    """

    def __init__(self, out: TextIO, task: str) -> None:
        self.out = out
        self.task = task
        self.text = ""

    def write(self, text: str) -> None:
        """Write the next piece."""
        self.text += text
        self.out.write(text)
        self.out.flush()

    def end_line(self) -> None:
        """End the line that was begun, if one was."""
        if self.text and not self.text.endswith("\n"):
            self.write("\n")


@dataclass(frozen=True, slots=True)
class _Effect:
    what: str
    detail: str


class Progress:
    """A plain observer that shows people how a run goes.

    On a terminal each effect is a line when it ends, and one live line below says what is running. Elsewhere (pipes,
    files, ``TERM=dumb``, ``CI``) each effect is a plain line when it starts and one when it ends. Lines wait while the
    answer is being written to the same screen, and while somebody is asked for an approval.

    Parameters: ``stream`` takes the lines; ``clean`` is applied to everything that came from a model, a tool or a file
    (it strips control sequences and secrets); ``answer`` is written from the deltas of its task; ``live`` false shows no
    live line on a terminal either.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        clean: Callable[[str], str] = str,
        answer: Answer | None = None,
        live: bool = True,
    ) -> None:
        self._screen = screen(stream)
        self._clean = clean
        self._answer = answer
        self._answer_paths: set[str] = set()
        self._shared = answer is not None and same_screen(stream, answer.out)
        self.deltas = answer is not None
        self._began = time.monotonic()
        self._open: dict[int, _Effect] = {}
        self._answering = False
        self._questions = 0
        self._held_lines: list[Text] = []
        self._held_text = ""
        self._live = LiveLine(self._screen, self._running) if live and is_interactive(stream) else None

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case TextDelta():
                if any(event.path.startswith(path) for path in self._answer_paths):
                    self._answering = self._shared
                    self._held_text += self._clean(event.text)
                    self._settle()
            case RunStarted():
                self._settle()
            case RunFinished():
                self._end_answer()
                self._stop_live()
            case TaskStarted():
                if self._answer is not None and event.name == self._answer.task:
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
                if event.reason == "approval":
                    self._questions += 1
                    self._stop_live()
            case AttemptFinished() if event.retry_in_s is not None:
                self._line("!", f"attempt {event.number} failed, next in {event.retry_in_s:.1f} s: {event.error}")
            case Warning():
                self._line("!", f"warning[{event.code}]: {event.message}")
            case Log() if event.level != "debug":
                self._line("-", event.message)
            case BranchStarted() | AttemptStarted():
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
        self._open[seq] = _Effect(what, detail)
        if self._live is None:
            self._line(">", what, detail)

    def _finish(self, event: FinishedBase) -> None:
        effect = self._open.pop(event.started, None)
        if effect is None:
            return
        if isinstance(event, TaskFinished) and event.path in self._answer_paths:
            self._answer_paths.discard(event.path)
            self._end_answer()
        if isinstance(event, WaitFinished) and event.reason == "approval":
            self._questions -= 1
            self._settle()
        self._line(
            "<" if event.outcome == "ok" else "x", effect.what, *_ending(event), effect.detail if self._live else ""
        )

    def _line(self, mark: str, *parts: str) -> None:
        told = "  ".join(" ".join(part.split()) for part in parts if part)
        self._held_lines.append(
            Text.assemble(
                (f"{time.monotonic() - self._began:7.2f}s ", "dim"), (mark, _STYLES[mark]), f" {self._clean(told)}"
            )
        )
        self._settle()

    def _end_answer(self) -> None:
        self._answering = False
        self._settle(ends_line=True)

    def _settle(self, *, ends_line: bool = False) -> None:
        """Write what was held back, as far as the screen is free, and show the live line when it is."""
        if self._questions:
            return
        if self._answer is not None:
            if self._held_text:
                if self._answering:
                    self._stop_live()
                self._answer.write(self._held_text)
                self._held_text = ""
            if ends_line:
                self._answer.end_line()
        if self._answering:
            return
        for line in self._held_lines:
            print_line(self._screen, line)
        self._held_lines.clear()
        if self._live is not None:
            self._live.start()

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _running(self) -> str:
        """What the live line says: the time, and what runs, counted."""
        counts = Counter(effect.what for effect in self._open.values())
        what = ", ".join(name if count == 1 else f"{count}x {name}" for name, count in counts.items())
        return f"{time.monotonic() - self._began:.1f} s  {self._clean(what)}"


def _ending(event: FinishedBase) -> list[str]:
    """How an effect ended: its time, what it used or gave, and why it failed."""
    parts = [f"{event.duration_s * 1000:,.0f} ms"]
    if event.usage is not None and isinstance(event, ModelFinished):
        parts.append(f"{event.usage.input_tokens:,} in, {event.usage.output_tokens:,} out")
    elif isinstance(event, ContextFinished):
        parts.append(f"{len(event.paths)} files")
    if event.outcome != "ok":
        result: TaskResult | None = getattr(event, "result", None)
        described = None if result is None else result.notes.error
        reason = event.error or (None if described is None else described.reason)
        parts.append(event.outcome + (f": {reason}" if reason else ""))
    return parts


def _arguments(arguments: object) -> str:
    values = plain(arguments)
    if not isinstance(values, dict):
        return ""
    return ", ".join(f"{name}={_quoted(as_text(value))}" for name, value in values.items())  # pyright: ignore


def _quoted(text: str) -> str:
    line = " ".join(text[:200].split())
    return f'"{line[:48]}…"' if len(line) > 48 else f'"{line}"'
