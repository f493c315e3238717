"""An application and its tests, in one file: the test sets the model's answers, by task. You never need a key.

pytest examples/test_triage.py      (with pytest-asyncio)
"""

from typing import Literal

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, TaskError

# --- the application: its flow asks a real model, when it is not tested ---------------------------------------------

flow = AgentFlow("anthropic:claude-sonnet-5-5")
closed: list[int] = []


class Verdict(BaseModel):
    urgency: Literal["low", "high"]
    reason: str = ""


async def close_ticket(number: int) -> str:
    """Close a ticket that is spam."""
    closed.append(number)
    return "closed"


@flow.task(tools=[close_ticket], retries=1)
async def triage(number: int, text: str) -> Verdict:
    """Ticket {{number}} says: {{text}}

    Close it if it is spam. How urgent is it?
    """
    ...


# --- its tests -----------------------------------------------------------------------------------------------------


@pytest.fixture
def models(script, no_network):
    """What models answer in place of the flow's own."""
    closed.clear()
    with script.answers(flow):
        yield script


pytestmark = pytest.mark.asyncio
LOW, HIGH = '{"urgency": "low"}', '{"urgency": "high", "reason": "fire"}'


async def test_what_the_model_is_asked_and_what_comes_of_its_answer(models):
    models.on("triage", HIGH)
    assert await triage(7, "The server is on fire") == Verdict(urgency="high", reason="fire")
    assert models.prompt("triage").startswith("Ticket 7 says: The server is on fire")
    (request,) = models.requests("triage")
    assert [tool.name for tool in request.tools] == ["close_ticket"] and not closed


async def test_spam_is_closed(models):
    models.on("triage", {"tool_calls": [{"name": "close_ticket", "arguments": {"number": 7}}]}, LOW)
    assert (await triage(7, "Buy gold now")).urgency == "low"
    assert closed == [7]


async def test_a_failure_is_tried_again_once(models):
    models.on("triage", {"error": "overloaded"}, LOW)
    assert (await triage(7, "Hello")).urgency == "low"
    models.on("triage", {"error": "overloaded"}, {"error": "overloaded"})
    with pytest.raises(TaskError, match="overloaded"):
        await triage(7, "Hello again")


async def test_an_answer_that_does_not_fit_goes_back_to_the_model(models):
    models.on("triage", '{"urgency": "very"}', LOW)
    assert (await triage(7, "Hello")).urgency == "low"
    _, repair = models.requests("triage")
    assert "urgency" in repair.messages[-1].text
