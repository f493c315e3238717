"""Code mode: one tool by which a model runs programs that call the other tools.

A program is a text of a model, so it is checked, bounded, narrowed and approved as those of ``solve`` and ``eval-program`` are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, cast

from agentflow.core.call.call import CallContext, view_of
from agentflow.core.call.written_program import WrittenProgram
from agentflow.core.data.errors import ConfigurationError, TaskError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import HANDOFF
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Surface
from agentflow.core.ports.ports import Prompt, Tool, ToolPort
from agentflow.core.ports.toolbox import RUN_PROGRAM, Toolbox
from agentflow.handler.tool_lists import ToolTable, named_tools, read_tools
from agentflow.handler.tools import SEARCH_TOOLS, parameters_schema
from agentflow.lib.text.fences import program_of

_LANGUAGES: Mapping[Surface, str] = {"python": "a subset of Python", "sexp": "S-expressions"}
_SCHEMA = parameters_schema({"program": {"type": "string", "minLength": 1, "description": "the text of the program"}})


@frozen
class CodeTools:
    """The value of :func:`code`, for a list of tools."""

    tools: object
    surface: Surface = "python"
    max_steps: int = 1_000_000
    names: tuple[str, ...] | None = None
    """The names of the tools in a list that was read; None for all ordinary ones of the flow."""
    own: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    hidden: Mapping[str, str] = field(default_factory=dict[str, str])
    """Usage of the deferred tools, by name, where it is offered."""

    def in_list(self, table: ToolTable, where: str) -> Tool:
        """The tool of a list. Raises ConfigurationError: the errors of :func:`read_tools`, and ``config/option`` for a tool that the
        flow does not have."""
        names, own = read_tools(self.tools, table, f"{where}: code()")
        for name, tool in own.items():
            if tool.task is None and table.find(name) is not tool:
                raise ConfigurationError(
                    f"{where}: code() holds '{clip(name, 120)}', which is not a tool of the flow",
                    code="config/option",
                    hint=f"programs call tools of the flow by their names: AgentFlow(tools=[{name}]), or flow.tools.add({name})",
                )
        read = replace(self, names=None if names is None else tuple(names), own=own)
        spec = ToolSpec(RUN_PROGRAM, "", _SCHEMA)
        return Tool(spec=spec, call=_not_offered, builtin=True, calls_models=True, code=read)


def code(tools: object, *, surface: Surface = "python", max_steps: int = 1_000_000) -> CodeTools:
    """Offer a model one tool, ``run_program``, in place of ``tools``: ``tools=[code(flow.tools)]``.

    The model writes a program that calls them, in loops and side by side, and reads the value of its last expression alone. ``tools``
    is a list as ``tools=`` takes it, of tools that the flow has, or ``flow.tools``. Deferred tools of it may be called too; the model finds
    their usage with ``search_tools``. ``surface`` is the language of the programs, ``"python"`` (a subset) or ``"sexp"``; ``max_steps`` bounds
    each program, in addition to the limits of the run. A program is checked before it runs; the model reads its errors
    and writes another. Raises ConfigurationError (``config/option``).
    """
    if surface not in _LANGUAGES:
        raise ConfigurationError(
            f"code(): surface={clip(repr(surface), 120)} is not a language of programs",
            code="config/option",
            hint="write surface='python' or surface='sexp'",
        )
    if type(max_steps) is not int or max_steps < 1:
        raise ConfigurationError(
            f"code(): max_steps={clip(repr(max_steps), 120)} is not a number of steps",
            code="config/option",
            hint="write max_steps=1_000_000",
        )
    return CodeTools(tools, surface, max_steps)


async def _not_offered(arguments: dict[str, Any], call: CallContext) -> Any:
    raise AssertionError("it is completed where it is offered")


async def with_programs(prompt: Prompt, call: CallContext, tools: ToolPort) -> Prompt:
    """``prompt`` with its tool ``run_program`` completed: with the names that its programs may call at ``call``, and their usage.

    Raises ConfigurationError (``tool/unknown``, ``config/option``).
    """
    toolbox = cast(Toolbox, prompt.toolbox)
    declared = toolbox[RUN_PROGRAM]
    chosen: CodeTools | None = declared.code
    if chosen is None:
        return prompt  # a function of the host with that name

    objects, _ = named_tools(chosen.names, chosen.own, call, tools)
    for name, tool in objects.items():
        if tool.task is not None and call.run.services.task(name, call) is not tool.task:
            raise ConfigurationError(
                f"code() holds the task '{clip(name, 120)}', which the flow has not, or in another form",
                code="config/option",
                hint="give the task itself, of @flow.task, and not a copy with options",
            )
    allow = frozenset([name for name in objects if not name.startswith(HANDOFF)])
    card, usages = await call.run.services.guide(allow, chosen.surface, call)
    hidden = {name: usage for name, usage in usages.items() if objects[name].defer_loading}
    about = _description(chosen.surface, card, [usages[name] for name in usages if name not in hidden], len(hidden))
    around = toolbox.around_tool

    async def run_program(arguments: dict[str, Any], call: CallContext) -> Any:
        program = WrittenProgram(program_of(arguments["program"], chosen.surface), chosen.surface)
        inner = call.for_host()  # granting the tool grants the tools that it calls (decision 27)
        inner.call_id = None  # its calls are the program's, which was approved, and not calls of a model
        if around:  # the task's middleware is around these calls of its model, too
            inner.run = view_of(call.run, around_tool=call.run.around_tool + around)
        async with call.run.services.called_back(call, inner):
            value = await program.run(allow, {}, inner, steps=chosen.max_steps)
        if not program.errors or isinstance(value, TaskResult):
            return value
        failed = "The program did not run" if program.stage == "checking" else "The program failed"
        error = TaskError(
            f"{failed}:\n" + clip("\n".join(program.errors), 8_000),
            reason="input_validation_failure" if program.stage == "checking" else "tool_execution_error",
            code="tool/faulty-program",
            details={"stage": program.stage, "errors": program.errors[:10]},
        )
        return TaskResult.from_error(error)

    spec = replace(declared.spec, description=about)
    tool = replace(declared, spec=spec, call=run_program, code=replace(chosen, hidden=hidden))
    return replace(prompt, toolbox=toolbox.with_all({RUN_PROGRAM: tool}))


def _description(surface: Surface, card: str, usages: list[str], hidden: int) -> str:
    more = f"\n\nThere are {hidden} more: {SEARCH_TOOLS} finds how to call them." if hidden else ""
    listed = "\n".join(usages) or ("(none)" if not hidden else "")
    return (
        f"Run a program in {_LANGUAGES[surface]} that calls tools, and read the value of its last expression. Write one program "
        "for several calls: loop over them, run them side by side, and choose from large results, since you read nothing but that value. "
        f"A program with an error is not run, or stops there, and you read why.\n\n{card}\n\n# Tools\n\n{listed}{more}"
    )
