"""A writer killed at any moment leaves a file whole old or whole new, and nothing that outlives the next start."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from agentflow.executors.file_access import FileAccessManager
from tests.hostile.arena import Arena

_WRITER = """
import sys
from agentflow.executors.file_access import FileAccessManager
files = FileAccessManager(sys.argv[1])
print(flush=True)
while True:
    for letter in "ab":
        files._write("target", letter * 300_000, True, None)
"""


async def test_a_killed_writer_leaves_a_whole_file(arena: Arena) -> None:
    """Killed at random, the file holds one content; the next start sweeps the temporary files."""
    kills = int(os.environ.get("AGENTFLOW_KILLS", "6"))
    chance = random.Random(7)
    async with FileAccessManager(arena.root) as files:
        await files.write("target", "a" * 300_000)
    for _ in range(kills):
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _WRITER, str(arena.root)), stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        await writer.stdout.readline()
        await asyncio.sleep(chance.random() * 0.05)
        writer.kill()
        await writer.communicate()
        async with FileAccessManager(arena.root) as files:
            text = (await files.read("target")).text
            assert text in ("a" * 300_000, "b" * 300_000)
            await files.sweep()
        assert not [name for name in os.listdir(arena.root) if name.startswith(".agentflow-tmp")]
