"""The records of a durable run, as the rooms below the runtime see them.

``C`` is the type of a call, which these Protocols only pass on; :class:`~agentflow.core.call.call.CallContext` is the one there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agentflow.core.data.known_names import CompiledTask, Template
from agentflow.core.data.messages import Usage
from agentflow.core.data.source import Span
from agentflow.core.events.questions import Question

if TYPE_CHECKING:
    import asyncio

    from agentflow.core.call.deliveries_port import Deliveries
    from agentflow.core.call.inbox import Inbox, SaidText
    from agentflow.core.call.run_state import RunState
    from agentflow.core.call.spending import Reservation
    from agentflow.core.data.batches import BatchedCall

C = TypeVar("C", contravariant=True)
T = TypeVar("T")
Content = Mapping[str, Any]
"""The content of an effect: its parts, by their names in the message about a record that does not match."""


class Verdict(Protocol):
    """The branch of a form that settles it, when not all of them end by themselves: the recorded one, or the first."""

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


class JournalPortOf(Protocol[C]):
    """The records of a durable run, as seen from a call in it."""

    @property
    def suspending(self) -> bool:
        """Whether the run is given up without an end, to be resumed later: nothing is cleaned up then."""
        ...

    @property
    def slice(self) -> int:
        """The number of this slice of a resumed run, from 1."""
        ...

    @property
    def spent_s(self) -> float:
        """Working time of the run in earlier slices, in seconds."""
        ...

    @property
    def usage(self) -> Usage:
        """The tokens of all records so far."""
        ...

    @property
    def cost(self) -> float | None:
        """The US dollars of all records so far; None if a price is unknown."""
        ...

    def watch(self, permits: Any) -> None:
        """Register the waits of the run that owns these permits."""
        ...

    def elsewhere(self, rt: object, span: Span) -> Any:
        """The forms at ``span`` of a strand with separate runs as branches; None where branches run here."""
        ...

    async def step(
        self,
        kind: str,
        name: str,
        content: Content | Callable[[], Content],
        call: C,
        work: Callable[[], Awaitable[T]],
        *,
        write: Callable[[T], Any] | None = None,
        read: Callable[[Any], T] | None = None,
        gives: CompiledTask | None = None,
    ) -> T:
        """Carry out ``work`` at ``call``, or answer it from its record; ``content`` is its content, or a function that
        returns it.

        ``write`` and ``read`` convert a result of another type to a value of programs and back; for a task, ``gives``, they
        are those of its class. Raises the error of the work, also a recorded one.
        """
        ...

    def template(self, template: Template) -> Template:
        """A task that a program defines, as this run has it: some of its fields may be overridden."""
        ...

    async def begin(self, call: C) -> bool:
        """Record that an unrepeatable effect begins at ``call``. False if it began before an interruption and must fail.

        Does not return while a person has to decide whether it is repeated.
        """
        ...

    async def recall(self, kind: str, name: str, content: Content, call: C) -> Any:
        """The value that :meth:`keep` stored at ``call``; None if the work is still to be done."""
        ...

    async def keep(
        self,
        kind: str,
        name: str,
        content: Content,
        value: Any,
        call: C,
        usage: Usage,
        cost: float | None,
        read: Sequence[SaidText] = (),
    ) -> Any:
        """Store the result of work at ``call`` before anything depends on it, and that it has ``read`` texts. Returns ``value`` as it
        will be read back."""
        ...

    def pin(self, kind: str, name: str, text: str | None, call: C) -> str | None:
        """The text that the run got when it first asked for this ``kind`` and ``name``, ``text`` for the first time.

        A text with a secret is not kept.
        """
        ...

    async def rest(self, seconds: float, call: C) -> None:
        """Wait at ``call`` for ``seconds``, outside of memory if it is long and the run has nothing else to do.

        There is no record of it: a resumed run carries out again the effect that waits, at once.
        """
        ...

    async def answer(
        self, question: Question, content: Content, call: C, consult: Callable[[], Awaitable[Any]] | None
    ) -> Any:
        """The recorded answer to the question of ``call``; ``content`` is the question.

        ``consult`` answers at once; without one the run waits until an answer is sent, outside memory if it has nothing
        else to do.
        """
        ...

    async def signal(self, awaited: Question, content: Content, call: C) -> Any:
        """The recorded value of the signal at ``call``; ``content`` is its content. Without one the run waits until it is sent, as for
        an answer."""
        ...

    async def batched(
        self, asked: BatchedCall, content: Content, call: C, reserved: Reservation | None
    ) -> Mapping[str, Any]:
        """The answer to a model call in a batch, recorded at ``call``: waits for it outside of memory, as for an answer.

        ``asked`` has no id, run and key yet; the purse's part of ``reserved`` is set aside. The answer is ``{"status": ..., "body": ...}``, or
        ``{"fallback": reason}`` where an ordinary call is to be made.
        """
        ...

    def is_put_by(self, call: C) -> bool:
        """Whether a purse has set the cost of the batched call at ``call`` aside, and so pays for it apart from the run."""
        ...

    async def close_hold(self, call: C, usage: Usage | None = None, cost: float | None = None) -> None:
        """Have the purse pay for the batched call at ``call``, once, in place of the amount that it has set aside: nothing without ``usage``."""
        ...

    async def inbox(self) -> Inbox | None:
        """The messages to the run, with those that other processes have stored meanwhile; None for a run that none can reach."""
        ...

    def state_changed(self, state: RunState) -> None:
        """Store the state of the run soon. Any thread may call it."""
        ...

    def within(self, call: C) -> Any:
        """The run of ``call`` for another text that its form runs: a :class:`~agentflow.core.call.call.RunPort`."""
        ...

    def verdict(self, path: str, prefix: str, count: int, budget: object) -> Verdict:
        """The decider of the form at ``path``, run under ``budget``, with ``count`` branches at ``prefix`` and their index."""
        ...

    def clock(self, path: str, seconds: float) -> Clock:
        """The time-out of the form at ``path``."""
        ...

    def keep_until(self, timer: asyncio.TimerHandle) -> None:
        """Keep the run in the memory while ``timer``, of asyncio's own, may fire."""
        ...

    def deliveries(self, call: C) -> Deliveries:
        """The order of outcomes in the run of ``call``, once tasks of asyncio make calls in it."""
        ...
