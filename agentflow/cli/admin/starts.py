"""Which of the programs that servers are started with start behind the walls of a sandbox on this machine."""

from __future__ import annotations

import asyncio
import shutil
import tempfile

from agentflow.core.data.errors import AgentflowError, clip
from agentflow.core.ports.service_port import ServiceCommand
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.sandbox.selection import SandboxChoice
from agentflow.executors.services import Service, Services
from agentflow.lib.own_threads import own_thread
from agentflow.lib.text.terminal import escape

PROGRAMS = {
    "node": ("-e", "console.log(process.version)"),
    "npx": ("--version",),
    "uvx": ("--version",),
    "git": ("--version",),
}
"""The programs that are tried, each with arguments that do little."""
_TIMEOUT_S = 20.0


async def starts(choice: SandboxChoice) -> dict[str, str]:
    """What each of :data:`PROGRAMS` did in a tested sandbox, without network and in an empty directory, in words."""
    with tempfile.TemporaryDirectory(prefix="agentflow-doctor-") as root:
        files = FileAccessManager([root])
        try:
            services = Services(files, choice)
            said = await asyncio.gather(*[_start(services, name) for name in PROGRAMS])
        finally:
            await files.aclose()
    return dict(zip(PROGRAMS, said, strict=True))


async def _start(services: Services, name: str) -> str:
    if await own_thread(shutil.which, name) is None:
        return "not installed"
    try:
        service = await services.start(ServiceCommand(argv=(name, *PROGRAMS[name]), env={}))
    except (AgentflowError, OSError) as error:
        return f"does not start: {error}"
    ending, out = "", b""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while piece := await service.read():
                out += piece
    except TimeoutError:
        pass  # how it ended is said below
    finally:
        ending = await service.stop(1.0)
    return _words(service, ending, out)


def _words(service: Service, ending: str, out: bytes) -> str:
    """How a program ended, with its version or its last words."""
    if ending == "it exited with code 0":
        return f"starts: {escape(clip(out.decode(errors='replace').strip(), 60))}"
    said = service.said().strip().splitlines()
    last = f": {escape(clip(said[-1].strip(), 200))}" if said else ""
    refused = service.refused()
    way = (
        ""
        if refused is None
        else f"; its sandbox keeps {escape(refused)!r} from it, which readable=[...] or --readable gives"
    )
    return f"does not start: {ending}{last}{way}"


__all__ = ["PROGRAMS", "starts"]
