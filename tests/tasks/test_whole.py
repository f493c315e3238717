"""Tasks in the whole house: programs, the real turn loop, the real language, files on disk, a scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, TaskError, TaskResult
from agentflow.core.data.requests import FunctionCallNode, SubtaskRequest
from agentflow.core.events.events import SubtaskStarted, TaskFinished, TaskStarted
from agentflow.handler.tools import subtask_tool
from agentflow.memory.file_memory import FileMemory
from agentflow.memory.rerank import LlmRanker
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.service import TaskService
from agentflow.tasks.workflows import Workflow, make_workflow
from tests.support.fake_tasks import DirectoryFiles, FakePrompts, text_of
from tests.support.fakes import FakeRun
from tests.support.values import value_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_text("beta")
    return tmp_path


def echo(request: Any) -> str:
    return "re: " + request.messages[-1].text.partition("\n")[0]


async def test_a_defatom_with_files_settings_and_functions(root: Path) -> None:
    """A task defined in a program gets its files, context settings and template functions."""
    provider = ScriptedProvider(echo)
    async with AgentFlow(provider=provider, root=root) as flow:
        flow.task_system.register_template(
            {"name": "quote", "params": "x", "instructions": '"{{x}}"', "is_function": True}
        )
        result = (
            await flow.run(
                """(defatom ask (params (q string)) (instructions "Ask {{quote(q)}}"))
            (ask (q "{{why}}") (files (list "a.txt")) (context '((inherit_context none))) (inputs {"other" 1}))"""
            )
        ).value
    assert result.content == 're: Ask "{{why}}"' and result.notes["undeclared_parameters"] == ["other"]
    assert '<file path="a.txt">\nalpha\n</file>' in provider.requests[0].messages[-1].text


async def test_a_missing_file_and_a_missing_parameter_ask_nobody(root: Path) -> None:
    """Both are FAILED results the program can look at; the model is not asked."""
    provider = ScriptedProvider([])
    async with AgentFlow(provider=provider, root=root) as flow:
        values = (
            await flow.run(
                """(defatom t (params (x string)) (instructions "{{x}}"))
            (map (lambda (r) (get-field (get-field (get-field r "notes") "error") "reason"))
                 (list (t (x "1") (files (list "gone.txt"))) (t (x "1") (files (list "../../etc/passwd"))) (t)))"""
            )
        ).value
    assert values == ["context_retrieval_failure", "context_retrieval_failure", "input_validation_failure"]
    assert provider.requests == []


async def test_templates_from_a_directory(root: Path) -> None:
    """``tasks=DIR`` makes XML templates callable from programs."""
    tasks = root / "tasks"
    tasks.mkdir()
    (tasks / "t.xml").write_text(
        '<task name="count" params="text"><instructions>Count {{text}}</instructions>'
        '<output_format type="json" schema="integer"/></task>'
    )
    async with AgentFlow(provider=ScriptedProvider(["3"]), root=root, tasks=tasks) as flow:
        assert (await flow.run('(+ 1 (value-of (count (text "abc"))))')).value == 4


async def test_a_model_writes_a_program(root: Path) -> None:
    """solve: a faulty first program goes back with its error, the second runs concurrently within the grants."""
    provider = ScriptedProvider(
        lambda request: (
            echo(request)
            if "Write one program" not in request.messages[-1].text
            else "```lisp\n(pmap (lambda (f) (content (read-one (f f)))) files)\n```"
            if "unbound" in request.messages[-1].text or "What was wrong" in request.messages[-1].text
            else "```lisp\n(frobnicate files)\n```"
        )
    )
    async with AgentFlow(provider=provider, root=root) as flow:
        result = (
            await flow.run(
                """(defatom read-one (params (f string)) (instructions "Read {{f}}"))
            (solve "read them" (allow read-one) (inputs {"files" (list "a.txt" "b.txt")}))"""
            )
        ).value
    assert result.parsed_content == ["re: Read a.txt", "re: Read b.txt"] and result.notes["rounds"] == 2


@pytest.mark.parametrize(
    "program",
    [
        '(system:execute_shell_command (command "id"))',
        '(defatom x (params) (instructions "x"))',
        '(eval-program "(system:read_files (file_paths (list)))" (allow system:read_files))',
        '((string-append "system:" "read_files") (file_paths (list "a.txt")))',
        "(loop 1000000000 (+ 1 1)",
        "(+ 1",
        "(+ 'a 1)",
    ],
)
async def test_a_written_program_gets_nothing_it_was_not_granted(root: Path, program: str) -> None:
    """Whatever the model writes, what was not granted does not run, and the result says what was wrong."""
    ran: list[str] = []

    def watch(event: Any) -> None:
        if event.type == "tool_started":
            ran.append(event.name)

    async with AgentFlow(provider=ScriptedProvider([program, program]), root=root) as flow:
        flow.subscribe(watch)
        result = (await flow.run('(solve "do" (allow) (max-rounds 2))')).value
    assert result.failed and result.notes["error"]["reason"] == "subtask_failure"
    assert len(result.notes["attempts"]) == 2 and ran == []


async def test_a_plan_becomes_a_workflow_and_nests(root: Path) -> None:
    """The program of a solve result is saved, loaded by another flow, and called by a workflow that calls it."""
    directory = root / "flows"
    provider = ScriptedProvider(lambda request: "(* n 2)" if "Write one program" in request.messages[-1].text else "")
    async with AgentFlow(provider=provider, root=root, workflows=directory) as flow:
        solved = (await flow.run('(solve "double n" (allow) (inputs {"n" 21}))')).value
        assert solved.parsed_content == 42
        await flow.workflows.save(Workflow.from_result(solved, "double", params={"n": "integer"}, allow=[]))
        await flow.workflows.save(
            make_workflow(
                {
                    "name": "quadruple",
                    "params": {"n": "integer"},
                    "program": "(value-of (call-workflow double (n (value-of (call-workflow double (n n))))))",
                }
            )
        )
    events: list[Any] = []
    async with AgentFlow(provider=ScriptedProvider([]), root=root, workflows=directory) as flow:
        flow.subscribe(events.append)
        result = (await flow.run('(call-workflow quadruple (n "3"))')).value
        missing = (await flow.run("(call-workflow double)")).value
    assert isinstance(result, TaskResult) and result.parsed_content == 12 and result.notes["workflow"] == "quadruple"
    assert missing.notes["error"]["reason"] == "input_validation_failure"
    started = [event.name for event in events if isinstance(event, TaskStarted)]
    assert started == ["quadruple", "double", "double", "double"]


async def test_an_endless_written_program_costs_a_round(root: Path) -> None:
    """A written program that never ends is stopped at its own bound, and the model may try again."""
    provider = ScriptedProvider(["(define (f n) (f (+ n 1))) (f 0)", "(+ 1 1)"])
    async with AgentFlow(provider=provider, root=root) as flow:
        object.__setattr__(flow.solver, "max_steps", 20_000)
        result = (await flow.run('(solve "do" (allow))')).value
    assert result.parsed_content == 2 and result.notes["rounds"] == 2
    assert "limits/steps" in provider.requests[1].messages[-1].text


async def test_workflows_nest_as_deep_as_said(root: Path) -> None:
    """900 workflows within each other return; an error at the bottom arrives; cancelling there leaves no task; one that
    never ends is stopped by a FAILED result."""
    reached = asyncio.Event()
    mode = "return"

    async def inspect() -> str:
        """Return, raise or wait, as told."""
        if mode == "wait":
            reached.set()
            await asyncio.sleep(60)
        if mode == "raise":
            raise TaskError("at the bottom")
        return "seen"

    down = "(if (= n 0) (begin (value-of (inspect)) 0) (+ 1 (value-of (call-workflow down (n (- n 1))))))"
    async with AgentFlow(provider=ScriptedProvider([]), root=root) as flow:
        flow.tool(inspect)
        await flow.workflows.save(make_workflow({"name": "down", "params": {"n": "integer"}, "program": down}))
        program = "(call-workflow down (n 900))"
        assert ((await flow.run(program)).value).parsed_content == 900
        mode = "raise"
        with pytest.raises(TaskError, match="at the bottom"):
            await flow.run(program)
        mode = "wait"
        task = asyncio.create_task(value_of(flow.run(program)))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(TaskError, match="nested 1001 deep; at most 1000 is allowed"):
            await flow.run("(call-workflow down (n -1))")


async def test_a_task_too_large_is_decomposed(root: Path) -> None:
    """A task whose answer is cut off has a program written that calls it file by file."""

    def model(request: Any) -> Any:
        text = request.messages[-1].text
        if "Write one program" in text:
            return '(string-join (map (lambda (f) (value-of (digest (q q) (files (list f))))) files) " and ")'
        if text.count("<file ") > 1:
            return {"text": "too lo", "stop_reason": "max_tokens"}
        return "digest of " + ("alpha" if "alpha" in text else "beta")

    async with AgentFlow(provider=ScriptedProvider(model), root=root) as flow:
        flow.task_system.register_template(
            {"name": "digest", "params": "q", "instructions": "Digest for {{q}}", "decompose": 2}
        )
        result = (await flow.run('(digest (q "me") (files (list "a.txt" "b.txt")))')).value
        plain = (await flow.run('(digest (q "me") (files (list "a.txt")))')).value
    assert result.status == "COMPLETE" and result.content == "digest of alpha and digest of beta"
    assert result.notes["decomposed"] is True and "digest" in result.notes["program"]
    assert plain.content == "digest of alpha"


async def test_a_subtask_through_the_whole_house(root: Path) -> None:
    """A model's subtask tool runs a task with files below the parent; its answer comes back into the turn."""
    events: list[Any] = []
    provider = ScriptedProvider(
        [
            {"tool_calls": [{"name": "delegate", "arguments": {"description": "look at a", "file_paths": ["a.txt"]}}]},
            "it says alpha",
            "The file says alpha.",
        ]
    )
    async with AgentFlow(provider=provider, root=root) as flow:
        flow.tools.add(subtask_tool("delegate", "Hand work on", template_hints=["worker"]))
        flow.subscribe(events.append)
        run = await flow.run(
            """(defatom worker (params) (subtype "subtask") (instructions "Work."))
            (defatom boss (params) (instructions "Lead.") (tools delegate))
            (boss)"""
        )
    assert run.value.content == "The file says alpha."
    assert "alpha" in provider.requests[1].messages[-1].text
    (subtask,) = [event for event in events if isinstance(event, SubtaskStarted)]
    assert subtask.request.file_paths == ["a.txt"] and subtask.depth == 1
    finished = [event for event in events if isinstance(event, TaskFinished)]
    assert [event.name for event in finished] == ["worker", "boss"]
    assert run.value.usage.requests == 3


async def test_calls_from_python_join_or_open_runs(root: Path) -> None:
    """execute_call and execute_task outside a run open one; inside a tool they belong to the tool's."""
    async with AgentFlow(provider=ScriptedProvider(echo), root=root) as flow:
        flow.task_system.register_template({"name": "t", "subtype": "t", "params": "x", "instructions": "T {{x}}"})
        result = await flow.task_system.execute_call(FunctionCallNode(template_name="t", arguments=["one"]))
        assert result.content == "re: T one"

        async def outer(x: str) -> str:
            """Ask within.

            Args:
                x: what
            """
            return (await flow.task_system.execute_task("atomic", "t", {"x": x})).content

        flow.tool(outer)
        runs: set[str] = set()
        flow.subscribe(lambda event: runs.add(event.run_id))
        assert ((await flow.run('(outer (x "two"))')).value).content == "re: T two"
        assert len(runs) == 1


@pytest.mark.parametrize("strategy", ["content", "metadata"])
async def test_memory_ranks_with_the_matching_templates(root: Path, strategy: Any) -> None:
    """Memory's model ranker runs on the executor: its call belongs to the task's run, its order is the context's."""

    def reply(prompt: Any, call: Any) -> Any:
        if "Candidates" not in text_of(prompt):
            return "done"
        return [{"path": path, "score": 0.9 if path.endswith("b.txt") else 0.1, "relevance": "so"} for path in paths]

    prompts = FakePrompts(reply)
    executor = AtomicTaskExecutor(prompts, DirectoryFiles(root))
    memory = FileMemory(roots=[root])
    try:
        memory.ranker = LlmRanker(executor.run_template)
        (root / "a.txt").write_text("parsing words\n" * 5)
        (root / "b.txt").write_text("parsing words, a little\n")
        paths = [str(root / "a.txt"), str(root / "b.txt"), "a.txt", "b.txt"]
        tasks = TaskService(executor, memory)
        tasks.register_template(
            {
                "name": "t",
                "params": "x",
                "instructions": "{{x}}",
                "description": "parsing words",
                "context_management": {"fresh_context": "enabled"},
            }
        )
        run = FakeRun()
        result = await tasks.run_request(SubtaskRequest(name="t", inputs={"x": "parsing"}), run.call())
    finally:
        await memory.aclose()
    assert result.status == "COMPLETE", result.content
    assert [Path(path).name for path in result.notes["context_files"]] == ["b.txt", "a.txt"]
    assert [call.run for call in prompts.calls] == [run, run] and run.unbalanced() == []
