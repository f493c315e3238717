"""A process that carries out one improvement, and dies in its n-th model call: ``python improve_child.py DIRECTORY N BY``; N is 0 for never. BY is an
optimiser, or ``operators`` for those on a text."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.evals import judge

HERE, DEATH, BY = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
TEXT = "(value-of (reply (text (value-of (draft (question question))))))"
CASES = [{"question": f"q{number}", "expected": f"Q{number}"} for number in range(10)]
ASKED: list[str] = []


def has(case: Any, run: Any) -> bool:
    """Whether the expected text is in the answer, capitals included."""
    return case.expected in run.value


def model(request: Any) -> dict[str, Any]:
    """Say it again, loudly or not; propose loudness to whoever mentions two failed cases."""
    text = request.messages[-1].text
    ASKED.append(text)
    with (HERE / "calls.log").open("a") as log:
        log.write(json.dumps(text) + "\n")
    if len(ASKED) == DEATH:
        os._exit(9)
    said = text.upper() if "loudly" in text else text
    if text.startswith("Judge"):
        said = json.dumps({"reason": "so", "score": "REPLY" in text})
    if text.startswith("Rewrite"):
        task = text.split("'")[1]
        said = json.dumps(
            {"diagnosis": "quiet", "instructions": f"{task} loudly {text.split('braces: ')[1].split('.')[0]}"}
        )
    if text.startswith("I provided"):
        said = "```\nSay loudly {{text}}\n```" if "Reply" in text else "```\nDraft it {{question}}\n```"
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

        operators = ["drop", "critic", "few_shot", "retry"] if BY == "operators" else []
        report = await flow.improve(
            TEXT if operators else answer,
            CASES,
            [has, judge("loud")],
            edit=[draft, reply],
            by="gepa" if BY == "gepa" else "own",
            operators=operators,
            generations=2,
            concurrency=3,
            run_id="improvement",
            limits=Limits(usd=50),
        )
    told = report.to_dict()
    for each in told["candidates"]:
        del each["paid_calls"]
    kept = {name: told[name] for name in ("score", "best", "diff", "candidates")}
    (HERE / "report.json").write_text(json.dumps(kept))


asyncio.run(main())
