"""Regular expressions of JSON Schema (ECMA-262) that match in linear time: patterns and text may both come from a model."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from agentflow.lib.text.late_pattern import late_pattern

MAX_SIZE = 50_000
"""Maximum size of a pattern with its counted repetitions expanded, which takes about a quarter second to compile."""

_TOKEN = late_pattern(r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\{(\d+)(?:,(\d*))?\}|.", re.S)
_ASCII = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]", r"\/": "/"}
_ESCAPE = late_pattern(r"\\.", re.S)
_AHEAD = late_pattern(r"\(\?([=!])")
_PYTHON = (
    (re.compile(r"\(\?<(?=[A-Za-z_$])"), "(?P<"),
    (re.compile(r"\\k<(\w+)>"), r"(?P=\1)"),
    (re.compile(r"\\[pP]\{[^}]*\}"), r"\\w"),
    (re.compile(r"\\u\{[0-9A-Fa-f]+\}|\\c[A-Za-z]"), "x"),
    (re.compile(r"\(\?<([=!])"), r"(?\1"),
    (re.compile(r"\[\^\]"), "."),
    (re.compile(r"\[\]"), "(?!)"),
)
"""Constructs that Python spells differently or lacks, with a stand-in: it only matters whether the whole is a regular
expression."""


class LinearPattern:
    """A regular expression on the Rust engine that comes with pydantic, which supports neither look-around nor
    back-references.

    As in JSON Schema, ``\\d`` and ``\\w`` are ASCII. Look-ahead at the beginning (``^(?!...)``) is matched as a separate
    condition. Parameters: ``text`` is the expression, ``room`` the maximum of ``size``, its length with counted repetitions
    expanded: a larger one is not compiled. ``is_plain``: it has neither look-around nor back-references; ``is_checked``: it
    is compiled and can be matched in linear time: any other matches every text. Raises ValueError with the reason why the
    text is not a regular expression.
    """

    __slots__ = ("_conditions", "is_checked", "is_plain", "size", "text")

    def __init__(self, text: str, room: int = MAX_SIZE) -> None:
        self.text = text
        if len(text) > MAX_SIZE:
            raise ValueError("it is too long")
        self.size = _size(text)
        self.is_plain = self.is_checked = True
        if self.size > room:
            if len(text) <= room:
                _check_form(text)
            self._leave()
            return
        try:
            self._conditions = [(True, _compiled(text))]
        except SchemaError as error:
            self.is_plain = False
            _check_form(text, str(error).rstrip().rpartition("rror: ")[2])
            try:
                self._conditions = [(wanted, _compiled(part)) for wanted, part in _conditions(text)]
            except SchemaError:
                self._leave()

    def _leave(self) -> None:
        self.is_checked = False
        self._conditions = []

    def matches(self, text: str) -> bool:
        """Whether the pattern occurs in ``text``. A lone surrogate counts as a question mark."""
        for wanted, match in self._conditions:
            if (match(text) or match(text.encode("utf-8", "replace").decode())) is not wanted:
                return False
        return True


class LinearPatterns:
    """The patterns of one schema: each is compiled once, and all of them have the room of one, since a model may have written a thousand."""

    def __init__(self) -> None:
        self._room = MAX_SIZE
        self._patterns: dict[str, LinearPattern] = {}

    def of(self, text: str) -> LinearPattern:
        """The compiled expression. Raises ValueError that says why the text is none."""
        pattern = self._patterns.get(text)
        if pattern is None:
            pattern = self._patterns[text] = LinearPattern(text, self._room)
            spent = pattern.size if pattern.size <= self._room else len(text)  # an uncompiled pattern is read once
            self._room = max(0, self._room - spent)
        return pattern


def _compiled(text: str) -> Callable[[object], bool]:
    ascii_classes = _ESCAPE.sub(lambda escape: _ASCII.get(escape[0], escape[0]), text)
    schema = core_schema.str_schema(pattern=ascii_classes, regex_engine="rust-regex")
    return SchemaValidator(schema).isinstance_python


def _check_form(text: str, why: str = "") -> None:
    """Raise ValueError unless ``text`` is a regular expression with more than the Rust engine knows."""
    for pattern, instead in _PYTHON:
        text = pattern.sub(instead, text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(why or str(error)) from error


def _conditions(text: str) -> list[tuple[bool, str]]:
    """A pattern with look-ahead at its beginning as several; each has to occur or must not."""
    if not text.startswith("^"):
        return [(True, text)]
    conditions: list[tuple[bool, str]] = []
    at = 1
    while (ahead := _AHEAD.match(text, at)) is not None:
        end = _end_of_group(text, at)
        conditions.append((ahead[1] == "=", f"^(?:{text[ahead.end() : end - 1]})"))
        at = end
    rest = text[at:]
    # An alternative next to the group is not bound to it.
    return [*conditions, (True, f"^{rest}")] if not _has_alternatives(rest) else [(True, text)]


def _end_of_group(text: str, at: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += (token[0] == "(") - (token[0] == ")")
        if not depth:
            return token.end()
    return len(text)


def _has_alternatives(text: str) -> bool:
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] == "(") - (token[0] == ")")
        if token[0] == "|" and not depth:
            return True
    return False


def _size(text: str) -> int:
    """Approximate number of states of a pattern: a class counts for a few, a Unicode class for many."""
    groups, last = [0], 0
    for token in _TOKEN.finditer(text):
        piece = token[0]
        if token[1] is not None:
            times = int(token[2] or token[1])
            groups[-1] += last * (times - 1)
            last *= times
        elif piece == "(":
            groups.append(0)
        elif piece == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        else:
            last = 50 if piece[:2] in (r"\p", r"\P") else 4 if piece[0] in r".\[" else 1
            groups[-1] += last
    return sum(groups)
