"""Runs of the flow's database that this server does not carry out: those of workers, of other servers, of earlier ones.

Their state is read from the database on request, their events from the records of the processes that work on them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from agentflow.app import AgentFlow
from agentflow.core.data.event_log import event_id
from agentflow.core.data.frozen import frozen
from agentflow.core.events.journal_rows import ENDED, QueueLoad, WorkerInfo
from agentflow.core.events.questions import Question
from agentflow.durable.handle import RunInfo
from agentflow.run.handle import RunResult
from agentflow.serve.json_body import json_bytes
from agentflow.serve.sent_events import Position, frame_of

MAX_LISTED = 500
"""Maximum number of such runs to list, the last changed first."""
CANCEL_S = 10.0
"""Seconds that a request waits until a worker has cancelled a run; the cancellation stays requested."""


@frozen(kw_only=True)
class FleetRun:
    """A stored run: its summary, its open questions and approvals by key, and, once it has ended, its result or error."""

    info: RunInfo
    waits: Mapping[str, Question]
    result: RunResult[Any] | None = None
    failure: Exception | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.info.run_id

    @property
    def ended(self) -> float | None:
        """The end of the run, in unix seconds."""
        return self.info.updated if self.info.status in ENDED else None


class Fleet:
    """The stored runs of ``flow``, in any process; none for a flow that stores no runs."""

    def __init__(self, flow: AgentFlow) -> None:
        self._flow = flow

    async def list(self) -> list[RunInfo]:
        """The runs, the last changed first. Raises JournalError."""
        return await self._flow.runs(MAX_LISTED) if self._flow.is_durable else []

    async def load(self) -> list[QueueLoad]:
        """Pending work of workers, by queue and tenant; nothing for a flow without workers. Raises JournalError."""
        return await self._flow.store.load() if self._flow.is_durable and self._flow.store.has_workers else []

    async def workers(self) -> list[WorkerInfo]:
        """The living workers; none for a flow without workers. Raises JournalError."""
        return await self._flow.store.workers() if self._flow.is_durable and self._flow.store.has_workers else []

    async def find(self, run_id: str) -> FleetRun | None:
        """The run of this id with all its known data; None if there is none. Raises JournalError."""
        info = await self._flow.find_run(run_id) if self._flow.is_durable else None
        if info is None:
            return None
        if info.status not in ENDED:
            asked = await self._flow.questions(run_id)
            return FleetRun(info=info, waits={each.key: self._flow.redact(each) for each in asked})
        try:
            return FleetRun(info=info, waits={}, result=await self._flow.recorded_result(run_id))
        except Exception as error:  # noqa: BLE001 - the program's or the host's error, reported to readers of the run
            return FleetRun(info=info, waits={}, failure=error)

    async def events(self, run_id: str, after: Position) -> AsyncGenerator[bytes, None]:
        """The recorded events of a run after ``after``, and new ones until it has ended, as frames. Raises JournalError."""
        async with contextlib.aclosing(self._flow.watch(run_id, after)) as events:
            async for event in events:
                yield frame_of(event_id(event), await json_bytes(event))

    async def cancel(self, run_id: str) -> None:
        """Cancel a run, and wait until it has cleaned up, or for :data:`CANCEL_S` if no worker has. Raises JournalError."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                await self._flow.cancel(run_id)

    async def send(self, run_id: str, key: str, answer: Any) -> None:
        """Answer a question of a run; the process that works on the run resumes it. Raises the errors of ``flow.send``."""
        await self._flow.send(run_id, key, answer)
