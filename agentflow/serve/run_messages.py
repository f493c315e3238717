"""Texts and signals to the runs of a server, and the state that they publish: ``/runs/{id}/say``, ``/signals/{name}``, ``/state``."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentflow.core.data.errors import DataError
from agentflow.serve.error_responses import RequestError, text_field
from agentflow.serve.incoming import read_body
from agentflow.serve.json_body import json_response
from agentflow.serve.keys import Key
from agentflow.serve.run_api import run_of, shown_data
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun


async def say_to_run(service: ServedFlow, request: Request, key: Key) -> Response:
    """``POST /runs/{id}/say``: say ``text`` to a run, which its outermost loop of a model with tools reads before its next model
    call, or the ``task`` of this name."""
    run = await run_of(service, request, key)
    body = await read_body(request)
    text, task = text_field(body, "text"), text_field(body, "task")
    if text is None:
        raise RequestError("the body must be an object with 'text'", code="serve/field", param="text")
    await _delivered(service.flow.say(run.run_id, text, task=task))
    return await json_response({"run_id": run.run_id, "text": text, "task": task}, 202)


async def signal_run(service: ServedFlow, request: Request, key: Key) -> Response:
    """``POST /runs/{id}/signals/{name}``: send a signal with the ``value`` of the body, null without one."""
    run = await run_of(service, request, key)
    name, value = request.path_params["name"], (await read_body(request)).get("value")
    await _delivered(service.flow.send_signal(run.run_id, name, value))
    return await json_response({"run_id": run.run_id, "signal": name, "value": value}, 202)


async def show_state(service: ServedFlow, request: Request, key: Key) -> Response:
    """``GET /runs/{id}/state``: the state that a run has published, also after its end."""
    run = await run_of(service, request, key)
    plain = isinstance(run, ServedRun) and not run.lasting
    state: Any = run.state if isinstance(run, ServedRun) and plain else await service.flow.state(run.run_id)
    return await json_response(await shown_data(service, state))


async def _delivered(sending: Awaitable[None]) -> None:
    """Deliver a message. Raises RequestError: 409 for a run that has ended, 429 for one with too many unread messages."""
    try:
        await sending
    except DataError as error:
        status = {"run/ended": 409, "say/full": 429}.get(error.code)
        if status is None:
            raise
        raise RequestError(error.message, code=error.code, status=status, hint=error.hint) from None
