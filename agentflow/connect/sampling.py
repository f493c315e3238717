"""Servers that ask the run's model: an answer without tools or history of the run's own, paid for by the run."""

from __future__ import annotations

import hashlib

from mcp.shared.exceptions import MCPError
from mcp_types import (
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
from agentflow.core.approval import ApprovalRequest
from agentflow.core.call import CallContext
from agentflow.core.messages import ContentPart, Message, TextPart
from agentflow.core.ports import Prompt, PromptRunner
from agentflow.core.session import Session
from agentflow.core.values import to_json
from agentflow.lib.terminal import clean, escape

REJECTED = -1
"""The protocol's code for a request that the user does not let through."""
_STOPS = {"max_tokens": "maxTokens", "stop_sequence": "stopSequence"}


async def sample(
    params: CreateMessageRequestParams, server: McpServer, prompts: PromptRunner, call: CallContext
) -> CreateMessageResult:
    """What the run's model answers ``server``, asked within ``call``.

    A call that was granted, by a model's or an untrusted program's authority, waits for a yes first, unless the server is one
    with ``approve="none"``. Raises MCPError for what is not asked, and what the model call raises.
    """
    messages = await _conversation(params)
    await _admit(params, server, call)
    prompt = Prompt(
        parts=messages[-1].parts,
        system=clean(params.system_prompt or ""),
        base_system=False,  # a server could have the model repeat it
        tools=(),
        max_output_tokens=max(1, min(params.max_tokens, MAX_SAMPLE_TOKENS)),
        timeout_s=server.timeout_s,
    )
    inner = call.start(call.span, "Sample", server.name, params.model_dump(mode="json", exclude_none=True))
    inner.session = Session()
    if len(messages) > 1:
        inner.session.commit(tuple(messages[:-1]))
    outcome = await prompts.run_prompt(prompt, inner)
    return CreateMessageResult(
        role="assistant",
        content=TextContent(type="text", text=outcome.response.text),
        model=outcome.model,
        stop_reason=_STOPS.get(outcome.response.stop_reason, "endTurn"),
    )


async def _conversation(params: CreateMessageRequestParams) -> list[Message]:
    """The messages that are sent, each of another role than the one before it. Raises MCPError."""
    if params.tools:
        raise MCPError(INVALID_PARAMS, "the model is asked without tools")
    if len(to_json([message.model_dump(mode="json") for message in params.messages])) > MAX_SAMPLE_TEXT:
        raise MCPError(INVALID_PARAMS, f"the messages have more than {MAX_SAMPLE_TEXT:,} characters")
    messages: list[Message] = []
    for message in params.messages:
        parts = await _parts_of(message)
        if messages and messages[-1].role == message.role:
            parts = (*messages.pop().parts, *parts)
        messages.append(Message(message.role, parts))
    if not messages or messages[0].role != "user" or messages[-1].role != "user":
        raise MCPError(INVALID_PARAMS, "the first and the last of the messages are the user's")
    if not any([not isinstance(part, TextPart) or part.text.strip() for part in messages[-1].parts]):
        raise MCPError(INVALID_PARAMS, "the last message is empty")
    return messages


async def _parts_of(message: SamplingMessage) -> tuple[ContentPart, ...]:
    blocks = [each for each in message.content_as_list if isinstance(each, TextContent | ImageContent | AudioContent)]
    if len(blocks) < len(message.content_as_list):
        raise MCPError(INVALID_PARAMS, "messages are made of text, images and sound")
    return await parts_of(blocks)


async def _admit(params: CreateMessageRequestParams, server: McpServer, call: CallContext) -> None:
    """Ask for the approval that is needed. Raises MCPError if it is not given."""
    if call.host_authority or server.approve == "none":
        return
    said = to_json(params.model_dump(mode="json", include={"system_prompt", "messages", "max_tokens"}))
    name = f"{server.name}:sampling"
    digest = hashlib.blake2b(f"{name} {said}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    text = f"{name} {escape(said)}"
    request = ApprovalRequest(name, text, digest, f"the MCP server '{server.name}' wants to ask the model")
    if not await call.run.approve(request, call):
        raise MCPError(REJECTED, "asking the model was not approved")


__all__ = ["REJECTED", "sample"]
