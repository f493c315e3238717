"""A wait below a failure that is tried again begins anew, and any other new wait writes nothing that it need not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from agentflow import AgentFlow, CallContext, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.core.events.effects import Timer
from agentflow.core.events.journal_rows import EffectRow, OwnedRun, effect_key
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.journal import RunJournal
from agentflow.durable.run_records import Records
from agentflow.durable.samples import plain_row
from agentflow.durable.values.codec import Codec
from agentflow.durable.waiting import slept
from tests.support.fakes import FakeRun


def opened(root: Path, fails: bool) -> AgentFlow:
    """A flow whose tool asks, and then fails or not."""
    flow = AgentFlow(provider=ScriptedProvider(), durable=f"sqlite:///{root}/runs.db")

    @flow.tool
    async def order(ctx: CallContext) -> str:
        """Ask how many, and order them."""
        count = await ctx.ask_human("How many?", {"type": "integer"})
        if fails:
            raise ValueError("sold out")
        return f"{count} ordered"

    return flow


async def test_a_question_of_a_failure_is_asked_again(tmp_path: Path) -> None:
    """The answer belonged to the attempt that failed: the tool that is tried again asks, also if it is killed while it waits."""
    async with opened(tmp_path, fails=True) as flow:
        handle = await flow.start("(value-of (order))", run_id="r")
        await handle.wait()
        await flow.send("r", handle.waiting[0].key, 2)
        with pytest.raises(AgentflowError):
            await handle.result()
    for _ in range(2):
        async with opened(tmp_path, fails=False) as flow:
            handle = await flow.resume("r")
            assert await handle.wait() == "waiting"
            assert [each.question for each in await flow.questions("r")] == ["How many?"]
    async with opened(tmp_path, fails=False) as flow:
        handle = await flow.resume("r")
        await handle.wait()
        await flow.send("r", handle.waiting[0].key, 3)
        assert (await handle.result()).value == "3 ordered"


class Store:
    """Notes the keys of the records to be deleted."""

    def __init__(self) -> None:
        self.dropped: list[bytes] = []

    def put(self, run: str, epoch: int, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> asyncio.Future[None]:
        """Store nothing."""
        self.dropped += drop
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stored.set_result(None)
        return stored


async def test_only_a_wait_below_a_failure_deletes_what_may_be_left_of_it() -> None:
    """Whichever slice of the run it is: elsewhere there is no record that answers nothing."""
    store, root = Store(), asyncio.current_task()
    assert root is not None
    row = replace(plain_row("r", "r", "1"), slice=3)
    for retried, dropped in ((frozenset[str](), []), (frozenset({"0/1.0"}), [effect_key("0/1.0/0.0")])):
        owned = OwnedRun(run=row, records=[], usage=(0,) * 6, cost=0.0, retried=retried)
        records = Records(cast(JournalStore, store), owned, root, cast(Any, None))
        journal = RunJournal(records, Codec())
        for path in ("0/0.0", "0/1.0/0.0", "0/10.0/0.0", "0/2.0/0.0"):
            await slept(journal, Timer(0.0), CallContext(cast(Any, FakeRun()), path=path))
        assert store.dropped == dropped
