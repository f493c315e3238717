"""Where in which run we are: the context every effect below the language carries.

A :class:`CallContext` is passed explicitly from the runtime through task system, turn loop and tools. The one context
variable, :data:`current_call`, is set around code of the host only (:class:`~agentflow.core.host_code.HostCode`), so that
public entries called from inside a tool join the run that the tool belongs to.
"""

from __future__ import annotations

import asyncio
import time as _time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import partial
from hashlib import blake2b
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from agentflow.core.context import InheritedContext
from agentflow.core.events import (
    MAX_PROGRAM_BYTES,
    Event,
    EventBase,
    Log,
    ProgramLoaded,
    ToolProgress,
    Warning,
)
from agentflow.core.frozen import frozen
from agentflow.core.limits import Limits
from agentflow.core.messages import Usage
from agentflow.core.names import Definitions, Template, narrowed
from agentflow.core.paths import content_mark, label_mark
from agentflow.core.scope import Scope
from agentflow.core.session import Session
from agentflow.core.source import Source, Span
from agentflow.core.spending import Purse
from agentflow.core.steps import StepLog

if TYPE_CHECKING:
    from agentflow.core.errors import AgentflowError
    from agentflow.core.requests import SubtaskRequest
    from agentflow.core.results import TaskResult
    from agentflow.core.templates import TaskTemplate

T = TypeVar("T")


@frozen
class ApprovalRequest:
    """What an approver is asked: which tool or command, with what, and why approval is needed.

    ``text`` is safe to show (control characters escaped); ``digest`` binds the approval to exactly what will run.
    ``run_id`` and ``path`` say who asks; ``call_id`` is the model's tool call, if a model asked for it.
    """

    tool: str
    text: str
    digest: str
    reason: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    run_id: str = ""
    path: str = ""
    call_id: str | None = None


class RunServices(Protocol):
    """What things inside a run may ask it to start. The engine that opened the run does it."""

    async def run_subtask(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """Run what a CONTINUATION asks for, nested under ``call``."""
        ...

    async def call_value(self, function: Any, arguments: tuple[Any, ...], call: CallContext) -> Any:
        """Call a Closure or Python callable within this run."""
        ...

    async def take_over(
        self,
        template: TaskTemplate,
        request: SubtaskRequest,
        goal: str,
        failed: TaskResult,
        call: CallContext,
        *,
        rounds: int,
    ) -> TaskResult | None:
        """Have a model write a program for ``goal``, the work of a task that ran out of context or output, and run it.

        Gives its result, ``failed`` with the attempts when none worked within ``rounds``, or None when nothing here
        writes programs.
        """
        ...

    async def check_program(
        self, text: str, allow: frozenset[str], names: frozenset[str], call: CallContext
    ) -> Sequence[AgentflowError]:
        """Everything wrong with a program that may call the tasks and tools in ``allow`` only and finds the variables
        ``names`` bound; empty when it may run within ``call``."""
        ...

    async def run_program(
        self,
        text: str,
        allow: frozenset[str] | None,
        inputs: Mapping[str, Any],
        call: CallContext,
        *,
        steps: int | None = None,
    ) -> Any:
        """Run a program text within ``call``, ``inputs`` bound as its variables.

        ``allow`` None leaves it the call's own authority; ``steps`` bounds it below what the run has left. Raises what
        the program raises.
        """
        ...


class Verdict(Protocol):
    """Which branch of a form settles it, when not all of them end by themselves: the recorded one, or the first."""

    async def begins(self, index: int) -> None:
        """Branch ``index`` begins. Never returns when the form was settled before it did."""
        ...

    async def settles(self, index: int, error: Exception | None) -> bool:
        """Whether branch ``index``, which succeeded or failed with ``error``, settles the form. Recorded before it does."""
        ...

    async def ends(self, index: int) -> None:
        """Branch ``index`` has ended without settling the form."""
        ...


class Clock(Protocol):
    """The time-out of a form, as its records have it. A context manager around its body."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Raise TimeoutError if the time was up, now or when it was recorded."""
        ...


class JournalPort(Protocol):
    """The records of a durable run, as seen from a call in it."""

    @property
    def suspending(self) -> bool:
        """Whether the run is given up without an end, to be gone on with later: nothing is cleaned up then."""
        ...

    async def step(
        self,
        kind: str,
        name: str,
        content: object,
        call: CallContext,
        work: Callable[[], Awaitable[T]],
        *,
        write: Callable[[T], Any] | None = None,
        read: Callable[[Any], T] | None = None,
    ) -> T:
        """Do ``work``, which ``call`` is the call of, or answer it from its record; ``content`` is what it asks for, or
        a function that gives it.

        ``write`` and ``read`` turn its result into a value of programs and back, where it is none. Raises what the work
        raised, also when that is recorded.
        """
        ...

    def template(self, template: Template) -> Template:
        """A task that a program defines, as this run has it: some of its fields may be overridden."""
        ...

    async def begin(self, call: CallContext) -> bool:
        """Record that what cannot be repeated begins at ``call``. False if it began before an interruption, and shall fail.

        Never returns where somebody has to decide whether it is repeated.
        """
        ...

    async def recall(self, kind: str, name: str, content: object, call: CallContext) -> Any:
        """What :meth:`keep` stored at ``call``; None when it is to be done."""
        ...

    async def keep(
        self, kind: str, name: str, content: object, value: Any, call: CallContext, usage: Usage, cost: float | None
    ) -> Any:
        """Store what was done at ``call`` before anything follows from it. Gives ``value`` as it is read back."""
        ...

    def pin(self, kind: str, name: str, text: str | None, call: CallContext) -> str | None:
        """The text that the run was given when it first asked for this ``kind`` and ``name``, ``text`` if that is now.

        A text with a secret is not kept.
        """
        ...

    def verdict(self, path: str, prefix: str, count: int, budget: object) -> Verdict:
        """Who settles the form at ``path``, run under ``budget``, whose ``count`` branches are at ``prefix`` and their index."""
        ...

    def clock(self, path: str, seconds: float) -> Clock:
        """The time-out of the form at ``path``."""
        ...


class RunPort(RunServices, Protocol):
    """What calls below the language need of the run they belong to. The runtime implements it."""

    @property
    def run_id(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def services(self) -> RunServices:
        """Who does what the run is asked to start: the engine that opened it."""
        ...

    @property
    def budget(self) -> object:
        """What the run may still use of steps, effects and branches: the runtime's own affair, None without one."""
        ...

    @property
    def journal(self) -> JournalPort | None:
        """The records of the run; None when it is not durable."""
        ...

    @property
    def slice(self) -> int:
        """Which stretch of a run that is resumed this is, from 1."""
        ...

    @property
    def watched(self) -> bool:
        """Whether anybody takes events. Nothing that only they carry need be made when nobody does."""
        ...

    @property
    def streaming(self) -> bool:
        """Whether anybody takes deltas too: a model call is streamed for them alone."""
        ...

    @property
    def programs(self) -> set[str]:
        """The digests of the texts whose loading was published."""
        ...

    @property
    def congested(self) -> bool:
        """Whether a delta producer must await :meth:`room` before going on."""
        ...

    def next_seq(self) -> int: ...
    def publish(self, event: Event) -> None:
        """Hand an event to all observers. Never waits, never raises."""
        ...

    async def room(self) -> None:
        """Wait until the caller's own stream has taken enough deltas."""
        ...

    @property
    def purse(self) -> Purse | None:
        """Where a model call sets aside what it may cost before it is made; None when tokens and money are unlimited."""
        ...

    def charge_model_call(self) -> None:
        """Count one model call before it is made. Raises LimitExceeded."""
        ...

    def charge_usage(self, usage: Usage, cost_usd: float | None) -> None:
        """Add what a model call cost. Raises LimitExceeded when the run is over its tokens or money."""
        ...

    def charge_text(self, characters: int) -> None:
        """Count text that the run holds from now on: a prompt, an answer, a result. Raises LimitExceeded (``memory``)."""
        ...

    async def approve(self, request: ApprovalRequest, call: CallContext) -> bool:
        """Ask the run's approver. False without one."""
        ...

    async def together(self, work: Sequence[Callable[[], Awaitable[T]]], call: CallContext) -> list[T]:
        """The results of all of ``work``, in order, done side by side as the run's concurrency allows.

        ``call`` is what they are part of, which waits for them. The first failure cancels the others and is raised when
        they have ended, a limit of the run before any other.
        """
        ...


Mark: TypeAlias = "str | Callable[[], str]"
"""One link of a subtask chain: its text, or what works the text out when somebody reads the chain, which is rare."""


class HostCalls:
    """What host code has the run do just now: ``count`` of its calls of public methods have not ended.

    ``run`` is the run as they see it, once there is any.
    """

    __slots__ = ("_before", "_task", "count", "run")

    def __init__(self) -> None:
        self.count = 0
        self.run: RunPort | None = None
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0

    def cancelled(self) -> bool:
        """Whether the task in which the host code began has been cancelled since."""
        return self._task is not None and self._task.cancelling() > self._before


class CallContext:
    """One place in a running workflow.

    Attributes: ``run`` the run; ``path`` the branch path (``0/4.2/1.0``); ``parent`` the ``seq`` of the enclosing
    Started event; ``session`` the conversation in force; ``span`` the place in the program; ``grants`` the names of
    tasks and tools that may be called (None: the host's own authority); ``subtask_chain`` the fingerprints of the
    enclosing subtask requests; ``material`` what the enclosing task was given to read, which its subtasks may inherit;
    ``definitions`` the tasks that programs defined where the call stands; ``host`` what host code does in it, if it is the call of such;
    ``call_id`` the model's tool call that this is part of, if a model asked for it; ``steps`` what came before in the
    sequence that this call is a step of, which is nothing to the calls within it.
    A tool that declares a parameter ``ctx: CallContext`` is given one.

    What starts within a call has a path below it that is the same in every run. Calls are *ordered*: what starts in them
    starts in an order that does not change, so it is numbered (``path/0.0``, ``path/1.0``). In the call of host code
    nobody knows an order, so effects are told apart by what they are: ``path/~<content>.<n>``, where ``n`` counts those of
    equal content.
    """

    __slots__ = (
        "_chain",
        "_occurrences",
        "_ordered",
        "_ordinal",
        "call_id",
        "definitions",
        "grants",
        "host",
        "material",
        "parent",
        "path",
        "run",
        "session",
        "span",
        "steps",
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
    ) -> None:
        self.run = run
        self.path = path
        self.parent = parent
        self.session = session if session is not None else Session()
        self.span = span
        self.grants = grants
        self._chain: tuple[Mark, ...] = subtask_chain
        self.material = material
        self.call_id: str | None = None
        self.definitions = definitions
        self.host: HostCalls | None = None
        self.steps: StepLog | None = None
        self._ordered = ordered
        self._ordinal = 0
        self._occurrences: dict[str, int] | None = None

    @property
    def run_id(self) -> str:
        """The run's identity."""
        return self.run.run_id

    @property
    def idempotency_key(self) -> str:
        """What tells a service that this is the same request as before: equal whenever a durable run repeats this call."""
        text = f"{self.run_id}\n{self.path}".encode("utf-8", "surrogatepass")
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
        """A call at ``path`` with a numbering of its own, otherwise as this.

        ``run`` replaces this call's run; ``grants`` narrow its authority: they are intersected, never widened.
        """
        call = self._fork(path)
        call._ordered = ordered
        if run is not None:
            call.run = run
        if grants is not None:
            call.grants = narrowed(self.grants, grants)
        return call

    def start(self, span: Span | None, kind: str, *content: Any) -> CallContext:
        """The call of one effect that starts now, at ``span``: it has the next path (see :meth:`next_path`).

        The first scope opened on it, or the first path drawn from it, takes that path over, so the effect and its
        Started event have the same.
        """
        ordinal = self._ordinal
        if ordinal >= 0 and self._ordered:  # as nearly every effect: numbered without another call
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
        call = object.__new__(kind or CallContext)
        call.run = self.run
        call.path = path
        call.parent = self.parent
        call.session = self.session
        call.span = self.span
        call.grants = self.grants
        call.material = self.material
        call.call_id = self.call_id
        call.definitions = self.definitions
        call.host = None
        call.steps = None
        call._chain = self._chain
        call._ordered = True
        call._ordinal = 0
        call._occurrences = None
        return call

    @property
    def host_authority(self) -> bool:
        """Whether this call has the host's own authority rather than a list of grants."""
        return self.grants is None

    @property
    def is_ordered(self) -> bool:
        """Whether what starts in this call is numbered; false in host code, where it is told apart by its content."""
        return self._ordered

    def next_path(self, kind: str = "", *content: Any) -> str:
        """The path of what starts next within this call.

        ``kind`` and ``content`` (name, arguments ...) say what it is; that matters where there is no order.
        """
        if not self._ordered:
            mark = content_mark(kind, content)
            return f"{self.path}/{mark}.{self._count(mark)}"
        ordinal = self._ordinal
        if ordinal >= 0:
            self._ordinal = ordinal + 1
            return f"{self.path}/{ordinal}.0"
        # The call of an effect: the effect's own path first; what else starts here is numbered apart from what starts
        # in the scope that took it.
        self._ordinal = ordinal - 1
        return self.path if ordinal == -1 else f"{self.path}/{ordinal}.0"

    def _count(self, mark: str) -> int:
        if self._occurrences is None:
            self._occurrences = {}
        count = self._occurrences.get(mark, 0)
        self._occurrences[mark] = count + 1
        return count

    @contextmanager
    def ordered(self, label: str) -> Generator[CallContext]:
        """A call in which effects are numbered in the order they start: ``with ctx.ordered("part 3") as call:``.

        For host code that does several things at once, each of them in an order of its own: ``label`` names one of them,
        the same in every run. Public methods called in the block (``flow.run``, ``execute_task`` ...) join that call.
        """
        mark = label_mark(label)
        call = self.at(f"{self.path}/{mark}.{self._count(mark)}")
        call.host = self.host
        token = current_call.set(call)
        try:
            yield call
        finally:
            current_call.reset(token)

    def emit(self, kind: type[EventBase], /, **fields: Any) -> int:
        """Publish an event of this call, with the header filled in. Returns its ``seq``; 0 when nobody watches."""
        run = self.run
        if not run.watched:
            return 0
        seq = run.next_seq()
        run.publish(kind(run.run_id, run.slice, seq, self.path, self.parent, self.span, _time.time(), **fields))
        return seq

    def warn(self, code: str, message: str, **details: Any) -> None:
        """Publish a Warning."""
        if self.run.watched:
            self.emit(Warning, code=code, message=message, details=details or None)

    def log(self, message: str, level: str = "info") -> None:
        """Publish a Log line."""
        if self.run.watched:
            self.emit(Log, message=message, level=level)

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Say how far a tool is: ``progress`` of ``total``, in units of its own. A reader that is slow may miss it."""
        if self.run.streaming:
            self.emit(ToolProgress, progress=progress, total=total, message=message)

    def program_loaded(self, source: Source) -> None:
        """Publish the text of a program that is run for the first time in this run."""
        run = self.run
        if run.watched and source.digest not in run.programs:
            run.programs.add(source.digest)
            text = source.text
            if len(text) > MAX_PROGRAM_BYTES // 4:
                text = text.encode("utf-8", "replace")[:MAX_PROGRAM_BYTES].decode("utf-8", "ignore")
            self.emit(ProgramLoaded, name=source.name, digest=source.digest, text=text)

    def in_thread(self) -> CallContext:
        """This call for code that runs in another thread: its events are published on the event loop."""
        call = cast(_ThreadCall, self._fork(self.path, _ThreadCall))
        call._ordered = self._ordered
        call.loop = asyncio.get_running_loop()
        return call

    def scope(
        self,
        started: type[EventBase],
        /,
        *,
        path: str | None = None,
        nested: bool = False,
        **fields: Any,
    ) -> Scope[CallContext]:
        """Open a Started/Finished pair: ``with call.scope(ToolStarted, name=...) as scope``.

        Inside, ``scope.call`` is the call (at a path of its own, unless ``path`` is given). The call of an effect serves
        as that of its scope, unless it is ``nested``: then ``scope.call`` may be changed before the block. Leave results
        with ``scope.set(result=..., usage=...)``; the Finished event is published however the block ends.
        """
        # A further keyword here costs every scope: each field is compared with the names of all of them.
        ordinal = self._ordinal
        if ordinal == -1 and path is None and not nested:
            self._ordinal = 0
            return Scope(self, started, fields)
        if path is not None:
            child = self._fork(path)
        elif ordinal >= 0 and self._ordered:
            self._ordinal = ordinal + 1
            child = self._fork(f"{self.path}/{ordinal}.0")
        else:
            child = self._fork(self.next_path(started.__name__, fields))
        return Scope(child, started, fields)

    async def call(self, function: Any, *arguments: Any) -> Any:
        """Call a Closure (or Python callable) of the program from inside a tool, within the same run."""
        return await self.run.call_value(function, arguments, self)


class _ThreadCall(CallContext):
    """A call whose events are published on the event loop, in the order in which its thread publishes them."""

    __slots__ = ("loop",)
    loop: asyncio.AbstractEventLoop

    def emit(self, kind: type[EventBase], /, **fields: Any) -> int:
        """Have the loop publish an event. Its number is not known yet: 0."""
        if self.run.watched:
            self.loop.call_soon_threadsafe(partial(super().emit, kind, **fields))
        return 0


current_call: ContextVar[CallContext | None] = ContextVar("agentflow_current_call", default=None)
"""The call whose tool or host callable is executing in this context, if any."""
