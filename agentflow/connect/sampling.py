"""Servers that ask the run's model: answered without the run's tools and history, paid for by the run."""

from __future__ import annotations

import hashlib

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
)

from agentflow.connect.bounds import MAX_SAMPLE_TEXT, MAX_SAMPLE_TOKENS
from agentflow.connect.content import parts_of
from agentflow.connect.servers import McpServer
from agentflow.core.call.approval import ApprovalRequest, Denied
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ResourceExhausted, TaskError
from agentflow.core.data.messages import ContentPart, Message, TextPart
from agentflow.core.data.session import Session
from agentflow.core.data.values import to_json
from agentflow.core.ports.ports import Prompt, PromptRunner
from agentflow.lib.text.terminal import clean, escape

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
        return _answer(error.partial, error.model, "max_tokens")  # the server chose the limit, and goes on from there
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
