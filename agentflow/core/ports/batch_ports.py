"""Ports of batches: where they are stored, and the vendors' interfaces that carry them out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from agentflow.core.data.batches import BatchAnswer, BatchedCall, BatchProgress, BatchState, BatchWait, StoredBatch
from agentflow.core.data.messages import ModelRequest, ModelResponse


class BatchStore(Protocol):
    """The batches that all processes of a database send. Raises JournalError as
    :class:`~agentflow.core.ports.store_ports.JournalStore`."""

    async def ask(self, call: BatchedCall) -> Any:
        """Store a call that waits for a batch, once; one without a run begins to wait anew. Returns the answer to a call without a
        run if it is there, else None."""
        ...

    async def withdraw(self, ids: Sequence[str]) -> frozenset[str]:
        """Forget those of the calls ``ids`` that are in no batch yet. Returns these."""
        ...

    async def waiting(self) -> list[BatchedCall]:
        """The calls that are in no batch, the oldest first, without their bodies."""
        ...

    async def calls(self, batch: str, *, bodies: bool = False) -> list[BatchedCall]:
        """The calls of a batch without an answer, by their ids."""
        ...

    async def claim(self, batch: StoredBatch, ids: Sequence[str]) -> list[BatchedCall]:
        """Store a new batch of this process with those of the calls ``ids`` that are in no other. Returns these, by their ids, with
        their bodies; a batch without calls is not stored."""
        ...

    async def release(self, batch: str) -> None:
        """Forget a batch that the vendor refused: its calls without an answer wait again."""
        ...

    async def unfinished(self) -> list[StoredBatch]:
        """The batches that have not ended, the oldest first."""
        ...

    async def take(self, id: str) -> bool:
        """Make this process the sender of a batch. False if another living process is."""
        ...

    async def change(self, id: str, state: BatchState, vendor: str) -> None:
        """Store the state of a batch, and the vendor's id of it."""
        ...

    async def answered(self, answers: Mapping[str, Any]) -> None:
        """Store the answers to calls, by their ids. That of a call with a run is in its record: here it is marked as answered."""
        ...

    async def answers(self, ids: Collection[str]) -> dict[str, Any]:
        """The answers to those of the calls ``ids`` without a run that have one."""
        ...

    async def waits(self, ids: Collection[str]) -> list[BatchWait]:
        """The calls ``ids`` without an answer, by the batches that they are in."""
        ...

    async def end(self, id: str) -> None:
        """Forget a batch: its calls have their answers. A call stays marked as answered, so that no process sends it again."""
        ...


class BatchApi(Protocol):
    """A vendor's interface for batches. Raises ProviderError."""

    most_calls: int
    most_bytes: int

    async def send(self, name: str, endpoint: str, calls: Sequence[BatchedCall]) -> str:
        """Send a batch. Returns the vendor's id of it."""
        ...

    async def find(self, name: str, ids: Collection[str], since: float, others: Collection[str]) -> str | None:
        """The vendor's id of a batch that may have been sent at the unix time ``since`` or later, found by listing; None if it was
        not sent. ``others`` are known to be other batches. Raises BatchUncertain where the list cannot decide."""
        ...

    async def look(self, id: str) -> BatchProgress:
        """Whether a batch has ended: all answers are there that will come."""
        ...

    def answers(self, id: str) -> AsyncIterator[BatchAnswer]:
        """The answers of a batch that has ended, in any order. Rows that cannot be read are left out."""
        ...

    async def cancel(self, id: str) -> None:
        """Ask for the end of a batch; the answers that are there stay."""
        ...


@runtime_checkable
class BatchProvider(Protocol):
    """An adapter of a server that may carry out calls in batches."""

    @property
    def batches(self) -> BatchApi | None:
        """The vendor's interface for batches; None if it has none."""
        ...

    async def batch_body(self, request: ModelRequest) -> tuple[str, str]:
        """The endpoint of a request, and the JSON text of its body for a batch. Raises ConfigurationError for a request that a batch
        cannot take."""
        ...

    def batch_answer(self, request: ModelRequest, answer: BatchAnswer) -> ModelResponse:
        """The response to a request of a batch, at the price of batches. Raises ProviderError."""
        ...
