"""The programs of the guide and of like pages: the files of each page, written in the order of the page, print the output that it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import run_command

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.M | re.S)
PAGES = [*sorted((ROOT / "docs").glob("guide-*.md")), ROOT / "docs/provenance.md"]
LONGEST_LINE = 100
"""Characters of a line of code that a page of the site shows without scrolling at 1280 pixels."""


def follow(page: Path, directory: Path, **variables: str) -> None:
    """Write each file of a page and type each command, in ``directory`` with these ``variables``, and compare the output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTFLOW_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(directory / "state"), "NO_COLOR": "1", **variables}
    files, ran = set[str](), set[str]()
    for language, title, text in FENCE.findall(page.read_text("utf-8")):
        if title:
            (directory / title).parent.mkdir(parents=True, exist_ok=True)
            (directory / title).write_text(text, "utf-8")
            files.add(title)
            ran.update(f"{name}.py" for name in re.findall(r"^(?:from|import) (\w+)", text, re.M))
        elif language == "text" and text.startswith("$ python "):
            for command, shown in re.findall(r"^\$ python (.*)\n((?:[^$].*\n|\n)*)", text, re.M):
                script, *arguments = shlex.split(command)
                ran.add(script)
                ended = run_command(arguments, cwd=directory, environment=environment, script=directory / script)
                assert ended.out.decode() == shown, ended.err.decode()
    assert files and not {name for name in files if name.endswith(".py") and "/" not in name} - ran


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.stem == "guide-repository" else pytest.mark.slow, id=page.stem)
        for page in PAGES
    ],
)
def test_the_programs_of_a_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    """A reader who writes each file and types each command, in an empty directory and offline, sees the same output."""
    follow(page, tmp_path)


@pytest.mark.slow
def test_workers_do_the_same_as_one_process(tmp_path: Path, postgres_url: str) -> None:
    """With a database and a worker, the programs of the page on many machines print what they print without."""
    page = ROOT / "docs/guide-machines.md"
    _, _, module = next(fence for fence in FENCE.findall(page.read_text("utf-8")) if fence[1] == "reviews.py")
    (tmp_path / "reviews.py").write_text(module, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DATABASE_URL": postgres_url}
    command = [sys.executable, "-m", "agentflow", "worker", "reviews:flow"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        follow(page, tmp_path, DATABASE_URL=postgres_url)
    finally:
        worker.terminate()
        worker.wait()


GENERATED = {"examples.md", "reference.md", "cli.md"}
MOST_LONG_LINES = 59
"""A ratchet: lower it when blocks of code are rewritten, never raise it."""


def test_no_line_of_code_is_cut() -> None:
    """Lines of code fit the column of the site: all of those of the guide, and nearly all of the other pages."""
    long = [
        f"{page.name}: {line}"
        for page in (ROOT / "docs").glob("*.md")
        if page.name not in GENERATED
        for language, _, text in FENCE.findall(page.read_text("utf-8"))
        for line in text.splitlines()
        if len(line) > LONGEST_LINE and language != "text"
    ]
    assert not [line for line in long if line.startswith("guide")]
    assert len(long) <= MOST_LONG_LINES, long
