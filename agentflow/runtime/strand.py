"""A strand: one sequential line of execution of a program, and the ``rt`` of generated code.

A run begins with one strand; ``parallel`` and its kin fork others. A strand counts steps, hands effects to the
performer, and continues deep recursion on fresh Python stacks.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Literal, NoReturn, Protocol

from agentflow.core.call import CallContext
from agentflow.core.effects import CallWorkflow, Effect, HostCall, LogMessage, Solve, TaskCall, ToolCall
from agentflow.core.errors import AgentflowError, LimitExceeded, SexpEvaluationError, TaskError, UnboundSymbolError
from agentflow.core.limits import Limits
from agentflow.core.source import Span
from agentflow.core.templates import TaskTemplate
from agentflow.core.values import Symbol, name_of, pairs_to_dict
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.builtins.registry import charge_bits, type_name
from agentflow.lang.calling import MAX_STACK_CALLS, TAIL
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, Cell, SexpEnvironment, unbound
from agentflow.lang.forms import FORMS
from agentflow.lang.printer import print_value
from agentflow.lang.program import Program, ProgramCache, compile_program
from agentflow.lang.trace import annotate, place_of, too_early
from agentflow.lib.suggest import did_you_mean
from agentflow.runtime import branches, recovery
from agentflow.runtime.budget import Budget
from agentflow.runtime.hops import on_fresh_task

Code = Callable[..., Coroutine[Any, Any, Any]]

SLICE = 1_000
"""Most steps between two looks at the clock."""
PAUSE_S = 0.002
"""Seconds a strand may run before it lets others."""


class EffectHandler(Protocol):
    """Carries out effects, and knows which names there are."""

    async def perform(self, effect: Effect, call: CallContext) -> Any: ...
    def kind_of(self, name: str, grants: frozenset[str] | None = None) -> Literal["task", "tool"] | None: ...
    def known_names(self) -> Iterable[str]: ...
    def define_task(self, template: TaskTemplate, call: CallContext) -> None: ...
    def parameters_of(self, name: str) -> Sequence[str] | None: ...


class Strand:
    """What generated code runs on.

    ``call`` is the place in the run (path, session, grants), ``budget`` what the run may still use, ``performer`` who
    carries out effects. ``fuel`` is the rest of the current slice of steps; ``branch`` says whether other strands may
    be running beside this one.
    """

    __slots__ = (
        "__weakref__",
        "_base",
        "_cleanup",
        "_paused",
        "_slice",
        "_ticked",
        "again",
        "branch",
        "budget",
        "call",
        "env",
        "fuel",
        "limits",
        "loop_config",
        "parent",
        "performer",
        "programs",
        "tail",
    )

    def __init__(
        self,
        call: CallContext,
        budget: Budget,
        performer: EffectHandler,
        *,
        parent: Strand | None = None,
        branch: bool = False,
        programs: ProgramCache | None = None,
    ) -> None:
        self.call = call
        self.budget = budget
        self.performer = performer
        self.limits: Limits = budget.limits
        self.parent = parent
        self.branch = branch
        self.programs = programs
        self.fuel = 0
        self.tail: tuple[Any, ...] | None = None
        self.again: tuple[Any, ...] = ()
        self.loop_config: list[Any] | None = parent.loop_config if parent is not None else None
        self._slice = 4
        self._paused = self._ticked = time.monotonic()
        self._base = 0
        self._cleanup: dict[str, CallContext] = {}
        budget.strands.add(self)

    @property
    def run(self) -> Any:
        """The run this strand belongs to."""
        return self.call.run

    @property
    def first_depth(self) -> int:
        """The depth to begin at, so that the depth limit is met exactly at a hop."""
        return max(0, MAX_STACK_CALLS - self.limits.depth)

    def cleanup_call(self) -> CallContext:
        """The call of ``finally`` forms that run because of a limit or a cancellation.

        That may strike anywhere, so which of them run, and when, is not the same every time: their effects are told
        apart by content.
        """
        path = f"{self.call.path}/x"
        call = self._cleanup.get(path)
        if call is None:
            call = self._cleanup[path] = self.call.at(path, ordered=False)
        return call

    def end(self) -> None:
        """Give back the steps that were not used."""
        if self in self.budget.strands:
            self.budget.strands.discard(self)
            self.budget.give_back(self.fuel)
            self.fuel = 0

    # -- steps ----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Begin the next slice of steps: count it, look at the clock, and let others run when it is time.

        Slices grow up to :data:`SLICE` steps and shrink when steps turn out to be long, so that the strand pauses about
        every 2 ms whatever its steps do. Strands of one run that all want to go on share those 2 ms.
        """
        now = time.monotonic()
        taken = now - self._ticked
        root = self.budget.root
        turn = PAUSE_S / (1 + root.pausing)
        if taken > turn:
            self._slice = max(1, int(self._slice * turn / taken))
        elif taken < turn / 2 and self._slice < SLICE:
            self._slice = min(SLICE, self._slice * 2)
        self.fuel = 0
        try:
            granted = self.budget.grant(self._slice, None)
            self.budget.check_time(None)
        except LimitExceeded as error:
            error.at(_place(1))
            raise
        if now - self._paused > turn:
            self.fuel = granted
            root.pausing += 1
            try:
                await asyncio.sleep(0)
            finally:
                root.pausing -= 1
            granted = self.fuel if self.fuel > 0 else self.budget.grant(1, None)
            self._paused = now = time.monotonic()
        self._ticked = now
        self.fuel = granted - 1

    # -- calls ----------------------------------------------------------------------------------------------------

    def pick(self, function: Any, count: int, d: int) -> Code:
        """The code behind anything in operator position, for ``count`` positional arguments.

        Raises SexpEvaluationError when it cannot be called so.
        """
        if isinstance(function, Closure):
            if function.arity != count and not (function.arity < 0 and count >= function.info.least):
                raise wrong_count(function, count)
            return function.code if d < MAX_STACK_CALLS else self.on_fresh_stack(function.code)
        if isinstance(function, Primitive):
            function.check_arity(count)
            made = _primitive_code(function)
            return made if d < MAX_STACK_CALLS else self.on_fresh_stack(made)
        name = name_of(function)
        if name is not None:
            return self._pick_name(name, count, d)
        if callable(function):
            return _host_code(function)
        raise SexpEvaluationError(
            f"{_shown(function)} cannot be called: it is {_article(type_name(function))}",
            code="call/not-callable",
            hint="the first element of a form is a procedure, or the name of a primitive, task or tool",
        )

    def _pick_name(self, name: str, count: int, d: int) -> Code:
        primitive = PRIMITIVES.get(name)
        if primitive is not None:
            return self.pick(primitive, count, d)
        if not self.takes_named_arguments(name):
            raise AssertionError
        if count:
            parameters = self.performer.parameters_of(name) or ("name",)
            shown = " ".join(f"({each} value)" for each in list(parameters)[:4])
            raise SexpEvaluationError(
                f"'{name}' takes named arguments",
                code="call/positional",
                hint=f"write ({name} {shown})",
            )

        async def code(rt: Strand, d: int) -> Any:
            return await rt.call_named(d, name, (), (), _place(1))

        return code

    def pick_global(self, env: SexpEnvironment, cell: Cell, name: str, count: int, d: int) -> Code:
        """Like :meth:`pick`, for a variable of the environment; calling the code makes its tail calls too."""
        value = cell.v
        code = self.pick(self.unbound(env, name) if value is UNBOUND else value, count, d)

        async def finished(rt: Strand, d: int, *arguments: Any) -> Any:
            result = await code(rt, d, *arguments)
            return result if result is not TAIL else await rt.bounce(d)

        return finished

    def takes_named_arguments(self, function: Any) -> bool:
        """Whether a value in operator position takes named arguments: it names a task or tool.

        Raises SexpEvaluationError for a string or symbol that names nothing.
        """
        name = name_of(function)
        if name is None or name in PRIMITIVES:
            return False
        if self.performer.kind_of(name, self.call.grants) is None:
            raise self._no_such_operator(name)
        return True

    async def call_named(
        self, d: int, function: Any, names: tuple[str, ...], values: tuple[Any, ...], span: Span | None
    ) -> Any:
        """Call the task or tool a value names."""
        name = name_of(function)
        assert name is not None
        arguments: dict[str, Any] = {}
        for each, value in zip(names, values, strict=True):
            if each in arguments:
                raise SexpEvaluationError(f"'{name}' is given '{each}' twice", code="call/duplicate", span=span)
            arguments[each] = value
        kind = self.performer.kind_of(name, self.call.grants)
        effect = TaskCall(name, arguments) if kind == "task" else ToolCall(name, arguments)
        return await self.perform(effect, span)

    def perform(self, effect: Effect, span: Span | None) -> Coroutine[Any, Any, Any]:
        """Carry out an effect (to be awaited). Numbers it, then charges it to the budget, before anything else."""
        call = self.call
        if type(effect) is LogMessage:
            call.span = span
        else:
            call = call.start(span, type(effect).__name__, effect)
        self.budget.charge_effect(span)
        return self.performer.perform(effect, call)

    async def bounce(self, d: int) -> Any:
        """Make the tail calls a call ended in, one after the other, in constant space."""
        while True:
            tail = self.tail
            assert tail is not None
            self.tail = None
            result = await tail[0](self, d + 1, *tail[1:])
            if result is not TAIL:
                return result

    def on_fresh_stack(self, code: Code) -> Code:
        """``code``, to be run on a fresh stack. Raises LimitExceeded (``limits/depth``) at the depth limit."""
        limit = self.limits.depth
        depth = self._base + MAX_STACK_CALLS
        if depth >= limit:
            raise LimitExceeded(
                f"calls are nested {limit:,} deep", limit="depth", allowed=limit, used=depth, span=_place(1)
            )
        first = max(0, MAX_STACK_CALLS - (limit - depth - 1))

        async def hop(rt: Strand, d: int, *arguments: Any) -> Any:
            base = rt._base
            rt._base = depth + 1 - first
            try:
                result = await on_fresh_task(code(rt, first, *arguments))
                return await rt.bounce(first) if result is TAIL else result
            finally:
                rt._base = base

        return hop

    async def apply(self, function: Any, arguments: Sequence[Any], d: int) -> Any:
        """Call any procedure value with positional arguments, to the end."""
        result = await self.pick(function, len(arguments), d)(self, d + 1, *arguments)
        return await self.bounce(d) if result is TAIL else result

    # -- names ----------------------------------------------------------------------------------------------------

    def unbound(self, env: SexpEnvironment, name: str) -> Any:
        """The value of a name whose cell holds none: bound meanwhile further out, or a primitive. Raises."""
        cell = env.find(name)
        if cell is not None:
            return cell.v
        primitive = PRIMITIVES.get(name)
        if primitive is not None:
            return primitive
        kind = self.performer.kind_of(name, self.call.grants)
        if kind is not None:
            raise SexpEvaluationError(
                f"'{name}' is a {kind}, not a variable", code="name/not-value", hint=f"call it: ({name} (param value))"
            )
        raise unbound(name, f"'{name}' is not bound", self._hint(env, name))

    def operator(self, env: SexpEnvironment, name: str) -> Any:
        """What a name in operator position means now that it is reached. Raises UnboundSymbolError."""
        cell = env.find(name)
        if cell is not None:
            return cell.v
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        if self.performer.kind_of(name, self.call.grants) is not None:
            return Symbol(name)
        raise self._no_such_operator(name, env)

    def _no_such_operator(self, name: str, env: SexpEnvironment | None = None) -> UnboundSymbolError:
        if self.call.grants is not None and self.performer.kind_of(name) is not None:
            return unbound(name, f"'{name}' is not granted to this program", "grant it with allow", "name/not-granted")
        return unbound(
            name,
            f"unrecognized operator: '{name[:200]}' is no variable, special form, primitive, task or tool",
            self._hint(env, name),
            "name/unknown-operator",
        )

    def _hint(self, env: SexpEnvironment | None, name: str) -> str | None:
        known = {*PRIMITIVES, *FORMS, *self.performer.known_names(), *(env.names() if env is not None else ())}
        return did_you_mean(name, known)

    def raise_uninitialised(self, name: str) -> NoReturn:
        """A variable was read before its definition. Raises UnboundSymbolError (``binding/uninitialised``)."""
        raise too_early(name)

    def set_global(self, env: SexpEnvironment, cell: Cell, name: str, value: Any) -> None:
        """The slow way of ``set!`` on a variable of the environment. Raises when it is unbound or shared."""
        if self.branch and env.owner is not self:
            raise shared_set(name)
        if cell.v is UNBOUND:
            env.set_value_in_scope(name, value)
        else:
            cell.v = value

    def check_owner(self, owner: Strand, name: str) -> None:
        """Refuse ``set!`` on a variable whose owner is waiting for this branch."""
        at = self.parent
        while at is not None:
            if at is owner:
                raise shared_set(name)
            at = at.parent

    def current_loop_config(self) -> Any:
        """``*loop-config*``. Raises UnboundSymbolError outside a director-evaluator loop."""
        if self.loop_config is None:
            raise unbound(
                "*loop-config*",
                "'*loop-config*' is not bound here",
                "it has a value inside the phases of a director-evaluator-loop",
            )
        return [[Symbol(name), value] for name, value in self.loop_config]

    def count(self, value: Any) -> range:
        """The rounds of ``loop``. Raises SexpEvaluationError for what is no count."""
        if type(value) is not int or value < 0:
            raise SexpEvaluationError(
                f"loop: the count is an integer that is not negative, and this is {_shown(value)}",
                code="loop/count",
                hint="write (loop 3 body)",
            )
        return range(value)

    def check_integer_size(self, value: Any, who: str) -> Any:
        """An integer past 256 bits, if the limit allows it."""
        if type(value) is int:
            charge_bits(self, value.bit_length(), who)
        return value

    # -- errors ---------------------------------------------------------------------------------------------------

    def caught(self, error: Exception) -> recovery.ErrorValue:
        """The value ``catch`` binds. What programs may not catch is raised on."""
        if isinstance(error, LimitExceeded):
            raise error
        return recovery.ErrorValue.of(annotate(error))

    async def raise_value(self, d: int, span: Span, value: Any) -> NoReturn:
        """``(raise v)``."""
        raise recovery.error_of(value, span)

    async def raise_error(self, d: int, span: Span, message: Any, *irritants: Any) -> NoReturn:
        """``(error "message" irritant ...)``."""
        raise recovery.user_error(message, irritants, span)

    async def finish(self, error: BaseException, final: Code, d: int) -> None:
        """The ``finally`` of a body that ended with ``error``."""
        await recovery.finish(self, error, final, d)

    # -- branches -------------------------------------------------------------------------------------------------

    def fork(self, path: str, session: Any) -> Strand:
        """A strand for a branch; its call is set when the branch begins."""
        child = Strand(self.call, self.budget, self.performer, parent=self, branch=True, programs=self.programs)
        child._base = 0
        return child

    def parallel(self, d: int, span: Span, thunks: list[Code]) -> Coroutine[Any, Any, Any]:
        """``(parallel form ...)``."""
        return branches.parallel(self, span, thunks)

    def pmap(self, d: int, span: Span, function: Any, items: Any, limit: Any = None) -> Coroutine[Any, Any, Any]:
        """``(pmap procedure list [limit])``."""
        return branches.pmap(self, span, function, items, limit)

    def race(self, d: int, span: Span, thunks: list[Code]) -> Coroutine[Any, Any, Any]:
        """``(race form ...)``."""
        return branches.race(self, span, thunks)

    def timeout(self, d: int, span: Span, seconds: Any, thunk: Code) -> Coroutine[Any, Any, Any]:
        """``(timeout seconds form)``."""
        return recovery.timeout(self, d, span, seconds, thunk)

    def retry(self, d: int, span: Span, tries: Any, thunk: Code) -> Coroutine[Any, Any, Any]:
        """``(retry tries form)``."""
        return recovery.retry(self, d, span, tries, thunk)

    # -- tasks and programs ---------------------------------------------------------------------------------------

    async def define_task(self, d: int, span: Span, fields: dict[str, Any]) -> Symbol:
        """``(defatom ...)``: register the template and give its name."""
        try:
            self.performer.define_task(TaskTemplate.model_validate(fields), self.call)
        except AgentflowError as error:
            error.at(span)
            raise
        except ValueError as error:
            raise SexpEvaluationError(
                f"defatom: '{fields['name']}' is no valid task: {error}", code="defatom/invalid", span=span
            ) from error
        return Symbol(fields["name"])

    def director_loop(self, d: int, span: Span, names: tuple[str, ...], *values: Any) -> Coroutine[Any, Any, Any]:
        """``(director-evaluator-loop ...)``."""
        from agentflow.runtime.director import director_loop

        return director_loop(self, d, span, dict(zip(names, values, strict=True)))

    async def solve(
        self, d: int, span: Span, allow: tuple[str, ...], given: tuple[str, ...], goal: Any, *values: Any
    ) -> Any:
        """``(solve goal ...)``."""
        options = dict(zip(given, values, strict=True))
        rounds = options.get("max-rounds", 3)
        inputs = pairs_to_dict(options.get("inputs", {}))
        text = name_of(goal)
        if text is None or type(rounds) is not int or rounds < 1 or inputs is None:
            raise SexpEvaluationError(
                "solve takes a goal as text, max-rounds as a positive integer and inputs as a dict",
                code="solve/arguments",
                span=span,
            )
        return await self.perform(Solve(text, allow, rounds, inputs), span)

    async def eval_program(
        self, d: int, span: Span, allow: tuple[str, ...], given: tuple[str, ...], program: Any, *values: Any
    ) -> Any:
        """``(eval-program p ...)``: a program of data or text, in a fresh environment, with what it was granted."""
        options = dict(zip(given, values, strict=True))
        bindings = pairs_to_dict(options.get("bindings", {}))
        steps = options.get("max-steps")
        if bindings is None or not (steps is None or (type(steps) is int and steps >= 0)):
            raise SexpEvaluationError(
                "eval-program takes bindings as a dict and max-steps as an integer that is not negative",
                code="program/arguments",
                span=span,
            )
        text = program if isinstance(program, str) else print_value(program)
        call = self.call.at(self.call.next_path("eval-program", text, bindings), grants=frozenset(allow))
        env = SexpEnvironment(bindings)
        made = compile_program(
            text,
            kinds=lambda name: self.performer.kind_of(name),
            limits=self.limits,
            allow=call.grants,
            env_names=env.names(),
            cache=self.programs,
        )
        budget = Budget(self.limits, parent=self.budget, steps=steps) if steps is not None else self.budget
        strand = Strand(call, budget, self.performer, parent=self, branch=self.branch, programs=self.programs)
        strand._base = self._base + d
        return await _main(made, env, strand)


# -- entries ------------------------------------------------------------------------------------------------------


async def run_program(
    program: Program,
    env: SexpEnvironment,
    *,
    performer: EffectHandler,
    call: CallContext,
    budget: Budget,
    programs: ProgramCache | None = None,
) -> Any:
    """Run a program in ``env`` at the place ``call`` of a run, and give its last value.

    A program whose free names have changed their kinds since it was compiled is compiled again for ``env``.
    Raises SexpEvaluationError, TaskError and LimitExceeded, with their places and the program calls they went through.
    """
    names = env.names()

    def kinds(name: str) -> Literal["variable", "task", "tool"] | None:
        return "variable" if name in names else performer.kind_of(name)

    if not program.fits(kinds) or (call.grants is not None and program.allow != call.grants):
        program = compile_program(
            program.source, kinds=kinds, limits=program.limits, allow=call.grants, env_names=names, cache=programs
        )
    strand = Strand(call, budget, performer, programs=programs)
    return await _main(program, env, strand)


async def call_closure(
    function: Any, arguments: Sequence[Any], *, performer: EffectHandler, call: CallContext, budget: Budget
) -> Any:
    """Call a procedure value from the host, numbered below ``call``: a host may call several at once."""
    strand = Strand(call.at(call.next_path("call", function, arguments)), budget, performer)
    if isinstance(function, Closure):
        call.program_loaded(function.info.source)
    try:
        return await strand.apply(function, arguments, strand.first_depth)
    except Exception as error:  # noqa: BLE001 - the outermost frame of the program: foreign exceptions get a place
        final = _final(error)
        raise final from final.__cause__
    finally:
        strand.end()


async def _main(program: Program, env: SexpEnvironment, strand: Strand) -> Any:
    strand.call.program_loaded(program.source)
    owner, env.owner = env.owner, strand
    try:
        d = strand.first_depth
        result = await program.link(env)(strand, d)
        return await strand.bounce(d) if result is TAIL else result
    except Exception as error:  # noqa: BLE001 - the outermost frame of the program: foreign exceptions get a place
        final = _final(error)
        raise final from final.__cause__
    finally:
        env.owner = owner
        strand.end()


def _final(error: Exception) -> AgentflowError:
    made = annotate(error)
    if made is not error:
        made.__cause__ = error
    return made


# -- small things -------------------------------------------------------------------------------------------------


def _place(level: int) -> Span | None:
    """The place in the program that is being executed by the nearest generated frame."""
    frame = inspect.currentframe() if level < 0 else sys._getframe(level + 1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        span = place_of(frame.f_code, frame.f_lasti)
        if span is not None:
            return span
        frame = frame.f_back
    return None


def _primitive_code(primitive: Primitive) -> Code:
    """A primitive as a procedure value: each call is a step, as a closure's is."""
    function = primitive.function

    async def code(rt: Strand, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        if primitive.is_async:
            return await function(rt, d, *arguments)
        return function(rt, *arguments) if primitive.needs_rt else function(*arguments)

    return code


def _host_code(function: Callable[..., Any]) -> Code:
    async def code(rt: Strand, d: int, *arguments: Any) -> Any:
        name = str(getattr(function, "__name__", type(function).__name__))
        return await rt.perform(HostCall(function, arguments, name), _place(1))

    return code


def wrong_count(function: Closure, count: int) -> SexpEvaluationError:
    """The error of calling a closure with a wrong number of arguments: both numbers, and where it is written."""
    least = function.info.least
    wanted = f"{least}" if function.arity >= 0 else f"at least {least}"
    return SexpEvaluationError(
        f"{function.name or 'this lambda'} takes {wanted} argument{'' if wanted == '1' else 's'}, and was given {count};"
        f" it is written at {function.info.span}",
        code="arity/closure",
        hint=f"its parameters are ({' '.join(function.parameters)})",
    )


def shared_set(name: str) -> SexpEvaluationError:
    """The error of a ``set!`` on a variable that another strand may be reading."""
    return SexpEvaluationError(
        f"set!: '{name}' belongs to the code around this branch, which runs at the same time",
        code="concurrency/shared-set",
        hint="return the value from the branch and combine the results after the join",
    )


def _shown(value: Any) -> str:
    return print_value(value, limit=80)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


__all__ = ["CallWorkflow", "EffectHandler", "Strand", "TaskError", "call_closure", "run_program"]
