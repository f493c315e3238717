"""The server's own API of runs: start a run, read its events from any position, answer its questions, cancel it.

A run continues when its client disconnects, and anybody with its key can return to it. For a key that may see the fleet, runs
that other processes work on are like the server's own.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from agentflow.core.call.approval import is_yes
from agentflow.core.data.errors import AgentflowError, cut
from agentflow.core.data.event_log import event_id
from agentflow.core.data.messages import Usage
from agentflow.core.data.values import plain, plain_work
from agentflow.core.data.walk import in_slices
from agentflow.core.events.questions import Question
from agentflow.lib.redacted_copy import redaction
from agentflow.run.handle import Recorded
from agentflow.serve.client_calls import ClientCall
from agentflow.serve.error_responses import Reader, RequestError, dict_field, failure_of_run, text_field
from agentflow.serve.fleet import FleetRun
from agentflow.serve.incoming import read_body
from agentflow.serve.json_body import json_bytes, json_response
from agentflow.serve.keys import Key
from agentflow.serve.sent_events import Position, bare, frame_of, parse_position
from agentflow.serve.served_flow import Inputs, ServedFlow
from agentflow.serve.served_runs import ServedRun
from agentflow.serve.streaming import EventStream

_log = logging.getLogger(__name__)


_FIELDS = ("export", "program", "bindings", "message", "allow", "labels", "run_id")


async def begin_run(service: ServedFlow, request: Request, key: Key) -> Response:
    """``POST /runs``: start a run of an ``export`` with ``bindings``, or of a ``program``. Returns its state, status 201.

    ``message`` is the value of the parameter for a chat client's message. Another field is refused: the host sets limits and purses.
    """
    body = await read_body(request)
    for name in body:
        if name not in _FIELDS:
            raise RequestError(
                f"a run has no field '{cut(name, 80)}'; its fields are {', '.join(_FIELDS)}",
                code="serve/field",
                param=name,
            )
    run_id, program = text_field(body, "run_id"), text_field(body, "program")
    labels = _labels(dict_field(body, "labels"))
    bindings = dict_field(body, "bindings")
    call = ClientCall(run_id, await _digest(body))
    if program is not None:
        run = await service.start_program(
            program, bindings, key, allow=_names(body), call=call, labels=labels, lasting=True
        )
    else:
        offer = service.offer(body.get("export"), key, "export")
        message = text_field(body, "message")
        if message is not None:
            bindings = {offer.message or "message": message, **bindings}

        async def inputs() -> Inputs:
            return Inputs(bindings)

        run = await service.start(offer, inputs, key, call=call, labels=labels, lasting=True)
    root = request.scope.get("root_path", "")
    headers = {"location": f"{root}/runs/{run.run_id}", "x-request-id": run.run_id}
    return await json_response(await run_data(service, run, key), 201, headers)


async def _digest(body: Mapping[str, Any]) -> bytes:
    """The digest of a call, equal for calls that ask for the same."""
    asked = {name: body[name] for name in sorted(body) if name != "run_id" and body[name] is not None}
    return hashlib.blake2b(await json_bytes(asked), digest_size=16).digest()


def _names(body: Mapping[str, Any]) -> list[str] | None:
    allow = body.get("allow")
    if allow is None:
        return None
    if not isinstance(allow, list) or not all([isinstance(each, str) for each in cast("list[Any]", allow)]):
        raise RequestError("'allow' must be a list of names", code="serve/field", param="allow")
    return cast("list[str]", allow)


def _labels(labels: Mapping[str, Any]) -> dict[str, str]:
    for name, value in labels.items():
        if not isinstance(value, str):
            raise RequestError(f"the label '{cut(name, 80)}' must be text", code="serve/field", param="labels")
    return dict(labels)


async def list_runs(service: ServedFlow, request: Request, key: Key) -> Response:
    """``GET /runs``: the runs of the key, latest first, without their results; then those of the fleet, if it may see them.

    ``fleet`` is true for a key that may, so that a page asks for nothing that it would not get.
    """
    runs = [await run_data(service, run, key, whole=False) for run in service.runs if run.is_shown_to(key)]
    elsewhere = await service.fleet.list() if key.may_see_fleet else []
    others = [
        await fleet_data(service, FleetRun(info=info, waits={}))
        for info in elsewhere
        if info.run_id not in service.runs
    ]
    shown = {"fleet": True} if key.may_see_fleet else {}
    return await json_response({"runs": [*runs[::-1], *others], **shown})


async def show_fleet(service: ServedFlow, request: Request, key: Key) -> Response:
    """``GET /fleet``: pending work by queue and tenant, and the live workers. 403 for a key that may not see the fleet."""
    if not key.may_see_fleet:
        raise RequestError(
            "this key may not see the work of workers",
            code="serve/not-yours",
            status=403,
            hint="ask the operator of the server for a key that may",
        )
    fleet = {"queues": await service.fleet.load(), "workers": await service.fleet.workers()}
    return await json_response({name: [asdict(each) for each in rows] for name, rows in fleet.items()})


async def show_run(service: ServedFlow, request: Request, key: Key) -> Response:
    """``GET /runs/{id}``: one run, with its result or error."""
    run = await run_of(service, request, key)
    data = fleet_data(service, run) if isinstance(run, FleetRun) else run_data(service, run, key)
    return await json_response(await data)


async def run_of(service: ServedFlow, request: Request, key: Key) -> ServedRun | FleetRun:
    """The run that a request names. Raises RequestError: 404 ``serve/unknown-run``, 403 ``serve/not-yours``."""
    run_id = request.path_params["run"]
    if key.may_see_fleet and run_id not in service.runs:
        stored = await service.fleet.find(run_id)
        if stored is not None:
            return stored
    return service.runs.find(run_id, key)


async def read_events(service: ServedFlow, request: Request, key: Key) -> Response:
    """``GET /runs/{id}/events``: the run's events after ``Last-Event-ID`` or ``?after=``, until its end."""
    run = await run_of(service, request, key)
    text = request.query_params.get("after") or request.headers.get("last-event-id") or "0"
    after = parse_position(text)
    if after is None:
        raise RequestError(
            f"{cut(text, 60)!r} is not the id of an event",
            code="serve/after",
            param="after",
            hint="ids are those of the stream: SLICE.SEQ, for example 1.17",
        )
    if isinstance(run, FleetRun):
        return EventStream(service.fleet.events(run.run_id, after), {"x-request-id": run.run_id})
    everything = key.may_see_host
    earlier = partial(_recorded, service.flow.records, run.run_id, everything)
    return EventStream(run.log.follow(after, earlier, everything=everything), {"x-request-id": run.run_id})


async def _recorded(
    records: Recorded | None, run_id: str, everything: bool, after: Position, until: Position
) -> AsyncGenerator[bytes, None]:
    """The events between two positions from the run's record; a ``gap`` event reports those it does not have."""
    position = after
    try:
        if records is not None:
            async with aclosing(records.batches(run_id, after)) as batches:
                async for batch in batches:
                    events = [event if everything else bare(event) for event in batch if event_id(event) <= until]
                    if events:
                        yield b"".join([frame_of(event_id(event), await json_bytes(event)) for event in events])
                        position = event_id(events[-1])
                    if len(events) < len(batch):
                        break
    except (OSError, AgentflowError) as error:
        _log.warning("the record of run %s cannot be read: %s", run_id, error)
    if position < until:
        first, last = f"{position[0]}.{position[1]}", f"{until[0]}.{until[1]}"
        yield f'event: gap\ndata: {{"type": "gap", "after": "{first}", "until": "{last}"}}\n\n'.encode()


async def cancel_run(service: ServedFlow, request: Request, key: Key) -> Response:
    """``POST /runs/{id}/cancel``: cancel a run and return it after its clean-up. An ended run stays unchanged."""
    run = await run_of(service, request, key)
    if isinstance(run, FleetRun):
        await service.fleet.cancel(run.run_id)
        return await show_run(service, request, key)
    await run.cancel()
    return await json_response(await run_data(service, run, key))


async def answer_run(service: ServedFlow, request: Request, key: Key) -> Response:
    """``POST /runs/{id}/answers/{key}``: answer a question of a run. The first answer counts.

    Of an approval, ``{"answer": true}`` and ``{"answer": {"approved": true, "arguments": {...}}}`` are a yes; a text is a no with
    a reason, and anything else, also a malformed body, is a no. The key contains the digest of the approval's text, so an
    answer applies to exactly that text. An invalid answer is refused and leaves its question open. 403 ``serve/limit``: only keys
    of the fleet raise the limit that a run waits at.
    """
    run = await run_of(service, request, key)
    name = request.path_params["key"]
    asked = run.waits.get(name)
    if asked is None:
        raise RequestError(
            f"the run '{run.run_id}' has no open question with the key '{cut(name, 80)}'",
            code="question/unknown",
            status=404,
            hint="it may have been answered before; GET /runs/ID lists the open questions",
        )
    if not key.may_answer(asked):
        raise RequestError(
            "a limit of a run is raised by the host of this server, or with a key for all runs",
            code="serve/limit",
            status=403,
            hint="the host answers with agentflow runs send, flow.send or flow.resume(limits=), or gives the key fleet = true",
        )
    if asked.reason == "approval":
        answer: Any = await _decision(request)
    else:
        body = await read_body(request)
        if "answer" not in body:
            raise RequestError("the body must be an object with 'answer'", code="serve/field", param="answer")
        answer = body["answer"]
    await service.flow.send(run.run_id, name, answer)
    told = is_yes(answer) if asked.reason == "approval" else answer
    return await json_response({"run_id": run.run_id, "key": name, "answer": told})


async def _decision(request: Request) -> Any:
    try:
        return (await read_body(request)).get("answer")
    except RequestError:
        return False


def asked_data(questions: Mapping[str, Question]) -> list[dict[str, Any]]:
    """Open questions and approvals by key, as JSON data."""
    return [
        {
            "key": key,
            "reason": each.reason,
            "question": each.question,
            "schema": each.schema,
            **({} if each.external is None else {"external": plain(each.external)}),
            **({} if each.call is None else {"call": plain(each.call)}),
            **({} if each.signal is None else {"signal": each.signal}),
        }
        for key, each in questions.items()
    ]


async def shown_data(service: ServedFlow, value: object) -> Any:
    """A value of a run as JSON data without secrets, made in parts: it may be large, and others run on this loop."""
    redactor = service.flow.redactor
    shown = await in_slices(redaction(await in_slices(plain_work(value)), redactor))
    redactor.examined = {}  # its results for long texts were for this value
    return shown


async def run_data(
    service: ServedFlow, run: ServedRun, key: Key | None = None, *, whole: bool = True
) -> dict[str, Any]:
    """A run as JSON data for ``key``, or that of the run, without secrets; ``whole`` includes its result."""
    result, failure = run.result, run.failure
    spent = result if result is not None else run.error if isinstance(run.error, AgentflowError) else None
    usage = None if spent is None else spent.usage
    data: dict[str, Any] = {
        "run_id": run.run_id,
        "export": run.export,
        "status": run.status,
        "created": run.created,
        "ended": run.ended,
        "labels": run.labels,
        "waiting": asked_data(run.waits),
        "error": None if failure is None else service.fault(run, failure, key)["error"],
        "usage": None if usage is None else _usage_data(usage),
        "cost_usd": None if spent is None else spent.cost,
    }
    if whole:
        data["value"] = None if result is None else await shown_data(service, result.value)
    return data


async def fleet_data(service: ServedFlow, run: FleetRun) -> dict[str, Any]:
    """A run that another process works on as JSON data, without secrets: the fields of :func:`run_data`, and who does it."""
    info, result = run.info, run.result
    usage = None if result is None else result.usage
    error = None if info.error is None else {"message": service.redact(info.error)}
    return {
        "run_id": info.run_id,
        "export": info.labels.get("export", info.name),
        "status": info.status,
        "created": info.created,
        "ended": run.ended,
        "labels": dict(info.labels),
        "waiting": asked_data(run.waits),
        "error": error
        if run.failure is None
        else service.refusal(failure_of_run(run.failure), Reader(operator=True))["error"],
        "usage": None if usage is None else _usage_data(usage),
        "cost_usd": None if result is None else result.cost,
        "value": None if result is None else await shown_data(service, result.value),
        "queue": info.queue,
        "tenant": info.tenant,
        "parent": info.parent,
    }


def _usage_data(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "requests": usage.requests,
    }
