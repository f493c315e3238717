"""Bounds beside what a flow really does: model calls, tool calls and how many there are at once, with models at their worst."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentflow import AgentFlow, Limits, Price
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Surface
from agentflow.providers.scripted import ScriptedProvider

Reply = Callable[["World"], Any]


@dataclass
class World:
    """A flow whose model answers with ``reply``, and counts."""

    reply: Reply
    models: int = 0
    tools: int = 0
    most: int = 0
    _active: int = 0
    flow: AgentFlow = field(init=False)

    def __post_init__(self) -> None:
        self.flow = AgentFlow(provider=ScriptedProvider(self._answered), tools=[self.look])

    async def look(self, x: int = 0) -> str:
        """Look at something."""
        self.tools += 1
        await self._during()
        return "seen"

    async def _answered(self, request: Any) -> Any:
        self.models += 1
        await self._during()
        return self.reply(self)

    async def _during(self) -> None:
        self._active += 1
        self.most = max(self.most, self._active)
        await asyncio.sleep(0.001)
        self._active -= 1


def _yes(world: World) -> str:
    return "yes"


def _calls(count: int, turns: int = 10_000) -> Reply:
    called = {"text": "", "tool_calls": [{"name": "look", "arguments": {"x": 1}}] * count}
    return lambda world: called if world.models <= turns else "done"


def _pauses(world: World) -> Any:
    return {"text": "so far ", "stop_reason": "pause"}


def _long(world: World) -> str:
    return "word " * 3_000


def _task(name: str, text: str, options: str = "(tools)") -> str:
    return f'(defatom {name} (params (x string)) (instructions "{text}") {options})'


TOPIC = _task("topic", "Topic of {{x}}")
TALK = _task("talk", "Say {{x}}")
SHORT = "((compact_after_tokens 100) (compact_keep_turns 1))"
PYTHON = '@task(tools=[])\ndef {}(x: str) -> str:\n    """{}"""\n\n'
CASES: dict[str, tuple[Surface, str, Reply, str]] = {
    "a task that the texts of another call twice": (
        "sexp",
        f"{TOPIC}{_task('sum', 'Sum {{x}} of {{topic(x)}} and {{topic(x)}}')}(sum (x 1))",
        _yes,
        "3",
    ),
    "calls in calls, and in the system text": (
        "sexp",
        TOPIC + _task("sum", "Sum {{topic(topic(x))}}", '(system "On {{topic(x)}}") (tools)') + "(sum (x 1))",
        _yes,
        "4",
    ),
    "the same in Python": (
        "python",
        PYTHON.format("topic", "Topic of {{x}}") + PYTHON.format("sum", "Of {{topic(x)}} and {{topic(x)}}") + "sum(1)",
        _yes,
        "3",
    ),
    "a model that calls tools although none is offered": ("sexp", f"{TALK}(talk (x 1))", _calls(3), "1"),
    "a question of the text": ("python", "ask('x')\nask('y')", _calls(3), "2"),
    "a question with a type": ("python", "ask('x', output=list[str])", _yes, "2"),
    "a model that never ends its turn": ("sexp", f"{TALK}(talk (x 1))", _pauses, "1"),
    "tools of the provider": (
        "sexp",
        f"{_task('web', '{{x}}', '(tools) (provider_tools ((type web_search))) (max-turns 6)')}(web (x 1))",
        _pauses,
        "6",
    ),
    "many tools in one turn": (
        "sexp",
        f"{_task('see', '{{x}}', '(tools look) (max-turns 3)')}(see (x 1))",
        _calls(40, 2),
        "3",
    ),
    "a conversation that is shortened": (
        "sexp",
        f"{TALK}{_task('short', '{{x}}', f'(tools) (history_config {SHORT})')}(loop 60 (talk (x 1))) (short (x 2))",
        _long,
        "68",
    ),
    "a call that has it shortened": (
        "sexp",
        f"{TALK}(talk (x 1)) (talk (x 1)) (talk (x 2) (history_config (quote {SHORT})))",
        _long,
        "10",
    ),
    "the same of arguments in a dict": (
        "python",
        PYTHON.format("talk", "Say {{x}}")
        + "talk('a')\ntalk('a')\ntalk(**{'x': 'b', 'history_config': {'compact_after_tokens': 100, 'compact_keep_turns': 1}})",
        _long,
        "10",
    ),
    "a call with settings that shorten nothing": (
        "python",
        PYTHON.format("talk", "Say {{x}}") + "talk('a', history_config={'use_session_history': False})",
        _long,
        "1",
    ),
}
"""Programs, each with what its model answers, and the most model calls that are said of it."""


@pytest.mark.parametrize("name", CASES)
async def test_no_more_is_done_than_was_said(name: str) -> None:
    """In model calls, tool calls and how many there are at once."""
    surface, text, reply, calls = CASES[name]
    world = World(reply)
    async with world.flow as flow:
        said = await flow.bounds(text, surface=surface)
        assert str(said.model_calls) == calls
        with_error = None
        try:
            await flow.run(text, surface=surface)
        except AgentflowError as error:
            with_error = error
        most = said.at({})
        ran = {"model_calls": world.models, "tool_calls": world.tools, "width": world.most}
        assert world.models > 0 and all(count <= (most[key] or 0) for key, count in ran.items()), (
            ran,
            most,
            with_error,
        )


async def test_calls_in_the_texts_of_tasks_are_listed() -> None:
    """``may call`` names them with how often, and what they may reach is part of the authority."""
    text = f"{TOPIC}{_task('sum', 'Sum {{topic(x)}} and {{topic(x)}}')}(map (lambda (f) (sum (x f))) files)"
    async with World(_yes).flow as flow:
        said = await flow.bounds(text)
        assert {key: str(bound) for key, bound in said.calls.items()} == {
            "task:sum": "len(files)",
            "task:topic": "2*len(files)",
        }
        assert said.authority.tasks == ("sum", "topic")


async def test_the_turns_are_those_of_the_run() -> None:
    """A run with other limits than its flow has other bounds."""
    text = f"{_task('see', '{{x}}', '(tools look)')}(see (x 1))"
    async with World(_yes).flow as flow:
        assert str((await flow.bounds(text)).model_calls) == "32"
        assert str((await flow.bounds(text, limits=Limits(turns=50))).model_calls) == "50"


async def test_the_fallbacks_of_the_flow_count() -> None:
    """A task without a model of its own may cost what the dearest of them costs, and reach any of them."""
    cheap, dear = "anthropic:claude-haiku-4-5", "anthropic:claude-opus-4-1"
    usd: list[float] = []
    for fallbacks in ((), (dear,)):
        async with AgentFlow(cheap, fallbacks=fallbacks, prices={cheap: Price(1, 5), dear: Price(15, 75)}) as flow:
            said = await flow.bounds(f"{TALK}(talk (x 1))")
            assert said.authority.models == (cheap, *fallbacks)
            usd.append(said.usd.number or 0)
    assert usd[1] == pytest.approx(15 * usd[0]) and usd[0] > 0


@pytest.mark.parametrize(
    ("model", "options", "limits", "capped"),
    [
        ("anthropic:claude-haiku-4-5", "", Limits(), True),
        ("openai:gpt-5", "", Limits(), False),
        ("openai:gpt-5", "(max-output-tokens 500)", Limits(), True),
        ("openai:gpt-5", "", Limits(usd=9), True),
        ("openai:gpt-5", "", Limits(tokens=900_000), True),
    ],
)
async def test_an_answer_is_as_long_as_it_may_be(model: str, options: str, limits: Limits, *, capped: bool) -> None:
    """What is said of tokens is what the server is told; where it is told nothing, an answer may fill the window, and a note says so."""
    async with AgentFlow(model) as flow:
        said = await flow.bounds(f"{_task('t', '{{x}}', f'(tools) {options}')}(t (x 1))", limits=limits)
        tokens, window = said.output_tokens.number or 0, said.input_tokens.number
        assert (tokens == (500 if options else 8_192)) if capped else (tokens == window and tokens > 100_000)
        assert any("may fill its window" in note for note in said.notes) is not capped
