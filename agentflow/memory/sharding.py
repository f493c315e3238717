"""Splits candidates into shards that fit a model's token budget."""

from __future__ import annotations

from collections.abc import Mapping

_CHARS_PER_TOKEN = 3.5


def estimated_tokens(text: str) -> int:
    """Tokens of ``text``, estimated at 3.5 characters each (code is denser than prose)."""
    return int(len(text) / _CHARS_PER_TOKEN) + 1


def shards(described: Mapping[str, str], budget_tokens: int) -> list[dict[str, str]]:
    """Split candidates, in order, into shards of similar size and at most ``budget_tokens`` each.

    A single candidate larger than the budget is truncated to it and gets a shard of its own.
    """
    if not described:
        return []
    limit_chars = max(200, int(budget_tokens * _CHARS_PER_TOKEN))
    cut = {path: text[: limit_chars - len(path) - 8] for path, text in described.items()}
    sizes = {path: estimated_tokens(path) + estimated_tokens(text) for path, text in cut.items()}
    count = max(1, -(-sum(sizes.values()) // budget_tokens))
    aim = sum(sizes.values()) / count
    result: list[dict[str, str]] = [{}]
    filled = 0
    for path, text in cut.items():
        if result[-1] and (
            filled + sizes[path] > budget_tokens or (filled + sizes[path] / 2 > aim and len(result) < count)
        ):
            result.append({})
            filled = 0
        result[-1][path] = text
        filled += sizes[path]
    return result
