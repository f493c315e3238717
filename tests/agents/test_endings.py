"""How a task ends: its answer is checked and repaired, a tool ends it, and the first turn may have to call a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel

from agentflow import (
    AgentFlow,
    CallContext,
    ConfigurationError,
    Finish,
    Limits,
    Retry,
    ScriptedProvider,
    Session,
    TaskResult,
    tool,
)
from agentflow.core.data.errors import InvalidOutput, ResourceExhausted, TaskError
from agentflow.core.data.messages import Message, TextPart, ToolResultPart


class Flight(BaseModel):
    """An answer of these tests."""

    number: str
    cents: int


def calling(*names: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls tools, each with the same arguments."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name in names]}


def last_text(request: Any) -> str:
    """The text of the last message of a request."""
    return "".join([part.text for part in request.messages[-1].parts if isinstance(part, TextPart | ToolResultPart)])


def said(messages: tuple[Message, ...]) -> list[str]:
    """The role and the kinds of parts of each message."""
    return [f"{each.role}: {', '.join(type(part).__name__ for part in each.parts)}" for each in messages]


# -- check ----------------------------------------------------------------------------------------------------------


async def test_a_check_has_the_model_repair_its_answer() -> None:
    """``check=f`` raises Retry: the model reads the reason in the same conversation, and its next answer is checked again."""
    model = ScriptedProvider(['{"number": "X1", "cents": 900}', '{"number": "X2", "cents": 100}'])

    def cheap(flight: Flight, ctx: CallContext[int]) -> Flight:
        if flight.cents > ctx.deps:
            raise Retry(f"{flight.number} costs more than {ctx.deps} cents")
        return flight

    async with AgentFlow(provider=model) as flow:

        @flow.task(check=cheap)
        async def book(to: str) -> Flight:
            """Find a flight to {{to}}."""

        result = await flow.run(book("Oslo"), deps=500)
    assert result.value == Flight(number="X2", cents=100)
    assert last_text(model.requests[1]) == "X1 costs more than 500 cents"
    assert len(model.requests[1].messages) == 3


async def test_a_check_may_change_the_value() -> None:
    """What the check returns is the value: of text, of a class, of built-in types; async checks too; it is validated again."""
    async with AgentFlow(provider=ScriptedProvider([" hello ", '{"number": "x1", "cents": 1}', "[3, 1]"])) as flow:

        async def strip(text: str, ctx: CallContext) -> str:
            return text.strip()

        def upper(flight: Flight, ctx: CallContext) -> Flight:
            return flight.model_copy(update={"number": flight.number.upper()})

        assert await flow.ask("x", check=strip) == "hello"
        assert await flow.ask("x", check=upper, output=Flight) == Flight(number="X1", cents=1)
        assert await flow.ask("x", check=lambda value, ctx: sorted(value), output=list[int]) == [1, 3]


@pytest.mark.parametrize(("rounds", "calls"), [(0, 1), (1, 2), (3, 4)])
async def test_rounds_bound_the_repairs_of_form_and_check_together(rounds: int, calls: int) -> None:
    """``rounds=`` (default 1) counts answers of a wrong type and refused ones together; then the task fails with the reason."""
    answers = ["no JSON", '{"number": "X", "cents": 9}'] * 3

    def never(flight: Flight, ctx: CallContext) -> Flight:
        raise Retry("too expensive")

    model = ScriptedProvider(answers)
    async with AgentFlow(provider=model) as flow:
        with pytest.raises(TaskError) as error:
            await flow.ask("x", output=Flight, check=never, rounds=rounds)
    assert len(model.requests) == calls
    if rounds:
        assert "too expensive" in str(error.value) and error.value.code == "tasks/check"
    else:
        assert isinstance(error.value, InvalidOutput)


async def test_a_forecast_counts_the_rounds() -> None:
    """The bound of a task's model calls has its rounds in it, so that a run that is bounded by it can repair."""
    async with AgentFlow(provider=ScriptedProvider(["x"])) as flow:

        @flow.task(check=lambda value, ctx: value, rounds=3)
        async def checked(a: str) -> str:
            """Do {{a}}."""

        assert str((await flow.bounds('(checked (a "x"))')).model_calls) == "4"
        assert (await flow.run(checked("x"))).value == "x"


async def test_the_conversation_keeps_the_whole_exchange() -> None:
    """A session has the refused answer, the reason and the accepted one, in turns that alternate."""
    session = Session()
    answers = iter(["no", "yes"])

    def is_yes(text: str, ctx: CallContext) -> str:
        if text != "yes":
            raise Retry("say yes")
        return text

    async with AgentFlow(provider=ScriptedProvider(lambda request: next(answers))) as flow:
        assert await flow.ask("?", check=is_yes, session=session) == "yes"
    roles = [message.role for turn in session.turns(None) for message in turn]
    assert roles == ["user", "assistant", "user", "assistant"]


async def test_a_resumed_run_checks_the_recorded_answer(tmp_path: Path) -> None:
    """In a durable run each answer is recorded before its check: a run that stopped in the check pays for no answer twice."""
    model = ScriptedProvider(["one", "two"])
    asked: list[str] = []

    async def ask_person(text: str, ctx: CallContext) -> str:
        asked.append(text)
        if not await ctx.ask_human(f"is '{text}' right?", {"type": "boolean"}):
            raise Retry("a person says no")
        return text

    def app() -> AgentFlow:
        flow = AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db")

        @flow.task(name="answer", check=ask_person)
        async def answer(question: str) -> str:
            """Answer {{question}}."""

        return flow

    async with app() as flow:
        await (await flow.start('(answer (question "?"))', run_id="r")).wait()
    for reply in (False, True):
        async with app() as flow:
            await flow.send("r", (await flow.questions("r"))[0].key, reply)
            run = await flow.resume("r")
            await run.wait()
    async with app() as flow:
        result = await flow.recorded_result("r")
    assert result is not None and result.value.content == "two"
    assert len(model.requests) == 2
    assert asked[0] == "one" and asked[-1] == "two"


# -- Retry of a tool ------------------------------------------------------------------------------------------------


async def test_a_tool_that_raises_retry_tells_the_model_what_to_change() -> None:
    """``raise Retry("...")`` in a tool: the model reads exactly that, marked as an error, and ``retries=`` does not repeat the call."""
    calls: list[str] = []

    @tool(retries=3)
    async def find(city: str) -> str:
        """Find a city."""
        calls.append(city)
        if city == "X":
            raise Retry("write the name of the city")
        return "found"

    model = ScriptedProvider([calling("find", city="X"), calling("find", city="Oslo"), last_text])
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("x", tools=[find]) == "found"
    assert last_text(model.requests[1]) == "write the name of the city"
    assert calls == ["X", "Oslo"]


# -- tools that end the task ----------------------------------------------------------------------------------------


async def book(number: str) -> str:
    """Book a flight."""
    raise Finish(f"booked {number}")


async def test_a_tool_ends_the_task_by_raising_finish() -> None:
    """``raise Finish(value)``: the value is the task's, the model is not asked again, and the turn is whole in the conversation."""
    session = Session()
    model = ScriptedProvider([calling("book", number="X1"), "and then?"])
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("Book X1", tools=[book], session=session) == "booked X1"
        assert len(model.requests) == 1
        await flow.ask("?", session=session)
    (first, _) = session.turns(None)
    assert said(first) == [
        "user: TextPart",
        "assistant: ToolCallPart",
        "user: ToolResultPart",
        "assistant: TextPart",
    ]


async def test_a_tool_that_is_declared_to_end_the_task_gives_its_value() -> None:
    """``@tool(ends=True)``: what it returns is the task's value, of the type that the task returns; a failure does not end it."""
    tries = iter([ValueError("try again"), Flight(number="X1", cents=5)])

    @tool(ends=True)
    async def choose(number: str) -> Flight:
        """Choose a flight."""
        value = next(tries)
        if isinstance(value, Exception):
            raise value
        return value

    model = ScriptedProvider([calling("choose", number="X1"), calling("choose", number="X1")])
    async with AgentFlow(provider=model) as flow:

        @flow.task(tools=[choose], tool_choice="required")
        async def pick(to: str) -> Flight:
            """A flight to {{to}}."""

        assert await pick("Oslo") == Flight(number="X1", cents=5)
    assert [request.tool_choice for request in model.requests] == ["required", "auto"]


async def test_the_other_calls_of_the_turn_end_first_and_the_first_ending_counts() -> None:
    """Of several endings in one answer the first in call order wins, and every call of that answer was carried out."""
    log: list[str] = []

    @tool(ends=True)
    async def one() -> str:
        """One."""
        log.append("one")
        return "one"

    async def note() -> str:
        """Note."""
        log.append("note")
        return "noted"

    @tool(ends=True)
    async def two() -> str:
        """Two."""
        log.append("two")
        return "two"

    async with AgentFlow(provider=ScriptedProvider([calling("note", "two", "one")])) as flow:
        assert await flow.ask("x", tools=[one, two, note]) == "two"
    assert sorted(log) == ["note", "one", "two"]


async def test_a_value_of_the_wrong_type_is_an_error_of_the_host() -> None:
    """A tool that ends a task with something else than the task returns is told so; the model cannot mend it."""
    async with AgentFlow(provider=ScriptedProvider([calling("book", number="X1")])) as flow:
        with pytest.raises(TaskError, match="which does not match the task's return type") as error:
            await flow.ask("x", tools=[book], output=Flight)
    assert error.value.code == "tasks/value"


async def test_an_ending_in_the_last_turn_still_ends_the_task() -> None:
    """Tools do not run when no turn is left to read their results; one that ends the task does."""

    @tool(ends=True)
    async def done() -> str:
        """Done."""
        return "done"

    async with AgentFlow(provider=ScriptedProvider(lambda request: calling("done"))) as flow:
        assert await flow.ask("x", tools=[done], max_turns=1) == "done"


async def test_plain_functions_end_and_retry_as_async_ones_do() -> None:
    """A tool that is not async, which runs on a thread, raises ``Retry`` and ``Finish`` as any other."""
    tries = iter([Retry("say a number"), Finish("7")])

    def guess(word: str) -> str:
        """Guess."""
        raise next(tries)

    model = ScriptedProvider([calling("guess", word="x"), calling("guess", word="7")])
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("x", tools=[guess]) == "7"
    assert last_text(model.requests[1]) == "say a number"


async def test_programs_and_host_code_get_the_value() -> None:
    """For a program, or a workflow that calls the tool itself, Finish is the result of the call: no task ends."""
    async with AgentFlow(tools=[book]) as flow:
        assert (await flow.run('(content (book (number "X")))')).value == "booked X"

        @flow.workflow
        async def direct() -> str:
            return await flow.call_tool("book", number="Y")

        assert await direct() == "booked Y"


async def test_an_ending_is_replayed_from_its_record(tmp_path: Path) -> None:
    """A durable run that was stopped after the tool had ended the task ends with the recorded value; the tool runs once."""
    runs: list[str] = []

    @tool(ends=True)
    async def pay(cents: int) -> dict[str, int]:
        """Pay."""
        runs.append("pay")
        return {"paid": cents}

    def app() -> AgentFlow:
        flow = AgentFlow(provider=ScriptedProvider([calling("pay", cents=5)]), durable=f"sqlite:///{tmp_path}/runs.db")

        @flow.task(name="buy", tools=[pay])
        async def buy(what: str) -> dict[str, int]:
            """Buy {{what}}."""

        return flow

    program = '(list (buy (what "x")) (ask-human "on?"))'
    async with app() as flow:
        await (await flow.start(program, run_id="r")).wait()
    async with app() as flow:
        await flow.send("r", (await flow.questions("r"))[0].key, 1)
        result = (await (await flow.resume("r")).result()).value
    assert result[0].parsed_content == {"paid": 5} and runs == ["pay"]


# -- tool_choice ----------------------------------------------------------------------------------------------------


async def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


@pytest.mark.parametrize(
    ("options", "choices"),
    [
        ({}, ["auto", "auto", "auto"]),
        ({"tool_choice": "required"}, ["required", "auto", "auto"]),
        ({"tool_choice": "note"}, ["note", "auto", "auto"]),
        ({"tool_choice": "none"}, ["none", "none", "none"]),
        ({"tool_choice": "required", "tool_choice_each": True}, ["required"] * 3),
    ],
)
async def test_the_first_turn_must_call_a_tool_and_later_turns_are_free(
    options: dict[str, Any], choices: list[str]
) -> None:
    """``tool_choice`` holds for the first turn, so that the task ends, or for each one with ``tool_choice_each``."""
    model = ScriptedProvider([calling("note", text="a"), calling("note", text="b"), "done"])
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("x", tools=[note], **cast(Any, options)) == "done"
    assert [request.tool_choice for request in model.requests] == choices


# -- the wrong ones that a user tries first -------------------------------------------------------------------------


async def test_a_check_that_forgets_to_return_the_value_is_told() -> None:
    """A check without ``return`` would make every answer None: the error says what to write."""
    async with AgentFlow(provider=ScriptedProvider(["yes"])) as flow:
        with pytest.raises(TaskError, match="returned nothing") as error:
            await flow.ask("x", check=lambda value, ctx: None)
    assert error.value.code == "python/check"


async def test_a_check_of_one_parameter_is_told_when_it_is_declared() -> None:
    """``check=lambda value: value``: an error at the declaration, with the form that works."""
    async with AgentFlow() as flow:
        with pytest.raises(ConfigurationError, match="check") as error:
            flow.task(check=cast(Any, lambda value: value))(_task)
        assert "def check(value: Review, ctx: CallContext)" in (error.value.hint or "")


async def _task(a: str) -> str:
    """Do {{a}}."""


async def test_an_exception_of_a_check_fails_the_task_as_it_is() -> None:
    """A fault in the check is no reason to ask the model again: the task fails with it."""
    model = ScriptedProvider(["yes", "no"])

    def broken(value: str, ctx: CallContext) -> str:
        raise KeyError("bug")

    async with AgentFlow(provider=model) as flow:
        with pytest.raises(TaskError, match="KeyError"):
            await flow.ask("x", check=broken)
    assert len(model.requests) == 1


@pytest.mark.parametrize("literal", [Literal["a", "b"], str | None])
async def test_a_check_of_other_output_types_gets_the_typed_value(literal: Any) -> None:
    """The value is that of the annotation, of literals and unions too."""
    seen: list[Any] = []

    def keep(value: Any, ctx: CallContext) -> Any:
        seen.append(value)
        return value

    async with AgentFlow(provider=ScriptedProvider(['"a"'])) as flow:
        assert await flow.ask("x", output=literal, check=keep) == "a"
    assert seen == ["a"]


async def test_a_whole_result_has_the_checked_text() -> None:
    """A task that returns TaskResult: the check sees its text, and a refused one is a FAILED result that says why."""

    def no(value: str, ctx: CallContext) -> str:
        raise Retry("never")

    async with AgentFlow(provider=ScriptedProvider(["a", "b"])) as flow:

        @flow.task(check=no)
        async def whole(a: str) -> TaskResult:
            """Do {{a}}."""

        result = await whole("x")
    assert result.failed and "never" in result.content


async def test_the_turns_of_a_task_bound_its_rounds() -> None:
    """``max_turns`` and the run's turns bound the repairs too: a check cannot make a task go on for ever."""

    def no(value: str, ctx: CallContext) -> str:
        raise Retry("never")

    model = ScriptedProvider(lambda request: "x")
    async with AgentFlow(provider=model, limits=Limits(turns=3)) as flow:
        with pytest.raises((TaskError, ResourceExhausted)):
            await flow.ask("x", check=no, rounds=20)
    assert len(model.requests) == 3


@pytest.mark.parametrize("rounds", [-1, 21, 1.5, True, "2"])
async def test_rounds_are_a_whole_number_from_0_to_20(rounds: Any) -> None:
    """Another value is told when the task is declared."""
    async with AgentFlow() as flow:
        with pytest.raises(ConfigurationError, match="rounds=") as error:
            flow.ask("x", rounds=rounds)
    assert error.value.code == "config/option"
