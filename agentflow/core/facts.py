"""What is known of a task or tool before it is called: what it costs, what it touches, and what it answers with.

What is not declared has the careful answer: a tool may write, may not be repeated, and its result is its own source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agentflow.core.frozen import frozen
from agentflow.core.templates import TaskTemplate


@frozen(kw_only=True)
class TaskFacts:
    """A task. ``model_calls`` are the most that one call of it makes, None if nothing bounds them, and ``reason`` why;
    those of ``calls``, the tasks that its texts call, are not among them. ``tools`` is what its model is offered;
    ``offered_all``: it names none, and so is offered every registered tool. ``returns`` is the JSON Schema of its value,
    None if that is text or any JSON; ``history``: it sends the session's history, or adds to it.
    """

    template: TaskTemplate
    model_calls: int | None = None
    reason: str = ""
    tools: tuple[str, ...] = ()
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
    JSON Schema of its value, None if that is not declared; ``calls_models``: it runs tasks. ``approval`` asks before each
    call; ``origin`` says whose it is, if not the host's.
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


@frozen
class WorkflowFacts:
    """A saved workflow: its ``program``, the ``parameters`` that are bound as its variables, and the names it may call, None
    for all that its caller may."""

    name: str
    program: str
    parameters: frozenset[str]
    allow: frozenset[str] | None = None


__all__ = ["TaskFacts", "ToolFacts", "WorkflowFacts"]
