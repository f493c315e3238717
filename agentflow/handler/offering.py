"""What the model of a prompt is offered, and with which authority its calls run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.names import CompiledTask, file_grants
from agentflow.core.ports.ports import Prompt, Tool, ToolPort
from agentflow.core.ports.toolbox import NO_TOOLBOX, Toolbox, offered
from agentflow.handler.tool_registry import NO_TOOLS
from agentflow.handler.tools import task_tool


def offered_to(prompt: Prompt, call: CallContext, tools: ToolPort) -> tuple[tuple[ToolSpec, ...], Toolbox | None]:
    """The specs of the tools that ``prompt`` offers at ``call``, and those of its tools that are not in the table ``tools``.

    A name that is no tool's may be a task's. Raises ConfigurationError (``tool/unknown``) for a name that is neither.
    """
    toolbox = cast("Toolbox | None", prompt.toolbox)
    if prompt.tools is None:
        if call.grants is None and (toolbox is None or toolbox is NO_TOOLBOX):
            return tools.ordinary(call), toolbox  # nearly all prompts of texts: nothing is looked up
    elif not prompt.tools:
        return (), toolbox
    tasks: dict[str, Tool] = {}

    def ordinary() -> list[str]:
        return [spec.name for spec in tools.ordinary(call)]

    objects = offered(prompt.tools, toolbox or NO_TOOLBOX, ordinary, call.grants, partial(_find, call, tools, tasks))
    specs = tuple([tool.spec for tool in objects.values()])
    return specs, (toolbox or NO_TOOLBOX).with_all(tasks) if tasks else toolbox


def _find(call: CallContext, tools: ToolPort, tasks: dict[str, Tool], name: str) -> Tool:
    """The tool called ``name``, or the task, which is put among the ``tasks``."""
    tool = tools.find(name, call)
    if tool is None:
        task = call.run.services.task(name, call)
        if task is None:
            raise ConfigurationError(
                f"the prompt offers a tool '{clip(name, 120)}' that is not registered",
                code="tool/unknown",
                hint=tools.hint_for(name) or "register it, or leave it out of the task's tools",
            )
        tool = tasks[name] = named_task(task, call)
    return tool


def named_task(task: CompiledTask, call: CallContext) -> Tool:
    """A task as a tool of a model, for a list of tools that names it.

    Where the host offers it, it runs with the host's authority, as a task that is given as an object does.
    """
    tool: Tool | None = task.memo.get("tool")
    if tool is None:
        told = task.template.description or task.template.instructions
        tool = task.memo["tool"] = task_tool(task, told, task.arguments_schema())
    return tool if call.grants is None else replace(tool, task=None)


def called_by_model(
    prompt: Prompt, call: CallContext, specs: tuple[ToolSpec, ...], toolbox: Toolbox | None, tools: ToolPort
) -> CallContext:
    """The call below which the calls of a prompt's model are numbered, with the authority of the offered tools.

    Files may be handed on to subtasks as far as the caller itself may give them.
    """
    inner = call.at(call.next_path("Prompt", prompt.model, prompt.system, prompt.parts))
    inner.grants = file_grants(call.grants).union([spec.name for spec in specs]) if specs else NO_TOOLS
    inner.held, inner.asked_by_model, inner.level = inner.grants, True, call.level + 1
    inner.toolbox = toolbox
    if prompt.toolbox is not None:  # of these, texts may call those that are the flow's
        find = tools.find
        local = [name for name, tool in cast(Toolbox, prompt.toolbox).items() if find(name) is not tool]
        inner.held = inner.grants.difference(local)
    return inner
