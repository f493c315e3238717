"""S-expressions lowered: each node that the analyser gives (:mod:`agentflow.lang.ir`) as nodes of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from agentflow.core.data.labels import Following
from agentflow.core.data.source import Source, Span
from agentflow.lang import ir
from agentflow.lang.closure import LambdaInfo
from agentflow.lang.environment import UNBOUND
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.inline import as_dict, as_list, operator_of, owned
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
from agentflow.lib.text.stack import LEVELS, on_fresh_stack


class SexpLowering:
    """One lowering. ``free`` are the variables of the environment that it met; ``procedures`` the nodes of lambdas by their identity.

    ``follows``: how its code treats values in boxes.
    """

    def __init__(self, source: Source, follows: Following) -> None:
        self.source = source
        self.follows: Following = follows
        self.level = 0
        self.frame = FrameLayout(None)
        self.free: set[str] = set()
        self.variables: dict[ir.Var, Variable] = {}
        self.loops: dict[ir.Var, nodes.NamedLet] = {}
        self.procedures: dict[int, nodes.Lambda] = {}
        self.named: dict[int, Variable] = {}
        """The variables that always hold a procedure, by the identity of its lambda."""
        self.direct: set[int] = set()
        """The definitions that are steps of a body, in no arm."""

    def whole(self, tree: ir.Seq) -> Node:
        """A program, or a part of one."""
        self.enter(tree)
        return self.node(tree)

    def node(self, at: ir.IR, *, tail: bool = False) -> Node:
        """A node lowered; ``tail``: its value is that of the code around."""
        lower: Callable[[Any, Any, bool], Node] = _RULES[type(at)]
        self.level = level = self.level + 1
        node = lower(self, at, tail) if level % LEVELS else on_fresh_stack(lambda: lower(self, at, tail))
        self.level = level - 1
        return node

    def all(self, items: list[Any]) -> list[Node]:
        return [self.node(each) for each in items]

    def enter(self, body: Any) -> None:
        items = body.items if isinstance(body, ir.Seq) else [body]
        self.direct.update([id(each) for each in items if isinstance(each, ir.Define | ir.DefineGlobal)])

    def span(self, at: Any) -> Span:
        syntax = at.at
        return Span(self.source, syntax.start, syntax.end)

    def cell(self, name: str) -> str:
        self.free.add(name)
        return name

    def declared(self, var: ir.Var) -> Variable:
        variable = self.variables[var] = Variable(var.name, self.frame, shared=var.shared)
        variable.private = not var.captured and not var.shared
        variable.python_name, variable.is_assigned = var.py, var.mutated
        variable.unsure, variable.is_value = var.early, var.escapes
        if var.known is not None:
            self.named[id(var.known)] = variable
        return variable

    def temporary(self) -> Variable:
        variable = Variable("", self.frame)
        variable.is_assigned = False
        return variable

    # -- variables ------------------------------------------------------------------------------------------------

    def local(self, at: ir.Local, tail: bool) -> Node:
        return Ref(self.span(at), self.variables[at.var])

    def free_name(self, at: ir.Global | ir.Unknown, tail: bool) -> Node:
        return Ref(self.span(at), self.cell(at.name), near=at.near if isinstance(at, ir.Unknown) else ())

    def set_local(self, at: ir.SetLocal, tail: bool) -> Node:
        variable, value = self.variables[at.var], self.node(at.value)
        if at.foreign:
            owner = Ref(None, owner_of(variable))
            value = Prim(self.span(at), owned, [value, owner, Const(None, at.var.name)], takes_rt=True)
        return Set(self.span(at), variable, value, "set")

    def set_global(self, at: ir.SetGlobal, tail: bool) -> Node:
        return Set(self.span(at), self.cell(at.name), self.node(at.value), "set")

    def define_global(self, at: ir.DefineGlobal, tail: bool) -> Node:
        return Set(self.span(at), self.cell(at.name), self.node(at.value), "define", id(at) in self.direct)

    def define(self, at: ir.Define, tail: bool) -> Node:
        variable, direct = self.variables[at.var], id(at) in self.direct
        variable.unsure = variable.unsure or not direct
        return Set(self.span(at), variable, self.node(at.value), "define", direct)

    def let(self, at: ir.Let, tail: bool) -> Node:
        outer, own = self.frame, None
        if any(each.captured for each in at.vars):
            own = self.frame = FrameLayout(outer, is_function=False)
        self.enter(at.body)
        for each in at.vars:
            self.declared(each)
        # A value of an earlier round must not be seen before a definition.
        items: list[Node] = [Set(None, self.variables[each], Const(None, UNBOUND)) for each in at.vars if each.early]
        items += [Set(self.span(value), self.variables[var], self.node(value)) for var, value in at.inits]
        bound = {var for var, _ in at.inits}
        variables = [self.variables[each] for each in at.vars if each not in bound]
        whole = Seq(self.span(at), [*items, self.node(at.body, tail=tail)], own, variables)
        self.frame = outer
        return whole

    # -- data -----------------------------------------------------------------------------------------------------

    def const(self, at: ir.Const, tail: bool) -> Node:
        return Const(None, at.value)

    def quote(self, at: ir.Quote, tail: bool) -> Node:
        return Prim(self.span(at), fresh, [Const(None, at.value)])

    def make_dict(self, at: ir.MakeDict, tail: bool) -> Node:
        return Prim(self.span(at), partial(as_dict, tuple(at.keys)), self.all(at.values))

    def prim(self, at: ir.Prim, tail: bool) -> Node:
        return Const(None, at.primitive)

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
        info = (LoweredInfo if self.follows == "strict" else LambdaInfo)(
            at.name,
            tuple([each.name for each in at.params]),
            at.rest.name if at.rest else None,
            self.source,
            at.at.start,
            at.at.end,
            at.body_place,
            at.portable,
            follows=self.follows,
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
        whole = nodes.Lambda(self.span(at), info, params, [None] * len(params), frame, body, rest, gives_body=True)
        self.procedures[id(at)] = whole
        variable = self.named.get(id(at))
        if variable is not None:
            variable.procedure = whole
        return whole

    def operator(self, at: ir.IR) -> Node:
        """The operator of a call; an unbound name is an error of the whole call."""
        if isinstance(at, ir.Global):
            return Ref(None, self.cell(at.name))
        if not isinstance(at, ir.Unknown):
            return self.node(at)
        return Prim(None, operator_of, [Env(None), Const(None, at.name), Const(None, at.near)], takes_rt=True)

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
        return nodes.EitherLink(self.span(at), Const(None, None), nodes.NamedEffect(at.effect, at.name, ()))

    def effect(self, at: ir.EffectCall, tail: bool) -> Node:
        effect = nodes.NamedEffect(at.kind, at.name, tuple(at.names))
        return nodes.Perform(self.span(at), effect, self.all(at.args))

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
        clauses = [(self.node(at.test), self.node(at.then, tail=tail))]
        return nodes.If(self.span(at), clauses, self.node(at.other, tail=tail))

    def cond(self, at: ir.Cond, tail: bool) -> Node:
        clauses: list[tuple[Node, Node]] = []
        for clause in at.clauses:
            test = self.node(clause.test)
            if clause.bind is not None:
                test = Set(None, self.declared(clause.bind), test)
            clauses.append((test, self.node(clause.body, tail=tail)))
        other = self.node(at.other, tail=tail)
        return nodes.If(self.span(at), clauses, other) if clauses else other

    def logic(self, at: ir.Logic, tail: bool) -> Node:
        last = len(at.items) - 1
        items = [self.node(each, tail=tail and index == last) for index, each in enumerate(at.items)]
        return nodes.Logic(self.span(at), at.every, items)

    def seq(self, at: ir.Seq, tail: bool) -> Node:
        return Seq(self.span(at), [*self.all(at.items[:-1]), self.node(at.items[-1], tail=tail)])

    def named_loop(self, at: ir.NamedLoop, tail: bool) -> Node:
        outer, own = self.frame, None
        inits = self.all(at.inits)
        if any(each.captured for each in at.params):
            own = self.frame = FrameLayout(outer, is_function=False)
        params = [self.declared(each) for each in at.params]
        name = at.loop.name if at.loop.name.strip() == at.loop.name else None
        loop = self.loops[at.loop] = nodes.NamedLet(self.span(at), params, inits, Const(None, None), own, name)
        loop.body = self.node(at.body, tail=tail)
        self.frame = outer
        return loop

    def repeat(self, at: ir.Repeat, tail: bool) -> Node:
        span = self.span(at)
        return nodes.For(span, Prim(span, rounds, [self.node(at.count)]), None, self.node(at.body), counts=True)

    def loop(self, at: ir.While, tail: bool) -> Node:
        test, body = self.node(at.test), self.node(at.body)
        loop = nodes.While(self.span(at), test, body, None, at.sense, steps_first=True)
        return Seq(self.span(at), [loop, self.node(at.result, tail=tail)])

    def recovery(self, at: ir.Try, tail: bool) -> Node:
        final = None if at.final is None else self.thunk(at.final, False)
        body = self.node(at.body)
        handlers: list[tuple[tuple[str, ...] | None, Variable | str | None, Node]] = []
        if at.handler is not None and at.var is not None:
            handlers.append(self.handler(at.var, at.handler))
        return nodes.Try(self.span(at), body, handlers, None, final)

    def handler(self, var: ir.Var, handler: ir.IR) -> tuple[None, Variable, Node]:
        """A handler. A procedure may outlive one round of a loop, so the variable that it reads is new each time."""
        if not var.captured:
            return None, self.declared(var), self.node(handler)
        caught, outer, own = self.temporary(), self.frame, FrameLayout(self.frame, is_function=False)
        self.frame = own
        bound = Set(None, self.declared(var), Ref(None, caught))
        whole = Seq(None, [bound, self.node(handler)], own)
        self.frame = outer
        return None, caught, whole


_RULES: dict[type[Any], Callable[..., Node]] = {
    ir.Const: SexpLowering.const,
    ir.Quote: SexpLowering.quote,
    ir.MakeDict: SexpLowering.make_dict,
    ir.Local: SexpLowering.local,
    ir.Global: SexpLowering.free_name,
    ir.Unknown: SexpLowering.free_name,
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
}
