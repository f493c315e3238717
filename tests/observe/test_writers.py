"""What observers write: JSON lines."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from pathlib import Path

from agentflow import AgentFlow
from agentflow.core.call import CallContext
from agentflow.core.errors import ConnectionLost
from agentflow.core.events import Event, Log, TaskStarted
from agentflow.core.requests import SubtaskRequest
from agentflow.core.results import TaskResult
from agentflow.core.source import Source
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import redacted
from agentflow.observe.jsonl import JsonlWriter, event_line
from agentflow.observe.stream import MAX_UNREAD, Fanout
from tests.support.fakes import FakeRun


def events_of_a_task() -> list[Event]:
    run = FakeRun()
    call = CallContext(run, span=Source("p.sexp", "(ask (x 1))").span(0, 11))
    with call.scope(TaskStarted, name="ask", request=SubtaskRequest(name="ask", inputs={"x": "\x1b[2Jhello"})) as scope:
        scope.call.log("inside")
        scope.set(result=TaskResult.failure("llm_error", "no"))
    return run.events


async def test_every_line_is_json_with_the_header(tmp_path: Path) -> None:
    """Each event is one JSON line with v, run_id, seq, type, path, parent, span, time; Finished has its own fields."""
    path = tmp_path / "deep" / "run.jsonl"
    writer = JsonlWriter(path)
    for event in events_of_a_task():
        await writer(event)
    await writer.aclose()
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["type"] for line in lines] == ["task_started", "log", "task_finished"]
    for line in lines:
        assert {"v", "run_id", "seq", "type", "path", "parent", "span", "time"} <= set(line)
    assert lines[0]["span"]["source"] == "p.sexp"
    assert lines[1]["parent"] == lines[0]["seq"] == lines[2]["started"]
    assert lines[2]["outcome"] == "failed"
    assert lines[2]["result"]["notes"]["error"]["reason"] == "llm_error"


async def test_a_file_of_events_is_whole_however_fast_they_come(tmp_path: Path) -> None:
    """A writer is never disconnected: of more events than another reader may leave unread, each is a line."""
    path = tmp_path / "run.jsonl"
    writer = JsonlWriter(path)
    fanout = Fanout((writer,))
    events = events_of_a_task() * 10_000
    assert len(events) > MAX_UNREAD
    for event in events:
        fanout.publish(event)
    fanout.close()
    await fanout.pump()
    await writer.aclose()
    assert len(path.read_text("utf-8").splitlines()) == len(events)


async def test_a_full_disk_is_remembered_not_raised() -> None:
    """Where a line cannot be written the writer keeps the reason and takes events as before."""
    writer = JsonlWriter(Path("/dev/full"))
    for event in events_of_a_task():
        await writer(event)
    await writer.aclose()
    assert writer.error is not None and writer.error.errno == errno.ENOSPC


def test_errors_in_events_are_data() -> None:
    """An exception in a Finished event becomes its code, message and details."""
    run = FakeRun()
    call = CallContext(run)
    try:
        with call.scope(TaskStarted, name="ask"):
            raise ConnectionLost("gone", status=None, request_id="q1")
    except ConnectionLost:
        pass
    line = json.loads(event_line(run.events[-1]))
    assert line["outcome"] == "error"
    assert line["error"]["code"] == "provider/connection-lost"
    assert line["error"]["details"]["request_id"] == "q1"


def test_lines_are_redacted() -> None:
    """Secrets are taken out of every text of an event, and the line stays JSON: a key without an end takes nothing along."""
    key = "sk-ant-api03-AbCdEf0123456789"
    event = Log("r", 1, 1, "0", None, None, time.time(), message=f"{key} -----BEGIN RSA PRIVATE KEY-----\nabc")
    line = event_line(event, lambda data: redacted(data, Redactor()))
    assert key not in line and "abc" not in line
    assert json.loads(line)["level"] == "info"


def test_one_file_takes_the_runs_of_several_loops(tmp_path: Path) -> None:
    """A writer subscribed to a flow that is used in one loop after another, and by concurrent runs, loses no line."""
    path = tmp_path / "deep" / "events.jsonl"
    writer = JsonlWriter(path)
    flow = AgentFlow(root=tmp_path)
    flow.subscribe(writer)

    async def runs() -> None:
        await asyncio.gather(*(flow.eval("(+ 1 2)") for _ in range(5)))

    for _ in range(2):
        asyncio.run(runs())
    asyncio.run(flow.aclose())
    events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    by_run: dict[str, list[int]] = {}
    for event in events:
        by_run.setdefault(event["run_id"], []).append(event["seq"])
    assert len(by_run) == 10 and all(seqs == sorted(seqs) for seqs in by_run.values())
    assert sum(event["type"] == "run_finished" for event in events) == 10 and path.stat().st_mode & 0o77 == 0
