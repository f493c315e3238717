"""Whom runs are done for: several runs that share what they may spend, and how long their questions wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentflow import AgentFlow, Allowance, Limits
from agentflow.core.data.errors import LimitExceeded, PurseEmpty
from agentflow.run.purses import Purse
from tests.run.test_reservation import DOLLAR
from tests.support.metered_model import MeteredModel, asking
from tests.support.values import value_of


@pytest.mark.parametrize("money", [False, True])
@pytest.mark.parametrize("durable", [False, True])
async def test_a_hundred_runs_at_once_keep_within_what_they_share(money: bool, durable: bool, tmp_path: Path) -> None:
    """Some of 100 racing runs finish, the others are LimitExceeded of the tenant, and together they pay at most its 1,000."""
    model = MeteredModel()
    purse = Purse("ada", Allowance(usd=1_000) if money else Allowance(tokens=1_000), whose="the key 'ada'")
    async with AgentFlow(
        provider=model, prices=DOLLAR, durable=f"sqlite:///{tmp_path}/runs.db" if durable else None
    ) as flow:

        async def one() -> object:
            text = f"{asking()} (value-of (ask (n 36)))"
            if durable:
                return await (await flow.start(text, purse=purse)).result()
            return await flow.run(text, purse=purse)

        ends = await asyncio.gather(*[one() for _ in range(100)], return_exceptions=True)
    refused = [each for each in ends if isinstance(each, BaseException)]
    assert 1 <= model.finished < 100 and len(refused) == 100 - model.finished
    assert 0 < model.paid <= 1_000
    assert purse.used_usd == model.paid if money else purse.used_tokens == model.paid
    assert all(isinstance(each, PurseEmpty) and each.code == "limits/purse" for each in refused)
    assert "the key 'ada' has" in str(refused[0])


async def test_a_runs_own_limits_hold_beside_those_of_its_tenant() -> None:
    """The narrower of both counts, and a run that meets its own leaves the tenant what it did not use."""
    model = MeteredModel()
    purse = Purse("ada", Allowance(tokens=5_000), whose="the key 'ada'")
    async with AgentFlow(provider=model) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(f"{asking()} (ask (n 5000))", limits=Limits(tokens=300), purse=purse)
        assert caught.value.code == "limits/cut-off" and caught.value.allowed == 300
        assert purse.used_tokens == model.paid <= 300 and purse.held_tokens == 0
        await flow.run(f"{asking()} (ask (n 36))", purse=purse)
    assert purse.used_tokens == model.paid and purse.spent_up() is None


async def test_questions_wait_as_long_as_the_tenant_says() -> None:
    """A flow that denies what nobody answers at once keeps the questions of a tenant open."""
    async with AgentFlow() as flow:
        running = asyncio.create_task(
            value_of(flow.run('(ask-human "How many?")', run_id="r", approval_ttl=30, allow=["ask-human"]))
        )
        while not (asked := await flow.questions("r")):
            await asyncio.sleep(0.001)
        await flow.send("r", asked[0].key, 3)
        assert await running == 3
