"""Everything a program may ask of the world. All of it goes through ``rt.perform(effect, span)``.

An effect is keyed by branch path and ordinal, never by global order, so that a run can be recorded and resumed. A log
line, which has no outcome that could be recorded, draws no number. An effect that calls something by name carries
``env``, the tasks defined where the call is written; None for those of the strand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentflow.core.names import Definitions


@dataclass(frozen=True, slots=True)
class TaskCall:
    """``(task (param value) ...)``: gives the task's TaskResult.

    ``arguments`` holds all named arguments as written, the reserved ones (files, context, inputs, history_config) too.
    """

    name: str
    arguments: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """``(tool (param value) ...)``: gives the tool's TaskResult."""

    name: str
    arguments: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HostCall:
    """A Python callable in operator position: gives what it returns, awaited when awaitable."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class GetContext:
    """``(get_context (query q) ...)``: path strings, or MatchItems when ``items``."""

    arguments: dict[str, Any]
    items: bool = False


@dataclass(frozen=True, slots=True)
class LogMessage:
    """``(log-message ...)``: publishes a Log event; gives the text."""

    text: str


@dataclass(frozen=True, slots=True)
class Timer:
    """Wait ``seconds`` (``retry``'s back-off, drawn in 0..seconds when ``jitter``); gives nil."""

    seconds: float
    jitter: bool = False


@dataclass(frozen=True, slots=True)
class Solve:
    """``(solve goal (allow ...) (max-rounds n))``: a model writes a program for the goal, which is checked and run."""

    goal: str
    allow: tuple[str, ...]
    max_rounds: int
    inputs: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CallWorkflow:
    """``(call-workflow name (param value) ...)``: runs a saved workflow within this run."""

    name: str
    arguments: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)


Effect: TypeAlias = TaskCall | ToolCall | HostCall | GetContext | LogMessage | Timer | Solve | CallWorkflow
