"""What a host overrides, replaces or assigns in the specification's classes counts between them, or is refused when it is built.

Five faces x six ways. Each cell asks a face by way of *another* one: that a method called by its own owner does what it says is
shown elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentflow import (
    AgentFlow,
    BaseHandler,
    CommandExecutor,
    ConfigurationError,
    FileAccessManager,
    MemorySystem,
    ScriptedProvider,
    SexpEvaluationError,
    SexpEvaluator,
    SystemExecutorFunctions,
    TaskResult,
    TaskSystem,
)
from agentflow.core.data.context import AssociativeMatchResult, MatchItem
from agentflow.core.ports.executor_ports import CommandResult
from agentflow.handler.tools import subtask_tool

ASK = {"name": "ask", "subtype": "ask", "params": "q", "instructions": "Answer {{q}}"}
ASKED = '(value-of (ask (q "x")))'
FACES = ("evaluator", "tasks", "handler", "memory", "executors")
WAYS = ("subclass", "double", "assigned", "second", "at-once", "unforeseen")
Cell = Callable[["Parts"], Awaitable[None]]
CELLS: dict[tuple[str, str], Cell] = {}


def cell(face: str, way: str) -> Callable[[Cell], Cell]:
    def keep(function: Cell) -> Cell:
        CELLS[face, way] = function
        return function

    return keep


def found(*paths: str) -> AssociativeMatchResult:
    return AssociativeMatchResult(matches=[MatchItem(path=path, score=1.0) for path in paths])


def meeting(count: int) -> tuple[Callable[[dict[str, Any]], Awaitable[str]], asyncio.Event]:
    """A tool that answers once ``count`` calls of it are in flight, and the event of that."""
    arrived: list[object] = []
    together = asyncio.Event()

    async def meet(params: dict[str, Any]) -> str:
        arrived.append(params)
        if len(arrived) == count:
            together.set()
        await together.wait()
        return "met"

    return meet, together


class Parts:
    """A directory, and houses wired by hand in it that are closed in the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._close: list[Callable[[], Awaitable[None]]] = []

    def memory(self, kind: type[MemorySystem] = MemorySystem) -> MemorySystem:
        memory = kind(roots=[self.root])
        self._close.append(memory.aclose)
        return memory

    def handler(
        self, tasks: Any, memory: Any = None, *answers: Any, kind: type[BaseHandler] = BaseHandler, **more: Any
    ) -> BaseHandler:
        handler = kind(tasks, memory, ScriptedProvider(list(answers)), **more)
        self._close.append(handler.aclose)
        return handler

    def house(self, *answers: Any, tasks: Any = None, memory: Any = None, **more: Any) -> SexpEvaluator:
        tasks = tasks if tasks is not None else TaskSystem(None, memory)
        if isinstance(tasks, TaskSystem):
            tasks.register_template(ASK)
        return SexpEvaluator(tasks, self.handler(tasks, memory, *answers, **more), memory)

    async def aclose(self) -> None:
        for close in self._close:
            await close()


@pytest.fixture
async def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Parts]:
    (tmp_path / "bees.txt").write_text("The hive holds honey.\n")
    monkeypatch.chdir(tmp_path)
    parts = Parts(tmp_path)
    yield parts
    await parts.aclose()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("face", FACES)
async def test_what_a_host_puts_in_counts_or_is_refused(face: str, way: str, parts: Parts) -> None:
    """Each cell of the matrix."""
    await CELLS[face, way](parts)


# -- the evaluator: asked by the task system for calls of template functions ------------------------------------------


@cell("evaluator", "subclass")
async def _(parts: Parts) -> None:
    class Own(SexpEvaluator):
        async def evaluateFunctionCall(self, call: Any, env: Any) -> Any:
            return f"own {call.template_name}"

    house = parts.house()
    house.task_system.evaluator = Own(house.task_system, house.handler, None)
    assert (await house.task_system.execute_call({"templateName": "ask", "arguments": ["x"]})).content == "own ask"


@cell("evaluator", "double")
async def _(parts: Parts) -> None:
    class Double:
        def evaluateFunctionCall(self, call: Any, env: Any) -> dict[str, Any]:
            return {"status": "COMPLETE", "content": f"double {call.arguments[0]}"}

    tasks = TaskSystem(Double())  # type: ignore[arg-type] - an evaluator of document 2, with nothing else
    assert (await tasks.execute_call({"templateName": "ask", "arguments": ["x"]})).content == "double x"


@cell("evaluator", "assigned")
async def _(parts: Parts) -> None:
    house = parts.house("old")
    tasks = TaskSystem()
    tasks.register_template({**ASK, "instructions": "Say {{q}}"})
    house.task_system = tasks
    assert await house.evaluate_string(ASKED) == "old"
    assert "Say x" in house.handler.model_provider.requests[0].messages[0].text
    house.memory_system = Paths("b.txt")
    assert await house.evaluate_string('(get_context (query "x"))') == ["b.txt"]
    async with AgentFlow(provider=ScriptedProvider([]), root=parts.root) as flow:
        with pytest.raises(ConfigurationError, match="cannot be replaced"):
            flow.evaluator.memory_system = house.memory_system


@cell("evaluator", "second")
async def _(parts: Parts) -> None:
    first = parts.house("from the first")
    second = SexpEvaluator(first.task_system, parts.handler(first.task_system, None, "from the second"), None)
    assert await second.evaluate_string(ASKED) == "from the second"
    assert await first.evaluate_string(ASKED) == "from the first"


@cell("evaluator", "at-once")
async def _(parts: Parts) -> None:
    house, (slow, together) = parts.house(), meeting(5)
    house.handler.register_tool({"name": "meet", "input_schema": {"type": "object"}}, slow)
    programs = [f"(begin (define n {n}) (meet) (* n n))" for n in range(5)]
    assert await asyncio.gather(*[house.evaluate_string(text) for text in programs]) == [n * n for n in range(5)]
    assert together.is_set()


@cell("evaluator", "unforeseen")
async def _(parts: Parts) -> None:
    class Broken:
        async def evaluate_function_call(self, call: Any, env: Any) -> Any:
            raise RuntimeError("out of order")

    result = await TaskSystem(Broken()).execute_call({"templateName": "ask"})  # type: ignore[arg-type]
    assert result.failed and "out of order" in result.content


# -- the task system: asked by programs, subtasks and template functions ----------------------------------------------


@cell("tasks", "subclass")
async def _(parts: Parts) -> None:
    class Own(TaskSystem):
        ran: list[str]
        registered: list[str]

        def find_template(self, identifier: str) -> Any:
            return super().find_template("ask" if identifier == "other" else identifier)

        def register_template(self, template: Any) -> None:
            self.registered.append(template["name"])
            super().register_template(template)

        async def execute_atomic_template(self, request: Any, env: Any = None) -> TaskResult:
            self.ran.append(request.name)
            return await super().execute_atomic_template(request, env)

    tasks = Own()
    tasks.ran, tasks.registered = [], []
    house = parts.house("one", "two", "three", tasks=tasks)
    assert await house.evaluate_string(ASKED) == "one" and tasks.ran == ["ask"]
    assert await house.evaluate_string('(value-of (other (q "x")))') == "two"
    await house.evaluate_string('(defatom later (params (q string)) (instructions "L {{q}}"))')
    assert tasks.registered == ["ask", "later"] and await house.evaluate_string('(value-of (later (q "x")))') == "three"

    class Direct(TaskSystem):
        async def execute_subtask_directly(self, request: Any, env: Any = None) -> TaskResult:
            return TaskResult.complete(f"direct {request.inputs['q']}")

    house = parts.house(
        {"tool_calls": [{"name": "dig", "arguments": {"q": "deep"}}]},
        lambda r: r.messages[-1].parts[0].text,
        tasks=Direct(),
    )
    assert await house.evaluate_string(ASKED) == "direct x"
    house.handler.add_tool(subtask_tool("dig", "Digs.", template="ask", parameters={"q": "string"}))
    assert (await house.handler.execute_prompt("dig")).content == "direct deep"


@cell("tasks", "double")
async def _(parts: Parts) -> None:
    class Double:
        def __init__(self) -> None:
            self.templates = {"ask": ASK}

        def find_template(self, identifier: str) -> Any:
            return self.templates.get(identifier)

        def register_template(self, template: Any) -> None:
            self.templates[template["name"]] = template

        def execute_atomic_template(self, request: Any, env: Any = None) -> dict[str, Any]:
            return {"status": "COMPLETE", "content": f"{request.name} {request.inputs['q']}", "notes": {}}

    house = parts.house(tasks=Double())
    assert await house.evaluate_string(ASKED) == "ask x"
    text = '(defatom new (params (q string)) (instructions "New {{q}}")) (value-of (new (q "y")))'
    assert await house.evaluate_string(text) == "new y" and "new" in house.task_system.templates
    with pytest.raises(ConfigurationError) as refused:
        SexpEvaluator(object(), house.handler, None)
    assert refused.value.code == "config/part"


@cell("tasks", "assigned")
async def _(parts: Parts) -> None:
    house = parts.house()
    house.task_system.memory_system = Paths(str(parts.root / "bees.txt"))
    paths, error = await house.task_system.resolve_file_paths({"_context_input": "x"})
    assert error is None and paths == [str(parts.root / "bees.txt")]

    async def mine(request: Any, env: Any = None) -> TaskResult:
        return TaskResult.complete("assigned")

    house.task_system.execute_atomic_template = mine
    assert await house.evaluate_string(ASKED) == "assigned"
    async with AgentFlow(provider=ScriptedProvider([]), root=parts.root) as flow:
        with pytest.raises(ConfigurationError):
            flow.task_system.execute_atomic_template = mine  # type: ignore[method-assign]
        with pytest.raises(ConfigurationError):
            flow.task_system.memory_system = None


@cell("tasks", "second")
async def _(parts: Parts) -> None:
    first, second = TaskSystem(), TaskSystem()
    handler = parts.handler(None, None, "one", "two")
    for tasks, word in ((first, "First"), (second, "Second")):
        tasks.register_template({**ASK, "instructions": f"{word} {{{{q}}}}"})
        await SexpEvaluator(tasks, handler, None).evaluate_string(ASKED)
    sent = [request.messages[-1].text for request in handler.model_provider.requests]  # type: ignore[union-attr]
    assert sent == ["First x", "Second x"]


@cell("tasks", "at-once")
async def _(parts: Parts) -> None:
    house = parts.house(*[f"{n}" for n in range(5)])
    results = await asyncio.gather(*[house.task_system.execute_task("atomic", "ask", {"q": "x"}) for _ in range(5)])
    assert sorted(result.content for result in results) == ["0", "1", "2", "3", "4"]


@cell("tasks", "unforeseen")
async def _(parts: Parts) -> None:
    class Broken(TaskSystem):
        async def execute_atomic_template(self, request: Any, env: Any = None) -> TaskResult:
            raise RuntimeError("out of order")

        def register_template(self, template: Any) -> None:
            if template["name"] != "ask":
                raise ValueError("full")
            super().register_template(template)

    house = parts.house(tasks=Broken())
    result = await house.evaluate_string('(ask (q "x"))')
    assert result.failed and "out of order" in result.content
    with pytest.raises(SexpEvaluationError, match="full"):
        await house.evaluate_string('(defatom new (params) (instructions "New"))')


# -- the handler: asked by tasks, file sources and executors ----------------------------------------------------------


@cell("handler", "subclass")
async def _(parts: Parts) -> None:
    class Own(BaseHandler):
        said: list[str]

        async def execute_prompt(self, prompt: Any, **options: Any) -> TaskResult:
            self.said = [*getattr(self, "said", []), prompt]
            return await super().execute_prompt(prompt, **options)

        async def execute_file_path_command(self, command: str) -> list[str]:
            return [f"by-{command}.txt"]

    house = parts.house("a", "b", '{"n": 1}', kind=Own)
    handler = house.handler
    assert await house.evaluate_string(ASKED) == "a" and handler.said == ["Answer x"]
    other = TaskSystem()
    other.register_template(ASK)
    assert (await other.execute_task("atomic", "ask", {"q": "y"}, handler=handler)).content == "b"
    assert handler.said == ["Answer x", "Answer y"]
    other.register_template({**ASK, "name": "typed", "subtype": "typed", "output_format": {"type": "json"}})
    assert (await other.execute_task("atomic", "typed", {"q": "z"}, handler=handler)).parsed_content == {"n": 1}
    source = {"file_paths_source": {"type": "command", "command": "me"}}
    for given in (None, handler):
        assert await house.task_system.resolve_file_paths(source, None, given) == (
            [str(parts.root / "by-me.txt")],
            None,
        )
    with pytest.raises(ConfigurationError, match="tool_executors"):

        class Closed(BaseHandler):
            @property
            def tool_executors(self) -> dict[str, Any]:
                return {}

        Closed(None, None)


@cell("handler", "double")
async def _(parts: Parts) -> None:
    class Double:
        def __init__(self) -> None:
            self.primed: list[Any] = []

        def execute_prompt(self, prompt: str, system: str = "") -> dict[str, Any]:
            return {"status": "COMPLETE", "content": f"double {prompt}"}

        def execute_file_path_command(self, command: str) -> list[str]:
            return ["/double"]

        def prime_data_context(self, query: str | None = None, initial_files: Any = None) -> Any:
            self.primed.append(query)
            return None

        def clear_data_context(self) -> None:
            self.primed.clear()

    tasks, double = TaskSystem(), Double()
    tasks.register_template(ASK)
    assert (await tasks.execute_task("atomic", "ask", {"q": "x"}, handler=double)).content == "double Answer x"
    source = {"file_paths_source": {"type": "command", "command": "me"}}
    assert await tasks.resolve_file_paths(source, None, double) == (["/double"], None)
    with pytest.raises(ConfigurationError, match="registry"):
        SexpEvaluator(tasks, double, None)
    files = FileAccessManager(parts.root)
    with pytest.raises(ConfigurationError, match="prime_data_context"):
        SystemExecutorFunctions(None, files, CommandExecutor(files), object())  # type: ignore[arg-type]
    files.close()


@cell("handler", "assigned")
async def _(parts: Parts) -> None:
    house = parts.house("one", "two")
    handler = house.handler
    handler.base_system_prompt = "Speak like a bee."
    assert await house.evaluate_string(ASKED) == "one"
    assert "Speak like a bee." in handler.model_provider.requests[0].system
    (parts.root / "in").mkdir()
    (parts.root / "in" / "only.txt").write_text("only here")
    handler.file_manager = FileAccessManager(parts.root / "in")
    primed = await handler.prime_data_context(initial_files=["only.txt"])
    assert primed.items[0].content == "only here"
    await house.task_system.execute_task("atomic", "ask", {"q": "x"}, file_paths=["only.txt"])
    assert "only here" in handler.model_provider.requests[1].messages[0].text
    handler.memory_system = Paths("only.txt")
    assert (await handler.prime_data_context("anything")).items[0].path == "only.txt"
    handler.file_manager.close()

    async def mine(prompt: Any, **options: Any) -> TaskResult:
        return TaskResult.complete("assigned")

    handler.execute_prompt = mine
    assert await house.evaluate_string(ASKED) == "assigned"
    async with AgentFlow(provider=ScriptedProvider([]), root=parts.root) as flow:
        with pytest.raises(ConfigurationError):
            flow.handler.file_manager = handler.file_manager
        with pytest.raises(ConfigurationError):
            flow.handler.execute_prompt = mine  # type: ignore[method-assign]


@cell("handler", "second")
async def _(parts: Parts) -> None:
    tasks = TaskSystem()
    tasks.register_template(ASK)
    first, second = (parts.handler(tasks, None, name, name) for name in ("first", "second"))
    assert [(await handler.execute_prompt("hi")).content for handler in (first, second)] == ["first", "second"]
    assert (await tasks.execute_task("atomic", "ask", {"q": "x"})).content == "first"
    assert await SexpEvaluator(tasks, second, None).evaluate_string(ASKED) == "second"


@cell("handler", "at-once")
async def _(parts: Parts) -> None:
    slow, together = meeting(2)
    handler = parts.handler(None, None, *[{"tool_calls": [{"name": "meet"}]}] * 2, "first", "second", "third")
    handler.register_tool({"name": "meet", "input_schema": {"type": "object"}}, slow)
    results = await asyncio.gather(*[handler.execute_prompt(f"hello {n}", tools=["meet"]) for n in range(2)])
    assert together.is_set() and sorted(result.content for result in results) == ["first", "second"]
    await handler.execute_prompt("and now?")
    sent = [message.text for message in handler.model_provider.requests[-1].messages if message.role == "user"]  # type: ignore[union-attr]
    assert {"hello 0", "hello 1", "and now?"} <= set(sent)
    handler.register_tool({"name": "give", "input_schema": {}}, lambda params: params["n"])
    give = handler.tool_executors["give"]
    assert await asyncio.gather(*[asyncio.to_thread(give, {"n": n}) for n in range(3)]) == [0, 1, 2]
    found = await asyncio.gather(*[handler.execute_file_path_command("ls") for _ in range(3)])
    assert found == [[str(parts.root / "bees.txt")]] * 3


@cell("handler", "unforeseen")
async def _(parts: Parts) -> None:
    class Broken(BaseHandler):
        async def execute_prompt(self, prompt: Any, **options: Any) -> TaskResult:
            raise RuntimeError("out of order")

        async def execute_file_path_command(self, command: str) -> list[str]:
            raise RuntimeError("out of order")

        async def prime_data_context(self, query: Any = None, initial_files: Any = None) -> Any:
            raise RuntimeError("out of order")

        def clear_data_context(self) -> None:
            raise RuntimeError("out of order")

    house = parts.house(kind=Broken)
    result = await house.evaluate_string('(ask (q "x"))')
    assert result.failed and "out of order" in result.content
    source = {"file_paths_source": {"type": "command", "command": "me"}}
    for given in (None, house.handler):
        paths, error = await house.task_system.resolve_file_paths(source, None, given)
        assert paths == [] and error is not None and "out of order" in error
    files = FileAccessManager(parts.root)
    executors = SystemExecutorFunctions(None, files, CommandExecutor(files), house.handler)
    primed = await executors.execute_prime_handler_data_context({"query": "x"})
    assert primed.notes["error"]["reason"] == "context_priming_failure"
    assert (await executors.execute_clear_handler_data_context({})).notes["error"]["reason"] == "unexpected_error"
    files.close()


# -- memory: asked by programs, tasks, tools and the handler ----------------------------------------------------------


class Paths:
    """A memory of the host's own, with the method of the specification, plain."""

    def __init__(self, *paths: str, error: Exception | None = None) -> None:
        self._found, self._error = found(*paths), error

    def get_relevant_context_for(self, input: Any) -> AssociativeMatchResult:
        if self._error is not None:
            raise self._error
        return self._found


async def everywhere(parts: Parts, memory: Any, path: str) -> None:
    """``memory`` answers programs, tools, tasks, file sources and priming."""
    house = parts.house("done", memory=memory)
    files = FileAccessManager(parts.root)
    executors = SystemExecutorFunctions(memory, files, CommandExecutor(files), house.handler)
    assert await house.evaluate_string('(get_context (query "x"))') == [path]
    assert json.loads((await executors.execute_get_context({"query": "x"})).content) == [path]
    assert await house.task_system.resolve_file_paths({"_context_input": "x"}) == ([path], None)
    assert [item.path for item in (await house.handler.prime_data_context("x")).items] == [path]
    settings = {"fresh_context": "enabled", "inherit_context": "none"}
    result = await house.task_system.execute_task("atomic", "ask", {"q": "x"}, context_management=settings)
    assert result.notes["context_files_count"] == 1
    files.close()


@cell("memory", "subclass")
async def _(parts: Parts) -> None:
    class Own(MemorySystem):
        async def get_relevant_context_for(self, input: Any) -> AssociativeMatchResult:
            return found(str(self.roots[0]) + "/bees.txt")

    await everywhere(parts, parts.memory(Own), str(parts.root / "bees.txt"))


@cell("memory", "double")
async def _(parts: Parts) -> None:
    await everywhere(parts, Paths(str(parts.root / "bees.txt")), str(parts.root / "bees.txt"))
    for build in (
        lambda: TaskSystem(None, object()),  # type: ignore[arg-type]
        lambda: BaseHandler(None, object()),  # type: ignore[arg-type]
        lambda: SexpEvaluator(TaskSystem(), parts.handler(None), object()),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match="get_relevant_context_for"):
            build()


@cell("memory", "assigned")
async def _(parts: Parts) -> None:
    memory = parts.memory()

    async def mine(input: Any) -> AssociativeMatchResult:
        return found(str(parts.root / "bees.txt"))

    memory.get_relevant_context_for = mine
    await everywhere(parts, memory, str(parts.root / "bees.txt"))
    async with AgentFlow(provider=ScriptedProvider([]), root=parts.root) as flow:
        with pytest.raises(ConfigurationError):
            flow.memory_system.get_relevant_context_for = mine


@cell("memory", "second")
async def _(parts: Parts) -> None:
    tasks = TaskSystem()
    houses = [SexpEvaluator(tasks, parts.handler(tasks), Paths(name)) for name in ("one", "two")]
    assert [await house.evaluate_string('(get_context (query "x"))') for house in houses] == [["one"], ["two"]]


@cell("memory", "at-once")
async def _(parts: Parts) -> None:
    house = parts.house(memory=parts.memory())
    text = '(pmap (lambda (q) (get_context (query q))) (list "honey" "hive" "bees"))'
    assert await house.evaluate_string(text) == [[str(parts.root / "bees.txt")]] * 3


@cell("memory", "unforeseen")
async def _(parts: Parts) -> None:
    memory = Paths(error=RuntimeError("out of order"))
    house = parts.house("done", memory=memory)
    files = FileAccessManager(parts.root)
    executors = SystemExecutorFunctions(memory, files, CommandExecutor(files), house.handler)
    with pytest.raises(SexpEvaluationError, match="out of order"):
        await house.evaluate_string('(get_context (query "x"))')
    assert (await executors.execute_get_context({"query": "x"})).notes["error"]["reason"] == "context_retrieval_failure"
    _, error = await house.task_system.resolve_file_paths({"_context_input": "x"})
    assert error is not None and "out of order" in error
    files.close()


# -- executors, files and commands: asked by tools, tasks and the handler ---------------------------------------------


class Ran:
    """A command executor of the host's own, with the methods of the specification, plain."""

    def __init__(self, output: str = "", error: Exception | None = None) -> None:
        self.output, self.error = output, error

    def execute_command_safely(self, command: Any, cwd: Any = None, timeout: Any = None) -> CommandResult:
        if self.error is not None:
            raise self.error
        return CommandResult(True, 0, self.output or f"ran {command}", "")

    def parse_file_paths_from_output(self, output: str, cwd: Any = None) -> list[str]:
        return output.splitlines()


class Shelf:
    """A file manager of the host's own, with the methods of the specification, plain."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def read_file(self, file_path: str) -> str | None:
        return self.texts.get(file_path)

    def write_file(self, file_path: str, content: str, overwrite: bool = False) -> bool:
        if file_path in self.texts and not overwrite:
            return False
        self.texts[file_path] = content
        return True

    def list_directory(self, directory_path: str) -> list[str] | dict[str, str]:
        return sorted(self.texts) if directory_path == "." else {"error": f"no shelf {directory_path}"}


@cell("executors", "subclass")
async def _(parts: Parts) -> None:
    class Files(FileAccessManager):
        asked: ClassVar[list[str]] = []

        async def read_file(self, file_path: str, max_size: int | None = None) -> str | None:
            self.asked.append(f"read {file_path}")
            text = await super().read_file(file_path, max_size)
            return text and text.upper()

        async def write_file(self, file_path: str, content: str, overwrite: bool = False) -> bool:
            self.asked.append(f"write {file_path}")
            return await super().write_file(file_path, content, overwrite)

        async def list_directory(self, directory_path: str) -> list[str] | dict[str, str]:
            self.asked.append(f"list {directory_path}")
            return await super().list_directory(directory_path)

    class Commands(CommandExecutor):
        async def execute_command_safely(self, command: Any, cwd: Any = None, timeout: Any = None) -> CommandResult:  # type: ignore[override]
            return await super().execute_command_safely("ls bees.txt", cwd, timeout)

    class Own(SystemExecutorFunctions):
        async def execute_read_files(self, params: dict[str, Any]) -> TaskResult:
            return TaskResult.complete("overridden")

    files = Files(parts.root)
    commands = Commands(files)
    house = parts.house("done", file_manager=files, command_executor=commands)
    executors = SystemExecutorFunctions(None, files, commands, house.handler)
    assert "THE HIVE" in (await executors.execute_read_files({"file_paths": ["bees.txt"]})).content
    missing = await executors.execute_read_files({"file_paths": ["gone.txt"]})
    assert missing.notes["errors"][0]["code"] == "files/not-found"
    refused = await executors.execute_write_file({"file_path": "bees.txt", "content": "x"})
    assert refused.notes["error"]["details"]["code"] == "files/exists"
    assert (await executors.execute_list_directory({"directory_path": "."})).notes["directory_contents"] == ["bees.txt"]
    assert files.asked == ["read bees.txt", "read gone.txt", "write bees.txt", "list ."]
    assert (await executors.execute_shell_command({"command": "rm -rf /"})).content.strip() == "bees.txt"
    assert await house.handler.execute_file_path_command("nothing") == [str(parts.root / "bees.txt")]
    await house.task_system.execute_task("atomic", "ask", {"q": "x"}, file_paths=["bees.txt"])
    assert "THE HIVE" in house.handler.model_provider.requests[0].messages[0].text
    assert "THE HIVE" in (await house.handler.prime_data_context(initial_files=["bees.txt"])).items[0].content
    for tool in Own(None, files, commands, house.handler).tools():
        house.handler.add_tool(tool)
    assert await house.evaluate_string('(value-of (system:read_files (file_paths (list "a"))))') == "overridden"
    assert "bees.txt" in await house.evaluate_string('(value-of (system:execute_shell_command (command "x")))')
    files.close()


@cell("executors", "double")
async def _(parts: Parts) -> None:
    shelf, ran = Shelf(a="text of a"), Ran(str(parts.root / "bees.txt"))
    house = parts.house("done", file_manager=shelf, command_executor=ran)
    executors = SystemExecutorFunctions(None, shelf, ran, house.handler)  # type: ignore[arg-type]
    read = await executors.execute_read_files({"file_paths": ["a", "b"]})
    assert "text of a" in read.content and read.notes["skipped_files"] == ["b"]
    assert (await executors.execute_write_file({"file_path": "c", "content": "new"})).status == "COMPLETE"
    assert (await executors.execute_write_file({"file_path": "c", "content": "x"})).status == "FAILED"
    assert (await executors.execute_list_directory({"directory_path": "."})).notes["directory_contents"] == ["a", "c"]
    assert "no shelf up" in (await executors.execute_list_directory({"directory_path": "up"})).content
    assert (await executors.execute_shell_command({"command": "x"})).content == str(parts.root / "bees.txt")
    assert await house.handler.execute_file_path_command("x") == [str(parts.root / "bees.txt")]
    await house.task_system.execute_task("atomic", "ask", {"q": "x"}, file_paths=["c"])
    assert "new" in house.handler.model_provider.requests[0].messages[0].text
    for build in (
        lambda: SystemExecutorFunctions(None, object(), ran),  # type: ignore[arg-type]
        lambda: SystemExecutorFunctions(None, shelf, object()),  # type: ignore[arg-type]
        lambda: BaseHandler(None, None, command_executor=object()),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match="has no method"):
            build()


@cell("executors", "assigned")
async def _(parts: Parts) -> None:
    files = FileAccessManager(parts.root)
    executors = SystemExecutorFunctions(None, files, CommandExecutor(files))

    async def mine(file_path: str) -> str:
        return "assigned"

    files.read_file = mine  # type: ignore[method-assign, assignment]
    assert "assigned" in (await executors.execute_read_files({"file_paths": ["bees.txt"]})).content
    with pytest.raises(AttributeError):
        executors.file_manager = files  # type: ignore[misc]
    files.close()


@cell("executors", "second")
async def _(parts: Parts) -> None:
    houses = [SystemExecutorFunctions(None, Shelf(a=name), Ran(name)) for name in ("one", "two")]  # type: ignore[arg-type]
    for executors, name in zip(houses, ("one", "two"), strict=True):
        assert name in (await executors.execute_read_files({"file_paths": ["a"]})).content
        assert (await executors.execute_shell_command({"command": "x"})).content == name


@cell("executors", "at-once")
async def _(parts: Parts) -> None:
    files = FileAccessManager(parts.root)
    executors = SystemExecutorFunctions(None, files, CommandExecutor(files))
    names = [f"n{n}.txt" for n in range(5)]
    await asyncio.gather(*[executors.execute_write_file({"file_path": name, "content": name}) for name in names])
    texts = await asyncio.gather(*[executors.execute_read_files({"file_paths": [name]}) for name in names])
    assert all(name in result.content for name, result in zip(names, texts, strict=True))
    files.close()


@cell("executors", "unforeseen")
async def _(parts: Parts) -> None:
    class Broken(Shelf):
        def read_file(self, file_path: str) -> str | None:
            raise RuntimeError("out of order")

        def write_file(self, file_path: str, content: str, overwrite: bool = False) -> bool:
            raise RuntimeError("out of order")

        def list_directory(self, directory_path: str) -> Any:
            raise RuntimeError("out of order")

    broken = Ran(error=RuntimeError("out of order"))
    executors = SystemExecutorFunctions(None, Broken(), broken)  # type: ignore[arg-type]
    results = [
        await executors.execute_read_files({"file_paths": ["a"]}),
        await executors.execute_write_file({"file_path": "a", "content": "x"}),
        await executors.execute_list_directory({"directory_path": "."}),
        await executors.execute_shell_command({"command": "x"}),
    ]
    for result in results:
        assert result.failed and "out of order" in result.content
        assert result.notes["error"]["reason"] == "unexpected_error"
    handler = parts.handler(None, command_executor=broken)
    assert await handler.execute_file_path_command("x") == []


def test_every_cell_is_there() -> None:
    """No way of putting something into a face is left out."""
    assert set(CELLS) == {(face, way) for face in FACES for way in WAYS}
