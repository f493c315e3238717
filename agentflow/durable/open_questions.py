"""The open questions and approvals of durable runs, and answers to them from any process."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from agentflow.core.call.approval import to_wire
from agentflow.core.data.errors import DataError
from agentflow.core.events.journal_rows import ENDED, EffectRow, EffectState, RunRow
from agentflow.core.events.questions import Question
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.deriving import stored_run
from agentflow.durable.live_runs import LiveRuns
from agentflow.durable.run_records import question_of
from agentflow.durable.stored_input import StoredInput
from agentflow.durable.values.codec import Codec, NotData
from agentflow.durable.values.record_values import STATE
from agentflow.run.questions import check_answer, no_such_question


class OpenQuestions:
    """The questions that the runs of one store wait for, whichever process the runs work in; ``signal`` sends a run a signal."""

    def __init__(
        self,
        store: JournalStore,
        runs: LiveRuns,
        codec: Codec,
        input: StoredInput,
        signal: Callable[[str, str, Any], Awaitable[None]],
    ) -> None:
        self._signal = signal
        self._store = store
        self._runs = runs
        self._codec = codec
        self._input = input

    async def of(self, run_id: str) -> list[Question]:
        """The open questions and approvals of a run that may be answered now. Raises JournalError."""
        live = self._runs.find(run_id)
        stored = [asked for _, asked in await self._asked(await stored_run(self._store, run_id))]
        if live is None:
            return stored
        answerable = {each.key for each in stored}  # a run at work may have yet to see an answer
        return [each for each in live.waiting if each.key in answerable]

    async def answer(self, run_id: str, key: str, answer: Any, state: Mapping[str, Any] | None = None) -> None:
        """Answer an open question or approval of a run in any process, with another ``state`` of it; the first answer counts.

        Every answer to an approval is a decision, as the run reads it. Raises DataError: ``question/unknown``, also if
        another answer came first, and ``question/answer`` if the answer does not fit the question; JournalError.
        """
        rows = await self._asked(await stored_run(self._store, run_id))
        matching = [(row, asked) for row, asked in rows if asked.key == key]
        if not matching:
            raise no_such_question(run_id, key, [asked for _, asked in rows])
        row, question = matching[0]
        if question.signal is not None:
            await self._signal(run_id, question.signal, answer)
            return
        check_answer(question, answer)
        try:
            encoded = self._encoded(answer) if question.reason == "approval" else self._codec.encode(answer)
            changed = {} if state is None else {STATE: changes_to(state)}
            data = self._input.clean({**row.value, **changed, "ok": encoded})
        except NotData as what:
            raise DataError(f"the answer cannot be stored: {what}", code="question/answer") from None
        answered = replace(row, state=EffectState.OK, value=data)
        if not await self._store.deliver(run_id, [answered]):
            raise no_such_question(run_id, key, [])
        await self._runs.answered(run_id, [answered])

    def _encoded(self, answer: object) -> Any:
        """An answer to an approval as data; for a value that cannot be stored, its type, which does not count as a yes."""
        try:
            return self._codec.encode(to_wire(answer))
        except NotData:
            return self._codec.encode({"answered with": type(answer).__name__})

    async def _asked(self, run: RunRow) -> list[tuple[EffectRow, Question]]:
        rows = [] if run.status in ENDED else await self._store.effects(run.run, EffectState.OPEN)
        return [(row, asked) for row in rows if (asked := question_of(run.run, row)) is not None]


def changes_to(state: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The record of a change to ``state`` as a whole. Raises DataError (``state/not-data``)."""
    from agentflow.core.call.run_state import replacing  # few runs have one

    return [(time.time_ns(), replacing(state))]
