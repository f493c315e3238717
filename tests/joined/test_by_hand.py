"""The specification's classes, wired by hand in the specification's own order: they run programs, tasks and tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    AgentFlow,
    BaseHandler,
    CommandExecutor,
    FileAccessManager,
    MemorySystem,
    ScriptedProvider,
    SexpEnvironment,
    SexpEvaluator,
    SystemExecutorFunctions,
    TaskResult,
    TaskSystem,
)
from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.messages import ToolResultPart
from agentflow.handler.tools import subtask_tool

ASK = {"name": "ask", "subtype": "ask", "params": "q", "instructions": "Answer {{q}}"}


class House:
    """What a host builds: a task system, then a handler on it, then an evaluator on both."""

    def __init__(self, root: Path, replies: list[Any]) -> None:
        self.memory = MemorySystem(roots=[root])
        self.tasks = TaskSystem(None, self.memory)
        self.provider = ScriptedProvider(lambda request: replies.pop(0))
        self.handler = BaseHandler(self.tasks, self.memory, self.provider)
        self.evaluator = SexpEvaluator(self.tasks, self.handler, self.memory)

    async def aclose(self) -> None:
        await self.handler.aclose()
        await self.memory.aclose()


@pytest.fixture
async def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bees.txt").write_text("The hive holds honey.\n")
    (tmp_path / "fish.txt").write_text("The pelican eats fish.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def replies() -> list[Any]:
    return []


@pytest.fixture
async def house(root: Path, replies: list[Any]) -> AsyncIterator[House]:
    house = House(root, replies)
    yield house
    await house.aclose()


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


async def test_a_program_runs_with_tasks_tools_and_context(house: House, replies: list[Any], root: Path) -> None:
    """A program defines and calls a task, calls a tool of the handler, asks memory and keeps what it defines."""
    replies.append("honey")
    house.handler.register_tool({"name": "shout", "input_schema": {}}, lambda params: params["text"].upper())
    env = SexpEnvironment({"subject": "the hive"})
    value = await house.evaluator.evaluate_string(
        """
        (defatom look (params (q string)) (instructions "What is in {{q}}?"))
        (define loud (shout (text (value-of (look (q subject))))))
        (list (value-of loud) (get_context (query "hive honey")))
        """,
        env,
    )
    assert value == ["HONEY", [str(root / "bees.txt")]]
    assert env.lookup("loud").content == "HONEY"
    assert "What is in the hive?" in house.provider.requests[0].messages[0].text
    assert house.tasks.find_template("look") is not None


async def test_the_task_system_runs_tasks_with_the_handlers_model_and_tools(house: House, replies: list[Any]) -> None:
    """Once a handler is built on it, ``execute_task`` prompts that handler's model, which may call its tools."""
    replies += [calls("shout", text="honey"), "It says HONEY"]

    async def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    house.handler.add_tool(shout)
    house.tasks.register_template(ASK)
    result = await house.tasks.execute_task("atomic", "ask", {"q": "what?"}, file_paths=["bees.txt"])
    assert result.status == "COMPLETE" and result.content == "It says HONEY"
    assert "The hive holds honey." in house.provider.requests[0].messages[0].text
    (part,) = house.provider.requests[1].messages[-1].parts
    assert isinstance(part, ToolResultPart) and part.text == "HONEY"


async def test_a_task_system_without_a_handler_says_what_is_missing(root: Path) -> None:
    """Alone it has templates and context; a prompt fails with the way out."""
    async with MemorySystem(roots=[root]) as memory:
        tasks = TaskSystem(None, memory)
        tasks.register_template(ASK)
        result = await tasks.execute_task("atomic", "ask", {"q": "x"})
        assert result.notes["error"]["reason"] == "configuration_error" and "handler" in str(result.notes["error"])
        tasks.set_test_mode(True)
        assert (await tasks.execute_task("atomic", "ask", {"q": "x"})).content == "Test mode answer to: Answer x"


async def test_models_delegate_to_tasks(house: House, replies: list[Any]) -> None:
    """A CONTINUATION of a tool runs a task of the task system, and its result is the tool's."""
    replies += [calls("dig", q="bees"), "dug", "so it was dug"]
    house.tasks.register_template({**ASK, "name": "digger", "subtype": "digger", "instructions": "Dig {{q}}"})
    house.handler.add_tool(subtask_tool("dig", "Digs.", template="digger", parameters={"q": "string"}))
    result = await house.handler.execute_prompt("dig for me")
    assert result.content == "so it was dug"
    (part,) = house.provider.requests[2].messages[-1].parts
    assert isinstance(part, ToolResultPart) and part.text == "dug"


async def test_a_program_is_written_and_run(house: House, replies: list[Any]) -> None:
    """``solve`` asks the handler's model for a program and runs it with the tasks that were granted."""
    replies += ["```\n(value-of (ask (q goal-text)))\n```", "42"]
    house.tasks.register_template(ASK)
    program = '(value-of (solve "answer it" (allow ask) (inputs (list (list "goal-text" "what is it?")))))'
    assert await house.evaluator.evaluate_string(program) == "42"


async def test_public_methods_join_the_run_they_are_called_in(house: House, replies: list[Any]) -> None:
    """A tool that calls the faces again stays in the run of the program that called it."""
    replies.append("inner")
    runs: set[str] = set()
    house.evaluator.joint.engine.subscribe(lambda event: runs.add(event.run_id))
    house.tasks.register_template(ASK)

    async def outer() -> str:
        """Call the task system and the evaluator."""
        answer = await house.tasks.execute_task("atomic", "ask", {"q": "x"})
        total = await house.evaluator.evaluate_string("(+ 40 2)")
        return f"{answer.content} {total}"

    house.handler.add_tool(outer)
    assert await house.evaluator.evaluate_string("(value-of (outer))") == "inner 42"
    assert len(runs) == 1


async def test_the_system_executors_act_on_the_handler(house: House, replies: list[Any], root: Path) -> None:
    """Built on the handler's files and commands, they read, look up and prime the handler's own conversation."""
    replies.append("primed")
    files, commands = house.handler.file_manager, house.handler.command_executor
    executors = SystemExecutorFunctions(house.memory, files, commands, house.handler)
    listed = await executors.execute_list_directory({"directory_path": "."})
    assert listed.notes["directory_contents"] == ["bees.txt", "fish.txt"]
    assert "honey" in (await executors.execute_read_files({"file_paths": ["bees.txt"]})).content
    found = await executors.execute_get_context({"query": "pelican"})
    assert json.loads(found.content)[0] == str(root / "fish.txt")
    assert (await executors.execute_prime_handler_data_context({"initial_files": ["bees.txt"]})).status == "COMPLETE"
    await house.handler.execute_prompt("go")
    assert "The hive holds honey." in house.provider.requests[0].messages[0].text
    assert (await executors.execute_clear_handler_data_context({})).status == "COMPLETE"
    assert house.handler.data_context is None
    for built_in in executors.tools():
        house.handler.add_tool(built_in)
    program = '(value-of (system:read_files (file_paths (list "fish.txt"))))'
    assert "pelican" in await house.evaluator.evaluate_string(program)


async def test_a_command_runs_with_the_handler_alone(house: House, root: Path) -> None:
    """A handler that was given neither files nor commands has both, over the working directory."""
    assert isinstance(house.handler.file_manager, FileAccessManager)
    assert isinstance(house.handler.command_executor, CommandExecutor)
    assert await house.handler.execute_file_path_command("ls") == [str(root / "bees.txt"), str(root / "fish.txt")]
    template = {"file_paths_source": {"type": "command", "command": "ls"}}
    paths, error = await house.tasks.resolve_file_paths(template, house.memory, house.handler)
    assert error is None and paths == [str(root / "bees.txt"), str(root / "fish.txt")]


async def test_the_first_handler_serves_the_tasks(root: Path) -> None:
    """A second handler on one task system has its own conversation and model; tasks keep the first one's."""
    tasks = TaskSystem()
    tasks.register_template(ASK)
    first = BaseHandler(tasks, None, ScriptedProvider(["from the first"]))
    second = BaseHandler(tasks, None, ScriptedProvider(["from the second"]))
    assert (await tasks.execute_task("atomic", "ask", {"q": "x"})).content == "from the first"
    assert (await second.execute_prompt("hi")).content == "from the second"
    for handler in (first, second):
        await handler.aclose()


async def test_an_evaluator_joins_parts_that_did_not_know_each_other(root: Path) -> None:
    """A handler built without a task system serves the tasks of the evaluator that is given both."""
    tasks = TaskSystem()
    tasks.register_template(ASK)
    handler = BaseHandler(None, None, ScriptedProvider(["joined"]))
    evaluator = SexpEvaluator(tasks, handler, None)
    assert await evaluator.evaluate_string('(value-of (ask (q "x")))') == "joined"
    await handler.aclose()


async def test_faces_built_on_a_flows_adopt_its_engine(root: Path) -> None:
    """A handler and an evaluator built on a flow's task system run under its eyes, with its tasks and their own tools."""
    runs: set[str] = set()
    async with AgentFlow(provider=ScriptedProvider(["of the flow"]), root=root) as flow:
        flow.subscribe(lambda event: runs.add(event.run_id))
        flow.task_system.register_template(ASK)
        handler = BaseHandler(flow.task_system, flow.memory_system, ScriptedProvider(["of its own"]))
        assert (await handler.execute_prompt("hi")).content == "of its own" and len(runs) == 1
        same = SexpEvaluator(flow.task_system, flow.handler, flow.memory_system)
        assert await same.evaluate_string('(value-of (ask (q "x")))') == "of the flow" and len(runs) == 2
        handler.register_tool({"name": "mine", "input_schema": {}}, lambda params: "mine")
        own = SexpEvaluator(flow.task_system, handler, flow.memory_system)
        assert await own.evaluate_string("(value-of (mine))") == "mine"
        await handler.aclose()


async def test_execute_task_with_the_flows_own_handler(root: Path) -> None:
    """``handler=flow.handler``, the real one, runs the task; so does another flow's, with that flow's model."""
    async with (
        AgentFlow(provider=ScriptedProvider(["mine", "mine again"]), root=root) as flow,
        AgentFlow(provider=ScriptedProvider(["the other's"]), root=root) as other,
    ):
        flow.task_system.register_template({**ASK, "system": "Be brief."})
        results = [
            await flow.task_system.execute_task("atomic", "ask", {"q": "x"}, handler=handler)
            for handler in (None, flow.handler, other.handler)
        ]
    assert [result.content for result in results] == ["mine", "mine again", "the other's"]
    assert all(isinstance(result, TaskResult) and not result.failed for result in results)


async def test_the_run_of_a_public_method_says_what_for(root: Path) -> None:
    """RunStarted has the name of the task or function that was asked for."""
    names: list[str] = []
    async with AgentFlow(provider=ScriptedProvider(["x"] * 3), root=root) as flow:
        flow.subscribe(lambda event: names.append(event.name) if event.type == "run_started" else None)
        flow.task_system.register_template(ASK)
        await flow.task_system.execute_task("atomic", "ask", {"q": "x"})
        await flow.task_system.execute_subtask_directly({"name": "ask", "inputs": {"q": "x"}})
        await flow.task_system.execute_call({"templateName": "ask", "arguments": ["x"]})
        await flow.task_system.execute_call("no call at all")  # type: ignore[arg-type]
    assert names == ["task atomic:ask", "task ask", "call ask", "call"]


HISTORY = {"name": "talk", "subtype": "talk", "params": "q", "instructions": "Answer {{q}}"}


async def test_tasks_take_part_in_the_conversation_that_they_ask_for(house: House, replies: list[Any]) -> None:
    """Outside of a run a task is in the handler's conversation if it or its caller has a history_config, else alone."""
    replies += ["one", "two", "three", "four", "five", "six"]
    tasks, provider = house.tasks, house.provider
    tasks.register_template({**HISTORY, "history_config": {"history_turns_to_include": 1}})
    tasks.register_template(ASK)
    await house.handler.execute_prompt("first")
    await tasks.execute_task("atomic", "talk", {"q": "second"})
    assert [message.text for message in provider.requests[1].messages] == ["first", "one", "Answer second"]
    await tasks.execute_subtask_directly({"name": "talk", "inputs": {"q": "third"}})
    assert [message.text for message in provider.requests[2].messages] == ["Answer second", "two", "Answer third"]
    await tasks.execute_call({"template_name": "talk", "arguments": ["fourth"]})
    assert len(provider.requests[3].messages) == 3 and len(house.handler.session.turns()) == 4
    await tasks.execute_task("atomic", "ask", {"q": "alone"})
    assert len(provider.requests[4].messages) == 1 and len(house.handler.session.turns()) == 4
    reading = {"record_in_session_history": False}
    await tasks.execute_task("atomic", "ask", {"q": "fifth"}, history_config=reading)
    assert len(provider.requests[5].messages) == 9 and len(house.handler.session.turns()) == 4


async def test_tasks_of_a_flow_take_part_too(root: Path) -> None:
    """The flow's task system and its handler share a conversation; a handler that is passed in has its own."""
    async with AgentFlow(provider=ScriptedProvider(["one", "two", "three"]), root=root) as flow:
        flow.task_system.register_template({**HISTORY, "history_config": {}})
        await flow.task_system.execute_task("atomic", "talk", {"q": "x"})
        other = BaseHandler(None, None, ScriptedProvider(["else"]))
        await flow.task_system.execute_task("atomic", "talk", {"q": "y"}, handler=other)
        assert len(flow.handler.session.turns()) == len(other.session.turns()) == 1
        await other.aclose()


async def test_the_memorys_handler_chooses_its_context(root: Path) -> None:
    """Wired as document 2 says, the matching template runs with the handler that the memory system was given."""
    chosen = json.dumps([{"path": "bees.txt", "score": 1, "relevance": "about bees"}])
    handler = BaseHandler(None, None, ScriptedProvider([chosen]))
    async with MemorySystem(handler, roots=[root]) as memory:
        tasks = TaskSystem(None, memory)
        tasks.register_template(
            {
                "name": "choose",
                "subtype": "associative_matching",
                "params": "query, metadata",
                "instructions": "Choose for {{query}} out of {{metadata}}",
            }
        )
        question = ContextGenerationInput(query="bees")
        found = await tasks.generate_context_for_memory_system(question, {"bees.txt": "bees", "fish.txt": "fish"})
    await handler.aclose()
    assert found.error is None and found.file_paths == ["bees.txt"]
