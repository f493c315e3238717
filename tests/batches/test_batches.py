"""Model calls in batches at half the price, against strict servers of both vendors."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, ProviderError
from agentflow.evals import Case, exact, judge
from tests.batches.flows import MODELS, about, asking, opened
from tests.support.batch_server import BatchServer
from tests.support.children import HANG_S


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
async def test_calls_are_made_in_one_batch_at_half_the_price(tmp_path: Path, model: str) -> None:
    """The calls of a run are one batch of the vendor, answered in any order, and cost half."""
    server = BatchServer(about)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        run = await flow.start(asking(flow)(["a", "b", "c"]), run_id="r1")
        async with asyncio.timeout(HANG_S):
            result = await run.result()
    assert result.value == ["A", "B", "C"]
    assert len(server.batches) == 1 and set(server.submitted.values()) == {1} and not server.ordinary
    assert not server.refused and result.cost == 3 * 15 * 0.5


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
async def test_the_run_waits_outside_of_memory(tmp_path: Path, model: str) -> None:
    """A flow that is closed while a batch is at work is opened again, and finds the batch and its answers; nothing is sent twice."""
    server = BatchServer(about, at_once=False)
    async with server.serving():
        async with opened(server.url, tmp_path, model) as flow:
            run = await flow.start(asking(flow)(["a", "b"]), run_id="r1")
            async with asyncio.timeout(HANG_S):
                assert await run.wait() == "waiting"
                while not server.batches:
                    await asyncio.sleep(0.01)
        server.finish()
        async with opened(server.url, tmp_path, model) as flow:
            all_of = asking(flow)
            run = await flow.start(all_of(["a", "b"]), run_id="r1")
            async with asyncio.timeout(HANG_S):
                result = await run.result()
    assert result.value == ["A", "B"] and set(server.submitted.values()) == {1} and not server.ordinary


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
async def test_calls_that_expired_are_made_as_ordinary_ones(tmp_path: Path, model: str) -> None:
    """A call that the batch did not answer is made as an ordinary one, at the whole price; the others keep theirs."""
    server = BatchServer(about, at_once=False)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        run = await flow.start(asking(flow)(["a", "b"]), run_id="r1")
        async with asyncio.timeout(HANG_S):
            while not server.batches:
                await asyncio.sleep(0.01)
            server.finish(expire=frozenset(list(server.submitted)[:1]))
            result = await run.result()
    assert result.value == ["A", "B"] and len(server.ordinary) == 1
    assert result.cost == 15 * 0.5 + 15


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
async def test_the_error_of_a_call_is_that_of_its_task(tmp_path: Path, model: str) -> None:
    """An error row is the typed error of its call, as the vendor words it; the other calls have their answers."""
    server = BatchServer(about, at_once=False)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:

        @flow.task(batch=True, history=False)
        async def classify(text: str) -> str:
            """Classify {{text}}"""

        @flow.workflow
        async def both() -> list[str]:
            async def one(text: str) -> str:
                try:
                    return await classify(text)
                except ProviderError as error:
                    return f"{error.code}: {error.message}"

            return list(await asyncio.gather(one("a"), one("b")))

        run = await flow.start(both(), run_id="r1")
        async with asyncio.timeout(HANG_S):
            while not server.batches:
                await asyncio.sleep(0.01)
            first = next(each["custom_id"] for batch in server.batches.values() for each in batch.lines)
            server.finish(errors={first: {"type": "invalid_request_error", "message": "too long a prompt"}})
            result = await run.result()
    [bad] = [each for each in result.value if "too long" in each]
    assert bad.startswith("provider/") and len(set(result.value)) == 2 and not server.ordinary


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
async def test_a_deadline_falls_back_to_ordinary_calls(tmp_path: Path, model: str) -> None:
    """A batch that has not ended when its time is over is cancelled; its calls are made as ordinary ones, at the whole price."""
    server = BatchServer(about, at_once=False)
    async with server.serving(), opened(server.url, tmp_path, model) as flow:
        run = await flow.start(asking(flow, batch="0.5s")(["a", "b"]), run_id="r1")
        async with asyncio.timeout(HANG_S):
            result = await run.result()
    assert result.value == ["A", "B"] and len(server.ordinary) == 2 and result.cost == 30
    assert all(batch.cancelled for batch in server.batches.values()) and not server.refused


async def test_a_run_and_an_evaluation_have_the_option(tmp_path: Path) -> None:
    """``batch=True`` of a run holds for its tasks; that of an evaluation fills a batch with the calls of all cases, and the same
    evaluation again asks for nothing."""
    server = BatchServer(about)
    async with server.serving(), opened(server.url, tmp_path) as flow:

        @flow.task(history=False)
        async def classify(text: str) -> str:
            """Classify {{text}}"""

        @flow.workflow
        async def one(text: str) -> str:
            return await classify(text)

        run = await flow.start(one("z"), run_id="r1", batch=True)
        async with asyncio.timeout(HANG_S):
            assert (await run.result()).value == "Z"
        assert len(server.batches) == 1
        cases = [Case(inputs={"text": f"t{at}"}, expected=f"T{at}", name=f"case {at}") for at in range(100)]
        async with asyncio.timeout(HANG_S):
            report = await flow.evaluate(one, cases, scorers=[exact()], batch=True)
        assert len(report.samples) == 100 and {each.status for each in report.samples} == {"done"}
        assert len(server.batches) == 2 and set(server.submitted.values()) == {1} and not server.ordinary
        async with asyncio.timeout(HANG_S):
            await flow.evaluate(one, cases, scorers=[exact()], batch=True)
        assert len(server.batches) == 2


def judged(body: dict[str, Any]) -> str:
    """An answer that says what was asked, and the verdict of a judge, who likes only T0 to T2."""
    if "Is it early?" not in (asked := json.dumps(body)):
        return about(body)
    return json.dumps({"reason": "I looked", "score": re.search("T[0-2]", asked) is not None})


async def test_the_judges_of_an_evaluation_are_asked_in_batches(tmp_path: Path) -> None:
    """The questions to judges are batched as the calls of the samples are, at half the price, and asked once; the scores are theirs.
    A question that the batch does not answer is an ordinary call."""
    server = BatchServer(judged)
    async with server.serving(), opened(server.url, tmp_path) as flow:

        @flow.task(history=False)
        async def classify(text: str) -> str:
            """Classify {{text}}"""

        cases = [Case(inputs={"text": f"t{at}"}, name=f"case {at}") for at in range(6)]
        early = judge("Is it early?", name="early")
        async with asyncio.timeout(HANG_S):
            report = await flow.evaluate(classify, cases, scorers=[early], batch=True)
        scores = {each.value: each.scores["early"] for each in report.samples}
        assert scores == {f"T{at}": float(at < 3) for at in range(6)}
        assert set(server.submitted.values()) == {1} and len(server.submitted) == 12 and not server.ordinary
        assert report.judging_calls == 6 and report.judging_usd == 6 * 15 * 0.5
        sent = len(server.batches)
        async with asyncio.timeout(HANG_S):
            await flow.evaluate(classify, cases, scorers=[early], batch=True)
        assert len(server.batches) == sent
        server.at_once = False
        late = Case(inputs={"text": "t9"}, name="late")
        evaluation = asyncio.create_task(flow.evaluate(classify, [late], scorers=[early], batch=True))
        async with asyncio.timeout(HANG_S):
            for lapses in (False, True):
                sent += 1
                while len(server.batches) < sent:
                    await asyncio.sleep(0.01)
                server.finish(expire=frozenset(server.submitted) if lapses else frozenset())
            report = await evaluation
    assert report.samples[0].scores["early"] == 0.0 and len(server.ordinary) == 1 and report.judging_usd == 15


async def test_the_forecast_of_a_batched_evaluation_has_the_price_of_batches(tmp_path: Path) -> None:
    """``about`` is what the calls cost in batches, whether the earlier ones, that it is taken from, were batched or not; an evaluation
    without batches has the whole price, and so does a task that is excluded from them."""
    server = BatchServer(judged)
    async with server.serving(), opened(server.url, tmp_path) as flow:

        @flow.task(history=False)
        async def classify(text: str) -> str:
            """Classify {{text}}"""

        cases = [Case(inputs={"text": f"t{at}"}, name=f"case {at}") for at in range(4)]
        changed = {"v": {"classify": {"instructions": "Please Classify {{text}}"}}}
        excluded = {"v": {"classify": {"instructions": "Please Classify {{text}}", "batch": False}}}
        early = judge("Is it early?", name="early")
        async with asyncio.timeout(HANG_S):
            await flow.evaluate(classify, cases[:2], scorers=[early], batch=True)
            await flow.evaluate(classify, cases[2:], scorers=[early])
            recorded = await (await flow.start(classify("t9"), run_id="r9", batch=True)).result()
        assert recorded.cost == 7.5
        for variants, batch, about_v in ((changed, True, 30), (changed, False, 60), (excluded, True, 60)):
            forecast = await flow.evaluate(
                classify, cases, variants=variants, scorers=[early], batch=batch, forecast=True
            )
            assert forecast["v"].about == about_v and forecast.judges.about == (30 if batch else 60)
            assert ("At most: as if no batch answered" in str(forecast)) is batch
        for batch, about_v in ((True, 7.5), (False, 15)):
            forecast = await flow.evaluate(None, [Case(run_id="r9")], variants=changed, batch=batch, forecast=True)
            assert forecast["v"].about == about_v
        async with asyncio.timeout(HANG_S):
            report = await flow.evaluate(classify, cases, variants=changed, scorers=[early], batch=True)
        assert report["v"].paid_usd == 30


async def test_a_plain_run_says_what_to_write(tmp_path: Path) -> None:
    """A run that is not durable cannot wait for a batch."""
    server = BatchServer()
    async with (
        server.serving(),
        AgentFlow(model="openai:gpt-5", base_url=f"{server.url}/v1", api_key="k", root=tmp_path) as flow,
    ):
        all_of = asking(flow)
        with pytest.raises(ConfigurationError) as raised:
            await all_of(["a"])
    assert raised.value.code == "handler/batch-plain" and not server.ordinary


@pytest.mark.slow
async def test_another_process_finds_the_batch_in_postgresql(tmp_path: Path, postgres_url: str) -> None:
    """The batches of a shared database: the answers come through whichever flow looks after them, and a worker brings those of runs
    that no process works on."""
    server = BatchServer(about, at_once=False)
    async with server.serving():
        async with opened(server.url, tmp_path, database=postgres_url) as flow:
            await flow.start(asking(flow)(["a", "b"]), run_id="r1", where="workers")
            async with asyncio.timeout(HANG_S):
                worker = asyncio.create_task(flow.work({"default": 0}))
                while not server.batches:
                    await asyncio.sleep(0.02)
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)
        server.finish()
        async with opened(server.url, tmp_path, database=postgres_url) as flow:
            asking(flow)
            async with asyncio.timeout(HANG_S):
                worker = asyncio.create_task(flow.work({"default": 0}))
                run = await flow.find_run("r1")
                while run is None or run.status != "done":
                    await asyncio.sleep(0.05)
                    run = await flow.find_run("r1")
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)
    assert run.cost_usd == 2 * 15 * 0.5 and set(server.submitted.values()) == {1} and not server.ordinary
