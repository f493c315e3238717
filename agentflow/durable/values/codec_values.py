"""The forms in which values of Python's own types are stored: a name of the type, and a text."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

from agentflow.core.data.frozen import frozen


@frozen
class Native:
    """How values of one type are written and read."""

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _span(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


NATIVE: Mapping[type, Native] = MappingProxyType(
    {
        Decimal: Native("decimal", str, Decimal),
        datetime: Native("datetime", datetime.isoformat, datetime.fromisoformat),
        date: Native("date", date.isoformat, date.fromisoformat),
        time: Native("time", time.isoformat, time.fromisoformat),
        timedelta: Native("timedelta", _span, lambda data: timedelta(*data)),
        UUID: Native("uuid", str, UUID),
        bytes: Native("bytes", lambda value: b64encode(value).decode(), b64decode),
    }
)
"""The forms of exactly these types; a subclass is another type, which a text would not give again."""

READERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {**{each.name: each.read for each in NATIVE.values()}, "path": Path}
)


__all__ = ["NATIVE", "READERS"]
