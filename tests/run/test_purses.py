"""Purses: named accounts over runs, in memory, in a file and in PostgreSQL, with one list of rules for all three."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from agentflow import AgentFlow, Allowance, Limits, Purses, ScriptedProvider
from agentflow.core.data.allowances import Spending
from agentflow.core.data.errors import ConfigurationError, JournalError, LimitExceeded
from agentflow.core.data.messages import ModelDelta, ModelRequest, Usage
from agentflow.errors import PurseEmpty
from agentflow.journal.urls import open_store
from agentflow.run.purses import Purse
from tests.run.test_reservation import DOLLAR
from tests.support.metered_model import MeteredModel, asking

NUMBERS = itertools.count()
ASK = f"{asking()} (value-of (ask (n 36)))"


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Gated(MeteredModel):
    """A model that answers when it may; ``begun_calls`` are at work or done."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.begun_calls = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        self.begun_calls += 1
        yield ModelDelta("a word ")
        await self.may_answer.wait()
        async for delta in super().stream(request):
            yield delta

    async def has_begun(self, calls: int = 1) -> None:
        """Wait until so many calls have begun."""
        while self.begun_calls < calls:
            await asyncio.sleep(0.001)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """The URL of an empty database; None for purses in memory."""
    if request.param == "memory":
        return None
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database that several processes open."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/runs.db"


async def test_the_first_twenty_lines(database: str | None) -> None:
    """Every way to begin a run takes ``purse=``, and ``look`` says what is spent, reserved, left, and until when."""
    purses = Purses(
        {"user-*": Allowance(usd=500, tokens=100_000, model_calls=50, per="1d"), "user-1": Allowance(usd=5, per="1d")}
    )
    model = MeteredModel()
    async with AgentFlow(provider=model, prices=DOLLAR, durable=database, purses=purses) as flow:

        @flow.task
        async def answer(n: int) -> str:
            """Write {{n}}"""

        await flow.run(answer(1), purse="user-42", limits=Limits(usd=400))
        async with flow.stream(answer(1), purse="user-42") as run:
            await run.value()
        await flow.ask("Write 1", purse="user-42")
        calls = 3
        if database is not None:
            await (await flow.start(answer(1), purse="user-42")).result()
            calls += 1
        balance = await flow.purses.look("user-42")
        assert balance.spent.model_calls == calls and balance.spent.tokens == model.paid > 0
        assert balance.reserved == Spending() and balance.spent.usd == model.paid
        assert (balance.model_calls_left, balance.tokens_left) == (50 - calls, 100_000 - model.paid)
        assert balance.usd_left == 500 - model.paid and balance.ends_at is not None and balance.ends_at % 86_400 == 0
        assert [each.name for each in await flow.purses.list()] == ["user-42"]
        assert (await flow.purses.look("user-7")).spent == Spending()
        with pytest.raises(PurseEmpty) as caught:
            await flow.solve("Write 1", purse="user-1")
        error = caught.value
        assert (error.purse, error.limit, error.allowed, error.ends_at) == ("user-1", "usd", 5, balance.ends_at)
        assert error.code == "limits/purse" and "'user-1'" in error.message and "UTC" in error.message


WRONG: list[tuple[str, Any]] = [
    ("limits nothing", lambda: Allowance(per="1d")),
    ("usd='5'", lambda: Allowance(usd=cast(Any, "5"))),
    ("tokens=1.5", lambda: Allowance(tokens=cast(Any, 1.5))),
    ("model_calls=True", lambda: Allowance(model_calls=cast(Any, True))),
    ("usd=-1", lambda: Allowance(usd=-1)),
    ("usd=nan", lambda: Allowance(usd=float("nan"))),
    ("'month'", lambda: Allowance(usd=5, per="month")),
    ("86400", lambda: Allowance(usd=5, per=cast(Any, 86_400))),
    ("not an Allowance", lambda: Purses({"user-*": cast(Any, 5)})),
    ("not an Allowance", lambda: Purses({"user-*": cast(Any, Limits(usd=5))})),
    ("'user 1'", lambda: Purses({"user 1": Allowance(usd=5)})),
    ("are a dict", lambda: Purses(cast(Any, [Allowance(usd=5)]))),
    ("not an Allowance", lambda: AgentFlow(purses={"a": cast(Any, 5)})),
]


@pytest.mark.parametrize(("says", "make"), WRONG)
def test_what_limits_nothing_is_refused(says: str, make: Any) -> None:
    """A limit that is misspelt must not be none: each fault is an error where it is written, which says what to write."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        make()
    assert caught.value.code == "config/purse" and caught.value.hint


async def test_what_names_no_purse_is_refused(database: str | None) -> None:
    """``purse=42``, a name without an allowance, and a flow without purses: an error, and no model is asked."""
    model = MeteredModel()
    flows = [AgentFlow(provider=model, durable=database, purses=Purses({"user-*": Allowance(model_calls=5)}))]
    flows.append(AgentFlow(provider=model))
    for flow, says in zip(flows, ("there are those for user-\\*", "has no purses"), strict=True):
        async with flow:
            with pytest.raises(ConfigurationError, match=says):
                await flow.run(ASK, purse="usr-42")
            for wrong in (42, "", "user 42", "user-42\n"):
                with pytest.raises(ConfigurationError, match="letters, digits") as caught:
                    await flow.run(ASK, purse=cast(Any, wrong))
                assert caught.value.code == "config/purse"
            if flow.is_durable:
                with pytest.raises(ConfigurationError, match="there are those for"):
                    await flow.start(ASK, purse="usr-42", run_id="r")
                assert await flow.find_run("r") is None
            with pytest.raises(ConfigurationError):
                await flow.purses.look("usr-42")
    assert not model.requests


@pytest.mark.parametrize("kind", ["model_calls", "tokens", "usd"])
async def test_fifty_runs_at_once_never_pass_a_limit_for_twenty_calls(database: str | None, kind: str) -> None:
    """Some are answered, the others end with PurseEmpty, and what was paid is within the limit, to the last digit."""
    limit = 20 if kind == "model_calls" else 20 * 45
    model = MeteredModel()
    purses = Purses({"*": Allowance(**{kind: limit}, per="1d")})
    async with AgentFlow(provider=model, prices=DOLLAR, durable=database, purses=purses) as flow:
        ends = await asyncio.gather(*[flow.run(ASK, purse="a") for _ in range(50)], return_exceptions=True)
        refused = [each for each in ends if isinstance(each, BaseException)]
        assert {type(each) for each in refused} == {PurseEmpty} and len(refused) == 50 - model.finished
        paid = model.finished if kind == "model_calls" else model.paid
        assert 0 < paid <= limit and (kind != "model_calls" or paid == limit)
        balance = await flow.purses.look("a")
        assert getattr(balance.spent, kind) == paid and balance.reserved == Spending()
        await flow.run(ASK, purse="b")


async def test_calls_that_wait_for_the_whole_purse_are_served_one_after_the_other(database: str | None) -> None:
    """One call reserves all that there is; the next asks for it in the moment in which the first ends, and is not told that
    the purse is empty."""
    answers = ScriptedProvider(lambda request: {"text": "yes", "usage": {"input_tokens": 5, "output_tokens": 5}})
    purses = Purses({"*": Allowance(tokens=1_000)})
    async with AgentFlow(provider=answers, purses=purses, durable=database) as flow:
        asked = [flow.run(flow.ask(f"well, {number}?"), purse="small") for number in range(12)]
        assert [each.value for each in await asyncio.gather(*asked)] == ["yes"] * 12
        assert (await purses.look("small")).spent.tokens == 120


async def test_what_happens_in_a_run_is_paid_as_the_run_is(database: str | None) -> None:
    """Branches, nested runs, questions and other flows in tools pay from its purse; none of them can name another."""
    model, inner = MeteredModel(), AgentFlow(provider=MeteredModel())
    purses = Purses({"*": Allowance(model_calls=6)})
    async with inner, AgentFlow(provider=model, durable=database, purses=purses) as flow:

        @flow.tool
        async def more(how: str) -> str:
            """Ask more."""
            if how == "other flow":
                return await inner.ask("Write 1")
            if how == "another purse":
                return await flow.ask("Write 1", purse="b")
            if how == "nested":
                return (await flow.run(ASK, purse="a", limits=Limits(model_calls=1))).value
            return await flow.ask("Write 1", purse="a")

        text = f'{asking()} (pmap (lambda (n) (value-of (ask (n n)))) (list 1 2)) (more (how "ask")) (more (how "nested")) (more (how "other flow"))'
        await flow.run(text, purse="a")
        assert (await flow.purses.look("a")).spent.model_calls == 5
        for place, code in (("a", "within a run that the purse 'a' pays"), (None, "within a run that has no purse")):
            with pytest.raises(Exception, match=code):
                await flow.run('(value-of (more (how "another purse")))', purse=place)
        await flow.run(ASK, purse="a")
        with pytest.raises(PurseEmpty):
            await flow.run('(value-of (more (how "other flow")))', purse="a")


async def test_a_period_ends(database: str | None) -> None:
    """What was spent counts until the period ends, and a call for the period in which it ends; resuming goes on then."""
    clock, model = Clock(), Gated()
    purses = Purses({"*": Allowance(model_calls=1, per="1h")}, clock=clock)
    async with AgentFlow(provider=model, durable=database, purses=purses) as flow:
        at_work = asyncio.create_task(flow.run(ASK, purse="a"))
        await model.has_begun()
        reserved = await flow.purses.look("a")
        assert (reserved.spent.model_calls, reserved.reserved.model_calls, reserved.model_calls_left) == (0, 1, 0)
        clock.now += 3_600
        model.may_answer.set()
        await at_work
        ended = await flow.purses.look("a")
        assert ended.spent.model_calls == 1 and ended.ends_at == (reserved.ends_at or 0) + 3_600
        with pytest.raises(PurseEmpty) as caught:
            await flow.run(ASK, purse="a")
        assert caught.value.ends_at == ended.ends_at
        if database is not None:
            with pytest.raises(PurseEmpty):
                await (await flow.start(ASK, run_id="r", purse="a")).result()
        clock.now += 3_600
        assert (await flow.purses.look("a")).spent == Spending()
        if database is None:
            await flow.run(ASK, purse="a")
        else:
            await (await flow.resume("r")).result()
        with pytest.raises(PurseEmpty):
            await flow.run(ASK, purse="a")


async def test_a_call_that_is_cut_off_is_charged_by_estimate(database: str | None) -> None:
    """While it is at work it is reserved in the purse and in ``run.account``; cut off, it counts in both by the same estimate."""
    model = Gated()
    purses = Purses({"*": Allowance(tokens=100_000)})
    async with AgentFlow(provider=model, durable=database, purses=purses) as flow:
        async with flow.stream(ASK, purse="a") as run:
            assert run.account.reserved_tokens == 0
            await model.has_begun()
            while not run.account.estimated_tokens:
                await asyncio.sleep(0.001)
            account, balance = run.account, await flow.purses.look("a")
            assert account.reserved_tokens == balance.reserved.tokens > account.usage.total_tokens > 0
            assert balance.spent == Spending()
        account, balance = run.account, await flow.purses.look("a")
        assert account.reserved_tokens == 0 and balance.reserved == Spending()
        assert balance.spent.tokens == account.usage.total_tokens == account.estimated_tokens > 0
        assert balance.spent.model_calls == 1


async def test_a_host_can_raise_an_allowance_and_a_run_cannot(database: str | None) -> None:
    """``purses.allow`` is in force at once, and what was spent stays; limits of a run are below the purse."""
    model = MeteredModel()
    purses = Purses({"*": Allowance(model_calls=1), "b": Allowance(tokens=1)})
    async with AgentFlow(provider=model, durable=database, purses=purses) as flow:
        await flow.run(ASK, purse="a")
        with pytest.raises(PurseEmpty):
            await flow.run(ASK, purse="a", limits=Limits(model_calls=100, tokens=10**6))
        flow.purses.allow("a", Allowance(model_calls=5))
        await flow.run(ASK, purse="a")
        balance = await flow.purses.look("a")
        assert (balance.spent.model_calls, balance.model_calls_left) == (2, 3)
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(f"{ASK} {ASK}", purse="a", limits=Limits(model_calls=1))
        assert not isinstance(caught.value, PurseEmpty), "the run's own limit was met first"
        with pytest.raises(PurseEmpty, match="too few for a call"):
            await flow.run(ASK, purse="b")


async def test_answers_are_not_shortened_where_only_calls_are_counted() -> None:
    """A cap of the answer is for limits of tokens and money: calls are counted without one."""
    model = MeteredModel()
    async with AgentFlow(provider=model, purses={"*": Allowance(model_calls=9)}) as flow:
        await flow.run(ASK, purse="a")
        assert model.requests[-1].max_output_tokens is None
        await flow.run(ASK, purse="a", limits=Limits(tokens=10_000))
        assert model.requests[-1].max_output_tokens is not None


async def test_flows_that_are_given_the_same_purses_share_them() -> None:
    """In memory they are one object, for all flows of a process."""
    purses = Purses({"*": Allowance(model_calls=3)})
    async with (
        AgentFlow(provider=MeteredModel(), purses=purses) as one,
        AgentFlow(provider=MeteredModel(), purses=purses) as two,
    ):
        for flow in (one, two, one):
            await flow.ask("Write 1", purse="a")
        with pytest.raises(PurseEmpty):
            await two.ask("Write 1", purse="a")
        assert (await one.purses.look("a")) == (await two.purses.look("a"))


async def test_purses_in_memory_are_dropped_when_nothing_is_spent_from_them() -> None:
    """A process with many users holds those that count in the present period."""
    clock = Clock()
    purses = Purses({"*": Allowance(model_calls=3, per="1h")}, clock=clock)
    async with AgentFlow(provider=MeteredModel(), purses=purses) as flow:
        await flow.ask("Write 1", purse="a")
        for number in range(10_100):
            await purses.look(f"user-{number}")
        assert [each.name for each in await purses.list()] == ["a"]
        with pytest.raises(PurseEmpty):
            for _ in range(3):
                await flow.ask("Write 1", purse="a")


# -- durable runs -----------------------------------------------------------------------------------------------------


async def test_replays_are_not_charged(shared: str) -> None:
    """A durable run keeps its purse: resumed by another process it pays from it, for what is new alone."""
    purses = {"*": Allowance(model_calls=10)}
    text = f'{asking()} (value-of (ask (n 1))) (value-of (ask (n 2))) (ask-human "go on?") (value-of (ask (n 3)))'
    async with AgentFlow(provider=MeteredModel(), durable=shared, purses=purses) as flow:
        handle = await flow.start(text, run_id="r", purse="a")
        assert await handle.wait() == "waiting"
        assert (await flow.purses.look("a")).spent.model_calls == 2
        [question] = await flow.questions("r")
    second = MeteredModel()
    async with AgentFlow(provider=second, durable=shared, purses=purses) as flow:
        await flow.send("r", question.key, "yes")
        await (await flow.resume("r")).result()
        assert second.finished == 1 and (await flow.purses.look("a")).spent.model_calls == 3
        assert (await (await flow.start(text, run_id="r", purse="a")).result()).usage.requests == 3
        with pytest.raises(JournalError, match="purse='b'") as caught:
            await flow.start(text, run_id="r", purse="b")
        assert caught.value.code == "durable/argument"
    async with AgentFlow(provider=MeteredModel(), durable=shared) as flow:
        with pytest.raises(ConfigurationError, match="has no purses"):
            await (await flow.fork("r", "0/2.0")).result()


async def test_an_empty_purse_is_recorded_as_such(shared: str) -> None:
    """The error of a durable run comes back with its purse and the end of its period; another purse may pay for the rest."""
    model = MeteredModel()
    purses = {"a": Allowance(model_calls=1, per="1d"), "b": Allowance(model_calls=5)}
    text = f"{asking()} (value-of (ask (n 1))) (value-of (ask (n 2)))"
    async with AgentFlow(provider=model, durable=shared, purses=purses) as flow:
        for _ in range(2):
            with pytest.raises(PurseEmpty) as caught:
                await (await flow.start(text, run_id="r", purse="a")).result()
            assert caught.value.purse == "a" and caught.value.ends_at is not None
    async with AgentFlow(provider=model, durable=shared, purses=purses) as flow:
        with pytest.raises(PurseEmpty) as caught:
            await flow.recorded_result("r")
        assert caught.value.purse == "a" and caught.value.ends_at is not None
        await (await flow.resume("r", purse="b")).result()
        assert (await flow.purses.look("b")).spent.model_calls == 1 and model.finished == 2


async def test_a_fork_is_paid_from_a_purse_of_its_own(shared: str) -> None:
    """``fork(purse=)`` names who pays for what is carried out again, now and when the fork is resumed; an unknown one is refused
    before anything is stored."""
    model = MeteredModel()
    purses = {"a": Allowance(model_calls=5), "b": Allowance(model_calls=5)}
    text = f"{asking()} (value-of (ask (n 1))) (value-of (ask (n 2)))"
    async with AgentFlow(provider=model, durable=shared, purses=purses) as flow:
        await (await flow.start(text, run_id="r", purse="a")).result()
        with pytest.raises(ConfigurationError, match="typo"):
            await flow.fork("r", "0/1.0", as_run="f", purse="typo")
        assert await flow.find_run("f") is None
        await (await flow.fork("r", "0/1.0", as_run="f", purse="b")).result()
        await (await flow.fork("r", "0/1.0", as_run="g")).result()
        spent = [(await flow.purses.look(name)).spent.model_calls for name in ("a", "b")]
        assert spent == [3, 1] and model.finished == 4


async def test_a_secret_is_no_name_of_a_purse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of purses are stored and shown as they are."""
    monkeypatch.setenv("MY_API_KEY", "sk-very-secret-value-1234")
    purses = {"*": Allowance(model_calls=1)}
    async with AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db", purses=purses) as flow:
        with pytest.raises(JournalError) as caught:
            await flow.start("1", purse="sk-very-secret-value-1234")
        assert caught.value.code == "durable/secret"


async def test_branches_on_workers_pay_from_the_purse(postgres_url: str) -> None:
    """A branch is a run of its own there, with the purse of its run."""
    model, stop = MeteredModel(), asyncio.Event()
    purses = {"*": Allowance(model_calls=3)}
    async with AgentFlow(provider=model, durable=postgres_url, purses=purses) as flow:
        flow.task_system.register_template({"name": "ask", "params": "n", "instructions": "Write {{n}}"})
        working = asyncio.create_task(flow.work(stop=stop))
        text = "(pmap :on workers (lambda (n) (value-of (ask (n n)))) (list 1 2 3 4))"
        handle = await flow.start(text, purse="a", where="workers")
        with pytest.raises(PurseEmpty):
            await handle.result()
        info = await flow.find_run(handle.run_id)
        assert info is not None and info.tenant == "a", "workers take turns by purse"
        assert model.finished == 3 and (await flow.purses.look("a")).spent.model_calls == 3
        stop.set()
        await working


# -- several processes ------------------------------------------------------------------------------------------------


async def child(database: str, *words: str) -> asyncio.subprocess.Process:
    """A process that pays from a purse of ``database``."""
    command = (sys.executable, "-m", "tests.run.purse_child", database, *words)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def test_two_processes_never_pass_a_limit_together(shared: str) -> None:
    """Forty runs each, at once, against a limit for twenty calls: twenty are answered, by whichever process."""
    both = [await child(shared, "a", "20", "40") for _ in range(2)]
    answered = [int((await each.communicate())[0]) for each in both]
    assert sum(answered) == 20
    async with AgentFlow(durable=shared, purses={"*": Allowance(model_calls=20, per="1d")}) as flow:
        balance = await flow.purses.look("a")
        assert balance.spent.model_calls == 20 and balance.reserved == Spending()


async def test_what_a_killed_process_had_leased_counts_as_spent(shared: str) -> None:
    """While it lives, others wait for what it may give back; killed, its call may have been paid for, and nobody waits."""
    process = await child(shared, "a", "2", "1", "hang")
    assert process.stdout is not None and await process.stdout.readline() == b"at work\n"
    model = MeteredModel()
    async with AgentFlow(provider=model, durable=shared, purses={"*": Allowance(model_calls=2, per="1d")}) as flow:
        balance = await flow.purses.look("a")
        assert (balance.spent.model_calls, balance.reserved.model_calls) == (0, 1)
        await flow.ask("Write 1", purse="a")
        waiting = asyncio.create_task(cast(Any, flow.run)(ASK, purse="a"))
        await asyncio.sleep(0.3)
        assert not waiting.done(), "the other process may give its call back"
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        with pytest.raises(PurseEmpty):
            await waiting
        balance = await flow.purses.look("a")
        assert (balance.spent.model_calls, balance.reserved.model_calls, model.finished) == (2, 0, 1)


async def test_a_lease_that_expired_counts_as_spent(shared: str) -> None:
    """Its owner may hang for ever: others wait for it no longer, and what it gives back later is theirs again."""
    allowance, call = Allowance(model_calls=1), Spending(model_calls=1)
    stores = [open_store(shared) for _ in range(2)]
    try:
        first, second = [each.purses for each in stores]
        cast(Any, first).lease_s = -1.0
        assert (await first.lease("a", 0.0, None, allowance, call)).granted == call
        refused = await second.lease("a", 0.0, None, allowance, call)
        assert refused.granted == Spending() and refused.spent == call and not refused.later
        await first.settle("a", 0.0, None, Spending(), 1)
        assert (await second.lease("a", 0.0, None, allowance, call)).granted == call
    finally:
        for each in stores:
            await each.aclose()


async def test_a_purse_that_is_opened_again_settles_what_it_spends(tmp_path: Path) -> None:
    """Another object for the same purse in the same process: the store does not take its settlements for repeated ones."""
    async with contextlib.aclosing(open_store(f"sqlite:///{tmp_path}/runs.db")) as store:
        for spent in (10, 20, 30):
            purse = Purse("user", Allowance(tokens=100), store=store.purses)
            held = purse.reserve(5, 5, None, "m")
            await held.granted()
            purse.spent(Usage(input_tokens=5, output_tokens=5), None)
            held.free()
            await purse.settled()
            use = await store.purses.look("user", 0.0)
            assert (use.spent.tokens, use.leased.tokens) == (spent, 0)


async def test_a_settlement_counts_once(shared: str) -> None:
    """A statement that is sent again, since its answer was lost with the connection, changes nothing."""
    store = open_store(shared)
    try:
        cost = Spending(usd=0.1 + 0.2, tokens=7, model_calls=1)
        await store.purses.lease("a", 0.0, 9.0, Allowance(tokens=10), cost)
        for number in (1, 1, 2):
            await store.purses.settle("a", 0.0, 9.0, cost, number)
        use = await store.purses.look("a", 0.0)
        assert use.spent == Spending(usd=0.6, tokens=14, model_calls=2) and use.leased == Spending()
        assert [each.name for each in await store.purses.list(8.0)] == ["a"] and await store.purses.list(9.0) == []
    finally:
        await store.aclose()


async def test_a_database_that_is_lost_is_no_empty_purse(tmp_path: Path) -> None:
    """A call that nothing can be leased for raises the error of the database."""
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    await store.aclose()
    purse = Purse("a", Allowance(model_calls=5), store=store.purses)
    async with AgentFlow(provider=ScriptedProvider(["x"])) as flow:
        with pytest.raises(JournalError) as caught:
            await flow.run(ASK, purse=purse)
        assert caught.value.code == "durable/closed"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=some.integers(0, 60),
    calls=some.lists(some.tuples(some.integers(0, 1), some.integers(1, 30), some.floats(0, 1)), max_size=12),
)
def test_leases_and_spending_never_pass_the_allowance(tmp_path: Path, limit: int, calls: list[Any]) -> None:
    """In whatever order two processes lease and settle: their leases and the spending together stay within the allowance."""

    async def all_of_them() -> None:
        stores = [open_store(f"sqlite:///{tmp_path}/runs.db") for _ in range(2)]
        name, allowance, spent = f"p{next(NUMBERS)}", Allowance(tokens=limit), 0
        held, settled = [0, 0], [0, 0]
        try:
            for at, asked, share in calls:
                purses = stores[at].purses
                grant = await purses.lease(name, 0.0, None, allowance, Spending(tokens=asked))
                held[at] += grant.granted.tokens
                assert grant.later == (
                    grant.granted == Spending() and held[1 - at] > 0 and spent + sum(held) + asked > limit
                )
                assert spent + sum(held) <= limit and grant.spent.tokens == spent
                if share < 0.6:
                    cost = int(held[at] * share)
                    settled[at] += 1
                    await purses.settle(name, 0.0, None, Spending(tokens=cost), settled[at])
                    spent, held[at] = spent + cost, 0
            use = await stores[0].purses.look(name, 0.0)
            assert (use.spent.tokens, use.leased.tokens, use.mine.tokens) == (spent, sum(held), held[0])
        finally:
            for each in stores:
                await each.aclose()

    asyncio.run(all_of_them())


def test_a_flow_on_a_second_loop_pays_from_the_same_purse(database: str | None) -> None:
    """A loop that has ended keeps nothing of a purse to itself."""
    flow = AgentFlow(provider=MeteredModel(), purses={"*": Allowance(model_calls=3)}, durable=database)

    async def ask() -> int:
        ends = await asyncio.gather(*[flow.run(ASK, purse="a") for _ in range(2)], return_exceptions=True)
        return sum([not isinstance(each, BaseException) for each in ends])

    assert [asyncio.run(ask()) for _ in range(3)] == [2, 1, 0]
    asyncio.run(flow.aclose())
