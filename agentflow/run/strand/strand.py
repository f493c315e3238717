"""A strand: one sequential line of execution of a program, and the ``rt`` of generated code.

A run begins with one strand; ``parallel`` and similar forms fork others. A strand counts steps, resolves names and the
code of callees, numbers effects and passes them to the performer, and continues deep recursion on fresh Python stacks.
Everything else that programs need are operations: functions of the strand, in a table passed to it.

A task is looked up in this order: those that the branch and the branches around it have defined since they forked, the
environment that the code was written in, the definitions around the program, and last the flow's own tasks and tools.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Concatenate, Literal, Protocol, TypeAlias, TypeVar, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import LimitExceeded, SexpEvaluationError, UnboundSymbolError, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask, Definitions, NameInfo, Names, Template, narrowed, permitted
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Span
from agentflow.core.data.values import HELD, Symbol, name_of, text_size, unshared
from agentflow.core.data.walk import LONG_TEXT, PAUSE_S, Work
from agentflow.core.events.effects import CallTool, Effect, GetContext, LogMessage, TaskCall
from agentflow.core.events.events import LoopProgress
from agentflow.core.ports.ports import TemplatePort, ToolPort
from agentflow.lang.abi import Code, Fork, Operation, Runtime
from agentflow.lang.analyzer import EFFECT_NAMES
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.calling import MAX_STACK_CALLS, TAIL, bounce
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, Cell, NamesInForce, SexpEnvironment, unbound
from agentflow.lang.forms import FORMS
from agentflow.lang.program import Program, ProgramCache
from agentflow.lib.text.suggest import did_you_mean
from agentflow.run.strand.authority import missing_grant, refuse
from agentflow.run.strand.budget import LARGE, Budget
from agentflow.run.strand.hops import on_fresh_task
from agentflow.run.strand.procedure_calls import (
    calling_span,
    host_code,
    located_error,
    not_callable,
    primitive_code,
    shared_set,
    wrong_count,
)
from agentflow.tasks.step_history import MAX_UNFOLDED, ProgramSteps

Publish = Callable[[Template], None]
"""Called with each task that a program has defined in its environment."""


class EffectHandler(Protocol):
    """Carries out effects. ``names`` are the tasks and tools of the flow."""

    @property
    def names(self) -> Names: ...
    async def perform(self, effect: Effect, call: CallContext) -> Any:
        """Carry out ``effect`` at ``call``. Returns its value."""
        ...


class Overlay:
    """The tasks that a branch has defined, by environment; its siblings see them only after the join."""

    __slots__ = ("parent", "tables")

    def __init__(self, parent: Overlay | None) -> None:
        self.parent = parent
        self.tables: dict[SexpEnvironment, dict[str, Template]] = {}

    def define(self, env: SexpEnvironment, template: Template) -> None:
        """Bind a task in ``env`` for this branch."""
        table = self.tables.setdefault(env, {})
        table.pop(template.name, None)
        table[template.name] = template


@frozen
class View:
    """The definitions visible to code written in ``env`` with ``overlay`` in force and ``outer`` around the program."""

    env: SexpEnvironment
    overlay: Overlay | None
    outer: Definitions | None

    def task(self, name: str) -> Template | None:
        at: Definitions | None = self
        while isinstance(at, View):  # programs start programs: as many views as their nesting is deep
            for table in at._tables():
                template = table.get(name)
                if template is not None:
                    return template
            at = at.outer
        return at.task(name) if at is not None else None

    def tasks(self) -> dict[str, Template]:
        """All visible tasks by name, outermost first; of one name the nearest."""
        tables: list[Mapping[str, Template]] = []
        at: Definitions | None = self
        while isinstance(at, View):
            tables.extend(at._tables())
            at = at.outer
        names = dict(at.tasks()) if at is not None else {}
        for table in reversed(tables):
            for name, template in table.items():
                names.pop(name, None)
                names[name] = template
        return names

    def _tables(self) -> Iterator[Mapping[str, Template]]:
        at: SexpEnvironment | None = self.env
        while at is not None:
            overlay = self.overlay
            while overlay is not None:
                table = overlay.tables.get(at)
                if table is not None:
                    yield table
                overlay = overlay.parent
            yield at.own_tasks
            at = at.parent


def view(env: SexpEnvironment, overlay: Overlay | None, outer: Definitions | None) -> Definitions:
    """The definitions that code written in ``env`` sees now; ``env`` itself if there are none elsewhere."""
    if overlay is None:
        if outer is None or outer is env:
            return env
        if not env.tasks():
            return outer
    return View(env, overlay, outer)


@frozen
class FlowNames:
    """The names of a flow: its tasks, and its tools, which a task of the same name hides."""

    tasks: TemplatePort
    tools: ToolPort

    def describe(self, name: str) -> NameInfo | None:
        template = self.tasks.find_compiled(name)
        return template.info if template is not None else self.tools.describe(name)

    def prepare(self, fields: Mapping[str, Any]) -> CompiledTask:
        return self.tasks.prepare(fields)

    def known_names(self) -> Iterable[str]:
        return [*self.tasks.template_names(), *self.tools.names()]


class StrandNaming:
    """Name resolution for a strand, the only subclass.

    ``grants`` is the authority in force (that of ``call``, narrowed by the procedures being run); ``performer`` has the
    flow's tasks and tools. ``env`` is the environment of the program, ``overlay`` has the tasks that branches defined
    before joining, ``outer`` the definitions around the program; ``publish`` gets the tasks that the program defines.
    ``branch`` says whether other strands may run concurrently, while ``parent`` waits.
    """

    __slots__ = ("branch", "call", "env", "fresh_names", "grants", "outer", "overlay", "parent", "performer", "publish")

    def __init__(
        self,
        call: CallContext,
        performer: EffectHandler,
        parent: StrandNaming | None,
        env: SexpEnvironment | None,
        publish: Publish | None,
        *,
        branch: bool,
    ) -> None:
        self.call = call
        self.grants = call.grants if parent is None else narrowed(parent.grants, call.grants)
        self.performer = performer
        self.parent = parent
        self.branch = branch
        self.fresh_names = 0
        self.publish = publish
        self.env = env
        self.overlay: Overlay | None = None
        self.outer: Definitions | None = call.definitions
        if parent is not None:
            self.env = env or parent.env
            self.overlay = parent.overlay
            self.outer = parent.outer

    def unbound(self, env: SexpEnvironment, name: str, near: tuple[str, ...] = ()) -> Any:
        """The value of a name with an empty cell: one bound meanwhile further out, or a primitive. Raises UnboundSymbolError."""
        cell = env.find(name)
        if cell is not None:
            return cell.v
        primitive = PRIMITIVES.get(name)
        if primitive is not None:
            return primitive
        kind = self.callable_kind(name, env)
        if kind == "context":
            return Symbol(name)
        if kind is not None:
            raise SexpEvaluationError(
                f"'{name}' is a {kind}, not a variable", code="name/not-value", hint="call it, with arguments by name"
            )
        raise unbound(name, f"'{name}' is not bound", self._hint(env, name, near))

    def operator(self, env: SexpEnvironment, name: str, near: tuple[str, ...] = ()) -> Any:
        """Resolve a free operator name at run time. Raises UnboundSymbolError."""
        cell = env.find(name)
        if cell is not None:
            return cell.v
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        if self.callable_kind(name, env) is not None:
            return Symbol(name)
        raise self._no_such_operator(name, env, near)

    def _no_such_operator(
        self, name: str, env: SexpEnvironment | None = None, near: tuple[str, ...] = ()
    ) -> UnboundSymbolError:
        if self.grants is not None and self.names(env).describe(name) is not None:
            return unbound(name, f"'{name}' is not granted to this program", "grant it with allow", "name/not-granted")
        return unbound(
            name,
            f"unrecognized operator: '{cut(name, 200)}' is not a variable, special form, primitive, task or tool",
            self._hint(env, name, near),
            "name/unknown-operator",
        )

    def _hint(self, env: SexpEnvironment | None, name: str, near: tuple[str, ...]) -> str | None:
        from agentflow.lang.checks import name_hint  # most runs know every name

        names = {*PRIMITIVES, *FORMS, *self.names(env).known_names(), *(env.names() if env is not None else ())}
        return did_you_mean(name, near) or name_hint(name, names)

    def definitions(self, env: SexpEnvironment | None = None) -> Definitions | None:
        """The tasks defined by programs that code written in ``env`` can see; ``env`` None: the strand's own environment."""
        env = env or self.env
        if env is None:
            return self.outer
        return env if self.overlay is None and self.outer is None else view(env, self.overlay, self.outer)

    def names(self, env: SexpEnvironment | None = None) -> NamesInForce:
        """The names other than variables that code written in ``env`` can use."""
        return NamesInForce(self.performer.names, defined=self.definitions(env))

    def callable_kind(self, name: str, env: SexpEnvironment | None = None) -> Literal["task", "tool", "context"] | None:
        """Whether a call of ``name`` from ``env`` calls a task or, failing that, a tool, or looks up context; None for none of
        these, or if not granted."""
        if name in EFFECT_NAMES:
            return "context"
        grants = self.grants
        defined = self.definitions(env)
        template = defined.task(name) if defined is not None else None
        if template is not None and permitted(template, grants):
            return "task"
        if grants is not None and name not in grants:
            return None
        info = self.performer.names.describe(name)
        return info.kind if info is not None and (info.kind == "task" or info.kind == "tool") else None

    def define(self, env: SexpEnvironment, template: Template) -> None:
        """Bind a task in ``env``; in a branch, only for the branch until it joins. Warns if it replaces a different task."""
        before = view(env, self.overlay, None).task(template.name)
        if before is not None and before is not template and before.fields != template.fields:
            self.call.warn("task/redefined", f"task '{template.name}' is defined again", name=template.name)
        if self.branch and env.owner is not self:
            if self.overlay is None or self.parent is None or self.overlay is self.parent.overlay:
                self.overlay = Overlay(self.overlay)
            self.overlay.define(env.target, template)
            return
        env.define_task(template)
        if self.publish is not None:
            self.publish(template)

    def fresh_name(self, stem: str) -> str:
        """A unique name that starts with ``stem``, the same in each replay of the run."""
        self.fresh_names += 1
        return f"{stem}%{self.call.identity}.{self.fresh_names}"

    def set_global(self, env: SexpEnvironment, cell: Cell, name: str, value: Any) -> None:
        """The slow path of ``set!`` on a variable of the environment. Raises if it is unbound or shared."""
        if self.branch and env.owner is not self:
            raise shared_set(name)
        if cell.v is UNBOUND:
            env.set_value_in_scope(name, value)
        else:
            cell.v = value

    def check_owner(self, owner: Any, name: str) -> None:
        """Refuse ``set!`` on a variable with an owner that waits for this branch."""
        at = self.parent
        while at is not None:
            if at is owner:
                raise shared_set(name)
            at = at.parent

    def takes_named_arguments(self, function: Any, env: SexpEnvironment | None = None) -> bool:
        """Whether a value in operator position takes named arguments: it names a task or tool.

        Raises SexpEvaluationError for a string or symbol that names nothing.
        """
        name = name_of(function)
        if name is None or name in PRIMITIVES:
            return False
        if self.callable_kind(name, env) is None:
            raise self._no_such_operator(name, env)
        return True


def carries_data(effect: Effect) -> bool:
    """Whether a list or dict is among the data of an effect."""
    if effect.data is None:
        return False
    data: Any = getattr(effect, effect.data)
    if data is None or type(data) is str:
        return False
    return not HELD.isdisjoint(map(type, cast("Iterable[object]", data if type(data) is tuple else data.values())))


def carries_long_text(effect: Effect) -> bool:
    """Whether a long text is logged, or among the arguments of a task or tool."""
    if isinstance(effect, LogMessage):
        return len(effect.text) > LONG_TEXT
    if not isinstance(effect, TaskCall | CallTool):
        return False
    return any([len(each) > LONG_TEXT for each in effect.arguments.values() if type(each) is str])


def leaving(effect: Effect, allowed: int, span: Span | None) -> Work[Effect]:
    """``effect`` with Python lists in its arguments.

    Templates, schemas, models and records write arguments as text, where shared parts are repeated: data is refused if its
    text would have more than ``allowed`` characters. Raises LimitExceeded
    (``limits/string``).
    """
    arguments: Any = data_of(effect)
    changed, repeated = yield from unshared(arguments)
    if repeated and effect.written:
        size = yield from text_size(changed)
        if size > allowed:
            name = getattr(effect, "name", "") or type(effect).__name__
            raise LimitExceeded(
                f"the arguments of {name} share their parts, and written out would have "
                f"{size if size < 10**18 else 'more than 10^18'} characters; at most {allowed} are allowed",
                limit="string",
                allowed=allowed,
                span=span,
            )
    if changed is arguments:
        return effect
    plain = tuple(changed) if type(arguments) is tuple else changed
    return replace(effect, **{cast(str, effect.data): plain})


def data_of(effect: Effect) -> Any:
    """The program's data in an effect; None if it has none."""
    return None if effect.data is None else getattr(effect, effect.data)


EVERY_S = 0.1
"""Seconds between two reports of a loop that only computes."""


class WatchedLoops:
    """Reports the loops of one observed strand.

    Parameters: ``call`` is that of the strand; ``effects`` returns the number of effects of the run so far. A round is
    reported if there was an effect since the last report, or after a tenth of a second: rounds that only compute are over
    before anybody has read about them.
    """

    __slots__ = ("_call", "_due", "_effects", "_seen")

    def __init__(self, call: CallContext, effects: Callable[[], int]) -> None:
        self._call = call
        self._effects = effects
        self._seen = -1
        self._due = 0.0

    def rounds(self, rounds: range, span: Span) -> Iterator[int]:
        """Iterate over ``rounds`` of the loop at ``span``, reporting them as they begin. If any was, the end is reported too."""
        done, total, was_told, before = 0, len(rounds), False, self._seen
        try:
            for done in rounds:
                if (effects := self._effects()) != before or time.monotonic() > self._due:
                    before = self._seen = effects
                    was_told = True
                    self._tell(span, done, total)
                yield done
            done = total
        finally:
            if was_told:
                self._tell(span, done, total, over=True)

    def _tell(self, span: Span, done: int, total: int, *, over: bool = False) -> None:
        run, call = self._call.run, self._call
        self._due = time.monotonic() + EVERY_S
        if run.streaming:
            header = (run.run_id, run.slice, run.next_seq(), call.path, call.parent, span, time.time())
            run.publish(LoopProgress(*header, done=done, total=total, over=over))


SLICE = 1_000
"""Maximum number of steps between two looks at the clock."""
T = TypeVar("T")

Operations: TypeAlias = "Mapping[Operation, Callable[Concatenate[Strand, int, Span, ...], Coroutine[Any, Any, Any]]]"
"""The functions that carry out operations; each takes the strand, the depth, the span of the form and its arguments."""


class Strand(StrandNaming):
    """The object that generated code runs on.

    ``call`` is its call (path, session, grants), ``budget`` the remaining budget of the run. ``performer`` carries out effects;
    ``operations`` has the functions of operations. ``fuel`` is the rest of the current slice of steps, ``first_depth`` the
    depth where the strand begins, chosen so that the depth limit coincides with a hop.
    :class:`~agentflow.run.strand.strand.StrandNaming` resolves its names.
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

    because: Any = None
    """Numbers a call that starts among those of the same tests, under a strict policy. It is an attribute because most effects have no such policy."""

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
        """A strand for a part of this one's work, at ``call``, within ``budget``; ``branch``: it runs concurrently with others.

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
                await self._pause()  # the awaiting task frees the objects of the program, in a slice of its own
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
        """The depth of calls where this strand's Python stack began."""
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
        every 2 ms, with steps of any kind. Concurrent strands of one run share those 2 ms.
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
        """Charge ``steps`` for work larger than a step, before it is done. Raises LimitExceeded.

        Steps beyond the current slice are taken from the budget at once, and the next step checks the clock.
        """
        self.fuel -= steps
        while self.fuel < 0:
            self.fuel += self.budget.grant(-self.fuel, None)

    def allocate(self, count: int) -> None:
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
        """Iterate over the rounds of a loop, reporting progress if an observer takes deltas."""
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
        effect = TaskCall(name, arguments, env) if kind == "task" else CallTool(name, arguments, env)
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
            if self.because is not None:
                self.because(call)
            call.grants = self.grants
            call.definitions = self.definitions(getattr(effect, "env", None))
            if kind is TaskCall or kind is CallTool:
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

    def start_form(self, kind: str, *content: Any, grants: frozenset[str] | None = None) -> CallContext:
        """The call of a form that starts now and has effects within it, with a number of its own."""
        call = self.call.at(self.call.next_path(kind, *content), grants=grants)
        if self.because is not None:
            self.because(call)
        return call

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
        return self.operations[op](self, d, span, *arguments)

    def on_fresh_stack(self, code: Code) -> Code:
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
