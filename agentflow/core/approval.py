"""What an approver is asked."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from agentflow.core.facts import Authority
from agentflow.core.frozen import frozen

PROGRAM = "program"
"""The ``tool`` of a request for a whole program."""


@frozen(kw_only=True)
class Manifest:
    """What a program that a model wrote may do at most: its text, what it can reach, and its upper bounds as text.

    ``covers`` are the tools whose calls need no further approval once the program has one; ``unbounded`` says of every part
    without a bound where it is and why.
    """

    program: str
    authority: Authority
    covers: tuple[str, ...]
    model_calls: str
    tool_calls: str
    usd: str
    unbounded: tuple[str, ...] = ()

    def text(self) -> str:
        """The manifest as lines of text, the program last."""
        rows = [
            ("model calls", self.model_calls),
            ("tool calls", self.tool_calls),
            ("money", self.usd),
            *self.authority.rows(),
            ("unasked then", ", ".join(self.covers)),
            *[("no bound", each) for each in self.unbounded],
        ]
        return "\n".join([*[f"{label:<13} {text}" for label, text in rows], "", self.program])


@frozen
class ApprovalRequest:
    """A request to an approver: which tool or command, with which arguments, and why approval is needed.

    ``text`` is safe to show (control characters escaped); ``digest`` binds the approval to exactly what will run.
    ``run_id`` and ``path`` say who asks; ``call_id`` is the model's tool call, if a model asked for it. A program that a model
    wrote is asked for once, as the tool ``program``, with its ``manifest``. ``identity`` says which tool it is, whatever its
    arguments are: an approved program covers that one and no other of its name.
    """

    tool: str
    text: str
    digest: str
    reason: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    run_id: str = ""
    path: str = ""
    call_id: str | None = None
    manifest: Manifest | None = None
    identity: str = ""
