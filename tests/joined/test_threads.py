"""Blocking code of a host holds up neither the event loop nor what agentflow does on threads of its own."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from agentflow import AgentFlow, CommandExecutor, FileAccessManager, ScriptedProvider, SexpEnvironment
from agentflow.core.call.call import executing_call


async def test_a_plain_callable_in_operator_position_runs_on_a_thread(tmp_path: Path) -> None:
    """As a plain tool does, with a copy of the context: two that wait for each other end, and calls it makes would join the run."""
    together, seen = threading.Barrier(2, timeout=30), []

    def meet(name: str) -> str:
        call = executing_call()
        seen.append((threading.current_thread() is threading.main_thread(), call is not None))
        together.wait()
        return name

    async def here(name: str) -> str:
        return f"{name} {threading.current_thread() is threading.main_thread()}"

    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        env = SexpEnvironment({"meet": meet, "here": here})
        assert (await flow.run('(parallel (meet "a") (meet "b"))', env=env)).value == ["a", "b"]
        assert (await flow.run('(here "c")', env=env)).value == "c True"
    assert seen == [(False, True)] * 2


async def test_files_and_commands_do_not_wait_behind_the_hosts_threads(tmp_path: Path) -> None:
    """While every thread of ``asyncio.to_thread`` is taken, files are read, written and listed, and a command runs."""
    (tmp_path / "a.txt").write_text("a")
    release = threading.Event()
    blocked = [asyncio.create_task(asyncio.to_thread(release.wait, 60)) for _ in range(64)]
    await asyncio.sleep(0)
    try:
        async with FileAccessManager(tmp_path) as files, CommandExecutor(files, sandbox="none") as commands:
            assert (await files.read("a.txt")).text == "a"
            await files.write("b.txt", "b")
            assert await files.list(".") == ["a.txt", "b.txt"]
            assert (await commands.find_files("ls")).paths == (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
        assert not any(task.done() for task in blocked)
    finally:
        release.set()
        await asyncio.gather(*blocked)
