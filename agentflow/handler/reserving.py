"""Reserves for a model call, in a run with a budget, the most that it may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.spending import Funds, Reservation
from agentflow.core.call.work_clock import WorkClock
from agentflow.core.data.messages import CAP_SETTINGS, ModelProfile, ModelRequest, thinking_tokens
from agentflow.core.events.events import WaitStarted
from agentflow.core.ports.ports import Pricing, ProviderAdapter

PATIENCE_S = 1.0
"""Seconds of waiting before a warning is published."""
USUAL_CAP = 8_192
"""Default maximum of tokens of an answer in a run with a budget."""
WAITING = (
    "a model call waits for others to give back what they have set aside of the run's tokens or money; state "
    "max_output_tokens to have more of them at once"
)
"""The warning for a call that waits for the budget."""


@contextmanager
def _waiting(call: CallContext, clock: WorkClock | None) -> Generator[None]:
    """A block that waits for the budget, while ``clock`` stops: WaitStarted and WaitFinished at the path of ``call``, and a Warning
    after a while."""
    if clock is not None:
        clock.stop()
    with call.scope(WaitStarted, call.path, reason="budget") as scope:
        late = asyncio.get_running_loop().call_later(PATIENCE_S, scope.call.warn, "limits/waiting", WAITING)
        try:
            yield
        finally:
            late.cancel()
            if clock is not None:
                clock.go_on()


class Reserving:
    """Reserves for the calls of a prompt from the ``funds`` of its run; ``reserved`` is for the present one. With ``in_batch`` a call is
    quoted at the price of a batch.

    Parameters: ``adapter`` and ``pricing`` know the price of ``model``, ``profile`` its limits; ``rated`` says that adapters need the
    length of requests; ``clock`` is the prompt's time, if limited.
    """

    __slots__ = ("_adapter", "_clock", "_funds", "_model", "_pricing", "_profile", "_rated", "in_batch", "reserved")

    def __init__(
        self,
        funds: Funds,
        adapter: ProviderAdapter,
        model: str,
        profile: ModelProfile,
        pricing: Pricing | None,
        *,
        rated: bool,
        clock: WorkClock | None,
    ) -> None:
        self._funds = funds
        self._adapter = adapter
        self._model = model
        self._profile = profile
        self._pricing = pricing
        self._rated = rated
        self._clock = clock
        self.in_batch = False
        self.reserved: Reservation | None = None

    async def reserve(
        self, request: ModelRequest, tokens: int, call: CallContext, *, exact: bool, put_by: bool
    ) -> ModelRequest:
        """Reserve the most that a request of ``tokens`` may cost; returns it with the cap that ensures that."""
        cap = request.max_output_tokens or default_cap(self._profile, request.settings, tokens)
        cap = await self._grant(request, tokens, cap, call, exact=exact, put_by=put_by)
        if not self._funds.capped:
            return replace(request, input_tokens=tokens) if self._rated else request
        if cap == request.max_output_tokens and not self._rated:
            return request
        return replace(request, max_output_tokens=cap, input_tokens=tokens)

    async def again(self, request: ModelRequest, tokens: int, call: CallContext, *, put_by: bool) -> None:
        """Reserve as much again for a request that was charged."""
        if self.reserved is not None:
            self.reserved.free()
            await self._grant(request, tokens, self.reserved.cap, call, exact=True, put_by=put_by)

    async def _grant(
        self, request: ModelRequest, tokens: int, cap: int, call: CallContext, *, exact: bool, put_by: bool
    ) -> int:
        """Reserve a call's input and answer, waiting if need be. Returns the maximum of tokens of the answer."""
        quote, model, pricing = None, self._model, self._pricing
        if self._funds.priced and pricing is not None:
            quote = await pricing.quote(self._adapter, model, tokens, request.prompt_cache)
            if quote is None:
                model = pricing.unpriced(self._adapter, model)
            elif self.in_batch:
                quote = pricing.batched(quote)
        self.reserved = reserved = self._funds.reserve(
            tokens, cap, quote, model, priority=call.priority, exact=exact, put_by=put_by
        )
        if reserved.waits:
            with _waiting(call, self._clock):
                await reserved.granted()
        return reserved.cap


def default_cap(profile: ModelProfile, settings: Mapping[str, Any], tokens: int) -> int:
    """The maximum of tokens of an answer to a request that states none: from native ``settings``, else the model's default and
    its thinking budget.

    ``tokens`` are those of the request, which must fit into the context window together with its answer.
    """
    native = [value for name in CAP_SETTINGS if type(value := settings.get(name)) is int and value > 0]
    if native:
        return min(native)
    cap = USUAL_CAP + (thinking_tokens(settings) or profile.thinking_tokens)
    cap = min(profile.max_output_tokens or cap, cap)
    window = profile.context_window
    return cap if window is None else max(1, min(cap, window - tokens))
