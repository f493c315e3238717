"""How many nodes a text in Python has at least, told from its words: before Python's parser, which holds the interpreter meanwhile."""

from __future__ import annotations

import re

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Span

_TOKEN = re.compile(
    r"""
    (?P<skipped> \#[^\n]* | \b(?:from|global|import|nonlocal)\b (?: [^\n\\(] | \\.? | \([^)]*+\)? )*+ )
  | (?P<text> (?:\b(?i:[bfru]{1,2}))?
        (?: \"\"\" (?: [^"\\]++ | \\. | "(?!"") )*+ \"\"\" | ''' (?: [^'\\]++ | \\. | '(?!'') )*+ '''
          | " (?: [^"\\\n]++ | \\. )*+ " | ' (?: [^'\\\n]++ | \\. )*+ ' ) )
  | (?P<silent> \b(?:and|as|async|class|def|elif|else|except|finally|for|if|in|is|not|or|try|while|with)\b )
  | (?P<node> [^\W\d]\w* | \d (?: [eE][+-] | [\w.] )*+ | [\[{] | \.\.\. | (?<=[,(\[=:]) \(\) )
    """,
    re.VERBOSE | re.DOTALL,
)
"""What names nothing, a string, a word that is no node of its own, and what is one: a name, a number, what begins a list or dict."""
_SHORTEST = 2
"""The characters that a node takes at least, with what stands between it and the next."""


def check_words(source: Source, limits: Limits) -> None:
    """Refuse a text whose names, literals, lists and dicts alone are more nodes than a program may have. Raises LimitExceeded."""
    text = source.text
    if len(text) <= _SHORTEST * limits.nodes:
        return
    count, text_ended = 0, -1
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        kind = token.lastgroup
        if kind == "text" or kind == "skipped":
            # Strings beside one another are one.
            beside = text_ended >= 0 and not text[text_ended:start].strip(" \t\r\n\\")
            count += kind == "text" and not beside
            text_ended = end if kind == "text" or beside else -1
        else:
            count += kind == "node"
        if count > limits.nodes:
            raise too_many_nodes(limits, count, source.span(start, end))


def too_many_nodes(limits: Limits, count: int, span: Span | None) -> LimitExceeded:
    """The error of a text with more nodes than ``limits`` allow."""
    return LimitExceeded(
        f"the program has more than {limits.nodes:,} nodes: names, literals and operations",
        limit="nodes",
        allowed=limits.nodes,
        used=count,
        span=span,
        hint="give it data by bindings or as a string, or raise Limits(nodes=...)",
    )
