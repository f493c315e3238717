"""Lowered texts made ready to run under a strict policy: a Python closure for each node.

Where the code is depends on tests: ``rt.ambient`` is their sources. A test raises it; it is restored at the end of the arms, unless one of
them may be left early: then at the end of the loop, or by the caller of the function. Before an arm is chosen, the variables and containers that the arms may change are
marked (:meth:`Machine.upgrade`), so that it says the same whichever is chosen. While an error may be caught (``rt.trying``), nothing is
restored, and each function raises ``rt.ambient`` by the sources it looked at: that it did not fail tells as much.

A node that never waits has a closure that gives its value at once, or work that is left for slices; every other is awaited. ``return``,
``break``, ``continue`` and the rounds of named lets are exceptions that no program catches.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import (
    UNBOXED,
    Label,
    Sources,
    box,
    outer_sources,
)
from agentflow.core.data.source import Span
from agentflow.core.data.walk import Work
from agentflow.lang.calling import Sliced
from agentflow.lang.environment import UNBOUND, Cell, SexpEnvironment
from agentflow.lang.equality import truth as truth_of_sexp
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.facts import changed
from agentflow.lang.kernel.nodes import (
    BEGAN,
    CAUGHT,
    DEPTH,
    FRAME_HEAD,
    PARENT,
    STRAND,
    FrameLayout,
    Node,
    Variable,
)
from agentflow.lang.kernel.reach import Change, exits, root, written
from agentflow.lang.kernel.shapes import give_out, hold, outside
from agentflow.lang.python import values
from agentflow.lang.trace import annotate, fit_hint, span_of_position

HOP = 8
"""So many nested calls share a Python stack."""
_LEVELS = 40
"""So many nested nodes share one."""

RuntimeFrame: TypeAlias = "list[Any]"
Now = Callable[[Any, RuntimeFrame], Any]
Run = Callable[[Any, RuntimeFrame], Awaitable[Any]]
Target: TypeAlias = "Variable | str"
Mark = Callable[[Any, RuntimeFrame, Sources, Sources], "Work[None] | None"]
Upgrade = Callable[[Any, RuntimeFrame, Sources], Awaitable[None]]


class Left(BaseException):
    """Control leaves: ``return`` (with ``value``), ``break``, ``continue``, or the value that decides an ``any``."""

    def __init__(self, how: str, value: Any = None) -> None:
        self.how = how
        self.value = value


class NextRound(BaseException):
    """The next round of a named let."""

    def __init__(self, loop: nodes.NamedLet, values: list[Any]) -> None:
        self.loop = loop
        self.values = values


class Code:
    """A node made ready: ``now`` gives its value, or work for slices; ``run`` is awaited."""

    __slots__ = ("now", "run")

    def __init__(self, now: Now | None, run: Run | None = None) -> None:
        self.now = now
        self.run: Run = run if run is not None else _awaited(now)


def _awaited(now: Now | None) -> Run:
    assert now is not None

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        value = now(rt, fr)
        return await rt.work(value.work) if type(value) is Sliced else value

    return run


def _rest_of(work: Work[Any], then: Callable[[Any], Any]) -> Work[Any]:
    value = then((yield from work))
    while type(value) is Sliced:
        value = yield from value.work
    return value


def then_do(value: Any, then: Callable[[Any], Any]) -> Any:
    """``then`` of a value, once it is there."""
    return Sliced(_rest_of(value.work, then)) if type(value) is Sliced else then(value)


def gathered(rt: Any, fr: RuntimeFrame, parts: Sequence[Now], done: list[Any], then: Callable[[list[Any]], Any]) -> Any:
    """``then`` of the values of nodes that never wait, in order."""
    for at in range(len(done), len(parts)):
        value = parts[at](rt, fr)
        if type(value) is Sliced:
            return Sliced(_rest_of(value.work, lambda value: gathered(rt, fr, parts, [*done, value], then)))
        done.append(value)
    return then(done)


def placed(error: Exception, span: Span | None) -> AgentflowError:
    """An error with the place of the innermost node that it passes, or of the operand there that it is about."""
    result = error if isinstance(error, AgentflowError) else annotate(error)
    if result.span is None and span is not None:
        position = result.details.get("argument")
        if result.code == "type/argument" and isinstance(position, int):
            span = span_of_position(span, result.details["procedure"], position)
        result.at(span)
        fit_hint(result)
    return result


async def located(work: Awaitable[Any], program_span: Span | None) -> Any:
    """The value of a part at ``program_span``, with the place of its errors; :func:`span_of_frame` reads that variable."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - a foreign exception becomes the program's
        raise placed(error, program_span) from error.__cause__


def _located_rest(work: Work[Any], span: Span | None) -> Work[Any]:
    """The same for unfinished work."""
    try:
        return (yield from work)
    except Exception as error:  # noqa: BLE001 - a foreign exception becomes the program's
        raise placed(error, span) from error.__cause__


async def hopped(rt: Any, work: Awaitable[Any]) -> Any:
    """The value of ``work``, on a fresh stack."""

    async def held() -> Any:
        try:
            return None, await work
        except (Left, NextRound) as left:
            return left, None

    left, value = await rt.on_fresh_task(held())
    if left is not None:
        raise left
    return value


@dataclass(frozen=True)
class Place:
    """Where the code that is made ready stands: its frame; the body of the function; the function or comprehension, and the loops,
    around it; whether an error of it may be caught in the function; the kind and node of the comprehension that it gives elements to."""

    frame: FrameLayout
    function: Node | None = None
    body: Node | None = None
    loops: tuple[Node, ...] = ()
    trying: bool = False
    out: tuple[str, Node] | None = None


# Containers say themselves why they were changed (decision 69)
class Machine:
    """A lowered text on the variables of an environment; ``cells`` are those by name."""

    def __init__(self, env: SexpEnvironment, cells: dict[str, Cell], *, python: bool) -> None:
        self.env = env
        self.cells = cells
        self.python = python
        self.truth = values.truth if python else truth_of_sexp
        self.place = Place(FrameLayout(None))
        self.kept: dict[Variable, Node] = {}
        self._level = 0

    def whole(self, root: Node, frame: FrameLayout) -> Callable[[Any, int], Coroutine[Any, Any, Any]]:
        """The text as code; its value leaves for readers that do not ask containers for their labels."""
        run = self.inside(frame, root).run

        async def main(rt: Any, d: int) -> Any:
            fr = opened(frame, None, d, rt)
            if not self.python:
                return (await give_out(rt, [await run(rt, fr)]))[0]
            try:
                await run(rt, fr)
            except Left as left:
                return (await give_out(rt, [left.value]))[0]
            return None

        return main

    @contextmanager
    def at_place(self, **changes: Any) -> Generator[None]:
        """A block that makes code ready elsewhere."""
        saved, self.place = self.place, replace(self.place, **changes)
        yield
        self.place = saved

    def in_loop(self, node: Node) -> AbstractContextManager[None]:
        """A block that makes code within a loop ready."""
        return self.at_place(loops=(*self.place.loops, node))

    # -- nodes ----------------------------------------------------------------------------------------------------

    def code(self, node: Node) -> Code:
        """A node made ready."""
        self._level += 1
        ready: Code = _RULES[type(node)](self, node)
        if not self._level % _LEVELS and ready.now is None:
            run = ready.run
            ready = Code(None, lambda rt, fr: hopped(rt, run(rt, fr)))
        self._level -= 1
        return ready

    def at(self, node: Node, now: Now) -> Code:
        """A closure that gives a value at once, with the place of its errors."""
        span = node.at

        def there(rt: Any, fr: RuntimeFrame) -> Any:
            try:
                value = now(rt, fr)
            except Exception as error:  # noqa: BLE001 - a foreign exception becomes the program's
                raise placed(error, span) from error.__cause__
            return Sliced(_located_rest(value.work, span)) if type(value) is Sliced else value

        return Code(there)

    def later(self, node: Node, run: Run) -> Code:
        """The same for one that is awaited."""
        span = node.at
        return Code(None, lambda rt, fr: located(run(rt, fr), span))

    def several(self, items: Iterable[Node]) -> Callable[[Any, RuntimeFrame], Awaitable[list[Any]]]:
        """The values of nodes, in order."""
        codes = [self.code(each) for each in items]

        async def run(rt: Any, fr: RuntimeFrame) -> list[Any]:
            done: list[Any] = []
            for each in codes:
                if each.now is None:
                    value = await each.run(rt, fr)
                else:
                    value = each.now(rt, fr)
                    if type(value) is Sliced:
                        value = await rt.work(value.work)
                done.append(value)
            return done

        return run

    # -- variables ------------------------------------------------------------------------------------------------

    def hops(self, frame: FrameLayout) -> int:
        """How many frames out from here one is."""
        count, at = 0, self.place.frame
        while at is not frame:
            assert at.parent is not None
            count, at = count + 1, at.parent
        return count

    def since(self, changed: Node | None = None) -> Callable[[Any, RuntimeFrame], Sources]:
        """Where the code was when the innermost ``try`` of this function began; without one, where it is.

        At its end the variables that it may change are marked, with all that they hold: of containers only those ``changed`` there count
        that are certainly reached from a variable.
        """
        if not self.place.trying or (changed is not None and root(changed, self.kept) is None):
            return lambda rt, fr: rt.ambient
        count = self.hops(self.function_of(self.place.frame))

        def began(rt: Any, fr: RuntimeFrame) -> Sources:
            for _ in range(count):
                fr = fr[PARENT]
            return fr[CAUGHT]

        return began

    def storing(
        self, target: Target, how: str = "bind", *, direct: bool = False
    ) -> Callable[[Any, RuntimeFrame, Any], None]:
        """Gives a variable a value that says why, or refuses it where its old value would not tell the test."""
        since = self.since()
        if isinstance(target, str):
            cell = self.cells[target]

            def store_cell(rt: Any, fr: RuntimeFrame, value: Any) -> None:
                if rt.ambient:
                    old = cell.v
                    if how == "define" and direct:
                        value = rt.defined(target, old, value)
                    else:
                        before = box(UNBOUND, self.env.presence(target)) if old is UNBOUND else old
                        value = rt.written(target, before, value, since(rt, fr))
                if how == "set" and (rt.branch or cell.v is UNBOUND):
                    rt.set_global(self.env, cell, target, value)
                else:
                    cell.v = value

            return store_cell
        count, slot = self.hops(target.frame), target.slot
        own = self.function_of(self.place.frame) is self.function_of(target.frame)
        private, named, python = target.private and own, bool(target.name), self.python

        def store(rt: Any, fr: RuntimeFrame, value: Any) -> None:
            here = fr
            for _ in range(count):
                fr = fr[PARENT]
            if named and rt.ambient:
                if private:
                    value = box(value, rt.ambient) if rt.ambient is not fr[BEGAN] else value
                elif (how == "bind" and own and (rt.ambient is fr[BEGAN] or not python)) or (
                    how == "define" and direct and fr[slot] is UNBOUND
                ):
                    value = box(value, rt.ambient)
                else:
                    value = rt.written(target.name, fr[slot], value, since(rt, here))
            fr[slot] = value

        return store

    @staticmethod
    def function_of(frame: FrameLayout) -> FrameLayout:
        """The frame of the function that a frame is in."""
        at = frame
        while not at.is_function and at.parent is not None:
            at = at.parent
        return at

    # -- tests ----------------------------------------------------------------------------------------------------

    def upgrade(self, items: Iterable[Node]) -> Upgrade | None:
        """Marks the variables and containers that ``items`` may change, once a test has decided whether they are done; None if there are none."""
        merged: dict[Target, set[Change]] = {}
        self.note_written(items, merged)
        return self.marking(merged)

    def upgrades(self, groups: Sequence[Sequence[Node]]) -> list[Upgrade | None]:
        """The same for tests one after the other: each decides on its own group, and on those after it."""
        merged: dict[Target, set[Change]] = {}
        upgrades: list[Upgrade | None] = []
        for group in reversed(groups):
            self.note_written(group, merged)
            upgrades.append(self.marking(merged))
        return upgrades[::-1]

    def note_written(self, items: Iterable[Node], merged: dict[Target, set[Change]]) -> None:
        """Add the variables that ``items`` may change, or the parts around that are then skipped."""
        for each in items:
            for other in (each, *self.around(each)):
                for target, how in written(other, changed).items():
                    merged.setdefault(target, set()).update(how)

    def marking(self, merged: dict[Target, set[Change]]) -> Upgrade | None:
        """Marks these variables and containers."""
        marks: list[Mark] = []
        for target, how in merged.items():
            if isinstance(target, str):
                if target in self.cells:
                    marks.append(self.cell_mark(target, how))
            elif self.is_in_reach(target):
                marks.append(self.mark(target, how))
        if not marks:
            return None

        async def upgrade(rt: Any, fr: RuntimeFrame, before: Sources) -> None:
            now = rt.ambient
            if now is not before:
                for each in marks:
                    holding = each(rt, fr, before, now)
                    if holding is not None:
                        await rt.work(holding)

        return upgrade

    def around(self, node: Node) -> list[Node]:
        """The other parts that a test decides on, where ``node`` may be left early: the loop, or the function, around it."""
        returns, jumps = exits(node)
        outer = self.place.loops[-1:] if jumps else []
        return [*outer, *([self.place.body] if returns and self.place.body is not None else [])]

    def is_in_reach(self, variable: Variable) -> bool:
        """Whether the code is within the frame of a variable."""
        at: FrameLayout | None = self.place.frame
        while at is not None and at is not variable.frame:
            at = at.parent
        return at is not None

    def cell_mark(self, name: str, how: set[Change]) -> Mark:
        cell, assigned, held, deleted = self.cells[name], "assigned" in how, "held" in how, "deleted" in how

        def mark(rt: Any, fr: RuntimeFrame, before: Sources, now: Sources) -> Work[None] | None:
            value = cell.v
            if (deleted or (assigned and value is UNBOUND)) and before <= self.env.presence(name):
                self.env.note_presence(name, now)
            if value is UNBOUND:
                return None
            if assigned and before <= outer_sources(value):
                cell.v = box(value, now)
            return hold(rt, value, before, now) if held else None

        return mark

    def mark(self, variable: Variable, how: set[Change]) -> Mark:
        count, slot, assigned, held = self.hops(variable.frame), variable.slot, "assigned" in how, "held" in how
        private = variable.private and self.function_of(self.place.frame) is self.function_of(variable.frame)

        def mark(rt: Any, fr: RuntimeFrame, before: Sources, now: Sources) -> Work[None] | None:
            for _ in range(count):
                fr = fr[PARENT]
            value = fr[slot]
            if assigned and (private or before <= outer_sources(value)):
                fr[slot] = box(value, now)
            return hold(rt, value, before, now) if held else None

        return mark

    def decided(self, rt: Any, value: Any) -> bool:
        """Whether a value counts as true, by which something is chosen."""
        if type(value) not in UNBOXED:
            value = outside(rt, value)
            if type(value) is Label:
                rt.raise_to(value.sources)
                value = value.value
        return self.truth(value)

    def deciding(
        self, test: Node, upgrade: Upgrade | None
    ) -> Callable[[Any, RuntimeFrame], Awaitable[tuple[Any, bool]]]:
        """A test: its value, and whether it counts as true. ``upgrade`` marks the parts that it decides on, also if it fails."""
        code = self.code(test)
        now, run, decided = code.now, code.run, self.decided

        async def decide(rt: Any, fr: RuntimeFrame) -> tuple[Any, bool]:
            before = rt.ambient
            try:
                if now is None:
                    value = await run(rt, fr)
                else:
                    value = now(rt, fr)
                    if type(value) is Sliced:
                        value = await rt.work(value.work)
            except AgentflowError as error:
                if rt.trying:
                    rt.raise_to(error.sources)
                    if upgrade is not None:
                        await upgrade(rt, fr, before)
                raise
            chosen = value if value is True or value is False else decided(rt, value)
            if upgrade is not None:
                await upgrade(rt, fr, before)
            return value, chosen

        return decide

    def inside(self, frame: FrameLayout, body: Node) -> Code:
        """The body of a function, a part that the runtime runs, or a comprehension."""
        level, self._level = self._level, 0
        with self.at_place(frame=frame, function=body, body=body, loops=(), trying=False, out=None):
            code = self.code(body)
        self._level = level
        return code


def opened(frame: FrameLayout, around: RuntimeFrame | None, d: int, rt: Any) -> RuntimeFrame:
    """A frame at run time: a list, so that the containers that a branch can reach are found in it."""
    return [around, None, d, rt, rt.ambient, None, *[UNBOUND] * (frame.size - FRAME_HEAD)]


def within(frame: FrameLayout, fr: RuntimeFrame) -> RuntimeFrame:
    """A frame within the same function."""
    return [fr, None, fr[DEPTH], fr[STRAND], fr[BEGAN], None, *[UNBOUND] * (frame.size - FRAME_HEAD)]


_RULES: dict[type[Node], Callable[..., Code]] = {}

R = TypeVar("R", bound=Callable[..., Code])


def rule(*kinds: type[Node]) -> Callable[[R], R]:
    """Declare that a function makes these kinds of node ready."""

    def mark(function: R) -> R:
        for kind in kinds:
            _RULES[kind] = function
        return function

    return mark
