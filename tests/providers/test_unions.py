"""Which member of a union an answer is, and in what form schemas are sent: closed and strict, whatever the dialect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import AgentflowError, WorkflowError
from agentflow.core.events.events import PartialOutput
from agentflow.lib.schema.json_schema import check
from agentflow.lib.schema.tagged_unions import UnionMissed, tagged_unions
from agentflow.providers.dialects.schema_translation import translated
from tests.support.model_server import ModelServer

DIALECTS = ("anthropic", "openai-chat", "openai")


class Bug(BaseModel):
    path: str
    line: int
    note: str | None = None


class Clean(BaseModel):
    reason: str = "nothing found"


class Yes(BaseModel):
    why: str


@dataclass
class No:
    why: str


class Report(BaseModel):
    title: str
    found: list[Bug | Clean] = []
    verdict: Yes | No | None = None


class Cat(BaseModel):
    type: Literal["cat"] = "cat"
    name: str = ""


class Dog(BaseModel):
    type: Literal["dog"] = "dog"
    name: str = ""


class Typed(BaseModel):
    """A field called as a keyword of schemas is."""

    type: str
    kind: str
    properties: list[str] = []


def schema_sent(dialect: str, body: dict[str, Any]) -> dict[str, Any]:
    """The format of the answer in a request."""
    if dialect == "anthropic":
        return {"schema": body["output_config"]["format"]["schema"], "strict": True}
    return body["text"]["format"] if dialect == "openai" else body["response_format"]["json_schema"]


def objects(schema: Any) -> list[dict[str, Any]]:
    """All schemas of objects within one."""
    if isinstance(schema, list):
        return [inner for each in schema for inner in objects(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [inner for each in schema.values() for inner in objects(each)]


async def asked(dialect: str, replies: Sequence[Any], kind: Any) -> tuple[Any, list[dict[str, Any]]]:
    """What ``flow.ask`` gives for a type, or its error, and the requests that it made."""
    async with ModelServer([json.dumps(each) for each in replies]) as server:
        async with AgentFlow(f"{dialect}:m", base_url=server.url, api_key="k") as flow:
            try:
                value: Any = await flow.ask("Well?", output=kind)
            except AgentflowError as error:
                value = error
        return value, [request.body for request in server.requests]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_half_an_answer_is_no_other_member(dialect: str) -> None:
    """An incomplete ``Bug`` goes back to the model, and is no ``Clean``, whose fields all have defaults; with a tag or without."""
    for half in ({"kind": "Bug", "path": "a.py"}, {"path": "a.py"}, {}):
        value, bodies = await asked(dialect, [{"value": half}, {"value": half}], Bug | Clean)
        assert isinstance(value, AgentflowError) and len(bodies) == 2, value
    value, bodies = await asked(
        dialect,
        [{"value": {"kind": "Bug", "path": "a"}}, {"value": {"kind": "Bug", "path": "a", "line": 3}}],
        Bug | Clean,
    )
    assert value == Bug(path="a", line=3) and "line" in json.dumps(bodies[1])
    (format_,) = [schema_sent(dialect, bodies[0])["schema"]]
    tags = [each["properties"]["kind"] for each in objects(format_) if "kind" in each["properties"]]
    assert [each["const"] for each in tags] == ["Bug", "Clean"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_classes_with_the_same_fields_are_told_apart(dialect: str) -> None:
    """The tag says which was meant, at the root, in lists and in fields; it is in no value."""
    assert (await asked(dialect, [{"value": {"kind": "No", "why": "x"}}], Yes | No))[0] == No("x")
    assert (await asked(dialect, [{"value": {"kind": "Yes", "why": "x"}}], Yes | No))[0] == Yes(why="x")
    assert (await asked(dialect, [{"value": None}], Yes | No | None))[0] is None
    listed = [{"kind": "No", "why": "x"}, {"kind": "Yes", "why": "y"}]
    assert (await asked(dialect, [{"value": listed}], list[Yes | No]))[0] == [No("x"), Yes(why="y")]
    data = {"title": "t", "found": [{"kind": "Clean", "reason": ""}], "verdict": {"kind": "No", "why": "x"}}
    value, _ = await asked(dialect, [data], Report)
    assert value == Report(title="t", found=[Clean(reason="")], verdict=No("x"))
    wrong = {"title": "t", "found": [{"kind": "Bug", "path": "a.py"}]}
    value, bodies = await asked(dialect, [wrong, wrong], Report)
    assert isinstance(value, AgentflowError) and "found[0].line" in json.dumps(bodies[1])


async def test_a_discriminator_that_is_there_is_used() -> None:
    """A field with another constant in each class is the tag, and becomes required; a declared discriminator stays."""
    unions = tagged_unions(Cat | Dog)
    assert unions is not None and '"kind"' not in json.dumps(unions.schema)
    assert all("type" in each["required"] for each in unions.schema["$defs"].values())
    assert unions.validate_python({"type": "dog", "name": "x"}) == Dog(name="x")
    with pytest.raises(UnionMissed, match="'cat', 'dog'"):
        unions.validate_python({"name": "x"})
    assert tagged_unions(Annotated[Cat | Dog, Field(discriminator="type")]) is None
    assert tagged_unions(Bug | None) is None and tagged_unions(list[Bug]) is None and tagged_unions(str | int) is None


@pytest.mark.parametrize("kind", [Bug | Clean, Yes | No | None, list[Bug | Clean], dict[str, Yes | No], Report])
def test_what_is_written_reads_as_it_was(kind: Any) -> None:
    """The JSON data of a value meets the tagged schema, and gives an equal value."""
    values: list[Any] = {
        "Bug | Clean": [Bug(path="a", line=1), Clean()],
        "Yes | No | None": [Yes(why=""), No(""), None],
        "list": [[], [Clean(), Bug(path="a", line=1, note="n")]],
        "dict": [{"a": No("x"), "b": Yes(why="x")}],
        "Report": [Report(title="t"), Report(title="t", found=[Clean()], verdict=No("x"))],
    }[next(each for each in ("Bug | Clean", "Yes | No | None", "list", "dict", "Report") if each in str(kind).replace(f"{__name__}.", "")
           and not (each.startswith("Bug") and "list" in str(kind)))]  # fmt: skip
    unions = tagged_unions(kind)
    assert unions is not None
    for value in values:
        data = unions.dump_python(value, mode="json", by_alias=True, warnings=False)
        assert check(data, unions.schema) == [] and unions.validate_python(json.loads(json.dumps(data))) == value
        assert "kind" not in unions.untagged(value)


async def test_a_union_streams_as_the_member_it_says(tmp_path: Any) -> None:
    """Once the tag has come, partial values are of that member; content has no tag, nor has what a program gets."""
    seen: list[Any] = []
    reply = '{"value": {"kind": "Clean", "reason": "nothing at all"}}'
    async with ModelServer([reply, reply]) as server:
        async with AgentFlow("openai:m", base_url=server.url, api_key="k") as flow:
            flow.subscribe(lambda event: seen.append(event.value) if isinstance(event, PartialOutput) else None)

            @flow.task
            async def judge(path: str) -> Bug | Clean:
                """Judge {{path}}."""

            assert await judge("a") == Clean(reason="nothing at all")
            result = (await flow.run('(judge (path "a"))')).value
    assert json.loads(result.content) == {"reason": "nothing at all"}
    assert seen and all("Clean" in type(each).__name__ for each in seen)


# -- strict mode ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", [Bug, Report, Typed, list[Bug], Literal["a", "b"], Bug | Clean])
async def test_the_schema_of_a_class_is_sent_strict_and_closed(dialect: str, kind: Any) -> None:
    """Every object is closed; OpenAI is told strict mode, and every property is required there."""
    _, (body, *_) = await asked(dialect, ["x", "x"], kind)
    sent = schema_sent(dialect, body)
    assert sent["strict"] is True and objects(sent["schema"])
    for each in objects(sent["schema"]):
        assert each["additionalProperties"] is False
        assert dialect == "anthropic" or each["required"] == list(each["properties"])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_cannot_be_strict_is_sent_as_it_is_and_checked_here(dialect: str) -> None:
    """A dict with any keys has no strict form."""

    class Scores(BaseModel):
        scores: dict[str, int]

    value, bodies = await asked(dialect, [{"scores": {"a": "x"}}, {"scores": {"a": 1}}], Scores)
    assert value == Scores(scores={"a": 1}) and len(bodies) == 2
    assert dialect == "anthropic" or schema_sent(dialect, bodies[0])["strict"] is False


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_field_may_be_called_type(dialect: str) -> None:
    """A class with fields named ``type``, ``kind`` and ``properties`` is asked for and read."""
    data = {"type": "leaf", "kind": "oak", "properties": ["green"]}
    value, (body,) = await asked(dialect, [data], Typed)
    assert value == Typed(**data) and set(schema_sent(dialect, body)["schema"]["properties"]) == set(data)


def test_the_strict_form_says_what_it_leaves_out() -> None:
    """Bounds that strict mode does not know stand in the description; what it cannot express is not strict."""

    class Bounded(BaseModel):
        name: Annotated[str, Field(min_length=2, description="a name")]
        size: Annotated[int, Field(ge=1)] = 3
        one: Annotated[Cat | Dog, Field(discriminator="type")]

    form = translated(Bounded.model_json_schema(), "openai", "output")
    strict: Any = form.schema
    assert form.strict and not form.whole
    assert strict["properties"]["name"] == {"title": "Name", "type": "string", "description": "a name (minLength: 2)"}
    assert strict["properties"]["size"] == {"title": "Size", "type": "integer", "minimum": 1}
    assert "oneOf" not in strict["properties"]["one"] and len(strict["properties"]["one"]["anyOf"]) == 2
    for loose in (
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
    ):
        assert not translated(loose, "openai", "output").strict, loose
    assert translated({"type": "array", "items": {"type": "string"}}, "openai", "output").schema is None


async def test_a_durable_run_gives_the_same_member_again(tmp_path: Any) -> None:
    """Of two classes with the same fields, a recorded answer is read as the one it was of."""
    model = ScriptedProvider(['{"kind": "No", "why": "x"}'])
    flow = AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db")
    seen: list[Any] = []

    @flow.task
    async def judge(path: str) -> Yes | No:
        """Judge {{path}}."""

    @flow.workflow
    async def whole() -> str:
        seen.append(await judge("a"))
        if len(seen) == 1:
            raise ValueError("once")
        return "done"

    async with flow:
        with pytest.raises(WorkflowError, match="once"):
            await (await flow.start(whole(), run_id="r")).result()
        assert (await (await flow.resume("r")).result()).value == "done"
    assert seen == [No("x"), No("x")] and len(model.requests) == 1
