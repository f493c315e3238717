"""A lasting chat: end it at any time, start it again, and it remembers. You need no key and no network.

python examples/chat.py "I am Ada."
python examples/chat.py "What did I say?"
"""

import asyncio
import os
import sys

from agentflow import AgentFlow, ScriptedProvider


def model(request):  # answers from the conversation, like a model would
    *before, text = [message.text for message in request.messages if message.role == "user"]
    return f"Before {text!r} you said {before}." if before else f"Nice to meet you. You said {text!r}."


real = "AGENTFLOW_MODEL" in os.environ  # then that model answers


async def main(texts: list[str]) -> None:
    async with (
        AgentFlow(provider=None if real else ScriptedProvider(model), durable="sqlite:///chat.db") as flow,
        flow.session("user-42") as session,
    ):
        for text in texts:
            print(await flow.ask(text, session=session))


if sys.argv[1:]:
    asyncio.run(main(sys.argv[1:]))
else:  # two lives of the program, each with a flow of its own
    asyncio.run(main(["I am Ada."]))
    asyncio.run(main(["Who am I?"]))
