"""S-expressions lowered: each node that the analyser gives (:mod:`agentflow.lang.ir`) as nodes of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from agentflow.core.data.source import Source, Span
from agentflow.core.events import effects
from agentflow.lang import ir
from agentflow.lang.environment import UNBOUND
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.lowered_functions import as_dict, as_list, operator_of, owned
from agentflow.lang.kernel.nodes import (
    Const,
    Env,
    FrameLayout,
    LoweredInfo,
    Node,
    Prim,
    Ref,
    Seq,
    Set,
    Variable,
    owner_of,
)
from agentflow.lang.support import fresh, rounds

_EFFECTS: dict[str, Callable[[Any, str, dict[str, Any]], Any]] = {
    "task": lambda env, name, arguments: effects.TaskCall(name, arguments, env),
    "tool": lambda env, name, arguments: effects.CallTool(name, arguments, env),
    "workflow": lambda env, name, arguments: effects.CallWorkflow(name, arguments, env),
    "context": lambda env, name, arguments: effects.GetContext(arguments),
    "items": lambda env, name, arguments: effects.GetContext(arguments, True),
}


class SexpLowering:
    """One lowering. ``free`` are the variables of the environment that it met."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.frame = FrameLayout(None)
        self.free: set[str] = set()
        self.variables: dict[ir.Var, Variable] = {}
        self.loops: dict[ir.Var, nodes.NamedLet] = {}
        self.direct: set[int] = set()
        """The definitions that are steps of a body, in no arm."""

    def node(self, at: ir.IR, *, tail: bool = False) -> Node:
        """A node lowered; ``tail``: its value is that of the code around."""
        lower: Callable[[Any, Any, bool], Node] = _RULES[type(at)]
        return lower(self, at, tail)

    def all(self, items: list[Any]) -> list[Node]:
        return [self.node(each) for each in items]

    def enter(self, body: Any) -> None:
        items = body.items if isinstance(body, ir.Seq) else [body]
        self.direct.update([id(each) for each in items if isinstance(each, ir.Define | ir.DefineGlobal)])

    def span(self, at: Any) -> Span:
        return self.source.span(at.at.start, at.at.end)

    def cell(self, name: str) -> str:
        self.free.add(name)
        return name

    def declared(self, var: ir.Var) -> Variable:
        variable = self.variables[var] = Variable(var.name, self.frame, shared=var.shared)
        variable.private = not var.captured and not var.shared
        return variable

    def temporary(self) -> Variable:
        return Variable("", self.frame)

    # -- variables ------------------------------------------------------------------------------------------------

    def local(self, at: ir.Local, tail: bool) -> Node:
        return Ref(self.span(at), self.variables[at.var])

    def named(self, at: ir.Global | ir.Unknown, tail: bool) -> Node:
        return Ref(self.span(at), self.cell(at.name))

    def set_local(self, at: ir.SetLocal, tail: bool) -> Node:
        variable, value = self.variables[at.var], self.node(at.value)
        if at.foreign:
            owner = Ref(None, owner_of(variable.frame))
            value = Prim(self.span(at), owned, [value, owner, Const(None, at.var.name)], takes_rt=True)
        return Set(self.span(at), variable, value, "set")

    def set_global(self, at: ir.SetGlobal, tail: bool) -> Node:
        return Set(self.span(at), self.cell(at.name), self.node(at.value), "set")

    def define_global(self, at: ir.DefineGlobal, tail: bool) -> Node:
        return Set(self.span(at), self.cell(at.name), self.node(at.value), "define", id(at) in self.direct)

    def define(self, at: ir.Define, tail: bool) -> Node:
        return Set(self.span(at), self.variables[at.var], self.node(at.value), "define", id(at) in self.direct)

    def let(self, at: ir.Let, tail: bool) -> Node:
        outer, own = self.frame, None
        if any(each.captured for each in at.vars):
            own = self.frame = FrameLayout(outer, is_function=False)
        self.enter(at.body)
        for each in at.vars:
            self.declared(each)
        # A procedure may outlive one round of a loop: a value of an earlier round must not be seen before a definition.
        early = [each for each in at.vars if each.early]
        items: list[Node] = [Set(None, self.variables[each], Const(None, UNBOUND)) for each in early if own is None]
        items += [Set(self.span(value), self.variables[var], self.node(value)) for var, value in at.inits]
        whole = Seq(self.span(at), [*items, self.node(at.body, tail=tail)], own)
        self.frame = outer
        return whole

    # -- data -----------------------------------------------------------------------------------------------------

    def const(self, at: ir.Const, tail: bool) -> Node:
        return Const(self.span(at), at.value)

    def quote(self, at: ir.Quote, tail: bool) -> Node:
        return Prim(self.span(at), fresh, [Const(None, at.value)])

    def make_dict(self, at: ir.MakeDict, tail: bool) -> Node:
        return Prim(self.span(at), partial(as_dict, tuple(at.keys)), self.all(at.values))

    def prim(self, at: ir.Prim, tail: bool) -> Node:
        return Const(self.span(at), at.primitive)

    def prim_call(self, at: ir.PrimCall, tail: bool) -> Node:
        primitive = at.primitive
        if not primitive.accepts(len(at.args)):
            return Prim(self.span(at), primitive.check_arity, [Const(None, len(at.args))])
        if primitive.is_async:
            is_tail = tail and primitive.tails
            return Prim(self.span(at), primitive.function, self.all(at.args), waits=1, is_tail=is_tail, row=primitive)
        return Prim(self.span(at), primitive.function, self.all(at.args), takes_rt=primitive.needs_rt, row=primitive)

    # -- procedures and calls -------------------------------------------------------------------------------------

    def procedure(self, at: ir.Lambda, tail: bool) -> Node:
        info = LoweredInfo(
            at.name,
            tuple(each.name for each in at.params),
            at.rest.name if at.rest else None,
            self.source,
            at.at.start,
            at.at.end,
            at.body_place,
            at.portable,
            follows="strict",
        )
        outer, loops = self.frame, self.loops
        frame = self.frame = FrameLayout(outer)
        self.loops = {}
        params = [self.declared(each) for each in at.params]
        rest = self.declared(at.rest) if at.rest else None
        for each in params:
            each.parameter = True
        body = self.node(at.body, tail=True)
        self.frame, self.loops = outer, loops
        return nodes.Lambda(self.span(at), info, params, [None] * len(params), frame, body, rest, gives_body=True)

    def operator(self, at: ir.IR) -> Node:
        """The operator of a call; an unbound name is an error of the whole call."""
        if isinstance(at, ir.Global):
            return Ref(None, self.cell(at.name))
        if not isinstance(at, ir.Unknown):
            return self.node(at)
        name = Const(None, at.name)
        return Prim(None, operator_of, [Env(None), name], takes_rt=True)

    def call(self, at: ir.Call, tail: bool) -> Node:
        operator = at.operator
        if isinstance(operator, ir.Local) and operator.var in self.loops and at.self_tail:
            return nodes.Again(self.span(at), self.loops[operator.var], self.all(at.args))
        if at.pairs is None:
            function = self.operator(operator)
            return nodes.Call(self.span(at), function, self.all(at.args), is_tail=tail, picks_first=True)
        function = self.operator(operator)
        return nodes.Either(self.span(at), function, [self.pair(each) for each in at.pairs], tail)

    def pair(self, at: ir.Pair) -> nodes.EitherPair:
        links = [self.link(each) for each in at.links]
        variable = self.declared(at.var)
        value, applied = self.node(at.value), self.node(at.applied)
        return nodes.EitherPair(self.span(at), at.names, links, variable, value, applied)

    def link(self, at: ir.Link) -> nodes.EitherLink:
        if at.effect is None:
            return nodes.EitherLink(self.span(at), self.operator(at.operator))
        make, name = _EFFECTS[at.effect], at.name
        return nodes.EitherLink(self.span(at), Const(None, None), lambda env, arguments: make(env, name, arguments))

    def effect(self, at: ir.EffectCall, tail: bool) -> Node:
        make, name, names = _EFFECTS[at.kind], at.name, at.names

        def made(env: Any, *values: Any) -> Any:
            return make(env, name, dict(zip(names, values, strict=True)))

        return nodes.Perform(self.span(at), made, self.all(at.args))

    def operation(self, at: ir.RuntimeCall, tail: bool) -> Node:
        return nodes.Op(self.span(at), at.op, list(at.constants), self.all(at.args))

    def dynamic(self, at: ir.Dynamic, tail: bool) -> Node:
        return nodes.Op(self.span(at), "loop-config", [], [])

    def environment(self, at: ir.CurrentEnvironment, tail: bool) -> Node:
        return Env(self.span(at))

    def thunk(self, at: ir.Thunk, tail: bool) -> nodes.Thunk:
        outer, loops = self.frame, self.loops
        frame = self.frame = FrameLayout(outer)
        self.loops = {}
        body = self.node(at.body)
        self.frame, self.loops = outer, loops
        return nodes.Thunk(self.span(at), body, frame, steps=at.function.kind == "branch")

    def thunks(self, at: ir.ThunkList, tail: bool) -> Node:
        return Prim(None, as_list, self.all(at.items))

    # -- control --------------------------------------------------------------------------------------------------

    def choice(self, at: ir.If, tail: bool) -> Node:
        return nodes.If(
            self.span(at), self.node(at.test), self.node(at.then, tail=tail), self.node(at.other, tail=tail)
        )

    def cond(self, at: ir.Cond, tail: bool) -> Node:
        whole: list[tuple[Node, Node]] = []
        for clause in at.clauses:
            test = self.node(clause.test)
            if clause.bind is not None:
                test = Set(None, self.declared(clause.bind), test)
            whole.append((test, self.node(clause.body, tail=tail)))
        rest = self.node(at.other, tail=tail)
        for test, body in reversed(whole):
            rest = nodes.If(self.span(at), test, body, rest)
        return rest

    def logic(self, at: ir.Logic, tail: bool) -> Node:
        last = len(at.items) - 1
        items = [self.node(each, tail=tail and index == last) for index, each in enumerate(at.items)]
        return nodes.Logic(self.span(at), at.every, items)

    def seq(self, at: ir.Seq, tail: bool) -> Node:
        return Seq(self.span(at), [*self.all(at.items[:-1]), self.node(at.items[-1], tail=tail)])

    def apart(self, at: ir.Apart, tail: bool) -> Node:
        return self.node(at.body, tail=tail)

    def named_loop(self, at: ir.NamedLoop, tail: bool) -> Node:
        outer, own = self.frame, None
        inits = self.all(at.inits)
        if any(each.captured for each in at.params):
            own = self.frame = FrameLayout(outer, is_function=False)
        params = [self.declared(each) for each in at.params]
        loop = self.loops[at.loop] = nodes.NamedLet(self.span(at), params, inits, Const(None, None), own)
        loop.body = self.node(at.body, tail=tail)
        self.frame = outer
        return loop

    def repeat(self, at: ir.Repeat, tail: bool) -> Node:
        span, last = self.span(at), self.temporary()
        over = Prim(span, rounds, [self.node(at.count)])
        body = nodes.For(span, over, None, Set(None, last, self.node(at.body)), watched=True)
        return Seq(span, [Set(None, last, Prim(None, list, [])), body, Ref(None, last)])

    def loop(self, at: ir.While, tail: bool) -> Node:
        test, body = self.node(at.test), self.node(at.body)
        loop = nodes.While(self.span(at), test, body, None, at.sense, steps_first=True)
        return Seq(self.span(at), [loop, self.node(at.result, tail=tail)])

    def recovery(self, at: ir.Try, tail: bool) -> Node:
        final = None if at.final is None else self.thunk(at.final, False)
        body = self.node(at.body)
        handlers: list[tuple[tuple[str, ...] | None, Variable | str | None, Node]] = []
        if at.handler is not None and at.var is not None:
            caught = self.temporary()
            outer, own = self.frame, FrameLayout(self.frame, is_function=False)
            self.frame = own
            bound = Set(None, self.declared(at.var), Ref(None, caught))
            handlers.append((None, caught, Seq(None, [bound, self.node(at.handler)], own)))
            self.frame = outer
        return nodes.Try(self.span(at), body, handlers, None, final)


_RULES: dict[type[Any], Callable[..., Node]] = {
    ir.Const: SexpLowering.const,
    ir.Quote: SexpLowering.quote,
    ir.MakeDict: SexpLowering.make_dict,
    ir.Local: SexpLowering.local,
    ir.Global: SexpLowering.named,
    ir.Unknown: SexpLowering.named,
    ir.Prim: SexpLowering.prim,
    ir.Dynamic: SexpLowering.dynamic,
    ir.CurrentEnvironment: SexpLowering.environment,
    ir.SetLocal: SexpLowering.set_local,
    ir.SetGlobal: SexpLowering.set_global,
    ir.DefineGlobal: SexpLowering.define_global,
    ir.If: SexpLowering.choice,
    ir.Cond: SexpLowering.cond,
    ir.Logic: SexpLowering.logic,
    ir.Seq: SexpLowering.seq,
    ir.Let: SexpLowering.let,
    ir.Define: SexpLowering.define,
    ir.Lambda: SexpLowering.procedure,
    ir.Call: SexpLowering.call,
    ir.PrimCall: SexpLowering.prim_call,
    ir.EffectCall: SexpLowering.effect,
    ir.RuntimeCall: SexpLowering.operation,
    ir.Thunk: SexpLowering.thunk,
    ir.ThunkList: SexpLowering.thunks,
    ir.NamedLoop: SexpLowering.named_loop,
    ir.Repeat: SexpLowering.repeat,
    ir.While: SexpLowering.loop,
    ir.Try: SexpLowering.recovery,
    ir.Apart: SexpLowering.apart,
}
