"""Images, documents and sound in a prompt: from memory, from an address, from a file. You need no key.

The stand-in lists its inputs. A real model looks at them: AGENTFLOW_MODEL=openai-chat:gpt-audio python examples/media.py
"""

import asyncio
import os
import struct
import zlib
from pathlib import Path

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from agentflow.media import AudioPart, DocumentPart, ImagePart, attachment


def png() -> bytes:
    """A red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    )


def wav() -> bytes:
    """A hundredth of a second of silence."""
    data = bytes(160)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", len(data))  # fmt: skip
    return head + data


def model(request):
    kinds = {ImagePart: "an image", DocumentPart: "a document", AudioPart: "sound"}
    return "I was sent " + ", ".join(kinds[type(part)] for part in request.messages[-1].parts if type(part) in kinds)


async def main() -> None:
    real = "AGENTFLOW_MODEL" in os.environ
    async with AgentFlow(provider=None if real else ScriptedProvider(model), root=".") as flow:
        memory = await attachment(wav())  # its type follows from its first bytes
        address = await attachment("https://example.com/report.pdf")  # the provider fetches it, agentflow does not
        file = Path("pixel.png")
        try:
            print("a prompt:", await flow.ask(["What are these?", memory, address, file]))
            things = [memory, address, await attachment(file)]

            @flow.task
            async def look(thing: ImagePart | DocumentPart | AudioPart) -> str:
                """What is this? {{thing}}"""

            for said in await flow.map(look, things):
                print("a task:", said)
        except AgentflowError as error:  # not every model takes all three
            print(error)
        try:
            await attachment(b"neither")
        except AgentflowError as error:
            print(f"{error.code}: {error.message}")


Path("pixel.png").write_bytes(png())
asyncio.run(main())
