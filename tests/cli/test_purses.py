"""Purses on the command line: a run names the one that pays, and the spending of a database is listed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import said_by

APP = """
from agentflow import AgentFlow, Allowance, Purses, ScriptedProvider

flow = AgentFlow(
    provider=ScriptedProvider(lambda request: "an answer"),
    durable="sqlite:///runs.db",
    purses=Purses({"user-*": Allowance(model_calls=2, per="1d")}),
)
"""
ASK = '(defatom ask (params (n integer)) (instructions "Say {{n}}")) (value-of (ask (n 1)))'


def test_a_run_names_the_purse_that_pays(tmp_path: Path) -> None:
    """``--purse`` with or without ``--durable``; an empty purse ends the run, one without an allowance begins none."""
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "ask.sexp").write_text(ASK)
    run = ("run", "ask.sexp", "--app", "shop:flow", "--no-record")
    durable = (*run, "--purse", "user-1", "--durable")
    for arguments in ((*run, "--purse", "user-1"), (*durable, "--run-id", "r")):
        done = said_by(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    done = said_by(*durable, "--run-id", "s", cwd=tmp_path)
    assert done.returncode != 0 and "'user-1' has made all of its 2 model calls" in done.stderr
    done = said_by(*run, "--purse", "ada", cwd=tmp_path)
    assert done.returncode != 0 and "there are those for user-*" in done.stderr
    listed = said_by("runs", "purses", "--db", "sqlite:///runs.db", cwd=tmp_path)
    assert "user-1  $0.0000" in listed.stdout and "2 model calls" in listed.stdout and "until" in listed.stdout
    [row] = json.loads(said_by("runs", "purses", "--db", "sqlite:///runs.db", "--json", cwd=tmp_path).stdout)
    assert row["name"] == "user-1" and row["spent"]["model_calls"] == 2
