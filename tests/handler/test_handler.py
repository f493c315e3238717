"""BaseHandler: document 5's methods and those other documents use."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow.core.call.call import current_call
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput, MatchItem
from agentflow.core.data.errors import (
    ConfigurationError,
    DataError,
    FileFailure,
    LimitExceeded,
    PathDenied,
    TaskError,
)
from agentflow.core.data.messages import ToolResultPart
from agentflow.core.data.provider_errors import Overloaded
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.templates import HistoryConfig
from agentflow.core.events.events import ModelFinished, Warning
from agentflow.core.ports.executor_ports import CommandResult, FileText
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.turn_loop import TurnLoop
from agentflow.spec.handler import BaseHandler
from tests.support.fakes import FakeProvider, FakeRouter, FakeRun, tool_calls

ECHO = {"name": "echo", "description": "Echoes.", "input_schema": {"type": "object", "properties": {"text": {}}}}


def handler(*replies: Any, **options: Any) -> BaseHandler:
    return BaseHandler(
        None, options.pop("memory", None), FakeProvider(*replies), options.pop("config", None), **options
    )


class Memory:
    """A memory with one answer."""

    def __init__(self, result: AssociativeMatchResult | BaseException) -> None:
        self.result = result
        self.asked: list[ContextGenerationInput] = []

    async def get_relevant_context_for(self, input: ContextGenerationInput) -> AssociativeMatchResult:
        self.asked.append(input)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class Files:
    """A FilePort over a dict."""

    roots = (Path("/"),)

    def __init__(self, **files: str) -> None:
        self.files = files

    def absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"/{path.removeprefix('./')}"

    async def read(self, path: str, *, max_bytes: int | None = None) -> FileText:
        path = path.removeprefix("./").removeprefix("/")
        if path.startswith(".."):
            raise PathDenied(f"{path} is outside")
        if path not in self.files:
            raise FileFailure(f"{path} does not exist")
        text = self.files[path]
        return FileText(path, text, len(text), "", binary="\0" in text)


class Commands:
    """A CommandPort with one result."""

    def __init__(self, result: CommandResult) -> None:
        self.result = result

    async def execute_command_safely(self, command: Any, cwd: Any = None, timeout: Any = None) -> CommandResult:
        return self.result

    def parse_file_paths_from_output(self, output: str, cwd: Any = None) -> list[str]:
        return output.split()


class TestConstruction:
    """A handler needs nothing but its arguments."""

    async def test_alone(self) -> None:
        """Without a provider it is built without key or network, registries and history empty."""
        alone = BaseHandler(None, None)
        assert alone.registered_tools == {} and alone.tool_executors == {} and alone.conversation_history == []
        assert isinstance(alone.registered_tools, dict) and alone.direct_tool_executors == alone.tool_executors
        assert alone.debug_mode is False and alone.base_system_prompt

    def test_shared_turn_loop(self) -> None:
        """On a flow's turn loop the handler's model and base system prompt are that loop's."""
        provider = FakeProvider()
        loop = TurnLoop(FakeRouter(provider), ToolRegistry(), base_system="be kind")
        shared = BaseHandler(None, None, turn_loop=loop)
        assert shared.model_provider is provider and shared.base_system_prompt == "be kind"

    async def test_config(self, caplog: pytest.LogCaptureFixture) -> None:
        """The base system prompt is the config's; a key that is not known is logged."""
        made = handler("ok", config={"base_system_prompt": "be brief", "modle": "x"})
        await made.execute_prompt("hi")
        assert made.model_provider.requests[0].system == "be brief" and "modle" in caplog.text  # type: ignore[union-attr]


class TestTools:
    """Tools as document 5 registers them."""

    async def test_executors_by_hand(self) -> None:
        """The executor of a typed function can be called with one dict, outside of any run; the model can call it too."""

        async def add(a: int) -> int:
            return a + 1

        made = handler()
        made.add_tool(add)
        assert (await made.tool_executors["add"]({"a": 1})).content == "2"
        made.register_tool({"name": "add"}, lambda params: "replaced")
        assert made.tool_executors["add"]({}) == "replaced"

    async def test_registered(self) -> None:
        """A registered tool is in both registries and the model can call it."""
        made = handler(tool_calls(("echo", {"text": "x"})), "done")

        def echo(params: dict[str, Any]) -> dict[str, Any]:
            return {"status": "COMPLETE", "content": params["text"] * 3}

        assert made.register_tool(ECHO, echo) is True
        assert made.registered_tools["echo"] == ECHO and made.tool_executors["echo"] is echo
        assert (await made.execute_prompt("go")).content == "done"
        part = made.model_provider.requests[1].messages[-1].parts[0]  # type: ignore[union-attr]
        assert isinstance(part, ToolResultPart) and part.text == "xxx"

    @pytest.mark.parametrize(
        ("spec", "executor"), [({}, str), (None, str), ("echo", str), ({"name": ""}, str), (ECHO, None), (ECHO, "x")]
    )
    def test_refused(self, spec: Any, executor: Any, caplog: pytest.LogCaptureFixture) -> None:
        """A bad registration is False with a log line, and registers nothing."""
        made = handler()
        assert made.register_tool(spec, executor) is False
        assert made.registered_tools == {} and "not registered" in caplog.text

    async def test_typed(self) -> None:
        """A typed function is added as it is; its executor takes one dict."""

        async def add(a: int, b: int) -> int:
            return a + b

        made = handler()
        made.add_tool(add)
        assert made.registered_tools["add"]["input_schema"]["required"] == ["a", "b"]
        assert (await made.tool_executors["add"]({"a": 1, "b": 2})).content == "3"

    async def test_executors_by_assignment(self) -> None:
        """Setting an executor registers it: a new name as a tool of any arguments, a known one with its spec and options."""
        made = handler(tool_calls(("math", {"n": 1})), "done")
        assert isinstance(made.tool_executors, dict)

        async def echo(params: dict[str, Any]) -> str:
            """Say it again."""
            return f"echo {params}"

        made.tool_executors["system:echo"] = echo
        assert made.tool_executors["system:echo"] is echo and list(made.tool_executors) == ["system:echo"]
        assert made.registered_tools["system:echo"]["description"] == "Say it again."
        assert (await made.registry.execute("system:echo", {"a": 1}, FakeRun().call())).content == "echo {'a': 1}"
        made.register_tool({**ECHO, "name": "math", "approval": True}, lambda params: 1)
        made.direct_tool_executors.update({"math": lambda params: params["n"] + 1})
        tool = made.registry.find("math")
        assert tool is not None and tool.approval and made.registered_tools["math"]["approval"]
        assert made.tool_executors["math"]({"n": 1}) == 2
        await made.execute_prompt("go")
        offered = made.model_provider.requests[0].tools  # type: ignore[union-attr]
        assert [spec.name for spec in offered] == ["math"]
        executors = made.tool_executors
        executors |= {"more": echo}
        assert executors is not made.tool_executors and made.tool_executors["more"] is echo
        assert {**executors} == dict(executors) == executors.copy() == copy.copy(executors) == executors | {}
        assert sorted({"a": echo} | executors) == ["a", "math", "more", "system:echo"]
        del made.tool_executors["math"], made.tool_executors["more"]
        assert made.tool_executors.pop("system:echo") is echo and made.registered_tools == {} == made.tool_executors
        for name, executor in (("x", 5), ("", echo)):
            with pytest.raises(ConfigurationError):
                made.tool_executors[name] = executor  # type: ignore[assignment]

    async def test_views(self) -> None:
        """What cannot be changed by assignment says so, and what to call."""
        made = handler("one")
        await made.execute_prompt("a")
        history = made.conversation_history
        assert isinstance(history, list) and len(history) == 2
        for change in (history.clear, lambda: history.append(history[0]), lambda: history.__setitem__(0, history[1])):
            with pytest.raises(DataError, match="read only") as caught:
                change()
            assert caught.value.code == "data/read-only" and "reset_conversation" in (caught.value.hint or "")
        for change in (
            lambda: made.registered_tools.__setitem__("x", ECHO),
            lambda: made.registered_tools.update(x=ECHO),
            made.registered_tools.clear,
        ):
            with pytest.raises(DataError, match="read only") as caught:
                change()
            assert "register_tool" in (caught.value.hint or "")
        assert made.registered_tools == {} and len(made.conversation_history) == 2
        copied = copy.deepcopy(history)
        copied.clear()
        assert type(copied) is list and copy.copy(made.registered_tools) == {}


class TestPrompts:
    """Prompts as TaskResults and as streams."""

    async def test_conversation(self) -> None:
        """Prompts share the handler's session until it is reset."""
        made = handler("one", "two", "three")
        first = await made.execute_prompt("a")
        await made.execute_prompt("b")
        assert (first.status, first.content, first.usage.requests) == ("COMPLETE", "one", 1)
        assert [message.text for message in made.conversation_history] == ["a", "one", "b", "two"]
        made.reset_conversation()
        assert made.conversation_history == []
        await made.execute_prompt("c", history=HistoryConfig(record_in_session_history=False))
        assert made.conversation_history == []

    async def test_failure(self) -> None:
        """A provider's error is a FAILED result that keeps it."""
        error = Overloaded("busy", status=529)
        result = await handler(error).execute_prompt("a")
        assert result.failed and result.error is error and result.notes["error"]["reason"] == "llm_error"

    async def test_json(self) -> None:
        """JSON output: the value parsed; not JSON is COMPLETE with parseError, wrong schema FAILED."""

        class Point(BaseModel):
            x: int

        schema = {"type": "object", "required": ["x"]}
        assert (await handler('{"x": 1}').execute_prompt("p", output_model=Point)).parsed_content == Point(x=1)
        bad = await handler("no", "no").execute_prompt("p", json_output=True)
        assert bad.status == "COMPLETE" and bad.notes["parseError"] and bad.parsed_content is None
        wrong = await handler("{}", "{}").execute_prompt("p", output_schema=schema)
        assert wrong.notes["error"]["reason"] == "output_format_failure"

    async def test_side_by_side(self) -> None:
        """Prompts at once see what was said before them, not each other; afterwards the conversation has all their turns."""
        made = handler("before", *["beside"] * 5, "after")
        await made.execute_prompt("first")
        results = await asyncio.gather(*[made.execute_prompt(f"{number}") for number in range(5)])
        assert {result.content for result in results} == {"beside"}
        model = made.model_provider
        assert isinstance(model, FakeProvider)
        assert [len(request.messages) for request in model.requests[1:]] == [3] * 5
        await made.execute_prompt("last")
        assert len(model.requests[-1].messages) == 13
        asked = [message.text for message in made.conversation_history if message.role == "user"]
        assert sorted(asked[1:-1]) == [f"{number}" for number in range(5)] and asked[0] == "first"

    async def test_inside_a_run(self) -> None:
        """Inside a tool's call the handler's prompts join that run and its session."""
        made, run = handler("inner"), FakeRun()
        call = run.call()
        token = current_call.set(call)
        try:
            await made.execute_prompt("a")
            assert made.session is call.session and len(made.conversation_history) == 2
        finally:
            current_call.reset(token)
        assert run.model_calls == 1 and run.of(ModelFinished) and made.conversation_history == []

    async def test_stream(self) -> None:
        """The text comes as it is made; with events, everything; errors come after what came before them."""
        made = handler("one two", "three four", Overloaded("busy", status=529))
        assert "".join([text async for text in made.stream_prompt("a")]) == "one two "
        kinds = [event.type async for event in made.stream_prompt("b", events=True)]
        assert kinds == ["model_started", "text_delta", "text_delta", "model_finished"]
        with pytest.raises(Overloaded):
            async for _ in made.stream_prompt("c"):
                pass
        assert len(made.session.turns()) == 2

    async def test_stream_without_the_text_of_subtasks(self) -> None:
        """Text of a prompt that a tool makes is not this prompt's answer; it is among the events."""
        made = handler(tool_calls(("inner", {}), text="look"), "inside", "done")

        async def inner() -> str:
            return (await made.execute_prompt("x", history=HistoryConfig(record_in_session_history=False))).content

        made.add_tool(inner)
        assert [text async for text in made.stream_prompt("a")] == ["look ", "done "]

    async def test_slow_reader(self) -> None:
        """A slow reader holds the model back: the producer is never more than its allowance ahead."""
        made = handler("word " * 2_000)
        async with contextlib.aclosing(made.stream_prompt("a")) as stream:
            count = 0
            async for _ in stream:
                count += 1
                assert made.model_provider.chunks_sent - count < 80  # type: ignore[union-attr]
                if count == 500:
                    break
        assert made.model_provider.open_streams == 0  # type: ignore[union-attr]

    async def test_subtasks_of_the_task_system(self) -> None:
        """A handler alone runs a CONTINUATION with its task system."""

        class Tasks:
            async def run_subtask(self, request: SubtaskRequest, call: Any, task: Any = None) -> TaskResult:
                return TaskResult.complete(f"did {request.name}")

        async def dig() -> dict[str, Any]:
            return {"status": "CONTINUATION", "notes": {"subtask_request": {"name": "digger"}}}

        provider = FakeProvider(tool_calls(("dig", {})), "ok")
        made = BaseHandler(Tasks(), None, provider)
        made.add_tool(dig)
        await made.execute_prompt("go")
        assert provider.requests[1].messages[-1].parts[0].text == "did digger"  # type: ignore[union-attr]


class TestDataContext:
    """Priming and clearing."""

    async def test_primed(self) -> None:
        """Query and files are looked up once and reach the model with every prompt until cleared."""
        memory = Memory(
            AssociativeMatchResult(context_summary="about bees", matches=[MatchItem(path="hive.py", score=1)])
        )
        made = handler("1", "2", memory=memory, file_manager=Files(**{"hive.py": "BUZZ", "a.txt": "ALPHA"}))
        data = await made.prime_data_context("bees", ["a.txt"])
        assert [item.path for item in data.items] == ["a.txt", "hive.py"] and made.data_context is data
        assert memory.asked[0].query == "bees" and memory.asked[0].target_files == ["a.txt"]
        await made.execute_prompt("go")
        made.clear_data_context()
        await made.execute_prompt("go")
        sent = [request.messages[0].text for request in made.model_provider.requests]  # type: ignore[union-attr]
        assert all(word in sent[0] for word in ("BUZZ", "ALPHA", "about bees")) and "BUZZ" not in sent[1]

    async def test_some_unreadable(self) -> None:
        """Files that cannot be read are named; what can be read is there."""
        made = handler(file_manager=Files(**{"a.txt": "A", "b.bin": "\0"}))
        data = await made.prime_data_context(None, ["a.txt", "b.bin", "../x", "gone"])
        assert [item.path for item in data.items] == ["a.txt"]
        assert all(name in data.overall_summary for name in ("b.bin", "../x", "gone"))
        assert [each.part for each in data.failed_parts] == ["b.bin", "../x", "gone"]
        assert {each.error.reason for each in data.failed_parts} == {"tool_execution_error"}
        assert "failed_parts" not in json.loads(made.session.to_json())["data_context"]

    async def test_twice(self) -> None:
        """A file that is named in two ways, or named and found, is one item, as it was named first."""
        memory = Memory(
            AssociativeMatchResult(matches=[MatchItem(path=path) for path in ("/a.txt", "b.txt", "/b.txt")])
        )
        made = handler(memory=memory, file_manager=Files(**{"a.txt": "A", "b.txt": "B"}))
        data = await made.prime_data_context("bees", ["a.txt", "./a.txt", "/a.txt"])
        assert [item.path for item in data.items] == ["a.txt", "b.txt"]

    @pytest.mark.parametrize(
        ("query", "files", "memory"),
        [
            (None, None, None),
            ("q", None, None),
            (None, ["gone"], None),
            ("q", None, Memory(AssociativeMatchResult(error="index broken"))),
            ("q", None, Memory(PathDenied("no"))),
            ("q", None, Memory(ZeroDivisionError("no"))),
        ],
    )
    async def test_failures(self, query: Any, files: Any, memory: Any) -> None:
        """Nothing to be had is context_priming_failure, and the old context stays."""
        made = handler(memory=memory, file_manager=Files(x="y"))
        old = await made.prime_data_context(None, ["x"])
        with pytest.raises(TaskError) as caught:
            await made.prime_data_context(query, files)
        assert caught.value.reason == "context_priming_failure" and made.data_context is old

    async def test_limits_pass(self) -> None:
        """A limit of the run that memory meets is not a failure of the priming."""
        limit = LimitExceeded("too many tokens", limit="tokens", allowed=1)
        with pytest.raises(LimitExceeded) as caught:
            await handler(memory=Memory(limit), file_manager=Files()).prime_data_context("q")
        assert caught.value is limit


class TestCommands:
    """File paths from commands."""

    @pytest.mark.parametrize(
        ("result", "paths"),
        [
            (CommandResult(True, 0, "a.txt sub gone b.txt", ""), ["a.txt", "b.txt"]),
            (CommandResult(False, 1, "a.txt", "no"), []),
            (CommandResult(True, 3, "a.txt", ""), []),
            (CommandResult(False, None, "", "", error="unsafe"), []),
        ],
    )
    async def test_paths(
        self, result: CommandResult, paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only a command that succeeded gives paths, of existing files; another gives a Warning as well."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "sub").mkdir()
        for name in ("a.txt", "b.txt"):
            (tmp_path / name).touch()
        made, warnings = handler(command_executor=Commands(result)), list[str]()
        made.joint.engine.subscribe(lambda event: warnings.append(event.code) if isinstance(event, Warning) else None)
        assert await made.execute_file_path_command("ls") == paths
        assert warnings == ([] if paths else ["commands/no-files"])

    async def test_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A handler built alone has a file manager and a command executor over the working directory."""
        (tmp_path / "a.txt").write_text("alpha")
        monkeypatch.chdir(tmp_path)
        alone = handler()
        assert (await alone.file_manager.read("a.txt")).text == "alpha"
        assert await alone.execute_file_path_command("ls") == [str(tmp_path / "a.txt")]
        await alone.aclose()
        with pytest.raises(FileFailure, match="closed"):
            await alone.file_manager.read("a.txt")


def test_debug(caplog: pytest.LogCaptureFixture) -> None:
    """Debug lines are logged with their prefix when the mode is on, redacted; turning it on or off is logged."""
    made = handler(redact=lambda text: text.replace("sk-1", "***"))
    with caplog.at_level(logging.DEBUG, "agentflow.spec.handler"):
        made.log_debug("unseen")
        made.set_debug_mode(False)
        assert caplog.text == ""
        made.set_debug_mode(True)
        made.log_debug("key sk-1")
        made.set_debug_mode(False)
    assert "[DEBUG] key ***" in caplog.text and "unseen" not in caplog.text and caplog.text.count("debug mode is") == 2
