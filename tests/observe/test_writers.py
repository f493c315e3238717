"""An event as a line of JSON."""

from __future__ import annotations

import json
import time

from agentflow.core.call.call import CallContext
from agentflow.core.data.provider_errors import ConnectionLost
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.core.events.events import Event, Log, TaskStarted
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import redacted
from agentflow.observe.files import event_line
from tests.support.fakes import FakeRun


def events_of_a_task() -> list[Event]:
    run = FakeRun()
    call = CallContext(run, span=Source("p.sexp", "(ask (x 1))").span(0, 11))
    with call.scope(TaskStarted, name="ask", request=SubtaskRequest(name="ask", inputs={"x": "\x1b[2Jhello"})) as scope:
        scope.call.log("inside")
        scope.set(result=TaskResult.failure("llm_error", "no"))
    return run.events


def test_every_line_is_json_with_the_header() -> None:
    """Each event is one JSON line with v, run_id, seq, type, path, parent, span, time; Finished has its own fields."""
    lines = [json.loads(event_line(event)) for event in events_of_a_task()]
    assert [line["type"] for line in lines] == ["task_started", "log", "task_finished"]
    for line in lines:
        assert {"v", "run_id", "seq", "type", "path", "parent", "span", "time"} <= set(line)
    assert lines[0]["span"]["source"] == "p.sexp"
    assert lines[1]["parent"] == lines[0]["seq"] == lines[2]["started"]
    assert lines[2]["outcome"] == "failed"
    assert lines[2]["result"]["notes"]["error"]["reason"] == "llm_error"


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
