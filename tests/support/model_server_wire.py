"""Replies as the three wire formats put them: Anthropic Messages, OpenAI Chat Completions, OpenAI Responses."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Dialect = Literal["anthropic", "chat", "responses"]


@dataclass
class Reply:
    """One scripted answer.

    ``chunks`` overrides how ``text`` is cut into stream events (word by word otherwise). ``error`` is
    ``{"type": ..., "message": ...}``: with ``status`` 200 it is sent inside the stream, after the text. ``delay_s`` waits
    before the first byte, ``chunk_s`` between events, ``cut`` ends the stream after so many events. ``found`` are tools that the server's own search finds before the calls. ``pace`` is awaited
    before each event, with its index: a test that looks at what has come so far goes on when it has seen it.
    """

    text: str = ""
    thinking: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    stop: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    delay_s: float = 0.0
    chunk_s: float = 0.0
    chunks: list[str] | None = None
    cut: int | None = None
    pace: Callable[[int], Awaitable[None]] | None = None
    refusal: str = ""
    found: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, value: Any) -> Reply:
        """From text, a dict in the scripted provider's shape, or a Reply."""
        if isinstance(value, Reply):
            return value
        if isinstance(value, str):
            return cls(text=value)
        data = dict(value)
        if "stop_reason" in data:
            data["stop"] = data.pop("stop_reason")
        if isinstance(data.get("error"), str):
            data["error"] = {"type": "api_error", "message": data["error"]}
        if data.get("error") and "status" not in data:
            data["status"] = 500
        return cls(**data)

    def pieces(self) -> list[str]:
        """The text as it is cut up for streaming."""
        return self.chunks if self.chunks is not None else re.findall(r"\s*\S+\s*$|\s*\S+|\s+$", self.text)

    def calls(self) -> list[tuple[str, str, str]]:
        """(id, name, argument text) of each tool call."""
        found: list[tuple[str, str, str]] = []
        for index, call in enumerate(self.tool_calls):
            arguments = call.get("arguments", {})
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            found.append((call.get("id", f"call_{index + 1}"), call["name"], text))
        return found


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    body = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return f"{head}data: {body}\n\n".encode()


def error_body(dialect: Dialect, error: dict[str, Any]) -> dict[str, Any]:
    """The body of a failed request."""
    if dialect == "anthropic":
        return {"type": "error", "error": error, "request_id": "req_1"}
    return {"error": {"param": None, "code": error.get("code"), **error}}


def body(dialect: Dialect, reply: Reply, model: str) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    return {"anthropic": _anthropic_body, "chat": _chat_body, "responses": _responses_body}[dialect](reply, model)


def events(dialect: Dialect, reply: Reply, model: str) -> list[bytes]:
    """The answer to a streaming request, one element per event."""
    return {"anthropic": _anthropic_events, "chat": _chat_events, "responses": _responses_events}[dialect](reply, model)


# --- Anthropic Messages ----------------------------------------------------------------------------------------------


def _anthropic_stop(reply: Reply) -> str:
    if reply.refusal:
        return "refusal"
    return reply.stop or ("tool_use" if reply.tool_calls else "end_turn")


def _anthropic_usage(reply: Reply) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5, **reply.usage}
    return {
        "input_tokens": usage["input_tokens"],
        "cache_read_input_tokens": usage.get("cache_read", 0),
        "cache_creation_input_tokens": usage.get("cache_write", 0),
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.get("cache_write", 0) - usage.get("cache_write_1h", 0),
            "ephemeral_1h_input_tokens": usage.get("cache_write_1h", 0),
        },
        "output_tokens": usage["output_tokens"],
    }


def _anthropic_blocks(reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": "c2lnbmF0dXJl"})
    if reply.text or reply.chunks is not None or not (reply.tool_calls or blocks):
        blocks.append({"type": "text", "text": "".join(reply.pieces())})
    for call_id, name, text in reply.calls():
        try:
            arguments = json.loads(text)
        except ValueError:
            arguments = text
        blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
    return blocks


def _anthropic_body(reply: Reply, model: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _anthropic_blocks(reply),
        "stop_reason": _anthropic_stop(reply),
        "stop_sequence": None,
        "usage": _anthropic_usage(reply),
    }


def _anthropic_events(reply: Reply, model: str) -> list[bytes]:
    def event(kind: str, **data: Any) -> bytes:
        return sse({"type": kind, **data}, kind)

    usage = _anthropic_usage(reply)
    start = {
        **_anthropic_body(reply, model),
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    out = [event("message_start", message=start)]
    index = 0

    def block(first: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
        nonlocal index
        out.append(event("content_block_start", index=index, content_block=first))
        out.extend(event("content_block_delta", index=index, delta=delta) for delta in deltas)
        out.append(event("content_block_stop", index=index))
        index += 1

    if reply.thinking:
        block(
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": piece} for piece in _halves(reply.thinking)]
            + [{"type": "signature_delta", "signature": "c2lnbmF0dXJl"}],
        )
    if reply.text or reply.chunks is not None or not (reply.tool_calls or index):
        block({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in reply.pieces()])
    for call_id, name, text in reply.calls():
        block(
            {"type": "tool_use", "id": call_id, "name": name, "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_halves(text)]],
        )
    if reply.error:
        out.append(sse({"type": "error", "error": reply.error}, "error"))
        return out
    out.append(
        event(
            "message_delta",
            delta={"stop_reason": _anthropic_stop(reply), "stop_sequence": None},
            usage={"output_tokens": usage["output_tokens"]},
        )
    )
    out.append(event("message_stop"))
    return out


# --- OpenAI Chat Completions -----------------------------------------------------------------------------------------


def _chat_finish(reply: Reply) -> str:
    return reply.stop or ("tool_calls" if reply.tool_calls else "stop")


def _openai_counts(reply: Reply) -> tuple[int, int, int, int]:
    usage = {"input_tokens": 10, "output_tokens": 5, **reply.usage}
    read = usage.get("cache_read", 0)
    return usage["input_tokens"] + read, usage["output_tokens"], read, usage.get("reasoning", 0)


def _chat_usage(reply: Reply) -> dict[str, Any]:
    given, made, read, reasoning = _openai_counts(reply)
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": read},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def _chat_body(reply: Reply, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.pieces()) or None}
    if reply.refusal:
        message["refusal"] = reply.refusal
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
            for call_id, name, text in reply.calls()
        ]
    return {
        "id": "chatcmpl_1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _chat_finish(reply)}],
        "usage": _chat_usage(reply),
    }


def _chat_events(reply: Reply, model: str) -> list[bytes]:
    def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        head = {"id": "chatcmpl_1", "object": "chat.completion.chunk", "created": 1, "model": model}
        return sse({**head, "choices": choices, **more})

    out = [chunk({"role": "assistant", "content": ""})]
    out.extend(chunk({"reasoning_content": piece}) for piece in _halves(reply.thinking))
    out.extend(chunk({"content": piece}) for piece in reply.pieces())
    out.extend(chunk({"refusal": piece}) for piece in _halves(reply.refusal))
    for index, (call_id, name, text) in enumerate(reply.calls()):
        first = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        out.append(chunk({"tool_calls": [first]}))
        for piece in _halves(text):
            out.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    if reply.error:
        out.append(sse({"error": reply.error}))
        return out
    out.append(chunk({}, _chat_finish(reply)))
    out.append(chunk(None, usage=_chat_usage(reply)))
    out.append(b"data: [DONE]\n\n")
    return out


# --- OpenAI Responses ------------------------------------------------------------------------------------------------


def _responses_items(reply: Reply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.thinking:
        items.append(
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": reply.thinking}],
                "encrypted_content": "ZW5jcnlwdGVk",
            }
        )
    content: list[dict[str, Any]] = []
    if reply.refusal:
        content.append({"type": "refusal", "refusal": reply.refusal})
    elif reply.text or reply.chunks is not None or not reply.tool_calls:
        content.append({"type": "output_text", "text": "".join(reply.pieces()), "annotations": []})
    if content:
        items.append({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content})
    for index, (call_id, name, text) in enumerate(reply.calls()):
        items.append(
            {
                "id": f"fc_{index + 1}",
                "type": "function_call",
                "status": "completed",
                "call_id": call_id,
                "name": name,
                "arguments": text,
            }
        )
    return items


def _responses_body(reply: Reply, model: str) -> dict[str, Any]:
    given, made, read, reasoning = _openai_counts(reply)
    incomplete = reply.stop in ("max_output_tokens", "content_filter")
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if incomplete else "completed",
        "error": None,
        "incomplete_details": {"reason": reply.stop} if incomplete else None,
        "model": model,
        "output": _responses_items(reply),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": given + made,
        },
    }


def _responses_events(reply: Reply, model: str) -> list[bytes]:
    out: list[bytes] = []

    def event(kind: str, **data: Any) -> None:
        out.append(sse({"type": kind, "sequence_number": len(out), **data}, kind))

    whole = _responses_body(reply, model)
    opening = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    event("response.created", response=opening)
    event("response.in_progress", response=opening)
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "reasoning":
            event("response.output_item.added", output_index=index, item={**item, "summary": []})
            for piece in _halves(reply.thinking):
                event("response.reasoning_summary_text.delta", **place, summary_index=0, delta=piece)
        elif item["type"] == "message":
            event("response.output_item.added", output_index=index, item={**item, "content": []})
            part = item["content"][0]
            if part["type"] == "refusal":
                for piece in _halves(reply.refusal):
                    event("response.refusal.delta", **place, content_index=0, delta=piece)
            else:
                event("response.content_part.added", **place, content_index=0, part={**part, "text": ""})
                for piece in reply.pieces():
                    event("response.output_text.delta", **place, content_index=0, delta=piece, logprobs=[])
                event("response.output_text.done", **place, content_index=0, text=part["text"], logprobs=[])
                event("response.content_part.done", **place, content_index=0, part=part)
        else:
            event(
                "response.output_item.added",
                output_index=index,
                item={**item, "arguments": "", "status": "in_progress"},
            )
            for piece in _halves(item["arguments"]):
                event("response.function_call_arguments.delta", **place, delta=piece)
            event("response.function_call_arguments.done", **place, arguments=item["arguments"], name=item["name"])
        event("response.output_item.done", output_index=index, item=item)
    if reply.error:
        event(
            "error", code=reply.error.get("code") or reply.error.get("type"), message=reply.error["message"], param=None
        )
        return out
    event("response.incomplete" if whole["status"] == "incomplete" else "response.completed", response=whole)
    return out
