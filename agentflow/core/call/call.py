"""The position in a run: the context that every effect below the language carries.

A :class:`CallContext` is passed explicitly from the runtime through task system, turn loop and tools. The one context
variable, :data:`current_call`, is set around host code only (:class:`~agentflow.core.call.call.HostCode`), so that public
entries called from inside a tool join the run that the tool belongs to. The run and its journal are ports, which pass calls
on without inspecting them: ``core/call/run_port.py``, ``core/call/journal_port.py``.
"""

from __future__ import annotations

import asyncio
import time
import time as _time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, Token
from functools import partial
from hashlib import blake2b
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, Unpack, cast, get_origin

from typing_extensions import TypeVar

from agentflow.core.call.host_calls import HostCalls, StepLog
from agentflow.core.call.journal_port import JournalPortOf
from agentflow.core.call.reading import Reading
from agentflow.core.call.run_port import EngineServicesOf, RunPortOf
from agentflow.core.data.context import InheritedContext
from agentflow.core.data.errors import ConfigurationError, HostPanic, StrayExit, clip
from agentflow.core.data.known_names import Definitions, content_mark, label_mark, narrowed
from agentflow.core.data.labels import NO_SOURCES, joined
from agentflow.core.data.session import Session
from agentflow.core.data.source import Source, Span
from agentflow.core.events.events import (
    ENDINGS,
    MAX_PROGRAM_BYTES,
    Event,
    EventBase,
    HostData,
    Log,
    Outcome,
    ProgramLoaded,
    ToolProgress,
    Warning,
)

if TYPE_CHECKING:
    from agentflow.core.call.identities import Reasons
    from agentflow.core.call.run_state import StateDict


class EventScope:
    """An open Started/Finished pair; see :meth:`CallContext.scope`. A field that both events have is passed once.

    ``call`` is the call inside; ``watched`` says whether anybody takes its events; without a reader, fields of the Finished event need not be set.
    """

    __slots__ = ("_began", "_fields", "_seq", "_started", "_values", "call", "watched")

    def __init__(self, call: CallContext, started: type[EventBase], fields: dict[str, Any]) -> None:
        self.call = call
        self._started = started
        self._fields = fields
        self.watched = call.run.watched

    def __enter__(self) -> EventScope:
        call = self.call
        self._values: dict[str, Any] = {}
        self._began = time.perf_counter()
        fields, reading = self._fields, call.reading
        if reading is not None and reading.sources and ENDINGS[self._started].asked:
            fields = {**fields, "sources": tuple(sorted(reading.sources))}
        self._seq = call.parent = call.emit(self._started, **fields)
        return self

    def change(self, **fields: Any) -> None:
        """Other fields for the Started event, before the block."""
        self._fields = {**self._fields, **fields}

    def set(self, **values: Any) -> None:
        """Fields for the Finished event: ``outcome``, ``error``, ``usage`` or its own; ``sources`` in addition to the
        sources read."""
        self._values.update(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        values = self._values
        outcome: Outcome
        if error is not None:
            outcome = _outcome_of(error, self.call.run.journal)
            values["error"] = error
        else:
            result = values.get("result")
            outcome = values.get("outcome") or ("failed" if getattr(result, "status", "") == "FAILED" else "ok")
        values["outcome"] = outcome
        ending = ENDINGS[self._started]
        for name in ending.shared:
            if name in self._fields:
                values.setdefault(name, self._fields[name])
        reading = self.call.reading
        if reading is not None and ending.sourced:
            values["sources"] = tuple(sorted(joined(reading.given(), values.get("sources", NO_SOURCES))))
        self.call.emit(ending.kind, started=self._seq, duration_s=time.perf_counter() - self._began, **values)


class QuietScope(EventScope):
    """An unwatched pair: it has only the inner call, which its creator sets."""

    __slots__ = ()
    watched = False  # pyright: ignore[reportIncompatibleVariableOverride, reportAssignmentType]

    def __enter__(self) -> QuietScope:
        return self

    def change(self, **fields: Any) -> None:
        """Discard the fields, since there are no observers."""

    def set(self, **values: Any) -> None:
        """Discard the fields, since there are no observers."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class QuietPart(QuietScope):
    """The same at a ``path`` of its own within ``outer``: the inner call is created on first use."""

    __slots__ = ("inner", "outer", "path")

    inner: CallContext | None
    outer: CallContext
    path: str

    @property
    def call(self) -> CallContext:  # pyright: ignore[reportIncompatibleVariableOverride]
        inner = self.inner
        if inner is None:
            inner = self.inner = self.outer.at(self.path)
        return inner


def _outcome_of(error: BaseException, journal: JournalPort | None) -> Outcome:
    if not isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "error"
    return "suspended" if journal is not None and journal.suspending else "cancelled"


_new: Any = object.__new__

Mark: TypeAlias = "str | Callable[[], str]"
"""One link of a subtask chain: its text, or a function that computes it when the chain is read, which is rare."""


DepsT = TypeVar("DepsT", covariant=True, default=Any)
"""The type of a run's dependencies."""


class CallContext(Generic[DepsT]):
    """A call in a running workflow: its position in the run and its authority.

    ``CallContext[Bank]`` as an annotation declares the type of the run's dependencies (:attr:`deps`).

    Attributes: ``run`` the run; ``path`` the branch path (``0/4.2/1.0``); ``parent`` the ``seq`` of the enclosing Started
    event; ``session`` the conversation in force; ``span`` that of the program's form; ``grants`` the names of tasks and
    tools that may be called (None: the host's own authority; in a tool, those offered to the calling model); ``held`` the
    most that a text run here may call (None: neither a model nor an untrusted text is above); ``asked_by_model``: a model
    is above, so approvals are asked for; ``level`` the number of prompts above; ``toolbox`` the tools of the task with
    the calling model; ``subtask_chain`` the fingerprints of the enclosing subtask requests; ``material`` the reading material of
    the enclosing task, which its subtasks may inherit; ``definitions`` the tasks defined by programs at this point;
    ``host`` the state of its host code, if any; ``call_id`` the model's tool call that this is part of, if a model asked
    for it; ``priority`` its place among waiting calls, from -1000 to 1000, the highest first; ``reading`` the sources it has read so
    far, in a flow with a policy, ``reasons`` the tests that led to it, under a strict one; ``steps`` the earlier steps of the sequence
    it is a step of, not passed on to calls within it. A tool that declares a parameter ``ctx: CallContext`` receives one.

    Effects within a call have paths below it, the same in every run. Calls are *ordered*: their effects start in a
    fixed order and are numbered (``path/0.0``, ``path/1.0``). The order in a call of host code is unknown (``is_ordered``
    is false), so its effects are identified by content: ``path/~<content>.<n>``, where ``n`` counts those of equal content.
    """

    __slots__ = (
        "_chain",
        "_occurrences",
        "_ordinal",
        "asked_by_model",
        "call_id",
        "definitions",
        "grants",
        "held",
        "host",
        "is_ordered",
        "level",
        "material",
        "parent",
        "path",
        "priority",
        "reading",
        "reasons",
        "run",
        "session",
        "span",
        "steps",
        "toolbox",
    )

    def __init__(
        self,
        run: RunPort,
        *,
        path: str = "0",
        parent: int | None = None,
        session: Session | None = None,
        span: Span | None = None,
        grants: frozenset[str] | None = None,
        subtask_chain: tuple[Mark, ...] = (),
        material: InheritedContext | None = None,
        ordered: bool = True,
        definitions: Definitions | None = None,
        priority: int = 0,
    ) -> None:
        self.run = run
        self.priority = priority
        self.path = path
        self.parent = parent
        self.session = session if session is not None else Session()
        self.span = span
        self.grants = grants
        self.held = grants
        self.asked_by_model = False
        self.level = 0
        self.toolbox: Mapping[str, Any] | None = None
        self._chain: tuple[Mark, ...] = subtask_chain
        self.material = material
        self.call_id: str | None = None
        self.definitions = definitions
        self.reading: Reading | None = None
        self.reasons: Reasons | None = None
        self.host: HostCalls | None = None
        self.steps: StepLog | None = None
        self.is_ordered = ordered
        self._ordinal = 0
        self._occurrences: dict[str, int] | None = None

    @property
    def run_id(self) -> str:
        """The run's identity."""
        return self.run.run_id

    @property
    def deps(self) -> DepsT:
        """The dependencies of the run: its own ``deps=``, else those that the flow's ``deps=`` made for it;
        None without either."""
        return self.run.deps

    @property
    def state(self) -> StateDict:
        """The state that the run shares with a front end and other readers: JSON data, which began as the ``state=`` of
        the run. It reads as a dict does; an assignment in it, at any depth, is published at once
        (:class:`~agentflow.events.StateChanged`). ``ctx.state.plain()`` is a copy as plain dicts and lists.

        Raises DataError (``state/not-data``) on the assignment of anything but JSON data.
        """
        from agentflow.core.call.run_state import StateDict, state_of  # few runs have one

        return StateDict(state_of(self), self)

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        from agentflow.core.call.run_state import replacing, state_of

        state_of(self).change(self, replacing(state))

    def require_deps(self, kind: Any, label: str) -> None:
        """Raise ConfigurationError (``config/deps``) unless the run's dependencies are of the class ``kind``, which the
        code called ``label`` declares. A declaration other than a class is not checked."""
        check_deps(self.run.deps, kind, label)

    @property
    def identity(self) -> str:
        """The name of this call for others: its :attr:`path`; under a strict policy it counts only effects of the same sources."""
        return self.path if self.reasons is None else self.reasons.identity_of(self.path)

    @property
    def idempotency_key(self) -> str:
        """Lets a service recognise a repeated request: equal whenever a durable run repeats this call."""
        text = f"{self.run_id}\n{self.identity}".encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=16).hexdigest()

    @property
    def subtask_chain(self) -> tuple[str, ...]:
        """The fingerprints of the enclosing subtask requests, outermost first."""
        texts = tuple([mark if isinstance(mark, str) else mark() for mark in self._chain])
        self._chain = texts
        return texts

    @subtask_chain.setter
    def subtask_chain(self, chain: tuple[str, ...]) -> None:
        self._chain = chain

    def add_mark(self, mark: Mark) -> None:
        """Add a link to the chain of this call, and of the calls within it from now on."""
        self._chain = (*self._chain, mark)

    def at(
        self,
        path: str,
        *,
        run: RunPort | None = None,
        grants: frozenset[str] | None = None,
        ordered: bool = True,
    ) -> CallContext:
        """A copy of this call at ``path``, with a numbering of its own.

        ``run`` replaces this call's run; ``grants`` narrow its authority: they are intersected, never widened. Texts in it
        are held to them instead of the earlier limit.
        """
        call = self._fork(path)
        call.is_ordered = ordered
        if run is not None:
            call.run = run
        if grants is not None:
            call.grants = call.held = narrowed(self.grants, grants)
        return call

    def for_text(self, path: str) -> CallContext:
        """The call at ``path`` of a text that host code has carried out here; it may call only the names held here."""
        return self.at(path, grants=self.held)

    # Host code has the host's authority: a tool may call names that its caller may not (decision 27)
    def for_host(self) -> CallContext:
        """This call for code of the host, which has the host's authority although a model or an untrusted text called it.

        Approvals still ask, and texts that the code has carried out may do no more than that model or text.
        """
        grants = self.grants
        if grants is None:
            return self
        if self._occurrences is None:
            self._occurrences = {}
        call = self._fork(self.path)
        call.is_ordered = self.is_ordered
        call._ordinal = self._ordinal
        call._occurrences = self._occurrences  # one numbering, whichever of the two starts an effect
        call.host = self.host
        call.grants = None
        call.held = narrowed(self.held, grants)
        call.asked_by_model = True
        return call

    def start(self, span: Span | None, kind: str, *content: Any) -> CallContext:
        """The call of one effect that starts now, at ``span``: it has the next path (see :meth:`next_path`).

        The first scope opened on it, or the first path drawn from it, takes that path over, so the effect and its
        Started event have the same.
        """
        ordinal = self._ordinal
        if ordinal >= 0 and self.is_ordered:  # as nearly every effect: numbered without another call
            self._ordinal = ordinal + 1
            call = self._fork(f"{self.path}/{ordinal}.0")
        else:
            call = self._fork(self.next_path(kind, *content))
        call.span = span
        call._ordinal = -1
        return call

    def _fork(self, path: str, kind: type[CallContext] | None = None) -> CallContext:
        """This call at another path, with a numbering of its own."""
        # Field by field: every effect forks a call or two, and a constructor with keywords takes twice the time.
        call = _new(kind or CallContext)
        call.run = self.run
        call.path = path
        call.parent = self.parent
        call.priority = self.priority
        call.session = self.session
        call.span = self.span
        call.grants = self.grants
        call.held = self.held
        call.asked_by_model = self.asked_by_model
        call.level = self.level
        call.toolbox = self.toolbox
        call.material = self.material
        call.call_id = self.call_id
        call.definitions = self.definitions
        call.reading = self.reading
        call.reasons = self.reasons
        call.host = None
        call.steps = None
        call._chain = self._chain
        call.is_ordered = True
        call._ordinal = 0
        call._occurrences = None
        return call

    @property
    def host_authority(self) -> bool:
        """Whether the host's own code acts here, with no model and no untrusted text above: such calls need no approval."""
        return self.grants is None and not self.asked_by_model

    @property
    def effects(self) -> int:
        """The number of effects begun here, if they are numbered in the order of their calls."""
        return self._ordinal

    def number_from(self, number: int) -> None:
        """Number later effects here from at least ``number``: a call that was cancelled has one, however far it had come."""
        if 0 <= self._ordinal < number:
            self._ordinal = number

    # A path, not a counter: it does not depend on the order of the branches (decision 10)
    def next_path(self, kind: str = "", *content: Any) -> str:
        """The path of the next effect within this call.

        ``kind`` and ``content`` (name, arguments ...) identify it where effects are unordered.
        """
        if not self.is_ordered:
            return self.marked_path(kind, *content)
        ordinal = self._ordinal
        if ordinal >= 0:
            self._ordinal = ordinal + 1
            return f"{self.path}/{ordinal}.0"
        # The call of an effect: the effect's own path first; later effects here are numbered apart from those that start
        # in the scope that took it.
        self._ordinal = ordinal - 1
        return self.path if ordinal == -1 else f"{self.path}/{ordinal}.0"

    def marked_path(self, kind: str, *content: Any) -> str:
        """A path within this call, named by content; it draws no number."""
        mark = content_mark(kind, content)
        return f"{self.path}/{mark}.{self._count(mark)}"

    def _count(self, mark: str) -> int:
        if self._occurrences is None:
            self._occurrences = {}
        count = self._occurrences.get(mark, 0)
        self._occurrences[mark] = count + 1
        return count

    @contextmanager
    def ordered(self, label: str) -> Generator[CallContext]:
        """A call that numbers effects in the order they start: ``with ctx.ordered("part 3") as call:``.

        For host code with several concurrent parts, each with its own order: ``label`` names one part, the same in every
        run. Public methods that you call in the block (``flow.run``, ``execute_task`` ...) join that call.
        """
        mark = label_mark(label)
        call = self.at(f"{self.path}/{mark}.{self._count(mark)}")
        call.host = self.host
        call = call.for_host()
        token = current_call.set(call)
        try:
            yield call
        finally:
            current_call.reset(token)

    def emit(self, kind: type[EventBase] | object, /, **fields: Any) -> int:
        """Put data of your own on the stream: ``ctx.emit(Found(path="a.py"))``, a pydantic model, dataclass or JSON data, as the
        event :class:`~agentflow.events.HostData`. ``name=`` names the event; without it the class of the data does.

        Given an event class of agentflow's and its fields, it publishes that event of this call, with the header filled in.
        Returns its ``seq``, or 0 if no observer is subscribed. Raises DataError (``event/not-data``, ``event/too-large``,
        ``event/name``) for your own data, and the error of a policy that does not let people see what the code has read.
        """
        if not (isinstance(kind, type) and issubclass(kind, EventBase)):
            fields, kind = self._own_data(cast(object, kind), **fields), HostData
        run = self.run
        if not run.watched:
            return 0
        seq = run.next_seq()
        run.publish(kind(run.run_id, run.slice, seq, self.path, self.parent, self.span, _time.time(), **fields))
        return seq

    def _own_data(self, value: object, *, name: str | None = None) -> dict[str, Any]:
        """The fields of the event with data of the host's own."""
        from agentflow.core.call.host_data import named_data  # few runs have any

        reading = self.reading
        if reading is not None:
            reading.check("log-message", self.span, self)
        named, data = named_data(value, name)
        return {"name": named, "data": data, "sources": () if reading is None else tuple(sorted(reading.sources))}

    def warn(self, code: str, message: str, **details: Any) -> None:
        """Publish a Warning."""
        if self.run.watched:
            self.emit(Warning, code=code, message=message, details=details or None)

    def log(self, message: str, level: str = "info") -> None:
        """Publish a Log line."""
        if self.run.watched:
            self.emit(Log, message=message, level=level)

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Report how far a tool is: ``progress`` of ``total``, in units of its own. A slow reader may miss it."""
        if self.run.streaming:
            self.emit(ToolProgress, progress=progress, total=total, message=message)

    def program_loaded(self, source: Source, language: str = "sexp") -> None:
        """Publish the text of a program run for the first time in this run; of a function of the host its lines, with those
        of the same file that ran before.
        """
        run = self.run
        if run.watched and (source.digest, lines := source.lines) not in run.programs:
            shown = [each for digest, each in run.programs if digest == source.digest and each is not None]
            run.programs.add((source.digest, lines))
            if lines is not None and any([first <= lines[0] and lines[1] <= last for first, last in shown]):
                return  # it stands in a published function
            text = source.text if lines is None else source.only([*shown, lines])
            if len(text) > MAX_PROGRAM_BYTES // 4:
                text = text.encode("utf-8", "replace")[:MAX_PROGRAM_BYTES].decode("utf-8", "ignore")
                text = text[: text.rfind("\n") + 1] or text  # not within a secret, as far as lines go
            if text or lines is None:
                name, digest, host = source.name, source.digest, lines is not None
                self.emit(ProgramLoaded, name=name, digest=digest, text=text, language=language, host=host)

    def of_line(self, line: object) -> LineCall:
        """This call for Python code with numbered effects: they run on ``line``."""
        call = cast(LineCall, self._fork(self.path, LineCall))
        call.line = line
        return call

    def in_thread(self) -> CallContext:
        """This call for code that runs in another thread: its events are published on the event loop."""
        call = cast(_ThreadCall, self._fork(self.path, _ThreadCall))
        call.is_ordered = self.is_ordered
        call.loop = asyncio.get_running_loop()
        return call

    def scope(self, started: type[EventBase], path: str | None = None, /, **fields: Any) -> EventScope:
        """Open a Started/Finished pair: ``with call.scope(ToolStarted, name=...) as scope``.

        Inside, ``scope.call`` is the call (at a path of its own, unless ``path`` is given). The call of an effect serves
        as that of its scope. Leave results with ``scope.set(result=..., usage=...)``; the Finished event is published on
        any end of the block.
        """
        # A parameter with a name here costs every scope: each field is compared with all of them. Scopes that no observer
        # watches are built without calling a constructor.
        watched = self.run.watched
        if path is None:
            ordinal = self._ordinal
            if ordinal == -1:
                self._ordinal = 0
                if watched:
                    return EventScope(self, started, fields)
                quiet = _new(QuietScope)
                quiet.call = self
                return quiet
            if ordinal >= 0 and self.is_ordered:
                self._ordinal = ordinal + 1
                path = f"{self.path}/{ordinal}.0"
            else:
                path = self.next_path(started.__name__, fields)
        if watched:
            return EventScope(self._fork(path), started, fields)
        part = _new(QuietPart)
        part.outer = self
        part.path = path
        part.inner = None
        return part

    def nested(self, started: type[EventBase], /, **fields: Any) -> EventScope:
        """The same with a call of its own even if this is the call of an effect; it may be changed before the block."""
        return self.scope(started, self.next_path(started.__name__, fields), **fields)

    async def ask_human(self, question: str, schema: Mapping[str, Any] | None = None) -> Any:
        """Ask a person, from inside a tool: ``await ctx.ask_human("How many?", {"type": "integer"})``. Returns the answer.

        In a durable run the tool may be started again once the answer is there, and then receives it at once. Raises
        SexpEvaluationError: ``question/schema``, ``question/unanswered``; ``provenance/denied``, ``provenance/readers`` if
        the policy does not let the tool's sources reach a person.
        """
        if self.host is not None:
            await self.host.check()
        if self.reading is not None:
            self.reading.check("ask-human", self.span, self)
        asking = self.for_host().start(self.span, "AskHuman", question, schema)
        return await self.run.ask(question, schema, asking)

    async def call(self, function: Any, *arguments: Any) -> Any:
        """Call a Closure (or Python callable) of the program from inside a tool, within the same run."""
        return await self.run.call_value(function, arguments, self)


def check_deps(deps: object, kind: Any, label: str) -> None:
    """Raise ConfigurationError (``config/deps``) if ``kind`` is a class and ``deps`` is not an instance of it; ``label``
    names the code that declares it."""
    wanted = get_origin(kind) or kind
    if not isinstance(wanted, type) or wanted is object:
        return
    try:
        if isinstance(deps, wanted):
            return
    except TypeError:  # a Protocol without runtime checks, a TypedDict
        return
    name = wanted.__name__
    raise ConfigurationError(
        f"{label} takes CallContext[{name}], and the run's deps are {'None' if deps is None else type(deps).__name__}",
        code="config/deps",
        hint=f"pass them to the run, deps={name}(...), or make them for each run: AgentFlow(deps=function)",
    )


RunServices: TypeAlias = EngineServicesOf[CallContext]
"""Operations that code inside a run may ask it to start."""
RunPort: TypeAlias = RunPortOf[CallContext]
"""The run that a call belongs to."""
JournalPort: TypeAlias = JournalPortOf[CallContext]
"""The records of a durable run."""


class LineCall(CallContext):
    """The call of a Python workflow's own code. Its effects are numbered, as those of a program are."""

    __slots__ = ("line",)
    line: Any


class _ThreadCall(CallContext):
    """A call that publishes its events on the event loop, in the order of its thread."""

    __slots__ = ("loop",)
    loop: asyncio.AbstractEventLoop

    def emit(self, kind: type[EventBase] | object, /, **fields: Any) -> int:
        """Have the loop publish an event. Its number is not known yet: 0."""
        if not (isinstance(kind, type) and issubclass(kind, EventBase)):
            fields, kind = self._own_data(cast(object, kind), **fields), HostData
        if self.run.watched:
            self.loop.call_soon_threadsafe(partial(super().emit, kind, **fields))
        return 0


current_call: ContextVar[CallContext | None] = ContextVar("agentflow_current_call", default=None)
"""The call of the tool or host callable executing in this context, if any."""


calling: Callable[[], CallContext | None] = current_call.get
"""The call of the executing code, as it was set: a LineCall for a workflow's own code."""


def called_in(context: Context) -> CallContext | None:
    """The same for code that executes in ``context``."""
    return context.get(current_call)


def executing_call() -> CallContext | None:
    """The call of the executing tool, host callable or workflow; None outside a run."""
    call = current_call.get()
    return call.line.here().strand.call if type(call) is LineCall else call


def executing_line() -> Any:
    """The :class:`~agentflow.flow.line.Line` of the workflow with its own code executing; None elsewhere."""
    call = current_call.get()
    return call.line.here() if type(call) is LineCall else None


def executing() -> tuple[CallContext | None, Any]:
    """Both: :func:`executing_call` and :func:`executing_line`."""
    call = current_call.get()
    if type(call) is not LineCall:
        return call, None
    line = call.line.here()
    return line.strand.call, line


def contained(error: BaseException) -> StrayExit | HostPanic:
    """The failure of host code that stands for ``error``, which is stray (:func:`is_stray`)."""
    if isinstance(error, SystemExit):
        return StrayExit(f"code of the host called sys.exit({error.code!r})", hint="raise an exception, or return")
    if isinstance(error, asyncio.CancelledError):
        return StrayExit(
            "code of the host raised CancelledError without a cancellation",
            hint="it awaits a task that it, or a library, cancelled: catch that where it is awaited",
        )
    name, said = type(error).__name__, clip(str(error), 500)
    hint = "derive exceptions from Exception; a panic of an extension is a fault in the extension"
    return HostPanic(f"code of the host raised {name}, which is not an Exception: {said}", hint=hint)


def is_stray(error: BaseException, cancelled: bool) -> bool:
    """Whether host code may not end with ``error``. ``cancelled``: its task has been cancelled since it began.

    An interrupt from the keyboard is the user's, and passes.
    """
    if isinstance(error, asyncio.CancelledError):
        return not cancelled
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return not isinstance(error, Exception) and group.subgroup(KeyboardInterrupt) is None
    return not isinstance(error, Exception | KeyboardInterrupt | GeneratorExit)


@contextmanager
def containing() -> Generator[HostCalls]:
    """A block that calls code of the host which starts nothing in the run: ``await code.to_end(...)``. Raises as :class:`HostCode` does."""
    own = HostCalls()
    try:
        yield own
    except BaseException as error:  # of any kind: an Exception is raised again, any other is a failure of that code
        if is_stray(error, own.cancelled()):
            raise contained(error) from error
        raise


class LineCode:
    """A block for the code of a Python workflow: its calls belong to ``call``, in order."""

    __slots__ = ("_call", "_token")
    _token: Token[CallContext | None]

    def __init__(self, call: LineCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._token = current_call.set(self._call)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current_call.reset(self._token)


# Clean-up works and is bounded: a swallowed cancellation must not keep paying (decision 42)
class HostCode:
    """A block for host code: public entries called there join ``call`` with the host's authority
    (:meth:`~agentflow.core.call.call.CallContext.for_host`), no matter who called the code.

    Such code starts effects in an unknown order, so the effects of ``call`` are identified by their content.
    Raises StrayExit or HostPanic as :func:`is_stray` decides. Await the code's own awaitables by ``await
    code.to_end(...)``.
    """

    __slots__ = ("_call", "_host", "_token")
    _token: Token[CallContext | None]

    def __init__(self, call: CallContext) -> None:
        self._call = call

    def __enter__(self) -> HostCalls:
        call = self._call
        call.is_ordered = False
        self._host = call.host = HostCalls()
        self._token = current_call.set(call if call.grants is None else call.for_host())
        return self._host

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current_call.reset(self._token)
        if error is not None and is_stray(error, self._host.cancelled()):
            raise contained(error) from error


class RunOverrides(TypedDict, total=False):
    """The parts of a :class:`~agentflow.core.call.call.RunPort` that a view of a run may have of its own."""

    journal: JournalPort | None
    budget: object
    watched: bool
    streaming: bool
    deps: Any
    around_tool: tuple[Any, ...]
    around_model: tuple[Any, ...]
    publish: Callable[[Event], None]
    congested: Callable[[], bool]
    room: Callable[[], Awaitable[None]]
    charge_model_call: Callable[[], None]
    charge_usage: Callable[..., None]


class _RunView:
    """A run with parts of its own. Those of the other run are looked up once, since few of them are asked for."""

    def __init__(self, run: RunPort, own: RunOverrides) -> None:
        vars(self).update(own, _run=run)

    def __getattr__(self, name: str) -> Any:
        part = vars(self)[name] = getattr(vars(self)["_run"], name)
        return part


def view_of(run: RunPort, **own: Unpack[RunOverrides]) -> RunPort:
    """``run`` as some of the code in it sees it: with ``own`` in place of those parts of it."""
    return cast(RunPort, _RunView(run, own))
