"""A text is parsed in one place, where the collector is paused: its finalizers may parse, which CPython up to 3.11.7 did not bear."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import agentflow
from agentflow.lib.text.python_trees import parsed

ROOT = Path(agentflow.__file__).parent
PLACE = ROOT / "lib" / "text" / "python_trees.py"


class Parses:
    """Garbage in a cycle that parses a text when it is collected, as the report of a task that nobody awaited does."""

    collected = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        """Parse something."""
        ast.parse("f(1)")
        Parses.collected += 1


def test_a_collection_breaks_no_parse() -> None:
    """However often the collector would run meanwhile, and whatever it collects, it waits for the tree."""
    text = "\n".join([f"x{number} = f({number}, [{number}])" for number in range(200)])
    before, Parses.collected = gc.get_threshold(), 0
    gc.set_threshold(3, 1, 1)
    try:
        for _ in range(50):
            Parses()
            assert len(parsed(text).body) == 200
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled() and Parses.collected > 10


def test_there_is_one_place_that_parses() -> None:
    """Nothing else in the package calls ``ast.parse``."""
    calls: list[tuple[str, int]] = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(parsed(path.read_bytes())):
            if isinstance(node, ast.Attribute) and node.attr == "parse" and ast.unparse(node.value) == "ast":
                calls.append((str(path), node.lineno))
            assert not (isinstance(node, ast.ImportFrom) and node.module == "ast"), (path, node.lineno)
    assert [path for path, _ in calls] == [str(PLACE)], calls
