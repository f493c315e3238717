"""Parameters: types, defaults, what is missing, and a program's named arguments as a request."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import AgentflowError, ConfigurationError, SexpEvaluationError, TaskError
from agentflow.core.data.results import TaskResult
from agentflow.core.data.templates import ContextManagement, HistoryConfig, TaskTemplate
from agentflow.core.data.values import Symbol
from agentflow.handler.tools import parameters_schema, subtask_tool
from agentflow.lib.schema.declared_schema import schema_of
from agentflow.tasks.template import request_from_arguments, resolve_inputs
from agentflow.tasks.types import convert

TEMPLATE = TaskTemplate.model_validate(
    {
        "name": "t",
        "params": {
            "text": "string",
            "count": {"type": "integer", "default": 3},
            "tags": {"type": "string[]", "required": False},
            "data": {"type": "any", "default": None},
        },
    }
)


def values(**inputs: Any) -> dict[str, Any]:
    return resolve_inputs("t", TEMPLATE.params, inputs)[0]


def test_defaults_and_optional_parameters() -> None:
    """A default fills in; an optional parameter without one is None."""
    assert values(text="x") == {"text": "x", "count": 3, "tags": None, "data": None}


def test_null_as_a_default() -> None:
    """A default of null makes a parameter optional, unless it says that it is required."""
    params = TaskTemplate.model_validate(
        {"name": "t", "params": {"a": {"default": None}, "b": {"required": True, "default": None}}}
    ).params
    with pytest.raises(TaskError) as caught:
        resolve_inputs("t", params, {})
    assert caught.value.details["missing"] == ["b"]


def test_all_problems_are_named_at_once() -> None:
    """One error names every missing parameter and every wrong value; near misses are suggested."""
    with pytest.raises(TaskError) as caught:
        values(txt="x", count="many", tags="nope")
    error = caught.value
    assert error.reason == "input_validation_failure"
    assert error.details["missing"] == ["text"]
    assert set(error.details["invalid"]) == {"count", "tags"}
    assert error.hint == "'txt': did you mean 'text'?"
    assert "misses its parameter 'text'" in error.message


def test_undeclared_inputs_are_reported_not_used() -> None:
    """An input that is not declared is listed and not among the values."""
    found, undeclared = resolve_inputs("t", TEMPLATE.params, {"text": "x", "b": 1, "a": 2})
    assert undeclared == ["a", "b"] and "a" not in found


@pytest.mark.parametrize(
    ("given", "declared", "expected"),
    [
        (Symbol("s"), "string", "s"),
        (5, "string", "5"),
        (True, "string", "true"),
        (PurePath("a/b"), "string", "a/b"),
        (TaskResult(content="c"), "string", "c"),
        (TaskResult(parsedContent=[1]), "integer[]", [1]),
        ("12", "integer", 12),
        (3.0, "integer", 3),
        ("1.5", "number", 1.5),
        ("TRUE", "boolean", True),
        ('{"a": 1}', "object", {"a": 1}),
        ("[1, 2]", "array", [1, 2]),
        ('["a"]', "string[]", ["a"]),
        ([["1"]], "integer[][]", [[1]]),
        ([["1"], []], "integer[<=1][<= 2]", [[1], []]),
        ("x", "integer|string", "x"),
        (None, "string?", None),
        ((1, 2), "list", [1, 2]),
    ],
)
def test_conversions_lose_nothing(given: object, declared: str, expected: object) -> None:
    """What is exactly a value of the type in another form becomes one."""
    assert convert(given, declared) == expected


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        ([1], "string"),
        ({"a": 1}, "string"),
        (True, "integer"),
        (1.5, "integer"),
        ("1.5", "integer"),
        ("9" * 5_000, "integer"),
        (True, "number"),
        ("yes", "boolean"),
        ("[1]", "object"),
        ("{", "object"),
        (["a", 1.5], "integer[]"),
        (["a", "b", "c"], "string[<=2]"),
        ("[[1, 2]]", "integer[<=1][]"),
        (None, "string"),
        ("[" * 100_000, "array"),
    ],
)
def test_what_does_not_fit_is_refused(given: object, declared: str) -> None:
    """A value that would lose or gain something is refused with what is wanted."""
    with pytest.raises(ValueError, match=r"wanted|item"):
        convert(given, declared)


def test_schemas_from_simple_names() -> None:
    """Names, lists of them, dicts of fields and JSON Schemas all describe an output."""
    assert schema_of("string[]") == {"type": "array", "items": {"type": "string"}}
    assert schema_of({"a": "integer", "b?": "string"}) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert schema_of({"type": "object", "properties": {}}) == {"type": "object", "properties": {}}
    assert schema_of({"type": "string", "name": "string"})["required"] == ["type", "name"]
    assert schema_of(["number"]) == {"type": "array", "items": {"type": "number"}}
    bounded = {"type": "array", "items": {"type": "number"}, "maxItems": 8}
    assert schema_of("number[<=8]") == bounded == schema_of(["number", "<=8"])
    for wrong in ("string[<8]", "string[8]", "string[<=-1]", ["number", "8"], ["number", "<=8", "<=9"]):
        with pytest.raises(ValueError, match=r"not a (schema|type name)"):
            schema_of(wrong)
    with pytest.raises(ValueError, match="did you mean"):
        schema_of("strng")
    with pytest.raises(ValueError, match="at most"):
        schema_of("string" + "[]" * 500)


def test_reserved_arguments_become_the_request() -> None:
    """files, context, inputs and history_config steer the call, as dict or as a list of pairs."""
    request = request_from_arguments(
        TEMPLATE,
        {
            "text": "x",
            "files": ["a.py", Symbol("b.py")],
            "context": [[Symbol("inherit_context"), Symbol("none")], ["freshContext", "enabled"]],
            "inputs": {"count": 4, "text": "loses"},
            "history_config": {"use_session_history": False},
        },
    )
    assert request.name == "t" and request.inputs == {"count": 4, "text": "x"}
    assert request.file_paths == ["a.py", "b.py"]
    assert request.context_management == ContextManagement(inherit_context="none", fresh_context="enabled")
    assert request.history_config == HistoryConfig(use_session_history=False)


def test_a_declared_parameter_wins_over_a_reserved_name() -> None:
    """A task that declares ``context`` gets it as its argument."""
    template = TaskTemplate(name="t", params="context")  # pyright: ignore[reportArgumentType]
    assert request_from_arguments(template, {"context": "text"}).inputs == {"context": "text"}


@pytest.mark.parametrize(
    ("argument", "mend"),
    [
        ({"files": 5}, "list"),
        ({"files": ["a", 5]}, "list"),
        ({"inputs": [["a", 1], ["a", 2]]}, "inputs"),
        ({"context": "full"}, "context"),
        ({"context": {"inherit_contxt": "full"}}, "did you mean 'inherit_context'"),
        ({"context": {"inherit_context": "some"}}, "it knows"),
        ({"history_config": {"history_turns_to_include": -1}}, "it knows"),
    ],
)
def test_wrong_reserved_arguments_are_program_errors(argument: dict[str, Any], mend: str) -> None:
    """A reserved argument of the wrong shape is an error of the program, with what to write."""
    with pytest.raises(SexpEvaluationError) as caught:
        request_from_arguments(TEMPLATE, {"text": "x", **argument})
    assert caught.value.code == "tasks/bad-argument"
    assert mend in (caught.value.hint or "")


@pytest.mark.parametrize(
    "declared",
    [
        {"type": "string", "description": "string"},
        {"type": "object", "title": "string"},
        {"answer": {"type": "integer", "description": "string"}},
        [{"type": "string", "description": "string"}],
    ],
)
def test_a_dict_that_could_be_fields_or_a_schema_is_refused(declared: Any) -> None:
    """Nobody guesses whether ``{"type": "string", "description": "string"}`` has two fields or describes a text."""
    from agentflow.core.data.errors import DataError
    from agentflow.tasks.template_registry import prepare_template

    with pytest.raises(DataError, match="or a JSON Schema") as refused:
        prepare_template({"name": "t", "params": "", "instructions": "x", "output_format": {"schema": declared}})
    assert refused.value.code == "tasks/output-format"


@pytest.mark.parametrize(
    "declared",
    [
        {"type": "string", "description": "what it is"},
        {"type": "string", "name": "string"},
        {"type": "integer", "minimum": 1},
        {"type": "string", "format": "date"},
        {"title": "string"},
    ],
)
def test_a_dict_that_is_one_or_the_other_is_taken(declared: Any) -> None:
    """A description in words, a keyword of schemas alone, or a name that no keyword has decides."""
    from agentflow.tasks.template_registry import prepare_template

    assert prepare_template({"name": "t", "params": "", "instructions": "x", "output_format": {"schema": declared}})


AMBIGUOUS: dict[str, Any] = {"type": "string", "description": "string"}


@pytest.mark.parametrize(
    ("declared", "schema"),
    [
        ({"name": "string"}, {"type": "object", "properties": {"name": {"type": "string"}}}),
        ({"minimum": 3}, {"minimum": 3}),
        ({"description": "who it is"}, {"description": "who it is"}),
        ({"type": "string", "x-order": 1}, {"type": "string", "x-order": 1}),
        ({"type": "string", "enumNames": ["a"]}, {"type": "string", "enumNames": ["a"]}),
    ],
)
def test_one_rule_tells_fields_from_a_schema(declared: dict[str, Any], schema: dict[str, Any]) -> None:
    """Wherever a dict declares data: fields are an object that has them, and what says more than types of fields is a schema."""
    read = schema_of(declared)
    assert {key: read[key] for key in schema} == schema
    assert parameters_schema({"a": declared})["properties"]["a"] == read


async def test_what_could_be_both_is_refused_at_every_door() -> None:
    """As an output, as a tool's parameter, as a subtask tool's, and as the form of an answer of a person."""
    with pytest.raises(ValueError, match="could be the fields"):
        schema_of(AMBIGUOUS)
    for declare in (parameters_schema, lambda each: subtask_tool("t", "does it", parameters=each)):
        with pytest.raises(ConfigurationError, match="could be the fields"):
            declare({"a": AMBIGUOUS})
    async with AgentFlow(provider=ScriptedProvider([]), answer=lambda question: "x") as flow:
        with pytest.raises(SexpEvaluationError, match="could be the fields"):
            await flow.run('(ask-human "who?" {"type" "string" "description" "string"})')


async def test_fields_are_the_form_of_an_answer() -> None:
    """``{"name" "string"}`` asks for an object with a name; it constrained nothing before."""
    answers: list[Any] = ["Ann", {"name": "Ann"}]
    async with AgentFlow(provider=ScriptedProvider([]), answer=lambda question: answers.pop(0)) as flow:
        with pytest.raises(AgentflowError):
            await flow.run('(ask-human "who?" {"name" "string"})')
        assert (await flow.run('(ask-human "who?" {"name" "string"})')).value == {"name": "Ann"}
