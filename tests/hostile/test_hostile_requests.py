"""Requests that mean harm: too large, malformed, from pages of other sites, under other names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.serve.incoming import MAX_BODY
from tests.support.served import served

JSON = {"content-type": "application/json"}


async def test_bodies_that_are_too_large_or_no_json() -> None:
    """Each is refused with its status, whatever length it states, and the server goes on."""
    exports = {"echo": "(string-append message)", "odd": r'(list +inf.0 "\ud800" message)'}
    async with AgentFlow(api_key="tomato-harbour-71") as flow, served(flow, exports) as server:

        async def chunks() -> Any:
            for _ in range(MAX_BODY // 65_536 + 2):
                yield b" " * 65_536

        for content, status, code in (
            (b" " * (MAX_BODY + 1), 413, "serve/too-large"),
            (chunks(), 413, "serve/too-large"),
            (b"", 400, "serve/json"),
            (b"{", 400, "serve/json"),
            (b"[]", 400, "serve/json"),
            (b"\xff\xfe", 400, "serve/json"),
            (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "serve/json"),
            (b'{"export": ' + b"9" * 10_000 + b"}", 400, "serve/json"),
            (b'{"export": {"a": 1}}', 400, "serve/field"),
            (b'{"export": "echo", "bindings": []}', 400, "serve/field"),
            (b'{"export": "echo", "bindings": {"message": {"a": 1}}}', 400, None),
            (b'{"export": "echo", "bindings": {"message": "x"}, "run_id": "../../etc"}', 400, "config/run-id"),
            (
                b'{"export": "echo", "bindings": {"message": "x"}, "run_id": "of-tomato-harbour-71"}',
                400,
                "config/run-id",
            ),
            (b'{"export": "echo", "bindings": {"message": "x"}, "run_id": 3}', 400, "serve/field"),
            (b'{"export": "echo", "bindings": {"message": "x"}, "labels": {"a": 1}}', 400, "serve/field"),
            (b'{"export": "\\u202e"}', 404, "serve/unknown-export"),
            (b'{"export": "\\ud800"}', 400, "serve/json"),
        ):
            answer = await server.client.post("/runs", content=content, headers=JSON)
            assert answer.status_code == status, (answer.text, code)
            assert code is None or answer.json()["error"]["code"] == code
            assert "tomato" not in answer.text
        assert not list(server.runs)
        assert (await server.ended(await server.begin("echo", message="<script>\u202e")))["value"] == "<script>\u202e"
        assert (await server.ended(await server.begin("odd", message="x")))["value"] == ["Infinity", "\ud800", "x"]


async def test_pages_of_other_sites_do_not_reach_a_server_of_this_machine() -> None:
    """Not under a name of theirs (rebinding), not as themselves, and not with a form, whose content type needs no asking."""
    async with AgentFlow() as flow, served(flow, {"echo": "(string-append message)"}) as server:
        body = {"export": "echo", "bindings": {"message": "x"}}
        for headers, status, code in (
            ({"host": f"evil.example:{server.port}"}, 421, "serve/host"),
            ({"host": "127.0.0.1.evil.example"}, 421, "serve/host"),
            ({"origin": "https://evil.example"}, 403, "serve/origin"),
            ({"origin": "null"}, 403, "serve/origin"),
            ({"origin": f"http://127.0.0.1:{server.port + 1}"}, 403, "serve/origin"),
        ):
            answer = await server.post("/runs", body, headers=headers)
            assert answer.status_code == status and answer.json()["error"]["code"] == code
            assert "access-control-allow-origin" not in answer.headers
        form = await server.client.post("/runs", content=b"{}", headers={"content-type": "text/plain"})
        assert form.status_code == 415
        asked = await server.client.options(
            "/runs", headers={"origin": "https://evil.example", "access-control-request-method": "POST"}
        )
        assert asked.status_code == 405 and "access-control-allow-origin" not in asked.headers
        assert not list(server.runs)
        assert (await server.post("/runs", body, headers={"origin": server.url})).status_code == 201
        assert (await server.post("/runs", body, headers={"host": f"localhost:{server.port}"})).status_code == 201


async def test_sites_that_may_ask_are_named() -> None:
    """A browser is told that their pages may, and those of no other."""
    site = "https://chat.example"
    async with AgentFlow() as flow, served(flow, {"echo": "(string-append message)"}, origins=[site]) as server:
        for origin, told in ((site, site), ("https://evil.example", None)):
            asked = await server.client.options(
                "/runs", headers={"origin": origin, "access-control-request-method": "POST"}
            )
            assert asked.headers.get("access-control-allow-origin") == told
        assert (await server.get("/runs", headers={"origin": site})).headers["access-control-allow-origin"] == site


async def test_what_a_server_did_not_expect_is_no_news_to_clients() -> None:
    """The error of host code is in the log; a client hears that the run failed, not how, and is not told to repeat it."""

    def broken() -> str:
        """Broken."""
        raise RuntimeError("password=hunter22")

    async with AgentFlow(tools=[broken]) as flow, served(flow, {"x": "(broken)"}) as server:
        answer = await server.post(
            "/v1/chat/completions", {"model": "x", "messages": [{"role": "user", "content": ""}]}
        )
        assert answer.status_code == 422 and "hunter22" not in answer.text
        assert answer.json()["error"]["code"] == "host/raised" and "RuntimeError" in answer.text


async def test_secrets_do_not_leave_by_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the redactor knows is taken out of values, errors, events and what chats are told."""
    secret = "hunter22-hunter22-hunter22"
    monkeypatch.setenv("MY_API_KEY", secret)
    exports = {"say": f'(string-append message "{secret}")', "fail": f'(error "no {secret}")'}
    async with AgentFlow() as flow, served(flow, exports) as server:
        seen: list[str] = []
        for name in exports:
            run_id = await server.begin(name, message=secret)
            data = await server.ended(run_id)
            events = [str(event) async for event in server.events(run_id)]
            body = {"model": name, "messages": [{"role": "user", "content": secret}]}
            answers = [
                await server.post("/v1/chat/completions", {**body, "stream": stream}) for stream in (False, True)
            ]
            seen += [str(data), *events, *[each.text for each in answers]]
        assert len(seen) > 10 and not [each for each in seen if secret in each]


async def test_connections_that_send_nothing_whole() -> None:
    """Half a request, no HTTP at all: the server answers others meanwhile, and stops in time."""
    async with AgentFlow() as flow, served(flow, {"echo": "(string-append message)"}) as server:
        writers = []
        for data in (b"POST /runs HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{", b"\x00\xff\r\n\r\n", b""):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            await writer.drain()
            writers.append(writer)
        assert (await server.ended(await server.begin("echo", message="x")))["value"] == "x"
        for writer in writers:
            writer.close()
