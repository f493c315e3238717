"""What the steps of a program's sequence give to the next task that accumulates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, SubtaskRequest
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.results import TaskResult
from agentflow.tasks.step_history import SequentialHistory

TASKS = """
(defatom one (params) (instructions "Do one."))
(defatom full (params) (instructions "Do full.") (context (accumulate_data true) (accumulation_format full_output)))
(defatom notes (params) (instructions "Do notes.") (context (accumulate_data true)))
"""
REPLIES = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


async def told(program: str, tmp_path: Path, *, tools: Any = (), replies: list[Any] | None = None) -> list[str]:
    """What the model was told of earlier steps in each call, after the program that ends in a value."""
    provider = ScriptedProvider(replies or REPLIES)
    async with AgentFlow(provider=provider, root=tmp_path, tools=tools) as flow:
        await flow.run(TASKS + program)
    return [previous(request) for request in provider.requests]


def previous(request: Any) -> str:
    """The earlier steps in the last message of a request."""
    text = "".join(getattr(part, "text", "") for part in request.messages[-1].parts)
    match = re.search(r"<previous_outputs>\n(.*)\n</previous_outputs>", text, re.DOTALL)
    return match[1] if match else ""


STEP = "Step 1, one (COMPLETE):\nalpha"
SEQUENCES = {
    "progn": "(progn (one) (full))",
    "top level": "(one) (full)",
    "a body": "(define (f) (one) (full)) (f)",
    "operands": "(list (one) (full))",
    "a let": "(let ((x (one))) (full))",
    "try": "(try (one) (full) (catch (e) e))",
    "retry and timeout": "(timeout 60 (begin (one) (retry 2 (full))))",
    "map": "(map (lambda (task) (task)) (list 'one 'full))",
    "a procedure of a value": "(let ((t 'full)) (one) (t))",
    "a loop of a director": "(director-evaluator-loop (max-iterations 1) (initial-director-input 1)"
    " (director (lambda (x i) (one))) (executor (lambda (p i) (full)))"
    " (evaluator (lambda (r p i) r)) (controller (lambda (f p r i) (list 'stop r))))",
}


@pytest.mark.parametrize("program", SEQUENCES.values(), ids=SEQUENCES)
async def test_a_step_gives_what_it_gave_to_the_next_that_accumulates(program: str, tmp_path: Path) -> None:
    """Whatever form holds the steps: a sequence is what one strand does."""
    assert await told(program, tmp_path) == ["", STEP]


async def test_only_tasks_that_accumulate_are_told(tmp_path: Path) -> None:
    """The settings of the template decide, or those of the call."""
    assert await told("(one) (one)", tmp_path) == ["", ""]
    assert await told("(one) (full (context '((accumulate_data false))))", tmp_path) == ["", ""]
    call = "(one (context '((accumulate_data true) (accumulation_format full_output))))"
    assert await told(f"(one) {call}", tmp_path) == ["", STEP]


async def test_notes_only_carries_no_text_of_an_output(tmp_path: Path) -> None:
    """Not its first line either, nor what a tool put into its notes of it."""

    async def shell(text: str) -> Any:
        """Say it twice."""
        return {"status": "COMPLETE", "content": text, "notes": {"stdout": text, "exit_code": 0, "echo": text}}

    texts = await told('(one) (shell (text "omega")) (notes)', tmp_path, tools=[shell])
    assert "alpha" not in texts[-1] and "omega" not in texts[-1]
    assert "Step 1, one (COMPLETE)" in texts[-1] and '"exit_code": 0' in texts[-1]


async def test_a_branch_begins_with_a_copy_and_keeps_what_is_its_own(tmp_path: Path) -> None:
    """Siblings are told of what came before them all, not of each other; what follows is told of what came before."""
    texts = await told("(one) (list (parallel (begin (one) (full))) (parallel (full)) (full))", tmp_path)
    assert texts[:2] == ["", ""]
    assert texts[2] == f"{STEP}\n\nStep 2, one (COMPLETE):\nbeta"
    assert texts[3] == STEP and texts[4] == STEP
    nested = await told("(one) (parallel (car (parallel (full))))", tmp_path)
    assert nested[1] == STEP


async def test_a_program_within_a_program_has_its_own_sequence(tmp_path: Path) -> None:
    """What runs with other grants is told nothing by being started; nor is a run within a tool."""
    assert (await told("(one) (eval-program '(full) (allow full))", tmp_path))[1] == ""
    flows: list[AgentFlow] = []

    async def inner() -> str:
        """Run a program of its own."""
        result = await flows[0].run(f"{TASKS} (full) (full)")
        return str(result.value["content"])

    provider = ScriptedProvider(REPLIES)
    async with AgentFlow(provider=provider, root=tmp_path, tools=[inner]) as flow:
        flows.append(flow)
        await flow.run(f"{TASKS} (one) (inner)")
    assert [previous(each) for each in provider.requests] == ["", "", "Step 1, full (COMPLETE):\nbeta"]


async def test_code_with_fewer_grants_is_not_told_of_what_others_did(tmp_path: Path) -> None:
    """A procedure of an untrusted program that the host calls in its own sequence."""
    provider = ScriptedProvider(REPLIES)
    async with AgentFlow(provider=provider, root=tmp_path) as flow:
        await flow.define(TASKS)
        untrusted = (await flow.run("(lambda () (full) (full))", allow=["full"])).value
        await flow.run("(one) (f) (full)", bindings={"f": untrusted})
    texts = [previous(each) for each in provider.requests]
    assert "alpha" not in texts[1] + texts[2] and "beta" in texts[2]
    assert "alpha" in texts[3] and "gamma" in texts[3]


async def test_a_run_has_its_own_sequence(tmp_path: Path) -> None:
    """Two runs of one flow share nothing."""
    provider = ScriptedProvider(REPLIES)
    async with AgentFlow(provider=provider, root=tmp_path) as flow:
        for _ in range(2):
            await flow.run(f"{TASKS} (one) (full)")
    assert [previous(each) for each in provider.requests] == ["", STEP, "", STEP.replace("alpha", "gamma")]


async def test_programs_and_sequences_from_python_say_the_same(tmp_path: Path) -> None:
    """There is one implementation: what the model is told is equal, in either format."""
    tasks = TASKS.replace("(params)", '(params) (subtype "{}")')
    for name in ("one", "full", "notes"):
        tasks = tasks.replace("{}", name, 1)
    names = ["one", "full", "notes", "full"]
    by_program, by_python = ScriptedProvider(REPLIES), ScriptedProvider(REPLIES)
    async with AgentFlow(provider=by_program, root=tmp_path) as flow:
        await flow.define(tasks)
        await flow.run(" ".join(f"({name})" for name in names))
    async with AgentFlow(provider=by_python, root=tmp_path) as flow:
        await flow.define(tasks)
        history = SequentialHistory()

        async def execute(request: SubtaskRequest, before: str) -> TaskResult:
            told = history.previous_outputs("notes_only" if request.name == "notes" else "full_output")
            return await flow.task_system.execute_task("atomic", request.name or "", {}, previous_outputs=told)

        await history.run([SubtaskRequest(name=name) for name in names], execute)
    texts = [[previous(each) for each in provider.requests] for provider in (by_program, by_python)]
    assert texts[0] == texts[1] and len(texts[0][3]) > len(STEP)


async def test_a_failing_sequence_carries_its_partial_results(tmp_path: Path) -> None:
    """As the FAILED result of the step, as the error that ``value-of`` makes of it, and as any error that ends the run."""
    partial = [{"step": 1, "name": "one", "status": "COMPLETE", "content": "alpha"}]
    async with AgentFlow(provider=ScriptedProvider(REPLIES), root=tmp_path) as flow:
        failing = '(defatom bad (params (needed)) (instructions "{{needed}}") (context (accumulate_data true)))'
        result = (await flow.run(f"{TASKS} {failing} (one) (bad)")).value
        details = result["notes"]["error"]["details"]
        assert result["status"] == "FAILED" and details["partial_results"] == partial
        assert details["failed_step"] == "bad" and details["step"] == 2
        for end in ("(value-of (bad))", '(full) (error "stop")', "(full) (car '())", "(full) (parallel (car '()))"):
            with pytest.raises(AgentflowError) as caught:
                await flow.run(f"{TASKS} {failing} (one) {end}")
            steps = caught.value.details.get("partial_results", end)
            assert [each["name"] for each in steps][:1] == ["one"], end
        with pytest.raises(AgentflowError) as caught:
            await flow.run(f'{TASKS} (one) (one) (error "stop")')
        assert "partial_results" not in caught.value.details
