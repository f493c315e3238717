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
from agentflow.core.events.questions import Question
from agentflow.run.handle import state_in
from agentflow.run.questions import check_answer

if TYPE_CHECKING:
    from agentflow.run.engine import Engine


def check_task(engine: Engine, task: str | None) -> None:
    """Raise DataError (``say/task``) unless the flow has a task of this name; None is no task in particular."""
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
    if not isinstance(name, str) or not name or len(name) > 200:
        raise DataError(
            f"{clip(repr(name), 80)} is not the name of a signal",
            code="signal/name",
            hint="names are texts of 1 to 200 characters: flow.signal('paid', Payment)",
        )


def say(engine: Engine, run_id: str, text: str, task: str | None) -> bool:
    """Say ``text`` to a run that works here and is not stored; False if there is none of this id. Raises DataError."""
    run = engine.live.get(run_id)
    if run is None or run.journal is not None:
        return False
    check_text(text, task)
    check_task(engine, task)
    if len(inbox_of(run).unread) >= MOST_UNREAD:
        raise full(run_id, MOST_UNREAD)
    take_in(run, SaidText(new_key(), text, task))
    return True


def send_signal(engine: Engine, run_id: str, name: str, value: object) -> bool:
    """Send a signal to a run that works here and is not stored; False if there is none of this id. Raises DataError."""
    run = engine.live.get(run_id)
    if run is None or run.journal is not None:
        return False
    data = signal_data(name, value, engine.questions.of(run_id))
    if inbox_of(run).unread_signals(name) >= MOST_UNREAD:
        raise full(run_id, MOST_UNREAD)
    take_in(run, SentSignal(new_key(), name, data))
    return True


def state_of_run(engine: Engine, run_id: str) -> dict[str, Any] | None:
    """A copy of the state of a run that works here and is not stored; None if there is none of this id."""
    run = engine.live.get(run_id)
    if run is None or run.journal is not None:
        return None
    return state_in(run)


class EngineDoors:
    """The :class:`~agentflow.run.run_stream.RunDoors` of an engine without stored runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def cancel(self, run_id: str) -> None:
        """No run here is durable."""
        raise has_ended(run_id, stored=False)

    async def say(self, run_id: str, text: str, *, task: str | None = None) -> None:
        if not say(self._engine, run_id, text, task):
            raise has_ended(run_id, stored=False)

    async def send_signal(self, run_id: str, name: str, value: Any = None) -> None:
        if not send_signal(self._engine, run_id, name, value):
            raise has_ended(run_id, stored=False)

    async def state(self, run_id: str) -> dict[str, Any]:
        state = state_of_run(self._engine, run_id)
        if state is None:
            raise has_ended(run_id, stored=False)
        return state
