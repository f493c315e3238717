"""Middleware around calls of models: what it may change, what its calls cost, and what streams show meanwhile."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import (
    AgentFlow,
    CallContext,
    ConfigurationError,
    Denied,
    Limits,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    ProviderError,
    ScriptedProvider,
    TaskError,
    Usage,
)
from agentflow.core.data.messages import TextPart
from agentflow.core.events.events import ModelFinished, ModelStarted, TextDelta
from agentflow.core.ports.ports import ModelCall

Run = Callable[[ModelRequest], ModelCall]


def masked(text: str) -> str:
    """``text`` without the secret word."""
    return text.replace("secret", "******")


async def redact(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
    """Masks a word in what the model is sent, and in what it answers."""
    messages = tuple(
        [
            replace(
                each,
                parts=tuple(
                    [
                        replace(part, text=masked(part.text)) if isinstance(part, TextPart) else part
                        for part in each.parts
                    ]
                ),
            )
            for each in request.messages
        ]
    )
    response = await run(replace(request, messages=messages))
    return response.with_text(masked(response.text))


async def filtered(request: ModelRequest, run: Run, ctx: CallContext) -> AsyncIterator[ModelDelta]:
    """Masks a word in the deltas as they pass."""
    async for delta in run(request):
        yield replace(delta, text=masked(delta.text)) if delta.text else delta


def sent(model: ScriptedProvider) -> list[str]:
    """The text of the last message of each request."""
    return [
        "".join([part.text for part in each.messages[-1].parts if isinstance(part, TextPart)])
        for each in model.requests
    ]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("around, prompt", [(redact, "the ****** plan"), (filtered, "the secret plan")])
async def test_what_a_user_writes_first(around: Any, prompt: str, streaming: bool) -> None:
    """A coroutine rewrites request and answer; a generator filters deltas, and the answer is what it let pass."""
    model = ScriptedProvider("a secret answer that is long")
    async with AgentFlow(provider=model, around_model=[around]) as flow:
        if streaming:
            async with flow.stream(flow.ask("the secret plan")) as run:
                events = [event async for event in run]
                value = await run.value()
            deltas = [event.text for event in events if isinstance(event, TextDelta)]
            assert "".join(deltas) == "a ****** answer that is long"
            assert len(deltas) == (1 if around is redact else 6), "a coroutine holds its deltas back"
            kinds = [type(event) for event in events if isinstance(event, ModelStarted | ModelFinished)]
            assert kinds == [ModelStarted, ModelFinished]
            started = next(event for event in events if isinstance(event, ModelStarted))
            assert prompt in str(started.request), "the event has the request that was sent"
        else:
            value = await flow.ask("the secret plan")
    assert value == "a ****** answer that is long"
    assert sent(model) == [prompt]


# -- three that are wrong -----------------------------------------------------------------------------------------------


def plain(request: ModelRequest, run: Run, ctx: CallContext) -> Any:
    """Not async."""
    return run(request)


async def of_two(request: ModelRequest, run: Run) -> ModelResponse:
    """Without the call's context."""
    return await run(request)


@pytest.mark.parametrize(
    "wrong, message",
    [([plain], "'plain' is not async"), ([of_two], "takes three arguments"), (redact, "takes a list of functions")],
)
async def test_what_is_no_middleware(wrong: Any, message: str) -> None:
    """A function that could not be middleware is an error where it is declared."""
    async with AgentFlow(provider=ScriptedProvider("hello")) as flow:
        for declare in (
            lambda: AgentFlow(around_model=wrong),
            lambda: flow.ask("hello", around_model=wrong),
            lambda: flow.task(around_model=wrong),
        ):
            with pytest.raises(ConfigurationError) as caught:
                made: Any = declare()

                async def review() -> str:
                    """Say hello."""

                made(review)
            assert caught.value.code == "config/middleware"
            assert (
                message in caught.value.message and "async def careful(request, run, ctx)" in str(caught.value.hint)
            ) or (wrong is redact)


async def none(request: ModelRequest, run: Run, ctx: CallContext) -> Any:
    """Forgets its return."""
    await run(request)


async def text(request: ModelRequest, run: Run, ctx: CallContext) -> Any:
    """Returns the text."""
    return (await run(request)).text


async def texts(request: ModelRequest, run: Run, ctx: CallContext) -> Any:
    """Yields texts."""
    async for delta in run(request):
        yield delta.text


async def other(request: ModelRequest, run: Run, ctx: CallContext) -> Any:
    """Asks another model."""
    return await run(replace(request, model="bigger"))


async def nothing(request: ModelRequest, run: Run, ctx: CallContext) -> Any:
    """Runs no request."""
    run_it: Any = run
    return await run_it("hello")


@pytest.mark.parametrize(
    "wrong, message",
    [
        (none, "'none' returned None, and a ModelResponse is wanted"),
        (text, "'text' returned a value of type str, and a ModelResponse is wanted"),
        (texts, "'texts' returned a value of type str, and a ModelDelta is wanted"),
        (other, "one of 'bigger'"),
        (nothing, "called run() with a str"),
    ],
)
async def test_a_bare_value_is_no_answer(wrong: Any, message: str) -> None:
    """What is not an answer, or another model, ends the run with an error that says what to write."""
    async with AgentFlow(provider=ScriptedProvider("hello"), around_model=[wrong]) as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.ask("hello")
    assert caught.value.code == "config/middleware" and message in caught.value.message and caught.value.hint


# -- what it costs ------------------------------------------------------------------------------------------------------


async def cached(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
    """Answers without the model."""
    return ModelResponse.of_text("from the cache")


async def cached_deltas(request: ModelRequest, run: Run, ctx: CallContext) -> AsyncIterator[ModelDelta]:
    """The same in pieces."""
    yield ModelDelta(text="from ")
    yield ModelDelta(text="the cache")


@pytest.mark.parametrize("around", [cached, cached_deltas])
async def test_an_answer_of_its_own_costs_nothing(around: Any) -> None:
    """A run that may make no model call has an answer that middleware gives, and costs nothing."""
    model = ScriptedProvider(())
    async with AgentFlow(provider=model, around_model=[around]) as flow:
        result = await flow.run(flow.ask("hello"), limits=Limits(model_calls=0, tokens=1))
    assert (result.value, result.usage, result.cost, model.requests) == ("from the cache", Usage(), 0.0, [])


async def test_each_call_is_charged() -> None:
    """Middleware that asks twice pays twice, and the second call is refused where the budget allows one."""

    async def again(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
        first = await run(request)
        return first if len(first.text) > 10 else await run(replace(request, system="At length."))

    def reply(request: ModelRequest) -> dict[str, Any]:
        answer = "a long answer, as asked" if request.system else "short"
        return {"text": answer, "usage": {"input_tokens": 10, "output_tokens": 5}, "cost_usd": 0.01}

    async with AgentFlow(provider=ScriptedProvider(reply), around_model=[again]) as flow:
        result = await flow.run(flow.ask("hello"))
        assert result.value == "a long answer, as asked"
        assert (result.usage.total_tokens, result.usage.requests, result.cost) == (30, 2, 0.02)
        with pytest.raises(Exception, match="model calls"):
            await flow.run(flow.ask("hello"), limits=Limits(model_calls=1))


async def test_it_may_answer_for_a_model_that_failed() -> None:
    """An error of the provider is raised by ``run``; middleware asks again, or answers itself."""

    async def patient(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
        for _ in range(2):
            try:
                return await run(request)
            except ProviderError:
                continue
        return ModelResponse.of_text("later")

    broken = ProviderError("down", provider="scripted", model="m")
    async with AgentFlow(provider=ScriptedProvider([broken, "hello", broken, broken]), around_model=[patient]) as flow:
        result = await flow.run(flow.ask("hello"), limits=Limits(tokens=50_000))
        assert result.value == "hello"
        assert (await flow.run(flow.ask("hello"), limits=Limits(tokens=50_000))).value == "later"


# -- refusing, order, structure -------------------------------------------------------------------------------------------


async def test_it_may_refuse() -> None:
    """A refused model call fails the task with the reason; any other exception does under a code of its own."""

    async def guard(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
        if "weather" in str(request.messages):
            raise Denied("only questions about bills")
        raise ValueError("no rules")

    model = ScriptedProvider(())
    async with AgentFlow(provider=model, around_model=[guard]) as flow:
        with pytest.raises(TaskError, match="only questions about bills") as caught:
            await flow.ask("What is the weather?")
        assert caught.value.code == "middleware/denied"
        with pytest.raises(TaskError, match="no rules") as caught:
            await flow.ask("What is my bill?")
        assert caught.value.code == "middleware/raised"
    assert model.requests == []


def marking(mark: str, order: list[str], generates: bool) -> Any:
    """Middleware that notes when it is entered and left, in either form."""

    async def whole(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
        order.append(mark)
        response = await run(request)
        order.append(mark.upper())
        return response

    async def pieces(request: ModelRequest, run: Run, ctx: CallContext) -> AsyncIterator[ModelDelta]:
        order.append(mark)
        async for delta in run(request):
            yield delta
        order.append(mark.upper())

    return pieces if generates else whole


@pytest.mark.parametrize(
    "forms", [(False, False, False), (True, True, True), (True, False, True), (False, True, False)]
)
async def test_the_order_is_flow_run_task(forms: tuple[bool, bool, bool]) -> None:
    """The flow's is the outermost, then the run's, then the task's, in whichever of both forms they are."""
    order: list[str] = []
    flow_, run_, task_ = [marking(name, order, form) for name, form in zip(("flow", "run", "task"), forms, strict=True)]
    async with AgentFlow(provider=ScriptedProvider("hello there"), around_model=[flow_]) as flow:

        @flow.task(around_model=[task_])
        async def review() -> str:
            """Say hello."""

        assert (await flow.run(review(), around_model=[run_])).value == "hello there"
    assert order == ["flow", "run", "task", "TASK", "RUN", "FLOW"]


async def test_the_turns_of_a_tool_loop() -> None:
    """Middleware is around each turn of a tool loop; tool calls pass it, and the loop counts turns, not calls."""
    turns: list[int] = []

    async def twice(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
        turns.append(len(request.messages))
        await run(request)
        return await run(request)

    async def look() -> str:
        """Look."""
        return "seen"

    call = {"tool_calls": [{"name": "look", "arguments": {}}]}
    async with AgentFlow(provider=ScriptedProvider(["no", call, "no", "done"]), around_model=[twice]) as flow:
        assert await flow.ask("go", tools=[look], max_turns=2) == "done"
    assert turns == [1, 3]


class Review(BaseModel):
    """An answer of a type."""

    mood: str


@pytest.mark.parametrize("around", [redact, filtered])
async def test_answers_of_a_type(around: Any) -> None:
    """A typed answer is read from what middleware let pass."""
    async with AgentFlow(provider=ScriptedProvider('{"mood": "secret"}'), around_model=[around]) as flow:
        assert await flow.ask("How?", output=Review) == Review(mood="******")


async def test_a_model_as_judge() -> None:
    """Middleware that asks a model itself is not around that question, so a judge may be a task."""
    model = ScriptedProvider(["bad answer", "no", "good answer"])

    async with AgentFlow(provider=model) as flow:

        async def judged(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
            first = await run(request)
            verdict = await flow.ask(f"Is this good: {first.text}")
            return first if verdict == "yes" else await run(request)

        assert (await flow.run(flow.ask("Answer."), around_model=[judged])).value == "good answer"
    assert len(model.requests) == 3


async def test_a_reader_that_stops_early_stops_the_call() -> None:
    """A generator that leaves its loop gives the model up; what it let pass is the answer."""
    ended: list[bool] = []

    async def reply(request: ModelRequest) -> str:
        ended.append(True)
        return "one two three four"

    async def first_word(request: ModelRequest, run: Run, ctx: CallContext) -> AsyncIterator[ModelDelta]:
        async for delta in run(request):
            yield delta
            break

    async with AgentFlow(provider=ScriptedProvider(reply), around_model=[first_word]) as flow:
        assert (await flow.ask("Count.")).strip() == "one"
    assert ended == [True]


async def test_cancelling_ends_it() -> None:
    """A run that is cancelled while middleware waits for the model ends at once, in both forms."""

    async def forever(request: ModelRequest) -> str:
        await asyncio.sleep(3600)
        return "never"

    for around in (redact, filtered):
        async with AgentFlow(provider=ScriptedProvider(forever), around_model=[around]) as flow:
            work: Awaitable[Any] = asyncio.ensure_future(flow.run(flow.ask("hello")))
            await asyncio.sleep(0.05)
            work.cancel()  # type: ignore[attr-defined]
            with pytest.raises(asyncio.CancelledError):
                await work


def digests(work: Callable[[], Any]) -> int:
    """How often this thread hashes a request in ``work``."""
    count = 0

    def hook(frame: Any, event: str, argument: object) -> None:
        nonlocal count
        count += (
            event == "call" and frame.f_code.co_qualname == "_digest" and "around_model" in frame.f_code.co_filename
        )

    sys.setprofile(hook)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", ["whole", "generator"])
def test_a_long_conversation_is_hashed_once_and_beside_the_loop(tmp_path: Path, kind: str) -> None:
    """A request is hashed once for its path and its record, however many links hand it on; a long one on another thread."""

    async def whole(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
        return await run(request)

    async def generator(request: ModelRequest, run: Run, ctx: CallContext) -> AsyncIterator[ModelDelta]:
        async for delta in run(request):
            yield delta

    link = whole if kind == "whole" else generator

    async def ask(prompt: str) -> None:
        model = ScriptedProvider(lambda request: "fine")
        url = f"sqlite:///{tmp_path}/{len(prompt)}.db"
        async with AgentFlow(provider=model, durable=url, around_model=[link, link]) as flow:

            @flow.task
            async def say(text: str) -> str:
                """{{text}}"""

            assert (await (await flow.start(say(prompt))).result()).value == "fine"

    assert digests(lambda: asyncio.run(ask("short"))) == 1
    assert digests(lambda: asyncio.run(ask("long " * 100_000))) == 0


async def test_equal_requests_at_once_are_numbered_as_they_were_begun(tmp_path: Path) -> None:
    """Two runs of one long request, at once, have the same answers when they are replayed after a wait."""
    count = 0

    def answer(request: ModelRequest) -> str:
        nonlocal count
        count += 1
        return f"answer {count}"

    async def both(request: ModelRequest, run: Run, ctx: CallContext) -> ModelResponse:
        first, second = await asyncio.gather(run(request), run(replace(request)))
        await ctx.ask_human("which?")
        return first.with_text(f"{first.text}, {second.text}")

    url, prompt = f"sqlite:///{tmp_path}/runs.db", "long " * 50_000
    for step in ("start", "resume"):
        async with AgentFlow(provider=ScriptedProvider(answer), durable=url, around_model=[both]) as flow:

            @flow.task
            async def say(text: str) -> str:
                """{{text}}"""

            if step == "start":
                await (await flow.start(say(prompt), run_id="r")).wait()
                continue
            await flow.send("r", (await flow.questions("r"))[0].key, "both")
            value = (await (await flow.resume("r")).result()).value
            assert value == "answer 1, answer 2" and count == 2
