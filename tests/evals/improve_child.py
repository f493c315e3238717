"""A process that carries out one improvement, and dies in its n-th model call: ``python -m tests.evals.improve_child DIRECTORY N BY``. BY is an
optimiser, or ``operators`` for those on a text."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agentflow import Limits
from agentflow.evals import judge
from tests.evals.mortal import CONCURRENCY, mortal

HERE, DEATH, BY = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
TEXT = "(value-of (reply (text (value-of (draft (question question))))))"
CASES = [{"question": f"q{number}", "expected": f"Q{number}"} for number in range(10)]


def has(case: Any, run: Any) -> bool:
    """Whether the expected text is in the answer, capitals included."""
    return case.expected in run.value


def says(text: str) -> str | None:
    """A judge likes a reply; whoever mentions two failed cases is told to be loud."""
    if text.startswith("Judge"):
        return json.dumps({"reason": "so", "score": "REPLY" in text})
    if text.startswith("Rewrite"):
        task = text.split("'")[1]
        instructions = f"{task} loudly {text.split('braces: ')[1].split('.')[0]}"
        return json.dumps({"diagnosis": "quiet", "instructions": instructions})
    if text.startswith("I provided"):
        return "```\nSay loudly {{text}}\n```" if "Reply" in text else "```\nDraft it {{question}}\n```"
    return None


async def main() -> None:
    async with mortal(HERE, DEATH, says) as (flow, answer, draft, reply):
        operators = ["drop", "critic", "few_shot", "retry"] if BY == "operators" else []
        report = await flow.improve(
            TEXT if operators else answer,
            CASES,
            [has, judge("loud")],
            edit=[draft, reply],
            by="gepa" if BY == "gepa" else "own",
            operators=operators,
            generations=2,
            concurrency=CONCURRENCY,
            run_id="improvement",
            limits=Limits(usd=50),
        )
    told = report.to_dict()
    for each in told["candidates"]:
        del each["paid_calls"]
    kept = {name: told[name] for name in ("score", "best", "diff", "candidates")}
    (HERE / "report.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    asyncio.run(main())
