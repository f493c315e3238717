"""Facts about a task or tool before it is called: its cost, its reach, and its result.

Undeclared facts have the careful default: a tool may write, may not be repeated, and its result is its own source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Surface
from agentflow.core.data.templates import TaskTemplate


@frozen(kw_only=True)
class TaskFacts:
    """A task. ``model_calls`` is the largest number that one call of it makes, None without a bound, and ``reason`` says
    why; the model calls of ``calls``, the tasks that its texts call, each as often as they do, are not included. ``tools``
    are the tools offered to its model, ``own`` the facts of those passed as objects by the host; ``offered_all``: it names
    none, so every registered tool is offered. ``returns`` is the JSON Schema of its value, None for text or any JSON;
    ``history``: it sends the session's history, or adds to it."""

    template: TaskTemplate
    model_calls: int | None = None
    reason: str = ""
    tools: tuple[str, ...] = ()
    own: tuple[ToolFacts, ...] = ()
    offered_all: bool = False
    returns: Mapping[str, Any] | None = None
    calls: tuple[str, ...] = ()
    history: bool = True

    @property
    def name(self) -> str:
        """The task's name."""
        return self.template.name

    @property
    def checked(self) -> bool:
        """Whether its result conforms to ``returns``: a model's answer does, the result of a program in its place need not."""
        return not (self.reason or self.template.is_function)

    @property
    def turns(self) -> int | None:
        """The number of turns it declares, None for the run's."""
        return self.template.max_turns


@frozen(kw_only=True)
class ToolFacts:
    """A tool. ``read_only`` changes nothing; ``idempotent`` may be repeated, None if undeclared; ``source`` is the source
    of its result; ``sinks`` restrict the sources of its arguments. ``returns`` is the JSON Schema of its value, None if
    undeclared; ``calls_models``: it runs tasks, or its server may ask the model. ``approval`` asks before each call;
    ``origin`` names its owner, if not the host. ``identity`` is a digest of its schema and origin."""

    name: str
    read_only: bool = False
    idempotent: bool | None = None
    source: str = ""
    sinks: Mapping[str, str] = field(default_factory=dict[str, str])
    returns: Mapping[str, Any] | None = None
    calls_models: bool = False
    approval: bool = False
    origin: str = ""
    identity: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Its declarations, as data for JSON."""
        return {
            "name": self.name,
            "read_only": self.read_only,
            "idempotent": self.idempotent,
            "source": self.source,
            "sinks": dict(self.sinks),
            "approval": self.approval,
        }


@frozen
class WorkflowFacts:
    """A saved workflow: its ``program`` in a ``surface``, the ``parameters`` bound as its variables, and the names it may call, None
    for all that its caller may."""

    name: str
    program: str
    parameters: frozenset[str]
    allow: frozenset[str] | None = None
    surface: Surface = "sexp"


@frozen
class GuardedArgument:
    """A guarded argument of a callable: ``allow`` are the sources that may reach it, or patterns of them. As the program is
    written, ``sources`` can reach it; those in ``refused`` may not: such a call is denied where the flow has a policy.
    Other sources cannot reach it through the program's data."""

    tool: str
    argument: str
    allow: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as data for JSON."""
        lists = {"allow": self.allow, "may_reach": self.sources, "refused": self.refused}
        return {"tool": self.tool, "argument": self.argument, **{key: list(each) for key, each in lists.items()}}

    def __str__(self) -> str:
        shown = [f"{each} (refused)" if each in self.refused else each for each in self.sources]
        what = f"may be reached by {', '.join(shown)}" if shown else "is reached by the user only"
        return f"'{self.argument}' of {self.tool} {what}"


@frozen(kw_only=True)
class Authority:
    """The reach of a program: names of ``tasks``, ``tools`` with their declarations, including those offered to tasks,
    ``models``, patterns of ``files`` and names of ``workflows``; ``sinks`` are the guarded arguments of these tools, with
    the sources that may reach each. Not ``complete``: code may run that the text does not show."""

    tasks: tuple[str, ...] = ()
    tools: tuple[ToolFacts, ...] = ()
    models: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    sinks: tuple[GuardedArgument, ...] = ()
    complete: bool = True

    def rows(self) -> list[tuple[str, str]]:
        """Its description for display: pairs of a label and a text."""
        tools = [_shown(each) for each in self.tools]
        rows = [("tasks", ", ".join(self.tasks)), ("tools", ", ".join(tools)), ("models", ", ".join(self.models))]
        rows += [("files", ", ".join(self.files)), ("workflows", ", ".join(self.workflows))]
        shown = [(label, text or "none") for label, text in rows]
        shown += [("sink", str(each)) for each in self.sinks]
        return shown if self.complete else [*shown, ("and", "everything that hidden code does")]

    def to_dict(self) -> dict[str, Any]:
        """The same as data for JSON."""
        return {
            "tasks": list(self.tasks),
            "tools": [each.to_dict() for each in self.tools],
            "models": list(self.models),
            "files": list(self.files),
            "workflows": list(self.workflows),
            "sinks": [each.to_dict() for each in self.sinks],
            "complete": self.complete,
        }


def _shown(tool: ToolFacts) -> str:
    says = ["reads" if tool.read_only else "writes"]
    says += [f"{argument}: {who}" for argument, who in tool.sinks.items()]
    says += [f"from {tool.source}"] if tool.source and tool.source != f"tool:{tool.name}" else []
    return f"{tool.name} ({', '.join(says)})"
