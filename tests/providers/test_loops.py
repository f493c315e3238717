"""One flow on several event loops, on none, and on one that has not imported the SDK yet."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import ModelRequest, user
from agentflow.providers import open_provider
from tests.support.children import HANG_S
from tests.support.model_server import ModelServer

THREADS = 4
PROGRAM = (
    '(progn (defatom t (params (x)) (instructions "{{x}}")) (pmap (lambda (i) (value-of (t (x "hello")))) (range 5)))'
)


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
async def test_one_adapter_serves_several_live_loops(aiohttp: bool) -> None:
    """Each live loop has connections of its own, in the same moment and in turn; closing closes those of all of them."""
    async with ModelServer(["fine"], repeat=True) as server:
        adapter = open_provider("openai-chat", base_url=server.url, aiohttp=aiohttp)
        request = ModelRequest((user("hi"),), model="m")
        together, asked, closed = threading.Barrier(THREADS), threading.Barrier(THREADS + 1), threading.Event()
        answers: list[str] = []

        async def ask() -> None:
            for _ in range(3):
                async for delta in adapter.stream(request):
                    answers.extend([delta.response.text] if delta.response is not None else [])

        async def elsewhere() -> None:
            await asyncio.to_thread(together.wait, 20)
            await ask()
            await asyncio.to_thread(asked.wait, 20)
            await asyncio.to_thread(closed.wait, 20)

        threads = [threading.Thread(target=asyncio.run, args=(elsewhere(),), daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        await ask()
        await asyncio.to_thread(asked.wait, 20)
        assert server.live > THREADS
        await adapter.aclose()
        async with asyncio.timeout(10):
            while server.live:
                await asyncio.sleep(0.01)
        closed.set()
        for thread in threads:
            await asyncio.to_thread(thread.join, 20)
        assert not any(thread.is_alive() for thread in threads)
        assert answers == ["fine"] * 3 * (THREADS + 1)


async def test_one_flow_serves_several_live_loops(tmp_path: Path) -> None:
    """So does a whole flow: runs on other threads' loops end, with their values."""
    async with ModelServer(["fine"], repeat=True) as server:
        async with AgentFlow("openai-chat:m", base_url=server.url, root=tmp_path) as flow:
            values: list[Any] = []

            async def run() -> None:
                values.append((await flow.run(PROGRAM)).value)

            threads = [threading.Thread(target=asyncio.run, args=(run(),), daemon=True) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            await run()
            for thread in threads:
                await asyncio.to_thread(thread.join, 20)
            assert not any(thread.is_alive() for thread in threads)
            assert values == [["fine"] * 5] * (THREADS + 1)


def test_no_event_loop_gets_a_sentence(tmp_path: Path) -> None:
    """Without an asyncio loop, as under Trio, every entry says what agentflow runs on; none fails with a bare error."""
    flow = AgentFlow(provider=ScriptedProvider(["x"]), root=tmp_path)
    adapter = open_provider("openai-chat", base_url="http://127.0.0.1:9")
    for awaitable in (
        flow.run("(+ 1 2)"),
        flow.run(tmp_path / "program.sexp"),
        flow.stream("(+ 1 2)").__aenter__(),
        flow.evaluator.evaluate_string("(+ 1 2)"),
        flow.handler.execute_prompt("hi"),
        flow.handler.stream_prompt("hi").__anext__(),
        adapter.stream(ModelRequest((user("hi"),), model="m")).__anext__(),
    ):
        step = getattr(awaitable, "__await__", None)
        with pytest.raises(ConfigurationError, match="asyncio, not on Trio") as caught:
            (step() if step is not None else awaitable).send(None)
        assert caught.value.code == "config/no-asyncio"


IMPORTING = """
import asyncio
from agentflow import AgentFlow
from tests.support.model_server import ModelServer

async def main():
    async with ModelServer(["fine"], repeat=True) as server:
        async with AgentFlow("openai-chat:m", base_url=server.url, warm=False) as flow:
            for _ in range(2):
                seen = []
                async with flow.stream('(progn (defatom t (params (x)) (instructions "{{x}}")) (t (x "a")))') as run:
                    async for event in run:
                        seen.append(f"{event.type}:{event.message}" if event.type == "log" else event.type)
                print(" ".join(seen[: seen.index("text_delta")]))

asyncio.run(main())
"""


def test_the_first_import_of_an_sdk_is_an_event(tmp_path: Path) -> None:
    """It is logged before the first attempt begins, once a process."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=True, timeout=HANG_S, cwd=Path.cwd()
    )
    first, second = done.stdout.splitlines()
    assert first.index("log:importing the openai SDK") < first.index("attempt_started")
    assert "log:" not in second
