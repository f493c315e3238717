"""What a function's docstring says about it and its parameters: Google, NumPy and Sphinx styles."""

from __future__ import annotations

import inspect
import re

_GOOGLE = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_GOOGLE_END = re.compile(r"^[A-Z][A-Za-z ]*:\s*$")
_GOOGLE_ITEM = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY = re.compile(r"^(Parameters|Other Parameters)\s*$")
_NUMPY_ITEM = re.compile(r"^\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument|key)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_SPHINX_OTHER = re.compile(r"^:\w+[^:]*:")


def describe(function: object) -> tuple[str, dict[str, str]]:
    """``(description, {parameter: description})`` from a docstring; both empty without one.

    The description is the text ahead of the first section.
    """
    lines = (inspect.getdoc(function) or "").splitlines()
    about: list[str] = []
    parameters: dict[str, list[str]] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if _GOOGLE.match(line):
            at = _google(lines, at + 1, parameters)
            break
        if _NUMPY.match(line) and _underlined(lines, at):
            at = _numpy(lines, at + 2, parameters)
            break
        if _SPHINX.match(line) or _SPHINX_OTHER.match(line):
            _sphinx(lines, at, parameters)
            break
        if _GOOGLE_END.match(line) or _underlined(lines, at):
            at = _skip_section(lines, at + 1)
            continue
        about.append(line)
        at += 1
    return "\n".join(about).strip(), {name: " ".join(text).strip() for name, text in parameters.items()}


def _underlined(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and bool(lines[at].strip()) and re.fullmatch(r"-{3,}\s*", lines[at + 1]) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _skip_section(lines: list[str], at: int) -> int:
    while at < len(lines) and not (_GOOGLE.match(lines[at]) or _NUMPY.match(lines[at])):
        at += 1
    return at


def _google(lines: list[str], at: int, found: dict[str, list[str]]) -> int:
    level: int | None = None
    current: list[str] | None = None
    while at < len(lines):
        line = lines[at]
        if line.strip():
            depth = _indent(line)
            if depth == 0:
                break
            level = depth if level is None else level
            item = _GOOGLE_ITEM.match(line.strip()) if depth <= level else None
            if item:
                current = found.setdefault(item[1], [])
                current.append(item[2])
            elif current is not None:
                current.append(line.strip())
        at += 1
    return at


def _numpy(lines: list[str], at: int, found: dict[str, list[str]]) -> int:
    current: list[list[str]] = []
    while at < len(lines):
        line = lines[at]
        if _underlined(lines, at):
            break
        if line.strip():
            if _indent(line) == 0:
                item = _NUMPY_ITEM.match(line)
                names = [name.strip() for name in item[1].split(",")] if item else []
                current = [found.setdefault(name, []) for name in names]
            else:
                for text in current:
                    text.append(line.strip())
        at += 1
    return at


def _sphinx(lines: list[str], at: int, found: dict[str, list[str]]) -> None:
    current: list[str] | None = None
    for line in lines[at:]:
        item = _SPHINX.match(line)
        if item:
            current = found.setdefault(item[1], [])
            current.append(item[2])
        elif _SPHINX_OTHER.match(line):
            current = None
        elif current is not None and line.strip():
            current.append(line.strip())
