"""MCP servers at an address: the SDK's own server, and one that does what it should not, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentflowError
from agentflow.connect.server_connection import FIRST_WAIT_S, Connection
from agentflow.events import Warning
from agentflow.lib.redact import Redactor
from agentflow.mcp import McpHttp
from tests.connect.flows import flow_with, seen
from tests.connect.http_servers import TOOL, handshake, raw_server, respond, result, running, sdk_server

HANG_S = 60
SECRET = "tok-7f3a9c41d2e8"


async def test_the_sdks_own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools, time-outs and headers work; the secret in a header is shown nowhere."""
    monkeypatch.setenv("SOME_VALUE", SECRET)
    async with running(sdk_server().streamable_http_app()) as port:
        address = f"http://127.0.0.1:{port}/mcp"
        tracker = McpHttp("sdk", address, headers={"Authorization": "Bearer $SOME_VALUE"})
        async with flow_with(tmp_path, tracker, McpHttp("brief", address, timeout_s=0.3)) as flow:
            assert (await flow.run('(value-of (sdk:shout (text "hi")))')).value == {"result": "HI"}
            value, events = await seen(flow, "(content (sdk:token))")
            assert value == f"Bearer {SECRET}"
            assert SECRET not in str(events) and "redacted" in str(events)
            error = ((await flow.run("(brief:nap (seconds 30))")).value).notes.error
            assert error.reason == "execution_timeout"
            assert (await flow.run('(value-of (sdk:shout (text "still")))')).value == {"result": "STILL"}


async def test_a_list_that_changes_over_http(tmp_path: Path) -> None:
    """A server at an address tells who listens that its tools have changed; the next run has them."""
    async with running(sdk_server().streamable_http_app()) as port:
        async with flow_with(tmp_path, McpHttp("sdk", f"http://127.0.0.1:{port}/mcp")) as flow:
            await flow.run("(sdk:grow)")
            async with asyncio.timeout(10):
                while flow.tools.find("sdk:new") is None:
                    await asyncio.sleep(0.01)
            value, events = await seen(flow, "(value-of (sdk:new))")
            assert value == {"result": "new"}
            assert [event.code for event in events if isinstance(event, Warning)] == ["mcp/tools-changed"]


@pytest.mark.slow
async def test_a_server_that_was_away_is_found_again(tmp_path: Path) -> None:
    """While a server is away calls fail; when it is back, the next one works."""
    async with running(sdk_server().streamable_http_app()) as port:
        flow = flow_with(tmp_path, McpHttp("sdk", f"http://127.0.0.1:{port}/mcp"))
        connected = await flow.__aenter__()
    try:
        error = ((await connected.run('(sdk:shout (text "hi"))')).value).notes.error
        assert error.reason == "connection_error"
        async with running(sdk_server().streamable_http_app(), port):
            assert (await connected.run('(value-of (sdk:shout (text "hi")))')).value == {"result": "HI"}
    finally:
        await flow.__aexit__(None, None, None)


async def test_nobody_there(tmp_path: Path, unused_tcp_port: int) -> None:
    """An address where nobody listens is one error, not a group of groups."""
    with pytest.raises(AgentflowError) as caught:
        async with flow_with(tmp_path, McpHttp("away", f"http://127.0.0.1:{unused_tcp_port}/mcp")):
            pass
    assert caught.value.code == "mcp/down" and "ConnectError" in caught.value.message


@pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}\u20ac"])
async def test_a_header_that_cannot_be_sent(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with a line end, as a file gives it, is an error that names the header and never shows the key."""
    monkeypatch.setenv("SOME_VALUE", value)
    with pytest.raises(AgentflowError) as caught:
        async with flow_with(tmp_path, McpHttp("sdk", "http://127.0.0.1:9/mcp", headers={"X-Key": "k $SOME_VALUE"})):
            pass
    assert caught.value.code == "mcp/variable" and "'X-Key'" in caught.value.message
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + str(caught.value.to_dict())


async def test_bodies_are_bounded_and_not_inflated(tmp_path: Path) -> None:
    """A body of 100 MB, one that inflates, one of too many values and one that is not JSON fail their call, and no other."""
    big = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"'
    sent = 0

    async def answer(message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if handshake(message, writer):
            return
        match message["params"]["arguments"].get("kind"):
            case "large":
                respond(writer, big, length=100_000_000)
                for _ in range(1_000):
                    writer.write(b"x" * 100_000)
                    sent += 100_000
                    await writer.drain()
            case "packed":
                respond(writer, gzip.compress(b"x" * 50_000_000), "content-encoding: gzip")
            case "values":
                respond(writer, b"[" + b"0," * 1_000_000 + b"0]")
            case "noise":
                respond(writer, b"<html>")
            case _:
                respond(
                    writer, result(message, {"content": [{"type": "text", "text": "ok"}], "resultType": "complete"})
                )

    async with raw_server(answer) as url, flow_with(tmp_path, McpHttp("raw", url, timeout_s=5)) as flow:
        for kind in ("large", "packed", "values", "noise"):
            failed = (await flow.run("(raw:get (kind kind))", bindings={"kind": kind})).value
            assert failed.failed, kind
        assert sent < 40_000_000
        assert (await flow.run("(content (raw:get))")).value == "ok"


@pytest.mark.parametrize("levels", [190, 300, 20_000])
@pytest.mark.parametrize("form", ["json", "events", "events of many lines", "events in pieces"])
async def test_a_schema_without_bottom_is_left_out_and_not_its_server(form: str, levels: int, tmp_path: Path) -> None:
    """However deep, and however the answer comes: the tool is named in a warning, and its neighbours work."""
    schema = b'{"type":"object","properties":{"x":' * levels + b'"]}"' + b"}}" * levels
    bad = b'{"name":"bad","inputSchema":' + schema + b',"annotations":{"readOnlyHint":true}}'

    async def answer(message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        common = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if message.get("method") == "tools/list":
            tools = [TOOL, "bad", {**TOOL, "name": "last"}]
            body = result(message, {"tools": tools, **common}).replace(b'"bad"', bad)
        elif handshake(message, writer):
            return
        else:
            contents = [{"type": "text", "text": "it is [{there}]"}]
            body = result(message, {"content": contents, "resultType": "complete"})
        if form == "json":
            return respond(writer, body)
        line = "\r\n" if form == "events in pieces" else "\n"
        data = body.decode().replace(", ", f",{line}data: ") if form == "events of many lines" else body.decode()
        text = line.join(["event: message", f"data: {data}", "", ": more", "", ""]).encode()
        size = 977 if form == "events in pieces" else len(text)
        respond(writer, text[:size], "content-type: text/event-stream", length=len(text))
        for at in range(size, len(text), size):
            await writer.drain()
            writer.write(text[at : at + size])

    async with raw_server(answer) as url, flow_with(tmp_path, McpHttp("raw", url, timeout_s=20)) as flow:
        value, events = await seen(flow, "(list (content (raw:get)) (content (raw:last)))")
        warnings = [event for event in events if isinstance(event, Warning)]
        assert value == ["it is [{there}]"] * 2 and [event.code for event in warnings] == ["mcp/tool-refused"]
        assert "'bad'" in warnings[0].message and "deep" in warnings[0].message


async def test_data_without_bottom_fail_their_call(tmp_path: Path) -> None:
    """Nothing is cut out of what a tool gives: a model must not take a part for the whole."""

    async def answer(message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if not handshake(message, writer):
            body = result(message, {"content": [], "structuredContent": "bad", "resultType": "complete"})
            respond(writer, body.replace(b'"bad"', b"[" * 300 + b"]" * 300))

    async with raw_server(answer) as url, flow_with(tmp_path, McpHttp("raw", url, timeout_s=20)) as flow:
        assert ((await flow.run("(raw:get)")).value).failed and ((await flow.run("(raw:get)")).value).failed


async def test_redirects_lead_nowhere_else(tmp_path: Path) -> None:
    """A redirect to another origin is not followed: it would take the headers along."""
    reached: list[str] = []

    async def elsewhere(message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        reached.append(str(message))
        respond(writer, b"{}")

    async with raw_server(elsewhere) as other:

        async def answer(message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
            if not handshake(message, writer):
                respond(writer, b"", f"location: {other}", status="307 Temporary Redirect")

        async with raw_server(answer) as url, flow_with(tmp_path, McpHttp("raw", url, timeout_s=5)) as flow:
            assert ((await flow.run("(raw:get)")).value).failed
    assert reached == []


async def test_the_span_of_a_request_is_below_the_tools(tmp_path: Path) -> None:
    """The SDK's own span of a request is a child of ``execute_tool``."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from agentflow import OpenTelemetry

    exporter = InMemorySpanExporter()
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with running(sdk_server().streamable_http_app()) as port:
        async with flow_with(tmp_path, McpHttp("sdk", f"http://127.0.0.1:{port}/mcp")) as flow:
            flow.subscribe(OpenTelemetry())
            exporter.clear()
            await flow.run('(sdk:shout (text "hi"))')
    spans = {span.name: span for span in exporter.get_finished_spans()}
    tool, sent = spans["execute_tool sdk:shout"], spans["MCP send tools/call shout"]
    assert sent.parent is not None and sent.parent.span_id == tool.context.span_id


@pytest.mark.slow
async def test_reconnecting_is_said_once(tmp_path: Path) -> None:
    """A session that the server has forgotten is opened anew, and a call that only reads repeated, with a warning."""
    calls: list[str] = []

    async def answer(message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if handshake(message, writer):
            return
        calls.append(message["method"])
        if len(calls) == 1:
            writer.close()
        else:
            respond(writer, result(message, {"content": [{"type": "text", "text": "ok"}], "resultType": "complete"}))

    async with raw_server(answer) as url, flow_with(tmp_path, McpHttp("raw", url, timeout_s=5)) as flow:
        value, events = await seen(flow, "(content (raw:get))")
        assert value == "ok" and calls == ["tools/call"] * 2
        assert [event.code for event in events if isinstance(event, Warning)] == ["mcp/reconnected"]


@asynccontextmanager
async def silent_server(*methods: str | None) -> AsyncIterator[tuple[str, list[str | None]]]:
    """A server with sessions that has one tool and never answers ``methods``, nor GET and DELETE; gives its address and what it is asked."""
    asked: list[str | None] = []
    over = asyncio.Event()

    async def answer(message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        method = message.get("method")
        asked.append(method)
        match method:
            case None:
                await over.wait()
            case _ if method in methods:
                await over.wait()
            case "server/discover":
                error = {"code": -32601, "message": "Method not found"}
                respond(writer, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
            case "initialize":
                info = {"name": "s", "version": "1"}
                value = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                respond(writer, result(message, value), "mcp-session-id: 1")
            case "tools/list":
                respond(writer, result(message, {"tools": [TOOL]}))
            case "tools/call" if asked.count(method) == 1:
                await over.wait()
            case "tools/call":
                respond(writer, result(message, {"content": [{"type": "text", "text": "ok"}]}))
            case _:
                respond(writer, b"", status="202 Accepted")

    async with raw_server(answer) as url:
        try:
            yield url, asked
        finally:
            over.set()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["server/discover", "initialize", "notifications/initialized", "tools/list"])
async def test_a_server_that_falls_silent_does_not_hold_its_connection(method: str, tmp_path: Path) -> None:
    """Whatever it leaves unanswered, also the request that ends its session: connecting fails after the time for it."""
    async with silent_server(method) as (url, asked):
        with pytest.raises(AgentflowError) as caught:
            async with asyncio.timeout(HANG_S), flow_with(tmp_path, McpHttp("mute", url, connect_s=0.3)):
                pass
        assert caught.value.code == "mcp/down" and method in asked


@pytest.mark.slow
async def test_a_notification_that_is_not_acknowledged_does_not_hold_what_follows(tmp_path: Path) -> None:
    """The call that it cancels fails at its time-out, and a later one is answered, on a new connection."""
    async with silent_server("notifications/cancelled") as (url, asked), asyncio.timeout(HANG_S):
        async with flow_with(tmp_path, McpHttp("mute", url, timeout_s=0.3)) as flow:
            error = (await flow.run("(mute:get)")).value.notes.error
            assert error.reason == "execution_timeout"
            while (answer := (await flow.run("(mute:get)")).value).failed:
                assert answer.notes.error.reason in ("execution_timeout", "connection_error")
            assert answer.content == "ok" and asked.count("initialize") == 2


@pytest.mark.slow
async def test_a_cancellation_while_a_silent_server_is_left_is_raised() -> None:
    """Who waits until the lost connection is closed, and is cancelled meanwhile, opens none."""
    async with silent_server() as (url, asked), asyncio.timeout(HANG_S):
        nothing: Any = None
        connection = Connection(
            McpHttp("mute", url),
            nothing,
            nothing,
            redactor=Redactor(),
            roots=(),
            listed=lambda tools: None,
            refuse=lambda name, why: None,
        )
        connection.lose(await connection.live(), "it is to be opened again")
        opening = asyncio.create_task(connection.live())
        await asyncio.sleep(2 * FIRST_WAIT_S)  # it waits to try again, and then for the end of the session
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled() and not connection.up and asked.count("initialize") == 1
        await connection.aclose()
