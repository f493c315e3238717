"""Parts of the package that are imported on use do not wait for the host's own threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from agentflow.lib.own_threads import loaded


async def test_an_import_does_not_wait_for_the_hosts_pool() -> None:
    """A host whose blocking jobs fill the loop's default pool has its first forecast nevertheless."""
    loop, release = asyncio.get_running_loop(), Event()
    with ThreadPoolExecutor(1) as pool:
        loop.set_default_executor(pool)
        blocked = asyncio.create_task(asyncio.to_thread(release.wait))
        try:
            module = "this"  # the standard library's, which nobody else imports
            assert module not in sys.modules
            await loaded(module)
            assert module in sys.modules and not blocked.done()
        finally:
            release.set()
            await blocked
            sys.modules.pop("this", None)


def test_a_loaded_module_is_not_imported_on_the_loops_thread() -> None:
    """What is imported on use is imported by another thread than the event loop's."""
    code = (
        "import asyncio, sys, threading\n"
        "from agentflow.lib.own_threads import loaded\n"
        "seen = []\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'agentflow.run.bounds.estimate':\n"
        "            seen.append(threading.current_thread() is threading.main_thread())\n"
        "sys.meta_path.insert(0, Finder())\n"
        "asyncio.run(loaded('agentflow.run.bounds.estimate'))\n"
        "assert seen == [False], seen\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
