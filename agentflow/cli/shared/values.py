"""The value of a program on the terminal, and the exit code for the results in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from agentflow.cli.shared.common import PROVIDER_REASONS, Exit
from agentflow.cli.shared.layout import PYTHON, SEXP, in_lines
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.records import is_dict
from agentflow.core.data.results import TaskResult
from agentflow.core.data.shared_list import SharedList
from agentflow.core.data.source import Surface
from agentflow.core.events.events import Event, TaskFinished, ToolFinished
from agentflow.lang.printer import print_atom, print_value
from agentflow.lang.python.texts import notation
from agentflow.lib.text.terminal import clean


def problems(value: object) -> list[BaseException]:
    """The errors of FAILED results and of failed parts of results in a program's value, in order."""
    errors: list[BaseException] = []
    for result in results_in(value):
        error = result.error if result.failed else result.problem() if result.failed_parts else None
        if error is not None:
            errors.append(error)
    return errors


class FailedTexts:
    """An observer of what the failed results of a run say: a program that gives such a text has failed as one that gives the result."""

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
        """The error of the failed result whose content ``value`` is; none for any other value."""
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
    """The text that the command prints for a value: texts and results as they are, lists of them as paragraphs, data as
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
