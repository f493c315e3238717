"""Model calls in batches at half the price, against strict servers of both vendors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentflow import AgentFlow, ConfigurationError, ProviderError
from agentflow.evals import Case, exact
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
