"""Branches that workers carry out: runs of their own, whose ends wake the run that they belong to."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from agentflow import AgentFlow, Limits
from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.events.journal_rows import BranchEnd, Deposit, EffectRow, EffectState, NewRun, QueueLoad
from agentflow.journal.postgres import PostgresJournal
from tests.scale.child import app
from tests.scale.workers import detached, working
from tests.support.metered_model import MeteredModel, asking
from tests.support.postgres import Server

PMAP = '(define (see at) (content (look (at at)))) (list (see "a") (pmap :on workers see \'("p0" "p1" "p2")) (see "b"))'
RACE = '(list (race :on workers (error "one") (refuse) (content (look (at "won"))) (ask-human "never")) (content (look (at "b"))))'
PARALLEL = '(let ((x "q")) (parallel :on workers (content (look (at (string-append x "0")))) (content (look (at "q1"))) (+ 1 2)))'


async def refuse() -> str:
    """Refuse."""
    raise ValueError("no")


async def test_branches_are_runs_whose_values_come_back_in_order(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """Each in a run of its own; the run around them leaves the memory and is replayed once, however many there are."""
    log = tmp_path / "log"
    async with app(postgres_url, log) as starter, app(postgres_url, log) as one, app(postgres_url, log) as other:
        runs = [await detached(starter, name, text) for name, text in (("m", PMAP), ("p", PARALLEL))]
        async with working(one), working(other):
            values = [(await run.result()).value for run in runs]
        assert values == [["<a>", ["<p0>", "<p1>", "<p2>"], "<b>"], ["<q0>", "<q1>", 3]]
        plan = await starter.plan("m")
        assert plan.complete and [each.name for each in plan.reused] == ["look", "pmap", "pmap", "pmap", "pmap", "look"]
        listed = {run.run_id: run.slices for run in await starter.runs()}
        assert listed == {"m": 2, "p": 2}
    assert Counter(log.read_text().split()) == dict.fromkeys(["a", "p0", "p1", "p2", "b", "q0", "q1"], 1)
    assert (
        postgres_server.sql("select count(*) from af_run where parent = 'm' and status = 'done'", postgres_url) == "3"
    )
    assert postgres_server.sql("select count(*) from af_fork", postgres_url) == "0"


TEXT = """
def see(at):
    return look(at=at)

x = "q"
[
    see("a"),
    pmap(see, ["p0", "p1", "p2"], on="workers"),
    parallel(lambda: see(x + "0"), lambda: 1 + 2, on="workers"),
    race(lambda: see("won"), lambda: ask_human("never"), on="workers"),
]
"""


async def test_a_text_in_python_has_workers_do_its_branches(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """As one in S-expressions: the functions are sent with what they use from outside, each does its effects once."""
    log = tmp_path / "log"
    value = ["<a>", ["<p0>", "<p1>", "<p2>"], ["<q0>", 3], "<won>"]
    async with app(postgres_url, log) as flow, app(postgres_url, log) as other:
        run = await detached(flow, "t", TEXT, surface="python")
        async with working(flow), working(other):
            assert (await run.result()).value == value
        assert (
            await flow.run(TEXT.replace('lambda: ask_human("never")', "lambda: 1 / 0"), surface="python")
        ).value == value
    assert Counter(log.read_text().split()) == dict.fromkeys(["a", "p0", "p1", "p2", "q0", "won"], 2)
    branches = postgres_server.sql("select count(*) from af_run where parent = 't'", postgres_url)
    assert branches == "7"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('parallel(f(1), on="workers")', "form/on"),
        ('parallel(lambda x: 1, on="workers")', "form/on"),
        ('pmap(f, [1], on="moon")', "form/on"),
        ('pmap(f, [1], 3, on="workers")', "form/arity"),
        ('pmap(f, [1], limit=3, on="workers")', "form/arity"),
        ('race(on="workers")', "form/arity"),
    ],
)
async def test_a_branch_that_cannot_be_sent_is_refused_before_a_run(text: str, code: str) -> None:
    """The hint says how the same is written for workers, in Python."""
    async with AgentFlow("offline") as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run(f"def f(x):\n    return x\n{text}", surface="python")
    assert caught.value.code == code and caught.value.hint is not None
    assert "workers" in caught.value.hint or "lambda: f(" in caught.value.hint


async def test_a_run_that_this_process_keeps_has_its_branches_here(postgres_url: str, tmp_path: Path) -> None:
    """So has ``flow.run``; a durable run in a file says that there are no workers for it."""
    async with app(postgres_url, tmp_path / "log") as flow:
        assert (await flow.run(PARALLEL)).value == ["<q0>", "<q1>", 3]
        assert (await (await flow.start(PMAP, run_id="m")).result()).value[1] == ["<p0>", "<p1>", "<p2>"]
    async with app(f"sqlite:///{tmp_path / 'runs.db'}", tmp_path / "log") as flow:
        with pytest.raises(AgentflowError) as caught:
            await (await flow.start(PARALLEL, run_id="m")).result()
        assert caught.value.code == "branches/no-workers" and caught.value.span is not None


async def test_the_first_failure_cancels_the_others_and_is_raised(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """Those that have not begun never do; the program can handle the error, whose span is that of the form."""
    program = """
(try (pmap :on workers (lambda (at) (if (equal? at "p1") (error "not this one") (content (look (at at))))) '("p0" "p1" "p2" "p3"))
  (catch (e) (get-field e 'message)))
"""
    log = tmp_path / "log"
    async with app(postgres_url, log) as flow:
        run = await detached(flow, "r", program)
        async with working(flow, slots=1):
            assert "not this one" in (await run.result()).value
    states = postgres_server.sql(
        "select string_agg(status, ' ' order by run) from af_run where parent = 'r'", postgres_url
    )
    assert states == "done failed cancelled cancelled"
    assert log.read_text().split() == ["p0"]


async def test_a_failed_run_that_is_resumed_repeats_only_the_branches_that_failed(
    postgres_url: str, tmp_path: Path
) -> None:
    """Values that have arrived are kept."""
    done: list[str] = []
    fails = True

    async def look(at: str) -> str:
        """Look at something."""
        if at == "p2" and fails:
            raise ValueError("away")
        done.append(at)
        return at

    program = '(pmap :on workers (lambda (at) (value-of (look (at at)))) \'("p0" "p1" "p2"))'
    async with AgentFlow(model="offline", tools=[look], durable=postgres_url) as flow:
        async with working(flow, slots=1):
            run = await detached(flow, "r", program)
            with pytest.raises(AgentflowError):
                await run.result()
            fails = False
            assert (await (await flow.resume("r")).result()).value == ["p0", "p1", "p2"]
    assert done == ["p0", "p1", "p2"]


async def test_what_is_no_data_is_refused_before_anything_is_sent(postgres_url: str, tmp_path: Path) -> None:
    """Procedures that change variables, and values of the host; a value that is none comes back as an error."""
    programs = {
        "closure/not-data": "(let ((n 0)) (pmap :on workers (lambda (x) (set! n x)) '(1 2)))",
        "durable/no-value": "(let ((n 0)) (parallel :on workers (let ((k 0)) (lambda () (set! k 1)))))",
    }
    async with app(postgres_url, tmp_path / "log") as flow, working(flow):
        for code, program in programs.items():
            with pytest.raises(AgentflowError) as caught:
                await (await detached(flow, code.replace("/", "."), program)).result()
            assert caught.value.code == code


async def test_a_cancelled_run_takes_its_branches_with_it(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """Those at work, those that wait and those that have not begun."""
    log = tmp_path / "log"
    program = '(pmap :on workers (lambda (at) (if (equal? at "q") (ask-human at) (content (look (at at))))) \'("p0" "q" "p1" "p2"))'
    async with app(postgres_url, log, "p0") as flow:
        run = await detached(flow, "r", program)
        async with working(flow, slots=2):
            while (
                not log.exists()
                or postgres_server.sql("select 1 from af_run where status = 'waiting' and parent = 'r'", postgres_url)
                != "1"
            ):
                await asyncio.sleep(0.02)
            await flow.cancel("r")
            assert run.status == "cancelled"
            while (
                postgres_server.sql(
                    "select count(*) from af_run where status <> 'cancelled' and run not like '%.2' and run not like '%.3'",
                    postgres_url,
                )
                != "0"
            ):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("allowed", [300, 1_000])
async def test_branches_share_the_tokens_of_their_run(postgres_server: Server, postgres_url: str, allowed: int) -> None:
    """What all of them use never passes the limit; within it all are done, whatever they set aside before they were sent."""
    models = [MeteredModel(), MeteredModel()]
    program = f"{asking()} (length (pmap :on workers (lambda (n) (value-of (ask (n n)))) '(36 36 36 36 36 36 36 36)))"
    async with contextlib.AsyncExitStack() as stack:
        flows = [AgentFlow(provider=model, durable=postgres_url) for model in models]
        for flow in flows:
            await stack.enter_async_context(flow)
            await stack.enter_async_context(working(flow))
        run = await detached(flows[0], "r", program, limits=Limits(tokens=allowed))
        if allowed == 1_000:
            result = await run.result()
            assert result.value == 8 and result.usage.total_tokens == sum([model.paid for model in models])
        else:
            with pytest.raises(LimitExceeded) as caught:
                await run.result()
            assert caught.value.limit == "tokens"
    assert 0 < sum([model.paid for model in models]) <= allowed
    assert postgres_server.sql("select count(*) from af_budget", postgres_url) == "0"
    assert postgres_server.sql("select coalesce(sum(tokens), 0) from af_lease", postgres_url) == "0"


async def test_a_branch_has_the_authority_and_the_conversation_of_its_run(postgres_url: str, tmp_path: Path) -> None:
    """It may call what its program was granted; what it said follows what was said before, in the order written."""
    programs = {
        "granted": '(pmap :on workers (lambda (at) (content (look (at at)))) \'("p0"))',
        "refused": '(pmap :on workers (lambda (text) (eval-program text (allow system:read_files))) \'("(system:read_files (file_paths \'(\\"x\\")))"))',
    }
    async with app(postgres_url, tmp_path / "log") as flow, working(flow):
        runs = {name: await detached(flow, name, text, allow=["look"]) for name, text in programs.items()}
        assert (await runs["granted"].result()).value == ["<p0>"]
        with pytest.raises(AgentflowError) as caught:
            await runs["refused"].result()
        assert "grant" in caught.value.code, caught.value
        nested = "(pmap :on workers (lambda (x) (pmap :on workers (lambda (y) (list x y)) '(1 2))) '(1 2))"
        assert (await (await detached(flow, "nested", nested)).result()).value == [[[1, 1], [1, 2]], [[2, 1], [2, 2]]]


async def test_branches_on_workers_within_other_forms(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """Two forms side by side end each for itself; a time-out of one that waits for a person wakes the run, and cancels its branches."""
    see = "(define (see at) (content (look (at at))))"
    programs = {
        "beside": f'{see} (parallel (pmap :on workers see \'("p0" "p1")) (begin (see "a") (pmap :on workers see \'("q0" "q1"))))',
        "late": f'{see} (try (timeout 0.3 (pmap :on workers (lambda (x) (ask-human x)) (list "r0" "r1"))) (catch (e) (see "late")))',
        "race": f'{see} (race (pmap :on workers (lambda (x) (ask-human x)) (list "s0")) (list (see "won")))',
    }
    async with app(postgres_url, tmp_path / "log") as flow, working(flow):
        runs = {name: await detached(flow, name, text) for name, text in programs.items()}
        assert (await runs["beside"].result()).value == [["<p0>", "<p1>"], ["<q0>", "<q1>"]]
        assert (await runs["late"].result()).value == "<late>"
        assert (await runs["race"].result()).value == ["<won>"]
        left = "select count(*) from af_run where parent in ('late', 'race') and status <> 'cancelled'"
        while postgres_server.sql(left, postgres_url) != "0":
            await asyncio.sleep(0.02)
        assert postgres_server.sql("select count(*) from af_fork", postgres_url) == "0"


@pytest.mark.parametrize("order", ["waits first", "is given up first", "asks", "asks, cancelled by itself"])
async def test_a_branch_that_begins_to_wait_as_it_is_cancelled_is_queued(postgres_url: str, order: str) -> None:
    """Its worker has not seen the cancellation yet: stored as waiting, or as one that asks whether to go on, it would wait for good."""
    store = PostgresJournal(postgres_url)
    new = NewRun(program="(f)", digest="d", input={}, queue="default")
    form = EffectRow(path="0/0.0", kind="branches", name="pmap", content=b"", state=EffectState.OPEN)
    try:
        await store.jobs.prepare()
        await store.create("r", new)
        epoch = (await store.own("r")).run.epoch
        await store.jobs.fork("r", epoch, form, [("b", new)], [])
        branch = (await store.own("b")).run
        if order == "waits first":
            assert await store.park("b", branch.epoch, branch.seq, None)
        if order == "asks, cancelled by itself":
            await store.jobs.cancel("b")
        else:
            await store.jobs.give_up("r", epoch, form.key)
        if order.startswith("asks"):
            await store.finish("b", branch.epoch, "interrupted")
        if order == "is given up first":
            assert not await store.park("b", branch.epoch, branch.seq, None)
            await store.finish("b", branch.epoch, "queued")
        stored = await store.find("b")
        assert stored is not None and (stored.status, stored.cancelling) == ("queued", True)
    finally:
        await store.aclose()


async def test_a_branch_that_asks_whether_to_go_on_keeps_its_share(postgres_url: str) -> None:
    """What it had set aside goes back, and it takes from the budget of all of them when it goes on."""
    store = PostgresJournal(postgres_url)
    new = NewRun(program="(f)", digest="d", input={}, queue="default")
    form = EffectRow(path="0/0.0", kind="branches", name="pmap", content=b"", state=EffectState.OPEN)
    deposit = Deposit(usd=None, tokens=100, held_usd=0.0, held_tokens=0)
    try:
        await store.jobs.prepare()
        await store.create("r", new)
        epoch = (await store.own("r")).run.epoch
        await store.jobs.fork("r", epoch, form, [("b", new)], [], deposit)
        branch = (await store.own("b")).run
        assert (await store.jobs.lease("b", 0.0, 60)).tokens == 60
        await store.finish("b", branch.epoch, "interrupted")
        assert (await store.jobs.lease("r", 0.0, 100)).tokens == 100
        assert (await store.own("b")).leased
        assert (await store.jobs.lease("b", 0.0, 1)).later
    finally:
        await store.aclose()


async def test_the_first_success_of_a_race_cancels_the_others(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """A failure, and a FAILED result, settle nothing; the record of the form says who won, so that a replay gives the same value."""
    log = tmp_path / "log"
    async with app(postgres_url, log) as flow, working(flow):
        flow.tool(refuse)
        assert (await (await detached(flow, "r", RACE)).result()).value == ["<won>", "<b>"]
        plan = await flow.plan("r")
        assert plan.complete and [each.name for each in plan.reused] == ["race", "race", "look"]
        assert {run.run_id: run.slices for run in await flow.runs()} == {"r": 2}
    assert log.read_text().split() == ["won", "b"]
    states = "select string_agg(status, ' ' order by run) from af_run where parent = 'r'"
    assert postgres_server.sql(states, postgres_url) in (
        "failed failed done cancelled",
        "cancelled failed done cancelled",
        "failed cancelled done cancelled",
        "cancelled cancelled done cancelled",
    )
    assert postgres_server.sql("select count(*) from af_fork", postgres_url) == "0"


@pytest.mark.parametrize("forms", ['(error "one") (error "two")', '(error "one") (refuse) (error "two")', "(refuse)"])
async def test_a_race_that_nobody_wins_ends_as_one_that_is_run_here(
    postgres_url: str, tmp_path: Path, forms: str
) -> None:
    """With every cause, in the order written; or with the last FAILED result."""
    program = f"(race :on workers {forms})"
    shown = f"(try (content {program}) (catch (e) (list (get-field e 'code) (get-field e 'message))))"
    async with app(postgres_url, tmp_path / "log") as flow, working(flow):
        flow.tool(refuse)
        told = (await flow.run(shown)).value
        assert (await (await detached(flow, "r", shown)).result()).value == told
        plan = await flow.plan("r")
        assert plan.complete and [each.name for each in plan.reused] == ["race"]


async def test_a_failed_run_that_is_resumed_runs_its_race_again(postgres_url: str, tmp_path: Path) -> None:
    """All of it, as nobody had won; one that was won before the failure stays as it was."""
    log = tmp_path / "log"
    fails = True

    async def check(at: str) -> str:
        """Check something."""
        if fails:
            raise ValueError("away")
        return at

    programs = {
        "lost": '(value-of (race :on workers (check (at "a")) (progn (value-of (check (at "b"))) (check (at "b")))))',
        "won": '(list (race :on workers (check (at "a")) (content (look (at "c")))) (value-of (check (at "d"))))',
    }
    async with app(postgres_url, log) as flow, working(flow):
        flow.tool(check)
        for name, program in programs.items():
            with pytest.raises(AgentflowError):
                await (await detached(flow, name, program)).result()
        fails = False
        assert (await (await flow.resume("lost")).result()).value in ("a", "b")
        assert (await (await flow.resume("won")).result()).value == ["<c>", "d"]
    assert log.read_text().split() == ["c"]


@pytest.mark.parametrize("first", ["won", "given up"])
async def test_a_race_that_is_given_up_after_it_was_won_wakes_nobody(postgres_url: str, first: str) -> None:
    """What ends after that is counted, and the last of it removes the fork, whatever came first."""
    store = PostgresJournal(postgres_url)
    new = NewRun(program="(f)", digest="d", input={}, queue="default")
    form = EffectRow(path="0/0.0", kind="branches", name="race", content=b"", state=EffectState.OPEN)
    try:
        await store.jobs.prepare()
        await store.create("r", new)
        epoch = (await store.own("r")).run.epoch
        await store.jobs.fork("r", epoch, form, [("a", new), ("b", new)], [])
        runs = [(await store.own(name)).run for name in ("a", "b")]
        won = EffectRow(
            path="0/0.0.0/0.0", kind="branch", name="race", content=b"", state=EffectState.OK, value={"ok": 1}
        )
        if first == "won":
            await store.finish("a", runs[0].epoch, "done", branch=BranchEnd(record=won, settles=True))
        await store.jobs.give_up("r", epoch, form.key)
        if first == "given up":
            await store.finish("a", runs[0].epoch, "done", branch=BranchEnd(record=won, settles=True))
        assert [row.path for row in await store.effects("r")] == ([won.path] if first == "won" else [])
        lost = replace(won, path="0/0.0.1/0.0", state=EffectState.FAILED)
        await store.finish("b", runs[1].epoch, "cancelled", branch=BranchEnd(record=lost, settles=False))
        stored = await store.find("r")
        assert stored is not None and (stored.status, stored.seq) == ("running", 0)
        assert await store.jobs.load() == [
            QueueLoad(queue="default", tenant="", queued=0, running=1, waiting=0, oldest_s=0.0)
        ]
    finally:
        await store.aclose()
