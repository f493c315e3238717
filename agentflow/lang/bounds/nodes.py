"""Abstract interpretation of each kind of node of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from agentflow.lang import ir
from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.flow import defined_name
from agentflow.lang.bounds.guards import GuardFact, counters, guards_of, marked, rounds
from agentflow.lang.bounds.inner import text_of
from agentflow.lang.bounds.interpret import Higher, Interpreter, Operator, Outcome, Rule
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.primitives import like, shortest
from agentflow.lang.bounds.values import (
    DATA,
    FOREIGN,
    NEVER,
    NIL,
    PLAIN,
    AbstractClosure,
    AbstractScope,
    Value,
    constant,
    joined,
    position,
    sequence,
    text,
)
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.ir import IR, Lambda
from agentflow.lang.syntax import Node


def _branches(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    listed = node.args[0]
    assert isinstance(listed, ir.ThunkList)
    values, cost = i.together([partial(i.follow, item, scope) for item in listed.items])
    whole = joined(values)
    return (whole if node.op == "race" else sequence(len(values), whole)), cost


def _pmap(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    (procedure, listed, *limit), cost = i.in_order(node.args, scope)
    count = shortest([listed])
    if listed.never or procedure.never:
        return NEVER, cost
    value, more = i.mapped(procedure, listed.element(), count, limit[0] if limit else None, node.at)
    return like(listed, listed.elements, value), cost.then(more)


def _branches_on(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    procedures, cost = i.in_order(node.args, scope)
    values, together = i.together([partial(i.call, each, list[Value](), node.at) for each in procedures])
    whole = joined(values)
    return (whole if node.op == "race-on" else sequence(len(values), whole)), cost.then(together)


def _timeout(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    return values[-1], cost


def _retry(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    tries, cost = i.follow(node.args[0], scope)
    value, body = i.follow(node.args[1], scope)
    return value, cost.then(i.retried(tries, body, node.at))


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
    i.reached(node.constants[0], node.at)
    return FOREIGN, cost.then(i.effect("solve", "solve", node.at)[1].times(most.high))


def _has_lists(inputs: Value) -> bool:
    """Whether there may be a list or a dict among the inputs of a program."""
    parts = inputs.fields
    return parts is None or any(each.high is None and each.texts in (None, frozenset()) for each in parts.values())


def _written(i: Interpreter, node: ir.RuntimeCall, reason: str) -> Cost:
    for name in node.constants[0]:
        i.named(name, node.at)
    return i.anything(node.at, reason)


def _director(i: Interpreter, node: ir.RuntimeCall, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    clauses = dict(zip(node.constants[0], values, strict=True))
    value, rounds = i.directed(clauses, clauses["max-iterations"].high, node.at)
    return value, cost.then(rounds)


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
    arguments = dict(zip(node.names, values, strict=True))
    if kind == "workflow":
        value, more = i.workflow(node.name, arguments, node.at)
    else:
        value, more = i.effect(kind, node.name, node.at)
    if kind == "task":
        more = more.then(i.settings(node.name, arguments, node.at))
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
