"""``--app MODULE:FLOW``: the commands run and check programs with a flow of the user's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import run_command

MODULE = '''
from agentflow import AgentFlow, ScriptedProvider

flow = AgentFlow(
    provider=ScriptedProvider(lambda request: request.messages[-1].parts[0].text), durable="sqlite:///runs.db"
)
plain = AgentFlow(provider=ScriptedProvider())


@flow.task
async def echo(text: str) -> str:
    """{{text}}"""
    ...


def once(text: str) -> str:
    with open("ledger", "a") as file:
        file.write(text)
    if text == "stop":
        raise KeyError("not yet")
    return text


@flow.workflow
async def shout(text: str) -> str:
    """Shout a text."""
    return await flow.step(once, await echo(text)) + "!"
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a module that makes a flow."""
    (tmp_path / "shop.py").write_text(MODULE)
    (tmp_path / "p.sexp").write_text('(content (shout (text "hey")))')
    return tmp_path


def agentflow(directory: Path, *arguments: str, text: str = "") -> tuple[int, str, str]:
    """The command in a directory: its exit code, output and messages."""
    environment = {**os.environ, "XDG_STATE_HOME": str(directory / "state"), "COLUMNS": "200", "NO_COLOR": "1"}
    done = run_command(arguments, cwd=directory, environment=environment, stdin=text.encode())
    return done.code, done.out.decode(), done.err.decode()


@pytest.mark.slow
def test_programs_run_and_are_checked_with_the_flow_of_a_module(project: Path) -> None:
    """Tasks and workflows of the module are there in ``run``, ``eval``, ``check`` and ``repl``."""
    assert agentflow(project, "run", "p.sexp", "--app", "shop:flow")[:2] == (0, "hey!\n")
    code, out, _ = agentflow(project, "run", "-e", '(value-of (echo (text "a")))', "--app", "shop", "--json")
    assert code == 0 and json.loads(out)["value"] == "a"
    assert agentflow(project, "check", "p.sexp", "--app", "shop:flow")[0] == 0
    (project / "wrong.sexp").write_text("(shout (txt 1))")
    code, out, _ = agentflow(project, "check", "wrong.sexp", "--app", "shop:flow")
    assert code == 3 and "'txt'" in out and "text" in out
    code, out, _ = agentflow(project, "repl", "--app", "shop:flow", text='(content (echo (text "typed")))\n')
    assert code == 0 and "typed" in out


def test_a_durable_workflow_goes_on_by_the_command(project: Path) -> None:
    """``resume RUN --app`` finds the function that the run is one of; without it the error says what is missing."""
    start = "import asyncio, shop\nasync def main():\n async with shop.flow as flow:\n"
    start += "  await (await flow.start(shop.shout('stop'), run_id='s-1')).result()\nasyncio.run(main())"
    done = subprocess.run([sys.executable, "-c", start], cwd=project, capture_output=True, text=True, check=False)
    assert "not yet" in done.stderr
    code, _, err = agentflow(project, "resume", "s-1", "--db", "sqlite:///runs.db")
    assert code != 0 and "shop:shout" in err and "--app MODULE:FLOW" in err
    (project / "shop.py").write_text(MODULE.replace('if text == "stop"', 'if text == "never"'))
    code, out, err = agentflow(project, "resume", "s-1", "--app", "shop:flow")
    assert (code, out) == (0, "stop!\n"), err
    assert "1 effect was answered from records" in err and (project / "ledger").read_text() == "stopstop"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--app", "shopp:flow"], "there is no module 'shopp'"),
        (["--app", "shop:flo"], "flow, plain"),
        (["--app", "not a module"], "--app MODULE:FLOW"),
        (["--app", "broken:flow"], "importing it raised ZeroDivisionError"),
        (["--app", "shop:flow", "--model", "offline"], "leave out --model"),
        (["--app", "shop:plain", "--durable"], "does not store runs"),
    ],
)
def test_what_is_no_application_says_so(project: Path, arguments: list[str], said: str) -> None:
    """A module, a flow or an option that cannot be is a usage error with exit code 2."""
    (project / "broken.py").write_text("1 / 0\n")
    code, out, err = agentflow(project, "run", "p.sexp", *arguments)
    assert (code, out) == (2, "") and said in err
