"""The manual as tests: program blocks of Markdown pages, what they say they do, and a way to run them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source
from agentflow.lang.printer import print_value
from agentflow.lang.reader import read, read_datum_nodes
from agentflow.lang.syntax import datum
from agentflow.lang.tokens import tokens

_BLOCK = re.compile(r"^```lisp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAYS = re.compile(r";\s*(=>|error:|model:)\s*(.*)")


@dataclass
class Expectation:
    """What a page says of a form: ``program`` is the block up to and with the form, at the block's own lines."""

    program: str
    kind: str
    text: str
    line: int


@dataclass
class Block:
    """A block of program text on a page."""

    page: str
    line: int
    text: str
    replies: list[str] = field(default_factory=list[str])
    expectations: list[Expectation] = field(default_factory=list[Expectation])
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """The program blocks of a page, in order."""
    text = path.read_text("utf-8")
    return [
        parse_block(path.stem, text.count("\n", 0, found.start(1)) + 1, found[1]) for found in _BLOCK.finditer(text)
    ]


def parse_block(page: str, line: int, text: str) -> Block:
    """A block split at what its comments say. A form that ends in an error is left out of the programs after it."""
    block = Block(page, line, text)
    kept = ""
    start = 0
    for token in tokens(text):
        said = _SAYS.match(token.text) if token.kind == "comment" else None
        if said is None:
            continue
        if said[1] == "model:":
            block.replies.append(said[2])
            continue
        program = kept + text[start : token.start]
        if said[1] == "error:":
            head, last = _split_last(text[start : token.start])
            kept += head + re.sub(r"[^\n]", " ", last)
        else:
            kept = program
        at = line + text.count("\n", 0, token.start)
        block.expectations.append(Expectation(program, said[1], said[2].strip(), at))
        start = token.start
    block.rest = text[start:]
    return block


def _split_last(text: str) -> tuple[str, str]:
    """What comes before the last top-level form of ``text``, and that form. Unreadable text is all one form."""
    try:
        nodes = read_datum_nodes(Source("<block>", text))
    except AgentflowError:
        cut = text.rstrip().rfind("\n") + 1
        return text[:cut], text[cut:]
    at = nodes[-1].start
    return text[:at], text[at:]


def normal(text: str) -> str:
    """Program text of a value, spelled as values print."""
    if "#<" in text:
        return text
    (node,) = read(text)
    return print_value(datum(node))


def outcome(expected: Expectation, value: Any, error: AgentflowError | None) -> str | None:
    """None when what happened is what the page says, else the difference."""
    if expected.kind == "error:":
        happened = error.code if error is not None else f"the value {print_value(value, limit=200)}"
        return None if happened == expected.text else f"expected error {expected.text}, got {happened}"
    if error is not None:
        return f"expected {expected.text}, got {error.render()}"
    try:
        wanted = normal(expected.text)
    except (AgentflowError, ValueError) as wrong:
        return f"the page's own value cannot be read: {wrong}"
    got = print_value(value)
    return None if got == wanted else f"expected {wanted}, got {got}"
