"""A model, or a tool, hands a conversation over: another task goes on in it with its own system prompt, tools and model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from agentflow import AgentFlow, ConfigurationError, Handoff, Limits, ScriptedProvider, Session, TaskResult
from agentflow.core.data.errors import ResourceExhausted, TaskError
from agentflow.core.data.messages import Message, TextPart, ToolCallPart, ToolResultPart
from agentflow.core.events.events import Event, TaskFinished, TaskStarted
from agentflow.testing import explore


def calling(*names: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls tools, each with the same arguments."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name in names]}


def shown(messages: Sequence[Message]) -> list[str]:
    """Each message as its role and the texts, calls and results in it."""
    words = {
        TextPart: lambda part: part.text.strip(),
        ToolCallPart: lambda part: f"call {part.name}",
        ToolResultPart: lambda part: f"result {part.text}",
    }
    lines = [[words[type(part)](part) for part in message.parts] for message in messages]
    return [
        f"{message.role}: {' | '.join([text for text in texts if text])}"
        for message, texts in zip(messages, lines, strict=True)
    ]


async def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


def desk(flow: AgentFlow, **options: Any) -> tuple[Any, Any]:
    """Two tasks: triage may hand over to billing, which has a tool of its own."""

    @flow.task(system="You are billing.", tools=[refund], history=True)
    async def billing(problem: str) -> str:
        """The problem: {{problem}}"""

    @flow.task(system="You are triage.", handoffs=[billing], history=True, **options)
    async def triage(question: str) -> str:
        """{{question}}"""

    return triage, billing


async def test_a_model_hands_over_to_another_task_in_the_same_conversation() -> None:
    """``handoffs=[billing]`` offers ``transfer_to_billing`` with billing's parameters; billing goes on with the same messages, its own
    system prompt and tools, and its answer is the value."""
    model = ScriptedProvider(
        [calling("transfer_to_billing", problem="order 7 is broken"), calling("refund", order=7), "Done."]
    )
    async with AgentFlow(provider=model) as flow:
        triage, _ = desk(flow)
        assert await triage("My order is broken") == "Done."
    first, second, third = model.requests
    assert [each.name for each in first.tools] == ["transfer_to_billing"]
    assert first.tools[0].input_schema["required"] == ["problem"]
    assert (first.system, second.system) == ("You are triage.", "You are billing.")
    assert [each.name for each in second.tools] == ["refund"]
    assert shown(second.messages) == [
        "user: My order is broken",
        "assistant: call transfer_to_billing",
        "user: result handed over to billing | The problem: order 7 is broken",
    ]
    assert shown(third.messages)[-1] == "user: result refunded 7"
    texts = [part.text for message in second.messages for part in message.parts if isinstance(part, TextPart)]
    assert all(text.strip() for text in texts), "servers refuse a text of white space alone"


async def test_the_whole_turn_is_in_the_session_and_its_agent_is_known() -> None:
    """The session has one turn with both tasks' messages, and ``session.agent`` is the task that answered: the next run begins with it."""
    session = Session()
    model = ScriptedProvider([calling("transfer_to_billing", problem="x"), "I am billing.", "Still billing."])
    async with AgentFlow(provider=model) as flow:
        triage, billing = desk(flow)
        agents = {"triage": triage, "billing": billing}
        assert session.agent is None
        await flow.run(triage("help"), session=session)
        assert session.agent == "billing"
        assert (await flow.run(agents[session.agent]("more"), session=session)).value == "Still billing."
    (turn, _) = session.turns()
    assert shown(turn) == [
        "user: help",
        "assistant: call transfer_to_billing",
        "user: result handed over to billing | The problem: x",
        "assistant: I am billing.",
    ]
    assert Session.from_json(session.to_json()).agent == "billing"
    assert shown(model.requests[2].messages)[:4] == shown(turn)


def last_question(messages: Sequence[Message]) -> Sequence[Message]:
    """The first message alone."""
    return messages[:1]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (
            "all",
            [
                "user: help",
                "assistant: call transfer_to_billing",
                "user: result handed over to billing | The problem: x",
            ],
        ),
        (None, ["user: The problem: x"]),
        (last_question, ["user: help | The problem: x"]),
    ],
)
async def test_keep_says_which_messages_go_along(keep: Any, expected: list[str]) -> None:
    """``Handoff(task, keep=...)``: all messages, none, or those that a function chooses; the session has the whole turn all the same."""
    session = Session()
    model = ScriptedProvider([calling("transfer_to_billing", problem="x"), "ok"])
    async with AgentFlow(provider=model) as flow:
        _, billing = desk(flow)

        @flow.task(handoffs=[Handoff(billing, keep=keep)], history=True)
        async def front(question: str) -> str:
            """{{question}}"""

        await flow.run(front("help"), session=session)
    assert shown(model.requests[1].messages) == expected
    assert len(session.turns()[0]) == 4


async def test_a_tool_hands_over_by_returning_a_handoff() -> None:
    """A tool may decide: it returns ``Handoff(task, arguments)``, and the calls beside it end first."""
    model = ScriptedProvider([calling("route", word="money"), "I am billing."])
    async with AgentFlow(provider=model) as flow:
        _, billing = desk(flow)

        async def route(word: str) -> Handoff | str:
            """Find who can help."""
            return Handoff(billing, {"problem": word}) if word == "money" else "stay"

        assert await flow.ask("help", tools=[route]) == "I am billing."
    assert shown(model.requests[1].messages)[-1] == "user: result handed over to billing | The problem: money"


async def test_of_two_handoffs_in_one_answer_the_first_counts() -> None:
    """The task that goes on reads that the second handoff changed nothing."""
    model = ScriptedProvider([calling("transfer_to_billing", "transfer_to_shipping", problem="x"), "I am billing."])
    async with AgentFlow(provider=model) as flow:
        _, billing = desk(flow)

        @flow.task
        async def shipping(problem: str) -> str:
            """The problem: {{problem}}"""

        assert await flow.ask("help", handoffs=[billing, shipping]) == "I am billing."
    last = shown(model.requests[1].messages)[-1]
    assert last.startswith("user: result handed over to billing | result an earlier call")


async def test_tasks_hand_over_to_each_other_by_name_until_the_turns_are_used_up() -> None:
    """``handoffs=["billing"]`` names a task that is declared later; two tasks that hand over for ever end at the turns of the run."""

    def pass_on(request: Any) -> Any:
        return calling(request.tools[0].name, question="?")

    model = ScriptedProvider(pass_on)
    async with AgentFlow(provider=model, limits=Limits(turns=6)) as flow:

        @flow.task(handoffs=["billing"])
        async def triage(question: str) -> str:
            """{{question}}"""

        @flow.task(handoffs=["triage"])
        async def billing(question: str) -> str:
            """{{question}}"""

        with pytest.raises(ResourceExhausted, match="all of its 6 turns") as error:
            await triage("help")
    assert error.value.limit == 6, "a run that ended at a limit goes on only if a higher one is given"
    assert len(model.requests) == 6


async def test_the_result_says_who_answered_and_what_all_of_it_cost() -> None:
    """A task that returns TaskResult names the task that answered; usage is that of all tasks, and events show each task."""
    events: list[Event] = []
    usage = {"input_tokens": 10, "output_tokens": 1}
    model = ScriptedProvider(
        [{**calling("transfer_to_billing", problem="x"), "usage": usage}, {"text": "ok", "usage": usage}]
    )
    async with AgentFlow(provider=model) as flow:
        _, _ = desk(flow)

        @flow.task(handoffs=["billing"])
        async def front(question: str) -> TaskResult:
            """{{question}}"""

        flow.subscribe(events.append)
        result = await front("help")
    assert result.task == "billing" and result.content == "ok"
    assert result.usage.input_tokens == 20
    names = [each.name for each in events if isinstance(each, TaskStarted)]
    assert names == ["front", "billing"] and len([each for each in events if isinstance(each, TaskFinished)]) == 2


async def test_a_handoff_is_replayed_from_its_records(tmp_path: Path) -> None:
    """A durable run that stopped in the second task's tool goes on there: neither model is paid twice for its turn."""
    asked: list[str] = []

    async def confirm(order: int) -> str:
        """Ask a person."""
        asked.append("asked")
        return f"answer {await flow.ask_human('sure?')}"

    model = ScriptedProvider(
        [
            calling("transfer_to_billing", problem="x"),
            calling("confirm", order=1),
            lambda request: shown(request.messages)[-1],
        ]
    )

    def app() -> AgentFlow:
        app = AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db")

        @app.task(tools=[confirm])
        async def billing(problem: str) -> str:
            """The problem: {{problem}}"""

        @app.task(handoffs=[Handoff(billing, keep=last_question)])
        async def triage(question: str) -> str:
            """{{question}}"""

        return app

    program = '(content (triage (question "help")))'
    flow = app()
    async with flow:
        await (await flow.start(program, run_id="r")).wait()
    flow = app()
    async with flow:
        await flow.send("r", (await flow.questions("r"))[0].key, "yes")
        assert (await (await flow.resume("r")).result()).value == "user: result answer yes"
    assert len(model.requests) == 3


# -- the wrong ones that a user tries first -------------------------------------------------------------------------


async def test_tasks_of_different_types_cannot_hand_over() -> None:
    """The value of the last task is that of the first: another return type is ``config/handoff`` when the task is declared."""
    async with AgentFlow() as flow:
        _, billing = desk(flow)
        with pytest.raises(ConfigurationError, match="returns another type") as error:

            @flow.task(handoffs=[billing])
            async def count(question: str) -> int:
                """{{question}}"""

        assert error.value.code == "config/handoff"


async def test_what_is_no_task_cannot_be_handed_over_to() -> None:
    """A plain function or a model's name in ``handoffs=``, and a Handoff of nothing, are errors with the form that works."""
    async with AgentFlow() as flow:
        for wrong in (refund, [refund], "billing"):
            with pytest.raises(ConfigurationError, match="handoffs=") as error:
                flow.ask("x", handoffs=cast(Any, wrong))
            assert error.value.code == "config/handoff"
        with pytest.raises(ConfigurationError, match="names no task"):
            Handoff(refund)


async def test_a_name_without_a_task_is_told_when_it_is_offered() -> None:
    """A misspelt name: the error says that there is no such task, before a model is asked."""
    model = ScriptedProvider(["x"])
    async with AgentFlow(provider=model) as flow:
        with pytest.raises((ConfigurationError, TaskError), match="biling"):
            await flow.ask("x", handoffs=["biling"])
    assert not model.requests


async def test_an_exploration_calls_no_function_of_the_host() -> None:
    """``explore`` tries a program out without calling anything: neither tools nor the functions of a task run."""

    called: list[str] = []

    def noting(*_: Any) -> Any:
        called.append("a function of the host")
        return []

    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        _, billing = desk(flow)

        @flow.task(system=lambda ctx: noting(), check=lambda value, ctx: noting(), handoffs=[billing])
        async def front(question: str) -> str:
            """{{question}}"""

        @flow.task(tools=lambda ctx: noting())
        async def other(question: str) -> str:
            """{{question}}"""

        text = '(list (front (question "x")) (other (question "y")))'
        explored = await explore(text, flow=flow, runs=40)
    assert not explored.errors and not called
