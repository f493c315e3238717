"""How many values a JSON text may hold: a parser in C cannot be interrupted, and building a value takes some 0.15 us."""

from __future__ import annotations

MAX_JSON_VALUES = 200_000
"""Maximum number of values in one JSON text from a model or its server: some 25 ms of parsing."""
_DENSE = 400_000


def has_too_many_values(data: bytes | bytearray) -> bool:
    """Whether ``data`` may hold more than :data:`MAX_JSON_VALUES` values, judged by its commas and brackets."""
    return len(data) > _DENSE and data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_JSON_VALUES
