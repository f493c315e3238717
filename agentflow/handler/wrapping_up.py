"""The last turn that its limits allow an agent: the model is told to finish, and may call no tool."""

from __future__ import annotations

import time

from agentflow.core.call.call import CallContext
from agentflow.core.call.reading import following
from agentflow.core.data.messages import Message, TextPart, Usage

NOTICE = (
    "This is your last turn: {}. You cannot call tools any more. Give your final answer now, from what you have, and say what"
    " is missing."
)
"""The text that the model reads, with the limit that is near."""
_SPENT = {
    "usd": "the money of this run is used up",
    "tokens": "the tokens of this run are used up",
    "wall_s": "the time is up",
}


class WrapUp:
    """Decides which turn of a prompt at ``call`` is its last. ``notice`` is the text of that turn, once it is reached.

    It is the last turn that the task's turns or the run's model calls allow, and one after which the run's money, tokens or
    time might not last for another: less than twice the most that a turn of this prompt has taken is left. Under a strict policy
    only the turns count: the rest of the run's limits tells how much its arms have used.
    """

    __slots__ = ("_began", "_by_turns", "_most", "_run", "notice")

    def __init__(self, call: CallContext) -> None:
        self._run = call.run
        self._by_turns = call.run.waits_at_limits or following(call.reading) == "strict"
        self._most = {"usd": 0.0, "tokens": 0.0, "wall_s": 0.0}
        self._began: float | None = None
        self.notice: str | None = None

    def begins(self, turns_left: int) -> bool:
        """Whether the turn that begins is the last one, when ``turns_left`` are left with it. True once."""
        now = time.monotonic()
        if self._began is not None:
            self._most["wall_s"] = max(self._most["wall_s"], now - self._began)
        self._began = now
        if self.notice is not None:
            return False
        reason = self._reason(turns_left)
        if reason is not None:
            self.notice = NOTICE.format(reason)
        return reason is not None

    def _reason(self, turns_left: int) -> str | None:
        if turns_left <= 1:
            return "no turns are left"
        if self._by_turns:
            return None
        if self._run.calls_left() == 1:
            return "no model calls are left"
        for name, most in self._most.items():
            left = self._run.left(name) if most else None
            if left is not None and left < 2 * most:
                return _SPENT[name]
        return None

    def took(self, usage: Usage, cost: float | None) -> None:
        """Note the cost of a turn."""
        self._most["tokens"] = max(self._most["tokens"], usage.total_tokens)
        self._most["usd"] = max(self._most["usd"], cost or 0.0)


def noticed(messages: list[Message], notice: str) -> None:
    """Add a notice to the end of a conversation, in the message of the user that ends it."""
    last = messages[-1]
    if last.role == "user":
        messages[-1] = Message("user", (*last.parts, TextPart(notice)))
    else:
        messages.append(Message("user", (TextPart(notice),)))
