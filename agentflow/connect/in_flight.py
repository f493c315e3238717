"""A request under way: the server's questions, samples, progress and logs meanwhile belong to the call that sent it.

The SDK delivers those in tasks of its own. Work that needs the run, above all a question, is passed to the task of the
call, so that the run can be cancelled or suspended there as at any other wait.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    ImageContent,
    LoggingMessageNotificationParams,
    SamplingMessage,
    TextContent,
)

from agentflow.connect.content import parts_of
from agentflow.connect.servers import McpServer
from agentflow.connect.size_limits import (
    MAX_DESCRIPTION,
    MAX_LOGS,
    MAX_ROUNDS,
    MAX_SAMPLE_TEXT,
    MAX_SAMPLE_TOKENS,
    MAX_SAMPLES,
)
from agentflow.core.call.approval import ApprovalRequest, Denied
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ResourceExhausted, SexpEvaluationError, TaskError, clip
from agentflow.core.data.messages import ContentPart, Message, TextPart
from agentflow.core.data.session import Session
from agentflow.core.data.values import to_json
from agentflow.core.ports.ports import Prompt, PromptRunner
from agentflow.lib.text.safe_text import clean, escape

TIMES_OUT = 10
"""How often progress may begin the time of a request anew, unless its server says ``total_s``."""
REJECTED = -1
"""The protocol's code for a request that the user refuses."""
_STOPS = {"max_tokens": "maxTokens", "stop_sequence": "stopSequence"}


async def sample(
    params: CreateMessageRequestParams, server: McpServer, prompts: PromptRunner, call: CallContext
) -> CreateMessageResult:
    """Ask the run's model on behalf of ``server``, within ``call``, and return its answer.

    A call made with the authority of a model or an untrusted program needs approval first, unless the server has
    ``approve="none"``. Raises MCPError for refused requests and for a model call that failed, which ends neither the tool
    nor its run, and errors that end the run.
    """
    messages = await _conversation(params)
    await _admit(params, server, call)
    prompt = Prompt(
        parts=messages[-1].parts,
        system=clean(params.system_prompt or ""),
        base_system=False,  # the server could make the model repeat the system prompt
        tools=(),
        max_output_tokens=max(1, min(params.max_tokens, MAX_SAMPLE_TOKENS)),
        timeout_s=server.timeout_s,
    )
    inner = call.start(call.span, "Sample", server.name, params.model_dump(mode="json", exclude_none=True))
    inner.session = Session()
    if len(messages) > 1:
        inner.session.commit(tuple(messages[:-1]))
    try:
        outcome = await prompts.run_prompt(prompt, inner)
    except ResourceExhausted as error:
        if error.resource != "output":
            raise _unanswered(error) from error
        return _answer(error.partial, error.model, "max_tokens")  # the server chose the limit, and continues from there
    except TaskError as error:
        raise _unanswered(error) from error
    return _answer(outcome.response.text, outcome.model, outcome.response.stop_reason)


def _answer(text: str, model: str, stop: str) -> CreateMessageResult:
    content = TextContent(type="text", text=text)
    return CreateMessageResult(role="assistant", content=content, model=model, stop_reason=_STOPS.get(stop, "endTurn"))


def _unanswered(error: TaskError) -> MCPError:
    """The server's view of a model call that failed, without the words of the model's server."""
    return MCPError(INTERNAL_ERROR, f"the model gave no answer ({error.reason})")


async def _conversation(params: CreateMessageRequestParams) -> list[Message]:
    """The messages to send, with alternating roles. Raises MCPError for unsupported ones."""
    if params.tools:
        raise MCPError(INVALID_PARAMS, "sampling with tools is not supported")
    if len(to_json([message.model_dump(mode="json") for message in params.messages])) > MAX_SAMPLE_TEXT:
        raise MCPError(INVALID_PARAMS, f"the messages have more than {MAX_SAMPLE_TEXT:,} characters")
    messages: list[Message] = []
    for message in params.messages:
        parts = await _parts_of(message)
        if messages and messages[-1].role == message.role:
            parts = (*messages.pop().parts, *parts)
        messages.append(Message(message.role, parts))
    if not messages or messages[0].role != "user" or messages[-1].role != "user":
        raise MCPError(INVALID_PARAMS, "the first and the last message must be the user's")
    if not any([not isinstance(part, TextPart) or part.text.strip() for part in messages[-1].parts]):
        raise MCPError(INVALID_PARAMS, "the last message is empty")
    return messages


async def _parts_of(message: SamplingMessage) -> tuple[ContentPart, ...]:
    blocks = [each for each in message.content_as_list if isinstance(each, TextContent | ImageContent | AudioContent)]
    if len(blocks) < len(message.content_as_list):
        raise MCPError(INVALID_PARAMS, "messages may contain text, images and audio only")
    return await parts_of(blocks)


async def _admit(params: CreateMessageRequestParams, server: McpServer, call: CallContext) -> None:
    """Ask for approval if it is needed. Raises MCPError if it is refused."""
    if call.host_authority or server.approve == "none":
        return
    request_text = to_json(params.model_dump(mode="json", include={"system_prompt", "messages", "max_tokens"}))
    name = f"{server.name}:sampling"
    digest = hashlib.blake2b(f"{name} {request_text}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    text = f"{name} {escape(request_text)}"
    request = ApprovalRequest(name, text, digest, f"the MCP server '{server.name}' wants to ask the model")
    decision = await call.run.approve(request, call)
    if isinstance(decision, Denied):
        why = f": {decision.why}" if decision.why else ""
        raise MCPError(REJECTED, f"the request to the model was not approved{why}")


T = TypeVar("T")
Asked: TypeAlias = ElicitRequestParams | CreateMessageRequestParams
Answer: TypeAlias = ElicitResult | CreateMessageResult | ErrorData
_Question: TypeAlias = tuple[Asked, "asyncio.Future[Answer]"]

_DECLINES = frozenset({"question/unanswered", "question/schema", "provenance/denied", "provenance/readers"})
"""Errors of a question that leave it unasked, which to the server is a no."""
_LEVELS = {"debug": "debug", "info": "info", "notice": "info", "warning": "warning"}
DECLINED = ElicitResult(action="decline")


class TimeIsUp(Exception):
    """A request exceeded its time-out of so many ``seconds``, those ``in_all`` or those without progress."""

    def __init__(self, seconds: float, in_all: bool) -> None:
        super().__init__(seconds, in_all)
        self.seconds = seconds
        self.in_all = in_all


class _TakenBack(Exception):
    """The server waits no longer for an answer."""


@asynccontextmanager
async def _until_taken_back(reply: asyncio.Future[Answer]) -> AsyncGenerator[None]:
    """Cancel the block, and raise _TakenBack, when ``reply`` is cancelled: a person is not kept waiting at a useless
    question."""
    scope = asyncio.timeout(None)

    def end(_: asyncio.Future[Answer]) -> None:
        scope.reschedule(0)

    try:
        async with scope:
            reply.add_done_callback(end)
            try:
                yield
            finally:
                reply.remove_done_callback(end)
    except TimeoutError:
        if scope.expired():
            raise _TakenBack from None
        raise


class InFlight:
    """A request of ``call`` to ``server``; time spent waiting for answers does not count against ``timeout_s``, which each
    progress begins anew, up to ``total_s``.

    ``prompts`` asks the model on behalf of servers with ``sampling``.
    """

    def __init__(self, call: CallContext, server: McpServer, prompts: PromptRunner) -> None:
        self.call = call
        self._server = server
        self._prompts = prompts
        self._left = server.timeout_s
        self._total = self._most = server.total_s or TIMES_OUT * server.timeout_s
        self._advanced = False
        self._questions: deque[_Question] = deque()
        self._wake = asyncio.Event()
        self._asked = 0
        self._sampled = 0
        self._logs = 0

    async def run(self, request: Coroutine[Any, Any, T]) -> T:
        """Send the request and answer the server's questions meanwhile. Raises TimeIsUp, and the errors of the request.

        On time-out, or if an answer raises, the request is cancelled; the SDK notifies the server.
        """
        loop = asyncio.get_running_loop()
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            # errors are carried out of the task group by hand, because it would wrap them in an exception group
            making = group.create_task(_outcome(request))
            while not making.done():
                began = loop.time()
                waking = group.create_task(self._wake.wait())
                left = max(0.0, min(self._left, self._total))
                await asyncio.wait([making, waking], timeout=left, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                elapsed = loop.time() - began
                self._left = self._server.timeout_s if self._advanced else self._left - elapsed
                self._total -= elapsed
                self._advanced = False
                if making.done():
                    break
                if min(self._left, self._total) <= 0:
                    in_all = self._total <= 0
                    failure = TimeIsUp(self._most if in_all else self._server.timeout_s, in_all)
                else:
                    try:
                        await self._answer()
                    except Exception as error:  # noqa: BLE001 - raised again below
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
            with suppress(_TakenBack):
                async with _until_taken_back(reply):
                    try:
                        answer = await self.answer(params)
                    except MCPError as error:
                        answer = error.error
                if not reply.done():
                    reply.set_result(answer)

    async def asked(self, params: Asked) -> Answer:
        """Let the task of the call answer ``params``, and return the answer. Called in the SDK's tasks."""
        question: _Question = (params, asyncio.get_running_loop().create_future())
        self._questions.append(question)
        self._wake.set()
        try:
            return await question[1]
        finally:
            if question in self._questions:  # withdrawn by the server before it was asked
                self._questions.remove(question)

    async def answer(self, params: Asked) -> ElicitResult | CreateMessageResult:
        """Answer a question to the user, or a request to the model. Called in the task of the call.

        Raises MCPError for refused requests, and the errors of asking when the run ends or is suspended meanwhile.
        """
        if isinstance(params, CreateMessageRequestParams):
            return await self._sample(params)
        return await self._ask(params)

    async def _sample(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        if not self._server.sampling:
            raise MCPError(INVALID_PARAMS, "sampling is off for this server: it may not ask the model")
        self._sampled += 1
        if self._sampled > MAX_SAMPLES:
            raise MCPError(INVALID_PARAMS, f"the model was asked more than {MAX_SAMPLES} times")
        return await sample(params, self._server, self._prompts, self.call)

    async def _ask(self, params: ElicitRequestParams) -> ElicitResult:
        """Ask the answerer of the run's questions; no answer, or ``none``, declines."""
        self._asked += 1
        if self._asked > MAX_ROUNDS:
            if self._asked == MAX_ROUNDS + 1:
                message = f"the MCP server '{self._server.name}' asked more than {MAX_ROUNDS} times"
                self.call.warn("mcp/asks-too-much", message)
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
            if error.code not in _DECLINES:
                raise
            self.call.warn(
                "mcp/declined", f"a question of the MCP server '{self._server.name}' was declined: {error.message}"
            )
            return DECLINED

    async def progressed(self, progress: float, total: float | None, message: str | None) -> None:
        """Publish the progress of the tool, ``progress`` of ``total``, and begin its time anew. Called in the SDK's tasks."""
        self._advanced = True
        self._wake.set()
        self.call.progress(progress, total, clean(clip(message or "", 500)))

    def logged(self, params: LoggingMessageNotificationParams) -> None:
        """Publish a log line of the server, up to :data:`MAX_LOGS` per call. Called in the SDK's tasks."""
        self._logs += 1
        if self._logs <= MAX_LOGS:
            text = params.data if isinstance(params.data, str) else to_json(params.data)
            self.call.log(clean(clip(text, 2_000)), _LEVELS.get(params.level, "error"))
        elif self._logs == MAX_LOGS + 1:
            self.call.warn(
                "mcp/logs-too-much", f"the MCP server '{self._server.name}' logged more than {MAX_LOGS} lines"
            )


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the form's fields that have a default."""
    fields: Mapping[str, Any] = schema.get("properties", {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


async def _outcome(request: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    try:
        return await request, None
    except Exception as error:  # noqa: BLE001 - raised again by the task of the call
        return None, error
