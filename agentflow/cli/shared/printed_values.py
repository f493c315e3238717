"""The value of a program on the terminal, and the exit code for the results in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from agentflow.cli.shared.common import PROVIDER_REASONS, Exit
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.models import MappingModel
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Surface
from agentflow.core.data.values import SharedList
from agentflow.core.events.events import Event, TaskFinished, ToolFinished
from agentflow.lang.printer import print_atom, print_value
from agentflow.lang.python.texts import notation
from agentflow.lib.text.safe_text import clean

WIDTH = 80
"""Line width in columns, where possible."""
MAX_TEXT = 20_000
"""Maximum length of data to lay out in characters; longer data stays on one line."""
_MAX_INDENT = 60


@frozen
class Marks:
    """The delimiters around and between the parts of data in a notation."""

    of_list: tuple[str, str]
    comma: str = ""
    colon: str = ""


SEXP, PYTHON = Marks(("(", ")")), Marks(("[", "]"), ",", ":")


def in_lines(value: object, show: Callable[[object], str], marks: Marks = SEXP) -> str:
    """``value`` in program notation, within :data:`WIDTH` where possible; ``show`` formats a value on one line."""
    whole = show(value)
    return whole if len(whole) > MAX_TEXT else "\n".join(_lines(value, whole, 0, show, marks))


def _lines(value: object, text: str, indent: int, show: Callable[[object], str], marks: Marks) -> list[str]:
    """The lines of a value with the one-line form ``text``, starting in column ``indent``; the first is not indented."""
    if len(text) + indent <= WIDTH or indent > _MAX_INDENT:
        return [text]
    if isinstance(value, dict | MappingModel):
        entries = dict(cast("Mapping[Any, Any]", value))
        parts = list(_entries(entries, indent + 1, show, marks))
        return _enclosed("{", _separated(parts, marks.comma), "}", indent)
    if isinstance(value, list | tuple | SharedList):
        items = list(cast("list[Any]", value))
        texts = [show(item) for item in items]
        opening, closing = marks.of_list
        if marks.comma and isinstance(value, tuple):
            opening, closing = "(", ",)" if len(items) == 1 else ")"
        if any(isinstance(item, list | tuple | dict | MappingModel | SharedList) for item in items):
            pairs = zip(items, texts, strict=True)
            parts = [_lines(item, each, indent + 1, show, marks) for item, each in pairs]
            return _enclosed(opening, _separated(parts, marks.comma), closing, indent)
        texts[:-1] = [each + marks.comma for each in texts[:-1]]
        return _enclosed(opening, list(_filled(texts, WIDTH - indent - 1)), closing, indent)
    return [text]


def _separated(parts: list[list[str]], comma: str) -> list[str]:
    """The lines of several parts, each but the last followed by ``comma``."""
    for lines in parts[:-1]:
        lines[-1] += comma
    return [line for lines in parts for line in lines]


def _entries(value: dict[Any, Any], indent: int, show: Callable[[object], str], marks: Marks) -> Iterator[list[str]]:
    for key, item in value.items():
        name = show(key) + marks.colon
        first, *rest = _lines(item, show(item), indent + len(name) + 1, show, marks)
        yield [f"{name} {first}", *rest]


def _filled(texts: list[str], width: int) -> Iterator[str]:
    """As many texts per line as fit into ``width`` columns."""
    line = ""
    for text in texts:
        if line and len(line) + 1 + len(text) > width:
            yield line
            line = text
        else:
            line = f"{line} {text}" if line else text
    yield line


def _enclosed(opening: str, lines: list[str], closing: str, indent: int) -> list[str]:
    """Lines within brackets. Lines of nested values are indented already, except for their first ones."""
    margin = " " * (indent + 1)
    inner = [each if each.startswith(margin) else margin + each for each in lines]
    inner[0] = opening + inner[0].lstrip(" ")
    inner[-1] += closing
    return inner


def problems(value: object) -> list[BaseException]:
    """The errors of FAILED results and of failed parts of results in a program's value, in order."""
    errors: list[BaseException] = []
    for result in results_in(value):
        error = result.error if result.failed else result.problem() if result.failed_parts else None
        if error is not None:
            errors.append(error)
    return errors


class FailedTexts:
    """An observer that collects the texts of a run's failed results: a program with such a text as its value has failed, like
    one that returns the result."""

    def __init__(self) -> None:
        self._errors: dict[str, BaseException] = {}

    def __call__(self, event: Event) -> None:
        if (
            isinstance(event, TaskFinished | ToolFinished)
            and event.result is not None
            and event.result.error is not None
        ):
            self._errors[event.result.content.strip()] = event.result.error

    def behind(self, value: object) -> list[BaseException]:
        """The error of the failed result with the content ``value``; None for any other value."""
        error = self._errors.get(value.strip()) if isinstance(value, str) and value.strip() else None
        return [] if error is None else [error]


def results_in(value: object) -> Iterator[TaskResult]:
    """The results in a value, in order; each container is searched once."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, TaskResult):
            yield item
        elif isinstance(item, list | tuple | dict | SharedList) and id(cast(object, item)) not in seen:
            seen.add(id(cast(object, item)))
            parts = cast(Iterable[object], item.values() if isinstance(item, dict) else item)
            stack.extend(reversed(list(parts)))


def result_exit_code(errors: Sequence[BaseException]) -> Exit:
    """The exit code for a value with these :func:`problems`: a failed part makes the workflow fail."""
    if not errors:
        return Exit.OK
    reasons = {error.reason for error in errors if isinstance(error, AgentflowError)}
    return Exit.PROVIDER if reasons & PROVIDER_REASONS else Exit.FAILED


def show_value(value: object, surface: Surface = "sexp") -> str:
    """The text that the command prints for a value: texts and results unchanged, lists of them as paragraphs, data as
    program text of ``surface`` over as many lines as it needs.
    """
    if isinstance(value, str | TaskResult):
        return clean(_text_of(value))
    items = cast(Sequence[object], value) if isinstance(value, list | tuple | SharedList) else ()
    if any([isinstance(item, TaskResult) for item in items]) and all([isinstance(i, str | TaskResult) for i in items]):
        return clean("\n\n".join([_text_of(cast("str | TaskResult", item)).strip() for item in items]))
    show, marks = (python_notation, PYTHON) if surface == "python" else (print_data, SEXP)
    return clean(in_lines(cast(object, value), show, marks))


def python_notation(value: object) -> str:
    """``value`` as Python writes it, with results as their texts, and models as dicts."""

    def named(item: Any) -> str | None:
        if isinstance(item, TaskResult):
            return repr(_text_of(item))
        return python_notation(dict(cast("Mapping[str, Any]", item))) if is_dict(item) else None

    return notation(value, named)


def print_data(value: object, *, limit: int | None = None) -> str:
    """``value`` in program notation, with results as their texts."""

    def atom(item: Any) -> str:
        return print_atom(_text_of(item) if isinstance(item, TaskResult) else item)

    return print_value(value, limit=limit, atom=atom)


def _text_of(value: str | TaskResult) -> str:
    if isinstance(value, str):
        return value
    return f"failed: {value.content}" if value.failed else value.content
