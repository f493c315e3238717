"""Conversations that one task hands over to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.endings import HandedOver, Handoff
from agentflow.core.data.errors import ConfigurationError, TaskError
from agentflow.core.data.known_names import HANDOFF, narrowed
from agentflow.core.data.limits import added
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.events.events import TaskStarted
from agentflow.tasks.overrides import TaskOptions
from agentflow.tasks.template_registry import CompiledTemplate

Execute = Callable[[CompiledTemplate, SubtaskRequest, CallContext, TaskOptions], Awaitable[Any]]
"""Executes a task for a request at a call; returns an Execution."""


def check_handoffs(compiled: object) -> None:
    """Raise ConfigurationError (``config/handoff``) for a compiled task that may hand over to one that returns another type."""
    if not isinstance(compiled, CompiledTemplate):
        return
    for tool in compiled.toolbox.values():
        if tool.ends and isinstance(tool.task, CompiledTemplate):
            _check_type(compiled, tool.task)


def _check_type(first: CompiledTemplate, other: CompiledTemplate) -> None:
    if first.output != other.output:
        raise ConfigurationError(
            f"task '{first.name}' may hand over to '{other.name}', which returns another type",
            code="config/handoff",
            hint="the value of the last task is that of the first: give both the same return annotation",
        )


def receiver(giver: CompiledTemplate, handoff: Handoff, call: CallContext, named: Any) -> CompiledTemplate:
    """The task that a conversation is handed over to by the task ``giver``: the one that the handoff holds, the one of that name
    in ``handoffs=`` of the giver, or else ``named``, the template of that name at the call.

    Raises TaskError (``tasks/handoff``) for a name without a task.
    """
    listed = giver.toolbox.get(f"{HANDOFF}{handoff.name}")
    following = handoff.compiled_in(call.run.services) or (named if listed is None else listed.task)
    if isinstance(following, CompiledTemplate):
        journal = call.run.journal
        return following if journal is None else cast(CompiledTemplate, journal.template(following))
    raise TaskError(
        f"task '{giver.name}' hands over to '{handoff.name}', and there is no such task",
        code="tasks/handoff",
        hint="declare it with @flow.task, or give the function: handoffs=[billing], Handoff(billing)",
    )


async def handed_over(
    first: CompiledTemplate,
    following: CompiledTemplate,
    handed: HandedOver,
    call: CallContext,
    options: TaskOptions,
    execute: Execute,
) -> Any:
    """The execution of the task that a conversation was handed over to, within the call of the task ``first``. Raises
    ConfigurationError (``config/handoff``) for a task that returns another type."""
    handoff = handed.handoff
    _check_type(first, following)
    missing = [each for each in following.arguments_schema().get("required", ()) if each not in handoff.arguments]
    if missing:
        raise TaskError(
            f"the handoff to '{following.name}' misses {', '.join([repr(each) for each in missing])}",
            code="tasks/missing-parameter",
            reason="input_validation_failure",
            hint=f"write Handoff({following.name}, {{'{missing[0]}': ...}})",
        )
    request = SubtaskRequest(name=following.name, inputs=dict(handoff.arguments))
    with call.scope(TaskStarted, name=following.name, request=request) as scope:
        inner = scope.call
        if following.grants is not None:
            inner.grants = narrowed(call.grants, following.grants)
        inner.session = call.session
        following_options = replace(options, prompt={**options.prompt, "handed": handed})
        execution = await execute(following, request, inner, following_options)
        result: TaskResult = execution.result
        scope.set(result=result, usage=result.usage, cost_usd=execution.cost_usd)
        if result.failed:
            scope.set(error=result.error)
    return execution


def with_cost(execution: Any, before: Any) -> Any:
    """An execution with the usage and the cost of the task ``before`` it in the same conversation."""
    result = replace(execution.result, usage=execution.result.usage + before.result.usage)
    return replace(execution, result=result, cost_usd=added(execution.cost_usd, before.cost_usd))
