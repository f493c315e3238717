"""Text outside UTF-8: halves of characters (surrogates) and stray bytes, joined where they belong together, else U+FFFD.

Python's strings, and texts escaped in JSON, can hold one half of an emoji without the other: from a server that cuts its stream
between them, from a file name, from a legacy file. No server takes them back and no file can be written with them. Both ways
are looked at only after an encoder or a parser has refused a text, so that other texts cost nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias, cast

from agentflow.lib.schema.json_types import MAX_JSON_VALUES, has_too_many_values
from agentflow.lib.text.late_pattern import late_pattern

REPLACEMENT = "\ufffd"
_PAIR = late_pattern("[\ud800-\udbff][\udc00-\udfff]")
_BYTES = late_pattern("[\udc80-\udcff]+")
"""Bytes that were not UTF-8, as ``surrogateescape`` reads them."""
_HALF = late_pattern("[\ud800-\udfff]")
_BEGUN = late_pattern("(?:[\ud800-\udbff]|[\udcc2-\udcf4][\udc80-\udcbf]{0,2})\\Z")
"""The beginning of a character at the end of a text."""
_OF_CHARACTERS = re.compile("[\udc80-\udcbf\udcc2-\udcf4]").match
_ESCAPED = re.compile(rb"\\u[dD][89a-fA-F]")
_DELTA = "delta"
_KEPT = ("type", "index")
_IDS = ("index", "output_index", "item_id")
"""Keys of an event that identify the text it continues."""
_Path: TypeAlias = tuple[Any, ...]


def whole_text(text: str) -> str:
    """``text`` as UTF-8 can write it: halves that follow each other are one character, others U+FFFD."""
    if not _HALF.search(text):
        return text
    text = _PAIR.sub(_joined, text)
    text = _PAIR.sub(_joined, _BYTES.sub(_decoded, text))
    return _HALF.sub(REPLACEMENT, text)


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def _decoded(run: re.Match[str]) -> str:
    data = bytes([ord(each) - 0xDC00 for each in run[0]])
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def whole(data: Any) -> Any:
    """JSON ``data`` with all of its texts and keys as :func:`whole_text`."""
    if isinstance(data, str):
        return whole_text(data)
    if isinstance(data, dict):
        return {whole(key): whole(value) for key, value in cast("dict[Any, Any]", data).items()}
    if isinstance(data, list | tuple):
        return [whole(value) for value in cast("list[Any]", data)]
    return data


def whole_json(data: bytes) -> bytes | None:
    """A JSON text with its halves joined or replaced; None if it has none, or is invalid JSON for another reason."""
    parsed = _parsed(data) if _may_have_halves(data) else None
    return None if parsed is None else json.dumps(whole(parsed[0])).encode()


def _may_have_halves(data: bytes) -> bool:
    """Whether there are escaped halves or bytes without the rest of their character; bytes that never form a character do
    not count."""
    stray = _HALF.findall(data.decode("utf-8", "surrogateescape"))
    return (_ESCAPED.search(data) is not None or bool(stray)) and all([_OF_CHARACTERS(each) for each in stray])


def _parsed(data: bytes) -> tuple[Any] | None:
    """The value of a JSON text that may have halves of characters, or stray bytes; None if it is invalid JSON, or has too
    many values."""
    if len(data) > MAX_JSON_VALUES and has_too_many_values(data):
        return None
    try:
        return (json.loads(data.decode("utf-8", "surrogateescape")),)
    except (ValueError, RecursionError):
        return None


class Halves:
    """The halves at the ends of a stream's texts, each held back until the text continues.

    Only texts below ``delta`` continue, each at its place in events of the same index or item. :meth:`rest` returns the
    halves still held at the end of the stream.
    """

    def __init__(self) -> None:
        self._held: dict[_Path, tuple[str, Any]] = {}

    def joined(self, data: bytes) -> bytes:
        """An event with its halves joined with those before it; the beginning of a character at the end of a delta is held back."""
        parsed = _parsed(data) if self._held or _may_have_halves(data) else None
        if parsed is None:
            return data
        event = parsed[0]
        fields = cast("dict[str, Any]", event) if isinstance(event, dict) else {}
        ids: _Path = tuple([fields.get(key) for key in _IDS])
        return json.dumps(self._walk(event, ids, event, False)).encode()

    def _walk(self, data: Any, path: _Path, event: Any, in_delta: bool) -> Any:
        if isinstance(data, str):
            return self._text(data, path, event) if in_delta else whole_text(data)
        if isinstance(data, dict):
            items = cast("dict[str, Any]", data).items()
            return {
                whole_text(key): self._walk(value, (*path, key), event, in_delta or key == _DELTA)
                for key, value in items
            }
        if isinstance(data, list):
            values = cast("list[Any]", data)
            return [self._walk(each, (*path, _number(each, at)), event, in_delta) for at, each in enumerate(values)]
        return data

    def _text(self, text: str, path: _Path, event: Any) -> str:
        held = self._held.pop(path, None) if text else None
        text = (held[0] if held is not None else "") + text
        if begun := _BEGUN.search(text):
            self._held[path] = (begun[0], event)
            text = text[: begun.start()]
        return whole_text(text)

    def rest(self) -> list[bytes]:
        """Events for the halves still held: the deltas they were held back from, with nothing else in them."""
        held, self._held = self._held, {}
        return [json.dumps(_only(event, path[len(_IDS) :], half)).encode() for path, (half, event) in held.items()]


def _number(value: Any, at: int) -> Any:
    """The place of a list's element: its index as the server numbers it."""
    own = cast("dict[str, Any]", value).get("index") if isinstance(value, dict) else None
    return at if own is None else own


def _only(data: Any, path: _Path | None, half: str, in_delta: bool = False) -> Any:
    """An event with empty texts in its delta, but for ``half`` at ``path``; None: it is elsewhere."""
    if isinstance(data, str):
        return whole_text(half) if path == () else "" if in_delta else data
    if isinstance(data, dict):
        return {
            key: value if key in _KEPT else _only(value, _below(path, key), half, in_delta or key == _DELTA)
            for key, value in cast("dict[str, Any]", data).items()
        }
    if isinstance(data, list):
        values = enumerate(cast("list[Any]", data))
        return [_only(each, _below(path, _number(each, at)), half, in_delta) for at, each in values]
    return data


def _below(path: _Path | None, key: Any) -> _Path | None:
    return path[1:] if path and path[0] == key else None
