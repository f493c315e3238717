"""The parts of a procedure of a Python text in a dump: its captured values, and its text, to be run elsewhere."""

from __future__ import annotations

import ast
import re
from typing import Any, cast

from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, Cell
from agentflow.lang.python.names import ProgramScopes
from agentflow.lang.python.support import as_procedure, underlying
from agentflow.lang.trace import captured_by
from agentflow.lib.text.python_trees import parsed

_DEFINITION = re.compile(r"(?:async\s+)?def\s+(\w+)")


def captured(closure: Closure) -> dict[str, Any]:
    """The variables from outside that a closure uses, with their present values; uninitialised ones are left out."""
    entries: dict[str, Any] = {}
    for info, py, value in captured_by(underlying(closure.raw)):
        if py in info.cells:
            held = cast(Cell, value).v
            if held is not UNBOUND:
                entries[info.cells[py]] = held
        elif py in info.lambdas:
            own = info.lambdas[py]
            entries.setdefault(str(own.name), as_procedure(value, own, closure.env, closure.grants))
        elif py.startswith("v_") and py in info.names:
            entries[info.names[py]] = value
    return entries


def portable_text(closure: Closure) -> str:
    """A text with the procedure as its value, once the names that it captured are variables of its environment."""
    info = closure.info
    definition = _DEFINITION.match(info.text)
    if definition is None:
        return f"({info.text})"
    line = info.source.line(info.span.line)
    indent = line[: len(line) - len(line.lstrip())]
    # A body keeps its indentation, and so do its multi-line texts.
    text = f"if True:\n{indent}{info.text}" if indent else info.text
    return f"{_of_environment(text)}\n{definition[1]}"


def _of_environment(text: str) -> str:
    """The text with ``global`` in place of ``nonlocal``, for the variables of functions that no longer surround it."""
    tree = parsed(text)
    names = ProgramScopes(tree)
    lines = text.split("\n")
    outside: dict[ast.Nonlocal, list[str]] = {}
    for node, name in names.wrong:
        outside.setdefault(cast(ast.Nonlocal, node), []).append(name)
    for node in sorted(outside, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        kept = [each for each in node.names if each not in outside[node]]
        written = f"global {', '.join(outside[node])}" + (f"; nonlocal {', '.join(kept)}" if kept else "")
        first, last = lines[node.lineno - 1].encode(), lines[cast(int, node.end_lineno) - 1].encode()
        whole = first[: node.col_offset] + written.encode() + last[node.end_col_offset :]
        lines[node.lineno - 1 : node.end_lineno] = [whole.decode()]
    return "\n".join(lines)
