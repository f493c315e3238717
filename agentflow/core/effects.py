"""Effects: all requests of a program to the outside. Each goes through ``rt.perform(effect, span)``.

An effect is keyed by branch path and ordinal, never by global order, so that a run can be recorded and resumed. A log
line, which has no outcome to record, draws no number. An effect that calls something by name carries ``env``, the tasks
defined where the call is written; None means those of the strand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from agentflow.core.frozen import frozen
from agentflow.core.names import Definitions


@frozen
class TaskCall:
    """``(task (param value) ...)``: returns the task's TaskResult.

    ``arguments`` holds all named arguments as written, including reserved ones (files, context, inputs,
    history_config).
    """

    name: str
    arguments: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)


@frozen
class ToolCall:
    """``(tool (param value) ...)``: returns the tool's TaskResult."""

    name: str
    arguments: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)


@frozen
class HostCall:
    """A Python callable in operator position: returns its result, awaited if it is awaitable."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    name: str = ""


@frozen
class Step:
    """A function of the host that a Python workflow has recorded: returns its result, awaited if it is awaitable."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    name: str


@frozen
class GetContext:
    """``(get_context (query q) ...)``: returns path strings, or MatchItems with ``items``."""

    arguments: dict[str, Any]
    items: bool = False


@frozen
class LogMessage:
    """``(log-message ...)``: publishes a Log event and returns the text."""

    text: str


@frozen
class Timer:
    """Waits ``seconds`` (``sleep``, and the back-off of ``retry``: with ``jitter`` a random part of it) and returns nil."""

    seconds: float
    jitter: bool = False


@frozen
class Draw:
    """``(now)``, ``(random [n])`` and ``(uuid)``: returns what is another value every time.

    ``below`` bounds a random integer; None asks for a float.
    """

    source: Literal["now", "random", "uuid"]
    below: int | None = None


@frozen
class AskHuman:
    """``(ask-human question [schema])``: returns somebody's answer, which fits the JSON Schema ``schema`` (None: any data)."""

    question: str
    schema: Mapping[str, Any] | None = None


@frozen
class Solve:
    """``(solve goal (allow ...) (max-rounds n))``: a model writes a program for the goal, which is checked and run."""

    goal: str
    allow: tuple[str, ...]
    max_rounds: int
    inputs: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)


@frozen
class CallWorkflow:
    """``(call-workflow name (param value) ...)``: runs a saved workflow within this run."""

    name: str
    arguments: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)


Effect: TypeAlias = (
    TaskCall | ToolCall | HostCall | Step | GetContext | LogMessage | Timer | Draw | AskHuman | Solve | CallWorkflow
)
