"""Answers in the shapes of real servers come out right: complete, or as one typed error, never as silence."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from pathlib import Path

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import ProviderError
from agentflow.core.data.messages import ModelDelta, ModelRequest, ThinkingPart, ToolSpec, user
from agentflow.core.events.events import Warning
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers import RetryPolicy, open_provider
from tests.support.model_server import ModelServer, Raw, Request
from tests.support.server_shapes import SHAPES, Bad, Good, Shape

DIALECTS = {"chat": "openai-chat", "anthropic": "anthropic", "responses": "openai"}
ADD = ToolSpec("add", "Adds", {"type": "object", "properties": {"a": {"type": "integer"}}})


def test_there_are_enough_shapes() -> None:
    """Each dialect has its own, and no two rows have one name."""
    counts = Counter(shape.dialect for shape in SHAPES.values())
    assert len(SHAPES) >= 150 and min(counts.values()) >= 30


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_shape_has_its_outcome(dialect: str, aiohttp: bool) -> None:
    """Text, stop reason, calls, thinking and warnings of good answers; class, words, code, partial text and tries of others."""
    shapes = {name: shape for name, shape in SHAPES.items() if shape.dialect == dialect}

    def by_model(request: Request) -> Raw:
        async def write(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(shapes[request.body["model"]].answer)
            await writer.drain()

        return Raw(write)

    async with ModelServer(by_model) as server:
        adapter = open_provider(
            DIALECTS[dialect],
            base_url=server.url,
            api_key="k",
            retry=RetryPolicy(attempts=2, base_s=0),
            aiohttp=aiohttp,
        )
        found = await asyncio.gather(*(differences(adapter, name, shape) for name, shape in shapes.items()))
        await adapter.aclose()
        tries = Counter(request.body["model"] for request in server.requests)
    wrong = [f"{name}: {difference}" for name, each in zip(shapes, found, strict=True) for difference in each]
    for name, shape in shapes.items():
        expected = 2 if isinstance(shape.outcome, Bad) and shape.outcome.retried else 1
        if tries[name] != expected:
            wrong.append(f"{name}: {tries[name]} tries, not {expected}")
    assert not wrong, "\n".join(wrong)


async def differences(adapter: ProviderAdapter, name: str, shape: Shape) -> list[str]:
    """What of a shape's outcome is not as it should be."""
    request = ModelRequest((user("hi"),), model=name, tools=(ADD,), stream=shape.stream)
    deltas: list[ModelDelta] = []
    try:
        async with aclosing(adapter.stream(request)) as stream:
            async for delta in stream:
                deltas.append(delta)
    except ProviderError as error:
        return _wrong_error(shape.outcome, error)
    if isinstance(shape.outcome, Bad):
        return [f"no error: {deltas[-1].response}"]
    return _wrong_answer(shape.outcome, shape.stream, deltas)


def _wrong_error(expected: Good | Bad, error: ProviderError) -> list[str]:
    if isinstance(expected, Good):
        return [f"{type(error).__name__}: {error}"]
    wrong: list[str] = []
    if type(error) is not expected.kind:
        wrong.append(f"{type(error).__name__} for {expected.kind.__name__}: {error}")
    if expected.says not in error.message:
        wrong.append(f"does not say {expected.says!r}: {error.message}")
    if expected.code and error.code != expected.code:
        wrong.append(f"code {error.code}")
    if expected.partial != error.partial:
        wrong.append(f"partial {error.partial!r}")
    return wrong


def _wrong_answer(expected: Good, streamed: bool, deltas: list[ModelDelta]) -> list[str]:
    response = deltas[-1].response
    if response is None:
        return ["no response"]
    actual = Good(
        response.text,
        response.stop_reason,
        tuple((call.name, call.arguments) for call in response.tool_calls),
        "".join(part.text for part in response.parts if isinstance(part, ThinkingPart)),
        "".join(delta.notice.code for delta in deltas if delta.notice is not None),
    )
    wrong = [] if actual == expected else [f"{actual}"]
    shown = "".join(delta.text for delta in deltas)
    if streamed and not expected.warning and shown != expected.text:
        wrong.append(f"shown {shown!r}")
    if any(call.invalid or not call.id for call in response.tool_calls):
        wrong.append(f"calls {response.tool_calls}")
    return wrong


async def test_a_text_that_differs_is_a_warning_event(tmp_path: Path) -> None:
    """In a run, the final text counts and a Warning carries both."""
    shape = SHAPES["responses: final text differs"]

    async def write(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(shape.answer)
        await writer.drain()

    async with ModelServer([Raw(write)], repeat=True) as server:
        async with AgentFlow("openai:m", base_url=server.url, root=tmp_path) as flow:
            warnings: list[Warning] = []
            flow.subscribe(lambda event: warnings.append(event) if isinstance(event, Warning) else None)
            text = '(progn (defatom t (params (x)) (instructions "{{x}}")) (value-of (t (x "a"))))'
            assert (await flow.run(text)).value == "hello"
    (warning,) = warnings
    assert (warning.code, warning.details) == ("provider/text-differs", {"streamed": "hullo", "final": "hello"})
