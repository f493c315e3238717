"""Lays out data on the terminal: indented over several lines where one would be too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from agentflow.core.data.models import MappingModel
from agentflow.core.data.shared_list import SharedList

WIDTH = 100
"""Line width in columns, where possible."""
MAX_TEXT = 20_000
"""Maximum length of data to lay out in characters; longer data stays on one line, since nobody reads it."""
_MAX_INDENT = 60


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands around and between the parts of data in a notation."""

    of_list: tuple[str, str]
    comma: str = ""
    colon: str = ""


SEXP, PYTHON = Marks(("(", ")")), Marks(("[", "]"), ",", ":")


def in_lines(value: object, show: Callable[[object], str], marks: Marks = SEXP) -> str:
    """``value`` in program notation, within :data:`WIDTH` where possible; ``show`` formats a value on one line."""
    whole = show(value)
    return whole if len(whole) > MAX_TEXT else "\n".join(_lines(value, whole, 0, show, marks))


def _lines(value: object, text: str, indent: int, show: Callable[[object], str], marks: Marks) -> list[str]:
    """The lines of a value whose one-line form is ``text``, starting in column ``indent``; the first is not indented."""
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
