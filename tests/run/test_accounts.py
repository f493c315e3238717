"""A run that failed, was left or goes on keeps its account; and what it may cost can only be lowered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Limits, Price, ScriptedProvider, Secret
from agentflow.core.data.errors import AgentflowError, LimitExceeded, ProviderError, TaskError
from agentflow.core.data.messages import Usage
from agentflow.errors import IncompleteStream, RunCancelled
from agentflow.events import ModelFinished, TextDelta
from tests.support.metered_model import MeteredModel, asking
from tests.support.model_server import ModelServer, Reply

PRICES = {"scripted:*": Price(1, 1)}


class Slotted(Exception):
    """An error that takes no attributes."""

    __slots__ = ()


async def test_an_error_says_what_its_run_cost() -> None:
    """Whatever a run raises has its id, its tokens and its money, errors of the host's own too."""
    model = MeteredModel()
    async with AgentFlow(provider=model, prices=PRICES) as flow:
        with pytest.raises(TaskError) as caught:
            await flow.run(f"{asking()} (ask (n 5)) (value-of (ask (n 'x)))", run_id="run-7")
    error = caught.value
    assert error.run_id == "run-7" and error.usage is not None
    assert error.usage.total_tokens == model.paid > 0 and error.cost == pytest.approx(model.paid / 1e6)
    assert AgentflowError("x").usage is None and AgentflowError("x").partial == ()


async def test_what_was_finished_comes_with_the_error() -> None:
    """``partial`` has the values of the outermost form that was cut, in order, at most a thousand."""
    async with AgentFlow(provider=MeteredModel(), limits=Limits(tokens=2_000)) as flow:
        flow.task_system.register_template(
            {"name": "ask", "params": "n", "instructions": "Write {{n}}", "max_output_tokens": 300}
        )
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(
                "(pmap (lambda (n) (map (lambda (m) (ask (n m)) m) (list n n))) (list 1 2 300 300 300 300 300))"
            )
        assert caught.value.partial[:2] == ([1, 1], [2, 2])
    async with AgentFlow(limits=Limits(concurrency=1)) as flow:
        for items, there in ((3_000, 1_000), (5, 4)):
            with pytest.raises(AgentflowError) as failed:
                await flow.run(f"(pmap (lambda (n) (if (= n {items - 1}) (raise 'no) n)) (range {items}))")
            assert failed.value.partial == tuple(range(there))
        with pytest.raises(LimitExceeded) as late:
            await flow.run("(parallel 1 (while true 1))", limits=Limits(wall_s=0.2, steps=None))
        assert late.value.limit == "wall_s" and late.value.partial == (1,)


@pytest.mark.parametrize(
    ("program", "there"),
    [
        ("(map (lambda (n) (if (= n 3) (raise 'no) n)) (range 9))", (0, 1, 2)),
        ("(map (lambda (n m) (if (= n 3) (raise 'no) (+ n m))) (range 9) (range 9))", (0, 2, 4)),
        ("(filter (lambda (n) (if (= n 5) (raise 'no) (odd? n))) (range 9))", (1, 3)),
        ("(map (lambda (n) (map (lambda (m) (if (= n m 2) (raise 'no) m)) (range 4))) (range 4))", ((0, 1, 2, 3),) * 2),
        ("(list (pmap (lambda (n) n) (list 1 2)) (parallel 1 (raise 'no)))", (1,)),
        ("(race (ask (n 'x)) (begin (sleep 0.01) (while true 1)))", ("FAILED",)),
        ("(for-each (lambda (n) (if (= n 3) (raise 'no) n)) (range 9))", ()),
        ("(begin 1 2 (raise 'no))", ()),
    ],
)
async def test_every_form_that_gathers_values_leaves_them_with_the_error(program: str, there: tuple[Any, ...]) -> None:
    """``partial`` is that of the outermost one; forms that keep no values have none to leave."""
    async with AgentFlow(provider=MeteredModel(), limits=Limits(concurrency=1)) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run(f"{asking()} {program}", limits=Limits(concurrency=2, steps=20_000))
    left = tuple(getattr(value, "status", value) for value in caught.value.partial)
    assert left == tuple(list(value) if isinstance(value, tuple) else value for value in there)


async def test_a_provider_error_keeps_its_text() -> None:
    """The partial of a broken answer is its text, as it is outside of runs."""
    async with AgentFlow(provider=ScriptedProvider([{"text": "half", "error": "broke"}])) as flow:
        with pytest.raises(ProviderError) as caught:
            await flow.run(f"{asking()} (pmap (lambda (n) (value-of (ask (n n)))) (list 1))")
    assert caught.value.partial == "half" and caught.value.run_id


async def test_the_values_left_are_the_hosts_own() -> None:
    """``partial`` has what a value of the run would have, plain and whole; the error beside it shows no secret."""
    secret = "tomato-harbour-71-violet"
    text = "(map (lambda (n) (if (= n 2) (error s) (if (= n 1) (reduce (lambda (l i) (cons i l)) nil (range 99)) s))) (range 5))"
    seen: list[object] = []
    async with AgentFlow(api_key=Secret(secret)) as flow:
        flow.subscribe(lambda event: seen.append(event.to_dict()))
        with pytest.raises(AgentflowError) as caught:
            await flow.run(text, bindings={"s": secret})
    assert caught.value.partial == (secret, list(range(99))[::-1]) and type(caught.value.partial[1]) is list
    assert secret not in str(caught.value) and secret not in repr(seen)


async def test_code_in_a_tool_has_them_too() -> None:
    """A run within a tool leaves its values with the error that the tool's code catches."""
    found: list[object] = []

    async def work() -> int:
        """Run a program that fails."""
        try:
            await flow.run("(map (lambda (n) (if (= n 2) (raise 'no) n)) (range 5))")
        except AgentflowError as error:
            found.append(error.partial)
        return 1

    async with AgentFlow(tools=[work]) as flow:
        await flow.run("(work)")
    assert found == [(0, 1)]


async def test_a_lone_cancellation_is_left_as_it_is() -> None:
    """A run whose task is cancelled raises CancelledError, with nothing added to it."""
    async with AgentFlow(limits=Limits(steps=None)) as flow:
        task = asyncio.create_task(flow.run("(while true 1)"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
    assert not hasattr(caught.value, "run_id")


async def test_a_stream_tells_what_it_has_cost_so_far() -> None:
    """``account`` is live, and stands when the run has ended."""
    async with AgentFlow(provider=MeteredModel(), prices=PRICES) as flow:
        seen: list[int] = []
        stream = flow.stream(f"{asking()} (ask (n 5)) (ask (n 6))", run_id="r")
        assert stream.account.usage.requests == 0
        async with stream as run:
            async for event in run:
                if isinstance(event, ModelFinished):
                    await asyncio.sleep(0)
                    seen.append(run.account.usage.requests)
        result = await run.result()
        assert seen[-1] == 2 and run.account.run_id == "r"
        assert (run.account.usage, run.account.cost, run.account.steps) == (result.usage, result.cost, result.steps)


@pytest.mark.parametrize("to_the_end", [False, True])
async def test_a_call_under_way_is_in_the_account(to_the_end: bool, tmp_path: Path) -> None:
    """What was sent and what has arrived counts by estimate while the answer comes, and stands when the call was cut off."""
    arrived: list[Usage] = []
    reply = Reply(text="one two three four five six", chunk_s=0.01)
    async with ModelServer([reply, replace(reply, cut=4)]) as server:
        flow = AgentFlow("openai-chat:gpt-5-mini", base_url=server.url, api_key="key", root=tmp_path)
        async with flow:
            for cut in (False, True):
                async with flow.stream(flow.ask("hello there " * 40)) as run:
                    assert run.account.cost == 0
                    async for event in run:
                        if isinstance(event, TextDelta):
                            arrived.append(run.account.usage)
                            assert (run.account.cost or 0) > 0 and run.account.usage.requests == 1
                            if not to_the_end and not cut:
                                break
                    if cut:
                        with pytest.raises(IncompleteStream) as caught:
                            await run.value()
                        assert (run.account.usage, run.account.cost) == (caught.value.usage, caught.value.cost)
                    elif to_the_end:
                        assert run.account.usage.estimated_tokens == 0, "the server said what it took"
                assert (run.account.cost or 0) > 0 and run.account.usage.requests == 1
    assert all(each.input_tokens > 100 and each.estimated_tokens for each in arrived[:1])


async def test_a_call_under_way_in_a_tool_counts_for_the_part_and_the_run() -> None:
    """The stream of a part of a run, and that of the run around it, both tell what its calls have cost so far."""
    flow = AgentFlow(provider=ScriptedProvider(["one two three"]), prices=PRICES)
    seen: list[tuple[float, float]] = []

    @flow.tool
    async def inner() -> str:
        """Ask."""
        async with flow.stream(flow.ask("hello there " * 40)) as part:
            async for event in part:
                if isinstance(event, TextDelta):
                    seen.append((part.account.cost or 0, outer.account.cost or 0))
            return await part.value()

    async with flow, flow.stream("(value-of (inner))") as outer:
        assert await outer.value() == "one two three"
    assert seen and all(own == around > 0 for own, around in seen)


async def test_a_stream_that_was_left_has_no_value() -> None:
    """It raises RunCancelled, which says what the run had cost; it does not cancel whoever asks."""
    model = ScriptedProvider(["a", {"text": "b", "delay_s": 60}])
    async with AgentFlow(provider=model) as flow:
        async with flow.stream(f"{asking()} (ask (n 1)) (ask (n 2))") as run:
            async for event in run:
                if isinstance(event, ModelFinished):
                    break
        with pytest.raises(RunCancelled) as caught:
            await run.value()
    assert (
        caught.value.usage is not None
        and caught.value.usage.requests >= 1
        and caught.value.run_id == run.account.run_id
    )


async def test_a_stream_that_was_not_opened_says_so() -> None:
    """Iterating over a stream, or asking for its value, outside of ``async with`` is an error at once."""
    async with AgentFlow() as flow:
        stream = flow.stream("1")
        with pytest.raises(AgentflowError) as caught:
            async for _ in stream:
                pass
        assert caught.value.code == "stream/not-open" and "async with" in (caught.value.hint or "")
        with pytest.raises(AgentflowError, match="not open"):
            await stream.value()


@pytest.mark.parametrize("own", [Limits(), Limits(tokens=10_000, usd=10)])
async def test_what_a_run_may_cost_can_be_lowered(own: Limits) -> None:
    """``max_cost=`` and ``max_tokens=`` bound one run, in a stream too; they never raise a limit, nor leave a tool's run."""
    model = MeteredModel()
    program = f"{asking()} (while true (ask (n 5)))"
    async with AgentFlow(provider=model, limits=own, prices={"scripted:*": Price(1_000, 1_000)}) as flow:
        for asked, limit in (({"max_tokens": 300}, "tokens"), ({"max_cost": 0.2}, "usd")):
            with pytest.raises(LimitExceeded) as caught:
                await flow.run(program, **asked)  # type: ignore[arg-type]
            assert caught.value.limit == limit and caught.value.allowed == next(iter(asked.values()))
        with pytest.raises(LimitExceeded):
            async with flow.stream(program, max_tokens=300) as run:
                await run.value()
        assert flow.limits == own and (await flow.run("1", max_cost=0)).value == 1
        with pytest.raises(AgentflowError, match="usd=-1"):
            await flow.run("1", max_cost=-1)

        @flow.tool
        async def nested(tokens: int) -> Any:
            """Ask for as much as given."""
            return (await flow.run(program, max_tokens=tokens)).value

        for tokens, allowed in ((200, 200), (10**6, 500)):
            with pytest.raises(LimitExceeded) as caught:
                await flow.run(f"(nested (tokens {tokens}))", max_tokens=500)
            assert caught.value.allowed == allowed
