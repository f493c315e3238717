"""An event as a self-contained line of JSON. Lines of logs share contents instead: :mod:`agentflow.observe.log_lines`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agentflow.core.events.events import Event

Redact = Callable[[Any], Any]
"""Returns JSON data without its secrets; ``AgentFlow.redact`` is one."""


def _as_it_is(data: Any) -> Any:
    return data


def event_line(event: Event, redact: Redact = _as_it_is) -> str:
    """``event`` as one JSON line, without the line end.

    ``redact`` removes the secrets from the event's data, text by text: applied to the line, a pattern without an end
    would remove the rest of the line.
    """
    return json.dumps(redact(event.to_dict()), ensure_ascii=False, default=lambda other: redact(str(other)))
