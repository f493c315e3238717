"""Effects, procedures and calls of lowered texts."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from agentflow.core.data.labels import (
    NO_SOURCES,
    Label,
    Sources,
    bare,
    box,
    outer_sources,
)
from agentflow.core.data.source import Span
from agentflow.core.data.walk import finish
from agentflow.lang.calling import TAIL, TAIL_NEST, Sliced, bounce
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, SexpEnvironment
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.machine import HOP, Code, Left, Machine, RuntimeFrame, hopped, located, opened, rule
from agentflow.lang.kernel.nodes import (
    DEPTH,
    FRAME_HEAD,
    PARENT,
    STRAND,
    LoweredInfo,
)
from agentflow.lang.kernel.reach import used
from agentflow.lang.kernel.shapes import exported, fresh, give_out, outside
from agentflow.lang.python import support
from agentflow.lang.python.boxed import labelled
from agentflow.lang.python.boxed.copies import own_copy
from agentflow.lang.python.values import MISSING


class ReadyLambda:
    """A procedure made ready: its node, and the slots of its frame that its arguments do not fill."""

    __slots__ = ("machine", "node", "unset")

    def __init__(self, machine: Machine, node: nodes.Lambda, unset: list[Any]) -> None:
        self.machine = machine
        self.node = node
        self.unset = unset


async def as_own(m: Machine, rt: Any, value: Any) -> Any:
    """A value of the runtime, which events and records hold, as the program's own."""
    sources = outer_sources(value)
    if not m.python or not sources:
        return value
    copy, containers = await rt.work(own_copy(bare(value)))
    for each in containers:
        rt.containers.note(each, sources)
    return box(copy, sources)


@rule(text_nodes.Effect)
def effect(m: Machine, node: text_nodes.Effect) -> Code:
    several, spread, at, name = m.several(node.args), m.several(node.spread), node.at, node.name
    called: Any = support.data_of if node.gives == "data" else support.outcome_of
    arguments_of = labelled.twin_of(support.arguments_of)

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        args, names = await give_out(rt, await several(rt, fr)), node.names
        if node.spread:
            dicts = [outside(rt, each) for each in await spread(rt, fr)]
            every = arguments_of(names, tuple(args), *dicts)
            every = await rt.work(every.work) if type(every) is Sliced else every
            more = outer_sources(every)
            names = tuple(map(bare, bare(every)))
            args = await give_out(rt, [box(each, more) for each in bare(every).values()])
        return await as_own(m, rt, await called(rt, fr[DEPTH], m.env, name, names, tuple(args), at))

    return m.later(node, run)


@rule(nodes.Perform)
def perform(m: Machine, node: nodes.Perform) -> Code:
    several, make, at = m.several(node.args), node.make, node.at

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        effect = make(m.env, *await give_out(rt, await several(rt, fr)))
        return await as_own(m, rt, await rt.perform(effect, at))

    return m.later(node, run)


@rule(nodes.Op)
def operation(m: Machine, node: nodes.Op) -> Code:
    several, operation, constants, at = m.several(node.args), node.operation, node.constants, node.at
    makes_list = m.python and operation in ("pmap", "parallel")

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        args = await give_out(rt, await several(rt, fr))
        value = await rt.operation(operation, fr[DEPTH], at, *constants, *args)
        return fresh(rt, value) if makes_list else value

    return m.later(node, run)


@rule(nodes.Lambda)
def procedure(m: Machine, node: nodes.Lambda) -> Code:
    frame, info, count, gives_body = node.frame, node.info, len(node.params), node.gives_body
    code = m.inside(frame, node.body)
    now, run = code.now, code.run
    with m.at_place(frame=frame):
        defaults = [
            (var, None if each is nodes.MISSING_KEYWORD else m.code(each).run)
            for var, each in zip(node.params, node.defaults, strict=True)
            if each is not None
        ]
    rest = None if node.rest is None else node.rest.slot
    seen = [each.slot for each in node.params if not each.private]
    ready = ReadyLambda(m, node, [UNBOUND] * (frame.size - FRAME_HEAD - count))
    arity = -1 if info.optional or rest is not None else len(info.params)

    async def body(rt: Any, new: RuntimeFrame, more: tuple[Any, ...]) -> Any:
        if rest is not None:
            new[rest] = list(more)
        if seen and rt.ambient:  # others may write these, too
            for slot in seen:
                new[slot] = box(new[slot], rt.ambient)
        for var, default in defaults:
            if new[var.slot] is MISSING:
                if default is None:
                    support.missing_keyword(var.name)
                new[var.slot] = await default(rt, new)
        if now is not None:
            value = now(rt, new)
            return await rt.work(value.work) if type(value) is Sliced else value
        if gives_body:
            return await run(rt, new)
        try:
            await run(rt, new)
        except Left as left:
            return left.value
        return None

    def make(rt: Any, fr: RuntimeFrame) -> Closure:
        async def code(rt: Any, d: int, *args: Any) -> Any:
            rt.fuel -= 1
            if rt.fuel < 0:
                await rt.tick()
            new = [fr, None, d, rt, rt.ambient, None, *args[:count], *ready.unset]
            work = body(rt, new, args[count:])
            return await (hopped(rt, work) if d % HOP == HOP - 1 else work)

        filled = support.filled(code, info, node.by_position) if info.optional else code
        return Closure(filled, arity, info, m.env, rt.grants)

    return Code(make)


@rule(nodes.Thunk)
def thunk(m: Machine, node: nodes.Thunk) -> Code:
    frame = node.frame
    assert frame is not None
    run, steps = m.inside(frame, node.body).run, node.steps

    def make(rt: Any, fr: RuntimeFrame) -> Any:
        env = m.env

        async def code(rt: Any, d: int) -> Any:
            assert env is m.env  # containers that a branch can reach are found by the variables of its code
            if steps:
                rt.fuel -= 1
                if rt.fuel < 0:
                    await rt.tick()
            work = run(rt, opened(frame, fr, d, rt))
            return await (hopped(rt, work) if d % HOP == HOP - 1 else work)

        return code

    return Code(make)


async def applied(m: Machine, rt: Any, d: int, function: Any, args: list[Any], names: tuple[str, ...]) -> Any:
    """A procedure, called with values in order: its value says the sources of its tests, and the code continues as before."""
    before = rt.ambient
    if type(function) is Label:
        rt.raise_to(function.sources)
        function = function.value
    return rt.left(before, await support.call(rt, d, function, tuple(await passed(rt, function, args)), names))


@rule(nodes.Call)
def call_node(m: Machine, node: nodes.Call) -> Code:
    function_of, several, count = m.code(node.function).run, m.several(node.args), len(node.args)
    is_tail, names = node.is_tail, node.names
    if not node.picks_first:

        async def run(rt: Any, fr: RuntimeFrame) -> Any:
            function = await function_of(rt, fr)
            args = await several(rt, fr)
            if type(function) is Closure and not names and function.arity == count:
                before = rt.ambient
                value = await rt.pick(function, count, fr[DEPTH])(rt, fr[DEPTH] + 1, *await passed(rt, function, args))
                return rt.left(before, value if value is not TAIL else await bounce(rt, fr[DEPTH]))
            return await applied(m, rt, fr[DEPTH], function, args, names)

        return m.later(node, run)

    async def picked(rt: Any, fr: RuntimeFrame) -> Any:
        function, d, before = await function_of(rt, fr), fr[DEPTH], rt.ambient
        if type(function) is Label:
            rt.raise_to(function.sources)
            function = function.value
        code = rt.pick(function, count, d)
        args = await several(rt, fr)
        args = await passed(rt, function, args)
        if is_tail and d >= TAIL_NEST:
            rt.tail = (code, *args)
            return TAIL
        value = await code(rt, d + 1, *args)
        if is_tail:
            return value  # the caller restores where the code was
        return rt.left(before, value if value is not TAIL else await bounce(rt, d))

    return m.later(node, picked)


@rule(nodes.Either)
def either(m: Machine, node: nodes.Either) -> Code:
    function_of, pairs, is_tail = (
        m.code(node.function).run,
        [pair(m, each) for each in node.pairs],
        node.is_tail,
    )
    names = tuple(each.names[0] for each in node.pairs)

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        function, d, before = await function_of(rt, fr), fr[DEPTH], rt.ambient
        by_name = takes_names(m, rt, function)
        code = None if by_name else rt.pick(function, len(pairs), d)
        args = [await each(rt, fr, by_name) for each in pairs]
        args = await passed(rt, function, args)
        if code is None:
            return rt.left(before, await rt.call_named(d, function, names, tuple(args), node.at, m.env))
        if is_tail and d >= TAIL_NEST:
            rt.tail = (code, *args)
            return TAIL
        value = await code(rt, d + 1, *args)
        if is_tail:
            return value
        return rt.left(before, value if value is not TAIL else await bounce(rt, d))

    return m.later(node, run)


def takes_names(m: Machine, rt: Any, function: Any) -> bool:
    return type(function) is not Closure and rt.takes_named_arguments(function, m.env)


def pair(m: Machine, node: nodes.EitherPair) -> Callable[[Any, RuntimeFrame, bool], Awaitable[Any]]:
    """The value of an operand: operators from the outside in, then calls from the inside out."""
    links = [pair_link(m, each) for each in node.links]
    store, value_of, applied = m.storing(node.variable), m.code(node.value).run, m.code(node.applied).run

    async def run(rt: Any, fr: RuntimeFrame, by_name: bool) -> Any:
        calls: list[Any] = []
        for each in links:
            by_name, called = await each(rt, fr, by_name)
            calls.append(called)
        value = await value_of(rt, fr)
        store(rt, fr, value)
        if not by_name:
            value = await applied(rt, fr)
        for called, name in zip(reversed(calls), reversed(node.names), strict=False):
            if called is not None:
                [value] = await give_out(rt, [value])
                value = await called(name, value)
                value = value if value is not TAIL else await bounce(rt, fr[DEPTH])
        return value

    return run


def pair_link(m: Machine, node: nodes.EitherLink) -> Callable[[Any, RuntimeFrame, bool], Awaitable[tuple[bool, Any]]]:
    function_of, make, at = m.code(node.function).run, node.effect, node.at

    async def called(rt: Any, fr: RuntimeFrame) -> tuple[bool, Callable[[str, Any], Awaitable[Any]]]:
        d = fr[DEPTH]
        if make is not None:
            return True, partial(_performed, rt, make, m.env, at)
        function = await function_of(rt, fr)
        if takes_names(m, rt, function):
            return True, lambda name, value: rt.call_named(d, function, (name,), (value,), at, m.env)
        code = rt.pick(function, 1, d)
        return False, lambda name, value: code(rt, d + 1, value)

    async def run(rt: Any, fr: RuntimeFrame, skipped: bool) -> tuple[bool, Any]:
        if skipped:
            return False, None
        by_name, call = await located(called(rt, fr), at)
        return by_name, lambda name, value: located(call(name, value), at)

    return run


async def passed(rt: Any, function: Any, args: list[Any]) -> list[Any]:
    """The arguments of a procedure: one of other code does not ask containers for their labels."""
    if type(function) is Closure and type(function.info) is LoweredInfo:
        return args
    return await give_out(rt, args)


def _performed(rt: Any, effect: nodes.NamedEffect, env: SexpEnvironment, at: Span | None, name: str, value: Any) -> Any:
    return rt.perform(effect.of(env, name, value), at)


def captured(closure: Closure) -> dict[str, Any] | None:
    """The variables from outside that a procedure made here uses, each in a box that says its containers' labels, which a dump
    does not have; None for a procedure of other code. Those without a value are left out."""
    held = _held_by(closure)
    if held is None:
        return None
    strand = held["fr"][STRAND]
    return {name: finish(exported(strand, value)) for name, value, _ in _outside(held) if bare(value) is not UNBOUND}


def presence(closure: Closure) -> dict[str, Sources]:
    """The sources that it depends on whether those variables have a value."""
    return {name: sources for name, _, sources in _outside(_held_by(closure) or {}) if sources}


def _held_by(closure: Closure) -> dict[str, Any] | None:
    """The variables of the Python function of a procedure made here; None for a procedure of other code."""
    code: Any = getattr(closure.raw, "__wrapped__", closure.raw)
    cells: tuple[Any, ...] = code.__closure__ or ()
    held: dict[str, Any] = {
        name: each.cell_contents for name, each in zip(code.__code__.co_freevars, cells, strict=True)
    }
    return held if isinstance(held.get("ready"), ReadyLambda) else None


def _outside(held: dict[str, Any]) -> Iterator[tuple[str, Any, Sources]]:
    """The names of the variables from outside that a procedure uses, their values, and the sources of whether they have one."""
    ready: ReadyLambda | None = held.get("ready")
    if ready is None:
        return
    for variable in used(ready.node):
        if isinstance(variable, str):
            cell = ready.machine.cells.get(variable)
            yield variable, UNBOUND if cell is None else cell.v, ready.machine.env.presence(variable)
            continue
        at, frame = held["fr"], ready.node.frame.parent
        while frame is not None and frame is not variable.frame:
            at, frame = at[PARENT], frame.parent
        value = UNBOUND if frame is None else at[variable.slot]
        unsure = variable.unsure or bare(value) is UNBOUND
        yield variable.name, value, outer_sources(value) if unsure else NO_SOURCES
