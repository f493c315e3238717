"""OpenAI Responses: requests as JSON, answers from events.

https://platform.openai.com/docs/api-reference/responses-streaming. Nothing is stored with the provider (``store`` false):
the conversation is ours, and reasoning travels encrypted.
"""

from __future__ import annotations

import re
from typing import Any, cast

from agentflow.core.errors import IncompleteStream
from agentflow.core.messages import (
    DocumentPart,
    ImagePart,
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    Native,
    OtherPart,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from agentflow.providers import faults
from agentflow.providers import openai_wire as common
from agentflow.providers.wire import ToolNames, dump_json, parse_arguments, parse_json, record, unique_calls

DIALECT = "openai.responses"
_REASONS = re.compile(r"o\d|codex|gpt-(?!3|4)").match
_INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_QUIET = re.compile(
    r"response\.(created|queued|in_progress|.*\.(done|added|in_progress|completed|searching|generating|interpreting"
    r"|failed|partial_image|compacting)|audio\..*|code_interpreter_call_code\.delta|mcp_call_arguments\.delta"
    r"|custom_tool_call_input\.delta|shell_call.*)"
).fullmatch
"""Events whose content comes again in the item or the final response."""


def encode(request: ModelRequest, names: ToolNames) -> dict[str, Any]:
    """The request body, ``stream`` aside."""
    items: list[dict[str, Any]] = []
    for message in request.messages:
        encode_message(message, names, items)
    body: dict[str, Any] = {"model": request.model, "input": items, "store": False}
    if _REASONS(request.model):
        body["include"] = ["reasoning.encrypted_content"]
    if request.system:
        body["instructions"] = request.system
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": names.to_wire(tool.name),
                "description": tool.description,
                "parameters": tool.input_schema,
                "strict": tool.strict,
            }
            for tool in request.tools
        ]
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "name": names.to_wire(request.tool_choice)}
    if request.output_schema is not None:
        body["text"] = {"format": {"type": "json_schema", **common.schema_format(request.output_schema)}}
    return body


def encode_message(message: Message, names: ToolNames, out: list[dict[str, Any]]) -> None:
    """Append the items of one message. Items of this dialect are replayed verbatim, blocks of others dropped."""
    content: list[dict[str, Any]] = []
    user = message.role == "user"

    def flush() -> None:
        if content:
            only = content[0]["text"] if len(content) == 1 and "text" in content[0] else list(content)
            out.append({"role": message.role, "content": only})
            content.clear()

    for part in message.parts:
        native = getattr(part, "native", None)
        if native is not None and native.dialect == DIALECT:
            flush()
            out.append(native.data)
        elif isinstance(part, TextPart):
            content.append({"type": "input_text" if user else "output_text", "text": part.text})
        elif isinstance(part, ToolCallPart):
            flush()
            arguments = dump_json(part.arguments).decode()
            call = {"type": "function_call", "call_id": part.id, "name": names.to_wire(part.name)}
            out.append({**call, "arguments": arguments})
        elif isinstance(part, ToolResultPart):
            flush()
            out.append({"type": "function_call_output", "call_id": part.call_id, "output": part.text})
        elif isinstance(part, ImagePart):
            content.append({"type": "input_image", "detail": "auto", "image_url": part.url or common.data_url(part)})
        elif isinstance(part, DocumentPart):
            file = {"file_url": part.url} if part.url else {"filename": part.name, "file_data": common.data_url(part)}
            content.append({"type": "input_file", **file})
    flush()


class ResponsesDecoder:
    """Reads one answer; implements :class:`agentflow.providers.wire.Decoder`."""

    def __init__(self, names: ToolNames, *, provider: str, model: str) -> None:
        self.done = False
        self.unknown = 0
        self._names = names
        self._provider = provider
        self._model = model
        self._call_ids: dict[str | int, str] = {}
        self._last_call = ""
        self._items: dict[str | int, dict[str, Any]] = {}
        self._text: list[str] = []
        self._final: dict[str, Any] = {}

    @property
    def partial(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def event(self, name: bytes, data: bytes, out: list[ModelDelta]) -> bool:
        """Take one event."""
        if data == b"[DONE]":
            return True
        event = parse_json(data)
        kind: str = event["type"]
        if kind == "response.output_text.delta":
            text: str = event["delta"]
            if text:
                self._text.append(text)
                out.append(ModelDelta(text))
        elif kind == "response.function_call_arguments.delta":
            out.append(ModelDelta(tool_call_id=self._call_id(event), arguments=event["delta"]))
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            out.append(ModelDelta(thinking=event["delta"]))
        elif kind == "response.output_item.added":
            self._added(event, out)
        elif kind == "response.output_item.done":
            self._items[self._key(event, event["item"].get("id"))] = event["item"]
        elif kind in ("response.completed", "response.incomplete"):
            self._final = event["response"]
            self.done = True
        elif kind in ("error", "response.failed"):
            self._fail(event)
        elif kind == "response.refusal.delta":
            self._text.append(event["delta"])
        elif kind in ("ping", "keepalive"):
            return False
        elif not _QUIET(kind):
            self.unknown += 1
        return True

    def _key(self, event: dict[str, Any], item_id: str | None) -> str | int:
        if item_id:
            return item_id
        index = event.get("output_index")
        return index if index is not None else len(self._items)

    def _added(self, event: dict[str, Any], out: list[ModelDelta]) -> None:
        item = event["item"]
        if item["type"] != "function_call":
            return
        call_id: str = item.get("call_id") or item.get("id") or ""
        if item.get("id"):
            self._call_ids[item["id"]] = call_id
        if event.get("output_index") is not None:
            self._call_ids[event["output_index"]] = call_id
        self._last_call = call_id
        out.append(ModelDelta(tool_call_id=call_id, tool_name=self._names.back(item["name"])))

    def _call_id(self, event: dict[str, Any]) -> str:
        for key in (event.get("item_id"), event.get("output_index")):
            found = self._call_ids.get(key) if key is not None else None
            if found is not None:
                return found
        return self._last_call

    def _fail(self, event: dict[str, Any]) -> None:
        inner = event.get("response") or event
        kind, said = faults.describe(inner)
        raise faults.from_stream(kind, said, provider=self._provider, model=self._model, request_id=None)

    def finish(self) -> ModelResponse:
        """The whole answer. Raises IncompleteStream without ``response.completed`` or ``response.incomplete``."""
        if not self.done:
            raise IncompleteStream("the stream ended before the model had finished")
        if not self._final.get("output") and self._items:
            self._final = {**self._final, "output": list(self._items.values())}
        return self.body(self._final)

    def body(self, data: Any) -> ModelResponse:
        """The answer to a plain request, or the final state of a streamed one."""
        status = data.get("status")
        if status == "failed" or (status is None and data.get("error")):
            self._fail(data)
        reason: str = record(data.get("incomplete_details")).get("reason") or ""
        if status not in ("completed", "incomplete"):
            raise IncompleteStream(f"the response is {status or 'without a status'}, not completed")
        parts: list[Part] = []
        refused = False
        for item in cast(list[dict[str, Any]], data["output"]):
            part, refusal = self._part(item)
            refused = refused or refusal
            parts.append(part)
        calls = any(isinstance(part, ToolCallPart) for part in parts)
        stop: StopReason = "tool_calls" if calls else "end"
        if status == "incomplete":
            stop = _INCOMPLETE.get(reason, "max_tokens")
        elif refused:
            stop = "refusal"
        usage = record(data.get("usage"))
        return ModelResponse(
            unique_calls(parts) if calls else tuple(parts),
            stop,
            common.usage(
                usage.get("input_tokens"),
                usage.get("output_tokens"),
                usage.get("input_tokens_details"),
                usage.get("output_tokens_details"),
            ),
            model=data.get("model") or "",
            unknown_events=self.unknown,
            metadata={"id": data.get("id"), "stop_reason": reason or status},
        )

    def _part(self, item: dict[str, Any]) -> tuple[Part, bool]:
        """The neutral form of one output item, and whether it refuses."""
        kind = item["type"]
        native = Native(DIALECT, item)
        if kind == "message":
            content = cast(list[dict[str, Any]], item["content"])
            text = "".join(piece.get("text") or piece.get("refusal") or "" for piece in content)
            return TextPart(text, native=native), any(piece.get("type") == "refusal" for piece in content)
        if kind == "function_call":
            name = self._names.back(item["name"])
            arguments, problem = parse_arguments(item.get("arguments") or "", name)
            return ToolCallPart(item.get("call_id") or item.get("id") or "", name, arguments, native, problem), False
        if kind == "reasoning":
            pieces = cast(list[dict[str, Any]], item.get("summary") or item.get("content") or [])
            return ThinkingPart("\n".join(piece.get("text") or "" for piece in pieces), native), False
        return OtherPart(native), False
