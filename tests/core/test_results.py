"""TaskResult: a frozen record, a mapping in full, an object of the language, and the doors it comes in through."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, ScriptedProvider, SubtaskRequest, TaskResult
from agentflow.core.data.errors import (
    AgentflowError,
    DataError,
    InvalidOutput,
    LimitExceeded,
    ResourceExhausted,
    TaskError,
)
from agentflow.core.data.messages import ToolResultPart, Usage
from agentflow.core.data.result_notes import ErrorInfo, FailedPart, Notes
from agentflow.core.data.values import plain
from agentflow.core.events.events import Warning

KEYS = ["status", "content", "parsedContent", "criteria", "notes"]


def a_result(**fields: Any) -> TaskResult:
    return TaskResult("COMPLETE", "text", {"n": 1}, notes={"template_used": "t", "mine": [1]}, **fields)


def test_a_result_is_a_mapping_in_full() -> None:
    """Keys, values, items, ``in``, ``len``, ``get`` and iteration are those of the specification's shape."""
    result = a_result()
    assert isinstance(result, Mapping) and list(result) == list(result.keys()) == KEYS and len(result) == 5
    assert list(result.values())[:3] == ["COMPLETE", "text", {"n": 1}]
    assert dict(result.items()) == dict(result) == {**result} == result.to_dict() == result.model_dump()
    assert "status" in result and "usage" not in result and 5 not in result
    assert result["parsedContent"] == result["parsed_content"] == result.parsedContent == result.parsed_content
    assert result.get("notes") is result.notes and result.get("usage") is None and result.get("x", 1) == 1
    with pytest.raises(KeyError):
        result["exception"]
    match result:
        case {"status": "COMPLETE", "notes": {"template_used": name}}:
            assert name == "t"
        case _:
            pytest.fail("a result matches a mapping pattern")


def test_results_are_equal_by_what_they_say() -> None:
    """``==`` compares the shape, with another result or any mapping; usage and exception are left out."""
    result = a_result()
    assert result == a_result(usage=Usage(1, 1)) == result.to_dict() and result != replace(result, content="other")
    failed = TaskResult.from_error(ValueError("no"))
    assert failed == replace(failed, exception=None) != TaskResult.from_error(ValueError("nay"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(result)


def test_a_result_is_frozen() -> None:
    """Neither its fields nor its notes nor its error can be set; a changed one is a new one."""
    result = TaskResult.failure("llm_error", "no", mine=1)
    for target, name in ((result, "content"), (result.notes, "model"), (result.notes.error, "message")):
        with pytest.raises(FrozenInstanceError):
            setattr(target, name, "x")
    for target in (result, result.notes, result.notes.error):
        with pytest.raises(TypeError):
            target["message"] = "x"  # type: ignore[index]
    changed = result.with_notes(mine=2, model="m")
    assert (changed.notes["mine"], changed.notes.model, result.notes["mine"]) == (2, "m", 1)
    assert changed.error is not None and changed.notes.error == result.notes.error


@pytest.mark.parametrize(
    "result",
    [
        a_result(usage=Usage(3, 4)),
        TaskResult.from_error(LimitExceeded("too many", limit="steps", allowed=1)),
        TaskResult("CONTINUATION", notes={"subtask_request": {"name": "a", "inputs": {"x": 1}}}),
        TaskResult("COMPLETE", "a", notes=Notes(failed_parts=(FailedPart.of_exception("b", ValueError("c")),))),
    ],
    ids=["complete", "failed", "continuation", "parts"],
)
def test_results_travel(result: TaskResult) -> None:
    """Copies, deep and pickled ones are equal, and so is what comes back from JSON; usage travels, exceptions do not."""
    deep, pickled = copy.deepcopy(result), pickle.loads(pickle.dumps(result))
    assert copy.copy(result) is result and deep == pickled == result and deep.usage == pickled.usage == result.usage
    assert type(pickled.problem()) is type(deep.problem())
    assert TaskResult.of(json.loads(json.dumps(plain(result)))) == result
    assert result.model_dump(mode="json") == plain(result)


def test_both_spellings_construct() -> None:
    """``parsedContent`` is a constructor's keyword as ``parsed_content`` is."""
    assert TaskResult(status="COMPLETE", content="a", parsedContent=[1]) == TaskResult("COMPLETE", "a", [1])


class Point(BaseModel):
    x: int


@pytest.mark.parametrize(
    ("value", "content", "parsed"),
    [
        ("text", "text", None),
        (None, "", None),
        (7, "7", 7),
        (10**20, str(10**20), 10**20),
        (True, "true", True),
        ([1, "a"], '[1, "a"]', [1, "a"]),
        ({"status": "odd"}, '{"status": "odd"}', {"status": "odd"}),
        ({"status": "COMPLETE", "content": {"a": 1}}, '{"a": 1}', {"a": 1}),
        ({"status": "COMPLETE", "content": "a", "parsedContent": 2}, "a", 2),
        (Point(x=1), '{"x":1}', Point(x=1)),
    ],
    ids=repr,
)
def test_any_value_becomes_a_result(value: Any, content: str, parsed: Any) -> None:
    """Text is the content, other data JSON and itself; a mapping in the shape is what it says."""
    result = TaskResult.of(value)
    assert (result.status, result.content, result.parsed_content) == ("COMPLETE", content, parsed)
    assert TaskResult.of(result) is result


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"status": "COMPLETE", "notes": 5}, "notes are a mapping"),
        ({"status": "COMPLETE", "notes": {1: 2}}, "keys of notes"),
        ({"status": "FAILED", "notes": {"error": 5}}, "error is described"),
        ({"status": "COMPLETE", "notes": {"failed_parts": [{"error": "x"}]}}, "failed part"),
        ({"status": "COMPLETE", "notes": {"failed_parts": 1}}, "failed_parts is a list"),
        ({"status": "CONTINUATION", "notes": {"subtask_request": {"nam": "a"}}}, "nam"),
    ],
)
def test_data_in_the_shape_that_is_no_result_is_refused(data: Any, says: str) -> None:
    """The door names what is wrong with it."""
    with pytest.raises(DataError, match=says) as caught:
        TaskResult.of(data)
    assert caught.value.code == "data/fields"


@pytest.mark.parametrize(
    ("fields", "says"), [({"status": "DONE"}, "'DONE'"), ({"content": 5}, "text, not int"), ({"notes": "x"}, "notes")]
)
def test_a_constructor_checks_too(fields: dict[str, Any], says: str) -> None:
    """A result that exists is one: no other status, no content that is not text."""
    with pytest.raises(DataError, match=says):
        TaskResult(**fields)


def test_a_failed_result_always_describes_its_error() -> None:
    """Without a description the content is the message; an exception that was there is raised as itself."""
    bare = TaskResult("FAILED", "went wrong")
    assert bare.notes["error"] == {
        "type": "TASK_FAILURE",
        "reason": "unexpected_error",
        "message": "went wrong",
        "details": {},
    }
    with pytest.raises(TaskError, match="went wrong"):
        bare.value()
    error = ResourceExhausted("too long", resource="context", used=9, limit=5)
    failed = TaskResult.from_error(error, mine=1)
    assert failed.error is error and failed.notes["mine"] == 1
    assert failed.notes["error"]["resource"] == "context" and failed.notes["error"]["metrics"]["limit"] == 5
    with pytest.raises(ResourceExhausted) as caught:
        failed.value()
    assert caught.value is error


def test_notes_are_a_mapping_with_fields_for_what_is_read() -> None:
    """An entry that the package reads is a field; one that is not of its kind stays what it is, beside the free ones."""
    notes = Notes.of({"parseError": "no", "turns": 2, "model": {"mine": 1}, "program": None, "free": [1]})
    assert (notes.parse_error, notes.turns, notes.model, notes.program) == ("no", 2, None, None)
    assert dict(notes) == {"parseError": "no", "turns": 2, "model": {"mine": 1}, "program": None, "free": [1]}
    assert notes == dict(notes) and len(notes) == 5 and Notes.of(notes) is notes
    assert notes.merged({"turns": 3, "free": 2}) == {**notes, "turns": 3, "free": 2}
    request = Notes.of({"subtask_request": {"name": "a"}}).subtask_request
    assert request == SubtaskRequest(name="a")


def test_an_error_may_be_described_in_part() -> None:
    """A text is the message; what a description has no field for goes into its details."""
    assert ErrorInfo.of("no") == {"type": "TASK_FAILURE", "reason": "unexpected_error", "message": "no", "details": {}}
    described = ErrorInfo.of({"reason": "llm_error", "details": "d", "more": 1}, "the content")
    assert described == {
        "type": "TASK_FAILURE",
        "reason": "llm_error",
        "message": "the content",
        "details": {"details": "d", "more": 1},
    }


def test_what_asked_for_json_and_got_none_has_no_value() -> None:
    """A COMPLETE result with a parseError raises InvalidOutput for its value, and keeps its content."""
    result = TaskResult.complete("not json", parseError="line 1")
    assert result.content == "not json" and isinstance(result.problem(), InvalidOutput)


def test_a_model_of_a_host_may_hold_results() -> None:
    """In pydantic models a result is read from itself or its shape, written as its shape, and has a JSON schema."""

    class Report(BaseModel):
        result: TaskResult

    report = Report(result=a_result())
    assert Report.model_validate_json(report.model_dump_json()) == report
    assert Report.model_validate({"result": {"status": "COMPLETE"}}).result == TaskResult()
    assert Report.model_json_schema()["properties"]["result"]["properties"].keys() == set(KEYS)


IN_THE_LANGUAGE: list[tuple[str, Any]] = [
    ("(dict? r)", False),
    ("(type-of r)", "result"),
    ("(get-field r 'parsedContent)", {"n": 1}),
    ("(get-field r 'parsed_content)", {"n": 1}),
    ('(get r "status")', "COMPLETE"),
    ("(get-field r 'usage)", []),
    ("(dict? (get-field r 'notes))", True),
    ('(get (get-field r \'notes) "mine")', [1]),
    ("(keys (get-field r 'notes))", ["template_used", "mine"]),
    ("(length (get-field r 'notes))", 2),
    ('(get (parse-json (to-json r)) "parsedContent")', {"n": 1}),
    ("(equal? r (parse-json (to-json r)))", False),
    ("(equal? r r)", True),
    ('(equal? (get-field r \'notes) (dict "mine" (list 1) "template_used" "t"))', True),
    ('(string-append "" (format "{}" (get-field r \'notes)))', '{"template_used": "t", "mine": [1]}'),
    ("(get-field (get-field (get-field f 'notes) 'error) 'reason)", "llm_error"),
    ("(dict? (get-field (get-field f 'notes) 'error))", True),
    ("(content f)", "no"),
    ("(failed? f)", True),
]


@pytest.mark.parametrize(("program", "value"), IN_THE_LANGUAGE, ids=[program for program, _ in IN_THE_LANGUAGE])
async def test_a_result_is_an_object_of_the_language(program: str, value: Any) -> None:
    """A result has fields and is not a dict; its notes and its error are dicts."""
    async with AgentFlow(model="offline") as flow:
        bindings = {"r": a_result(), "f": TaskResult.failure("llm_error", "no")}
        assert (await flow.run(program, bindings=bindings)).value == value


@pytest.mark.parametrize("program", ["(keys r)", "(merge r r)", '(put r "a" 1)', "(values r)"])
async def test_dict_primitives_refuse_a_result(program: str) -> None:
    """What takes a dict says that a result is none, and how a field of it is read."""
    async with AgentFlow(model="offline") as flow:
        with pytest.raises(Exception, match="a result") as caught:
            await flow.run(program, bindings={"r": a_result()})
        assert getattr(caught.value, "code", "") == "type/argument" and "get-field" in str(
            getattr(caught.value, "hint", "")
        )


async def test_a_failed_part_is_no_success(tmp_path: Path) -> None:
    """A program's value-of raises the error of the file it named; content gives what there is; skipping is said."""
    (tmp_path / "a.txt").write_text("alpha")
    async with AgentFlow(model="offline", root=tmp_path) as flow:
        for paths in ('"no.txt"', '"a.txt" "no.txt"'):
            read = f"(system:read_files (file_paths (list {paths})))"
            assert (await flow.run(f"(status {read})")).value == "COMPLETE"
            with pytest.raises(AgentflowError) as caught:
                await flow.run(f"(value-of {read})")
            assert caught.value.code == "files/not-found" and caught.value.span is not None
            parts = (await flow.run(f"(get-field (get-field {read} 'notes) 'failed_parts)")).value
            assert [part["part"] for part in parts] == ["no.txt"]
            code = f"(try (value-of {read}) (catch (e) (get-field e 'code)))"
            assert (await flow.run(code)).value == "files/not-found"
        skipping = '(value-of (system:read_files (file_paths (list "a.txt" "no.txt")) (missing "skip")))'
        assert "alpha" in (await flow.run(skipping)).value


async def test_a_model_is_told_of_a_failed_part(tmp_path: Path) -> None:
    """A tool's answer with a failed part says so below what there is."""
    (tmp_path / "a.txt").write_text("alpha")
    call = {"name": "system:read_files", "arguments": {"file_paths": ["a.txt", "no.txt"]}}
    script = ScriptedProvider([{"tool_calls": [call]}, "done"])
    async with AgentFlow(provider=script, root=tmp_path) as flow:
        flow.task_system.register_template(
            {"name": "t", "params": {}, "instructions": "Read.", "tools": ["system:read_files"]}
        )
        await flow.run("(t)")
        (part,) = script.requests[1].messages[-1].parts
        assert isinstance(part, ToolResultPart) and "alpha" in part.text
        assert "error (tool_execution_error): no.txt" in part.text


async def test_an_unknown_reason_is_kept_and_warned_of() -> None:
    """Reasons are a closed list: a host's own word becomes unexpected_error, with the word in the details."""

    def odd() -> dict[str, Any]:
        """Fails in a way of its own."""
        return {"status": "FAILED", "content": "no", "notes": {"error": {"reason": "bad_luck", "message": "no"}}}

    warnings: list[Warning] = []
    async with AgentFlow(model="offline", tools=[odd]) as flow:
        flow.subscribe(lambda event: warnings.append(event) if isinstance(event, Warning) else None)
        result = (await flow.run("(odd)")).value
    assert result.notes["error"]["reason"] == "unexpected_error"
    assert result.notes["error"]["details"] == {"unknown_reason": "bad_luck"}
    assert [warning.code for warning in warnings] == ["task/unknown-reason"]
    raised = TaskError("no", reason="bad_luck")  # type: ignore[arg-type]
    assert raised.reason == "unexpected_error" and raised.details == {"unknown_reason": "bad_luck"}
