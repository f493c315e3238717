"""Abstract interpretation of the statements of a text in Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from agentflow.lang.bounds.cost import FREE, Cost, in_sequence
from agentflow.lang.bounds.guards import GuardFact, marked, rounds
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
    either,
    loop_values,
    widened,
)
from agentflow.lang.bounds.values import FOREIGN, NEVER, AbstractClosure, AbstractScope, Value
from agentflow.lang.ir import Var
from agentflow.lang.python.names import own_nodes

_PASSES = 4
_ROUND = 4
"""The visits charged per round for joining its variables with those of the other rounds."""


@dataclass(slots=True)
class _LoopRound:
    """A loop, followed until its variables cover those of any round; ``flow`` is that of one round."""

    flow: WaysOut
    state: State
    seen: State


def _settled(i: Python, node: ast.For | ast.While, scope: AbstractScope, steady: Mapping[Var, Value]) -> _LoopRound:
    """Follow the body of a loop with the variables of any round; ``steady`` are those with a known value."""
    before = scope.kept()
    changing = i.text.written(node).keys()
    seen: State = {}
    if changing - steady.keys():
        noted = i.reach.noted()
        _, seen = _round(i, node, scope, {**before, **steady})
        i.reach.forget(noted)
    state = {**loop_values(before, seen), **steady}
    for number in range(_PASSES):
        noted = i.reach.noted()
        flow, end = _round(i, node, scope, state)
        seen = {var: seen.get(var, NEVER).join(value) for var, value in {**seen, **end}.items()}
        wider = {
            var: FOREIGN if number else widened(state[var], state[var].join(value))
            for var, value in end.items()
            if var in before and var not in steady and _more(state[var], value)
        }
        if wider and number == _PASSES - 2:
            wider = {var: FOREIGN for var in changing if var in before and var not in steady}
        if not wider:
            return _LoopRound(flow, state, {**seen, **end})
        i.reach.forget(noted)
        state |= wider
    raise AssertionError("a value of unknown type stays unknown")


def _more(before: Value, value: Value) -> bool:
    """Whether ``before`` does not cover a value."""
    return before is not FOREIGN and before.join(value) != before


def _round(
    i: Python, node: ast.For | ast.While, scope: AbstractScope, state: Mapping[Var, Value]
) -> tuple[WaysOut, State]:
    i.visit(_ROUND)
    scope.put_back(state)
    with i.recorded() as seen:
        if isinstance(node, ast.For):
            cost = assign_to(i, node.target, i.items[node], scope)
            flow = i.block(node.body, scope).after(cost)
        else:
            cost = i.value(node.test, scope)[1]
            with i.told(i.guards_in(node.test, scope)[0]):
                flow = i.block(node.body, scope).after(cost)
    return flow, seen


def _after(
    i: Python, node: ast.For | ast.While, scope: AbstractScope, one: _LoopRound, before: State, cost: Cost
) -> WaysOut:
    """The ways out of a loop with the total cost ``cost`` of all rounds."""
    after = {var: value.join(one.seen.get(var, NEVER)) for var, value in before.items()}
    scope.put_back(after)
    flow = one.flow
    left = None if flow.left is None else cost
    raised = None if flow.raised is None else cost
    whole = WaysOut(falls=cost, left=left, raised=raised, value=flow.value)
    if not node.orelse:
        return whole
    other = i.block(node.orelse, scope).after(cost)
    if flow.broke is None:
        return whole.but_falling(None).either(other)
    scope.put_back(both(scope.kept(), after))
    return whole.either(other)


def for_(i: Python, node: ast.For, scope: AbstractScope) -> WaysOut:
    listed, cost = i.value(node.iter, scope)
    count = iterations(i, listed)
    if listed.never or (count is not None and count.number == 0):
        other = i.block(node.orelse, scope) if node.orelse else WaysOut(falls=FREE)
        return other.after(cost)
    i.items[node] = element_of(i, listed)
    before = scope.kept()
    one = _settled(i, node, scope, _begun_with(i, node, before))
    each = one.flow.whole()
    if count is None or count.terms is None:
        reason = "how often this is done depends on a length that is not known"
        total = i.loose(i.at(node.iter), reason, each)
    else:
        total = each.times(count)
    return _after(i, node, scope, one, before, total).after(cost)


def _begun_with(i: Python, node: ast.For, before: State) -> State:
    """The variables that each round binds first and nothing else binds: their values before a round do not matter."""
    written = i.text.written(node)
    names = (i.text.variables.get(each) for each in ast.walk(node.target) if isinstance(each, ast.Name))
    return {var: before[var] for var in names if var in before and written.get(var) == 1}


def while_(i: Python, node: ast.While, scope: AbstractScope) -> WaysOut:
    before = scope.kept()
    never_ends = isinstance(node.test, ast.Constant) and bool(node.test.value)
    counted = _counted(i, node, scope, before) or _drained(i, node, scope)
    if counted is not None:
        count, one = counted
        total = one.flow.whole().times(count)
    else:
        one = _settled(i, node, scope, {})
        reason = "'while' has no bound: its test has no counter"
        total = i.loose(i.at(node), reason, one.flow.whole())
    scope.put_back(one.state)
    total = total.then(i.value(node.test, scope)[1])
    flow = _after(i, node, scope, one, before, total)
    if never_ends and one.flow.broke is None:
        return replace(flow, falls=None, raised=either(flow.raised, flow.falls))
    return flow


def _counted(i: Python, node: ast.While, scope: AbstractScope, before: State) -> tuple[Bound, _LoopRound] | None:
    """The most rounds of a loop with a counter, and its round; None without one."""
    for var, step in _counters(i, node):
        initial = before.get(var, NEVER)
        parameter = (i.next_number(), 0)
        steady = {var: marked(initial, parameter, step)}
        noted, kept = i.reach.noted(), scope.kept()
        one = _settled(i, node, scope, steady)
        scope.put_back(one.state)
        bounds: list[Bound] = []
        for at, guards in enumerate(_tests(i, node, scope)):
            count = rounds(guards, parameter, initial, step)
            if count is not None:
                bounds.append(count + ONE if at else count)
        if bounds:
            return next((each for each in bounds if each.number is not None), bounds[0]), one
        i.reach.forget(noted)
        scope.put_back(kept)
    return None


def _tests(i: Python, node: ast.While, scope: AbstractScope) -> Iterator[Sequence[GuardFact]]:
    """The facts that hold in each round but the last: the loop's own test first, then tests in it that leave it."""
    yield i.guards_in(node.test, scope)[0]
    for each in node.body:
        if _leaves_early(each):
            return
        if (
            isinstance(each, ast.If)
            and not each.orelse
            and isinstance(each.body[-1], ast.Break | ast.Return | ast.Raise)
        ):
            yield i.guards_in(each.test, scope)[1]


def _drained(i: Python, node: ast.While, scope: AbstractScope) -> tuple[Bound, _LoopRound] | None:
    """The most rounds of a loop that removes an element of one list or dict in each round; None for any other loop.

    For a list that also grows, its initial length and all growth count.
    """
    changing = i.text.written(node).keys()
    for each in node.body:
        if _leaves_early(each):
            return None
        name = _taken_from(each)
        var = None if name is None else i.text.variables.get(name)
        if name is None or (var is not None and (var in changing or var.mutated)):
            continue
        value = i.value(name, scope)[0]
        length = value.length
        if value.sites is None or length is None or length.terms is None:
            continue
        test = node.test
        tested = isinstance(test, ast.Name) and test.id == name.id
        return length if tested else length + ONE, _settled(i, node, scope, {})
    return None


def _taken_from(node: ast.stmt) -> ast.Name | None:
    """The variable with the list or dict that a statement removes one element from, unless it fails."""
    if isinstance(node, ast.Delete) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        whole = node.targets[0].value
        return whole if isinstance(whole, ast.Name) else None
    if not isinstance(node, ast.Assign | ast.Expr | ast.AugAssign):
        return None
    for each in _surely(node.value):
        function = each.func if isinstance(each, ast.Call) and len(each.args) + len(each.keywords) <= 1 else None
        if isinstance(function, ast.Attribute) and function.attr == "pop" and isinstance(function.value, ast.Name):
            return function.value
    return None


def _surely(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression that are always evaluated if it completes."""
    pending: list[ast.AST] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.expr):
            yield each
        if isinstance(each, _WHOLE):
            pending.extend(ast.iter_child_nodes(each))


_WHOLE = (
    ast.Attribute,
    ast.Await,
    ast.BinOp,
    ast.Call,
    ast.Dict,
    ast.FormattedValue,
    ast.JoinedStr,
    ast.List,
    ast.Subscript,
    ast.Tuple,
    ast.keyword,
)


def _counters(i: Python, node: ast.While) -> Iterator[tuple[Var, int]]:
    """The variables that every completed round changes exactly once, by the same number."""
    written = i.text.written(node)
    for each in node.body:
        step = _step(i, each)
        if step is not None and not step[0].mutated and written.get(step[0]) == 1:
            yield step
        if _leaves_early(each):
            return


def _leaves_early(node: ast.stmt) -> bool:
    """Whether a statement may begin the next round."""
    pending: list[ast.AST] = [node]
    while pending:
        at = pending.pop()
        if isinstance(at, ast.Continue):
            return True
        if isinstance(at, ast.For | ast.While):
            pending.extend(at.orelse)
        elif not isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            pending.extend(ast.iter_child_nodes(at))
    return False


def _step(i: Python, node: ast.stmt) -> tuple[Var, int] | None:
    """The variable that a statement changes by a number, and the number."""
    if isinstance(node, ast.AugAssign):
        target, op, by = node.target, node.op, node.value
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        target, op, by = node.targets[0], node.value.op, node.value.right
        left = node.value.left
        if not (isinstance(left, ast.Name) and isinstance(target, ast.Name) and left.id == target.id):
            return None
    else:
        return None
    var = i.text.variables.get(target)
    value: Any = by.value if isinstance(by, ast.Constant) else None
    if var is None or type(value) is not int or not value or not isinstance(op, ast.Add | ast.Sub):
        return None
    return var, value if isinstance(op, ast.Add) else -value


def block(i: Python, node: Block, scope: AbstractScope) -> WaysOut:
    """Statements in sequence. After a test that leaves early, its negation holds for the statements behind it."""
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
    """The abstract value of ``before op= value``, which changes a list, set or dict itself, and the cost of its growth."""
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
    if isinstance(node, ast.Call) and i.text.meaning(node) is None:  # an error class is not a bound name
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
    """Add the cost of the ``finally`` block to each way out."""
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
