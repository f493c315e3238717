"""Explores programs written by models, for ``solve``, before they act."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.known_names import CompiledTask, Definitions
from agentflow.core.data.source import Source
from agentflow.core.ports.ports import TemplatePort, ToolPort
from agentflow.exploration.answer_search import explore
from agentflow.exploration.findings import Exploration, Finding
from agentflow.exploration.rehearsal import Rehearsal, Setting, tools_of
from agentflow.exploration.virtual_time import in_virtual_time

RUNS = 100
"""Maximum number of runs in such an exploration."""
_DATA = (str, int, float, bool, type(None))


async def explore_in_flow(
    templates: TemplatePort,
    tools: ToolPort,
    program: str | Source,
    allow: frozenset[str],
    inputs: Mapping[str, Any],
    call: CallContext,
) -> Sequence[str]:
    """Try a program out with the tasks and tools of a flow, without calling them; see :class:`~agentflow.exploration.explorer.FlowExplorer`."""
    if not _is_data(inputs):
        return ()
    source = program if isinstance(program, Source) else Source("<program>", program)
    explored = await explored_in_flow(templates, tools, source, inputs, allow=allow, definitions=call.definitions)
    return [_rendered(finding) for finding in explored.errors]


async def explored_in_flow(
    templates: TemplatePort,
    tools: ToolPort,
    source: Source,
    inputs: Mapping[str, Any],
    *,
    allow: frozenset[str] | None = None,
    definitions: Definitions | None = None,
) -> Exploration:
    """Explore a text with the tasks and tools of a flow, and ``definitions`` around it, without calling them. Raises the errors of the text."""
    registered = [tools.find(name) for name in tools.names()]
    setting = Setting(
        bindings=inputs,
        templates=_tasks(templates, definitions),
        tools=tools_of([each for each in registered if each is not None]),
        grants=allow,
    )

    async def work(stopped: Callable[[], bool]) -> Exploration:
        return await explore(Rehearsal(source, setting), RUNS, stopped)

    return await in_virtual_time(work)


def _tasks(templates: TemplatePort, definitions: Definitions | None) -> tuple[CompiledTask, ...]:
    """The tasks of the flow, where those that programs defined around it take precedence."""
    registered = [templates.find_compiled(name) for name in templates.template_names()]
    tasks = {each.name: each for each in registered if each is not None}
    for name in definitions.tasks() if definitions is not None else ():
        own = templates.find_compiled(name, definitions)
        if own is not None:
            tasks[name] = own
    return tuple(tasks.values())


def _rendered(finding: Finding) -> str:
    """A finding with its position in the text and the answers that cause it."""
    if finding.kind == "endless" or finding.error is None:
        return str(finding)
    when = f"\n  this happens when {finding.when}" if finding.when else ""
    return f"{finding.error.render()}{when}"


def _is_data(value: Any) -> bool:
    """Whether a value is JSON data, without procedures and objects of the host."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, Mapping):
            pending.extend(cast("Mapping[Any, Any]", each).values())
        elif isinstance(each, list | tuple):
            pending.extend(cast("list[Any]", each))
        elif not isinstance(each, _DATA):
            return False
    return True
