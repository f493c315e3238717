"""The world of a scenario: one or two strict vendors, flows that ask them, and tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, ModelDelta, ModelRequest, ProviderAdapter, Session, tool
from agentflow.core.data.messages import ModelProfile
from agentflow.media import ImagePart
from agentflow.providers.dialects.retry import RetryPolicy
from tests.support.vendors import VENDORS, Vendor, Vendors

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ONCE = RetryPolicy(attempts=1)


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"seen {place}"


@tool
async def broken(place: str) -> str:
    """Fail."""
    raise ValueError(f"no {place}")


@tool
async def silent(place: str) -> str:
    """Say nothing."""
    return " "


@tool
async def halved(place: str) -> str:
    """Half of an emoji, as a cut text ends with, and a whole one."""
    return "cut \ud83d and \U0001f600"


@tool
async def picture(place: str) -> ImagePart:
    """A picture of a place."""
    return ImagePart("image/png", PNG)


def calls(*given: Any, thinking: str = "", text: str = "") -> dict[str, Any]:
    """A reply that calls ``look`` with each place, or whatever tool of a (name, arguments) pair."""
    made = [{"name": "look", "arguments": {"place": each}} if isinstance(each, str) else {"name": each[0], "arguments": each[1]} for each in given]  # fmt: skip
    return {"tool_calls": made, "thinking": thinking, "text": text}


class ByModel:
    """An adapter that asks another by the name of the model, as a flow whose tasks name models of several servers."""

    def __init__(self, adapters: Mapping[str, ProviderAdapter]) -> None:
        self._adapters = adapters

    def profile(self, model: str) -> ModelProfile:
        """The profile of the adapter's model."""
        return self._adapters[model].profile(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Ask the adapter of the model."""
        async for delta in self._adapters[request.model].stream(request):
            yield delta

    async def count_tokens(self, request: ModelRequest) -> int:
        """As the adapter of the model counts."""
        return await self._adapters[request.model].count_tokens(request)

    async def aclose(self) -> None:
        """Nothing: the adapters belong to the vendors."""


class Halting:
    """An adapter whose answers stop for ever at their first text."""

    def __init__(self, adapter: ProviderAdapter) -> None:
        self._adapter = adapter

    def profile(self, model: str) -> ModelProfile:
        """The profile of the adapter's model."""
        return self._adapter.profile(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Ask, up to the first text."""
        async for delta in self._adapter.stream(request):
            yield delta
            if delta.text:
                await asyncio.Event().wait()

    async def count_tokens(self, request: ModelRequest) -> int:
        """As the adapter counts."""
        return await self._adapter.count_tokens(request)

    async def aclose(self) -> None:
        """Nothing: the adapter belongs to the vendors."""


@dataclass
class World:
    """One run of a scenario: with ``first``, and ``second`` where two vendors share a conversation."""

    vendors: Vendors
    first: str
    second: str
    root: Path
    flows: list[AgentFlow] = field(default_factory=list[AgentFlow])
    session: Session = field(default_factory=Session)

    def vendor(self, name: str = "") -> Vendor:
        """A vendor: the first, if it is not named."""
        return VENDORS[name or self.first]

    def flow(self, name: str = "", **options: Any) -> AgentFlow:
        """A flow that asks a vendor."""
        vendor = self.vendor(name)
        provider = options.pop("provider", None) or self.vendors.adapter(vendor.name, retry=ONCE)
        flow = AgentFlow(model=vendor.model, provider=provider, root=self.root, tools=[], **options)
        self.flows.append(flow)
        return flow

    def say(self, *replies: Any) -> None:
        """What the models say next."""
        assert isinstance(self.vendors.script, list)
        self.vendors.script[:] = [*self.vendors.script[: self.vendors._next], *replies]  # pyright: ignore[reportPrivateUsage]

    async def ask(self, flow: AgentFlow, prompt: Any, **options: Any) -> Any:
        """Ask in this run's session."""
        return await flow.ask(prompt, session=self.session, **options)

    def thoughts_came_back(self, name: str = "") -> bool:
        """Whether the vendor's last request held what it had issued and wants back."""
        asked = self.vendors.of(name or self.first)[-1]
        return any(step.kind == "thinking" for step in asked.steps) or "thought_signature" in str(asked.body)


Play = Callable[[World], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """A row of the suite: ``play`` runs it, ``pair`` says that two vendors share its conversation, ``vendors`` whose it is."""

    name: str
    play: Play
    vendors: tuple[str, ...] = tuple(VENDORS)
    pair: bool = False


def environment() -> None:
    """What adapters of clouds read from the environment."""
    os.environ.setdefault("AWS_REGION", "us-east-1")


async def run(scenario: Scenario, first: str, second: str, root: Path) -> tuple[World, str]:
    """Play a scenario; the world after it, and what went wrong besides refusals (empty: nothing)."""
    environment()
    async with Vendors([]) as vendors:
        world = World(vendors, first, second, root)
        try:
            await scenario.play(world)
        except Exception as error:
            return world, f"{type(error).__name__}: {error}"[:400]
        finally:
            for flow in world.flows:
                await flow.aclose()
    return world, ""


def named(scenario: Scenario, first: str, second: str) -> str:
    """The name of a run."""
    return f"{scenario.name}: {first}{f' and {second}' if scenario.pair else ''}"


def pairs(names: Iterable[str] = VENDORS) -> list[tuple[str, str]]:
    """All pairs of two vendors."""
    return [(one, two) for one in names for two in names if one != two]
