"""Program texts of both surfaces as operators see them: their calls of tasks, and how to write new ones."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.printer import write_string
from agentflow.lang.python.reader import read_python
from agentflow.lang.reader import read
from agentflow.lang.syntax import DictForm, Form, Name, Node, head_name

Span = tuple[int, int]
"""The first character and the end of a part of a text."""


@frozen
class WrittenCall:
    """A call of the task ``task`` in a text, where its value is used: its span, and those of its ``arguments`` by parameter.

    ``simple`` are the parameters with a name or a literal as argument, which may be written twice.
    """

    task: str
    span: Span
    arguments: Mapping[str, Span]
    simple: frozenset[str]


@frozen
class WrittenText:
    """A text with its ``calls``, and the ``concurrent`` forms of its sequences of calls, each in the place of a span."""

    source: Source
    calls: tuple[WrittenCall, ...]
    concurrent: tuple[tuple[Span, str], ...]
    start: int
    """Where definitions may be written."""

    def part(self, span: Span) -> str:
        """The text of a span."""
        return self.source.text[slice(*span)]

    def changed(self, span: Span, text: str, definitions: Sequence[str] = ()) -> Source:
        """The program with another text at a span, and more definitions."""
        whole, (start, end) = self.source.text, span
        before = "".join([f"{each}\n" for each in definitions])
        text = whole[: self.start] + before + whole[self.start : start] + text + whole[end:]
        return Source(self.source.name, text, self.source.surface)


class SurfaceWriter(Protocol):
    """Writes the forms of one surface."""

    def name(self, task: str, what: str) -> str:
        """The name of a new task for the task ``task``."""
        ...

    def call(self, task: str, arguments: Mapping[str, str]) -> str:
        """A call of a task, as its value."""
        ...

    def task(
        self, name: str, parameters: Sequence[str], instructions: str, model: str | None, *, judges: bool = False
    ) -> str:
        """The definition of a task without tools; one that ``judges`` answers yes or no."""
        ...

    def checked(self, name: str, parameters: Sequence[str], check: str, again: str) -> str:
        """The definition of a function of ``answer`` and the parameters: the answer if ``check`` holds, or else ``again``."""
        ...

    def retried(self, call: str) -> str:
        """A call that is tried again when it fails."""
        ...

    def applied(self, name: str, arguments: Mapping[str, str]) -> str:
        """A call of a function that :meth:`checked` defined."""
        ...


class SexpWriter:
    """The :class:`SurfaceWriter` of S-expressions."""

    def name(self, task: str, what: str) -> str:
        return f"{task}-{what}"

    def call(self, task: str, arguments: Mapping[str, str]) -> str:
        return f"(value-of ({task}{''.join([f' ({name} {text})' for name, text in arguments.items()])}))"

    def task(
        self, name: str, parameters: Sequence[str], instructions: str, model: str | None, *, judges: bool = False
    ) -> str:
        params = " ".join([f"({each} string)" for each in parameters])
        output = ' (output_format (type "json") (schema boolean))' if judges else ""
        output += "" if model is None else f" (model {write_string(model)})"
        return f"(defatom {name} (params {params}) (tools){output}\n  (instructions {write_string(instructions)}))\n"

    def checked(self, name: str, parameters: Sequence[str], check: str, again: str) -> str:
        return f"(define ({' '.join([name, 'answer', *parameters])})\n  (if {check} answer {again}))\n"

    def retried(self, call: str) -> str:
        return f"(retry 3 {call})"

    def applied(self, name: str, arguments: Mapping[str, str]) -> str:
        return f"({' '.join([name, *arguments.values()])})"


class PythonWriter:
    """The :class:`SurfaceWriter` of texts in Python."""

    def name(self, task: str, what: str) -> str:
        return f"{task}_{what}".replace("-", "_")

    def call(self, task: str, arguments: Mapping[str, str]) -> str:
        return f"{task.replace('-', '_')}({', '.join([f'{name}={text}' for name, text in arguments.items()])})"

    def task(
        self, name: str, parameters: Sequence[str], instructions: str, model: str | None, *, judges: bool = False
    ) -> str:
        params = ", ".join([f"{each}: str" for each in parameters])
        options = "tools=[]" if model is None else f"tools=[], model={model!r}"
        head = f"@task({options})\ndef {name}({params}) -> {'bool' if judges else 'str'}:"
        return f"{head}\n    {instructions!r}\n    ...\n"

    def checked(self, name: str, parameters: Sequence[str], check: str, again: str) -> str:
        return f"def {name}({', '.join(['answer', *parameters])}):\n    return answer if {check} else {again}\n"

    def retried(self, call: str) -> str:
        return f"retry(3, {call})"

    def applied(self, name: str, arguments: Mapping[str, str]) -> str:
        return self.call(name, arguments)


WRITERS: Mapping[str, SurfaceWriter] = {"sexp": SexpWriter(), "python": PythonWriter()}


def written(source: Source, tasks: Mapping[str, Collection[str]]) -> WrittenText:
    """The text with its calls of ``tasks``, given with their parameters. Raises SexpSyntaxError."""
    return _python(source, tasks) if source.surface == "python" else _sexp(source, tasks)


def _sexp(source: Source, tasks: Mapping[str, Collection[str]]) -> WrittenText:
    calls: list[WrittenCall] = []
    concurrent: list[tuple[Span, str]] = []
    pending: list[Node] = list(read(source))
    while pending:
        node = pending.pop(0)
        if not isinstance(node, Form | DictForm):
            continue
        pending += node.items
        head, items = head_name(node), node.items
        if head in ("value-of", "content") and len(items) == 2 and (task := head_name(items[1])) in tasks:
            inner = items[1]
            assert isinstance(inner, Form) and task is not None
            pairs = [each for each in inner.items[1:] if isinstance(each, Form) and len(each.items) == 2]
            named = {str(head_name(each)): each.items[1] for each in pairs}
            spans = {name: (each.start, each.end) for name, each in named.items() if name in tasks[task]}
            simple = [name for name in spans if not isinstance(named[name], Form | DictForm)]
            if len(spans) == len(inner.items) - 1:
                calls.append(WrittenCall(task, (node.start, node.end), spans, frozenset(simple)))
        first = items[0] if items else None
        if isinstance(first, Name) and ((head == "list" and _calls_in(items[1:], tasks) > 1) or head == "map"):
            concurrent.append(((first.start, first.end), "pmap" if head == "map" else "parallel"))
    return WrittenText(source, tuple(calls), tuple(concurrent), 0)


def _calls_in(items: Sequence[Node], tasks: Mapping[str, Any]) -> int:
    inner = [each.items[1] for each in items if isinstance(each, Form) and head_name(each) == "value-of"]
    return sum([head_name(each) in tasks for each in inner])


def _python(source: Source, tasks: Mapping[str, Collection[str]]) -> WrittenText:
    text = source.text
    tree = read_python(source, Limits())
    lines = [0]
    for line in text.split("\n"):
        lines.append(lines[-1] + len(line) + 1)

    def at(line: int, column: int) -> int:
        start = lines[line - 1]
        return start + len(text[start : lines[line]].encode()[:column].decode())

    def span(node: Any) -> Span:
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    named = {name.replace("-", "_"): name for name in tasks}
    calls: list[WrittenCall] = []
    concurrent: list[tuple[Span, str]] = []
    for node in _in_code(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in named:
            task = named[node.func.id]
            passed = dict(zip(tasks[task], node.args, strict=False))
            passed |= {each.arg: each.value for each in node.keywords if each.arg in tasks[task]}
            if len(passed) == len(node.args) + len(node.keywords):
                simple = [name for name, each in passed.items() if isinstance(each, ast.Name | ast.Constant)]
                spans = {str(name): span(each) for name, each in passed.items()}
                calls.append(WrittenCall(task, span(node), spans, frozenset(map(str, simple))))
        elif isinstance(node, ast.List) and sum([_is_call(each, named) for each in node.elts]) > 1:
            start, end = span(node)
            concurrent.append(((start, end), f"parallel({text[start + 1 : end - 1]})"))
        elif isinstance(node, ast.ListComp) and _is_call(node.elt, named) and len(node.generators) == 1:
            loop = node.generators[0]
            if not loop.ifs and isinstance(loop.target, ast.Name):
                body, over = (text[slice(*span(each))] for each in (node.elt, loop.iter))
                concurrent.append((span(node), f"pmap(lambda {loop.target.id}: {body}, {over})"))
    after = [each for each in tree.body if not _is_opening(each)]
    first = after[0] if after else None
    decorators = getattr(first, "decorator_list", [])
    line = min([each.lineno for each in (first, *decorators)]) if isinstance(first, ast.stmt) else 1
    return WrittenText(source, tuple(calls), tuple(concurrent), lines[line - 1])


def _in_code(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree in the order of the text, without those of f-strings, which have no columns of their own everywhere."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        yield node
        pending += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.JoinedStr)]


def _is_call(node: ast.AST, named: Mapping[str, str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in named


def _is_opening(node: ast.stmt) -> bool:
    """Whether a statement is an import or the docstring of the text."""
    documents = (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return documents or isinstance(node, ast.Import | ast.ImportFrom)
