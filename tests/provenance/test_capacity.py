"""Answers that can tell hardly anything come from nowhere, where the policy says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, ConfigurationError, Provenance, ScriptedProvider, Sink

RULES = [Sink("send", "*", allow=["user"])]
CHOICE = '(defatom pick (params (page string)) (instructions "{{page}}") (tools) (output_format (type "json") (schema %s)))\n'
SEND = "(define page (value-of (fetch)))\n(send (what (value-of (pick (page page)))))"
BOOLEAN = '"boolean"'
LIST = '{"enum" ("sales" "support" "nobody")}'
FIELDS = '{"type" "object" "properties" {"ok" {"type" "boolean"} "why" {"enum" ("old" "new")}} "required" ("ok" "why") "additionalProperties" false}'


async def run(program: str, answer: Any, **policy: Any) -> tuple[list[Any], AgentflowError | None]:
    """What a program sends, with a model that says ``answer``, and the error that ended it."""
    sent: list[Any] = []

    async def fetch() -> str:
        """Read a page."""
        return "say true"

    async def send(what: object) -> str:
        """Send something."""
        sent.append(what)
        return "sent"

    text = answer if isinstance(answer, str) else json.dumps(answer)
    settings = Provenance(rules=RULES, sources={"fetch": "web"}, **policy)
    async with AgentFlow(provider=ScriptedProvider(lambda _: text), tools=[fetch, send], provenance=settings) as flow:
        try:
            await flow.run(program)
        except AgentflowError as error:
            return sent, error
    return sent, None


@pytest.mark.parametrize(
    ("schema", "answer"),
    [(BOOLEAN, True), (LIST, '"support"'), (FIELDS, {"why": "old", "ok": True})],
    ids=["boolean", "list", "fields"],
)
async def test_a_small_answer_passes(schema: str, answer: Any) -> None:
    """A yes or no, a choice from a list, a few of them: with a capacity that is large enough they reach what only the user may fill."""
    sent, error = await run(CHOICE % schema + SEND, answer, capacity="enum")
    assert error is None and sent == [json.loads(answer) if isinstance(answer, str) else answer]
    for capacity in (None, 0, 1):
        sent, error = await run(CHOICE % schema + SEND, answer, capacity=capacity)
        assert sent == [] and error is not None and error.code == "provenance/denied"


@pytest.mark.parametrize("schema", ['"string"', '"integer"', '"boolean[]"', '{"x" "boolean"}'])
async def test_an_answer_that_may_say_more_does_not(schema: str) -> None:
    """Texts, numbers, lists without a bound and the like keep their sources, whatever they happen to be."""
    answer = {"string": '"x"', "integer": "1", "boolean[]": "[true]"}.get(
        json.loads(schema) if schema[0] == '"' else "", '{"x": true}'
    )
    sent, error = await run(CHOICE % schema + SEND, answer, capacity="enum")
    if schema[0] == "{" and error is None:
        assert sent == [{"x": True}]  # an object that may have no further fields
    else:
        assert sent == [] and error is not None and error.code == "provenance/denied"


async def test_nothing_is_told_beside_the_answer() -> None:
    """The order of fields, the text and the notes of an answer would tell more than its values: they are those of the values."""
    program = (
        CHOICE % FIELDS
        + "(define r (pick (page (value-of (fetch)))))\n(send (what (list (content r) (get-field r 'parsedContent))))"
    )
    answers = ['{"why": "old",   "ok": true}', '{"ok": true, "why": "old"}']
    first, second = [await run(program, answer, capacity=4) for answer in answers]
    assert first == second and first[1] is None and json.dumps(first[0]) == json.dumps(second[0])


async def test_a_failed_answer_keeps_its_sources() -> None:
    """What a model says instead of one of the values has its sources, as its error has."""
    program = CHOICE % BOOLEAN + "(send (what (content (pick (page (value-of (fetch)))))))"
    sent, error = await run(program, "I will not", capacity="enum")
    assert sent == [] and error is not None and error.code == "provenance/denied"


async def test_a_small_answer_is_not_for_everybody() -> None:
    """Where not everybody may see a source, an answer about it may not be seen by more, however small: one bit can be the secret."""
    policy: dict[str, Any] = {"capacity": "enum", "readers": {"web": ["nobody"]}}
    sent, error = await run(CHOICE % BOOLEAN + SEND, True, **policy)
    assert sent == [] and error is not None and error.code == "provenance/readers"


def test_capacities_are_numbers() -> None:
    """A capacity is a number of values or ``enum``, in code and in a file; of several policies the least holds."""
    assert Provenance(capacity="enum").most_values == 64 and Provenance().most_values == 0
    assert Provenance.from_table({"capacity": "enum"}) == Provenance(capacity=64)
    assert Provenance(capacity=64).narrowed(Provenance(capacity=2)).most_values == 2
    assert Provenance(capacity=64).narrowed(Provenance()).most_values == 64
    assert Provenance().narrowed(Provenance(capacity=64)).most_values == 0
    for wrong in (-1, True, "all", 1.5):
        with pytest.raises(ConfigurationError) as caught:
            Provenance(capacity=wrong)  # pyright: ignore[reportArgumentType]
        assert caught.value.code == "provenance/policy"
