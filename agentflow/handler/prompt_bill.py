"""The bill of one prompt: the usage and cost of its model calls, and the reservation of the present one."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from agentflow.core.call.call import CallContext
from agentflow.core.call.spending import Reservation
from agentflow.core.call.work_clock import WorkClock
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import NANO
from agentflow.core.data.messages import ModelProfile, ModelRequest, ModelResponse, Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.ports.ports import Pricing, ProviderAdapter
from agentflow.handler.token_estimate import CHARACTERS_PER_TOKEN, Calibration, Estimator

if TYPE_CHECKING:
    from agentflow.handler.reserving import Reserving


class PromptBill:
    """The bill of a prompt: its ``usage`` and ``cost`` so far, the reservation of its present call, the request ``asked`` if the run is
    watched, and the calls ``lost`` without an answer. Implements the ``Payer`` of model calls and of batched ones.

    Parameters: ``call`` is the prompt's; ``model`` is the adapter's name for it; ``clock`` is the prompt's time, if limited; ``shown``
    gets the texts of the present answer, if they are kept; ``rated`` says that adapters need the length of requests. ``reserving``:
    who reserves, in a run with a budget.
    """

    __slots__ = (
        "_adapter",
        "_calibration",
        "_call",
        "_clock",
        "_funds",
        "_model",
        "_pricing",
        "arrived",
        "asked",
        "cost",
        "due",
        "estimator",
        "lost",
        "put_by",
        "rated",
        "reserving",
        "shown",
        "usage",
    )

    def __init__(
        self,
        call: CallContext,
        adapter: ProviderAdapter,
        model: str,
        profile: ModelProfile,
        *,
        calibration: Calibration,
        pricing: Pricing | None,
        rated: bool,
        clock: WorkClock | None,
        shown: list[str] | None,
    ) -> None:
        self._call = call
        self._adapter = adapter
        self._model = model
        self._calibration = calibration
        self._pricing = pricing
        self._clock = clock
        self.asked: ModelRequest | None = None
        self.rated = rated
        self.reserving: Reserving | None = None
        funds = call.run.funds
        if funds is not None:
            from agentflow.handler.reserving import Reserving  # few runs have a budget

            self.reserving = Reserving(funds, adapter, model, profile, pricing, rated=rated, clock=clock)
        self._funds = funds
        self.estimator: Estimator | None = None
        if profile.context_window is not None or funds is not None or rated:
            self.estimator = Estimator(model, calibration)
        self.usage = NO_USAGE
        self.cost: float | None = 0.0
        self.lost: list[tuple[Usage, float | None]] = []
        self.put_by = False
        self.arrived = 0
        self.due = False
        self.shown = shown

    def close(self) -> None:
        """Give back the reservation: no call is under way any more."""
        if self.asked is not None:
            self._call.run.under_way(self.so_far, False)
        self.free()

    @property
    def reserved(self) -> Reservation | None:
        """The reservation for the present call; None without a budget."""
        return None if self.reserving is None else self.reserving.reserved

    def free(self) -> None:
        """Give back the reservation."""
        if self.reserving is not None and (reserved := self.reserving.reserved) is not None:
            reserved.free()

    async def unbatched(self, request: ModelRequest) -> None:
        """Reserve for ``request`` as an ordinary call, after its batch gave no answer."""
        self.put_by = False
        if self.reserving is not None:
            self.reserving.in_batch = False
        await self.again(request)

    def sends(self, request: ModelRequest) -> None:
        """Note the request that a watched run sends next, for those who ask for its usage so far."""
        if self.asked is None:
            self._call.run.under_way(self.so_far, True)
        self.asked = request

    async def again(self, request: ModelRequest) -> None:
        """Reserve again for a request that broke and was charged, before it is sent again unchanged."""
        if self.reserving is not None and self.estimator is not None:
            tokens = self.estimator.input_tokens(request)
            await self.reserving.again(request, tokens, self._call, put_by=self.put_by)

    def waits(self, over: bool) -> None:
        """Stop the prompt's clock while a call waits for its rate or budget."""
        if self._clock is not None:
            if over:
                self._clock.go_on()
            else:
                self._clock.stop()

    def so_far(self) -> tuple[Usage, float | None]:
        """Estimated usage and cost of the call in progress; nothing unless one was sent and is not charged."""
        return self._estimate(self.asked, self.arrived) if self.due and self.asked is not None else (NO_USAGE, 0.0)

    def _estimate(self, request: ModelRequest, arrived: int) -> tuple[Usage, float | None]:
        """The input of a request and ``arrived`` characters of its answer, as tokens and US dollars."""
        read = (self.estimator or Estimator(self._model, self._calibration)).input_tokens(request)
        written = -(-arrived // CHARACTERS_PER_TOKEN)
        usage = Usage(read, written, requests=1, estimated_tokens=read + written)
        pricing = self._pricing
        return usage, None if pricing is None else pricing.cost_of(self._adapter, self._model, usage)

    def charge(self, response: ModelResponse, usage: Usage, cost: float | None) -> None:
        """Charge an answer to the run. Raises LimitExceeded if that is too much."""
        try:
            self._call.run.charge_usage(usage, cost, self.put_by)
        finally:
            if self.reserving is not None and (reserved := self.reserving.reserved) is not None:
                reserved.free()
                reserved.check(response)

    def broken(self, request: ModelRequest, arrived: int) -> Usage:
        """Charge a call that was sent and has no answer: its input, and an estimate of the received part."""
        usage, cost = self._estimate(request, arrived)
        self._charge_lost(usage, cost)
        return usage

    def unwanted(self, response: ModelResponse) -> None:
        """Charge an answer that is not used."""
        self._charge_lost(response.usage, self.cost_of(response))

    def _charge_lost(self, usage: Usage, cost: float | None) -> None:
        self.due = False
        self.count(usage, cost)
        self.lost.append((usage, cost))
        try:
            self._call.run.charge_usage(usage, cost)
        except LimitExceeded:
            pass  # the error that ended the call is raised; the next one will find the limit met

    def cost_of(self, response: ModelResponse) -> float | None:
        """The cost of an answer in US dollars; if its adapter does not say, the most it may cost where money is limited."""
        cost = response.cost_usd
        if cost is not None and not isfinite(cost):
            cost = None  # of an adapter of the host's own
        if cost is None and self._funds is not None and self._funds.priced and self._pricing is not None:
            return self._pricing.cost_of(self._adapter, self._model, response.usage)
        return cost

    def count(self, usage: Usage, cost: float | None) -> None:
        """Add to the usage of the prompt."""
        self.usage = usage if self.usage is NO_USAGE else self.usage + usage
        self.cost = None if cost is None or self.cost is None else (round(self.cost * NANO) + round(cost * NANO)) / NANO
