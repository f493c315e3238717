"""Progress for people: a line per effect, a tree of running effects below them, and totals at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from rich.text import Text

from agentflow.cli.shared.amounts import money
from agentflow.cli.shared.cost_table import cost_table
from agentflow.cli.shared.terminal import LiveRows, is_interactive, is_utf8, print_line, print_text, same_screen, screen
from agentflow.cli.shared.tree import RunTree
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import as_text, plain
from agentflow.core.events.events import (
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
    PolicyDenied,
    ProgramBounds,
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
from agentflow.observe.run_view import Tally

_STREAMED_LINES = 3
_STYLES = {">": "dim", "<": "green", "x": "bold red", "!": "yellow", "-": "cyan"}


class Totals:
    """Counts over the events of a run, for the closing lines. An observer."""

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


_DATA = ("{", "[", '"', "```")
"""The first characters of answers that are data, or may be."""


class Answer:
    """The text of the task that produces a program's answer, written as it streams.

    Parameters: ``out`` is the stream to write to; ``gives`` tells of a starting task whether it produces the answer. Data is
    not streamed: text that looks like JSON is shown when it is complete. ``last`` is the streamed text of the last model call.
    """

    def __init__(self, out: TextIO, gives: Callable[[TaskStarted], bool]) -> None:
        self.out = out
        self.text = ""
        self.last = ""
        self._gives = gives
        self._tasks: set[int] = set()
        self._models: set[int] = set()

    def piece(self, event: Event) -> str:
        """The piece of the answer in an event; empty if there is none."""
        match event:
            case TextDelta() if event.parent in self._models:
                if not self.last and event.text.lstrip().startswith(_DATA):
                    self._models.discard(event.parent)
                    return ""
                self.last += event.text
                return event.text
            case TaskStarted() if self._gives(event):
                self._tasks.add(event.seq)
            case ModelStarted() if event.parent in self._tasks:
                if event.request is None or event.request.output_schema is None:
                    self._models.add(event.seq)
                between = "\n\n" if self.last else ""
                self.last = ""
                return between
            case _:
                pass
        return ""

    def ends(self, event: Event) -> bool:
        """Whether an event is the end of the task that produces the answer."""
        return isinstance(event, TaskFinished) and event.started in self._tasks

    def write(self, text: str) -> None:
        """Write the next piece."""
        self.text += text
        self.out.write(text)
        self.out.flush()

    def end_line(self) -> None:
        """End the current line, if one was started."""
        if self.text and not self.text.endswith("\n"):
            self.write("\n")


def beside_bounds(run: RunFinished, most: Mapping[str, str]) -> Text:
    """The model calls and cost of a run beside ``most``, the bounds of its program; empty without bounds."""
    shown: list[str] = []
    if "model_calls" in most:
        shown.append(
            f"model calls {run.usage.requests if run.usage is not None else 0:,} of at most {most['model_calls']}"
        )
    if shown and most.get("usd", "0") != "0":
        shown.append(f"money {money(run.cost_usd)} of at most ${most['usd']}")
    return Text(", ".join(shown) + "\n" if shown else "", "dim")


@dataclass(frozen=True, slots=True)
class _Effect:
    what: str
    detail: str


class Progress:
    """An observer that shows people the progress of a run.

    On a terminal each effect becomes a line when it ends (unless it is one of many running concurrently), a tree below shows
    what is running, with the text streamed by a model, and a table at the end has the costs by task. Elsewhere (pipes, files,
    ``TERM=dumb``, ``CI``) each effect is a plain line when it starts and one when it ends. Lines are held back while the
    answer is being written to the same screen, and while somebody is asked on it.

    Parameters: ``stream`` takes the lines; ``clean`` is applied to everything from a model, a tool or a file (it strips
    control sequences and secrets); ``answer`` is written from the deltas of its task; ``live`` false shows no tree even on a
    terminal, ``table`` false no table at the end.
    """

    bounds = True

    def __init__(
        self,
        stream: TextIO,
        *,
        clean: Callable[[str], str] = str,
        answer: Answer | None = None,
        live: bool = True,
        table: bool = True,
    ) -> None:
        self._screen = screen(stream)
        self._table = table
        self._most: Mapping[str, str] = {}
        self._clean = clean
        self._answer = answer
        self._shared = answer is not None and same_screen(stream, answer.out)
        self._live = LiveRows(self._screen, self._rows) if live and is_interactive(stream) else None
        self.deltas = answer is not None or self._live is not None
        self._tree = RunTree()
        self._tallies: dict[str, Tally] = {}
        self._began = time.monotonic()
        self._open: dict[int, _Effect] = {}
        self._answering = False
        self._prompts: set[int] = set()
        self._held_lines: list[Text] = []
        self._held_text = ""

    def __call__(self, event: Event) -> None:
        """Show one event."""
        piece = "" if self._answer is None else self._answer.piece(event)
        if piece:
            self._answering = self._shared
            self._held_text += self._clean(piece)
            self._settle()
        if isinstance(event, WaitStarted | WaitFinished):
            self._prompt(event)
        if self._live is not None and self._in_tree(event):
            return
        match event:
            case RunStarted():
                self._settle()
            case ProgramBounds():
                self._most = event.most
            case RunFinished():
                self._end_answer()
                self._stop_live()
                if self._table and self._live is not None and self._tallies:
                    print_text(self._screen, cost_table(self._tallies, self._screen.width))
                    print_text(self._screen, beside_bounds(event, self._most))
            case TaskStarted():
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
            case PolicyDenied():
                self._line("x", f"denied: {event.message}")
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
        self._tally(event)
        if self._answer is not None and self._answer.ends(event):
            self._end_answer()
        self._line(
            "<" if event.outcome == "ok" else "x", effect.what, *_ending(event), effect.detail if self._live else ""
        )

    def _prompt(self, event: WaitStarted | WaitFinished) -> None:
        """Leave the screen to somebody who is asked on it; what has a key is answered from elsewhere."""
        if isinstance(event, WaitFinished):
            if event.started in self._prompts:
                self._prompts.discard(event.started)
                self._settle()
        elif event.reason in ("approval", "question") and not event.key:
            self._prompts.add(event.seq)
            self._stop_live()

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
        """Write the lines held back, if the screen is free, and resume the live rows."""
        if self._prompts:
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

    def _in_tree(self, event: Event) -> bool:
        """Show an event in the tree; True if it needs no line of its own."""
        folded = isinstance(event, FinishedBase) and event.outcome == "ok" and self._tree.folds(event)
        self._tree(event)
        if folded and isinstance(event, FinishedBase):
            self._open.pop(event.started, None)
            self._tally(event)
        return folded

    def _rows(self, spinner: str, height: int) -> list[Text]:
        """The tree of running effects, and below it the end of a model's streamed text."""
        console = self._screen
        rows = self._tree.rows(spinner, height - _STREAMED_LINES, width=console.width, ascii_only=not is_utf8(console))
        for row in rows:
            row.plain = self._clean(row.plain)
        text = self._tree.streamed() if self._answer is None or not self._answer.text else None
        if text is not None:
            rows += [Text(f"  {line}", "dim italic") for line in self._clean(text).splitlines()[-_STREAMED_LINES:]]
        return rows or [Text(f"{spinner} {time.monotonic() - self._began:.1f} s")]

    def _tally(self, event: FinishedBase) -> None:
        """Count the end of a task for the closing table."""
        if isinstance(event, TaskFinished):
            tally = self._tallies.setdefault(f"task {event.name}", Tally(event.name))
            tally.calls += 1
            tally.running += 1
            tally.end(event.to_dict() if event.outcome != "ok" else _totals(event))


def _totals(event: TaskFinished) -> dict[str, Any]:
    usage = event.usage or Usage()
    return {
        "duration_s": event.duration_s,
        "cost_usd": event.cost_usd,
        "usage": {name: getattr(usage, name) for name in ("input_tokens", "cache_read_tokens", "output_tokens")},
    }


def _ending(event: FinishedBase) -> list[str]:
    """The end of an effect on one line: time, usage or result, and the reason of a failure."""
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
