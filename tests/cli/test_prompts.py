"""What is asked on the terminal: words for yes and no, what is wanted, and prompts that nothing is drawn over."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_terminal import LINE, terminal_environment
from tests.support.terminal import Terminal, in_terminal

SPINNER = re.compile(r"^ *[⠀-⣿] ")
SHELL = "system:execute_shell_command"


class Typist:
    """Answers prompts, one after the other, and keeps which frame showed each first."""

    def __init__(self, prompt: str, *answers: str) -> None:
        self.prompt, self.answers = prompt, list(answers)
        self.frames: list[int] = []
        self._seen = 0

    def __call__(self, terminal: Terminal) -> bytes:
        prompts = sum(self.prompt in row for row in terminal.lines)
        if not self.answers or prompts <= self._seen:
            return b""
        self._seen = prompts
        self.frames.append(len(terminal.shown))
        return (self.answers.pop(0) + "\r").encode()


async def asked(
    tmp_path: Path, text: str, typist: Typist, *options: str, pause_s: float = 0.0
) -> tuple[int, Any, Terminal]:
    out = tmp_path / "out.json"
    with out.open("wb") as file:
        code, terminal = await in_terminal(
            "run", "-e", text, "--json", "--root", str(tmp_path), *options,
            environment=terminal_environment(tmp_path), react=typist, standard_output=file.fileno(), pause_s=pause_s,
        )  # fmt: skip
    return code, json.loads(out.read_text("utf-8"))["value"] if code == 0 else None, terminal


@pytest.mark.parametrize("words", [("yes", "no"), ("Y", "N"), ("YES", "n"), ("true", "false")])
async def test_yes_and_no_answer_a_question_of_yes_or_no(words: tuple[str, str], tmp_path: Path) -> None:
    """In any case; the prompt says that they do."""
    text = '(list (ask-human "Go?" {"type" "boolean"}) (ask-human "Stay?" {"type" "boolean"}))'
    typist = Typist("[y/n]", *words)
    code, value, terminal = await asked(tmp_path, text, typist)
    assert (code, value) == (0, [True, False]), "\n".join(terminal.lines)


@pytest.mark.slow
async def test_the_prompt_says_what_is_wanted(tmp_path: Path) -> None:
    """A number, one of some words, or JSON that fits a schema; what does not fit is asked for again."""
    text = """(list (ask-human "How many?" {"type" "integer"}) (ask-human "Which?" {"enum" (list "a" "b")})
                    (ask-human "Who?" {"type" "object" "required" (list "age")}) (ask-human "Name?"))"""
    code, value, terminal = await asked(tmp_path, text, Typist("answer:", "many", "3", "c", "b", '{"age": 4}', "Ada"))
    assert (code, value) == (0, [3, "b", {"age": 4}, "Ada"]), "\n".join(terminal.lines)
    shown = "\n".join(terminal.lines)
    assert "a whole number" in shown and '"a" or "b"' in shown and '"required"' in shown


@pytest.mark.parametrize("words", ["y", "Yes", "YES"])
async def test_an_approval_is_given_in_words(words: str, tmp_path: Path) -> None:
    """What is not a word for yes or no is asked again; the empty answer is no."""
    typist = Typist("[y/N]", "maybe", words, "")
    text = f'(list (failed? ({SHELL} (command "touch made"))) (failed? ({SHELL} (command "touch other"))))'
    code, value, terminal = await asked(tmp_path, text, typist, "--allow", SHELL)
    assert (code, value) == (0, [False, True]), "\n".join(terminal.lines)
    assert (tmp_path / "made").exists() and not (tmp_path / "other").exists()
    assert sum("touch" in row for row in terminal.lines if "approval needed" not in row) >= 2


@pytest.mark.parametrize("form", ["list", "parallel"])
@pytest.mark.parametrize("kind", ["question", "approval"])
async def test_nothing_is_drawn_over_a_prompt(form: str, kind: str, tmp_path: Path) -> None:
    """The first prompt and the second have the screen to themselves while others work, and what goes on is shown after them."""
    if kind == "question":
        both, prompt, options = (
            '(ask-human "Go?" {"type" "boolean"}) (ask-human "Stay?" {"type" "boolean"})',
            "[y/n]",
            (),
        )
    else:
        both = f'(failed? ({SHELL} (command "touch a"))) (failed? ({SHELL} (command "touch b")))'
        prompt, options = "[y/N]", ("--allow", SHELL)
    text = (
        f'(parallel ({form} {both}) (begin (sleep 0.3) (log-message "meanwhile") (sleep 0.5) (log-message "later") 1))'
    )
    typist = Typist(prompt, "y", "y")
    code, _, terminal = await asked(tmp_path, text, typist, *options, pause_s=0.6)
    assert code == 0 and len(typist.frames) == 2, "\n".join(terminal.lines)
    for number, first in enumerate(typist.frames):
        for rows in terminal.shown[first:]:
            if sum(f"{prompt} y" in row for row in rows) > number:
                break  # it has been answered
            assert not any(SPINNER.match(row) for row in rows), "\n".join(rows)
    for row in terminal.lines:
        assert not (prompt in row and LINE.search(row)), row
    assert any("- later" in row for row in terminal.lines)
