"""Registration and lookup of templates."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from agentflow.core.data.errors import DataError
from agentflow.core.data.templates import TaskTemplate
from agentflow.spec.task_system import TaskSystem


class Opaque:
    """A class nothing is known of."""


def template(name: str, subtype: str = "standard", **fields: Any) -> dict[str, Any]:
    return {"name": name, "type": "atomic", "subtype": subtype, "params": "", "instructions": "x", **fields}


def test_found_by_name_then_by_type_and_subtype() -> None:
    """A direct name comes first, then ``type:subtype``; nothing else is found."""
    system = TaskSystem()
    system.register_template(template("a", "s"))
    system.register_template(template("atomic:s", "other"))
    assert system.find_template("a")["name"] == "a"  # type: ignore[index]
    assert system.find_template("atomic:s").name == "atomic:s"  # type: ignore[union-attr]
    assert system.find_template("s") is None and system.find_template("") is None


def test_the_last_registration_of_a_subtype_wins() -> None:
    """Two templates of one subtype: the later answers to it, both to their names."""
    system = TaskSystem()
    system.register_template(template("a", "s"))
    system.register_template(template("b", "s"))
    assert system.template_index == {"atomic:s": "b"}
    assert system.find_template("a") is not None


def test_registering_again_drops_stale_index_entries() -> None:
    """A template registered again under another subtype no longer answers to the old one; an older one may again."""
    system = TaskSystem()
    system.register_template(template("a", "s"))
    system.register_template(template("b", "s"))
    system.register_template(template("b", "t"))
    assert system.template_index == {"atomic:s": "a", "atomic:t": "b"}
    system.register_template(template("a", "u"))
    assert system.find_template("atomic:s") is None


def test_only_atomic_templates_are_found() -> None:
    """Other types may be registered and are never found, listed or matched."""
    system = TaskSystem()
    system.register_template({**template("a", "s", description="do it"), "type": "sequential"})
    assert system.find_template("a") is None and system.find_template("sequential:s") is None
    assert system.template_names() == [] and system.find_matching_tasks("do it") == []


def test_a_template_is_frozen() -> None:
    """What is registered is what its caller holds: nobody can change it afterwards."""
    system = TaskSystem()
    mine = TaskTemplate.model_validate(template("a"))
    system.register_template(mine)
    with pytest.raises(ValidationError, match="frozen"):
        mine.subtype = "changed"  # pyright: ignore[reportAttributeAccessIssue]
    assert system.find_template("a") is mine


@pytest.mark.parametrize("params", ["x, y", ["x", "y"], {"x": "string", "y": {"default": 1}}, {"x": {}, "y": None}])
def test_params_may_be_written_in_three_ways(params: Any) -> None:
    """Text, a list or a dict declare parameters."""
    system = TaskSystem()
    system.register_template({"name": "a", "params": params, "instructions": "{{x}} {{y}}"})
    assert list(system.find_template("a").params) == ["x", "y"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"params": "x"}, "no name"),
        ({"name": "a"}, "declares no params"),
        ({"name": "a", "params": None}, "declares no params"),
        ({"name": "a\nb", "params": ""}, "not a template name"),
        ({"name": "x" * 300, "params": ""}, "not a template name"),
        ({"name": "a", "params": "x", "instrctions": "y"}, "unknown key 'instrctions'"),
        ({"name": "a", "params": {"x": "strin"}}, "did you mean 'string'"),
        ({"name": "a", "params": {"1x": "string"}}, "not a parameter name"),
        ({"name": "a", "params": {"x": {"type": "integer", "default": "no"}}}, "an integer is wanted"),
        ({"name": "a", "params": "text", "instructions": "{{txt}}"}, "'{{txt}}', which is not a declared parameter"),
        ({"name": "a", "params": "text", "system": "{{txt}}"}, "not a declared parameter"),
        ({"name": "a", "params": "", "file_paths": ["{{p}}"]}, "not a declared parameter"),
        ({"name": "a", "params": "", "instructions": "{{"}, "no name"),
        ({"name": "a", "params": "", "output_format": {"type": "xml"}}, "neither 'json' nor 'text'"),
        ({"name": "a", "params": "", "output_format": {"shema": "string"}}, "no key 'shema'"),
        ({"name": "a", "params": "", "output_format": "strng[]"}, "did you mean"),
        ({"name": "a", "params": "", "output_format": {"type": "text", "schema": "string"}}, "asks for text"),
        ({"name": "a", "params": "", "output_model": 5}, "not a class"),
        ({"name": "a", "params": "", "output_model": Opaque}, "has no schema"),
        ({"name": "a", "params": "", "context_management": {"fresh_context": "on"}}, "context_management"),
        ({"name": "a", "params": 5}, "params"),
    ],
)
def test_wrong_templates_raise_naming_the_fault(given: dict[str, Any], says: str) -> None:
    """A template that cannot work is refused when it is registered, and nothing has changed."""
    system = TaskSystem()
    with pytest.raises(DataError) as caught:
        system.register_template(given)
    assert says in caught.value.render()
    assert system.templates == {} and system.template_index == {}


def test_the_specifications_keys_are_read() -> None:
    """camelCase and older names of keys mean the same; keys that only document are passed over."""
    system = TaskSystem()
    system.register_template(
        {
            "name": "a",
            "type": "atomic",
            "subtype": "s",
            "title": "A",
            "returns": {"type": "string"},
            "parameters": {"x": {"type": "string", "description": "d", "required": True}},
            "taskPrompt": "{{x}}",
            "systemPrompt": "be {{x}}",
            "model": {"preferred": "m1", "fallback": ["m2"]},
            "contextManagement": {"inheritContext": "none", "freshContext": "enabled"},
            "outputFormat": {"type": "json", "schema": "object"},
            "filePaths": ["a.py"],
            "_context_input": {"query": "q"},
        }
    )
    found = system.find_template("a")
    assert found is not None
    assert (found.instructions, found.system, found.model, found.fallbacks) == ("{{x}}", "be {{x}}", "m1", ["m2"])
    assert found.context_management.fresh_context == "enabled" and found.file_paths == ["a.py"]


def test_matching_is_jaccard_best_first() -> None:
    """Descriptions are compared by words; what scores 0.1 or less is left out; ties go by name."""
    system = TaskSystem()
    system.register_template(template("z", "z", description="summarise a file"))
    system.register_template(template("b", "b", description="summarise a long file for people"))
    system.register_template(template("y", "y", description="Summarise, a FILE"))
    system.register_template(template("c", "c", description="translate poems"))
    found = system.find_matching_tasks("summarise a file", None)
    assert [entry["task"]["name"] for entry in found] == ["y", "z", "b"]
    assert found[0]["score"] == 1.0 and found[2]["score"] == pytest.approx(0.5)
    assert found[2]["taskType"] == "atomic" and found[2]["subtype"] == "b"
    assert system.find_matching_tasks("") == []
