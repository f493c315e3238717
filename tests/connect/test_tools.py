"""Tools of an MCP server as tools of the flow, in both revisions of the protocol: a real process, a real wire."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from mcp_types import CallToolResult

from agentflow import AgentFlow, AgentflowError, ApprovalRequest, ConfigurationError, ScriptedProvider
from agentflow.connect.content import parts_of
from agentflow.connect.live import expand
from agentflow.core.data.messages import TextPart
from agentflow.core.events.questions import Question
from agentflow.events import Log, ToolProgress, ToolStarted, Warning
from agentflow.lib.schema.json_schema import check
from agentflow.mcp import McpHttp, McpStdio
from agentflow.testing import explore
from tests.connect.flows import flow_with, seen, server
from tests.support.values import value_of


async def test_what_a_server_gives_is_a_result(root: Path, revision: str) -> None:
    """Text is content, data parsed content, images parts, an error FAILED: the mapping, row by row."""
    async with flow_with(root, server(revision)) as flow:
        assert (await flow.run('(value-of (t:echo (text "hi")))')).value == "hi"
        assert (await flow.run("(value-of (t:add (a 1) (b 2)))")).value == {"sum": 3}
        picture = (await flow.run("(t:picture)")).value
        assert [part.type for part in picture.notes.parts] == ["image", "text"] and "file:///x.txt" in picture.content
        failures = {
            "(t:fail)": ("tool_execution_error", "mcp/tool-error"),
            "(t:refuse)": ("input_validation_failure", "mcp/-32602"),
            "(t:lie)": ("output_format_failure", "mcp/output-schema"),
        }
        for program, (reason, code) in failures.items():
            error = ((await flow.run(program)).value).notes.error
            assert (error.reason, error.details["code"]) == (reason, code), program
        assert (await flow.run('(value-of (t:echo (text "still there")))')).value == "still there"


async def test_programs_models_and_python_call_the_same_tool(root: Path, revision: str) -> None:
    """A model is offered the tools under names its dialect takes, their descriptions marked as the server's words."""
    model = ScriptedProvider([{"tool_calls": [{"name": "t:echo", "arguments": {"text": "by model"}}]}, "done"])
    async with flow_with(root, server(revision), model=None, provider=model) as flow:
        result = await flow.handler.execute_prompt("Say it.")
        assert result.content == "done"
        assert model.requests[-1].messages[-1].parts[0].text == "by model"
        spec = {tool.name: tool for tool in model.requests[0].tools}["t:echo"]
        assert spec.description == "(A tool of the server 't', in that server's words.) Say it again."
        assert not {"t:read_resource", "t:get_prompt"} & {tool.name for tool in model.requests[0].tools}
        assert await flow.call_tool("t:echo", text="by Python") == "by Python"


async def test_a_server_among_the_tools_of_a_task(root: Path, revision: str) -> None:
    """``tools=[server]`` offers all tools of that server, and nothing else; a server that the flow does not have is refused."""
    model, mine = ScriptedProvider(lambda request: "done"), server(revision)
    async with flow_with(root, mine, model=None, provider=model) as flow:

        @flow.tool
        async def other() -> str:
            return ""

        await flow.ask("Say it.", tools=[mine])
        names = [tool.name for tool in model.requests[0].tools]
        assert "t:echo" in names and all(name.startswith("t:") for name in names)
        with pytest.raises(ConfigurationError, match="no connection"):
            flow.ask("Say it.", tools=[server(revision, name="u")])


@pytest.mark.parametrize(
    ("approval", "name", "expected"), [("all", "echo", "t:echo"), ("writes", "sample", "t:sampling")]
)
async def test_servers_ask_below_a_model(root: Path, revision: str, approval: str, name: str, expected: str) -> None:
    """A tool of a server, and a server's question to the model, are asked for where host code in a tool of a model makes the call."""
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.tool)
        return False

    model = ScriptedProvider([{"tool_calls": [{"name": "act"}]}, "end"])
    servers = server(revision, approve=approval, sampling=True)
    async with flow_with(root, servers, model=None, provider=model, approve=approve) as flow:

        async def act() -> str:
            """Call a tool of the server."""
            try:
                return str(await flow.call_tool(f"t:{name}", text="x"))
            except AgentflowError as error:
                return error.code

        await flow.ask("Go.", tools=[act])
    assert asked == [expected]


async def test_resources_and_prompts_are_tools_where_they_are_named(root: Path, revision: str) -> None:
    """``read_resource``, ``list_resources`` and ``get_prompt`` of a server are built-in tools."""
    async with flow_with(root, server(revision)) as flow:
        assert ((await flow.run("(value-of (t:list_resources))")).value)[0]["uri"] == "note://1"
        assert (await flow.run('(value-of (t:read_resource (uri "note://1")))')).value == "text of note://1"
        prompt = (await flow.run('(t:get_prompt (name "review") (arguments (dict "what" "it all")))')).value
        assert prompt.content == "Review it all." and prompt.parsed_content[0]["role"] == "user"


async def test_resources_and_prompts_are_of_the_declared_shape(root: Path, revision: str) -> None:
    """What these three give for real keeps to the shape that they declare, from which exploration takes their answers."""
    async with flow_with(root, server(revision)) as flow:
        calls = {
            "t:list_resources": "(t:list_resources)",
            "t:read_resource": '(t:read_resource (uri "note://1"))',
            "t:get_prompt": '(t:get_prompt (name "review") (arguments (dict "what" "it all")))',
        }
        for name, call in calls.items():
            facts = flow.facts.tool(name)
            assert facts is not None and facts.returns
            assert check((await flow.run(f"(value-of {call})")).value, dict(facts.returns)) == [], name
        explored = await explore("(first (value-of (t:list_resources)))", flow=flow)
        assert [each.code for each in explored.errors] == ["list/empty"]


async def test_the_tools_of_a_server_may_be_found_by_searching(root: Path, revision: str) -> None:
    """``defer_loading=True`` of a server: its tools are not sent before the model has found them; programs call them as ever."""
    model = ScriptedProvider(
        [
            {"tool_calls": [{"name": "search_tools", "arguments": {"query": "say again"}}]},
            {"tool_calls": [{"name": "t:echo", "arguments": {"text": "found"}}]},
            lambda request: request.messages[-1].parts[0].text,
        ]
    )
    mine = server(revision, defer_loading=True)
    async with flow_with(root, mine, model=None, provider=model) as flow:
        assert await flow.ask("Say it.", tools=[mine]) == "found"
        assert (await flow.run('(value-of (t:echo (text "hi")))')).value == "hi"
    sent = [[tool.name for tool in request.tools] for request in model.requests]
    assert sent[0] == ["search_tools"] and "t:echo" in sent[1]
    with pytest.raises(ConfigurationError, match="defer_loading="):
        server(revision, defer_loading="yes")


async def test_only_allowed_tools_are_let_in(root: Path) -> None:
    """``allow`` are patterns of names; arguments are checked before anything is sent."""
    async with flow_with(root, server(allow=["ec*", "add"])) as flow:
        assert {name for name in flow.tools.names() if name.startswith("t:")} >= {"t:echo", "t:add"}
        assert flow.tools.find("t:write") is None
        error = ((await flow.run('(t:add (a "one") (b 2))')).value).notes.error
        assert error.reason == "input_validation_failure" and "integer" in error.message


@pytest.mark.parametrize(("approve", "asked"), [("writes", ["t:write"]), ("all", ["t:echo", "t:write"]), ("none", [])])
async def test_what_waits_for_a_yes(root: Path, approve: Any, asked: list[str]) -> None:
    """Calls of models to what does not say it only reads wait for a yes, which is bound to what the tool was said to be."""
    requests: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        requests.append(request)
        return True

    program = '(list (t:echo (text "a")) (t:write (text "b")))'
    async with flow_with(root, server(approve=approve), approve=approver) as flow:
        await flow.run(program, allow=["t:echo", "t:write"])
        assert [request.tool for request in requests] == asked
        await flow.run(program)  # the host's own calls need none
        assert [request.tool for request in requests] == asked
    if asked:
        assert "MCP server 't', which describes it as: Change something." in requests[-1].text


async def test_progress_and_logs_are_events_of_the_tool(root: Path, revision: str) -> None:
    """What a server says of a call stands at the path of the call; a flood of it is cut off with a warning."""
    async with flow_with(root, server(revision)) as flow:
        _, events = await seen(flow, "(begin (t:progress) (t:log (times 2)))")
        paths = {event.name: event.path for event in events if isinstance(event, ToolStarted)}
        steps = [event for event in events if isinstance(event, ToolProgress)]
        assert [(step.progress, step.total, step.message) for step in steps] == [(1, 2, "step 1"), (2, 2, "step 2")]
        assert {step.path for step in steps} == {paths["t:progress"]}
        logs = [event for event in events if isinstance(event, Log)]
        assert [(log.message, log.level) for log in logs] == [("line 0", "warning"), ("line 1", "warning")]
        _, events = await seen(flow, "(t:log (times 500))")
        assert len([event for event in events if isinstance(event, Log)]) == 200
        assert [event.code for event in events if isinstance(event, Warning)] == ["mcp/logs-too-much"]


async def test_a_server_asks_the_user_through_the_run(root: Path, revision: str) -> None:
    """A form is a question with a schema, an address one whether it was opened; what nobody answers is declined."""
    asked: list[Question] = []

    def answer(question: Question) -> Any:
        asked.append(question)
        return True if "http" in question.question else {"count": 3}

    async with flow_with(root, server(revision), answer=answer) as flow:
        reply = json.loads((await flow.run("(value-of (t:ask))")).value)
        assert (reply["action"], reply["content"]) == ("accept", {"count": 3})
        reply = json.loads((await flow.run('(value-of (t:ask (url "http://example.com/in")))')).value)
        assert reply["action"] == "accept" and not reply.get("content")
    assert "The MCP server 't' asks: How many?" in asked[0].question
    assert "open http://example.com/in yourself: Sign in." in asked[1].question
    async with flow_with(root, server(revision)) as flow:
        value, events = await seen(flow, "(value-of (t:ask))")
        assert json.loads(value)["action"] == "decline"
        assert "mcp/declined" in [event.code for event in events if isinstance(event, Warning)]


async def test_a_question_that_is_taken_back_is_taken_from_whom_it_was_asked(root: Path) -> None:
    """Whoever thinks of an answer is told at once, and the call goes on; in the older revision, the other has no such message."""
    ends: list[str] = []

    async def answer(question: Question) -> Any:
        (root / "seen").touch()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("taken back")
            raise

    async with flow_with(root, server("old"), answer=answer) as flow:
        asking = "(value-of (t:take_back (seen path)))"
        assert (await flow.run(asking, bindings={"path": str(root / "seen")})).value == "nobody need answer"
        assert ends == ["taken back"]
        assert (await flow.run('(value-of (t:echo (text "again")))')).value == "again"


@pytest.mark.slow
async def test_waiting_for_an_answer_takes_none_of_the_servers_time(root: Path, revision: str) -> None:
    """The time-out of a request stands still while somebody thinks."""

    async def answer(question: Question) -> Any:
        await asyncio.sleep(0.5)
        return {"count": 1}

    async with flow_with(root, server(revision, timeout_s=0.4), answer=answer) as flow:
        assert json.loads((await flow.run("(value-of (t:ask))")).value)["action"] == "accept"


async def test_what_is_cancelled_ends_at_the_server_too(root: Path, revision: str) -> None:
    """A time-out of the server's, one of the program's, and a cancelled run: the server is told, the connection lives on."""
    async with flow_with(root, server(revision, timeout_s=0.1)) as flow:
        error = ((await flow.run("(t:slow (seconds 30))")).value).notes.error
        assert (error.reason, error.details["code"]) == ("execution_timeout", "mcp/timeout")
        assert json.loads((await flow.run("(value-of (t:state))")).value)["cancelled"] == 1
    async with flow_with(root, server(revision)) as flow:
        await flow.run("(guard (e (true nil)) (timeout 0.1 (t:slow (seconds 30))))")
        run = asyncio.create_task(value_of(flow.run("(parallel (t:slow (seconds 30)) (t:slow (seconds 30)))")))
        while json.loads((await flow.run("(value-of (t:state))")).value)["calls"] < 4:
            await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert json.loads((await flow.run("(value-of (t:state))")).value)["cancelled"] == 3


@pytest.mark.slow
async def test_two_hundred_calls_at_once(root: Path, revision: str) -> None:
    """Calls of one connection run side by side, and leave no task behind."""
    before = asyncio.all_tasks()
    async with flow_with(root, server(revision)) as flow:
        values = (await flow.run("(pmap (lambda (n) (value-of (t:echo (text (number->string n))))) (range 200))")).value
        assert values == [str(number) for number in range(200)]
    assert asyncio.all_tasks() == before


async def test_a_list_that_changes_is_told_to_the_next_run(root: Path, revision: str) -> None:
    """New tools are there, gone ones are not, and a changed one waits for a yes even if it says that it only reads."""
    asked: list[str] = []
    async with flow_with(
        root, server(revision), approve=lambda request: bool(asked.append(request.tool)) or True
    ) as flow:
        await flow.run('(t:echo (text "a"))', allow=["t:echo"])
        assert asked == []
        await flow.run("(t:grow)")
        while flow.tools.find("t:new") is None:
            await asyncio.sleep(0.01)
        value, events = await seen(flow, '(value-of (t:new (text "b")))')
        warnings = [event for event in events if isinstance(event, Warning)]
        assert value == "b" and [event.code for event in warnings] == ["mcp/tools-changed"]
        assert "added new; removed lie; changed echo" in warnings[0].message
        assert flow.tools.find("t:lie") is None
        _, events = await seen(flow, '(t:echo (text "c"))', allow=["t:echo"])
        assert asked == ["t:echo"] and not [event for event in events if isinstance(event, Warning)]


CHANGES: list[dict[str, Any]] = [
    {"title": "Deletes a file."},
    {"description": "Deletes a file."},
    {"inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}},
    {"annotations": {"idempotentHint": True}},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
async def test_a_tool_that_changes_while_its_approval_is_open_is_not_called(root: Path, change: dict[str, Any]) -> None:
    """A yes is to what was shown, whatever part of it the server changes; the next run is shown the tool as it is now."""
    changed = asyncio.Event()
    texts: list[str] = []

    async def approver(request: ApprovalRequest) -> bool:
        texts.append(request.text)
        if not changed.is_set():
            changed.set()
            before = flow.tools.find("t:turncoat")
            await flow.call_tool("t:change", **change)
            async with asyncio.timeout(5):
                while flow.tools.find("t:turncoat") is before:
                    await asyncio.sleep(0.01)
        return True

    async with flow_with(root, server("new"), approve=approver) as flow:
        error = ((await flow.run("(t:turncoat)", allow=["t:turncoat"])).value).notes.error
        assert (error.reason, error.details["code"]) == ("tool_execution_error", "mcp/changed")
        calls = json.loads(await flow.call_tool("t:state"))["calls"]
        assert calls == 2, "those of change and of state"
        value, events = await seen(flow, "(value-of (t:turncoat))", allow=["t:turncoat"])
        assert value == "written" and len(texts) == 2 and "Reads a file." in texts[0]
        told = [event.message for event in events if isinstance(event, Warning)]
        assert len(told) == 1 and "changed turncoat" in told[0]


@pytest.mark.slow
async def test_a_server_that_keeps_dying_is_left_alone_for_longer(root: Path) -> None:
    """A call does not wait for a server longer than its own time: it fails at once, and starts nothing. An answer ends the wait's growth."""
    async with flow_with(root, server("new", timeout_s=0.2, connect_s=10)) as flow:
        for _ in range(2):
            assert ((await flow.run("(t:die_writing)")).value).notes.error.details["code"] == "mcp/connection-lost"
            for _ in range(2):
                error = ((await flow.run("(t:echo)")).value).notes.error
                assert error.details["code"] == "mcp/down" and "failed 1 times in a row" in error.message
            async with asyncio.timeout(10):
                while ((await flow.run("(t:echo)")).value).failed:
                    await asyncio.sleep(0.02)


async def test_older_servers_that_are_programs_are_told_the_roots(root: Path) -> None:
    """A server of the older revision that asks gets the flow's roots as addresses."""
    odd = root.parent / "a b#c?d%20"
    os.rename(root, odd)
    async with flow_with(odd, server("old")) as flow:
        told = json.loads(await flow.call_tool("t:roots"))
    (address,) = [each["uri"] for each in told["roots"]]
    assert unquote(urlsplit(address).path) == str(odd)


PNG, WAV = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(), base64.b64encode(b"RIFF\0\0\0\0WAVE").decode()
CONTENTS: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "audio", "data": WAV, "mimeType": "audio/wav"}, "audio", ""),
    ({"type": "image", "data": PNG, "mimeType": "image/png"}, "image", ""),
    ({"type": "image", "data": "no base64!", "mimeType": "image/png"}, "text", "[content: image/png, 0 bytes]"),
    ({"type": "audio", "data": WAV, "mimeType": "audio/x-odd"}, "text", "[content: audio/x-odd, 12 bytes]"),
    ({"type": "resource", "resource": {"uri": "a://x.png", "blob": PNG, "mimeType": "image/png"}}, "image", ""),
    (
        {"type": "resource", "resource": {"uri": "a://x.zip", "blob": PNG, "mimeType": "application/zip"}},
        "text",
        "[a://x.zip: application/zip, 8 bytes]",
    ),
    ({"type": "resource", "resource": {"uri": "a://\x1b[2J", "blob": "!", "mimeType": "\x1b"}}, "text", "\\x1b"),
    ({"type": "resource", "resource": {"uri": "a://x", "text": "words"}}, "text", "words"),
    ({"type": "resource_link", "uri": "a://x", "name": "x", "description": "of it"}, "text", "[x] a://x: of it"),
]


@pytest.mark.parametrize(("block", "kind", "said"), CONTENTS)
async def test_contents_of_each_kind(block: dict[str, Any], kind: str, said: str) -> None:
    """Sound, images and documents that models take are parts; what is none of them, or cannot be read, is a line of text."""
    answer = CallToolResult.model_validate({"content": [block]})
    (part,) = await parts_of(answer.content)
    assert part.type == kind
    if isinstance(part, TextPart):
        assert said in part.text and "\x1b" not in part.text


def test_variables_in_what_a_server_is_given() -> None:
    """``$NAME`` and ``${NAME}`` are variables, ``$$`` a dollar; each value is a secret, and one that is not set an error."""
    secrets: list[str] = []
    table = {"A": "$ONE", "B": "${ONE}${TWO}/$TWO_", "C": "$$ONE 5$ $1", "Authorization": "Bearer literal-token"}
    environ = {"ONE": "first-value", "TWO": "second-value", "TWO_": "third-value", "EMPTY": ""}
    assert expand(table, environ, secrets.append, "t") == {
        "A": "first-value",
        "B": "first-valuesecond-value/third-value",
        "C": "$ONE 5$ $1",
        "Authorization": "Bearer literal-token",
    }
    assert {"first-value", "second-value", "third-value", "literal-token"} <= set(secrets)
    for missing in ("$EMPTY", "${NOT_SET}"):
        with pytest.raises(ConfigurationError) as caught:
            expand({"A": missing}, environ, secrets.append, "t")
        assert caught.value.code == "mcp/variable" and missing.strip("${}") in caught.value.message


@pytest.mark.slow
async def test_a_dead_server_is_started_again(root: Path, revision: str, tmp_path: Path) -> None:
    """A call that only reads is repeated; another one fails, with the last that the program said. The next call works."""
    once = str(root / "died")
    async with flow_with(root, server(revision, writable=["."])) as flow:
        value, events = await seen(flow, "(value-of (t:die (once path)))", bindings={"path": once})
        assert value == "alive"
        assert [event.code for event in events if isinstance(event, Warning)] == ["mcp/reconnected"]
        error = ((await flow.run("(t:die_writing)")).value).notes.error
        assert (error.reason, error.details["code"]) == ("connection_error", "mcp/connection-lost")
        assert error.details["stderr"] == "a last word\n" and "exited with code 3" in error.message
        assert (await flow.run('(value-of (t:echo (text "again")))')).value == "again"


async def test_servers_that_cannot_be_connected(root: Path) -> None:
    """An absent program, one that ends, and one that says nothing are errors that quote it; optional ones a warning."""
    (root / "ends.py").write_text("import sys\nsys.exit('no licence here')")
    (root / "hangs.py").write_text("import time\ntime.sleep(60)")
    absent = McpStdio("absent", ["no-such-program-anywhere"])
    cases = [
        (absent, "no-such-program-anywhere"),
        (server(script="ends.py", name="ends"), "no licence here"),
        (server(script="hangs.py", name="hangs", connect_s=0.2), "did not answer within 0.2 s"),
    ]
    for each, said in cases:
        with pytest.raises(AgentflowError, match=said):
            async with flow_with(root, each):
                pass
    ends = server(script="ends.py", name="ends", optional=True)
    async with flow_with(root, ends, server()) as flow:
        value, events = await seen(flow, '(value-of (t:echo (text "alone")))')
        assert value == "alone" and [event.code for event in events if isinstance(event, Warning)] == ["mcp/down"]


async def test_a_flow_that_nobody_entered_connects_when_asked(root: Path) -> None:
    """``connect`` is what ``async with`` does; closing takes the tools away, from any task."""
    flow = AgentFlow(root=root, model="offline", sandbox="none", mcp=[server()])
    assert flow.tools.find("t:echo") is None
    await flow.connect()
    await flow.connect()
    assert (await flow.run('(value-of (t:echo (text "hi")))')).value == "hi"
    await asyncio.create_task(flow.aclose())
    assert flow.tools.find("t:echo") is None


def test_descriptions_that_cannot_be_are_refused() -> None:
    """A name that means something else, a command that is one text, an address with a password: errors that say what to write."""
    wrong = [
        lambda: McpStdio("system", ["x"]),
        lambda: McpStdio("files", ["x"]),
        lambda: McpStdio("two words", ["x"]),
        lambda: McpStdio("t", "npx server"),  # type: ignore[arg-type]
        lambda: McpStdio("t", []),
        lambda: McpStdio("t", ["x"], timeout_s=0),
        lambda: McpStdio("t", ["x"], approve="sometimes"),  # type: ignore[arg-type]
        lambda: McpStdio("t", ["x"], env={"A": 1}),  # type: ignore[dict-item]
        lambda: McpHttp("t", "ftp://example.com"),
        lambda: McpHttp("t", "https://me:secret@example.com/mcp"),
        lambda: AgentFlow(mcp=[McpStdio("t", ["x"]), McpStdio("t", ["y"])]),
    ]
    for build in wrong:
        with pytest.raises(ConfigurationError) as caught:
            build()
        assert caught.value.code == "mcp/server" and caught.value.hint and "secret@" not in str(caught.value)
    assert "abc123" not in repr(McpHttp("t", "https://example.com", headers={"Authorization": "abc123"}))


@pytest.mark.slow
async def test_a_question_of_a_server_can_wait_outside_of_the_memory(root: Path, revision: str, tmp_path: Path) -> None:
    """In a durable run a server's question is a record: the run is suspended, answered from elsewhere, and gone on with."""
    options: dict[str, Any] = {"durable": f"sqlite:///{tmp_path / 'runs.db'}"}
    async with flow_with(root, server(revision), **options) as flow:
        handle = await flow.start("(value-of (t:ask))", run_id="asks")
        assert await handle.wait() == "waiting"
        (question,) = await flow.questions("asks")
        assert "How many?" in question.question
    async with flow_with(root, server(revision), **options) as flow:
        await flow.send("asks", question.key, {"count": 5})
        handle = await flow.resume("asks")
        reply = json.loads((await handle.result()).value)
        assert (reply["action"], reply["content"]) == ("accept", {"count": 5})


async def test_a_run_keeps_the_tools_it_began_with(root: Path, revision: str) -> None:
    """A list that changes while a run goes on changes nothing for it: not what a model is offered, not what a name calls."""
    calls = [{"name": name, "arguments": {"text": "x"}} for name in ("t:new", "t:echo")]
    model = ScriptedProvider([{"tool_calls": calls}, "done", "next"])
    prompt = '(defatom use (params) (instructions "Use them.")) (use)'

    async def changed() -> str:
        """Wait until the flow has the new list."""
        while flow.tools.find("t:new") is None:
            await asyncio.sleep(0.01)
        return "changed"

    async with flow_with(root, server(revision), model=None, provider=model, tools=[changed]) as flow:
        _, events = await seen(flow, f"(t:grow) (changed) {prompt} (t:lie)")
        names = {spec.name: spec.description for spec in model.requests[0].tools}
        assert "t:lie" in names and "t:new" not in names and names["t:echo"].endswith("Say it again.")
        unknown, echoed = model.requests[1].messages[-1].parts
        assert "there is no tool 't:new'" in unknown.text and echoed.text == "x"
        assert [event.name for event in events if isinstance(event, ToolStarted)][-1] == "t:lie"
        await flow.run(prompt)
        names = {spec.name: spec.description for spec in model.requests[2].tools}
        assert "t:new" in names and "t:lie" not in names and names["t:echo"].endswith("Say something else.")


async def test_an_optional_server_that_was_away_is_tried_again(root: Path) -> None:
    """Its tools are there for the runs that begin once it is, which are told so; closing ends the tries."""
    (root / "late.py").write_text(
        "import os, runpy, sys\nif not os.path.exists('open'): sys.exit('not yet')\nrunpy.run_path('server.py', run_name='__main__')"
    )
    before = asyncio.all_tasks()
    late = server(script="late.py", name="late", optional=True)
    async with flow_with(root, late) as flow:
        _, events = await seen(flow, "1")
        assert [event.code for event in events if isinstance(event, Warning)] == ["mcp/down"]
        assert "not yet" in flow.mcp.failed["late"].message
        (root / "open").touch()
        while "late" in flow.mcp.failed:
            await asyncio.sleep(0.01)
        value, events = await seen(flow, '(value-of (late:echo (text "here")))')
        assert value == "here"
        assert [event.code for event in events if isinstance(event, Warning)] == ["mcp/tools-changed"]
    async with flow_with(root, server(script="no.py", name="never", optional=True)):
        pass
    assert asyncio.all_tasks() == before
