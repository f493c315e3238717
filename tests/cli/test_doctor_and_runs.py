"""The small commands: what a machine offers, and what earlier runs did."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentflow.cli.admin.doctor import python_note
from tests.cli.test_command import agentflow
from tests.support.model_server import ModelServer


async def test_doctor_says_what_is_there(tmp_path: Path) -> None:
    """doctor names Python, packages, keys, FTS5 and each sandbox back-end with its state and what starts in it; --json gives the same as data."""
    done = await agentflow("doctor", tmp_path=tmp_path)
    assert done.code == 0, done.err
    for word in ("python", "anthropic", "ANTHROPIC_API_KEY", "fts5", "bubblewrap", "landlock"):
        assert word in done.out
    found = json.loads((await agentflow("doctor", "--json", tmp_path=tmp_path)).out)
    assert found["problems"] == []
    assert set(found["sandbox"]) == {"bubblewrap", "landlock"}
    for name, seen in found["starts"].items():
        assert bool(seen) == (found["sandbox"][name] == "usable")
        for program, said in seen.items():
            there = shutil.which(program) is not None
            assert said.startswith("starts: ") if there else said == "not installed"
            assert f"{program} {said}" in done.out
    assert found["keys"] == {"ANTHROPIC_API_KEY": False, "OPENAI_API_KEY": False}


@pytest.mark.slow
async def test_doctor_says_which_server_is_asked_and_what_it_takes(tmp_path: Path) -> None:
    """The model of the settings with its server's traits, known or guessed, and which of them somebody stated; or why it cannot be asked."""
    (tmp_path / "agentflow.toml").write_text('[traits]\nlimit_field = "max_completion_tokens"\n')
    there = {"AGENTFLOW_MODEL": "openai-chat:m", "AGENTFLOW_BASE_URL": "http://127.0.0.1:9/v1"}
    found = json.loads((await agentflow("doctor", "--json", tmp_path=tmp_path, cwd=tmp_path, **there)).out)["model"]
    assert (found["name"], found["server"]) == ("openai-chat:m", "127.0.0.1:9/v1")
    assert "not known" in found["known_as"] and found["traits"]["stated"] == ["limit_field"]
    shown = (await agentflow("doctor", tmp_path=tmp_path, cwd=tmp_path, **there)).out
    assert "limit_field max_completion_tokens" in shown and "127.0.0.1:9/v1" in shown
    groq = {"AGENTFLOW_MODEL": "openai-chat:m", "AGENTFLOW_BASE_URL": "https://api.groq.com/openai/v1"}
    assert (
        json.loads((await agentflow("doctor", "--json", tmp_path=tmp_path, **groq)).out)["model"]["known_as"] == "groq"
    )
    assert "OPENAI_API_KEY" in (await agentflow("doctor", tmp_path=tmp_path, AGENTFLOW_MODEL="openai:gpt-5")).out


async def test_doctor_asks_a_server_of_ones_own(tmp_path: Path) -> None:
    """Whether it is there, what it says of itself, and whether its model is kept to a schema. One that is not there is named as such."""
    props = {"total_slots": 2, "default_generation_settings": {"n_ctx": 4096}, "chat_template": "{% if tools %}"}
    about = {"/v1/models": {"data": [{"id": "qwen"}]}, "/props": props}
    async with ModelServer(['{"colour": "green"}', "red"], about=about) as server:
        there = {"AGENTFLOW_MODEL": "openai-chat:m", "AGENTFLOW_BASE_URL": f"{server.url}/v1"}
        found = json.loads((await agentflow("doctor", "--json", tmp_path=tmp_path, **there)).out)["model"]["own"]
        shown = (await agentflow("doctor", tmp_path=tmp_path, **there)).out
        assert ["response_format" in each.body for each in server.requests] == [True, True]
        failed = json.loads((await agentflow("doctor", "--json", tmp_path=tmp_path, **there)).out)["model"]
    assert found == {"reachable": True, "models": ["qwen"], "slots": 2, "context": 4096, "tools": True, "schema": True}
    assert "reachable True; models qwen; slots 2; context 4096; tools True; schema False" in shown
    assert failed["own"]["reachable"] and "schema" not in failed["own"] and failed["problem"]
    there = {"AGENTFLOW_MODEL": "openai-chat:m", "AGENTFLOW_BASE_URL": "http://127.0.0.1:9/v1"}
    done = await agentflow("doctor", "--json", tmp_path=tmp_path, **there)
    assert done.code == 0 and json.loads(done.out)["model"]["own"] == {"reachable": False}


async def test_doctor_says_what_a_cloud_lacks(tmp_path: Path) -> None:
    """The first thing that is missing for each cloud: its variables, then its extra."""
    found = json.loads((await agentflow("doctor", "--json", tmp_path=tmp_path)).out)["clouds"]
    wanted = {"bedrock": "AWS_REGION", "vertex": "CLOUD_ML_REGION", "foundry": "ANTHROPIC_FOUNDRY_API_KEY"}
    assert found == {name: f"not usable: set {variable}" for name, variable in wanted.items()}
    there = {"ANTHROPIC_FOUNDRY_API_KEY": "k", "ANTHROPIC_FOUNDRY_RESOURCE": "r"}
    shown = (await agentflow("doctor", tmp_path=tmp_path, **there)).out
    assert "cloud foundry       usable" in shown and "cloud vertex        not usable: set CLOUD_ML_REGION" in shown


def test_doctor_says_when_a_python_is_untested() -> None:
    """A Python newer than the tested ones, or older, is said to be untested; one of them is not mentioned."""
    tested = ["3.11", "3.12", "3.13"]
    assert python_note((3, 12), tested) is None
    assert "newer" in (python_note((3, 14), tested) or "")
    assert "3.11 to 3.13" in (python_note((3, 10), tested) or "")


async def test_doctor_names_this_pythons_state(tmp_path: Path) -> None:
    """The report, as text and as data, says of the running Python what the package's classifiers say."""
    note = json.loads((await agentflow("doctor", "--json", tmp_path=tmp_path)).out)["python_note"]
    shown = (await agentflow("doctor", tmp_path=tmp_path)).out
    assert ("untested" in shown) == (note is not None)


async def test_runs_lists_what_event_files_tell(tmp_path: Path) -> None:
    """runs lists each run of the event files with its outcome; one that was cut off is unfinished."""
    directory = tmp_path / "events"
    for name, program in (("good", "(+ 1 2)"), ("bad", "(first 5)")):
        await agentflow("run", "-e", program, "--events-file", str(directory / f"{name}.jsonl"), tmp_path=tmp_path)
    whole = (directory / "good.jsonl").read_text().splitlines()
    (directory / "cut.jsonl").write_text(whole[0].replace(json.loads(whole[0])["run_id"], "another") + "\n")
    (directory / "other.jsonl").write_text("no json at all\n")
    done = await agentflow("runs", "--dir", str(directory), "--json", tmp_path=tmp_path)
    assert done.code == 0, done.err
    outcomes = {Path(run["where"]).stem: run["state"] for run in json.loads(done.out)}
    assert outcomes == {"good": "ok", "bad": "error", "cut": "unfinished"}
    assert "unfinished" in (await agentflow("runs", "--dir", str(directory), tmp_path=tmp_path)).out


async def test_runs_reads_event_files_of_both_versions(tmp_path: Path) -> None:
    """Files of version 1 are listed as ever; types and fields that are not known are passed over."""
    old = [
        {"v": 1, "type": "run_started", "run_id": "r1", "seq": 1, "path": "0", "time": 1.0, "name": "old"},
        {"v": 1, "type": "text_delta", "run_id": "r1", "seq": 2, "path": "0", "time": 1.0, "text": '"run_finished"'},
        {"v": 1, "type": "run_finished", "run_id": "r1", "seq": 3, "time": 2.0, "outcome": "ok", "duration_s": 1.0},
    ]
    new = [
        {"v": 3, "type": "omen", "run_id": "r2", "says": "run_started"},
        {"v": 2, "type": "run_started", "run_id": "r2", "slice": 1, "seq": 1, "time": 3.0, "name": "new", "labels": {}},
        {
            "v": 2,
            "type": "run_finished",
            "run_id": "r2",
            "slice": 1,
            "seq": 2,
            "outcome": "suspended",
            "duration_s": 1.0,
        },
    ]
    for name, events in (("old", old), ("new", new)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    done = await agentflow("runs", "--dir", str(tmp_path), "--json", tmp_path=tmp_path)
    assert {run["name"]: run["state"] for run in json.loads(done.out)} == {"old": "ok", "new": "suspended"}
    shown = await agentflow("runs", "--dir", str(tmp_path), tmp_path=tmp_path)
    assert "suspended" in shown.out and "old" in shown.out


def test_the_version_is_the_packages() -> None:
    """--version prints the installed version."""
    done = subprocess.run([sys.executable, "-m", "agentflow", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("agentflow 0.")
