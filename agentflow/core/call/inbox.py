"""The inbox of a run: the texts said to it and the signals sent to it that it has not read, and where they are read."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from agentflow.core.data.errors import DataError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.events.events import TextSaid

MOST_CHARACTERS = 256 * 1024
"""Most characters of a text said to a run."""
MOST_UNREAD = 1_000
"""Most texts, and most signals of one name, that wait to be read."""


@frozen
class SaidText:
    """A text said to a run: ``key`` names it within the run, ``task`` is the only task whose prompt may read it."""

    key: str
    text: str
    task: str | None = None


@frozen
class SentSignal:
    """A signal sent to a run: ``key`` names it within the run; ``value`` is JSON data."""

    key: str
    name: str
    value: Any


class Inbox:
    """The unread texts and signals of one run, in the order they came."""

    def __init__(self) -> None:
        self._texts: dict[str, SaidText] = {}
        self._signals: dict[str, dict[str, SentSignal]] = {}
        self._waits: dict[str, deque[asyncio.Future[None]]] = {}
        self._seen: set[str] = set()

    async def refresh(self) -> None:
        """Look for texts and signals that other processes have stored."""

    @property
    def unread(self) -> list[SaidText]:
        """The texts that no prompt has read."""
        return list(self._texts.values())

    def unread_signals(self, name: str) -> int:
        """The number of signals of this name that nothing has waited for."""
        return len(self._signals.get(name, ()))

    def add(self, message: SaidText | SentSignal) -> bool:
        """Take a text or signal that has come, and wake the first that waits for such a signal. False if it came before."""
        if message.key in self._seen:
            return False
        self._seen.add(message.key)
        if isinstance(message, SaidText):
            self._texts[message.key] = message
        else:
            self._signals.setdefault(message.name, {})[message.key] = message
            self.wake(message.name)
        return True

    def wake(self, name: str) -> None:
        """Wake the first that waits for a signal of this name, if there is one."""
        if self._signals.get(name):
            for future in self._waits.get(name, ()):
                if not future.done():
                    future.set_result(None)
                    return

    def texts_for(self, task: str, *, tool_loop: bool) -> list[SaidText]:
        """The unread texts for a prompt of ``task``, which no other prompt gets from now on. ``tool_loop``: it is the outermost
        loop with tools, which reads the texts for no task in particular."""
        taken = [each for each in self._texts.values() if (each.task == task if each.task else tool_loop)]
        for each in taken:
            del self._texts[each.key]
        return taken

    def put_back(self, texts: Iterable[SaidText]) -> None:
        """Make texts unread again: the model call that was to read them has failed."""
        self._texts = {**{each.key: each for each in texts}, **self._texts}

    def take_signal(self, name: str) -> SentSignal | None:
        """The first unread signal of this name, which nothing else gets from now on; None if there is none."""
        waiting = self._signals.get(name)
        return waiting.pop(next(iter(waiting))) if waiting else None

    def put_signal_back(self, signal: SentSignal) -> None:
        """Make a signal unread again: what took it was cancelled."""
        self._signals[signal.name] = {signal.key: signal, **self._signals.get(signal.name, {})}
        self.wake(signal.name)

    def drop(self, signal: SentSignal) -> None:
        """Forget a signal that was taken, and that nothing can use."""

    def wait_for(self, name: str) -> asyncio.Future[None]:
        """A future that is done when a signal of this name has come; cancel it to wait no longer."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waits = self._waits.setdefault(name, deque())
        waits.append(future)
        future.add_done_callback(lambda done: waits.remove(done))
        return future


def inbox_of(run: Any) -> Inbox:
    """The inbox of a run, a :class:`~agentflow.core.call.run_port.RunPortOf`."""
    shared: Any = run.shared
    if shared.inbox is None:
        shared.inbox = Inbox()
    return shared.inbox


def new_key() -> str:
    """A key for a message that is not stored."""
    return os.urandom(8).hex()


def take_in(run: Any, message: SaidText | SentSignal) -> None:
    """Add a message to the inbox of a run, and publish a text that is new."""
    inbox = inbox_of(run)
    if not inbox.add(message) or isinstance(message, SentSignal) or not run.watched:
        return
    header = (run.run_id, run.slice, run.next_seq(), "0", None, None, time.time())
    run.publish(TextSaid(*header, key=message.key, text=message.text, task=message.task))


def check_text(text: object, task: object) -> None:
    """Raise DataError (``say/text``) unless ``text`` can be said to a run, to a ``task``."""
    if not isinstance(text, str) or not text.strip():
        raise DataError(
            f"{clip(repr(text), 80)} cannot be said to a run",
            code="say/text",
            hint="say a text: run.say('also look at tests/')",
        )
    if len(text) > MOST_CHARACTERS:
        raise DataError(
            f"a text of {len(text):,} characters was said to a run, and {MOST_CHARACTERS:,} are allowed",
            code="say/text",
            hint="say where the text is, and have a tool read it",
        )
    if task is not None and not isinstance(task, str):
        raise DataError(
            f"task={clip(repr(task), 80)} is not the name of a task",
            code="say/task",
            hint="give the name of the task that shall read it: task='review'",
        )


def no_such_task(task: str, names: Sequence[str]) -> DataError:
    """The error for a text to a task that the flow does not have; it has those of ``names``."""
    listed = ", ".join(names[:10])
    return DataError(
        f"there is no task '{clip(task, 80)}' to say something to",
        code="say/task",
        hint=f"the flow has the tasks {listed}"
        if names
        else "without task= the outermost loop with tools reads the text",
    )


def full(run_id: str, most: int) -> DataError:
    """The error for one text, or one signal of a name, too many."""
    return DataError(
        f"{most:,} messages to the run '{run_id}' wait to be read",
        code="say/full",
        hint="wait until the run has read them, or cancel it",
    )


def has_ended(run_id: str, *, stored: bool) -> DataError:
    """The error for a text or signal to a run that reads nothing any more."""
    return DataError(
        f"the run '{clip(run_id, 100)}' has ended, so that nothing in it can read this"
        if stored
        else f"no run '{clip(run_id, 100)}' is in progress in this flow",
        code="run/ended",
        hint="say it to the next run of the conversation: flow.run(..., session=session)"
        if stored
        else "it has ended, or has another id; a durable run is reached from any process: AgentFlow(durable=...)",
    )
