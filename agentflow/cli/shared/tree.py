"""The running expressions as a tree: forms with branches, running tasks and tools, and what they wait for.

The tree processes every event and is drawn a few times per second. An event costs the same however many branches there
are, and drawing visits no more branches than it shows.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rich.text import Text

from agentflow.core.data.source import Span
from agentflow.core.events.events import (
    BranchStarted,
    ContextStarted,
    Event,
    FinishedBase,
    LoopProgress,
    ModelStarted,
    RunFinished,
    RunStarted,
    SubtaskStarted,
    TaskStarted,
    TextDelta,
    ToolProgress,
    ToolStarted,
    WaitStarted,
)

SHOWN = 4
"""Maximum number of rows for concurrent nodes of one form."""
MAX_STREAMED = 1_000
"""Number of characters kept from the end of a model's streamed text."""
_BAR = 20
_LEAST_BAR = 4
_SNIPPET = 48
_LEAST_SNIPPET = 16


@dataclass(eq=False, slots=True)
class Node:
    """A running node: the run, a form with branches, a loop, a branch, or a task, tool or lookup.

    ``children`` run within it; ``ended`` counts finished ones by name, ``failed`` failed ones. ``model`` and ``waits`` are the
    state of a task, ``text`` the end of its model's streamed text, ``share`` the progress of a tool.
    """

    kind: str
    label: str
    key: int = 0
    span: Span | None = None
    parent: Node | None = None
    began: float = 0.0
    children: dict[int, Node] = field(default_factory=dict["int", "Node"])
    ended: Counter[str] = field(default_factory=Counter[str])
    failed: Counter[str] = field(default_factory=Counter[str])
    count: int | None = None
    done: int = 0
    model: str = ""
    waits: str = ""
    text: str = ""
    share: str = ""


@dataclass(frozen=True, slots=True)
class _Look:
    """How rows are drawn: the spinner's frame, the width of the terminal, and whether it is limited to ASCII."""

    spinner: str
    width: int
    ascii_only: bool


class RunTree:
    """The tree of one run; an observer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.root = Node("run", "")
        self._open: dict[int, Node] = {}
        self._forms: dict[str, Node] = {}
        self._writing: dict[int, Node] = {}

    def __call__(self, event: Event) -> None:
        """Process one event."""
        match event:
            case RunStarted():
                self.root = Node("run", event.name, began=self._clock())
                self._open = {event.seq: self.root}
                self._forms.clear()
            case BranchStarted():
                self._add(event, Node("branch", f"branch {event.index}"), self._form(event))
            case TaskStarted():
                self._add(event, Node("unit", event.name))
            case ToolStarted():
                self._add(event, Node("unit", event.name))
            case ContextStarted():
                self._add(event, Node("unit", "context"))
            case SubtaskStarted():
                self._add(event, Node("unit", "subtask"))
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
        node: Node | None = self._open.get(event.started)
        while node is not None:
            if node.kind in ("form", "loop") and (node.count or 0) > 2 * SHOWN:
                return True
            node = node.parent
        return False

    def _at(self, event: Event) -> Node:
        return self._open.get(event.parent or 0, self.root)

    def _add(self, event: Event, node: Node, parent: Node | None = None) -> None:
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

    def _form(self, event: BranchStarted) -> Node:
        """The form that a branch belongs to: all its branches have the same path up to their numbers."""
        path = event.path.rpartition(".")[0]
        form = self._forms.get(path)
        if form is None:
            form = self._forms[path] = Node("form", event.form, count=event.count)
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
            inner = Node("loop", "loop", count=event.total)
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

    def _end_branch(self, form: Node, event: FinishedBase) -> None:
        form.done += 1
        if not form.children and form.done == form.count and form.parent is not None:
            self._forms.pop(event.path.rpartition(".")[0], None)
            form.parent.children.pop(form.key, None)
            self._count(form, event.outcome)

    def _count(self, node: Node, outcome: str) -> None:
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
        """At most ``height`` lines about what is running; bars and texts shrink to ``width`` columns."""
        look = _Look(spinner, width, ascii_only)
        drawn = list(itertools.islice(self._rows(self.root, 0, look), height + 1))
        if len(drawn) > height:
            drawn[height - 1 :] = [Text(" ...", "dim")]
        return drawn

    def _rows(self, node: Node, depth: int, look: _Look) -> Iterator[Text]:
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

    def _row(self, node: Node, depth: int, look: _Look) -> Text:
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


def _loop_in(node: Node) -> Node | None:
    """The loop that a strand is in: the last child, since a strand runs one thing at a time."""
    last = next(reversed(node.children.values()), None)
    return last if last is not None and last.kind == "loop" else None


def _innermost(node: Node) -> Node:
    """The parent for a new node: the innermost loop of ``node``, or ``node`` itself."""
    while (inner := _loop_in(node)) is not None:
        node = inner
    return node


def _bar(form: Node, look: _Look, used: int) -> str:
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


def _counts(node: Node) -> str:
    ended = [f"{count:,} {name}" for name, count in node.ended.most_common(SHOWN)]
    failed = [f"{count:,} {name} failed" for name, count in node.failed.most_common(SHOWN)]
    return ", ".join([*([f"ended: {', '.join(ended)}"] if ended else []), *failed])
