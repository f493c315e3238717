"""Abstract interpretation of a text in Python: one pass over it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.gathering import Gathering
from agentflow.lang.bounds.guards import GuardFact, Guards, Setters, both_ways, lengths_above
from agentflow.lang.bounds.interpret import AnalysisInputs, Interpreter, Outcome, Rule, Spend
from agentflow.lang.bounds.python.facts import Body, Text, python_gathering
from agentflow.lang.bounds.python.heap import NOWHERE, Given, Heap
from agentflow.lang.bounds.values import DATA, FOREIGN, NEVER, NIL, AbstractClosure, AbstractScope, Value, constant
from agentflow.lang.ir import IR, Var
from agentflow.lang.syntax import Node

Peek = Callable[[ast.expr], Value]
Steady = Callable[[ast.expr], "frozenset[Var] | None"]

_OPERATORS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "=",
    ast.NotEq: "=",
}
_ZERO = constant(0)
_MOST = 200
"""The most operands of a test to examine."""


def guards_of(test: ast.expr, peek: Peek, steady: Steady) -> Guards:
    """The facts that hold if a test is true, and if it is false. ``steady`` gives the variables that an operand depends on."""
    if isinstance(test, ast.BoolOp):
        every = isinstance(test.op, ast.And)
        parts = [guards_of(each, peek, steady) for each in test.values[:_MOST]]
        facts = [guard for part in parts for guard in part[0 if every else 1]]
        return (facts, []) if every else ([], facts)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        if_true, if_false = guards_of(test.operand, peek, steady)
        return if_false, if_true
    if isinstance(test, ast.Compare):
        return _compared(test, peek, steady)
    if isinstance(test, ast.Name | ast.Call):
        return _true(peek(test))
    return [], []


def _true(value: Value) -> Guards:
    """The facts that hold if a value is truthy: a list has elements, a number is not 0."""
    facts: list[GuardFact] = []
    if value.marks:
        facts = [GuardFact("longer", value.marks, _ZERO), GuardFact("not", value.marks, _ZERO, frozenset())]
    if value.low is not None and value.low >= 0:
        facts += lengths_above(value, 0)
    return facts, []


def _compared(test: ast.Compare, peek: Peek, steady: Steady) -> Guards:
    if_true: list[GuardFact] = []
    if_false: list[GuardFact] = []
    operands = [test.left, *test.comparators]
    for at, op in enumerate(test.ops[:_MOST]):
        operator = _OPERATORS.get(type(op))
        if operator is None:
            continue
        left, right = operands[at], operands[at + 1]
        facts = both_ways(operator, (peek(left), steady(left)), (peek(right), steady(right)))
        if isinstance(op, ast.NotEq):
            facts = facts[1], facts[0]
        if_true += facts[0]
        if_false += facts[1]
    return if_true, if_false if len(test.ops) == 1 else []


State: TypeAlias = "dict[Var, Value]"


@frozen
class Named:
    """A function of the language, or a task or tool, as a value, under the name that calls use."""

    name: str
    is_effect: bool


@dataclass(slots=True)
class WaysOut:
    """The ways out of statements, each with the cost up to it; None for a way that is never taken.

    ``falls``: to the next statement; ``left``: out of the function; ``raised``: by an error; ``broke`` and ``again``: out of a loop,
    and to its next round. ``value`` covers the returned values.
    """

    falls: Cost | None = None
    left: Cost | None = None
    raised: Cost | None = None
    broke: Cost | None = None
    again: Cost | None = None
    value: Value = NEVER

    def but_falling(self, falls: Cost | None) -> WaysOut:
        """The same with ``falls`` as the way to the next statement, None if it is never reached."""
        return WaysOut(falls, self.left, self.raised, self.broke, self.again, self.value)

    @property
    def only_falls(self) -> bool:
        """Whether the only way out is to the next statement."""
        return self.left is None and self.raised is None and self.broke is None and self.again is None

    def after(self, before: Cost) -> WaysOut:
        """The same after ``before``."""
        if before is FREE:
            return self
        if self.falls is not None and self.only_falls:
            return WaysOut(before.then(self.falls), value=self.value)
        return self.mapped(before.then)

    def mapped(self, change: Callable[[Cost], Cost]) -> WaysOut:
        """The same with the cost of each way changed."""
        falls, left, raised, broke, again = (None if each is None else change(each) for each in self.ways())
        return WaysOut(falls, left, raised, broke, again, self.value)

    def ways(self) -> tuple[Cost | None, ...]:
        """The costs of all ways."""
        return self.falls, self.left, self.raised, self.broke, self.again

    def either(self, other: WaysOut) -> WaysOut:
        """The ways out of either branch."""
        if self.only_falls and other.only_falls:
            return WaysOut(either(self.falls, other.falls), value=self.value.join(other.value))
        falls, left, raised, broke, again = map(either, self.ways(), other.ways())
        return WaysOut(falls, left, raised, broke, again, self.value.join(other.value))

    def whole(self) -> Cost:
        """The cost of the most expensive way."""
        cost: Cost | None = None
        for each in self.ways():
            cost = either(cost, each)
        return FREE if cost is None else cost


def either(a: Cost | None, b: Cost | None) -> Cost | None:
    """The cost of either way; each may be missing."""
    if a is None or b is None:
        return b if a is None else a
    return a.otherwise(b)


Statement: TypeAlias = "Callable[[Python, Any, AbstractScope], WaysOut]"
Form: TypeAlias = "Callable[[Python, ast.Call, AbstractScope], Outcome]"
"""Follows the calls of one form."""
Function: TypeAlias = "Callable[[Python, ast.AST, list[Value], Mapping[str, Value]], Outcome]"
"""Follows the calls of one function of the language, with arguments by position and by name."""


@frozen
class Rules:
    """The rules that follow each kind of expression, statement, form and function."""

    expressions: Mapping[type[Any], Rule]
    statements: Mapping[type[ast.stmt], Statement]
    forms: Mapping[str, Form]
    functions: Mapping[str, Function]
    methods: Mapping[str, Function]


class Python(Interpreter):
    """One pass over a text in Python. ``heap`` knows its containers, ``sources`` the names of sizes of variables."""

    def __init__(
        self,
        text: Text,
        rules: Rules,
        heap: Heap,
        inputs: AnalysisInputs,
        templates: Mapping[str, Sequence[Any]],
        variables: Mapping[str, Value],
        kind: Callable[[str], str],
        spend: Spend,
    ) -> None:
        super().__init__(
            inputs,
            templates,
            variables,
            kind,
            frozenset(),
            rules=rules.expressions,
            operations={},
            higher={},
            setters=Setters(),
            spend=spend,
        )
        self.rest_of_none_fails = False
        self.remembers = False  # its variables and lists change, and calls change them
        self.text = text
        self.tables = rules
        self.heap = heap
        self.seen: list[State] = []
        self._given = variables.keys()
        self.items: dict[ast.For, Value] = {}
        self.constants: dict[ast.Constant, Value] = {}

    # -- nodes ----------------------------------------------------------------------------------------------------

    def at(self, node: ast.AST) -> Node:
        """The span of a node: the node itself; spans are computed only for nodes that a reason names."""
        return cast(Node, node)

    value = cast("Callable[[Python, ast.expr, AbstractScope], Outcome]", Interpreter.follow)
    """The abstract value of an expression, and its cost."""

    def values(self, nodes: Sequence[ast.expr], scope: AbstractScope) -> tuple[list[Value], Cost]:
        """The abstract values of expressions in sequence, and their cost."""
        return self.in_order(cast("Sequence[IR]", nodes), scope)

    def statement(self, node: ast.stmt, scope: AbstractScope) -> WaysOut:
        """The ways out of a statement."""
        self.visit()
        return self.tables.statements[type(node)](self, node, scope)

    def block(self, nodes: Sequence[ast.stmt], scope: AbstractScope) -> WaysOut:
        """The ways out of statements in sequence."""
        return cast(WaysOut, self.follow(cast(IR, Block(tuple(nodes))), scope))

    def told_block(self, guards: Sequence[GuardFact], nodes: Sequence[ast.stmt], scope: AbstractScope) -> WaysOut:
        """The ways out of statements that run only if ``guards`` hold."""
        if not guards:
            return self.block(nodes, scope)
        with self.told(guards):
            return self.block(nodes, scope)

    def made(self, site: Hashable, value: Value) -> Value:
        """A container created at ``site``."""
        return self.heap.made(site, value)

    def peeked(self, node: ast.expr, scope: AbstractScope) -> Value:
        """The abstract value of an operand of a test, if it has no effect."""
        return FOREIGN if self.text.reads(node) is None else self.value(node, scope)[0]

    def guards_in(self, test: ast.expr, scope: AbstractScope) -> tuple[list[GuardFact], list[GuardFact]]:
        """The facts that hold if a test is true, and if it is false."""
        return guards_of(test, lambda each: self.peeked(each, scope), self._steady)

    def _steady(self, node: ast.expr) -> frozenset[Var] | None:
        """The variables that a pure expression reads; None if one may change."""
        variables = self.text.reads(node)
        if variables is None or self.heap.known.all or any(not self.text.once(var) for var in variables):
            return None
        return variables

    @contextmanager
    def told(self, guards: Sequence[GuardFact]) -> Generator[None]:
        """A context for code that runs only if ``guards`` hold."""
        count = len(self.guards)
        self.guards.extend(guards)
        try:
            yield
        finally:
            del self.guards[count:]

    # -- variables ------------------------------------------------------------------------------------------------

    def assign(self, node: ast.AST, value: Value, scope: AbstractScope) -> None:
        """Bind the variable that a name stands for."""
        var = self.text.variables.get(node)
        if var is None:
            return
        if self.seen:
            _put(self.seen[-1], var, value)
        scope.define(var, value)

    @contextmanager
    def recorded(self) -> Generator[State]:
        """Collects the assignments made within."""
        state: State = {}
        self.seen.append(state)
        try:
            yield state
        finally:
            self.seen.pop()
            if self.seen:
                for var, value in state.items():
                    _put(self.seen[-1], var, value)

    def changed(self, what: str, values: Sequence[Value], at: Node) -> Cost:
        for each in values:
            self.heap.handed(each)
        return FREE

    def knows(self, name: str) -> bool:
        """Whether a variable comes from outside."""
        return name in self._given

    def read_global(self, name: str) -> Value:
        """The abstract value of a variable from outside."""
        return self.heap.given(Given(name), super().read_global(name))

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, operator: Value, arguments: list[Value], at: Node) -> Outcome:
        """A call of any procedure that ``operator`` may be; text is never a procedure in Python."""
        called = Value(procedures=operator.procedures, foreign=operator.foreign, never=operator.never)
        return super().call(called, arguments, at)

    def applied(self, procedure: Any, arguments: list[Value], at: Node) -> Outcome:
        if isinstance(procedure, Named):
            node = cast(ast.AST, procedure)
            if procedure.is_effect:
                return self.task(procedure.name, at)
            return self.tables.functions[procedure.name](self, node, arguments, {})
        return super().applied(procedure, arguments, at)

    def task(self, name: str, at: Node, *, raw: bool = False) -> Outcome:
        """A call of a task or tool; ``raw``: its result is not opened."""
        value, cost = self.named(name, at)
        value = self.heap.given(at, value)
        return value if raw else value.opened("value"), cost

    def closure(self, procedure: AbstractClosure, arguments: list[Value], at: Node) -> Outcome:
        """A call of a function of the text, with arguments in order; NEVER for an omitted one."""
        signature = self.text.signature(procedure.code)
        names = signature.names
        if len(arguments) > len(names):
            return NEVER, FREE
        padded = [*arguments, *[NEVER] * (len(names) - len(arguments))]
        for index, name in enumerate(names):
            left_out = index >= len(arguments) or arguments[index] is LEFT_OUT
            if left_out and name not in signature.defaults:
                return NEVER, FREE
            if left_out:
                padded[index] = self.value(signature.defaults[name], procedure.scope)[0]
        return super().closure(procedure, padded, at)

    def gathering(self, procedure: AbstractClosure) -> Gathering | None:
        """The gathering that a function performs, from its text."""
        body = cast(Any, procedure.code.body)
        return python_gathering(self.text, procedure.code, body.function) if isinstance(body, Body) else None

    def gathers(self, how: Gathering, procedure: AbstractClosure, values: Sequence[Value], value: Value) -> bool:
        """Whether the function gathers with these arguments: only while nothing changes the lists."""
        return all(map(self.heap.keeps, [value, *(values[at] for at in how.listed)]))

    def by_name(self, operator: Value, arguments: list[Value], keywords: Mapping[str, Value], at: Node) -> Outcome:
        """A call with arguments by name of any procedure that ``operator`` may be."""
        if not keywords:
            return self.call(operator, arguments, at)
        value, cost = NEVER, None
        for each in operator.procedures:
            one = Value(procedures=frozenset({each}))
            placed = self._placed(each, arguments, keywords)
            result, more = (NEVER, FREE) if placed is None else self.call(one, placed, at)
            if isinstance(each, Named) and each.is_effect:
                more = more.then(self.settings(each.name, keywords, at))
            value, cost = value.join(result), either(cost, more)
        if operator.foreign:
            result, more = self.call(FOREIGN, arguments, at)
            value, cost = value.join(result), either(cost, more)
        return value, FREE if cost is None else cost

    def _placed(self, procedure: Any, arguments: list[Value], keywords: Mapping[str, Value]) -> list[Value] | None:
        if isinstance(procedure, Named):
            return [*arguments, *keywords.values()] if procedure.is_effect else arguments
        if not isinstance(procedure, AbstractClosure):
            return None
        names = self.text.signature(procedure.code).names
        if set(keywords) - set(names):
            return None
        rest = [keywords.get(name, LEFT_OUT) for name in names[len(arguments) :]]
        return [*arguments, *rest]

    def body(self, node: Body, scope: AbstractScope) -> Outcome:
        """The outcome of a function body: its parameters are bound in ``scope``."""
        function = node.function
        bound = set(self.text.parameters[function])
        for var in self.text.own[function]:
            if var not in bound:
                scope.bind(var, NEVER)
        if isinstance(function, ast.Lambda):
            return self.value(function.body, scope)
        flow = self.block(function.body, scope)
        value = flow.value if flow.falls is None else flow.value.join(NONE)
        return value, flow.whole()


def _put(state: State, var: Var, value: Value) -> None:
    before = state.get(var)
    if before is not value:
        state[var] = value if before is None else before.join(value)


@frozen
class Block:
    """Statements in sequence, as a node to follow."""

    nodes: tuple[ast.stmt, ...]


LEFT_OUT = Value(never=True, origins={"\1left out": None})
"""Marks an argument that a call omits."""
NONE = Value(size=NIL.size, sites=NOWHERE)
"""``None``, which a function without ``return`` gives."""


def both(a: Mapping[Var, Value], b: Mapping[Var, Value]) -> State:
    """The variables where two paths join."""
    return {var: value if (other := b.get(var, NEVER)) is value else value.join(other) for var, value in a.items()}


def loop_values(before: State, seen: Mapping[Var, Value]) -> State:
    """The variables of a scope in any round of a loop, from their values before it and the values it assigns."""
    state = dict(before)
    for var, value in seen.items():
        if var in before:
            state[var] = widened(before[var], before[var].join(value))
    return state


def widened(before: Value, after: Value) -> Value:
    """``after`` without sizes and numbers that may keep growing; ``before`` if it is the same."""
    if after == before:
        return before
    within = FOREIGN if after.holds_procedures else DATA
    plain = after.plain()
    item = Value(procedures=plain.procedures, foreign=within.foreign, texts=None, item=None, sites=after.all_sites)
    return Value(
        procedures=after.procedures,
        foreign=after.foreign,
        texts=after.texts,
        item=item,
        sites=after.all_sites,
        whole=after.whole,
    )
