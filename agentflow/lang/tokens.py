"""Lossless tokens of program text, for editors, the formatter and the shell.

Unlike the reader, which drops comments, this keeps every character, never fails, and names the kind of each piece. The
texts of the tokens joined are the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal[
    "space",
    "newline",
    "comment",
    "block",
    "skip",
    "prefix",
    "open",
    "close",
    "string",
    "number",
    "constant",
    "atom",
    "broken",
]

_TOKEN = re.compile(
    r"""(?P<newline>\r?\n)
    | (?P<space>(?:[^\S\n]|\A\ufeff)++)
    | (?P<comment>;[^\n]*+)
    | (?P<block>\#\|)
    | (?P<skip>\#;)
    | (?P<string>"(?:[^"\\]|\\.)*+")
    | (?P<broken>"(?:[^"\\]|\\.)*+\\?)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<prefix>,@|['`,])
    | (?P<atom>[^\s()\[\]{}"'`,;]++)""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
CONSTANTS = frozenset({"true", "false", "nil", "none", "#t", "#f", "+inf.0", "-inf.0", "+nan.0", "-nan.0"})
"""Words for values, which are not names."""
_BLOCK_EDGE = re.compile(r"\#\||\|\#")
CLOSERS = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A piece of program text: its kind, its characters, and the offset of the first."""

    kind: Kind
    text: str
    start: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens of ``text``, in order. A string or block comment that never ends is one ``broken`` token."""
    at = 0
    match = _TOKEN.match
    while at < len(text):
        matched = match(text, at)
        assert matched is not None, "every character begins some token"
        kind: Kind = matched.lastgroup  # pyright: ignore[reportAssignmentType]
        piece = matched.group()
        if kind == "block":
            end = _block_end(text, at)
            piece = text[at : end if end > 0 else len(text)]
            if end < 0:
                kind = "broken"
        elif kind == "atom":
            if _NUMBER.fullmatch(piece):
                kind = "number"
            elif piece in CONSTANTS:
                kind = "constant"
        yield Token(kind, piece, at)
        at += len(piece)


def _block_end(text: str, start: int) -> int:
    depth = 0
    for edge in _BLOCK_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "#|" else -1
        if depth == 0:
            return edge.end()
    return -1
