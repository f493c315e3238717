"""Anthropic Messages: encodes requests as JSON, decodes answers from events.

https://docs.anthropic.com/en/api/messages-streaming
"""

from __future__ import annotations

import base64
import re
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.data.messages import (
    AudioPart,
    Citation,
    DocumentPart,
    ImagePart,
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    OtherPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    Usage,
)
from agentflow.core.data.provider_errors import ProtocolError
from agentflow.providers.dialects.decoding import (
    BaseDecoder,
    StopTable,
    argument_text,
    check_call_count,
    count,
    grown,
    incomplete,
    parse_arguments,
    text_of,
    tier,
    unique_calls,
)
from agentflow.providers.dialects.openai_wire import anthropic_efforts, nearest
from agentflow.providers.dialects.schema_translation import output_form, system_text, tool_form
from agentflow.providers.dialects.wire import Wire, parse_json, record, records, string, unsupported

DIALECT = "anthropic.messages"
DEFAULT_MAX_TOKENS = 8_192
_MOST_MARKS = 4
"""Maximum number of cache breakpoints in a request."""
_STOP: StopTable = MappingProxyType(
    {
        "end_turn": "end",
        "tool_use": "tool_calls",
        "max_tokens": "max_tokens",
        "stop_sequence": "stop_sequence",
        "pause_turn": "pause",
        "refusal": "refusal",
        "model_context_window_exceeded": "context_window",
        # Sent by servers that imitate the API.
        "stop": "end",
        "eos": "end",
        "eos_token": "end",
        "tool_calls": "tool_calls",
        "length": "max_tokens",
    }
)
_SEARCH = MappingProxyType({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"})
"""The search of the server. https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool"""
_VERSION = re.compile(r"claude-[a-z]+-(\d+)(?:-(\d{1,2})(?!\d))?").search
_PLAIN_TOOL_KEYS = frozenset({"type", "id", "name", "input"})


def encode(request: ModelRequest, wire: Wire, streaming: bool, limit: int) -> dict[str, Any]:
    """The request body, without ``stream``. For models without structured output, only the prompt describes the form of
    answers."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": limit,
        "messages": [encode_message(message, wire) for message in wire.messages],
    }
    _, form = output_form(request, wire, streaming) if takes_schemas(request.model) else ("prompt", None)
    if system := system_text(request, wire, form):
        body["system"] = system
    if request.tools:
        body["tools"] = [_tool(tool, wire) for tool in request.tools]
        if request.tool_choice != "auto":
            kinds = {"none": "none", "required": "any"}
            kind = kinds.get(request.tool_choice)
            body["tool_choice"] = (
                {"type": kind} if kind else {"type": "tool", "name": wire.to_wire(request.tool_choice)}
            )
    if request.provider_tools:
        body["tools"] = [*body.get("tools", ()), *request.provider_tools]
    if wire.searched and not any([str(tool.get("type")).startswith("tool_search") for tool in request.provider_tools]):
        # the last, since a deferred tool cannot be marked for the cache
        body["tools"] = [*body["tools"], dict(_SEARCH)]
    if request.effort is not None and (levels := anthropic_efforts(request.model)):
        body["output_config"] = {"effort": nearest(request.effort, levels)}
        if request.effort == "none":
            body["thinking"] = {"type": "disabled"}
    if form is not None:
        sent = {"type": "json_schema", "schema": form.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": sent}
    if request.prompt_cache is not False:
        _mark(body, request, wire)
    return body


def takes_schemas(model: str) -> bool:
    """Whether ``model`` is from after the introduction of structured output."""
    return not model.startswith(("claude-2", "claude-3", "claude-instant"))


def searches_tools(model: str) -> bool:
    """Whether ``model`` is one of those with the server's search for tools: from 4.5 on."""
    version = _VERSION(model)
    return version is not None and (int(version[1]), int(version[2] or 0)) >= (4, 5)


def _tool(tool: ToolSpec, wire: Wire) -> dict[str, Any]:
    description, form = tool_form(tool, wire)
    encoded: dict[str, Any] = {
        "name": wire.to_wire(tool.name),
        "description": description,
        "input_schema": form.schema,
    }
    if tool.deferred and wire.traits.tool_search:
        encoded["defer_loading"] = True
    return {**encoded, "strict": True} if form.strict else encoded


def _mark(body: dict[str, Any], request: ModelRequest, wire: Wire) -> None:
    """Add cache breakpoints: marks that ask the server to keep the processed prompt up to there.

    In a conversation, the last message is marked for the next call, and so is the message that was last in the previous
    call: a server searches at most 20 blocks before a breakpoint for cached content. Breakpoints left over go to the system
    text with the tools, which other conversations share, and to parts that ask for one.
    https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    kept = request.prompt_cache
    control = {"type": "ephemeral", "ttl": "1h"} if kept == "1h" else {"type": "ephemeral"}
    messages: list[dict[str, Any]] = body["messages"]
    ends: list[tuple[list[dict[str, Any]], int]] = []
    if kept and ("tools" in body or len(messages) > 1):
        asked = [message for message in messages if message["role"] == "user"]
        ends += [(_blocks(message), -1) for message in asked[-1:-3:-1]]
    if kept and "system" in body:
        body["system"] = [{"type": "text", "text": body["system"]}]
        ends.append((body["system"], 0))
    elif kept and "tools" in body:
        ends.append((body["tools"], -1))
    for message, encoded in zip(wire.messages, messages, strict=True):
        for part in message.parts:
            if type(part) is TextPart and part.text and (part.cache is True or (kept and part.cache)):
                blocks = _blocks(encoded)
                ends.append((blocks, [block.get("text") for block in blocks].index(part.text)))
    for blocks, at in ends[:_MOST_MARKS]:
        blocks[at] = {**blocks[at], "cache_control": control}


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of an encoded message; a plain string becomes one block."""
    if isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    return message["content"]


def encode_message(message: Message, wire: Wire) -> dict[str, Any]:
    """Encode one message. Blocks of this dialect are replayed verbatim, those of others dropped."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is TextPart and parts[0].native is None:
        return {"role": message.role, "content": parts[0].text}
    blocks = [block for part in parts if (block := _encode_part(part, wire)) is not None]
    if any([type(part) is OtherPart for part in parts]):
        blocks = _without_searches(blocks, wire.searched)
    if message.role == "user":
        # The API requires tool results before any other part.
        blocks.sort(key=lambda block: block["type"] != "tool_result")
    return {"role": message.role, "content": blocks}


def _without_searches(blocks: list[dict[str, Any]], tools: frozenset[str]) -> list[dict[str, Any]]:
    """The blocks of an answer without searches for tools missing from the ``tools`` of this request: the server refuses
    those. A later task of a conversation, or another model, may have other tools."""
    stale: set[str] = set()
    for block in blocks:
        if block["type"] == "tool_search_tool_result":
            content = record(block.get("content"))
            names = [record(each).get("tool_name") for each in records(content.get("tool_references"))]
            if not tools or not tools.issuperset(names):
                stale.add(block["tool_use_id"])
    if not stale:
        return blocks
    kept = [block for block in blocks if stale.isdisjoint([block.get("id"), block.get("tool_use_id")])]
    return kept or [{"type": "text", "text": "I searched for tools."}]


def _encode_part(part: Part, wire: Wire) -> dict[str, Any] | None:
    if isinstance(part, TextPart):
        if not part.text:
            return None
        if part.native is not None and part.native.dialect == DIALECT:
            return cast(dict[str, Any], part.native.data)
        return {"type": "text", "text": part.text}
    if isinstance(part, ToolResultPart):
        content = [block for each in part.parts if (block := _encode_part(each, wire)) is not None]
        block = {"type": "tool_result", "tool_use_id": part.call_id, "content": content or part.text}
        # the API refuses anything but text in an answer marked so; the text says by itself that it is an error
        marked = part.is_error and all([isinstance(each, TextPart) for each in part.parts])
        return {**block, "is_error": True} if marked else block
    if isinstance(part, ToolCallPart):
        call = {"type": "tool_use", "id": part.id, "name": wire.to_wire(part.name), "input": part.arguments}
        return {**call, **part.native.data} if part.native is not None and part.native.dialect == DIALECT else call
    if isinstance(part, ThinkingPart | OtherPart):
        native = part.native
        return cast(dict[str, Any], native.data) if native is not None and native.dialect == DIALECT else None
    return _encode_media(part)


def _encode_media(part: ImagePart | DocumentPart | AudioPart) -> dict[str, Any]:
    if isinstance(part, AudioPart):
        raise unsupported(DIALECT, "audio", "transcribe it first, or use a model of openai-chat:")
    if part.url is not None:
        source: dict[str, Any] = {"type": "url", "url": part.url}
    elif isinstance(part, DocumentPart) and part.media_type.startswith("text/"):
        text = base64.b64decode(part.data or "").decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data or ""}
    if isinstance(part, ImagePart):
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": part.name}


class _Block:
    """A streaming content block: its initial data, and the pieces that follow."""

    __slots__ = ("data", "kind", "pieces")

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.kind: str = data["type"]
        self.pieces: list[str] = []


class MessagesDecoder(BaseDecoder):
    """Decodes one answer; implements :class:`agentflow.providers.dialects.decoding.Decoder`."""

    stop_table = _STOP
    dialect = DIALECT

    def __init__(self, wire: Wire, *, provider: str, model: str) -> None:
        super().__init__(wire, provider=provider, model=model)
        self._message: dict[str, Any] = {}
        self._blocks: list[_Block] = []
        self._by_index: dict[int | None, _Block] = {}
        self._open: _Block | None = None
        self._usage: dict[str, Any] = {}
        self._stopped: dict[str, Any] = {}

    @property
    def partial(self) -> str:
        return "".join("".join(block.pieces) for block in self._blocks if block.kind == "text")

    def event(self, name: bytes, data: bytes, out: list[ModelDelta]) -> bool:
        if data == b"[DONE]":  # Sent by servers that put this API in front of another.
            self.done = True
            return True
        event = parse_json(data)
        kind = event.get("type") or name.decode("utf-8", "replace")
        if kind == "content_block_delta":
            self._delta(event, out)
        elif kind == "content_block_start":
            self._start(event, out)
        elif kind == "ping":
            return False
        elif kind == "message_start":
            self._message = event["message"]
            self._usage = dict(self._message.get("usage") or {})
        elif kind == "message_delta":
            self._stopped.update({key: value for key, value in event["delta"].items() if value is not None})
            self._usage = grown(self._usage, record(event.get("usage")))
        elif kind == "message_stop":
            self.done = True
        elif kind == "error" or event.get("error"):
            self._fail(event)
        elif kind != "content_block_stop":
            self.unknown += 1
        return True

    def _block(self, index: int | None) -> _Block:
        # Servers that imitate the API omit the index, which then means the block that began last.
        block = self._open if index is None else self._by_index.get(index)
        if block is None:
            raise ProtocolError(f"a delta for content block {index}, which has not started", code="provider/bad-event")
        return block

    def _delta(self, event: dict[str, Any], out: list[ModelDelta]) -> None:
        block = self._open
        index = event.get("index")
        if block is None or self._by_index.get(index) is not block:
            block = self._block(index)
        delta = event["delta"]
        kind = delta["type"]
        if kind == "text_delta":
            text = delta["text"]
            if text:
                if type(text) is not str:
                    text = text_of(text)
                block.pieces.append(text)
                out.append(ModelDelta(text))
        elif kind == "input_json_delta":
            text = argument_text(delta["partial_json"])
            if text:
                block.pieces.append(text)
                if block.kind == "tool_use":
                    out.append(ModelDelta(tool_call_id=block.data["id"], arguments=text))
        elif kind == "thinking_delta":
            text = text_of(delta["thinking"])
            if text:
                block.pieces.append(text)
                out.append(ModelDelta(thinking=text))
        elif kind == "signature_delta":
            block.data["signature"] = block.data.get("signature", "") + delta["signature"]
        elif kind == "citations_delta":
            block.data["citations"] = [*(block.data.get("citations") or []), delta["citation"]]
        else:
            self.unknown += 1

    def _start(self, event: dict[str, Any], out: list[ModelDelta]) -> None:
        block = self._open = _Block(event["content_block"])
        data = block.data
        # Some imitators give every block the same index: it then belongs to the latest block.
        self._by_index[event.get("index")] = block
        self._blocks.append(block)
        if block.kind == "tool_use":
            check_call_count(sum([each.kind == "tool_use" for each in self._blocks]))
            data["id"] = data.get("id") or self._wire.new_id()
            out.append(ModelDelta(tool_call_id=data["id"], tool_name=self._wire.back(data["name"])))
        elif block.kind in ("text", "thinking") and (text := text_of(data.get(block.kind))):
            block.pieces.append(text)
            out.append(ModelDelta(text) if block.kind == "text" else ModelDelta(thinking=text))

    def finish(self, framed: bool = True) -> ModelResponse:
        """The whole answer; see :class:`~agentflow.providers.dialects.decoding.Decoder`."""
        if "stop_reason" not in self._stopped:
            raise incomplete("there is no stop reason")
        if not self.done and not framed:
            raise incomplete("the connection closed without message_stop")
        for block in self._blocks:
            self._settle(block)
        content = [block.data for block in self._blocks]
        return self._response(self._message, content, self._stopped, self._usage)

    def _settle(self, block: _Block) -> None:
        """Complete the block's data, as in a plain answer."""
        text = "".join(block.pieces)
        if block.kind in ("text", "thinking"):
            block.data[block.kind] = text
        elif block.pieces:
            arguments, problem = parse_arguments(text, str(block.data.get("name", "the tool")))
            block.data["input"] = arguments
            if problem:
                block.data["_problem"] = problem

    def body(self, data: Any) -> ModelResponse:
        if data.get("type") == "error" or data.get("error"):
            self._fail(data)
        content = data.get("content")
        if not data.get("stop_reason"):
            raise incomplete("there is no stop reason", text_of(content))
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        return self._response(data, records(content), data, record(data.get("usage")))

    def _response(
        self, message: dict[str, Any], content: list[dict[str, Any]], stopped: dict[str, Any], usage: dict[str, Any]
    ) -> ModelResponse:
        parts = [self._part(block) for block in content]
        metadata: dict[str, Any] = {"id": message.get("id"), "stop_reason": stopped["stop_reason"]}
        for key in ("stop_sequence", "stop_details", "container"):
            if stopped.get(key) is not None:
                metadata[key] = stopped[key]
        metadata.update(tier(usage.get("service_tier")))
        stop = self._stop(stopped["stop_reason"], parts)
        calls = any([isinstance(part, ToolCallPart) for part in parts])
        return ModelResponse(
            unique_calls(parts, self._wire.new_id) if calls else tuple(parts),
            "tool_calls" if calls and stop == "end" else stop,
            _usage(usage),
            model=message.get("model") or "",
            unknown_events=self.unknown,
            metadata=metadata,
        )

    def _part(self, block: dict[str, Any]) -> Part:
        kind = block["type"]
        if kind == "text":
            cited = block.get("citations")
            citations = tuple([_citation(record(each)) for each in records(cited)])
            return TextPart(text_of(block["text"]), False, self._native(block) if cited else None, citations)
        if kind == "thinking":
            return ThinkingPart(block["thinking"], self._native(block))
        problem = block.pop("_problem", "")
        if kind == "tool_use":
            name = self._wire.back(block["name"])
            arguments: dict[str, Any] = {}
            if not problem:
                arguments, problem = parse_arguments(block["input"], name)
            return ToolCallPart(block.get("id") or "", name, arguments, self._issued(block, _PLAIN_TOOL_KEYS), problem)
        return OtherPart(self._native(block))


def _citation(data: dict[str, Any]) -> Citation:
    """A citation of any kind; a search result's source is an address or a path."""
    source = string(data.get("url")) or string(data.get("source"))
    remote = "://" in source
    return Citation(
        title=string(data.get("title")) or string(data.get("document_title")),
        url=source if remote else None,
        path=source if source and not remote else None,
        quote=string(data.get("cited_text")),
    )


def _usage(usage: dict[str, Any]) -> Usage:
    """Normalised usage: Anthropic's ``input_tokens`` exclude cache reads and writes."""
    read = count(usage.get("cache_read_input_tokens"))
    write = count(usage.get("cache_creation_input_tokens"))
    details = record(usage.get("output_tokens_details"))
    reasoning = count(details.get("reasoning_tokens")) or count(details.get("thinking_tokens"))
    long = count(record(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
    return Usage(
        count(usage.get("input_tokens")) + read + write,
        count(usage.get("output_tokens")),
        read,
        write,
        reasoning,
        1,
        cache_write_1h_tokens=min(long, write),
    )
