"""Options of the command: declared in one place, offered by every command that they concern."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import pytest
import typer

from agentflow.cli.main import GROUPS, app
from agentflow.cli.shared.case_options import CasesOptions, EvalOptions, ImproveCommandOptions
from agentflow.cli.shared.options import FlowOptions, takes_options
from agentflow.cli.shared.run_options import DemoOptions, DurableOptions, ResumeOptions
from tests.support.commands import said_by


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("run", DurableOptions),
        ("eval", EvalOptions),
        ("improve", ImproveCommandOptions),
        ("cases", CasesOptions),
        ("resume", ResumeOptions),
        ("repl", FlowOptions),
        ("demo", DemoOptions),
    ],
)
def test_a_command_offers_each_field_of_its_options(command: str, options: type) -> None:
    """--help of a command names an option for every field of its dataclass of options."""
    done = said_by(command, "--help")
    renamed = {"as_json": "json", "override": "set", "mcp_server": "mcp"}
    for field in fields(options):
        assert f"--{renamed.get(field.name, field.name).replace('_', '-')} " in done.stdout + " ", field.name


def test_an_option_is_added_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    """A new field of a dataclass is a new option of the command that takes it, given as that field."""

    @dataclass(frozen=True, kw_only=True)
    class More(FlowOptions):
        colour: Annotated[str, typer.Option("--colour")] = "red"

    app = typer.Typer()

    def paint(what: Annotated[str, typer.Argument()], options: More) -> None:
        print(what, options.colour, options.model, options.limit)

    paint.__annotations__["options"] = More
    app.command()(takes_options(paint))
    app(["wall", "--colour", "blue", "--limit", "steps=1", "--limit", "usd=2"], standalone_mode=False)
    app(["wall", "-m", "offline"], standalone_mode=False)
    assert capsys.readouterr().out.splitlines() == ["wall blue None ['steps=1', 'usd=2']", "wall red offline None"]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "run",
        "eval",
        "resume",
        "demo",
        "check",
        "fmt",
        "repl",
        "index",
        "search",
        "runs",
        "runs show",
        "runs gc",
        "mcp sign-in",
        "doctor",
    ],
)
def test_help_is_for_people(command: str) -> None:
    """Help says what a value is for an option (FILE, NAME=VALUE), not its Python type, and cuts no sentence off."""
    done = said_by(*command.split(), "--help", COLUMNS="80")
    options = [line for line in done.stdout.splitlines() if line.lstrip().startswith("-")]
    assert options and not [line for line in options if "<" in line]
    if not command:
        assert not [line for line in done.stdout.splitlines() if line.endswith("...") and not line.startswith("Usage")]
        assert "124" in done.stdout and "agentflow demo" in done.stdout


def test_money_and_tokens_are_lowered_and_never_raised(tmp_path: Path) -> None:
    """``--max-cost`` and ``--max-tokens`` lower the limits of the settings and of ``--limit``; the lower one counts."""
    program = tmp_path / "ask.sexp"
    program.write_text('(defatom ask (params) (instructions "Go.")) (value-of (ask))')
    command = ["run", str(program), "--model", "offline", "--max-cost", "0.01"]
    for least, most in (("--max-tokens=3", "--limit=tokens=100000"), ("--limit=tokens=3", "--max-tokens=100000")):
        done = said_by(*command, least, most, cwd=tmp_path)
        assert done.returncode == 5 and "of 3 tokens" in done.stderr


def test_commands_of_tests_leave_the_users_records_alone(tmp_path: Path) -> None:
    """A command that a test starts without more ado records its run where the session says."""
    done = subprocess.run(
        [sys.executable, "-m", "agentflow", "run", "-e", "(+ 1 2)"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    state = Path(os.environ["XDG_STATE_HOME"])
    assert done.stdout == "3\n" and state.name.startswith("agentflow-state-")
    assert any((state / "agentflow" / "runs").iterdir())


def test_each_command_stands_under_one_title_of_the_help() -> None:
    """A new command gets a place among those of its purpose: one that is in no group would not be shown. Lines fit a terminal."""
    shown = [name for names in GROUPS.values() for name in names]
    commands = [each.name or each.callback.__name__ for each in app.registered_commands if each.callback is not None]
    assert sorted(shown) == sorted([*commands, *[each.name for each in app.registered_groups if each.name]])
    printed = said_by("--help").stdout
    assert [title for title in GROUPS if f"\n{title}:\n" in printed] == list(GROUPS)
    assert max(map(len, printed.splitlines())) <= 80
