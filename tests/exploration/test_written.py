"""Findings written as tests: each fails as it was found, every time, and passes when the program is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agentflow.core.data.errors import AgentflowError, ConfigurationError, LimitExceeded
from agentflow.core.data.source import Source
from agentflow.exploration.findings import Finding
from agentflow.testing import explore
from agentflow.testing.written import WrittenFile, names
from tests.testing.faults.figures import Case, cases
from tests.testing.faults.tools import TOOLS

TOOL_FILE = Path(__file__).parents[1] / "testing" / "faults" / "tools.py"


async def written(case: Case, directory: Path, runs: int) -> list[tuple[Finding, Callable[[], None]]]:
    """The findings of a program, and the test that was written for each."""
    program = directory / f"program{Path(case.source.name).suffix}"
    program.write_text(case.text, "utf-8")
    explored = await explore(Source.of(str(program), case.text), case.bindings, runs, tools=TOOLS)
    file = WrittenFile(
        program=program,
        directory=directory / "tests",
        bindings=case.bindings,
        tools={tool.__name__: TOOL_FILE for tool in TOOLS},
    )
    file.write(explored.found)
    space = {"__file__": str(file.path), "__name__": "written"}
    exec(compile(file.path.read_text("utf-8"), str(file.path), "exec"), space)
    return [(found, space[name]) for found, name in zip(explored.found, names(explored.found), strict=True)]  # pyright: ignore[reportReturnType]


def fails_as_found(found: Finding, test: Callable[[], None]) -> bool:
    """Whether a test raises what was found, where it was."""
    try:
        test()
    except LimitExceeded:
        return found.kind == "endless"
    except AgentflowError as error:
        where = None if found.error is None or found.error.span is None else found.error.span.start
        return error.code == found.code and error.span is not None and error.span.start == where
    return False


async def check(every: list[Case], directory: Path, runs: int, times: int) -> int:
    """Assert that every test that is written for these programs fails as was found, each time; gives how many there are."""
    wrong: list[str] = []
    count = 0
    for number, case in enumerate(every):
        where = directory / str(number)
        where.mkdir()
        for found, test in await written(case, where, runs):
            count += 1
            fails = [await asyncio.to_thread(fails_as_found, found, test) for _ in range(times)]
            if not all(fails):
                wrong.append(f"{case.name}: {found}: {sum(fails)} of {times}")
    assert not wrong, "\n".join(wrong)
    return count


async def test_written_tests_fail_as_found(tmp_path: Path) -> None:
    """A few programs, with pmap among them."""
    some = [case for case in cases("development") if any(word in case.name for word in ("pmap", "yes", "handler"))]
    assert len(some) == 3
    assert await check(some, tmp_path, 30, 2) > 3


async def test_written_tests_of_texts_in_python_fail_as_found(tmp_path: Path) -> None:
    """The same of a few texts in Python."""
    some = [case for case in cases("held_out_python") if any(word in case.name for word in ("pmap", "yes", "handler"))]
    assert len(some) == 3
    assert await check(some, tmp_path, 30, 2) > 3


@pytest.mark.slow
async def test_every_written_test_fails_as_found_ten_times_of_ten(tmp_path: Path) -> None:
    """A third of the programs with seeded faults: all that is found of each, ten times. The figures take all of them."""
    every = [*cases("development"), *cases("held_out"), *cases("held_out_python")]
    assert await check(every[::3], tmp_path, 60, 10) > 30


async def test_a_mended_program_passes(tmp_path: Path) -> None:
    """What failed passes when the program does so no more."""
    case = next(case for case in cases("development") if case.name == "first step of none")
    (found, test), *_ = await written(case, tmp_path, 30)
    assert await asyncio.to_thread(fails_as_found, found, test)
    program = tmp_path / "program.sexp"
    program.write_text(case.text.replace("(first steps)", '(if (null? steps) "none" (first steps))'), "utf-8")
    await asyncio.to_thread(test)


def test_names_say_what_brings_it_about() -> None:
    """The name of a test is the answer that decides, and no two are the same."""
    found = [Finding("error", "list/empty", "first of the empty list", None) for _ in range(2)]
    assert names(found) == ["test_list_empty", "test_list_empty_2"]


def test_a_file_of_somebody_is_not_replaced(tmp_path: Path) -> None:
    """Only a file that was written so is written again."""
    file = WrittenFile(program=tmp_path / "p.sexp", directory=tmp_path)
    file.write([])
    file.write([])
    file.path.write_text("def test_mine(): ...", "utf-8")
    with pytest.raises(ConfigurationError, match="was not written by"):
        file.write([])
    assert file.path.name == "test_p_explored.py"
