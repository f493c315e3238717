"""Tracks how full the context window is: from the provider's last figures, with estimates in between."""

from __future__ import annotations

import logging

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ProviderError, ResourceExhausted
from agentflow.core.data.messages import ModelProfile, ModelRequest, ModelResponse
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.handler.estimate import Estimator

_log = logging.getLogger(__name__)

WARN_AT = 0.8
"""Share of the window at which a warning is published."""


class ContextGuard:
    """Watches how much of its model's context window a prompt uses. ``window`` is its size in tokens."""

    __slots__ = ("_adapter", "_call", "_estimator", "_profile", "_warned", "_window")

    def __init__(
        self, adapter: ProviderAdapter, profile: ModelProfile, window: int, estimator: Estimator, call: CallContext
    ) -> None:
        self._adapter = adapter
        self._profile = profile
        self._window = window
        self._estimator = estimator
        self._call = call
        self._warned = False

    async def before(self, request: ModelRequest, used: int) -> None:
        """Check a request of about ``used`` tokens before it is sent. Raises ResourceExhausted if it cannot fit."""
        window = self._window
        if used < window * WARN_AT:
            return
        if not self._estimator.counted and self._profile.counts_tokens:
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

    def after(self, response: ModelResponse) -> None:
        """Check the provider's own figures after an answer, and warn if the window is nearly full."""
        usage = response.usage
        if usage.input_tokens:
            self._look(usage.input_tokens + usage.output_tokens)

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
