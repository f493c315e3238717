"""The vendors' interfaces for batches of model calls: OpenAI's ``/v1/batches`` and Anthropic's ``/v1/messages/batches``.

Both take 24 hours at most, charge half, give answers in any order, and keep them for 29 or 30 days. OpenAI's has metadata, by
which a batch is found again. Anthropic's has none: there, the ids of the calls identify a batch once its answers are out.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast

from agentflow.core.data.batches import BatchAnswer, BatchedCall, BatchProgress
from agentflow.core.data.errors import clip
from agentflow.core.data.provider_errors import BatchUncertain, ConnectionLost, ProtocolError
from agentflow.providers.dialects import wire_faults
from agentflow.providers.dialects.wire import record
from agentflow.providers.exchange import Sdk, describe
from agentflow.providers.proxies import ClientPool

T = TypeVar("T")
_log = logging.getLogger(__name__)

NAMED = "agentflow-batch"
"""The key of OpenAI's metadata that holds the name of a batch."""
CLOCKS_S = 86_400.0
"""Seconds by which the vendor's clock and ours may differ."""
_LATER = frozenset({"token_limit_exceeded", "rate_limit_exceeded", "server_error", "request_limit_exceeded"})
"""Codes of the errors of a refused batch that may be taken later."""


class _Batches:
    """The parts that both vendors share: ``open`` returns the clients of the running loop, ``provider`` is the name in errors."""

    def __init__(self, open: Callable[[], Awaitable[tuple[ClientPool, Sdk]]], provider: str) -> None:
        self._open = open
        self._provider = provider

    async def _ask(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do ``work`` with the SDK's client. Raises ProviderError."""
        pool, sdk = await self._open()
        pooled = pool.take()
        try:
            return await work(pooled.client)
        except sdk.status as error:
            failure = cast(Any, error)
            raise wire_faults.from_status(
                failure.status_code,
                failure.body,
                failure.response.headers,
                provider=self._provider,
                model="a batch",
                request_id=None,
            ) from None
        except (sdk.base, *sdk.transport) as error:
            raise ConnectionLost(
                f"the connection to {pooled.base_url} was lost: {describe(error)}", provider=self._provider
            ) from error
        except ValueError as error:  # JSON of another server
            raise ProtocolError(
                f"{pooled.base_url} answered with something other than JSON: {describe(error)}",
                provider=self._provider,
                code="provider/bad-json",
            ) from None
        finally:
            pooled.active -= 1


class OpenAIBatches(_Batches):
    """The :class:`~agentflow.core.ports.batch_ports.BatchApi` of OpenAI."""

    most_calls = 50_000
    most_bytes = 200_000_000

    async def send(self, name: str, endpoint: str, calls: Sequence[BatchedCall]) -> str:
        lines = [
            f'{{"custom_id": "{each.id}", "method": "POST", "url": "/v1{endpoint}", "body": {each.body}}}'
            for each in calls
        ]
        file = io.BytesIO("\n".join(lines).encode())

        async def work(client: Any) -> str:
            uploaded = await client.files.create(file=(f"{name}.jsonl", file), purpose="batch")
            batch = await client.batches.create(
                input_file_id=uploaded.id,
                endpoint=f"/v1{endpoint}",
                completion_window="24h",
                metadata={NAMED: name},
            )
            return str(batch.id)

        return await self._ask(work)

    async def find(self, name: str, ids: Collection[str], since: float, others: Collection[str]) -> str | None:
        async def work(client: Any) -> str | None:
            async for batch in await client.batches.list(limit=100):
                if record(batch.metadata).get(NAMED) == name:
                    return str(batch.id)
                if batch.created_at < since - CLOCKS_S:
                    return None
            return None

        return await self._ask(work)

    async def look(self, id: str) -> BatchProgress:
        batch = await self._ask(lambda client: client.batches.retrieve(id))
        if batch.status != "failed":
            return BatchProgress(ended=batch.status in ("completed", "expired", "cancelled"))
        errors: list[Any] = [] if batch.errors is None else batch.errors.data or []
        return BatchProgress(
            ended=True,
            refused="; ".join([f"{each.message}" for each in errors[:3]]) or "the vendor gave no reason",
            faulty=frozenset([each.line - 1 for each in errors if each.line]),
            later=any(each.code in _LATER for each in errors),
        )

    async def answers(self, id: str) -> AsyncIterator[BatchAnswer]:
        batch = await self._ask(lambda client: client.batches.retrieve(id))
        for file in (batch.output_file_id, batch.error_file_id):
            if file is None:
                continue
            content = await self._ask(lambda client, file=file: client.files.content(file))
            for line in io.StringIO(content.text, newline="\n"):
                answer = _read(line, _openai_answer)
                if answer is not None:
                    yield answer

    async def cancel(self, id: str) -> None:
        await self._ask(lambda client: client.batches.cancel(id))


def _openai_answer(row: dict[str, Any]) -> BatchAnswer:
    error, response = record(row.get("error")), record(row.get("response"))
    if not response:
        if error.get("code") in ("batch_expired", "batch_cancelled"):
            return BatchAnswer(id=row["custom_id"], lapsed=error["code"])
        return BatchAnswer(id=row["custom_id"], status=0, body={"error": error})
    return BatchAnswer(id=row["custom_id"], status=int(response["status_code"]), body=response["body"])


class AnthropicBatches(_Batches):
    """The :class:`~agentflow.core.ports.batch_ports.BatchApi` of Anthropic."""

    most_calls = 100_000
    most_bytes = 256_000_000

    async def send(self, name: str, endpoint: str, calls: Sequence[BatchedCall]) -> str:
        requests = [{"custom_id": each.id, "params": json.loads(each.body)} for each in calls]
        batch = await self._ask(lambda client: client.messages.batches.create(requests=requests))
        return str(batch.id)

    async def find(self, name: str, ids: Collection[str], since: float, others: Collection[str]) -> str | None:
        candidates: list[Any] = []

        async def listed(client: Any) -> None:
            async for batch in await client.messages.batches.list(limit=100):
                if batch.created_at.timestamp() < since - CLOCKS_S:
                    return
                counts = batch.request_counts
                total = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
                if total == len(ids) and batch.id not in others:
                    candidates.append(batch)

        await self._ask(listed)
        working = 0
        for batch in candidates:
            if batch.processing_status != "ended":
                working += 1
            elif batch.results_url is not None and await self._answers(batch.id, ids):
                return str(batch.id)
        if working:
            raise BatchUncertain(
                f"the vendor has {working} unfinished batches of {len(ids)} calls that may be this one; their answers will "
                "say",
                provider=self._provider,
                hint="wait: it is found when they have ended",
            )
        return None

    async def _answers(self, id: str, ids: Collection[str]) -> bool:
        """Whether a batch that has ended answers calls of ``ids``."""
        async with aclosing(self.answers(id)) as answers:
            async for answer in answers:
                return answer.id in ids
        return False

    async def look(self, id: str) -> BatchProgress:
        batch = await self._ask(lambda client: client.messages.batches.retrieve(id))
        return BatchProgress(ended=batch.processing_status == "ended")

    async def answers(self, id: str) -> AsyncGenerator[BatchAnswer]:
        content = await self._ask(_results(id))
        for line in io.StringIO(content, newline="\n"):
            answer = _read(line, _anthropic_answer)
            if answer is not None:
                yield answer

    async def cancel(self, id: str) -> None:
        await self._ask(lambda client: client.messages.batches.cancel(id))


def _results(id: str) -> Callable[[Any], Awaitable[str]]:
    """Reads the results of a batch as text: the SDK's own decoder gives up the whole file for one damaged line."""

    async def work(client: Any) -> str:
        async with client.messages.batches.with_streaming_response.results(id) as response:
            return str(await response.text())

    return work


def _anthropic_answer(row: dict[str, Any]) -> BatchAnswer:
    result = row["result"]
    match result["type"]:
        case "succeeded":
            return BatchAnswer(id=row["custom_id"], body=result["message"])
        case "errored":
            return BatchAnswer(id=row["custom_id"], status=0, body=result["error"])
        case lapsed:
            return BatchAnswer(id=row["custom_id"], lapsed=str(lapsed))


def _read(line: str, read: Callable[[dict[str, Any]], BatchAnswer]) -> BatchAnswer | None:
    """A row of answers; None for one that cannot be read, which answers no call then."""
    if not line.strip():
        return None
    try:
        return read(record(json.loads(line)))
    except (ValueError, TypeError, LookupError) as error:
        _log.warning("a row of a batch's answers cannot be read (%s): %s", describe(error), clip(line, 200))
        return None
