"""``agentflow run MODULE:FLOW.WORKFLOW``: a Python workflow by its name, what is typed instead of it, and the two kinds of
``.py`` files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import said_by

LAUNCH = '''
import agentflow
from agentflow import AgentFlow, ScriptedProvider

flow = AgentFlow(provider=ScriptedProvider(["Paris."] * 4), durable="sqlite:///runs.db")
plain = AgentFlow(provider=ScriptedProvider(["Rome."] * 4))


@flow.task
async def ask(topic: str) -> str:
    """Describe {{topic}}."""


@flow.workflow
async def audit(topic: str, depth: int = 2, tags: list[str] = []) -> dict:
    """Audit a topic."""
    return {"said": await ask(topic), "topic": topic, "depth": depth, "tags": tags}


@agentflow.workflow
async def loose(topic: str) -> str:
    """A workflow without a flow."""
    return topic.upper()


@plain.workflow
async def fails(topic: str) -> str:
    """Raises an exception of its own."""
    return {}[topic]


def helper() -> None: ...
'''
TEXT = "from agentflow.workflow import task\n\nx + 1\n"
FILES = {
    "launch.py": LAUNCH,
    "text.py": TEXT,
    "broken.py": "from agentflow import AgentFlow\n\n\ndef make():\n    return 1 / 0\n\n\nflow = make()\n",
    "runs_itself.py": "import asyncio\n\nasync def main(): ...\n\nasyncio.run(main())\n",
    "script.py": "from agentflow import AgentFlow\n\nprint(AgentFlow)\n",
    "cases.jsonl": '{"inputs": {"topic": "x"}, "expected": "X"}\n',
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return said_by(*arguments, cwd=project, XDG_STATE_HOME=str(project / "state"))


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (("launch:flow.audit", "-b", "topic=x"), {"said": "Paris.", "topic": "x", "depth": 2, "tags": []}),
        (("launch:audit", "-b", "topic=x", "-b", "depth=3"), {"said": "Paris.", "topic": "x", "depth": 3, "tags": []}),
        (("audit", "--app", "launch", "-b", "topic=x"), {"said": "Paris.", "topic": "x", "depth": 2, "tags": []}),
        (("launch:flow.audit", "-b", "topic=2024", "-b", 'tags=["a"]'), {"said": "Paris.", "topic": "2024", "depth": 2, "tags": ["a"]}),
        (("launch:flow.ask", "-b", "topic=x"), "Paris."),
        (("launch:loose", "-b", "topic=x"), "X"),
    ],
)  # fmt: skip
def test_a_workflow_is_run_by_its_name(project: Path, arguments: tuple[str, ...], value: object) -> None:
    """It runs in its own flow with its own model; a value is JSON where the parameter takes it, else text."""
    done = run(project, "run", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == value


def test_it_runs_durably_in_the_store_of_its_flow(project: Path) -> None:
    """The run is stored, the same command resumes it, and one that has ended is answered without a call."""
    arguments = ("run", "launch:flow.audit", "-b", "topic=x", "--durable", "--run-id", "a", "--json")
    first, again = run(project, *arguments), run(project, *arguments)
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert json.loads(first.stdout)["value"] == json.loads(again.stdout)["value"]
    listed = run(project, "runs", "--db", "sqlite:///runs.db", "--durable", "--json")
    assert [each["run_id"] for each in json.loads(listed.stdout)] == ["a"]


def test_it_is_evaluated_by_its_name(project: Path) -> None:
    """``eval`` takes the same reference, and runs the cases in the flow of the module."""
    done = run(project, "eval", "launch:fails", "cases.jsonl", "--plan")
    assert "launch:fails" not in done.stderr or "is not in" not in done.stderr
    done = run(project, "eval", "launch:flow.audti", "cases.jsonl")
    assert done.returncode == 2 and "did you mean 'audit'?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("run", "launch:flow.audti"), ["'audti'", "did you mean 'audit'?"]),
        (("run", "lunch:flow.audit"), ["no module 'lunch'", "did you mean 'launch'?"]),
        (("run", "launch:flwo.audit"), ["'flwo' is not in", "did you mean 'flow'?"]),
        (("run", "launch:flow"), ["is a flow", "agentflow run launch:flow.ask"]),
        (("run", "launch:helper"), ["not a workflow or task", "@flow.workflow"]),
        (("run", "launch.py:flow.audit"), ["'launch.py' is a file", "launch:flow.audit"]),
        (("run", "launch:flow.audit"), ["'topic' is missing", "-b topic=VALUE [-b depth=VALUE]"]),
        (("run", "launch:flow.audit", "-b", "topic"), ["'topic' is not a binding", "-b name=value"]),
        (("run", "launch:flow.audit", "-b", "topci=x"), ["no parameter 'topci' (did you mean 'topic'?)"]),
        (("run", "launch:flow.audit", "-b", "topic=x", "-b", "depth=deep"), ["depth: Input should be a valid integer"]),
        (("run", "launch:flow.audit", "-b", "topic=x", "--allow", "ask"), ["--allow", "your own code"]),
        (("run", "launch:plain.fails", "-b", "topic=x", "--durable"), ["does not store runs", "durable="]),
        (("run", "audti", "--app", "launch"), ["did you mean 'audit'?"]),
        (("run", "broken:flow.audit"), ["ZeroDivisionError", "broken.py:8 flow = make()", "broken.py:5 return 1 / 0"]),
        (("run", "runs_itself:flow.audit"), ["if __name__ == '__main__':"]),
        (("run", "nowhere.py"), ["cannot read nowhere.py", "launch:flow.audit"]),
    ],
    ids=lambda each: " ".join(each),
)  # fmt: skip
def test_a_mistake_is_answered_with_what_to_write(project: Path, arguments: tuple[str, ...], parts: list[str]) -> None:
    """The message says what is wrong with the reference or its arguments, and the hint what to write; exit code 2."""
    done = run(project, *arguments)
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert not [part for part in parts if part not in done.stderr], done.stderr
    assert "Traceback" not in done.stderr and "site-packages" not in done.stderr


def test_an_exception_of_the_workflow_is_shown_with_its_line(project: Path) -> None:
    """An exception that the user's own code raises while it runs names the file and line, without a traceback."""
    done = run(project, "run", "launch:plain.fails", "-b", "topic=x")
    assert done.returncode == 1 and "KeyError" in done.stderr, done.stderr
    line = LAUNCH.splitlines().index("    return {}[topic]") + 1
    assert f"{os.path.join(project, 'launch.py')}:{line}" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", ["run", *[pytest.param(each, marks=pytest.mark.slow) for each in ("check", "explore", "fmt")]]
)
def test_a_module_of_your_own_is_told_from_a_workflow_text(project: Path, command: str) -> None:
    """A ``.py`` file that makes a flow is not text for any command, and the hint says how to run it; the reverse mistake, a
    text that is named as a module, is answered with the command for texts."""
    done = run(project, command, "launch.py")
    assert done.returncode == 2 and "error[cli/host-module]" in done.stderr, done.stderr
    assert "agentflow run launch:flow.audit" in done.stderr
    assert "python script.py" in run(project, command, "script.py").stderr
    assert (project / "launch.py").read_text() == LAUNCH
    reverse = run(project, "run", "text:flow.audit")
    assert reverse.returncode == 2 and "hint: agentflow run text.py" in reverse.stderr
    assert "error[cli/" not in run(project, "check", "text.py").stdout
