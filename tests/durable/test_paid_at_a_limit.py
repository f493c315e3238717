"""A limit stops the branches of a run; an answer that has arrived by then is recorded, and not paid for again with a higher limit."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, LimitExceeded, Limits, ModelRequest, Price, ScriptedProvider

FORMS = {
    "pmap": "(pmap (lambda (n) (content (item (n n)))) (range 10) {})",
    "parallel": "(parallel " + " ".join(f"(content (item (n {n})))" for n in range(10)) + ")",
    "inner": "(pmap (lambda (m) (pmap (lambda (n) (content (item (n (+ n (* 5 m)))))) (range 5) {})) (range 2))",
}


@pytest.mark.parametrize("at_once", [2, 5])
@pytest.mark.parametrize("form", ["map", *FORMS])
async def test_what_arrived_is_not_paid_again(form: str, at_once: int, tmp_path: Path) -> None:
    """Ten calls, of which at most five are paid for at first: together the two runs pay for each once."""
    paid: Counter[str] = Counter()

    async def model(request: ModelRequest) -> Any:
        paid[request.messages[-1].text] += 1
        await asyncio.sleep(0.01)  # calls that begin together answer together
        return {"text": "x", "usage": {"input_tokens": 0, "output_tokens": 100}}

    async with AgentFlow(
        provider=ScriptedProvider(model),
        prices={"scripted:*": Price(input=0, output=10)},
        durable=f"sqlite:///{tmp_path}/runs.db",
    ) as flow:

        @flow.task(max_output_tokens=100)
        async def item(n: int) -> str:
            """Item {{n}}"""
            raise NotImplementedError

        @flow.workflow
        async def every(ns: list[int]) -> list[str]:
            return await flow.map(item, ns, limit=at_once)

        program: Any = every(list(range(10))) if form == "map" else FORMS[form].format(at_once)
        with pytest.raises(LimitExceeded):
            await (await flow.start(program, run_id="r", limits=Limits(usd=0.005, concurrency=at_once))).result()
        first = paid.total()
        assert 0 < first < 10
        program = every(list(range(10))) if form == "map" else program
        await (await flow.start(program, run_id="r", limits=Limits(usd=1, concurrency=at_once))).result()
        assert set(paid.values()) == {1} and len(paid) == 10
