"""The most model calls that one prompt may make, which running it keeps to and bounds promise."""

from __future__ import annotations


def most_turns(allowed: int, *, calls_tools: bool, checked: bool) -> int:
    """Of ``allowed`` turns, those that a prompt may take: one without tools, and one more to repair an answer that is ``checked``.

    ``calls_tools``: it is offered tools, or the provider runs some for it, which may take all of them.
    """
    return allowed if calls_tools else min(allowed, 2 if checked else 1)


MOST_SUMMARIES = 7
"""Model calls that summarise a conversation before one prompt."""

__all__ = ["MOST_SUMMARIES", "most_turns"]
