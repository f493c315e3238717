"""Abstract interpretation of the operations of the runtime, and of primitives that call procedures."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from agentflow.lang import ir
from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.flow import defined_name
from agentflow.lang.bounds.inner import text_of
from agentflow.lang.bounds.interpret import Higher, Interpreter, Operator, Outcome
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.primitives import like, shortest
from agentflow.lang.bounds.scopes import AbstractClosure, AbstractScope, position
from agentflow.lang.bounds.values import DATA, FOREIGN, NEVER, NIL, Value, joined, number, sequence, text
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.syntax import Node


def _branches(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    listed = node.args[0]
    assert isinstance(listed, ir.ThunkList)
    values: list[Value] = []
    cost = FREE
    i.beside += 1
    for item in listed.items:
        value, more = i.follow(item, scope)
        values.append(value)
        cost = cost.then(more, beside=True)
    i.beside -= 1
    whole = joined(values)
    return (whole if node.op == "race" else sequence(len(values), whole)), cost


def _pmap(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    (procedure, listed, *limit), cost = i.in_order(node.args, scope)
    count = shortest([listed])
    wide = count if count is not None else None
    if limit and limit[0].high is not None and limit[0].high.number:
        most = limit[0].high.number
        wide = Bound.of(min(most, wide.number)) if wide is not None and wide.number is not None else Bound.of(most)
    if listed.never or procedure.never:
        return NEVER, cost
    i.beside += 1
    value, more = i.each(procedure, [listed.element()], count, node.at, wide if wide is not None else ONE)
    i.beside -= 1
    return like(listed, listed.elements, value), cost.then(more)


def _branches_on(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    procedures, cost = i.in_order(node.args, scope)
    values: list[Value] = []
    together = FREE
    i.beside += 1
    for procedure in procedures:
        value, more = i.call(procedure, [], node.at)
        values.append(value)
        together = together.then(more, beside=True)
    i.beside -= 1
    whole = joined(values)
    return (whole if node.op == "race-on" else sequence(len(values), whole)), cost.then(together)


def _timeout(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    return values[-1], cost


def _retry(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    tries, cost = i.follow(node.args[0], scope)
    value, body = i.follow(node.args[1], scope)
    if tries.high is None:
        return value, cost.then(i.loose(node.at, "how often 'retry' tries is not known", body))
    return value, cost.then(body.times(tries.high.join(ONE)))


def _raise(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    return NEVER, i.in_order(node.args, scope)[1]


def _define_task(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    _, cost = i.in_order(node.args, scope)
    return text(defined_name(node)), cost


def _eval_program(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    (_, program, *values), cost = i.in_order(node.args, scope)
    text = text_of(node.args[1], program)
    options = dict(zip(node.constants[1], values, strict=True))
    bindings = options["bindings"].fields if "bindings" in options else dict[str, Value]()
    if i.programs is None or text is None or bindings is None:
        return FOREIGN, cost.then(_written(i, node, "'eval-program' runs a program that is not known before it runs"))
    inner = i.programs.text(text, frozenset(node.constants[0]), frozenset(bindings), i.visits)
    return FOREIGN, cost.then(i.program(inner, "the program of 'eval-program'", bindings, node.at))


def _solve(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    (_, _, *values), cost = i.in_order(node.args, scope)
    reason = "'solve' runs a program that a model is yet to write"
    options = dict(zip(node.constants[1], values, strict=True))
    most = options.get("max-model-calls")
    if most is None or most.high is None:
        return FOREIGN, cost.then(_written(i, node, reason))
    if "inputs" in options and _has_lists(options["inputs"]):  # a program in Python may change them
        return FOREIGN, cost.then(i.changed("the program of 'solve'", [options["inputs"]], node.at))
    _reached(i, node)
    return FOREIGN, cost.then(i.effect("solve", "solve", node.at)[1].times(most.high))


def _has_lists(inputs: Value) -> bool:
    """Whether there may be a list or a dict among the inputs of a program."""
    parts = inputs.fields
    return parts is None or any(each.high is None and each.texts in (None, frozenset()) for each in parts.values())


def _reached(i: Interpreter, node: ir.RuntimeCall) -> None:
    """Note what a program may call that is granted names, without what was said of how often."""
    noted = i.reach.noted()
    for name in node.constants[0]:
        i.named(name, node.at)
    i.reach.forget(noted)


def _written(i: Interpreter, node: ir.RuntimeCall, reason: str) -> Cost:
    for name in node.constants[0]:
        i.named(name, node.at)
    return i.anything(node.at, reason)


def _director(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    clauses = dict(zip(node.constants[0], values, strict=True))
    turn = number(1, None, whole=True)
    plan, planned = i.call(clauses["director"], [FOREIGN, turn], node.at)
    result, executed = i.call(clauses["executor"], [plan, turn], node.at)
    judged, evaluated = i.call(clauses["evaluator"], [result, plan, turn], node.at)
    decided, controlled = i.call(clauses["controller"], [judged, plan, result, turn], node.at)
    rounds = planned.then(executed).then(evaluated).then(controlled)
    most = clauses["max-iterations"].high
    value = joined([result, decided.element()])
    if most is None:
        return value, cost.then(i.loose(node.at, "the number of iterations is not known", rounds))
    return value, cost.then(rounds.times(most))


# -- primitives that call procedures ------------------------------------------------------------------------------


def _map(i: Interpreter, arguments: list[Value], at: Node) -> Outcome:
    procedure, *lists = arguments
    count = shortest(lists)
    value, cost = i.each(procedure, [each.element() for each in lists], count, at)
    return like(lists[0], count, value), cost


def _for_each(i: Interpreter, arguments: list[Value], at: Node) -> Outcome:
    return NIL, _map(i, arguments, at)[1]


def _filter(i: Interpreter, arguments: list[Value], at: Node) -> Outcome:
    procedure, listed = arguments
    cost = i.each(procedure, [listed.element()], shortest([listed]), at)[1]
    return like(listed, listed.elements, joined([]) if listed.size == ZERO else listed.element()), cost


def _reduce(i: Interpreter, arguments: list[Value], at: Node) -> Outcome:
    procedure, listed = arguments[0], arguments[-1]
    element = listed.element()
    total = arguments[1] if len(arguments) == 3 else element
    count = shortest([listed])
    notes = i.reach.noted()
    for _ in range(2):
        value, _ = i.each(procedure, [total, element], count, at)
        total = _widened(total, value)
    i.reach.forget(notes)
    value, cost = i.each(procedure, [total, element], count, at)
    if _widened(total, value) != total:
        total = FOREIGN
        value, cost = i.each(procedure, [total, element], count, at)
    return total.join(value), cost


def _widened(before: Value, value: Value) -> Value:
    """The widening of both: their join without sizes that grow from one to the other."""
    after = before.join(value)
    if after == before:
        return before
    return after.plain().but(item=FOREIGN if after.holds_procedures else DATA)


def _apply(i: Interpreter, arguments: list[Value], at: Node) -> Outcome:
    procedure, *first, last = arguments
    number_of = last.size.number if last.size is not None else None
    outcomes: list[Outcome] = []
    value, cost = NEVER, FREE
    for each in sorted(procedure.procedures, key=position):
        least, most = _arity(each)
        most_given = most if most is not None else len(first) + int(number_of or 0)
        counts = range(max(least, len(first)), max(most_given, len(first), least) + 1)
        if most is None and number_of is None:
            counts = range(max(least, len(first)), max(least, len(first)) + 1)
        for count in list(counts)[:8]:
            operator = Value(procedures=frozenset({each}))
            outcomes.append(i.call(operator, [*first, *[last.element()] * (count - len(first))], at))
        if most is None:
            outcomes.append((FOREIGN if _hold_procedures(*arguments) else DATA, FREE))
    rest = procedure.but(procedures=frozenset[Any]())
    if rest.foreign or rest.texts is None or rest.texts:
        outcomes.append(i.call(rest, [FOREIGN], at))
    for each, more in outcomes:
        value, cost = value.join(each), cost.otherwise(more)
    return value, cost


def _hold_procedures(*values: Value) -> bool:
    return any(each.holds_procedures for each in values)


def _arity(procedure: Any) -> tuple[int, int | None]:
    if isinstance(procedure, Primitive):
        return procedure.arity
    code = cast(AbstractClosure, procedure).code
    return len(code.params), None if code.rest is not None else len(code.params)


def _sort(i: Interpreter, arguments: list[Value], at: Node) -> Outcome:
    listed = arguments[0]
    result = like(listed, listed.elements, joined([]) if listed.size == ZERO else listed.element())
    if len(arguments) == 1:
        return result, FREE
    length = shortest([listed])
    count = None if length is None else length * length
    element = listed.element()
    return result, i.each(arguments[1], [element, element], count, at)[1]


HIGHER: Mapping[str, Higher] = MappingProxyType(
    {
        "apply": _apply,
        "filter": _filter,
        "for-each": _for_each,
        "map": _map,
        "reduce": _reduce,
        "sort": _sort,
    }
)
"""The analysis of primitives that call procedures, by name."""
OPERATIONS: Mapping[str, Operator] = MappingProxyType(
    {
        "define-task": _define_task,
        "director-loop": _director,
        "error": _raise,
        "eval-program": _eval_program,
        "parallel": _branches,
        "parallel-on": _branches_on,
        "pmap": _pmap,
        "pmap-on": _pmap,
        "race": _branches,
        "race-on": _branches_on,
        "raise": _raise,
        "retry": _retry,
        "solve": _solve,
        "timeout": _timeout,
    }
)
"""The analysis of operations, by name."""
