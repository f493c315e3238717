"""``run --durable`` and ``resume``: runs that go on after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from agentflow.cli.common import (
    CompileFailed,
    exit_code,
    is_compile_error,
    parse_bindings,
    show_error,
)
from agentflow.cli.execute import show_result, watching
from agentflow.cli.options import DurableOptions, ResumeOptions, WatchOptions, open_flow
from agentflow.cli.state import database
from agentflow.core.errors import AgentflowError
from agentflow.core.source import Source
from agentflow.core.values import to_json
from agentflow.lib.terminal import clean

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.runtime.durable import DurableRun

_OPTIONS = ("model", "base_url", "root", "tasks", "workflows", "allow")
"""The options that belong to what a command asks for."""


async def execute_durably(name: str, text: str, options: DurableOptions) -> int:
    """Start a program durably, or go on with it, and print its value. Returns the exit code. Raises UsageError."""
    bindings = parse_bindings(options.bind or [])
    async with open_flow(options, durable=database(options.db)) as flow, watching(flow, options):
        try:
            program = flow.compile(Source(name, text), bindings=bindings, allow=options.allow)
        except AgentflowError as error:
            raise (CompileFailed(error) if is_compile_error(error) else error) from error
        try:
            run_id = options.run_id or await _run_id(flow, name, options)
            async with _kept(run_id):
                handle = await flow.start(program, bindings, run_id=run_id, allow=options.allow)
                if handle.status == "failed" and options.run_id is None:
                    handle = await flow.resume(run_id, bindings=None)
                return await _end(flow, handle, options)
        except AgentflowError as error:
            show_error(error, as_json=options.as_json or options.events)
            return exit_code(error)


async def resume_run(run_id: str, options: ResumeOptions) -> int:
    """Go on with a durable run and print its value. Returns the exit code."""
    async with open_flow(options, durable=database(options.db)) as flow, watching(flow, options):
        try:
            async with _kept(run_id):
                handle = await flow.resume(run_id, bindings=parse_bindings(options.bind or []))
                return await _end(flow, handle, options)
        except AgentflowError as error:
            show_error(error, as_json=options.as_json or options.events)
            return exit_code(error)


async def _end(flow: AgentFlow, handle: DurableRun, options: WatchOptions) -> int:
    """Wait for the end of a run, print it, and say on standard error what did not have to be paid for again."""
    try:
        result = await handle.result()
    finally:
        if handle.replayed:
            saved = handle.saved
            cost = f" and ${handle.saved_cost:.4f}" if handle.saved_cost else ""
            print(
                f"{handle.run_id}: {handle.replayed} effects were answered from records, which saved"
                f" {saved.requests} model calls, {saved.total_tokens:,} tokens{cost}",
                file=sys.stderr,
            )
    return show_result(flow, result, options)


@contextlib.asynccontextmanager
async def _kept(run_id: str) -> AsyncGenerator[None, None]:
    """A block of which an interruption says how to go on."""
    try:
        yield
    except asyncio.CancelledError:
        print(
            clean(f"{run_id} is kept: the same command goes on with it, or agentflow resume {run_id}"), file=sys.stderr
        )
        raise


async def _run_id(flow: AgentFlow, name: str, options: DurableOptions) -> str:
    """The id of the run that a command means: that of its path, bindings and options, or the next after one that ended."""
    base = _base_id(name, options)
    number = 1
    while True:
        run_id = base if number == 1 else f"{base}-{number}"
        found = await flow.find_run(run_id)
        if found is None or found.status not in ("done", "cancelled"):
            return run_id
        number += 1


def _base_id(name: str, options: DurableOptions) -> str:
    asked = [os.path.abspath(name), sorted(options.bind or []), [getattr(options, each) for each in _OPTIONS]]
    mark = blake2b(to_json(asked).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    stem = "".join(each if each.isascii() and each.isalnum() else "-" for each in Path(name).stem)[:60].strip("-")
    return f"{stem or 'run'}-{mark}"
