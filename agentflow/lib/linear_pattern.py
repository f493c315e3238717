"""Regular expressions that match in linear time, for patterns and text that may both come from a model."""

from __future__ import annotations

import re

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_SIZE = 50_000
"""Maximum size of a pattern with its counted repetitions expanded, which takes about a quarter second to compile."""

_TOKEN = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\{(\d+)(?:,(\d*))?\}|.", re.S)
_ASCII = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]"}
_ESCAPE = re.compile(r"\\.", re.S)


class LinearPattern:
    """A regular expression for the Rust engine that comes with pydantic: no look-around, no back-references.

    As in JSON Schema, ``\\d`` and ``\\w`` are ASCII. Parameters: ``text`` is the expression. ``size`` is its length
    with counted repetitions expanded. Raises ValueError that says why the text is not a valid expression.
    """

    __slots__ = ("_matches", "size", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.size = _size(text) if len(text) <= MAX_SIZE else len(text)
        if self.size > MAX_SIZE:
            raise ValueError("with its repetitions written out it is too long")
        ascii_classes = _ESCAPE.sub(lambda escape: _ASCII.get(escape[0], escape[0]), text)
        try:
            schema = core_schema.str_schema(pattern=ascii_classes, regex_engine="rust-regex")
            self._matches = SchemaValidator(schema).isinstance_python
        except SchemaError as error:
            raise ValueError(str(error).rstrip().rpartition("rror: ")[2]) from error

    def matches(self, text: str) -> bool:
        """Whether the pattern occurs in ``text``. A lone surrogate counts as a question mark."""
        return self._matches(text) or self._matches(text.encode("utf-8", "replace").decode())


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
