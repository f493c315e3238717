"""Batches against everything that a vendor, a user and other processes may do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentflow import AgentFlow, Allowance, ConfigurationError, Purses
from agentflow.cli.runs.run_read import show
from agentflow.cli.shared.common import Exit
from agentflow.cli.shared.open_waits import show_waiting
from agentflow.cli.shared.run_options import DurableOptions
from agentflow.core.data.batches import BatchWait
from agentflow.errors import BadRequest, DataError, PurseEmpty
from agentflow.events import Warning
from tests.batches.flows import about, asking, desk_of, opened
from tests.support.batch_server import BatchServer
from tests.support.children import HANG_S

BOTH = ["openai:gpt-5", "anthropic:claude-test"]


async def until(done: Callable[[], Any]) -> None:
    """Wait until ``done`` is true."""
    async with asyncio.timeout(HANG_S):
        while not done():
            await asyncio.sleep(0.01)


async def desk_ended(flow: AgentFlow) -> None:
    """Wait until no batch of the flow is left."""
    async with asyncio.timeout(HANG_S):
        while await desk_of(flow)._store.batches.unfinished():
            await asyncio.sleep(0.01)


async def values(run: Any) -> Any:
    """The value of a run that ends."""
    async with asyncio.timeout(HANG_S):
        return (await run.result()).value


async def waits(flow: AgentFlow, run_id: str) -> Sequence[BatchWait]:
    """The calls of a run that wait for batches."""
    info = await flow.find_run(run_id)
    assert info is not None
    return info.batches


def purse_of(usd: float) -> Purses:
    return Purses({"user": Allowance(usd=usd)})


# -- runs that end before their answers --------------------------------------------------------------------------------


async def test_a_call_of_a_cancelled_run_is_not_sent(tmp_path: Path) -> None:
    """A run that is cancelled before its batch was sent submits nothing, and its purse has the whole amount again."""
    server, purses = BatchServer(about), purse_of(1_000_000)
    async with server.serving(), opened(server.url, tmp_path, purses=purses) as flow:
        desk_of(flow).times.gather_s = 0.3
        run = await flow.start(asking(flow)(["a", "b"]), run_id="r1", purse="user")
        async with asyncio.timeout(HANG_S):
            assert await run.wait() == "waiting"
        assert (await purses.look("user")).spent.usd > 0
        await flow.cancel("r1")
        async with asyncio.timeout(HANG_S):
            while await desk_of(flow)._store.batches.waiting():
                await asyncio.sleep(0.01)
        assert not server.submitted and not (await purses.look("user")).spent.usd


async def test_an_answer_after_the_end_of_its_run_is_dropped(tmp_path: Path) -> None:
    """A run that is cancelled while its batch is at work stays cancelled; its purse has paid for the call, which the vendor bills."""
    server, purses = BatchServer(about, at_once=False), purse_of(1_000_000)
    async with server.serving(), opened(server.url, tmp_path, purses=purses) as flow:
        run = await flow.start(asking(flow)(["a"]), run_id="r1", purse="user")
        await until(lambda: server.batches)
        await flow.cancel("r1")
        server.finish()
        await desk_ended(flow)
        found = await flow.find_run("r1")
        assert found is not None and found.status == "cancelled" and await run.wait() == "cancelled"
        assert (await purses.look("user")).spent.usd >= 7.5 and not server.ordinary


async def test_a_call_that_lost_a_race_is_not_sent(tmp_path: Path) -> None:
    """The call of a branch that was cancelled is withdrawn, and the run ends without it."""
    server = BatchServer(about)
    async with server.serving(), opened(server.url, tmp_path) as flow:
        desk_of(flow).times.gather_s = 0.5

        @flow.task(batch=True, history=False)
        async def classify(text: str) -> str:
            """Classify {{text}}"""

        @flow.workflow
        async def first() -> str:
            call = asyncio.create_task(classify("a"))
            await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            return "without"

        assert await values(await flow.start(first(), run_id="r1")) == "without"
        async with asyncio.timeout(HANG_S):
            while await desk_of(flow)._store.batches.waiting():
                await asyncio.sleep(0.01)
    assert not server.submitted


async def test_an_opened_flow_looks_after_the_batches_of_others(tmp_path: Path) -> None:
    """A flow that starts no run of its own sends the calls that wait in its database, and stores their answers."""
    server = BatchServer(about, at_once=False)
    async with server.serving():
        async with opened(server.url, tmp_path) as flow:
            desk_of(flow).times.gather_s = HANG_S
            run = await flow.start(asking(flow)(["a", "b"]), run_id="r1")
            async with asyncio.timeout(HANG_S):
                assert await run.wait() == "waiting"
        assert not server.batches
        async with opened(server.url, tmp_path) as flow:
            await until(lambda: server.batches)
        server.finish()
        async with opened(server.url, tmp_path) as flow:
            await desk_ended(flow)
            run = await flow.start(asking(flow)(["a", "b"]), run_id="r1")
            assert await values(run) == ["A", "B"]
    assert set(server.submitted.values()) == {1} and not server.ordinary


async def test_two_processes_that_gather_at_once_send_each_call_once(tmp_path: Path) -> None:
    """The desks of two flows on one database claim each call once, and each run gets its answers."""
    server = BatchServer(about)
    async with server.serving(), opened(server.url, tmp_path) as one, opened(server.url, tmp_path) as other:
        first = await one.start(asking(one)(["a", "b", "c"]), run_id="r1")
        second = await other.start(asking(other)(["d", "e", "f"]), run_id="r2")
        assert await values(first) == ["A", "B", "C"] and await values(second) == ["D", "E", "F"]
    assert len(server.submitted) == 6 and set(server.submitted.values()) == {1} and not server.ordinary


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", BOTH)
async def test_an_error_of_the_vendor_is_tried_as_an_ordinary_call(tmp_path: Path, model: str) -> None:
    """A row with an error that may pass (overloaded, rate limit) is not the end of its task."""
    server = BatchServer(about, at_once=False)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        run = await flow.start(asking(flow)(["a", "b"]), run_id="r1")
        await until(lambda: server.batches)
        kind = "overloaded_error" if "anthropic" in model else "server_error"
        first = next(iter(server.submitted))
        server.finish(errors={first: {"type": kind, "message": "busy", "code": None, "status": 503}})
        assert await values(run) == ["A", "B"]
    assert len(server.ordinary) == 1


@pytest.mark.parametrize("model", BOTH)
async def test_a_failed_call_is_asked_again_when_its_run_is_resumed(tmp_path: Path, model: str) -> None:
    """A run that failed by the error of its row sends the call in another batch when it is resumed."""
    server = BatchServer(about, at_once=False)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        run = await flow.start(asking(flow)(["a"]), run_id="r1")
        await until(lambda: server.batches)
        server.finish(errors={next(iter(server.submitted)): {"type": "invalid_request_error", "message": "too long"}})
        with pytest.raises(BadRequest):
            await values(run)
        run = await flow.resume("r1")
        await until(lambda: len(server.batches) == 2)
        server.finish()
        assert await values(run) == ["A"]
    assert not server.ordinary and set(server.submitted.values()) == {1}


class Unwell(BatchServer):
    """A server, or a proxy before it, whose first answers about a batch are JSON of another kind."""

    unwell = 2

    async def openai_get(self, request: Request) -> Response:
        return await self._well(super().openai_get(request))

    async def anthropic_get(self, request: Request) -> Response:
        return await self._well(super().anthropic_get(request))

    async def _well(self, answer: Awaitable[Response]) -> Response:
        said = await answer
        self.unwell -= 1
        return JSONResponse(["busy"]) if self.unwell >= 0 else said


@pytest.mark.parametrize("model", BOTH)
async def test_an_answer_about_a_batch_that_cannot_be_read_is_asked_for_again(tmp_path: Path, model: str) -> None:
    """The desk goes on after an error of any kind: runs wait for it, and nothing else would wake them."""
    server = Unwell(about)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        assert await values(await flow.start(asking(flow)(["a", "b"]), run_id="r1")) == ["A", "B"]
    assert server.unwell < 0 and set(server.submitted.values()) == {1} and not server.ordinary


@pytest.mark.parametrize("model", BOTH)
async def test_rows_that_are_not_ours_or_cannot_be_read(tmp_path: Path, model: str) -> None:
    """Rows with unknown ids, damaged rows and empty lines are left out; a line separator within an answer ends no row. A call without a
    row is made as an ordinary one."""

    def damaged(text: str) -> str:
        rows = text.split("\n")
        return "\n".join(['{"custom_id": "nobody", "result": {"type": "expired"}}', "", '{"custom_id', "[]", *rows[1:]])

    server = BatchServer(lambda body: f"{about(body)}\u2028!", at_once=False, written=damaged)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        run = await flow.start(asking(flow)(["a", "b", "c"]), run_id="r1")
        await until(lambda: server.batches)
        server.finish()
        assert await values(run) == ["A\u2028!", "B\u2028!", "C\u2028!"]
    assert len(server.ordinary) == 1


async def test_a_tool_loop_sends_each_turn_in_a_batch(tmp_path: Path) -> None:
    """Each turn of a loop with tools is in a batch of its own; the tool runs once."""
    called: list[int] = []

    def answer(body: dict[str, Any]) -> str:
        return "call look" if "function_call_output" not in str(body) else "done"

    server = BatchServer(answer)
    async with server.serving(), opened(server.url, tmp_path) as flow:

        @flow.tool
        def look() -> str:
            """Look"""
            called.append(1)
            return "seen"

        @flow.task(batch=True, history=False, tools=[look])
        async def agent() -> str:
            """Look, then answer"""

        result = await (await flow.start(agent(), run_id="r1")).result()
    assert result.value == "done" and called == [1] and len(server.batches) == 2 and result.cost == 2 * 15 * 0.5


@pytest.mark.parametrize("model", BOTH)
async def test_an_invalid_answer_is_repaired_in_a_batch(tmp_path: Path, model: str) -> None:
    """Structured output that fails validation is asked for again, in a second batch."""
    given = iter(['{"wrong": 1}', "[1, 2]"])
    server = BatchServer(lambda body: next(given))
    async with server.serving(), opened(server.url, tmp_path, model) as flow:

        @flow.task(batch=True, history=False)
        async def numbers() -> list[int]:
            """Some numbers"""

        assert await values(await flow.start(numbers(), run_id="r1")) == [1, 2]
    assert len(server.batches) == 2 and not server.ordinary


async def test_fallbacks_take_over_where_the_batch_fails(tmp_path: Path) -> None:
    """A task with fallbacks is batched with its first model; its ordinary call tries the others."""
    server = BatchServer(about, at_once=False)
    async with server.serving(), opened(server.url, tmp_path) as flow:

        @flow.task(batch=True, history=False, model="openai:gpt-5", fallbacks=["openai:gpt-5-mini"])
        async def classify(text: str) -> str:
            """Classify {{text}}"""

        run = await flow.start(classify("a"), run_id="r1")
        await until(lambda: server.batches)
        server.finish()
        assert await values(run) == "A"
        assert not server.ordinary
        run = await flow.start(classify("b"), run_id="r2")
        await until(lambda: len(server.batches) == 2)
        server.finish(expire=frozenset(server.submitted))
        assert await values(run) == "B"
    assert [each["model"] for each in server.ordinary] == ["gpt-5"]


# -- batches that are refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", BOTH)
async def test_a_batch_that_is_too_large_is_sent_in_halves(tmp_path: Path, model: str) -> None:
    """A batch that the vendor refuses as too large (413) is halved until it fits; no call is made as an ordinary one."""
    server = BatchServer(about, refuse=lambda bodies: (413, "too large") if len(bodies) > 2 else None)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        run = await flow.start(asking(flow)(["a", "b", "c", "d", "e"]), run_id="r1")
        assert await values(run) == ["A", "B", "C", "D", "E"]
    assert set(server.submitted.values()) == {1} and len(server.submitted) == 5 and not server.ordinary


@pytest.mark.parametrize("model", BOTH)
async def test_one_bad_call_does_not_cost_the_others_their_batch(tmp_path: Path, model: str) -> None:
    """Where the vendor refuses a batch for one call, at once (400) or once it was taken (OpenAI names the line), that call alone is made
    as an ordinary one."""
    bad: dict[str, Any] = {}
    if "anthropic" in model:
        bad["refuse"] = lambda bodies: (400, "bad") if any("Classify c" in str(each) for each in bodies) else None
    else:
        bad["fault"] = lambda body: {"message": "bad"} if "Classify c" in str(body) else None
    server = BatchServer(about, **bad)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        run = await flow.start(asking(flow)(["a", "b", "c", "d"]), run_id="r1")
        assert await values(run) == ["A", "B", "C", "D"]
    assert len(server.ordinary) == 1 and len(server.submitted) == 3 and set(server.submitted.values()) == {1}


@pytest.mark.parametrize("model", BOTH)
async def test_a_batch_refused_for_now_is_sent_later(tmp_path: Path, model: str) -> None:
    """A rate limit (429), and OpenAI's limit of queued tokens, which it says only after it has taken the batch: the calls wait."""
    times = iter([True, True])
    bad: dict[str, Any] = {"refuse": lambda bodies: (429, "slow down") if next(times, False) else None}
    if "anthropic" not in model:
        full = iter([True])
        bad["fault"] = lambda body: {"code": "token_limit_exceeded", "line": None} if next(full, False) else None
    server = BatchServer(about, **bad)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        assert await values(await flow.start(asking(flow)(["a", "b"]), run_id="r1")) == ["A", "B"]
    assert len(server.refused) == 2 and set(server.submitted.values()) == {1} and not server.ordinary


@pytest.mark.parametrize("model", BOTH)
async def test_a_key_without_batches_makes_ordinary_calls(tmp_path: Path, model: str) -> None:
    """A server that takes no batches (403) is asked in the ordinary way, with a warning."""
    server, seen = BatchServer(about, refuse=lambda bodies: (403, "no batches for you")), list[Any]()
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        flow.subscribe(seen.append)
        assert await values(await flow.start(asking(flow)(["a"]), run_id="r1")) == ["A"]
    assert len(server.ordinary) == 1
    assert [each.code for each in seen if isinstance(each, Warning)] == ["handler/no-batch"]


@pytest.mark.parametrize("ahead_s", [-7_200.0, 7_200.0])
@pytest.mark.parametrize("model", BOTH)
async def test_a_batch_whose_answer_was_lost_is_found(tmp_path: Path, model: str, ahead_s: float) -> None:
    """The connection breaks after the vendor has taken the batch: it is found in the list, also where the clocks differ by hours."""
    lost = iter([True])
    server = BatchServer(about, lose=lambda step: next(lost, False), ahead_s=ahead_s)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        desk_of(flow).times.settle_s = 0.0
        assert await values(await flow.start(asking(flow)(["a", "b"]), run_id="r1")) == ["A", "B"]
    assert len(server.batches) == 1 and not server.ordinary


async def test_an_undecided_list_sends_nothing_and_the_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While Anthropic's list has an unfinished batch that may be the lost one, nothing is sent, and ``agentflow runs show`` and
    ``flow.find_run`` say that this is why the run waits; the answers of that batch decide."""
    lost = iter([True])
    server = BatchServer(about, at_once=False, lose=lambda step: next(lost, False))
    async with server.serving(), opened(server.url, tmp_path, "anthropic:claude-test") as flow:
        desk_of(flow).times.settle_s = 0.0
        run = await flow.start(asking(flow)(["a", "b"]), run_id="r1")
        await until(lambda: server.batches)
        async with asyncio.timeout(HANG_S):
            while [each.state for each in await waits(flow, "r1")] != ["unsure"]:
                await asyncio.sleep(0.01)
        assert len(server.batches) == 1
        assert await show("r1", None, f"sqlite:///{tmp_path}/runs.db", as_json=False) == Exit.OK
        server.finish()
        assert await values(run) == ["A", "B"]
        assert not await waits(flow, "r1")
    assert len(server.batches) == 1 and not server.ordinary
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "2 calls of anthropic:claude-test, in a batch that was perhaps sent: the vendor's list cannot tell yet" in said
    )


async def test_calls_that_wait_are_shown_with_their_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run says how many of its calls are in no batch yet, and how many the vendor has; those with an answer are not among them."""
    server = BatchServer(about, at_once=False)
    async with server.serving(), opened(server.url, tmp_path) as flow:
        desk_of(flow).times.gather_s = 1.0  # so that both calls join it on a busy machine
        run = await flow.start(asking(flow)(["a", "b"]), run_id="r1")
        await until(lambda: server.batches)
        async with asyncio.timeout(HANG_S):
            assert await run.wait() == "waiting"
        desk_of(flow).times.gather_s = HANG_S
        await flow.start(asking(flow, batch="2h")(["c"]), run_id="r2")
        async with asyncio.timeout(HANG_S):
            while not (found := await waits(flow, "r2")) or (await waits(flow, "r1"))[0].state == "new":
                await asyncio.sleep(0.01)
        assert [(each.calls, each.model, each.state) for each in found] == [(1, "openai:gpt-5", "none")]
        assert [(each.calls, each.state) for each in await waits(flow, "r1")] == [(2, "sent")]
        assert await show_waiting(flow, run, DurableOptions()) == Exit.WAITING
        assert "2 calls of openai:gpt-5, in a batch that the vendor has" in " ".join(capsys.readouterr().err.split())
        server.finish()
        assert await values(run) == ["A", "B"] and not await waits(flow, "r1")


async def test_calls_of_different_times_are_in_different_batches(tmp_path: Path) -> None:
    """A batch has one deadline: a call that may wait a day is not cancelled with one that may not."""
    server = BatchServer(about, at_once=False)
    async with server.serving(), opened(server.url, tmp_path) as flow:
        short = await flow.start(asking(flow, batch="1s")(["a"]), run_id="r1")
        long = await flow.start(asking(flow)(["b"]), run_id="r2")
        assert await values(short) == ["A"] and len(server.ordinary) == 1
        await until(lambda: len(server.batches) == 2)
        server.finish()
        assert await values(long) == ["B"] and len(server.ordinary) == 1


# -- money -------------------------------------------------------------------------------------------------------------


async def test_parked_runs_cannot_overspend_a_purse(tmp_path: Path) -> None:
    """Runs that have left the memory keep their part of the purse: a further one finds it empty. Once answered, they have paid what the
    calls cost, and the rest is there for others."""
    server, purses = BatchServer(about, at_once=False), purse_of(1_000)
    async with server.serving():
        async with opened(server.url, tmp_path, purses=purses) as flow:

            @flow.task(batch=True, history=False, max_output_tokens=900)
            async def classify(text: str) -> str:
                """Classify {{text}}"""

            runs = [await flow.start(classify(each), run_id=each, purse="user") for each in "ab"]
            for run in runs:
                async with asyncio.timeout(HANG_S):
                    assert await run.wait() == "waiting"
            held = (await purses.look("user")).spent.usd
            assert 900 < held <= 1_000
            late = await flow.start(classify("c"), run_id="c", purse="user")
            with pytest.raises(PurseEmpty):
                await late.result()
            await until(lambda: server.batches)
        server.finish()
        async with opened(server.url, tmp_path, purses=(purses := purse_of(1_000))) as flow:
            flow.task(classify.__wrapped__, batch=True, history=False, max_output_tokens=900)
            for each in "ab":
                assert await values(await flow.resume(each)) == each.upper()
            assert (await purses.look("user")).spent.usd == 15.0


async def test_an_ordinary_call_in_place_of_a_batch_is_paid_whole(tmp_path: Path) -> None:
    """A call that the batch did not answer gives its part back and is paid from the purse as any other."""
    server, purses = BatchServer(about, at_once=False), purse_of(1_000_000)
    async with server.serving(), opened(server.url, tmp_path, purses=purses) as flow:
        run = await flow.start(asking(flow)(["a", "b"]), run_id="r1", purse="user")
        await until(lambda: server.batches)
        server.finish(expire=frozenset([*server.submitted][:1]))
        await values(run)
        assert (await purses.look("user")).spent.usd == 15 * 0.5 + 15


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", ["soon", "2d", 3, None])
async def test_batch_is_a_time_of_at_most_a_day(tmp_path: Path, batch: Any) -> None:
    """Any other value is refused where it is written."""
    async with opened("http://127.0.0.1:9", tmp_path) as flow:
        if batch is not None:
            with pytest.raises(DataError) as refused:
                asking(flow, batch=batch)
            assert "batch" in str(refused.value)
        run = asking(flow)(["a"])
        with pytest.raises(ConfigurationError) as raised:
            await flow.start(run, batch=batch)
        assert raised.value.code == "config/option" and "2h" in str(raised.value.hint)


async def test_the_time_limit_of_a_task_does_not_count_the_wait(tmp_path: Path) -> None:
    """``timeout_s`` is the time for the model's work: a task that waits for its batch does not exceed it."""
    server = BatchServer(about, takes_s=1.0)
    async with server.serving(), opened(server.url, tmp_path) as flow:

        @flow.task(batch=True, history=False, timeout_s=0.5)
        async def classify(text: str) -> str:
            """Classify {{text}}"""

        assert await values(await flow.start(classify("a"), run_id="r1")) == "A"


@pytest.mark.slow
async def test_a_thousand_calls_are_one_batch_and_wake_their_run_together(tmp_path: Path) -> None:
    """A run with 1,000 calls sends one batch, and is not repeated for each part of the answers: its work grows with their number, not with
    its square."""
    server, begun = BatchServer(about), list[int]()
    texts = [f"t{number}" for number in range(1_000)]
    async with server.serving(), opened(server.url, tmp_path, "openai-chat:gpt-5") as flow:
        all_of = asking(flow)

        @flow.workflow
        async def counted(texts: list[str]) -> list[str]:
            begun.append(1)
            return await all_of(texts)

        assert await values(await flow.start(counted(texts), run_id="r1")) == [each.upper() for each in texts]
    assert len(server.batches) == 1 and len(server.submitted) == 1_000 and not server.ordinary
    assert len(begun) <= 5, "once, once more for the answers, and for those that come while it is repeated"
