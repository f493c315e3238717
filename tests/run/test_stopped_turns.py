"""``keep_partial``: a turn that is stopped stays in its conversation, in a form that the next request may be sent with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Denied, ModelDelta, ModelRequest, ModelResponse, ScriptedProvider, Session
from agentflow.core.data.messages import INTERRUPTED, Message, TextPart, ToolResultPart
from agentflow.core.data.provider_errors import Overloaded
from agentflow.errors import AgentflowError
from agentflow.events import TextDelta
from tests.support.children import HANG_S
from tests.support.fakes import check_strictly
from tests.support.serve_clients import frames_of, request_of
from tests.support.served import served


class Model(ScriptedProvider):
    """A scripted model whose texts ``begin`` and then wait for ever, or ``fail``; it checks requests as strict vendors do."""

    def __init__(self, *replies: Any, begins: str = "", fails: bool = False) -> None:
        super().__init__(list(replies))
        self.begins, self.fails = begins, fails
        self.requests: list[ModelRequest] = []
        self.reached = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        check_strictly(request.messages)
        self.requests.append(request)
        begins, fails = self.begins, self.fails
        if begins or fails:
            if begins:
                yield ModelDelta(text=begins)
            if fails:
                raise Overloaded("busy")
            self.reached.set()
            await asyncio.Event().wait()
        async for delta in super().stream(request):
            yield delta


def texts(session: Session) -> list[list[str]]:
    return [[message.text for message in turn] for turn in session.turns()]


def chatting(flow: AgentFlow) -> Any:
    """A task that takes part in the conversation."""

    @flow.task(history=True)
    async def chat(text: str) -> str:
        """{{text}}"""
        raise NotImplementedError

    return chat


def seen(event: object) -> None:
    """An observer: texts are shown as they come only where there is one."""


async def stop(work: Awaitable[Any], reached: asyncio.Event) -> None:
    """Cancel ``work`` once that is reached."""
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(HANG_S):
        await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_the_text_that_was_shown_is_kept() -> None:
    """A stream that its reader leaves: the prompt, the shown text and that it was interrupted; the next prompt is sent with them.

    Without ``keep_partial`` nothing stays. The JSON text of the session has it, and whether stopped turns are kept."""
    for keep in (True, False):
        model, session = Model("fine", begins="It is so"), Session(keep_partial=keep)
        async with AgentFlow(provider=model, tools=[]) as flow:
            async with flow.stream(flow.ask("Why?", session=session)) as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        break
            session = Session.from_json(session.to_json())
            assert session.keep_partial is keep and not session.busy
            model.begins = ""
            assert await flow.ask("And?", session=session) == "fine"
        stopped = [["Why?", f"It is so{INTERRUPTED}"]] if keep else []
        assert texts(session) == [*stopped, ["And?", "fine"]]
        if keep:
            assert session.messages[1].parts == (TextPart("It is so"), TextPart(INTERRUPTED))
            assert [message.interrupted for message in session.messages] == [False, True, False, False]
            assert model.requests[-1].messages[:2] == session.messages[:2]


async def test_calls_of_tools_get_a_result() -> None:
    """The call that had ended keeps its result; the one at work is said to be interrupted, and so is one that had not begun."""
    reached = asyncio.Event()
    calls = [{"name": name, "arguments": {}} for name in ("quick", "slow", "later")]
    model, session = Model({"text": "I look.", "tool_calls": calls}, "fine"), Session(keep_partial=True)
    async with AgentFlow(provider=model, tools=[]) as flow:

        async def quick() -> str:
            """Be quick."""
            return "seen"

        async def slow() -> str:
            """Be slow."""
            reached.set()
            await asyncio.Event().wait()
            raise AssertionError

        @flow.tool(sequential=True)
        async def later() -> str:
            """Come later."""
            raise AssertionError

        await stop(flow.ask("How?", tools=[quick, slow, later], session=session), reached)
        [turn] = session.turns()
        results = [part for part in turn[2].parts if isinstance(part, ToolResultPart)]
        assert [(each.name, each.is_error) for each in results] == [("quick", False), ("slow", True), ("later", True)]
        assert results[0].text == "seen" and all(each.text.startswith("interrupted: ") for each in results[1:])
        assert turn[3] == Message("assistant", (TextPart(INTERRUPTED),))
        assert await flow.ask("And?", session=session) == "fine"


async def test_a_failure_is_kept_once_the_model_has_said_something() -> None:
    """A prompt that failed at once can be sent again as it was; one that failed in the middle, ran out of turns or of time is kept."""
    model, session = Model(fails=True), Session(keep_partial=True)
    async with AgentFlow(provider=model, tools=[]) as flow:
        with pytest.raises(AgentflowError):
            await flow.ask("One", session=session)
        assert texts(session) == []
        model.begins = "Tw"
        async with flow.stream(flow.ask("Two", session=session)) as stream:
            with pytest.raises(AgentflowError):
                await stream.value()
        assert texts(session) == [["Two", f"Tw{INTERRUPTED}"]]
        model.begins, model.fails = "Thr", False
        async with flow.stream(flow.ask("Three", session=session, timeout_s=0.05)) as stream:
            with pytest.raises(AgentflowError):
                await stream.value()
        assert texts(session)[1:] == [["Three", f"Thr{INTERRUPTED}"]]


@pytest.mark.parametrize("durable", [False, True])
async def test_a_turn_that_is_tried_again_is_kept_once(durable: bool, tmp_path: Path) -> None:
    """The beginning that a failed attempt had shown is neither sent with the next attempt nor kept; earlier turns stay."""
    model, session = Model("One.", "Two."), Session(keep_partial=True)

    def failing(event: object) -> None:
        if isinstance(event, TextDelta):
            model.begins, model.fails = "", False

    options: dict[str, Any] = {"durable": f"sqlite:///{tmp_path}/runs.db"} if durable else {}
    async with AgentFlow(provider=model, tools=[], **options) as flow:
        flow.subscribe(failing)

        @flow.task(history=True, retries=1)
        async def chat(text: str) -> str:
            """{{text}}"""
            raise NotImplementedError

        @flow.workflow
        async def talk() -> list[str]:
            first = await chat("First")
            model.begins, model.fails = "Tw", True
            return [first, await chat("Second")]

        run = flow.start(talk(), run_id="r", session=session) if durable else None
        value = (await (await run).result()).value if run else (await flow.run(talk(), session=session)).value
    assert value == ["One.", "Two."]
    assert texts(session) == [["First", "One."], ["Second", "Two."]]
    assert [message.text for message in model.requests[-1].messages] == ["First", "One.", "Second"]


async def test_text_that_was_held_back_is_not_kept() -> None:
    """Middleware that sees the answer first has shown nothing of it when the turn is stopped, and nothing of it is kept."""

    async def redact(request: ModelRequest, run: Any, ctx: Any) -> ModelResponse | Denied:
        return await run(request)

    model, session = Model(begins="the secret"), Session(keep_partial=True)
    async with (
        AgentFlow(provider=model, tools=[], around_model=[redact]) as flow,
        flow.stream(flow.ask("Tell", session=session)) as stream,
    ):
        reading = asyncio.ensure_future(stream.value())
        await model.reached.wait()
        reading.cancel()
        await asyncio.wait([reading])
    assert texts(session) == [["Tell", INTERRUPTED]]


async def test_a_workflow_that_continues_sends_what_was_stopped() -> None:
    """A task that takes too long, or is cancelled, is in the conversation that later tasks of the same run send."""
    model = Model("fine", begins="It is so")
    async with AgentFlow(provider=model, tools=[]) as flow:
        chat = chatting(flow)

        @flow.workflow
        async def talk() -> str:
            try:
                async with asyncio.timeout(0.05):
                    await chat("Why?")
            except TimeoutError:
                model.begins = ""
            return await chat("And?")

        session = Session(keep_partial=True)
        async with flow.stream(talk(), session=session) as stream:
            assert await stream.value() == "fine"
        assert texts(session) == [["Why?", f"It is so{INTERRUPTED}"], ["And?", "fine"]]


async def test_texts_said_to_a_stopped_run_are_in_its_turn() -> None:
    """A text that the stopped model call had read is kept as the user's, and is not unread besides."""
    reached = asyncio.Event()
    model, session = Model({"tool_calls": [{"name": "look", "arguments": {}}]}), Session(keep_partial=True)
    async with AgentFlow(provider=model, tools=[]) as flow:

        async def look() -> str:
            """Look."""
            reached.set()
            model.begins = "So"
            return "seen"

        async with flow.stream(flow.ask("How?", tools=[look], session=session)) as stream:
            await stream.say("also tests/")
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
    [turn] = session.turns()
    assert "".join(message.text for message in turn if message.role == "user").count("also tests/") == 1
    assert turn[-1].text == f"So{INTERRUPTED}"


async def test_durable_runs_keep_the_turn_that_they_end_with(tmp_path: Path) -> None:
    """A run that its host cancels leaves its turn in the stored conversation; one whose process ends does not, and its resumed run
    answers as if nothing had been."""
    model = Model(begins="It is so")
    options: dict[str, Any] = {"tools": [], "durable": f"sqlite:///{tmp_path}/runs.db"}
    async with AgentFlow(provider=model, **options) as flow:
        flow.subscribe(seen)
        chat = chatting(flow)
        async with flow.session("ada", keep_partial=True) as session:
            await flow.start(chat("Why?"), run_id="one", session=session)
            await model.reached.wait()
            await flow.cancel("one")
            assert texts(session) == [["Why?", f"It is so{INTERRUPTED}"]]
            model.reached.clear()
            await flow.start(chat("And?"), run_id="two", session=session)
            await model.reached.wait()
    model = Model("fine")
    async with AgentFlow(provider=model, **options) as flow:
        chatting(flow)
        assert (await (await flow.resume("two")).result()).value == "fine"
        async with flow.session("ada") as session:
            assert texts(session) == [["Why?", f"It is so{INTERRUPTED}"], ["And?", "fine"]]


async def test_a_recorded_stop_is_sent_again_after_a_restart(tmp_path: Path) -> None:
    """A task that failed in the middle is recorded with its turn: the resumed workflow sends the same conversation. One that the
    workflow cancelled has no record, and is left out of what the run sends later."""
    model = Model(begins="It is so", fails=True)
    options: dict[str, Any] = {"tools": [], "durable": f"sqlite:///{tmp_path}/runs.db"}
    session = Session(keep_partial=True)

    def declared(flow: AgentFlow) -> Any:
        chat = chatting(flow)

        @flow.workflow
        async def talk() -> str:
            try:
                await chat("Why?")
            except AgentflowError:
                model.fails = False
            try:
                async with asyncio.timeout(0.05):
                    await chat("How?")
            except TimeoutError:
                pass
            return await chat("And?")

        return talk()

    async with AgentFlow(provider=model, **options) as flow:
        flow.subscribe(seen)
        await flow.start(declared(flow), run_id="r", session=session)
        async with asyncio.timeout(HANG_S):
            while len(model.requests) < 3:
                model.reached.clear()
                await model.reached.wait()
    model = Model("fine")
    async with AgentFlow(provider=model, **options) as flow:
        assert (await (await flow.start(declared(flow), run_id="r", session=session)).result()).value == "fine"
    assert texts(session) == [["Why?", f"It is so{INTERRUPTED}"], ["And?", "fine"]]
    sent = [message.text for message in model.requests[0].messages]
    assert sent == ["Why?", f"It is so{INTERRUPTED}", "And?"]


async def test_a_chat_over_http_keeps_what_was_stopped() -> None:
    """A served workflow whose first task takes too long: its second one reads the beginning of that answer."""
    model = Model(lambda request: " | ".join([each.text for each in request.messages]), begins="It is so")
    async with AgentFlow(provider=model, tools=[]) as flow:
        chat = chatting(flow)

        @flow.workflow
        async def talk(message: str) -> str:
            try:
                async with asyncio.timeout(0.05):
                    await chat("Long.")
            except TimeoutError:
                model.begins = ""
            return await chat(message)

        async with served(flow, {"talk": talk}) as server:
            path, body = request_of("chat", "talk")
            answer = await server.post(path, body)
    words = [frame["choices"][0]["delta"].get("content", "") for frame in frames_of(answer.text)]
    assert "".join(words) == f"Long. | It is so{INTERRUPTED} | x"
