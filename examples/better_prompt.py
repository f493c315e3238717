"""A better prompt, found from recorded runs. You need no key: the model is scripted.

A flow sorts mails into folders, but the application does not know the folders that it names. A search reads the runs that went wrong,
tries new instructions, and decides on runs that it has not seen. You pay only for the changed calls.
"""

import asyncio
import json
import tempfile
from pathlib import Path

from agentflow import AgentFlow, Limits, ModelRequest, ScriptedProvider
from agentflow.evals import Case, exact

MAILS = {"invoice": "bills", "refund": "bills", "parcel": "orders", "address": "orders"}
IDEAS = ["Choose carefully a folder for {{gist}}", "Choose bills or orders, in lower case, for {{gist}}"]


def scripted(request: ModelRequest) -> object:
    """The scripted model: it knows the folders only if the instructions name them; as the proposer it has one idea after another."""
    text = request.messages[-1].text
    if text.startswith("Rewrite"):
        idea = IDEAS[1] if IDEAS[0] in text else IDEAS[0]
        said = json.dumps({"diagnosis": "The folder names are unknown.", "instructions": idea})
    elif text.startswith("Sum up"):
        said = text.removeprefix("Sum up: ")
    else:
        folder = "bills" if "invoice" in text or "refund" in text else "orders"
        said = (
            folder if "in lower case" in text else folder.title() if "Choose carefully" in text else f"Folder {folder}"
        )
    return {"text": said, "cost_usd": 0.01, "usage": {"input_tokens": 40, "output_tokens": 10}}


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = f"sqlite:///{Path(directory)}/runs.db"
        async with AgentFlow(provider=ScriptedProvider(scripted), durable=database) as flow:

            @flow.task
            async def sum_up(mail: str) -> str:
                """Sum up: {{mail}}"""
                raise NotImplementedError

            @flow.task
            async def choose(gist: str) -> str:
                """Choose a folder for {{gist}}"""
                raise NotImplementedError

            @flow.workflow
            async def sort_mail(mail: str) -> str:
                return await choose(await sum_up(mail))

            cases: list[Case] = []
            for number, (word, folder) in enumerate(list(MAILS.items()) * 5):  # last week's work of your application
                run_id = f"mail-{number}"
                await (await flow.start(sort_mail(f"about the {word} {number}"), run_id=run_id)).result()
                cases.append(Case(run_id=run_id, name=run_id, expected=folder))

            report = await flow.improve(sort_mail, cases, [exact()], edit=[choose], limits=Limits(usd=2))
            for each in report.candidates:
                print(f"{each.name:4} {each.stage:8} {each.score:.2f} {each.change}")
            print(report.diff)
            print(f"{report.paid_calls} model calls paid, {report.reused_calls} reused")

            better = Path(directory) / "better.toml"
            report.save(better)
            handle = await flow.start(sort_mail("about the refund 99"), overrides=better)
            print("with the better prompt:", (await handle.result()).value)


asyncio.run(main())
