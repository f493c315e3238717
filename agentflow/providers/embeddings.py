"""Vectors of texts, from any server's ``/v1/embeddings``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, ClassVar, NoReturn, cast

from agentflow.core.call import CallContext
from agentflow.core.events import ModelStarted, WaitStarted
from agentflow.core.messages import (
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    Native,
    Notice,
    OtherPart,
    TextPart,
    Usage,
)
from agentflow.core.provider_errors import IncompleteStream, ProtocolError
from agentflow.core.spending import Reservation
from agentflow.lib.redact import Secret
from agentflow.providers import faults
from agentflow.providers.decoding import count
from agentflow.providers.exchange import HttpCall
from agentflow.providers.openai import OpenAIProvider
from agentflow.providers.openai_wire import check_key
from agentflow.providers.prices import Prices
from agentflow.providers.table import check_base_url
from agentflow.providers.wire import ToolNames, estimate_tokens, record, records

_DIALECT = "openai.embeddings"
_MODEL_TURN = 1
_ANSWER_TOKENS = 1
"""Vectors are no tokens; a reservation is of one at least."""


KEY_VARIABLE = "AGENTFLOW_EMBEDDINGS_KEY"


class Embeddings:
    """The :class:`~agentflow.core.memory_ports.Embedder` over HTTP.

    Parameters: ``model`` as the server names it; ``base_url`` and ``api_key`` of the server (default:
    ``AGENTFLOW_EMBEDDINGS_KEY``, then the SDK's environment variables); ``options`` as for :class:`~agentflow.providers.base.HttpAdapter`: attempts, clocks and prices are those of
    a model's calls. Raises ConfigurationError (``config/base-url``, ``config/no-key``).
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
        """The vectors of ``texts``, in order, by one call of the model, which the run of ``call`` pays for.

        Raises ProviderError, and LimitExceeded when the run has nothing left.
        """
        messages = tuple([Message("user", (TextPart(text),)) for text in texts])
        request = ModelRequest(messages, model=self.model, stream=False)
        if call is None:
            return _vectors(await self._answer(request), len(texts))
        reserved = await self._reserve(request, call)
        try:
            call.run.charge_model_call()
            # the texts are those of the files, which no event repeats
            with call.scope(ModelStarted, turn=_MODEL_TURN, model=self.model) as scope:
                response = await self._answer(request)
                scope.set(model=response.model, cost_usd=response.cost_usd, usage=response.usage, stop_reason="end")
            call.run.charge_usage(response.usage, response.cost_usd)
        finally:
            if reserved is not None:
                reserved.free()
        return _vectors(response, len(texts))

    async def _reserve(self, request: ModelRequest, call: CallContext) -> Reservation | None:
        """Set aside what the call may cost, where the run's tokens or money are bounded."""
        purse = call.run.purse
        if purse is None:
            return None
        tokens = estimate_tokens(request)
        quote = await self._prices.quote(self._adapter, self.model, tokens) if purse.priced else None
        reserved = purse.reserve(tokens, _ANSWER_TOKENS, quote, self.model)
        if reserved.waits:
            with call.scope(WaitStarted, call.path, reason="budget"):
                await reserved.granted()
        return reserved

    async def aclose(self) -> None:
        """Close connections."""
        await self._adapter.aclose()

    async def _answer(self, request: ModelRequest) -> ModelResponse:
        async with aclosing(self._adapter.stream(request)) as stream:
            async for delta in stream:
                if delta.response is not None:
                    return delta.response
        raise IncompleteStream("the server gave no vectors", provider=_DIALECT, model=request.model)


class _EmbeddingsAdapter(OpenAIProvider):
    """The calls: a request's messages are the texts, and the answer's one part holds their vectors."""

    dialect: ClassVar[str] = _DIALECT

    def _encode(self, request: ModelRequest, names: ToolNames, streaming: bool) -> tuple[str, dict[str, Any]]:
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
        self._provider = provider
        self._model = model

    def event(self, name: bytes, data: bytes, out: list[ModelDelta]) -> bool:
        self._refuse()

    def finish(self, framed: bool = True) -> ModelResponse:
        self._refuse()

    def body(self, data: Any) -> ModelResponse:
        answer = record(data)
        if answer.get("error") is not None:
            raise faults.from_stream(data, provider=self._provider, model=self._model)
        rows = sorted(records(answer["data"]), key=lambda row: int(row.get("index", 0)))
        usage = record(answer.get("usage"))
        tokens = count(usage.get("prompt_tokens") or usage.get("total_tokens"))
        part = OtherPart(Native(_DIALECT, {"vectors": [row["embedding"] for row in rows]}))
        return ModelResponse((part,), "end", Usage(tokens, requests=1), str(answer.get("model") or self._model))

    def _refuse(self) -> NoReturn:
        raise ProtocolError("the server answered a request for vectors with a stream", code="provider/not-a-model")


def _vectors(response: ModelResponse, wanted: int) -> list[list[float]]:
    """The vectors in an answer: as many as texts were sent, all of one length, all numbers. Raises ProtocolError."""
    part = response.parts[0]
    vectors: list[Any] = part.native.data["vectors"] if isinstance(part, OtherPart) else []
    lengths = {len(cast(list[Any], vector)) if isinstance(vector, list) else 0 for vector in vectors}
    numbers = 0 not in lengths and all(isinstance(value, int | float) for vector in vectors for value in vector)
    if len(vectors) != wanted or len(lengths) != 1 or not numbers:
        raise ProtocolError(
            f"the server gave {len(vectors)} vectors of lengths {sorted(lengths)} for {wanted} texts",
            code="provider/bad-vectors",
            hint="check that the base URL and the model are those of an embedding model",
        )
    return vectors
