"""What works beside a run and fails unexpectedly: the run, or its handle, gets the error; it does not wait without end."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import JournalError
from agentflow.core.events.journal_rows import SENT, EffectRow, EffectState
from agentflow.durable.change_signals import RunChanges
from agentflow.durable.following import Following
from agentflow.durable.handle import LiveRun
from agentflow.durable.takeover import Takeover
from agentflow.journal.sqlite import SqliteJournal
from tests.support.children import HANG_S


async def test_an_unreadable_message_reaches_the_run_that_waits(tmp_path: Path) -> None:
    """A run at work looks for signals of other processes by a task of its own, whose error ends the run: it died unseen."""
    flow = AgentFlow(provider=ScriptedProvider([]), durable=f"sqlite:///{tmp_path}/runs.db")

    @flow.workflow
    async def listens() -> Any:
        waits = asyncio.create_task(asyncio.sleep(HANG_S))  # it keeps the run in the memory
        try:
            return await flow.signal("go", int)
        finally:
            waits.cancel()

    async with flow:
        handle = await flow.start(listens(), run_id="r")
        store = SqliteJournal(tmp_path / "runs.db")
        try:
            async with asyncio.timeout(HANG_S):
                while not await store.effects("r", EffectState.OPEN, ("signal",)):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # the first look, after which it waits
            unreadable = EffectRow(path="", kind=SENT, name="go", content=b"1", state=EffectState.OPEN, value={})
            await store.post("r", unreadable, "signal", 9)
        finally:
            await store.aclose()
        with pytest.raises(JournalError, match="was given up") as caught:
            await asyncio.wait_for(handle.result(), HANG_S)
        assert caught.value.code == "internal/error" and isinstance(caught.value.__cause__, KeyError)


class Broken:
    """A store whose answers cannot be read, until its last one."""

    def __init__(self) -> None:
        self.asked = 0

    async def statuses(self, runs: list[str]) -> dict[str, str]:
        return self._answer()

    async def abandoned(self) -> list[Any]:
        return self._answer()

    def _answer(self) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise ValueError("no such status")
        raise JournalError("the store is closed", code="durable/closed")


@pytest.mark.parametrize("name", ["following", "takeover"])
@pytest.mark.slow  # they look again after seconds
async def test_those_that_watch_runs_look_again_after_any_error(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error of one look is logged, and the next one comes: whoever waits for what it sees waited without end."""
    store: Any = Broken()
    if name == "following":
        following = Following(store, RunChanges(None), lambda row, source: None)
        following.add(cast(LiveRun, _Handle()))
        watch = following.watch()
    else:
        watch = Takeover(store, cast(Any, None), cast(Any, None)).watch()
    with caplog.at_level(logging.WARNING):
        await asyncio.wait_for(watch, HANG_S)
    assert store.asked == 2 and "no such status" in caplog.text


class _Handle:
    run_id = "r"

    def follow(self, status: str) -> None:
        """It is being followed."""
