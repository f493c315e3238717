"""Prompt caching: prompts ask for it where it pays, and a conversation reads what it repeats from the cache.

The loopback server simulates Anthropic's cache by its published rules.
"""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentFlow, Session
from agentflow.core.data.messages import user
from agentflow.handler.prompt_opening import PromptCaching, prefix_key
from tests.support.model_server import ModelServer
from tests.support.prompt_cache import SimulatedCache

MODEL = "anthropic:claude-sonnet-5-5"
GUIDE = "Rules of the house, which every call repeats. " * 200


def flow_on(server: ModelServer, **options: Any) -> AgentFlow:
    return AgentFlow(MODEL, base_url=server.url, api_key="k", **options)


def usage_of(cache: SimulatedCache, server: ModelServer) -> list[dict[str, int]]:
    """What each request that ``server`` was sent reads and writes, in a cache that begins empty."""
    return [cache.read(request.body) for request in server.requests]


async def test_a_tool_loop_reads_what_it_repeats() -> None:
    """Of five turns with tools, at least 80 % of the input that repeats comes from the cache; simulated."""
    calls = [{"tool_calls": [{"id": f"c{n}", "name": "look", "arguments": {"page": n}}]} for n in range(4)]
    async with ModelServer([*calls, "done"], cache=SimulatedCache()) as server:
        flow = flow_on(server)

        @flow.tool
        async def look(page: int) -> str:
            """A page."""
            return f"page {page}: " + "words " * 400

        async with flow:
            result = await flow.run(
                f'(defatom read (params) (system "{GUIDE}") (instructions "Read all.") (tools look)) (read)'
            )
            usage = result.usage
        shares = usage_of(SimulatedCache(), server)
    assert len(shares) == 5 and usage.requests == 5
    totals = [each["input_tokens"] + each["cache_read"] + each["cache_write"] for each in shares]
    repeated = sum(totals[:-1])
    assert usage.cache_read_tokens == sum(each["cache_read"] for each in shares)
    assert usage.cache_read_tokens >= 0.8 * repeated


async def test_many_results_in_one_turn_are_still_found() -> None:
    """A server looks 20 blocks back: a turn of 30 tool results does not lose what was kept before it."""
    flood = {"tool_calls": [{"id": f"c{n}", "name": "look", "arguments": {"page": n}} for n in range(30)]}
    async with ModelServer([flood, {**flood, "text": "again"}, "done"], cache=SimulatedCache()) as server:
        flow = flow_on(server)

        @flow.tool
        async def look(page: int) -> str:
            """A page."""
            return f"page {page}: " + "words " * 40

        async with flow:
            await flow.run(f'(defatom read (params) (system "{GUIDE}") (instructions "Read all.") (tools look)) (read)')
        first, second, third = usage_of(SimulatedCache(), server)
    total = [sum(each[key] for key in ("input_tokens", "cache_read", "cache_write")) for each in (first, second, third)]
    assert second["cache_read"] >= 0.9 * total[0] and third["cache_read"] >= 0.9 * total[1]


async def test_a_conversation_reads_its_history() -> None:
    """The second prompt of a session asks for it, the third reads what the second sent."""
    async with ModelServer(["fine"], repeat=True, cache=SimulatedCache()) as server:
        session = Session()
        async with flow_on(server) as flow:
            for _ in range(3):
                await flow.run(
                    f'(defatom t (params) (instructions "{GUIDE}") (history_config (record_in_session_history true) (use_session_history true))) (t)',
                    session=session,
                )
        first, second, third = usage_of(SimulatedCache(), server)
    assert not first["cache_write"] and second["cache_write"] > 2_000 and third["cache_read"] > 2_000


async def test_one_call_alone_pays_for_no_cache() -> None:
    """A prompt without tools or history is not kept, unless its beginning was sent within the last five minutes."""
    async with ModelServer(["fine"], repeat=True, cache=SimulatedCache()) as server:
        async with flow_on(server) as flow:
            alone = '(instructions "Say {{n}}.") (history_config (use_session_history false))'
            for name, system in (("t", GUIDE), ("short", "Be brief.")):
                await flow.run(
                    f'(defatom {name} (params n) (system "{system}") {alone}) (map (lambda (n) ({name} (n n))) (range 3))'
                )
        first, second, third, *short = usage_of(SimulatedCache(), server)
    assert not first["cache_write"] and second["cache_write"] and third["cache_read"] == second["cache_write"]
    assert not any("cache_control" in str(request.body) for request in server.requests[3:]) and len(short) == 3


@pytest.mark.parametrize(("flow_says", "task_says", "expected"), [
    (None, "", []), ("1h", "", ["1h"]), (False, '(prompt_cache "5m")', [None]), ("1h", '(prompt_cache "off")', []),
])  # fmt: skip
async def test_flow_and_task_may_say(flow_says: Any, task_says: str, expected: list[str | None]) -> None:
    """``prompt_cache`` of a task comes before the flow's; ``off`` and False keep nothing."""
    async with ModelServer(["fine"], repeat=True) as server:
        async with flow_on(server, prompt_cache=flow_says) as flow:
            await flow.run(f'(defatom t (params) (system "{GUIDE}") (instructions "Say.") {task_says}) (t)')
        system = server.requests[0].body["system"]
    controls = [block["cache_control"] for block in system if isinstance(block, dict) and "cache_control" in block]
    assert [each.get("ttl") for each in controls] == expected


async def test_a_wrong_word_is_refused() -> None:
    """A time that no provider keeps is an error where it stands."""
    async with AgentFlow("scripted") as flow:
        with pytest.raises(Exception, match="prompt_cache"):
            await flow.run('(defatom t (params) (instructions "x") (prompt_cache "2h")) (t)')


def test_a_prefix_counts_for_five_minutes() -> None:
    """After that the server has dropped it, and asking again would only cost."""
    now = [0.0]
    caching = PromptCaching(clock=lambda: now[0])
    key = prefix_key("m", "system", user("hi"))
    assert key == prefix_key("m", "system", user("other")) != prefix_key("m", "other", user("hi"))
    assert [caching.seen(key), caching.seen(key)] == [False, True]
    now[0] = 299
    assert caching.seen(key)
    now[0] = 600
    assert not caching.seen(key)


def test_the_simulated_cache_keeps_the_published_rules() -> None:
    """Four marks, a minimum, twenty blocks back, five minutes or an hour: what the figures above stand on."""
    now = [0.0]
    cache = SimulatedCache(clock=lambda: now[0])
    mark = {"cache_control": {"type": "ephemeral"}}

    def body(*blocks: dict[str, Any], model: str = "claude-sonnet-5-5") -> dict[str, Any]:
        return {
            "model": model,
            "messages": [{"role": "user", "content": [{"type": "text", **each} for each in blocks]}],
        }

    long = {"text": "x" * 8_000}
    with pytest.raises(ValueError, match="maximum of 4"):
        cache.read(body(*[{"text": "a", **mark}] * 5))
    assert not cache.read(body({"text": "short", **mark}))["cache_write"]
    written = cache.read(body({**long, **mark}))["cache_write"]
    assert written > 2_000 and cache.read(body({**long, **mark}))["cache_read"] == written
    near = [{"text": "y"}] * 19
    far = [{"text": "z"}] * 20
    assert cache.read(body(long, *near[:-1], {**near[-1], **mark}))["cache_read"] == written
    assert not cache.read(body(long, *far[:-1], {**far[-1], **mark}))["cache_read"]
    now[0] = 301
    assert not cache.read(body({**long, **mark}))["cache_read"]
    assert not cache.read(body({**long, **mark}, model="claude-haiku-4-5"))["cache_write"]
