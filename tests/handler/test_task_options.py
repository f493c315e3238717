"""What a task says of its model's effort and of the provider's own tools reaches the server."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.events.events import Event, Warning
from tests.support.model_server import ModelServer

SEARCHER = """(defatom look (params) (instructions "Look it up.") (effort "low")
  (provider_tools {"type" "web_search" "max_uses" 2})) (look)"""


async def asked(model: str, program: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The body of the request that a program makes, and the codes of the warnings."""
    codes: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, Warning):
            codes.append(event.code)

    async with ModelServer(["fine"]) as server:
        async with AgentFlow(model, base_url=server.url, api_key="k") as flow:
            flow.subscribe(note)
            await flow.run(program, **options)
        return server.requests[0].body, codes


async def test_a_task_says_how_hard_to_think_and_what_the_provider_may_do() -> None:
    """Both go out in the model's own words; a call that offers the provider's tools is kept for the next one."""
    body, codes = await asked("anthropic:claude-opus-5", SEARCHER)
    assert body["output_config"] == {"effort": "low"} and not codes
    assert body["tools"][0]["type"] == "web_search" and body["tools"][0]["max_uses"] == 2
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}


async def test_an_unknown_model_is_asked_without_an_effort() -> None:
    """It would refuse the field: the run goes on, and a warning says that nothing was sent."""
    body, codes = await asked("openai-chat:llama3", '(defatom t (params) (instructions "x") (effort "max")) (t)')
    assert "reasoning_effort" not in body and codes == ["handler/effort"]


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ('(effort "extreme")', "effort"),
        ('(provider_tools {"name" "web_search"})', "its type"),
        ('(provider_tools "web_search")', "lists tables"),
    ],
)
async def test_what_cannot_be_is_refused_where_it_stands(option: str, problem: str) -> None:
    """Before anything is asked."""
    async with AgentFlow("scripted") as flow:
        with pytest.raises(AgentflowError, match=problem):
            await flow.run(f'(defatom t (params) (instructions "x") {option}) (t)')


async def test_a_program_that_is_not_trusted_cannot_have_the_provider_reach_out() -> None:
    """What a provider's tool reaches no grant names."""
    async with AgentFlow("scripted") as flow:
        with pytest.raises(SexpEvaluationError, match="provider_tools"):
            await flow.run(SEARCHER, allow=["defatom"])


async def test_a_prompt_takes_them_too() -> None:
    """``execute_prompt`` has the same options."""
    async with ModelServer(["fine"]) as server:
        async with AgentFlow("openai:gpt-5.6", base_url=server.url, api_key="k") as flow:
            await flow.handler.execute_prompt("hi", effort="high", provider_tools=({"type": "web_search"},))
        body = server.requests[0].body
    assert body["reasoning"] == {"effort": "high"} and body["tools"] == [{"type": "web_search"}]
