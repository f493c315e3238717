"""What an approver is asked."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from agentflow.core.frozen import frozen


@frozen
class ApprovalRequest:
    """A request to an approver: which tool or command, with which arguments, and why approval is needed.

    ``text`` is safe to show (control characters escaped); ``digest`` binds the approval to exactly what will run.
    ``run_id`` and ``path`` say who asks; ``call_id`` is the model's tool call, if a model asked for it.
    """

    tool: str
    text: str
    digest: str
    reason: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    run_id: str = ""
    path: str = ""
    call_id: str | None = None
