"""Warns when a change between two requests of a tool loop, or between two prompts of a conversation, makes the provider read the input
anew.

Providers cache the beginning of a request, in this order: tools, system prompt, messages. A change in one of them is a miss for all that
follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import clip
from agentflow.core.data.messages import Message, ModelRequest, ModelResponse, ToolSpec

Cause: TypeAlias = Literal["tools", "system", "context", "messages", "model"]
LEAST_TOKENS = 1_024
"""Smallest input that is worth a warning: providers cache no less, or hardly."""

_HINTS: dict[Cause, str] = {
    "tools": "offer all tools from the first turn on, or some to programs alone: tools=[code(flow.tools)]",
    "system": "write the part that changes into the prompt, after everything that stays",
    "context": "give each prompt the same files, or name them in the prompt, after everything that stays",
    "messages": "let middleware write the same text into an earlier message each time",
    "model": "name the model that answers first: model=..., with the others as fallbacks=[...]",
}


def warn_of_breaks(
    before: ModelRequest, now: ModelRequest, told: set[str], call: CallContext, *, tokens: int, cleared: bool
) -> None:
    """Warn of each cause for which the request ``now`` does not continue ``before``, which had ``tokens`` of input, unless it was
    ``told``; ``cleared``: messages were changed on purpose."""
    changes = _changes(before.tools, before.system, now, "turns")
    if not cleared and (at := _rewritten(before.messages, now.messages)) is not None:
        changes["messages"] = f"message {at + 1} of {len(before.messages)} changed between two turns"
    for cause, change in changes.items():
        _warn(cause, change, tokens, told, call)


def warn_of_other_model(before: ModelResponse, now: ModelResponse, told: set[str], call: CallContext) -> None:
    """Warn that another model gave the answer ``now`` than the one ``before``, unless that was ``told``."""
    _warn("model", f"{now.model} answered after {before.model}", before.usage.input_tokens, told, call)


def warn_of_other_beginning(
    tools: Sequence[ToolSpec], system: str, now: ModelRequest, told: set[str], call: CallContext, *, tokens: int
) -> None:
    """Warn of each cause for which ``now``, the first request of a prompt, does not begin as the last one of its conversation, which had
    these ``tools``, this ``system`` text and ``tokens`` of input."""
    between = "prompts of a conversation"
    changes = _changes(tools, system, now, between)
    if not changes:
        changes["context"] = f"the data context changed between two {between}"
    for cause, change in changes.items():
        _warn(cause, change, tokens, told, call)


def _warn(cause: Cause, change: str, tokens: int, told: set[str], call: CallContext) -> None:
    """Warn of one cause, unless it was ``told`` or so few tokens are not cached."""
    if cause in told or tokens < LEAST_TOKENS:
        return
    told.add(cause)
    call.warn(
        "handler/cache-broken",
        f"{change}, so the provider reads the {tokens:,} tokens of the last request anew; {_HINTS[cause]}",
        cause=cause,
        tokens=tokens,
    )


def _changes(tools: Sequence[ToolSpec], system: str, now: ModelRequest, between: str) -> dict[Cause, str]:
    changes: dict[Cause, str] = {}
    if changed := _tools_changed(_sent(tools), _sent(now.tools)):
        changes["tools"] = f"the list of tools changed between two {between} ({changed})"
    if system != now.system:
        changes["system"] = f"the system prompt changed between two {between}"
    return changes


def _sent(tools: Sequence[ToolSpec]) -> dict[str, ToolSpec]:
    """Tools by name; deferred ones are behind the beginning."""
    return {tool.name: tool for tool in tools if not tool.deferred}


def _tools_changed(before: dict[str, ToolSpec], now: dict[str, ToolSpec]) -> str:
    parts = [
        f"{label} {clip(', '.join(names), 200)}"
        for label, names in (
            ("new:", [name for name in now if name not in before]),
            ("gone:", [name for name in before if name not in now]),
            ("different:", [name for name in now if name in before and now[name] != before[name]]),
        )
        if names
    ]
    return "; ".join(parts) or ("another order" if [*before] != [*now] else "")


def _rewritten(before: Sequence[Message], now: Sequence[Message]) -> int | None:
    """The index of the first message of ``before`` that ``now`` does not begin with; the last may be longer."""
    for at, message in enumerate(before):
        if at >= len(now):
            return at
        if now[at] is message or now[at] == message:
            continue
        longer = at == len(before) - 1 and now[at].role == message.role
        if not longer or now[at].parts[: len(message.parts)] != message.parts:
            return at
    return None
