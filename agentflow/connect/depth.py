"""Messages nested deeper than the SDK's parser goes: overdeep parts are cut out of the items of a list.

The parser refuses the whole message, so one such tool would lose all tools of a server. An item that was cut is still too
deep for :mod:`agentflow.connect.items`, which leaves it out by its name. Anywhere else, in the data of a result for
instance, nothing is cut: the message stays unreadable.
"""

from __future__ import annotations

import re

from pydantic_core import from_json

from agentflow.connect.items import LISTS, MAX_DEPTH

_ENVELOPE = 3
"""Levels around an item: the message, its result, the list."""
_KEPT = MAX_DEPTH + _ENVELOPE + 1
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]', re.DOTALL)
_KEYS = frozenset(f'"{name}"'.encode() for name in LISTS)


def readable(message: bytes) -> bytes:
    """The ``message``, without the parts of list items too deep to be parsed."""
    if message.count(b"{") + message.count(b"[") <= _KEPT:
        return message
    try:
        from_json(message)
    except ValueError:
        return _cut(message)
    return message


def readable_event(event: bytes) -> bytes:
    """A whole server-sent event with a message as its data, in the form of :func:`readable`."""
    if event.count(b"{") + event.count(b"[") <= _KEPT:
        return event
    lines = event.splitlines()
    data = b"\n".join([line[5:] for line in lines if line.startswith(b"data:")])
    cut = readable(data)
    if cut is data:
        return event
    others = [line for line in lines if line and not line.startswith(b"data:")]
    # no line ends within a text of JSON, and elsewhere they mean nothing
    return b"\n".join([*others, b"data:" + cut.replace(b"\n", b" "), b"", b""])


def _cut(message: bytes) -> bytes:
    """Replace the part below the kept levels of an item with null."""
    parts: list[bytes] = []
    depth = start = 0
    key, in_items = b"", False
    for match in _TOKEN.finditer(message):
        token = match[0]
        if token.startswith(b'"'):
            key = token if depth == _ENVELOPE - 1 else key
        elif token in b"{[":
            depth += 1
            if depth == _ENVELOPE:
                in_items = token == b"[" and key in _KEYS
            if in_items and depth == _KEPT + 1:
                parts += [message[start : match.start()], b"null"]
        else:
            if in_items and depth == _KEPT + 1:
                start = match.end()
            depth -= 1
    return b"".join([*parts, message[start:]])
