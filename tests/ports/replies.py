"""What the scripted models of the ports say, and what they were told."""

from __future__ import annotations

from typing import Any

from agentflow import ModelRequest
from agentflow.core.data.messages import ToolResultPart


def calls(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def both(*replies: dict[str, Any]) -> dict[str, Any]:
    """One reply with the tool calls of several."""
    return {"tool_calls": [call for reply in replies for call in reply["tool_calls"]]}


def told(request: ModelRequest) -> str:
    """The tool results that the model was sent last, a line each. As a reply: the model says what it was told."""
    return "\n".join([part.text for part in request.messages[-1].parts if isinstance(part, ToolResultPart)])


def offered(request: ModelRequest) -> list[str]:
    """The names of the tools that a request offers."""
    return [each.name for each in request.tools]
