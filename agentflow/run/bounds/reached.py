"""What a program can reach: tasks, tools, models, files and workflows, from its analysis and the facts about names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentflow.core.data.names import Definitions, file_grants
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.events.facts import Authority, TaskFacts, ToolFacts
from agentflow.core.ports.ports import NameFacts
from agentflow.lang.bounds.analysis import Analysis
from agentflow.lang.bounds.flow import Flows
from agentflow.lang.bounds.interpret import ANYTHING
from agentflow.run.bounds.sinks import reach_of

_FILE_TOOLS = ("system:read_files", "system:write_file", "system:list_directory")


def authority_of(
    analysis: Analysis,
    templates: Mapping[str, Sequence[Any]],
    facts: NameFacts,
    grants: frozenset[str] | None,
    defined: Definitions | None,
    models_of: Callable[[TaskTemplate], Iterable[str]],
    *,
    flows: Callable[[], Flows],
    bindings: Mapping[str, Any],
) -> Authority:
    """What a program with this analysis can reach, directly and through its tasks.

    ``templates`` are the tasks that it defines; ``models_of`` returns the models that may answer a task. A call whose target is
    data reaches everything that ``grants`` (None: the host's authority) allow. ``flows`` says what flows where in the text, ``bindings`` what
    it is given.
    """
    names = {name for kind, name in analysis.reaches if kind == "task"}
    tools = {name for kind, name in analysis.reaches if kind == "tool"}
    if analysis.by_data:
        names |= {*_granted(facts.task_names(), grants), *templates}
        tools |= {*_granted(facts.tool_names(), grants)}
    tasks: dict[str, list[TaskFacts]] = {}
    own: list[ToolFacts] = []
    pending = sorted(names)
    while pending:
        name = pending.pop()
        if name in tasks:
            continue
        registered = facts.task(name, defined, grants)
        defined_here = [facts.own_task(each, grants, defined=defined) for each in templates.get(name, ())]
        tasks[name] = [*defined_here, *([] if registered is None else [registered])]
        for each in tasks[name]:
            pending.extend(each.calls)
            own.extend(each.own)
            offered = set(each.tools).difference([tool.name for tool in each.own])
            asked = {tool for tool in offered if facts.tool(tool) is None}  # tasks, which its model may call
            pending.extend(asked)
            tools |= offered - asked
    models = {
        model
        for several in tasks.values()
        for each in several
        if not each.template.is_function
        for model in models_of(each.template)
    }
    reads = bool(tasks) or any(name in tools for name in _FILE_TOOLS)
    described = [each for name in sorted(tools) if (each := facts.tool(name)) is not None]
    described += sorted([each for each in own if each not in described], key=lambda each: each.name)
    return Authority(
        tasks=tuple(sorted(tasks)),
        tools=tuple(described),
        models=tuple(sorted(name for name in models if name)),
        files=tuple(sorted(each.removeprefix("files:") for each in file_grants(grants))) if reads else (),
        workflows=tuple(sorted(name for kind, name in analysis.reaches if kind == "workflow")),
        sinks=reach_of(flows, described, tasks, bindings, by_data=bool(analysis.by_data), guards=facts.guards()),
        complete=ANYTHING not in analysis.counts and ("solve", "solve") not in analysis.reaches and all(tasks.values()),
    )


def _granted(names: Sequence[str], grants: frozenset[str] | None) -> list[str]:
    return [name for name in names if grants is None or name in grants]
