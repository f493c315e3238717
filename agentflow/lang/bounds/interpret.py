"""Abstract interpretation of a program: the abstract value and the cost of each of its expressions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from agentflow.core.frozen import frozen
from agentflow.lang import ir
from agentflow.lang.bounds.cost import FREE, WIDTH, Cost, Effects, again
from agentflow.lang.bounds.dropping import Dropping, dropping, left_of
from agentflow.lang.bounds.guards import Guard
from agentflow.lang.bounds.inner import Inner, Programs, cost_of
from agentflow.lang.bounds.loops import Setters
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.primitives import given
from agentflow.lang.bounds.recursion import Body, Frame, Recursion, parameter_values
from agentflow.lang.bounds.shapes import Shape
from agentflow.lang.bounds.values import DATA, FOREIGN, NEVER, Value
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.ir import IR, Lambda, Var
from agentflow.lang.stack import on_fresh_stack
from agentflow.lang.syntax import Node

MOST_VISITS = 60_000
"""Nodes of the program that are visited before the analysis gives up."""
_SLICE = 128
"""Visits that are paid for together."""
_LEVELS = 80
"""Levels of nesting that are visited on one Python stack."""
_DEEPEST = 150
"""The greatest depth of calls that are analysed."""
_SAME_CODE = 6
"""The greatest depth of calls of the same code in different environments."""

ANYTHING = "anything"
"""The key that counts calls of unknown code, which may have any effect."""
_UNSEEN = Cost({(): Effects({ANYTHING: ONE, WIDTH: ONE})})

Weigh: TypeAlias = Callable[[str, str], Mapping[str, float] | str]
"""The weights of an effect, by its kind and name: numbers by key; a text is the reason why it has no upper bound."""
Spend: TypeAlias = Callable[[int], None]
"""Pays for so many visits. What it raises ends the analysis."""
Outcome: TypeAlias = tuple[Value, Cost]

Rule: TypeAlias = "Callable[[Interpreter, Any, Scope], Outcome]"
"""Analyses one kind of node."""
Operator: TypeAlias = "Callable[[Interpreter, ir.RuntimeCall, Scope], Outcome]"
"""Analyses an operation of the runtime."""
Higher: TypeAlias = "Callable[[Interpreter, list[Value], Node], Outcome]"
"""Analyses a primitive that calls procedures."""


def free(visits: int) -> None:
    """What visits cost where nobody pays for them."""


class TooLong(Exception):
    """The analysis needs more visits than it is allowed."""


class Scope:
    """The variables of a part of the program, and their abstract values."""

    __slots__ = ("_initial", "_outer", "_values")

    def __init__(self, outer: Scope | None) -> None:
        self._outer = outer
        self._values: dict[Var, Value] = {}
        self._initial: dict[Var, Value] = {}

    def bind(self, var: Var, value: Value) -> None:
        """Bind a variable of this scope. One that ``set!`` changes may be anything."""
        self._values[var] = FOREIGN if var.mutated else value
        if var.mutated:
            self._initial[var] = self._initial.get(var, NEVER).join(value)

    def initial(self, var: Var) -> Value:
        """The abstract value that a mutated variable is bound to before any assignment."""
        at: Scope | None = self
        while at is not None:
            if var in at._initial:
                return at._initial[var]
            at = at._outer
        return FOREIGN

    def with_value(self, var: Var, value: Value) -> Scope:
        """A scope within this one in which a mutated variable has this value."""
        inner = Scope(self)
        inner._values[var] = value
        return inner

    def define(self, var: Var, value: Value) -> None:
        """Bind a variable to the value of its definition, in the scope that declares it."""
        at: Scope | None = self
        while at is not None and var not in at._values:
            at = at._outer
        (at or self).bind(var, value)

    def value(self, var: Var) -> Value:
        """The abstract value of a variable; NEVER before it is bound."""
        at: Scope | None = self
        while at is not None:
            if var in at._values:
                return at._values[var]
            at = at._outer
        return NEVER

    def has(self, var: Var) -> bool:
        """Whether this scope, or one around it, binds a variable."""
        at: Scope | None = self
        while at is not None and var not in at._values:
            at = at._outer
        return at is not None

    def kept(self) -> dict[Var, Value]:
        """A copy of its own variables, for :meth:`put_back`."""
        return dict(self._values)

    def put_back(self, values: Mapping[Var, Value]) -> None:
        """Give its own variables the values of a copy."""
        self._values = dict(values)

    def inside(self, outer: Scope) -> bool:
        """Whether this scope is within ``outer``."""
        at: Scope | None = self
        while at is not None and at is not outer:
            at = at._outer
        return at is outer


class Closure:
    """A procedure of the program and the scope that created it. Equal to another of the same code and scope."""

    __slots__ = ("code", "scope")

    def __init__(self, code: Lambda, scope: Scope) -> None:
        self.code = code
        self.scope = scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closure) and other.code is self.code and other.scope is self.scope

    def __hash__(self) -> int:
        return hash((id(self.code), id(self.scope)))


@frozen
class Loose:
    """A part of a program whose effects have no upper bound, and the reason."""

    at: Node
    reason: str


@dataclass(slots=True)
class Reach:
    """What a program can reach: effects by kind and name, and where a name that is data may be called."""

    effects: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    loose: list[Loose] = field(default_factory=list[Loose])
    any_name: dict[int, Node] = field(default_factory=dict[int, Node])

    def noted(self) -> int:
        """The number of reasons so far."""
        return len(self.loose)

    def forget(self, count: int) -> None:
        """Drop the reasons after the first ``count``, which a pass found that is repeated."""
        del self.loose[count:]


class Interpreter:
    """The analysis of one program.

    ``weigh`` says what calls cost, ``variables`` what the free names are that are variables, ``kind`` whether another one
    is a task or a tool (or ``unknown``), ``fixed`` the names that the program defines once, at top level, and never sets,
    ``shape`` the JSON Schema that the answers of a task keep to, ``programs`` analyses programs that it runs, ``setters`` are the assignments of its variables;
    ``spend`` pays for visits; ``beside`` counts the forms around what is followed that run their parts at the same time;
    ``rest_of_none_fails`` says that the rest of an empty list is an error;
    ``rules``, ``operations`` and ``higher`` follow each kind of node, operation and primitive that calls procedures.
    """

    def __init__(
        self,
        weigh: Weigh,
        variables: Mapping[str, Value],
        kind: Callable[[str], str],
        fixed: frozenset[str],
        *,
        rules: Mapping[type[Any], Rule],
        operations: Mapping[str, Operator],
        higher: Mapping[str, Higher],
        shape: Callable[[str], Mapping[str, Any] | None],
        programs: Programs | None,
        setters: Setters,
        visits: int = MOST_VISITS,
        spend: Spend = free,
    ) -> None:
        self.operations = operations
        self.rest_of_none_fails = True
        self._rules = rules
        self._higher = higher
        self.reach = Reach()
        self.guards: list[Guard] = []
        self.frames: list[Frame] = []
        self._weigh = weigh
        self._kind = kind
        self._fixed = fixed
        self._shape = shape
        self.programs = programs
        self.setters = setters
        self._defined: dict[str, Value] = {}
        self._globals = dict(variables)
        self.visits: int = visits
        self._spend = spend
        self._level = 0
        self._numbers = 0
        self._effects: dict[tuple[str, str], tuple[Value, Cost | str]] = {}
        self._droppings: dict[int, Dropping | None] = {}
        self.beside = 0

    # -- expressions ----------------------------------------------------------------------------------------------

    def follow(self, node: IR, scope: Scope) -> Outcome:
        """The abstract value of an expression, and its cost."""
        self.visits -= 1
        if self.visits < 0:
            raise TooLong
        if not self.visits % _SLICE:
            self._spend(_SLICE)
        self._level += 1
        try:
            if self._level % _LEVELS:
                return self._rules[type(node)](self, node, scope)
            return on_fresh_stack(lambda: self._rules[type(node)](self, node, scope))
        finally:
            self._level -= 1

    def in_order(self, nodes: Sequence[IR], scope: Scope) -> tuple[list[Value], Cost]:
        """The abstract values of expressions in sequence, and their cost."""
        values: list[Value] = []
        cost = FREE
        for node in nodes:
            value, more = self.follow(node, scope)
            values.append(value)
            cost = cost.then(more)
        return values, cost

    def peek(self, node: IR, scope: Scope) -> Value:
        """The abstract value of a pure expression; FOREIGN for any other."""
        if isinstance(node, ir.Const | ir.Quote | ir.Local | ir.Global | ir.Unknown):
            return self.follow(node, scope)[0]
        if isinstance(node, ir.PrimCall) and not node.primitive.is_async:
            return given(node.primitive.size, [self.peek(each, scope) for each in node.args])
        return FOREIGN

    def loose(self, at: Node, reason: str, cost: Cost) -> Cost:
        """``cost`` repeated without an upper bound, whose reason is recorded; a cost without effects stays as it is."""
        if not cost.quiet and not any(each.at is at and each.reason == reason for each in self.reach.loose):
            self.reach.loose.append(Loose(at, reason))
        return cost.times(None)

    def anything(self, at: Node, reason: str) -> Cost:
        """The cost of a call of unknown code."""
        return self.loose(at, reason, _UNSEEN)

    @property
    def notes(self) -> Reach:
        """The recorded reasons."""
        return self.reach

    def next_number(self) -> int:
        """A number for a call: greater than those of the calls around it."""
        self._numbers += 1
        return self._numbers

    # -- effects --------------------------------------------------------------------------------------------------

    def effect(self, kind: str, name: str, at: Node) -> Outcome:
        """A call of a task, a tool or another effect."""
        called = kind, name
        if called not in self._effects:
            self.reach.effects.add(called)
            self._effects[called] = self._effect(kind, name)
        value, cost = self._effects[called]
        return value, self.loose(at, cost, _UNSEEN) if isinstance(cost, str) else cost

    def _effect(self, kind: str, name: str) -> tuple[Value, Cost | str]:
        """What any call of an effect gives and costs; a text is the reason why it has no upper bound."""
        weights = self._weigh(kind, name)
        source = f"{name}" if kind != "context" else "context"
        schema = self._shape(name) if kind == "task" else None
        shape = None if schema is None else Shape(schema, schema)
        value = Value(foreign=kind not in ("task", "context"), texts=None, source=source, shape=shape)
        if isinstance(weights, str):
            return value, weights
        counts = {f"{kind}:{name}": ONE, WIDTH: ONE} | {key: Bound.of(each) for key, each in weights.items()}
        return value, Cost({(): Effects(counts)})

    def named(self, name: str, at: Node) -> Outcome:
        """A call of the task or tool with this name."""
        kind = self._kind(name)
        if kind in ("task", "tool"):
            return self.effect(kind, name, at)
        if name in ("get_context", "get-context-items"):
            return self.effect("context", name, at)
        return FOREIGN, self.anything(at, f"nothing is known of '{name}'")

    def program(self, inner: Inner | str, what: str, arguments: Mapping[str, Value], at: Node) -> Cost:
        """The cost of an inner program; ``what`` names it in reasons."""
        if isinstance(inner, str):
            return self.anything(at, inner)
        self.visits -= inner.visits
        names = arguments.keys() if inner.changes is None else inner.changes & arguments.keys()
        changed = self.changed(what, [arguments[name] for name in sorted(names)], at) if names else FREE
        self.reach.effects |= inner.reaches
        if inner.by_data:
            self.reach.any_name[id(at)] = at
        cost = cost_of(inner, arguments)
        if isinstance(cost, str):
            return self.anything(at, f"{what} depends on the size of '{cost}', which is not known")
        for reason in inner.reasons:
            self.loose(at, f"in {what}: {reason}", cost)
        return cost.then(changed)

    def changed(self, what: str, values: Sequence[Value], at: Node) -> Cost:
        """The cost of what follows an inner program that changes the values it is given: here all lists are taken to stay as they are."""
        return self.anything(at, f"{what} changes the lists that it is given")

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, operator: Value, arguments: list[Value], at: Node) -> Outcome:
        """A call of any procedure or name that ``operator`` may be."""
        if operator.never:
            return NEVER, FREE
        outcomes: list[Outcome] = []
        for procedure in sorted(operator.procedures, key=position):
            outcomes.append(self.applied(procedure, arguments, at))
        if operator.foreign:
            outcomes.append((FOREIGN, self.anything(at, "the procedure that is called here comes from elsewhere")))
        elif operator.texts is None and operator.size is None:
            self.reach.any_name[id(at)] = at
            outcomes.append(self._any(at))
        for name in sorted(operator.texts or ()):
            primitive = PRIMITIVES.get(name) if self._kind(name) == "unknown" else None
            outcomes.append(self.named(name, at) if primitive is None else self.primitive(primitive, arguments, at))
        if not outcomes:
            return NEVER, FREE
        value, cost = outcomes[0]
        for other, more in outcomes[1:]:
            value, cost = value.join(other), cost.otherwise(more)
        return value, cost

    def applied(self, procedure: Any, arguments: list[Value], at: Node) -> Outcome:
        """A call of a procedure that is known."""
        if isinstance(procedure, Primitive):
            return self.primitive(procedure, arguments, at)
        return self.closure(cast(Closure, procedure), arguments, at)

    def _any(self, at: Node) -> Outcome:
        weights = self._weigh("any", "")
        if isinstance(weights, str):
            return FOREIGN, self.anything(at, weights)
        counts = {"any:": ONE, WIDTH: ONE} | {key: Bound.of(each) for key, each in weights.items()}
        return FOREIGN, Cost({(): Effects(counts)})

    def closure(self, procedure: Closure, arguments: list[Value], at: Node) -> Outcome:
        """A call of a procedure of the program."""
        code = procedure.code
        for frame in reversed(self.frames):
            if frame.code is code and frame.scope is procedure.scope:
                return frame.called_again(arguments, self.guards, self.beside), again(frame.number)
        if sum(frame.code is code for frame in self.frames) >= _SAME_CODE or len(self.frames) >= _DEEPEST:
            return FOREIGN, self.anything(
                at, f"'{code.name or 'a procedure'}' calls procedures that it creates, without end"
            )
        values = parameter_values(code, arguments)
        if values is None:
            return NEVER, FREE

        def body(bound: list[Value]) -> Outcome:
            inner = Scope(procedure.scope)
            variables = [*code.params, *([code.rest] if code.rest is not None else [])]
            for var, value in zip(variables, bound, strict=True):
                inner.bind(var, value)
            return self.follow(code.body, inner)

        return self.repeated(at, procedure, values, code.name, body)

    def repeated(self, at: Node, procedure: Closure, values: list[Value], name: str | None, body: Body) -> Outcome:
        """A call of a procedure, or of a loop, that may be recursive; ``name`` is what reasons call it."""
        value, cost = Recursion(self, at, procedure.code, procedure.scope, name, body).outcome(values)
        left = self._left(procedure, values)
        return value if left is None or value.never else replace(value.unmarked(), size=left, source=None), cost

    def _left(self, procedure: Closure, values: Sequence[Value]) -> Bound | None:
        """An upper bound of the length of what a procedure leaves of a list whose first elements it drops; None for any other procedure."""
        code = procedure.code
        if id(code) not in self._droppings:
            self._droppings[id(code)] = dropping(code)
        drops = self._droppings[id(code)]
        if drops is None:
            return None
        left = left_of(values[drops.listed], values[drops.count])
        itself = Value(procedures=frozenset({procedure}))
        again = all(self.peek(each, procedure.scope) == itself for each in drops.operators)
        return left if again else None

    def primitive(self, primitive: Primitive, arguments: list[Value], at: Node) -> Outcome:
        """A call of a primitive with these arguments."""
        if any(each.never for each in arguments) or not primitive.accepts(len(arguments)):
            return NEVER, FREE
        higher = self._higher.get(primitive.canonical)
        if higher is not None:
            return higher(self, arguments, at)
        if primitive.canonical == "ask-human":
            return DATA, self.effect("ask", "ask-human", at)[1]
        return given(primitive.size, arguments), FREE

    def each(
        self, procedure: Value, arguments: list[Value], count: Bound | None, at: Node, wide: Bound = ONE
    ) -> Outcome:
        """``count`` calls of ``procedure``, ``wide`` of them at once; the value covers those of all calls."""
        if count == ZERO:
            return NEVER, FREE
        value, cost = self.call(procedure, arguments, at)
        if count is None or count.terms is None:
            return value, self.loose(at, "how often this is done depends on a length that is not known", cost)
        return value, cost.times(count, wide)

    # -- variables ------------------------------------------------------------------------------------------------

    def initial(self, variable: Var | str, scope: Scope) -> Value:
        """The abstract value of a mutated variable before any assignment."""
        return self._defined.get(variable, FOREIGN) if isinstance(variable, str) else scope.initial(variable)

    @contextmanager
    def with_value(self, variable: Var | str, value: Value, scope: Scope) -> Generator[Scope]:
        """A scope in which a mutated variable has this value."""
        if not isinstance(variable, str):
            yield scope.with_value(variable, value)
            return
        before = self._globals.get(variable)
        self._globals[variable] = value
        try:
            yield scope
        finally:
            del self._globals[variable]
            if before is not None:
                self._globals[variable] = before

    def read_global(self, name: str) -> Value:
        """The abstract value of a variable of the environment."""
        return self._globals.get(name, NEVER if name in self._fixed else FOREIGN)

    def define_global(self, name: str, value: Value) -> None:
        """A definition at top level."""
        self._globals[name] = value if name in self._fixed else FOREIGN
        self._defined[name] = self._defined.get(name, NEVER).join(value)


def position(procedure: Any) -> tuple[int, str]:
    """What procedures are put in order by: those of the language by name, then those of the text by place."""
    if isinstance(procedure, Closure):
        return procedure.code.at.start, ""
    return -1, procedure.name


__all__ = [
    "ANYTHING",
    "MOST_VISITS",
    "Closure",
    "Higher",
    "Interpreter",
    "Loose",
    "Operator",
    "Outcome",
    "Reach",
    "Rule",
    "Scope",
    "Spend",
    "TooLong",
    "Weigh",
    "free",
    "position",
]
