"""Servers that ask the run's model: only where the host said so, within bounds, for the run's money."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentflow import ApprovalRequest, LimitExceeded, Limits, ScriptedProvider
from agentflow.errors import ProviderError
from agentflow.events import ModelStarted, ToolStarted
from agentflow.settings import Settings
from tests.connect.flows import flow_with, seen, server


async def test_the_runs_model_answers(root: Path, revision: str) -> None:
    """The server gets the words; the model saw its messages, no tools, no history and none of the flow's own system text."""
    model = ScriptedProvider(["mine", "Forty-two."])
    options: dict[str, Any] = {"model": None, "provider": model, "settings": Settings(system="the flow's own rules")}
    async with flow_with(root, server(revision, sampling=True), **options) as flow:
        program = '(defatom greet (params) (instructions "First.")) (begin (greet) (t:sample (text "Well?")))'
        result, events = await seen(flow, program)
        answer = json.loads(result.content)
        assert answer["content"] == {"type": "text", "text": "Forty-two."} and answer["role"] == "assistant"
        (first, request) = model.requests
        assert "own rules" in first.system and request.system == "Be brief."
        said = [(message.role, message.parts[0].text) for message in request.messages]
        assert said == [("user", "Hi."), ("assistant", "Hello."), ("user", "Well?")]
        assert request.tools == () and request.max_output_tokens == 8_192
        tool = next(event for event in events if isinstance(event, ToolStarted))
        asked = [event for event in events if isinstance(event, ModelStarted)][-1]
        assert asked.path.startswith(tool.path + "/")


async def test_it_is_off_unless_the_host_says_so(root: Path, revision: str) -> None:
    """A server that may not ask has its request refused, and no model is called."""
    model = ScriptedProvider([])
    async with flow_with(root, server(revision), model=None, provider=model) as flow:
        result = (await flow.run("(t:sample)")).value
        assert model.requests == []
        assert "sampling is off" in str(result.notes.error) or "Sampling not supported" in result.content


async def test_the_run_pays_and_bounds_it(root: Path, revision: str) -> None:
    """Model calls that a server asks for count as the run's: one too many ends the run, whatever the server says."""
    model = ScriptedProvider(["one", "two", "three"])
    async with flow_with(root, server(revision, sampling=True), model=None, provider=model) as flow:
        result = await flow.run("(t:sample (times 2))", limits=Limits(model_calls=2))
        assert result.usage.requests == 2
        with pytest.raises(LimitExceeded):
            await flow.run("(t:sample (times 3))", limits=Limits(model_calls=0))


async def test_a_sample_that_is_cut_off_is_an_answer(root: Path, revision: str) -> None:
    """The server chose how long it may be, and hears that it was cut; the tool goes on, and so does its run."""
    text = "word " * 2_000
    model = ScriptedProvider([{"text": text, "stop_reason": "max_tokens"}])
    async with flow_with(root, server(revision, sampling=True), model=None, provider=model) as flow:
        answer = json.loads(((await flow.run("(t:sample)")).value).content)
        assert answer["stopReason"] == "maxTokens" and answer["content"]["text"] == text and answer["model"]


async def test_a_sample_that_fails_is_the_servers_to_handle(root: Path, revision: str) -> None:
    """It hears that there is no answer, and why in a word; what the model's server said is not for it. The run goes on."""
    model = ScriptedProvider([{"error": ProviderError("the key sk-1 is out of money", status=402)}])
    async with flow_with(root, server(revision, sampling=True), model=None, provider=model) as flow:
        result = (await flow.run("(list (t:sample) 1)")).value
        assert result[1] == 1 and "gave no answer (" in str(result[0]) and "money" not in str(result[0])


async def test_no_call_asks_the_model_without_end(root: Path, revision: str) -> None:
    """Ten answers a call, and no more."""
    model = ScriptedProvider(["word"] * 20)
    async with flow_with(root, server(revision, sampling=True), model=None, provider=model) as flow:
        result = (await flow.run("(t:sample (times 12))")).value
        assert len(model.requests) == 10
        assert "more than 10 times" in result.content


@pytest.mark.parametrize(("approve", "asked", "agreed"), [("writes", 1, False), ("writes", 1, True), ("none", 0, True)])
async def test_what_a_models_call_has_a_server_ask_waits_for_a_yes(
    root: Path, revision: str, approve: str, asked: int, agreed: bool
) -> None:
    """An untrusted program's call does not have the model asked unless somebody says yes to the very words."""
    requests: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        requests.append(request)
        return agreed

    model = ScriptedProvider(["word"] * 2)
    flow_of = flow_with(
        root, server(revision, sampling=True, approve=approve), model=None, provider=model, approve=approver
    )
    async with flow_of as flow:
        result = (await flow.run('(t:sample (text "Tell me all"))', allow=["t:sample"])).value
        assert len(requests) == asked and len(model.requests) == agreed
        assert all("Tell me all" in request.text and request.tool == "t:sampling" for request in requests)
        assert agreed or "not approved" in result.content
        await flow.run("(t:sample)")  # the host's own call asks nobody
        assert len(requests) == asked


@pytest.mark.parametrize("sampling", [True, False])
async def test_a_tool_that_may_ask_the_model_has_no_bound(root: Path, revision: str, *, sampling: bool) -> None:
    """What is said of a program before it runs counts what its servers may ask for; without leave they ask for nothing."""
    async with flow_with(root, server(revision, sampling=sampling), model=None, provider=ScriptedProvider([])) as flow:
        said = await flow.bounds("(t:sample)")
        assert (str(said.model_calls), len(said.unbounded)) == (("no bound", 1) if sampling else ("0", 0))
