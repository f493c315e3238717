"""Progress for people: a line per effect, a tree of running effects below them, and totals at the end."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.text import Text

from agentflow.cli.shared.amounts import money
from agentflow.cli.shared.cost_table import cost_table
from agentflow.cli.shared.terminal import LiveRows, is_interactive, is_utf8, print_line, print_text, same_screen, screen
from agentflow.cli.shared.wrapping import StreamedWords, columns
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
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
    LoopProgress,
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
    ToolProgress,
    ToolStarted,
    WaitFinished,
    WaitStarted,
    Warning,
)
from agentflow.observe.run_view import Tally

SHOWN = 4
"""Maximum number of rows for concurrent nodes of one form."""
MAX_STREAMED = 1_000
"""Number of characters kept from the end of a model's streamed text."""
_BAR = 20
_LEAST_BAR = 4
_SNIPPET = 48
_LEAST_SNIPPET = 16


@dataclass(eq=False, slots=True)
class RunningNode:
    """A running node: the run, a form with branches, a loop, a branch, or a task, tool or lookup.

    ``children`` run within it; ``ended`` counts finished ones by name, ``failed`` failed ones. ``model`` and ``waits`` are the
    state of a task, ``text`` the end of its model's streamed text, ``share`` the progress of a tool.
    """

    kind: str
    label: str
    key: int = 0
    span: Span | None = None
    parent: RunningNode | None = None
    began: float = 0.0
    children: dict[int, RunningNode] = field(default_factory=dict["int", "RunningNode"])
    ended: Counter[str] = field(default_factory=Counter[str])
    failed: Counter[str] = field(default_factory=Counter[str])
    count: int | None = None
    done: int = 0
    model: str = ""
    waits: str = ""
    text: str = ""
    share: str = ""


@frozen
class _Look:
    """How rows are drawn: the spinner's frame, the width of the terminal, and whether it is limited to ASCII."""

    spinner: str
    width: int
    ascii_only: bool


class RunTree:
    """The tree of one run; an observer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.root = RunningNode("run", "")
        self._open: dict[int, RunningNode] = {}
        self._forms: dict[str, RunningNode] = {}
        self._writing: dict[int, RunningNode] = {}

    def __call__(self, event: Event) -> None:
        """Process one event."""
        match event:
            case RunStarted():
                self.root = RunningNode("run", event.name, began=self._clock())
                self._open = {event.seq: self.root}
                self._forms.clear()
            case BranchStarted():
                self._add(event, RunningNode("branch", f"branch {event.index}"), self._form(event))
            case TaskStarted():
                self._add(event, RunningNode("unit", event.name))
            case ToolStarted():
                self._add(event, RunningNode("unit", event.name))
            case ContextStarted():
                self._add(event, RunningNode("unit", "context"))
            case SubtaskStarted():
                self._add(event, RunningNode("unit", "subtask"))
            case ModelStarted():
                self._at(event).model = event.model or "model"
                self._open[event.seq] = self._at(event)
            case TextDelta():
                node = self._at(event)
                node.text = (node.text + event.text)[-MAX_STREAMED:]
                self._writing[event.parent or 0] = node
            case WaitStarted():
                self._at(event).waits = event.reason
                self._open[event.seq] = self._at(event)
            case LoopProgress():
                self._loop(event)
            case ToolProgress():
                share = f"{event.progress:g}" + (f"/{event.total:g}" if event.total else "")
                self._at(event).share = f"{share} {event.message}".rstrip()
            case RunFinished():
                self._open.clear()
                self._forms.clear()
                self._writing.clear()
                self.root.children.clear()
            case FinishedBase():
                self._end(event)
            case _:
                pass

    def folds(self, event: FinishedBase) -> bool:
        """Whether a finished node is one of many concurrent ones, and is shown as a count only."""
        node: RunningNode | None = self._open.get(event.started)
        while node is not None:
            if node.kind in ("form", "loop") and (node.count or 0) > 2 * SHOWN:
                return True
            node = node.parent
        return False

    def _at(self, event: Event) -> RunningNode:
        return self._open.get(event.parent or 0, self.root)

    def _add(self, event: Event, node: RunningNode, parent: RunningNode | None = None) -> None:
        at = parent or _innermost(self._at(event))
        if node.kind != "branch":  # a strand runs one thing at a time, so an earlier form is over
            for before in [child for child in at.children.values() if child.kind == "form" and not child.children]:
                del at.children[before.key]
        node.key = -event.seq if node.kind in ("form", "loop") else event.seq
        node.parent, node.began = at, self._clock()
        node.span = event.span
        at.children[node.key] = node
        if node.key > 0:
            self._open[event.seq] = node

    def _form(self, event: BranchStarted) -> RunningNode:
        """The form that a branch belongs to: all its branches have the same path up to their numbers."""
        path = event.path.rpartition(".")[0]
        form = self._forms.get(path)
        if form is None:
            form = self._forms[path] = RunningNode("form", event.form, count=event.count)
            self._add(event, form)
        return form

    def _loop(self, event: LoopProgress) -> None:
        """A round of a loop, which is shown within the node that runs it and the loops around it."""
        at = self._at(event)
        while (inner := _loop_in(at)) is not None and inner.span != event.span:
            at = inner
        if inner is None:
            if event.over:
                return
            inner = RunningNode("loop", "loop", count=event.total)
            self._add(event, inner, at)
        inner.done = event.done
        if event.over and inner.parent is not None:
            inner.parent.children.pop(inner.key, None)
            self._count(inner, "ok" if event.done == event.total else "error")

    def _end(self, event: FinishedBase) -> None:
        node = self._open.pop(event.started, None)
        if node is None:
            return
        if event.type == "model_finished":
            node.model = node.text = ""
            self._writing.pop(event.started, None)
        elif event.type == "wait_finished":
            node.waits = ""
        elif node.parent is not None:
            node.parent.children.pop(event.started, None)
            if node.kind == "branch":
                self._end_branch(node.parent, event)
            else:
                self._count(node, event.outcome)

    def _end_branch(self, form: RunningNode, event: FinishedBase) -> None:
        form.done += 1
        if not form.children and form.done == form.count and form.parent is not None:
            self._forms.pop(event.path.rpartition(".")[0], None)
            form.parent.children.pop(form.key, None)
            self._count(form, event.outcome)

    def _count(self, node: RunningNode, outcome: str) -> None:
        at = node.parent
        while at is not None and at.kind not in ("form", "loop", "run"):
            at = at.parent
        if at is not None:
            (at.ended if outcome == "ok" else at.failed)[node.label] += 1

    def streamed(self) -> str | None:
        """The end of the streamed text if exactly one model streams: texts of several would alternate."""
        return next(iter(self._writing.values())).text if len(self._writing) == 1 else None

    # -- drawing --------------------------------------------------------------------------------------------------

    def rows(self, spinner: str, height: int, *, width: int = 100, ascii_only: bool = False) -> list[Text]:
        """At most ``height`` lines about running effects; bars and texts shrink to ``width`` columns."""
        look = _Look(spinner, width, ascii_only)
        drawn = list(itertools.islice(self._rows(self.root, 0, look), height + 1))
        if len(drawn) > height:
            drawn[height - 1 :] = [Text(" ...", "dim")]
        return drawn

    def _rows(self, node: RunningNode, depth: int, look: _Look) -> Iterator[Text]:
        shown = 0
        for child in itertools.islice(node.children.values(), SHOWN):
            shown += 1
            while child.kind == "branch" and len(child.children) == 1:
                (child,) = child.children.values()
            yield self._row(child, depth, look)
            yield from self._rows(child, depth + 1, look)
        more = len(node.children) - shown
        if more:
            yield Text(f"{'  ' * (depth + 1)}and {more:,} more running", "dim")
        if node.kind in ("form", "loop") and (counts := _counts(node)):
            yield Text(f"{'  ' * (depth + 1)}{counts}", "dim")

    def _row(self, node: RunningNode, depth: int, look: _Look) -> Text:
        row = Text("  " * depth).append(f"{look.spinner} ", "green").append(node.label)
        if node.span is not None:
            row.append(f"  line {node.span.line}", "dim")
        if node.kind in ("form", "loop"):
            return row.append(f"  {_bar(node, look, len(row))}", "cyan")
        if node.model:
            row.append(f"  {node.model}", "cyan")
        row.append(f"  {self._clock() - node.began:.1f} s")
        if node.waits:
            row.append(f"  waits for {node.waits}", "yellow")
        if node.share:
            row.append(f"  {node.share}")
        if node.text and len(self._writing) > 1:
            row.append(f"  {_end_of(node.text, look.width - len(row) - 2)}", "dim italic")
        return row


def _loop_in(node: RunningNode) -> RunningNode | None:
    """The loop that a strand is in: the last child, since a strand runs one thing at a time."""
    last = next(reversed(node.children.values()), None)
    return last if last is not None and last.kind == "loop" else None


def _innermost(node: RunningNode) -> RunningNode:
    """The parent for a new node: the innermost loop of ``node``, or ``node`` itself."""
    while (inner := _loop_in(node)) is not None:
        node = inner
    return node


def _bar(form: RunningNode, look: _Look, used: int) -> str:
    if form.count is None:
        return f"{form.done:,} done"
    counts = f"{form.done:,}/{form.count:,}"
    size = max(_LEAST_BAR, min(_BAR, look.width - used - len(counts) - 3))
    full = size * form.done // max(1, form.count)
    on, off = ("#", ".") if look.ascii_only else ("━", "╌")
    return f"{on * full}{off * (size - full)} {counts}"


def _end_of(text: str, room: int) -> str:
    """The end of a text on one line, if there is room for a few words."""
    line, size = " ".join(text.split()), min(_SNIPPET, room)
    if len(line) <= size:
        return line
    return f"... {line[4 - size :].partition(' ')[2]}" if size >= _LEAST_SNIPPET else ""


def _counts(node: RunningNode) -> str:
    ended = [f"{count:,} {name}" for name, count in node.ended.most_common(SHOWN)]
    failed = [f"{count:,} {name} failed" for name, count in node.failed.most_common(SHOWN)]
    return ", ".join([*([f"ended: {', '.join(ended)}"] if ended else []), *failed])


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
"""The first characters of answers that are, or may be, data."""


class AnswerText:
    """The text of the task that produces a program's answer, written as it streams, and wrapped at words.

    Parameters: ``out`` is the stream to write to; ``gives`` returns whether a starting task produces the answer. Data is
    not streamed: text that looks like JSON is shown when it is complete. ``last`` is the streamed text of the last model
    call.
    """

    def __init__(self, out: TextIO, gives: Callable[[TaskStarted], bool]) -> None:
        self.out = out
        self.text = ""
        self.last = ""
        self._gives = gives
        self._words = StreamedWords(columns(out))
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
        self.out.write(self._words.feed(text))
        self.out.flush()

    def end_line(self) -> None:
        """End the current line, if one was started."""
        self.out.write(self._words.rest())
        if self.text and not self.text.endswith("\n"):
            self.write("\n")


def beside_bounds(run: RunFinished, most: Mapping[str, str]) -> Text:
    """The model calls and cost of a run next to ``most``, the bounds of its program; empty without bounds."""
    shown: list[str] = []
    if "model_calls" in most:
        shown.append(
            f"model calls {run.usage.requests if run.usage is not None else 0:,} of at most {most['model_calls']}"
        )
    if shown and most.get("usd", "0") != "0":
        shown.append(f"money {money(run.cost_usd)} of at most ${most['usd']}")
    return Text(", ".join(shown) + "\n" if shown else "", "dim")


@frozen
class _Effect:
    what: str
    detail: str


class Progress:
    """An observer that displays the progress of a run.

    On a terminal each effect becomes a line when it ends (unless it is one of many running concurrently), a tree below
    shows the running effects, with the text streamed by a model, and a table at the end has the costs by task. Elsewhere
    (pipes, files, ``TERM=dumb``, ``CI``) each effect is a plain line when it starts and one when it ends. Lines are held
    back while the answer or a question is being written to the same screen.

    Parameters: ``stream`` takes the lines; ``clean`` is applied to everything from a model, a tool or a file (it strips
    control sequences and secrets); ``answer`` is written from the deltas of its task; ``live`` false shows no tree even on
    a terminal, ``table`` false no table at the end.
    """

    bounds = True

    def __init__(
        self,
        stream: TextIO,
        *,
        clean: Callable[[str], str] = str,
        answer: AnswerText | None = None,
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
        """Leave the screen to a question; questions with a key are answered elsewhere."""
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
