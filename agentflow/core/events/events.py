"""The one event stream: a closed union of small frozen records.

Every ``...Started`` has exactly one ``...Finished`` with the same ``path`` and its ``seq`` as ``started``, on failure
and cancellation too. ``seq`` strictly rises within a slice of a run; ``parent`` is the ``seq`` of the enclosing
Started.

To add an event, declare a ``@frozen`` class here (a Started together with its Finished), and nowhere else. Its JSON
``type`` is its name in snake_case; the union, the names of :mod:`agentflow.events`, redaction and the writers are
derived from the class.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Union

from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.errors import AgentflowError, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelRequest, ModelResponse, Usage
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.data.values import plain_work
from agentflow.core.data.walk import LEAVES, Work, finish, in_slices

VERSION = 2
"""The version of the events' JSON shape."""
MAX_PROGRAM_BYTES = 256 * 1024
"""Maximum size in bytes of a program's text in an event."""

Outcome: TypeAlias = Literal["ok", "failed", "error", "cancelled", "suspended"]
"""``ok``; ``failed`` a FAILED result; ``error`` an exception; ``cancelled``; ``suspended`` to be resumed later."""
WaitReason: TypeAlias = Literal[
    "permit", "budget", "rate", "gate", "approval", "question", "limit", "signal", "timer", "branches", "batch"
]
"""The cause of a wait: a free branch slot, a share of the budget, the rate limit of a model, a free connection, a batch, an
approval or answer, a signal, or time."""


def as_data(value: object, text: Callable[[object], str] = str) -> Any:
    """``value`` as JSON data; if impossible (nested too deep), a text that says so: an event is never lost."""
    return value if type(value) in LEAVES else finish(_as_data(value, text))


def _as_data(value: object, text: Callable[[object], str]) -> Work[Any]:
    try:
        return (yield from plain_work(value, text))
    except (ValueError, RecursionError) as error:
        return f"({type(value).__name__}: {cut(str(error), 200)})"


# One stream for console, logs, traces and records, so that they cannot disagree (decision 12)
@frozen
class EventBase:
    """The header of all events.

    ``v`` is the schema version and ``type`` the kind of event; ``slice`` counts the parts of a resumed run, from 1;
    ``path`` is the branch path; ``span`` the form of the program; ``time`` unix seconds.
    """

    type: ClassVar[str] = "event"
    v: ClassVar[int] = VERSION

    run_id: str
    slice: int
    seq: int
    path: str
    parent: int | None
    span: Span | None
    time: float

    def __init_subclass__(cls) -> None:
        cls.type = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def to_dict(self, text: Callable[[object], str] = str) -> dict[str, Any]:
        """The JSON form: ``v``, ``type`` and the fields; ``text`` gives that of an object which has none."""
        return {name: as_data(value, text) for name, value in self.fields(text).items()}

    async def to_data(self, text: Callable[[object], str] = str) -> dict[str, Any]:
        """:meth:`to_dict`, which lets others run while it converts large values."""
        return {
            name: value if type(value) in LEAVES else await in_slices(_as_data(value, text))
            for name, value in self.fields(text).items()
        }

    def fields(self, text: Callable[[object], str] = str) -> dict[str, Any]:
        """The same with the unconverted values of its own fields."""
        data: dict[str, Any] = {"v": self.v, "type": self.type}
        for name in field_names(type(self)):
            value = getattr(self, name)
            if isinstance(value, Span | AgentflowError):
                data[name] = value.to_dict()
            elif isinstance(value, BaseException):
                data[name] = {"code": "exception", "message": cut(f"{type(value).__name__}: {text(value)}", 2_000)}
            else:
                data[name] = value
        return data


@functools.lru_cache(maxsize=256)
def field_names(kind: type[EventBase]) -> tuple[str, ...]:
    """The names of all fields of an event class, those of the header first."""
    return tuple([field.name for field in dataclasses.fields(kind)])


@frozen
class FinishedBase(EventBase):
    """The end of the pair with the Started event of ``seq`` = ``started``; ``duration_s`` in seconds."""

    started: int
    outcome: Outcome
    duration_s: float
    usage: Usage | None = None
    error: BaseException | None = None


@frozen
class DeltaBase(EventBase):
    """A piece of something in progress. A slow observer may lose some; all other events always arrive."""


@frozen
class RunStarted(EventBase):
    """A run began.

    ``name`` is its program's display name or the called method, ``program`` the digest of its text, ``labels`` the
    host's labels for the run.
    """

    name: str = ""
    program: str | None = None
    labels: Mapping[str, str] | None = None


@frozen
class RunFinished(FinishedBase):
    """A run ended. ``cost_usd`` is None if a price is unknown; ``max_concurrency`` is the largest number of concurrent
    calls; ``sources`` are the sources of its value, in a flow with a policy."""

    cost_usd: float | None = None
    steps: int = 0
    effects: int = 0
    max_concurrency: int = 0
    sources: tuple[str, ...] = ()


@frozen
class ProgramLoaded(EventBase):
    """A program text runs for the first time in this run: the main program, an evaluated one, a workflow or a solution, or
    a Python function of the host (``host``).

    Spans named ``name`` point into ``text``, which is cut after 256 KiB; ``digest`` is that of the whole text;
    ``language`` is ``sexp`` or ``python``. For a file of the host, ``name`` has no directories, and ``text`` has the functions that the run
    has called so far, each on its own lines; a later event for the same file has all of them.
    """

    name: str = ""
    digest: str = ""
    text: str = ""
    language: str = "sexp"
    host: bool = False


@frozen
class ProgramBounds(EventBase):
    """The bounds of this run's program, computed from its text before it runs, if an observer asks for them.

    ``most`` has ``model_calls``, ``tool_calls``, ``input_tokens``, ``output_tokens``, ``usd`` and ``width`` (concurrent calls),
    each as text; an unbounded quantity is left out. See :class:`~agentflow.Bounds`.
    """

    most: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])


@frozen
class BranchStarted(EventBase):
    """A branch of ``parallel``, ``pmap`` or ``race`` began, one of ``count``; ``index`` counts from 0.

    ``span`` is that of the form.
    """

    form: str = ""
    index: int = 0
    count: int | None = None


@frozen
class BranchFinished(FinishedBase):
    """A branch ended."""


@frozen
class TaskStarted(EventBase):
    """An atomic task began, for ``request``; ``sources`` are the sources of its inputs, in a flow with a policy."""

    name: str = ""
    request: SubtaskRequest | None = None
    sources: tuple[str, ...] = ()


@frozen
class TaskFinished(FinishedBase):
    """An atomic task ended; ``result`` is its TaskResult, if it returned one, and ``sources`` the sources of it."""

    name: str = ""
    result: TaskResult | None = None
    cost_usd: float | None = None
    sources: tuple[str, ...] = ()


@frozen
class ContextStarted(EventBase):
    """A context lookup began; ``sources`` are the sources of its question, in a flow with a policy."""

    input: ContextGenerationInput | None = None
    sources: tuple[str, ...] = ()


@frozen
class ContextFinished(FinishedBase):
    """A context lookup ended and found ``paths``; ``sources`` are their sources, in a flow with a policy."""

    paths: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@frozen
class ModelStarted(EventBase):
    """A model turn began; ``turn`` counts from 1 within its task."""

    request: ModelRequest | None = None
    turn: int = 1
    model: str = ""


@frozen
class ModelFinished(FinishedBase):
    """A model turn ended; ``response`` is the complete answer, if there was one."""

    model: str = ""
    stop_reason: str | None = None
    request_id: str | None = None
    cost_usd: float | None = None
    metadata: dict[str, Any] | None = None
    response: ModelResponse | None = None


@frozen
class AttemptStarted(EventBase):
    """An attempt of a model call began; after a fallback, ``model`` differs from the requested one.

    ``server`` is the requested host, with its port unless it is the usual one.
    """

    number: int = 1
    provider: str = ""
    model: str = ""
    server: str = ""


@frozen
class AttemptFinished(FinishedBase):
    """An attempt of a model call ended; if ``retry_in_s`` is set, another follows after that many seconds."""

    number: int = 1
    retry_in_s: float | None = None
    status: int | None = None


@frozen
class ToolStarted(EventBase):
    """A tool call began, made by the program or by a model (then ``call_id`` is set); ``sources`` are the sources of its
    arguments, in a flow with a policy; ``external``: the client executes it."""

    name: str = ""
    arguments: Any = None
    call_id: str | None = None
    sources: tuple[str, ...] = ()
    external: bool = False


@frozen
class ToolFinished(FinishedBase):
    """A tool call ended; ``sources`` are the sources of its result, in a flow with a policy."""

    name: str = ""
    result: TaskResult | None = None
    call_id: str | None = None
    sources: tuple[str, ...] = ()


@frozen
class SubtaskStarted(EventBase):
    """A subtask began, at the request of a tool (CONTINUATION); ``depth`` counts nesting from 1."""

    request: SubtaskRequest | None = None
    depth: int = 1


@frozen
class SubtaskFinished(FinishedBase):
    """A subtask ended."""

    name: str = ""
    result: TaskResult | None = None


@frozen
class WaitStarted(EventBase):
    """A wait began; ``reason`` names its cause. Published only if there is a wait.

    A question, approval or signal that ``flow.send`` may answer has its ``key``, the ``question`` and the ``schema`` of the answer. ``external`` is
    the call of an external tool that the wait is for: its ``name``, ``arguments`` and ``call_id``; ``call`` that which an approval is
    for, if its arguments may be edited; ``signal`` the name of the signal that the wait is for.
    """

    reason: WaitReason = "permit"
    key: str = ""
    question: str = ""
    schema: Mapping[str, Any] | None = None
    external: Mapping[str, Any] | None = None
    call: Mapping[str, Any] | None = None
    signal: str = ""


@frozen
class WaitFinished(FinishedBase):
    """A wait ended."""

    reason: WaitReason = "permit"


@frozen
class LimitNear(EventBase):
    """The run has used the ``share`` of a limit that ``warn_at`` names: ``used`` of ``allowed``, in the unit of ``limit`` (``usd``,
    ``tokens``, ``model_calls``, ``wall_s``). Published once for each limit."""

    limit: str = ""
    used: float = 0.0
    allowed: float = 0.0
    share: float = 0.0


@frozen
class EffectReplayed(EventBase):
    """An effect of a resumed run was answered from its record and not executed.

    ``kind`` is task, tool, model, context, host, timer, draw, question, approval, signal, publish, solve or workflow; ``outcome`` is that of
    the recorded effect.
    With ``origin`` ``reuse`` the result came from an earlier run, at a cost of ``usage`` and ``cost_usd`` (None: unknown).
    """

    kind: str = ""
    name: str = ""
    outcome: Outcome = "ok"
    origin: Literal["run", "reuse"] = "run"
    usage: Usage | None = None
    cost_usd: float | None = 0.0


@frozen
class TextDelta(DeltaBase):
    """The next piece of a model's answer."""

    text: str = ""


@frozen
class ThinkingDelta(DeltaBase):
    """The next piece of a model's thinking."""

    text: str = ""


@frozen
class ToolArgumentsDelta(DeltaBase):
    """The next piece of a tool call's argument text."""

    call_id: str = ""
    name: str = ""
    text: str = ""


@frozen
class PartialOutput(DeltaBase):
    """The structured answer so far, parsed leniently: ``value`` conforms to the schema, except for missing parts."""

    value: Any = None


@frozen
class ToolProgress(DeltaBase):
    """The progress of a tool: ``progress`` of ``total`` (None: unknown), in the tool's own units, and a ``message``."""

    progress: float = 0.0
    total: float | None = None
    message: str = ""


@frozen
class LoopProgress(DeltaBase):
    """A round of ``(loop n ...)`` began: ``done`` of ``total`` are complete; ``over``: the loop has ended.

    ``span`` is the span of the form. Rounds that only compute are published a few times a second.
    """

    done: int = 0
    total: int = 0
    over: bool = False


@frozen
class Log(EventBase):
    """``(log-message ...)`` of a program, or a debug line of a handler."""

    message: str = ""
    level: str = "info"


@frozen
class StateChanged(EventBase):
    """Code of the run has changed the shared state (``ctx.state``): ``changes`` are operations of JSON Patch. A resumed run
    does not publish it again."""

    changes: tuple[Mapping[str, Any], ...] = ()


@frozen
class HostData(EventBase):
    """Code of the host has put data of its own on the stream, by ``ctx.emit`` or ``flow.emit``: ``data`` is JSON data, ``name`` that
    of the event or of the class of the data; ``sources`` are those that the code had read, in a flow with a policy."""

    name: str = ""
    data: Any = None
    sources: tuple[str, ...] = ()


@frozen
class TextSaid(EventBase):
    """A text was said to the run (``run.say``), to be read before the next model call of its outermost loop with tools, or of
    ``task``; ``key`` names it within the run."""

    key: str = ""
    text: str = ""
    task: str | None = None


@frozen
class TextRead(EventBase):
    """The next model call of the prompt at ``path``, in this ``turn`` of it, has the texts with these ``keys``."""

    keys: tuple[str, ...] = ()
    turn: int = 0


@frozen
class Endorsed(EventBase):
    """A program, or its approver, endorsed a value from ``sources``, for ``reason``: the value may now go anywhere."""

    sources: tuple[str, ...] = ()
    reason: str = ""


@frozen
class PolicyDenied(EventBase):
    """The policy denied an effect before its start: ``argument`` of ``name`` came from ``sources``; those in ``refused`` may not reach it."""

    name: str = ""
    argument: str = ""
    sources: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    message: str = ""


@frozen
class HistoryCompacted(EventBase):
    """A summary has replaced the first ``turns`` turns of a conversation; the tokens of history are estimates."""

    turns: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


@frozen
class ToolResultsCleared(EventBase):
    """Old results of tools were cleared from the requests of a tool loop, as ``clear_tool_results`` of its task says.

    ``results`` are the names of the tools, one for each result, ``call_ids`` the ids of the calls; the tokens of the request are
    estimates. From the first of these results on, the provider reads this request anew.
    """

    results: tuple[str, ...] = ()
    call_ids: tuple[str, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0


@frozen
class Warning(EventBase):
    """A notice for the user about a problem short of a failure; ``code`` is stable."""

    code: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


_BASES = (EventBase, FinishedBase, DeltaBase)
EVENTS: tuple[type[EventBase], ...] = tuple(
    [
        kind
        for kind in globals().values()
        if isinstance(kind, type) and issubclass(kind, EventBase) and kind not in _BASES
    ]
)
"""All event classes, in the order they are declared."""
DELTAS: tuple[type[DeltaBase], ...] = tuple([kind for kind in EVENTS if issubclass(kind, DeltaBase)])
"""The events that a slow observer may lose; all others are lifecycle events and always arrive."""

if TYPE_CHECKING:
    Event: TypeAlias = EventBase
else:
    Event = Union[EVENTS]  # noqa: UP007 - of a tuple
"""Any event."""


@frozen
class Ending:
    """The end of a Started event: the Finished class, the fields that both share, whether it carries the sources of its
    value, and whether the start carries those of the inputs."""

    kind: type[FinishedBase]
    shared: tuple[str, ...]
    sourced: bool
    asked: bool = False


def _field_names(kind: type[EventBase], base: type[EventBase]) -> list[str]:
    inherited = {field.name for field in dataclasses.fields(base)}
    return [field.name for field in dataclasses.fields(kind) if field.name not in inherited]


def _ending(started: type[EventBase]) -> Ending:
    kind: type[FinishedBase] = globals()[started.__name__.removesuffix("Started") + "Finished"]
    own, begun = set(_field_names(kind, FinishedBase)), _field_names(started, EventBase)
    shared = tuple([name for name in begun if name in own and name != "sources"])
    return Ending(kind, shared, "sources" in own, "sources" in begun)


ENDINGS: Mapping[type[EventBase], Ending] = {
    kind: _ending(kind) for kind in EVENTS if kind.__name__.endswith("Started")
}
"""The ending of every Started event."""

_NO_TEXT = frozenset({"int", "int | None", "float", "float | None", "bool", "Outcome", "WaitReason", "Usage | None"})


@functools.lru_cache(maxsize=256)
def text_getter(kind: type[EventBase]) -> Callable[[EventBase], object]:
    """A function that returns those fields of an event that may hold text of programs, models and tools."""
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    names = [name for name in _field_names(kind, EventBase) if types[name] not in _NO_TEXT]
    return operator.attrgetter(*names or ["type"])


__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "DELTAS",
    "EVENTS",
    "DeltaBase",
    "Event",
    "EventBase",
    "FinishedBase",
    "Outcome",
    "WaitReason",
    *[kind.__name__ for kind in EVENTS],
]
