"""The tables "Coming from other frameworks" of docs/agents.md: the code on the right is code, of names and options that there are."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentflow
from agentflow import AgentFlow, CallContext, Session, TaskResult
from agentflow.flow.program_methods import RUN, START
from agentflow.lib.option_table import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
OBJECTS: dict[str, Any] = {"flow": AgentFlow, "ctx": CallContext, "session": Session, "result": TaskResult}
"""What the tables call objects of these classes."""
STANDING = frozenset({"T", "Bank"})
"""Classes of the reader's."""
OPTIONS = {
    "task": NAMES["task"],
    "with_options": NAMES["task"],
    "tool": NAMES["tool"],
    "run": RUN,
    "stream": RUN,
    "start": START,
}
"""The options of what takes them by a table."""


def rows() -> Iterator[tuple[str, str, str]]:
    """The framework, left and right of each row."""
    text = PAGE.read_text("utf-8").split("## Coming from other frameworks")[1]
    for part in text.split("\n### ")[1:]:
        name, _, table = part.partition("\n")
        for line in table.strip().splitlines()[2:]:
            _, left, right, _ = re.split(r"(?<!\\)\|", line)
            yield name, left.strip(), right.strip()


def parsed(code: str) -> ast.Module | None:
    """A span of code as a module; None for a word that is not code of its own, such as ``ctx`` or ``await``."""
    if re.fullmatch(r"[a-z_ ]+", code):
        return None
    if code.startswith("@"):
        return ast.parse(f"{code}\nasync def f(): ...")
    if code.startswith("async def"):
        return ast.parse(f"{code}: ...")
    return ast.parse(f"async def f():\n    {code}")


def unknown(tree: ast.Module) -> Iterator[str]:
    """The names, attributes and options in it that there are not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id[0].isupper() and node.id not in STANDING:
            if not hasattr(agentflow, node.id):
                yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OBJECTS:
            known = OBJECTS[node.value.id]
            if not hasattr(known, node.attr) and node.attr not in getattr(known, "__annotations__", {}):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            yield from unknown_options(node)


def unknown_options(call: ast.Call) -> Iterator[str]:
    """The keywords of a call that what it calls does not take."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = getattr(getattr(function, "value", None), "id", None)
    known: Any = OPTIONS.get(name)
    if known is None:
        target = getattr(OBJECTS[owner], name, None) if owner in OBJECTS else getattr(agentflow, name, None)
        if target is None:
            return
        known = inspect.signature(target).parameters
    for keyword in call.keywords:
        if keyword.arg not in known:
            yield f"{ast.unparse(function)}({keyword.arg}=)"


def test_each_table_has_rows_of_code() -> None:
    """Three frameworks, and code in every row, so that the next test sees something."""
    counts: dict[str, int] = {}
    for name, left, right in rows():
        counts[name] = counts.get(name, 0) + 1
        assert "`" in right, (left, right)
    assert set(counts) == {"Pydantic AI", "OpenAI Agents SDK", "LangGraph"} and min(counts.values()) > 10


@pytest.mark.parametrize(("name", "left", "right"), list(rows()), ids=lambda value: str(value)[:60])
def test_the_code_of_a_row_is_code_that_works(name: str, left: str, right: str) -> None:
    """Every span on the right is Python, its classes and methods are public, and its options are options."""
    for code in re.findall(r"`([^`]+)`", right):
        tree = parsed(code)
        assert tree is None or not list(unknown(tree)), code


def test_a_name_that_there_is_not_would_be_seen() -> None:
    """The check of the tables fails on another class, method or option."""
    for wrong in ("Finnish(value)", "flow.strem(task(question))", '@flow.task(instructions="...")', "Limits(turn=9)"):
        tree = parsed(wrong)
        assert tree is not None and list(unknown(tree)), wrong
