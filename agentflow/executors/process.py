"""Runs one process: drains its outputs, enforces its time limit, ends its whole tree."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace

from agentflow.core.data.errors import clip
from agentflow.core.ports.executor_ports import CommandResult
from agentflow.executors.sandbox.backend import CommandEnding, Running, Sandbox, Spawn
from agentflow.executors.sandbox.pipes import Output, attach
from agentflow.executors.sandbox.refused_paths import refused_path
from agentflow.lib.shielded import run_or_undo, run_to_completion
from agentflow.lib.text.safe_text import escape

_DRAIN_S = 0.25
"""Seconds to wait for the end of an output after the process ended; something else may still hold it open."""


async def run_process(spawn: Spawn, sandbox: Sandbox, timeout: float, *, keep: int | None = None) -> CommandResult:
    """Run ``spawn`` in ``sandbox`` for at most ``timeout`` seconds; its outputs are created here.

    ``keep`` bytes of the head and of the tail of each output are kept. Raises SandboxUnavailable and OSError if it
    cannot be started. On cancellation, everything that was started has ended before CancelledError propagates.
    """
    began = time.perf_counter()
    outputs: list[Output] = []
    transports: list[asyncio.ReadTransport] = []
    ends: list[int] = []
    try:
        try:
            for _ in range(2):
                read_end, write_end = os.pipe()
                ends.append(write_end)
                output = Output(int(spawn.limits.output_bytes) if keep is None else keep)
                outputs.append(output)
                transports.append(await attach(read_end, output))
            running = await run_or_undo(
                sandbox.spawn(replace(spawn, stdout=ends[0], stderr=ends[1])), undo_async=lambda started: started.end()
            )
        finally:
            for end in ends:
                os.close(end)
        ending = await _watch(running, timeout)
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                for output in outputs:
                    await output.done.wait()
    finally:
        for transport in transports:
            transport.close()
    result = _result(ending, outputs, timeout, time.perf_counter() - began)
    refused = refused_path(result.stderr, spawn) if sandbox.confines and result.code == "commands/exit" else None
    return result if refused is None else _with_refusal(result, refused)


async def _watch(running: Running, timeout: float) -> CommandEnding | None:
    """Wait for the command's end; on time-out, kill it and return None."""
    try:
        async with asyncio.timeout(timeout):
            return await running.wait()
    except TimeoutError:
        return None
    finally:
        await run_to_completion(running.end())


def _result(ending: CommandEnding | None, outputs: list[Output], timeout: float, duration: float) -> CommandResult:
    result = CommandResult(
        success=False,
        exit_code=None,
        stdout=outputs[0].text(),
        stderr=outputs[1].text(),
        reason="tool_execution_error",
        stdout_bytes=outputs[0].total,
        stderr_bytes=outputs[1].total,
        duration_s=duration,
    )
    if ending is None:
        return replace(
            result,
            error=f"the command was killed after {timeout:g} s",
            reason="execution_timeout",
            timed_out=True,
            code="commands/timeout",
        )
    if ending.error is not None:
        return replace(result, error=f"the command could not be started: {ending.error}", code="commands/start")
    if ending.signal is not None:
        with suppress(ValueError):
            name = signal.Signals(ending.signal).name
            return replace(result, error=f"the command was killed by {name}", code="commands/killed")
        return replace(result, error=f"the command was killed by signal {ending.signal}", code="commands/killed")
    if ending.exit_code == 0:
        return replace(result, success=True, exit_code=0, reason=None)
    return replace(
        result,
        exit_code=ending.exit_code,
        error=f"the command ended with exit code {ending.exit_code}" + _last_words(result.stderr),
        code="commands/exit",
    )


def _with_refusal(result: CommandResult, path: str) -> CommandResult:
    """A failure with the path that the sandbox kept from the command, and the way to grant it."""
    shown = escape(clip(path, 200))
    return replace(
        result,
        error=f"{result.error}; {shown!r} is nothing that commands may read here",
        hint=f"AgentFlow(readable=[{shown!r}]) or --readable lets them; AgentFlow(root=[...]) takes a further directory",
    )


def _last_words(stderr: str) -> str:
    """The last line a command wrote to standard error, which usually says why it failed, formatted to follow a message."""
    lines = stderr.strip().splitlines()
    return f": {clip(lines[-1].strip(), 200)}" if lines else ""
