"""What a run is said while it works, the signals sent to it, and what it shows of itself: plain runs and durable ones alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, CallContext, DurableRun, RunStream, ScriptedProvider, Session, tool
from agentflow.core.data.errors import AgentflowError, ConfigurationError, DataError
from agentflow.core.data.messages import ModelRequest, ToolResultPart
from agentflow.events import Event, HostData, StateChanged, TextRead, TextSaid, WaitStarted, Warning


class Payment(BaseModel):
    """A payment."""

    amount: int


@dataclass
class Found:
    """A file that was found."""

    path: str


class Scene:
    """A flow with a tool that is held: ``begun`` is set when it is called, and it returns once ``go`` is set."""

    def __init__(self, place: str | None, answers: Callable[[int], Any] | None = None) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.requests: list[list[str]] = []
        self.events: list[Event] = []
        self._answers = answers or (lambda n: f"answer {n}")
        self.flow = AgentFlow(provider=ScriptedProvider(self._answer), durable=place)
        self.flow.subscribe(self.events.append)
        scene = self

        @tool
        async def look(path: str, ctx: CallContext) -> str:
            """Look at a file."""
            scene.begun.set()
            await scene.go.wait()
            ctx.emit(Found(path))
            ctx.state["last"] = path
            return f"seen {path}"

        @self.flow.task(tools=[look])
        async def agent(about: str) -> str:
            """{{about}}"""
            raise NotImplementedError

        @self.flow.task
        async def title(about: str) -> str:
            """A title for {{about}}"""
            raise NotImplementedError

        self.agent, self.title = agent, title

    def _answer(self, request: ModelRequest) -> Any:
        self.requests.append([each.text for each in request.messages if each.role == "user"])
        results = [part for each in request.messages for part in each.parts if isinstance(part, ToolResultPart)]
        if request.tools and not results:
            return {"tool_calls": [{"name": "look", "arguments": {"path": "a.py"}}]}
        return self._answers(len(self.requests))

    def of(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.events if isinstance(each, kind)]

    @asynccontextmanager
    async def running(self, call: Any, **options: Any) -> AsyncIterator[RunStream[Any] | DurableRun[Any]]:
        """A run of ``call``: durable if the flow is."""
        if self.flow.is_durable:
            yield await self.flow.start(call, run_id="r", **options)
        else:
            async with self.flow.stream(call, run_id="r", **options) as run:
                yield run


@pytest.fixture(params=["plain", "durable"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(f"sqlite:///{tmp_path}/runs.db" if request.param == "durable" else None)
    async with made.flow:
        yield made


async def value_of(run: Any) -> Any:
    return (await run.result()).value


async def test_a_text_is_read_before_the_next_turn_as_the_users(scene: Scene) -> None:
    """Said while a tool works: it stands behind the result in the next request, and events say that it came and who reads it."""
    async with scene.running(scene.agent("Review src/.")) as run:
        await scene.begun.wait()
        await run.say("also look at tests/")
        scene.go.set()
        assert await value_of(run) == "answer 2"
    assert scene.requests == [["Review src/."], ["Review src/.", "also look at tests/"]]
    [said], [read] = scene.of(TextSaid), scene.of(TextRead)
    assert (said.text, said.task, read.keys, read.turn) == ("also look at tests/", None, (said.key,), 2)
    assert read.path.startswith("0/") and scene.of(Warning) == []


async def test_a_text_that_comes_with_the_answer_gives_one_more_turn(tmp_path: Path, scene: Scene) -> None:
    """Said while the model writes what was to be the last answer: it answers once more, and has its first answer before it."""
    requests: list[list[tuple[str, str]]] = []

    async def model(request: ModelRequest) -> str:
        requests.append([(each.role, each.text) for each in request.messages])
        if len(requests) == 1:
            await flow.say("r", "and shorter")
            await flow.say("r", "and friendlier")
        return f"answer {len(requests)}"

    place = f"sqlite:///{tmp_path}/other.db" if scene.flow.is_durable else None
    async with AgentFlow(provider=ScriptedProvider(model), durable=place) as flow:
        scene.flow = flow

        @flow.task(tools=[look_on])
        async def reviewer() -> str:
            """Review."""
            raise NotImplementedError

        async with scene.running(reviewer()) as run:
            assert await value_of(run) == "answer 2"
    late = ("user", "and shorter\n\nand friendlier")
    assert requests == [[("user", "Review.")], [("user", "Review."), ("assistant", "answer 1"), late]]


@tool
async def look_on(path: str) -> str:
    """Look."""
    return path


async def test_what_comes_after_the_last_turn_is_told() -> None:
    """Said once the last answer was accepted: a Warning says that nothing has read it."""
    async with AgentFlow(provider=ScriptedProvider(lambda request: "answer")) as flow:
        warned: list[str] = []
        flow.subscribe(lambda event: warned.append(event.code) if isinstance(event, Warning) else None)

        @tool
        async def last(ctx: CallContext) -> str:
            """Last."""
            return "x"

        async def answered(value: str, ctx: CallContext) -> str:
            await flow.say(ctx.run_id, "too late")
            return value

        async with flow.stream(flow.ask("Review.", tools=[last], check=answered)) as run:
            assert await run.value() == "answer"
    assert warned == ["say/unread"]


async def test_a_conversation_keeps_what_was_said() -> None:
    """The exchange in the session has the texts as the user's, where they were read, and the next run sends them."""
    requests, session = list[list[str]](), Session()

    async def model(request: ModelRequest) -> Any:
        requests.append([each.text for each in request.messages if each.role == "user" and each.text])
        if len(requests) > 1:
            return f"answer {len(requests)}"
        await flow.say("r", "also look at tests/")
        return {"tool_calls": [{"name": "look_on", "arguments": {"path": "a.py"}}]}

    async def system(ctx: CallContext) -> str:
        await flow.say(ctx.run_id, "before the first call")
        return "Review."

    async with AgentFlow(provider=ScriptedProvider(model)) as flow:

        @flow.task(tools=[look_on], system=system)
        async def agent(about: str) -> str:
            """{{about}}"""
            raise NotImplementedError

        await flow.run(agent("Review src/."), session=session, run_id="r")
        [turn] = session.turns()
        assert [(each.role, each.text) for each in turn if each.text] == [
            ("user", "Review src/.\n\nbefore the first call"),
            ("user", "also look at tests/"),
            ("assistant", "answer 2"),
        ]
        await flow.run(flow.ask("And now?"), session=session)
        assert requests[-1] == ["Review src/.\n\nbefore the first call", "also look at tests/", "And now?"]


async def test_a_text_for_a_task_is_read_by_that_task_alone(scene: Scene) -> None:
    """``task=`` names it, with tools or without; other loops pass it over."""

    @scene.flow.workflow
    async def work() -> list[str]:
        return [await scene.agent("Review."), await scene.title("it")]

    async with scene.running(work()) as run:
        await scene.begun.wait()
        await run.say("in French", task="title")
        scene.go.set()
        await value_of(run)
    assert "in French" not in scene.requests[1]
    assert scene.requests[2] == ["A title for it\n\nin French"]


async def test_inner_loops_do_not_read_what_is_for_the_outermost() -> None:
    """A tool that asks a model with tools is inside: the text waits for the loop that called it."""
    begun, go, requests = asyncio.Event(), asyncio.Event(), list[list[str]]()

    @tool
    async def delegate(ctx: CallContext) -> str:
        """Delegate."""
        begun.set()
        await go.wait()
        return await flow.ask("inside", tools=[look_on])

    def model(request: ModelRequest) -> Any:
        texts = [each.text for each in request.messages if each.role == "user"]
        requests.append(texts)
        if texts[0] == "inside":
            return "inner answer"
        return "done" if len(texts) > 1 else {"tool_calls": [{"name": "delegate", "arguments": {}}]}

    async with AgentFlow(provider=ScriptedProvider(model)) as flow:
        async with flow.stream(flow.ask("outer", tools=[delegate])) as run:
            await begun.wait()
            await run.say("for you")
            go.set()
            await run.value()
    assert requests == [["outer"], ["inside"], ["outer", "for you"]]


async def test_what_nothing_can_read_is_refused_or_told(scene: Scene) -> None:
    """An empty text, an unknown task, a run that has ended, one that nobody knows; and a warning for what nothing has read."""
    async with scene.running(scene.title("it")) as run:
        await run.say("nobody here has tools")
        for wrong, code in (({"text": " "}, "say/text"), ({"text": "x", "task": "titel"}, "say/task")):
            with pytest.raises(DataError) as refused:
                await run.say(**wrong)
            assert refused.value.code == code
        await value_of(run)
        with pytest.raises(DataError) as late:
            await run.say("too late")
    assert late.value.code == "run/ended" and "has ended" in late.value.message
    with pytest.raises(AgentflowError) as unknown:
        await scene.flow.say("other", "x")
    assert unknown.value.code == ("durable/unknown-run" if scene.flow.is_durable else "run/ended")
    [warning] = scene.of(Warning)
    assert warning.code == "say/unread" and "nobody here has tools" in warning.message


async def test_signals_are_typed_kept_and_in_order(scene: Scene) -> None:
    """Two sent before the workflow waits, one while it does: they come in the order of their sending, as the type."""

    @scene.flow.workflow
    async def work() -> list[int]:
        await scene.agent("x")
        return [(await scene.flow.signal("paid", Payment)).amount for _ in range(3)]

    async with scene.running(work()) as run:
        await scene.begun.wait()
        await run.signal("paid", Payment(amount=1))
        await run.signal("paid", {"amount": 2})
        await run.signal("other", 0)
        scene.go.set()
        while not (waits := await scene.flow.questions("r")):
            await asyncio.sleep(0.005)
        assert (waits[0].reason, waits[0].signal, waits[0].question) == ("signal", "paid", "the signal 'paid'")
        with pytest.raises(DataError) as wrong:
            await run.signal("paid", {"amount": "much"})
        assert wrong.value.code == "signal/value" and "integer" in wrong.value.message
        await scene.flow.send("r", waits[0].key, {"amount": 3})
        assert await value_of(run) == [1, 2, 3]
    assert [each.signal for each in scene.of(WaitStarted) if each.signal] == ["paid"]


async def test_an_early_signal_of_another_type_is_passed_over(scene: Scene) -> None:
    """Nothing can know the type yet when it is sent: the workflow gets the next that fits, and a Warning says so."""

    @scene.flow.workflow
    async def work() -> int:
        await scene.agent("x")
        return await scene.flow.signal("n", int)

    async with scene.running(work()) as run:
        await scene.begun.wait()
        await run.signal("n", "seven")
        await run.signal("n", 7)
        scene.go.set()
        assert await value_of(run) == 7
    assert [each.code for each in scene.of(Warning)] == ["signal/dropped"]


async def test_a_wait_for_a_signal_may_be_timed_and_given_up(scene: Scene) -> None:
    """``asyncio.timeout`` and ``flow.timeout`` end it; a signal that comes later is kept for the next wait."""

    @scene.flow.workflow
    async def work() -> list[Any]:
        seen: list[Any] = []
        try:
            async with asyncio.timeout(0.02):
                await scene.flow.signal("go")
        except TimeoutError:
            seen.append("asyncio")
        try:
            await scene.flow.timeout(0.02, scene.flow.signal("go"))
        except AgentflowError as error:
            seen.append(error.code)
        await scene.flow.publish("waits", True)
        return [*seen, await scene.flow.signal("go")]

    async with scene.running(work()) as run:
        while not (await run.state()).get("waits"):
            await asyncio.sleep(0.005)
        await run.signal("go", "now")
        assert await value_of(run) == ["asyncio", "timeout/elapsed", "now"]


async def test_two_that_wait_for_one_name_get_one_each(scene: Scene) -> None:
    """Each signal is received once, by whoever waits."""

    @scene.flow.workflow
    async def work() -> list[Any]:
        return sorted(await asyncio.gather(scene.flow.signal("n"), scene.flow.signal("n")))

    async with scene.running(work()) as run:
        while len(await scene.flow.questions("r")) < 2:
            await asyncio.sleep(0.005)
        await run.signal("n", 1)
        await run.signal("n", 2)
        assert await value_of(run) == [1, 2]


async def test_state_is_shown_while_it_changes_and_afterwards(scene: Scene) -> None:
    """``flow.publish`` and ``ctx.state`` are one state: readers have a copy of it at any time, events have its changes."""

    @scene.flow.workflow
    async def work() -> str:
        await scene.flow.publish("phase", "one")
        text = await scene.agent("x")
        await scene.flow.publish("phase", Found("two"))
        return text

    async with scene.running(work(), state={"goal": "g"}) as run:
        await scene.begun.wait()
        assert await run.state() == {"goal": "g", "phase": "one"}
        scene.go.set()
        await value_of(run)
        whole = {"goal": "g", "phase": {"path": "two"}, "last": "a.py"}
        assert await run.state() == whole
    if scene.flow.is_durable:
        assert await scene.flow.state("r") == whole
    changes = [change["path"] for each in scene.of(StateChanged) for change in each.changes]
    assert changes == ["/phase", "/last", "/phase"]


async def test_data_of_the_host_is_an_event_with_its_name(scene: Scene) -> None:
    """A dataclass has the name of its class, plain data is ``data``, and ``name=`` names either."""

    @scene.flow.workflow
    async def work() -> str:
        scene.flow.emit({"n": 1})
        scene.flow.emit(Payment(amount=2), name="pay-ment")
        return await scene.agent("x")

    async with scene.running(work()) as run:
        scene.go.set()
        await value_of(run)
    assert [(each.name, each.data) for each in scene.of(HostData)] == [
        ("data", {"n": 1}),
        ("pay-ment", {"amount": 2}),
        ("Found", {"path": "a.py"}),
    ]


@pytest.mark.parametrize(
    ("event", "name", "code"),
    [
        (object(), None, "event/not-data"),
        (Found, None, "event/not-data"),
        ({}, "no good name", "event/name"),
        ("x" * 70_000, None, "event/too-large"),
    ],
)
async def test_what_no_event_can_carry_is_refused(event: Any, name: str | None, code: str) -> None:
    """Where it is emitted, with what to write instead; outside of a run too."""
    async with AgentFlow() as flow:

        @flow.workflow
        async def work() -> None:
            flow.emit(event, name=name)

        with pytest.raises(DataError) as refused:
            await work()
        assert refused.value.code == code and refused.value.hint
        with pytest.raises(ConfigurationError) as outside:
            flow.emit({})
        assert outside.value.code == "config/emit"


async def test_a_state_has_a_bound(scene: Scene) -> None:
    """What would pass it is refused, and what was there stays; replacing a large value is no growth."""

    @scene.flow.workflow
    async def work() -> str:
        for _ in range(3):
            await scene.flow.publish("big", "x" * 60_000)
            await scene.flow.publish("also", "x" * 60_000)
            await scene.flow.publish("more", "x" * 60_000)
            await scene.flow.publish("most", "x" * 60_000)
        try:
            await scene.flow.publish("one", "x" * 60_000)
        except AgentflowError as error:
            return error.code
        return "no bound"

    async with scene.running(work()) as run:
        assert await value_of(run) == "state/too-large"
        assert sorted(await run.state()) == ["also", "big", "more", "most"]


async def test_a_stream_has_its_id_and_ends_when_it_is_cancelled() -> None:
    """``run.run_id`` before the first event, and the one that is given; ``run.cancel()`` waits for the clean-up."""
    cleaned: list[str] = []
    async with AgentFlow() as flow:

        @flow.workflow
        async def work() -> None:
            try:
                await flow.signal("never")
            finally:
                cleaned.append("up")

        async with flow.stream(work()) as run:
            events = [event async for event in _first(run)]
            assert events[0].run_id == run.run_id != ""
            await run.cancel()
            assert cleaned == ["up"]
            with pytest.raises(AgentflowError) as cancelled:
                await run.value()
        assert cancelled.value.code == "run/cancelled"
        async with flow.stream(work(), run_id="mine") as run:
            assert run.run_id == "mine"


async def _first(run: RunStream[Any]) -> AsyncIterator[Event]:
    async for event in run:
        yield event
        return
