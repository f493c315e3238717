"""An override that asks the inherited method gives nobody more authority than the class that it overrides.

Each case runs once with agentflow's own classes and once with subclasses whose methods do nothing but call the inherited
ones. What a model is offered, what is run and what is refused must be the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    BaseHandler,
    CommandExecutor,
    FileAccessManager,
    ScriptedProvider,
    SexpEvaluator,
    SystemExecutorFunctions,
    TaskResult,
    TaskSystem,
)
from agentflow.core.ports.executor_ports import CommandResult
from agentflow.handler.tools import subtask_tool, tool

ASK = {"name": "ask", "subtype": "ask", "params": "q", "instructions": "Answer {{q}}", "tools": ["secret"]}


class AtomicTasks(TaskSystem):
    async def execute_atomic_template(self, request: Any, env: Any = None) -> TaskResult:
        return await super().execute_atomic_template(request, env)


class DirectTasks(TaskSystem):
    async def execute_subtask_directly(self, request: Any, env: Any = None) -> TaskResult:
        return await super().execute_subtask_directly(request, env)


class FoundTasks(TaskSystem):
    def find_template(self, identifier: str) -> Any:
        return super().find_template(identifier)

    def register_template(self, template: Any) -> None:
        super().register_template(template)


class PromptHandler(BaseHandler):
    async def execute_prompt(self, prompt: Any, **options: Any) -> TaskResult:
        return await super().execute_prompt(prompt, **options)

    async def execute_file_path_command(self, command: str) -> list[str]:
        return await super().execute_file_path_command(command)


class Commands(CommandExecutor):
    async def execute_command_safely(self, command: Any, cwd: Any = None, timeout: Any = None) -> CommandResult:  # type: ignore[override]
        return await super().execute_command_safely(command, cwd, timeout)


class Files(FileAccessManager):
    async def read_file(self, file_path: str, max_size: int | None = None) -> str | None:
        return await super().read_file(file_path, max_size)

    async def write_file(self, file_path: str, content: str, overwrite: bool = False) -> bool:
        return await super().write_file(file_path, content, overwrite)


KINDS: dict[str, dict[str, Any]] = {
    "own": {},
    "atomic": {"tasks": AtomicTasks},
    "direct": {"tasks": DirectTasks},
    "found": {"tasks": FoundTasks},
    "handler": {"handler": PromptHandler},
    "commands": {"commands": Commands},
    "files": {"files": Files},
    "all": {"tasks": AtomicTasks, "handler": PromptHandler, "commands": Commands, "files": Files},
}


class House:
    """A house of these classes in ``root``, whose tools write down what they did."""

    def __init__(
        self,
        root: Path,
        tasks: type[TaskSystem] = TaskSystem,
        handler: type[BaseHandler] = BaseHandler,
        commands: type[CommandExecutor] = CommandExecutor,
        files: type[FileAccessManager] = FileAccessManager,
    ) -> None:
        self.root, self.done = root, list[str]()
        self.answers: list[Any] = []
        self.model = ScriptedProvider(lambda request: self.answers.pop(0))
        self.files = files(root)
        self.tasks = tasks()
        executor = commands(self.files)
        self.handler = handler(self.tasks, None, self.model, file_manager=self.files, command_executor=executor)
        self.evaluator = SexpEvaluator(self.tasks, self.handler, None)
        for each in SystemExecutorFunctions(None, self.files, executor, self.handler).tools():
            self.handler.add_tool(each)
        self.handler.register_tool({"name": "secret", "input_schema": {"type": "object"}}, self._secret)
        self.tasks.register_template(ASK)

    def _secret(self, params: dict[str, Any]) -> str:
        self.done.append("secret")
        return "the secret"

    def offered(self) -> list[list[str]]:
        """The tools that each request offered."""
        return [sorted(tool.name for tool in request.tools) for request in self.model.requests]

    async def aclose(self) -> None:
        await self.handler.aclose()
        self.files.close()


@pytest.fixture(params=KINDS)
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    (tmp_path / "bees.txt").write_text("The hive holds honey.\n")
    house = House(tmp_path, **KINDS[request.param])
    yield house
    await house.aclose()


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


async def test_the_hosts_own_program_has_what_it_was_given(house: House) -> None:
    """A program of the host runs a task with the task's tools."""
    house.answers = [calls("secret"), "done"]
    assert await house.evaluator.evaluate_string('(value-of (ask (q "x")))') == "done"
    assert house.offered() == [["secret"]] * 2 and house.done == ["secret"]


async def test_a_text_with_grants_has_no_more_tools_than_they_name(house: House) -> None:
    """Where a text may call a task, the tools that the task names are offered as far as the text may call them."""
    house.answers = ["done"]
    text = '(eval-program \'(value-of (ask (q "x"))) (allow ask))'
    assert await house.evaluator.evaluate_string(text) == "done"
    assert house.offered() == [[]]


@pytest.mark.parametrize("found", [{"template": "ask"}, {"subtype": "ask"}, {"template_hints": ["ask"]}])
async def test_a_task_below_a_texts_task_is_narrowed_however_it_is_found(house: House, found: dict[str, Any]) -> None:
    """A tool that runs a task by name, subtype or hints gives that task no tools that the text above may not call."""
    house.handler.add_tool(subtask_tool("dig", "Digs.", parameters={"q": "string"}, **found))
    house.tasks.register_template({**ASK, "name": "above", "subtype": "above", "tools": ["dig"]})
    house.answers = [calls("dig", q="deep"), "found", "end"]
    text = '(eval-program \'(value-of (above (q "x"))) (allow above dig))'
    assert await house.evaluator.evaluate_string(text) == "end"
    assert house.offered() == [["dig"], [], ["dig"]]


async def test_a_text_with_grants_reads_no_file(house: House) -> None:
    """A text that may not read files gets none by way of a task's ``file_paths``."""
    house.answers = ["done"]
    text = '(eval-program \'(ask (q "x") (files "bees.txt")) (allow ask))'
    result: Any
    try:
        result = await house.evaluator.evaluate_string(text)
    except Exception as error:
        result = error
    assert "not-granted" in repr(result) or "not granted" in str(result), result
    assert not any("honey" in request.messages[-1].text for request in house.model.requests)


async def test_a_text_in_a_tool_is_held_to_what_the_model_was_offered(house: House) -> None:
    """A tool that runs a model's text runs it with no more than the model was offered, whatever the task asks for."""

    async def go(params: dict[str, Any]) -> str:
        return str(await house.evaluator.evaluate_string(params["text"]))

    house.handler.register_tool({"name": "go", "input_schema": {"type": "object"}}, go)
    house.handler.add_tool(subtask_tool("dig", "Digs.", template="ask", parameters={"q": "string"}))
    house.answers = [calls("go", text='(value-of (ask (q "x")))'), calls("go", text="(secret)"), "end"]
    result = await house.handler.execute_prompt("go", tools=["go"])
    assert result.content == "end" and house.done == []
    assert all("secret" not in names for names in house.offered())


async def test_a_command_below_a_model_is_asked_for(house: House) -> None:
    """A command that no rule allows is refused where a model asked for it and nobody approves, and run for the host."""
    command = {"command": "touch made.txt"}
    house.answers = [calls("system:execute_shell_command", **command), "end"]
    await house.handler.execute_prompt("go", tools=["system:execute_shell_command"])
    said = house.model.requests[-1].messages[-1]
    assert "approv" in repr(said) and not (house.root / "made.txt").exists()

    async def finds(params: dict[str, Any]) -> str:
        return repr(await house.handler.execute_file_path_command("touch found.txt"))

    house.handler.register_tool({"name": "finds", "input_schema": {"type": "object"}}, finds)
    house.answers = [calls("finds"), "end"]
    await house.handler.execute_prompt("go", tools=["finds"])
    assert not (house.root / "found.txt").exists()


async def test_a_tool_with_an_approval_below_a_model_is_asked_for(house: House) -> None:
    """A tool that needs approval is asked for in a task below a model, by whichever method the task was run."""

    @tool(approval=True)
    async def pay() -> str:
        house.done.append("paid")
        return "paid"

    house.handler.add_tool(pay)
    house.tasks.register_template({**ASK, "name": "buy", "subtype": "buy", "tools": ["pay"]})
    house.handler.add_tool(subtask_tool("shop", "Buys.", template="buy", parameters={"q": "string"}))
    house.answers = [calls("shop", q="x"), calls("pay"), "bought"]
    assert (await house.handler.execute_prompt("go", tools=["shop"])).content == "bought"
    assert house.done == []
