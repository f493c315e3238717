"""The words of the language, and tasks and tools that have the same names."""

from __future__ import annotations

import logging

import pytest

from agentflow import AgentFlow, BaseHandler, ScriptedProvider, TaskSystem
from agentflow.core.errors import AgentflowError
from agentflow.handler.tools import tool_from_spec
from agentflow.lang.words import TOOL_FORMS, WORDS


async def test_a_program_reaches_no_tool_by_a_word_of_the_language() -> None:
    """Whatever the word, ``(word)`` and ``(word (x 1))`` call no tool of that name; by any other name they do."""
    called: list[str] = []
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        for name in [*sorted(WORDS), "other"]:
            spec = {"name": name, "description": "", "input_schema": {"type": "object"}}
            flow.tools.add(tool_from_spec(spec, lambda arguments, name=name: called.append(name)))
        for name in [*sorted(WORDS - {"sleep", "ask-human"}), "other"]:
            for text in (f"({name})", f"({name} (x 1))"):
                try:
                    await flow.run(text)
                except AgentflowError:
                    pass  # most words take other operands
    assert called == ["other", "other"]


@pytest.mark.parametrize("name", ["now", "map", "retry", "get_context"])
async def test_a_task_or_tool_that_no_program_can_call_is_warned_of(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A flow and classes that are put together by hand warn of both, once each; of other names, and of ``remember``, not."""
    spec = {"name": name, "description": "", "input_schema": {"type": "object"}}
    template = {"name": name, "params": {}, "instructions": "hello"}
    with caplog.at_level(logging.WARNING):
        async with AgentFlow(provider=ScriptedProvider([])) as flow:
            flow.handler.register_tool(spec, lambda arguments: None)
            flow.task_system.register_template(template)
        system = TaskSystem()
        system.register_template(template)
        BaseHandler(system, None, ScriptedProvider([])).register_tool(spec, lambda arguments: None)
        warned = [record.getMessage() for record in caplog.records]
        for other in ("ask", *TOOL_FORMS):
            flow.handler.register_tool({**spec, "name": other}, lambda arguments: None)
            flow.task_system.register_template({**template, "name": other})
    expected = [f"no program can call the {what} '{name}'" for what in ("task", "task", "tool", "tool")]
    assert sorted([message.partition(":")[0] for message in warned]) == expected
    assert [record.getMessage() for record in caplog.records] == warned
