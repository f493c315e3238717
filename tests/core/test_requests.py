"""Subtask requests and settings: frozen within, checked where foreign data comes in."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from agentflow import AgentFlow, SubtaskRequest, Symbol
from agentflow.core.data.errors import DataError
from agentflow.core.data.templates import ContextManagement, HistoryConfig


def test_a_request_is_a_mapping_of_its_fields() -> None:
    """Keys are the fields; what can be read by attribute can be read by key."""
    request = SubtaskRequest(name="a", inputs={"x": 1}, file_paths=["b.py"])
    assert isinstance(request, Mapping) and len(request) == 12 and list(request)[:3] == ["type", "subtype", "name"]
    assert request["inputs"] == request.inputs == {"x": 1} and request.get("file_paths") == ["b.py"]
    assert "type" in request and "nothing" not in request and request.get("nothing", 7) == 7
    with pytest.raises(KeyError):
        request["nothing"]
    assert request == dict(request) == SubtaskRequest(**request) != replace(request, name="b")


def test_a_request_is_frozen_and_travels() -> None:
    """No field can be set; copies, deep ones and pickled ones are equal."""
    request = SubtaskRequest.of({"name": "a", "inputs": {"x": [1]}, "context_management": {"freshContext": "disabled"}})
    with pytest.raises(FrozenInstanceError):
        request.name = "b"  # pyright: ignore[reportAttributeAccessIssue]
    deep = copy.deepcopy(request)
    assert copy.copy(request) == deep == pickle.loads(pickle.dumps(request)) == request
    assert deep.inputs["x"] is not request.inputs["x"]


@pytest.mark.parametrize(
    "settings", [{"inheritContext": "none"}, [["inherit_context", "none"]], ContextManagement(inherit_context="none")]
)
def test_settings_may_be_written_as_data(settings: Any) -> None:
    """Through the door and through the constructor, settings are a mapping, a list of pairs, or what they are."""
    for request in (
        SubtaskRequest.of({"name": "a", "context_management": settings}),
        SubtaskRequest(name="a", context_management=settings),
    ):
        assert request.context_management == ContextManagement(inherit_context="none")


def test_both_spellings_are_read() -> None:
    """Door and constructor read ``templateHints`` as they read ``template_hints``; a request passes as it is."""
    request = SubtaskRequest.of({"templateHints": ["a"]})
    assert request == SubtaskRequest.of({"template_hints": ["a"]}) and SubtaskRequest.of(request) is request
    assert request == SubtaskRequest(templateHints=["a"]) == SubtaskRequest(template_hints=["a"])


@pytest.mark.parametrize("nothing", [[], None])
def test_nil_leaves_a_setting_out(nothing: Any) -> None:
    """``nil``, which is the empty list, says of a setting what None says; a symbol is its name."""
    pairs = [["history_turns_to_include", nothing], ["use_session_history", False]]
    assert HistoryConfig.of(pairs) == HistoryConfig(use_session_history=False)
    assert SubtaskRequest.of({"history_config": pairs}).history_config == HistoryConfig(use_session_history=False)
    settings = ContextManagement.of([["inherit_context", Symbol("none")], ["fresh_context", nothing]])
    assert settings == ContextManagement(inherit_context="none")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"nam": "a"}, "nam"),
        ({"inputs": 5}, "inputs"),
        ({"context_management": {"inherit_context": "all"}}, "inherit_context"),
        ({"history_config": {"history_turns_to_include": -1}}, "history_turns_to_include"),
        ({"file_paths": "a.py"}, "file_paths"),
        (5, "dictionary"),
        (None, "dictionary"),
    ],
)
def test_foreign_data_that_is_no_request_is_refused(data: Any, says: str) -> None:
    """The door names the field that is wrong, and lists the fields there are."""
    with pytest.raises(DataError, match=says) as caught:
        SubtaskRequest.of(data)
    assert caught.value.code == "data/fields" and "template_hints" in str(caught.value.hint)


def test_settings_have_a_door_too() -> None:
    """``of`` of a settings model says what is wrong with a field, as a typed error."""
    with pytest.raises(DataError, match="history_turns_to_include"):
        HistoryConfig.of({"history_turns_to_include": "all"})
    with pytest.raises(DataError, match="inherit_context"):
        SubtaskRequest(name="a", context_management={"inherit_context": "all"})  # type: ignore[arg-type]


async def test_a_request_is_an_object_of_the_language() -> None:
    """In a program a request has fields and is not a dict."""
    async with AgentFlow(model="offline") as flow:
        bindings = {"r": SubtaskRequest(name="a", inputs={"x": 1})}
        program = "(list (get-field r 'name) (dict? r) (get (get-field r 'inputs) \"x\") (parse-json (to-json r)))"
        name, is_dict, x, data = (await flow.run(program, bindings=bindings)).value
        assert (name, is_dict, x) == ("a", False, 1) and data["inputs"] == {"x": 1} and data["file_paths"] is None
