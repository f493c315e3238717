"""The security page names, promise by promise, the tests that hold it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text("utf-8")
ROW = re.compile(r"^\| (?P<promise>[^|]*)\| `(?P<file>\w+/test_\w+\.py)` \| (?P<tests>`[^|]*`) \|$", re.M)


def functions_of(file: Path) -> set[str]:
    """The names of the test functions of a file, without ``test_``."""
    return set(re.findall(r"^(?:async )?def test_(\w+)", file.read_text("utf-8"), re.M))


def named() -> dict[str, set[str]]:
    """The tests that the page names, by file."""
    files: dict[str, set[str]] = {}
    for row in ROW.finditer(PAGE):
        files.setdefault(row["file"], set()).update(re.findall(r"`(\w+)`", row["tests"]))
    return files


@pytest.mark.parametrize("file", sorted(named()))
def test_the_tests_that_the_page_names_exist(file: str) -> None:
    """A test that is renamed or removed is missed here."""
    assert named()[file] <= functions_of(ROOT / "tests" / file)


def test_every_promise_has_its_tests() -> None:
    """Each promise of the page stands in the table of tests."""
    promises = re.findall(r"^\*\*(P\d+)\.", PAGE, re.M)
    tested = {row["promise"].split(":")[0].strip() for row in ROW.finditer(PAGE)} - {""}
    assert len(promises) == 13 and tested == set(promises)


def test_every_hostile_test_holds_a_promise() -> None:
    """An attack that is tested and not on the page is a promise nobody knows of."""
    for file in (ROOT / "tests/hostile").glob("test_*.py"):
        assert functions_of(file) == named().get(f"hostile/{file.name}", set()), file.name
