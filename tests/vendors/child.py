"""A durable run that is killed within a loop of tools: ``python -m tests.vendors.child VENDOR DIRECTORY [resume]``.

It reaches the strict vendors through the proxy of ``HTTP_PROXY``, as any program does, at the vendor's own host. Prints
``working`` when its tool has begun, which then never ends, or with ``resume`` the value of the run that went on.
"""

from __future__ import annotations

import asyncio
import sys

from agentflow import AgentFlow
from agentflow.providers import open_provider
from tests.support.vendors import VENDORS
from tests.vendors.world import environment, look

PROGRAM = '(defatom ask (params) (instructions "How?") (tools (wait look))) (value-of (ask))'


async def main(name: str, directory: str, resume: bool) -> None:
    """Start or resume the run."""
    environment()
    vendor = VENDORS[name]

    async def wait(place: str) -> str:
        """Wait."""
        if not resume:
            print("working", flush=True)
            await asyncio.Event().wait()
        return f"waited at {place}"

    address = vendor.address.replace("https://", "http://")
    provider = open_provider(vendor.route, base_url=address, api_key="key")
    async with AgentFlow(
        model=vendor.model, provider=provider, root=directory, tools=[], durable=f"sqlite:///{directory}/runs.db"
    ) as flow:
        flow.tool(wait)
        flow.tool(look)
        handle = await (flow.resume("r") if resume else flow.start(PROGRAM, run_id="r"))
        print((await handle.result()).value)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["resume"]))
