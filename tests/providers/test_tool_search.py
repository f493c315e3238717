"""Tools whose loading is deferred, where the provider searches them itself, and where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, tool
from agentflow.core.data.messages import ModelRequest, ToolSpec, user
from agentflow.handler.token_estimate import Calibration, Estimator
from agentflow.providers.anthropic import AnthropicProvider
from agentflow.providers.dialects import anthropic_wire, openai_responses_wire
from agentflow.providers.fallback import FallbackProvider
from agentflow.providers.openai import OpenAIResponsesProvider
from tests.support.vendors import Vendors
from tests.vendors.world import ONCE


@tool(defer_loading=True)
async def letter() -> str:
    """Send a letter."""
    return "sent"


@pytest.mark.parametrize(
    ("model", "searches"),
    [
        ("claude-sonnet-4-5", True), ("claude-opus-4-5-20251101", True), ("claude-haiku-4-5", True), ("claude-sonnet-5", True),
        ("claude-fable-5-2", True), ("claude-opus-4-1-20250805", False), ("claude-sonnet-4-20250514", False),
        ("claude-3-5-sonnet-latest", False), ("my-own", False),
    ],
)  # fmt: skip
def test_models_of_anthropic_that_search(model: str, searches: bool) -> None:
    """The names in the vendor's table, from 4.5 on; names without a version are not known to."""
    assert anthropic_wire.searches_tools(model) is searches


@pytest.mark.parametrize(
    ("model", "searches"),
    [("gpt-5.4", True), ("gpt-5.4-mini", True), ("gpt-5.10", True), ("gpt-6", True), ("gpt-5.2", False), ("gpt-5", False), ("gpt-4.1", False), ("o3", False), ("ft:x", False)],
)  # fmt: skip
def test_models_of_openai_that_search(model: str, searches: bool) -> None:
    """gpt-5.4 and later, as the vendor says."""
    assert openai_responses_wire.searches_tools(model) is searches


async def sent(vendor: str, model: str, **options: Any) -> list[dict[str, Any]]:
    """The tools in the request of a task with one deferred tool."""
    async with Vendors(["done"]) as vendors:
        traits = options.pop("traits", None)
        provider = vendors.adapter(vendor, retry=ONCE, **({} if traits is None else {"traits": traits}))
        async with AgentFlow(model=model, provider=provider, root=Path.cwd(), tools=[]) as flow:
            assert await flow.ask("Write.", tools=[letter], **options) == "done"
        assert not vendors.refusals
        return vendors.of(vendor)[-1].body["tools"]


async def test_the_search_of_the_vendor_takes_the_place_of_ours() -> None:
    """The tool is sent marked, and the vendor's search after it, so that the mark of the cache is on none that is deferred."""
    first, search = await sent("anthropic", "claude-sonnet-4-5")
    assert first["defer_loading"] is True and search["type"] == "tool_search_tool_bm25_20251119"
    first, search = await sent("openai", "gpt-5.4")
    assert first["defer_loading"] is True and search == {"type": "tool_search"}


@pytest.mark.parametrize(
    ("vendor", "model"),
    [("anthropic", "claude-sonnet-4"), ("openai", "gpt-5.2"), ("openai-chat", "gpt-5.4"), ("azure", "writer"), ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"), ("mistral", "mistral-large-latest")],
)  # fmt: skip
async def test_where_there_is_none_ours_is_offered(vendor: str, model: str) -> None:
    """Older models, Chat Completions, deployments whose model is not known, clouds: the deferred tool is not sent."""
    [search] = await sent(vendor, model)
    assert search.get("function", search)["name"] == "search_tools"


def test_deferred_tools_take_no_room() -> None:
    """The estimate of a request does not count what the provider leaves out of it."""
    spec = ToolSpec("letter", "Send a letter. " * 500, {"type": "object"})
    sizes = []
    for deferred in (False, True):
        tools = (ToolSpec(spec.name, spec.description, spec.input_schema, deferred=deferred),)
        sizes.append(Estimator("m", Calibration()).input_tokens(ModelRequest((user("x"),), tools=tools)))
    assert sizes[0] > 10 * sizes[1]


# -- the wrong ones that a user tries first -------------------------------------------------------------------------


async def test_a_stated_trait_switches_it_off() -> None:
    """``traits={"tool_search": False}``, for a proxy that takes no such tools."""
    [search] = await sent("anthropic", "claude-sonnet-4-5", traits={"tool_search": False})
    assert search["name"] == "search_tools"


async def test_a_search_that_is_there_already_is_not_sent_twice() -> None:
    """``provider_tools=`` with the vendor's other search: that is used."""
    regex = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    _, search = await sent("anthropic", "claude-sonnet-4-5", provider_tools=[regex])
    assert {key: search[key] for key in regex} == regex


def test_one_of_several_models_that_cannot_search_decides() -> None:
    """With a fallback that has no search, ours is offered to all: the request is the same for each."""
    able, unable = AnthropicProvider(api_key="x"), OpenAIResponsesProvider(api_key="x")
    assert FallbackProvider([(able, "claude-sonnet-4-5"), (unable, "gpt-5.4")]).profile("").searches_tools
    assert not FallbackProvider([(able, "claude-sonnet-4-5"), (unable, "gpt-5.2")]).profile("").searches_tools
