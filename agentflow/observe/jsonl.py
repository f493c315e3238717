"""An event as a line of JSON that stands alone; the lines of logs share what recurs: :mod:`agentflow.observe.log_lines`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agentflow.core.events import Event

Redact = Callable[[Any], Any]
"""Gives JSON data without the secrets in it; ``AgentFlow.redact`` is one."""


def _as_it_is(data: Any) -> Any:
    return data


def event_line(event: Event, redact: Redact = _as_it_is) -> str:
    """``event`` as one JSON line, without the line end.

    ``redact`` takes the secrets out of the event's data, text by text: in the finished line a key whose end is missing
    would take the rest of the line along.
    """
    return json.dumps(redact(event.to_dict()), ensure_ascii=False, default=lambda other: redact(str(other)))
