"""``/v1/responses``: the real OpenAI SDK talks to exports over TCP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import openai
import pytest

from agentflow import AgentFlow, ModelDelta, ScriptedProvider, tool
from agentflow.core.data.provider_errors import Overloaded, RateLimited
from agentflow.serve import Export
from tests.serve.test_chat import CAPITAL
from tests.support.serve_clients import Thinking, openai_client
from tests.support.served import served


async def test_an_export_answers_as_a_model() -> None:
    """Plain and streamed: the same words, thinking apart, usage, and the run's id; events tell of items in order."""
    model = Thinking(lambda request: f"Paris, for {request.messages[-1].text!r}")
    async with (
        AgentFlow(provider=model) as flow,
        served(flow, {"capital": CAPITAL}) as server,
        openai_client(server) as client,
    ):
        plain = await client.responses.create(model="capital", input="France")
        assert plain.output_text == "Paris, for 'Capital of France?'" and plain.status == "completed"
        assert plain.usage is not None and plain.usage.output_tokens > 0 and plain.error is None
        assert plain.id == f"resp_{plain._request_id}"
        kinds: list[str] = []
        async with client.responses.stream(model="capital", input="France") as stream:  # it checks what it accumulates
            async for event in stream:
                if not kinds or kinds[-1] != event.type:
                    kinds.append(event.type)
            final = await stream.get_final_response()
        assert final.output_text == plain.output_text and final.usage == plain.usage
        assert [item.type for item in final.output] == ["reasoning", "message"]
        assert kinds == [
            "response.created", "response.in_progress",
            "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
            "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
            "response.output_item.added", "response.content_part.added", "response.output_text.delta",
            "response.output_text.done", "response.content_part.done", "response.output_item.done",
            "response.completed",
        ]  # fmt: skip


async def test_what_was_said_before_is_the_history_that_tasks_see() -> None:
    """Items as the SDK gives them back; instructions are the beginning of what the user said, thinking is passed over."""
    model = ScriptedProvider(lambda request: " | ".join(f"{each.role}: {each.text}" for each in request.messages))
    async with (
        AgentFlow(provider=model) as flow,
        served(flow, {"capital": CAPITAL.replace('?"))', '?") (history_config true))')}) as server,
        openai_client(server) as client,
    ):
        first = await client.responses.create(model="capital", input="Hello")
        said: list[Any] = [
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            *[item.model_dump() for item in first.output],
            {"role": "user", "content": "France"},
        ]
        answer = await client.responses.create(model="capital", input=said, instructions="Be brief.")
    expected = "user: Be brief.\n\nHello | assistant: user: Capital of Hello? | user: Capital of France?"
    assert answer.output_text == expected


async def test_failures_are_the_sdks_errors() -> None:
    """Whole answers have their status; a stream ends with ``response.failed``, which has our code."""

    class Failing(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            yield ModelDelta(text="half an ")
            raise {"slow": RateLimited("slow down"), "busy": Overloaded("busy")}[request.messages[-1].text[11:15]]

    async with AgentFlow(provider=Failing()) as flow, served(flow, {"capital": CAPITAL}) as server:
        async with openai_client(server) as client:
            for text, kind, code in (
                ("slow", openai.RateLimitError, "provider/rate-limited"),
                ("busy", openai.InternalServerError, "provider/overloaded"),
            ):
                with pytest.raises(kind) as caught:
                    await client.responses.create(model="capital", input=text)
                assert isinstance(caught.value, openai.APIStatusError) and caught.value.code == code
                events = [
                    each async for each in await client.responses.create(model="capital", input=text, stream=True)
                ]
                last: Any = events[-1]
                assert last.type == "response.failed" and last.response.error.code == code
                assert last.response.status == "failed" and last.response.output_text == "half an "


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": "none", "input": "x"}, "serve/unknown-export"),
    ({"model": "capital"}, "serve/messages"),
    ({"model": "capital", "input": []}, "serve/messages"),
    ({"model": "capital", "input": [3]}, "serve/messages"),
    ({"model": "capital", "input": [{"role": "assistant", "content": "x"}]}, "serve/messages"),
    ({"model": "capital", "input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "serve/content"),
    ({"model": "capital", "input": [{"type": "function_call_output", "output": "x"}]}, "serve/content"),
    ({"model": "capital", "input": "x", "instructions": 3}, "serve/field"),
    ({"model": "capital", "input": "x", "previous_response_id": "resp_1"}, "serve/field"),
    ({"model": "capital", "input": "x", "background": True}, "serve/field"),
    ({"model": "sum", "input": "x"}, "serve/no-message"),
]


async def test_requests_that_cannot_be_answered_say_why() -> None:
    """Each is refused before a run begins, with our code and what to write instead."""
    exports = {"capital": CAPITAL, "sum": Export(program="(+ a b)", parameters={"a": "integer", "b": "integer"})}
    async with AgentFlow() as flow, served(flow, exports) as server:
        for body, code in BAD:
            answer = await server.post("/v1/responses", body)
            assert answer.status_code in (400, 404) and answer.json()["error"]["code"] == code, answer.text
        assert not list(server.runs)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_approval_cannot_be_given_and_a_client_that_leaves_has_its_run_cancelled(stream: bool) -> None:
    """The answer says what was asked for, and the run ends without having done it; nothing is left of either run."""
    done: list[int] = []
    began, ended = asyncio.Event(), asyncio.Event()

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        done.append(amount)
        return "paid"

    @tool
    async def nap() -> str:
        """Sleep."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "slept"

    async with AgentFlow(tools=[pay, nap]) as flow:
        exports = {"pay": Export(program="(content (pay (amount 7)))", allow=["pay"]), "nap": "(nap)"}
        async with served(flow, exports) as server, openai_client(server) as client:
            if stream:
                events = [each async for each in await client.responses.create(model="pay", input="x", stream=True)]
                last: Any = events[-1]
                text = last.response.output_text
            else:
                text = (await client.responses.create(model="pay", input="x")).output_text
            assert "approval" in text and "7" in text and not done
            async with httpx2.AsyncClient(timeout=30) as leaving:
                body = {"model": "nap", "input": "x", "stream": stream}
                asking = asyncio.create_task(leaving.post(f"{server.url}/v1/responses", json=body))
                await began.wait()
                asking.cancel()
                await asyncio.wait([asking])
            await asyncio.wait_for(ended.wait(), 10)
            for run in server.runs:
                await run.wait()
                assert run.status == "cancelled" and run.key.active == 0
