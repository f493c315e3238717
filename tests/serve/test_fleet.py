"""Runs that other processes work on, over HTTP: seen by keys that may see the fleet, and by no others."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import ConfigurationError
from tests.scale.workers import detached, working
from tests.support.serve_clients import by, keys_of
from tests.support.served import Served, served

ECHO = {"echo": "(string-append message)"}
ASKS = '(list (look (at "a")) (ask-human "How many?" {"type" "integer"}))'


def app(url: str) -> AgentFlow:
    async def look(at: str) -> str:
        """Look at something."""
        return f"<{at}>"

    return AgentFlow(model="offline", tools=[look], durable=url, record=True)


async def shown(server: Served, run_id: str, status: str) -> dict[str, Any]:
    """A run, once it has a status."""
    while (data := (await server.get(f"/runs/{run_id}")).json()).get("status") != status:
        await asyncio.sleep(0.02)
    return dict(data)


async def test_a_run_of_workers_is_watched_and_answered_over_http(postgres_url: str) -> None:
    """It is listed while it is queued, its events come while a worker does it, in one stream over its slices, and its value is there
    at its end; what workers have to do is counted, and the workers are listed."""
    async with app(postgres_url) as page, app(postgres_url) as worker:
        async with served(page, ECHO, fleet=True) as server:
            await detached(page, "asks", ASKS, labels={"team": "legal"}, tenant="acme")
            [listed] = (await server.get("/runs")).json()["runs"]
            assert (listed["run_id"], listed["status"], listed["queue"]) == ("asks", "queued", "default")
            [load] = (await server.get("/fleet")).json()["queues"]
            assert (load["queued"], load["tenant"]) == (1, "acme")
            reading = asyncio.create_task(anext(aiter(server.events("asks"))))
            async with working(worker):
                assert (await reading)["type"] == "run_started"
                data = await shown(server, "asks", "waiting")
                [alive] = (await server.get("/fleet")).json()["workers"]
                assert alive["pid"] == os.getpid() and alive["slots"] > 0
                assert data["labels"] == {"team": "legal"} and data["waiting"][0]["question"] == "How many?"
                where = f"/runs/asks/answers/{data['waiting'][0]['key']}"
                assert (await server.post(where, {"answer": "x"})).status_code == 400
                assert (await server.post(where, {"answer": 3})).status_code == 200
                events = [event async for event in server.events("asks")]
            assert {event["slice"] for event in events} == {1, 2} and events[-1]["type"] == "run_finished"
            assert [each async for each in server.events("asks", after=events[4]["id"])] == events[5:]
            data = await shown(server, "asks", "done")
            assert data["value"][1] == 3 and data["ended"] and data["usage"] is not None
            assert (await server.get("/runs/none")).status_code == 404
            assert (await server.get("/fleet")).json() == {"queues": [], "workers": []}


async def test_a_run_of_workers_is_cancelled_over_http(postgres_url: str) -> None:
    """A worker does it, and the answer says so; one that has failed says why."""
    async with app(postgres_url) as page, served(page, ECHO, fleet=True) as server, working(page):
        await detached(page, "asks", ASKS)
        await shown(server, "asks", "waiting")
        assert (await server.post("/runs/asks/cancel", {})).json()["status"] == "cancelled"
        await detached(page, "fails", '(error "not today")')
        assert "not today" in (await shown(server, "fails", "failed"))["error"]["message"]
        events = [event async for event in server.events("fails")]
        assert events[-1]["outcome"] == "error"


async def test_who_may_not_see_the_fleet_sees_none_of_it(postgres_url: str, tmp_path: Path) -> None:
    """Neither runs of workers nor those of other keys; a key that may sees both."""
    keys = keys_of(tmp_path, ada="", boss="fleet = true")
    async with app(postgres_url) as page, served(page, ECHO, keys=keys) as server:
        await detached(page, "theirs", ASKS)
        begun = await server.post("/runs", {"export": "echo", "message": "x"}, headers=by("ada"))
        adas = begun.json()["run_id"]

        async def status(path: str, who: str) -> int:
            return (await server.get(path, headers=by(who))).status_code

        async def listed(who: str) -> set[str]:
            return {run["run_id"] for run in (await server.get("/runs", headers=by(who))).json()["runs"]}

        assert await listed("ada") == {adas} and await listed("boss") == {adas, "theirs"}
        for path, others in {"/fleet": 403, "/runs/theirs": 404, "/runs/theirs/events": 404}.items():
            assert await status(path, "ada") == others, path
        for path in ("/runs/theirs/cancel", "/runs/theirs/answers/x"):
            assert (await server.post(path, {"answer": True}, headers=by("ada"))).status_code == 404
        assert [await status(path, "boss") for path in ("/fleet", "/runs/theirs", f"/runs/{adas}")] == [200] * 3
    async with app(postgres_url) as page, served(page, ECHO) as server:
        assert (await server.get("/runs")).json() == {"runs": []}, "without fleet=True a server shows its own"
        assert (await server.get("/fleet")).status_code == 403


async def test_a_flow_that_stores_no_runs_has_no_fleet(tmp_path: Path) -> None:
    """The same server shows what it has; a field of a key that is not truth value is refused."""
    async with AgentFlow() as flow, served(flow, ECHO, fleet=True) as server:
        run_id = await server.begin("echo", message="x")
        assert [run["run_id"] for run in (await server.get("/runs")).json()["runs"]] == [run_id]
        assert (await server.get("/fleet")).json() == {"queues": [], "workers": []}
        assert (await server.get("/runs/none")).status_code == 404
    with pytest.raises(ConfigurationError, match="fleet must be true or false"):
        keys_of(tmp_path, ada='fleet = "yes"')
