"""Messages read back from JSON: conversations written by ``plain``, and messages that hosts and tools pass in this form."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from pydantic import TypeAdapter, ValidationError

from agentflow.core.data.errors import DataError
from agentflow.core.data.messages import (
    ContentPart,
    Message,
    ModelRequest,
    ModelResponse,
    Part,
    TextPart,
    ToolSpec,
    Usage,
)
from agentflow.core.data.models import validation_messages
from agentflow.core.data.values import plain

PARTS: Mapping[str, type[Part]] = {kind.type: kind for kind in get_args(Part)}
"""The class of each ``type`` of part."""
CONTENT_PARTS: tuple[type[ContentPart], ...] = get_args(ContentPart)
"""The classes of parts that a tool may return."""


def read_part(data: object, where: str = "the part") -> Part:
    """A part from its JSON data; unknown fields are ignored.

    ``where`` is how an error calls it. Raises DataError (``message/part``).
    """
    if not isinstance(data, Mapping):
        raise _wrong(where, f"a part is an object, not {type(data).__name__}")
    entries = dict(cast(Mapping[str, Any], data))
    tag = entries.pop("type", None)
    kind = PARTS.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise _wrong(where, f"no part has the type {tag!r}", hint=f"its 'type' is one of {', '.join(PARTS)}")
    if tag == "tool_result":
        parts = entries.get("parts") or ()
        if not isinstance(parts, list | tuple):
            raise _wrong(where, "the parts of a tool result are a list")
        entries["parts"] = [
            read_part(part, f"{where}, part {at + 1}") for at, part in enumerate(cast(list[Any], parts))
        ]
    try:
        return _adapter(kind).validate_python(entries)
    except ValidationError as error:
        raise _wrong(where, "; ".join(validation_messages(error)[:5])) from None


def exchange_data(exchange: Iterable[Message]) -> list[Any]:
    """The messages of an exchange as JSON data, as ``plain`` gives them; parts of mere text, nearly all, without it."""
    return [
        {
            "role": message.role,
            "parts": [
                {"type": "text", "text": part.text, "cache": part.cache, "native": None, "citations": []}
                if type(part) is TextPart and part.native is None and not part.citations
                else plain(part)
                for part in message.parts
            ],
            **({"sources": sorted(message.sources)} if message.sources else {}),
            **({"agent": message.agent} if message.agent else {}),
        }
        for message in exchange
    ]


def read_request(data: object) -> ModelRequest:
    """A model request from its JSON data, as events hold it. Raises DataError, TypeError for data of another shape."""
    if not isinstance(data, Mapping):
        raise _wrong("the request", f"a request is an object, not {type(data).__name__}")
    entries = dict(cast(Mapping[str, Any], data))
    names = {field.name for field in dataclasses.fields(ModelRequest)} - {"messages", "tools"}
    return ModelRequest(
        messages=tuple([read_message(each) for each in entries.get("messages") or ()]),
        tools=tuple([ToolSpec(**each) for each in entries.get("tools") or ()]),
        **{name: value for name, value in entries.items() if name in names},
    )


def read_message(data: object, where: str = "the message") -> Message:
    """A message from its JSON data. Raises DataError (``message/invalid``, ``message/part``)."""
    if isinstance(data, Mapping):
        entries = cast(Mapping[str, Any], data)
        role, parts = entries.get("role"), entries.get("parts")
        if role in ("user", "assistant") and isinstance(parts, list):
            read = [read_part(part, f"{where}, part {at + 1}") for at, part in enumerate(cast(list[Any], parts))]
            sources = entries.get("sources") or ()
            agent = entries.get("agent")
            labels = frozenset(map(str, cast("list[object]", sources)))
            return Message(role, tuple(read), labels, agent if isinstance(agent, str) else "")
    raise DataError(
        f"{where}: a message has a role, user or assistant, and a list of parts",
        code="message/invalid",
        hint='for example {"role": "user", "parts": [{"type": "text", "text": "Hello"}]}',
    )


def read_response(data: Mapping[str, Any]) -> ModelResponse:
    """A model's answer from the data of its fields, as ``plain`` writes it. Raises DataError (``message/part``)."""
    fields = dict(data)
    fields["parts"] = tuple([read_part(part, f"part {at + 1}") for at, part in enumerate(fields["parts"])])
    fields["usage"] = Usage(**fields["usage"])
    return ModelResponse(**fields)


@functools.lru_cache(maxsize=16)
def _adapter(kind: type[Part]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _wrong(where: str, what: str, *, hint: str | None = None) -> DataError:
    return DataError(f"{where}: {what}", code="message/part", hint=hint)
