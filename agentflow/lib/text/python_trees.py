"""Syntax trees of Python."""

from __future__ import annotations

import ast

from agentflow.lib.text.stack import collector_paused


def parsed(text: str | bytes, name: str = "<unknown>") -> ast.Module:
    """The tree of a text; raises as :func:`ast.parse` does.

    Up to Python 3.11.7 a collection in between could end this with a SystemError (gh-106905): a finalizer that parses another
    text, as one does that shows a traceback with its lines.
    """
    with collector_paused():
        return ast.parse(text, name)
