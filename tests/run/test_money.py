"""Costs are sums of integers: exact, and the same in whatever order calls end, live, from records and in what is shown."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agentflow import AgentFlow, LimitExceeded, Limits, Price, ScriptedProvider
from agentflow.core.data.limits import NANO, added, total
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.durable.journal import Meter
from agentflow.run.reservation import RunFunds

NANOS = some.lists(some.integers(0, 10**13), max_size=40)


@given(NANOS, some.randoms())
def test_a_total_is_the_sum_of_nano_dollars_in_any_order(nanos: list[int], random: Any) -> None:
    """Added one by one, all together, in a meter or in a purse, costs in any order give one total, to the last digit."""
    costs = [each / NANO for each in nanos]
    random.shuffle(costs)
    whole, purse, meter = 0.0, RunFunds(Limits(usd=10.0**6)), Meter(None)
    for cost in costs:
        whole = added(whole, cost) or 0.0
        purse.spent(NO_USAGE, cost)
        meter.add(Usage(requests=1), cost)
    assert whole == total(costs) == purse.used_usd == meter.cost == sum(nanos) / NANO


@given(NANOS)
def test_what_is_subtracted_is_gone(nanos: list[int]) -> None:
    """A meter from which all of its steps are subtracted has cost nothing, and not a remainder."""
    outer = Meter(None)
    for each in nanos:
        step = Meter(None)
        step.add(Usage(requests=1), each / NANO)
        outer.add(Usage(requests=1), each / NANO)
        outer.recorded(step)
    assert outer.cost == 0.0 and outer.usage is None


@pytest.mark.parametrize("unknown", [None, float("nan"), float("inf")])
def test_what_is_no_number_is_not_known(unknown: float | None) -> None:
    """A cost that is unknown, or no number, makes the total unknown."""
    assert added(unknown, 1.0) is None and added(1.0, unknown) is None and total([1.0, unknown]) is None


ASK = "(pmap (lambda (i) (content (ask (q i)))) '(1 2 3))"


def flow_with(costs: tuple[float, ...], where: Path, **options: Any) -> AgentFlow:
    """A flow whose model's three answers cost so much."""
    said = [{"text": "x", "cost_usd": cost} for cost in costs]
    return AgentFlow(provider=ScriptedProvider(said), durable=f"sqlite:///{where}/runs.db", **options)


async def test_the_cost_of_a_run_does_not_depend_on_an_order(tmp_path: Path) -> None:
    """0.1, 0.2 and 0.3 dollars are 0.6 in each order, where the run ends, where it is asked for again, and in the list of records."""
    for number, costs in enumerate(itertools.permutations((0.1, 0.2, 0.3))):
        text = f'(defatom ask (params (q number)) (instructions "{{{{q}}}}")) {ASK}'
        async with flow_with(costs, tmp_path) as flow:
            assert (await (await flow.start(text, run_id=f"r{number}")).result()).cost == 0.6
            recorded = await flow.recorded_result(f"r{number}")
            assert recorded is not None and recorded.cost == 0.6


async def test_a_limit_is_met_by_the_sum(tmp_path: Path) -> None:
    """Ten times 0.1 dollars are one dollar: the tenth call fits within it, and the eleventh does not."""
    prices = {"m": Price(input=0.0, output=100_000.0)}
    provider = ScriptedProvider([{"text": "x", "usage": {"output_tokens": 1}, "cost_usd": 0.1}] * 11)
    async with AgentFlow(provider=provider, model="m", prices=prices, limits=Limits(usd=1.0)) as flow:

        @flow.workflow
        async def work(times: int) -> int:
            for _ in range(times):
                await flow.ask("x", max_output_tokens=1)
            return times

        result = await flow.run(work(10))
        assert result.cost == 1.0
    async with AgentFlow(
        provider=provider.__class__([{"text": "x", "cost_usd": 0.1}] * 11),
        model="m",
        prices=prices,
        limits=Limits(usd=1.0),
    ) as flow:

        @flow.workflow
        async def more() -> None:
            for _ in range(11):
                await flow.ask("x", max_output_tokens=1)

        with pytest.raises(LimitExceeded):
            await flow.run(more())
