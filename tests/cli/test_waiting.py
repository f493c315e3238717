"""``run --durable`` of a program that asks: exit code 75, the line that answers, and going on; in processes of their own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.support.commands import run_command

PROGRAM = """
(define amounts (pmap (lambda (who) (ask-human (format "How much for {}?" who) {"type" "integer" "minimum" 1})) '("ann" "bob")))
(if (ask-human "Pay?" {"type" "boolean"}) (apply + amounts) 'kept)
"""


def agentflow(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = run_command(words, cwd=tmp_path, environment=environment)
    return subprocess.CompletedProcess(words, done.code, done.out.decode(), done.err.decode())


def lines(said: str) -> list[list[str]]:
    """The commands that standard error names."""
    return [shlex.split(line)[1:] for line in said.splitlines() if line.startswith("  agentflow ")]


def test_a_program_that_asks(tmp_path: Path) -> None:
    """Every printed line does what it says, in another process, until the program has ended."""
    (tmp_path / "pay.sexp").write_text(PROGRAM)
    first = agentflow(tmp_path, "run", "pay.sexp", "--durable")
    assert first.returncode == 75 and first.stdout == "", first.stderr
    *answers, resume = lines(first.stderr)
    assert len(answers) == 2 and "How much for ann?" in first.stderr and '"minimum"' in first.stderr
    shown = agentflow(tmp_path, "runs", "show")
    assert shown.stdout.count("agentflow runs send") == 2 and "How much for bob?" in shown.stdout
    assert "Cancelled" not in shown.stdout
    program = [line.split() for line in shown.stdout.splitlines() if "(define amounts" in line or "(if (ask" in line]
    assert program[0][:2] == ["~", "2"] and program[1][0].isdecimal()  # waits in two branches; not reached
    waiting = json.loads(agentflow(tmp_path, "runs", "show", "--json").stdout)
    assert [each["key"] for each in waiting["waiting"]] == [words[3] for words in answers] and waiting["error"] is None
    wrong = agentflow(tmp_path, *[word if word != "VALUE" else "none" for word in answers[0]])
    assert wrong.returncode == 1 and "question/answer" in wrong.stderr
    for number, answer in enumerate(answers):
        sent = agentflow(tmp_path, *[word if word != "VALUE" else str(number + 1) for word in answer])
        assert sent.returncode == 0, sent.stderr
    again = agentflow(tmp_path, *[word if word != "VALUE" else "5" for word in answers[0]])
    assert again.returncode == 1 and "question/unknown" in again.stderr
    second = agentflow(tmp_path, *resume)
    assert second.returncode == 75, second.stderr
    last, resume = lines(second.stderr)
    assert last[-1] == "true"
    assert agentflow(tmp_path, *last).returncode == 0
    third = agentflow(tmp_path, *resume)
    assert (third.returncode, third.stdout) == (0, "3\n"), third.stderr


def test_what_waits_as_json(tmp_path: Path) -> None:
    """With --json the questions are on standard output, with all that answering them takes."""
    (tmp_path / "ask.sexp").write_text('(ask-human "?")')
    words = ("run", "ask.sexp", "--durable", "--db", "sqlite:///own.db", "--json")
    done = agentflow(tmp_path, *words)
    assert done.returncode == 75, done.stderr
    said = json.loads(done.stdout)
    (question,) = said["waiting"]
    assert (said["ok"], said["status"], question["question"], question["schema"]) == (False, "waiting", "?", None)
    assert re.fullmatch("[0-9a-f]{32}", question["key"])
    sent = agentflow(tmp_path, "runs", "send", said["run_id"], question["key"], "so", "--db", "sqlite:///own.db")
    assert sent.returncode == 0, sent.stderr
    done = agentflow(tmp_path, *words)
    assert done.returncode == 0 and json.loads(done.stdout)["value"] == "so"


def test_nobody_to_ask(tmp_path: Path) -> None:
    """Without --durable and without a terminal a question is an error that says what to do."""
    done = agentflow(tmp_path, "run", "-e", '(ask-human "?")')
    assert done.returncode == 1 and "question/unanswered" in done.stderr


def test_a_waiting_run_is_cancelled_with_its_clean_up(tmp_path: Path) -> None:
    """``runs cancel`` runs the finally forms of a run that waits, says what became of it, and leaves nothing to answer."""
    (tmp_path / "ask.sexp").write_text('(try (ask-human "?") (finally (log-message "cleaned up")))')
    waits = agentflow(tmp_path, "run", "ask.sexp", "--durable", "--run-id", "q")
    assert waits.returncode == 75 and "cleaned up" not in waits.stderr
    cancelled = agentflow(tmp_path, "runs", "cancel", "q", "--events")
    assert cancelled.returncode == 0, cancelled.stderr
    events = [json.loads(line) for line in cancelled.stdout.splitlines()]
    assert [each["message"] for each in events if each.get("type") == "log"] == ["cleaned up"]
    assert events[-1] == {"ok": True, "run_id": "q", "status": "cancelled"}
    assert agentflow(tmp_path, "runs", "cancel", "q").stdout == "q is cancelled\n"
    unknown = agentflow(tmp_path, "runs", "cancel", "nosuch")
    assert unknown.returncode == 1 and "durable/unknown-run" in unknown.stderr


SHOP = """
from agentflow import AgentFlow, ScriptedProvider

flow = AgentFlow(provider=ScriptedProvider([]), durable="sqlite:///shop.db")


@flow.tool
async def price(what: str) -> str:
    "What it costs."
    return f"{what} costs 3"
"""


def test_the_flow_that_goes_on_is_the_one_that_waited(tmp_path: Path) -> None:
    """The line that resumes repeats every option that makes the flow; copied, it finds the same templates, model and files."""
    (tmp_path / "my tasks").mkdir()
    (tmp_path / "my tasks" / "greet.xml").write_text(
        '<task name="greet"><parameters><parameter name="who" type="string"/></parameters>'
        "<instructions>Greet {{who}}</instructions></task>"
    )
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "door.txt").write_text("open")
    (tmp_path / "p.sexp").write_text(
        '(define who (ask-human "Who?"))'
        ' (list (status (greet (who who))) (value-of (system:read_files (file_paths (quote ("door.txt"))))))'
    )
    given = ("--db", "sqlite:///my runs.db", "--model", "offline", "--root", "house", "--tasks", "my tasks")
    given = (
        *given,
        "--limit",
        "steps=5000",
        "--limit",
        "turns=7",
        "--max-cost",
        "1.5",
        "--max-tokens",
        "900000",
        "--approve",
        "never",
    )
    waits = agentflow(tmp_path, "run", "p.sexp", "--durable", "--run-id", "q", *given)
    assert waits.returncode == 75, waits.stderr
    answer, resume = lines(waits.stderr)
    assert resume[:2] == ["resume", "q"] and sorted(resume[2:]) == sorted(given)
    shown = agentflow(tmp_path, "runs", "show", "q", "--db", "sqlite:///my runs.db")
    assert "--db 'sqlite:///my runs.db'" in shown.stdout, shown.stderr
    sent = agentflow(tmp_path, *[word if word != "VALUE" else "ann" for word in answer])
    assert sent.returncode == 0 and "--model" in sent.stdout, sent.stderr
    done = agentflow(tmp_path, *resume)
    assert done.returncode == 0 and "COMPLETE" in done.stdout and "open" in done.stdout, done.stderr


def test_a_flow_of_ones_own_waits_and_goes_on(tmp_path: Path) -> None:
    """With --app the lines name the module's flow, and the answer goes to the database of that flow."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "p.sexp").write_text('(price (what (ask-human "What?")))')
    waits = agentflow(tmp_path, "run", "p.sexp", "--durable", "--run-id", "q", "--app", "shop:flow")
    assert waits.returncode == 75, waits.stderr
    answer, resume = lines(waits.stderr)
    assert resume == ["resume", "q", "--app", "shop:flow"] and answer[-2:] == ["--db", "sqlite:///shop.db"]
    sent = agentflow(tmp_path, *[word if word != "VALUE" else "tea" for word in answer])
    assert sent.returncode == 0 and "--app" in sent.stdout, sent.stderr
    done = agentflow(tmp_path, *resume)
    assert (done.returncode, done.stdout) == (0, "tea costs 3\n"), done.stderr


def test_a_run_that_waits_for_a_signal_says_how_to_send_it(tmp_path: Path) -> None:
    """One that is not durable can be sent none from elsewhere, and says so; a durable one ends with the line that sends it, and goes on."""
    plain = agentflow(tmp_path, "run", "-e", '(try (timeout 1.5 (wait-for-signal "paid")) (catch (e) "late"))')
    assert plain.stdout.strip() == "late" and plain.returncode == 0, plain.stderr
    assert "the run waits for the signal 'paid', which no other process can send to it" in plain.stderr
    assert "run it with --durable, then send the signal with agentflow runs signal RUN paid VALUE" in " ".join(
        plain.stderr.split()
    )
    durable = agentflow(tmp_path, "run", "-e", '(wait-for-signal "paid")', "--durable")
    assert durable.returncode == 75 and "can send to it" not in durable.stderr
    send, resume = lines(durable.stderr)
    assert agentflow(tmp_path, *[word if word != "VALUE" else "20" for word in send]).returncode == 0
    assert agentflow(tmp_path, *resume).stdout.strip() == "20"
