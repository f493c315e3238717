"""Macros: templates expanded before anything runs, by running them on syntax as data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Span
from agentflow.core.data.values import plain_lists
from agentflow.core.data.walk import Work
from agentflow.core.events.effects import Effect
from agentflow.lang.abi import Code, Operation, Runtime
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.calling import MAX_STACK_CALLS, TAIL, Sliced, bounce
from agentflow.lang.closure import Closure
from agentflow.lang.environment import Cell, SexpEnvironment, unbound
from agentflow.lang.syntax import Form, Name, Node, datum, from_datum
from agentflow.lang.trace import annotate

T = TypeVar("T")
MACRO_STEPS = 100_000
"""Steps one expansion may take."""
SLICE = 1_000
"""Steps after which an expansion checks whether it may continue."""


class Macro:
    """A macro: a procedure from the operands, as data, to the expansion."""

    def __init__(self, name: str, closure: Closure, limits: Limits) -> None:
        self.name = name
        self.closure = closure
        self.limits = limits

    @classmethod
    def define(cls, a: Analyzer, node: Form, name: Name, params: Node, body: Sequence[Node]) -> Macro:
        """Compile a macro's template as a procedure that may call primitives only."""
        extent = (node.start, node.end)
        procedure = Form([Name("lambda", *extent), params, *body], *extent)
        strand = MacroStrand(a.limits, a.fresh_name, a.allowance)
        closure = _drive(a.compile_template(a, procedure)(strand, 0))
        return cls(name.name, closure, a.limits)

    def expand(self, a: Analyzer, node: Form) -> Node:
        """The expansion of a call. Raises SexpEvaluationError (``macro/...``) and LimitExceeded."""
        origins: dict[int, Node] = {}
        operands = [datum(each, origins) for each in node.items[1:]]
        rt = MacroStrand(self.limits, a.fresh_name, a.allowance)
        try:
            value = _drive(_finished(rt, rt.pick(self.closure, len(operands), 0), operands))
        except LimitExceeded as error:
            error.at(a.span(node))
            raise
        except AgentflowError as error:
            annotated = annotate(error)
            annotated.at(a.span(node))
            annotated.add_frame(f"macro {self.name}", a.span(node))
            raise annotated from annotated.__cause__
        except (TypeError, RecursionError, ValueError) as error:
            raise a.error(node, "macro/failed", f"macro '{self.name}' failed: {error}") from error
        try:
            made_node = from_datum(
                plain_lists(value), node, origins, self.limits.nodes - a.expanded, self.limits.nesting
            )
        except OverflowError as error:
            limit = "nesting" if str(error) == "depth" else "macro_nodes"
            allowed = self.limits.nesting if limit == "nesting" else self.limits.nodes
            raise LimitExceeded(
                f"the expansion of '{self.name}' is larger than {allowed:,} "
                f"{'levels of nesting' if limit == 'nesting' else 'nodes'}",
                limit=limit,
                allowed=allowed,
                span=a.span(node),
                hint="expand to less, or to a procedure that is called",
            ) from None
        except ValueError as error:
            raise a.error(
                node, "macro/result", f"macro '{self.name}' gave a {error} object, which is not a program"
            ) from None
        a.enter_expansion(made_node, node, self.name)
        return made_node


class MacroStrand:
    """The strand that templates run on: primitives and closures, a fixed number of steps, and no effects.

    It is a :class:`~agentflow.lang.abi.Runtime` that refuses everything that would act, wait, or change an outer variable.
    """

    __slots__ = ("_allowance", "_fresh_name", "_left", "again", "fuel", "grants", "limits", "tail")

    def __init__(self, limits: Limits, fresh_name: Callable[[str], str], allowance: StepAllowance) -> None:
        self.limits = limits
        self._fresh_name = fresh_name
        self._allowance = allowance
        self._left = MACRO_STEPS
        self.fuel = 0
        self.tail: tuple[Any, ...] | None = None
        self.again: tuple[Any, ...] = ()
        self.grants: frozenset[str] | None = None

    @property
    def fork(self) -> None:
        """No macro branches."""

    @property
    def branch(self) -> bool:
        """Templates never run concurrently."""
        return False

    async def tick(self) -> None:
        self.charge(0)

    def charge(self, steps: int) -> None:
        """Take ``steps``, and the owed ones. Raises LimitExceeded (``limits/macro-steps``, or that of the run)."""
        self.fuel -= steps
        while self.fuel < 0:
            granted = min(max(SLICE, -self.fuel), self._left)
            if not granted:
                raise _too_many_steps()
            self._allowance.take(granted)
            self._left -= granted
            self.fuel += granted

    def allocate(self, count: int) -> None:
        self._allowance.allocate(count)

    async def work(self, work: Work[T]) -> T:
        """Long work, at once: its cost is taken from the steps."""
        while True:
            try:
                self.charge(next(work))
            except StopIteration as done:
                return done.value

    def rounds(self, rounds: range, span: Span) -> range:
        """A loop without observers."""
        return rounds

    def pick(self, function: Any, count: int, d: int) -> Code:
        """The code behind a closure or primitive."""
        if d >= MAX_STACK_CALLS:
            raise _too_deep()
        if isinstance(function, Closure):
            if function.arity != count and not (function.arity < 0 and count >= function.info.least):
                raise SexpEvaluationError(
                    f"{function.name or 'the macro'} takes {function.info.least} operands, and was given {count}",
                    code="macro/arity",
                )
            return function.code
        if isinstance(function, Primitive):
            function.check_arity(count)
            return _code(function)
        raise SexpEvaluationError("a macro's template calls procedures and primitives only", code="macro/call")

    def pick_global(self, env: SexpEnvironment, cell: Cell, name: str, count: int, d: int) -> Code:
        """The same for a name, which is a primitive or unbound."""
        return self.pick(self.unbound(env, name), count, d)

    def takes_named_arguments(self, function: Any, env: SexpEnvironment | None = None) -> bool:
        """Always false: tasks and tools do not exist here."""
        return False

    def on_fresh_stack(self, code: Code) -> Code:
        raise _too_deep()

    def unbound(self, env: SexpEnvironment, name: str, near: tuple[str, ...] = ()) -> Any:
        """The primitive of that name. Raises UnboundSymbolError."""
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        raise unbound(name, f"'{name}' is not bound in the macro's template", "quote it if it is meant as a name")

    def operator(self, env: SexpEnvironment, name: str, near: tuple[str, ...] = ()) -> Any:
        """The same in operator position."""
        return self.unbound(env, name)

    def fresh_name(self, stem: str) -> str:
        """A name used nowhere in the program the template is part of."""
        return self._fresh_name(stem)

    # -- effects ----------------------------------------------------------------------------------------------------

    def refuse(self) -> NoReturn:
        """A template is expanded before anything runs. Raises SexpEvaluationError."""
        raise SexpEvaluationError(
            "a macro's template may compute, but not act or handle errors",
            code="macro/effect",
            hint="put the call into the expansion, with quasiquote",
        )

    def operation(self, op: Operation, d: int, span: Span, *arguments: Any) -> NoReturn:
        self.refuse()

    def under(self, sources: frozenset[str], work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Work that depends on ``sources``, which macros do not have."""
        return work

    def perform(self, effect: Effect, span: Span | None) -> NoReturn:
        self.refuse()

    async def call_named(
        self,
        d: int,
        function: Any,
        names: tuple[str, ...],
        values: tuple[Any, ...],
        span: Span | None,
        env: SexpEnvironment | None = None,
    ) -> Any:
        self.refuse()

    def set_global(self, env: SexpEnvironment, cell: Cell, name: str, value: Any) -> None:
        """A variable from outside."""
        self.refuse()

    def check_owner(self, owner: Any, name: str) -> None:
        """A variable that an earlier expansion made."""
        self.refuse()


def _too_many_steps() -> LimitExceeded:
    return LimitExceeded(
        f"a macro's template took more than {MACRO_STEPS:,} steps",
        limit="macro_steps",
        allowed=MACRO_STEPS,
        hint="simplify it, or expand to a procedure that computes when the program runs",
    )


def _too_deep() -> LimitExceeded:
    return LimitExceeded(
        f"calls in a macro's template are nested deeper than {MAX_STACK_CALLS}",
        limit="macro_depth",
        allowed=MAX_STACK_CALLS,
    )


def _code(primitive: Primitive) -> Code:
    if primitive.is_async:
        return primitive.function

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        value = primitive.function(rt, *arguments) if primitive.needs_rt else primitive.function(*arguments)
        return value if type(value) is not Sliced else await rt.work(value.work)

    return code


async def _finished(rt: MacroStrand, code: Code, operands: list[Any]) -> Any:
    value = await code(rt, 1, *operands)
    return await bounce(rt, 0) if value is TAIL else value


def _drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    finally:
        if inspect.getcoroutinestate(work) != inspect.CORO_CLOSED:
            work.close()
    raise AssertionError("a macro's template never waits")
