"""The options of a run: stated once by the caller, checked, and passed whole."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest

from agentflow import AgentFlow
from agentflow.core.data.at_limit import AtLimit
from agentflow.core.data.errors import ConfigurationError
from agentflow.flow.program_methods import RUN, START
from agentflow.run.run_spec import RunSpec

TEXT = "(let ((one 1)) (+ one 2))"


def test_every_option_is_a_field_of_the_spec() -> None:
    """What callers write is what the engine gets, except what the face itself acts on; ``at_limit`` holds three of them."""
    of_the_face = {"max_cost", "max_tokens", "surface", "where"}
    of_limits = {each.name for each in fields(AtLimit)}
    assert (RUN | START) - of_the_face - of_limits <= {each.name for each in fields(RunSpec)}


@pytest.mark.parametrize(("written", "meant"), [("binding", "bindings"), ("limit", "limits"), ("runid", "run_id")])
async def test_an_unknown_option_is_an_error_that_names_the_one_meant(written: str, meant: str) -> None:
    """A misspelt option of ``run``, ``stream`` or ``start`` is ``config/option``, and a call that was passed is given up."""
    options = cast(Any, {written: None})
    async with AgentFlow(model="offline") as flow:
        with pytest.raises(ConfigurationError) as run:
            await flow.run(flow.now(), **options)
        with pytest.raises(ConfigurationError) as stream:
            flow.stream("(+ 1 2)", **options)
    for caught in (run, stream):
        assert caught.value.code == "config/option" and meant in (caught.value.hint or "")


async def test_an_option_of_run_is_none_of_start(tmp_path: Path) -> None:
    """Each method takes its own options: ``env`` cannot be stored."""
    async with AgentFlow(model="offline", durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.start("(+ 1 2)", **cast(Any, {"env": None}))
    assert caught.value.code == "config/option" and "flow.start" in caught.value.message


async def test_allow_may_be_any_iterable(tmp_path: Path) -> None:
    """``allow`` is read once: a generator gives a durable run the names that a list gives it."""
    async with AgentFlow(model="offline", durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        first = await flow.start(TEXT, run_id="r", allow=iter(["one"]))
        assert (await first.result()).value == 3
        again = await flow.start(TEXT, run_id="r", allow=["one"])
        assert (await again.result()).value == 3


async def test_a_flow_without_a_database_has_no_store() -> None:
    """``flow.store`` says how to get one."""
    async with AgentFlow(model="offline") as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.store.past_runs()
    assert caught.value.code == "config/durable" and "durable=" in (caught.value.hint or "")
