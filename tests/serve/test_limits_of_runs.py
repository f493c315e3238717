"""A run that waits at a limit, over HTTP: it is shown, and only who may see all runs raises it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentflow import AgentFlow, Limits, ScriptedProvider
from tests.support.serve_clients import by, keys_of
from tests.support.served import served


async def test_a_key_does_not_raise_the_limit_of_its_run(tmp_path: Path) -> None:
    """The question is listed for the key that began the run; its answer is 403 for it, and counts from a key of the fleet."""
    keys = keys_of(tmp_path, ada="", boss="fleet = true")
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(
        provider=ScriptedProvider(lambda request: "done"), durable=url, limits=Limits(model_calls=1), on_limit="wait"
    ) as flow:

        @flow.task
        async def answer(message: str) -> str:
            """Answer {{message}}."""
            raise NotImplementedError

        @flow.workflow
        async def twice(message: str) -> list[str]:
            return [await answer(message), await answer("again")]

        async with served(flow, {"twice": twice}, keys=keys) as server:
            begun = await server.post("/runs", {"export": "twice", "message": "x"}, headers=by("ada"))
            run_id = begun.json()["run_id"]

            async def status() -> dict[str, object]:
                return dict((await server.get(f"/runs/{run_id}", headers=by("ada"))).json())

            while (data := await status())["status"] == "running":
                await asyncio.sleep(0.01)
            [asked] = data["waiting"]  # type: ignore[misc]
            assert asked["reason"] == "limit" and "model_calls" in asked["question"]
            where = f"/runs/{run_id}/answers/{asked['key']}"
            refused = await server.post(where, {"answer": 9}, headers=by("ada"))
            assert refused.status_code == 403 and refused.json()["error"]["code"] == "serve/limit"
            assert (await server.post(where, {"answer": 9}, headers=by("boss"))).status_code == 200
            while (data := await status())["status"] in ("queued", "waiting", "running"):
                await asyncio.sleep(0.01)
            assert data["value"] == ["done", "done"]
