"""Claude on Amazon Bedrock: the vendor's SDK signs, and agentflow reads the cloud's frames. You need the extra ``bedrock``, and no account.

With an account, one command is enough:

    AWS_REGION=eu-west-1 agentflow run report.sexp --model bedrock:eu.anthropic.claude-sonnet-4-20250514-v1:0

Here the cloud is a server on this machine that checks each signature and always gives the same answer.
"""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the server, which is that of agentflow's tests
from agentflow import AgentFlow, AgentflowError
from agentflow.events import TextDelta
from tests.support.cloud_server import Asked, cloud_server, frames, signature

MODEL = "bedrock:eu.anthropic.claude-sonnet-4-20250514-v1:0"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # of Amazon's documentation


def bedrock(secret: str):
    """A Bedrock that answers only what is signed with ``secret``."""

    def answer(asked: Asked) -> tuple[int, str, bytes]:
        given = asked.headers["authorization"].rpartition("Signature=")[2]
        if given != signature(secret, asked.method, asked.path, asked.headers, asked.data):
            return 403, "application/json", b'{"message": "The request signature we calculated does not match"}'
        return 200, "application/vnd.amazon.eventstream", frames()

    return cloud_server(answer)


async def main() -> None:
    os.environ.pop("AWS_BEARER_TOKEN_BEDROCK", None)
    os.environ |= {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}
    for secret in (SECRET, "another"):
        async with (
            bedrock(secret) as server,
            AgentFlow(MODEL, base_url=server.url) as flow,
            flow.stream(flow.ask("Capital of France?")) as run,
        ):
            try:
                pieces = [delta.text async for delta in run.of(TextDelta)]
                result = await run.result()
                print(server.asked[0].path)
                print(pieces, result.value, f"{result.cost:.6f} USD")
            except AgentflowError as error:
                print(f"{error.code}: {error.message}")


asyncio.run(main())
