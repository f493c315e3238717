"""Keys: who may ask for what, whose a run is, and limits that hold for all runs of a key together."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import ConfigurationError
from agentflow.serve import Export, read_keys
from agentflow.serve.keys import digest_of, new_key
from tests.run.test_reservation import DOLLAR
from tests.support.metered_model import MeteredModel, asking
from tests.support.serve_clients import by, keys_of
from tests.support.served import served

ECHO = {"echo": "(string-append message)", "other": "(string-append message)"}


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 86_400.0 * 100 + 3_600

    def __call__(self) -> float:
        return self.now


async def test_a_request_needs_a_key_and_sees_what_is_its(tmp_path: Path) -> None:
    """Without one 401; the exports of a key are all it can see; a run of another key is 403, in its list it is not there."""
    keys = keys_of(tmp_path, ada='exports = ["echo"]', bob="")
    async with AgentFlow() as flow, served(flow, ECHO, keys=keys) as server:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret-ada"}):
            for path in ("/v1/models", "/runs", "/runs/x/events"):
                answer = await server.get(path, headers=headers)
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert (await server.get("/health")).status_code == 200
        models = {name: (await server.get("/v1/models", headers=by(name))).json()["data"] for name in ("ada", "bob")}
        assert [each["id"] for each in models["ada"]] == ["echo"] and len(models["bob"]) == 2
        hidden = await server.post("/runs", {"export": "other", "bindings": {"message": "x"}}, headers=by("ada"))
        assert hidden.status_code == 404 and "other" not in hidden.json()["error"]["message"].split(":")[1]
        body = {"export": "echo", "bindings": {"message": "x"}}
        run_id = (await server.post("/runs", body, headers=by("ada"))).json()["run_id"]
        for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/answers/x")):
            answer = await server.client.request(method, f"/runs/{run_id}{path}", headers=by("bob"))
            assert answer.status_code == 403 and answer.json()["error"]["code"] == "serve/not-yours"
        assert (await server.get("/runs", headers=by("bob"))).json()["runs"] == []
        [own] = (await server.get("/runs", headers=by("ada"))).json()["runs"]
        assert own["labels"]["key"] == "ada"


@pytest.mark.parametrize("field", ["tokens_per_day", pytest.param("usd_per_day", marks=pytest.mark.slow)])
async def test_a_hundred_racing_requests_never_pass_what_a_key_may_spend(tmp_path: Path, field: str) -> None:
    """Some are answered, the others get 429 with the time to wait; what the model was paid is within the limit."""
    clock, model = Clock(), MeteredModel()
    keys = keys_of(tmp_path, clock, ada=f"{field} = 1000")
    async with AgentFlow(provider=model, prices=DOLLAR) as flow:
        async with served(flow, {"ask": f"{asking()} (value-of (ask (n 36)))"}, keys=keys) as server:
            body = {"model": "ask", "messages": [{"role": "user", "content": "x"}]}

            async def ask() -> Any:
                return await server.post("/v1/chat/completions", body, headers=by("ada"))

            answers = await asyncio.gather(*[ask() for _ in range(100)])
            good = [each for each in answers if each.status_code == 200]
            refused = [each for each in answers if each.status_code == 429]
            assert good and len(good) + len(refused) == 100 and model.paid <= 1_000
            assert {each.json()["error"]["code"] for each in refused} == {"limits/purse"}
            assert any("x-request-id" in each.headers for each in refused), "some had begun, and were cut off"
            assert {each.headers["retry-after"] for each in refused} == {str(86_400 - int(clock.now) % 86_400)}
            [key] = keys
            assert (key.purse.used_tokens if field == "tokens_per_day" else key.purse.used_usd) == model.paid
            assert key.active == 0
            clock.now += 86_400
            assert (await ask()).status_code == 200, "the next day it is counted anew"


async def test_a_server_that_is_started_anew_goes_on_counting(tmp_path: Path) -> None:
    """Where the flow has a database, what keys used today stands in it: neither a restart nor a new flow gives it back."""
    clock, model = Clock(), MeteredModel()
    body = {"model": "ask", "messages": [{"role": "user", "content": "x"}]}
    codes: list[int] = []
    for _ in range(3):
        keys = keys_of(tmp_path, clock, ada="tokens_per_day = 1000", bob="tokens_per_day = 1000")
        async with AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db") as flow:
            async with served(flow, {"ask": f"{asking()} (value-of (ask (n 300)))"}, keys=keys) as server:
                codes.append((await server.post("/v1/chat/completions", body, headers=by("ada"))).status_code)
                used = [key.purse.used_tokens for key in keys]
                assert used == [model.paid, 0] and model.paid <= 1_000
    assert codes[:2] == [200, 200]
    clock.now += 86_400
    keys = keys_of(tmp_path, clock, ada="tokens_per_day = 1000", bob="tokens_per_day = 1000")
    before = model.paid
    async with AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        async with served(flow, {"ask": f"{asking()} (value-of (ask (n 300)))"}, keys=keys) as server:
            assert (await server.post("/v1/chat/completions", body, headers=by("ada"))).status_code == 200
            assert [key.purse.used_tokens for key in keys] == [model.paid - before, 0], (
                "the next day it is counted anew"
            )


async def test_racing_requests_never_pass_runs_at_once_and_a_minute(tmp_path: Path) -> None:
    """100 requests at once: as many runs as the key may have, or may begin; a place is free again when a run has ended."""
    gate, most, now = asyncio.Event(), 0, 0
    clock = Clock()

    async def wait() -> str:
        """Wait."""
        nonlocal most, now
        now += 1
        most = max(most, now)
        await gate.wait()
        now -= 1
        return "done"

    keys = keys_of(tmp_path, clock, ada="concurrent = 3", bob="runs_per_min = 60")
    async with AgentFlow(tools=[wait]) as flow, served(flow, {"wait": "(wait)"}, keys=keys) as server:

        async def begin(name: str) -> Any:
            return await server.post("/runs", {"export": "wait", "bindings": {"message": ""}}, headers=by(name))

        codes = [each.status_code for each in await asyncio.gather(*[begin("ada") for _ in range(100)])]
        while now < 3:
            await asyncio.sleep(0.001)
        assert codes.count(201) == 3 == most and codes.count(429) == 97
        refused = await begin("ada")
        assert refused.json()["error"]["code"] == "serve/concurrent" and refused.headers["retry-after"] == "1"
        answers = await asyncio.gather(*[begin("bob") for _ in range(100)])
        assert len([each for each in answers if each.status_code == 201]) == 6, "60 a minute, six seconds of it at once"
        assert {each.json()["error"]["code"] for each in answers if each.status_code == 429} == {"serve/rate"}
        gate.set()
        for run in list(server.runs):
            await run.wait()
        clock.now += 2
        assert [(await begin("ada")).status_code, (await begin("bob")).status_code] == [201, 201]


async def test_programs_of_a_key_need_its_leave(tmp_path: Path) -> None:
    """A server that takes programs takes them from keys that say so."""
    keys = keys_of(tmp_path, ada="programs = true", bob="")
    async with AgentFlow() as flow, served(flow, {}, keys=keys, programs=()) as server:
        for name, status in (("ada", 201), ("bob", 403)):
            assert (await server.post("/runs", {"program": "1"}, headers=by(name))).status_code == status


def test_a_new_key_is_found_by_its_table(tmp_path: Path) -> None:
    """What --new-key prints is a file of keys; it does not hold the key."""
    token, table = new_key("ada")
    assert token not in table and tomllib.loads(table)["keys"]["ada"]["digest"] == digest_of(token)
    (tmp_path / "keys.toml").write_text(table)
    keys = read_keys(tmp_path / "keys.toml")
    found = keys.find(token)
    assert found is not None and found.name == "ada" and keys.find(token + "x") is None


WRONG = [
    "",
    "x = 1",
    "[keys.ada]",
    '[keys.ada]\ndigest = "secret"',
    "[keys.ada]\nDIGEST\nexport = []",
    '[keys.ada]\nDIGEST\nexports = "all"',
    "[keys.ada]\nDIGEST\nconcurrent = 0",
    "[keys.ada]\nDIGEST\nusd_per_day = true",
    "[keys.ada]\nDIGEST\nprograms = 1",
    '[keys."a b"]\nDIGEST',
    "[keys",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_file_of_keys_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """A limit that is misspelt must not be none: every fault is an error when the server starts."""
    (tmp_path / "keys.toml").write_text(text.replace("DIGEST", f'digest = "{digest_of("x")}"'))
    with pytest.raises(ConfigurationError) as caught:
        read_keys(tmp_path / "keys.toml")
    assert caught.value.code == "serve/keys"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_keys(tmp_path / "none.toml")


async def test_exports_that_are_none_are_refused_when_the_server_starts(tmp_path: Path) -> None:
    """With the file, the name or the parameter that is at fault."""
    (tmp_path / "a.sexp").write_text("(+ message nowhere)")
    async with AgentFlow() as flow:
        for exports, code in (
            ({"x": "(unknown-task (a message))"}, "name/unknown-operator"),
            ([tmp_path / "a.sexp"], "name/unbound"),
            (["nothing"], "serve/export"),
            (["(+ 1 2)"], "serve/export"),
            ({"x": Export(program="1", message="y", parameters={"z": "string"})}, "serve/export"),
            ({"x": 3}, "serve/export"),
        ):
            with pytest.raises(Exception) as caught:
                async with served(flow, exports):
                    pass
            assert getattr(caught.value, "code", None) == code, caught.value
