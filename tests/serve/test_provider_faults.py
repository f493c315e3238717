"""What a provider's failure is at each front end: one status, one code, whichever protocol tells it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data import provider_errors as providers
from agentflow.serve import Export
from tests.support.serve_clients import ROUTES, frames_of, mcp_client, request_of, text_of
from tests.support.served import served

FAULTS: list[tuple[providers.ProviderError, int]] = [
    (providers.AuthenticationFailed("no key"), 502),
    (providers.PermissionDenied("not you"), 502),
    (providers.BadRequest("malformed"), 502),
    (providers.RateLimited("slow down"), 429),
    (providers.Overloaded("busy"), 503),
    (providers.ServerError("broken"), 502),
    (providers.ContextWindowExceeded("too long"), 422),
    (providers.Refused("no"), 422),
    (providers.ConnectionLost("gone"), 502),
    (providers.ConnectionRefused("nobody there"), 502),
    (providers.ConnectTimeout("no line"), 504),
    (providers.FirstByteTimeout("no word"), 504),
    (providers.IdleTimeout("no more"), 504),
    (providers.CallTimeout("late"), 504),
    (providers.IncompleteStream("half"), 502),
    (providers.ProtocolError("what?"), 502),
]
ASK = '(defatom ask (params (q)) (instructions "{{q}}")) (value-of (ask (q which)))'


def code_in(route: str, frames: list[dict[str, Any]]) -> str:
    """The code that the last event of a stream has, which says that the run failed."""
    last = frames[-1]
    match route:
        case "chat":
            return str(last["error"]["code"])
        case "responses":
            assert last["type"] == "response.failed"
            return str(last["response"]["error"]["code"])
        case "agui":
            assert last["type"] == "RUN_ERROR"
            return str(last["code"])
        case _:
            assert last["type"] == "error"
            return str(last["errorText"]).partition(":")[0]


@pytest.mark.slow
async def test_every_fault_of_a_provider_at_every_front_end() -> None:
    """A plain answer has its status and is not to be asked for again by the client itself; streams, tools and runs have its code.

    What is none of the client's making is not a status of 400: the server's own key, what its program sends, and how long.
    """
    covered = {type(fault) for fault, _ in FAULTS}
    every = {
        each
        for each in vars(providers).values()
        if isinstance(each, type) and issubclass(each, providers.ProviderError)
    }
    assert every - covered <= {providers.ProviderError, providers.BatchUncertain}  # the latter ends no call

    class Failing(ScriptedProvider):
        fault = FAULTS[0][0]

        async def stream(self, request: Any) -> Any:
            raise self.fault
            yield

    exports = {"ask": Export(program=ASK, bindings={"which": "x"})}
    async with AgentFlow(provider=(model := Failing())) as flow, served(flow, exports) as server:
        async with mcp_client(server, "2026-07-28") as client:
            for fault, status in FAULTS:
                model.fault = fault
                body = {"model": "ask", "messages": [{"role": "user", "content": "x"}]}
                plain = await server.post("/v1/chat/completions", body)
                assert (plain.status_code, plain.json()["error"]["code"]) == (status, fault.code), fault
                assert plain.headers["x-should-retry"] == "false"
                streams = await asyncio.gather(*[server.post(*request_of(route, "ask")) for route in ROUTES])
                for route, answer in zip(ROUTES, streams, strict=True):
                    assert code_in(route, frames_of(answer.text)) == fault.code, (route, answer.text)
                called = await client.call_tool("ask", {"message": "x"})
                assert called.is_error and text_of(called).startswith(fault.code)
                run = await server.ended(await server.begin("ask", message="x"))
                assert (run["status"], run["error"]["code"]) == ("failed", fault.code)
