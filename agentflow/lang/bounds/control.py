"""Choices, loops and errors of a program, followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agentflow.core.data.source import Span
from agentflow.lang.bounds.containers import element_of
from agentflow.lang.bounds.cost import FREE, Cost, in_sequence
from agentflow.lang.bounds.facts import assigned_by, own_nodes
from agentflow.lang.bounds.guards import GuardFact, marked, rounds, step_of
from agentflow.lang.bounds.interpret import Interpreter, both
from agentflow.lang.bounds.polynomial import ONE, Bound
from agentflow.lang.bounds.tables import NONE, Outcome, State, value_of, ways_of
from agentflow.lang.bounds.values import FOREIGN, NEVER, NIL, PLAIN, AbstractClosure, AbstractScope, Value, widened
from agentflow.lang.bounds.ways import WaysOut, either
from agentflow.lang.kernel import nodes, text_nodes, walking
from agentflow.lang.kernel.nodes import Const, Lambda, Node, Prim, Ref, Set, Variable

# -- sequences and choices ----------------------------------------------------------------------------------------


@ways_of(nodes.Seq)
def _seq(i: Interpreter, node: nodes.Seq, scope: AbstractScope) -> WaysOut:
    """Nodes in sequence. After a test that leaves early, its negation holds for the nodes behind it."""
    if node.frame is not None or node.variables:
        scope = AbstractScope(scope)
        for variable in node.variables:
            scope.bind(variable, NEVER)
    flow: WaysOut | None = None
    before: list[Cost] = []
    guards = len(i.guards)
    never, last = False, NIL
    for each in node.items:
        one = i.ways(each, scope)
        last = one.result
        never = never or last.never
        if one.falls is not None and one.only_falls:
            before.append(one.falls)
            continue
        one = one.after(in_sequence(before))
        flow = (one if flow is None else flow.either(one)).but_falling(None)
        if one.falls is None:
            del i.guards[guards:]
            return flow
        before = [one.falls]
    del i.guards[guards:]
    falls, last = in_sequence(before), NEVER if never else last
    return WaysOut(falls=falls, result=last) if flow is None else flow.but_falling(falls, last)


@ways_of(Set)
def _assign(i: Interpreter, node: Set, scope: AbstractScope) -> WaysOut:
    value, cost = i.follow(node.value, scope)
    if node.how != "set":  # a variable that set! changes has any value
        i.assign(node.variable, value, scope)
    return WaysOut(falls=cost, result=value)


@ways_of(nodes.If)
def _if(i: Interpreter, node: nodes.If, scope: AbstractScope) -> WaysOut:
    count = len(i.guards)
    before, flow = FREE, WaysOut()
    falling: list[tuple[State, list[GuardFact]]] = []
    facts: list[GuardFact] = []
    arms: list[tuple[Node | None, Node]] = [*node.clauses, (None, node.other)]
    for test, arm in arms:
        if_true: list[GuardFact] = []
        if_false: list[GuardFact] = []
        if test is not None:
            before = before.then(i.follow(test, scope)[1])
            if_true, if_false = i.guards_in(test, scope)
        state = i.kept(scope)
        way = i.told(if_true, arm, scope)
        if way.falls is not None:
            falling.append((i.kept(scope), [*facts, *if_true]))
        flow = flow.either(way.after(before))
        i.put_back(scope, state)
        facts += if_false
        i.guards.extend(if_false)
    del i.guards[count:]
    if falling:
        whole = falling[0][0]
        for state, _ in falling[1:]:
            whole = both(whole, state)
        i.put_back(scope, whole)
    if len(falling) == 1:
        i.guards.extend(falling[0][1])
    return flow


@value_of(nodes.Logic)
def _logic(i: Interpreter, node: nodes.Logic, scope: AbstractScope) -> Outcome:
    count = len(i.guards)
    value, cost, before = NEVER if i.python else PLAIN, None, FREE
    for item in node.items:
        result, more = i.follow(item, scope)
        value, before = value.join(result), before.then(more)
        cost = either(cost, before)
        guards = i.guards_in(item, scope)
        i.guards.extend(guards[0] if node.every else guards[1])
    del i.guards[count:]
    return value, FREE if cost is None else cost


@ways_of(text_nodes.Leave)
def _leave(i: Interpreter, node: text_nodes.Leave, scope: AbstractScope) -> WaysOut:
    if node.how == "break":
        return WaysOut(broke=FREE)
    if node.how == "continue":
        return WaysOut(again=FREE)
    if node.value is None or (isinstance(node.value, Const) and node.value.value is None):
        return WaysOut(left=FREE, value=NONE)
    value, cost = i.follow(node.value, scope)
    return WaysOut(left=cost, value=value)


@ways_of(text_nodes.Raise)
def _raise(i: Interpreter, node: text_nodes.Raise, scope: AbstractScope) -> WaysOut:
    return WaysOut(raised=FREE if node.value is None else i.follow(node.value, scope)[1])


@value_of(text_nodes.Del)
def _delete(i: Interpreter, node: text_nodes.Del, scope: AbstractScope) -> Outcome:
    return NONE, FREE


# -- loops --------------------------------------------------------------------------------------------------------

_PASSES = 4
_ROUND = 4
"""The visits charged per round for joining its variables with those of the other rounds."""
_Loop = nodes.For | nodes.While


@dataclass(slots=True)
class _LoopRound:
    """A loop, followed until its variables cover those of any round; ``flow`` is that of one round."""

    flow: WaysOut
    state: State
    seen: State


def _settled(
    i: Interpreter, node: _Loop, scope: AbstractScope, steady: Mapping[Variable, Value], item: Value = NEVER
) -> _LoopRound:
    """Follow the body of a loop with the variables of any round; ``steady`` are those with a known value."""
    before = i.kept(scope)
    changing = i.facts.written(node).keys() & before.keys() if before else frozenset[Variable]()
    seen: State = {}
    if changing - steady.keys():
        noted = i.reach.noted()
        _, seen = _round(i, node, scope, {**before, **steady}, item)
        i.reach.forget(noted)
    state = {**_loop_values(before, seen), **steady}
    for number in range(_PASSES):
        noted = i.reach.noted()
        flow, end = _round(i, node, scope, state, item)
        seen = {each: seen.get(each, NEVER).join(value) for each, value in {**seen, **end}.items()}
        wider = {
            each: FOREIGN if number else widened(state[each], value)
            for each, value in end.items()
            if each in before and each not in steady and _more(state[each], value)
        }
        if wider and number == _PASSES - 2:
            wider = {each: FOREIGN for each in changing if each not in steady}
        if not wider:
            return _LoopRound(flow, state, {**seen, **end})
        i.reach.forget(noted)
        state |= wider
    raise AssertionError("a value of unknown type stays unknown")


def _more(before: Value, value: Value) -> bool:
    """Whether ``before`` does not cover a value."""
    return before is not FOREIGN and before.join(value) != before


def _loop_values(before: State, seen: Mapping[Variable, Value]) -> State:
    """The variables of a scope in any round of a loop, from their values before it and the values it assigns."""
    state = dict(before)
    for each, value in seen.items():
        if each in before:
            state[each] = widened(before[each], value)
    return state


def _round(
    i: Interpreter, node: _Loop, scope: AbstractScope, state: Mapping[Variable, Value], item: Value
) -> tuple[WaysOut, State]:
    if i.python:
        i.visit(_ROUND)
    i.put_back(scope, state)
    with i.recorded() as seen:
        if isinstance(node, nodes.For):
            if node.item is not None:
                i.assign(node.item, item, scope)
            flow = i.told((), node.body, scope)
        else:
            cost = i.follow(node.test, scope)[1]
            flow = i.told(_holding(i, node, scope), node.body, scope).after(cost)
    return flow, seen


def _holding(i: Interpreter, node: nodes.While, scope: AbstractScope) -> Sequence[GuardFact]:
    """The facts that hold in each round of a loop by its own test."""
    return i.guards_in(node.test, scope)[0 if node.sense else 1]


def _after(i: Interpreter, node: _Loop, scope: AbstractScope, one: _LoopRound, before: State, cost: Cost) -> WaysOut:
    """The ways out of a loop with the total cost ``cost`` of all rounds."""
    after = {each: value.join(one.seen.get(each, NEVER)) for each, value in before.items()}
    i.put_back(scope, after)
    flow = one.flow
    left = None if flow.left is None else cost
    raised = None if flow.raised is None else cost
    whole = WaysOut(falls=cost, left=left, raised=raised, value=flow.value, result=flow.result.join(NIL))
    if node.other is None:
        return whole
    other = i.told((), node.other, scope).after(cost)
    if flow.broke is None:
        return whole.but_falling(None).either(other)
    i.put_back(scope, both(i.kept(scope), after))
    return whole.either(other)


@ways_of(nodes.For)
def _for(i: Interpreter, node: nodes.For, scope: AbstractScope) -> WaysOut:
    listed, cost = i.follow(node.over, scope)
    count = listed.high if node.counts else i.iterations(listed)
    if not node.counts and (listed.never or (count is not None and count.number == 0)):
        other = WaysOut(falls=FREE, result=NIL) if node.other is None else i.told((), node.other, scope)
        return other.after(cost)
    before = i.kept(scope)
    one = _settled(i, node, scope, _begun_with(i, node, before), NEVER if node.counts else element_of(listed))
    reason = "the number of repetitions of 'loop' is unknown" if node.counts else None
    total = repeated(i, node.at if node.counts else over_at(i, node.over), one.flow.whole(), count, reason)
    return _after(i, node, scope, one, before, total).after(cost)


def over_at(i: Interpreter, over: Node) -> Span | None:
    """The place of the iterable of a loop."""
    if isinstance(over, Prim) and over.function in i.tables.passing:
        return over.args[0].at
    return over.at


def repeated(i: Interpreter, at: Span | None, cost: Cost, count: Bound | None, reason: str | None = None) -> Cost:
    """A cost that occurs ``count`` times (None: unknown how often)."""
    if count is None or count.terms is None:
        return i.loose(at, reason or "how often this is done depends on a length that is not known", cost)
    return cost.times(count)


def _begun_with(i: Interpreter, node: nodes.For, before: State) -> State:
    """The variables that each round binds first and nothing else binds: their values before a round do not matter."""
    if not before:
        return {}
    written = i.facts.written(node)
    targets = [] if node.item is None else [node.item]
    for each in node.body.items if isinstance(node.body, nodes.Seq) else ():
        if not isinstance(each, Set):
            break
        targets.append(each.variable)
    variables = [i.facts.variable(each) for each in targets]
    return {each: before[each] for each in variables if each in before and written.get(each) == 1}


@ways_of(nodes.While)
def _while(i: Interpreter, node: nodes.While, scope: AbstractScope) -> WaysOut:
    before = i.kept(scope)
    never_ends = isinstance(node.test, Const) and bool(node.test.value) == node.sense
    counted = _counted(i, node, scope, before) or _drained(i, node, scope)
    around = scope
    if counted is not None:
        count, one, around = counted
        total = one.flow.whole().times(count)
    else:
        one = _settled(i, node, scope, {})
        total = i.loose(node.at, "'while' has no bound: its test has no counter", one.flow.whole())
    i.put_back(scope, one.state)
    total = total.then(i.follow(node.test, around)[1])
    flow = _after(i, node, scope, one, before, total)
    if never_ends and one.flow.broke is None and i.python:
        return replace(flow, falls=None, raised=either(flow.raised, flow.falls))
    return flow


def _counted(
    i: Interpreter, node: nodes.While, scope: AbstractScope, before: State
) -> tuple[Bound, _LoopRound, AbstractScope] | None:
    """The most rounds of a loop with a counter, its round, and the scope in which that was followed; None without one."""
    for counter, step in _counters(i, node):
        initial = i.initial(counter, scope) if counter.is_unsteady else before.get(counter, NEVER)
        parameter = (i.next_number(), 0)
        value = marked(initial, parameter, step)
        around = scope.with_value(counter, value) if counter.is_unsteady else scope
        noted, kept = i.reach.noted(), i.kept(scope)
        one = _settled(i, node, around, {} if counter.is_unsteady else {counter: value})
        i.put_back(around, one.state)
        bounds: list[Bound] = []
        for at, guards in enumerate(_tests(i, node, around)):
            count = rounds(guards, parameter, initial, step)
            if count is not None:
                bounds.append(count + ONE if at else count)
        if bounds:
            return next((each for each in bounds if each.number is not None), bounds[0]), one, around
        i.reach.forget(noted)
        i.put_back(scope, kept)
    return None


def _tests(i: Interpreter, node: nodes.While, scope: AbstractScope) -> Iterator[Sequence[GuardFact]]:
    """The facts that hold in each round but the last: the loop's own test first, then tests in it that leave it."""
    yield _holding(i, node, scope)
    for each in _steps_of(node.body):
        if _leaves_early(each):
            return
        if isinstance(each, nodes.If) and len(each.clauses) == 1 and _leaves(each.clauses[0][1]):
            yield i.guards_in(each.clauses[0][0], scope)[1]


def _steps_of(body: Node) -> Iterator[Node]:
    """The nodes of a sequence, and of sequences in it: each is reached once if the whole completes."""
    pending = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, nodes.Seq):
            pending.extend(reversed(node.items))
        else:
            yield node


def _leaves(node: Node) -> bool:
    """Whether a part leaves the loop around it at its end."""
    last: Node | None = None
    for each in _steps_of(node):
        last = last if isinstance(each, Const) else each
    return isinstance(last, text_nodes.Raise | text_nodes.Leave) and getattr(last, "how", "") != "continue"


def _counters(i: Interpreter, node: nodes.While) -> Iterator[tuple[Variable, int]]:
    """The variables that every completed round changes exactly once, by the same number."""
    written = i.facts.written(node)
    for each in _steps_of(node.body):
        step = step_of(each, i.tables.signs, i.facts.variable)
        if step is not None and written.get(step[0]) == 1:
            counter, _ = step
            alone = len(i.facts.setters(counter)) == 1 and i.facts.defined(counter) <= 1
            if alone if counter.is_unsteady else i.python:
                yield step
        if _leaves_early(each):
            return


def _leaves_early(node: Node) -> bool:
    """Whether a part may begin the next round of the loop around it."""
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, text_nodes.Leave) and each.how == "continue":
            return True
        if isinstance(each, nodes.For | nodes.While):
            pending.extend([] if each.other is None else [each.other])
        elif isinstance(each, nodes.If | nodes.Seq | nodes.Try):
            pending.extend(walking.parts(each))
    return False


def _drained(i: Interpreter, node: nodes.While, scope: AbstractScope) -> tuple[Bound, _LoopRound, AbstractScope] | None:
    """The most rounds of a loop that removes an element of one list or dict in each round; None for any other loop.

    For a list that also grows, its initial length and all growth count.
    """
    changing = i.facts.written(node).keys()
    for each in _steps_of(node.body):
        if _leaves_early(each):
            return None
        taken = _taken_from(i, each)
        variable = None if taken is None else i.facts.variable(taken.variable)
        if taken is None or (variable is not None and (variable in changing or variable.is_unsteady)):
            continue
        value = i.follow(taken, scope)[0]
        length = value.length
        if value.sites is None or length is None or length.terms is None:
            continue
        tested = isinstance(node.test, Ref) and node.test.variable == taken.variable
        return length if tested else length + ONE, _settled(i, node, scope, {}), scope
    return None


def _taken_from(i: Interpreter, node: Node) -> Ref | None:
    """The variable with the list or dict that a node removes one element from, unless it fails."""
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, Prim) and i.tables.takes_one(each) and isinstance(each.args[0], Ref):
            return each.args[0]
        if isinstance(each, Prim | Set | nodes.Call | text_nodes.Effect | nodes.Perform):
            pending.extend(walking.parts(each))
    return None


@value_of(nodes.NamedLet)
def _named_let(i: Interpreter, node: nodes.NamedLet, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.inits, scope)
    code = i.loops.get(node)
    if code is None:
        code = Lambda(
            node.at, cast(Any, None), node.params, [None] * len(node.params), cast(Any, node.frame), node.body
        )
        i.loops[node] = code
    outer = AbstractScope(scope)

    def body(bound: list[Value]) -> Outcome:
        inner = AbstractScope(outer)
        for variable, value in zip(node.params, bound, strict=True):
            inner.bind(variable, value)
        return i.follow(node.body, inner)

    value, more = i.repeated(node.at, AbstractClosure(code, outer), values, node.name, body)
    return value, cost.then(more)


@value_of(nodes.Again)
def _again(i: Interpreter, node: nodes.Again, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    value, more = i.next_round(i.loops[node.loop], values)
    return value, cost.then(more)


# -- errors -------------------------------------------------------------------------------------------------------


@ways_of(nodes.Try)
def _try(i: Interpreter, node: nodes.Try, scope: AbstractScope) -> WaysOut:
    before = i.kept(scope)
    with i.recorded() as seen:
        body = i.told((), node.body, scope)
    any_cost = body.whole()
    flow = body
    if body.falls is not None and node.other is not None:
        flow = body.but_falling(None).either(i.told((), node.other, scope).after(body.falls))
    after = i.kept(scope)
    inside = {each: value.join(seen.get(each, NEVER)) for each, value in before.items()}
    if node.handlers:
        flow = replace(flow, raised=any_cost)
    for _, variable, handler in node.handlers:
        i.put_back(scope, inside)
        if variable is not None:
            i.assign(variable, FOREIGN, scope)
        handled = i.told((), handler, scope).after(any_cost)
        if handled.falls is not None:
            after = both(after, i.kept(scope))
        flow = flow.either(handled)
    i.put_back(scope, after)
    if node.final is not None:
        flow = _finally(i, node, scope, replace(flow, raised=flow.whole()), before)
    return flow if i.python else WaysOut(falls=flow.whole(), result=flow.result)


def _finally(i: Interpreter, node: nodes.Try, scope: AbstractScope, flow: WaysOut, before: State) -> WaysOut:
    """Add the cost of the ``finally`` block to each way out."""
    assert node.final is not None
    kept = i.kept(scope)
    written = _written(i, node)
    i.put_back(scope, {each: FOREIGN if each in written else value for each, value in before.items()})
    done = i.told((), node.final.body, scope).whole()
    changed = _written(i, node.final)
    i.put_back(scope, {**kept, **{each: value for each, value in i.kept(scope).items() if each in changed}})
    return flow.mapped(lambda each: each.then(done))


def _written(i: Interpreter, part: Node) -> set[Variable | None]:
    return {i.facts.variable(target) for node in own_nodes(part) for target in assigned_by(node)}
