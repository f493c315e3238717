"""Random programs: each source that gets to a tool was foretold, whatever way the program sends it."""

from __future__ import annotations

import random

import pytest

from agentflow import AgentFlow, AgentflowError, Labelled, Limits, Provenance, ScriptedProvider, Sink
from agentflow.core.data.source import Surface
from agentflow.core.events.events import ToolStarted
from tests.support.bounds_programs import LISTS, TOOLS, effectful_program
from tests.support.bounds_python import effectful_text

SOURCES = {name: f"web-{name}" for name in TOOLS}
ALLOWED = ["user", "lists", *SOURCES.values()]
POLICY = Provenance(rules=[Sink(name, "x", allow=ALLOWED) for name in TOOLS], sources=SOURCES)
LIMITS = Limits(steps=4_000, wall_s=10.0, depth=300, collection=2_000, string=20_000, branches=200, effects=60)


async def differences(numbers: range, surface: Surface) -> tuple[list[str], int]:
    """The sources that got to a tool and were not foretold, of programs made from these numbers; and how many got there."""

    def ta(x: object) -> list[int]:
        return [0, 1]

    def tb(x: object) -> list[int]:
        return [2]

    wrong: list[str] = []
    arrived = 0
    bindings = {name: Labelled([1, 2], "lists") for name in LISTS}
    async with AgentFlow(provider=ScriptedProvider(), tools=[ta, tb], provenance=POLICY, limits=LIMITS) as flow:
        for number in numbers:
            rng = random.Random(number)
            text = effectful_program(rng) if surface == "sexp" else effectful_text(rng)
            try:
                bounds = await flow.bounds(text, surface=surface, bindings=bindings)
            except AgentflowError:
                continue
            if not bounds.authority.complete:  # it may call anything, and says so
                continue
            foretold = {each.tool: set(each.sources) for each in bounds.authority.sinks}
            try:
                async with flow.stream(text, surface=surface, bindings=bindings) as run:
                    async for event in run:
                        if isinstance(event, ToolStarted):
                            arrived += bool(event.sources)
                            more = set(event.sources) - foretold.get(event.name, set())
                            if more:
                                wrong.append(f"#{number}: {event.name} was given {more}, foretold {foretold}\n{text}")
            except AgentflowError:
                continue
    return wrong, arrived


@pytest.mark.parametrize("surface", ["sexp", "python"])
async def test_sources_that_get_to_a_tool_were_foretold(surface: Surface) -> None:
    """Functions, containers, errors and inner programs carry results about: no tool is given a source that its bounds do not name."""
    wrong, arrived = await differences(range(150 if surface == "python" else 500), surface)
    assert not wrong, wrong[0]
    assert arrived > 10


@pytest.mark.slow
@pytest.mark.parametrize("surface", ["sexp", "python"])
async def test_sources_of_many_programs_were_foretold(surface: Surface) -> None:
    """The same of six hundred others."""
    wrong, _ = await differences(range(1_000_000, 1_000_600), surface)
    assert not wrong, wrong[0]
