"""Request bodies of megabytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import Message, ModelRequest, ToolCallPart, user
from agentflow.providers.dialects.wire import body_of, dump_json

ESCAPES = 'line\n"quoted"\té€😀\\' * 100_000
"""Two megabytes, of which many characters are written as escapes."""


def body(request: ModelRequest, **settings: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": each.text} for each in request.messages], **settings}


async def turns_beside(work: Awaitable[bytes]) -> tuple[bytes, int]:
    """What ``work`` gives, and how often the loop ran something else meanwhile."""
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(tick())
    try:
        return await work, turns
    finally:
        beside.cancel()
        await asyncio.wait([beside])


async def test_a_long_body_is_encoded_in_slices() -> None:
    """The body of a long request is the JSON of its data, and others have their turns while it is encoded."""
    request = ModelRequest((user(ESCAPES), user("short")), model="m")
    data = body(request, temperature=0.5, stop=("a", "b"))
    encoded, turns = await turns_beside(body_of(request, data))
    assert json.loads(encoded) == json.loads(dump_json(data))
    assert turns > 1


@pytest.mark.parametrize("long", [False, True])
async def test_what_is_no_json_is_refused_however_long_the_body_is(long: bool) -> None:
    """An object, numbers as keys, half a character: long and short bodies take, replace and refuse the same."""
    request = ModelRequest((user("x" * 100_000 if long else "x"),), model="m")
    with pytest.raises(ConfigurationError) as caught:
        await body_of(request, body(request, wrong=object()))
    assert caught.value.code == "provider/request-not-json"
    assert json.loads(await body_of(request, body(request, half="\ud800")))["half"] == "\ufffd"
    assert json.loads(await body_of(request, body(request, logit_bias={50: -1})))["logit_bias"] == {"50": -1}


async def test_long_arguments_of_a_call_make_a_request_long() -> None:
    """A history whose length is in the arguments of a tool call is encoded in slices, too."""
    call = ToolCallPart("c", "look", {"text": ESCAPES})
    request = ModelRequest((Message("assistant", (call,)),), model="m")
    data = {"messages": [{"role": "assistant", "content": [call.arguments]}]}
    encoded, turns = await turns_beside(body_of(request, data))
    assert json.loads(encoded) == data and turns > 1
