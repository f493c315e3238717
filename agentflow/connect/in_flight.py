"""A request to a server while it is under way: what the server asks and says meanwhile belongs to the call that made it.

The SDK delivers all that in tasks of its own. What needs the run, a question above all, is passed to the task of the call,
so that the run may be cancelled, or suspended, as at any other wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, TypeAlias, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    LoggingMessageNotificationParams,
)

from agentflow.connect.bounds import MAX_DESCRIPTION, MAX_LOGS, MAX_ROUNDS, MAX_SAMPLES
from agentflow.connect.sampling import sample
from agentflow.connect.servers import McpServer
from agentflow.core.call import CallContext
from agentflow.core.errors import SexpEvaluationError, clip
from agentflow.core.ports import PromptRunner
from agentflow.core.values import to_json
from agentflow.lib.terminal import clean, escape

T = TypeVar("T")
Asked: TypeAlias = ElicitRequestParams | CreateMessageRequestParams
Answer: TypeAlias = ElicitResult | CreateMessageResult | ErrorData
_Question: TypeAlias = tuple[Asked, "asyncio.Future[Answer]"]

_LEVELS = {"debug": "debug", "info": "info", "notice": "info", "warning": "warning"}
DECLINED = ElicitResult(action="decline")


class TimeIsUp(Exception):
    """A request took longer than it may."""


class InFlight:
    """A request of ``call`` to ``server``, which may take the server's ``timeout_s`` without the seconds of answers.

    ``prompts`` asks the model, for a server that may.
    """

    def __init__(self, call: CallContext, server: McpServer, prompts: PromptRunner) -> None:
        self.call = call
        self._server = server
        self._prompts = prompts
        self._left = server.timeout_s
        self._questions: deque[_Question] = deque()
        self._wake = asyncio.Event()
        self._asked = 0
        self._sampled = 0
        self._logs = 0

    async def run(self, request: Coroutine[Any, Any, T]) -> T:
        """Make the request, and answer what is asked meanwhile. Raises TimeIsUp, and what the request raises.

        The request is cancelled when its time is up, or when an answer raises; the SDK tells the server.
        """
        loop = asyncio.get_running_loop()
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            # errors are carried past the group, which would wrap them
            making = group.create_task(_outcome(request))
            while not making.done():
                began = loop.time()
                waking = group.create_task(self._wake.wait())
                await asyncio.wait([making, waking], timeout=max(0.0, self._left), return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                self._left -= loop.time() - began
                if making.done():
                    break
                if self._left <= 0:
                    failure = TimeIsUp()
                else:
                    try:
                        await self._answer()
                    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised below
                        failure = error
                if failure is not None:
                    making.cancel()
                    break
        if failure is not None:
            raise failure
        value, error = making.result()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    async def _answer(self) -> None:
        self._wake.clear()
        while self._questions:
            params, reply = self._questions.popleft()
            try:
                answer = await self.answer(params)
            except MCPError as error:
                answer = error.error
            if not reply.done():
                reply.set_result(answer)

    async def asked(self, params: Asked) -> Answer:
        """Have the task of the call answer what the server asks, and give the answer. For the SDK's tasks."""
        question: _Question = (params, asyncio.get_running_loop().create_future())
        self._questions.append(question)
        self._wake.set()
        try:
            return await question[1]
        finally:
            if question in self._questions:  # what the server takes back nobody is asked
                self._questions.remove(question)

    async def answer(self, params: Asked) -> ElicitResult | CreateMessageResult:
        """Answer what the server asks of the user, or of the model. For the task of the call.

        Raises MCPError for what is refused, and what asking raises in a run that ends or is suspended meanwhile.
        """
        if isinstance(params, CreateMessageRequestParams):
            return await self._sample(params)
        return await self._ask(params)

    async def _sample(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        if not self._server.sampling:
            raise MCPError(INVALID_PARAMS, "this server may not ask the model: sampling is off")
        self._sampled += 1
        if self._sampled > MAX_SAMPLES:
            raise MCPError(INVALID_PARAMS, f"the model was asked more than {MAX_SAMPLES} times")
        return await sample(params, self._server, self._prompts, self.call)

    async def _ask(self, params: ElicitRequestParams) -> ElicitResult:
        """Ask whoever answers the run's questions; nobody's answer, and ``none``, is a no."""
        self._asked += 1
        if self._asked > MAX_ROUNDS:
            if self._asked == MAX_ROUNDS + 1:
                said = f"the MCP server '{self._server.name}' asked more than {MAX_ROUNDS} times"
                self.call.warn("mcp/asks-too-much", said)
            return DECLINED
        text = escape(clip(params.message, MAX_DESCRIPTION), lines=True)
        try:
            if isinstance(params, ElicitRequestFormParams):
                schema = {"anyOf": [params.requested_schema, {"type": "null"}]}
                answer = await self.call.ask_human(f"The MCP server '{self._server.name}' asks: {text}", schema)
                if answer is None:
                    return DECLINED
                return ElicitResult(action="accept", content={**_defaults(params.requested_schema), **answer})
            address = escape(clip(params.url, 2_000))
            question = f"The MCP server '{self._server.name}' asks you to open {address} yourself: {text}\nHave you?"
            agreed = await self.call.ask_human(question, {"type": "boolean"})
            return ElicitResult(action="accept" if agreed is True else "decline")
        except SexpEvaluationError as error:
            if error.code not in ("question/unanswered", "question/schema"):
                raise
            self.call.warn(
                "mcp/declined", f"a question of the MCP server '{self._server.name}' was declined: {error.message}"
            )
            return DECLINED

    async def progressed(self, progress: float, total: float | None, message: str | None) -> None:
        """Publish how far the tool is. For the SDK's tasks."""
        self.call.progress(progress, total, clean(clip(message or "", 500)))

    def logged(self, params: LoggingMessageNotificationParams) -> None:
        """Publish what the server logs, up to a number of lines. For the SDK's tasks."""
        self._logs += 1
        if self._logs <= MAX_LOGS:
            text = params.data if isinstance(params.data, str) else to_json(params.data)
            self.call.log(clean(clip(text, 2_000)), _LEVELS.get(params.level, "error"))
        elif self._logs == MAX_LOGS + 1:
            self.call.warn(
                "mcp/logs-too-much", f"the MCP server '{self._server.name}' logged more than {MAX_LOGS} lines"
            )


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What the fields of a form are that nobody filled in."""
    fields: Mapping[str, Any] = schema.get("properties", {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


async def _outcome(request: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    try:
        return await request, None
    except Exception as error:  # noqa: BLE001 - raised again by the task of the call
        return None, error


__all__ = ["DECLINED", "InFlight", "TimeIsUp"]
