"""Syntax trees of Python."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

from agentflow.lib.text.stack import collector_paused


def parsed(text: str | bytes, name: str = "<unknown>") -> ast.Module:
    """The tree of a text; raises as :func:`ast.parse` does.

    Up to Python 3.11.7 a collection in between could end this with a SystemError (gh-106905): a finalizer that parses another
    text, as one does that shows a traceback with its lines.
    """
    with collector_paused():
        return ast.parse(text, name)


def holding(plain: Collection[str], leaves: Collection[type[Any]]) -> dict[type[Any], tuple[str, ...]]:
    """The fields of each kind of node that hold nodes: all but the ``plain`` ones, and none of those of ``leaves``."""
    kinds = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
    return {kind: () if kind in leaves else tuple(each for each in kind._fields if each not in plain) for kind in kinds}
