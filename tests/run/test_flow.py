"""The whole flow, from text to value: runs, streams, sessions, limits, authority, events, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    AgentFlow,
    CallContext,
    LimitExceeded,
    Limits,
    ScriptedProvider,
    Session,
    SexpEnvironment,
    SexpEvaluationError,
    SexpEvaluator,
    SexpSyntaxError,
    TaskError,
    TaskResult,
    UnboundSymbolError,
)
from agentflow.errors import ConfigurationError, ProviderError
from agentflow.events import (
    BranchStarted,
    Event,
    FinishedBase,
    Log,
    ModelStarted,
    RunFinished,
    RunStarted,
    TaskFinished,
    TaskStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from tests.support.values import value_of

ASK = '(defatom ask (params (q string)) (instructions "{{q}}") (history_config true))'


def balanced(events: list[Event]) -> None:
    """Every Started has exactly one Finished, seq rises, parents are enclosing Started events."""
    started = {e.seq: e for e in events if type(e).__name__.endswith("Started")}
    finished = [e.started for e in events if isinstance(e, FinishedBase)]
    assert sorted(finished) == sorted(started)
    assert [e.seq for e in events] == sorted({e.seq for e in events})
    for event in events:
        assert event.parent is None or event.parent in started
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)


async def test_run_gives_value_usage_cost_and_id(tmp_path: Path) -> None:
    """A run's result has the value, the usage of all model calls, a cost and an id."""
    async with AgentFlow(provider=ScriptedProvider(["hello there"]), root=tmp_path) as flow:
        result = await flow.run(f'{ASK} (value-of (ask (q "hi")))')
    assert result.value == "hello there"
    assert result.usage.requests == 1
    assert result.usage.output_tokens > 0
    assert result.run_id


async def test_programs_are_text_paths_or_compiled(tmp_path: Path) -> None:
    """A program may be text, a Path or a Program; compiling twice gives the cached one."""
    path = tmp_path / "p.sexp"
    path.write_text("(+ x 1)")
    async with AgentFlow(root=tmp_path) as flow:
        assert (await flow.run(path, bindings={"x": 1})).value == 2
        program = flow.compile("(+ x 1)")
        assert (await flow.run(program, bindings={"x": 2})).value == 3
        assert flow.compile("(+ x 1)") is program
        with pytest.raises(SexpSyntaxError):
            flow.compile("(+ x")


async def test_definitions_are_seen_by_the_host_and_the_next_program(tmp_path: Path) -> None:
    """Top-level definitions act on the environment object that the host passed in."""
    env = SexpEnvironment({"x": 1})
    async with AgentFlow(root=tmp_path) as flow:
        await flow.run("(define y (+ x 1)) (set! x 10)", env=env)
        assert env.lookup("y") == 2
        assert env.lookup("x") == 10
        assert (await flow.run("(+ x y)", env=env)).value == 12


async def test_stream_gives_typed_events_then_the_value(tmp_path: Path) -> None:
    """A stream gives balanced events with deltas, and the value after them."""
    async with AgentFlow(provider=ScriptedProvider(["one two three"]), root=tmp_path) as flow:
        async with flow.stream(f'{ASK} (value-of (ask (q "hi")))') as run:
            events = [event async for event in run]
            assert await run.value() == "one two three"
    balanced(events)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "one two three"
    task = next(e for e in events if isinstance(e, TaskStarted))
    assert task.request is not None
    assert task.request.inputs == {"q": "hi"}
    model = next(e for e in events if isinstance(e, ModelStarted))
    assert model.request is not None
    assert model.path.startswith(task.path)


async def test_value_without_iterating(tmp_path: Path) -> None:
    """`run.value()` discards what is unread, however much that is, and gives the value."""
    async with AgentFlow(provider=ScriptedProvider(["word " * 500]), root=tmp_path) as flow:
        async with flow.stream(f'{ASK} (value-of (ask (q "hi")))') as run:
            assert len((await run.value()).split()) == 500


async def test_a_failed_stream_raises_from_value_or_at_the_end(tmp_path: Path) -> None:
    """The program's error comes out of value(), or at the end of the block when nobody asked for the value."""
    async with AgentFlow(root=tmp_path) as flow:
        async with flow.stream("(car 5)") as run:
            with pytest.raises(SexpEvaluationError):
                await run.value()
        with pytest.raises(SexpEvaluationError):
            async with flow.stream("(car 5)") as run:
                events = [event async for event in run]
        balanced(events)
        assert events[-1].outcome == "error"


async def test_leaving_a_stream_early_stops_the_producer(tmp_path: Path) -> None:
    """Breaking out of a stream cancels the run within a second; its model call and tools have ended."""
    ended: list[str] = []

    async def slow() -> str:
        """Wait."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")
        return "never"

    async with AgentFlow(tools=[slow], root=tmp_path) as flow:
        before = len(asyncio.all_tasks())
        async with asyncio.timeout(1), flow.stream("(slow)") as run:
            async for event in run:
                if isinstance(event, ToolStarted):
                    break
        assert ended == ["slow"]
        assert len(asyncio.all_tasks()) == before


async def test_cancelling_a_run_ends_everything_once(tmp_path: Path) -> None:
    """Cancelling a run gives one CancelledError, balanced events, and no task left."""
    events: list[Event] = []

    async def wait(n: int) -> int:
        """Wait long."""
        await asyncio.sleep(60)
        return n

    async with AgentFlow(tools=[wait], root=tmp_path) as flow:
        flow.subscribe(events.append)
        task = asyncio.create_task(flow.run("(pmap (lambda (n) (wait (n n))) (range 20))"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1
    balanced(events)
    assert {e.outcome for e in events if isinstance(e, ToolFinished)} == {"cancelled"}


async def test_branches_have_paths_that_do_not_depend_on_timing(tmp_path: Path) -> None:
    """A branch's path is its fork's ordinal and its index, whatever order branches finish in."""

    async def nap(n: int) -> int:
        """Sleep less the larger n."""
        await asyncio.sleep(0.01 * (3 - n))
        return n

    async def paths() -> list[tuple[str, Any]]:
        events: list[Event] = []
        async with AgentFlow(tools=[nap], root=tmp_path) as flow:
            flow.subscribe(events.append)
            value = (await flow.run("(log-message 'x) (pmap (lambda (n) (value-of (nap (n n)))) '(0 1 2))")).value
            assert value == [0, 1, 2]
        balanced(events)
        assert [e.index for e in events if isinstance(e, BranchStarted)] == [0, 1, 2]
        return sorted((e.path, e.arguments) for e in events if isinstance(e, ToolStarted))

    first = await paths()
    assert first == await paths()
    assert len({path for path, _ in first}) == 3


async def test_sessions(tmp_path: Path) -> None:
    """Each run has a session of its own; a session passed on continues, and a run beside another begins where that did."""
    model = ScriptedProvider(lambda request: f"{len(request.messages)} messages")

    async def hold() -> str:
        """Take long."""
        await asyncio.sleep(60)
        return "held"

    async with AgentFlow(provider=model, root=tmp_path, tools=[hold]) as flow:
        program = f'{ASK} (value-of (ask (q "hi")))'
        assert (await flow.run(program)).value == "1 messages"
        assert (await flow.run(program)).value == "1 messages"
        session = Session()
        await flow.run(program, session=session)
        assert (await flow.run(program, session=session)).value == "3 messages"
        async with flow.stream("(hold)", session=session) as run:
            await anext(aiter(run))
            assert (await flow.run(program, session=session)).value == "5 messages"
        assert (await flow.run(program, session=session)).value == "7 messages"


async def test_branches_fork_the_session_and_join_in_order(tmp_path: Path) -> None:
    """Branches see the history before the fork, not each other; afterwards their turns follow in index order."""
    model = ScriptedProvider(lambda request: f"{len(request.messages)}")
    async with AgentFlow(provider=model, root=tmp_path) as flow:
        session = Session()
        value = (
            await flow.run(
                f'{ASK} (ask (q "a")) (list (pmap (lambda (q) (value-of (ask (q q)))) (list "b" "c")) (value-of (ask (q "d"))))',
                session=session,
            )
        ).value
    assert value == [["3", "3"], "7"]
    assert [m.text for m in session.messages if m.role == "user"] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("program", "limits", "limit"),
    [
        ("(define (f) (f)) (f)", Limits(steps=1000), "steps"),
        ("(while true 1)", Limits(steps=None, wall_s=0.1), "wall_s"),
        ("(define (f n) (+ 1 (f n))) (f 1)", Limits(depth=500), "depth"),
        ("(range 1000000)", Limits(collection=1000), "collection"),
        ("(map (lambda (x) (log-message x)) (range 50))", Limits(effects=10), "effects"),
        (f'{ASK} (ask (q "x")) (ask (q "y"))', Limits(model_calls=1), "model_calls"),
        (f'{ASK} (ask (q "x")) (ask (q "y"))', Limits(tokens=1), "tokens"),
        ("(try (while true 1) (catch (e) 'caught))", Limits(steps=1000), "steps"),
    ],
)
async def test_limits_name_themselves(program: str, limits: Limits, limit: str, tmp_path: Path) -> None:
    """Each limit ends the run with a LimitExceeded that names it; a program cannot catch it."""
    model = ScriptedProvider(lambda request: "some words here")
    async with AgentFlow(provider=model, root=tmp_path, limits=limits) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(program)
    assert caught.value.limit == limit


async def test_a_spinning_program_does_not_freeze_the_host(tmp_path: Path) -> None:
    """While a program spins, another coroutine of the loop is served; cancelling the spinner works."""
    async with AgentFlow(root=tmp_path, limits=Limits(steps=None)) as flow:
        spinner = asyncio.create_task(flow.run("(while true 1)"))
        for _ in range(20):
            await asyncio.sleep(0.001)
        spinner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await spinner


async def test_granted_programs_have_what_is_granted(tmp_path: Path) -> None:
    """allow= names everything a program may call; anything else is a compile-time error and nothing runs."""
    ran: list[str] = []

    def touch(name: str) -> str:
        """Note that it ran."""
        ran.append(name)
        return name

    async with AgentFlow(tools=[touch], root=tmp_path) as flow:
        assert (await flow.run('(value-of (touch (name "a")))', allow=["touch"])).value == "a"
        for program in (
            '(begin (touch (name "b")) (system:list_directory (directory_path ".")))',
            '(begin (touch (name "b")) (system:write_file (file_path "x") (content "y")))',
        ):
            with pytest.raises(SexpEvaluationError) as caught:
                await flow.run(program, allow=["touch"])
            assert caught.value.code == "name/not-granted"
        for program in ('("touch" (name "b"))', '(let ((f \'touch)) (f (name "b")))', '(get_context (query "x"))'):
            with pytest.raises(SexpEvaluationError):
                await flow.run(program, allow=[])
    assert ran == ["a"]


async def test_tools_called_by_the_host_join_the_run(tmp_path: Path) -> None:
    """Public methods used inside a tool join its run: same run id, nested path, the run's budget."""
    events: list[Event] = []

    async with AgentFlow(provider=ScriptedProvider(["inner"]), root=tmp_path) as flow:

        @flow.tool
        async def outer(ctx: CallContext) -> str:
            """Call back into the flow."""
            ctx.log("in the tool")
            made = await flow.task_system.execute_task("atomic", "standard", {"q": "x"})
            assert made.status == "COMPLETE", made
            total = await flow.run("(+ 1 2)")
            value = await flow.call(lambda x: x + 1, 41)
            return f"{made.content} {total.value} {value}"

        flow.subscribe(events.append)
        result = await flow.run(f"{ASK} (value-of (outer))")
    assert result.value == "inner 3 42"
    assert len({e.run_id for e in events}) == 1
    balanced(events)
    started = next(e for e in events if isinstance(e, ToolStarted))
    inner = next(e for e in events if isinstance(e, TaskStarted))
    assert inner.path.startswith(started.path)
    assert next(e for e in events if isinstance(e, Log)).parent == started.seq


async def test_closures_can_be_called_from_the_host_and_from_tools(tmp_path: Path) -> None:
    """flow.call runs a program's closure; ctx.call does inside a tool."""

    async def twice(f: Any, ctx: CallContext) -> Any:
        """Apply f two times."""
        return await ctx.call(f, await ctx.call(f, 1))

    async with AgentFlow(root=tmp_path) as flow:
        closure = (await flow.run("(lambda (x) (* x 10))")).value
        assert await flow.call(closure, 4) == 40
        flow.tool(twice)
        assert (await flow.run("(value-of (twice (f (lambda (x) (+ x 5)))))")).value == 11


async def test_host_callables_in_the_environment(tmp_path: Path) -> None:
    """Python callables in the environment are called, awaited when they return an awaitable; their errors become ours."""

    async def later(x: int) -> int:
        return x * 2

    def broken() -> None:
        raise ValueError("bad luck")

    async with AgentFlow(root=tmp_path) as flow:
        assert (await flow.run("(later (plain 3))", bindings={"later": later, "plain": lambda x: x + 1})).value == 8
        with pytest.raises(SexpEvaluationError, match="bad luck") as caught:
            await flow.run("(broken)", bindings={"broken": broken})
        assert isinstance(caught.value.__cause__, ValueError)


async def test_failed_results_are_values_and_raised_errors_are_errors(tmp_path: Path) -> None:
    """A failed task is a value; value-of raises its error; a TaskError raised by a tool passes as the same object."""
    error = TaskError("no way", reason="dependency_error")

    async def refuses() -> str:
        """Raise."""
        raise error

    async def breaks() -> str:
        """Raise something else."""
        raise RuntimeError("oops")

    async with AgentFlow(
        provider=ScriptedProvider([{"error": "down"}] * 2), tools=[refuses, breaks], root=tmp_path
    ) as flow:
        failed = (await flow.run(f'{ASK} (ask (q "x"))')).value
        assert isinstance(failed, TaskResult)
        assert failed["notes"]["error"]["reason"] == "llm_error"
        with pytest.raises(ProviderError):
            await flow.run(f'{ASK} (value-of (ask (q "x")))')
        with pytest.raises(TaskError) as caught:
            await flow.run("(refuses)")
        assert caught.value is error
        broken = (await flow.run("(breaks)")).value
        assert broken.status == "FAILED"
        assert broken.notes["error"]["reason"] == "tool_execution_error"


async def test_subscribers_see_every_run_and_can_leave(tmp_path: Path) -> None:
    """flow.subscribe gets events of runs and of evaluate_string; the returned function ends it; bad ones are dropped."""
    seen: list[str] = []
    slow: list[str] = []

    async def watch(event: Event) -> None:
        await asyncio.sleep(0)
        slow.append(event.type)

    def bad(event: Event) -> None:
        raise RuntimeError("observer bug")

    async with AgentFlow(root=tmp_path) as flow:
        leave = flow.subscribe(lambda event: seen.append(event.type))
        flow.subscribe(watch)
        flow.subscribe(bad)
        await flow.run("(log-message 'a)")
        await flow.evaluator.evaluate_string("(log-message 'b)")
        leave()
        await flow.run("(log-message 'c)")
    assert seen == ["run_started", "program_loaded", "log", "run_finished"] * 2
    assert slow == ["run_started", "program_loaded", "log", "run_finished"] * 3


async def test_without_a_model_the_first_call_fails_with_the_mend(tmp_path: Path) -> None:
    """No model: the task fails with configuration_error and says what to write; nothing else needs a model."""
    async with AgentFlow(root=tmp_path) as flow:
        failed = (await flow.run(f'{ASK} (ask (q "x"))')).value
        assert failed.notes["error"]["reason"] == "configuration_error"
        with pytest.raises(ConfigurationError):
            await flow.run(f'{ASK} (value-of (ask (q "x")))')


async def test_wrong_construction_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that is not there, an unknown setting, a negative limit: a ConfigurationError that names it."""
    with pytest.raises(ConfigurationError, match="does not exist"):
        AgentFlow(root=tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="steps"):
        Limits(steps=-1)
    (tmp_path / "agentflow.toml").write_text("modle = 'x'")
    async with AgentFlow(root=tmp_path):
        pass  # a file that comes with what the flow may see is not a setting of the host's
    monkeypatch.chdir(tmp_path)
    for text, said in (
        ("modle = 'x'", "modle"),
        ("sandbox = 'none'", "sandbox"),
        ("base_url = 'https://example.com/v1'", "example.com"),
        ("[limits]\nstps = 1", "stps"),
        ("model = ", "cannot be read"),
    ):
        (tmp_path / "agentflow.toml").write_text(text)
        with pytest.raises(ConfigurationError, match=said):
            AgentFlow(root=tmp_path)
    (tmp_path / "agentflow.toml").write_text("base_url = 'http://127.0.0.1:8080/v1'\nmodel = 'openai-chat:local'")
    async with AgentFlow() as flow:
        assert flow.settings.model == "openai-chat:local"


async def test_the_evaluator_stands_alone(tmp_path: Path) -> None:
    """SexpEvaluator with the specification's constructor runs programs over the components it is given."""
    async with AgentFlow(provider=ScriptedProvider(["pong"]), root=tmp_path) as flow:
        evaluator = SexpEvaluator(flow.task_system, flow.handler, flow.memory_system)
        assert await evaluator.evaluate_string(f'{ASK} (value-of (ask (q "ping")))') == "pong"
        env = SexpEnvironment({"x": 2})
        assert await evaluator.evaluate_string("(define y (* x 21)) y", env) == 42
        assert env.lookup("y") == 42
        with pytest.raises(UnboundSymbolError):
            await evaluator.evaluate_string("nothing")


async def test_many_runs_at_once_do_not_see_each_other(tmp_path: Path) -> None:
    """A hundred runs in one loop: each has its own bindings, session, events and budget."""
    model = ScriptedProvider(lambda request: request.messages[-1].text)
    async with AgentFlow(provider=model, root=tmp_path) as flow:
        program = f"{ASK} (define mine n) (list mine (value-of (ask (q (number->string n)))))"
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(flow.run(program, bindings={"n": n})) for n in range(100)]
        assert [task.result().value for task in runs] == [[n, str(n)] for n in range(100)]
        assert len({task.result().run_id for task in runs}) == 100


async def test_usage_and_cost_roll_up(tmp_path: Path) -> None:
    """The run's usage is the sum of its tasks'; TaskFinished carries each one's."""
    events: list[Event] = []
    async with AgentFlow(provider=ScriptedProvider(["a b", "c d e"]), root=tmp_path) as flow:
        flow.subscribe(events.append)
        result = await flow.run(f'{ASK} (parallel (ask (q "1")) (ask (q "2")))')
    per_task = [e.usage for e in events if isinstance(e, TaskFinished) and e.usage is not None]
    assert len(per_task) == 2
    assert sum(usage.total_tokens for usage in per_task) == result.usage.total_tokens


async def test_nothing_is_left_after_close(tmp_path: Path) -> None:
    """After aclose: no task, no unclosed resource warning, and building a flow again works."""
    for _ in range(3):
        async with AgentFlow(provider=ScriptedProvider(["x"]), root=tmp_path) as flow:
            await flow.run(f'{ASK} (ask (q "x"))')
    gc.collect()
    assert len(asyncio.all_tasks()) == 1


def test_a_flow_works_in_one_loop_after_another(tmp_path: Path) -> None:
    """A flow built outside a loop can be used in several, one after the other."""
    flow = AgentFlow(provider=ScriptedProvider(lambda request: "x"), root=tmp_path)
    run: Callable[[], Any] = lambda: asyncio.run(value_of(flow.run(f'{ASK} (value-of (ask (q "x")))')))  # noqa: E731
    assert run() == "x"
    assert run() == "x"
    asyncio.run(flow.aclose())


async def test_a_result_shows_itself_in_a_notebook() -> None:
    """Value and account as HTML, in which nothing of the value is markup."""
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        shown = (await flow.run('(list "<script>alert(1)</script>" 2)', run_id="r-1"))._repr_html_()
    assert "&lt;script&gt;alert(1)" in shown and "<script" not in shown and "run r-1: 0 tokens in" in shown
