"""Is the cheaper model good enough? Recorded runs of a support flow are the cases, and you pay only for the changed calls.

You need no key: the models are scripted. The flow sorts a mail and answers it. Six recorded mails are evaluated again, with a shorter
prompt and with a smaller model.
"""

import asyncio
import json
import tempfile
from pathlib import Path

from agentflow import AgentFlow, ModelRequest, ScriptedProvider
from agentflow.evals import Case, SampleRun, cost, judge

MAILS = [
    "Where is parcel 4711?",
    "Please refund order 12.",
    "The lamp came broken.",
    "Can I pay by invoice?",
    "Cancel my account.",
    "The app crashes at start.",
]
SHORTER = {"reply": {"instructions": "Answer this mail about {{topic}} in one sentence: {{mail}}"}}
SMALLER = {"*": {"model": "scripted:small"}}


def scripted(request: ModelRequest) -> object:
    """The scripted models: the small one costs a tenth, and is rude about refunds."""
    text, small = request.messages[-1].text, "small" in request.model
    if text.startswith("Judge"):
        said = json.dumps({"reason": "It says what happens next.", "score": "Read the terms" not in text})
    elif text.startswith("Which topic"):
        said = "refunds" if "refund" in text else "orders" if "parcel" in text else "other"
    elif "one sentence" in text:
        said = "We look into it today."
    else:
        said = "Read the terms." if small and "refund" in text else "Thank you for your mail. We look into it today."
    return {"text": said, "cost_usd": 0.001 if small else 0.01, "usage": {"input_tokens": 40, "output_tokens": 10}}


def brief(case: Case, run: SampleRun) -> bool:
    """A scorer of your own."""
    return len(run.value) < 40


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = f"sqlite:///{Path(directory)}/runs.db"
        async with AgentFlow("scripted:large", provider=ScriptedProvider(scripted), durable=database) as flow:

            @flow.task
            async def sort_mail(mail: str) -> str:
                """Which topic has this mail: {{mail}}"""
                raise NotImplementedError

            @flow.task
            async def reply(mail: str, topic: str) -> str:
                """Answer this mail about {{topic}}: {{mail}}"""
                raise NotImplementedError

            @flow.workflow
            async def answer(mail: str) -> str:
                return await reply(mail, await sort_mail(mail))

            for number, mail in enumerate(MAILS):  # last week's work of your application
                await (await flow.start(answer(mail), run_id=f"mail-{number}", labels={"product": "lamps"})).result()

            cases = await flow.cases(product="lamps")
            report = await flow.evaluate(
                None,
                cases,
                variants={"shorter": SHORTER, "smaller": SMALLER},
                scorers=[judge("Does the customer learn what happens next?"), brief, cost],
            )
            for name in report.variants:
                variant = report[name]
                polite = variant.score("judge").mean
                print(f"{name:8} judge {polite:.2f}, ${variant.cost_usd:.3f}, {variant.calls_paid} calls paid")
            print("smaller loses", report["smaller"].difference("judge"))
            for change, sample, before in report.worst("smaller", "judge"):
                print(f"{change:+.0f} {sample.case.name}: {before.value!r} became {sample.value!r}")


asyncio.run(main())
