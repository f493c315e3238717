"""Data of the host's own on the event stream: ``ctx.emit(Found(path="a.py"))``."""

from __future__ import annotations

import re
from typing import Any

from agentflow.core.data.errors import DataError, clip
from agentflow.core.data.values import plain_work, to_json
from agentflow.core.data.walk import LEAVES, finish

MOST_CHARACTERS = 64 * 1024
"""Most characters of one such event, or of the value of a signal, as JSON."""
_NAME = re.compile(r"[\w.:-]{1,80}")
_UNNAMED = (dict, list, tuple, *LEAVES)


def named_data(value: object, name: object) -> tuple[str, Any]:
    """``value`` as JSON data and the name of its event: ``name``, else that of its class, and ``data`` for plain data.

    Raises DataError: ``event/not-data``, ``event/too-large``, ``event/name``.
    """
    if isinstance(value, type):
        raise DataError(
            f"ctx.emit was given the class {value.__name__}, and not an instance of it",
            code="event/not-data",
            hint=f"write ctx.emit({value.__name__}(...))",
        )
    if name is None:
        name = "data" if type(value) in _UNNAMED else type(value).__name__
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise DataError(
            f"{clip(repr(name), 120)} is not the name of an event",
            code="event/name",
            hint="names are 1 to 80 letters, digits and . _ : -, for example ctx.emit(row, name='row-done')",
        )
    return name, json_data(value, f"the event '{name}'", "event")


def json_data(value: object, what: str, kind: str) -> Any:
    """``value`` as JSON data. Raises DataError (``event/not-data``, ``event/too-large``, of a ``kind`` signal ``signal/...``), which says ``what`` it is."""

    def no_data(part: object) -> Any:
        raise DataError(
            f"{what} must be JSON data, and {clip(repr(part), 120)} is not",
            code="event/not-data" if kind == "event" else "signal/not-data",
            hint="give texts, numbers, lists, dicts, dataclasses or pydantic models",
        )

    data = finish(plain_work(value, no_data))
    size = len(to_json(data))
    if size > MOST_CHARACTERS:
        raise DataError(
            f"{what} has {size:,} characters as JSON, and {MOST_CHARACTERS:,} are allowed",
            code="event/too-large" if kind == "event" else "signal/too-large",
            hint="write the data to a file, and give its name and the part that is needed at once",
        )
    return data
