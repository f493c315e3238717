"""What a new user writes first who comes from another framework: it works, or the error says what to write."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agentflow import AgentFlow, AgentflowError, CallContext, Handoff
from agentflow.flow.program_methods import RUN
from agentflow.lib.option_hints import hint_for
from agentflow.lib.slips import OF_RUN
from agentflow.testing import Script
from tests.ports.replies import calls, told


async def test_a_context_without_an_annotation_is_the_context(flow: AgentFlow, script: Script) -> None:
    """``def balance(ctx, account)``, as in other frameworks: the model is not shown ``ctx``, and the tool is given it."""

    def balance(ctx, account: str) -> str:  # type: ignore[no-untyped-def]
        """The balance of an account."""
        return f"{account} of {ctx.deps}"

    script.on("ask", calls("balance", account="savings"), told)
    assert await flow.ask("How much?", tools=[balance], deps="Ada") == "savings of Ada"
    assert list(script.requests("ask")[0].tools[0].input_schema["properties"]) == ["account"]


async def task_with_an_option_of_the_run(flow: AgentFlow, task: Any) -> None:
    await task("Hello.", deps="Ada")


async def task_with_an_option_of_its_own(flow: AgentFlow, task: Any) -> None:
    await task("Hello.", model="openai:gpt-5")


async def workflow_with_a_context(flow: AgentFlow, task: Any) -> None:
    @flow.workflow
    async def chat(question: str, ctx: CallContext[str]) -> str:
        return await task(question)


async def system_with_a_slot_of_the_context(flow: AgentFlow, task: Any) -> None:
    @flow.task(system="You help {{ctx.deps}}.")
    async def chat(question: str) -> str:
        """{{question}}"""


async def handoff_without_arguments(flow: AgentFlow, task: Any) -> None:
    async def route() -> Handoff:
        """Find who can help."""
        return Handoff(task)

    await flow.ask("Help.", tools=[route])


async def middleware_that_returns_text(flow: AgentFlow, task: Any) -> None:
    async def guard(call: Any, run: Any, ctx: Any) -> Any:
        return "no"

    async def route() -> str:
        """Find who can help."""
        return "nobody"

    await flow.ask("Help.", tools=[route], around_tool=[guard])


async def option_of_another_framework(flow: AgentFlow, task: Any) -> None:
    await flow.ask("Help.", **cast(Any, {"output_type": int}))


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        (task_with_an_option_of_the_run, "flow.run(helper(...), deps=...)"),
        (task_with_an_option_of_its_own, "helper.with_options(model=...)(...)"),
        (workflow_with_a_context, "flow.deps(Bank)"),
        (system_with_a_slot_of_the_context, "system=lambda ctx"),
        (handoff_without_arguments, "Handoff(helper, {'question': ...})"),
        (middleware_that_returns_text, "TaskResult.complete('text')"),
        (option_of_another_framework, "output"),
    ],
)
async def test_a_slip_says_what_to_write(flow: AgentFlow, script: Script, written: Any, hint: str) -> None:
    """Each is an error with the form that works in its hint."""

    @flow.task
    async def helper(question: str) -> str:
        """{{question}}"""

    script.on("ask", calls("route"))
    with pytest.raises(AgentflowError) as error:
        await written(flow, helper)
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("place", "word", "hint"),
    [
        ("task", "validation_context", "check"),
        ("task", "prepare_tools", "tools=lambda ctx"),
        ("tool", "is_enabled", "tools=lambda ctx"),
        ("tool", "failure_error_function", "raise Retry"),
        ("task", "tool_use_behavior", "@tool(ends=True)"),
        ("task", "needs_approval", "@tool(approval=True)"),
        ("tool", "needs_approval", "approval"),
        ("task", "history_processors", "around_model=[redact]"),
        ("task", "usage_limits", "limits=Limits"),
        ("task", "thread_id", "session=session"),
        ("task", "input_filter", "Handoff(billing, keep=function)"),
        ("task", "checkpointer", "durable="),
        ("task", "keep_partial", "Session(keep_partial=True)"),
    ],
)
def test_an_option_of_another_framework_names_ours(place: Any, word: str, hint: str) -> None:
    """The words that the frameworks of the ports have for it."""
    assert hint in hint_for(word, place)


async def test_who_answers_is_an_option_of_the_flow(flow: AgentFlow) -> None:
    """``flow.run(..., answer=f)``: the hint names the flow's option."""
    with pytest.raises(AgentflowError) as error:
        await flow.run(flow.ask("?"), **cast(Any, {"answer": lambda question: 1}))
    assert "AgentFlow(answer=" in (error.value.hint or "")


def test_the_options_that_are_named_as_those_of_a_run_are_options_of_runs() -> None:
    """The hint of a task that is called with one of them may name ``flow.run``."""
    assert OF_RUN <= RUN
