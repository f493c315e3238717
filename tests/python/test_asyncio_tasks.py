"""Tasks of asyncio in workflows: ``gather``, task groups, time limits, queues, anyio; the host's task factories."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentflow import AgentFlow, CallContext, Limits, ScriptedProvider
from agentflow.core.data.session import Session
from agentflow.errors import LimitExceeded, PythonOverlap
from agentflow.flow.seen_loop import TaskFactory


def flow_of(tmp_path: Path, **options: Any) -> AgentFlow:
    """A flow whose model repeats what it is asked, with a tool ``double`` that waits as many milliseconds as its number."""
    flow = AgentFlow(
        provider=ScriptedProvider(lambda request: request.messages[-1].text), root=str(tmp_path), **options
    )

    @flow.tool
    async def double(n: int) -> int:
        """Twice ``n``."""
        await asyncio.sleep(n / 1_000)
        return 2 * n

    return flow


def constructs(flow: AgentFlow) -> dict[str, tuple[Callable[[], Awaitable[Any]], Any]]:
    """Bodies of workflows by name, with what they give."""

    def double(n: int) -> Awaitable[int]:
        return flow.call_tool("double", n=n)

    async def doubled(n: int) -> int:
        return await double(n)

    async def gather() -> Any:
        return await asyncio.gather(double(3), doubled(1), asyncio.gather(double(2)))

    async def group() -> Any:
        async with asyncio.TaskGroup() as tasks:
            each = [tasks.create_task(doubled(n)) for n in (3, 1)]
        return [task.result() for task in each]

    async def create_task() -> Any:
        task = asyncio.create_task(doubled(2))
        return [await double(1), await task]

    async def wait() -> Any:
        tasks = [asyncio.create_task(doubled(n)) for n in (1, 2)]
        done, _ = await asyncio.wait(tasks)
        return sorted(task.result() for task in done)

    async def timeout() -> Any:
        try:
            async with asyncio.timeout(0.01):
                await flow.sleep(3)
        except TimeoutError:
            return await double(1)

    async def wait_for() -> Any:
        try:
            await asyncio.wait_for(flow.sleep(3), 0.01)
        except TimeoutError:
            return await asyncio.wait_for(double(1), 30)

    async def as_completed() -> Any:
        return sorted([await each for each in asyncio.as_completed([doubled(n) for n in (3, 1)])])

    async def queue() -> Any:
        results: asyncio.Queue[int] = asyncio.Queue()

        async def put(n: int) -> None:
            await results.put(await double(n))

        task = asyncio.create_task(put(1))
        value = await results.get()
        await task
        return value

    async def anyio_group() -> Any:
        results: list[int] = []

        async def add(n: int) -> None:
            results.append(await double(n))

        async with anyio.create_task_group() as tasks:
            for n in (2, 1):
                tasks.start_soon(add, n)
        with anyio.move_on_after(0.01):
            await flow.sleep(3)
        return sorted(results)

    async def nested() -> Any:
        async def both() -> list[int]:
            return await asyncio.gather(double(1), double(2))

        return await flow.timeout(30, both())

    async def in_branches() -> Any:
        async def both(n: int) -> list[int]:
            return await asyncio.gather(double(n), double(n + 1))

        return await flow.map(both, [1, 2])

    return {
        "gather": (gather, [6, 2, [4]]),
        "TaskGroup": (group, [6, 2]),
        "create_task": (create_task, [2, 4]),
        "wait": (wait, [2, 4]),
        "timeout": (timeout, 2),
        "wait_for": (wait_for, 2),
        "as_completed": (as_completed, [2, 6]),
        "queue": (queue, 2),
        "anyio": (anyio_group, [2, 4]),
        "nested": (nested, [2, 4]),
        "branches": (in_branches, [[2, 4], [4, 6]]),
    }


def declared(flow: AgentFlow, body: Callable[[], Awaitable[Any]]) -> Any:
    """The body as a workflow."""
    return flow.workflow(body)


async def check_all(flow: AgentFlow, *, durable: bool = False) -> None:
    """Check what each construct gives, that nothing is left at work, and that the loop's task factory is what it was."""
    factory = asyncio.get_running_loop().get_task_factory()
    async with flow:
        before = asyncio.all_tasks()
        for name, (body, value) in constructs(flow).items():
            workflow = declared(flow, body)
            if durable:
                handle = await flow.start(workflow(), run_id=name)
                assert (await handle.result()).value == value, name
            else:
                assert await workflow() == value, name
                assert asyncio.all_tasks() == before, name
            assert asyncio.get_running_loop().get_task_factory() is factory, name


async def test_each_construct_works_in_a_plain_run(tmp_path: Path) -> None:
    """Tasks that the code of a workflow creates are branches of it."""
    await check_all(flow_of(tmp_path))


async def test_one_permit_is_enough(tmp_path: Path) -> None:
    """Code that awaits its tasks holds no permit of the run, so that they end under a limit of 1."""
    await check_all(flow_of(tmp_path, limits=Limits(concurrency=1)))


async def test_each_construct_works_in_a_durable_run(tmp_path: Path) -> None:
    """The same with records."""
    await check_all(flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db"), durable=True)


async def test_the_task_factory_of_the_host_is_called(tmp_path: Path) -> None:
    """A factory of the host creates the tasks of a workflow, with their context, and is in place again after it."""
    loop, seen = asyncio.get_running_loop(), list[str]()

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        seen.append(getattr(coro, "__qualname__", type(coro).__name__).rpartition(".")[2])
        return asyncio.Task(coro, loop=loop, **options)

    loop.set_task_factory(factory)
    try:
        await check_all(flow_of(tmp_path))
    finally:
        loop.set_task_factory(None)
    assert {"doubled", "put"} <= {*seen}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are from Python 3.12 on")
async def test_eager_tasks_are_branches_too(tmp_path: Path) -> None:
    """A task that runs before its factory has returned it is named as any other."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # pyright: ignore
    try:
        await check_all(flow_of(tmp_path))
        await check_all(flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db"), durable=True)
    finally:
        loop.set_task_factory(None)


def test_uvloop_has_a_factory_too(tmp_path: Path) -> None:
    """The same on uvloop, where it is installed."""
    uvloop = pytest.importorskip("uvloop")
    uvloop.run(check_all(flow_of(tmp_path)))


async def test_a_factory_that_was_set_later_leaves_content(tmp_path: Path) -> None:
    """Tasks whose creation was not seen are named by content; a call without any is PythonOverlap and says why."""
    flow = flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db")

    def replace() -> None:
        asyncio.get_running_loop().set_task_factory(
            lambda loop, coro, **options: asyncio.Task(coro, loop=loop, **options)
        )

    @flow.workflow
    async def by_content() -> list[int]:
        replace()
        return await asyncio.gather(flow.call_tool("double", n=1), flow.call_tool("double", n=2))

    @flow.workflow
    async def without() -> Any:
        replace()
        return await asyncio.gather(flow.uuid(), flow.uuid())

    async with flow:
        try:
            assert (await (await flow.start(by_content())).result()).value == [2, 4]
            with pytest.raises(PythonOverlap, match="task factory was replaced") as overlap:
                await without()
            assert "flow.map" in (overlap.value.hint or "")
        finally:
            asyncio.get_running_loop().set_task_factory(None)


async def test_a_task_cannot_call_after_its_workflow(tmp_path: Path) -> None:
    """A task without calls may outlive the workflow; a call of it then is PythonOverlap."""
    flow, left = flow_of(tmp_path), list[asyncio.Task[Any]]()
    over = asyncio.Event()

    async def outlives() -> Any:
        await over.wait()
        return await flow.call_tool("double", n=1)

    async def without_calls() -> int:
        await over.wait()
        return 1

    @flow.workflow
    async def leaves() -> int:
        left.extend([asyncio.create_task(outlives()), asyncio.create_task(without_calls())])
        return await flow.call_tool("double", n=1)

    async with flow:
        assert await leaves() == 2
        over.set()
        with pytest.raises(PythonOverlap, match="had ended"):
            await left[0]
        assert await left[1] == 1


async def test_a_task_with_a_context_of_its_own_is_a_run_of_its_own(tmp_path: Path) -> None:
    """``create_task(..., context=Context())`` leaves the run: that is how a workflow starts something else."""
    flow = flow_of(tmp_path)

    @flow.workflow
    async def apart() -> Any:
        task = asyncio.create_task(flow.run("(double (n 2))"), context=contextvars.Context())
        return (await task).run_id

    async with flow:
        run = await flow.run(apart())
    assert run.value != run.run_id


async def test_tasks_fork_the_conversation_and_join_it_in_order(tmp_path: Path) -> None:
    """Whoever ends first: the conversation has the exchanges of the tasks in the order in which these were created."""
    flow = flow_of(tmp_path)

    @flow.task(history=True)
    async def say(text: str) -> str:
        """{{text}}"""

    @flow.workflow
    async def talk() -> None:
        async def later(text: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            await say(text)

        await asyncio.gather(later("one", 0.02), later("two", 0))
        await say("three")

    session = Session()
    async with flow:
        await flow.run(talk(), session=session)
    assert [exchange[0].text for exchange in session.turns()] == ["one", "two", "three"]


async def test_a_limit_ends_tasks_too(tmp_path: Path) -> None:
    """Tasks are charged to the run, and count as its branches."""
    flow = flow_of(tmp_path)

    @flow.workflow
    async def many() -> Any:
        return await asyncio.gather(*[flow.call_tool("double", n=1) for _ in range(5)])

    async with flow:
        for limits in (Limits(effects=3), Limits(branches=3)):
            with pytest.raises(LimitExceeded):
                await flow.run(many(), limits=limits)


async def asked(handle: Any) -> Any:
    """The question of a run, once it has asked."""
    while not handle.waiting:
        await asyncio.sleep(0.01)
    return handle.waiting[0]


async def test_a_question_in_a_task_parks_the_run(tmp_path: Path) -> None:
    """A body that awaits only its tasks waits: the run leaves the memory, and goes on with the answer."""
    flow = flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db")

    @flow.workflow
    async def asks() -> Any:
        return await asyncio.gather(flow.ask_human("How many?"), flow.call_tool("double", n=1))

    async with flow:
        handle = await flow.start(asks(), run_id="asks")
        question = await asked(handle)
        await flow.send("asks", question.key, 7)
        assert (await handle.result()).value == [7, 2]


async def test_the_factory_is_there_while_workflows_run(tmp_path: Path) -> None:
    """One factory serves all workflows of a loop, and goes with the last."""
    flow, loop = flow_of(tmp_path), asyncio.get_running_loop()
    seen: list[object] = []

    @flow.workflow
    async def looks() -> None:
        seen.append(loop.get_task_factory())
        await flow.sleep(0.01)

    async with flow:
        await asyncio.gather(looks(), looks())
    assert len({*seen}) == 1 and isinstance(seen[0], TaskFactory)
    assert loop.get_task_factory() is None


async def test_as_completed_names_tasks_by_their_arguments(tmp_path: Path) -> None:
    """It creates its tasks in the order of a set, which differs from process to process, so that the order cannot name them."""
    flow = flow_of(tmp_path)
    paths: list[dict[int, str]] = []

    @flow.tool
    async def where(ctx: CallContext, n: int) -> str:
        """The path of the call."""
        return ctx.path

    async def one(n: int) -> tuple[int, str]:
        return n, await flow.call_tool("where", n=n)

    @flow.workflow
    async def completed() -> None:
        spacers = [object() for _ in range(len(paths) * 50)]
        paths.append(dict([await each for each in asyncio.as_completed([one(n) for n in range(8)])]))
        assert len(spacers) >= 0

    async with flow:
        for _ in range(5):
            await completed()
    assert all(each == paths[0] for each in paths)
    assert len({path.rpartition("/")[0].rpartition(".")[0] for path in paths[0].values()}) == 8
