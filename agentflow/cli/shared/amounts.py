"""Formats durations, money and tokens for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def seconds(value: float) -> str:
    """Format a duration of ``value`` seconds."""
    if value < 1:
        return f"{value * 1_000:.0f} ms"
    return f"{value:.1f} s" if value < 600 else f"{value / 60:.0f} min"


def counted(number: int, thing: str) -> str:
    """A number of things, for people: one effect, ``1 effect``; more, ``2,000 effects``."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def money(value: float | None) -> str:
    """Format an amount of US dollars; None is unknown."""
    return "unknown" if value is None else f"${value:.4f}" if value else "$0"


def tokens(usage: Mapping[str, Any]) -> str:
    """Format the tokens of a ``usage``, with the share that came from the provider's cache."""
    read, cached = usage.get("input_tokens", 0), usage.get("cache_read_tokens", 0)
    share = f" ({cached / read:.0%} cached)" if read and cached else ""
    return f"{read:,} in{share}, {usage.get('output_tokens', 0):,} out"
