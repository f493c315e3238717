"""What stands beside a type in a text in Python: a description or a length, of answers, fields and parameters."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.source import Source

TASK = '''@task
def review(path: {parameter}) -> {answer}:
    """Review {{{{path}}}}."""
review("a")'''


async def ran(parameter: str = "str", answer: str = "str", before: str = "") -> tuple[AgentFlow, ScriptedProvider]:
    """A flow that has run a text with this task."""
    model = ScriptedProvider(["[]"])
    flow = AgentFlow(provider=model)
    async with flow:
        await flow.run(Source("t", before + TASK.format(parameter=parameter, answer=answer), "python"))
    return flow, model


@pytest.mark.parametrize("said", ['"all of them"', 'Doc("all of them")', 'Field(description="all of them")'])
async def test_a_description_beside_the_type_of_an_answer_reaches_the_model(said: str) -> None:
    """As a text, as ``Doc``, as a ``Field``; a length beside it counts too."""
    _, model = await ran(answer=f"Annotated[list[str], {said}, MaxLen(3)]")
    schema = model.requests[0].output_schema
    assert schema == {"type": "array", "items": {"type": "string"}, "description": "all of them", "maxItems": 3}


async def test_a_description_of_a_field_reaches_the_model() -> None:
    """Of a class that a text declares."""
    _, model = await ran(answer="list[Row]", before='class Row:\n    grade: Annotated[int, "from 1 to 5"]\n')
    assert model.requests[0].output_schema["items"]["properties"] == {  # type: ignore[index]
        "grade": {"type": "integer", "description": "from 1 to 5"}
    }


async def test_a_parameter_keeps_its_description_and_its_bounds() -> None:
    """A model that may call the task reads them, and a value beyond the bounds is refused."""
    text = '''@task
def inner(path: Annotated[str, Field(description="below src", max_length=3)]) -> str:
    """Read {{path}}."""
@task(tools=["inner"])
def outer() -> str:
    """Use it."""
outer()'''
    call = {"tool_calls": [{"name": "inner", "arguments": {"path": "too long"}}]}
    model = ScriptedProvider([call, "done"])
    async with AgentFlow(provider=model) as flow:
        assert (await flow.run(Source("t", text, "python"))).value == "done"
    (spec,) = model.requests[0].tools
    assert spec.input_schema["properties"]["path"] == {"type": "string", "description": "below src", "maxLength": 3}
    assert "path" in str(model.requests[1].messages[-1].parts[0])


@pytest.mark.parametrize(
    "wrong", ["Annotated[str, 3]", "Annotated[str, Field(ge=2)]", "Annotated[int, MaxLen(2)]", "Annotated[str, Doc(3)]"]
)
@pytest.mark.parametrize("where", ["parameter", "answer"])
async def test_what_would_be_lost_is_refused(wrong: str, where: str) -> None:
    """Anything else beside a type is an error, and not dropped."""
    arguments: dict[str, Any] = {where: wrong}
    with pytest.raises(SexpEvaluationError) as refused:
        await ran(**arguments)
    assert refused.value.code == "python/annotation"
