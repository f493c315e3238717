"""What the host gives a run is looked through for labelled values once, in slices, and not at all where nothing can be in it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agentflow import AgentFlow, Labelled, Provenance, ScriptedProvider
from agentflow.core.call import provenance
from agentflow.core.call.provenance import taken_in
from agentflow.core.data.walk import PART


def test_a_large_binding_is_searched_in_slices() -> None:
    """Between two slices no more elements are looked at than one slice has, however the elements are nested."""
    flat = list(range(5 * PART))
    for value in (flat, {"all": flat}, [flat, flat], dict.fromkeys(range(5 * PART), 1)):
        assert len(list(taken_in(value))) >= 5
    assert len(list(taken_in([1, 2, 3]))) <= 2 and list(taken_in(5)) == []


class Searches:
    """Counts how often searches go on, by the profiler of this thread."""

    def __init__(self) -> None:
        self.count = 0
        self._code = provenance._holds_labelled.__code__  # pyright: ignore[reportPrivateUsage]

    def __enter__(self) -> Searches:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        self.count += event == "call" and frame.f_code is self._code


@pytest.mark.parametrize("policy", [None, Provenance()])
async def test_a_run_searches_its_bindings_once(policy: Provenance | None, tmp_path: Path) -> None:
    """A durable run as well as any other, with a policy or without, although several parts of the engine are given the bindings."""
    value = [{"a": [1, 2]}, [3]]
    with Searches() as once:
        list(taken_in(value))
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with AgentFlow(provider=ScriptedProvider(), provenance=policy, durable=url) as flow:
        with Searches() as run:
            await flow.run("(length xs)", bindings={"xs": value})
        with Searches() as durable:
            await (await flow.start("(length xs)", {"xs": value})).result()
    assert run.count == once.count and durable.count == once.count


async def test_labelled_bindings_of_stored_runs_stay_labelled(tmp_path: Path) -> None:
    """What is stored of a binding has its sources, in a durable run and in one that begins again from its record."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    for _ in range(2):
        async with AgentFlow(provider=ScriptedProvider(), provenance=Provenance(), durable=url) as flow:
            handle = await flow.start("(first xs)", {"xs": [Labelled("a", "mail")]}, run_id="r")
            result = await handle.result()
            assert (result.value, result.sources) == ("a", {"mail"})
