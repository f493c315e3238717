"""The complete interface of a strand for generated code, primitives and macro templates.

Generated functions are ``async (rt, d, *arguments)``: ``rt`` is a :class:`Runtime`, ``d`` the depth of the call. A strand
that runs, one that records, one that replays and the one that expands macros all look the same to them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, Literal, Protocol, TypeAlias, TypeVar, get_args

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Span
from agentflow.core.data.walk import Work
from agentflow.core.events.effects import Effect
from agentflow.lang.environment import Cell, SexpEnvironment
from agentflow.lang.kernel.container_labels import ContainerLabels

T = TypeVar("T")
Code: TypeAlias = "Callable[Concatenate[Runtime, int, ...], Coroutine[Any, Any, Any]]"
"""A function of the program: called with the strand, the depth and the arguments. Returns its value, or TAIL."""


@frozen
class LinkableCode:
    """Compiled code of a program: ``link`` makes its :data:`Code` from the environment and its ``cells`` (name, own)."""

    link: Callable[..., Code]
    cells: tuple[tuple[str, bool], ...]


Operation: TypeAlias = Literal[
    "catch",
    "define-task",
    "director-loop",
    "error",
    "eval-program",
    "finally",
    "loop-config",
    "parallel",
    "parallel-on",
    "pmap",
    "pmap-on",
    "race",
    "race-on",
    "raise",
    "retry",
    "solve",
    "timeout",
]
"""A request of a program to the runtime other than a call or an effect; carried out by :meth:`Runtime.operation`."""

OPERATIONS: frozenset[Operation] = frozenset(get_args(Operation))


class Fork(Protocol):
    """The branches of one form, as code within them sees it: ``roots`` are their inputs.

    ``outer`` is the fork around the form, ``reachable`` the identities of everything reachable from the roots, once it was
    requested and the work of ``reaching`` is done.
    """

    roots: Sequence[Any]
    reachable: frozenset[int] | None
    reaching: Work[frozenset[int]] | None

    @property
    def outer(self) -> Fork | None: ...


class Runtime(Protocol):
    """A strand, as generated code sees it.

    ``fuel`` is the rest of the current slice of steps: code that enters a function or goes round a loop takes one and calls
    :meth:`tick` when it is below zero. ``tail`` holds the code and the arguments of a call that a function left to its
    caller (it returned TAIL), ``again`` the values of a loop's next round (AGAIN). ``grants`` is the authority in force,
    which a procedure created now keeps (None: the host's own).
    """

    fuel: int
    tail: tuple[Any, ...] | None
    again: tuple[Any, ...]
    grants: frozenset[str] | None

    @property
    def fork(self) -> Fork | None:
        """The fork that this strand is a branch of; None outside of branches."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of the run, for primitives that allocate."""
        ...

    @property
    def branch(self) -> bool:
        """Whether other strands may be running concurrently."""
        ...

    # -- steps ----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Begin the next slice of steps. Raises LimitExceeded."""
        ...

    def charge(self, steps: int) -> None:
        """Take ``steps`` for work larger than a step, before it is done. Raises LimitExceeded.

        Sizes are turned into steps by :mod:`agentflow.lang.charging`.
        """
        ...

    def allocate(self, count: int) -> None:
        """Count ``count`` bytes of memory, before they are allocated. Raises LimitExceeded."""
        ...

    def work(self, work: Work[T]) -> Coroutine[Any, Any, T]:
        """Carry out long work in slices (to be awaited), charging for each part; returns its result."""
        ...

    def rounds(self, rounds: range, span: Span) -> Iterable[int]:
        """Iterate ``rounds`` of the loop at ``span``, reporting each to observers."""
        ...

    # -- calls ----------------------------------------------------------------------------------------------------

    def pick(self, function: Any, count: int, d: int) -> Code:
        """The code behind a value in operator position, for ``count`` arguments. Raises SexpEvaluationError."""
        ...

    def pick_global(self, env: SexpEnvironment, cell: Cell, name: str, count: int, d: int) -> Code:
        """The same for a variable of the environment; the code makes its tail calls itself."""
        ...

    def takes_named_arguments(self, function: Any, env: SexpEnvironment | None = None) -> bool:
        """Whether a value in operator position names a task or tool, as code in ``env`` sees them.

        Raises SexpEvaluationError when it names nothing.
        """
        ...

    async def call_named(
        self,
        d: int,
        function: Any,
        names: tuple[str, ...],
        values: tuple[Any, ...],
        span: Span | None,
        env: SexpEnvironment | None = None,
    ) -> Any:
        """Call the task or tool that a value names, with named arguments; returns its result."""
        ...

    def on_fresh_stack(self, code: Code) -> Code:
        """``code`` for a run on an empty Python stack. Raises LimitExceeded (``limits/depth``)."""
        ...

    # -- names ----------------------------------------------------------------------------------------------------

    def unbound(self, env: SexpEnvironment, name: str, near: tuple[str, ...] = ()) -> Any:
        """The value of a name that was unbound when the code was compiled or linked. Raises; ``near`` are names to suggest."""
        ...

    def operator(self, env: SexpEnvironment, name: str, near: tuple[str, ...] = ()) -> Any:
        """The meaning of such a name in operator position. Raises UnboundSymbolError."""
        ...

    def set_global(self, env: SexpEnvironment, cell: Cell, name: str, value: Any) -> None:
        """``set!`` of a variable of the environment, either unbound or possibly shared with other strands. Raises."""
        ...

    def check_owner(self, owner: Any, name: str) -> None:
        """Refuse ``set!`` of a variable of the strand ``owner`` while that strand waits for this one."""
        ...

    def fresh_name(self, stem: str) -> str:
        """A name that begins like ``stem`` and that no other name of the program equals."""
        ...

    # -- the world ------------------------------------------------------------------------------------------------

    def perform(self, effect: Effect, span: Span | None) -> Coroutine[Any, Any, Any]:
        """Carry out an effect (to be awaited); returns its value."""
        ...

    def under(self, sources: frozenset[str], work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Carry out work (to be awaited) depending on ``sources``; returns its value."""
        ...

    def operation(self, op: Operation, d: int, span: Span, *arguments: Any) -> Coroutine[Any, Any, Any]:
        """Carry out an operation (to be awaited); returns its value."""
        ...


class StrictRuntime(Runtime, Protocol):
    """The strand of a program under a strict policy, as the machine that carries such programs out sees it (:mod:`agentflow.lang.kernel`).

    ``ambient`` are the sources of the conditions on the way to the current code; ``trying`` counts the forms around it that may catch an error.
    """

    ambient: frozenset[str]
    trying: int
    containers: ContainerLabels

    def forbid(self, error: AgentflowError) -> None:
        """Raise the error of a violation of a strict policy, or warn of it if the policy only explains."""
        ...

    def on_fresh_task(self, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Carry out ``work`` on an empty Python stack (to be awaited); returns its value."""
        ...

    def raise_to(self, sources: frozenset[str]) -> None:
        """Make later effects depend on these sources."""
        ...

    def left(self, before: frozenset[str], value: Any) -> Any:
        """A value returned from code entered with the ambient sources ``before``."""
        ...

    def written(self, name: str, old: Any, value: Any, since: frozenset[str]) -> Any:
        """The value that a variable gets, if ``old`` already carries sources that allow a change because of ``since``. Raises."""
        ...

    def defined(self, name: str, old: Any, value: Any) -> Any:
        """The value that defines, or redefines, a variable. Raises."""
        ...
