"""OpenAI Chat Completions: encodes requests as JSON, decodes answers from chunks. llama.cpp, vLLM and Ollama speak it.

https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import jiter

from agentflow.core.data.errors import clip
from agentflow.core.data.messages import (
    AudioPart,
    ContentPart,
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
)
from agentflow.core.data.provider_errors import ContextWindowExceeded, Overloaded, Refused, ServerError
from agentflow.core.data.values import to_json
from agentflow.lib.schema.json_types import has_too_many_values
from agentflow.providers.dialects import openai_wire as common
from agentflow.providers.dialects import wire_faults
from agentflow.providers.dialects.decoding import (
    NOTHING,
    BaseDecoder,
    StopTable,
    argument_text,
    check_call_count,
    differs,
    grown,
    incomplete,
    merged,
    parse_arguments,
    text_of,
    thoughts_of,
    tier,
    unique_calls,
)
from agentflow.providers.dialects.schema_translation import output_form, system_text
from agentflow.providers.dialects.wire import Wire, parse_json, record, records, string, unsupported

DIALECT = "openai.chat"
_STOP: StopTable = MappingProxyType(
    {
        "stop": "end",
        "tool_calls": "tool_calls",
        "function_call": "tool_calls",
        "length": "max_tokens",
        "content_filter": "refusal",
        # Sent by other servers that speak the dialect.
        "eos": "end",
        "eos_token": "end",
        "end_turn": "end",
        "stop_sequence": "stop_sequence",
        "tool_use": "tool_calls",
        "max_tokens": "max_tokens",
        "error": ServerError,
        "abort": ServerError,
        "network_error": ServerError,
        "insufficient_system_resource": Overloaded,
        "malformed_function_call": ServerError,
        "unexpected_tool_call": ServerError,
        "sensitive": Refused,
        "safety": Refused,
        "prohibited_content": Refused,
        "blocklist": Refused,
        "spii": Refused,
        "recitation": Refused,
        "image_safety": Refused,
        "model_length": ContextWindowExceeded,
    }
)
_THINKING_KEYS = ("reasoning_content", "reasoning")
_READ = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "images", *_THINKING_KEYS})
"""Keys read from a message, or from a piece of it; others go back to the server as they came."""
_READ_OF_CALL = frozenset({"id", "type", "index", "function"})
_READ_OF_FUNCTION = frozenset({"name", "arguments"})
_MOST_LOOKS = 8
_RECEIVED = "(received)"
"""Said by the model between the results of tools and the user, where the user may not follow them."""


def encode(request: ModelRequest, wire: Wire, streaming: bool) -> dict[str, Any]:
    """The request body, without ``stream``."""
    messages: list[dict[str, Any]] = []
    how, form = output_form(request, wire, streaming)
    for message in wire.messages:
        encode_message(message, wire, messages)
    if system := system_text(request, wire, form):
        _put_system(system, wire.traits.system_role, messages)
    body: dict[str, Any] = {"model": request.model, "messages": messages}
    if request.max_output_tokens is not None:
        body[wire.traits.limit_field] = max(request.max_output_tokens, wire.traits.least_limit)
    if request.tools:
        body["tools"] = [_tool(*common.function(tool, wire)) for tool in request.tools]
        mode, name = common.tool_choice(request, wire)
        if mode or name:
            body["tool_choice"] = mode or {"type": "function", "function": {"name": name}}
    if request.provider_tools:
        body["tools"] = [*body.get("tools", ()), *request.provider_tools]
    if (effort := common.effort(request)) is not None:
        body["reasoning_effort"] = effort
    if form is not None:
        body["response_format"] = {"type": how, how: common.schema_format(form, wire)}
    elif how == "json_object":
        body["response_format"] = {"type": how}
    return body


def _tool(function: dict[str, Any], strict: bool) -> dict[str, Any]:
    return {"type": "function", "function": {**function, "strict": True} if strict else function}


def _put_system(text: str, role: str, messages: list[dict[str, Any]]) -> None:
    """Put the system text first: as a message, or at the beginning of the user's message if it has no role."""
    if role != "user" or not messages or messages[0]["role"] != "user":
        messages.insert(0, {"role": role, "content": text})
        return
    said = messages[0]["content"]
    joined = f"{text}\n\n{said}" if isinstance(said, str) else [{"type": "text", "text": text}, *said]
    messages[0] = {"role": "user", "content": joined}


def encode_message(message: Message, wire: Wire, out: list[dict[str, Any]]) -> None:
    """Append one message: tool results become separate messages. Blocks of other dialects are dropped."""
    parts = message.parts
    user = message.role == "user"
    if len(parts) == 1 and type(parts[0]) is TextPart and not (user and out and out[-1]["role"] == "tool"):
        out.append({"role": message.role, "content": parts[0].text})
    elif user:
        _encode_user(parts, wire, out)
    else:
        out.append(_encode_assistant(parts, wire))


def _encode_user(parts: tuple[Part, ...], wire: Wire, out: list[dict[str, Any]]) -> None:
    """Append the results of tools, and then the user's parts. Results other than text become part of the user's message:
    tool messages contain only text."""
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            out.append({"role": "tool", "tool_call_id": part.call_id, "content": part.text})
            shown = [_encode_content(each) for each in part.parts if not isinstance(each, TextPart)]
            if shown and wire.traits.pictures:
                content += [{"type": "text", "text": f"[content of the result of the tool {part.name}:]"}, *shown]
        elif isinstance(part, TextPart | ImagePart | AudioPart | DocumentPart):
            content.append(_encode_content(part))
    if not content:
        return
    if not wire.traits.user_after_results and out and out[-1]["role"] == "tool":
        out.append({"role": "assistant", "content": _RECEIVED})
    only = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else content
    out.append({"role": "user", "content": only})


def _encode_content(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": part.url or common.data_url(part)}}
    if isinstance(part, AudioPart):
        return common.audio(part, DIALECT)
    if part.url is not None:
        raise unsupported(DIALECT, "documents by URL", "send the document's data, or use openai: or anthropic:")
    return {"type": "file", "file": {"filename": part.name, "file_data": common.data_url(part)}}


def _encode_assistant(parts: tuple[Part, ...], wire: Wire) -> dict[str, Any]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    encoded: dict[str, Any] = {"role": "assistant", "content": None}
    for part in parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ToolCallPart):
            calls.append(_encode_call(part, wire))
        elif isinstance(part, ThinkingPart | OtherPart) and part.native is not None and part.native.dialect == DIALECT:
            encoded.update(part.native.data)
    if texts:
        encoded["content"] = "".join(texts)
    if calls:
        encoded["tool_calls"] = calls
    elif not texts:
        encoded["content"] = ""
    return encoded


def _encode_call(call: ToolCallPart, wire: Wire) -> dict[str, Any]:
    encoded: dict[str, Any] = {"id": call.id, "type": "function", "function": common.called(call, wire)}
    if call.native is None or call.native.dialect != DIALECT or not call.native.data:
        return encoded
    return {
        **call.native.data,
        **encoded,
        "function": {**record(call.native.data.get("function")), **encoded["function"]},
    }


def _rest(data: dict[str, Any], read: frozenset[str]) -> dict[str, Any]:
    """The entries of ``data`` under keys missing from those ``read``."""
    return {key: value for key, value in data.items() if key not in read and value not in NOTHING}


def _rest_of_call(call: dict[str, Any]) -> dict[str, Any]:
    rest = _rest(call, _READ_OF_CALL)
    inner = _rest(record(call.get("function")), _READ_OF_FUNCTION)
    return {**rest, "function": inner} if inner else rest


def _images(message: dict[str, Any]) -> list[ImagePart]:
    """The pictures of an answer, as OpenRouter and others send them."""
    images: list[ImagePart] = []
    for image in records(message.get("images")):
        url = string(record(record(image).get("image_url")).get("url"))
        kind, is_data, data = url.removeprefix("data:").partition(";base64,")
        if is_data and url.startswith("data:"):
            images.append(ImagePart(kind or "image/png", data))
        elif url:
            images.append(ImagePart(url=url))
    return images


class _PendingChatCall:
    """A streaming tool call."""

    __slots__ = ("_looks", "id", "name", "pieces", "rest")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []
        self.rest: list[dict[str, Any]] = []
        self._looks = 0

    def is_whole(self) -> bool:
        """Whether the arguments so far are a JSON object. Expensive: it parses all of them, so call it rarely."""
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            return False
        data = "".join(self.pieces).encode("utf-8", "surrogatepass")
        if has_too_many_values(data):
            return False
        try:
            return isinstance(jiter.from_json(data), dict)
        except ValueError:
            return False


class ChatDecoder(BaseDecoder):
    """Decodes one answer; implements :class:`agentflow.providers.dialects.decoding.Decoder`."""

    stop_table = _STOP
    dialect = DIALECT

    def __init__(self, wire: Wire, *, provider: str, model: str) -> None:
        super().__init__(wire, provider=provider, model=model)
        self._head: dict[str, Any] = {}
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._thinking_key = ""
        self._rest_of_it: list[dict[str, Any]] = []
        self._pictures: list[ImagePart] = []
        self._by_messages = False
        self._refusal: list[str] = []
        self._calls: list[_PendingChatCall] = []
        self._by_index: dict[int, _PendingChatCall] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}

    @property
    def partial(self) -> str:
        return "".join(self._text)

    def event(self, name: bytes, data: bytes, out: list[ModelDelta]) -> bool:
        if data == b"[DONE]":
            self.done = True
            return True
        event = parse_json(data)
        if event.get("error"):  # Checked even if there are choices: some servers send both.
            self._fail(event)
        choices = event.get("choices")
        if choices:
            self._choice(choices[0], out)
            self.unknown += len(choices) > 1
        elif choices is None and not event.get("usage"):
            if name == b"error" or "error" in (event.get("object"), event.get("type")) or wire_faults.is_failure(event):
                self._fail(event)
            self.unknown += 1
        if not self._head:
            self._head = event
        usage = event.get("usage")
        if usage:
            self._usage = grown(self._usage, usage)
        return True

    def _choice(self, choice: dict[str, Any], out: list[ModelDelta]) -> None:
        if choice.get("index"):
            self.unknown += 1  # One of several answers, if the settings ask for them.
            return
        if choice.get("finish_reason"):
            self._finish = choice["finish_reason"]
            if usage := record(choice.get("usage")):  # Moonshot's place for it
                self._usage = grown(self._usage, usage)
        delta = choice.get("delta") or self._message(record(choice.get("message")), out)
        if not delta:
            return
        text = delta.get("content")
        if text:
            if type(text) is not str:
                self._think(thoughts_of(text), out)
                text = text_of(text)
            if text:
                self._text.append(text)
                out.append(ModelDelta(text))
        calls = delta.get("tool_calls")
        if calls:
            for call in calls:
                self._call(call, out)
        if len(delta) > 1 or text is None:
            self._others(delta, out)

    def _message(self, message: dict[str, Any], out: list[ModelDelta]) -> dict[str, Any]:
        """A message in the place of a delta: the next piece, or the whole answer again; only its new rest is
        returned."""
        if not self._text and not self._calls:
            self._by_messages = bool(message)
        elif not self._by_messages:
            said, again = self.partial, text_of(message.get("content"))
            if again and not again.startswith(said):
                self.notices.append(differs(said, again))
                self._text = [again]
            repeated = (
                "content",
                *(("tool_calls",) if self._calls else ()),
                *(_THINKING_KEYS if self._thinking else ()),
            )
            return {
                **{key: value for key, value in message.items() if key not in repeated},
                "content": again.removeprefix(said) if again.startswith(said) else "",
            }
        return message

    def _think(self, text: str, out: list[ModelDelta]) -> None:
        if text:
            self._thinking.append(text)
            out.append(ModelDelta(thinking=text))

    def _others(self, delta: dict[str, Any], out: list[ModelDelta]) -> None:
        for key in _THINKING_KEYS:
            text = delta.get(key)
            if text and isinstance(text, str):
                self._thinking_key = key
                self._think(text, out)
                break
        refusal = delta.get("refusal")
        if refusal:
            self._refusal.append(text_of(refusal))
        if "images" in delta:
            self._pictures += _images(delta)
        if not delta.keys() <= _READ and (rest := _rest(delta, _READ)):
            self._rest_of_it.append(rest)

    def _call(self, data: dict[str, Any], out: list[ModelDelta]) -> None:
        index, call_id = data.get("index"), data.get("id") or ""
        function = record(data.get("function"))
        name = function.get("name") or ""
        call = self._find(index, call_id, name)
        if call is None:
            call = _PendingChatCall(call_id or self._wire.new_id(), name)
            self._calls.append(call)
            check_call_count(len(self._calls))
            if index is not None:
                self._by_index[index] = call
            out.append(ModelDelta(tool_call_id=call.id, tool_name=self._wire.back(call.name)))
        elif not call.name:
            call.name = name
        read = data.keys() <= _READ_OF_CALL and function.keys() <= _READ_OF_FUNCTION
        if not read and (rest := _rest_of_call(data)):
            call.rest.append(rest)
        text = argument_text(function.get("arguments"))
        if text:
            call.pieces.append(text)
            out.append(ModelDelta(tool_call_id=call.id, arguments=text))

    def _find(self, index: int | None, call_id: str, name: str) -> _PendingChatCall | None:
        """The call a delta belongs to. The id decides if there is one: servers send null and constant indexes.

        A name without an id begins another call if the arguments of the current one are complete.
        """
        call = None if index is None else self._by_index.get(index)
        if call_id:
            if call is not None and call.id == call_id:
                return call
            same = next((call for call in self._calls if call.id == call_id), None)
            return same if same is not None and (index is None or not name or not same.is_whole()) else None
        if index is None or (call is None and not name):  # the rest of a call, under an index of its own
            call = self._calls[-1] if self._calls else None
        return None if call is not None and name and not call_id and call.name and call.is_whole() else call

    def finish(self, framed: bool = True) -> ModelResponse:
        """The whole answer; see :class:`~agentflow.providers.dialects.decoding.Decoder`."""
        if self._finish is None:
            raise incomplete("there is no finish reason")
        if not self.done and not framed:
            raise incomplete("the connection closed without [DONE]")
        calls = [(call.id, call.name, "".join(call.pieces), merged(call.rest)) for call in self._calls]
        rest = merged(self._rest_of_it)
        return self._response("".join(self._text), "".join(self._thinking), "".join(self._refusal), calls, rest)

    def body(self, data: Any) -> ModelResponse:
        choices = records(data.get("choices"))
        if data.get("error") or (not choices and wire_faults.is_failure(data)):
            self._fail(data)
        if not choices:
            raise incomplete(f"there are no choices in {clip(to_json(data), 300)}")
        message = choices[0]["message"]
        content = message.get("content")
        self._finish = choices[0].get("finish_reason")
        if self._finish is None:
            raise incomplete("there is no finish reason", text_of(content))
        self._head, self._usage = data, record(data.get("usage"))
        self._thinking_key = next((key for key in _THINKING_KEYS if message.get(key)), "")
        calls = [
            (
                call.get("id") or "",
                call["function"]["name"],
                call["function"].get("arguments") or "",
                _rest_of_call(call),
            )
            for call in records(message.get("tool_calls"))
            if call.get("function")
        ]
        thinking = text_of(message.get(self._thinking_key)) or thoughts_of(content)
        self._pictures = _images(message)
        rest = _rest(message, _READ)
        return self._response(text_of(content), thinking, text_of(message.get("refusal")), calls, rest)

    def _response(
        self,
        text: str,
        thinking: str,
        refusal: str,
        calls: list[tuple[str, str, Any, dict[str, Any]]],
        rest: dict[str, Any],
    ) -> ModelResponse:
        parts: list[Part] = []
        if thinking and self._thinking_key:
            rest = {self._thinking_key: thinking, **rest}
        if thinking:
            parts.append(ThinkingPart(thinking, self._native(rest) if rest else None))
        elif rest:
            parts.append(OtherPart(self._native(rest)))
        if text or refusal:
            parts.append(TextPart(text + refusal))
        parts += self._pictures
        for call_id, wire_name, raw, rest_of_call in calls:
            name = self._wire.back(wire_name)
            arguments, problem = parse_arguments(raw, name)
            native = self._native(rest_of_call) if rest_of_call else self._bare
            parts.append(ToolCallPart(call_id, name, arguments, native, problem))
        stop = self._stop(self._finish, parts)
        if refusal:
            stop = "refusal"
        elif calls and stop == "end":
            stop = "tool_calls"  # Local servers end tool calls with "stop".
        usage = self._usage
        return ModelResponse(
            unique_calls(parts, self._wire.new_id) if calls else tuple(parts),
            stop,
            common.usage(
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
                usage.get("total_tokens"),
                usage.get("prompt_tokens_details"),
                usage.get("completion_tokens_details"),
            ),
            model=self._head.get("model") or "",
            unknown_events=self.unknown,
            metadata={
                "id": self._head.get("id"),
                "stop_reason": self._finish,
                **tier(self._head.get("service_tier")),
            },
        )
