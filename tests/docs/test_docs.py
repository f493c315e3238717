"""README and pages are executed: what they say is what happens."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.children import HANG_S, pytest_command
from tests.support.commands import said_by

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
PAGES = [
    "README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if path.name != "examples.md"),
]
WHOLE_PAGES = ("README.md", "docs/guide.md", "docs/language-tour.md")
"""Pages on which every block is a program."""
WHOLE = re.compile(r"^import |^from ")
"""How a block begins that is a program, rather than a part of one."""


def blocks() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        found += [
            (f"{page}:{text[: match.start()].count(chr(10)) + 1}", match.group(1))
            for match in BLOCK.finditer(text)
            if WHOLE.match(match.group(1)) or page in WHOLE_PAGES
        ]
    return found


@pytest.mark.parametrize(("where", "code"), blocks(), ids=[where for where, _ in blocks()])
def test_python_blocks_run(where: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block of the pages runs as it stands, in an empty directory, without key or network."""
    monkeypatch.chdir(tmp_path)
    exec(compile(code, where, "exec", dont_inherit=True), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_test_files_of_the_testing_page_pass(tmp_path: Path) -> None:
    """The files that the page shows make a project whose tests pass, as a user would run them."""
    page = (ROOT / "docs/testing.md").read_text("utf-8")
    files = re.findall(r'^```(?:python|json) title="(.*?)"\n(.*?)^```', page, re.M | re.S)
    assert sum(name.startswith("test_") for name, _ in files) >= 4
    for name, text in files:
        (tmp_path / name).write_text(text, "utf-8")
    done = subprocess.run(
        pytest_command(tmp_path / "base", "-o", "asyncio_mode=auto"),
        capture_output=True, text=True, cwd=tmp_path, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tour_of_the_language_shows_what_check_says(tmp_path: Path) -> None:
    """The program with mistakes on the page has those that the page prints below it, each at its span."""
    page = (ROOT / "docs/language-tour.md").read_text("utf-8")
    shown = re.search(r"^```lisp\n(.*?)^```\n\nit prints\n\n```text\n(.*?)^```", page, re.M | re.S)
    assert shown is not None
    (tmp_path / "review.sexp").write_text(shown[1], "utf-8")
    done = said_by("check", "review.sexp", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout == shown[2], done.stderr


def test_every_extra_is_in_the_page_on_installing() -> None:
    """Each extra of the package has its row, with the packages that it brings."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    page = (ROOT / "docs/install.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [name for name in extras if not any(f"`{name}`" in row.split("|")[1] for row in rows)] == []


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_workflow_text_in_python_of_a_page_checks(page: str, tmp_path: Path) -> None:
    """The block ``py`` of the page is a workflow text in Python without mistakes."""
    shown = re.search(r"^```py\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S)
    assert shown is not None
    (tmp_path / "review.py").write_text(shown[1], "utf-8")
    done = said_by("check", "-b", "countries", "review.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_example_checks_and_is_formatted() -> None:
    """`agentflow check` finds nothing in the example programs, and `agentflow fmt --check` changes none."""
    programs = [str(path) for path in sorted((ROOT / "examples").glob("*.sexp"))]
    texts = [str(path) for path in sorted((ROOT / "examples/texts").glob("*.py"))]
    assert programs and texts
    for command in (["check", *texts], ["check", *programs], ["fmt", "--check", *programs]):
        done = said_by(*command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_machine_path_and_no_package_index_in_the_project() -> None:
    """Nothing that is committed names a path of a machine or a package index host."""
    wrong: list[str] = []
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=False).stdout.split()
    for name in listed:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".sexp", ".xml", "") and path.is_file():
            text = path.read_text("utf-8", errors="replace")
            if re.search(r"/(?:work|farm)/[a-z]|files\.pythonhosted\.org|pypi\.org/simple", text) and path != Path(
                __file__
            ):
                wrong.append(name)
    assert not wrong, wrong
