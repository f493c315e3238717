"""Talk to a run while it works: say something to its model, send it a signal, read its state, and raise the limit it waits at."""

import asyncio

from pydantic import BaseModel

from agentflow import AgentFlow, CallContext, Limits, ScriptedProvider
from agentflow.events import StateChanged, WaitStarted

ORDER = """
class Payment:
    amount: int

publish_state("phase", "waits for the payment")
paid = timeout(60, lambda: wait_for_signal("paid", output=Payment))
publish_state("phase", "paid")
f"{item} for {paid['amount']}"
"""


class Approval(BaseModel):
    """An approval of a plan."""

    by: str
    until: int


def planner(request):
    """The model: it looks at the files once, and then plans from what it was told."""
    said = [message.text for message in request.messages if message.role == "user" and message.text]
    if len(request.messages) == 1 and request.tools:
        return {"tool_calls": [{"name": "list_files", "arguments": {"directory": "src"}}]}
    return "Plan: " + "; ".join(said)


flow = AgentFlow(provider=ScriptedProvider(planner), limits=Limits(model_calls=2), on_limit="wait", approval_ttl=60)


async def list_files(directory: str, ctx: CallContext) -> str:
    """List the files of a directory. A user has an idea meanwhile."""
    await flow.say(ctx.run_id, "also look at tests/")
    return f"{directory}/a.py {directory}/b.py"


@flow.task(tools=[list_files])
async def plan(goal: str) -> str:
    """{{goal}}"""
    ...


@flow.workflow
async def release(goal: str) -> str:
    """Plan, wait for an approval, and announce."""
    await flow.publish("phase", "planning")
    text = await plan(goal)
    await flow.publish("phase", "waits for an approval")
    approval = await flow.signal("approved", Approval)
    await flow.publish("phase", f"approved by {approval.by}")
    news = await flow.ask(f"Announce version {approval.until}.")  # the third model call, of two
    return f"{text}\n{news}"


async def main() -> None:
    async with flow:
        async with flow.stream(release("Prepare the release."), run_id="release-7") as run:
            async for event in run:
                if isinstance(event, StateChanged):
                    print("state:", event.changes[0]["value"])
                elif isinstance(event, WaitStarted) and event.reason in ("signal", "limit"):
                    print("waits for:", event.question)
                    if event.reason == "signal":
                        await run.signal("approved", {"by": "Ada", "until": 7})
                    else:
                        await flow.send("release-7", event.key, 5)
            print(await run.value())

        # A text, also one that a model wrote, waits and publishes in the same way.
        inputs = {"item": "a lamp"}
        async with flow.stream(ORDER, surface="python", limits=Limits(), bindings=inputs) as run:
            await run.signal("paid", {"amount": 20})
            print(await run.value(), await run.state())


if __name__ == "__main__":
    asyncio.run(main())
