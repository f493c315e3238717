"""Effort and prompt caching: the repeated part of a tool loop is read from the provider's cache, for a tenth of its price.

You need no key: the server runs on this machine, and its cache is *simulated* by Anthropic's published rules.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the server, which is that of agentflow's tests
from agentflow import AgentFlow
from agentflow.events import ModelFinished
from tests.support.model_server import ModelServer
from tests.support.prompt_cache import SimulatedCache

GUIDE = "Rules of the house, which every call repeats. " * 200
TURNS = [{"tool_calls": [{"id": f"c{n}", "name": "read_page", "arguments": {"page": n}}]} for n in range(1, 5)]


async def main() -> None:
    for cache in ("5m", False):
        async with ModelServer([*TURNS, "It rains."], cache=SimulatedCache()) as server:
            flow = AgentFlow("anthropic:claude-opus-5", base_url=server.url, api_key="none", prompt_cache=cache)

            @flow.tool
            def read_page(page: int) -> str:
                """Read a page."""
                return f"Page {page}: " + "rain and wind " * 150

            @flow.task(system=GUIDE, tools=[read_page], effort="low")
            async def read() -> str:
                """Read all pages."""

            def show(event):
                if isinstance(event, ModelFinished):
                    usage = event.response.usage
                    print(f"  {usage.input_tokens:6,} tokens in, {usage.cache_read_tokens:6,} of them from the cache")

            flow.subscribe(show)
            async with flow:
                print(f"prompt_cache={cache!r}, simulated:")
                result = await flow.run(read())
                share = result.usage.cache_read_tokens / result.usage.input_tokens
                print(f"  {result.value} {share:.0%} read from the cache, {result.cost:.4f} USD")
            print("  effort:", {each.body["output_config"]["effort"] for each in server.requests})


asyncio.run(main())
