"""A run folded from its events: the state of each expression, what tasks cost, where it failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.core.events.events import Event
from agentflow.observe.run_view import RunView

PROGRAM = """(defatom ask (params (q string)) (instructions "{{q}}"))
(pmap (lambda (q) (ask (q q))) (list "a" "b" "c"))
(ask (q "last"))
(/ 1 0)"""


async def events_of(program: str, replies: list[Any]) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    def keep(event: Event) -> None:
        seen.append(json.loads(json.dumps(event.to_dict())))

    async with AgentFlow(provider=ScriptedProvider(replies)) as flow:
        flow.subscribe(keep)
        with pytest.raises(AgentflowError):
            await flow.run(program)
    return seen


async def test_each_expression_has_its_calls_and_its_worst_state() -> None:
    """Calls are counted where they stand in the text, in the task, and the failing expression is marked with its error."""
    view = RunView(await events_of(PROGRAM, ["one", "two", "three", {"error": {"status": 400}}]))
    by_line = {site.line: tally for site, tally in view.sites.items() if tally.name != "pmap"}
    assert by_line[2].calls == 3 and by_line[2].state == "ok"
    assert by_line[3].calls == 1 and by_line[3].state == "failed" and by_line[3].error
    assert by_line[4].calls == 0 and by_line[4].state == "error" and "number/division" in (by_line[4].error or "")
    task = view.tasks["task ask"]
    assert (task.calls, task.failures, task.running) == (4, 1, 0) and task.input_tokens > 0
    assert view.outcome == "error" and view.model_calls == 4
    assert PROGRAM in view.texts.values()


async def test_a_run_that_is_not_over_is_running() -> None:
    """From any beginning of the events the same view is built; what has begun and not ended is running."""
    events = await events_of(PROGRAM, ["one", "two", "three", "four"])
    for count in range(len(events)):
        view = RunView(events[:count])
        begun = sum(event["type"] == "task_started" for event in events[:count])
        ended = sum(event["type"] == "task_finished" for event in events[:count])
        task = view.tasks.get("task ask")
        assert (task.running if task else 0) == begun - ended
        assert view.outcome is None
        if task is not None and task.running:
            assert task.state == "running"


def test_version_1_and_unknown_events_are_read() -> None:
    """A log of version 1, without slice and texts, gives its totals; types and fields that are not known are passed over."""
    span = {"source": "p.sexp", "line": 2, "column": 1, "end_line": 2, "end_column": 9}
    head = {"v": 1, "run_id": "r1", "path": "0", "parent": 1, "span": span, "time": 1.0}
    view = RunView(
        [
            {**head, "type": "run_started", "seq": 1, "name": "old", "parent": None, "span": None},
            {**head, "type": "task_started", "seq": 2, "name": "ask", "request": None},
            {**head, "type": "omen", "seq": 3, "of": "what comes"},
            {**head, "type": "task_finished", "seq": 4, "started": 2, "outcome": "ok", "duration_s": 0.5},
            {**head, "type": "run_finished", "seq": 5, "started": 1, "outcome": "ok", "duration_s": 1.0},
        ]
    )
    assert (view.name, view.outcome, view.seconds) == ("old", "ok", 1.0)
    assert [(site.line, tally.calls, tally.seconds) for site, tally in view.sites.items()] == [(2, 1, 0.5)]
