"""The recorded runs of a flow, written to a store and read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import islice
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.event_log import FIRST, EventId, LogBounds
from agentflow.core.ports.store_ports import EventStore
from agentflow.observe.recorder import Recorder

_AT_ONCE = 100
"""Events that are read at once."""


class Recording:
    """Records runs in ``store``: :attr:`recorder` is the observer that writes, :meth:`events` reads.

    ``text`` renders objects without a JSON form; ``wire`` returns the HTTP request of a model call, for reports.
    """

    def __init__(
        self, store: EventStore, text: Callable[[object], str] = str, wire: Callable[..., Any] | None = None
    ) -> None:
        self.wire = wire
        self._store = store
        self.recorder = Recorder(store, text=text, trim=lambda: store.gc(LogBounds()))

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """The JSON data of a run's events, up to the last published one.

        Raises AgentflowError (``record/failed``) if not all of them could be written.
        """
        await self._written(run_id)
        return await asyncio.to_thread(lambda: list(self._store.read(run_id, FIRST)))

    async def has(self, run_id: str) -> bool:
        """Whether events of a run were recorded, in this process or an earlier one."""
        await self.recorder.flush()
        return await asyncio.to_thread(self._store.find, run_id) is not None

    async def batches(self, run_id: str, after: EventId) -> AsyncGenerator[list[dict[str, Any]]]:
        """The JSON data of a run's events after ``after``, some at a time, up to the last published one.

        Raises AgentflowError (``record/failed``) if not all of them could be written.
        """
        await self._written(run_id)
        reading = iter(self._store.read(run_id, after))
        while batch := await asyncio.to_thread(lambda: list(islice(reading, _AT_ONCE))):
            yield batch

    async def _written(self, run_id: str) -> None:
        await self.recorder.flush()
        error = self.recorder.lost(run_id)
        if error is not None:
            raise AgentflowError(
                f"the record of run {run_id} lacks its end, which could not be written: {error}",
                code="record/failed",
                hint="make room where runs are recorded, or record elsewhere: AgentFlow(record=DIRECTORY)",
            ) from error

    async def aclose(self) -> None:
        """Write the queued events, and close the store."""
        await self.recorder.aclose()
