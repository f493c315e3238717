"""What is known of a task or tool before it is called: what it costs, what it touches, and what it answers with.

What is not declared has the careful answer: a tool may write, may not be repeated, and its result is its own source.
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
    """A task. ``model_calls`` are the most that one call of it makes, None if nothing bounds them, and ``reason`` why;
    those of ``calls``, the tasks that its texts call, each as often as they do, are not among them. ``tools`` is what its model is offered,
    ``own`` the facts of those that the host gave it as objects;
    ``offered_all``: it names none, and so is offered every registered tool. ``returns`` is the JSON Schema of its value,
    None if that is text or any JSON; ``history``: it sends the session's history, or adds to it.
    """

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
        """Whether what it answers with keeps to ``returns``: a model's answer does, that of a program in its place need not."""
        return not (self.reason or self.template.is_function)

    @property
    def turns(self) -> int | None:
        """How many turns it declares, None for the run's."""
        return self.template.max_turns


@frozen(kw_only=True)
class ToolFacts:
    """A tool. ``read_only`` changes nothing; ``idempotent`` may be repeated, None if nobody says; ``source`` is where its
    result comes from; ``sinks`` say of arguments that leave the program by it who may fill them. ``returns`` is the
    JSON Schema of its value, None if that is not declared; ``calls_models``: it runs tasks, or its server may ask the model. ``approval`` asks before each
    call; ``origin`` says whose it is, if not the host's. ``identity`` is a digest of its schema and origin.
    """

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
        """What it declares, as data for JSON."""
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
    """A saved workflow: its ``program`` in a ``surface``, the ``parameters`` that are bound as its variables, and the names it may call, None
    for all that its caller may."""

    name: str
    program: str
    parameters: frozenset[str]
    allow: frozenset[str] | None = None
    surface: Surface = "sexp"


@frozen
class GuardedArgument:
    """An argument of something that a program calls, which not everybody may fill: ``allow`` are the sources that may, or patterns of them. ``sources`` may reach it as
    the program is written, of which ``refused`` may not: a call in which they do is denied where the flow has a policy. What is not
    among them cannot reach it, by the program's data."""

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
    """What a program can reach: names of ``tasks``, ``tools`` with what they declare, those that tasks are offered among them,
    ``models``, patterns of ``files`` and names of ``workflows``; ``sinks`` are the arguments of these tools that not everybody may fill, with what
    may reach each. Not ``complete``: code may run that the text does not show."""

    tasks: tuple[str, ...] = ()
    tools: tuple[ToolFacts, ...] = ()
    models: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    sinks: tuple[GuardedArgument, ...] = ()
    complete: bool = True

    def rows(self) -> list[tuple[str, str]]:
        """What to show of it: a label and a text each."""
        tools = [_shown(each) for each in self.tools]
        rows = [("tasks", ", ".join(self.tasks)), ("tools", ", ".join(tools)), ("models", ", ".join(self.models))]
        rows += [("files", ", ".join(self.files)), ("workflows", ", ".join(self.workflows))]
        shown = [(label, text or "none") for label, text in rows]
        shown += [("sink", str(each)) for each in self.sinks]
        return shown if self.complete else [*shown, ("and", "whatever code does that the text does not show")]

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
