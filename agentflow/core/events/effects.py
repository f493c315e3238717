"""Effects: all requests of a program to the outside. Each goes through ``rt.perform(effect, span)``.

An effect is keyed by branch path and ordinal, never by global order, so that a run can be recorded and resumed. A log line,
which has no outcome to record, draws no number. An effect that calls something by name carries ``env``, the tasks defined
where the call is written; None means those of the strand.

To add an effect, write a class here, with everything that other modules have to know about it, and a case in
:class:`~agentflow.run.strand.perform.EffectRunner`, which carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import ASK, ENDORSE, PUBLISH, SIGNAL, Definitions
from agentflow.core.data.source import Surface

LONGEST_SIGNAL_NAME = 200
"""Most characters of the name of a signal."""


@frozen
class EffectBase:
    """The interface of every effect for the runtime."""

    data: ClassVar[str | None] = None
    """The field that holds data of the program: a dict, a tuple or a text; None without."""
    written: ClassVar[bool] = True
    """Whether its data is written out, as in prompts and records, so that data which shares its parts may be too large."""

    @property
    def grant(self) -> str | None:
        """The name that code without the host's authority must be granted; None if no grant is needed."""
        return None

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        """Its kind, its name in events, and its input, if durable runs record it."""
        return None


@frozen
class NamedCall(EffectBase):
    """A call with named arguments, ``(name (param value) ...)``."""

    data: ClassVar[str | None] = "arguments"

    name: str
    arguments: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)

    @property
    def grant(self) -> str | None:
        return self.name


@frozen
class TaskCall(NamedCall):
    """``(task (param value) ...)``: returns the task's TaskResult.

    ``arguments`` holds all named arguments as written, including reserved ones (files, context, inputs,
    history_config).
    """

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        return "task", self.name, self.arguments


@frozen
class CallTool(NamedCall):
    """``(tool (param value) ...)``: returns the tool's TaskResult."""

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        return "tool", self.name, self.arguments


@frozen
class CallWorkflow(NamedCall):
    """``(call-workflow name (param value) ...)``: runs a saved workflow within this run."""


@frozen
class HostCall(EffectBase):
    """A Python callable in operator position: returns its result, awaited if it is awaitable."""

    data: ClassVar[str | None] = "arguments"
    written: ClassVar[bool] = False

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    name: str = ""

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        return "host", self.name, self.arguments


@frozen
class Step(EffectBase):
    """A function of the host that a Python workflow has recorded: returns its result, awaited if it is awaitable."""

    data: ClassVar[str | None] = "arguments"
    written: ClassVar[bool] = False

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    name: str
    declared: Callable[..., Any] | None = None
    """The function as the host wrote it, with its return annotation."""

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        return "step", self.name, self.arguments


@frozen
class GetContext(EffectBase):
    """``(get_context (query q) ...)``: returns path strings, or MatchItems with ``items``."""

    data: ClassVar[str | None] = "arguments"

    arguments: dict[str, Any]
    items: bool = False

    @property
    def grant(self) -> str | None:
        return "get_context"

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        return "context", "get_context", [self.arguments, self.items]


@frozen
class LogMessage(EffectBase):
    """``(log-message ...)``: publishes a Log event and returns the text."""

    data: ClassVar[str | None] = "text"

    text: str


@frozen
class Timer(EffectBase):
    """Waits ``seconds`` (``sleep``, and the back-off of ``retry``: with ``jitter`` a random part of it) and returns nil."""

    seconds: float
    jitter: bool = False


@frozen
class Draw(EffectBase):
    """``(now)``, ``(random [n])`` and ``(uuid)``: returns a different value every time.

    ``below`` bounds a random integer; None asks for a float.
    """

    source: Literal["now", "random", "uuid"]
    below: int | None = None

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        return "draw", self.source, self.below


@frozen
class AskHuman(EffectBase):
    """``(ask-human question [schema])``: returns a person's answer, which fits the JSON Schema ``schema`` (None: any data)."""

    data: ClassVar[str | None] = "schema"

    question: str
    schema: Mapping[str, Any] | None = None

    @property
    def grant(self) -> str | None:
        return ASK


@frozen
class AwaitSignal(EffectBase):
    """``(wait-for-signal name [schema])``: returns the value of the next signal of this name, which fits the JSON Schema ``schema``."""

    data: ClassVar[str | None] = "schema"

    name: str
    schema: Mapping[str, Any] | None = None

    @property
    def grant(self) -> str | None:
        return SIGNAL


@frozen
class Publish(EffectBase):
    """``(publish-state key value)``: sets a key of the run's state to JSON data."""

    data: ClassVar[str | None] = "change"

    change: tuple[str, Any]

    @property
    def grant(self) -> str | None:
        return PUBLISH

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        return "publish", self.change[0], self.change[1]


@frozen
class Endorse(EffectBase):
    """``(endorse value reason)``: a person vouches for ``value``; returns it without its ``sources``."""

    data: ClassVar[str | None] = "arguments"
    written: ClassVar[bool] = False

    arguments: tuple[Any, Any]
    sources: tuple[str, ...] = ()

    @property
    def grant(self) -> str | None:
        return ENDORSE

    @property
    def asked(self) -> tuple[str, str, Any] | None:
        return "endorse", "endorse", [*self.arguments]


@frozen
class Solve(EffectBase):
    """``(solve goal (allow ...) (max-rounds n))``: a model writes a program for the goal, which is checked and run.

    With ``explore`` it is explored before it runs; ``surface`` is the language it is written in (None: the flow's);
    ``max_model_calls`` bounds the model calls of writing and running it together.
    """

    data: ClassVar[str | None] = "inputs"

    goal: str
    allow: tuple[str, ...]
    max_rounds: int
    inputs: dict[str, Any]
    env: Definitions | None = field(default=None, compare=False, repr=False)
    explore: bool = False
    surface: Surface | None = None
    max_model_calls: int | None = None

    @property
    def grant(self) -> str | None:
        return "solve"


Effect: TypeAlias = (
    TaskCall
    | CallTool
    | HostCall
    | Step
    | GetContext
    | LogMessage
    | Timer
    | Draw
    | AskHuman
    | AwaitSignal
    | Publish
    | Endorse
    | Solve
    | CallWorkflow
)
