"""Replies by task, and what was asked of models, in the order in which it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, LimitExceeded, Limits, Price, TaskError
from agentflow.testing import Cassette, Script
from tests.support.model_server import ModelServer

PROGRAM = """
(defatom review (params (path string)) (instructions "Review {{path}}"))
(defatom sum-up (params (texts string)) (instructions "Sum up: {{texts}}"))
(define reviews (pmap (lambda (path) (value-of (review (path path)))) (list "a.py" "b.py" "c.py")))
(value-of (sum-up (texts (string-join reviews ", "))))
"""


async def word(text: str) -> str:
    """A word of it."""
    return text.split()[0]


@pytest.fixture
def flow_options() -> Mapping[str, Any]:
    """A flow of an application: it has a model of its own, which no test may reach."""
    return {"model": "anthropic:claude-sonnet-5-5", "tools": [word], "limits": Limits(turns=5)}


async def test_each_task_gets_its_own_replies(flow: AgentFlow, script: Script) -> None:
    """Whatever branch comes first, a task takes the replies that are its own, and prompts are kept by task."""
    script.on("sum-up", "all fine")
    script.on("review", lambda request: f"fine: {request.messages[-1].text.split()[-1]}")
    assert (await flow.run(PROGRAM)).value == "all fine"
    assert script.prompt("sum-up") == "Sum up: fine: a.py, fine: b.py, fine: c.py"
    assert sorted(script.prompts("review")) == ["Review a.py", "Review b.py", "Review c.py"]
    assert len(script.prompts()) == len(script.requests()) == 4 and not script.unused
    assert {request.model for request in script.requests()} == {"claude-sonnet-5-5"}


async def test_replies_of_other_tasks_and_of_tool_loops(flow: AgentFlow, script: Script) -> None:
    """Tasks without replies share the others; each model call of a tool loop takes one, and its prompt counts once."""
    script.on("sum-up", {"tool_calls": [{"name": "word", "arguments": {"text": "good work"}}]}, lambda request: "good")
    script.otherwise("one", "two", "three", "four")
    assert (await flow.run(PROGRAM)).value == "good"
    assert [(call.task, call.turn) for call in script.calls[3:]] == [("sum-up", 1), ("sum-up", 2)]
    assert len(script.prompts("sum-up")) == 1 and script.unused == {"": 1}


async def test_a_call_without_a_reply_says_whose_it_is(flow: AgentFlow, script: Script) -> None:
    """The error names the task, the call, and the name that was probably meant."""
    script.on("sum-up", "never")
    script.on("reviews", "a", "b")
    with pytest.raises(ConfigurationError) as caught:
        await flow.run(PROGRAM)
    assert caught.value.code == "provider/script-ended" and "of task 'review'" in caught.value.message
    assert "reviews" in (caught.value.hint or "")


async def test_how_often_was_asked(flow: AgentFlow, script: Script) -> None:
    """``prompt`` is for what was asked once; else it says what was asked how often."""
    with pytest.raises(AssertionError, match="tasks that asked: nothing"):
        script.prompt("review")
    script.otherwise(lambda request: "ok")
    await flow.run(PROGRAM)
    with pytest.raises(
        AssertionError, match="task 'review' was asked 3 times, not once; tasks that asked: review 3 times, sum-up"
    ):
        script.prompt("review")


async def test_errors_are_replies_too(flow: AgentFlow, script: Script) -> None:
    """A failing model is scripted like any other answer."""
    script.on("review", "a", {"error": "overloaded"}, "c")
    with pytest.raises(TaskError, match="overloaded"):
        await flow.run(PROGRAM)


async def test_a_flow_has_its_own_models_again_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script stands in for an application's flow only where it is told to, with the flow's prices."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    prices = {"scripted:*": Price(input=1_000_000, output=1)}
    async with AgentFlow("anthropic:claude-sonnet-5-5", prices=prices, limits=Limits(usd=1)) as flow:
        ask = '(defatom ask (params) (instructions "Answer")) (value-of (ask))'
        script = Script()
        script.on("ask", "yes")
        with script.answers(flow), pytest.raises(LimitExceeded):
            await flow.run(ask)
        assert not script.calls
        with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
            await flow.run(ask, limits=Limits())


async def test_a_cassette_stands_in_for_a_flows_models(tmp_path: Path) -> None:
    """Recorded from a flow's own server, whatever branch comes first, its calls replay in the same flow without one."""
    async with ModelServer(lambda request: f"re: {request.body['messages'][-1]['content'][-4:]}") as server:
        async with AgentFlow("openai-chat:m", base_url=server.url, api_key="k") as flow:
            with Cassette(tmp_path / "c.json") as cassette, cassette.answers(flow):
                recorded = (await flow.run(PROGRAM)).value
            asked = len(server.requests)
            with Cassette(tmp_path / "c.json") as cassette, cassette.answers(flow):
                assert (await flow.run(PROGRAM)).value == recorded and cassette.left == 0
            assert asked == len(server.requests) == 4
            assert (await flow.run(PROGRAM)).value == recorded and len(server.requests) == 8


async def test_a_cassette_cannot_stand_in_for_an_own_adapter(tmp_path: Path) -> None:
    """What goes through an adapter of the application's own is not recorded silently as nothing."""
    script = Script()
    async with AgentFlow() as flow:
        with script.answers(flow), pytest.raises(ConfigurationError) as caught:
            with Cassette(tmp_path / "c.json", "record").answers(flow):
                raise AssertionError
        assert caught.value.code == "cassette/provider"
