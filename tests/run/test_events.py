"""What the events of a run say, and who gets which."""

from __future__ import annotations

import asyncio
import contextvars
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import agentflow.events
from agentflow import AgentFlow, ApprovalRequest, CallContext, ScriptedProvider, tool
from agentflow.cli.shared.progress import Progress
from agentflow.core.data.frozen import frozen
from agentflow.core.events import events as declared
from agentflow.core.events.events import ENDINGS, EVENTS, text_getter
from agentflow.errors import ConfigurationError, LimitExceeded
from agentflow.events import (
    DELTAS,
    BranchStarted,
    Event,
    EventBase,
    FinishedBase,
    Log,
    ModelFinished,
    ModelStarted,
    ProgramLoaded,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    WaitFinished,
    WaitStarted,
)
from agentflow.observe.files import event_line
from agentflow.observe.stream import DELTA_ALLOWANCE, Subscriber
from agentflow.tasks.workflows import make_workflow
from tests.support.fakes import FakeRun

ASK = '(defatom ask (params (q string)) (instructions "{{q}}"))'
SECRET = "tomato-harbour-71-violet"


class Recorder:
    """Keeps the events it gets."""

    def __init__(self, deltas: bool = True) -> None:
        self.deltas = deltas
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


# -- declaring ----------------------------------------------------------------------------------------------------------


def test_the_names_are_those_of_the_classes() -> None:
    """`agentflow.events` exports every event; a Started has a Finished; types are the names in snake_case."""
    assert {kind.__name__ for kind in EVENTS} <= set(agentflow.events.__all__)
    assert all(getattr(agentflow.events, name) is not None for name in agentflow.events.__all__)
    assert {kind.__name__ for kind in ENDINGS} == {k.__name__ for k in EVENTS if k.__name__.endswith("Started")}
    assert len({kind.type for kind in EVENTS}) == len(EVENTS) and ToolStarted.type == "tool_started"
    assert set(DELTAS) == {kind for kind in EVENTS if issubclass(kind, agentflow.events.DeltaBase)}


def test_an_event_is_added_in_one_place() -> None:
    """Two classes in `core/events/events.py` are enough: union, names, pairing, redaction, console and JSON follow."""
    text = Path(declared.__file__).read_text("utf-8")
    added = """
@frozen
class NapStarted(EventBase):
    name: str = ""
    pillow: str = ""

@frozen
class NapFinished(FinishedBase):
    name: str = ""

@frozen
class Snore(DeltaBase):
    loud: int = 0

_BASES = """
    space: dict[str, Any] = {"__name__": "agentflow.core.events_and_a_nap"}
    import sys
    import types

    module = types.ModuleType("agentflow.core.events_and_a_nap")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text.replace("\n_BASES = ", added, 1), "events", "exec"), module.__dict__)
        space = module.__dict__
    finally:
        del sys.modules[module.__name__]
    started, finished, snore = space["NapStarted"], space["NapFinished"], space["Snore"]
    assert {started, finished, snore} <= set(space["EVENTS"]) and snore in space["DELTAS"]
    assert {"NapStarted", "NapFinished", "Snore"} <= set(space["__all__"])
    assert space["ENDINGS"][started].kind is finished and space["ENDINGS"][started].shared == ("name",)
    assert started.type == "nap_started"


@frozen
class NapStarted(EventBase):
    """Somebody began to nap."""

    name: str = ""
    pillow: str = ""


@frozen
class NapFinished(FinishedBase):
    """Somebody woke up."""

    name: str = ""


def test_readers_take_events_they_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console shows any pair, the writer writes any event, redaction searches any field that may hold text."""
    out = StringIO()
    console = Progress(out)
    monkeypatch.setitem(ENDINGS, NapStarted, declared.Ending(NapFinished, ("name",), False))  # type: ignore[arg-type]
    run = FakeRun()
    with run.call().scope(NapStarted, name="Ada", pillow=SECRET):
        pass
    for event in run.events:
        console(event)
    lines = out.getvalue().splitlines()
    assert "> nap Ada" in lines[0] and "< nap" in lines[1]
    assert json.loads(event_line(run.events[0]))["type"] == "nap_started"
    assert json.loads(event_line(run.events[1]))["name"] == "Ada"
    assert text_getter(NapStarted)(run.events[0]) == ("Ada", SECRET)


# -- what events say ------------------------------------------------------------------------------------------------------


async def test_the_header_is_version_2(tmp_path: Path) -> None:
    """Every event says v, run_id, slice, seq, type, path, parent, span, time; a run has the name and labels it was given."""
    seen = Recorder()
    async with AgentFlow(root=tmp_path) as flow:
        flow.subscribe(seen)
        result = await flow.run("(log-message 'a)", run_id="invoice-42", labels={"user": "ada"})
        async with flow.stream("1", run_id="b", labels={}) as run:
            assert (await run.result()).run_id == "b"
    assert result.run_id == "invoice-42"
    for event in seen.events:
        line = event.to_dict()
        assert {"v", "run_id", "slice", "seq", "type", "path", "parent", "span", "time"} <= set(line)
        assert (line["v"], line["slice"]) == (2, 1)
    assert [event.labels for event in seen.of(RunStarted)] == [{"user": "ada"}, None]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"run_id": ""}, "config/run-id"),
        ({"run_id": "../../x"}, "config/run-id"),
        ({"run_id": 7}, "config/run-id"),
        ({"labels": {"a": 1}}, "config/labels"),
        ({"labels": ["a"]}, "config/labels"),
    ],
)
async def test_names_of_runs_that_cannot_be_are_refused(options: dict[str, Any], code: str, tmp_path: Path) -> None:
    """A run id is fit for a file name and a header; labels are texts. Nothing runs otherwise."""
    async with AgentFlow(root=tmp_path) as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.run("1", **options)
    assert caught.value.code == code


async def test_every_text_is_loaded_once(tmp_path: Path) -> None:
    """The main program, one it evaluates and a workflow are published once each, before their first effect."""
    greet = '(log-message (string-append "to " name))'
    saved = make_workflow({"name": "greet", "params": {"name": "string"}, "program": greet})
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "greet.sexp").write_text(saved.render())
    seen = Recorder()
    program = """(define inner "(log-message \\"x\\")")
(eval-program inner) (eval-program inner)
(call-workflow greet (name "a")) (call-workflow greet (name "b"))"""
    async with AgentFlow(root=tmp_path, workflows=tmp_path / "flows") as flow:
        flow.subscribe(seen)
        await flow.run(program)
    loaded = seen.of(ProgramLoaded)
    assert [event.text for event in loaded] == [program, '(log-message "x")', greet]
    assert len({event.digest for event in loaded}) == 3 and {event.language for event in loaded} == {"sexp"}
    assert seen.of(RunStarted)[0].program == loaded[0].digest
    order = [event.type for event in seen.events]
    assert order[:2] == ["run_started", "program_loaded"]


async def test_a_loaded_text_keeps_its_positions_and_is_bounded(tmp_path: Path) -> None:
    """Secrets become stars, one each character; what is longer than 256 KiB is cut; the digest is the text's own."""
    seen = Recorder()
    program = f'(log-message "{SECRET}")'
    long = f'1 ; {"é" * 200_000}\n"end"'
    async with AgentFlow(root=tmp_path, api_key=SECRET) as flow:
        flow.subscribe(seen)
        await flow.run(program)
        await flow.run(long)
    first, second = seen.of(ProgramLoaded)
    assert first.text == program.replace(SECRET, "*" * len(SECRET))
    assert len(second.text.encode()) <= 256 * 1024 < len(long.encode()) and long.startswith(second.text)


async def test_a_branch_has_the_span_of_its_form(tmp_path: Path) -> None:
    """Whatever ran before: the place of a branch is the form that forked it."""
    seen = Recorder()
    program = """(log-message "line 1")
(begin
  (parallel 1
            (log-message "line 4"))
  (pmap (lambda (x) x)
        (list 1 2)))
(race 7 8)"""
    async with AgentFlow(root=tmp_path) as flow:
        flow.subscribe(seen)
        await flow.run(program)
    lines = [(event.form, event.span.line) for event in seen.of(BranchStarted)]
    assert lines[:4] == [("parallel", 3)] * 2 + [("pmap", 5)] * 2
    assert set(lines[4:]) == {("race", 7)}


async def test_a_model_finished_carries_the_response(tmp_path: Path) -> None:
    """The whole answer, parts and usage, watched with deltas or without."""
    seen = Recorder(deltas=False)
    async with AgentFlow(provider=ScriptedProvider(["one two"]), root=tmp_path) as flow:
        flow.subscribe(seen)
        await flow.run(f'{ASK} (ask (q "x"))')
    (event,) = seen.of(ModelFinished)
    assert event.response.text == "one two" and event.response.usage == event.usage
    line = json.loads(event_line(event))
    assert line["response"]["parts"][0]["text"] == "one two"


# -- who gets which -----------------------------------------------------------------------------------------------------


async def test_a_model_is_streamed_only_for_those_who_take_deltas(tmp_path: Path) -> None:
    """Observers with `deltas = False` get every other event, and do not make a call a streamed one."""
    provider = ScriptedProvider(lambda request: "one two")
    async with AgentFlow(provider=provider, root=tmp_path) as flow:
        quiet, full, asynchronous = Recorder(deltas=False), Recorder(), Recorder(deltas=False)

        class Async:
            deltas = False

            async def __call__(self, event: Event) -> None:
                asynchronous(event)

        program = f'{ASK} (ask (q "x"))'
        await flow.run(program)
        flow.subscribe(quiet)
        flow.subscribe(Async())
        await flow.run(program)
        assert [request.stream for request in provider.requests] == [False, False]
        flow.subscribe(full)
        await flow.run(program)
        assert provider.requests[2].stream
    assert not quiet.of(TextDelta) and not asynchronous.of(TextDelta) and full.of(TextDelta)
    last = [event for event in quiet.events if event.run_id == full.events[0].run_id]
    assert last == [event for event in full.events if not isinstance(event, DELTAS)]
    assert [event.seq for event in asynchronous.events] == [event.seq for event in quiet.events]


async def test_plain_observers_are_called_where_the_event_happens(tmp_path: Path) -> None:
    """A promise: in the task and the context that publish, so that what one sets there is seen by the code inside."""
    current: contextvars.ContextVar[str] = contextvars.ContextVar("current", default="nothing")
    tasks: list[asyncio.Task[Any] | None] = []

    def observer(event: Event) -> None:
        if isinstance(event, ToolStarted):
            current.set(f"{event.name} at {event.path}")
            tasks.append(asyncio.current_task())

    seen: list[tuple[str, asyncio.Task[Any] | None]] = []

    async def look(n: int) -> int:
        """Look."""
        await asyncio.sleep(0)
        seen.append((current.get(), asyncio.current_task()))
        return n

    async with AgentFlow(root=tmp_path, tools=[look]) as flow:
        flow.subscribe(observer)
        await flow.run("(look (n 0)) (pmap (lambda (n) (look (n n))) (list 1 2 3))")
    assert [name for name, _ in seen] == [
        f"look at {path}" for path in ("0/0.0", "0/1.0/0.0", "0/1.1/0.0", "0/1.2/0.0")
    ]
    assert [task for _, task in seen] == tasks and len(set(tasks)) > 1


async def test_a_tool_says_how_far_it_is(tmp_path: Path) -> None:
    """`ctx.progress` and `ctx.log` of async tools and of plain ones in their threads: in order, between Started and Finished."""

    async def walk(ctx: CallContext) -> str:
        """Walk."""
        for step in range(3):
            ctx.progress(step, 3, f"step {step}")
        return "there"

    def run(ctx: CallContext) -> str:
        """Run."""
        for step in range(3):
            ctx.progress(step)
        ctx.log("almost")
        return "there"

    seen, quiet = Recorder(), Recorder(deltas=False)
    async with AgentFlow(root=tmp_path, tools=[walk, run]) as flow:
        flow.subscribe(seen)
        flow.subscribe(quiet)
        await flow.run("(walk) (run)")
    assert not quiet.of(ToolProgress)
    for name in ("walk", "run"):
        inside = [event for event in seen.events if event.path == f"0/{name == 'run':d}.0"]
        assert isinstance(inside[0], ToolStarted) and isinstance(inside[-1], ToolFinished)
        progress = [event for event in inside if isinstance(event, ToolProgress)]
        assert [event.progress for event in progress] == [0, 1, 2]
        assert {event.parent for event in progress} == {inside[0].seq}
    assert [event.message for event in seen.of(Log)] == ["almost"]
    assert [event.seq for event in seen.events] == sorted(event.seq for event in seen.events)


async def test_a_thread_left_behind_is_not_heard(tmp_path: Path) -> None:
    """A tool that its time-out abandoned publishes nothing once the run has ended: RunFinished is the last event."""
    import threading

    go, gone = threading.Event(), threading.Event()

    @tool(timeout_s=0.05)
    def late(ctx: CallContext) -> None:
        go.wait(10)
        ctx.log("too late")
        gone.set()

    seen = Recorder()
    async with AgentFlow(root=tmp_path, tools=[late]) as flow:
        flow.subscribe(seen)
        await flow.run("(late)")
        go.set()
        await asyncio.to_thread(gone.wait, 10)
        await asyncio.sleep(0)
    assert seen.events[-1].type == "run_finished" and not seen.of(Log)


def test_progress_is_dropped_where_text_would_wait() -> None:
    """A reader of its own stream that is slow loses steps of progress; they never fill memory."""
    reader = Subscriber(lossy=False)
    for n in range(1_000):
        reader.put(ToolProgress("r", 1, n, "0", None, None, 0.0, progress=n))
    assert reader.dropped == 1_000 - DELTA_ALLOWANCE


# -- approvals ----------------------------------------------------------------------------------------------------------

CALLS = {"tool_calls": [{"name": "wipe", "arguments": {"n": n}} for n in range(3)]}


@tool(approval=True)
async def wipe(n: int) -> int:
    """Wipe."""
    return n


class Desk:
    """An approver that answers each question when `width` are open, or after a while when that never comes."""

    def __init__(self, concurrent: bool) -> None:
        self.concurrent = concurrent
        self.asked: list[ApprovalRequest] = []
        self.open = self.most = 0

    async def __call__(self, request: ApprovalRequest) -> bool:
        self.asked.append(request)
        self.open += 1
        self.most = max(self.most, self.open)
        for _ in range(20):
            await asyncio.sleep(0)
        self.open -= 1
        return True


@pytest.mark.parametrize(("concurrent", "most"), [(False, 1), (True, 3)])
async def test_approvers_are_asked_one_by_one_unless_they_say_otherwise(
    concurrent: bool, most: int, tmp_path: Path
) -> None:
    """A request says run, path and model call; each open question is a pair of Wait events at the tool's path."""
    desk, seen = Desk(concurrent), Recorder()
    provider = ScriptedProvider([CALLS, "done"])
    task = '(defatom ask (params) (instructions "go") (tools wipe))'
    async with AgentFlow(provider=provider, root=tmp_path, tools=[wipe], approve=desk) as flow:
        flow.subscribe(seen)
        result = await flow.run(f"{task} (ask)")
    assert desk.most == most
    tools = {event.path: event for event in seen.of(ToolStarted)}
    assert {request.path: request.call_id for request in desk.asked} == {p: e.call_id for p, e in tools.items()}
    assert {request.run_id for request in desk.asked} == {result.run_id} and len(tools) == 3
    started, finished = seen.of(WaitStarted), seen.of(WaitFinished)
    assert sorted(event.path for event in started) == sorted(tools) and {event.reason for event in started} == {
        "approval"
    }
    assert sorted(event.started for event in finished) == sorted(event.seq for event in started)
    assert {event.reason for event in finished} == {"approval"}
    assert all(event.seq < tools[event.path].seq for event in seen.of(WaitFinished))


async def test_an_answer_at_once_is_no_wait(tmp_path: Path) -> None:
    """A plain approver answers without a pair of Wait events."""
    seen = Recorder()
    async with AgentFlow(root=tmp_path, tools=[wipe], approve=lambda request: True) as flow:
        flow.subscribe(seen)
        assert ((await flow.run("(wipe (n 1))", allow=["wipe"])).value).content == "1"
    assert not seen.of(WaitStarted) and seen.of(ModelStarted) == []


async def test_a_run_has_one_wall_clock(tmp_path: Path) -> None:
    """The limit's error is the same wherever the time is spent: in the program, in a tool, in a public method."""
    from agentflow import Limits

    async def nap() -> None:
        """Nap."""
        await asyncio.sleep(60)

    messages: set[str] = set()
    async with AgentFlow(root=tmp_path, tools=[nap], limits=Limits(wall_s=0.05, steps=None)) as flow:
        for program in ("(nap)", "(while true 1)", "(parallel (nap) (nap))", "(try (nap) (catch (e) 1))"):
            with pytest.raises(LimitExceeded) as caught:
                await flow.run(program)
            messages.add(caught.value.message)
            assert caught.value.code == "limits/wall"
    assert messages == {"the run has used its 0.05 s"}
