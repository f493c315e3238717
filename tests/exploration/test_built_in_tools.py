"""Built-in tools say what they give: what they give for real, and what exploration has them give, are both of that shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.executors.note_tools import NOTE_TOOLS
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.exploration.rehearsal import Rehearsal, Setting
from agentflow.exploration.stand_ins import ChosenAnswers, Script
from agentflow.lib.schema.json_schema import check
from agentflow.testing import explore

CALLS = {
    "system:get_context": '(system:get_context (query "the tides"))',
    "system:read_files": '(system:read_files (file_paths \'("tides.md")))',
    "system:list_directory": '(system:list_directory (directory_path "."))',
    "system:write_file": '(system:write_file (file_path "new.md") (content "New.") (overwrite true))',
    "system:execute_shell_command": '(system:execute_shell_command (command "git --version"))',
    "system:clear_handler_data_context": "(system:clear_handler_data_context)",
    "system:prime_handler_data_context": '(system:prime_handler_data_context (initial_files \'("tides.md")))',
    "remember": '(remember "The tide comes twice a day.")',
    "recall": '(recall "the tide")',
}
"""A call of each built-in tool in a program."""
ALSO = {
    "system:get_context": ['(system:get_context (query "nothing of this is written anywhere"))'],
    "system:read_files": ['(system:read_files (file_paths \'("none.md")) (missing "skip"))'],
    "system:list_directory": ['(system:list_directory (directory_path "empty"))'],
    "recall": ['(recall "nothing of this" (limit 1))'],
}
"""Calls that find nothing."""


def value_of(value: Any) -> Any:
    """What a program sees as the value of what it called."""
    if not isinstance(value, TaskResult):
        return value
    return value.content if value.parsed_content is None else value.parsed_content


def declared(flow: AgentFlow, name: str) -> dict[str, Any]:
    """The schema that a tool declares for its value."""
    facts = flow.facts.tool(name)
    assert facts is not None and facts.returns, f"{name} does not say what it gives"
    return dict(facts.returns)


def test_every_built_in_tool_is_among_those_called_here() -> None:
    """A new built-in tool is called here too."""
    assert {*CALLS} == {*SCHEMAS, *NOTE_TOOLS}


async def test_real_values_are_of_the_declared_shape(tmp_path: Path) -> None:
    """What a built-in tool really gives, over real files, keeps to the shape that it declares."""
    (tmp_path / "tides.md").write_text("# The tides\n\nThe tide comes twice a day.\n", "utf-8")
    (tmp_path / "empty").mkdir()
    async with AgentFlow("offline", root=tmp_path, notes="session", approve=lambda request: True) as flow:
        for name, call in CALLS.items():
            schema = declared(flow, name)
            for text in (call, *ALSO.get(name, ())):
                value = (await flow.run(text)).value
                assert not isinstance(value, TaskResult) or not value.failed, (text, value.content)
                assert check(value_of(value), schema) == [], text


@pytest.mark.parametrize("name", CALLS)
async def test_rehearsed_values_are_of_the_declared_shape(name: str) -> None:
    """What exploration has a built-in tool give keeps to the same shape: the plainest answer, and each that differs in one choice."""
    async with AgentFlow("offline", notes="session") as flow:
        schema = declared(flow, name)
    rehearsal = Rehearsal(Source.unnamed(CALLS[name], "sexp"), Setting())
    scripts: list[Script] = [{}]
    for number, script in enumerate(scripts):
        chosen = ChosenAnswers(script, rehearsal.values)
        trial = await rehearsal.run(chosen)
        if not number:
            scripts += [{each.point: taken} for each in chosen.choices for taken in range(1, each.options)]
        if trial.error is None and not (isinstance(trial.value, TaskResult) and trial.value.failed):
            assert check(value_of(trial.value), schema) == [], script


@pytest.mark.parametrize("call", [CALLS["recall"], f"(value-of {CALLS['system:list_directory']})"])
async def test_a_list_that_a_built_in_tool_gives_may_be_empty(call: str) -> None:
    """The first of what is recalled, or listed, is an error where nothing is; that it is not a list is none."""
    explored = await explore(f"(first {call})")
    assert [found.code for found in explored.errors] == ["list/empty"]
