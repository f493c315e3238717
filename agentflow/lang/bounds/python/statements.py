"""Abstract interpretation of the statements of a text in Python."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from agentflow.lang.bounds.cost import FREE, Cost, in_sequence
from agentflow.lang.bounds.polynomial import ONE, Bound
from agentflow.lang.bounds.python.expressions import assign_to, at_key, element_of, is_number, iterations, operated
from agentflow.lang.bounds.python.heap import NOWHERE
from agentflow.lang.bounds.python.interpret import (
    NONE,
    Block,
    Python,
    State,
    Statement,
    WaysOut,
    both,
)
from agentflow.lang.bounds.python.loops import for_, while_
from agentflow.lang.bounds.scopes import AbstractClosure, AbstractScope
from agentflow.lang.bounds.values import FOREIGN, NEVER, Value
from agentflow.lang.ir import Var
from agentflow.lang.python.names import own_nodes


def block(i: Python, node: Block, scope: AbstractScope) -> WaysOut:
    """Statements in sequence. What a test says that leaves early holds for what follows it."""
    flow: WaysOut | None = None
    before: list[Cost] = []
    guards = len(i.guards)
    try:
        for each in node.nodes:
            one = i.statement(each, scope)
            if one.falls is not None and one.only_falls:
                before.append(one.falls)
                continue
            one = one.after(in_sequence(before))
            flow = (one if flow is None else flow.either(one)).but_falling(None)
            if one.falls is None:
                return flow
            before = [one.falls]
    finally:
        del i.guards[guards:]
    falls = in_sequence(before)
    return WaysOut(falls=falls) if flow is None else flow.but_falling(falls)


def _expression(i: Python, node: ast.Expr, scope: AbstractScope) -> WaysOut:
    return WaysOut(falls=i.value(node.value, scope)[1])


def _nothing(i: Python, node: ast.stmt, scope: AbstractScope) -> WaysOut:
    return WaysOut(falls=FREE)


def _assign(i: Python, node: ast.Assign, scope: AbstractScope) -> WaysOut:
    value, cost = i.value(node.value, scope)
    for target in node.targets:
        cost = cost.then(assign_to(i, target, value, scope))
    return WaysOut(falls=cost)


def _annotated(i: Python, node: ast.AnnAssign, scope: AbstractScope) -> WaysOut:
    if node.value is None:
        return WaysOut(falls=FREE)
    value, cost = i.value(node.value, scope)
    return WaysOut(falls=cost.then(assign_to(i, node.target, value, scope)))


def _augmented(i: Python, node: ast.AugAssign, scope: AbstractScope) -> WaysOut:
    target = node.target
    if isinstance(target, ast.Name):
        var = i.text.variables.get(target)
        before = i.read_global(target.id) if var is None else scope.value(var)
        value, cost = i.value(node.value, scope)
        after, grown = _in_place(i, node, before, value)
        i.assign(target, after, scope)
        return WaysOut(falls=cost.then(grown))
    if not isinstance(target, ast.Subscript):
        return WaysOut(falls=i.value(node.value, scope)[1])
    parts = [target.value, *([] if isinstance(target.slice, ast.Slice) else [target.slice])]
    (whole, *key), cost = i.values(parts, scope)
    before = at_key(whole, key[0]) if key else whole.element()
    value, more = i.value(node.value, scope)
    after, grown = _in_place(i, node, before, value)
    return WaysOut(falls=cost.then(more).then(grown).then(i.heap.change(whole, after, ONE)))


def _in_place(i: Python, node: ast.AugAssign, before: Value, value: Value) -> tuple[Value, Cost]:
    """The abstract value of ``before op= value``, where a list, set or dict is changed itself, and by how much it grows."""
    after = operated(i, node, node.op, before, value)
    if is_number(value) or is_number(before) or not isinstance(node.op, _CHANGING):
        return after, FREE
    put = element_of(i, value).join(value.element()).join(value.element().element())
    grows = isinstance(node.op, ast.Add | ast.BitOr | ast.BitXor)
    cost = i.heap.change(before, put, iterations(i, value) if grows else Bound.of(0))
    if before.sites == NOWHERE:
        return after, cost
    return (before if before.texts == frozenset() and not before.foreign else after.join(before)), cost


_CHANGING = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)


def _delete(i: Python, node: ast.Delete, scope: AbstractScope) -> WaysOut:
    cost = FREE
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            (whole, *_), more = i.values([target.value, target.slice], scope)
            cost = cost.then(more).then(i.heap.change(whole))
    return WaysOut(falls=cost)


def _function(i: Python, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: AbstractScope) -> WaysOut:
    if node in i.text.variables and i.text.variables[node] is not None:
        i.assign(node, Value(procedures=frozenset({AbstractClosure(i.text.code(node), scope)}), sites=NOWHERE), scope)
    return WaysOut(falls=FREE)


# -- control ------------------------------------------------------------------------------------------------------


def _if(i: Python, node: ast.If, scope: AbstractScope) -> WaysOut:
    _, cost = i.value(node.test, scope)
    if_true, if_false = i.guards_in(node.test, scope)
    before = scope.kept()
    then = i.told_block(if_true, node.body, scope)
    after = scope.kept()
    scope.put_back(before)
    other = i.told_block(if_false, node.orelse, scope) if node.orelse else WaysOut(falls=FREE)
    if other.falls is None:
        scope.put_back(after)
        i.guards.extend(if_true)
    elif then.falls is None:
        i.guards.extend(if_false)
    else:
        scope.put_back(both(after, scope.kept()))
    return then.either(other).after(cost)


def _return(i: Python, node: ast.Return, scope: AbstractScope) -> WaysOut:
    if node.value is None:
        return WaysOut(left=FREE, value=NONE)
    value, cost = i.value(node.value, scope)
    return WaysOut(left=cost, value=value)


def _raise(i: Python, node: ast.Raise, scope: AbstractScope) -> WaysOut:
    return WaysOut(raised=FREE if node.exc is None else _raised(i, node.exc, scope))


def _raised(i: Python, node: ast.expr, scope: AbstractScope) -> Cost:
    if isinstance(node, ast.Call) and i.text.meaning(node) is None:  # of a class of errors: no name that is bound
        return i.values(node.args, scope)[1]
    return FREE if isinstance(node, ast.Name) else i.value(node, scope)[1]


def _assert(i: Python, node: ast.Assert, scope: AbstractScope) -> WaysOut:
    _, cost = i.value(node.test, scope)
    if_true, if_false = i.guards_in(node.test, scope)
    raised = cost
    if node.msg is not None:
        with i.told(if_false):
            raised = cost.then(i.value(node.msg, scope)[1])
    i.guards.extend(if_true)
    return WaysOut(falls=cost, raised=raised)


def _break(i: Python, node: ast.Break, scope: AbstractScope) -> WaysOut:
    return WaysOut(broke=FREE)


def _continue(i: Python, node: ast.Continue, scope: AbstractScope) -> WaysOut:
    return WaysOut(again=FREE)


# -- errors -------------------------------------------------------------------------------------------------------


def _try(i: Python, node: ast.Try, scope: AbstractScope) -> WaysOut:
    before = scope.kept()
    with i.recorded() as seen:
        body = i.block(node.body, scope)
    any_cost = body.whole()
    flow = body
    if body.falls is not None and node.orelse:
        flow = body.but_falling(None).either(i.block(node.orelse, scope).after(body.falls))
    after = scope.kept()
    inside = {var: value.join(seen.get(var, NEVER)) for var, value in before.items()}
    if node.handlers:
        flow = replace(flow, raised=any_cost)
    for handler in node.handlers:
        scope.put_back(inside)
        i.assign(handler, FOREIGN, scope)
        handled = i.block(handler.body, scope).after(any_cost)
        if handled.falls is not None:
            after = both(after, scope.kept())
        flow = flow.either(handled)
    scope.put_back(after)
    if not node.finalbody:
        return flow
    return _finally(i, node, scope, replace(flow, raised=flow.whole()), before)


def _finally(i: Python, node: ast.Try, scope: AbstractScope, flow: WaysOut, before: State) -> WaysOut:
    """What is done on each way out."""
    kept = scope.kept()
    scope.put_back({var: FOREIGN if var in _written(i, node) else value for var, value in before.items()})
    final = i.block(node.finalbody, scope)
    changed = {var: value for var, value in scope.kept().items() if var in _written(i, node, node.finalbody)}
    scope.put_back({**kept, **changed})
    done = final.whole()
    return flow.mapped(lambda each: each.then(done))


def _written(i: Python, node: ast.Try, part: Sequence[ast.AST] | None = None) -> set[Var]:
    variables: set[Var] = set()
    for each in own_nodes([node] if part is None else part, []):
        var = i.text.variables.get(each)
        if var is not None and not (isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)):
            variables.add(var)
    return variables


STATEMENTS: Mapping[type[ast.stmt], Statement] = MappingProxyType(
    {
        ast.AnnAssign: _annotated,
        ast.Assert: _assert,
        ast.Assign: _assign,
        ast.AsyncFunctionDef: _function,
        ast.AugAssign: _augmented,
        ast.Break: _break,
        ast.ClassDef: _nothing,
        ast.Continue: _continue,
        ast.Delete: _delete,
        ast.Expr: _expression,
        ast.For: for_,
        ast.FunctionDef: _function,
        ast.Global: _nothing,
        ast.If: _if,
        ast.Import: _nothing,
        ast.ImportFrom: _nothing,
        ast.Nonlocal: _nothing,
        ast.Pass: _nothing,
        ast.Raise: _raise,
        ast.Return: _return,
        ast.Try: _try,
        ast.While: while_,
    }
)
"""The analysis of statements, by kind."""
