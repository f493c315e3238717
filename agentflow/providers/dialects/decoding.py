"""Shared by the decoders of all dialects: stop reasons, tool calls, tolerance for servers that imitate a vendor."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Protocol, cast

import jiter

from agentflow.core.data.errors import ProviderError, clip
from agentflow.core.data.messages import (
    ModelDelta,
    ModelResponse,
    Native,
    Notice,
    OtherPart,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from agentflow.core.data.provider_errors import IncompleteStream, ProtocolError
from agentflow.core.data.values import to_json
from agentflow.lib.schema.json_types import MAX_JSON_VALUES, has_too_many_values
from agentflow.providers.dialects import wire_faults
from agentflow.providers.dialects.halves import Halves, whole_json
from agentflow.providers.dialects.wire import Wire, record

MAX_TOOL_CALLS = 256
"""Maximum number of tool calls in one answer; more come from a confused model or a hostile server."""

StopTable = Mapping[str, StopReason | type[ProviderError]]
"""The stop reasons of a dialect and its imitators, in lower case, with their meaning or their error class."""


NOTHING: tuple[object, ...] = (None, "", [], {})
"""Values of keys that say nothing."""


class Decoder(Protocol):
    """Decodes one answer in one dialect."""

    done: bool
    """Whether the terminal event was seen."""
    notices: list[Notice]
    """Unexpected items in the answer."""
    halves: Halves | None
    """The halves of characters in the stream, from the first event on that has one."""

    def event(self, name: bytes, data: bytes, out: list[ModelDelta]) -> bool:
        """Decode one event and append its deltas to ``out``. Returns False for a ping, which is not progress."""
        ...

    def body(self, data: Any) -> ModelResponse:
        """Decode the answer to a plain request."""
        ...

    def finish(self, framed: bool = True) -> ModelResponse:
        """The complete answer. ``framed``: the end of the body was marked by a length or a last chunk.

        Raises IncompleteStream if there was no stop reason, or no terminal event and the body is not framed.
        """
        ...

    @property
    def partial(self) -> str:
        """The text so far."""
        ...


class BaseDecoder:
    """Base of the decoders.

    Parameters: ``wire`` maps tool names to the wire and back; ``provider`` and ``model`` for errors.
    """

    stop_table: ClassVar[StopTable]
    dialect: ClassVar[str]

    def __init__(self, wire: Wire, *, provider: str, model: str) -> None:
        self.done = False
        self.unknown: int = 0
        self.notices: list[Notice] = []
        self.halves: Halves | None = None
        self._wire = wire
        self._provider = provider
        self._model = model
        self._bare = Native(self.dialect, {}, wire.issuer)

    def _native(self, data: Any) -> Native:
        """The verbatim JSON of a part, for its issuer alone."""
        return Native(self.dialect, data, self._wire.issuer)

    def _issued(self, call: Mapping[str, Any], read: Container[str]) -> Native:
        """Who issued a tool call, with its keys missing from those ``read``."""
        rest = {key: value for key, value in call.items() if value not in NOTHING and key not in read}
        return self._native(rest) if rest else self._bare

    def _fail(self, body: Any) -> None:
        raise wire_faults.from_stream(body, provider=self._provider, model=self._model)

    def _stop(self, reason: object, parts: Iterable[Part]) -> StopReason:
        """The meaning of ``reason``. Raises, with the text of ``parts``, if it is unknown or a failure.

        Gateways name the reason of the server behind them after a colon: ``content_filter: PROHIBITED_CONTENT``. That one
        is more exact, if it is known.
        """
        kind, _, finer = str(reason).lower().partition(":")
        meaning = self.stop_table.get(finer.strip()) or self.stop_table.get(kind.strip())
        if isinstance(meaning, str):
            return meaning
        stopped = f"{self._provider} stopped {self._model} with {clip(repr(reason), 100)}"
        partial = joined_text(parts)
        if meaning is not None:
            raise meaning(f"{stopped} before the answer was complete", partial=partial)
        raise ProtocolError(
            f"{stopped}, a reason that agentflow does not know",
            code="provider/unknown-stop",
            partial=partial,
            hint="the answer may be cut short; please report it if this server means a complete answer",
        )


def joined_text(parts: Iterable[Part]) -> str:
    """The text of an answer's parts."""
    return "".join([part.text for part in parts if isinstance(part, TextPart)])


def differs(streamed: str, final: str) -> Notice:
    """The notice of an answer that ends with another text than the streamed one."""
    return Notice(
        "the final text is not the one that was streamed; the final one counts",
        code="provider/text-differs",
        details={"streamed": clip(streamed), "final": clip(final)},
    )


def tier(value: object) -> dict[str, str]:
    """The metadata of an answer that was made, and is charged, at another tier of service than the usual one."""
    return (
        {"service_tier": value} if isinstance(value, str) and value not in ("", "default", "standard", "auto") else {}
    )


def unread(response: ModelResponse) -> list[Notice]:
    """A notice for a complete answer that has cost tokens but has no recognized part."""
    usage, parts = response.usage, response.parts
    if response.stop_reason != "end" or usage.output_tokens <= usage.reasoning_tokens:
        return []
    keys: set[str] = set()
    for part in parts:
        if isinstance(part, OtherPart):
            data = record(part.native.data)
            keys.update([data["type"]] if isinstance(data.get("type"), str) else data)
        elif not isinstance(part, TextPart | ThinkingPart) or part.text:
            return []
    named = ", ".join(sorted(keys)) or "none that agentflow does not know"
    message = f"the answer has {usage.output_tokens} tokens, but neither text nor calls: its other keys are {named}"
    return [
        Notice(message, code="provider/unread-answer", details={"keys": sorted(keys), "tokens": usage.output_tokens})
    ]


def incomplete(what: str, partial: str = "") -> IncompleteStream:
    """The error for an answer that ended early; ``partial`` is its text so far."""
    return IncompleteStream(f"the answer ended before the model had finished: {what}", partial=partial)


def check_call_count(count: int) -> None:
    """Raise ProtocolError if an answer has too many tool calls."""
    if count > MAX_TOOL_CALLS:
        raise ProtocolError(
            f"the answer has more than {MAX_TOOL_CALLS} tool calls, the maximum",
            code="provider/too-many-calls",
            hint="ask the model for fewer calls at a time",
        )


def unique_calls(parts: list[Part], new_id: Callable[[], str]) -> tuple[Part, ...]:
    """``parts`` with an id for each tool call, ``new_id`` for one that has none or that of another call of the answer."""
    if ToolCallPart not in map(type, parts):
        return tuple(parts)
    check_call_count(sum([isinstance(part, ToolCallPart) for part in parts]))
    seen: set[str] = set()
    unique: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCallPart):
            call_id = part.id
            while not call_id or call_id in seen:
                call_id = new_id()
            seen.add(call_id)
            if call_id != part.id:
                part = ToolCallPart(call_id, part.name, part.arguments, part.native, part.invalid)
        unique.append(part)
    return tuple(unique)


def deltas_of(parts: Iterable[Part]) -> list[ModelDelta]:
    """A complete answer as deltas, one per part."""
    deltas: list[ModelDelta] = []
    for part in parts:
        if isinstance(part, TextPart) and part.text:
            deltas.append(ModelDelta(part.text))
        elif isinstance(part, ThinkingPart) and part.text:
            deltas.append(ModelDelta(thinking=part.text))
        elif isinstance(part, ToolCallPart):
            deltas.append(ModelDelta(tool_call_id=part.id, tool_name=part.name))
            deltas.append(ModelDelta(tool_call_id=part.id, arguments=to_json(part.arguments)))
    return deltas


_EMPTY = re.compile(r"\s*\{\s*\}\s*(?=\{)")
"""An empty object before the arguments, sent by a gateway to start a call."""


def parse_arguments(value: object, tool: str) -> tuple[dict[str, Any], str]:
    """A tool call's arguments, JSON text or an object, as ``(arguments, problem)``; one of the two is empty.

    An empty text means no arguments; an empty object before another one is passed over.
    """
    if not isinstance(value, str):
        return check_arguments(value, tool)
    if not value.strip():
        return {}, ""
    data = value.encode("utf-8", "surrogatepass")
    if has_too_many_values(data):
        return {}, f"the arguments for {tool} have more than {MAX_JSON_VALUES:,} values; send fewer at a time"
    try:
        parsed = jiter.from_json(data, allow_inf_nan=False)
    except ValueError as error:
        if (empty := _EMPTY.match(value)) is not None:
            with suppress(ValueError):
                return check_arguments(jiter.from_json(value[empty.end() :].encode(), allow_inf_nan=False), tool)
        if (mended := whole_json(data)) is not None:
            return check_arguments(jiter.from_json(mended), tool)
        return {}, f"the arguments for {tool} are not valid JSON ({error}); send one JSON object"
    return check_arguments(parsed, tool)


def check_arguments(value: object, tool: str) -> tuple[dict[str, Any], str]:
    """Parsed arguments, which must be an object, as ``(arguments, problem)``."""
    if isinstance(value, dict):
        return cast(dict[str, Any], value), ""
    kind = "null" if value is None else type(value).__name__
    return {}, f"the arguments for {tool} are a JSON {kind}, not an object; send one JSON object"


_PIECES = frozenset({"text", "summary", "content", "data", "signature", "thinking", "reasoning", "arguments"})
"""Keys with pieces of one text as their texts, though two of them may be equal."""


def whole(values: list[Any], key: str = "") -> Any:
    """The value of an unknown ``key`` if a stream sent ``values`` for it one after the other."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    if all([isinstance(value, str) for value in values]):
        return values[0] if key not in _PIECES and len(set(values)) == 1 else "".join(values)
    if all([isinstance(value, dict) for value in values]):
        names = dict.fromkeys([name for value in values for name in value])
        return {name: whole([value[name] for value in values if name in value], name) for name in names}
    if all([isinstance(value, list) for value in values]):
        groups: dict[object, list[Any]] = {}
        for item in [item for value in values for item in value]:
            index = record(item).get("index")
            groups.setdefault(index if isinstance(index, int) else (len(groups),), []).append(item)
        return [whole(group) if len(group) > 1 else group[0] for group in groups.values()]
    return values[-1]


def grown(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Usage after a repeated report in a stream: no count decreases, and counts missing from the repetition stay."""
    usage = dict(old)
    for key, value in new.items():
        before = usage.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            usage[key] = grown(record(before), record(cast(object, value)))
        elif value is not None and count(cast(object, value)) >= count(before):
            usage[key] = value
    return usage


def merged(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """The object that came in ``pieces``; see :func:`whole`."""
    return record(whole(pieces))


def argument_text(value: object) -> str:
    """A piece of a streamed call's arguments: text unchanged, an object (some servers send one) as JSON."""
    return value if isinstance(value, str) else "" if value is None else to_json(value)


def text_of(content: object) -> str:
    """The text of a message's content: a string, or the text parts of a list (some servers send one)."""
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, list):
        raise TypeError(f"text expected, not {type(content).__name__}")
    return "".join([_part_text(part) for part in cast(list[object], content)])


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    piece = record(part)
    return text_of(piece.get("text") or piece.get("refusal")) if piece.get("type") not in _THOUGHTS else ""


_THOUGHTS = ("thinking", "reasoning", "reasoning_text")


def thoughts_of(content: object) -> str:
    """The thinking parts of a message's content."""
    if not isinstance(content, list):
        return ""
    parts = [record(part) for part in cast(list[object], content)]
    return "".join([text_of(p.get("thinking") or p.get("text")) for p in parts if p.get("type") in _THOUGHTS])


def count(value: object) -> int:
    """A token count as reported by a server; missing or invalid ones are 0."""
    return int(value) if isinstance(value, int | float) and 0 < value < 1e15 else 0
