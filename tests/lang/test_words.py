"""The words of the language, and tasks and tools that have the same names."""

from __future__ import annotations

import pytest

from agentflow import AgentFlow, BaseHandler, ScriptedProvider, TaskSystem
from agentflow.core.data.errors import AgentflowError, DataError
from agentflow.handler.tools import tool_from_spec
from agentflow.lang.words import TOOL_FORMS, WORDS


async def test_a_program_reaches_no_tool_by_a_word_of_the_language() -> None:
    """Whatever the word, ``(word)`` and ``(word (x 1))`` call no tool of that name; by any other name they do."""
    called: list[str] = []
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        for name in [*sorted(WORDS), "other"]:
            spec = {"name": name, "description": "", "input_schema": {"type": "object"}}
            flow.tools.add(tool_from_spec(spec, lambda arguments, name=name: called.append(name)))
        for name in [*sorted(WORDS - {"sleep", "ask-human", "wait-for-signal"}), "other"]:
            for text in (f"({name})", f"({name} (x 1))"):
                try:
                    await flow.run(text)
                except AgentflowError:
                    pass  # most words take other operands
    assert called == ["other", "other"]


@pytest.mark.parametrize("name", ["now", "map", "retry", "get_context"])
async def test_a_task_or_tool_that_no_program_can_call_is_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The specification's classes refuse both, alone and in a flow, and take ``remember``; a flow's table takes such a tool, for models, with a warning."""
    spec = {"name": name, "description": "", "input_schema": {"type": "object"}}
    template = {"name": name, "params": {}, "instructions": "hello"}
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        system = TaskSystem()
        handler = BaseHandler(system, None, ScriptedProvider([]))
        for tasks, tools in ((system, handler), (flow.task_system, flow.handler)):
            with pytest.raises(DataError, match="could never be called"):
                tasks.register_template(template)
            assert not tools.register_tool(spec, lambda arguments: None)
            for other in ("ask", *TOOL_FORMS):
                assert tools.register_tool({**spec, "name": other}, lambda arguments: None)
                tasks.register_template({**template, "name": other})
        caplog.clear()
        flow.tools.add(tool_from_spec(spec, lambda arguments: None))
        assert f"no program can call the tool '{name}'" in caplog.text
