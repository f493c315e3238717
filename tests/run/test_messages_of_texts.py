"""Texts that wait for signals and publish state, in both surfaces, in plain runs and durable ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from agentflow import AgentFlow, DurableRun, RunStream, ScriptedProvider
from agentflow.core.data.errors import AgentflowError, DataError
from agentflow.core.data.source import Source
from agentflow.events import Warning
from agentflow.testing import explore

Surface: TypeAlias = Literal["sexp", "python"]

ORDER: dict[Surface, str] = {
    "sexp": """
        (publish-state "phase" "waits")
        (define paid (wait-for-signal "paid" {"amount" "integer"}))
        (publish-state "phase" {"paid" (get-field paid "amount")})
        (get-field paid "amount")
    """,
    "python": """
class Payment:
    amount: int

publish_state("phase", "waits")
paid = wait_for_signal("paid", output=Payment)
publish_state("phase", {"paid": paid["amount"]})
paid["amount"]
""",
}
PATIENT: dict[Surface, str] = {
    "sexp": '(try (timeout 0.02 (wait-for-signal "go")) (catch (e) (publish-state "late" true) (wait-for-signal "go")))',
    "python": """
try:
    got = timeout(0.02, lambda: wait_for_signal("go"))
except TimeoutError:
    publish_state("late", True)
    got = wait_for_signal("go")
got
""",
}
SURFACES: tuple[Surface, ...] = ("sexp", "python")


class Scene:
    """A flow, durable or not, and the codes of its warnings."""

    def __init__(self, url: str | None) -> None:
        self.flow = AgentFlow(provider=ScriptedProvider(), durable=url)
        self.warned: list[str] = []
        self.flow.subscribe(lambda event: self.warned.append(event.code) if isinstance(event, Warning) else None)

    @asynccontextmanager
    async def running(
        self, text: str, surface: Surface, **options: Any
    ) -> AsyncIterator[RunStream[Any] | DurableRun[Any]]:
        if self.flow.is_durable:
            yield await self.flow.start(text, run_id="r", surface=surface, **options)
        else:
            async with self.flow.stream(text, run_id="r", surface=surface, **options) as run:
                yield run

    async def waits(self) -> list[Any]:
        while not (waits := await self.flow.questions("r")):
            await asyncio.sleep(0.005)
        return waits


@pytest.fixture(params=["plain", "durable"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    opened = Scene(f"sqlite:///{tmp_path}/runs.db" if request.param == "durable" else None)
    async with opened.flow:
        yield opened


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_text_waits_for_a_typed_signal_and_publishes(scene: Scene, surface: Surface) -> None:
    """The wait is listed with its name and schema; a value of another type is refused where it is sent; the state is shown meanwhile."""
    async with scene.running(ORDER[surface], surface) as run:
        [waiting] = await scene.waits()
        assert (waiting.reason, waiting.signal) == ("signal", "paid")
        assert waiting.schema["properties"]["amount"] == {"type": "integer"}
        assert await run.state() == {"phase": "waits"}
        with pytest.raises(DataError) as wrong:
            await run.signal("paid", {"amount": "much"})
        assert wrong.value.code == "signal/value"
        await run.signal("paid", {"amount": 20})
        assert (await run.result()).value == 20
        assert await run.state() == {"phase": {"paid": 20}}


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_text_receives_what_came_early_and_in_order(scene: Scene, surface: Surface) -> None:
    """Signals sent while the text did something else are received later, each once; one that does not fit is passed over, with a Warning."""
    text = {
        "sexp": '(wait-for-signal "begin") (list (wait-for-signal "n" {"type" "integer"}) (wait-for-signal "n" {"type" "integer"}))',
        "python": 'wait_for_signal("begin")\n[wait_for_signal("n", output=int), wait_for_signal("n", int)]',
    }[surface]
    async with scene.running(text, surface) as run:
        await scene.waits()
        for value in (1, "two", 3):
            await run.signal("n", value)
        await run.signal("begin")
        assert (await run.result()).value == [1, 3]
    assert scene.warned == ["signal/dropped"]


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_time_out_ends_the_wait_of_a_text(scene: Scene, surface: Surface) -> None:
    """``timeout`` ends it, and the next wait of that name gets the signal that comes later."""
    async with scene.running(PATIENT[surface], surface) as run:
        while not (await run.state()).get("late"):
            await asyncio.sleep(0.005)
        await run.signal("go", "now")
        assert (await run.result()).value == "now"


@pytest.mark.parametrize("surface", SURFACES)
async def test_another_flow_continues_a_text_that_waited(tmp_path: Path, surface: Surface) -> None:
    """The run waits outside of memory; a later flow over its database sends the signal and has the value, and what was published."""
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(durable=url) as flow:
        handle = await flow.start(ORDER[surface], run_id="r", surface=surface)
        assert await handle.wait() == "waiting"
    async with AgentFlow(durable=url) as flow:
        await flow.send_signal("r", "paid", {"amount": 7})
        assert (await (await flow.resume("r")).result()).value == 7
        assert await flow.state("r") == {"phase": {"paid": 7}}


GRANTED: dict[str, tuple[Surface, str]] = {
    "wait-for-signal": ("sexp", '(wait-for-signal "x")'),
    "publish-state": ("sexp", '(publish-state "k" 1)'),
    "wait-for-signal in Python": ("python", 'wait_for_signal("x")'),
    "publish-state in Python": ("python", 'publish_state("k", 1)'),
    "publish-state as a value": ("sexp", '(map (lambda (f) (f "k" 1)) (list publish-state))'),
}


@pytest.mark.parametrize("case", GRANTED)
async def test_a_text_with_fewer_rights_needs_the_grant(case: str) -> None:
    """``allow=`` grants each form by its name, as ``ask-human``; without, nothing waits and nothing is published."""
    surface, text = GRANTED[case]
    name = case.partition(" ")[0]
    async with AgentFlow(provider=ScriptedProvider()) as flow:
        with pytest.raises(AgentflowError) as refused:
            await flow.run(text, surface=surface, allow=["ask-human"])
        assert refused.value.code == "name/not-granted" and name in refused.value.message
        async with flow.stream(text, surface=surface, allow=[name]) as run:
            if name == "wait-for-signal":
                await run.signal("x", 1)
            await run.result()
            assert await run.state() == ({"k": 1} if name == "publish-state" else {})


WRONG: dict[str, tuple[Surface, str, str]] = {
    "a name that is no text": ("sexp", "(wait-for-signal 5)", "type/argument"),
    "an empty name": ("sexp", '(wait-for-signal "")', "type/argument"),
    "a type that is no schema": ("sexp", '(wait-for-signal "n" {"type" "amount"})', "question/schema"),
    "the value as an option": ("python", 'wait_for_signal("n", type=int)', "form/arity"),
    "a type that is none": ("python", 'wait_for_signal("n", output="amount")', "python/annotation"),
    "a key that is no text": ("python", "publish_state(1, 2)", "type/argument"),
    "keywords for keys": ("python", "publish_state(done=2)", "form/arity"),
    "a procedure": ("sexp", '(publish-state "f" (lambda (x) x))', "state/not-data"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_is_said(case: str) -> None:
    """What a user tries first is refused with the right form."""
    surface, text, code = WRONG[case]
    async with AgentFlow(provider=ScriptedProvider()) as flow:
        with pytest.raises(AgentflowError) as wrong:
            await flow.run(text, surface=surface)
    assert wrong.value.code == code, wrong.value.render()


@pytest.mark.parametrize("surface", SURFACES)
async def test_exploration_tries_a_signal_that_never_comes(surface: Surface) -> None:
    """A signal has values of its schema, and comes too late for a time-out; without one it is not called a failure."""
    text = {
        "sexp": '(timeout 5 (if (wait-for-signal "ok" {"type" "boolean"}) 1 (/ 1 0)))',
        "python": 'timeout(5, lambda: 1 if wait_for_signal("ok", output=bool) else 1 // 0)',
    }[surface]
    report = await explore(Source("<text>", text, surface))
    assert {each.code for each in report.found} == {"number/division-by-zero", "timeout/elapsed"}
    assert not (await explore(Source("<text>", ORDER[surface], surface))).found
