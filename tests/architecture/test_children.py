"""Processes that tests start are not judged by how fast the machine is, nor burdened with what other test runs left."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
WAITS = {"run", "communicate", "check_output", "check_call", "call", "wait"}
LONG_S = 100


def short_waits(tree: ast.Module) -> list[int]:
    """Lines that wait for a process for a number of seconds written there which a busy machine may need."""
    return [
        call.lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in WAITS
        if call.func.attr == "communicate" or ast.unparse(call.func.value) in {"subprocess", "process", "child"}
        for word in call.keywords
        if word.arg == "timeout" and isinstance(word.value, ast.Constant) and float(str(word.value.value)) < LONG_S
    ]  # fmt: skip


def pytest_starts(tree: ast.Module) -> list[int]:
    """Lines of commands that start pytest by its module."""
    return [
        command.lineno
        for command in ast.walk(tree)
        if isinstance(command, ast.List | ast.Tuple)
        for first, second in zip(command.elts, command.elts[1:], strict=False)
        if isinstance(first, ast.Constant) and first.value == "-m"
        if isinstance(second, ast.Constant) and second.value == "pytest"
    ]


def test_no_process_is_waited_for_for_a_time_that_a_busy_machine_needs() -> None:
    """A wait for a process ends after ``children.HANG_S``, or after a longer time."""
    short = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if "timeout=" in (text := path.read_text("utf-8"))  # parsing is most of the time
        for line in short_waits(ast.parse(text))
    ]
    assert not short


def test_every_test_run_among_the_tests_has_its_own_directory() -> None:
    """pytest is started by ``children.pytest_command``."""
    starts = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.name != "children.py" and '"-m"' in (text := path.read_text("utf-8"))
        for line in pytest_starts(ast.parse(text))
    ]
    assert not starts


def test_the_rules_see_what_they_forbid() -> None:
    """Short waits of both kinds, and a start of pytest; a wait on the loop and a long one are none."""
    text = (
        "subprocess.run(c, timeout=60)\nprocess.communicate(timeout=5)\nsubprocess.run(c, timeout=300)\n"
        "await asyncio.wait(tasks, timeout=1)\nsubprocess.run(c, timeout=HANG_S)\nrun([sys.executable, '-m', 'pytest'])"
    )
    tree = ast.parse(text.replace("await ", ""))
    assert short_waits(tree) == [1, 2]
    assert pytest_starts(tree) == [6]
