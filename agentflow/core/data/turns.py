"""The most model calls that one prompt may make, which running it keeps to and bounds promise."""

from __future__ import annotations

WITHOUT_TOOLS = (1, 2)
"""Turns of a prompt that no tools are offered to, nor run for by the provider: one, and by whether its answer is checked one to repair it."""
MOST_SUMMARIES = 7
"""Model calls that summarise a conversation before one prompt."""

__all__ = ["MOST_SUMMARIES", "WITHOUT_TOOLS"]
