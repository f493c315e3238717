"""OpenAI Responses: encodes requests as JSON, decodes answers from events.

https://platform.openai.com/docs/api-reference/responses-streaming. Nothing is stored by the provider (``store`` false):
we keep the conversation, and reasoning is sent encrypted.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeGuard

from agentflow.core.data.messages import (
    AudioPart,
    Citation,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    OtherPart,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from agentflow.providers.dialects import openai_wire as common
from agentflow.providers.dialects.decoding import (
    BaseDecoder,
    StopTable,
    argument_text,
    check_call_count,
    differs,
    incomplete,
    joined_text,
    parse_arguments,
    text_of,
    tier,
    unique_calls,
)
from agentflow.providers.dialects.schema_translation import output_form, system_text
from agentflow.providers.dialects.wire import Wire, parse_json, record, records, string

DIALECT = "openai.responses"
_REASONS = re.compile(r"o\d|codex|gpt-(?!3|4)").match
_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?").match
_STOP: StopTable = MappingProxyType(
    {
        "completed": "end",
        "max_output_tokens": "max_tokens",
        "content_filter": "refusal",
        # Sent by other servers that speak the dialect.
        "max_tokens": "max_tokens",
        "length": "max_tokens",
    }
)
"""The statuses of a response, and the reasons for an incomplete one."""
_SEARCHES = ("tool_search_call", "tool_search_output")
_UNFINISHED = ("incomplete", "failed", "cancelled")
_OURS = ("message", "function_call", "reasoning")
_QUIET = re.compile(
    r"response\.(created|queued|in_progress|.*\.(done|added|in_progress|completed|searching|generating|interpreting"
    r"|failed|partial_image|compacting)|audio\..*|code_interpreter_call_code\.delta|mcp_call_arguments\.delta"
    r"|custom_tool_call_input\.delta|shell_call.*)"
).fullmatch
"""Events with content repeated in the item or the final response."""


def encode(request: ModelRequest, wire: Wire, streaming: bool) -> dict[str, Any]:
    """The request body, without ``stream``."""
    items: list[dict[str, Any]] = []
    for message in wire.messages:
        encode_message(message, wire, items)
    body: dict[str, Any] = {"model": request.model, "input": items, "store": False}
    if not wire.traits.model_names or _REASONS(request.model):
        body["include"] = ["reasoning.encrypted_content"]
    how, form = output_form(request, wire, streaming)
    if system := system_text(request, wire, form):
        body["instructions"] = system
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = max(request.max_output_tokens, wire.traits.least_limit)
    if request.tools:
        searches = bool(wire.searched)
        body["tools"] = tools = [_tool(tool, wire, searches) for tool in request.tools]
        if searches and not any([tool.get("type") == "tool_search" for tool in request.provider_tools]):
            tools.append({"type": "tool_search"})
        mode, name = common.tool_choice(request, wire)
        if mode or name:
            body["tool_choice"] = mode or {"type": "function", "name": name}
    if request.provider_tools:
        body["tools"] = [*body.get("tools", ()), *request.provider_tools]
    if (effort := common.effort(request)) is not None:
        body["reasoning"] = {"effort": effort}
    if form is not None:
        body["text"] = {"format": {"type": how, **common.schema_format(form, wire)}}
    elif how == "json_object":
        body["text"] = {"format": {"type": how}}
    return body


def _tool(tool: ToolSpec, wire: Wire, searches: bool) -> dict[str, Any]:
    function, strict = common.function(tool, wire)
    deferred = {"defer_loading": True} if searches and tool.deferred else {}
    return {"type": "function", **function, "strict": strict, **deferred}


def searches_tools(model: str) -> bool:
    """Whether ``model`` is one of those with the server's search for tools: gpt-5.4 and later.

    https://developers.openai.com/api/docs/guides/tools-tool-search
    """
    version = _VERSION(model)
    return version is not None and (int(version[1]), int(version[2] or 0)) >= (5, 4)


def encode_message(message: Message, wire: Wire, out: list[dict[str, Any]]) -> None:
    """Append the items of one message. Items of this dialect are replayed verbatim, blocks of others dropped."""
    content: list[dict[str, Any]] = []
    user = message.role == "user"

    def flush() -> None:
        if content:
            # Only in a user's message may text replace the list: other servers expect the parts of an answer.
            only = content[0]["text"] if user and len(content) == 1 and "text" in content[0] else list(content)
            out.append({"type": "message", "role": message.role, "content": only})
            content.clear()

    for part in message.parts:
        native = getattr(part, "native", None)
        if native is not None and native.dialect == DIALECT:
            flush()
            item = native.data
            if isinstance(part, OtherPart) and item["type"] in _SEARCHES and not wire.searched:
                continue  # a request without a search of the server takes none of those before it
            if isinstance(part, ToolCallPart):
                item = {**item, "call_id": part.id, "name": wire.to_wire(part.name)}
            out.append(item)
        elif isinstance(part, TextPart):
            content.append({"type": "input_text" if user else "output_text", "text": part.text})
        elif isinstance(part, ToolCallPart):
            flush()
            out.append({"type": "function_call", "call_id": part.id, **common.called(part, wire)})
        elif isinstance(part, ToolResultPart):
            flush()
            output = [_encode_input(each) for each in part.parts] or part.text
            out.append({"type": "function_call_output", "call_id": part.call_id, "output": output})
        elif isinstance(part, ImagePart | DocumentPart | AudioPart):
            content.append(_encode_input(part))
    flush()


def _encode_input(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, ImagePart):
        return {"type": "input_image", "detail": "auto", "image_url": part.url or common.data_url(part)}
    if isinstance(part, AudioPart):
        return common.audio(part, DIALECT)
    file = {"file_url": part.url} if part.url else {"filename": part.name, "file_data": common.data_url(part)}
    return {"type": "input_file", **file}


class ResponsesDecoder(BaseDecoder):
    """Decodes one answer; implements :class:`agentflow.providers.dialects.decoding.Decoder`."""

    stop_table = _STOP
    dialect = DIALECT

    def __init__(self, wire: Wire, *, provider: str, model: str) -> None:
        super().__init__(wire, provider=provider, model=model)
        self._calls: list[_PendingCall] = []
        self._by_key: dict[str | int, _PendingCall] = {}
        self._items: dict[str | int, dict[str, Any]] = {}
        self._text: list[str] = []
        self._asides: set[str | int] = set()
        """Ids and positions of messages written on the way to the answer."""
        self._final: dict[str, Any] = {}

    @property
    def partial(self) -> str:
        return "".join(self._text)

    def event(self, name: bytes, data: bytes, out: list[ModelDelta]) -> bool:
        if data == b"[DONE]":
            return True
        event = parse_json(data)
        kind: str = event.get("type") or name.decode("utf-8", "replace")
        if kind == "response.output_text.delta":
            text = event["delta"]
            if text:
                if type(text) is not str:
                    text = text_of(text)
                if self._asides and not self._asides.isdisjoint((event.get("item_id"), event.get("output_index"))):
                    out.append(ModelDelta(thinking=text))
                    return True
                self._text.append(text)
                out.append(ModelDelta(text))
        elif kind == "response.function_call_arguments.delta":
            self._more(event, argument_text(event["delta"]), out)
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            if text := text_of(event["delta"]):
                out.append(ModelDelta(thinking=text))
        elif kind == "response.output_item.added":
            self._added(event, out)
        elif kind == "response.function_call_arguments.done":
            call = self._call(event)
            if call is not None and not call.pieces:
                self._more(event, argument_text(event.get("arguments")), out)
        elif kind == "response.output_item.done":
            item = event["item"]
            self._items[self._key(event, item)] = item
        elif kind in ("response.completed", "response.incomplete"):
            self._final = event["response"]
            self.done = True
            self._show_late(out)
        elif kind in ("error", "response.failed") or event.get("error"):
            self._fail(record(event.get("response")) or event)
        elif kind == "response.refusal.delta":
            self._text.append(text_of(event["delta"]))
        elif kind in ("ping", "keepalive"):
            return False
        elif not _QUIET(kind):
            self.unknown += 1
        return True

    def _key(self, event: dict[str, Any], item: dict[str, Any]) -> str | int:
        """A key that identifies an item: real servers send null ids and null indexes."""
        key = item.get("id") or item.get("call_id") or event.get("output_index")
        return len(self._items) if key is None else key

    def _added(self, event: dict[str, Any], out: list[ModelDelta]) -> None:
        item = event["item"]
        if _is_aside(item):
            self._asides.update([key for key in (item.get("id"), event.get("output_index")) if key is not None])
        if item.get("type") != "function_call":
            return
        call = _PendingCall(item, item.get("call_id") or item.get("id") or self._wire.new_id())
        self._calls.append(call)
        check_call_count(len(self._calls))
        for key in (item.get("id"), event.get("output_index")):
            if key is not None:
                self._by_key[key] = call
        out.append(ModelDelta(tool_call_id=call.id, tool_name=self._wire.back(item["name"])))

    def _call(self, event: dict[str, Any]) -> _PendingCall | None:
        for key in (event.get("item_id"), event.get("output_index")):
            if key is not None and key in self._by_key:
                return self._by_key[key]
        return self._calls[-1] if self._calls else None

    def _more(self, event: dict[str, Any], text: str, out: list[ModelDelta]) -> None:
        call = self._call(event)
        if text and call is not None:
            call.pieces.append(text)
            out.append(ModelDelta(tool_call_id=call.id, arguments=text))

    def _output(self) -> list[dict[str, Any]]:
        """The final output, or the finished items if a server leaves it empty."""
        return records(self._final.get("output")) or list(self._items.values())

    def _show_late(self, out: list[ModelDelta]) -> None:
        """Emit text that arrives only with the final response."""
        if self._text:
            return
        output = _once(self._output())
        said = [text_of(item.get("content")) for item in output if _says(item)]
        if not said and not any([item.get("type") == "function_call" for item in output]):
            said = [text_of(item.get("content")) for item in output if _is_aside(item)]
        if text := "".join(said):
            self._text.append(text)
            out.append(ModelDelta(text))

    def finish(self, framed: bool = True) -> ModelResponse:
        """The complete answer; ``response.completed`` or ``response.incomplete`` is its stop reason and its end."""
        if not self.done:
            raise incomplete("there was neither response.completed nor response.incomplete")
        output = self._output()
        if not any([item.get("type") == "function_call" for item in output]):
            output = [*output, *(call.item() for call in self._calls)]
        return self._reconciled(self.body({**self._final, "output": output}))

    def _reconciled(self, response: ModelResponse) -> ModelResponse:
        """The final response, completed with the streamed text; a difference between them becomes a notice."""
        streamed, final = self.partial, response.text
        if not streamed or streamed == final:
            return response
        if not final:
            kept = [part for part in response.parts if not isinstance(part, TextPart)]
            at = next((index for index, part in enumerate(kept) if isinstance(part, ToolCallPart)), len(kept))
            return replace(response, parts=(*kept[:at], TextPart(streamed), *kept[at:]))
        self.notices.append(differs(streamed, final))
        return response

    def body(self, data: Any) -> ModelResponse:
        """Decode the answer to a plain request, or the final state of a streamed one."""
        status = data.get("status")
        if status in ("failed", "cancelled") or data.get("error"):
            self._fail(data)
        output = _once(records(data.get("output")))
        parts = [part for item in output for part in self._parts(item)]
        if not any(
            [isinstance(part, TextPart | ToolCallPart) for part in parts]
        ):  # then the messages on the way are the answer
            parts = [TextPart(part.text, native=part.native) if _is_aside_part(part) else part for part in parts]
        reason = record(data.get("incomplete_details")).get("reason")
        if status == "incomplete" and reason is None:
            raise incomplete("the response is incomplete without a reason", joined_text(parts))
        if status not in ("completed", "incomplete"):
            raise incomplete(f"the response is {status or 'without a status'}", joined_text(parts))
        stop = self._stop(reason if status == "incomplete" else status, parts)
        if stop == "end":
            stop = self._end(output, parts)
        usage = record(data.get("usage"))
        return ModelResponse(
            tuple(parts) if stop == "end" else unique_calls(parts, self._wire.new_id),
            stop,
            common.usage(
                usage.get("input_tokens"),
                usage.get("output_tokens"),
                usage.get("total_tokens"),
                usage.get("input_tokens_details"),
                usage.get("output_tokens_details"),
            ),
            model=data.get("model") or "",
            unknown_events=self.unknown,
            metadata={"id": data.get("id"), "stop_reason": reason or status, **tier(data.get("service_tier"))},
        )

    def _end(self, output: list[dict[str, Any]], parts: list[Part]) -> StopReason:
        """The stop reason of a completed response. Raises IncompleteStream if one of its items is not complete."""
        refused = called = False
        for item in output:
            kind = item["type"]
            if item.get("status") in _UNFINISHED and kind in _OURS:
                raise incomplete(f"its {kind} is {item['status']}", joined_text(parts))
            if kind == "function_call":
                called = True
            elif kind == "message":
                refused = refused or "refusal" in [record(piece).get("type") for piece in records(item["content"])]
        return "refusal" if refused else "tool_calls" if called else "end"

    def _parts(self, item: dict[str, Any]) -> list[Part]:
        """The neutral form of one output item: a picture follows the item that generates it."""
        part = self._part(item)
        if item["type"] == "image_generation_call" and (data := string(item.get("result"))):
            return [part, ImagePart(f"image/{string(item.get('output_format')) or 'png'}", data)]
        return [part]

    def _part(self, item: dict[str, Any]) -> Part:
        kind = item["type"]
        native = self._native(item)
        if _is_aside(item):
            return ThinkingPart(text_of(item["content"]), native)
        if kind == "message":
            return TextPart(text_of(item["content"]), False, native, _citations(item))
        if kind == "function_call":
            name = self._wire.back(item["name"])
            arguments, problem = parse_arguments(item.get("arguments") or "", name)
            if problem:  # servers that read the history refuse invalid JSON
                native = self._native({**item, "arguments": "{}"})
            return ToolCallPart(item.get("call_id") or item.get("id") or "", name, arguments, native, problem)
        if kind == "reasoning":
            pieces = records(item.get("summary")) or records(item.get("content"))
            return ThinkingPart("\n".join(text_of(piece.get("text")) for piece in pieces), native)
        return OtherPart(native)


def _citations(item: dict[str, Any]) -> tuple[Citation, ...]:
    """The sources in the annotations of a message's text."""
    citations: list[Citation] = []
    for piece in records(item["content"]):
        for note in map(record, records(record(piece).get("annotations"))):
            url, path = string(note.get("url")), string(note.get("filename"))
            if url or path:
                citations.append(Citation(string(note.get("title")), url or None, path or None))
    return tuple(citations)


def _says(item: dict[str, Any]) -> bool:
    return item.get("type") == "message" and not _is_aside(item)


def _is_aside(item: dict[str, Any]) -> bool:
    """Whether a message announces the model's next step instead of being the answer."""
    return item.get("type") == "message" and item.get("phase") == "commentary"


def _is_aside_part(part: Part) -> TypeGuard[ThinkingPart]:
    return isinstance(part, ThinkingPart) and part.native is not None and _is_aside(part.native.data)


def _once(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items of an output without duplicates: the last of an id counts."""
    if len(output) < 2:
        return output
    return list({item.get("id") or at: item for at, item in enumerate(output)}.values())


class _PendingCall:
    """A streaming tool call."""

    __slots__ = ("_item", "id", "pieces")

    def __init__(self, item: dict[str, Any], call_id: str) -> None:
        self._item = item
        self.id = call_id
        self.pieces: list[str] = []

    def item(self) -> dict[str, Any]:
        """The item in its finished form."""
        arguments = "".join(self.pieces) or self._item.get("arguments")
        return {**self._item, "call_id": self.id, "arguments": arguments, "status": "completed"}
