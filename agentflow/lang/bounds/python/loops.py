"""Abstract interpretation of the loops of a text in Python, and how often they go round."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.guards import GuardFact
from agentflow.lang.bounds.loops import marked, rounds
from agentflow.lang.bounds.polynomial import ONE, Bound
from agentflow.lang.bounds.python.expressions import assign_to, element_of, iterations
from agentflow.lang.bounds.python.interpret import Python, State, WaysOut, both, either, loop_values, widened
from agentflow.lang.bounds.scopes import AbstractScope
from agentflow.lang.bounds.values import FOREIGN, NEVER, Value
from agentflow.lang.ir import Var

_PASSES = 4
_ROUND = 4
"""What a round counts as besides what is visited in it, in visits: its variables are put together with those of the others."""


@dataclass(slots=True)
class _LoopRound:
    """A loop, followed until its variables cover those of any round; ``flow`` is that of one."""

    flow: WaysOut
    state: State
    seen: State


def _settled(i: Python, node: ast.For | ast.While, scope: AbstractScope, steady: Mapping[Var, Value]) -> _LoopRound:
    """Follow the body of a loop with the variables of any round; ``steady`` are those whose values are known."""
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
    raise AssertionError("what may be anything stays so")


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
    """The ways out of a loop whose rounds cost ``cost`` in all."""
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
    """The variables that each round begins by binding and nothing else binds: what they were before a round says nothing."""
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
        reason = "'while' has no bound: what it tests is not a counter"
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
    """What holds of a round that is not the last: the loop's own test first, then tests in it that leave it."""
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
    """The most rounds of a loop each of which takes an element out of one list or dict; None if none does.

    A list that also grows has as many elements as it begins with and as it ever gets.
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
    """The variable whose list or dict a statement takes one element out of, or fails."""
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
    """The parts of an expression that are evaluated whenever it completes."""
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
    """The variables that every round that completes changes once, by the same number."""
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
