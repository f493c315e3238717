"""Anthropic's prompt cache by its published rules, for the loopback server: a simulation, which counts four bytes a token.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching: a request is read in the order tools, system,
messages. Up to four blocks are marked. For each mark the server looks whether the prefix that ends there, or at one of the
20 blocks before it, is kept; the longest is read from the cache. What stands after it, up to the last mark, is written,
unless the prefix is shorter than the model's minimum. What was kept lives for five minutes, or an hour, from its last use.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from typing import Any

MOST_MARKS = 4
LOOK_BACK = 20
_MINIMA = (("haiku-4|opus-4-5|opus-4-6", 4_096), ("opus-5|fable|mythos", 512), ("", 1_024))
"""Tokens of the shortest prefix that a model keeps."""
_LIFE_S = {"5m": 300.0, "1h": 3_600.0}


class SimulatedCache:
    """What one server keeps. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, float]] = {}

    def read(self, body: dict[str, Any]) -> dict[str, int]:
        """The input tokens of a request: ``input_tokens`` beside ``cache_read``, ``cache_write`` and ``cache_write_1h``.

        Raises ValueError for a request that the API refuses.
        """
        now = self._clock()
        blocks = list(_blocks(body))
        marks = [at for at, (_, mark) in enumerate(blocks) if mark is not None]
        if len(marks) > MOST_MARKS:
            raise ValueError(
                f"A maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {len(marks)}."
            )
        digest = hashlib.blake2b(str(body["model"]).encode())
        prefixes: list[str] = []
        sizes: list[int] = []
        size = 0
        for text, _ in blocks:
            digest.update(text.encode())
            prefixes.append(digest.hexdigest())
            size += -(-len(text) // 4)
            sizes.append(size)
        read = 0
        for mark in marks:
            for at in range(mark, max(-1, mark - LOOK_BACK), -1):
                kept = self._kept.get(prefixes[at])
                if kept is not None and kept[0] > now:
                    self._kept[prefixes[at]] = (now + kept[1], kept[1])
                    read = max(read, sizes[at])
                    break
        minimum = next(tokens for pattern, tokens in _MINIMA if re.search(pattern, str(body["model"])))
        written = long = 0
        for mark in marks:
            life = _LIFE_S[(blocks[mark][1] or {}).get("ttl", "5m")]
            if sizes[mark] >= minimum and sizes[mark] > read:
                self._kept[prefixes[mark]] = (now + life, life)
                more = sizes[mark] - read - written
                written += more
                long += more if life > _LIFE_S["5m"] else 0
        return {
            "input_tokens": size - read - written,
            "cache_read": read,
            "cache_write": written,
            "cache_write_1h": long,
        }


def _blocks(body: dict[str, Any]) -> Any:
    """``(text, cache_control)`` of every block, in the order in which a request is read."""
    system = body.get("system") or []
    for block in [*body.get("tools", ()), *([{"text": system}] if isinstance(system, str) else system)]:
        yield _split(block)
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block.get("type") == "thinking" and "cache_control" in block:
                raise ValueError("cache_control cannot be set on thinking blocks")
            yield _split({"role": message["role"], **block})


def _split(block: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    if "cache_control" in block and block.get("text") == "":
        raise ValueError("cache_control cannot be set for empty text blocks")
    rest = {key: value for key, value in block.items() if key != "cache_control"}
    return json.dumps(rest, sort_keys=True), block.get("cache_control")
