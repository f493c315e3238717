"""The exchanges that an effect adds to a conversation, as they are stored beside its value."""

from __future__ import annotations

import json
import re
from typing import Any

from agentflow.core.events.journal import JsonText

_COUNTED = re.compile(r'\{"exchanges":(\d+),')


def counted(changes: dict[str, Any]) -> dict[str, Any]:
    """Changes of a conversation as they are stored: if they are only exchanges, their number comes first."""
    return {"exchanges": len(changes["turns"]), **changes} if changes.keys() == {"turns"} else changes


def exchanges_of(stored: Any) -> int | None:
    """The number of exchanges in stored changes, read from the first characters; None if they hold other changes."""
    if not isinstance(stored, JsonText):
        return stored.get("exchanges")
    match = _COUNTED.match(stored)
    return None if match is None else int(match[1])


def data_of(stored: Any) -> dict[str, Any]:
    """Stored changes as JSON data."""
    return json.loads(stored) if isinstance(stored, JsonText) else stored


__all__ = ["counted", "data_of", "exchanges_of"]
