"""No test fails because the machine was busy: assertions about time go through ``tests/support/spending.py``."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time"}
"""Of ``time``; ``time.time`` is a date."""


def clocks_asserted(tree: ast.Module) -> list[int]:
    """Lines of assertions that read a clock: themselves, or by a difference with one, or by what was counted until one showed a time."""
    lines: list[int] = []
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        durations = {
            target.id
            for each in ast.walk(function)
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.BinOp) and _reads_clock(each.value)
            for target in each.targets
            if isinstance(target, ast.Name)
        }
        durations |= {
            counted.target.id
            for loop in ast.walk(function)
            if isinstance(loop, ast.While) and _reads_clock(loop.test)
            for counted in ast.walk(loop)
            if isinstance(counted, ast.AugAssign) and isinstance(counted.target, ast.Name)
        }
        for each in ast.walk(function):
            if isinstance(each, ast.Assert) and (
                _reads_clock(each.test)
                or any(isinstance(name, ast.Name) and name.id in durations for name in ast.walk(each.test))
            ):
                lines.append(each.lineno)
    return sorted(set(lines))


def _reads_clock(tree: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in CLOCKS
        and isinstance(each.func.value, ast.Name)
        and each.func.value.id == "time"
        for each in ast.walk(tree)
    )


def test_no_assertion_reads_a_clock() -> None:
    """A bound on work is on processor time without the collector's (``spending.at_most``); a hang ends by a time-out."""
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if ("benchmarks" not in path.parts or path.name.startswith("test_")) and path.name != "spending.py"
        if any(f"time.{clock}" in (text := path.read_text("utf-8")) for clock in CLOCKS)
        for line in clocks_asserted(ast.parse(text))
    ]
    assert not found


def test_the_rule_sees_each_way_to_break_it() -> None:
    """A clock in the assertion, in a variable that is asserted, and above a count that is; a deadline of a wait is not an assertion."""
    text = (
        "def f():\n    a = time.monotonic()\n    assert time.monotonic() - a < 1\n    took = time.perf_counter() - a\n"
        "    assert took < 1\n    while time.monotonic() < a: pass\n    assert a\n"
        "    while time.monotonic() < a: n += 1\n    assert n > 5"
    )
    assert clocks_asserted(ast.parse(text)) == [3, 5, 9]
