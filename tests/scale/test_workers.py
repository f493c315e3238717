"""Runs that workers do: started here, done elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ModelRequest, ScriptedProvider, Session
from agentflow.core.data.errors import AgentflowError, ConfigurationError, JournalError
from agentflow.core.data.messages import ToolResultPart
from agentflow.core.events.journal_rows import Claim
from agentflow.durable.handle import DurableRun
from agentflow.durable.takeover import Trials
from tests.cli.test_command import environment
from tests.scale.child import VALUE, app
from tests.scale.workers import detached, working
from tests.support.postgres import Server


async def test_a_worker_does_a_run_and_whoever_started_it_gets_its_value(postgres_url: str, tmp_path: Path) -> None:
    """It waits until there is a worker; the starter does none of it; started again it is the same run."""
    log = tmp_path / "log"
    async with app(postgres_url, log) as starter, app(postgres_url, log) as worker:
        handle = await detached(starter, "r")
        await asyncio.sleep(0.3)
        assert handle.status == "queued" and not log.exists()
        async with working(worker):
            assert (await handle.result()).value == VALUE
            assert (await (await detached(starter, "r")).result()).value == VALUE
        found = await starter.find_run("r")
        assert found is not None and (found.status, found.queue, found.slices) == ("done", "default", 1)
    assert set(Counter(log.read_text().split()).values()) == {1}


async def test_a_worker_offers_a_task_its_own_tools(postgres_url: str) -> None:
    """A task as a tool of a task keeps its own tools on a worker, too, which finds it by the reference of its function."""
    reached: list[list[str]] = []

    def model(request: ModelRequest) -> Any:
        names = [tool.name for tool in request.tools]
        reached.append(names)
        answered = any(isinstance(part, ToolResultPart) for part in request.messages[-1].parts)
        return "done" if answered or not names else {"tool_calls": [{"name": names[0], "arguments": {}}]}

    def build() -> tuple[AgentFlow, Any]:
        flow = AgentFlow(provider=ScriptedProvider(model), durable=postgres_url)

        async def lookup() -> str:
            return "found"

        @flow.task(tools=[lookup])
        async def inner() -> str:
            """Look it up."""

        @flow.task(tools=[inner])
        async def outer() -> str:
            """Have it looked up."""

        return flow, outer

    (starter, outer), (worker, _) = build(), build()
    async with starter, worker:
        handle = await starter.start(outer(), run_id="r", where="workers")
        async with working(worker):
            assert (await handle.result()).value == "done"
    assert reached == [["inner"], ["lookup"], ["lookup"], ["inner"]]


async def test_a_queue_may_have_a_limit_for_all_workers_together(postgres_url: str) -> None:
    """Two workers with room for many do one run of such a queue at a time."""
    at_work: list[int] = []
    most = 0

    async def look(at: str) -> str:
        """Look at something."""
        nonlocal most
        at_work.append(1)
        most = max(most, len(at_work))
        await asyncio.sleep(0.02)
        at_work.pop()
        return at

    async with contextlib.AsyncExitStack() as stack:
        flows = [AgentFlow(model="offline", tools=[look], durable=postgres_url) for _ in range(2)]
        for flow in flows:
            await stack.enter_async_context(flow)
        program = '(content (look (at "x")))'
        runs = [await detached(flows[0], f"r{i}", program, queue="slow") for i in range(6)]
        async with working(flows[0], {"slow": 1}), working(flows[1], {"slow": 1}):
            assert [(await run.result()).value for run in runs] == ["x"] * 6
    assert most == 1


async def test_a_run_that_waits_is_with_no_worker(postgres_url: str, tmp_path: Path) -> None:
    """Its question is answered by anybody, and whatever worker there is goes on with it from its records."""
    log = tmp_path / "log"
    program = '(list (content (look (at "a"))) (ask-human "go on?") (content (look (at "b"))))'
    async with app(postgres_url, log) as starter:
        handle = await detached(starter, "r", program)
        async with app(postgres_url, log) as first, working(first):
            assert await handle.wait() == "waiting"
        (question,) = handle.waiting
        await starter.send("r", question.key, "yes")
        async with app(postgres_url, log) as second, working(second):
            assert (await handle.result()).value == ["<a>", "yes", "<b>"]
        found = await starter.find_run("r")
        assert found is not None and found.slices == 2
    assert log.read_text().split() == ["a", "b"]


async def test_a_worker_that_stops_gives_up_what_does_not_end_in_time(postgres_url: str, tmp_path: Path) -> None:
    """Another goes on with it; what was recorded is not repeated, and nothing is begun after the stop."""
    log = tmp_path / "log"
    async with app(postgres_url, log) as starter, app(postgres_url, log, "b") as first:
        handle = await detached(starter, "r")
        async with working(first, drain_s=0.05) as stop:
            while not (log.exists() and "b" in log.read_text()):
                await asyncio.sleep(0.02)
            stop.set()
        assert (await starter.find_run("r") or pytest.fail()).status == "queued"
        async with app(postgres_url, log) as second, working(second):
            assert (await handle.result()).value == VALUE
    assert Counter(log.read_text().split()) == {"a": 1, "p1": 1, "p2": 1, "b": 2}


async def test_a_job_that_was_lost_is_queued_again(postgres_server: Server, postgres_url: str, tmp_path: Path) -> None:
    """The queue may be emptied by hand: the runs say what is to be done."""
    log = tmp_path / "log"
    async with app(postgres_url, log) as flow:
        handle = await detached(flow, "r")
        postgres_server.sql("truncate af_job; update af_run set updated = updated - interval '1 minute'", postgres_url)
        async with working(flow):
            assert (await handle.result()).value == VALUE


async def test_a_run_that_a_worker_cannot_begin_has_failed(postgres_url: str, tmp_path: Path) -> None:
    """One that needs a tool the worker does not have, has failed; its error says so."""
    async with app(postgres_url, tmp_path / "log") as starter:
        handle = await detached(starter, "r")
        async with AgentFlow(model="offline", durable=postgres_url) as worker, working(worker):
            with pytest.raises(AgentflowError) as caught:
                await handle.result()
        assert "look" in caught.value.message
        assert (await starter.find_run("r") or pytest.fail()).status == "failed"


async def test_what_only_this_process_has_no_worker_can_use(postgres_url: str, tmp_path: Path) -> None:
    """Callables, secrets and sessions are refused before anything is stored; so is a store that has no workers."""
    async with app(postgres_url, tmp_path / "log") as flow:
        for given in ({"bindings": {"f": len}}, {"session": Session()}, {"where": "there"}, {"queue": ""}):
            with pytest.raises(ConfigurationError) as caught:
                await flow.start("(+ 1 2)", **{"where": "workers", "run_id": "r", **given})
            assert caught.value.code == "config/where", given
        assert await flow.find_run("r") is None
        with pytest.raises(ConfigurationError) as caught:
            await flow.work({"default": -1})
        assert caught.value.code == "config/worker"
    async with AgentFlow(model="offline", durable=f"sqlite:///{tmp_path / 'runs.db'}") as flow:
        with pytest.raises(ConfigurationError) as caught:
            await detached(flow, "r", "(+ 1 2)")
        assert caught.value.code == "config/where"


async def test_a_flow_that_closes_leaves_the_run_to_the_workers(postgres_url: str, tmp_path: Path) -> None:
    """Whoever waits for it is told that it goes on elsewhere."""
    async with app(postgres_url, tmp_path / "log") as flow:
        handle = await detached(flow, "r")
    with pytest.raises(JournalError) as caught:
        await handle.result()
    assert caught.value.code == "durable/elsewhere"


FLOW = """
import asyncio
from pathlib import Path

from agentflow import AgentFlow


async def look(at: str) -> str:
    \"\"\"Look at something.\"\"\"
    with open("log", "a") as log:
        log.write(f"{at}\\n")
    while at == "b" and not Path("go").exists():
        await asyncio.sleep(0.02)
    return f"<{at}>"


flow = AgentFlow(model="offline", tools=[look], durable=Path("url").read_text(), record=True)
"""


@contextlib.asynccontextmanager
async def worker_process(directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, in a directory that has ``app.py``; it is killed at the end of the block, if it has not ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentflow", "worker", "app:flow", "--drain", "0.1"),
        cwd=directory,
        env=environment(directory),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None and b"working on default" in await process.stderr.readline()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@pytest.mark.slow
async def test_the_command_takes_over_what_a_killed_one_did_and_gives_up_what_it_cannot_end(
    postgres_url: str, tmp_path: Path
) -> None:
    """SIGKILL: the other goes on at once. SIGTERM: the process ends in the time stated, and the run is to be gone on with."""
    (tmp_path / "app.py").write_text(FLOW)
    (tmp_path / "url").write_text(postgres_url)
    log = tmp_path / "log"

    async def looked(times: int) -> None:
        while not log.exists() or log.read_text().split().count("b") < times:
            await asyncio.sleep(0.02)

    async with app(postgres_url, log) as starter:
        handle = await detached(starter, "r")
        async with worker_process(tmp_path) as killed:
            await looked(1)
            async with worker_process(tmp_path) as other:
                killed.kill()
                await looked(2)
                other.terminate()
                assert await other.wait() == 0
        assert (await starter.find_run("r") or pytest.fail()).status == "queued"
        (tmp_path / "go").touch()
        async with worker_process(tmp_path):
            assert (await handle.result()).value == VALUE
    assert Counter(log.read_text().split()) == {"a": 1, "p1": 1, "p2": 1, "b": 3}


async def test_two_jobs_of_one_slice_are_one_slice(postgres_url: str, tmp_path: Path) -> None:
    """A worker that gets both at once does one, and still knows of it: it can give the run up."""
    log = tmp_path / "log"
    async with app(postgres_url, log, "b") as flow:
        runs = flow._durable_runs()  # pyright: ignore[reportPrivateUsage] - what a worker works on
        await detached(flow, "r")
        trials = Trials()
        both = [runs.take(Claim(run="r", slice=0), trials) for _ in range(2)]
        handles = await asyncio.gather(*both, return_exceptions=True)
        [handle] = [each for each in handles if isinstance(each, DurableRun)]
        [refused] = [each for each in handles if isinstance(each, JournalError)]
        assert refused.code == "durable/owned"
        while not log.exists() or "b" not in log.read_text():
            await asyncio.sleep(0.02)
        runs.release()
        await handle.wait()
        assert (await flow.find_run("r") or pytest.fail()).status == "queued"


async def test_no_engine_is_loaded_where_there_are_no_workers(postgres_url: str) -> None:
    """Neither by ``import agentflow`` nor by runs that are done here, whose database has none of its tables."""
    code = """
import asyncio, sys
import agentflow
assert not {"pgqueuer", "asyncpg", "croniter"} & set(sys.modules)
async def main():
    async with agentflow.AgentFlow(model="offline", durable=sys.argv[1]) as flow:
        assert (await (await flow.start("(+ 1 2)", run_id="r")).result()).value == 3
asyncio.run(main())
assert not {"pgqueuer", "croniter"} & set(sys.modules)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, postgres_url, env=environment(Path("/nowhere"))
    )
    assert await process.wait() == 0


async def test_the_first_of_a_tenant_does_not_wait_for_the_hundredth_of_another(postgres_url: str) -> None:
    """Of equal priority that of the tenant with the fewest goes first; a higher priority goes before all."""
    order: list[str] = []

    async def look(at: str) -> str:
        """Look at something."""
        order.append(at)
        return at

    async with AgentFlow(model="offline", tools=[look], durable=postgres_url) as flow:
        runs = [
            await detached(flow, name, f'(content (look (at "{name}")))', tenant=name[0], priority=int(name == "c1"))
            for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        ]
        async with working(flow, slots=1):
            for run in runs:
                await run.result()
    assert order == ["c1", "a1", "b1", "a2", "b2", "a3", "a4"]
