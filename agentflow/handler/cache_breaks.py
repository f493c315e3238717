"""Warns when a change between two requests of a tool loop, or between two prompts of a conversation, makes the provider read the input
anew.

Providers cache the beginning of a request, in this order: tools, system prompt, messages. A change in one of them is a miss for all that
follows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import clip
from agentflow.core.data.messages import Message, ModelRequest, ToolSpec
from agentflow.handler.prompt_opening import LastRequest

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
    before: ModelRequest, now: ModelRequest, told: set[Cause], call: CallContext, *, tokens: int, cleared: bool
) -> None:
    """Warn of each cause for which the request ``now`` does not continue ``before``, which had ``tokens`` of input, unless it was
    ``told``; ``cleared``: messages were changed on purpose."""
    for cause, change in _changes(before, now, cleared):
        warn(cause, change, tokens, told, call)


def warn_of_other_beginning(last: LastRequest, now: ModelRequest, call: CallContext) -> None:
    """Warn of each cause for which ``now``, the first request of a prompt, does not begin as the ``last`` one of its conversation."""
    if last.tokens < LEAST_TOKENS:
        return
    changes: list[tuple[Cause, str]] = []
    if tools := _tools_changed(_sent(last.tools), _sent(now.tools)):
        changes.append(("tools", f"the list of tools changed between two prompts of a conversation ({tools})"))
    if last.system != now.system:
        changes.append(("system", "the system prompt changed between two prompts of a conversation"))
    if not changes:
        changes.append(("context", "the data context changed between two prompts of a conversation"))
    for cause, change in changes:
        warn(cause, change, last.tokens, last.told, call)


def warn(cause: Cause, change: str, tokens: int, told: set[Any], call: CallContext) -> None:
    """Warn of one cause, unless it was ``told``."""
    if cause in told:
        return
    told.add(cause)
    call.warn(
        "handler/cache-broken",
        f"{change}, so the provider reads the {tokens:,} tokens of the last request anew; {_HINTS[cause]}",
        cause=cause,
        tokens=tokens,
    )


def _changes(before: ModelRequest, now: ModelRequest, cleared: bool) -> Iterator[tuple[Cause, str]]:
    tools = _tools_changed(_sent(before.tools), _sent(now.tools))
    if tools:
        yield "tools", f"the list of tools changed between two turns ({tools})"
    if before.system != now.system:
        yield "system", "the system prompt changed between two turns"
    if not cleared and (at := _rewritten(before.messages, now.messages)) is not None:
        yield "messages", f"message {at + 1} of {len(before.messages)} changed between two turns"


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
