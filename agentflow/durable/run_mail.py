"""Texts, signals and the state of durable runs, from any process, by the id of the run."""

from __future__ import annotations

import os
from typing import Any

from agentflow.core.call.inbox import MOST_UNREAD, check_text, has_ended
from agentflow.core.data.errors import DataError
from agentflow.core.events.journal_rows import SAID, SENT, EffectRow, EffectState
from agentflow.core.events.questions import Question
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.deriving import stored_run
from agentflow.durable.live_runs import LiveRuns
from agentflow.durable.run_records import STATE_ROW, question_of
from agentflow.durable.stored_input import StoredInput
from agentflow.durable.values.codec import Codec, NotData
from agentflow.run.engine import Engine
from agentflow.run.handle import state_in
from agentflow.run.run import Run
from agentflow.run.sending import check_task, signal_data


class RunMail:
    """Stores messages to the runs of one store, whichever process works on them, and reads their states."""

    def __init__(
        self, engine: Engine, store: JournalStore, runs: LiveRuns, codec: Codec, stored_input: StoredInput
    ) -> None:
        self._engine = engine
        self._store = store
        self._runs = runs
        self._codec = codec
        self._input = stored_input

    async def say(self, run_id: str, text: str, *, task: str | None = None) -> None:
        """Say a text to a run. Raises DataError: ``run/ended``, ``say/text``, ``say/task`` if the run works here and the flow has
        no such task, ``say/full``; JournalError."""
        check_text(text, task)
        live = self._runs.find(run_id)
        if live is not None and live.at_work:
            check_task(self._engine, task)
        await self._post(run_id, SAID, task or "", {"text": text})

    async def send_signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Send a signal to a run. Raises DataError: ``run/ended``, ``signal/value`` if the run waits for one of another type,
        ``signal/name``, ``signal/not-data``, ``signal/too-large``, ``say/full``; JournalError."""
        data = signal_data(name, value, await self._waits(run_id))
        try:
            encoded = self._codec.encode(data)
        except NotData as what:
            raise DataError(
                f"the value of the signal '{name}' cannot be stored: {what}", code="signal/not-data"
            ) from None
        await self._post(run_id, SENT, name, {"signal": name, "ok": encoded}, "signal")

    async def _waits(self, run_id: str) -> list[Question]:
        """The signals that a run waits for."""
        rows = await self._store.effects(run_id, EffectState.OPEN, ("signal",))
        return [each for row in rows if (each := question_of(run_id, row)) is not None]

    async def _post(self, run_id: str, kind: str, name: str, value: Any, wakes: str = "") -> None:
        message = EffectRow(
            path="",
            kind=kind,
            name=self._input.clean(name),
            content=os.urandom(16),
            state=EffectState.OPEN,
            value=self._input.clean(value),
        )
        posted = await self._store.post(run_id, message, wakes, MOST_UNREAD)
        if posted is None:
            raise has_ended(run_id, stored=True)
        live = self._runs.find(run_id)
        if live is None:
            return
        if live.resting:
            await self._runs.look(run_id, due=False)
        elif live.records is not None and live.records.live is not None:
            live.records.inbox.receive(posted)

    async def state(self, run_id: str) -> dict[str, Any]:
        """A copy of the state of a run. Raises JournalError."""
        live = self._runs.find(run_id)
        records = None if live is None else live.records
        if records is not None and isinstance(records.live, Run) and (records.advanced or records.run.slice == 1):
            return state_in(records.live)  # not while a resumed run makes its changes again
        row = await stored_run(self._store, run_id)
        stored = await self._store.effects(run_id, EffectState.OPEN, (STATE_ROW,))
        return stored[0].value if stored else row.input.get("state") or {}
