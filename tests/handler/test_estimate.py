"""Estimates of requests: what a conversation holds is measured once, whatever is sent of it and however often."""

from __future__ import annotations

import random

import pytest

from agentflow import AgentFlow, Limits, ScriptedProvider, Session
from agentflow.core.data.context import DataContext, MatchItem
from agentflow.core.data.messages import Message, ModelRequest, TextPart, ToolSpec, user
from agentflow.core.data.templates import HistoryConfig
from agentflow.handler.prompt_opening import opening
from agentflow.handler.token_estimate import Calibration, Estimator, size_of_message

DATA = DataContext(items=[MatchItem(path="a.py", relevance="", score=1.0, content="x = 1")])


def exchange(size: int) -> tuple[Message, ...]:
    """A question and an answer of some words."""
    return user("word " * size), Message("assistant", (TextPart("ö" * size),))


@pytest.mark.parametrize("seed", range(20))
def test_the_size_of_what_a_prompt_begins_with(seed: int) -> None:
    """It is that of its messages: with few turns of history or all, forks, a summary, a data context, turns taken back."""
    dice = random.Random(seed)
    session = Session(data_context=DATA if dice.random() < 0.5 else None)
    for _ in range(dice.randrange(8)):
        what = dice.randrange(6)
        if what == 0:
            session = session.fork()
        elif what == 1 and session.turn_count:
            session.compact(dice.randrange(1, session.turn_count + 1), "in short")
        elif what == 2:
            mark = session.mark()
            session.commit(exchange(dice.randrange(50)))
            session.size(size_of_message)
            session.go_back(mark)
        else:
            session.commit(exchange(dice.randrange(50)))
        for turns in (None, 0, 1, 3):
            for after in (None, 100):
                history = HistoryConfig(history_turns_to_include=turns, compact_after_tokens=after)
                begun = opening(session, history, user("now"))
                assert begun.size == sum(map(size_of_message, begun.messages[: begun.at]))
                assert len(begun.messages) == begun.at + 1
    session.reset()
    assert session.size(size_of_message) == 0


def test_each_message_is_measured_once() -> None:
    """A prompt measures what came since the last one, and a fork nothing of what it has in common."""
    measured: list[Message] = []

    def measure(message: Message) -> int:
        measured.append(message)
        return 1

    session = Session()
    for turns in range(1, 50):
        session.commit(exchange(1))
        fork = session.fork()
        assert session.size(measure) == fork.size(measure) == 2 * turns
        assert fork.size(measure, turns - 1) == 2
    assert len(measured) == 2 * 49


def test_an_estimate_that_begins_in_the_middle_is_that_of_the_whole() -> None:
    """What is measured already is not measured again, and tools once for all prompts of a flow."""
    tool = ToolSpec("t", "a tool", {"type": "object"})
    messages = (*exchange(30), *exchange(3), user("now"))
    calibration = Calibration()
    whole, rest = Estimator("m", calibration), Estimator("m", calibration)
    rest.before = (4, sum(map(size_of_message, messages[:4])))
    request = ModelRequest(messages, system="be brief", tools=(tool,))
    first = whole.input_tokens(request)
    assert first == rest.input_tokens(request) > 60
    longer = ModelRequest((*messages, *exchange(5)), system="be brief", tools=(tool,))
    assert whole.input_tokens(longer) == rest.input_tokens(longer) > first


async def test_prompts_of_one_conversation_are_reserved_by_its_size() -> None:
    """The budget sees what a long conversation sends: with each prompt more, until nothing is left."""
    model = ScriptedProvider(lambda request: "word " * 50)
    session = Session()
    program = '(defatom ask (params) (instructions "Go on") (history_config true)) (ask)'
    async with AgentFlow(provider=model, limits=Limits(tokens=10_000)) as flow:
        for _ in range(6):
            await flow.run(program, session=session)
    sizes = [request.input_tokens for request in model.requests]
    assert sizes == sorted(set(sizes)) and session.size(size_of_message) > 6 * 250
