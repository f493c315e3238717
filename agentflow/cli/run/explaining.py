"""What a policy would have denied, for ``--explain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentflow.core.events.events import Event, Warning


class Denials:
    """An observer of a flow that denies nothing: ``listed`` is what its policy would have denied, in order."""

    def __init__(self) -> None:
        self.listed: list[Mapping[str, Any]] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Warning) and event.code == "provenance/denied":
            where = "" if event.span is None else f"{event.span.line}:{event.span.column}"
            self.listed.append({**(event.details or {}), "at": where})

    def text(self) -> str:
        """A line for each, and one if there are none."""
        if not self.listed:
            return "the policy would have denied nothing"
        lines = [f"the policy would have denied {len(self.listed)} effect{'s' * (len(self.listed) != 1)}:"]
        for each in self.listed:
            refused, trail = ", ".join(each.get("refused", ())), " -> ".join(each.get("trail", ()))
            lines.append(f"  '{each.get('argument')}' of {each.get('name')}: {refused} may not reach it ({trail})")
        return "\n".join(lines)
