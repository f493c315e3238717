"""The one event stream: a closed union of small frozen records.

Every ``...Started`` has exactly one ``...Finished`` with the same ``path`` whose ``started`` is its ``seq``, on failure
and cancellation too. ``seq`` strictly rises within a run; ``parent`` is the ``seq`` of the enclosing Started.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from agentflow.core.context import ContextGenerationInput
from agentflow.core.errors import AgentflowError
from agentflow.core.messages import ModelRequest, Usage
from agentflow.core.requests import SubtaskRequest
from agentflow.core.results import TaskResult
from agentflow.core.source import Span
from agentflow.core.values import plain

Outcome: TypeAlias = Literal["ok", "failed", "error", "cancelled"]
"""``ok``; ``failed`` a FAILED result; ``error`` an exception; ``cancelled``."""


@dataclass(frozen=True, slots=True)
class EventBase:
    """The header all events share. ``time`` is unix seconds; ``path`` the branch path; ``v`` the schema version."""

    type: ClassVar[str] = "event"
    v: ClassVar[int] = 1

    run_id: str
    seq: int
    path: str
    parent: int | None
    span: Span | None
    time: float

    def to_dict(self) -> dict[str, Any]:
        """JSON shape: ``v``, ``type`` and the fields."""
        made: dict[str, Any] = {"v": self.v, "type": self.type}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Span) or isinstance(value, AgentflowError):
                made[field.name] = value.to_dict()
            elif isinstance(value, BaseException):
                made[field.name] = {"code": "exception", "message": f"{type(value).__name__}: {value}"[:2_000]}
            else:
                made[field.name] = plain(value)
        return made


@dataclass(frozen=True, slots=True)
class FinishedBase(EventBase):
    """The end of what the event with ``seq`` = ``started`` began; ``duration_s`` seconds."""

    started: int
    outcome: Outcome
    duration_s: float
    usage: Usage | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class RunStarted(EventBase):
    """A run began. ``name`` is its program's display name or the method called."""

    type: ClassVar[str] = "run_started"
    name: str = ""
    program: str | None = None


@dataclass(frozen=True, slots=True)
class RunFinished(FinishedBase):
    """A run ended. ``cost_usd`` is None when a price is unknown."""

    type: ClassVar[str] = "run_finished"
    cost_usd: float | None = None
    steps: int = 0
    effects: int = 0
    max_concurrency: int = 0


@dataclass(frozen=True, slots=True)
class BranchStarted(EventBase):
    """A branch of ``parallel``, ``pmap`` or ``race`` began; ``index`` is its place."""

    type: ClassVar[str] = "branch_started"
    form: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class BranchFinished(FinishedBase):
    """A branch ended."""

    type: ClassVar[str] = "branch_finished"


@dataclass(frozen=True, slots=True)
class TaskStarted(EventBase):
    """An atomic task began; ``request`` says which and with what."""

    type: ClassVar[str] = "task_started"
    name: str = ""
    request: SubtaskRequest | None = None


@dataclass(frozen=True, slots=True)
class TaskFinished(FinishedBase):
    """An atomic task ended; ``result`` is its TaskResult when it gave one."""

    type: ClassVar[str] = "task_finished"
    name: str = ""
    result: TaskResult | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class ContextStarted(EventBase):
    """A context lookup began."""

    type: ClassVar[str] = "context_started"
    input: ContextGenerationInput | None = None


@dataclass(frozen=True, slots=True)
class ContextFinished(FinishedBase):
    """A context lookup ended, with the paths found."""

    type: ClassVar[str] = "context_finished"
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelStarted(EventBase):
    """A model turn began; ``turn`` counts from 1 within its task."""

    type: ClassVar[str] = "model_started"
    request: ModelRequest | None = None
    turn: int = 1
    model: str = ""


@dataclass(frozen=True, slots=True)
class ModelFinished(FinishedBase):
    """A model turn ended."""

    type: ClassVar[str] = "model_finished"
    model: str = ""
    stop_reason: str | None = None
    request_id: str | None = None
    cost_usd: float | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AttemptStarted(EventBase):
    """One try of a model call began; ``model`` differs from the asked one after a fallback."""

    type: ClassVar[str] = "attempt_started"
    number: int = 1
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class AttemptFinished(FinishedBase):
    """One try of a model call ended; another follows in ``retry_in_s`` seconds when that is set."""

    type: ClassVar[str] = "attempt_finished"
    number: int = 1
    retry_in_s: float | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted(EventBase):
    """A tool call began, from the program or from a model (then ``call_id`` is set)."""

    type: ClassVar[str] = "tool_started"
    name: str = ""
    arguments: Any = None
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolFinished(FinishedBase):
    """A tool call ended."""

    type: ClassVar[str] = "tool_finished"
    name: str = ""
    result: TaskResult | None = None
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class SubtaskStarted(EventBase):
    """A model asked for a subtask (CONTINUATION); ``depth`` counts nesting from 1."""

    type: ClassVar[str] = "subtask_started"
    request: SubtaskRequest | None = None
    depth: int = 1


@dataclass(frozen=True, slots=True)
class SubtaskFinished(FinishedBase):
    """A subtask ended."""

    type: ClassVar[str] = "subtask_finished"
    name: str = ""
    result: TaskResult | None = None


@dataclass(frozen=True, slots=True)
class TextDelta(EventBase):
    """More of a model's answer."""

    type: ClassVar[str] = "text_delta"
    text: str = ""


@dataclass(frozen=True, slots=True)
class ThinkingDelta(EventBase):
    """More of a model's thinking."""

    type: ClassVar[str] = "thinking_delta"
    text: str = ""


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta(EventBase):
    """More of the argument text of a tool call."""

    type: ClassVar[str] = "tool_arguments_delta"
    call_id: str = ""
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class PartialOutput(EventBase):
    """The structured answer so far, parsed leniently: ``value`` has the shape asked for, with what is missing left out."""

    type: ClassVar[str] = "partial_output"
    value: Any = None


@dataclass(frozen=True, slots=True)
class Log(EventBase):
    """``(log-message ...)`` of a program, or a debug line of a handler."""

    type: ClassVar[str] = "log"
    message: str = ""
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Warning(EventBase):
    """Something the user should know that is no failure; ``code`` is stable."""

    type: ClassVar[str] = "warning"
    code: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


Event: TypeAlias = (
    RunStarted
    | RunFinished
    | BranchStarted
    | BranchFinished
    | TaskStarted
    | TaskFinished
    | ContextStarted
    | ContextFinished
    | ModelStarted
    | ModelFinished
    | AttemptStarted
    | AttemptFinished
    | ToolStarted
    | ToolFinished
    | SubtaskStarted
    | SubtaskFinished
    | TextDelta
    | ThinkingDelta
    | ToolArgumentsDelta
    | PartialOutput
    | Log
    | Warning
)
"""Any event."""

DELTAS = (TextDelta, ThinkingDelta, ToolArgumentsDelta, PartialOutput)
"""The events an overrun observer may lose; all others are lifecycle events and always arrive."""

_HEADER = frozenset(field.name for field in dataclasses.fields(EventBase))
_NO_TEXT = frozenset({"int", "int | None", "float", "float | None", "bool", "Outcome", "Usage | None"})


@functools.lru_cache(maxsize=256)
def text_getter(kind: type[EventBase]) -> Callable[[EventBase], object]:
    """What gives those fields of an event that may hold text of programs, models and tools."""
    names = [f.name for f in dataclasses.fields(kind) if f.name not in _HEADER and f.type not in _NO_TEXT]
    return operator.attrgetter(*names or ["type"])
