"""Abstract interpretation of a program: the abstract value and the cost of each of its expressions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import ASK, SIGNAL
from agentflow.lang import ir
from agentflow.lang.bounds.cost import FREE, WIDTH, Cost, Effects, again
from agentflow.lang.bounds.gathering import Dropping, Gathering, dropping, gathering, left_of
from agentflow.lang.bounds.guards import GuardFact, Setters
from agentflow.lang.bounds.inner import Inner, Programs, cost_of
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.primitives import given
from agentflow.lang.bounds.recursion import Body, CallFrame, Loose, Reach, Recursion, parameter_values
from agentflow.lang.bounds.values import (
    DATA,
    FOREIGN,
    NEVER,
    AbstractClosure,
    AbstractScope,
    Shape,
    Value,
    constant,
    joined,
    number,
    position,
    result_of,
)
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.ir import IR, Var
from agentflow.lang.syntax import Node
from agentflow.lib.text.stack import on_fresh_stack

MOST_VISITS = 20_000
"""The most nodes of a program to visit before the analysis gives up."""
_FRESH_STACK = 10
"""The visits charged for a fresh stack, which takes a thread."""
_SLICE = 128
"""The number of visits paid for at once."""
_LEVELS = 80
"""The levels of nesting visited on one Python stack."""
_DEEPEST = 150
"""The greatest depth of calls analysed."""
_SAME_CODE = 6
"""The greatest depth of calls of the same code in different environments."""
_REMEMBERED = 4
"""The most calls of one procedure with a cached outcome."""
_NEVER_AGAIN = -1
"""The number of a frame below all others: an outcome that depends on it is not cached."""

ANYTHING = "anything"
"""The key that counts calls of unknown code, which may have any effect."""
_UNSEEN = Cost({(): Effects({ANYTHING: ONE, WIDTH: ONE})})

Weights: TypeAlias = Callable[[str, str, Sequence[Any]], Mapping[str, float] | str]
"""The weights of one effect, by its kind, its name and the templates that the program itself defines under that name.

Kinds are ``task``, ``tool``, ``context``, ``workflow``, ``ask``, ``any``, which is a call of a name that is data, and ``solve``: one model
call of the most that a ``solve`` declares; and ``history_config`` and ``context``, the additional weight of a task call
with settings of that name. The keys
of the answer are the caller's own; a text is the reason why the effect has no bound.
"""
Shapes: TypeAlias = Callable[[str, Sequence[Any]], Mapping[str, Any] | None]
"""The JSON Schema of a task's answers, by its name and the templates that the program gives that name."""
Spend: TypeAlias = Callable[[int], None]
"""Pays for a number of visits. An exception that it raises ends the analysis."""
Outcome: TypeAlias = tuple[Value, Cost]

Rule: TypeAlias = "Callable[[Interpreter, Any, AbstractScope], Outcome]"
"""Analyses one kind of node."""
Operator: TypeAlias = "Callable[[Interpreter, ir.RuntimeCall, AbstractScope], Outcome]"
"""Analyses an operation of the runtime."""
Higher: TypeAlias = "Callable[[Interpreter, list[Value], Node], Outcome]"
"""Analyses a primitive that calls procedures."""


def free(visits: int) -> None:
    """The spender of an analysis without an allowance."""


SETTINGS: Mapping[str, str] = MappingProxyType({"history_config": "compact_after_tokens", "context": "enabled"})
"""The settings of a task call that add to its cost, and the key that enables each. Weights have their names as kinds."""


class TooManyVisits(Exception):
    """The analysis needs more visits than it is allowed."""


@frozen
class AnalysisInputs:
    """The inputs of an analysis, apart from its text.

    ``weights`` are those of effects. ``bindings`` are the values that the text receives, ``sources`` names of bindings with an unknown
    value: their sizes are named after them, or after the entry of a name in ``sources``, as are those of unbound names
    used as values. Any other variable may be anything. ``shapes`` gives the JSON Schema of a task's answers,
    ``programs`` analyses programs that the text runs, which find the templates ``around`` them by name. At most ``visits`` nodes are visited.
    """

    weights: Weights
    bindings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sources: Iterable[str] | Mapping[str, str] = ()
    shapes: Shapes = lambda name, templates: None
    programs: Programs | None = None
    around: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, "Sequence[Any]"])
    visits: int = MOST_VISITS

    def templates(self, own: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """The templates that a text finds by name: those around it, then its ``own``."""
        return {**self.around, **{name: [*self.around.get(name, ()), *each] for name, each in own.items()}}

    def variables(self, used: Iterable[str]) -> dict[str, Value]:
        """The abstract values of the variables from outside; ``used`` are names that the text uses as values."""
        sources, named = self.sources, {name: name for name in used}
        named |= (
            cast("Mapping[str, str]", sources) if isinstance(sources, Mapping) else {name: name for name in sources}
        )
        variables = {name: Value(foreign=True, texts=None, origins={source: None}) for name, source in named.items()}
        return variables | {name: constant(value) for name, value in self.bindings.items()}


class _Call(NamedTuple):
    """A call with a cached outcome, valid for the same arguments while no variable changes."""

    epoch: int
    arguments: list[Value]
    outcome: Outcome


class Interpreter:
    """The analysis of one program.

    ``templates`` are the tasks that it finds by name, ``variables`` the free names that are variables, ``kind`` says whether another one
    is a task or a tool (or ``unknown``), ``fixed`` are the names that the program defines once, at top level, and never sets,
    ``setters`` the assignments of its variables; ``spend`` pays for visits; ``remembers``: a call has the same outcome as an earlier one with the same arguments, if no
    variable has changed since; ``beside`` counts the enclosing forms that run their parts concurrently;
    ``rest_of_none_fails``: the rest of an empty list is an error;
    ``rules``, ``operations`` and ``higher`` follow each kind of node, operation and primitive that calls procedures.
    """

    def __init__(
        self,
        inputs: AnalysisInputs,
        templates: Mapping[str, Sequence[Any]],
        variables: Mapping[str, Value],
        kind: Callable[[str], str],
        fixed: frozenset[str],
        *,
        rules: Mapping[type[Any], Rule],
        operations: Mapping[str, Operator],
        higher: Mapping[str, Higher],
        setters: Setters,
        spend: Spend,
    ) -> None:
        self.operations = operations
        self.rest_of_none_fails = True
        self._rules = rules
        self._higher = higher
        self.reach = Reach()
        self.guards: list[GuardFact] = []
        self.frames: list[CallFrame] = []
        self._inputs = inputs
        self._templates = templates
        self._kind = kind
        self._fixed = fixed
        self.programs = inputs.programs
        self.setters = setters
        self._defined: dict[str, Value] = {}
        self._globals = dict(variables)
        self.visits = inputs.visits
        self._spend = spend
        self._level = 0
        self._numbers = 0
        self._effects: dict[tuple[str, str], tuple[Value, Cost | str]] = {}
        self._droppings: dict[int, Dropping | None] = {}
        self._gatherings: dict[int, Gathering | None] = {}
        self.beside = 0
        self.remembers = True
        self._calls: dict[AbstractClosure, deque[_Call]] = {}
        self._epoch = 0
        self._depends_on = _DEEPEST

    # -- expressions ----------------------------------------------------------------------------------------------

    def follow(self, node: IR, scope: AbstractScope) -> Outcome:
        """The abstract value of an expression, and its cost."""
        left = self.visits = self.visits - 1  # inlined visit(): this is the most frequent call
        if left < 0:
            raise TooManyVisits
        if left % _SLICE == _SLICE - 1:
            self._spend(_SLICE)
        level = self._level = self._level + 1
        try:
            if level % _LEVELS:
                return self._rules[type(node)](self, node, scope)
            self.visit(_FRESH_STACK)
            return on_fresh_stack(lambda: self._rules[type(node)](self, node, scope))
        finally:
            self._level = level - 1

    def visit(self, count: int = 1) -> None:
        """Use visits up; they are paid for in slices."""
        before = self.visits
        left = self.visits = before - count
        if left < 0:
            raise TooManyVisits
        slices = before // _SLICE - left // _SLICE
        if slices:
            self._spend(slices * _SLICE)

    def in_order(self, nodes: Sequence[IR], scope: AbstractScope) -> tuple[list[Value], Cost]:
        """The abstract values of expressions in sequence, and their cost."""
        values: list[Value] = []
        cost = FREE
        for node in nodes:
            value, more = self.follow(node, scope)
            values.append(value)
            cost = cost.then(more)
        return values, cost

    def peek(self, node: IR, scope: AbstractScope) -> Value:
        """The abstract value of a pure expression; FOREIGN for any other."""
        if isinstance(node, ir.Const | ir.Quote | ir.Local | ir.Global | ir.Unknown):
            return self.follow(node, scope)[0]
        if isinstance(node, ir.PrimCall) and not node.primitive.is_async:
            return given(node.primitive.size, [self.peek(each, scope) for each in node.args])
        return FOREIGN

    def loose(self, at: Node, reason: str, cost: Cost) -> Cost:
        """``cost`` repeated without an upper bound, for a recorded reason; a cost without effects stays the same."""
        if not cost.quiet:
            self._depends_on = _NEVER_AGAIN  # each pass records its reasons anew
            if not any(each.at is at and each.reason == reason for each in self.reach.loose):
                self.reach.loose.append(Loose(at, reason))
        return cost.times(None)

    def anything(self, at: Node, reason: str) -> Cost:
        """The cost of a call of unknown code."""
        return self.loose(at, reason, _UNSEEN)

    def next_number(self) -> int:
        """A number for a call: greater than those of the calls around it."""
        self._numbers += 1
        return self._numbers

    # -- effects --------------------------------------------------------------------------------------------------

    def kind(self, name: str) -> str:
        """The kind of a free name: ``task``, ``tool``, ``variable`` or ``unknown``."""
        return "task" if name in self._templates else self._kind(name)

    def _weigh(self, kind: str, name: str) -> Mapping[str, float] | str:
        return self._inputs.weights(kind, name, self._templates.get(name, ()))

    def effect(self, kind: str, name: str, at: Node) -> Outcome:
        """A call of a task, a tool or another effect."""
        called = kind, name
        if called not in self._effects:
            self.reach.effects.add(called)
            self._effects[called] = self._effect(kind, name)
        value, cost = self._effects[called]
        return value, self.loose(at, cost, _UNSEEN) if isinstance(cost, str) else cost

    def _effect(self, kind: str, name: str) -> tuple[Value, Cost | str]:
        """The value and cost of any call of an effect; a text is the reason why it has no upper bound."""
        weights = self._weigh(kind, name)
        source = result_of(name) if kind in ("task", "tool") else "context" if kind == "context" else name
        schema = self._inputs.shapes(name, self._templates.get(name, ())) if kind == "task" else None
        shape = None if schema is None else Shape(schema, schema)
        value = Value(foreign=kind not in ("task", "context"), texts=None, origins={source: shape})
        if isinstance(weights, str):
            return value, weights
        counts = {f"{kind}:{name}": ONE, WIDTH: ONE} | {key: Bound.of(each) for key, each in weights.items()}
        return value, Cost({(): Effects(counts)})

    def named(self, name: str, at: Node) -> Outcome:
        """A call of the task or tool with this name."""
        kind = self.kind(name)
        if kind in ("task", "tool"):
            return self.effect(kind, name, at)
        if name in ("get_context", "get-context-items"):
            return self.effect("context", name, at)
        return FOREIGN, self.anything(at, f"nothing is known of '{name}'")

    def settings(self, name: str, arguments: Mapping[str, Value], at: Node) -> Cost:
        """The extra cost of a task call with its own settings: a history to compact, files to look up."""
        cost = FREE
        for word, tells in SETTINGS.items():
            if word in arguments and arguments[word].may_mention(tells):
                weights = self._weigh(word, name)
                if isinstance(weights, str):
                    return self.anything(at, weights)
                cost = cost.then(Cost({(): Effects({key: Bound.of(each) for key, each in weights.items()})}))
        return cost

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
        """The cost of code after an inner program that changes its arguments: here all lists are assumed to stay the same."""
        return self.anything(at, f"{what} changes the lists that it is given")

    # -- common to both surfaces ----------------------------------------------------------------------------------

    def workflow(self, name: str, arguments: Mapping[str, Value], at: Node) -> Outcome:
        """A call of a saved workflow."""
        value, cost = self.effect("workflow", name, at)
        if self.programs is not None:
            inner = self.programs.workflow(name, self.visits)
            cost = cost.then(self.program(inner, f"workflow '{name}'", arguments, at))
        return value, cost

    def reached(self, names: Iterable[str], at: Node) -> None:
        """Note the effects available to a program that is granted ``names``, without a count of calls."""
        noted = self.reach.noted()
        for name in names:
            self.named(name, at)
        self.reach.forget(noted)

    def together(self, parts: Iterable[Callable[[], Outcome]]) -> tuple[list[Value], Cost]:
        """Parts that run concurrently: the value of each, and their joint cost."""
        values: list[Value] = []
        cost = FREE
        self.beside += 1
        for part in parts:
            value, more = part()
            values.append(value)
            cost = cost.then(more, beside=True)
        self.beside -= 1
        return values, cost

    def mapped(self, procedure: Value, item: Value, count: Bound | None, limit: Value | None, at: Node) -> Outcome:
        """``count`` concurrent calls of ``procedure``, or at most ``limit`` at once."""
        wide = count
        if limit is not None and limit.high is not None and limit.high.number:
            most = limit.high.number
            wide = Bound.of(min(most, wide.number)) if wide is not None and wide.number is not None else Bound.of(most)
        self.beside += 1
        outcome = self.each(procedure, [item], count, at, wide if wide is not None else ONE)
        self.beside -= 1
        return outcome

    def retried(self, tries: Value, body: Cost, at: Node) -> Cost:
        """The cost of ``retry``: the same cost of its body for each try."""
        if tries.high is None:
            return self.loose(at, "how often 'retry' tries is not known", body)
        return body.times(tries.high.join(ONE))

    def directed(self, clauses: Mapping[str, Value], most: Bound | None, at: Node) -> Outcome:
        """At most ``most`` rounds of a director, an executor, an evaluator and a controller."""
        turn = number(1, None, whole=True)
        plan, planned = self.call(clauses["director"], [FOREIGN, turn], at)
        result, executed = self.call(clauses["executor"], [plan, turn], at)
        judged, evaluated = self.call(clauses["evaluator"], [result, plan, turn], at)
        decided, controlled = self.call(clauses["controller"], [judged, plan, result, turn], at)
        rounds = planned.then(executed).then(evaluated).then(controlled)
        value = joined([result, decided.element()])
        if most is None:
            return value, self.loose(at, "the number of iterations is not known", rounds)
        return value, rounds.times(most)

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
            primitive = PRIMITIVES.get(name) if self.kind(name) == "unknown" else None
            outcomes.append(self.named(name, at) if primitive is None else self.primitive(primitive, arguments, at))
        if not outcomes:
            return NEVER, FREE
        value, cost = outcomes[0]
        for other, more in outcomes[1:]:
            value, cost = value.join(other), cost.otherwise(more)
        return value, cost

    def applied(self, procedure: Any, arguments: list[Value], at: Node) -> Outcome:
        """A call of a known procedure."""
        if isinstance(procedure, Primitive):
            return self.primitive(procedure, arguments, at)
        return self.closure(cast(AbstractClosure, procedure), arguments, at)

    def _any(self, at: Node) -> Outcome:
        weights = self._weigh("any", "")
        if isinstance(weights, str):
            return FOREIGN, self.anything(at, weights)
        counts = {"any:": ONE, WIDTH: ONE} | {key: Bound.of(each) for key, each in weights.items()}
        return FOREIGN, Cost({(): Effects(counts)})

    def closure(self, procedure: AbstractClosure, arguments: list[Value], at: Node) -> Outcome:
        """A call of a procedure of the program."""
        code, height = procedure.code, len(self.frames)
        for at_frame in range(height - 1, -1, -1):
            frame = self.frames[at_frame]
            if frame.code is code and frame.scope is procedure.scope:
                self._depends_on = min(self._depends_on, at_frame)
                return frame.called_again(arguments, self.guards, self.beside), again(frame.number)
        for call in self._calls.get(procedure, ()):
            if call.epoch == self._epoch and call.arguments == arguments:
                return call.outcome
        before, self._depends_on = self._depends_on, _DEEPEST
        outcome = self._inlined(procedure, arguments, at)
        if self.remembers and self._depends_on >= height:
            kept = self._calls.setdefault(procedure, deque(maxlen=_REMEMBERED))
            kept.append(_Call(self._epoch, arguments, outcome))
        self._depends_on = min(self._depends_on, before)
        return outcome

    def _inlined(self, procedure: AbstractClosure, arguments: list[Value], at: Node) -> Outcome:
        """A call followed into the procedure's body."""
        code = procedure.code
        if sum(frame.code is code for frame in self.frames) >= _SAME_CODE or len(self.frames) >= _DEEPEST:
            return FOREIGN, self.anything(
                at, f"'{code.name or 'a procedure'}' calls procedures that it creates, without end"
            )
        values = parameter_values(code, arguments)
        if values is None:
            return NEVER, FREE

        def body(bound: list[Value]) -> Outcome:
            inner = AbstractScope(procedure.scope)
            variables = [*code.params, *([code.rest] if code.rest is not None else [])]
            for var, value in zip(variables, bound, strict=True):
                inner.bind(var, value)
            return self.follow(code.body, inner)

        return self.repeated(at, procedure, values, code.name, body)

    def repeated(
        self, at: Node, procedure: AbstractClosure, values: list[Value], name: str | None, body: Body
    ) -> Outcome:
        """A call of a procedure, or of a loop, that may be recursive; ``name`` is its name in reasons."""
        value, cost = Recursion(self, at, procedure.code, procedure.scope, name, body).outcome(values)
        length = None if value.never else self._length(procedure, values, value)
        return value if length is None else value.unmarked().but(size=length, origins={}), cost

    def _length(self, procedure: AbstractClosure, values: Sequence[Value], value: Value) -> Bound | None:
        """An upper bound of the length of a procedure's result, from its text; None if ``value`` already has one."""
        left = self._left(procedure, values)
        if left is not None or value.fields is not None:
            return left
        code = procedure.code
        if id(code) not in self._gatherings:
            self._gatherings[id(code)] = self.gathering(procedure)
        gathers = self._gatherings[id(code)]
        longest = None if gathers is None else gathers.longest(values)
        if (
            gathers is None
            or longest is None
            or (value.length is not None and longest.join(value.length) != value.length)
        ):
            return None
        return longest if self.gathers(gathers, procedure, values, value) else None

    def gathering(self, procedure: AbstractClosure) -> Gathering | None:
        """The gathering that a procedure performs, from its text."""
        return gathering(procedure.code)

    def gathers(self, how: Gathering, procedure: AbstractClosure, values: Sequence[Value], value: Value) -> bool:
        """Whether the procedure gathers with these arguments and returns ``value``."""
        return self._calls_itself(procedure, how.operators)

    def _calls_itself(self, procedure: AbstractClosure, operators: Sequence[IR]) -> bool:
        itself = Value(procedures=frozenset({procedure}))
        return all(self.peek(each, procedure.scope) == itself for each in operators)

    def _left(self, procedure: AbstractClosure, values: Sequence[Value]) -> Bound | None:
        """An upper bound of the length of a list after a procedure dropped its first elements; None for any other procedure."""
        code = procedure.code
        if id(code) not in self._droppings:
            self._droppings[id(code)] = dropping(code)
        drops = self._droppings[id(code)]
        if drops is None:
            return None
        left = left_of(values[drops.listed], values[drops.count])
        return left if self._calls_itself(procedure, drops.operators) else None

    def primitive(self, primitive: Primitive, arguments: list[Value], at: Node) -> Outcome:
        """A call of a primitive with these arguments."""
        if any(each.never for each in arguments) or not primitive.accepts(len(arguments)):
            return NEVER, FREE
        higher = self._higher.get(primitive.canonical)
        if higher is not None:
            return higher(self, arguments, at)
        if primitive.canonical in (ASK, SIGNAL):
            return DATA, self.effect("ask", primitive.canonical, at)[1]
        return given(primitive.size, arguments), FREE

    def each(
        self, procedure: Value, arguments: list[Value], count: Bound | None, at: Node, wide: Bound = ONE
    ) -> Outcome:
        """``count`` calls of ``procedure``, ``wide`` of them at once; the value covers the values of all calls."""
        if count == ZERO:
            return NEVER, FREE
        value, cost = self.call(procedure, arguments, at)
        if count is None or count.terms is None:
            return value, self.loose(at, "how often this is done depends on a length that is not known", cost)
        return value, cost.times(count, wide)

    # -- variables ------------------------------------------------------------------------------------------------

    def initial(self, variable: Var | str, scope: AbstractScope) -> Value:
        """The abstract value of a mutated variable before any assignment."""
        value = self._defined.get(variable, FOREIGN) if isinstance(variable, str) else scope.initial(variable)
        if value.never:
            self._depends_on = _NEVER_AGAIN
        return value

    @contextmanager
    def with_value(self, variable: Var | str, value: Value, scope: AbstractScope) -> Generator[AbstractScope]:
        """A scope that gives a mutated variable this value."""
        if not isinstance(variable, str):
            yield scope.with_value(variable, value)
            return
        before = self._globals.get(variable)
        self._globals[variable] = value
        self._epoch += 1
        try:
            yield scope
        finally:
            self._epoch += 1
            del self._globals[variable]
            if before is not None:
                self._globals[variable] = before

    def read_local(self, var: Var, scope: AbstractScope) -> Value:
        """The abstract value of a variable of the program."""
        value = scope.value(var)
        if value.never:
            self._depends_on = _NEVER_AGAIN  # the value changes when the variable is bound
        return value

    def read_global(self, name: str) -> Value:
        """The abstract value of a variable of the environment."""
        value = self._globals.get(name, NEVER if name in self._fixed else FOREIGN)
        if value.never:
            self._depends_on = _NEVER_AGAIN
        return value

    def define_local(self, var: Var, value: Value, scope: AbstractScope) -> None:
        """A definition in a body."""
        if not scope.value(var).never:
            self._epoch += 1
        scope.define(var, value)

    def define_global(self, name: str, value: Value) -> None:
        """A definition at top level."""
        if name not in self._fixed or name in self._globals:
            self._epoch += 1
        self._globals[name] = value if name in self._fixed else FOREIGN
        self._defined[name] = self._defined.get(name, NEVER).join(value)
