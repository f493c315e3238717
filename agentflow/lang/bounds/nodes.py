"""Abstract interpretation of each kind of node of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agentflow.lang import ir
from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.guards import GuardFact, guards_of
from agentflow.lang.bounds.interpret import Interpreter, Outcome, Rule
from agentflow.lang.bounds.loops import counters, marked, rounds
from agentflow.lang.bounds.polynomial import ONE, Bound
from agentflow.lang.bounds.scopes import AbstractClosure, AbstractScope
from agentflow.lang.bounds.values import (
    DATA,
    FOREIGN,
    NEVER,
    NIL,
    PLAIN,
    Value,
    constant,
    joined,
    sequence,
)
from agentflow.lang.ir import IR, Lambda


def _const(i: Interpreter, node: ir.Const | ir.Quote, scope: AbstractScope) -> Outcome:
    return constant(node.value), FREE


def _make_dict(i: Interpreter, node: ir.MakeDict, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.values, scope)
    size = Bound.of(len(values))
    if all(isinstance(key, str) for key in node.keys):
        return Value(size=size, fields=dict(zip(node.keys, values, strict=True))), cost
    return sequence(size, joined(values)), cost


def _local(i: Interpreter, node: ir.Local, scope: AbstractScope) -> Outcome:
    return i.read_local(node.var, scope), FREE


def _global(i: Interpreter, node: ir.Global, scope: AbstractScope) -> Outcome:
    return i.read_global(node.name), FREE


def _unknown(i: Interpreter, node: ir.Unknown, scope: AbstractScope) -> Outcome:
    return i.read_global(node.name), FREE


def _prim(i: Interpreter, node: ir.Prim, scope: AbstractScope) -> Outcome:
    return Value(procedures=frozenset({node.primitive})), FREE


def _plain(i: Interpreter, node: Any, scope: AbstractScope) -> Outcome:
    return DATA, FREE


def _set_local(i: Interpreter, node: ir.SetLocal, scope: AbstractScope) -> Outcome:
    return i.follow(node.value, scope)


def _set_global(i: Interpreter, node: ir.SetGlobal, scope: AbstractScope) -> Outcome:
    return i.follow(node.value, scope)


def _define_global(i: Interpreter, node: ir.DefineGlobal, scope: AbstractScope) -> Outcome:
    value, cost = i.follow(node.value, scope)
    i.define_global(node.name, value)
    return value, cost


def _define(i: Interpreter, node: ir.Define, scope: AbstractScope) -> Outcome:
    value, cost = i.follow(node.value, scope)
    i.define_local(node.var, value, scope)
    return value, cost


def _if(i: Interpreter, node: ir.If, scope: AbstractScope) -> Outcome:
    _, cost = i.follow(node.test, scope)
    value, more = _choice(i, node.test, node.then, node.other, scope)
    return value, cost.then(more)


def _choice(i: Interpreter, test: IR, then: IR, other: IR, scope: AbstractScope) -> Outcome:
    if_true, if_false = guards_of(test, lambda each: i.peek(each, scope))
    value, cost = _guarded(i, then, scope, if_true)
    otherwise, more = _guarded(i, other, scope, if_false)
    return value.join(otherwise), cost.otherwise(more)


def _guarded(i: Interpreter, node: IR, scope: AbstractScope, guards: Sequence[GuardFact]) -> Outcome:
    count = len(i.guards)
    i.guards.extend(guards)
    try:
        return i.follow(node, scope)
    finally:
        del i.guards[count:]


def _cond(i: Interpreter, node: ir.Cond, scope: AbstractScope) -> Outcome:
    return _clauses(i, node.clauses, node.other, scope)


def _clauses(i: Interpreter, clauses: Sequence[ir.Clause], other: IR, scope: AbstractScope) -> Outcome:
    count = len(i.guards)
    value, cost, before = NEVER, None, FREE
    try:
        for clause in clauses:
            tested, test = i.follow(clause.test, scope)
            before = before.then(test)
            inner = scope
            if clause.bind is not None:
                inner = AbstractScope(scope)
                inner.bind(clause.bind, tested)
            if_true, if_false = guards_of(clause.test, lambda each: i.peek(each, scope))
            result, body = _guarded(i, clause.body, inner, if_true)
            value, path = value.join(result), before.then(body)
            cost = path if cost is None else cost.otherwise(path)
            i.guards.extend(if_false)
        result, body = i.follow(other, scope)
    finally:
        del i.guards[count:]
    path = before.then(body)
    return value.join(result), path if cost is None else cost.otherwise(path)


def _logic(i: Interpreter, node: ir.Logic, scope: AbstractScope) -> Outcome:
    count = len(i.guards)
    value, cost, before = NEVER, FREE, FREE
    try:
        for item in node.items:
            result, more = i.follow(item, scope)
            value, before = value.join(result), before.then(more)
            cost = cost.otherwise(before)
            guards = guards_of(item, lambda each: i.peek(each, scope))
            i.guards.extend(guards[0] if node.every else guards[1])
    finally:
        del i.guards[count:]
    return value.join(PLAIN), cost


def _seq(i: Interpreter, node: ir.Seq, scope: AbstractScope) -> Outcome:
    if not node.items:
        return NIL, FREE
    values, cost = i.in_order(node.items, scope)
    return NEVER if any(each.never for each in values) else values[-1], cost


def _let(i: Interpreter, node: ir.Let, scope: AbstractScope) -> Outcome:
    inner = AbstractScope(scope)
    for var in node.vars:
        inner.bind(var, NEVER)
    cost = FREE
    for var, init in node.inits:
        value, more = i.follow(init, inner)
        cost = cost.then(more)
        inner.bind(var, value)
    value, more = i.follow(node.body, inner)
    return value, cost.then(more)


def _lambda(i: Interpreter, node: Lambda, scope: AbstractScope) -> Outcome:
    return Value(procedures=frozenset({AbstractClosure(node, scope)})), FREE


def _call(i: Interpreter, node: ir.Call, scope: AbstractScope) -> Outcome:
    if isinstance(node.operator, ir.Unknown):
        return _named_call(i, node, node.operator.name, scope)
    operator, cost = i.follow(node.operator, scope)
    if node.pairs is None:
        values, more = i.in_order(node.args, scope)
        value, called = i.call(operator, values, node.at)
        return value, cost.then(more).then(called)
    inner, before = _pairs(i, node.pairs, scope)
    cost = cost.then(before)
    # Pairs are arguments by name if the operator turns out to name a task or tool, and calls otherwise.
    by_name = operator.but(procedures=frozenset[Any](), foreign=False)
    value, called = i.call(by_name, [], node.at)
    named = {each.name: inner.value(each.var) for each in node.pairs}
    for name in sorted(operator.texts) if operator.texts is not None else [""]:
        called = called.then(i.settings(name, named, node.at))
    if operator.procedures or operator.foreign:
        applied, more = i.in_order([each.applied for each in node.pairs], inner)
        other, most = i.call(operator.but(texts=frozenset[str]()), applied, node.at)
        value, called = value.join(other), called.otherwise(more.then(most))
    return value, cost.then(called)


def _pairs(i: Interpreter, pairs: Sequence[ir.Pair], scope: AbstractScope) -> tuple[AbstractScope, Cost]:
    inner, cost = AbstractScope(scope), FREE
    for each in pairs:
        value, more = i.follow(each.value, inner)
        cost = cost.then(more)
        inner.bind(each.var, value)
    return inner, cost


def _named_call(i: Interpreter, node: ir.Call, name: str, scope: AbstractScope) -> Outcome:
    if node.pairs is not None:
        inner, cost = _pairs(i, node.pairs, scope)
        _, nested = i.in_order([each.applied for each in node.pairs], inner)
        cost = cost.then(nested) if not nested.free else cost
    else:
        _, cost = i.in_order(node.args, scope)
    value, called = i.named(name, node.at)
    return value, cost.then(called)


def _prim_call(i: Interpreter, node: ir.PrimCall, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    value, more = i.primitive(node.primitive, values, node.at)
    return value, cost.then(more)


def _effect(i: Interpreter, node: ir.EffectCall, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    kind = "context" if node.kind == "items" else node.kind
    value, more = i.effect(kind, node.name, node.at)
    if kind == "task":
        more = more.then(i.settings(node.name, dict(zip(node.names, values, strict=True)), node.at))
    if kind == "workflow" and i.programs is not None:
        inner = i.programs.workflow(node.name, i.visits)
        arguments = dict(zip(node.names, values, strict=True))
        more = more.then(i.program(inner, f"workflow '{node.name}'", arguments, node.at))
    return value, cost.then(more)


def _thunk(i: Interpreter, node: ir.Thunk, scope: AbstractScope) -> Outcome:
    return i.follow(node.body, scope)


def _named_loop(i: Interpreter, node: ir.NamedLoop, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.inits, scope)
    code = Lambda(node.at, node.loop.name.strip(), node.params, None, node.body, node.loop.function)
    outer = AbstractScope(scope)

    def body(bound: list[Value]) -> Outcome:
        inner = AbstractScope(outer)
        for var, value in zip(node.params, bound, strict=True):
            inner.bind(var, value)
        return i.follow(node.body, inner)

    procedure = AbstractClosure(code, outer)
    outer.bind(node.loop, Value(procedures=frozenset({procedure})))
    name = code.name if node.loop.name.strip() == node.loop.name else None
    value, more = i.repeated(node.at, procedure, values, name, body)
    return value, cost.then(more)


def _repeat(i: Interpreter, node: ir.Repeat, scope: AbstractScope) -> Outcome:
    count, cost = i.follow(node.count, scope)
    value, body = i.follow(node.body, scope)
    if count.high is None:
        return value.join(NIL), cost.then(i.loose(node.at, "the number of repetitions of 'loop' is unknown", body))
    return value.join(NIL), cost.then(body.times(count.high))


def _while(i: Interpreter, node: ir.While, scope: AbstractScope) -> Outcome:
    for counter in counters(node, i.setters):
        initial = i.initial(counter.variable, scope)
        parameter = (i.next_number(), 0)
        inner = i.with_value(counter.variable, marked(initial, parameter, counter.step), scope)
        with inner as around:
            if_true, if_false = guards_of(node.test, lambda each, around=around: i.peek(each, around))
            count = rounds(if_true if node.sense else if_false, parameter, initial, counter.step)
            if count is not None:
                _, test = i.follow(node.test, around)
                _, body = i.follow(node.body, around)
                both = test.times(count + ONE).then(body.times(count))
                value, result = i.follow(node.result, around)
                return value, both.then(result)
    _, test = i.follow(node.test, scope)
    _, body = i.follow(node.body, scope)
    value, result = i.follow(node.result, scope)
    both = i.loose(node.at, "'while' has no bound: its test has no counter", test.then(body))
    return value, both.then(result)


def _try(i: Interpreter, node: ir.Try, scope: AbstractScope) -> Outcome:
    value, cost = i.follow(node.body, scope)
    if node.handler is not None:
        inner = AbstractScope(scope)
        if node.var is not None:
            inner.bind(node.var, FOREIGN)
        handled, more = i.follow(node.handler, inner)
        value, cost = value.join(handled), cost.otherwise(cost.then(more))
    if node.final is not None:
        cost = cost.then(i.follow(node.final, scope)[1])
    return value, cost


def _operation(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    return i.operations[node.op](i, node, scope)


RULES: Mapping[type[Any], Rule] = MappingProxyType(
    {
        ir.Call: _call,
        ir.Cond: _cond,
        ir.Const: _const,
        ir.Define: _define,
        ir.DefineGlobal: _define_global,
        ir.Dynamic: _plain,
        ir.EffectCall: _effect,
        ir.CurrentEnvironment: _plain,
        ir.Global: _global,
        ir.If: _if,
        ir.Lambda: _lambda,
        ir.Let: _let,
        ir.Local: _local,
        ir.Logic: _logic,
        ir.MakeDict: _make_dict,
        ir.NamedLoop: _named_loop,
        ir.Prim: _prim,
        ir.PrimCall: _prim_call,
        ir.Quote: _const,
        ir.Repeat: _repeat,
        ir.RuntimeCall: _operation,
        ir.Seq: _seq,
        ir.SetGlobal: _set_global,
        ir.SetLocal: _set_local,
        ir.Thunk: _thunk,
        ir.Try: _try,
        ir.Unknown: _unknown,
        ir.While: _while,
    }
)
"""The analysis of nodes, by kind."""
