"""A process that carries out one evaluation, and dies in its n-th model call: ``python eval_child.py DIRECTORY N``; N is 0 for never."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.evals import calls, contains, cost, judge

HERE, DEATH = Path(sys.argv[1]), int(sys.argv[2])
CASES = [{"question": f"q{number}", "expected": f"Q{number}"} for number in range(8)]
VARIANTS = {"loud": {"reply": {"instructions": "Reply loudly to {{text}}"}}, "again": {}}
ASKED: list[str] = []


def model(request: Any) -> dict[str, Any]:
    """Say it again, loudly or not; a judge likes what is loud."""
    text = request.messages[-1].text
    ASKED.append(text)
    with (HERE / "calls.log").open("a") as log:
        log.write(json.dumps(text) + "\n")
    if len(ASKED) == DEATH:
        os._exit(9)
    said = text.upper() if "loudly" in text else text
    if text.startswith("Judge"):
        said = json.dumps({"reason": "so", "score": "LOUDLY" in text})
    return {"text": said, "cost_usd": 0.01, "usage": {"input_tokens": 5, "output_tokens": 5}}


async def main() -> None:
    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{HERE}/runs.db") as flow:

        @flow.task
        async def draft(question: str) -> str:
            """Draft {{question}}"""
            raise NotImplementedError

        @flow.task
        async def reply(text: str) -> str:
            """Reply to {{text}}"""
            raise NotImplementedError

        @flow.workflow
        async def answer(question: str) -> str:
            return await reply(await draft(question))

        report = await flow.evaluate(
            answer,
            CASES,
            variants=VARIANTS,
            scorers=[contains(), judge("loud"), calls, cost],
            repeat=2,
            concurrency=3,
            run_id="evaluation",
            limits=Limits(usd=50),
        )
    lines = [json.loads(line) for line in report.to_jsonl().splitlines()]
    told = [{key: line[key] for key in ("case", "variant", "draw", "status", "value", "scores")} for line in lines[1:]]
    (HERE / "report.json").write_text(
        json.dumps(sorted(told, key=lambda each: (each["case"], each["variant"], each["draw"])))
    )


asyncio.run(main())
