"""Syntax colours: nothing lost, every form and primitive known."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Error, Keyword, Name, Number, String

from agentflow.lang.lexer import WorkflowLexer


@given(st.text(alphabet="()[]{}'`,@\"\\;#| \nab1.", max_size=60))
@settings(max_examples=150, deadline=None)
def test_no_character_is_lost(text: str) -> None:
    """Whatever the text, the tokens joined are the text, each at its offset."""
    found = list(WorkflowLexer().get_tokens_unprocessed(text))
    assert "".join(piece for _, _, piece in found) == text
    assert all(text[at : at + len(piece)] == piece for at, _, piece in found)


def test_kinds_of_tokens() -> None:
    """Forms are keywords, primitives builtins, operators functions; a string that never ends is an error."""
    text = '; note\n(define (f x) (append x 1.5 "s" true (shout x)))\n"'
    kinds = {piece: kind for _, kind, piece in WorkflowLexer().get_tokens_unprocessed(text)}
    assert kinds["; note"] is Comment.Single
    assert kinds["define"] is Keyword and kinds["true"] is Keyword.Constant
    assert kinds["append"] is Name.Builtin and kinds["shout"] is Name.Function and kinds["x"] is Name.Variable
    assert kinds["1.5"] is Number and kinds['"s"'] is String.Double and kinds['"'] is Error


def test_pygments_finds_the_lexer_by_file_name() -> None:
    """Installed, the package registers its lexer for .sexp files."""
    assert isinstance(get_lexer_for_filename("review.sexp"), WorkflowLexer)
