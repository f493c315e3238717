"""A plain interpreter of the kernel: slow and obvious, without policies.

Every node is evaluated by a coroutine. ``return``, ``break`` and the rounds of named lets are exceptions that no program catches.
A program takes the same steps as compiled code: one for each call and each round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Span
from agentflow.core.data.values import OrderedSet
from agentflow.lang.abi import Code
from agentflow.lang.calling import TAIL, TAIL_NEST, Sliced, bounce
from agentflow.lang.charging import check_collection
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, Cell, SexpEnvironment
from agentflow.lang.equality import truth as truth_of_sexp
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.machine import Left, NextRound
from agentflow.lang.kernel.nodes import DEPTH, FRAME_HEAD, KIND, PARENT, STRAND, FrameLayout, Node, Variable
from agentflow.lang.python import failure, support, values
from agentflow.lang.trace import annotate, fit_hint, span_of_position, too_early
from agentflow.run.strand.hops import on_fresh_task

HOP = 5
"""So many nested calls share a Python stack."""
_LEVELS = 25
"""So many nested nodes share one."""


class Interpreter:
    """A lowered text on the variables of an environment; ``cells`` are those by name."""

    def __init__(self, env: SexpEnvironment, cells: Mapping[str, Cell], *, python: bool) -> None:
        self.env = env
        self.cells = cells
        self.python = python
        self.truth = values.truth if python else truth_of_sexp
        self.level = 0
        self.rules = {kind: getattr(self, rule.__name__) for kind, rule in _RULES.items()}

    async def whole(self, root: Node, frame: FrameLayout, rt: Any, d: int) -> Any:
        """The value of the text."""
        fr = opened(frame, None, d, rt)
        if not self.python:
            return await self.value(root, fr)
        try:
            await self.value(root, fr)
        except Left as left:
            return left.value
        return None

    async def value(self, node: Node, fr: list[Any]) -> Any:
        """The value of a node, or TAIL for a call in tail position."""
        self.level += 1
        try:
            work = located(self.rules[type(node)](node, fr), node.at)
            return await (work if self.level % _LEVELS else hopped(work))
        finally:
            self.level -= 1

    async def values(self, items: list[Node], fr: list[Any]) -> list[Any]:
        return [await self.value(each, fr) for each in items]

    async def test(self, node: Node, fr: list[Any]) -> bool:
        return self.truth(await self.value(node, fr))

    # -- variables ------------------------------------------------------------------------------------------------

    async def const(self, node: nodes.Const, fr: list[Any]) -> Any:
        return node.value

    async def environment(self, node: nodes.Env, fr: list[Any]) -> Any:
        return self.env

    async def ref(self, node: nodes.Ref, fr: list[Any]) -> Any:
        name = node.variable
        if not isinstance(name, str):
            value = _holder(fr, name)[name.slot]
            if value is UNBOUND:
                raise too_early(name.name)
            return value
        value = self.cells[name].v
        if value is not UNBOUND:
            return value
        if self.python:
            return support.unbound_name(fr[STRAND], self.env, name, node.hint)
        return fr[STRAND].unbound(self.env, name, node.near)

    async def set(self, node: nodes.Set, fr: list[Any]) -> Any:
        value = await self.value(node.value, fr)
        self.store(node.variable, value, fr, node.how)
        return value

    def store(self, variable: Variable | str, value: Any, fr: list[Any], how: str = "bind") -> None:
        if not isinstance(variable, str):
            _holder(fr, variable)[variable.slot] = value
            return
        cell, rt = self.cells[variable], fr[STRAND]
        if how == "set" and (rt.branch or cell.v is UNBOUND):
            rt.set_global(self.env, cell, variable, value)
        else:
            cell.v = value

    async def unset(self, node: text_nodes.Del, fr: list[Any]) -> Any:
        await self.ref(nodes.Ref(node.at, node.variable), fr)
        self.store(node.variable, UNBOUND, fr)

    # -- functions of the language, effects -----------------------------------------------------------------------

    async def prim(self, node: nodes.Prim, fr: list[Any]) -> Any:
        args, rt = await self.values(node.args, fr), fr[STRAND]
        if node.waits is not None:
            count = len(args) - len(node.names)
            named = dict(zip(node.names, args[count:], strict=True))
            value = await node.function(rt, fr[DEPTH] + node.waits, *args[:count], **named)
            return value if value is not TAIL or node.is_tail else await bounce(rt, fr[DEPTH])
        value = node.function(rt, *args) if node.takes_rt else node.function(*args)
        return await rt.work(value.work) if type(value) is Sliced else value

    async def effect(self, node: text_nodes.Effect, fr: list[Any]) -> Any:
        args, names, rt = await self.values(node.args, fr), node.names, fr[STRAND]
        if node.spread:
            every = support.arguments_of(names, tuple(args), *await self.values(node.spread, fr))
            names, args = tuple(every), list(every.values())
        called = support.data_of if node.gives == "data" else support.outcome_of
        assert node.at is not None
        return await called(rt, fr[DEPTH], self.env, node.name, names, tuple(args), node.at)

    async def perform(self, node: nodes.Perform, fr: list[Any]) -> Any:
        effect = node.make(self.env, *await self.values(node.args, fr))
        return await fr[STRAND].perform(effect, node.at)

    async def operation(self, node: nodes.Op, fr: list[Any]) -> Any:
        args = await self.values(node.args, fr)
        return await fr[STRAND].operation(node.operation, fr[DEPTH], node.at, *node.constants, *args)

    # -- procedures and calls -------------------------------------------------------------------------------------

    async def procedure(self, node: nodes.Lambda, fr: list[Any]) -> Any:
        env, info, count = self.env, node.info, len(node.params)

        async def body(rt: Any, d: int, args: tuple[Any, ...]) -> Any:
            new = opened(node.frame, fr, d, rt)
            new[FRAME_HEAD : FRAME_HEAD + count] = args[:count]
            if node.rest is not None:
                new[node.rest.slot] = list(args[count:])
            for parameter, default in zip(node.params, node.defaults, strict=True):
                if new[parameter.slot] is values.MISSING:
                    if default is nodes.MISSING_KEYWORD:
                        support.missing_keyword(parameter.name)
                    new[parameter.slot] = await self.value(default, new)
            if node.gives_body:
                return await self.value(node.body, new)
            try:
                await self.value(node.body, new)
            except Left as left:
                return left.value
            return None

        async def code(rt: Any, d: int, *args: Any) -> Any:
            await _step(rt)
            return await self.entered(body(rt, d, args), d)

        arity = -1 if info.optional or node.rest is not None else len(info.params)
        filled = support.filled(code, info, node.by_position) if info.optional else code
        return Closure(filled, arity, info, env, fr[STRAND].grants)

    async def entered(self, work: Any, d: int) -> Any:
        """The value of the code of a function, on a fresh stack where the calls around it have filled theirs."""
        level, self.level = self.level, 0
        try:
            return await (hopped(work) if d % HOP == HOP - 1 else work)
        finally:
            self.level = level

    async def thunk(self, node: nodes.Thunk, fr: list[Any]) -> Any:
        env, frame = self.env, node.frame
        assert frame is not None

        async def code(rt: Any, d: int) -> Any:
            assert env is self.env
            if node.steps:
                await _step(rt)
            return await self.entered(self.value(node.body, opened(frame, fr, d, rt)), d)

        return code

    async def call(self, node: nodes.Call, fr: list[Any]) -> Any:
        rt, d, count = fr[STRAND], fr[DEPTH], len(node.args)
        function = await self.value(node.function, fr)
        if not node.picks_first:
            return await support.call(rt, d, function, tuple(await self.values(node.args, fr)), node.names)
        code = rt.pick(function, count, d)
        return await _applied(rt, d, code, await self.values(node.args, fr), is_tail=node.is_tail)

    async def either(self, node: nodes.Either, fr: list[Any]) -> Any:
        rt, d = fr[STRAND], fr[DEPTH]
        function = await self.value(node.function, fr)
        by_name = self.takes_names(rt, function)
        code = None if by_name else rt.pick(function, len(node.pairs), d)
        args = [await self.pair(each, by_name, fr) for each in node.pairs]
        if code is not None:
            return await _applied(rt, d, code, args, is_tail=node.is_tail)
        names = tuple(each.names[0] for each in node.pairs)
        return await rt.call_named(d, function, names, tuple(args), node.at, self.env)

    def takes_names(self, rt: Any, function: Any) -> bool:
        return type(function) is not Closure and rt.takes_named_arguments(function, self.env)

    async def pair(self, node: nodes.EitherPair, by_name: bool, fr: list[Any]) -> Any:
        """The value of an operand: operators from the outside in, then calls from the inside out."""
        rt, d = fr[STRAND], fr[DEPTH]
        calls: list[Callable[[str, Any], Any] | None] = []
        for link in node.links:
            by_name, called = await self.link(link, by_name, fr)
            calls.append(called)
        value = await self.value(node.value, fr)
        self.store(node.variable, value, fr)
        if not by_name:
            value = await self.value(node.applied, fr)
        for called, name in zip(reversed(calls), reversed(node.names), strict=False):
            if called is not None:
                value = await called(name, value)
                value = value if value is not TAIL else await bounce(rt, d)
        return value

    async def link(self, node: nodes.EitherLink, skipped: bool, fr: list[Any]) -> tuple[bool, Any]:
        """Whether an operator takes a named argument, and how it is called; None for one that is an argument's name itself."""
        if skipped:
            return False, None
        by_name, call = await located(self.called(node, fr), node.at)
        return by_name, lambda name, value: located(call(name, value), node.at)

    async def called(self, node: nodes.EitherLink, fr: list[Any]) -> tuple[bool, Callable[[str, Any], Any]]:
        rt, d = fr[STRAND], fr[DEPTH]
        make = node.effect
        if make is not None:
            return True, lambda name, value: rt.perform(make.of(self.env, name, value), node.at)
        function = await self.value(node.function, fr)
        if self.takes_names(rt, function):
            return True, lambda name, value: rt.call_named(d, function, (name,), (value,), node.at, self.env)
        code = rt.pick(function, 1, d)
        return False, lambda name, value: code(rt, d + 1, value)

    # -- control --------------------------------------------------------------------------------------------------

    async def choice(self, node: nodes.If, fr: list[Any]) -> Any:
        for test, arm in node.clauses:
            if await self.test(test, fr):
                return await self.value(arm, fr)
        return await self.value(node.other, fr)

    async def logic(self, node: nodes.Logic, fr: list[Any]) -> Any:
        for each in node.items[:-1]:
            value = await self.value(each, fr)
            if self.truth(value) is not node.every:
                return value
        return await self.value(node.items[-1], fr)

    async def seq(self, node: nodes.Seq, fr: list[Any]) -> Any:
        if node.frame is not None:
            fr = opened(node.frame, fr, fr[DEPTH], fr[STRAND])
        value = None
        for each in node.items:
            value = await self.value(each, fr)
        return value

    async def loop(self, node: nodes.While, fr: list[Any]) -> Any:
        while True:
            if node.steps_first:
                await _step(fr[STRAND])
            if await self.test(node.test, fr) is not node.sense:
                break
            if not node.steps_first:
                await _step(fr[STRAND])
            if not await self.round(node.body, fr):
                return None
        return await self.value(node.other, fr) if node.other is not None else None

    async def each(self, node: nodes.For, fr: list[Any]) -> Any:
        over, rt = await self.value(node.over, fr), fr[STRAND]
        value: Any = []
        for item in rt.rounds(over, node.at) if node.counts else over:
            if node.item is not None:
                self.store(node.item, item, fr)
            rt.fuel -= 1
            if rt.fuel < 0:
                await rt.tick()
                if isinstance(fr[KIND], CollectFrame):
                    check_collection(rt, len(fr[-1]), "a comprehension")
            if node.counts:
                value = await self.value(node.body, fr)
            elif not await self.round(node.body, fr):
                return None
        if node.counts:
            return value
        return await self.value(node.other, fr) if node.other is not None else None

    async def round(self, body: Node, fr: list[Any]) -> bool:
        """One round of a loop; false after a ``break``."""
        try:
            await self.value(body, fr)
        except Left as left:
            if left.how not in ("break", "continue"):
                raise
            return left.how == "continue"
        return True

    async def leave(self, node: text_nodes.Leave, fr: list[Any]) -> Any:
        raise Left(node.how, None if node.value is None else await self.value(node.value, fr))

    async def named(self, node: nodes.NamedLet, fr: list[Any]) -> Any:
        args = await self.values(node.inits, fr)
        while True:
            await _step(fr[STRAND])
            at = fr if node.frame is None else opened(node.frame, fr, fr[DEPTH], fr[STRAND])
            for variable, value in zip(node.params, args, strict=True):
                self.store(variable, value, at)
            try:
                return await self.value(node.body, at)
            except NextRound as again:
                if again.loop is not node:
                    raise
                args = again.values

    async def again(self, node: nodes.Again, fr: list[Any]) -> Any:
        raise NextRound(node.loop, await self.values(node.args, fr))

    async def collect(self, node: text_nodes.Collect, fr: list[Any]) -> Any:
        out: Any = {} if node.kind in ("dict", "set") else []
        new = [*opened(node.frame, fr, fr[DEPTH] + 1, fr[STRAND]), out]
        new[KIND] = CollectFrame(node.frame, node.kind)
        try:
            await self.value(node.body, new)
        except Left as left:
            if left.how != "decided":
                raise
            return left.value
        if node.kind in ("any", "all"):
            return node.kind == "all"
        return OrderedSet.of(out) if node.kind == "set" else out

    async def element(self, node: text_nodes.Yield, fr: list[Any]) -> Any:
        key = await self.value(node.key, fr) if node.key is not None else None
        value = await self.value(node.value, fr) if node.value is not None else None
        kind = fr[KIND].kind
        if kind in ("any", "all"):
            decides = kind == "any"
            if self.truth(value) is decides:
                raise Left("decided", decides)
        elif kind == "list":
            fr[-1].append(value)
        else:
            fr[-1][key] = value

    # -- errors ---------------------------------------------------------------------------------------------------

    async def recovery(self, node: nodes.Try, fr: list[Any]) -> Any:
        if node.final is None:
            return await self.handled(node, fr)
        final = await self.thunk(node.final, fr)
        try:
            value = await self.handled(node, fr)
        except (Left, NextRound):
            await final(fr[STRAND], fr[DEPTH] + 1)
            raise
        except BaseException as error:
            await fr[STRAND].operation("finally", fr[DEPTH], node.at, error, final)
            raise
        await final(fr[STRAND], fr[DEPTH] + 1)
        return value

    async def handled(self, node: nodes.Try, fr: list[Any]) -> Any:
        if not node.handlers:
            return await self.value(node.body, fr)
        try:
            value = await self.value(node.body, fr)
        except Exception as error:
            caught = await fr[STRAND].operation("catch", fr[DEPTH], node.at, error)
            if self.python:
                caught = failure.caught(error, caught)
            for names, variable, body in node.handlers:
                if names is None or failure.matches(caught, names):
                    if variable is not None:
                        self.store(variable, caught, fr)
                    return await self.value(body, fr)
            raise
        return value if node.other is None else await self.value(node.other, fr)

    async def error(self, node: text_nodes.Raise, fr: list[Any]) -> Any:
        if node.value is None:
            raise
        raise await self.value(node.value, fr)


class CollectFrame(FrameLayout):
    """The frame of a comprehension at run time; its last slot is what it has collected."""

    def __init__(self, frame: FrameLayout, kind: str) -> None:
        self.frame = frame
        self.kind = kind


def opened(frame: FrameLayout, around: list[Any] | None, d: int, rt: Any) -> list[Any]:
    """A frame at run time: a list, so that what a branch can reach is found in it."""
    return [around, frame, d, rt, getattr(rt, "ambient", None), None, *[UNBOUND] * (frame.size - FRAME_HEAD)]


def _holder(fr: list[Any], variable: Variable) -> list[Any]:
    """The frame at run time that holds a variable."""
    at = fr
    while variable.frame is not at[KIND] and variable.frame is not getattr(at[KIND], "frame", None):
        at = at[PARENT]
    return at


async def _step(rt: Any) -> None:
    rt.fuel -= 1
    if rt.fuel < 0:
        await rt.tick()


async def _applied(rt: Any, d: int, code: Code, args: list[Any], *, is_tail: bool) -> Any:
    if is_tail and d >= TAIL_NEST:
        rt.tail = (code, *args)
        return TAIL
    value = await code(rt, d + 1, *args)
    return value if value is not TAIL or is_tail else await bounce(rt, d)


async def hopped(work: Any) -> Any:
    """The value of ``work``, on a fresh stack."""

    async def held() -> Any:
        try:
            return None, await work
        except (Left, NextRound) as left:
            return left, None

    left, value = await on_fresh_task(held())
    if left is not None:
        raise left
    return value


async def located(work: Any, program_span: Span | None) -> Any:
    """The value of a part, with the place of its errors; ``span_of_frame`` reads the variable."""
    try:
        return await work
    except AgentflowError as error:
        _place(error, program_span)
        raise
    except Exception as error:
        placed = annotate(error)
        _place(placed, program_span)
        raise placed from error


def _place(error: AgentflowError, span: Span | None) -> None:
    """Give an error the place of the innermost node that it passes, or of the argument there that it is about."""
    if error.span is not None or span is None:
        return
    position = error.details.get("argument")
    if error.code == "type/argument" and isinstance(position, int):
        span = span_of_position(span, error.details["procedure"], position)
    error.at(span)
    fit_hint(error)


_RULES: dict[type[Node], Callable[..., Any]] = {
    nodes.Const: Interpreter.const,
    nodes.Env: Interpreter.environment,
    nodes.Ref: Interpreter.ref,
    nodes.Set: Interpreter.set,
    text_nodes.Del: Interpreter.unset,
    nodes.Prim: Interpreter.prim,
    nodes.Call: Interpreter.call,
    nodes.Either: Interpreter.either,
    text_nodes.Effect: Interpreter.effect,
    nodes.Perform: Interpreter.perform,
    nodes.Op: Interpreter.operation,
    nodes.Lambda: Interpreter.procedure,
    nodes.Thunk: Interpreter.thunk,
    nodes.If: Interpreter.choice,
    nodes.Logic: Interpreter.logic,
    nodes.Seq: Interpreter.seq,
    nodes.While: Interpreter.loop,
    nodes.For: Interpreter.each,
    text_nodes.Collect: Interpreter.collect,
    text_nodes.Yield: Interpreter.element,
    nodes.NamedLet: Interpreter.named,
    nodes.Again: Interpreter.again,
    nodes.Try: Interpreter.recovery,
    text_nodes.Raise: Interpreter.error,
    text_nodes.Leave: Interpreter.leave,
}
