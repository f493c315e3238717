"""What a long tool loop costs: forty steps over sixty tools, with what makes it cheaper here, and in two other libraries.

Run it in the environment of ``peers.py``:

    peers/bin/python tests/benchmarks/long_loop.py

One scripted server speaks Chat Completions, in a process of its own, and counts as the vendor does: the input of a request that begins as
an earlier one did is cached, from 1,024 tokens on, in steps of 128; tools precede the messages; four characters are a token. Each step
calls another of the tools, whose result has 1,000 tokens. ``deferred`` searches five tools at a time; with ``code`` the model writes
programs of five calls that return what it needs. ``paid`` counts cached tokens at a tenth. CPU is that of the client, a median of rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

STEPS, TOOLS, GROUP = 40, 60, 5
RESULT = "All records of this section, one after the other. " * 80
LEAST, BLOCK = 1_024, 128

Loop = Callable[[str], Coroutine[Any, Any, None]]
"""Runs the loop once against the server at an address."""


# -- the server ---------------------------------------------------------------------------------------------------


def next_calls(mode: str, messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The calls of the model's next answer; none at the end."""
    asked = [call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()]
    step = sum([name.startswith("read_") for name in asked])
    if mode == "code":
        first = len(asked) * GROUP
        calls = [f"read_{n:02d}(key='k{n}', first=0, count=50)" for n in range(first, min(first + GROUP, STEPS))]
        return [("run_program", {"program": f"[r[:40] for r in parallel({', '.join(calls)})]"})] if calls else []
    if step >= STEPS:
        return []
    if mode == "deferred" and asked.count("search_tools") <= step // GROUP:
        return [("search_tools", {"query": f"area{step // GROUP}"})]
    return [(f"read_{step:02d}", {"key": f"k{step}", "first": 0, "count": 50})]


def same(text: str, other: str) -> int:
    """The number of characters that two texts begin with alike."""
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] == other[:middle] else (low, middle - 1)
    return low


class Server:
    """Answers by the script, and counts the input, the cached part of it, and the calls."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.figures = {"calls": 0, "input": 0, "cached": 0}

    def answer(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The message of an answer, and its usage."""
        parts = [body.get("tools") or [], *body["messages"]]
        text = "".join([json.dumps(part, sort_keys=True) for part in parts])
        shared = max([same(text, other) for other in self.before], default=0) // 4
        cached = shared // BLOCK * BLOCK if shared >= LEAST else 0
        self.before = [*self.before[-3:], text]
        tokens = len(text) // 4
        for name, count in (("calls", 1), ("input", tokens), ("cached", cached)):
            self.figures[name] += count
        calls = [
            {"id": f"c{len(parts)}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in next_calls(body["model"].rpartition("-")[2], body["messages"])
        ]
        message = {"role": "assistant", "content": None if calls else "done"} | ({"tool_calls": calls} if calls else {})
        usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
        return message, {**usage, "prompt_tokens_details": {"cached_tokens": cached}}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: POST answers, GET returns the figures and begins anew."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                size = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                body = json.loads(await reader.readexactly(size)) if size else None
                if body is None:
                    data, kind = json.dumps(self.figures).encode(), "application/json"
                    self.__init__()
                else:
                    data, kind = self.written(body)
                told = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
                writer.write(told.encode() + data)
                await writer.drain()
        writer.close()

    def written(self, body: dict[str, Any]) -> tuple[bytes, str]:
        """An answer as it is sent, whole or as a stream."""
        message, usage = self.answer(body)
        reason = "tool_calls" if "tool_calls" in message else "stop"
        common = {"id": "r", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            whole = {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
            return json.dumps(whole).encode(), "application/json"
        calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls", ()))]
        delta = {**message, **({"tool_calls": calls} if calls else {})}
        pieces = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": usage},
        ]
        lines = [json.dumps({**common, "object": "chat.completion.chunk", **piece}) for piece in pieces]
        return "".join([f"data: {line}\n\n" for line in [*lines, "[DONE]"]]).encode(), "text/event-stream"


async def run_server() -> None:
    """Serve on a free port, which is printed."""
    server = await asyncio.start_server(Server().serve, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# -- the loops ----------------------------------------------------------------------------------------------------


def tools() -> list[Any]:
    """The sixty tools, as plain functions."""

    def built(number: int) -> Any:
        async def read(key: str, first: int, count: int) -> str:
            return RESULT

        read.__name__ = read.__qualname__ = f"read_{number:02d}"
        read.__doc__ = (
            f"Read the records of area{number // GROUP}, part {number}.\n\nThe records come in the order in which they were entered, "
            "with their date, the person who entered them, and a remark.\n\nArgs:\n    key: The key of the section.\n"
            "    first: The number of the first record.\n    count: How many records to read.\n"
        )
        return read

    return [built(number) for number in range(TOOLS)]


def agentflow_loop(mode: str) -> Loop:
    """agentflow as it is, and with each of its ways to make a loop cheap."""
    from agentflow import AgentFlow, Clear, code, tool

    own = [tool(read_only=True, defer_loading=mode == "deferred")(each) for each in tools()]

    async def loop(url: str) -> None:
        options: dict[str, Any] = {"clear_tool_results": Clear(after_tokens=20_000)} if mode == "clear" else {}
        script = mode if mode in ("code", "deferred") else "plain"
        async with AgentFlow(f"openai-chat:bench-{script}", base_url=url, api_key="k", tools=own) as flow:
            offered: Any = [code(flow.tools)] if mode == "code" else flow.tools
            assert await flow.ask("Read all records.", tools=offered, max_turns=99, **options) == "done"

    return loop


def pydantic_loop(mode: str) -> Loop:
    """pydantic-ai."""
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def loop(url: str) -> None:
        async with AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
            model = OpenAIChatModel("bench-plain", provider=OpenAIProvider(openai_client=client))
            agent: Any = Agent(model, tools=tools())
            result = await agent.run("Read all records.", usage_limits=UsageLimits(request_limit=99))
            assert result.output == "done"

    return loop


def agents_loop(mode: str) -> Loop:
    """The OpenAI Agents SDK."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    async def loop(url: str) -> None:
        async with AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
            model = OpenAIChatCompletionsModel("bench-plain", client)
            agent: Any = Agent(name="a", model=model, tools=[function_tool(each) for each in tools()])
            result = await Runner.run(agent, "Read all records.", max_turns=99)
            assert result.final_output == "done"

    return loop


LOOPS: dict[str, tuple[Callable[[str], Loop], str]] = {
    "agentflow": (agentflow_loop, "plain"),
    "agentflow, deferred tools": (agentflow_loop, "deferred"),
    "agentflow, Clear(after_tokens=20_000)": (agentflow_loop, "clear"),
    "agentflow, code mode": (agentflow_loop, "code"),
    "pydantic-ai": (pydantic_loop, "plain"),
    "openai-agents": (agents_loop, "plain"),
}


def figures(port: str) -> dict[str, int]:
    """What the server has counted since it was asked last."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
        return json.load(answer)


def used() -> float:
    """Seconds of processor time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main(rounds: int) -> None:
    """Measure each loop, and print the table."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        loops: dict[str, Loop] = {}
        for name, (build, mode) in LOOPS.items():
            with suppress(ImportError):
                loops[name] = build(mode)
        seconds: dict[str, list[float]] = {name: [] for name in loops}
        counted: dict[str, dict[str, int]] = {}
        for number in range(rounds + 1):
            for name, loop in loops.items():
                began = used()
                asyncio.run(loop(f"http://127.0.0.1:{port}/v1"))
                if number:  # the first imports
                    seconds[name].append(used() - began)
                counted[name] = figures(port)
        server.terminate()
    print(
        "| loop | model calls | input tokens | cached | paid, in full tokens | client CPU, ms |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name, each in counted.items():
        share, paid = each["cached"] / each["input"], each["input"] - 0.9 * each["cached"]
        cpu = statistics.median(seconds[name]) * 1_000
        print(f"| {name} | {each['calls']} | {each['input']:,} | {share:.0%} | {paid:,.0f} | {cpu:.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(run_server())
    else:
        main(arguments.rounds)
