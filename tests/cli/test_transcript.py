"""``runs show --transcript`` and ``runs report --markdown``: a run as a text from top to bottom, of the same passages."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import said_by

APP = '''
from agentflow import AgentFlow, ScriptedProvider


def reply(request):
    if len(request.messages) == 1:
        return {"text": "Let me look.", "tool_calls": [{"name": "look", "arguments": {"at": "nowhere"}}]}
    return "It is *here*: ```x```." if len(request.messages) > 3 else {"tool_calls": [{"name": "look", "arguments": {"at": "here"}}]}


flow = AgentFlow(provider=ScriptedProvider(reply), record=True, durable="sqlite:///runs.db", system="Be brief.")


@flow.tool
async def look(at: str) -> str:
    """Look."""
    if at == "nowhere":
        raise ValueError("no such place")
    return f"seen {at}"


@flow.task(tools=["look"])
async def find(thing: str) -> str:
    """Find {{thing}}."""
'''
PROGRAM = """(defatom note (params (text string)) (instructions "Note {{text}}."))
(define where (value-of (find (thing "keys"))))
(if (ask-human "Shall I fetch them?" {"type" "boolean"}) (string-append "fetched " where) "left")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A durable run that looked, failed once, asked, and was answered and resumed."""
    root = tmp_path_factory.mktemp("transcript")
    (root / "app.py").write_text(APP)
    (root / "fetch.sexp").write_text(PROGRAM)
    done = command(root, "run", "fetch.sexp", "--app", "app", "--durable", "--run-id", "r")
    assert done.returncode == 75, done.stderr
    key = re.search(r"runs send r (\S+)", done.stderr)
    assert key is not None
    assert command(root, "runs", "send", "r", key[1], "yes", "--db", "sqlite:///runs.db").returncode == 0
    done = command(root, "resume", "r", "--app", "app")
    assert done.returncode == 0, done.stderr
    return root


def command(root: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return said_by(*arguments, cwd=root, XDG_STATE_HOME=str(root / "state"), **variables)


def test_a_transcript_is_read_from_top_to_bottom(project: Path) -> None:
    """The prompt before the answer, a call before its result, a question before the person's answer; each once, in lines that
    fit the terminal."""
    done = command(project, "runs", "show", "r", "--transcript", "--db", "sqlite:///runs.db", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    order = [
        'task find(thing="keys")',
        "system: Be brief.",
        "user: Find keys.",
        "answer: Let me look.",
        "tool look  failed",
        "no such place",
        "seen here",
        "It is *here*",
        "question: Shall I fetch them?",
        "answer: true",
    ]
    found = [done.stdout.find(each) for each in order]
    assert -1 not in found and found == sorted(found), (found, done.stdout)
    assert done.stdout.count("user: Find keys.") == done.stdout.count("Be brief.") == 1
    assert max(map(len, done.stdout.splitlines())) <= 80
    data = command(project, "runs", "show", "r", "--transcript", "--json", "--db", "sqlite:///runs.db")
    assert [each["kind"] for each in json.loads(data.stdout)["passages"]].count("model") == 3


def test_the_markdown_report_has_the_same_passages(project: Path) -> None:
    """Head, costs, program and what happened; what was said stands in fences that it cannot leave."""
    where = ("r", "--db", "sqlite:///runs.db")
    done = command(project, "runs", "report", *where, "--markdown", "-o", "-")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    parts = ["- **run**: r", "## Costs", "| task find | 1 |", "## Program fetch.sexp", "## What happened", "task find(thing", "text\nShall I fetch"]  # fmt: skip
    found = [text.find(part) for part in parts]
    assert -1 not in found and found == sorted(found), found
    assert "````text\nIt is *here*: ```x```.\n````" in text
    data = command(project, "runs", "show", "r", "--transcript", "--json", "--db", "sqlite:///runs.db")
    for passage in json.loads(data.stdout)["passages"]:
        assert all(said in text for _, said in passage["texts"]), passage
    written = command(project, "runs", "report", *where, "--markdown")
    assert written.stdout == "r.md\n" and (project / "r.md").read_text() == text


def test_a_run_without_events_has_no_transcript(project: Path) -> None:
    """The error says that the events are missing, and what shows the rest."""
    done = command(project, "run", "-e", "(+ 1 2)", "--durable", "--no-record", "--run-id", "bare")
    assert done.returncode == 0, done.stderr
    for arguments in (("show", "bare", "--transcript"), ("report", "bare", "--markdown")):
        done = command(project, "runs", *arguments)
        assert done.returncode == 2 and "events of bare were not recorded" in done.stderr, done.stderr


def test_two_runs_are_compared_in_markdown(project: Path) -> None:
    """With an earlier run the report says what differs."""
    where = ("--db", "sqlite:///runs.db")
    assert command(project, "run", "fetch.sexp", "--app", "app", "--durable", "--run-id", "s").returncode == 75
    done = command(project, "runs", "report", "s", "r", "--markdown", "-o", "-", *where)
    assert "## Compared with the other run" in done.stdout, done.stderr
    assert "## Waits for an answer" in done.stdout and "agentflow runs send s " in done.stdout
