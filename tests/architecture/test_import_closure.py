"""What somebody pays who imports agentflow and runs one task: only the part of the package that does it is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ONE_TASK = """
import asyncio, sys
from agentflow import AgentFlow, ScriptedProvider
async def main():
    async with AgentFlow(provider=ScriptedProvider(["x"])) as flow:
        await flow.run('(defatom ask (params (q)) (instructions "{{q}}")) (value-of (ask (q "Why?")))')
asyncio.run(main())
print(*sorted([name for name in sys.modules if name.partition(".")[0] == "agentflow"]))
"""
MODULES, LINES = 253, 56_300
"""A ratchet: lower it when a room is imported later, never raise it."""
COST = 0.4
"""The most that importing ``AgentFlow`` may cost, as a part of importing ``openai``; 0.38 was measured."""
LATER = (
    "agentflow.lang.python",
    "agentflow.lang.bounds.python",
    "agentflow.journal.sqlite",
    "agentflow.durable.journal",
    "agentflow.durable.runs",
    "agentflow.lang.bounds",
    "agentflow.run.policy",
    "agentflow.run.bounds.estimate",
    "agentflow.spec",
    "agentflow.memory.",
    "agentflow.executors.services",
    "agentflow.executors.sandbox.bubblewrap",
    "agentflow.serve",
    "agentflow.cli",
    "agentflow.lsp",
)


def test_one_task_loads_a_part_of_the_package() -> None:
    """No second compiler, no exploration, no durable runs, no server, no command; and no more modules and lines than were loaded last time."""
    done = subprocess.run([sys.executable, "-c", ONE_TASK], cwd=ROOT, capture_output=True, text=True, check=True)
    names = done.stdout.split()
    assert len(names) > 100, "the modules were seen"
    assert [name for name in names if name.startswith(LATER)] == ["agentflow.memory.finder"]
    assert [name for name in names if name.startswith("agentflow.exploration.")] == ["agentflow.exploration.explorer"]
    lines = sum([_lines(name) for name in names])
    assert len(names) <= MODULES and lines <= LINES, (len(names), lines)


FIRST_QUESTION = """
import asyncio, sys
from agentflow import AgentFlow, ScriptedProvider
async def main():
    async with AgentFlow(provider=ScriptedProvider(["x"])) as flow:
        before = set(sys.modules)
        assert await flow.ask("Why?") == "x"
        print(*sorted([name for name in set(sys.modules) - before if name.startswith("agentflow")]))
asyncio.run(main())
"""


def test_the_first_question_outside_of_a_run_imports_nothing() -> None:
    """Its session is the flow's own: the specification's handler is not made for it, nor its room imported on the event loop."""
    done = subprocess.run([sys.executable, "-c", FIRST_QUESTION], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.slow
def test_importing_the_flow_costs_a_part_of_importing_openai() -> None:
    """A ratio of bytecodes, which neither the machine nor its load changes. By processor time, of which reading files is a part, it was 0.46."""
    ours, theirs = _bytecodes("from agentflow import AgentFlow"), _bytecodes("import openai")
    assert ours <= COST * theirs, (ours, theirs)


COUNTING = """
import sys
count = 0
def entered(frame, event, argument):
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    return stepped
def stepped(frame, event, argument):
    global count
    count += event == "opcode"
    return stepped
sys.settrace(entered)
exec(sys.argv[1])
sys.settrace(None)
print(count)
"""


def _bytecodes(statement: str) -> int:
    """The number of bytecodes that a new process executes for a statement."""
    command = [sys.executable, "-c", COUNTING, statement]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def _lines(name: str) -> int:
    path = ROOT.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path.read_text("utf-8").count("\n") if path.exists() else 0  # a folder without a file of its own
