"""``agentflow run --durable``: interrupted, the same command resumes; ``resume`` and ``runs --durable``."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.cli.run.durable import fork_run, resume_run
from agentflow.cli.runs.run_read import show
from agentflow.cli.shared.run_options import ForkOptions, ResumeOptions
from agentflow.errors import WorkflowError
from tests.support.children import HANG_S
from tests.support.commands import said_by

PROGRAM = """
(begin
  (system:write_file (file_path "a.txt") (content "written"))
  (system:execute_shell_command (command "sleep 30"))
  "ended")
"""
COMMAND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from agentflow.cli import main; main()"
)
"""A shell starts what runs in the background with SIGINT ignored, and its children with it."""
FAILING = '(value-of (system:read_files (file_paths (quote ("missing.txt")))))'


def agentflow(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command in a directory, with a state of its own."""
    environment = {**os.environ, "XDG_STATE_HOME": str(directory / "state"), "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(directory: Path, *arguments: str) -> tuple[int, str, str]:
    """What the command, run to its end there, says."""
    done = said_by(*arguments, cwd=directory, XDG_STATE_HOME=str(directory / "state"), COLUMNS="200")
    return done.returncode, done.stdout, done.stderr


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=HANG_S)
    return process.returncode, out, err


@pytest.mark.skipif(sys.platform == "win32", reason="processes are interrupted by signal")
def test_the_same_command_goes_on(tmp_path: Path) -> None:
    """Ctrl-C and a kill keep what was done: the same command repeats the tool it was in, and says what it did not repeat."""
    (tmp_path / "p.sexp").write_text(PROGRAM)
    command = ("run", "p.sexp", "--durable", "--events", "--sandbox", "none")
    for number, end in enumerate((signal.SIGINT, signal.SIGKILL)):
        process = agentflow(tmp_path, *command)
        assert process.stdout is not None
        seen: list[str] = []
        for line in process.stdout:
            seen.append(line)
            if '"tool_started"' in line and "execute_shell_command" in line:
                break
        process.send_signal(end)
        code, _, err = ended(process)
        assert code == (130 if end == signal.SIGINT else -signal.SIGKILL)
        assert ("the same command resumes" in err) == (end == signal.SIGINT) and "start again" not in err
        assert (" --sandbox none\n" in err) == (end == signal.SIGINT), "the line that resumes has the options"
        replayed = [line for line in seen if '"effect_replayed"' in line]
        assert len(replayed) == number and (tmp_path / "a.txt").exists() is not bool(number), "written once"
        (tmp_path / "a.txt").unlink(missing_ok=True)
    code, out, _ = ran(tmp_path, "runs", "--durable", "--json")
    (run,) = json.loads(out)
    assert code == 0 and run["status"] == "queued" and run["name"] == "p.sexp" and run["slices"] == 2
    (tmp_path / "p.sexp").write_text(PROGRAM.replace("ended", "changed"))
    code, _, err = ran(tmp_path, *command)
    assert code == 1 and "durable/mismatch" in err


@pytest.mark.slow
def test_an_edited_program_is_adopted(tmp_path: Path) -> None:
    """An edited, unfinished program is refused with exactly the command that adopts it; after that the first command goes on."""
    text = """
    (defatom ask (params (q string)) (instructions "{{q}}") (history_config '((use_session_history false))))
    (list (status (ask (q "one"))) (value-of (system:read_files (file_paths (quote ("missing.txt"))))))
    """
    program = tmp_path / "p.sexp"
    program.write_text(text)
    command = ("run", "p.sexp", "--durable", "--db", "sqlite:///my runs.db", "--model", "offline")
    assert ran(tmp_path, *command)[0] == 1
    program.write_text(text.replace("(list ", '(list "edited" '))
    code, _, err = ran(tmp_path, *command)
    assert code == 1 and "durable/mismatch" in err
    adopting = next(line for line in err.splitlines() if "agentflow resume" in line)
    words = shlex.split(adopting[adopting.index("agentflow resume") :])[1:]
    code, out, err = ran(tmp_path, *words, "--plan")
    assert code == 0 and out.startswith("1 effect is answered from records, which saves 1 model call"), err
    assert "tool system:read_files (p.sexp:" in out and "later calls depend on the results" in out
    (tmp_path / "missing.txt").write_text("here")
    code, out, err = ran(tmp_path, *words, "--json")
    assert code == 0 and "1 effect was answered from records" in err, err
    assert json.loads(out)["value"][:2] == ["edited", "COMPLETE"]
    code, out, _ = ran(tmp_path, "runs", "--durable", "--db", "sqlite:///my runs.db", "--json")
    first, second = sorted(json.loads(out), key=lambda run: run["created"])
    assert (first["status"], first["successor"], second["base"]) == ("cancelled", second["run_id"], first["run_id"])
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Say {{q}}")
    code, _, err = ended(
        agentflow(tmp_path, "resume", second["run_id"], *words[4:], "--set", "ask.instructions=@prompt.txt")
    )
    assert code == 0 and "1 effect was answered from records" in err, err
    (tmp_path / "better.toml").write_text(
        '[ask]\ninstructions = "Say {{q}}"\n'
    )  # the same change, so the same generation
    code, _, same = ran(tmp_path, "resume", second["run_id"], *words[4:], "--set", "@better.toml")
    assert code == 0 and "is not an override" not in same, same
    code, _, err = ran(tmp_path, "resume", second["run_id"], *words[4:], "--set", "@none.toml")
    assert code != 0 and "none.toml cannot be read" in err
    code, _, err = ran(tmp_path, "runs", "fork", second["run_id"], "--at", "0/1.0", *words[4:])
    assert code == 0 and "1 effect was answered from records, which saved 1 model call" in err, err
    assert f"{second['run_id']} has a fork, " in err and "continues as" not in err
    code, _, err = ran(tmp_path, "resume", second["run_id"], "--set", "ask=x")
    assert code == 2 and "--set task.field=value" in err


def test_a_run_that_ended_starts_anew_unless_it_is_named(tmp_path: Path) -> None:
    """Without an id a finished run is another run; ``--run-id`` gives the recorded result."""
    (tmp_path / "p.sexp").write_text('(begin (system:write_file (file_path p) (content "x")) p)')
    named = ("run", "p.sexp", "--durable", "-b", "p=a.txt", "--run-id", "mine")
    assert ran(tmp_path, *named)[:2] == (0, "a.txt\n")
    (tmp_path / "a.txt").unlink()
    assert ran(tmp_path, *named)[:2] == (0, "a.txt\n")
    assert not (tmp_path / "a.txt").exists()
    for _ in range(2):
        assert ran(tmp_path, "run", "p.sexp", "--durable", "-b", "p=b.txt")[:2] == (0, "b.txt\n")
        (tmp_path / "b.txt").unlink()
    _, out, _ = ran(tmp_path, "runs", "--durable")
    assert out.count(" done ") == 3 and " mine " in out


def test_a_text_in_python_is_durable(tmp_path: Path) -> None:
    """The same command, and ``resume``, go on with a file in Python: what it wrote is not written again, its failure is tried again."""
    text = "system.write_file(file_path=p, content='x')\nfound = system.read_files(file_paths=['b.txt'])\n'text of b' in found"
    (tmp_path / "p.py").write_text(text)
    named = ("run", "p.py", "--durable", "-b", "p=a.txt", "--run-id", "mine")
    code, _, err = ran(tmp_path, *named)
    assert code == 1 and "p.py:2:9" in err, err
    (tmp_path / "a.txt").unlink()
    (tmp_path / "b.txt").write_text("text of b")
    code, out, err = ran(tmp_path, "resume", "mine")
    assert (code, out) == (0, "True\n"), err
    assert ran(tmp_path, *named)[:2] == (0, "True\n")
    assert not (tmp_path / "a.txt").exists()
    (tmp_path / "p.py").write_text(text + "\n1")
    code, _, err = ran(tmp_path, *named)
    assert code == 1 and "durable/" in err


def test_a_failed_run_is_resumed(tmp_path: Path) -> None:
    """``resume`` tries the last failure of a failed run again."""
    (tmp_path / "p.sexp").write_text(FAILING)
    code, _, err = ran(tmp_path, "run", "p.sexp", "--run-id", "r", "--db", "sqlite:///mine.db")
    assert code == 1 and "missing.txt" in err
    (tmp_path / "missing.txt").write_text("here now")
    code, out, err = ran(tmp_path, "resume", "r", "--db", "sqlite:///mine.db")
    assert (code, "here now" in out) == (0, True), err
    code, _, err = ran(tmp_path, "resume", "nobody", "--db", "sqlite:///mine.db")
    assert code == 1 and "durable/unknown-run" in err


@pytest.mark.slow
def test_a_conversation_goes_on_from_the_command_line(tmp_path: Path) -> None:
    """``--session``: what was said by one command is history to the next, and another name is another conversation."""
    (tmp_path / "chat.sexp").write_text(
        '(defatom chat (params (text string)) (instructions "{{text}}") (history_config true)) (content (chat (text text)))'
    )
    for name, text in (("ada", "one"), ("ada", "two"), ("eve", "three")):
        process = agentflow(tmp_path, "run", "chat.sexp", "-b", f"text={text}", "--session", name, "--model", "offline")
        code, _, err = ended(process)
        assert code == 0, err
    database = tmp_path / "state" / "agentflow" / "runs.db"
    with sqlite3.connect(database) as db:
        assert dict(db.execute("select name, turns from af_session")) == {"ada": 2, "eve": 1}
    status, out, err = ran(tmp_path, "sessions", "delete", "eve", "bob")
    assert (status, out) == (1, "deleted eve\n") and "'bob'" in err
    status, out, err = ran(tmp_path, "sessions", "--json")
    assert status == 0 and [(each["name"], each["exchanges"]) for each in json.loads(out)] == [("ada", 2)], err
    db.close()


@pytest.mark.skipif(sys.platform == "win32", reason="commands are run by a shell")
async def test_an_interrupted_fork_goes_on_under_its_own_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After Ctrl-C in a fork the line that resumes names the fork: the run it was made from has nothing to go on with."""
    db, step = f"sqlite:///{tmp_path}/runs.db", tmp_path / "step.sh"
    step.write_text("true")
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path, durable=db, sandbox="none") as flow:
        text = '(system:execute_shell_command (command "sh step.sh"))'
        await (await flow.start(text, run_id="first")).result()
    step.write_text("touch started; sleep 60")
    options = ForkOptions(at="0/0.0", run_id="second", db=db, root=str(tmp_path), sandbox="none")
    fork = asyncio.create_task(fork_run("first", options))
    while not (tmp_path / "started").exists():
        assert not fork.done(), await fork
        await asyncio.sleep(0.01)
    fork.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fork
    err = capsys.readouterr().err
    assert "second is kept" in err and "agentflow resume second " in err and "resume first" not in err


@pytest.mark.parametrize("prices", ["{'scripted': Price(input=1_000, output=1_000)}", "None"])
async def test_what_records_saved_is_said_in_money_where_it_has_a_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], prices: str
) -> None:
    """The line that says what was not paid for again names the sum, and none where the price is unknown."""
    name, db = f"priced_{len(prices)}", f"sqlite:///{tmp_path}/runs.db"
    (tmp_path / f"{name}.py").write_text(
        "from agentflow import AgentFlow, Price, ScriptedProvider\n"
        f"flow = AgentFlow(provider=ScriptedProvider(lambda _: 'yes'), prices={prices}, durable={db!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = '(defatom ask (params (q string)) (instructions "{{q}}")) (ask (q "one")) (uuid)'
    async with importlib.import_module(name).flow as flow:
        first = await (await flow.start(text, run_id="first")).result()
    importlib.reload(sys.modules[name])
    assert await fork_run("first", ForkOptions(at="0/1.0", app=f"{name}:flow")) == 0
    money = "" if prices == "None" else f" and ${first.cost:.4f}"
    err = " ".join(capsys.readouterr().err.split())
    assert f"which saved 1 model call, {first.usage.total_tokens:,} tokens{money}" in err, err
    assert prices == "None" or first.cost > 0.001


WORKFLOW = """from agentflow import AgentFlow, ScriptedProvider

flow = AgentFlow(provider=ScriptedProvider([]), durable={db!r})


@flow.workflow
async def choose(names: list[str]) -> str:
    drawn = await flow.random(2)
    return names[drawn + 7]
"""


async def test_a_failed_function_is_shown_with_the_line_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exception of a Python workflow is an error with its place, without the frames of the package; what the run did is
    shown without the text of the function, which is not stored."""
    db = f"sqlite:///{tmp_path}/runs.db"
    (tmp_path / "chooser.py").write_text(WORKFLOW.format(db=db))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("chooser")
    async with module.flow as flow:
        with pytest.raises(WorkflowError, match="choose raised IndexError"):
            await (await flow.start(module.choose(["Ada"]), run_id="r")).result()
    importlib.reload(module)
    assert await resume_run("r", ResumeOptions(app="chooser:flow")) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert "error[host/raised]: choose raised IndexError" in err and "Traceback" not in err
    assert f"in choose, {tmp_path}/chooser.py:9" in err
    assert await show("r", None, db, as_json=False) == 0
    shown = capsys.readouterr().out
    assert "the Python function chooser:choose, whose text is not stored" in shown and "digest" not in shown
    assert await show("r", None, db, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["function"], told["programs"]) == ("chooser:choose", {})
