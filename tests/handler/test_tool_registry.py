"""The tool registry: one way in, one way to be run, every failure a result."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from agentflow.core.call.call import CallContext, current_call
from agentflow.core.data.errors import ConfigurationError, LimitExceeded, TaskError
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import Symbol
from agentflow.core.events.events import ToolFinished, ToolStarted
from agentflow.core.ports.ports import Tool
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.tools import subtask_tool, tool, tool_from_function, user_input_tool
from tests.support.fakes import FakeRun


def error_of(result: TaskResult) -> dict[str, Any]:
    assert result.failed, result
    return result.notes["error"]


def registry(*tools: Any) -> ToolRegistry:
    made = ToolRegistry()
    for each in tools:
        made.add(each)
    return made


async def run(tools: ToolRegistry, name: str, arguments: Any, call: CallContext | None = None) -> TaskResult:
    return await tools.execute(name, arguments, call or FakeRun().call())


async def test_typed_function() -> None:
    """A typed function is a tool; its arguments are validated and coerced, its value becomes a result."""

    async def add(a: int, b: int = 2) -> int:
        return a + b

    result = await run(registry(add), "add", {"a": "40"})
    assert (result.status, result.content, result.parsed_content) == ("COMPLETE", "42", 42)


async def test_decorated_function_stays_a_function() -> None:
    """The decorator leaves the function callable and keeps its options for the registry."""

    @tool(name="math:add", description="Adds.", sequential=True, timeout_s=3)
    async def add(a: int) -> int:
        return a + 1

    assert await add(1) == 2
    found = registry(add).find("math:add")
    assert found is not None and found.sequential and found.timeout_s == 3 and found.spec.description == "Adds."


async def test_options_are_added_to_those_of_a_function() -> None:
    """A second ``tool(...)`` keeps what the first said, an approval above all; a partial or bound method is a copy with its own."""

    class Bank:
        @tool(approval=True, sinks={"amount": "user"})
        @tool(retries=2)
        async def transfer(self, amount: int) -> str:
            """Send money."""
            return f"sent {amount}"

    bank = Bank()
    once = tool_from_function(tool(ends=True)(bank.transfer))
    named = tool_from_function(tool(name="pay", approval=False)(functools.partial(bank.transfer, 5)))
    five = tool_from_function(functools.partial(bank.transfer, 5))
    own = tool_from_function(bank.transfer)
    assert [(each.name, each.approval, each.retries, each.ends) for each in (once, named, five, own)] == [
        ("transfer", True, 2, True),
        ("pay", False, 2, False),
        ("transfer", True, 2, False),
        ("transfer", True, 2, False),
    ]
    assert not five.spec.input_schema["properties"] and (own.sinks, five.sinks) == ({"amount": "user"}, {})


async def test_plain_functions_run_in_a_thread_with_their_call() -> None:
    """A plain function runs off the loop, in a copy of the context: ``current_call`` is its tool's call."""
    seen: list[Any] = []

    def where() -> str:
        seen.append((threading.current_thread() is threading.main_thread(), current_call.get()))
        return "ok"

    result = await run(registry(where), "where", {})
    assert result.content == "ok"
    in_main, call = seen[0]
    assert not in_main and call is not None and current_call.get() is None


async def test_the_call_is_given_to_who_asks() -> None:
    """A parameter annotated CallContext is hidden from the model and filled in."""

    async def who(ctx: CallContext, name: str) -> str:
        return f"{name} at {ctx.path}"

    tools = registry(who)
    found = tools.find("who")
    assert found is not None and list(found.spec.input_schema["properties"]) == ["name"]
    assert (await run(tools, "who", {"name": "me"})).content.startswith("me at 0/")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'count' is missing"),
        ({"count": "many"}, "count: "),
        ({"count": 1, "counts": 2}, "did you mean 'count'?"),
        ([1], "takes an object"),
        ("count", "takes an object"),
    ],
)
async def test_wrong_arguments(arguments: Any, words: str) -> None:
    """Wrong arguments are input_validation_failure, name what is wrong, and the tool does not run."""
    ran: list[int] = []

    async def repeat(count: int) -> None:
        ran.append(count)

    error = error_of(await run(registry(repeat), "repeat", arguments))
    assert error["reason"] == "input_validation_failure" and words in error["message"] and not ran


async def test_symbols_count_as_strings() -> None:
    """A program may give a symbol where text is wanted."""

    async def greet(name: str) -> str:
        return f"hi {name}"

    assert (await run(registry(greet), "greet", {"name": Symbol("you")})).content == "hi you"


async def test_unknown_tool_names_the_nearest() -> None:
    """An unknown tool is a FAILED result that says which was meant."""

    async def search(text: str) -> str:
        return text

    error = error_of(await run(registry(search), "serach", {}))
    assert error["details"]["cause"] == "tool_not_found" and "'search'" in error["message"]


async def test_grants_hold() -> None:
    """A tool that is not granted does not run, and the message says what is."""

    async def erase() -> str:
        raise AssertionError("must not run")

    error = error_of(await run(registry(erase), "erase", {}, FakeRun().call(grants=frozenset({"look"}))))
    assert error["details"]["cause"] == "not_granted" and "look" in error["message"]


async def test_exceptions_become_results() -> None:
    """Any exception of a tool is FAILED, tool_execution_error, and is kept."""

    async def broken() -> None:
        raise ValueError("no luck")

    result = await run(registry(broken), "broken", {})
    assert error_of(result)["reason"] == "tool_execution_error" and "no luck" in result.content
    assert isinstance(result.error, ValueError)


@pytest.mark.parametrize("error", [TaskError("task"), LimitExceeded("limit", limit="steps", allowed=1)])
async def test_errors_that_pass(error: BaseException) -> None:
    """TaskError and LimitExceeded pass as the same object; the tool's Finished event is there."""

    async def broken() -> None:
        raise error

    fake = FakeRun()
    with pytest.raises(type(error)) as caught:
        await run(registry(broken), "broken", {}, fake.call())
    assert caught.value is error
    finished = fake.of(ToolFinished)[0]
    assert finished.outcome == "error"
    assert not fake.unbalanced()


async def test_a_cancellation_passes() -> None:
    """A tool whose task is cancelled ends as cancelled; its Finished event says so."""
    started = asyncio.Event()

    async def waits() -> None:
        started.set()
        await asyncio.sleep(30)

    fake = FakeRun()
    task = asyncio.ensure_future(run(registry(waits), "waits", {}, fake.call()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fake.of(ToolFinished)[0].outcome == "cancelled"
    assert not fake.unbalanced()


async def test_errors_that_pass_leave_a_tools_own_task_group() -> None:
    """A limit or a TaskError inside an exception group of a tool passes as itself; other groups are failures."""
    for error in (LimitExceeded("limit", limit="steps", allowed=1), TaskError("task"), ValueError("mine")):

        async def fail(error: Exception = error) -> None:
            raise error

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(asyncio.sleep(1))

        if isinstance(error, ValueError):
            assert error_of(await run(registry(both), "both", {}))["reason"] == "tool_execution_error"
        else:
            with pytest.raises(type(error)) as caught:
                await run(registry(both), "both", {})
            assert caught.value is error


async def test_time_out() -> None:
    """A tool over its time is execution_timeout; a TimeoutError of its own is not."""

    @tool(timeout_s=0.02)
    async def slow() -> None:
        await asyncio.sleep(5)

    @tool(timeout_s=5)
    async def own() -> None:
        raise TimeoutError("upstream")

    tools = registry(slow, own)
    assert error_of(await run(tools, "slow", {}))["reason"] == "execution_timeout"
    assert error_of(await run(tools, "own", {}))["reason"] == "tool_execution_error"


async def test_time_out_of_a_plain_function_does_not_wait_for_its_thread() -> None:
    """A plain function over its time is left behind: the call returns at once."""
    release = threading.Event()

    @tool(timeout_s=0.05)
    def stuck() -> None:
        release.wait()

    try:
        async with asyncio.timeout(30):
            result = await run(registry(stuck), "stuck", {})
    finally:
        release.set()
    assert error_of(result)["reason"] == "execution_timeout"


async def test_retries() -> None:
    """A failing tool is tried again as often as it says; wrong arguments are not tried again."""
    tries: list[int] = []

    @tool(retries=2)
    async def flaky(n: int) -> str:
        tries.append(n)
        if len(tries) < 3:
            raise OSError("busy")
        return "done"

    result = await run(registry(flaky), "flaky", {"n": 1})
    assert result.content == "done" and result.notes["tool_attempts"] == 3
    tries.clear()
    await run(registry(flaky), "flaky", {"n": "x"})
    assert tries == []


async def test_approval() -> None:
    """A tool that needs approval: the host's own call runs, a granted one is asked about, no approver refuses."""

    @tool(approval=True)
    async def wipe(path: str) -> str:
        return f"wiped {path}"

    tools = registry(wipe)
    assert (await run(tools, "wipe", {"path": "a"})).content == "wiped a"
    granted = frozenset({"wipe"})
    refusing, agreeing = FakeRun(), FakeRun(approve=True)
    refused = await run(tools, "wipe", {"path": "a\x1b[2J"}, refusing.call(grants=granted))
    assert error_of(refused)["details"]["cause"] == "not_approved"
    assert "\x1b" not in refusing.approvals[0].text and refusing.approvals[0].digest
    assert (await run(tools, "wipe", {"path": "b"}, agreeing.call(grants=granted))).content == "wiped b"


async def test_results_are_capped() -> None:
    """A result longer than Limits.output_chars keeps head and tail, and says so."""

    async def long() -> str:
        return "a" * 500 + "b" * 500

    result = await run(registry(long), "long", {}, FakeRun(limits=Limits(output_chars=100)).call())
    assert result.content.startswith("a" * 50) and result.content.endswith("b" * 50) and len(result.content) < 200
    assert result.notes["truncated"] == {"characters": 1000, "limit": 100}


async def test_events() -> None:
    """A call is a ToolStarted with name and arguments and one ToolFinished with the result."""

    async def add(a: int) -> int:
        return a

    fake = FakeRun()
    await registry(add).execute("add", {"a": 1}, fake.call(), call_id="c1")
    started, finished = fake.of(ToolStarted)[0], fake.of(ToolFinished)[0]
    assert (started.name, started.arguments, started.call_id) == ("add", {"a": 1}, "c1")
    assert finished.result.content == "1" and finished.outcome == "ok" and finished.call_id == "c1"


class TestSpecificationRegistration:
    """``register`` takes the specification's dict and an executor of one dict."""

    SPEC = {  # noqa: RUF012
        "name": "echo",
        "description": "Echoes.",
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }

    @pytest.mark.parametrize(
        ("value", "content", "parsed"),
        [
            ("plain", "plain", None),
            ({"n": 1}, '{"n": 1}', {"n": 1}),
            ([1, 2], "[1, 2]", [1, 2]),
            (None, "", None),
            ({"status": "COMPLETE", "content": "c", "notes": {"k": 1}}, "c", None),
            (TaskResult.complete("r"), "r", None),
        ],
    )
    async def test_any_value(self, value: Any, content: str, parsed: Any) -> None:
        """Executors give TaskResults, dicts in their shape or any plain value; async or plain alike."""

        async def later(params: dict[str, Any]) -> Any:
            return value

        def now(params: dict[str, Any]) -> Any:
            return value

        for executor in (later, now, lambda params: later(params)):
            tools = ToolRegistry()
            tools.register(self.SPEC, executor)
            result = await run(tools, "echo", {"text": "x"})
            assert (result.status, result.content, result.parsed_content) == ("COMPLETE", content, parsed)
            assert tools.executors["echo"] is executor and tools.specs["echo"] == self.SPEC

    async def test_schema_is_checked(self) -> None:
        """Arguments that miss the schema do not reach the executor."""
        tools = ToolRegistry()
        tools.register(self.SPEC, lambda params: pytest.fail("must not run"))
        assert "text: is 5" in error_of(await run(tools, "echo", {"text": 5}))["message"]
        assert "'text' is missing" in error_of(await run(tools, "echo", {}))["message"]

    async def test_replaced(self) -> None:
        """Registering a name again replaces it."""
        tools = ToolRegistry()
        tools.register(self.SPEC, lambda params: "first")
        tools.register(self.SPEC, lambda params: "second")
        assert (await run(tools, "echo", {"text": ""})).content == "second" and tools.names() == ["echo"]

    @pytest.mark.parametrize(
        ("spec", "executor"),
        [
            ({}, str),
            ({"name": ""}, str),
            ({"name": 5}, str),
            ({"name": "x"}, None),
            ({"name": "x", "input_schema": []}, str),
            ({"name": "x", "input_schema": {"type": "string"}}, str),
            ({"name": "x", "timeout_s": -1}, str),
        ],
    )
    def test_bad_specs(self, spec: dict[str, Any], executor: Any) -> None:
        """A spec that cannot be one is a ConfigurationError that says why."""
        with pytest.raises(ConfigurationError):
            ToolRegistry().register(spec, executor)

    async def test_second_parameter_may_be_the_call(self) -> None:
        """An executor that declares a CallContext as second parameter gets it."""

        async def where(params: dict[str, Any], ctx: CallContext) -> str:
            return ctx.path

        tools = ToolRegistry()
        tools.register({"name": "where"}, where)
        assert (await run(tools, "where", {})).content.startswith("0/")


async def test_ready_tools() -> None:
    """A Tool object registers as it is; its call gets the arguments and the call."""

    async def call(arguments: dict[str, Any], ctx: CallContext) -> str:
        return f"{arguments['x']} {ctx.host_authority}"

    made = Tool(spec=ToolSpec("t", "", {"type": "object", "properties": {"x": {"type": "integer"}}}), call=call)
    assert (await run(registry(made), "t", {"x": 1})).content == "1 True"


async def test_subtask_tool() -> None:
    """A subtask tool is shown as a CONTINUATION that carries the request; its result is the subtask's."""
    run_ = FakeRun()
    tools = registry(
        subtask_tool(
            "research", "Look into it.", template="researcher", parameters={"topic": "string", "depth?": "integer"}
        )
    )
    result = await run(tools, "research", {"topic": "bees"}, run_.call())
    assert (result.status, result.content) == ("COMPLETE", "subtask researcher done")
    ((request, _),) = run_.subtasks
    assert (request.name, request.inputs) == ("researcher", {"topic": "bees"})
    (finished,) = [event for event in run_.events if isinstance(event, ToolFinished)]
    assert finished.result is not None and finished.result.notes["subtask_request"] == request
    assert error_of(await run(tools, "research", {"depth": 1}))["reason"] == "input_validation_failure"


async def test_user_input_tool() -> None:
    """The user is asked through the callback, async or plain, and the answer is the result."""

    async def later(question: str) -> str:
        return f"{question} yes"

    for ask in (later, lambda question: f"{question} yes"):
        assert (await run(registry(user_input_tool(ask)), "request_user_input", {"prompt": "go?"})).content == "go? yes"


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": "1"}, {"retries": -1}, {"retries": "2"}])
def test_options_out_of_range(options: dict[str, Any]) -> None:
    """Options out of range are refused where they are written."""
    with pytest.raises(ConfigurationError):
        tool(**options)


def test_functions_that_cannot_be_tools() -> None:
    """Positional parameters, lambdas without a name and types without a schema are ConfigurationErrors."""

    def star(*values: int) -> None: ...
    def odd(thing: threading.Event) -> None: ...

    for function in (star, odd, lambda x: x):
        with pytest.raises(ConfigurationError):
            registry(function)
