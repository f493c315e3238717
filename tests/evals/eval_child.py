"""A process that carries out one evaluation, and dies in its n-th model call: ``python -m tests.evals.eval_child DIRECTORY N``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from agentflow import Limits
from agentflow.evals import calls, contains, cost, judge
from tests.evals.mortal import CONCURRENCY, mortal

HERE, DEATH = Path(sys.argv[1]), int(sys.argv[2])
CASES = [{"question": f"q{number}", "expected": f"Q{number}"} for number in range(8)]
VARIANTS = {"loud": {"reply": {"instructions": "Reply loudly to {{text}}"}}, "again": {}}


def says(text: str) -> str | None:
    """A judge likes what is loud."""
    return json.dumps({"reason": "so", "score": "LOUDLY" in text}) if text.startswith("Judge") else None


async def main() -> None:
    async with mortal(HERE, DEATH, says) as (flow, answer, _, _):
        report = await flow.evaluate(
            answer,
            CASES,
            variants=VARIANTS,
            scorers=[contains(), judge("loud"), calls, cost],
            repeat=2,
            concurrency=CONCURRENCY,
            run_id="evaluation",
            limits=Limits(usd=50),
        )
    lines = [json.loads(line) for line in report.to_jsonl().splitlines()]
    told = [{key: line[key] for key in ("case", "variant", "draw", "status", "value", "scores")} for line in lines[1:]]
    (HERE / "report.json").write_text(
        json.dumps(sorted(told, key=lambda each: (each["case"], each["variant"], each["draw"])))
    )


if __name__ == "__main__":
    asyncio.run(main())
