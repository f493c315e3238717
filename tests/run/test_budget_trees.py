"""Budgets in random trees of branches, retries, fallbacks, parts and cancellations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow import AgentFlow, CallContext, Limits, Price
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.messages import Attempt, ModelDelta, ModelRequest
from agentflow.core.data.provider_errors import ConnectionLost, ServerError
from agentflow.providers import FallbackProvider
from tests.support.metered_model import MeteredModel

ERROR = 12
"""Tokens by which the estimate of a call's input may be wrong here."""

asks = st.integers(1, 400).map(lambda n: f"(ask (n {n}))")
capped = st.integers(1, 400).map(lambda n: f"(short (n {n}))")


def forms(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Forms around others."""
    several = st.lists(inner, min_size=1, max_size=4).map(" ".join)
    return st.one_of(
        several.map(lambda parts: f"(begin {parts})"),
        several.map(lambda parts: f"(parallel {parts})"),
        several.map(lambda parts: f"(race {parts})"),
        inner.map(lambda part: f"(try {part} (catch (e) 0))"),
        inner.map(lambda part: f"(retry 2 {part})"),
        inner.map(lambda part: f"(pmap (lambda (i) {part}) (range 3))"),
        st.tuples(inner, st.integers(50, 900)).map(lambda both: f'(part (program "{both[0]}") (tokens {both[1]}))'),
    )


trees = st.recursive(asks | capped, forms, max_leaves=12).filter(lambda text: text.count("(part ") < 2)


class Moody(MeteredModel):
    """A model that is down, breaks off, or is asked again after an attempt that broke, where ``moods`` say so."""

    def __init__(self, moods: list[str]) -> None:
        super().__init__()
        self.moods = moods

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """One answer, or none."""
        mood = self.moods[len(self.requests) % len(self.moods)] if self.moods else "good"
        answer = super().stream(request)
        try:
            if mood == "down":
                self.requests.append(request)
                raise ServerError("down")
            if mood == "again":
                for number in (1, 2):
                    attempt = Attempt(number, "scripted", request.model)
                    yield ModelDelta(attempt=attempt)
                    if number == 1:
                        yield ModelDelta(attempt=replace(attempt, outcome="failed", error=ConnectionLost("broke")))
            async for delta in answer:
                yield delta
                if mood == "broken":
                    raise ConnectionLost("broke")
        finally:
            await answer.aclose()


async def spend(program: str, limits: Limits, moods: list[str], cut_after: int | None) -> None:
    """Run ``program``, cancelled after so many turns of the loop, and look at what became of the budget."""
    model = Moody(moods)
    purses: list[Any] = []
    async with AgentFlow(
        provider=FallbackProvider([(model, "a"), (model, "b")]),
        limits=limits,
        prices={"scripted:*": Price(1_000_000, 1_000_000)},
    ) as flow:
        for name, cap in (("ask", None), ("short", 60)):
            flow.task_system.register_template(
                {"name": name, "params": "n", "instructions": "Write {{n}}", "max_output_tokens": cap, "tools": []}
            )

        @flow.tool
        async def part(program: str, tokens: int, ctx: CallContext) -> Any:
            """A part of the run with limits of its own."""
            purses.append(ctx.run.funds)
            return (await flow.run(program, limits=Limits(tokens=tokens))).value

        with contextlib.suppress(AgentflowError):
            async with flow.stream(f'(part (program "0") (tokens 1)) {program}') as run:
                if cut_after is None:
                    await run.value()
                else:
                    for _ in range(cut_after):
                        await asyncio.sleep(0)
        used = run.account.usage
    for purse in purses:
        assert (purse.calls, purse.held_tokens, purse.held_usd) == (0, 0, 0.0)
        assert purse.root.waiters.first() is None
    assert used.total_tokens - used.estimated_tokens == model.paid, "every finished call is paid for, once"
    bound = limits.tokens if limits.tokens is not None else limits.usd
    assert bound is not None and used.total_tokens <= bound + ERROR * max(1, model.most), (used, bound, model.most)


runs = given(
    trees,
    st.integers(1, 2_000),
    st.booleans(),
    st.lists(st.sampled_from(["good", "good", "down", "broken", "again"]), max_size=5),
    st.none() | st.integers(1, 200),
)


def check(program: str, limit: int, money: bool, moods: list[str], cut_after: int | None) -> None:
    """One run, whose budget is tokens, or dollars at a dollar a token."""
    limits = Limits(usd=limit) if money else Limits(tokens=limit)
    asyncio.run(spend(program, limits, moods, cut_after))


@settings(max_examples=25, deadline=None)
@runs
def test_no_tree_ends_above_its_limit(
    program: str, limit: int, money: bool, moods: list[str], cut_after: int | None
) -> None:
    """Whatever a run does and however it ends: it has not spent more than its limit and the error of the estimates in
    flight, what it set aside is given back, and its account is what the models have billed."""
    check(program, limit, money, moods, cut_after)


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@runs
def test_no_tree_of_many_ends_above_its_limit(
    program: str, limit: int, money: bool, moods: list[str], cut_after: int | None
) -> None:
    """The same for a thousand trees."""
    check(program, limit, money, moods, cut_after)
