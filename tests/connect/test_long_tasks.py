"""Tasks of MCP servers, in both revisions: a call is carried out later, and found again by its id."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.connect.items import TASK, check_items
from agentflow.connect.long_tasks import MAX_POLL_S, MIN_POLL_S, read_task
from agentflow.events import ToolProgress
from tests.connect.flows import flow_with, seen, server
from tests.support.children import HANG_S


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the server keeps its tasks: they outlive its process."""
    directory = tmp_path / "tasks"
    directory.mkdir()
    return directory


def asked(place: Path) -> list[str]:
    """The requests about tasks that the server got."""
    log = place / "log"
    return log.read_text().split() if log.exists() else []


def tasks(place: Path) -> int:
    """How many tasks the server was asked for."""
    return len([*place.glob("task-*")])


def cleared(place: Path) -> None:
    """Forget the tasks."""
    for each in place.iterdir():
        each.unlink()


async def polled(place: Path) -> None:
    """Wait until the server was asked for the state of a task."""
    while "tasks/get" not in asked(place):
        await asyncio.sleep(0.005)


async def test_a_task_is_waited_for(root: Path, place: Path, revision: str) -> None:
    """The result of the task is that of the tool; the state of the task is its progress."""
    async with flow_with(root, server(revision)) as flow:
        run = asyncio.create_task(seen(flow, f'(content (t:long (place "{place}")))'))
        await polled(place)
        (place / "done").touch()
        value, events = await run
    assert value == "after ten minutes" and tasks(place) == 1
    assert "it is working" in [event.message for event in events if isinstance(event, ToolProgress)]


async def test_how_a_task_ends(root: Path, place: Path, revision: str) -> None:
    """A task that fails, is cancelled by its server, or is not there any more is a FAILED result with a code of its own."""
    codes: list[str] = []
    async with flow_with(root, server(revision)) as flow:
        for name in ("broken", "cancelled", "gone"):
            run = asyncio.create_task(flow.run(f'(t:long (place "{place}"))'))
            while tasks(place) == 0:
                await asyncio.sleep(0.005)
            (place / name).touch()
            error = (await run).value.notes.error
            codes.append(error.details["code"])
            cleared(place)
    assert codes == ["mcp/-32602" if revision == "old" else "mcp/task-failed", "mcp/task-cancelled", "mcp/-32602"]


async def test_a_task_of_ten_minutes_over_a_restart(root: Path, place: Path, revision: str, tmp_path: Path) -> None:
    """A durable run leaves the memory while its task works, for the ten minutes that its server says; in another process it finds
    the task by its id, and begins no other one, although the tool may not be repeated."""
    options: dict[str, Any] = {"durable": f"sqlite:///{tmp_path / 'runs.db'}"}
    program = f'(content (t:long (place "{place}") (poll 600000)))'
    async with flow_with(root, server(revision), **options) as flow:
        handle = await flow.start(program, run_id="long")
        assert await handle.wait() == "waiting"
        assert tasks(place) == 1 and asked(place) == []
    async with flow_with(root, server(revision), **options) as flow:
        handle = await flow.resume("long")
        assert await handle.wait() == "waiting" and asked(place) == ["tasks/get"]
    (place / "done").touch()
    async with flow_with(root, server(revision), **options) as flow:
        handle = await flow.resume("long")
        assert (await handle.result()).value == "after ten minutes"
    assert tasks(place) == 1 and asked(place)[:2] == ["tasks/get"] * 2


async def test_a_model_waits_for_a_task_over_a_restart(root: Path, place: Path, tmp_path: Path) -> None:
    """The same for a call of a model: its first answer is not paid for twice, and a Python workflow is resumed with it."""

    def opened(*replies: Any) -> tuple[Any, ScriptedProvider]:
        model = ScriptedProvider(replies)
        options = {"model": None, "provider": model, "durable": f"sqlite:///{tmp_path / 'runs.db'}"}
        return flow_with(root, server(approve="none"), **options), model

    def declared(flow: AgentFlow) -> Any:
        @flow.workflow
        async def work() -> str:
            return str(await flow.ask("Go.", tools=["t:long"]))

        return work

    opening, model = opened({"tool_calls": [{"name": "t:long", "arguments": {"place": str(place), "poll": 600_000}}]})
    async with opening as flow:
        assert await (await flow.start(declared(flow)(), run_id="r")).wait() == "waiting"
    (place / "done").touch()
    opening, model = opened("It is done.")
    async with opening as flow:
        declared(flow)
        assert (await (await flow.resume("r")).result()).value == "It is done."
    assert tasks(place) == 1 and len(model.requests) == 1
    assert model.requests[0].messages[-1].parts[0].text == "after ten minutes"


async def test_cancelling_the_run_cancels_the_task(root: Path, place: Path, revision: str, tmp_path: Path) -> None:
    """A run that is cancelled, or meets a time-out, cancels its task; one that only leaves the memory does not. A durable run
    that is cancelled while it is parked cancels it too."""
    options: dict[str, Any] = {"durable": f"sqlite:///{tmp_path / 'runs.db'}"}
    async with flow_with(root, server(revision), **options) as flow:
        run = asyncio.create_task(flow.run(f'(t:long (place "{place}"))'))
        await polled(place)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asked(place)[-1] == "tasks/cancel"
        cleared(place)
        handle = await flow.start(f'(t:long (place "{place}") (poll 600000))', run_id="r")
        assert await handle.wait() == "waiting" and "tasks/cancel" not in asked(place)
        await flow.cancel("r")
        async with asyncio.timeout(20):
            while "tasks/cancel" not in asked(place):
                await asyncio.sleep(0.01)


async def test_a_task_may_ask(root: Path, place: Path, revision: str) -> None:
    """A task that needs an answer asks the person of the run, once."""
    questions: list[str] = []

    def answer(question: Any) -> Any:
        questions.append(question.question)
        return {"count": 5}

    async with flow_with(root, server(revision), answer=answer) as flow:
        value = (await flow.run(f'(content (t:long (place "{place}") (asks true)))')).value
    assert json.loads(value) == {"count": 5} and len(questions) == 1


@pytest.mark.slow
async def test_a_parked_run_goes_on_by_itself(root: Path, place: Path, tmp_path: Path) -> None:
    """A run that has left the memory is back when its server's interval is over, and asks for the task."""
    async with flow_with(root, server(), durable=f"sqlite:///{tmp_path / 'runs.db'}") as flow:
        handle = await flow.start(f'(content (t:long (place "{place}") (poll 5200)))', run_id="r")
        assert await handle.wait() == "waiting" and asked(place) == []
        (place / "done").touch()
        async with asyncio.timeout(HANG_S):
            while (info := await flow.find_run("r")) is None or info.status == "waiting":
                await asyncio.sleep(0.1)
        assert (await (await flow.resume("r")).result()).value == "after ten minutes"


async def test_a_tool_that_may_be_a_task(root: Path, place: Path, tmp_path: Path) -> None:
    """A tool that may be either, in the older revision, is a task in durable runs, which can leave the memory."""
    options: dict[str, Any] = {"durable": f"sqlite:///{tmp_path / 'runs.db'}"}
    (place / "done").touch()
    async with flow_with(root, server("old"), **options) as flow:
        program = f'(content (t:either (place "{place}")))'
        assert (await flow.run(program)).value == "at once"
        assert (await (await flow.start(program, run_id="r")).result()).value == "after ten minutes"


@pytest.mark.parametrize(
    "wrong",
    [
        *({}, None, "task", {"taskId": "", "status": "working"}, {"taskId": "x" * 1_001, "status": "working"}),
        *({"taskId": 3, "status": "working"}, {"taskId": "a", "status": "resting"}, {"taskId": "a"}),
    ],
)
def test_a_task_that_is_none_is_refused(wrong: Any) -> None:
    """A task without an id of bounded length, or without a status of the protocol, is none."""
    with pytest.raises(ValueError, match="not a task"):
        read_task(wrong)


def test_what_a_task_says_is_bounded() -> None:
    """A server has itself asked neither without pause nor for ever, its words are cut and cleaned, and wrong times are left out."""
    task = {"taskId": "a", "status": "working", "createdAt": "never", "statusMessage": "\x1b[31m" + "x" * 10_000}
    for poll, seconds in ((0, MIN_POLL_S), (-1, 5.0), (1e15, MAX_POLL_S), ("soon", 5.0), (True, 5.0)):
        read = read_task({**task, "pollIntervalMs": poll, "ttlMs": "long"})
        assert read.poll_s == seconds and read.lasts_s is None
        assert len(read.message) <= 600 and "\x1b" not in read.message


def test_an_answer_is_a_task_only_where_the_protocol_says_so() -> None:
    """A result with contents is a result, also one that has a field ``task``, or the mark that tasks are read by."""
    forged: dict[str, Any] = {
        "content": [],
        "task": {"taskId": "a", "status": "working"},
        "_meta": {TASK: {"taskId": "b"}},
    }
    check_items("tools/call", "2025-11-25", forged)
    assert TASK not in forged["_meta"]
    for result in (
        {"task": {"taskId": "a", "status": "working"}},
        {"resultType": "task", "taskId": "a", "status": "working"},
    ):
        answer: dict[str, Any] = dict(result)
        check_items("tools/call", "2026-07-28", answer)
        assert answer["_meta"][TASK]["taskId"] == "a" and answer["content"] == []
