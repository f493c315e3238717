"""Requests to a server within a call: with a time-out, answers to its questions, and a retry after a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, cast

from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    ElicitRequest,
    InputRequiredResult,
    InputResponse,
    InputResponses,
    ListRootsRequest,
    ListRootsResult,
)
from pydantic import TypeAdapter, ValidationError

from agentflow.connect.bounds import MAX_DESCRIPTION, MAX_ROUNDS
from agentflow.connect.connection import Connection, described
from agentflow.connect.content import failed
from agentflow.connect.http import TERMINATED
from agentflow.connect.in_flight import InFlight, TimeIsUp
from agentflow.connect.listing import list_all
from agentflow.connect.live import Live, was_closed
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, clip
from agentflow.core.data.results import TaskResult
from agentflow.lib.text.terminal import clean, escape

R = TypeVar("R")
Ask: TypeAlias = "Callable[[ClientSession, InputResponses | None, str | None], Awaitable[R | InputRequiredResult]]"
"""Performs one round of a request: takes the session, the answers to the last round's questions, and its state."""

STATE_WAIT_S = 0.05
ENDING_S = 1.0
"""Seconds in which a program whose connection was lost may write why it ended."""
_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


class RequestInterrupted(AgentflowError):
    """The connection broke during a request, which may or may not have been carried out."""

    default_code = "mcp/connection-lost"
    default_reason = "connection_error"


async def call_tool(
    session: ClientSession,
    answers: InputResponses | None,
    state: str | None,
    *,
    name: str,
    arguments: dict[str, Any],
    request: InFlight,
) -> CallToolResult | InputRequiredResult:
    """One round of a tool call. Unlike the SDK's, it does not evaluate the server's schemas on the result."""
    params = CallToolRequestParams(name=name, arguments=arguments, input_responses=answers, request_state=state)

    async def send() -> CallToolResult | InputRequiredResult:
        return await session.send_request(CallToolRequest(params=params), _ANSWER, progress_callback=request.progressed)

    try:
        return await send()
    except MCPError as error:
        if error.code != HEADER_MISMATCH:
            raise
        await list_all(session)  # the SDK derives headers from the schemas last listed
        return await send()


async def requested(
    connection: Connection,
    call: CallContext,
    make: Callable[[InFlight], Ask[R]],
    *,
    repeatable: bool,
    check: Callable[[Live], None] = lambda live: None,
) -> R | TaskResult:
    """Send a request and return its answer, or a FAILED result that describes the error.

    ``make`` builds the function that performs a round; a ``repeatable`` request is sent again if the connection is lost,
    and any request that was refused because the session had expired.
    ``check`` raises AgentflowError to prevent the request on a particular connection.
    """
    server = connection.server
    for last in (False, True):
        try:
            live = await connection.live(server.timeout_s)
            check(live)
        except AgentflowError as error:
            return TaskResult.from_error(error)
        try:
            request = InFlight(call, server, connection.prompts)
            live.in_flight.add(request)
            try:
                answer = await _rounds(live, request, make(request))
            finally:
                live.leave(request)
            connection.worked()
            return answer
        except TimeIsUp:
            return failed(
                "execution_timeout",
                f"the MCP server '{server.name}' took longer than its {server.timeout_s:g} s",
                code="mcp/timeout",
                timeout_s=server.timeout_s,
            )
        except MCPError as error:
            if not was_closed(error) and error.message != TERMINATED:
                connection.worked()
                return _refused(error)
            expired = error.message == TERMINATED and not last
            if expired:
                connection.renew(live)
            else:
                connection.lose(live, escape(clip(error.message, 500)))
            if last or not (repeatable or expired):
                return TaskResult.from_error(await _lost(connection, live))
            call.warn(
                "mcp/reconnected", f"the connection to the MCP server '{server.name}' was lost; the call is repeated"
            )
        except ValidationError as error:
            connection.worked()
            return failed(
                "protocol_error",
                f"the MCP server '{server.name}' sent an invalid answer: {described(error)}",
                code="mcp/protocol",
            )
    raise AssertionError  # the second attempt returns or raises


class Refusal(AgentflowError):
    """A request that is not sent."""

    default_code = "mcp/changed"
    default_reason = "tool_execution_error"


async def _rounds(live: Live, request: InFlight, ask: Ask[R]) -> R:
    """Repeat a request until the server asks no more questions. Raises the errors of a round, and TimeIsUp."""
    answers: InputResponses | None = None
    state: str | None = None
    for number in range(MAX_ROUNDS):
        answer = await request.run(cast(Any, ask(live.session, answers, state)))
        if not isinstance(answer, InputRequiredResult):
            return cast(R, answer)
        state = answer.request_state
        answers = None
        if answer.input_requests:
            answers = {key: await _answered(each, request) for key, each in answer.input_requests.items()}
        else:
            await asyncio.sleep(STATE_WAIT_S * 2 ** min(number, 3))
    raise MCPError(INVALID_PARAMS, f"the server asked for more input {MAX_ROUNDS} times")


async def _answered(asked: object, request: InFlight) -> InputResponse:
    """The answer to one input that a server requests. Raises MCPError if it is unsupported or refused."""
    if isinstance(asked, ElicitRequest | CreateMessageRequest):
        return await request.answer(asked.params)
    if isinstance(asked, ListRootsRequest):
        return ListRootsResult(roots=[])
    raise MCPError(INVALID_PARAMS, "the server asked for an input that is not supported")


def _refused(error: MCPError) -> TaskResult:
    if error.code == REQUEST_TIMEOUT:
        return failed("execution_timeout", clean(clip(error.message, MAX_DESCRIPTION)), code="mcp/timeout")
    return failed(
        "input_validation_failure" if error.code == INVALID_PARAMS else "tool_execution_error",
        clean(clip(error.message, MAX_DESCRIPTION)) or "the server refused the request and did not say why",
        code=f"mcp/{error.code}",
    )


_MAYBE_DONE = "the request may or may not have been carried out; check before repeating it"


async def _lost(connection: Connection, live: Live) -> RequestInterrupted:
    """The error for a lost connection; waits briefly for the program's last words."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDING_S):
            await live.closed.wait()
    stderr = connection.said(live)
    return RequestInterrupted(
        f"the connection to the MCP server '{connection.server.name}' was lost ({live.ending})",
        hint="; ".join(filter(None, (_MAYBE_DONE, connection.refused(live)))),
        details={"server": connection.server.name, **({"stderr": stderr} if stderr else {})},
    )
