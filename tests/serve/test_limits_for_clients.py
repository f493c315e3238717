"""The status of a run that met a limit, for the clients that people use: nothing that was paid for is sent again without them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from agentflow import AgentFlow, Limits, Price, ScriptedProvider
from agentflow.core.data.errors import LimitExceeded
from agentflow.errors import PurseEmpty
from agentflow.serve.error_responses import error_response
from tests.support.metered_model import MeteredModel
from tests.support.serve_clients import keys_of
from tests.support.served import Served, served

CHAT = "/chat/completions"
BODY: dict[str, Any] = {"model": "ask", "messages": [{"role": "user", "content": "Write 40"}]}
TWICE = '(defatom ask (params (q)) (instructions "{{q}}")) (ask (q message)) (value-of (ask (q "again")))'


class Counted:
    """An SDK with its own number of tries, and the requests that it has sent."""

    def __init__(self, sdk: Any, server: Served, key: str, http: httpx2.AsyncClient, sent: list[str]) -> None:
        base = f"{str(server.client.base_url).rstrip('/')}/v1"
        self._client = sdk(
            base_url=base, api_key=key, http_client=http, default_headers={"authorization": f"Bearer {key}"}
        )
        self.sent = sent

    async def ask(self) -> Any:
        return await self._client.post(CHAT, body=BODY, cast_to=object)


@asynccontextmanager
async def counted(sdk: Any, server: Served, key: str = "none") -> AsyncIterator[Counted]:
    """The client of an SDK as it is installed: it tries twice again where it thinks that this helps."""
    sent: list[str] = []

    async def note(request: httpx2.Request) -> None:
        sent.append(request.url.path)

    async with httpx2.AsyncClient(event_hooks={"request": [note]}) as http:
        yield Counted(sdk, server, key, http, sent)


SDKS = [openai.AsyncOpenAI, anthropic.AsyncAnthropic]
LIMITED = {
    "usd": Limits(usd=0.03),
    "tokens": Limits(tokens=3_000),
    "model_calls": Limits(model_calls=1),
}


def model() -> ScriptedProvider:
    """Each call costs two cents."""
    return ScriptedProvider(
        lambda request: {"text": "yes", "usage": {"input_tokens": 1_000, "output_tokens": 1_000}}, name="own"
    )


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize("limit", LIMITED)
async def test_a_run_that_met_its_limit_is_not_sent_again(sdk: Any, limit: str) -> None:
    """422, once: another try would be paid for and end in the same place."""
    provider = model()
    prices = {"own:*": Price(input=10, output=10)}
    async with (
        AgentFlow(provider=provider, prices=prices, limits=LIMITED[limit]) as flow,
        served(flow, {"ask": TWICE}) as server,
        counted(sdk, server) as client,
    ):
        with pytest.raises((openai.UnprocessableEntityError, anthropic.UnprocessableEntityError)) as caught:
            await client.ask()
        assert caught.value.body["error"]["code"].startswith("limits/") if sdk is SDKS[1] else caught.value.code
        assert len(client.sent) == 1 and len(provider.requests) <= 2


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_key_that_has_spent_its_day_is_not_asked_again(sdk: Any, tmp_path: Path) -> None:
    """429 with the time of midnight, both where a run ended and where the next one is refused: the SDKs do not wait so long."""
    provider, noon = MeteredModel(), 86_400.0 * 100 + 43_200
    keys = keys_of(tmp_path, lambda: noon, ada="tokens_per_day = 60")
    async with (
        AgentFlow(provider=provider) as flow,
        served(flow, {"ask": TWICE.replace("again", "Write 40")}, keys=keys) as server,
        counted(sdk, server, "secret-ada") as client,
    ):
        for tries in (1, 2):
            with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)) as caught:
                await client.ask()
            assert caught.value.response.headers["retry-after"] == "43200"
            assert len(client.sent) == tries and provider.finished == 1


@pytest.mark.slow
@pytest.mark.parametrize("sdk", SDKS)
async def test_a_key_with_too_many_runs_at_once_is_asked_again(sdk: Any, tmp_path: Path) -> None:
    """That limit passes: 429 with a second, which the SDKs wait, and then they have their answer. Nothing was paid for the refusals."""
    keys = keys_of(tmp_path, ada="concurrent = 1")
    async with (
        AgentFlow(provider=model()) as flow,
        served(flow, {"ask": TWICE, "long": "(list message (sleep 0.5))"}, keys=keys) as server,
        counted(sdk, server, "secret-ada") as client,
    ):
        begun = await server.post(
            "/runs", {"export": "long", "message": "x"}, headers={"authorization": "Bearer secret-ada"}
        )
        assert begun.status_code == 201
        answer = await client.ask()
        assert answer["choices"][0]["message"]["content"] == "yes" and len(client.sent) >= 2


def test_a_purse_that_never_fills_up_is_not_worth_another_try() -> None:
    """Without a period there is nothing to wait for: 422 as for a limit of the run, and 429 with one."""
    limit: dict[str, Any] = {"limit": "usd", "allowed": 1, "used": 1}
    assert error_response(PurseEmpty("empty", purse="a", ends_at=None, **limit), run_id="r").status_code == 422
    filled = error_response(PurseEmpty("empty", purse="a", ends_at=time.time() + 60, **limit), run_id="r", reset_s=60)
    assert (filled.status_code, filled.headers["retry-after"]) == (429, "60")
    assert error_response(LimitExceeded("reached", **limit), run_id="r").status_code == 422
