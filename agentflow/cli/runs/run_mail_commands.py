"""Says something to a durable run, sends it a signal, and shows the state that it has published."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from agentflow.cli.shared.asking import parse_value
from agentflow.cli.shared.common import Exit, exit_code, show_error, write_json
from agentflow.cli.shared.state import stored_runs
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.values import to_json

if TYPE_CHECKING:
    from agentflow.app import AgentFlow


async def say_to_run(run_id: str, text: str, task: str | None, url: str | None, *, as_json: bool) -> int:
    """Say ``text`` to a run of the database at ``url``. Returns the exit code."""
    heard = "it is read before the next model call"
    return await _reached(url, lambda flow: flow.say(run_id, text, task=task), run_id, heard, as_json=as_json)


async def signal_run(run_id: str, name: str, value: str, url: str | None, *, as_json: bool) -> int:
    """Send a signal to a run of the database at ``url``. Returns the exit code."""
    data = parse_value(value)
    return await _reached(
        url, lambda flow: flow.send_signal(run_id, name, data), run_id, "the signal is sent", as_json=as_json
    )


async def show_state(run_id: str, url: str | None, *, as_json: bool) -> int:
    """Print the state of a run of the database at ``url``. Returns the exit code."""
    async with stored_runs(url) as flow:
        try:
            state = flow.redact(await flow.state(run_id))
        except AgentflowError as error:
            show_error(error, as_json=as_json)
            return exit_code(error)
    if as_json:
        write_json({"ok": True, "run_id": run_id, "state": state})
    elif not state:
        say("the run has published nothing")
    else:
        say("\n".join([f"{key}: {to_json(value)}" for key, value in state.items()]), sys.stdout)
    return Exit.OK


async def _reached(
    url: str | None, send: Callable[[AgentFlow], Awaitable[None]], run_id: str, done: str, *, as_json: bool
) -> int:
    async with stored_runs(url) as flow:
        try:
            await send(flow)
        except AgentflowError as error:
            show_error(error, as_json=as_json)
            return exit_code(error)
    body: dict[str, Any] = {"ok": True, "run_id": run_id}
    if as_json:
        write_json(body)
    else:
        say(done, sys.stdout)
    return Exit.OK
