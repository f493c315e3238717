"""Text wraps at words at the width of the terminal, 80 columns where there is none: help, errors, notes and streamed answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from agentflow import AgentFlow
from agentflow.cli.main import app
from agentflow.cli.shared.wrapping import StreamedWords, wrapped
from tests.cli.test_repl import flow, session
from tests.support.commands import said_by

__all__ = ["flow"]
PROSE = "The files below the root are read in the order in which they were changed, the last one first, and no file is read twice."


def commands() -> list[tuple[str, ...]]:
    def below(command: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        inner = getattr(command, "commands", {})
        return [path, *[each for name, sub in inner.items() for each in below(sub, (*path, name))]]

    return below(typer.main.get_command(app), ())


@pytest.mark.parametrize(
    "path", [pytest.param(each, marks=pytest.mark.slow if each else (), id=" ".join(each)) for each in commands()]
)
def test_the_help_of_each_command_fits_and_breaks_no_word(path: tuple[str, ...]) -> None:
    """No line is wider than 80 columns, and the words are those of a help that is written without breaks."""
    done = said_by(*path, "--help", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not re.search(r"\w-\n", done.stdout), "no word is broken at its hyphen"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "-e", "(fetch 1)"),
        ("run", "nowhere.sexp"),
        ("run", "-e", '(raise "the ' + "long " * 40 + 'story")'),
        *[
            pytest.param(arguments, marks=pytest.mark.slow)
            for arguments in (
                ("run", "-e", "(+ 1 2)", "--limit", "step=3"),
                ("run", "-e", "(+ 1 2)", "--app", "nowhere:flow"),
                ("run", "-e", "(+ 1 2)", "--model", "antropic:x"),
                ("runs", "report", "nowhere"),
                ("check", "nowhere.sexp"),
                ("resume", "nowhere"),
            )
        ],
    ],
    ids=" ".join,
)
def test_errors_wrap_at_words(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Of what the command says to a screen of 80 columns only excerpts of programs and words that are longer are wider;
    on a wide one it says the same words."""
    state = str(tmp_path / "state")
    narrow = said_by(*arguments, cwd=tmp_path, COLUMNS="", XDG_STATE_HOME=state).stderr
    wide = said_by(*arguments, cwd=tmp_path, COLUMNS="1000", XDG_STATE_HOME=state).stderr
    assert narrow.split() == wide.split() != []
    for line in narrow.splitlines():
        assert len(line) <= 80 or " " not in line.strip() or re.match(r"\s*\d* \|", line), line


def test_a_line_is_broken_at_spaces_only() -> None:
    """A break comes between words, continued lines are indented, labels keep their column, and paths, program text and
    commands stay whole."""
    assert wrapped("short", 10) == "short"
    assert all(len(line) <= 40 for line in wrapped(PROSE, 40).splitlines())
    assert wrapped(PROSE, 40).split() == PROSE.split()
    assert wrapped(f"  hint: {PROSE}", 40).splitlines()[1].startswith("    ")
    assert wrapped(f"question  {PROSE}", 40).splitlines()[1].startswith(" " * 10)
    path = "/" + "a" * 90
    assert path in wrapped(f"cannot read {path} now", 40).split()
    for line in (f"   1 | {PROSE}", f"     | {PROSE}", f"  agentflow resume {PROSE}"):
        assert wrapped(line, 40) == line


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_streamed_answer_wraps_at_words(size: int) -> None:
    """However it is cut, no line is wider and no word is broken; a fence of program text stays whole."""
    fence = "```\n" + "x = 1 " * 20 + "\n```\n"
    words = StreamedWords(40)
    text = f"{PROSE}\n\n{fence}{PROSE}"
    out = "".join([words.feed(text[at : at + size]) for at in range(0, len(text), size)]) + words.rest()
    assert out.split() == text.split() and fence in out
    assert all(len(line.rstrip()) <= 40 for line in out.replace(fence, "").splitlines())


async def test_the_shell_wraps_what_it_says(flow: AgentFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Help, documentation, errors and long data of a shell fit into 80 columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = (await session(flow, ",help", ",doc pmap", ",doc let", "(fetch 1 2 3)", "(range 100)")).splitlines()
    assert len(lines) > 12 and max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]
