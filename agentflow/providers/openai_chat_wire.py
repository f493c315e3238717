"""OpenAI Chat Completions: requests as JSON, answers from chunks. Also what llama.cpp, vLLM and Ollama speak.

https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

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
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from agentflow.providers import faults
from agentflow.providers import openai_wire as common
from agentflow.providers.wire import (
    ToolNames,
    dump_json,
    parse_arguments,
    parse_json,
    record,
    records,
    unique_calls,
    unsupported,
)

DIALECT = "openai.chat"
_STOP: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_THINKING_KEYS = ("reasoning_content", "reasoning")


def encode(request: ModelRequest, names: ToolNames, max_tokens_field: str) -> dict[str, Any]:
    """The request body, ``stream`` aside."""
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        encode_message(message, names, messages)
    body: dict[str, Any] = {"model": request.model, "messages": messages}
    if request.max_output_tokens is not None:
        body[max_tokens_field] = request.max_output_tokens
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": names.to_wire(tool.name),
                    "description": tool.description,
                    "parameters": tool.input_schema,
                    **({"strict": True} if tool.strict else {}),
                },
            }
            for tool in request.tools
        ]
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "function": {"name": names.to_wire(request.tool_choice)}}
    if request.output_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": common.schema_format(request.output_schema)}
    return body


def encode_message(message: Message, names: ToolNames, out: list[dict[str, Any]]) -> None:
    """Append one message: tool results become messages of their own. Blocks of other dialects are dropped."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is TextPart:
        out.append({"role": message.role, "content": parts[0].text})
    elif message.role == "user":
        _encode_user(parts, out)
    else:
        out.append(_encode_assistant(parts, names))


def _encode_user(parts: tuple[Part, ...], out: list[dict[str, Any]]) -> None:
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            out.append({"role": "tool", "tool_call_id": part.call_id, "content": part.text})
        elif isinstance(part, TextPart):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, ImagePart):
            content.append({"type": "image_url", "image_url": {"url": part.url or common.data_url(part)}})
        elif isinstance(part, DocumentPart):
            if part.url is not None:
                raise unsupported(DIALECT, "documents by URL", "send the document's data, or use openai: or anthropic:")
            content.append({"type": "file", "file": {"filename": part.name, "file_data": common.data_url(part)}})
    if len(content) == 1 and content[0]["type"] == "text":
        out.append({"role": "user", "content": content[0]["text"]})
    elif content:
        out.append({"role": "user", "content": content})


def _encode_assistant(parts: tuple[Part, ...], names: ToolNames) -> dict[str, Any]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    made: dict[str, Any] = {"role": "assistant", "content": None}
    for part in parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ToolCallPart):
            arguments = dump_json(part.arguments).decode()
            function = {"name": names.to_wire(part.name), "arguments": arguments}
            calls.append({"id": part.id, "type": "function", "function": function})
        elif isinstance(part, ThinkingPart) and part.native is not None and part.native.dialect == DIALECT:
            made.update(part.native.data)
    if texts:
        made["content"] = "".join(texts)
    if calls:
        made["tool_calls"] = calls
    elif not texts:
        made["content"] = ""
    return made


class _PendingCall:
    """A tool call while it streams."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []


class ChatDecoder:
    """Reads one answer; implements :class:`agentflow.providers.wire.Decoder`."""

    def __init__(self, names: ToolNames, *, provider: str, model: str) -> None:
        self.done = False
        self.unknown = 0
        self._names = names
        self._provider = provider
        self._model = model
        self._head: dict[str, Any] = {}
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._thinking_key = _THINKING_KEYS[0]
        self._refusal: list[str] = []
        self._calls: list[_PendingCall] = []
        self._by_index: dict[int, _PendingCall] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}

    @property
    def partial(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def event(self, name: bytes, data: bytes, out: list[ModelDelta]) -> bool:
        """Take one event."""
        if data == b"[DONE]":
            self.done = True
            return True
        event = parse_json(data)
        choices = event.get("choices")
        if choices:
            self._choice(choices[0], out)
            self.unknown += len(choices) > 1
        elif "error" in event:
            self._fail(event)
        elif choices is None and not event.get("usage"):
            self.unknown += 1
        if not self._head:
            self._head = event
        usage = event.get("usage")
        if usage:
            self._usage = usage
        return True

    def _choice(self, choice: dict[str, Any], out: list[ModelDelta]) -> None:
        if choice.get("finish_reason"):
            self._finish = choice["finish_reason"]
        delta = choice.get("delta")
        if not delta:
            return
        text = delta.get("content")
        if text:
            self._text.append(_string(text))
            out.append(ModelDelta(text))
        calls = delta.get("tool_calls")
        if calls:
            for call in calls:
                self._call(call, out)
        if len(delta) > 1 or text is None:
            self._rest(delta, out)

    def _rest(self, delta: dict[str, Any], out: list[ModelDelta]) -> None:
        for key in _THINKING_KEYS:
            text = delta.get(key)
            if text and isinstance(text, str):
                self._thinking_key = key
                self._thinking.append(text)
                out.append(ModelDelta(thinking=text))
                break
        refusal = delta.get("refusal")
        if refusal:
            self._refusal.append(_string(refusal))

    def _call(self, data: dict[str, Any], out: list[ModelDelta]) -> None:
        index, call_id = data.get("index"), data.get("id") or ""
        function = record(data.get("function"))
        call = self._find(index, call_id)
        if call is None:
            call = _PendingCall(call_id or f"call_{len(self._calls) + 1}", function.get("name") or "")
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
            out.append(ModelDelta(tool_call_id=call.id, tool_name=self._names.back(call.name)))
        elif not call.name and function.get("name"):
            call.name = function["name"]
        text = function.get("arguments")
        if text:
            call.pieces.append(_string(text))
            out.append(ModelDelta(tool_call_id=call.id, arguments=text))

    def _find(self, index: int | None, call_id: str) -> _PendingCall | None:
        """Which call a delta belongs to. The id decides where there is one: servers send null and constant indexes."""
        if index is not None:
            call = self._by_index.get(index)
            return call if call is None or not call_id or call.id == call_id else None
        if not call_id:
            return self._calls[-1] if self._calls else None
        return next((call for call in self._calls if call.id == call_id), None)

    def _fail(self, data: dict[str, Any]) -> None:
        kind, said = faults.describe(data)
        raise faults.from_stream(kind, said, provider=self._provider, model=self._model, request_id=None)

    def finish(self) -> ModelResponse:
        """The whole answer. Raises IncompleteStream without ``[DONE]`` and a finish reason."""
        if not self.done or self._finish is None:
            raise IncompleteStream("the stream ended before the model had finished")
        calls = [(call.id, call.name, "".join(call.pieces)) for call in self._calls]
        return self._response("".join(self._text), "".join(self._thinking), "".join(self._refusal), calls)

    def body(self, data: Any) -> ModelResponse:
        """The answer to a plain request."""
        choices = cast(list[dict[str, Any]], data.get("choices") or [])
        if not choices:
            if data.get("error"):
                self._fail(data)
            raise IncompleteStream("the answer has no choices")
        message = choices[0]["message"]
        text = message.get("content") or ""
        self._finish = choices[0].get("finish_reason")
        if self._finish is None:
            raise IncompleteStream("the answer has no finish reason", partial=_string(text))
        self._head, self._usage = data, data.get("usage") or {}
        self._thinking_key = next((key for key in _THINKING_KEYS if message.get(key)), _THINKING_KEYS[0])
        calls = [
            (call.get("id") or "", call["function"]["name"], call["function"].get("arguments") or "")
            for call in records(message.get("tool_calls"))
            if call.get("function")
        ]
        return self._response(_string(text), message.get(self._thinking_key) or "", message.get("refusal") or "", calls)

    def _response(self, text: str, thinking: str, refusal: str, calls: list[tuple[str, str, str]]) -> ModelResponse:
        parts: list[Part] = []
        if thinking:
            parts.append(ThinkingPart(thinking, Native(DIALECT, {self._thinking_key: thinking})))
        if text or refusal:
            parts.append(TextPart(text + refusal))
        for call_id, wire_name, argument_text in calls:
            name = self._names.back(wire_name)
            arguments, problem = parse_arguments(argument_text, name)
            parts.append(ToolCallPart(call_id, name, arguments, None, problem))
        finish = self._finish or ""
        stop = _STOP.get(finish, "end")
        if refusal:
            stop = "refusal"
        elif calls and stop == "end":
            stop = "tool_calls"  # Local servers finish with "stop" after tool calls.
        usage = self._usage
        return ModelResponse(
            unique_calls(parts) if calls else tuple(parts),
            stop,
            common.usage(
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
                usage.get("prompt_tokens_details"),
                usage.get("completion_tokens_details"),
            ),
            model=self._head.get("model") or "",
            unknown_events=self.unknown,
            metadata={"id": self._head.get("id"), "stop_reason": finish},
        )


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value
