"""Budgets of tokens and money: what a call may cost is set aside before it is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Allowance, CallContext, Limits, Price, ScriptedProvider
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.provider_errors import RateLimited
from agentflow.events import Event, ModelFinished, WaitFinished, WaitStarted, Warning
from agentflow.providers.openai import OpenAIChatProvider
from agentflow.settings import Settings
from tests.support.metered_model import MeteredModel, asking
from tests.support.model_server import ModelServer, Raw, Request

DOLLAR = {"scripted:*": Price(input=1_000_000, output=1_000_000)}
"""A dollar a token: money counts what tokens count."""


def capped(flow: AgentFlow, cap: int, name: str = "ask", **fields: Any) -> None:
    """Give ``flow`` a task ``ask`` whose answers have at most ``cap`` tokens."""
    flow.task_system.register_template(
        {"name": name, "params": "n", "instructions": "Write {{n}}", "max_output_tokens": cap, **fields}
    )


@pytest.mark.parametrize("money", [False, True])
async def test_ten_calls_at_once_keep_within_the_budget(money: bool) -> None:
    """Of ten calls under 250 tokens (or dollars) some finish, each is paid for, and their sum is at most 250."""
    model = MeteredModel()
    limits = Limits(usd=250) if money else Limits(tokens=250)
    async with AgentFlow(provider=model, limits=limits, prices=DOLLAR) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(f"{asking()} (pmap (lambda (n) (ask (n n))) (list 36 36 36 36 36 36 36 36 36 36))")
    assert caught.value.limit == ("usd" if money else "tokens")
    assert 1 <= model.finished < 10 and model.paid <= 250
    assert model.active == 0 and model.most == 1, "nothing is said of how long answers are: one after the other"


async def test_stated_caps_run_wide() -> None:
    """Calls whose stated caps fit side by side do not wait, and none is lowered."""
    model = MeteredModel(yields=20)
    async with AgentFlow(provider=model, limits=Limits(tokens=1_000)) as flow:
        capped(flow, 40)
        await flow.run("(pmap (lambda (n) (ask (n n))) (list 30 30 30 30 30 30 30 30))")
    assert model.most == 8 and [request.max_output_tokens for request in model.requests] == [40] * 8


async def test_without_a_budget_nothing_is_sent_or_waited_for() -> None:
    """A run without limits of tokens or money sends no cap of its own."""
    model = MeteredModel(yields=20)
    async with AgentFlow(provider=model) as flow:
        await flow.run(f"{asking()} (pmap (lambda (n) (ask (n n))) (list 30 30 30))")
    assert model.most == 3 and [request.max_output_tokens for request in model.requests] == [None] * 3


async def test_an_answer_cut_off_by_the_budget_ends_the_run() -> None:
    """It is LimitExceeded with the partial text, not an answer to repair, nor a task to split up."""
    model = MeteredModel()
    async with AgentFlow(provider=model, limits=Limits(tokens=300)) as flow:
        flow.task_system.register_template(
            {
                "name": "ask",
                "params": "n",
                "instructions": "Write {{n}}",
                "decompose": 2,
                "output_format": {"type": "json"},
            }
        )
        with pytest.raises(LimitExceeded) as caught:
            await flow.run("(ask (n 5000))")
    assert len(model.requests) == 1 and 200 < (model.requests[0].max_output_tokens or 0) < 300
    assert caught.value.code == "limits/cut-off" and caught.value.details["partial"].startswith("word word")
    assert caught.value.limit == "tokens" and caught.value.allowed == 300


async def test_a_server_that_calls_a_cut_answer_complete_is_not_believed() -> None:
    """An answer as long as its lowered cap is cut off, whatever the server says; a shorter one is good."""
    for written, cut in ((10_000, True), (20, False)):

        def reply(request: ModelRequest, written: int = written) -> dict[str, Any]:
            tokens = min(written, request.max_output_tokens or 0)
            return {"text": "x", "usage": {"input_tokens": 20, "output_tokens": tokens}}

        async with AgentFlow(provider=ScriptedProvider(reply), limits=Limits(tokens=400)) as flow:
            if not cut:
                await flow.run(f"{asking()} (ask (n 1))")
                continue
            with pytest.raises(LimitExceeded, match="cut off"):
                await flow.run(f"{asking()} (ask (n 1))")


@pytest.mark.parametrize("limits", [Limits(tokens=3), Limits(usd=3), Limits(tokens=0), Limits(usd=0)])
async def test_what_cannot_be_afforded_is_not_begun(limits: Limits) -> None:
    """A call whose input alone is too much is never sent; the error says what is left."""
    model = MeteredModel()
    async with AgentFlow(provider=model, limits=limits, prices=DOLLAR) as flow:
        with pytest.raises(LimitExceeded):
            await flow.run(f"{asking()} (ask (n 1))")
    assert not model.requests


async def test_a_model_without_a_price_is_not_called_under_a_limit_of_money() -> None:
    """It is a limit, so that no program turns it into a value; ``offline`` and ``scripted`` are free."""
    model = MeteredModel(name="acme")
    program = f"{asking()} (try (ask (n 1)) (catch (e) 'caught))"
    async with AgentFlow(provider=model, limits=Limits(usd=5)) as flow:
        with pytest.raises(LimitExceeded, match="price") as caught:
            await flow.run(program)
    assert caught.value.code == "limits/unpriced" and not model.requests and "prices=" in (caught.value.hint or "")
    async with AgentFlow(provider=model, limits=Limits(usd=5), prices={"acme:*": Price(1, 1)}) as flow:
        result = await flow.run(program)
        assert result.cost == pytest.approx(model.paid / 1e6)
    for free in ({"provider": MeteredModel()}, {"model": "offline"}):
        async with AgentFlow(limits=Limits(usd=0.01), **free) as flow:
            assert (await flow.run(program)).cost == 0


async def test_what_a_tool_starts_is_bounded_too() -> None:
    """``flow.run`` in a tool draws on the run's budget, and limits given there only narrow it."""
    model = MeteredModel()
    limits: list[Limits | None] = [None, Limits(tokens=10**9), Limits(tokens=120)]

    async with AgentFlow(provider=model, limits=Limits(tokens=400)) as flow:

        @flow.tool
        async def nested(index: int) -> str:
            """Ask within the run."""
            return (await flow.run(f"{asking()} (value-of (ask (n 90)))", limits=limits[index])).value

        for index in range(3):
            model.paid = 0
            with pytest.raises(LimitExceeded) as caught:
                await flow.run(f"(map (lambda (i) (nested (index {index}))) (range 10))")
            assert model.paid <= 400 and caught.value.allowed == (120 if index == 2 else 400)


@pytest.mark.parametrize(
    ("program", "least"),
    [
        ('(defatom ask (params) (instructions "Hi") (history_config (use_session_history true) (compact_keep_turns 1)'
             " (record_in_session_history true) (compact_after_tokens 5))) (ask) (ask) (ask)", 4),
        ('(solve "the sum of 1 and 2" (allow))', 1),
        ('(get_context (query "river"))', 1),
    ],
    ids=["compaction", "solve", "ranker"],
)  # fmt: skip
async def test_whatever_asks_a_model_sets_aside_first(program: str, least: int, tmp_path: Path) -> None:
    """Summaries of conversations, written programs and rankings are calls like others: capped, and refused without a budget."""
    for name in ("river.py", "brook.py"):
        (tmp_path / name).write_text("# the river\n")
    model = ScriptedProvider(lambda request: "[]" if "get_context" in program else "(+ 1 2)")
    async with AgentFlow(provider=model, root=tmp_path, settings=Settings(rerank=True)) as flow:
        await flow.run(program, limits=Limits(tokens=50_000))
        asked = len(model.requests)
        assert asked >= least and all(request.max_output_tokens for request in model.requests)
        with pytest.raises(LimitExceeded):
            await flow.run(program, max_tokens=2)
    assert len(model.requests) == asked


async def test_who_waits_for_a_part_lets_others_pass() -> None:
    """A part of a run that is used up for the moment holds up nobody outside of it."""
    model = MeteredModel(yields=50)
    async with AgentFlow(provider=model, limits=Limits(tokens=10_000)) as flow:
        capped(flow, 100)

        @flow.tool
        async def narrow(n: int) -> list[Any]:
            """Two calls in a part that has room for one at a time."""
            part = "(pmap (lambda (n) (ask (n n))) (list n n))"
            return (await flow.run(part, bindings={"n": n}, limits=Limits(tokens=300))).value

        await flow.run("(parallel (narrow (n 70)) (begin (ask (n 50)) (ask (n 51)) (ask (n 52))))")
    order = [int(request.messages[-1].text.split()[-1]) for request in model.requests]
    assert order.index(51) < len(order) - 1 - order[::-1].index(70), order


async def test_waiting_for_the_budget_is_seen() -> None:
    """A pair of events at the path of the call that waits, of no path of its own; none where nothing waited."""
    async with AgentFlow(provider=MeteredModel(), limits=Limits(tokens=1_000)) as flow:
        seen: list[Any] = []
        flow.subscribe(lambda event: seen.append(event) if isinstance(event, WaitStarted | WaitFinished) else None)
        await flow.run(f"{asking()} (ask (n 5))")
        assert not seen
        await flow.run(f"{asking()} (parallel (ask (n 5)) (ask (n 6)))")
    assert [(type(event), event.reason) for event in seen] == [(WaitStarted, "budget"), (WaitFinished, "budget")]
    assert seen[1].outcome == "ok" and seen[0].path == seen[1].path


@pytest.mark.slow
async def test_a_long_wait_is_warned_of() -> None:
    """After a second of waiting a warning says what to state."""
    model = ScriptedProvider([{"text": "a", "delay_s": 1.3}, "b"])
    async with AgentFlow(provider=model, limits=Limits(tokens=1_000)) as flow:
        seen: list[Warning] = []
        flow.subscribe(lambda event: seen.append(event) if isinstance(event, Warning) else None)
        await flow.run(f"{asking()} (parallel (ask (n 5)) (ask (n 6)))")
    assert [event.code for event in seen] == ["limits/waiting"] and "max_output_tokens" in seen[0].message


async def test_who_waits_can_be_cancelled() -> None:
    """A branch that is cancelled while it waits leaves the queue; those behind it go on, and nothing stays set aside."""
    model = MeteredModel(yields=30)
    async with AgentFlow(provider=model, limits=Limits(tokens=1_000)) as flow:
        capped(flow, 800)
        assert (await flow.run("(race (ask (n 5)) (ask (n 6))) (value-of (ask (n 7)))")).value.startswith("word")
        seen: list[CallContext] = []

        @flow.tool
        async def look(ctx: CallContext) -> str:
            """Keep the call."""
            seen.append(ctx)
            return ""

        await flow.run("(race (ask (n 5)) (ask (n 6)) (ask (n 7))) (look)")
    purse: Any = seen[0].run.funds
    assert (purse.calls, purse.held_tokens, purse.waiters.first()) == (0, 0, None)


async def test_a_cancelled_call_is_paid_for() -> None:
    """What a provider had read and written before a call was cancelled counts, marked as estimated, and is in its event."""
    model = ScriptedProvider([{"text": "word " * 40, "delay_s": 30}, "quick"])
    ends: list[ModelFinished] = []
    async with AgentFlow(provider=model, prices={"scripted:*": Price(1, 1)}) as flow:
        flow.subscribe(lambda event: ends.append(event) if isinstance(event, ModelFinished) else None)
        result = await flow.run(f"{asking()} (race (ask (n 1)) (ask (n 2)))")
    assert result.usage.requests == 2 and 5 <= result.usage.estimated_tokens < 30
    lost = next(event.usage for event in ends if event.outcome == "cancelled")
    assert lost is not None and lost.estimated_tokens == result.usage.estimated_tokens == lost.total_tokens
    assert result.cost == pytest.approx(result.usage.total_tokens / 1e6)


@pytest.mark.parametrize(
    ("reply", "charged"),
    [
        ({"text": "half an ans", "error": "broke"}, True),
        (RateLimited("later"), False),
        ({"error": "down"}, False),
    ],
)
async def test_a_broken_call_costs_what_arrived(reply: Any, charged: bool) -> None:
    """A stream that broke costs its input and what had arrived; a call that was refused costs nothing."""
    async with AgentFlow(provider=ScriptedProvider([reply, "good"])) as flow:
        flow.subscribe(lambda event: None)
        result = await flow.run(f"{asking()} (ask (n 1)) (ask (n 2))")
    assert result.usage.requests == (2 if charged else 1)
    assert (result.usage.estimated_tokens > 0) == charged


async def test_an_attempt_that_broke_is_paid_for_and_so_is_the_next() -> None:
    """A request that was sent and got no answer may have been billed: it counts as estimated, before it is sent again."""

    async def close(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    seen: list[Event] = []
    prices = {"model": Price(1_000, 1_000)}
    async with ModelServer([Raw(close), "good", Raw(close), "never"]) as server:
        options = {"base_url": f"{server.url}/v1", "api_key": "k", "prices": prices}
        async with AgentFlow("openai-chat:model", **options) as flow:
            capped(flow, 50)
            flow.subscribe(seen.append)
            result = await flow.run("(ask (n 1))")
            lost = result.usage.estimated_tokens
            assert result.usage.requests == 2 and 0 < lost < 20 and result.value.usage == result.usage
            (ended,) = [event for event in seen if isinstance(event, ModelFinished)]
            assert ended.usage == result.usage and ended.response is not None
            assert ended.response.usage.total_tokens + lost == result.usage.total_tokens
            assert result.cost == pytest.approx(result.usage.total_tokens / 1e3)
            with pytest.raises(LimitExceeded) as caught:
                await flow.run("(ask (n 1))", max_tokens=lost + 55)
    assert len(server.requests) == 3, "what is left after the first attempt is too little for a second"
    assert caught.value.usage is not None and caught.value.usage.total_tokens == lost


async def test_a_fallback_is_reserved_at_its_dearest_route() -> None:
    """A call that may end up at a dear model does not begin unless that could be paid."""
    cheap, dear = Price(input=0, output=0), Price(input=1_000_000, output=1_000_000)
    async with AgentFlow(
        "openai-chat:cheap",
        base_url="http://127.0.0.1:9",
        prices={"cheap": cheap, "dear": dear},
        fallbacks=["openai-chat:dear"],
        limits=Limits(usd=3),
    ) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(f"{asking()} (ask (n 1))")
    assert caught.value.limit == "usd"


@pytest.mark.parametrize("place", ["flow", "task"])
async def test_native_fields_cannot_lengthen_an_answer(place: str) -> None:
    """``max_tokens``, ``n`` and their like in native settings never exceed the cap; a lower one is the cap that is reserved."""
    settings = {"max_tokens": 100_000, "max_completion_tokens": 100_000, "n": 5, "top_k": 3}
    async with ModelServer(["good"], repeat=True) as server:
        adapter = OpenAIChatProvider(
            base_url=f"{server.url}/v1", settings=settings if place == "flow" else None, api_key="k"
        )
        async with AgentFlow(provider=adapter, limits=Limits(tokens=2_000)) as flow:
            capped(flow, 50, settings=settings if place == "task" else {})
            await flow.run("(ask (n 1))")
            body = server.requests[-1].body
            assert body["max_tokens"] == 50 and body["top_k"] == 3 and "n" not in body
            flow.task_system.register_template(
                {
                    "name": "short",
                    "params": "",
                    "instructions": "Hi",
                    "settings": {"max_tokens": 30} if place == "task" else {},
                }
            )
            await flow.run("(short)")
            body = server.requests[-1].body
            assert body["max_tokens"] == 30 if place == "task" else 1_000 < body["max_tokens"] < 2_000
        await adapter.aclose()


async def test_the_model_without_a_price_is_named() -> None:
    """Of a model and its fallbacks it is the one that lacks a price: the message says which to state."""
    model = ScriptedProvider(lambda request: "x", name="own")
    prices = {"own:a": Price(input=1, output=1)}
    async with AgentFlow(provider=model, prices=prices, limits=Limits(usd=1)) as flow:
        with pytest.raises(LimitExceeded, match="'own:b'") as caught:
            await flow.ask("Hi", model="own:a", fallbacks=["own:b"])
    assert caught.value.code == "limits/unpriced" and not model.requests


async def test_a_limit_of_money_is_not_set_on_what_has_no_known_cost(tmp_path: Path) -> None:
    """A run that has paid a model without a price cannot be kept within dollars later: the error says so, and the model is not asked. A
    limit of tokens, and a purse, count."""
    text = (
        '(defatom t (params (n integer)) (instructions "Say {{n}}")) (t (n 1)) (ask-human "on?") (value-of (t (n 2)))'
    )
    model = ScriptedProvider(
        lambda request: {"text": "x", "usage": {"input_tokens": 10, "output_tokens": 10}}, name="own"
    )
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(provider=model, durable=url) as flow:
        handle = await flow.start(text, run_id="r")
        assert await handle.wait() == "waiting"
        key = handle.waiting[0].key
    prices = {"own:*": Price(input=10, output=10)}
    async with AgentFlow(provider=model, durable=url, prices=prices, purses={"*": Allowance(usd=1)}) as flow:
        await flow.send("r", key, True)
        with pytest.raises(LimitExceeded, match="without a known price before") as caught:
            await (await flow.resume("r", limits=Limits(usd=1))).result()
        assert caught.value.code == "limits/unpriced" and len(model.requests) == 1
        result = await (await flow.resume("r", limits=Limits(tokens=10_000), purse="a")).result()
        assert (result.value, result.cost) == ("x", None)
        assert (await flow.purses.look("a")).spent.usd == pytest.approx(0.0002)
