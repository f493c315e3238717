"""Vectors of texts, from any server's ``/v1/embeddings``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ClassVar, NoReturn, cast

from agentflow.core.call.call import CallContext, EventScope
from agentflow.core.call.spending import Reservation, may_be_billed
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.messages import (
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    Native,
    Notice,
    OtherPart,
    TextPart,
    Usage,
    Waiting,
)
from agentflow.core.data.provider_errors import IncompleteStream, ProtocolError
from agentflow.core.events.events import ModelStarted, WaitStarted
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.lib.redact import Secret
from agentflow.providers.dialects import wire_faults
from agentflow.providers.dialects.address import check_base_url
from agentflow.providers.dialects.decoding import count
from agentflow.providers.dialects.halves import Halves
from agentflow.providers.dialects.openai_wire import check_key
from agentflow.providers.dialects.wire import Wire, estimate_tokens, record, records
from agentflow.providers.exchange import HttpCall
from agentflow.providers.openai import OpenAIProvider
from agentflow.providers.prices import Prices

_DIALECT = "openai.embeddings"
_MODEL_TURN = 1
_ANSWER_TOKENS = 1
"""Output tokens to reserve: an embedding has none, but a reservation needs at least one."""


KEY_VARIABLE = "AGENTFLOW_EMBEDDINGS_KEY"


class Embeddings:
    """The :class:`~agentflow.core.ports.memory_ports.Embedder` over HTTP.

    Parameters: ``model`` is its name on the server; ``base_url`` and ``api_key`` are those of the server (default:
    ``AGENTFLOW_EMBEDDINGS_KEY``, then the SDK's environment variables); ``options`` as for
    :class:`~agentflow.providers.http_adapter.HttpAdapter`: retries, clocks and prices work as for model calls. Raises
    ConfigurationError (``config/base-url``, ``config/no-key``).
    """

    def __init__(
        self, model: str, *, base_url: str | None = None, api_key: str | Secret | None = None, **options: Any
    ) -> None:
        if base_url is not None:
            check_base_url(base_url)
        key = api_key.reveal() if isinstance(api_key, Secret) else api_key or os.environ.get(KEY_VARIABLE)
        if options.get("transport") is None:
            check_key(base_url, key)
        self.model = model
        self._prices: Prices = options.setdefault("prices", Prices())
        self._adapter = _EmbeddingsAdapter(base_url=base_url, api_key=key, **options)

    async def embed(self, texts: Sequence[str], call: CallContext | None) -> list[list[float]]:
        """The vectors of ``texts``, in order, from one request charged to the run of ``call``, if any.

        Raises ProviderError, and LimitExceeded when the run's budget is used up.
        """
        messages = tuple([Message("user", (TextPart(text),)) for text in texts])
        request = ModelRequest(messages, model=self.model, stream=False)
        request = replace(request, input_tokens=estimate_tokens(request), priority=0 if call is None else call.priority)
        if call is None:
            return _vectors(await self._answer(request, None), len(texts))
        bill = _Bill(request, call, self._prices, self._adapter)
        await bill.reserve()
        try:
            call.run.charge_model_call()
            # the texts are parts of files, which events do not repeat
            with call.scope(ModelStarted, turn=_MODEL_TURN, model=self.model) as scope:
                response = await self._answer(request, bill)
                scope.set(model=response.model, cost_usd=response.cost_usd, usage=response.usage, stop_reason="end")
            call.run.charge_usage(response.usage, response.cost_usd)
        finally:
            bill.free()
        return _vectors(response, len(texts))

    async def aclose(self) -> None:
        await self._adapter.aclose()

    async def _answer(self, request: ModelRequest, bill: _Bill | None) -> ModelResponse:
        """The server's answer. An attempt that broke off after it was sent is charged to ``bill``, and so is the retry."""
        sent = charged = False
        async with aclosing(self._adapter.stream(request)) as stream:
            try:
                async for delta in stream:
                    if delta.response is not None:
                        return delta.response
                    if delta.wait is not None:
                        sent = delta.wait.over
                        if bill is not None:
                            bill.wait(delta.wait)
                    elif delta.attempt is not None:
                        sent, error = True, delta.attempt.error
                        if delta.attempt.outcome is None and charged and bill is not None:
                            await bill.reserve(exact=True)
                            charged = False
                        elif bill is not None and error is not None and may_be_billed(error):
                            bill.broken()
                            charged = True
            except BaseException as error:  # also when cancelled: the server may bill an attempt that was sent
                if bill is not None:
                    bill.waited(error)
                    if sent and not charged and may_be_billed(error):
                        bill.broken()
                raise
        raise IncompleteStream("the server sent no vectors", provider=_DIALECT, model=request.model)


class _Bill:
    """Charges one request to the run of ``call``, and reserves its cost."""

    def __init__(self, request: ModelRequest, call: CallContext, prices: Prices, adapter: ProviderAdapter) -> None:
        self._request = request
        self._call = call
        self._prices = prices
        self._adapter = adapter
        self._reserved: Reservation | None = None
        self._wait: EventScope | None = None

    async def reserve(self, *, exact: bool = False) -> None:
        """Reserve the maximum cost of the request, if the run limits tokens or money."""
        self.free()
        funds, request, call = self._call.run.funds, self._request, self._call
        if funds is None:
            return
        tokens = request.input_tokens
        quote = await self._prices.quote(self._adapter, request.model, tokens) if funds.priced else None
        self._reserved = reserved = funds.reserve(
            tokens, _ANSWER_TOKENS, quote, request.model, priority=call.priority, exact=exact
        )
        if reserved.waits:
            with call.scope(WaitStarted, call.path, reason="budget"):
                await reserved.granted()

    def free(self) -> None:
        """Release the reservation."""
        if self._reserved is not None:
            self._reserved.free()

    def broken(self) -> None:
        """Charge an attempt without an answer, which the server may have billed."""
        tokens = self._request.input_tokens
        usage = Usage(tokens, requests=1, estimated_tokens=tokens)
        try:
            self._call.run.charge_usage(usage, self._prices.cost_of(self._adapter, self._request.model, usage))
        except LimitExceeded:
            pass  # the attempt's own error is raised; the limit stops the next attempt

    def wait(self, wait: Waiting) -> None:
        """Record that the request starts or ends a wait."""
        if wait.over:
            self.waited()
        else:
            self._wait = self._call.scope(WaitStarted, self._call.path, reason=wait.reason)
            self._wait.__enter__()

    def waited(self, error: BaseException | None = None) -> None:
        """Record that the wait, if there is one, has ended."""
        scope, self._wait = self._wait, None
        if scope is not None:
            scope.__exit__(None if error is None else type(error), error, None)


class _EmbeddingsAdapter(OpenAIProvider):
    """Performs the requests: the messages are the texts, and the answer's only part holds their vectors."""

    dialect: ClassVar[str] = _DIALECT

    def _encode(self, request: ModelRequest, wire: Wire, streaming: bool) -> tuple[str, dict[str, Any]]:
        texts = [message.text for message in request.messages]
        return "/embeddings", {"model": request.model, "input": texts, "encoding_format": "float"}

    def _decoder(self, call: HttpCall) -> _VectorDecoder:
        return _VectorDecoder(self.name, call.request.model)


class _VectorDecoder:
    """Decodes an answer of ``/embeddings``, which is never a stream."""

    partial = ""

    def __init__(self, provider: str, model: str) -> None:
        self.done = False
        self.notices: list[Notice] = []
        self.halves: Halves | None = None
        self._provider = provider
        self._model = model

    def event(self, name: bytes, data: bytes, out: list[ModelDelta]) -> bool:
        self._refuse()

    def finish(self, framed: bool = True) -> ModelResponse:
        self._refuse()

    def body(self, data: Any) -> ModelResponse:
        answer = record(data)
        if answer.get("error") is not None:
            raise wire_faults.from_stream(data, provider=self._provider, model=self._model)
        rows = sorted(records(answer["data"]), key=lambda row: int(row.get("index", 0)))
        usage = record(answer.get("usage"))
        tokens = count(usage.get("prompt_tokens") or usage.get("total_tokens"))
        part = OtherPart(Native(_DIALECT, {"vectors": [row["embedding"] for row in rows]}))
        return ModelResponse((part,), "end", Usage(tokens, requests=1), str(answer.get("model") or self._model))

    def _refuse(self) -> NoReturn:
        raise ProtocolError("the server answered a request for vectors with a stream", code="provider/not-a-model")


def _vectors(response: ModelResponse, wanted: int) -> list[list[float]]:
    """The vectors in an answer: one per text, numeric, of equal length. Raises ProtocolError otherwise."""
    part = response.parts[0]
    vectors: list[Any] = part.native.data["vectors"] if isinstance(part, OtherPart) else []
    lengths = {len(cast(list[Any], vector)) if isinstance(vector, list) else 0 for vector in vectors}
    numbers = 0 not in lengths and all(isinstance(value, int | float) for vector in vectors for value in vector)
    if len(vectors) != wanted or len(lengths) != 1 or not numbers:
        raise ProtocolError(
            f"the server sent {len(vectors)} vectors of lengths {sorted(lengths)} for {wanted} texts",
            code="provider/bad-vectors",
            hint="check that the base URL and the model belong to an embedding model",
        )
    return vectors
