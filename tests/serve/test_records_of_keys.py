"""A run's id and its record belong to the key that named them; the same call again is the retry it looks like."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, tool
from tests.support.serve_clients import by, keys_of
from tests.support.served import Served, served

EXPORTS = {"say": "(log-message message) message", "other": "(string-append message)"}
BODY = {"export": "say", "bindings": {"message": "SECRET-OF-ADA"}, "run_id": "invoice-42"}


async def begun(server: Served, who: str, **changes: Any) -> Any:
    """The answer to a call that names its run."""
    return await server.post("/runs", {**BODY, **changes}, headers=by(who))


async def until_ended(server: Served, who: str) -> None:
    """Wait for the end of the named run."""
    while (await server.get("/runs/invoice-42", headers=by(who))).json()["ended"] is None:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("durable", [True, False])
async def test_an_id_that_has_a_record_is_of_its_key(tmp_path: Path, durable: bool) -> None:
    """While its run is in memory, and after a restart: nobody else is given the id, and so nobody reads its record."""
    keys = keys_of(tmp_path, ada="", bob="")
    options: dict[str, Any] = {"record": tmp_path / "records"}
    if durable:
        options["durable"] = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(**options) as flow, served(flow, EXPORTS, keys=keys) as server:
        assert (await begun(server, "ada")).status_code == 201
        await until_ended(server, "ada")
        refused = await begun(server, "bob")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "serve/run-exists")
    async with AgentFlow(**options) as flow, served(flow, EXPORTS, keys=keys) as server:
        refused = await begun(server, "bob")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "serve/run-exists")
        assert "SECRET" not in refused.text
        assert (await server.get("/runs/invoice-42/events", headers=by("bob"))).status_code == 404


async def test_the_same_call_again_is_the_run_that_it_started(tmp_path: Path) -> None:
    """Twice at once, later, while its key has no run left, and of the next server: it is done once. Any other call is refused."""
    keys = keys_of(tmp_path, ada="runs_per_min = 10\nconcurrent = 1")
    calls: list[str] = []

    @tool
    async def pay(message: str) -> str:
        """Pay."""
        calls.append(message)
        return f"paid {message}"

    exports = {"say": "(value-of (pay (message message)))", "other": EXPORTS["other"]}
    options: dict[str, Any] = {"tools": [pay], "durable": f"sqlite:///{tmp_path}/runs.db", "record": True}
    async with AgentFlow(**options) as flow, served(flow, exports, keys=keys) as server:
        first, second = await asyncio.gather(begun(server, "ada"), begun(server, "ada"))
        assert (first.status_code, second.status_code) in ((201, 201), (201, 429), (429, 201))
        await until_ended(server, "ada")
        again = await begun(server, "ada")
        assert (again.status_code, again.json()["value"]) == (201, "paid SECRET-OF-ADA")
        others: tuple[dict[str, Any], ...] = (
            {"bindings": {"message": "x"}},
            {"export": "other"},
            {"labels": {"a": "b"}},
        )
        for other in others:
            assert (await begun(server, "ada", **other)).status_code == 409
    keys = keys_of(tmp_path, ada="")
    async with AgentFlow(**options) as flow, served(flow, exports, keys=keys) as server:
        for other in others:
            assert (await begun(server, "ada", **other)).status_code == 409
        assert (await begun(server, "ada")).status_code == 201
        await until_ended(server, "ada")
        assert (await begun(server, "ada")).json()["value"] == "paid SECRET-OF-ADA"
    assert calls == ["SECRET-OF-ADA"]


async def test_a_run_that_was_taken_up_is_found_by_its_call(tmp_path: Path) -> None:
    """A client that lost its server sends the call again: what the next server goes on with is that run, and another call is refused."""
    keys = keys_of(tmp_path, ada="")
    exports = {"say": '(ask-human message {"type" "integer"})'}
    options: dict[str, Any] = {"durable": f"sqlite:///{tmp_path}/runs.db"}
    async with AgentFlow(**options) as flow, served(flow, exports, keys=keys) as server:
        await begun(server, "ada")
        while (await flow.find_run("invoice-42")).status != "waiting":  # type: ignore[union-attr]
            await asyncio.sleep(0.005)
    async with AgentFlow(**options) as flow, served(flow, exports, keys=keys) as server:
        while not list(server.runs):
            await asyncio.sleep(0.005)
        assert (await begun(server, "ada", bindings={"message": "x"})).status_code == 409
        for _ in range(2):
            assert (await begun(server, "ada")).status_code == 201
        [run] = server.runs
        assert run.run_id == "invoice-42" and run.key.active == 1
        await run.cancel()


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/responses", "/agui/say", "/ui/say", "/runs"])
async def test_work_by_size_comes_after_admission(tmp_path: Path, route: str) -> None:
    """What a key may not begin is not gone over: a conversation with a fault at its end is told its limit, not its fault."""
    keys = keys_of(tmp_path, ada="runs_per_min = 1")
    wrong: list[Any] = [{"role": "user", "content": [{"type": "image"}], "parts": [{"type": "file"}]}]
    body = {
        "model": "say",
        "messages": wrong,
        "input": wrong,
        "threadId": "t",
        "runId": "r",
        "export": "say",
        "bindings": {"none": 1},
    }
    if route == "/runs":  # which takes no other fields
        body = {name: body[name] for name in ("export", "bindings")}
    async with AgentFlow() as flow, served(flow, EXPORTS, keys=keys) as server:
        codes = [(await server.post(route, body, headers=by("ada"))).status_code for _ in range(2)]
    assert codes == [400, 429]
