"""A strand: one sequential line of execution of a program, and the ``rt`` of generated code.

A run begins with one strand; ``parallel`` and similar forms fork others. A strand counts steps, resolves names and the
code of callees, numbers effects and passes them to the performer, and continues deep recursion on fresh Python stacks.
Everything else that programs need are operations: functions of the strand, in a table passed to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, TypeAlias, TypeVar, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Span
from agentflow.core.data.values import name_of
from agentflow.core.data.work import PAUSE_S, Work
from agentflow.core.events.effects import Effect, GetContext, LogMessage, TaskCall, ToolCall
from agentflow.lang.abi import Code, Fork, Operation, Runtime
from agentflow.lang.analyzer import EFFECT_NAMES
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.calling import MAX_STACK_CALLS, TAIL, bounce
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, Cell, SexpEnvironment
from agentflow.lang.program import Program, ProgramCache
from agentflow.run.strand.authority import missing_grant, refuse
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.calls import (
    calling_span,
    host_code,
    located_error,
    not_callable,
    primitive_code,
    wrong_count,
)
from agentflow.run.strand.hops import on_fresh_task
from agentflow.run.strand.large_lists import LARGE
from agentflow.run.strand.leaving import carries_data, carries_long_text, data_of, leaving
from agentflow.run.strand.naming import EffectHandler, Naming, Publish
from agentflow.run.strand.rounds import WatchedLoops
from agentflow.tasks.history import MAX_UNFOLDED, ProgramSteps

SLICE = 1_000
"""Maximum number of steps between two looks at the clock."""
T = TypeVar("T")

Operations: TypeAlias = "Mapping[Operation, Callable[Concatenate[Strand, int, Span, ...], Coroutine[Any, Any, Any]]]"
"""The functions that carry out operations; each takes the strand, the depth, the span of the form and its arguments."""


class Strand(Naming):
    """The object that generated code runs on.

    ``call`` is its call (path, session, grants), ``budget`` what the run may still use. ``performer`` carries out effects;
    ``operations`` has the functions of operations. ``fuel`` is the rest of the current slice of steps, ``first_depth`` the
    depth at which the strand begins, chosen so that the depth limit coincides with a hop.
    :class:`~agentflow.run.strand.naming.Naming` resolves its names.
    """

    __slots__ = (
        "__weakref__",
        "_base",
        "_cleanup",
        "_loops",
        "_paused",
        "_slice",
        "_ticked",
        "again",
        "budget",
        "first_depth",
        "fork",
        "fuel",
        "limits",
        "loop_config",
        "operations",
        "programs",
        "steps",
        "tail",
    )

    def __init__(
        self,
        call: CallContext,
        budget: Budget,
        performer: EffectHandler,
        operations: Operations,
        *,
        parent: Strand | None = None,
        branch: bool = False,
        programs: ProgramCache | None = None,
        env: SexpEnvironment | None = None,
        publish: Publish | None = None,
    ) -> None:
        super().__init__(call, performer, parent, env, publish, branch=branch)
        self.budget = budget
        self.operations = operations
        self.limits: Limits = budget.limits
        self.first_depth = max(0, MAX_STACK_CALLS - self.limits.depth)
        self.programs = programs
        self.fuel = 0
        self.tail: tuple[Any, ...] | None = None
        self.again: tuple[Any, ...] = ()
        self.loop_config: list[Any] | None = parent.loop_config if parent is not None else None
        self._slice = 4
        self._paused = self._ticked = time.monotonic()
        self._base = 0
        self._cleanup: dict[str, CallContext] = {}
        self.steps = ProgramSteps()
        self.fork: Fork | None = parent.fork if parent is not None else None
        self._loops: WatchedLoops | None = None
        budget.strands.add(self)

    def cleanup_call(self) -> CallContext:
        """The call of ``finally`` forms that run because of a limit or a cancellation.

        A limit or a cancellation may come at any point, so which of these forms run, and when, differs from run to run: their
        effects are identified by content.
        """
        path = f"{self.call.path}/x"
        call = self._cleanup.get(path)
        if call is None:
            call = self._cleanup[path] = self.call.at(path, ordered=False)
        return call

    def child(
        self,
        call: CallContext,
        *,
        budget: Budget | None = None,
        branch: bool | None = None,
        env: SexpEnvironment | None = None,
    ) -> Strand:
        """A strand for a part of this one's work, at ``call``, within ``budget``; ``branch``: it runs beside others.

        ``env`` is the environment of another program, which sees neither this strand's definitions nor its steps.
        """
        strand = type(self)(
            call,
            self.budget if budget is None else budget,
            self.performer,
            self.operations,
            parent=self,
            branch=self.branch if branch is None else branch,
            programs=self.programs,
            env=env,
        )
        if env is None:
            strand.steps.before = self.steps
        return strand

    async def main(self, program: Program, env: SexpEnvironment, depth: int = 0, calls: int | None = None) -> Any:
        """Run a program in ``env``, ``depth`` calls deep, and end the strand. Returns the program's last value.

        ``calls`` of these are on the same Python stack, which is for a program within another.
        """
        self.call.program_loaded(program.source, program.source.surface)
        owner, env.owner = env.owner, self
        self._base = depth
        try:
            d = self.first_depth if calls is None else calls
            result = await program.link(env)(self, d)
            if result is TAIL:
                result = await bounce(self, d)
            if time.monotonic() - self._paused > PAUSE_S:
                await self._pause()  # the awaiting task frees what the program held, in a slice of its own
            return result
        except Exception as error:  # noqa: BLE001 - the outermost frame of the program: foreign exceptions get a span
            final = located_error(error)
            if isinstance(final, LimitExceeded):
                self.budget.meet(final)
            self.steps.explain(final, self.grants)
            raise final from final.__cause__
        finally:
            env.owner = owner
            self.end()

    @property
    def depth(self) -> int:
        """The depth of calls at which this strand's Python stack began."""
        return self._base

    def end(self) -> None:
        """Return unused steps to the budget."""
        if self in self.budget.strands:
            self.budget.strands.discard(self)
            self.budget.give_back(self.fuel)
            self.fuel = 0

    # -- steps ----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Begin the next slice of steps: count it, check the clock, and let others run when it is time.

        Slices grow up to :data:`SLICE` steps and shrink when steps turn out to be long, so that the strand pauses about
        every 2 ms whatever its steps do. Concurrent strands of one run share those 2 ms.
        """
        now = time.monotonic()
        taken = now - self._ticked
        root = self.budget.root
        share = PAUSE_S / (1 + root.pausing)
        if taken > share:
            self._slice = max(1, int(self._slice * share / taken))
        elif taken < share / 2 and self._slice < SLICE:
            self._slice = min(SLICE, self._slice * 2)
        owed, self.fuel = -self.fuel, 0
        try:
            self.fuel = self.budget.grant(self._slice + owed - 1, None)
            self.budget.check_time(None)
            if now - self._paused > share:
                await self._pause()
                now = self._paused
            if owed:
                self.charge(owed)
        except LimitExceeded as error:
            error.at(calling_span(1))
            raise
        self._ticked = now

    def charge(self, steps: int) -> None:
        """Charge ``steps`` for work that is larger than a step, before it is done. Raises LimitExceeded.

        Steps beyond the current slice are taken from the budget at once, and the next step checks the clock.
        """
        self.fuel -= steps
        while self.fuel < 0:
            self.fuel += self.budget.grant(-self.fuel, None)

    def allocate(self, count: int) -> None:
        """Count bytes of memory, before they are allocated. Raises LimitExceeded."""
        self.budget.memory.add(count)

    async def work(self, work: Work[T]) -> T:
        """Carry out long work: each part is charged before it is done, and others run every few milliseconds."""
        root = self.budget.root
        lists = root.large_lists
        try:
            while lists and lists.free():  # garbage is freed before more is allocated
                await self._pause()
            while True:
                self.charge(next(work))
                if time.monotonic() - self._paused > PAUSE_S / (1 + root.pausing):
                    await self._pause()
                    self.budget.check_time(None)
        except StopIteration as done:
            value: Any = done.value
            if type(value) is list and len(cast("list[Any]", value)) >= LARGE:
                lists.add(cast("list[Any]", value))
            return cast(T, done.value)
        finally:
            work.close()

    async def _pause(self) -> None:
        """Let others run; another strand may reclaim the steps that were granted."""
        root = self.budget.root
        root.pausing += 1
        try:
            await asyncio.sleep(0)
        finally:
            root.pausing -= 1
        self._paused = time.monotonic()

    def rounds(self, rounds: range, span: Span) -> Iterable[int]:
        """Iterate over the rounds of a loop, reporting progress if somebody takes deltas."""
        if not self.call.run.streaming:
            return rounds
        if self._loops is None:
            budget = self.budget
            self._loops = WatchedLoops(self.call, lambda: budget.effects_used)
        return self._loops.rounds(rounds, span)

    # -- calls ----------------------------------------------------------------------------------------------------

    def pick(self, function: Any, count: int, d: int) -> Code:
        """The code of a value in operator position, for ``count`` positional arguments.

        Raises SexpEvaluationError if it cannot be called with them.
        """
        if isinstance(function, Closure):
            if function.arity != count and not (function.arity < 0 and count >= function.info.least):
                raise wrong_count(function, count)
            return function.code if d < MAX_STACK_CALLS else self.on_fresh_stack(function.code)
        if isinstance(function, Primitive):
            function.check_arity(count)
            code = primitive_code(function)
            return code if d < MAX_STACK_CALLS else self.on_fresh_stack(code)
        name = name_of(function)
        if name is not None:
            return self._pick_name(name, count)
        if callable(function):
            return host_code(function)
        raise not_callable(function)

    def _pick_name(self, name: str, count: int) -> Code:
        if not self.takes_named_arguments(name):
            return self.pick(PRIMITIVES[name], count, 0)
        if count:
            info = self.names().describe(name)
            parameters = info.parameters if info is not None else None
            shown = " ".join(f"({each} value)" for each in list(parameters or ("name",))[:4])
            raise SexpEvaluationError(
                f"'{name}' takes named arguments",
                code="call/positional",
                hint=f"write ({name} {shown})",
            )

        async def code(rt: Runtime, d: int) -> Any:
            return await rt.call_named(d, name, (), (), calling_span(1))

        return code

    def pick_global(self, env: SexpEnvironment, cell: Cell, name: str, count: int, d: int) -> Code:
        """Like :meth:`pick`, for a variable of the environment; calling the code makes its tail calls too."""
        value = cell.v
        code = self.pick(self.unbound(env, name) if value is UNBOUND else value, count, d)

        async def finished(rt: Runtime, d: int, *arguments: Any) -> Any:
            result = await code(rt, d, *arguments)
            return result if result is not TAIL else await bounce(rt, d)

        return finished

    async def call_named(
        self,
        d: int,
        function: Any,
        names: tuple[str, ...],
        values: tuple[Any, ...],
        span: Span | None,
        env: SexpEnvironment | None = None,
    ) -> Any:
        """Call the task or tool that ``function`` names, with named arguments."""
        name = name_of(function)
        assert name is not None
        arguments: dict[str, Any] = {}
        for each, value in zip(names, values, strict=True):
            if each in arguments:
                raise SexpEvaluationError(f"'{name}' is given '{each}' twice", code="call/duplicate", span=span)
            arguments[each] = value
        kind = self.callable_kind(name, env)
        if kind == "context":
            return await self.perform(GetContext(arguments, EFFECT_NAMES[name] == "items"), span)
        effect = TaskCall(name, arguments, env) if kind == "task" else ToolCall(name, arguments, env)
        return await self.perform(effect, span)

    def perform(self, effect: Effect, span: Span | None) -> Coroutine[Any, Any, Any]:
        """Carry out an effect (to be awaited) with the authority in force: number it, charge it, and check its grant.

        Every effect passes through here, some ten microseconds apart: this method must not build objects that only some
        effects need, walk arguments, or look up names. Such work belongs behind a test that most effects fail.
        """
        call, kind = self.call, type(effect)
        if kind is LogMessage:
            call.span = span
        else:
            call = call.start(span, kind.__name__, effect)
            call.grants = self.grants
            call.definitions = self.definitions(getattr(effect, "env", None))
            if kind is TaskCall or kind is ToolCall:
                call.steps = self.steps
                if len(self.steps) > MAX_UNFOLDED:
                    self.steps.fold()
        self.budget.charge_effect(span)
        if self.grants is not None:
            missing = missing_grant(effect, call)
            if missing is not None:
                return refuse(effect, missing, call)
        if carries_data(effect) or self.budget.permits.root.excess or (call.run.watched and carries_long_text(effect)):
            return self._perform_prepared(effect, call)
        return self.performer.perform(effect, call)

    async def _perform_prepared(self, effect: Effect, call: CallContext) -> Any:
        """Carry out an effect after its arguments are plain data and the run is within its permits."""
        if carries_data(effect):
            effect = await self.work(leaving(effect, self.limits.string, call.span))
        if call.run.watched and type(effect) is not GetContext:
            await call.run.examine(data_of(effect))
        if self.budget.permits.root.excess:
            await self.budget.permits.settle(call)
        return await self.performer.perform(effect, call)

    def host_procedure(self, function: Any) -> Any:
        """A procedure as it is applied where code of the host calls it on a strand of its own."""
        return function

    def under(self, sources: frozenset[str], work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Carry out work (to be awaited). Where nothing is followed it depends on nothing."""
        return work

    def operation(self, op: Operation, d: int, span: Span, *arguments: Any) -> Coroutine[Any, Any, Any]:
        """Carry out an operation (to be awaited)."""
        return self.operations[op](self, d, span, *arguments)

    def on_fresh_stack(self, code: Code) -> Code:
        """``code``, to be run on a fresh stack. Raises LimitExceeded (``limits/depth``) at the depth limit."""
        limit = self.limits.depth
        depth = self._base + MAX_STACK_CALLS
        if depth >= limit:
            raise LimitExceeded(
                f"calls are nested {limit:,} deep", limit="depth", allowed=limit, used=depth, span=calling_span(1)
            )
        first = max(0, MAX_STACK_CALLS - (limit - depth - 1))

        async def hop(rt: Runtime, d: int, *arguments: Any) -> Any:
            base, self._base = self._base, depth + 1 - first
            try:
                result = await on_fresh_task(code(rt, first, *arguments))
                return await bounce(rt, first) if result is TAIL else result
            finally:
                self._base = base

        return hop
