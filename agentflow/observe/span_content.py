"""The content of messages and calls, cut as data: the rest is valid JSON of the same shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

Message: TypeAlias = Mapping[str, Any]
"""A message of the conventions: ``{role, parts: [{type, ...}]}``."""

_ROOM = 16
"""The least number of characters that a shortened value gets."""


def fitting_messages(messages: Sequence[Message], most: int) -> tuple[str, bool]:
    """Messages as JSON of at most ``most`` characters, and whether something was cut.

    Whole parts are dropped, the oldest first; a message without parts goes too. The last part of the newest message stays, and
    its texts are shortened if it alone is too long.
    """
    text = as_json(messages)
    if len(text) <= most:
        return text, False
    kept = [{**message, "parts": list(message["parts"])} for message in messages]
    excess = len(text) - most
    while excess > 0 and (len(kept) > 1 or len(kept[0]["parts"]) > 1):
        parts = kept[0]["parts"]
        if parts:
            excess -= len(as_json(parts.pop(0))) + (2 if parts else 0)
        if not parts and len(kept) > 1:
            excess -= len(as_json(kept.pop(0))) + 2
    text = as_json(kept)
    if len(text) <= most:
        return text, True
    parts = kept[-1]["parts"]
    around = len(text) - sum(len(as_json(part)) for part in parts)
    kept[-1]["parts"] = [shortened(part, max(_ROOM, most - around)) for part in parts]
    return as_json(kept), True


def fitting(value: object, most: int) -> tuple[str, bool]:
    """A JSON value as JSON of about ``most`` characters at most, and whether something was cut (see :func:`shortened`)."""
    text = as_json(value)
    return (text, False) if len(text) <= most else (as_json(shortened(value, most)), True)


def shortened(value: object, room: int) -> object:
    """A JSON value with about ``room`` characters at most.

    A text loses its end. A list loses its oldest items; a single one that is left is shortened. The values of an object share the room: short ones
    stay, long ones are shortened alike; its keys stay.
    """
    if len(as_json(value)) <= room:
        return value
    if isinstance(value, str):
        return _text(value, room)
    if isinstance(value, list):
        items = cast("list[object]", value)
        at, size = len(items), 2
        while at > 0 and (at == len(items) or size + len(as_json(items[at - 1])) + 2 <= room):
            at -= 1
            size += len(as_json(items[at])) + 2
        left = items[at:]
        return [shortened(left[0], max(_ROOM, room - 2))] if len(left) == 1 else left
    if isinstance(value, Mapping):
        return _object(cast("Mapping[str, object]", value), room)
    return value


def _object(value: Mapping[str, object], room: int) -> dict[str, object]:
    sizes = {key: len(as_json(each)) for key, each in value.items()}
    room -= 2 + sum(len(as_json(key)) + 4 for key in value)
    shares: dict[str, int] = {}
    for left, key in zip(range(len(sizes), 0, -1), sorted(sizes, key=sizes.__getitem__), strict=True):
        shares[key] = min(sizes[key], max(_ROOM, room // left))
        room -= shares[key]
    return {key: shortened(each, shares[key]) for key, each in value.items()}


def _text(value: str, room: int) -> str:
    keep = room - 2
    while keep > 0 and len(as_json(value[:keep])) > room:
        keep = min(keep - 1, keep * room // len(as_json(value[:keep])))
    return value[: max(0, keep)]


def as_json(value: object) -> str:
    """JSON as the content attributes have it: text is not escaped beyond need."""
    return json.dumps(value, ensure_ascii=False)
