"""``agentflow improve`` searches for better instructions, and its exit code says whether some were found."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_eval import FLOW
from tests.cli.test_prompts import Typist
from tests.cli.test_terminal import terminal_environment
from tests.support.commands import said_by
from tests.support.terminal import in_terminal

MODEL = """
import json
from agentflow import AgentFlow, ScriptedProvider


def model(request):
    text = request.messages[-1].text
    with open("calls.log", "a") as log:
        log.write(json.dumps(text) + "\\n")
    said = text.upper() if "loudly" in text else text
    if text.startswith("Rewrite"):
        said = json.dumps({"diagnosis": "quiet", "instructions": "Say loudly {{question}}"})
    return {"text": said, "cost_usd": 0.01, "usage": {"input_tokens": 5, "output_tokens": 5}}
"""
APP = f"{MODEL}\n{FLOW}"
CASES = "".join([json.dumps({"question": f"q{number}"}) + "\n" for number in range(10)])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with an application and its cases."""
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "cases.jsonl").write_text(CASES)
    return tmp_path


def improved(project: Path, *arguments: str) -> Any:
    """The output of the command for the application's workflow."""
    command = ("improve", "answer", "cases.jsonl", "--app", "shop", "--scorer", "shop:shouts")
    return said_by(*command, *arguments, cwd=project)


def asked(project: Path) -> int:
    """The number of model calls so far."""
    log = project / "calls.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_the_best_candidate_is_printed_and_saved_for_the_other_commands(project: Path) -> None:
    """Exit code 0; the same search again costs nothing; ``eval`` takes the file as a variant."""
    done = improved(project, "--edit", "reply", "--save", "better.toml", "--run-id", "search")
    assert done.returncode == 0, done.stderr
    assert "+Say loudly {{question}}" in done.stdout and "shouts: 0 -> 1 on 3 held-out cases" in done.stdout
    assert "saved: better.toml" in done.stdout
    assert tomllib.loads((project / "better.toml").read_text()) == {
        "reply": {"instructions": "Say loudly {{question}}"}
    }
    paid = asked(project)
    again = improved(project, "--edit", "reply", "--run-id", "search", "--json")
    told = json.loads(again.stdout)
    assert (asked(project), told["ok"], told["improved"], told["saved"]) == (paid, True, True, [])
    variant = ("--variant", "better.toml", "--scorer", "shop:shouts", "--json")
    told = json.loads(said_by("eval", "answer", "cases.jsonl", "--app", "shop", *variant, cwd=project).stdout)
    assert told["variants"][1]["shouts"]["mean"] == 1.0


@pytest.mark.slow
def test_nothing_better_and_a_limit_are_exit_codes(project: Path) -> None:
    """1 with no file where nothing is better, 5 at a limit, 2 for a wrong option."""
    done = improved(project, "--primary", "shouts", "--generations", "1", "--save", "x.toml", "--scorer", "cost")
    assert done.returncode == 0
    (project / "x.toml").unlink()
    told = said_by(
        "improve", "answer", "cases.jsonl", "--app", "shop", "--scorer", "matches=Say", "--save", "x.toml", cwd=project
    )
    assert told.returncode == 1 and "no candidate is better" in told.stdout and not (project / "x.toml").exists()
    for file in project.glob("runs.db*"):
        file.unlink()
    low = improved(project, "--max-cost", "0.02")
    assert low.returncode != 0 and "evals/budget" in low.stderr + low.stdout
    wrong = improved(project, "--edit", "replay")
    assert wrong.returncode != 0 and "did you mean 'reply'?" in wrong.stderr


@pytest.mark.slow
async def test_the_forecast_comes_first(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--plan`` alone; on a terminal before a question, and no answers no."""
    done = improved(project, "--plan", "--json")
    told = json.loads(done.stdout)
    assert (told["first"]["runs"], told["proposals"], told["decision"], asked(project)) == (7, 12, 15, 0), done.stderr
    assert "Then at most 12 proposals" in improved(project, "--plan").stdout
    monkeypatch.chdir(project)
    command = ("improve", "answer", "cases.jsonl", "--app", "shop", "--scorer", "shop:shouts")
    seen: list[tuple[int, bool]] = []
    for typed in ("n", "y"):
        code, terminal = await in_terminal(
            *command, environment=terminal_environment(project), react=Typist("[y/n]", typed)
        )
        seen.append((code, terminal.ever_showed("Run it?")))
    assert seen == [(130, True), (0, True)]
