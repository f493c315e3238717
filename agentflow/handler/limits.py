"""Tracks how full the context window is: from the provider's last figures, with estimates in between."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import cast

from agentflow.core.call import CallContext
from agentflow.core.errors import ProviderError, ResourceExhausted
from agentflow.core.messages import (
    DocumentPart,
    ImagePart,
    Message,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from agentflow.core.ports import ProviderAdapter

_log = logging.getLogger(__name__)

WARN_AT = 0.8
"""Share of the window at which a warning is published."""
CHARACTERS_PER_TOKEN = 4
"""An estimate for English text. Code and other languages take more, so near the limit the provider is asked."""
IMAGE_TOKENS = 1_600


def estimate(messages: Iterable[Message]) -> int:
    """Tokens of messages, estimated from their length; an image or document counts as 1,600."""
    characters = 0
    for message in messages:
        characters += 16
        for part in message.parts:
            kind = part.__class__  # an exact test is fast: a long history is walked before every prompt
            if kind is TextPart or kind is ToolResultPart or kind is ThinkingPart:
                characters += len(cast(TextPart, part).text)
                if kind is ToolResultPart and cast(ToolResultPart, part).parts:
                    media = [each for each in cast(ToolResultPart, part).parts if not isinstance(each, TextPart)]
                    characters += len(media) * IMAGE_TOKENS * CHARACTERS_PER_TOKEN
            elif isinstance(part, ToolCallPart):
                characters += 40 + sum(
                    len(value) if isinstance(value, str) else 20 for value in part.arguments.values()
                )
            elif kind is ImagePart or kind is DocumentPart:
                characters += IMAGE_TOKENS * CHARACTERS_PER_TOKEN
    return characters // CHARACTERS_PER_TOKEN


class ContextGuard:
    """Watches how much of its model's context window a prompt uses. ``window`` is its size in tokens."""

    __slots__ = ("_adapter", "_call", "_covered", "_known", "_profile", "_warned", "_window")

    def __init__(self, adapter: ProviderAdapter, profile: ModelProfile, window: int, call: CallContext) -> None:
        self._adapter = adapter
        self._profile = profile
        self._window = window
        self._call = call
        self._known = 0
        self._covered = 0
        self._warned = False

    async def before(self, request: ModelRequest) -> None:
        """Check a request before it is sent. Raises ResourceExhausted if it cannot fit."""
        window = self._window
        used = self._known + estimate(request.messages[self._covered :])
        if not self._known:
            used += len(request.system) // CHARACTERS_PER_TOKEN
        if used < window * WARN_AT:
            return
        if not self._known and self._profile.counts_tokens:
            used = await self._count(request, used)
        self._look(used)
        if used >= window:
            raise ResourceExhausted(
                f"the prompt needs about {used:,} tokens, {self._profile.model} has a context window of {window:,}",
                resource="context",
                used=used,
                limit=window,
                hint="give it less: fewer files, fewer history turns, or split the task",
            )

    async def _count(self, request: ModelRequest, otherwise: int) -> int:
        try:
            return await self._adapter.count_tokens(request)
        except ProviderError as error:  # a failed count must not fail a call that may succeed
            _log.info("tokens could not be counted (%s); the estimate stands", error.code)
            return otherwise

    def after(self, response: ModelResponse, messages: Sequence[Message]) -> None:
        """Record the provider's figures; ``messages`` are all messages so far, including the answer."""
        usage = response.usage
        if usage.input_tokens:
            self._known = usage.input_tokens + usage.output_tokens
            self._covered = len(messages)
            self._look(self._known)

    def _look(self, used: int) -> None:
        window = self._window
        if used >= window * WARN_AT and not self._warned:
            self._warned = True
            self._call.warn(
                "context/near-limit",
                f"{used:,} of {window:,} tokens of {self._profile.model}'s context window are in use",
                used=used,
                limit=window,
            )
