"""``/mcp``: the MCP SDK's own client calls exports as tools over TCP, in both revisions of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, tool
from agentflow.serve import Export
from tests.support.serve_clients import keys_of, mcp_client, text_of
from tests.support.served import served

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import mcp_types as types
from mcp.shared.exceptions import MCPError

CAPITAL = '(defatom capital (params (country)) (instructions "Capital of {{country}}?")) (value-of (capital (country message)))'


@pytest.fixture(params=["2026-07-28", pytest.param("legacy", marks=pytest.mark.slow)])
def mode(request: pytest.FixtureRequest) -> str:
    """Both revisions of the protocol."""
    return str(request.param)


async def test_exports_are_tools(mode: str) -> None:
    """With their schemas; a call gives text, and data that says which run it was; what does not fit is the tool's error."""
    exports = {
        "capital": Export(program=CAPITAL, description="Name a capital."),
        "add two": Export(program="(+ a b)", parameters={"a": "integer", "b": {"type": "integer", "default": 2}}),
        "failing": '(raise "no such thing")',
    }
    async with AgentFlow(provider=ScriptedProvider(lambda request: "Paris.")) as flow, served(flow, exports) as server:
        async with mcp_client(server, mode) as client:
            assert (client.protocol_version == "2026-07-28") == (mode != "legacy")
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert list(tools) == ["capital", "add_two", "failing"] and all(each.description for each in tools.values())
            assert tools["capital"].description == "Name a capital."
            schema = tools["add_two"].input_schema
            assert schema["required"] == ["a"] and schema["properties"] == {
                "a": {"type": "integer"},
                "b": {"type": "integer"},
            }
            answer = await client.call_tool("capital", {"message": "France"})
            assert text_of(answer) == "Paris." and not answer.is_error
            [run] = server.runs
            data = answer.structured_content
            assert data["value"] == "Paris." and data["run_id"] == run.run_id and data["usage"]["output_tokens"] > 0
            assert (await client.call_tool("add_two", {"a": 1})).structured_content["value"] == 3
            wrong = await client.call_tool("add_two", {"a": "x"})
            assert wrong.is_error and "'a'" in text_of(wrong) and "tasks/bad-parameter" in text_of(wrong)
            failing = await client.call_tool("failing", {"message": ""})
            assert failing.is_error and "no such thing" in text_of(failing) and "line 1" in text_of(failing)
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("none", {})


async def test_runs_and_the_language_are_resources(mode: str) -> None:
    """The events of a run as JSON lines, which the list does not name; the card of the language, which the prompt holds too."""
    async with AgentFlow() as flow, served(flow, {"add": Export(program="(+ 1 2)", parameters={})}) as server:
        async with mcp_client(server, mode) as client:
            run_id = (await client.call_tool("add", {})).structured_content["run_id"]
            uris = [each.uri for each in (await client.list_resources()).resources]
            assert uris == ["agentflow://language"]
            [template] = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "agentflow://runs/{id}"
            [events] = (await client.read_resource(f"agentflow://runs/{run_id}")).contents
            kinds = [json.loads(line)["type"] for line in events.text.splitlines()]  # type: ignore[union-attr]
            assert kinds[0] == "run_started" and kinds[-1] == "run_finished"
            [card] = (await client.read_resource(uris[0])).contents
            prompt = await client.get_prompt("write_workflow", {"goal": "Sum the lines."})
            [message] = prompt.messages
            assert card.text in message.content.text and "Sum the lines." in message.content.text  # type: ignore[union-attr]
            for uri in ("agentflow://runs/none", "file:///etc/passwd"):
                with pytest.raises(MCPError, match="not found"):
                    await client.read_resource(uri)
            with pytest.raises(MCPError, match="goal"):
                await client.get_prompt("write_workflow", {})


async def test_sent_programs_are_run_where_the_server_takes_them(mode: str) -> None:
    """Untrusted, with what was allowed; what is wrong with one is said with its line."""

    @tool
    def double(n: int) -> int:
        """Double it."""
        return n * 2

    @tool
    def secret() -> str:
        """Not for everybody."""
        return "secret"

    async with AgentFlow(tools=[double, secret]) as flow:
        async with served(flow, {"x": "(+ 1 2)"}) as server, mcp_client(server, mode) as client:
            assert "run_program" not in [each.name for each in (await client.list_tools()).tools]
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("run_program", {"program": "1"})
        async with served(flow, {}, programs=["double"]) as server, mcp_client(server, mode) as client:
            assert [each.name for each in (await client.list_tools()).tools] == ["run_program"]
            program = "(value-of (double (n count)))"
            answer = await client.call_tool("run_program", {"program": program, "bindings": {"count": 4}})
            assert answer.structured_content["value"] == 8
            for program, code, where in (
                ("(+ 1\n  nothing)", "name/unbound", "line 2"),
                ("(secret)", "name/", "line 1"),
            ):
                wrong = await client.call_tool("run_program", {"program": program})
                assert wrong.is_error and code in text_of(wrong) and where in text_of(wrong), text_of(wrong)
            several = await client.call_tool("run_program", {"program": "(list one\n  two)"})
            assert ["line 1" in each or "line 2" in each for each in text_of(several).splitlines()] == [True, True]
            wrong = await client.call_tool("run_program", {"program": 3})
            assert wrong.is_error and "serve/field" in text_of(wrong)


async def test_progress_tells_what_begins_and_ends(mode: str) -> None:
    """A rising count, and the task or tool in words, with the branch it is in."""

    told = {"tool step": asyncio.Event(), " of 3": asyncio.Event()}

    @tool
    async def step(until: str) -> str:
        """Take as long as the client is not told."""
        await told[until].wait()
        return until

    said: list[tuple[float, str]] = []

    async def take(progress: float, total: float | None, message: str | None) -> None:
        said.append((progress, message or ""))
        for words, event in told.items():
            if words in said[-1][1]:
                event.set()

    async with AgentFlow(tools=[step]) as flow:
        program = '(begin (step (until "tool step")) (length (pmap (lambda (n) (step (until " of 3"))) (range 3))))'
        async with served(flow, {"steps": program}) as server, mcp_client(server, mode) as client:
            answer = await client.call_tool("steps", {"message": ""}, progress_callback=take)
            assert answer.structured_content["value"] == 3
    assert said and said[0][1].startswith("tool step")
    assert [each for each, _ in said] == sorted({each for each, _ in said}), "it only rises"


async def test_a_cancelled_call_cancels_its_run(mode: str) -> None:
    """The tool inside is cancelled, the run has ended before the call has, and the connection goes on working."""
    began, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def nap() -> str:
        """Sleep."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "slept"

    async with AgentFlow(tools=[nap]) as flow:
        exports = {"nap": "(content (nap))", "add": Export(program="(+ 1 2)", parameters={})}
        async with served(flow, exports) as server, mcp_client(server, mode) as client:
            calling = asyncio.create_task(client.call_tool("nap", {"message": ""}))
            await began.wait()
            calling.cancel()
            await asyncio.wait([calling])
            await asyncio.wait_for(ended.wait(), 10)
            [run] = server.runs
            await run.wait()
            assert run.status == "cancelled" and run.key.active == 0
            assert (await client.call_tool("add", {})).structured_content["value"] == 3


class Asked:
    """A client's user: answers forms as they come."""

    def __init__(self, *replies: types.ElicitResult) -> None:
        self.replies = list(replies)
        self.forms: list[types.ElicitRequestFormParams] = []

    async def __call__(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.forms.append(params)
        return self.replies.pop(0) if self.replies else types.ElicitResult(action="decline")


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


async def test_approvals_are_elicited(mode: str) -> None:
    """A form shows what is approved; a yes does it, anything else and a client without forms do not."""
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    program = '(let ((r (pay (amount 7)))) (if (failed? r) "refused" (content r)))'
    async with AgentFlow(tools=[pay]) as flow:
        async with served(flow, {"pay": Export(program=program, parameters={}, allow=["pay"])}) as server:
            for replies, value in (
                ([accept(approve=True)], "paid"),
                ([accept(approve=False)], "refused"),
                ([accept(approve="true")], "refused"),
                ([types.ElicitResult(action="decline")], "refused"),
                ([types.ElicitResult(action="cancel")], "refused"),
            ):
                user = Asked(*replies)
                async with mcp_client(server, mode, elicitation_callback=user) as client:
                    answer = await client.call_tool("pay", {})
                assert answer.structured_content["value"] == value and len(user.forms) == 1
                assert "pay" in user.forms[0].message and "7" in user.forms[0].message
            async with mcp_client(server, mode) as client:
                assert (await client.call_tool("pay", {})).structured_content["value"] == "refused"
            assert paid == [7] and not server.runs.live


async def test_questions_are_elicited(mode: str) -> None:
    """As forms of the fields that the schema has; what fits no form is JSON text; wrong answers are asked for again."""
    program = """(list (ask-human "Name?" {"type" "string"}) (ask-human "Which?" {"type" "array" "items" {"type" "integer"}})
      (ask-human "Who?" {"type" "object" "properties" {"age" {"type" "integer"}} "required" (list "age")}))"""
    async with AgentFlow() as flow, served(flow, {"ask": Export(program=program, parameters={})}) as server:
        user = Asked(accept(answer="Ada"), accept(answer="no list"), accept(answer="[1, 2]"), accept(age=3))
        async with mcp_client(server, mode, elicitation_callback=user) as client:
            answer = await client.call_tool("ask", {})
            assert answer.structured_content["value"] == ["Ada", [1, 2], {"age": 3}]
            assert list(user.forms[0].requested_schema["properties"]) == ["answer"]
            assert list(user.forms[3].requested_schema["properties"]) == ["age"]
            for replies in ([], [accept(answer=3)] * 3):
                user.replies = replies
                declined = await client.call_tool("ask", {})
                assert declined.is_error and "Name?" in text_of(declined)
        assert not server.runs.live


async def test_branches_may_ask_side_by_side(mode: str) -> None:
    """Each question gets its own answer."""
    program = '(parallel (ask-human "a" {"type" "string"}) (ask-human "b" {"type" "string"}))'

    async def answer(context: object, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        return accept(answer=params.message.upper())

    async with AgentFlow() as flow, served(flow, {"ask": Export(program=program, parameters={})}) as server:
        async with mcp_client(server, mode, elicitation_callback=answer) as client:
            assert (await client.call_tool("ask", {})).structured_content["value"] == ["A", "B"]


async def test_a_call_that_nobody_comes_back_to_is_given_up() -> None:
    """In the newer revision a question ends the request; after the time to answer its run is cancelled, and is no more to be had.

    What a client sends back as the state of a call is believed of the server's own make alone, and of the same call.
    """
    program = '(ask-human "Name?" {"type" "string"})'
    export = {"ask": Export(program=program, parameters={}), "other": Export(program=program, parameters={})}
    async with AgentFlow() as flow, served(flow, export, approval_ttl=1.0) as server:
        async with mcp_client(server, "2026-07-28", elicitation_callback=Asked()) as client:
            asked = await client.session.call_tool("ask", {}, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult)
            [run] = server.runs
            [name] = asked.input_requests or {}
            replies = {name: accept(answer="Ada")}
            for tool_name, state in (("ask", run.run_id), ("other", asked.request_state), ("ask", "v1.AAAA")):
                with pytest.raises(MCPError, match="requestState"):
                    await client.session.call_tool(
                        tool_name, {}, input_responses=replies, request_state=state, allow_input_required=True
                    )
            await asyncio.wait_for(run.wait(), 10)
            assert not server.runs.live and run.key.active == 0
            with contextlib.suppress(MCPError):  # the state is too old by now
                late = await client.session.call_tool(
                    "ask", {}, input_responses=replies, request_state=asked.request_state, allow_input_required=True
                )
                assert isinstance(late, types.CallToolResult) and late.is_error


async def test_requests_that_are_none_are_refused() -> None:
    """Too large, no JSON, nested without end, for another host, from another site: an answer of 400 to 421, and the server goes on."""
    async with AgentFlow() as flow, served(flow, {"add": Export(program="(+ 1 2)", parameters={})}) as server:
        accept = {"accept": "application/json, text/event-stream"}
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": "x" * 5_000_000}},
        }
        cases: list[tuple[dict[str, Any], int]] = [
            ({"json": call}, 413),
            ({"content": b"{", "headers": {"content-type": "application/json", **accept}}, 400),
            ({"content": b"[" * 200_000, "headers": {"content-type": "application/json", **accept}}, 400),
            ({"json": {}, "headers": {"host": "evil.example", **accept}}, 421),
            ({"json": {}, "headers": {"origin": "https://evil.example", **accept}}, 403),
            ({"json": {}, "headers": {"mcp-session-id": "none", **accept}}, 404),
        ]
        for options, status in cases:
            assert (await server.client.post("/mcp", **options)).status_code == status, (options.get("headers"), status)
        async with mcp_client(server, "legacy") as client:
            assert (await client.call_tool("add", {})).structured_content["value"] == 3
        assert len(list(server.runs)) == 1


async def test_calls_under_way_are_told_how_their_runs_ended_when_the_server_stops(mode: str) -> None:
    """Runs are cancelled, and their callers hear so before their connections end."""
    began = asyncio.Event()

    @tool
    async def nap() -> str:
        """Sleep."""
        began.set()
        await asyncio.sleep(60)
        return "slept"

    async with AgentFlow(tools=[nap]) as flow, served(flow, {"nap": "(content (nap))"}) as server:
        with contextlib.suppress(ExceptionGroup):  # the end of a session that is over by then
            async with mcp_client(server, mode) as client:
                calling = asyncio.create_task(client.call_tool("nap", {"message": ""}))
                await began.wait()
                await server.server.aclose()
                ended = await calling
        assert ended.is_error and "run/cancelled" in text_of(ended)
        assert (await server.post("/mcp", {})).status_code == 503


def test_the_sdk_is_imported_by_the_first_request_alone() -> None:
    """It takes more than a second, which a server that nobody asks so does not."""
    program = (
        "import asyncio, sys\nfrom agentflow import AgentFlow\nfrom agentflow.serve import app\n"
        "app(AgentFlow(), {'x': '(+ 1 2)'})\nassert not {'mcp', 'mcp_types'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_keys_bound_what_is_called(mode: str, tmp_path: Path) -> None:
    """Each sees its own tools and runs; a key that has no more is told so by the tool; without one nothing is answered."""
    keys = keys_of(tmp_path, ada='exports = ["echo"]\nruns_per_min = 10', bob="concurrent = 3")
    exports: dict[str, Any] = {"echo": "(string-append message)", "other": "(string-append message)"}
    exports["slow"] = Export(program='(begin (sleep 0.2) "done")', parameters={})
    async with AgentFlow() as flow, served(flow, exports, keys=keys) as server:
        refused = await server.client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert refused.status_code == 401
        async with mcp_client(server, mode, "secret-ada") as ada, mcp_client(server, mode, "secret-bob") as bob:
            assert [each.name for each in (await ada.list_tools()).tools] == ["echo"]
            assert len((await bob.list_tools()).tools) == 3
            with pytest.raises(MCPError):
                await ada.call_tool("other", {"message": "x"})
            run_id = (await ada.call_tool("echo", {"message": "x"})).structured_content["run_id"]
            with pytest.raises(MCPError, match="not found"):
                await bob.read_resource(f"agentflow://runs/{run_id}")
            second = await ada.call_tool("echo", {"message": "x"})
            assert second.is_error and "serve/rate" in text_of(second)
            racing = [bob.call_tool("slow", {}) for _ in range(30)]
            answers = [text_of(each) for each in await asyncio.gather(*racing)]
            assert answers.count("done") >= 3 and len([each for each in answers if "serve/concurrent" in each]) > 0
            assert set(answers) - {"done"} == {each for each in answers if each.startswith("serve/concurrent")}
