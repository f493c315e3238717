"""A union of TypedDicts is asked for with tags, as one of other classes is: half an answer is no other member."""

from __future__ import annotations

import json
from typing import Any, NotRequired

import pytest
from typing_extensions import TypedDict

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from agentflow.lib.schema.tagged_unions import tagged_unions


class Bug(TypedDict):
    path: str
    line: int
    note: NotRequired[str]


class Clean(TypedDict, total=False):
    reason: str
    note: str


class Report(TypedDict):
    title: str
    verdict: Bug | Clean


KINDS: list[Any] = [Bug | Clean, list[Bug | Clean], dict[str, Bug | Clean] | None, Report]


async def asked(kind: Any, *replies: Any) -> Any:
    """What a question gives for a type when the model answers so."""
    model = ScriptedProvider([json.dumps(each) for each in replies])
    async with AgentFlow(provider=model) as flow:
        return await flow.ask("Well?", output=kind)


async def test_a_typed_dict_is_the_member_that_the_tag_says() -> None:
    """The tag is taken away, and the dict is what the class says."""
    assert await asked(Bug | Clean, {"kind": "Bug", "path": "a.py", "line": 3}) == {"path": "a.py", "line": 3}
    assert await asked(Bug | Clean, {"kind": "Clean", "note": "x"}) == {"note": "x"}
    inner = {"kind": "Bug", "path": "a.py", "line": 3, "note": "y"}
    report = await asked(Report, {"title": "t", "verdict": inner})
    assert report == {"title": "t", "verdict": {"path": "a.py", "line": 3, "note": "y"}}


@pytest.mark.parametrize("half", [{"kind": "Bug", "note": "x"}, {"kind": "Bug", "path": "a.py"}, {"kind": "Other"}])
async def test_half_a_typed_dict_is_no_other_member(half: dict[str, Any]) -> None:
    """``{"note": "x"}`` of a Bug would be a whole Clean: it is sent back once, then an error."""
    with pytest.raises(AgentflowError) as refused:
        await asked(Bug | Clean, half, half)
    assert refused.value.code == "tasks/schema-missed"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_recorded_of_typed_dicts_reads_as_it_was(kind: Any) -> None:
    """A dict does not say of which class it is, and reads the same as either."""
    unions = tagged_unions(kind)
    assert unions is not None
    one: Any = {"note": "x"}
    values: dict[int, Any] = {
        0: one,
        1: [one, {"path": "p", "line": 1}],
        2: {"a": one},
        3: {"title": "t", "verdict": one},
    }
    value = values[KINDS.index(kind)]
    stored = json.loads(json.dumps(unions.dump_python(value, mode="json", by_alias=True, warnings=False)))
    assert unions.validate_python(stored) == value
