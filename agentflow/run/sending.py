"""Texts and signals to a run at work in this process, and its state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agentflow.core.call.host_data import json_data
from agentflow.core.call.inbox import (
    MOST_UNREAD,
    SaidText,
    SentSignal,
    check_text,
    full,
    has_ended,
    inbox_of,
    new_key,
    no_such_task,
    take_in,
)
from agentflow.core.data.errors import DataError, clip
from agentflow.core.events.effects import LONGEST_SIGNAL_NAME
from agentflow.core.events.questions import Question
from agentflow.run.handle import state_in
from agentflow.run.questions import check_answer

if TYPE_CHECKING:
    from agentflow.run.engine import Engine
    from agentflow.run.run import Run
    from agentflow.run.run_stream import RunDoors


def check_task(engine: Engine, task: str | None) -> None:
    """Raise DataError (``say/task``) unless the flow has a task of this name; None means any task."""
    if task is not None and engine.tasks.find_compiled(task) is None:
        raise no_such_task(task, engine.tasks.template_names())


def signal_data(name: object, value: object, open_waits: Iterable[Question]) -> Any:
    """The value of a signal as JSON data, which fits those of ``open_waits`` that are for it.

    Raises DataError: ``signal/name``, ``signal/not-data``, ``signal/too-large``, ``signal/value``.
    """
    check_signal_name(name)
    data = json_data(value, f"the value of the signal '{name}'", "signal")
    for each in open_waits:
        if each.signal == name:
            check_answer(each, data)
    return data


def check_signal_name(name: object) -> None:
    """Raise DataError (``signal/name``) unless ``name`` is that of a signal."""
    if not isinstance(name, str) or not name or len(name) > LONGEST_SIGNAL_NAME:
        raise DataError(
            f"{clip(repr(name), 80)} is not the name of a signal",
            code="signal/name",
            hint=f"names are texts of 1 to {LONGEST_SIGNAL_NAME} characters: flow.signal('paid', Payment)",
        )


class FlowSender:
    """Messages to the runs of a flow by their ids, and their states: of those that work here, else of the ``stored`` ones (None: there
    are none)."""

    def __init__(self, engine: Engine, stored: RunDoors | None = None) -> None:
        self._engine = engine
        self._stored_runs = stored

    async def say(self, run_id: str, text: str, *, task: str | None = None) -> None:
        """Say a text to a run. Raises DataError: ``run/ended``, ``say/text``, ``say/task``, ``say/full``; JournalError."""
        run = self._at_work(run_id)
        if run is None:
            await self._stored(run_id).say(run_id, text, task=task)
            return
        check_text(text, task)
        check_task(self._engine, task)
        if len(inbox_of(run).unread) >= MOST_UNREAD:
            raise full(run_id, MOST_UNREAD)
        take_in(run, SaidText(new_key(), text, task))

    async def send_signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Send a signal to a run. Raises DataError: ``run/ended``, the errors of :func:`signal_data`, ``say/full``; JournalError."""
        run = self._at_work(run_id)
        if run is None:
            await self._stored(run_id).send_signal(run_id, name, value)
            return
        data = signal_data(name, value, self._engine.questions.of(run_id))
        if inbox_of(run).unread_signals(name) >= MOST_UNREAD:
            raise full(run_id, MOST_UNREAD)
        take_in(run, SentSignal(new_key(), name, data))

    async def state(self, run_id: str) -> dict[str, Any]:
        """A copy of the state of a run. Raises DataError (``run/ended``), JournalError."""
        run = self._at_work(run_id)
        return await self._stored(run_id).state(run_id) if run is None else state_in(run)

    def _at_work(self, run_id: str) -> Run | None:
        """The run of this id, if it works here and is not stored."""
        run = self._engine.live.get(run_id)
        return None if run is None or run.journal is not None else run

    def _stored(self, run_id: str) -> RunDoors:
        if self._stored_runs is None:
            raise has_ended(run_id, stored=False)
        return self._stored_runs
