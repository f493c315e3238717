"""Syntax highlighting: the Pygments lexer of the workflow language. The only module that imports Pygments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Whitespace,
)

from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms import FORMS
from agentflow.lang.tokens import Kind, tokens

_TYPES: dict[Kind, Any] = {
    "space": Whitespace,
    "newline": Whitespace,
    "comment": Comment.Single,
    "block": Comment.Multiline,
    "skip": Comment.Special,
    "prefix": Operator,
    "open": Punctuation,
    "close": Punctuation,
    "string": String.Double,
    "number": Number,
    "constant": Keyword.Constant,
    "atom": Text,
    "broken": Error,
}


class WorkflowLexer(Lexer):
    """Pygments lexer for agentflow programs (``.sexp``).

    Special forms are keywords, primitives builtins, any other name after an opening parenthesis a function.
    """

    name = "agentflow"
    aliases: ClassVar[Sequence[str]] = ["agentflow", "sexp"]
    filenames: ClassVar[Sequence[str]] = ["*.sexp"]
    mimetypes: ClassVar[Sequence[str]] = ["text/x-agentflow"]
    url = ""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Offset, Pygments token type and text of each token; the texts joined are ``text``."""
        operator = False
        for token in tokens(text):
            kind = _TYPES[token.kind]
            if token.kind == "atom":
                if token.text in FORMS:
                    kind = Keyword
                elif token.text in PRIMITIVES:
                    kind = Name.Builtin
                else:
                    kind = Name.Function if operator else Name.Variable
            if token.kind not in ("space", "newline", "comment", "block"):
                operator = token.kind == "open" and token.text != "{"
            yield token.start, kind, token.text
