"""Lists of tools: the value of ``tools=`` as names and objects, and the tools that a list means when a prompt is run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.endings import Handoff
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.known_names import ASKED, DEFINE, EVERY, FILES, GUARDED, HANDOFF, CompiledTask
from agentflow.core.data.messages import Message, ToolResultPart, ToolSpec
from agentflow.core.ports.ports import Prompt, Tool, ToolPort
from agentflow.core.ports.toolbox import NO_TOOLBOX, RUN_PROGRAM, Toolbox, offered
from agentflow.handler.tools import SEARCH_TOOLS, handoff_tool, search_tool, task_tool, tool_from_function
from agentflow.lib.schema.json_schema import Schema

_RESERVED = ("system:", FILES, ASKED)


class ToolTable(Protocol):
    """The tools of a flow, as far as a list of tools is read against them. ``words`` are names that no tool may have."""

    words: Container[str]

    def find(self, name: str) -> Tool | None: ...
    def offers(self, name: str) -> bool:
        """Whether a list may hold ``name`` although it is not a tool: the pattern of all tools of a server."""
        ...


def read_tools(tools: object, table: ToolTable, where: str = "a prompt") -> tuple[list[str] | None, Toolbox]:
    """The names that ``tools`` offers, None for all ordinary tools of the flow, and the objects among them.

    ``tools`` is a list of functions, tasks, workflows, Tools, names and MCP servers, or the flow's table itself; ``table``
    are the flow's tools: a function that stands there is that tool. ``where`` names the list in errors. Raises
    ConfigurationError: ``config/option`` for anything else, ``tool/duplicate`` for two objects of one name,
    ``tool/reserved-name`` for an object named like a word of the language.
    """
    if tools is table:
        return None, NO_TOOLBOX
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise _no_list(tools, where)
    listed: dict[str, Tool | None] = {}
    own: dict[str, Tool] = {}
    everything = False
    for each in cast("Sequence[object]", tools):
        if each is table:
            everything = True
            continue
        name, tool = _item(each, table, where)
        if name in listed:
            before = listed[name]
            if before is not None and not _are_one(before, tool):
                raise duplicate(f"{where}: tools= holds two tools called '{clip(name, 120)}'", before, tool)
        if tool is not None and not isinstance(each, str):
            if table.find(name) is not tool:
                _check_name(name, table.words, where)
            own[name] = tool
        listed.setdefault(name, tool)
    return None if everything else [*listed], Toolbox(map(entry_of, own.values())) if own else NO_TOOLBOX


def read_handoffs(handoffs: object, where: str) -> tuple[list[str], dict[str, Tool]]:
    """The names of the tools that make ``handoffs``, and the tools, by name, of tasks given as objects; a name
    is that of a task, which may be declared later. Raises ConfigurationError (``config/handoff``)."""
    if isinstance(handoffs, str) or not isinstance(handoffs, Sequence):
        raise _no_handoffs(where, handoffs)
    names: list[str] = []
    own: dict[str, Tool] = {}
    for each in cast("Sequence[Any]", handoffs):
        if not isinstance(each, str | Handoff) and not hasattr(each, "template"):
            raise _no_handoffs(where, each)
        handoff = each if isinstance(each, Handoff) else Handoff(each)
        names.append(f"{HANDOFF}{handoff.name}")
        if handoff.compiled is not None:
            tool = handoff_tool(handoff, handoff.compiled)
            own[tool.name] = tool
    return names, own


def _no_handoffs(where: str, value: object) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: handoffs= holds {clip(repr(value), 120)}, which is not a task",
        code="config/handoff",
        hint="write handoffs=[billing], tasks of @flow.task, their names, or Handoff(billing, keep=None)",
    )


def entry_of(tool: Tool) -> tuple[Tool, Schema | None]:
    """A tool with the schema that its arguments are checked against, unless it checks them itself."""
    return tool, None if tool.validates else Schema(tool.spec.input_schema)


def _are_one(tool: Tool, other: Tool | None) -> bool:
    return tool is other or (other is not None and tool.function is not None and tool.function == other.function)


def _item(each: object, table: ToolTable, where: str) -> tuple[str, Tool | None]:
    """The name of a list's item, and its tool; None for a name without a tool, which may be a task's."""
    if isinstance(each, str):
        return each, table.find(each)
    if isinstance(each, Tool):
        return each.name, each
    own: object = getattr(each, "tool", None)  # of a task or workflow
    if isinstance(own, Tool):
        return own.name, own
    read: object = getattr(each, "in_list", None)  # of tools for programs
    if callable(read):
        return RUN_PROGRAM, cast(Tool, read(table, where))
    every: object = getattr(each, "every_tool", None)  # of an MCP server
    if isinstance(every, str):
        if not table.offers(every):
            raise ConfigurationError(
                f"{where}: tools= holds the MCP server '{every.removesuffix(EVERY)}', to which the flow has no connection",
                code="config/option",
                hint="name it there too: AgentFlow(mcp=[server])",
            )
        return every, None
    if not callable(each) or isinstance(each, type):
        raise ConfigurationError(
            f"{where}: tools= holds {clip(repr(each), 120)}, which is not a tool",
            code="config/option",
            hint="it may hold functions, tasks, workflows, Tools, MCP servers, and names of the flow's tools",
        )
    built = tool_from_function(cast("Callable[..., Any]", each))
    flows = table.find(built.name)
    return built.name, flows if flows is not None and flows.function == each else built


def _check_name(name: str, words: Container[str], where: str) -> None:
    if name.startswith(_RESERVED) or name in GUARDED or name == DEFINE or name in words:
        raise ConfigurationError(
            f"{where}: a tool may not be called '{clip(name, 120)}', which is a word of the language",
            code="tool/reserved-name",
            hint="give it another name: @tool(name='...')",
        )


def _no_list(tools: object, where: str) -> ConfigurationError:
    instead = f"tools=[{tools!r}]" if isinstance(tools, str) else "tools=[search, 'name'], or tools=flow.tools"
    if hasattr(tools, "in_list"):
        instead = "tools=[code(flow.tools)], in a list"
    return ConfigurationError(
        f"{where}: tools={clip(repr(tools), 120)} is not a list of tools",
        code="config/option",
        hint=f"write {instead}",
    )


def duplicate(message: str, one: Tool, other: Tool | None) -> ConfigurationError:
    """The error for two tool objects of one name, which says where each is written."""
    return ConfigurationError(
        f"{message}: {_place(one)}, and {'the name of one that is not there' if other is None else _place(other)}",
        code="tool/duplicate",
        hint="give one of them another name: @tool(name='...')",
    )


def _place(tool: Tool) -> str:
    function = tool.function
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None:
        return tool.reference or tool.origin or "one that was registered"
    return f"{tool.reference} ({code.co_filename}:{code.co_firstlineno})"


def find_named(call: CallContext, tools: ToolPort, tasks: dict[str, Tool], name: str) -> Tool:
    """The tool called ``name``, or the task, which is put among the ``tasks``."""
    tool = tools.find(name, call)
    if tool is None:
        receiver = name.removeprefix(HANDOFF)
        task = call.run.services.task(receiver, call)
        if task is None:
            raise ConfigurationError(
                f"the prompt offers a tool '{clip(name, 120)}' that is not registered",
                code="tool/unknown",
                hint=tools.hint_for(name) or "register it, or leave it out of the task's tools",
            )
        tool = tasks[name] = named_task(task, call) if receiver == name else handoff_tool(Handoff(receiver), task)
    return tool


def named_task(task: CompiledTask, call: CallContext) -> Tool:
    """A task as a tool of a model, for a list of tools that names it.

    Where the host offers it, it runs with the host's authority, as a task given as an object does.
    """
    tool: Tool | None = task.memo.get("tool")
    if tool is None:
        told = task.template.description or task.template.instructions
        tool = task.memo["tool"] = task_tool(task, told, task.arguments_schema())
    return tool if call.grants is None else replace(tool, task=None)


async def with_chosen(prompt: Prompt, call: CallContext, tools: ToolPort) -> Prompt:
    """``prompt`` with the tools that its host chooses for a turn now, if it does, after those that it names, and with those of
    the conversation that it takes part in."""
    chooser = prompt.rules.chooser
    if chooser is not None:
        names, own = await chooser(call)
        if own:
            prompt = replace(prompt, toolbox=(cast("Toolbox | None", prompt.toolbox) or NO_TOOLBOX).with_others(own))
        prompt = replace(prompt, tools=None if names is None else (*(prompt.tools or ()), *names))
    history = prompt.history
    if call.session.tools and (history.use_session_history or history.record_in_session_history):
        from agentflow.handler.external_tools import with_external  # few conversations have tools

        return with_external(prompt, call, tools)
    return prompt


def searched(
    objects: Mapping[str, Tool], toolbox: Toolbox, loaded: frozenset[str], natively: bool
) -> tuple[dict[str, Tool], Toolbox]:
    """The tools offered of ``objects``, without deferred ones yet to be ``loaded`` unless the provider finds them ``natively``, and a
    tool to search them and those of programs, also in the toolbox.

    Raises ConfigurationError (``tool/duplicate``) where another tool has the name of that.
    """
    programs = objects.get(RUN_PROGRAM)
    hidden = None if programs is None or programs.code is None else programs.code.hidden
    search = search_tool([tool.spec for tool in objects.values() if tool.defer_loading and not natively], hidden)
    if SEARCH_TOOLS in objects:
        raise duplicate(f"tools are deferred, so '{SEARCH_TOOLS}' is offered", objects[SEARCH_TOOLS], search)
    offers = {name: tool for name, tool in objects.items() if natively or not tool.defer_loading or name in loaded}
    return {**offers, search.name: search}, toolbox.with_others(Toolbox([entry_of(search)]))


Offer: TypeAlias = Callable[[frozenset[str]], Awaitable[tuple[ToolSpec, ...]]]
"""Chooses the tools of a turn, with those deferred ones that the model has found."""


def found_in(messages: Sequence[Message]) -> frozenset[str]:
    """The names of the tools that the model has found with ``search_tools`` in a conversation; a result of another form, such as
    one that middleware has replaced, names none."""
    names: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResultPart) and part.name == SEARCH_TOOLS:
                try:
                    names.update([str(each["name"]) for each in json.loads(part.text)])
                except (ValueError, TypeError, KeyError):
                    continue
    return frozenset(names)


def in_order(before: tuple[ToolSpec, ...], now: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """The tools of a turn in the order of the turn before, then the new ones: providers cache the beginning of a request."""
    return (*[spec for spec in before if spec in now], *[spec for spec in now if spec not in before])


def named_tools(
    names: Sequence[str] | None, own: Mapping[str, Tool], call: CallContext, tools: ToolPort
) -> tuple[dict[str, Tool], dict[str, Tool]]:
    """The tools with these ``names`` at ``call``, ``own`` ones first (None: all ordinary ones), and those of them that are tasks, by name.

    Raises ConfigurationError: ``tool/unknown``, and the error for missing dependencies, before a model is paid.
    """
    tasks: dict[str, Tool] = {}

    def ordinary() -> list[str]:
        return [spec.name for spec in tools.ordinary(call)]

    objects = offered(names, own, ordinary, call.grants, partial(find_named, call, tools, tasks))
    for tool in objects.values():
        if tool.deps is not None:
            call.require_deps(tool.deps, f"the tool '{tool.name}'")
    return objects, tasks
