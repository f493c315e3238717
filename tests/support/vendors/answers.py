"""What a model says, as each vendor writes it: with its own ids, signatures and encrypted blocks, which the vendor remembers."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tests.support.cloud_server import chunk as frame
from tests.support.model_server_wire import Reply, sse
from tests.support.vendors.view import Asked, Issued


def answer(asked: Asked, reply: Reply) -> tuple[str, list[bytes]]:
    """The content type and the body of an answer, in the pieces of a stream if one was asked for."""
    asked.memory.number += 1
    make = {"chat": _chat, "responses": _responses, "anthropic": _anthropic}[asked.vendor.dialect]
    return make(asked, reply, f"{asked.vendor.name}:{asked.memory.number}")


def _sealed(asked: Asked, seed: str, block: dict[str, Any]) -> str:
    """A new signature, or other opaque text, and remember what it belongs to."""
    seal = base64.b64encode(hashlib.sha256(f"seal of {seed}".encode()).digest() * 2).decode()
    asked.memory.sealed[seal] = block
    return seal


def _calls(asked: Asked, reply: Reply, seed: str) -> list[tuple[str | None, str, str]]:
    """(id, name, argument text) of each call; a reply may state the id."""
    made: list[tuple[str | None, str, str]] = []
    for n, call in enumerate(reply.tool_calls):
        arguments = call.get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        made.append((call.get("id") or asked.vendor.call_id(f"{seed}:{n}", call["name"], n), call["name"], text))
    return made


def _json(data: Mapping[str, Any]) -> tuple[str, list[bytes]]:
    return "application/json", [json.dumps(data).encode()]


# --- Chat Completions -----------------------------------------------------------------------------------------------


def _chat(asked: Asked, reply: Reply, seed: str) -> tuple[str, list[bytes]]:
    calls = _calls(asked, reply, seed)
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    match asked.vendor.thinks:
        case "reasoning_content" | "reasoning" as key if reply.thinking:
            message[key] = reply.thinking
        case "details" if reply.thinking:
            block = {"type": "reasoning.text", "text": reply.thinking, "format": "anthropic-claude-v1", "index": 0}
            block["signature"] = _sealed(asked, seed, block)
            message["reasoning"], message["reasoning_details"] = reply.thinking, [block]
        case "signed calls" if reply.thinking and not calls:
            message["extra_content"] = {"google": {"thought_signature": _sealed(asked, seed, {})}}
        case _:
            pass
    for n, (call_id, name, text) in enumerate(calls):
        call: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": text}}
        if call_id is not None:
            call["id"] = call_id
        if asked.vendor.thinks == "signed calls" and n == 0:
            call["extra_content"] = {
                "google": {"thought_signature": _sealed(asked, seed, {"function": call["function"]})}
            }
        message.setdefault("tool_calls", []).append(call)
    asked.memory.answers.append(Issued([message], [each[0] for each in calls if each[0] is not None]))
    finish = reply.stop or ("tool_calls" if calls else "stop")
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    head = {"id": f"chatcmpl-{asked.memory.number}", "created": 1, "model": asked.body.get("model", "")}
    if not asked.streams:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return _json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    head["object"] = "chat.completion.chunk"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [
        {key: message[key]}
        for key in ("reasoning_content", "reasoning", "reasoning_details", "extra_content")
        if key in message
    ]
    deltas += [{"content": piece} for piece in reply.pieces()]
    for n, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        half = len(function["arguments"]) // 2
        deltas.append(
            {"tool_calls": [{**call, "index": n, "function": {**function, "arguments": function["arguments"][:half]}}]}
        )
        deltas.append({"tool_calls": [{"index": n, "function": {"arguments": function["arguments"][half:]}}]})
    events = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if (asked.body.get("stream_options") or {}).get("include_usage") or asked.vendor.name in ("mistral", "gemini"):
        events.append({**head, "choices": [], "usage": usage})
    return "text/event-stream", [*map(sse, events), b"data: [DONE]\n\n"]


# --- Responses ------------------------------------------------------------------------------------------------------


def _responses(asked: Asked, reply: Reply, seed: str) -> tuple[str, list[bytes]]:
    items: list[dict[str, Any]] = []
    number = asked.memory.number
    if reply.thinking:
        item = {
            "id": f"rs_{number:048}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": reply.thinking}],
        }
        if "reasoning.encrypted_content" in (asked.body.get("include") or ()):
            item["encrypted_content"] = _sealed(asked, seed, item)
        items.append(item)
    if reply.found:
        search = {"type": "tool_search_call", "execution": "server", "call_id": None, "status": "completed"}
        items.append({**search, "id": f"tsc_{number:048}", "arguments": {"paths": reply.found}})
        found = [tool for _, tool in asked.tools if tool["name"] in reply.found]
        output = {"type": "tool_search_output", "execution": "server", "call_id": None, "status": "completed"}
        items.append({**output, "id": f"tso_{number:048}", "tools": found})
    if reply.text or not reply.tool_calls:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        items.append(
            {
                "id": f"msg_{number:048}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    calls = _calls(asked, reply, seed)
    for n, (call_id, name, text) in enumerate(calls):
        item_id = f"fc_{number:044}{n:04}"
        items.append(
            {
                "id": item_id,
                "type": "function_call",
                "status": "completed",
                "call_id": call_id,
                "name": name,
                "arguments": text,
            }
        )
    asked.memory.answers.append(Issued(items, [str(each[0]) for each in calls]))
    cut = reply.stop == "max_output_tokens"
    whole = {
        "id": f"resp_{number}", "object": "response", "created_at": 1, "error": None, "model": asked.body.get("model", ""),
        "status": "incomplete" if cut else "completed", "incomplete_details": {"reason": reply.stop} if cut else None, "output": items,
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    }  # fmt: skip
    if not asked.streams:
        return _json(whole)
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "reasoning":
            events.append(
                {"type": "response.output_item.added", "output_index": index, "item": {**item, "summary": []}}
            )
            events.append(
                {"type": "response.reasoning_summary_text.delta", **place, "summary_index": 0, "delta": reply.thinking}
            )
        elif item["type"] == "message":
            events.append(
                {"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}}
            )
            events += [
                {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece}
                for piece in reply.pieces()
            ]
        else:
            events.append(
                {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}}
            )
            events.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
            events.append({"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.incomplete" if cut else "response.completed", "response": whole})
    return "text/event-stream", [sse(event, event["type"]) for event in events]


# --- Anthropic Messages, as server-sent events and as AWS frames ----------------------------------------------------


def _anthropic(asked: Asked, reply: Reply, seed: str) -> tuple[str, list[bytes]]:
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        block = {"type": "thinking", "thinking": reply.thinking}
        blocks.append({**block, "signature": _sealed(asked, seed, block)})
        asked.memory.sealed[blocks[0]["signature"]] = blocks[0]
    if reply.text or not (reply.tool_calls or blocks):
        blocks.append({"type": "text", "text": reply.text})
    if reply.found:
        search_id = f"srvtoolu_01{asked.memory.number:022}"
        found = [{"type": "tool_reference", "tool_name": name} for name in reply.found]
        blocks.append(
            {"type": "server_tool_use", "id": search_id, "name": "tool_search_tool_bm25", "input": {"query": "x"}}
        )
        result = {"type": "tool_search_tool_search_result", "tool_references": found}
        blocks.append({"type": "tool_search_tool_result", "tool_use_id": search_id, "content": result})
    calls = _calls(asked, reply, seed)
    for call_id, name, text in calls:
        try:
            given = json.loads(text)
        except ValueError:
            given = text
        blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
    asked.memory.answers.append(Issued(blocks, [str(each[0]) for each in calls]))
    stop = reply.stop or ("tool_use" if calls else "end_turn")
    whole = {
        "id": f"msg_01{asked.memory.number}", "type": "message", "role": "assistant", "model": asked.body.get("model", "claude"),
        "content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip
    if not asked.streams:
        return _json(whole)
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for index, block in enumerate(blocks):
        deltas: list[dict[str, Any]] = []
        if block["type"] == "text":
            first = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in reply.pieces()]
        elif block["type"] == "thinking":
            first = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif block["type"] == "tool_search_tool_result":
            first = block
        elif block["type"] == "server_tool_use":
            first = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        else:
            first = {**block, "input": {}}
            said = reply.tool_calls[index - len(blocks)].get("arguments", {})
            deltas = [{"type": "input_json_delta", "partial_json": said if isinstance(said, str) else json.dumps(said)}]
        events.append({"type": "content_block_start", "index": index, "content_block": first})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 5}}
    )
    events.append({"type": "message_stop"})
    if asked.vendor.name == "bedrock":
        return "application/vnd.amazon.eventstream", [frame(event) for event in events]
    return "text/event-stream", [sse(event, event["type"]) for event in events]
