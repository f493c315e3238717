"""The port through which code below the language uses its run; the runtime implements it.

``C`` is the type of a call, which these Protocols only pass on; :class:`~agentflow.core.call.call.CallContext` is the one there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from agentflow.core.call.approval import ApprovalRequest, Decision
from agentflow.core.call.journal_port import JournalPortOf
from agentflow.core.call.spending import Purse
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Usage
from agentflow.core.data.names import CompiledTask
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Lines, Source
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.events.events import Event

C = TypeVar("C", contravariant=True)
T = TypeVar("T")

UnderWay: TypeAlias = Callable[[], tuple[Usage, float | None]]
"""What the model call of a prompt that is not charged yet has used and cost, by estimate; None for an unknown price."""
PAID_TEXT = 1_000
"""Characters of a text up to which the effect that it belongs to has paid for it (see :meth:`RunPortOf.charge_text`)."""


class AdmissionOf(Protocol[C]):
    """Judges programs that a model wrote, before their first effect."""

    async def errors(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str], call: C
    ) -> Sequence[AgentflowError]:
        """Everything wrong with a program that may call the tasks and tools in ``allow`` only and finds the variables
        ``names`` bound; empty when it may run within ``call``."""
        ...

    async def past_budget(
        self, program: str | Source, allow: frozenset[str] | None, bindings: Mapping[str, Any], call: C
    ) -> AgentflowError | None:
        """Why a program that is about to run within ``call`` may go past what the run has left, as its text says; None
        if it does not say so."""
        ...

    async def granted(self, program: str | Source, bindings: Mapping[str, Any], call: C) -> frozenset[str] | None:
        """The grants of a program that a model wrote and that is about to run at ``call``: those of the call, or what its
        manifest names, where somebody approved that. Raises AgentflowError (``bounds/not-approved``)."""
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
        """Run what a CONTINUATION asks for, nested under ``call``."""
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

        ``allow`` None leaves it the call's own authority; ``steps`` bounds it below what the run has left. One that a model
        has ``written`` needs what :meth:`AdmissionOf.granted` asks for. Raises what the program raises.
        """
        ...


class RunPortOf(RunServicesOf[C], Protocol[C]):
    """What calls below the language need of the run they belong to. The runtime implements it."""

    @property
    def run_id(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def services(self) -> RunServicesOf[C]:
        """The engine that opened the run, which starts subtasks and programs."""
        ...

    @property
    def budget(self) -> object:
        """What the run may still use of steps, effects and branches: opaque outside of the runtime; None without one."""
        ...

    @property
    def tools(self) -> object:
        """The tools that the run began with: the registry's own affair, None without one."""
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
        """Whether anybody takes events. Nothing that only they carry need be made when nobody does."""
        ...

    @property
    def streaming(self) -> bool:
        """Whether anybody takes deltas too: a model call is streamed for them alone."""
        ...

    @property
    def programs(self) -> set[tuple[str, Lines | None]]:
        """The digests of the texts whose loading was published, with the lines of each that were; None: all."""
        ...

    @property
    def congested(self) -> bool:
        """Whether a delta producer must await :meth:`room` before going on."""
        ...

    def next_seq(self) -> int: ...
    def publish(self, event: Event) -> None:
        """Hand an event to all observers. Never waits, never raises."""
        ...

    async def examine(self, *values: object, lasting: bool = False) -> None:
        """Search large values in slices, and write them for recorders, right before an event shows them.

        Publishing does so on the spot with the others. What comes of ``lasting`` values, which errors carry through many
        events that do not show them, is known to all later events.
        """
        ...

    async def room(self) -> None:
        """Wait until the caller's own stream has taken enough deltas."""
        ...

    @property
    def calls_left(self) -> int | None:
        """Model calls that can still be made; None if there is no limit."""
        ...

    @property
    def purse(self) -> Purse | None:
        """Where a model call sets aside what it may cost before it is made; None when tokens and money are unlimited."""
        ...

    def charge_model_call(self) -> None:
        """Count one model call before it is made. Raises LimitExceeded."""
        ...

    def under_way(self, call: UnderWay, begins: bool) -> None:
        """Note that model calls of a prompt may be under way, or with ``begins`` false are no more: the run's account counts them."""
        ...

    def charge_usage(self, usage: Usage, cost_usd: float | None) -> None:
        """Add what a model call cost. Raises LimitExceeded when the run is over its tokens or money."""
        ...

    def charge_text(self, characters: int) -> None:
        """Count text that the run holds from now on: a prompt, an answer, a result. Raises LimitExceeded (``memory``)."""
        ...

    async def approve(self, request: ApprovalRequest, call: C) -> Decision:
        """Ask the run's approver. Where there is none, whoever sends an answer; a no if that may not be waited for."""
        ...

    def cover(self, path: str, tools: Mapping[str, str]) -> None:
        """Ask no more for ``tools``, by name and identity, which the program at ``path`` calls itself; see :meth:`approve`."""
        ...

    async def ask(self, question: str, schema: Mapping[str, Any] | None, call: C) -> Any:
        """Ask somebody a question, whose call is ``call``. Gives the answer, which fits the JSON Schema ``schema``.

        Raises SexpEvaluationError: ``question/schema``, ``question/unanswered``.
        """
        ...

    async def together(self, work: Sequence[Callable[[], Awaitable[T]]], call: C) -> list[T]:
        """The results of all of ``work``, in order, done side by side as the run's concurrency allows.

        ``call`` is what they are part of, which waits for them. The first failure cancels the others and is raised when
        they have ended, a limit of the run before any other.
        """
        ...
