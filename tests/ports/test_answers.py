"""Ports of examples about answers: their types, what is sent to enforce them, checks, repairs, and the conversation they leave."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from agentflow import AgentFlow, CallContext, ConfigurationError, Limits, Retry, Session
from agentflow.errors import TaskError
from agentflow.media import Message, TextPart
from agentflow.testing import Script
from tests.ports.replies import calls, told
from tests.support.model_server import ModelServer

# -- types of answers -----------------------------------------------------------------------------------------------


class Incident(BaseModel):
    """An answer with a field called ``type``, and one called ``properties``."""

    type: Literal["fire", "flood"]
    properties: list[str] = []


async def test_an_answer_with_a_field_named_type(flow: AgentFlow, script: Script) -> None:
    """Claude cookbook, extraction with a schema that has a field ``type``: it is a field, whatever JSON Schema means by the word."""

    @flow.task
    async def classify(report: str) -> Incident:
        """Classify: {{report}}"""

    script.on("classify", '{"type": "fire", "properties": ["a barn"]}')
    assert await classify("The barn burns.") == Incident(type="fire", properties=["a barn"])
    schema = script.requests("classify")[0].output_schema or {}
    assert set(schema["properties"]) == {"type", "properties"}


class Flight(BaseModel):
    """The most suitable flight."""

    number: str
    price: int
    origin: str = Field(description="Three-letter airport code")
    day: date


class NoFlight(BaseModel):
    """When there is no flight that fits."""


@dataclass
class Wish:
    """The dependencies of the booking: what the traveller wants, and the page to look at."""

    origin: str
    day: date
    page: str


def fits(answer: Flight | NoFlight, ctx: CallContext[Wish]) -> Flight | NoFlight:
    """The traveller's wishes hold, or the model is told what is wrong."""
    if isinstance(answer, NoFlight):
        return answer
    wrong = [
        f"the {name} should be {wanted}, not {is_now}"
        for name, wanted, is_now in (
            ("origin", ctx.deps.origin, answer.origin),
            ("day", ctx.deps.day, answer.day),
        )
        if wanted != is_now
    ]
    if wrong:
        raise Retry("; ".join(wrong))
    return answer


class Seat(BaseModel):
    """A seat on the plane."""

    row: int = Field(ge=1, le=30)
    letter: Literal["A", "B", "C", "D", "E", "F"]


class NoSeat(BaseModel):
    """When the traveller named no seat."""


def flight(number: str, origin: str = "SFO", price: int = 350) -> str:
    """A flight as JSON, as a model would give it."""
    return Flight(number=number, price=price, origin=origin, day=date(2025, 1, 10)).model_dump_json()


async def test_booking_a_flight(script: Script) -> None:
    """Pydantic AI, flight_booking.py: an agent searches by another agent, its union answer is checked against the wishes, the traveller
    wants another one, a third agent reads the seat, and one budget holds for all of them."""
    people = iter(["search", "buy", "somewhere", "14A"])
    flow = AgentFlow(answer=lambda question: next(people))

    @flow.task(system="Extract all flights from the text.")
    async def extract(page: str) -> list[Flight]:
        """{{page}}"""

    async def extract_flights(ctx: CallContext[Wish]) -> list[Flight]:
        """Get the details of all flights."""
        return await extract(ctx.deps.page)

    @flow.task(system="Find the cheapest flight.", tools=[extract_flights], check=fits, rounds=4, history=True)
    async def search(request: str) -> Flight | NoFlight:
        """{{request}}"""

    @flow.task(system="Extract the seat. Rows 14 and 20 have leg room.", history=True)
    async def seat_of(answer: str) -> Seat | NoSeat:
        """{{answer}}"""

    @flow.workflow
    async def book() -> tuple[Flight, Seat]:
        wish = flow.deps(Wish)
        found = await search(f"A flight from {wish.origin} on {wish.day}")
        while isinstance(found, Flight) and await flow.ask_human(f"Buy {found.number}?", str) != "buy":
            found = await search("Please suggest another flight.")
        seat: Seat | NoSeat = NoSeat()
        while not isinstance(seat, Seat):
            seat = await seat_of(await flow.ask_human("Which seat?", str))
        assert isinstance(found, Flight)
        return found, seat

    script.on(
        "search",
        calls("extract_flights"),
        flight("AK123", origin="JNU").replace("{", '{"kind": "Flight", ', 1),
        flight("AK123").replace("{", '{"kind": "Flight", ', 1),
        flight("AK456", price=370).replace("{", '{"kind": "Flight", ', 1),
    )
    script.on("extract", f"[{flight('AK123')}, {flight('AK456', price=370)}]")
    script.on("seat_of", '{"kind": "NoSeat"}', '{"kind": "Seat", "row": 14, "letter": "A"}')
    wish = Wish("SFO", date(2025, 1, 10), "1. Flight AK123 ...")
    with script.answers(flow):
        result = await flow.run(book(), deps=wish, limits=Limits(model_calls=15))
    found, seat = result.value
    assert found.number == "AK456" and seat == Seat(row=14, letter="A")
    assert result.usage.requests == 7
    refused = script.requests("search")[2].messages[-1].text
    assert refused == "the origin should be SFO, not JNU"


@pytest.mark.parametrize("half", ['{"kind": "Flight", "number": "AK123"}', '{"number": "AK123"}', "{}"])
async def test_half_a_member_of_a_union(flow: AgentFlow, script: Script, half: str) -> None:
    """Pydantic AI, ``output_type=[Flight, NoFlight]``: an answer that is half a flight is repaired, and never the empty other class."""
    script.on("ask", half, flight("AK1").replace("{", '{"kind": "Flight", ', 1))
    answer: Flight | NoFlight = await flow.ask("A flight?", output=Flight | NoFlight)  # type: ignore[arg-type]
    assert isinstance(answer, Flight)


class Lead(BaseModel):
    """An answer with fields that may be missing."""

    name: str
    company: str | None = None
    score: Annotated[int, Field(ge=0, le=10)] = 0


async def test_an_answer_that_the_vendor_enforces() -> None:
    """OpenAI, structured outputs of a pydantic class, as all frameworks send them: strict, closed, and optional fields nullable."""
    async with ModelServer(['{"name": "Ada", "company": null, "score": 1}']) as server:
        async with AgentFlow("openai:gpt-5", base_url=server.url, api_key="k") as flow:
            assert await flow.ask("Who writes?", output=Lead) == Lead(name="Ada", score=1)
    form = server.requests[0].body["text"]["format"]
    assert form["strict"] is True and form["schema"]["additionalProperties"] is False
    assert form["schema"]["required"] == ["name", "company", "score"]
    assert {"type": "null"} in form["schema"]["properties"]["company"]["anyOf"]


# -- checks and repairs ---------------------------------------------------------------------------------------------


class Success(BaseModel):
    """A query that answers the request."""

    query: Annotated[str, Field(min_length=1)]
    explanation: str = ""


class InvalidRequest(BaseModel):
    """When the request does not say enough."""

    message: str


async def test_sql_that_is_checked_by_the_database(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, sql_gen.py: the answer is checked by EXPLAIN in the database of the run, what it says goes back to the model, the check
    mends what it can by itself, and a request that says too little is another answer."""

    def explained(answer: Success | InvalidRequest, ctx: CallContext[sqlite3.Connection]) -> Success | InvalidRequest:
        if isinstance(answer, InvalidRequest):
            return answer
        query = answer.query.replace("\\", "")
        if not query.upper().startswith("SELECT"):
            raise Retry("Write a SELECT query")
        try:
            ctx.deps.execute(f"EXPLAIN {query}")
        except sqlite3.Error as error:
            raise Retry(f"Invalid query: {error}") from error
        return answer.model_copy(update={"query": query})

    @flow.task(system=f"Write SQL for the table records. Today is {date(2025, 1, 2)}.", check=explained, rounds=3)
    async def sql(request: str) -> Success | InvalidRequest:
        """{{request}}"""

    def success(query: str) -> str:
        return f'{{"kind": "Success", "query": "{query}"}}'

    script.on(
        "sql",
        success("DELETE FROM records"),
        success("SELECT * FROM recordz"),
        success("SELECT level FROM records WHERE level = \\\\'error\\\\'"),
        '{"kind": "InvalidRequest", "message": "which logs?"}',
    )
    with sqlite3.connect(":memory:", check_same_thread=False) as database:
        database.execute("CREATE TABLE records (level TEXT)")
        answer = (await flow.run(sql("errors of yesterday"), deps=database)).value
        unclear = (await flow.run(sql("logs"), deps=database)).value
    assert answer == Success(query="SELECT level FROM records WHERE level = 'error'")
    assert unclear == InvalidRequest(message="which logs?")
    told_why = [request.messages[-1].text for request in script.requests("sql")[1:3]]
    assert told_why == ["Write a SELECT query", "Invalid query: no such table: recordz"]


@pytest.mark.parametrize("rounds", [0, 2])
async def test_how_often_an_answer_is_repaired(flow: AgentFlow, script: Script, rounds: int) -> None:
    """Pydantic AI, ``retries={'output': 2}``: an answer of the wrong type goes back so often, with what is wrong, and then the task fails."""

    @flow.task(rounds=rounds)
    async def lead(mail: str) -> Lead:
        """Who writes? {{mail}}"""

    script.on("lead", *['{"name": "Ada", "score": 11}'] * 3)
    with pytest.raises(TaskError):
        await lead("Hello!")
    assert len(script.requests("lead")) == 1 + rounds
    if rounds:
        assert "score" in script.requests("lead")[1].messages[-1].text


# -- an agent that answers by another -------------------------------------------------------------------------------


class Diagnosis(BaseModel):
    """What a specialist gives."""

    specialist: str
    advice: str


async def test_a_tool_that_picks_and_runs_a_specialist(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, medical delegation: a tool picks a specialist by name and runs it, whose typed answer the first agent reads."""

    @flow.task(system="You are a cardiologist.")
    async def cardiology(case: str) -> Diagnosis:
        """{{case}}"""

    @flow.task(system="You are a neurologist.")
    async def neurology(case: str) -> Diagnosis:
        """{{case}}"""

    specialists = {"cardiology": cardiology, "neurology": neurology}

    async def consult(specialty: Literal["cardiology", "neurology"], case: str) -> Diagnosis:
        """Consult a specialist."""
        return await specialists[specialty](case)

    @flow.task(tools=[consult])
    async def triage(complaint: str) -> Diagnosis:
        """{{complaint}}"""

    script.on("triage", calls("consult", specialty="neurology", case="headache"), told)
    script.on("neurology", '{"specialist": "neurology", "advice": "sleep"}')
    assert await triage("My head hurts.") == Diagnosis(specialist="neurology", advice="sleep")


# -- the prompt and the conversation --------------------------------------------------------------------------------


async def test_instructions_are_told_to_be_the_system_prompt(flow: AgentFlow, script: Script) -> None:
    """Every framework's ``Agent(instructions=...)``, written by habit: the word is refused with the one to write, and eats no prompt."""
    with pytest.raises(ConfigurationError, match="instructions") as error:
        flow.ask("What is new?", instructions="You are brief.")  # type: ignore[call-arg]
    assert "system" in (error.value.hint or "")
    with pytest.raises(ConfigurationError, match="instructions"):

        @flow.task(instructions="You are brief.")  # type: ignore[call-arg]
        async def brief(question: str) -> str:
            """{{question}}"""

    script.on("ask", "nothing")
    assert await flow.ask("What is new?", system="You are brief.") == "nothing"
    assert (script.prompt("ask"), script.requests("ask")[0].system) == ("What is new?", "You are brief.")


async def test_the_history_of_structured_answers_has_no_schema_text(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, ``result.all_messages()`` of an agent with a structured answer: the user said the prompt, and no schema."""
    session = Session()
    script.on("ask", '{"name": "Ada"}', "Ada, as you said.")
    lead = await flow.ask("Who writes?", output=Lead, session=session)
    assert await flow.ask("Who was it?", session=session) == f"{lead.name}, as you said."
    said = [message.text for message in script.requests("ask")[1].messages]
    assert said == ["Who writes?", '{"name": "Ada"}', "Who was it?"]


async def test_a_conversation_that_was_built_by_hand_goes_in(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, ``message_history=[ModelRequest(...), ModelResponse(...)]``: messages from elsewhere are the history of an agent."""
    session = Session()
    session.commit((Message("user", (TextPart("I am Ada."),)), Message("assistant", (TextPart("Hello, Ada."),))))
    script.on("ask", "You are Ada.")
    assert await flow.ask("Who am I?", session=session) == "You are Ada."
    assert [(each.role, each.text) for each in script.requests("ask")[0].messages] == [
        ("user", "I am Ada."),
        ("assistant", "Hello, Ada."),
        ("user", "Who am I?"),
    ]


async def test_the_last_turn_is_taken_back_and_items_are_added(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, sessions, ``pop_item``: the user corrects the last question, and the conversation goes on as if it had never been
    asked."""
    session = Session()
    script.on("ask", "Hello.", "4", "6", "We had 6.")
    await flow.ask("I am Ada.", session=session)
    before = session.fork()
    await flow.ask("What is 2 + 2?", session=session)
    await flow.ask("What is 3 + 3?", session=before)
    await flow.ask("What had we?", session=before)
    said = [message.text for message in script.requests("ask")[3].messages]
    assert said == ["I am Ada.", "Hello.", "What is 3 + 3?", "6", "What had we?"]
    *kept, last = session.turns()
    session.reset()
    for turn in kept:
        session.commit(turn)
    assert last[0].text == "What is 2 + 2?" and [each.text for each in session.messages] == ["I am Ada.", "Hello."]


async def test_two_messages_at_once_in_one_conversation(flow: AgentFlow, script: Script) -> None:
    """LangGraph, double texting: a user sends a second message while the first is answered; both are answered, each exchange is whole, and
    the third message reads both."""

    @flow.task(history=True)
    async def chat(message: str) -> str:
        """{{message}}"""

    session = Session()
    script.on("chat", lambda request: f"answer to {request.messages[-1].text}")
    await asyncio.gather(*[flow.run(chat(text), session=session) for text in ("one", "two")])
    await flow.run(chat("three"), session=session)
    said = [message.text for message in script.requests("chat")[-1].messages]
    assert sorted([said[:2], said[2:4]]) == [["one", "answer to one"], ["two", "answer to two"]] and said[4] == "three"


async def test_agents_of_one_run_do_not_read_each_other(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agents that are run one after the other: each sees its own input, until a session is shared on purpose."""

    @flow.task
    async def outline(subject: str) -> str:
        """Outline {{subject}}."""

    @flow.task
    async def judge(text: str) -> str:
        """Judge {{text}}."""

    @flow.workflow
    async def story() -> str:
        return await judge(await outline("a cat"))

    script.on("outline", "a cat that flies")
    script.on("judge", "good")
    assert await story() == "good"
    assert [message.text for message in script.requests("judge")[0].messages] == ["Judge a cat that flies."]
