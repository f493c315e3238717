"""Durable runs through the flow: started once, gone on with after any interruption, and never paid for twice."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    AgentFlow,
    CallContext,
    ConfigurationError,
    Durable,
    LimitExceeded,
    Limits,
    ScriptedProvider,
    Secret,
    TaskResult,
)
from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.core.data.session import Session
from agentflow.events import EffectReplayed, Event, RunFinished, ToolStarted
from tests.durable.world import Flow, World, interrupted, time_passes

PROGRAM = """
(defatom ask (params (q string)) (instructions "{{q}}") (history_config true))
(define seen 0)
(define (see at) (begin (set! seen (+ seen 1)) (content (look (at at)))))
(list (see "a") (content (ask (q "one"))) (pmap (lambda (i) (content (look (at i)))) '("p1" "p2" "p3"))
      (content (ask (q "two"))) (see "b") seen)
"""
VALUE = ["<a>", "answer to one after 1", ["<p1>", "<p2>", "<p3>"], "answer to two after 3", "<b>", 2]


@pytest.mark.parametrize("at", ["a", "p2", "b"])
async def test_an_interrupted_run_goes_on(world: World, flow: Flow, at: str) -> None:
    """What was carried out before the interruption is not carried out again; variables and history are as if never stopped."""
    await interrupted(world, flow, PROGRAM, at)
    before = dict(world.done)
    async with flow() as second:
        handle = await second.start(PROGRAM, run_id="r")
        result = await handle.result()
    assert result.value == VALUE and result.run_id == "r"
    assert set(world.done.values()) == {1} and handle.replayed == len(before)
    assert result.usage.requests == 2
    assert handle.saved.requests == sum(1 for each in before if each in ("one", "two"))
    async with flow() as third:
        again = await third.start(PROGRAM, run_id="r")
        assert again.status == "done" and (await again.result()) == result
        assert [(run.run_id, run.status, run.slices) for run in await third.runs()] == [("r", "done", 2)]
    assert set(world.done.values()) == {1}


async def test_it_goes_on_by_what_is_stored_alone(world: World, flow: Flow) -> None:
    """A run is resumed by its id: program, bindings, grants and limits are stored with it."""
    text = '(list (content (look (at x))) y (content (look (at "z"))))'
    world.hold.add("z")
    async with flow() as first:
        await first.start(
            text, {"x": "q", "y": {"b": 1, "a": [2.5]}}, run_id="r", allow=["look"], limits=Limits(effects=2)
        )
        await world.reached.wait()
    world.hold.clear()
    async with flow() as second:
        handle = await second.resume("r")
        assert (await handle.result()).value == ["<q>", {"b": 1, "a": [2.5]}, "<z>"]
        assert world.done == {"q": 1, "z": 1}
        with pytest.raises(JournalError) as caught:
            await second.resume("nobody")
        assert caught.value.code == "durable/unknown-run"


async def test_history_comes_back_with_the_records(world: World, flow: Flow) -> None:
    """A replayed task commits the exchange it had committed, so that later tasks are sent the same history."""
    text = """
    (defatom ask (params (q string)) (instructions "{{q}}") (history_config true))
    (begin (ask (q "one")) (parallel (ask (q "two")) (ask (q "three"))) (look (at "x")) (content (ask (q "four"))))
    """
    await interrupted(world, flow, text, "x")
    async with flow() as second:
        assert (await (await second.start(text, run_id="r")).result()).value == "answer to four after 7"
    assert set(world.done.values()) == {1}


async def test_failures_are_outcomes(world: World, flow: Flow) -> None:
    """A caught failure is answered from its record like any value: class, code, message, reason and cause."""
    text = """
    (define (fields e) (list (get-field e 'code) (get-field e 'message) (get-field e 'reason) (get-field e 'cause)))
    (list (try (host 1) (catch (e) (fields e)))
          (try (value-of (look (at "bad"))) (catch (e) (fields e)))
          (content (look (at "last"))))
    """

    def host(number: int) -> int:
        world.done["host"] += 1
        raise KeyError(number)

    world.fail.add("bad")
    values: list[Any] = []
    for hold in ("last", ""):
        world.hold = {hold}
        async with flow() as opened:
            handle = await opened.start(text, {"host": host}, run_id="r")
            if hold:
                await world.reached.wait()
            else:
                values.append((await handle.result()).value)
    async with flow() as opened:
        values.append((await (await opened.start(text, {"host": host}, run_id="other")).result()).value)
    assert values[0] == values[1] and values[0][0][0] == "host/raised" and "KeyError" in values[0][0][3]
    assert world.done["host"] == 2 and world.done["bad"] == 2, "once for each run"


async def test_the_first_to_settle_a_form_stays_the_first(world: World, flow: Flow) -> None:
    """A race, a failed parallel and a time-out that were decided stay decided; those who lost do not act again."""
    text = """
    (define (tidy name form) (try (form) (finally (look (at (string-append "tidy " name))))))
    (list (race (tidy "slow" (lambda () (content (look (at "never"))))) (content (look (at "quick"))))
          (try (parallel (tidy "p" (lambda () (look (at "never 2")))) (error "boom")) (catch (e) (get-field e 'message)))
          (try (timeout 0.02 (tidy "t" (lambda () (look (at "never 3"))))) (catch (e) (get-field e 'code)))
          (content (look (at "last"))))
    """
    world.hold |= {"never", "never 2", "never 3"}
    await interrupted(world, flow, text, "last")
    world.hold = set()  # whoever lost would now be quick
    async with flow() as second:
        handle = await second.start(text, run_id="r")
        assert (await handle.result()).value == ["<quick>", "boom", "timeout/elapsed", "<last>"]
    assert world.done == {"quick": 1, "tidy slow": 1, "tidy p": 1, "tidy t": 1, "last": 1}


async def test_a_loser_cleans_up_after_all(world: World, flow: Flow) -> None:
    """Interrupted while the loser of a decided race was cleaning up: it comes to its clean-up again."""
    text = """
    (define (tidy name) (lambda () (try (content (look (at name))) (finally (look (at (string-append "tidy " name)))))))
    (list (race (content (look (at "quick"))) ((tidy "slow"))) (content (look (at "last"))))
    """
    world.hold |= {"slow"}
    await interrupted(world, flow, text, "tidy slow")
    assert world.done == {"quick": 1}
    async with flow() as second:
        assert (await (await second.start(text, run_id="r")).result()).value == ["<quick>", "<last>"]
    assert world.done == {"quick": 1, "tidy slow": 1, "last": 1}


async def test_an_interruption_cleans_nothing_up(world: World, flow: Flow) -> None:
    """``finally`` belongs to the run, which goes on later: it runs once, at the end of its form."""
    text = '(try (content (look (at "work"))) (finally (look (at "tidy"))))'
    await interrupted(world, flow, text, "work")
    assert world.done == {}
    async with flow() as second:
        assert (await (await second.start(text, run_id="r")).result()).value == "<work>"
    assert world.done == {"work": 1, "tidy": 1}


async def test_runs_are_given_up_before_their_flow_is_closed(world: World, flow: Flow) -> None:
    """A closing flow is not closed for the runs that it gives up: "this flow is closed" is no outcome of theirs.

    One that began at that moment was stored as failed with it, and could not be resumed.
    """
    closed: list[bool] = []
    reached = asyncio.Event()

    async def visit(at: str) -> str:
        """Visit a place."""
        try:
            reached.set()
            await asyncio.Event().wait()
        finally:
            closed.append(first.engine.closed)
        return at

    async with flow() as first:
        first.tool(visit)
        await first.start('(content (visit (at "x")))', run_id="r")
        await reached.wait()
    assert closed == [False]
    with pytest.raises(ConfigurationError, match="this flow is closed"):
        await first.run("1")


async def test_what_is_left_of_a_time_out_counts(world: World, flow: Flow, tmp_path: Path) -> None:
    """The time of a form goes on while nothing runs: an effect that would start after it does not."""
    text = '(try (timeout 600 (begin (look (at "a")) (look (at "b")))) (catch (e) (get-field e (quote code))))'
    await interrupted(world, flow, text, "b")
    await time_passes(tmp_path / "runs.db", "timeout")
    async with flow() as second:
        assert (await (await second.start(text, run_id="r")).result()).value == "timeout/elapsed"
    assert world.done == {"a": 1}


async def test_a_failed_run_tries_its_last_failure_again(world: World, flow: Flow) -> None:
    """Started again under its id it gives its recorded error; resumed, it repeats the failure alone."""
    text = '(list (content (look (at "a"))) (value-of (look (at "bad"))))'
    world.fail.add("bad")
    async with flow() as first:
        with pytest.raises(AgentflowError, match="bad failed"):
            await (await first.start(text, run_id="r")).result()
        with pytest.raises(AgentflowError, match="bad failed") as caught:
            await (await first.start(text, run_id="r")).result()
        assert caught.value.span is not None and world.done == {"a": 1, "bad": 1}
        world.fail.clear()
        assert (await (await first.resume("r")).result()).value == ["<a>", "<bad>"]
    assert world.done == {"a": 1, "bad": 2}


async def test_a_limit_is_no_outcome(world: World, flow: Flow) -> None:
    """With a higher limit a run that met one goes on from there, and what its clean-up did then does not count."""
    text = """
    (try (list (content (look (at "a"))) (content (look (at "b"))) (content (look (at "c")))) (finally (look (at "tidy"))))
    """
    async with flow() as first:
        with pytest.raises(LimitExceeded):
            await (await first.start(text, run_id="r", limits=Limits(effects=2))).result()
        assert (await (await first.resume("r", limits=Limits(effects=9))).result()).value == ["<a>", "<b>", "<c>"]
    assert world.done == {"a": 1, "b": 1, "c": 1, "tidy": 2}


async def test_limits_of_money_are_over_the_whole_run(world: World, flow: Flow) -> None:
    """Tokens used before an interruption count against the limits afterwards."""
    text = """
    (defatom ask (params (q string)) (instructions "{{q}}") (history_config '((use_session_history false))))
    (list (ask (q "one")) (look (at "x")) (ask (q "two")))
    """
    await interrupted(world, flow, text, "x", limits=Limits(model_calls=1))
    async with flow() as second:
        with pytest.raises(LimitExceeded) as caught:
            await (await second.start(text, run_id="r")).result()
        assert caught.value.limit == "model_calls"
    assert world.done == {"one": 1, "x": 1}


async def test_another_program_under_the_id_is_refused(world: World, flow: Flow) -> None:
    """The id of a run of another text, other bindings or another allow is an error that starts nothing."""
    await interrupted(world, flow, '(look (at "a"))', "a")
    async with flow() as second:
        for text, bindings, allow in (
            ('(look (at "b"))', {}, None),
            ('(look (at "a"))', {"x": 1}, None),
            ('(look (at "a"))', {}, ["look"]),
        ):
            with pytest.raises(JournalError) as caught:
                await second.start(text, bindings, run_id="r", allow=allow)
            assert caught.value.code == "durable/mismatch"
    assert world.done == {}


async def test_records_that_do_not_fit_end_the_run(world: World, flow: Flow, tmp_path: Path) -> None:
    """A tool whose parameters have changed is named at its first record; no program can catch that, and nothing runs."""
    text = '(try (list (look (at "a")) (look (at "b"))) (catch (e) "caught") (finally (look (at "tidy"))))'
    await interrupted(world, flow, text, "b")

    async def look(at: str, how: str) -> str:
        """Look at something."""
        return await world.carry_out(at)

    async with flow(tools=[look]) as second:
        with pytest.raises(JournalError) as caught:
            await (await second.start(text, run_id="r")).result()
    assert caught.value.code == "durable/mismatch" and caught.value.details["was"] == "tool look"
    assert world.done == {"a": 1}
    async with flow() as third:
        assert (await (await third.start(text, run_id="r")).result()).value[1].content == "<b>"


async def test_what_is_no_data_is_given_as_a_binding(world: World, flow: Flow) -> None:
    """An effect that gives what cannot be stored has failed, and is not carried out again; an object of the host is a binding, which
    is not stored either and is asked for when the run goes on."""
    opened: list[object] = []

    def connect() -> object:
        opened.append(object())
        return opened[-1]

    async with flow() as first:
        for _ in range(2):
            handle = await first.start(
                "(try (connect) (catch (e) (get-field e 'code)))", {"connect": connect}, run_id="c"
            )
            assert (await handle.result()).value == "durable/no-value"
    assert len(opened) == 1
    text = '(list (eq? c c) (content (look (at "a"))) (content (look (at "b"))))'
    world.hold.add("b")
    async with flow() as first:
        await first.start(text, {"c": opened[0]}, run_id="r")
        await world.reached.wait()
    world.hold.clear()
    async with flow() as second:
        with pytest.raises(JournalError) as caught:
            await second.resume("r")
        assert caught.value.code == "durable/bindings" and "c" in caught.value.message
        assert (await (await second.resume("r", bindings={"c": opened[0]})).result()).value == [True, "<a>", "<b>"]
    assert world.done == {"a": 1, "b": 1}


def all_bytes(directory: Path) -> bytes:
    return b"".join([each.read_bytes() for each in directory.rglob("*") if each.is_file()])


async def test_secrets_are_not_stored(world: World, flow: Flow, tmp_path: Path) -> None:
    """A secret is nowhere in the files: not bound, not returned, not in an error. Its binding is asked for again."""
    key = "sk-ant-api03-" + "Zq7x" * 20
    text = '(list (content (look (at key))) (content (look (at "b"))) (string-length key))'
    async with flow(api_key=Secret(key)) as first:
        world.hold.add("b")
        await first.start(text, {"key": key}, run_id="r")
        await world.reached.wait()
    world.hold.clear()
    assert all_bytes(tmp_path) and b"Zq7xZq7x" not in all_bytes(tmp_path)
    async with flow(api_key=Secret(key)) as second:
        with pytest.raises(JournalError) as caught:
            await second.resume("r")
        assert caught.value.code == "durable/bindings"
        value = (await (await second.resume("r", bindings={"key": key})).result()).value
        assert value == ["<[redacted]>", "<b>", len(key)]
        with pytest.raises(JournalError) as caught:
            await second.start(f'(look (at "{key}"))', run_id="s")
        assert caught.value.code == "durable/secret"
    assert b"Zq7xZq7x" not in all_bytes(tmp_path)
    assert world.done[key] == 1


async def test_events_tell_replayed_effects(world: World, flow: Flow) -> None:
    """A replayed effect is one event in the place of its pair; each stretch is a slice; an interruption is an outcome."""
    text = '(list (look (at "a")) (look (at "b")))'
    events: list[Event] = []
    world.hold.add("b")
    for number in (1, 2):
        async with flow() as opened:
            opened.subscribe(events.append)
            handle = await opened.start(text, run_id="r")
            if number == 1:
                await world.reached.wait()
                world.hold.clear()
            else:
                await handle.result()
    ends = [(each.slice, each.outcome) for each in events if isinstance(each, RunFinished)]
    assert ends == [(1, "suspended"), (2, "ok")]
    replayed = [each for each in events if isinstance(each, EffectReplayed)]
    assert [(each.kind, each.name, each.outcome, each.slice) for each in replayed] == [("tool", "look", "ok", 2)]
    started = [(each.slice, each.path) for each in events if isinstance(each, ToolStarted)]
    assert started == [(1, "0/0.0"), (1, "0/1.0"), (2, "0/1.0")] and replayed[0].path == "0/0.0"


async def test_one_run_has_one_owner(world: World, flow: Flow) -> None:
    """Here a run that works is given again; to another process it belongs to its owner."""
    world.hold.add("a")
    text = '(look (at "a"))'
    async with flow() as first, flow() as other:
        handle = await first.start(text, run_id="r")
        assert await first.start(text, run_id="r") is handle and await first.resume("r") is handle
        await world.reached.wait()
        for work in (other.start(text, run_id="r"), other.resume("r"), other.cancel("r")):
            with pytest.raises(JournalError) as caught:
                await work
            assert caught.value.code == "durable/owned"
    assert world.done == {}


async def test_a_cancelled_run_is_over(world: World, flow: Flow) -> None:
    """Cancelling cleans up, and is an end: nothing goes on, here or from a run that was interrupted."""
    text = '(try (look (at "a")) (finally (look (at "tidy"))))'
    world.hold.add("a")
    async with flow() as opened:
        handle = await opened.start(text, run_id="r")
        await world.reached.wait()
        await opened.cancel("r")
        assert handle.status == "cancelled" and world.done == {"tidy": 1}
    await interrupted(world, flow, text, "a", run_id="s")
    async with flow() as opened:
        await opened.cancel("s")
        for run_id in ("r", "s"):
            with pytest.raises(JournalError) as caught:
                await (await opened.resume(run_id)).result()
            assert caught.value.code == "durable/cancelled"
        assert {run.run_id: run.status for run in await opened.runs()} == {"r": "cancelled", "s": "cancelled"}
    assert world.done == {"tidy": 2}


async def test_what_a_tool_runs_is_recorded_below_it(world: World, flow: Flow) -> None:
    """A tool that runs programs of its own, several at once: when it is interrupted, its finished steps answer."""
    opened: list[AgentFlow] = []

    async def inner(ctx: CallContext) -> str:
        """Run programs."""
        world.done["inner"] += 1
        texts = [f'(content (look (at "i{number}")))' for number in range(4)]
        values = await asyncio.gather(*[opened[-1].run(text) for text in texts])
        await opened[-1].run('(look (at "last"))')
        return " ".join([str(each.value) for each in values])

    async def go(at: str | None) -> Any:
        async with flow(tools=[world.look, inner]) as each:
            opened.append(each)
            handle = await each.start("(content (inner))", run_id="r")
            if at is None:
                return (await handle.result()).value
            await world.reached.wait()
            return None

    world.hold = {"last"}
    await go("last")
    world.hold = set()
    assert await go(None) == "<i0> <i1> <i2> <i3>"
    assert world.done == {"inner": 2, "i0": 1, "i1": 1, "i2": 1, "i3": 1, "last": 1}


async def test_without_a_database_there_are_no_durable_runs(world: World, tmp_path: Path) -> None:
    """A flow without ``durable=`` says so; a URL that names no database is refused when the flow is built."""
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as plain:
        with pytest.raises(ConfigurationError) as caught:
            await plain.start("1")
        assert caught.value.code == "config/durable"
    for url, sync in (("runs.db", "normal"), ("sqlite:///", "normal"), ("sqlite:///x.db", "never")):
        with pytest.raises(ConfigurationError) as caught:
            AgentFlow(provider=ScriptedProvider([]), root=tmp_path, durable=Durable(url, sync=sync))  # type: ignore[arg-type]
        assert caught.value.code == "config/durable"
    for wrong in (tmp_path / "runs.db", Durable(tmp_path), 3):  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="is not the URL") as caught:
            AgentFlow(durable=wrong)  # type: ignore[arg-type]
        assert caught.value.code == "config/durable"


def test_the_options_of_a_database_belong_to_it() -> None:
    """A flow takes no ``sync=``, ``take_over=`` or ``on_inflight=`` and says where they go; a URL is a ``Durable`` with the defaults."""
    for name in ("sync", "take_over", "on_inflight"):
        with pytest.raises(ConfigurationError) as caught:
            AgentFlow(durable="sqlite:///runs.db", **{name: "x"})  # type: ignore[arg-type]
        assert caught.value.code == "config/option" and "durable=Durable(" in str(caught.value.hint)
    assert not Durable("sqlite:///runs.db").takes_over and Durable("postgresql://h/d").takes_over
    assert not Durable("postgresql://h/d", take_over=False).takes_over
    with pytest.raises(ConfigurationError, match="take_over='no'"):
        AgentFlow(durable=Durable("sqlite:///runs.db", take_over="no"))  # type: ignore[arg-type]


async def test_inside_a_call_nothing_durable_is_started(world: World, flow: Flow) -> None:
    """A tool joins the run around it; a durable run of its own would outlive it."""
    opened: list[AgentFlow] = []

    async def starter() -> str:
        """Start another."""
        await opened[0].start("1")
        return "started"

    async with flow(tools=[starter]) as each:
        opened.append(each)
        value = (await each.run("(starter)")).value
    assert isinstance(value, TaskResult) and value.notes.error is not None
    assert value.notes.error.details["code"] == "durable/nested"


def test_changes_of_a_session_are_data() -> None:
    """What was committed, cleared or primed since a mark is applied to another session with the same effect."""
    from agentflow.core.data.context import DataContext
    from agentflow.core.data.messages import user

    def turns(session: Session) -> list[str]:
        return [exchange[0].text for exchange in session.turns()]

    first, second = Session(), Session()
    for session in (first, second):
        session.commit((user("before"),))
    mark = first.mark()
    assert first.changes_since(mark) is None
    first.commit((user("\ud800"),))
    first.data_context = DataContext(overall_summary="s", retrieved_at=1.0)
    second.apply(first.changes_since(mark) or {})
    assert turns(second) == ["before", "\ud800"] and second.data_context == first.data_context
    mark = first.mark()
    first.reset()
    first.commit((user("after"),))
    second.apply(first.changes_since(mark) or {})
    assert turns(second) == ["after"] == turns(first)


async def test_a_tool_may_get_a_parameter_that_is_left_out(world: World, flow: Flow) -> None:
    """A recorded call still fits a tool with one more optional parameter; nothing is carried out again."""
    text = '(list (content (look (at "a"))) (content (look (at "b"))))'
    await interrupted(world, flow, text, "b")

    async def look(at: str, how: str = "well") -> str:
        """Look at something."""
        return await world.carry_out(at)

    async with flow(tools=[look]) as second:
        assert (await (await second.start(text, run_id="r")).result()).value == ["<a>", "<b>"]
    assert world.done == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("text", "options", "differs"),
    [
        ("(+ a 2)", {}, ["the program"]),
        ("(+ a 1)", {"bindings": {"a": 2}}, ["the binding 'a'"]),
        ("(+ a 1)", {"bindings": {"a": 1, "b": 2}}, ["the binding 'b'"]),
        ("(+ a 1)", {"allow": ["look"]}, ["allow"]),
        ("(+ a 2)", {"bindings": {"a": 3}}, ["the program", "the binding 'a'"]),
    ],
)
async def test_another_run_of_an_id_says_what_differs(
    flow: Flow, text: str, options: dict[str, Any], differs: list[str]
) -> None:
    """Started under the id of another run, the error names exactly what is not as it was."""
    async with flow() as opened:
        await (await opened.start("(+ a 1)", {"a": 1}, run_id="r")).result()
        with pytest.raises(JournalError) as caught:
            await opened.start(text, **{"bindings": {"a": 1}, **options}, run_id="r")
    assert caught.value.code == "durable/mismatch" and caught.value.details["differs"] == differs


async def test_a_database_without_a_version_is_of_another(flow: Flow, tmp_path: Path) -> None:
    """An empty table of what the file is says nothing of damage: the version is not known."""
    async with flow() as opened:
        await (await opened.start("1", run_id="r")).result()
    with sqlite3.connect(tmp_path / "runs.db") as db:
        db.execute("delete from af_meta")
    db.close()
    async with flow() as opened:
        with pytest.raises(JournalError) as caught:
            await opened.runs()
    assert caught.value.code == "durable/version" and "does not say" in caught.value.message
