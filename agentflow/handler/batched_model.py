"""A model that answers in batches at half the price: the calls of a task with ``batch=`` in a durable run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Protocol

from agentflow.core.call.call import CallContext, JournalPort, RunPort
from agentflow.core.call.journal_port import Content
from agentflow.core.call.spending import Reservation
from agentflow.core.data.batches import DAY_S, BatchAnswer, BatchedCall, within_s
from agentflow.core.data.errors import ConfigurationError, ProviderError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Attempt, Batching, ModelDelta, ModelProfile, ModelRequest, Notice, Waiting
from agentflow.core.ports.batch_ports import BatchProvider
from agentflow.core.ports.ports import ModelRouter, ProviderAdapter


@frozen
class BatchRoute:
    """Where the calls of a prompt are batched: the ``adapter`` of its model, the ``name`` there and the ``full`` one, and the seconds
    within which an answer has to come."""

    adapter: ProviderAdapter
    name: str
    full: str
    within_s: float


def batch_route(router: ModelRouter, model: str | None, batch: Batching, run: RunPort) -> BatchRoute:
    """Where the calls of a prompt with ``batch=`` are batched. Raises ConfigurationError in a run that is not durable."""
    if run.journal is None:
        raise ConfigurationError(
            "batch=True: the run is not durable, and a batch may take a day",
            code="handler/batch-plain",
            hint="AgentFlow(durable=...), and flow.start or a durable run; or leave out batch=",
        )
    adapter, name, full = batch_model(router, model)
    return BatchRoute(adapter, name, full, within_s(batch) or DAY_S)


def batch_model(router: ModelRouter, model: str | None) -> tuple[ProviderAdapter, str, str]:
    """The adapter that a model's calls are batched with, if it can, the name there and the full one. Raises ConfigurationError."""
    full = router.full_name(model)
    adapter, name = router.resolve(model)
    if not isinstance(adapter, BatchProvider):  # perhaps the first of several models
        adapter, name = router.resolve(full)
    return adapter, name, full


class BatchPayer(Protocol):
    """The prompt that makes a batched call."""

    @property
    def reserved(self) -> Reservation | None:
        """The reservation for the call."""
        ...

    put_by: bool
    """Whether a purse pays for the call apart from the run's other calls."""

    async def unbatched(self, request: ModelRequest) -> None:
        """Reserve for ``request`` as an ordinary call. Raises LimitExceeded if too little is left."""
        ...


class BatchedModel:
    """``ordinary``, asked by batches for the call of ``call``, which ``content`` identifies and ``payer`` makes. An ordinary call is
    made where there is no batch, or it has not answered in time. Implements ``ProviderAdapter``."""

    def __init__(
        self,
        ordinary: ProviderAdapter,
        route: BatchRoute,
        call: CallContext,
        journal: JournalPort,
        content: Content,
        payer: BatchPayer,
    ) -> None:
        self._ordinary = ordinary
        self._route = route
        self._call = call.at(call.marked_path("batch", route.full))
        self._journal = journal
        self._content = content
        self._payer = payer
        payer.put_by = journal.is_put_by(self._call)

    def profile(self, model: str) -> ModelProfile:
        """The profile of a model of the provider."""
        return self._ordinary.profile(model)

    async def count_tokens(self, request: ModelRequest) -> int:
        return await self._ordinary.count_tokens(request)

    async def aclose(self) -> None:
        """Nothing: the provider is closed by its flow."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call; see :class:`agentflow.core.ports.ports.ProviderAdapter`."""
        reason = "its provider has no batches"
        adapter = self._route.adapter
        if isinstance(adapter, BatchProvider) and adapter.batches is not None:
            asked = replace(request, model=self._route.name)
            endpoint, body = await adapter.batch_body(asked)
            call = BatchedCall(
                id="",
                run="",
                key=b"",
                model=self._route.full,
                endpoint=endpoint,
                body=body,
                within_s=self._route.within_s,
                size=len(body),
            )
            yield ModelDelta(wait=Waiting("batch"))
            answer = await self._journal.batched(call, self._content, self._call, self._payer.reserved)
            yield ModelDelta(wait=Waiting("batch", over=True))
            self._payer.put_by = self._journal.is_put_by(self._call)
            if "fallback" in answer:
                reason = str(answer["fallback"])
            else:
                provider = adapter.profile(asked.model).dialect
                yield ModelDelta(attempt=Attempt(1, provider, asked.model))
                try:
                    response = adapter.batch_answer(asked, BatchAnswer(id="", **answer))
                except ProviderError as error:
                    failed = Attempt(1, provider, asked.model, "failed", error, status=error.status)
                    yield ModelDelta(attempt=failed)
                    await self._journal.close_hold(self._call)
                    if not error.retryable:
                        raise
                    reason = clip(error.message, 300)
                else:
                    await self._journal.close_hold(self._call, response.usage, response.cost_usd)
                    yield ModelDelta(response=response)
                    return
        yield ModelDelta(notice=Notice(f"the model call is made without a batch: {reason}", code="handler/no-batch"))
        await self._journal.close_hold(self._call)
        await self._payer.unbatched(request)
        stream = self._ordinary.stream(request)
        try:
            async for delta in stream:
                yield delta
        finally:
            await stream.aclose()
