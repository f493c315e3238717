"""The manual of Python texts as tests: blocks of Markdown pages, what they say they do, and what happened."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.values import OrderedSet
from tests.support.manual import Block, Expectation

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAYS = re.compile(r"#\s*(=>|error:)\s*(.*)")
_MODEL = re.compile(r"^# model:\s*(.*)$", re.MULTILINE)


def python_blocks(path: Path) -> list[Block]:
    """The program blocks of a page, in order."""
    text = path.read_text("utf-8")
    return [
        python_block(path.stem, text.count("\n", 0, found.start(1)) + 1, found[1]) for found in _BLOCK.finditer(text)
    ]


def python_block(page: str, line: int, text: str) -> Block:
    """A block split at what its comments say. A statement that ends in an error is left out of the programs after it."""
    block = Block(page, line, text, [each[1] for each in _MODEL.finditer(text)])
    lines = text.splitlines()
    ends = _ends(text)
    kept: list[str] = []
    start = 0
    for at, content in enumerate(lines, 1):
        said = _SAYS.search(content)
        if at not in ends:
            continue
        statement = [*[""] * (start - len(kept)), *lines[start:at]]
        start = at
        if said is not None:
            block.expectations.append(
                Expectation("\n".join([*kept, *statement]), said[1], said[2].strip(), line + at - 1)
            )
        failed = said is not None and said[1] == "error:"
        kept += [""] * len(statement) if failed else statement
    return block


def _ends(text: str) -> set[int]:
    """The last lines of the statements of a text; of one that cannot be read, its last line that says something."""
    try:
        return {each.end_lineno or 0 for each in ast.parse(text).body}
    except SyntaxError:
        lines = text.splitlines()
        return {max(at for at, each in enumerate(lines, 1) if _SAYS.search(each))}


def outcome_of(expected: Expectation, value: Any, error: AgentflowError | None) -> str | None:
    """None when what happened is what the page says, else the difference."""
    if expected.kind == "error:":
        happened = error.code if error is not None else f"the value {value!r:.200}"
        return None if happened == expected.text else f"expected error {expected.text}, got {happened}"
    if error is not None:
        return f"expected {expected.text}, got {error.render()}"
    wanted = ast.literal_eval(expected.text)
    got = list(value) if isinstance(value, OrderedSet) else value
    return None if repr(got) == repr(wanted) else f"expected {wanted!r}, got {got!r}"


__all__ = ["outcome_of", "python_block", "python_blocks"]
