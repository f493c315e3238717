"""The port through which code below the language uses its run; the runtime implements it.

``C`` is the type of a call, which these Protocols only pass on; :class:`~agentflow.core.call.call.CallContext` is the one there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, TypeVar

from agentflow.core.call.approval import ApprovalRequest, Decision
from agentflow.core.call.journal_port import JournalPortOf
from agentflow.core.call.spending import Funds
from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.data.known_names import CompiledTask
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Batching, Usage
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Lines, Source, Surface
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.events.events import Event
from agentflow.core.events.questions import ExternalCall

C = TypeVar("C", contravariant=True)
T = TypeVar("T")

UnderWay: TypeAlias = Callable[[], tuple[Usage, float | None]]
"""Tokens and cost of a prompt's model call before it is charged, by estimate; None for an unknown price."""
PAID_TEXT = 1_000
"""Characters of a text that the effect it belongs to has already paid for (see :meth:`RunPortOf.charge_text`)."""


class RunShared:
    """The parts that few runs have, and that all of a run's own parts share: its ``state``, a
    :class:`~agentflow.core.call.run_state.RunState`, and its ``inbox``, an :class:`~agentflow.core.call.inbox.Inbox`; None for a
    run without."""

    state: Any = None
    inbox: Any = None


class AdmissionOf(Protocol[C]):
    """Judges programs that a model wrote, before their first effect."""

    async def errors(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str], call: C
    ) -> Sequence[AgentflowError]:
        """Everything wrong with a program that may call the tasks and tools in ``allow`` only and finds the variables
        ``names`` bound; empty when it may run within ``call``."""
        ...

    async def past_budget(
        self, program: str | Source, allow: frozenset[str] | None, bindings: Mapping[str, Any], call: C, taken: int = 0
    ) -> AgentflowError | None:
        """Why a program about to run within ``call`` may exceed the rest of the run's limits, judged by its text;
        None if the text does not show it. Writing it took at least ``taken`` model calls."""
        ...

    async def granted(self, program: str | Source, bindings: Mapping[str, Any], call: C) -> frozenset[str] | None:
        """The grants of a program written by a model, about to run at ``call``: those of the call, or those of its
        manifest if that was approved. Raises AgentflowError (``bounds/not-approved``)."""
        ...


class RunServicesOf(Protocol[C]):
    """Services for code inside a run: subtasks, procedures, programs. The engine that opened the run implements them."""

    @property
    def admission(self) -> AdmissionOf[C]:
        """Judges programs that a model wrote, before they run."""
        ...

    def task(self, name: str, call: C) -> CompiledTask | None:
        """The task called ``name`` as code at ``call`` finds it: of its program, or a registered one; None if there is none."""
        ...

    async def run_subtask(self, request: SubtaskRequest, call: C, task: Any = None) -> TaskResult:
        """Run the request of a CONTINUATION, nested under ``call``."""
        ...

    async def call_value(self, function: Any, arguments: tuple[Any, ...], call: C) -> Any:
        """Call a Closure or Python callable within this run."""
        ...

    async def take_over(
        self,
        template: TaskTemplate,
        request: SubtaskRequest,
        goal: str,
        failed: TaskResult,
        call: C,
        *,
        rounds: int,
    ) -> TaskResult | None:
        """Have a model write a program for ``goal``, the work of a task that ran out of context or output, and run it.

        Gives its result, ``failed`` with the attempts when none worked within ``rounds``, or None when nothing here
        writes programs.
        """
        ...

    def limited(self, model_calls: int, call: C) -> RunPortOf[C]:
        """The run of ``call``, for a part of it that may make so many model calls from now on, and no more."""
        ...

    async def run_program(
        self,
        program: str | Source,
        allow: frozenset[str] | None,
        inputs: Mapping[str, Any],
        call: C,
        *,
        steps: int | None = None,
        written: bool = False,
    ) -> Any:
        """Run a program within ``call``, ``inputs`` bound as its variables.

        ``allow`` None keeps the call's own authority; ``steps`` bounds it below the rest of the run's limit. A program
        ``written`` by a model needs the approval of :meth:`AdmissionOf.granted`. Raises the program's errors.
        """
        ...


class EngineServicesOf(RunServicesOf[C], Protocol[C]):
    """Services of the engine alone, for tools."""

    async def guide(self, allow: frozenset[str], surface: Surface, call: C) -> tuple[str, Mapping[str, str]]:
        """The card of a language, for a model that writes programs, and the usage of each of the names in ``allow``.

        Raises ConfigurationError (``config/option``) where nothing here writes programs.
        """
        ...

    def called_back(self, call: C, inner: C | None = None) -> AbstractAsyncContextManager[None]:
        """A block for host code at ``call`` that runs something in its run, at ``inner``, within the run's concurrency."""
        ...


class RunPortOf(RunServicesOf[C], Protocol[C]):
    """The interface of a run for calls below the language. The runtime implements it."""

    @property
    def run_id(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def services(self) -> EngineServicesOf[C]:
        """The engine that opened the run, which starts subtasks and programs."""
        ...

    @property
    def deps(self) -> Any:
        """The dependencies of the run, as the host gave or made them; None without any."""
        ...

    @property
    def shared(self) -> RunShared:
        """Its state and its inbox, as far as it has them."""
        ...

    @property
    def budget(self) -> object:
        """The rest of the run's limits on steps, effects and branches: opaque outside the runtime; None without limits."""
        ...

    @property
    def tools(self) -> object:
        """The tools that the run began with: the registry's own affair, None without one."""
        ...

    @property
    def around_tool(self) -> tuple[Any, ...]:
        """The middleware around each call of a tool, the flow's before the run's; see :data:`~agentflow.core.ports.around.ToolMiddleware`."""
        ...

    @property
    def around_model(self) -> tuple[Any, ...]:
        """The middleware around each call of a model."""
        ...

    @property
    def journal(self) -> JournalPortOf[C] | None:
        """The records of the run; None when it is not durable."""
        ...

    @property
    def slice(self) -> int:
        """The number of this slice of a resumed run, from 1."""
        ...

    @property
    def watched(self) -> bool:
        """Whether there are observers. Without them, data that only events carry need not be made."""
        ...

    @property
    def streaming(self) -> bool:
        """Whether anybody takes deltas too: a model call is streamed for them alone."""
        ...

    @property
    def programs(self) -> set[tuple[str, Lines | None]]:
        """The digests of the texts with a published loading, with the published lines of each; None: all."""
        ...

    @property
    def waits_at_limits(self) -> bool:
        """Whether the run waits at a limit of its model calls until that is raised."""
        ...

    @property
    def batches(self) -> Batching:
        """Whether its model calls are made in batches, or within which time."""
        ...

    @property
    def wraps_up(self) -> bool:
        """Whether the last turn of an agent is kept for its answer."""
        ...

    def left(self, limit: str) -> float | None:
        """The rest of the run's ``usd``, ``tokens`` or ``wall_s``; None if there is no limit of it."""
        ...

    async def beyond(self, error: LimitExceeded, call: C) -> None:
        """Wait at ``call`` until the limit in ``error`` is raised. Raises ``error`` if the run ends there."""
        ...

    def congested(self) -> bool:
        """Whether a producer of deltas must await :meth:`room` before the next one."""
        ...

    def next_seq(self) -> int: ...
    def publish(self, event: Event) -> None:
        """Hand an event to all observers. Never waits, never raises."""
        ...

    async def examine(self, *values: object, lasting: bool = False) -> None:
        """Search large values in slices, and write them for recorders, right before an event shows them.

        Publishing handles other values on the spot. The result for ``lasting`` values, which errors carry through many
        events that do not show them, is reused by all later events.
        """
        ...

    async def room(self) -> None:
        """Wait until the caller's own stream has taken enough deltas."""
        ...

    def calls_left(self) -> int | None:
        """Remaining model calls; None if there is no limit."""
        ...

    @property
    def funds(self) -> Funds | None:
        """The account where a model call reserves its maximum cost beforehand; None when tokens and money are unlimited."""
        ...

    def charge_model_call(self) -> None:
        """Count one model call before it begins. Raises LimitExceeded."""
        ...

    def under_way(self, call: UnderWay, begins: bool) -> None:
        """Note that model calls of a prompt may be under way, or with ``begins`` false no longer are: the run's account
        counts them."""
        ...

    def charge_usage(self, usage: Usage, cost_usd: float | None, put_by: bool = False) -> None:
        """Add the cost of a model call, which the purse does not pay if it was ``put_by``. Raises LimitExceeded when the run exceeds its tokens or money."""
        ...

    def charge_text(self, characters: int) -> None:
        """Count text that the run holds from now on: a prompt, an answer, a result. Raises LimitExceeded (``memory``)."""
        ...

    async def approve(self, request: ApprovalRequest, call: C) -> Decision:
        """Ask the run's approver. Without one, wait for an answer to be sent; a no if the run may not wait."""
        ...

    def cover(self, path: str, tools: Mapping[str, str]) -> None:
        """Ask no more for ``tools``, by name and identity, which the program at ``path`` calls itself; see :meth:`approve`."""
        ...

    async def ask(
        self, question: str, schema: Mapping[str, Any] | None, call: C, external: ExternalCall | None = None
    ) -> Any:
        """Ask a person the question of ``call``, or for the result of an ``external`` tool. Returns the answer, which fits the
        JSON Schema ``schema``.

        Raises SexpEvaluationError: ``question/schema``, ``question/unanswered``.
        """
        ...

    async def signal(self, name: str, schema: Mapping[str, Any] | None, call: C) -> Any:
        """The value of the next signal of this name, which fits the JSON Schema ``schema``; waits until one is sent."""
        ...

    async def together(self, work: Sequence[Callable[[], Awaitable[T]]], call: C) -> list[T]:
        """The results of all of ``work``, in order, done side by side as the run's concurrency allows.

        They are parts of ``call``, which waits for them. The first failure cancels the others and is raised when they have
        ended, a limit of the run before any other.
        """
        ...
