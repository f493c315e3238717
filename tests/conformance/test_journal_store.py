"""The rules of the JournalStore port, on every implementation that ships."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentflow.core.data.batches import BatchedCall, StoredBatch
from agentflow.core.data.errors import JournalError
from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal_rows import (
    EffectRow,
    EffectState,
    JsonText,
    NewRun,
    StoredResult,
    effect_key,
)
from agentflow.core.events.run_query import RunQuery
from agentflow.core.ports.store_ports import JournalStore
from agentflow.journal.urls import open_store
from tests.support.postgres import Server

Opener = Callable[[], JournalStore]

NEW = NewRun(program='(f "\ud800\x00é")', digest="d1", input={"name": "p.sexp", "bindings": {"x": ["a\ud800", 1.5]}})


@pytest.fixture(params=["sqlite", "postgres", "shards"])
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens the same store again and again, as several processes do."""
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'runs.db'}" if sqlite else request.getfixturevalue("postgres_url")
    if request.param == "shards":
        server: Server = request.getfixturevalue("postgres_server")
        url = f"{url} {server.schema()} {server.schema()}"
    opened: list[JournalStore] = []

    def opener() -> JournalStore:
        opened.append(open_store(url))
        return opened[-1]

    yield opener
    for store in opened:
        await store.aclose()


def row(path: str, value: Any = None, state: EffectState = EffectState.OK, **fields: Any) -> EffectRow:
    filled = {"kind": "tool", "name": "look", "content": b"c" * 16, "started": 1.0, "ended": 2.5, **fields}
    return EffectRow(path=path, state=state, value=value, **filled)


def turns_of(row: EffectRow) -> Any:
    """What a record added to the conversation, which a store may give as its text."""
    return json.loads(row.turns) if isinstance(row.turns, JsonText) else row.turns


async def refused(work: Awaitable[Any]) -> str:
    with pytest.raises(JournalError) as caught:
        await work
    return caught.value.code


async def test_a_run_is_created_once(opener: Opener) -> None:
    """Creating a run again gives the stored one, whatever the second would have been; any text survives."""
    store = opener()
    first, new = await store.create("r", NEW)
    again, second = await store.create("r", replace(NEW, program="(other)"))
    assert (new, second) == (True, False) and again == first
    assert first.program == NEW.program and first.input == NEW.input and first.status == "queued"
    assert await store.find("r") == first and await store.find("q") is None


async def test_what_is_put_is_there_for_the_next_owner(opener: Opener) -> None:
    """All fields of a record come back as they were, in the order the effects started, after the store was closed."""
    store = opener()
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    rows = [
        row("0/1.0", {"$r": [1, None, True, 1e300, "\ud800\x00", {"b": 1, "a": 2}]}, started=2.0),
        row("0/0.0", "first", turns=[[["user", "hi"]]], usage=(1, 2, 3, 4, 5, 6), cost=0.25),
        row("0/2.0", None, EffectState.FAILED, started=3.0, cost=None),
        row("0/3.0", "x" * 200_000, started=4.0),
    ]
    await asyncio.gather(*[store.put("r", epoch, [each]) for each in rows])
    await store.aclose()
    owned = await opener().own("r")
    read = [replace(each, turns=None if each.turns is None else turns_of(each)) for each in owned.records]
    assert read == sorted(rows, key=lambda each: each.started or 0)
    assert owned.run.epoch > epoch and owned.run.slice == 2 and owned.run.status == "running"
    assert list(owned.records[1].value["$r"][5]) == ["b", "a"], "the order of keys is part of a value"


async def test_steps_of_a_finished_record_are_counted_but_not_loaded(opener: Opener) -> None:
    """A finished leaf shadows the steps below it; the totals are over all records, and unknown when a price is."""
    store = opener()
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    done, open_ = effect_key("0/0.0"), effect_key("0/1.0")
    used = (10, 1, 0, 0, 0, 1, 4)
    await store.put("r", epoch, [row("0/0.0/1.0", leaf=done, usage=used, cost=0.5), row("0/1.0/1.0", leaf=open_)])
    await store.put(
        "r", epoch, [row("0/0.0", usage=used, cost=1.0), row("0/9.0!1", state=EffectState.LOST, usage=used)]
    )
    await store.aclose()
    store = opener()
    owned = await store.own("r")
    assert {each.path for each in owned.records} == {"0/1.0/1.0", "0/0.0", "0/9.0!1"}
    assert owned.usage == (30, 3, 0, 0, 0, 3, 12) and owned.cost == 1.5
    assert {each.path for each in await store.effects("r")} == {"0/0.0/1.0", "0/1.0/1.0", "0/0.0", "0/9.0!1"}
    await store.put("r", owned.run.epoch, [row("0/5.0", usage=used, cost=None)])
    await store.finish("r", owned.run.epoch, "queued")
    assert (await store.own("r")).cost is None


async def test_only_an_open_record_is_replaced(opener: Opener) -> None:
    """A record that has ended stays as it is; one that was forgotten can be written anew."""
    store = opener()
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    await store.put("r", epoch, [row("0/0.0", None, EffectState.OPEN, ended=None), row("0/1.0", "kept")])
    await store.put("r", epoch, [row("0/0.0", "ended"), row("0/1.0", "too late")])
    assert [each.value for each in await store.effects("r")] == ["ended", "kept"]
    await store.put("r", epoch, [row("0/1.0!1", state=EffectState.LOST)], drop=[effect_key("0/1.0")])
    await store.put("r", epoch, [row("0/1.0", "anew")])
    assert {each.path: each.value for each in await store.effects("r")} == {
        "0/0.0": "ended",
        "0/1.0": "anew",
        "0/1.0!1": None,
    }


async def test_a_run_has_one_owner(opener: Opener) -> None:
    """While an owner lives nobody else becomes one; who was one before can store nothing more."""
    store, other = opener(), opener()
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    assert await refused(other.own("r")) == "durable/owned"
    assert await refused(store.own("r")) == "durable/owned"
    assert (found := await other.find("r")) is not None and found.status == "running"
    await store.finish("r", epoch, "queued", spent_s=1.5)
    newer = (await other.own("r")).run
    assert newer.epoch > epoch and newer.spent_s == 1.5
    assert await refused(store.put("r", epoch, [row("0/0.0", "stale")])) == "durable/owned"
    assert await refused(store.finish("r", epoch, "done")) == "durable/owned"
    assert await refused(store.park("r", epoch, 0, None)) == "durable/owned"
    assert await other.effects("r") == [] and await refused(store.own("q")) == "durable/unknown-run"


async def test_runs_of_the_dead_are_abandoned(opener: Opener) -> None:
    """Of the runs that somebody works on only those of owners that have died are; whoever looks first may own them."""
    store, gone = opener(), opener()
    for run, owner in (("dead", gone), ("live", store), ("ended", gone)):
        await owner.create(run, NEW)
        epoch = (await owner.own(run)).run.epoch
        if run == "ended":
            await owner.finish(run, epoch, "done")
    assert await store.abandoned() == []
    await gone.aclose()
    other = opener()
    (found,) = await other.abandoned()
    stored = await other.find("dead")
    assert (found.run, found.status) == ("dead", "queued") and stored is not None
    assert found == replace(stored, deaths=found.deaths) and found.deaths >= stored.deaths
    assert (await other.own("dead")).run.slice == 2
    assert await other.abandoned() == []


async def test_deaths_of_owners_are_counted(opener: Opener) -> None:
    """Of owners that died one after the other and recorded nothing in between; whoever gives the run up has not died."""
    await opener().create("r", NEW)

    async def died(*recorded: EffectRow) -> int:
        store = opener()
        run = (await store.own("r")).run
        await store.put("r", run.epoch, recorded)
        await store.aclose()
        (found,) = await opener().abandoned()
        return found.deaths

    opened = row("0/0.0", state=EffectState.OPEN)
    assert [await died(), await died(), await died(row("0/1.0")), await died(opened), await died()] == [1, 2, 1, 2, 3]
    store = opener()
    owned = await store.own("r")
    assert owned.run.deaths == 3
    await store.finish("r", owned.run.epoch, "queued")
    assert (await store.own("r")).run.deaths == 0


async def test_a_stale_owner_does_not_harm_others_of_its_batch(opener: Opener) -> None:
    """Of records committed together only those of the stale owner, and those that are not data, are refused."""
    store = opener()
    epochs = {}
    for run in ("a", "b"):
        await store.create(run, NEW)
        epochs[run] = (await store.own(run)).run.epoch
    puts = [
        store.put("a", epochs["a"], [row("0/0.0")]),
        store.put("b", epochs["b"] - 1, [row("0/0.0")]),
        store.put("b", epochs["b"], [row("0/1.0", object())]),
        store.put("b", epochs["b"], [row("0/2.0")]),
    ]
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(each) for each in outcomes] == [type(None), JournalError, TypeError, type(None)]
    assert [each.path for each in await store.effects("b")] == ["0/2.0"]


async def test_the_end_of_a_run_is_stored(opener: Opener) -> None:
    """Result and error come back; a run that has ended has no owner, and runs are listed by their last change."""
    store = opener()
    for run, status, result, error in (("a", "done", {"v": [1]}, None), ("b", "failed", None, {"$e": "no"})):
        await store.create(run, NEW)
        epoch = (await store.own(run)).run.epoch
        await store.finish(run, epoch, status, result=result, error=error)
    b, a = await opener().list()
    assert (a.run, a.status, a.result, a.error) == ("a", "done", {"v": [1]}, None)
    assert (b.run, b.status, b.result, b.error) == ("b", "failed", None, {"$e": "no"})
    assert len(await store.list(limit=1)) == 1


async def test_parking_and_answering_cannot_miss_each_other(opener: Opener) -> None:
    """An answer before parking stops it; one after it queues the run; the first answer counts."""
    store = opener()
    await store.create("r", NEW)
    owned = (await store.own("r")).run
    asked = row("0/0.0", {"q": 1}, EffectState.OPEN, ended=None, usage=None)
    yes, no = (replace(asked, state=EffectState.OK, value=each) for each in ("yes", "no"))
    await store.put("r", owned.epoch, [asked])
    assert await store.deliver("r", [yes]) == {asked.key}
    assert not await store.deliver("r", [no]), "the first answer counts"
    assert not await store.park("r", owned.epoch, owned.seq, None)
    assert (found := await store.find("r")) is not None and found.status == "running" and found.seq == owned.seq + 1
    second = row("0/1.0", None, EffectState.OPEN)
    await store.put("r", owned.epoch, [second])
    assert await store.park("r", owned.epoch, found.seq, 99.0)
    waiting = await opener().find("r")
    assert waiting is not None and waiting.status == "waiting" and waiting.wake_at == 99.0
    assert await opener().deliver("r", [replace(second, state=EffectState.FAILED, value="refused")])
    again = await store.own("r")
    assert {each.path: (each.state, each.value) for each in again.records} == {
        "0/0.0": (EffectState.OK, "yes"),
        "0/1.0": (EffectState.FAILED, "refused"),
    }
    assert not await store.deliver("r", [row("0/7.0", 1)])
    assert [each.path for each in await store.effects("r", EffectState.FAILED)] == ["0/1.0"]
    assert await store.effects("r", EffectState.OPEN) == []


async def test_many_answers_are_delivered_at_once(opener: Opener) -> None:
    """Answers to many records are stored together, and a waiting run is queued once, with all of them: each counts for its own record,
    and none for a record that was answered, forgotten, or begun anew since."""
    store = opener()
    await store.create("r", NEW)
    owned = (await store.own("r")).run
    asked = [row(f"0/{at}.0", {"q": at}, EffectState.OPEN, ended=None, usage=None) for at in range(5)]
    answers = [replace(each, state=EffectState.OK, value={**each.value, "ok": 1}) for each in asked]
    await store.put("r", owned.epoch, asked)
    assert await store.deliver("r", answers[:1]) == {asked[0].key}
    await store.put("r", owned.epoch, [], drop=[asked[1].key, asked[2].key])
    await store.put("r", owned.epoch, [replace(asked[1], started=7.0)])
    assert await store.park("r", owned.epoch, owned.seq + 1, None)
    assert await opener().deliver("r", answers) == {asked[3].key, asked[4].key}
    found = await store.find("r")
    assert found is not None and found.status == "queued" and found.seq == owned.seq + 3
    assert [each.path for each in await store.effects("r", EffectState.OPEN)] == ["0/1.0"]


async def test_old_runs_are_removed_with_all_they_had(opener: Opener) -> None:
    """``gc`` removes ended runs that are older, with their records and the large values nobody else has."""
    store = opener()
    large, shared = "x" * 100_000, "y" * 100_000
    for run in ("old", "live"):
        await store.create(run, NEW)
        epoch = (await store.own(run)).run.epoch
        await store.put(run, epoch, [row("0/0.0", shared), row("0/1.0", large if run == "old" else "")])
        await store.finish(run, epoch, "done" if run == "old" else "queued")
    assert await store.gc(time.time() - 60) == 0
    assert await store.gc(time.time() + 60) == 1
    assert await store.find("old") is None and await store.effects("old") == []
    assert [each.value for each in await store.effects("live")] == [shared, ""]


async def test_what_a_removed_run_was_and_cost_is_kept(opener: Opener) -> None:
    """Its name, its end and its totals, nothing of what it was given and gave; until it is forgotten. Its id is free again."""
    store = opener()
    new = replace(NEW, input={"name": "p\ud800\x00", "bindings": {"x": "secret"}})
    errors: dict[str, Any] = {
        "done": None,
        "failed": ["agentflow.core.data.errors.DataError", {"code": "data/x", "message": "m"}],
    }
    costs = {"done": [(1, 2, 3), (10, 20, 30, 40)], "failed": [(1, 1), None]}
    for run, error in errors.items():
        await store.create(run, new)
        epoch = (await store.own(run)).run.epoch
        rows = [row(f"0/{at}.0", usage=usage, cost=0.5 if usage else None) for at, usage in enumerate(costs[run])]
        await store.put(run, epoch, [*rows, row("0/9.0", usage=(0, 1), cost=None if error else 0.25)])
        await store.finish(
            run, epoch, "failed" if error else "done", result={"value": "secret"}, error=error, spent_s=2.0
        )
    assert await store.past() == []
    assert await store.gc(time.time() + 60) == 2
    past = {each.run: each for each in await store.past()}
    assert past.keys() == {"done", "failed"} and len(await store.past(limit=1)) == 1
    assert "secret" not in repr(past)
    done, failed = past["done"], past["failed"]
    assert (done.name, done.status, done.slices, done.spent_s, done.error) == ("p\ud800\x00", "done", 1, 2.0, None)
    assert (done.usage, done.cost) == ((11, 23, 33, 40), 1.25)
    assert (failed.status, failed.usage, failed.cost, failed.error) == ("failed", (1, 2), None, "data/x")
    assert done.created <= done.updated
    _, is_new = await store.create("done", new)
    assert is_new
    assert await store.gc(None, forget=time.time() - 60) == 0 and len(await store.past()) == 2
    assert await store.gc(None, forget=time.time() + 60) == 0 and await opener().past() == []


async def test_what_was_said_before_a_run_is_kept_as_long_as_it_is(opener: Opener) -> None:
    """Each run has its exchanges in order, whatever it shares with others; a run based on another has those of that one."""
    store = opener()
    said = [[{"role": "user", "parts": [f"\ud800 {number}"]}] for number in range(4)]
    openings = {"none": [], "two": said[:2], "four": said, "twice": [said[0], said[0]], "other": [said[1], said[0]]}
    for run, opening in openings.items():
        await store.create(run, replace(NEW, opening=opening))
    await store.create("based", replace(NEW, base="two"))
    await store.create("based", replace(NEW, base="four"))
    for run, opening in {**openings, "based": said[:2]}.items():
        assert await store.sessions.opening(run) == opening
    epoch = (await store.own("four")).run.epoch
    await store.finish("four", epoch, "done")
    assert await store.gc(time.time() + 60) == 1
    assert await store.sessions.opening("four") == []
    for run in ("two", "twice", "other", "based"):
        assert await store.sessions.opening(run) == {**openings, "based": said[:2]}[run]


async def test_a_closed_store_says_so(opener: Opener) -> None:
    """What was queued before closing is stored; afterwards the store refuses."""
    store = opener()
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    queued = [store.put("r", epoch, [row(f"0/{number}.0")]) for number in range(50)]
    await store.aclose()
    await asyncio.gather(*queued)
    assert await refused(store.find("r")) == "durable/closed"
    assert len(await opener().effects("r")) == 50


async def test_a_store_is_bounded_by_number_and_size(opener: Opener) -> None:
    """``gc`` removes the oldest ended runs, and the oldest results, until the rest is within bounds; never what goes on."""
    store = opener()
    for number, status in enumerate(("waiting", "done", "failed", "queued", "done", "cancelled")):
        run = f"r{number}"
        base = "r1" if status == "queued" else None
        await store.create(run, replace(NEW, base=base))
        owned = (await store.own(run)).run
        await store.put(run, owned.epoch, [row("0/0.0", "x" * 10_000), row("0/1.0", f"{number}" * 100_000)])
        if status == "waiting":
            assert await store.park(run, owned.epoch, owned.seq, None)
        else:
            await store.finish(run, owned.epoch, status)
    result = StoredResult(kind="tool", name="t", value="y" * 500_000, turns=None, usage=None, cost=None, at=time.time())
    await store.results.keep(b"k" * 16, result)

    async def left() -> set[str]:
        return {each.run for each in await store.list()}

    assert await store.gc(None, LogBounds(runs=6)) == 0
    assert await store.gc(None, LogBounds(runs=5)) == 1 and await left() == {"r0", "r1", "r3", "r4", "r5"}
    assert await store.gc(None, LogBounds(bytes=900_000)) == 2 and await left() == {"r0", "r1", "r3"}
    assert await store.results.find(b"k" * 16, 0.0) is not None
    assert await store.gc(None, LogBounds(bytes=400_000)) == 0
    assert await store.results.find(b"k" * 16, 0.0) is None
    assert await store.gc(time.time() + 60, LogBounds(runs=0, bytes=0)) == 0 and await left() == {"r0", "r1", "r3"}
    assert [each.value for each in await store.effects("r1")][1] == "1" * 100_000


async def test_a_list_goes_on_behind_a_run_and_leaves_out_what_a_query_excludes(opener: Opener) -> None:
    """Pages together are the whole list; a query by status, time, and text of the input gives all runs that fit, and perhaps one whose input
    is stored apart."""
    store = opener()
    for number in range(7):
        label = {"product": "100%_!x" if number % 2 else "100abcx"}
        much = {"x": "y" * 300_000} if number == 4 else {}
        await store.create(f"r{number}", replace(NEW, input={"name": f"p{number}", "labels": label, "bindings": much}))
        if number < 3:
            epoch = (await store.own(f"r{number}")).run.epoch
            await store.finish(f"r{number}", epoch, "done", result={"value": 1})
    every = [(each.run, each.updated) for each in await store.list()]
    pages: list[tuple[str, float]] = []
    while page := await store.list(limit=3, query=RunQuery(after=(pages[-1][1], pages[-1][0]) if pages else None)):
        pages += [(each.run, each.updated) for each in page]
    assert pages == every and len(every) == 7

    async def selected(**query: Any) -> set[str]:
        return {each.run for each in await store.list(query=RunQuery(**query))}

    assert await selected(statuses=("done", "failed")) == {"r0", "r1", "r2"}
    assert await selected(holds=('"product":"100%_!x"',)) - {"r4"} == {"r1", "r3", "r5"}
    assert await selected(holds=('"name":"p1', '"labels":{')) - {"r4"} == {"r1"}
    middle = every[3][1]
    since, until = await selected(since=middle), await selected(until=middle)
    assert since | until == {run for run, _ in every} and not since & until and every[3][0] in since


async def test_a_call_is_in_one_batch_and_answered_once(opener: Opener) -> None:
    """A call is stored once, is in one batch at a time, and is taken back only where it is in none. The batch of a living process is its own.
    What waits is told by the batches; an answered call stays so, and its text is there for a call without a run."""
    store, other = opener().batches, opener().batches
    calls = [
        BatchedCall(id=name, run=run, key=name.encode(), model="m", endpoint="/e", body="{}", within_s=60.0)
        for name, run in [("a", "r"), ("b", "r"), ("c", ""), ("d", "r")]
    ]
    ids = [each.id for each in calls]
    for each in [*calls, calls[0]]:
        assert await store.ask(each) is None
    assert sorted([each.id for each in await other.waiting()]) == ids
    assert [(each.calls, each.state) for each in await store.waits(ids)] == [(4, "none")]
    batch = StoredBatch(id="b1", model="m", endpoint="/e", state="new", vendor="", created=1.0, due=2.0)
    assert [(each.id, each.body) for each in await store.claim(batch, ["c", "a", "b"])] == [(id, "{}") for id in "abc"]
    assert await other.claim(replace(batch, id="b2"), ["a"]) == [] and await other.unfinished() == [batch]
    assert await other.withdraw(["a", "d"]) == {"d"} and await store.take("b1") and not await other.take("b1")
    await store.change("b1", "unsure", "")
    assert [(each.calls, each.model, each.state) for each in await other.waits(ids)] == [(3, "m", "unsure")]
    await store.change("b1", "sent", "v1")
    await store.answered({"a": {"body": 1}, "c": {"body": 2}})
    await other.answered({"c": {"body": 3}})
    assert await other.answers(ids) == {"c": {"body": 2}} and await other.ask(calls[2]) == {"body": 2}
    assert [each.id for each in await store.calls("b1")] == ["b"]
    await store.release("b1")
    assert [each.id for each in await other.waiting()] == ["b"] and await other.unfinished() == []
    assert await other.claim(replace(batch, id="b3"), ids) and [each.calls for each in await other.waits(ids)] == [1]
    await other.answered({"b": {}})
    await other.end("b3")
    assert await store.waits(ids) == [] and await store.waiting() == [] and await store.unfinished() == []
