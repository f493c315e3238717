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
from agentflow.core.data.source import Span
from agentflow.lang.bounds.cost import FREE, WIDTH, Cost, Effects, again
from agentflow.lang.bounds.facts import NodeFacts, Target
from agentflow.lang.bounds.gathering import Dropping, Gathering, dropping, gathering, left_of
from agentflow.lang.bounds.guards import GuardFact, Guards, guards_of
from agentflow.lang.bounds.heap import NOWHERE, Given, Heap, scalar, size_of_texts
from agentflow.lang.bounds.inner import Inner, Programs, cost_of
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.primitives import given
from agentflow.lang.bounds.recursion import Body, CallFrame, Loose, Reach, Recursion, parameter_values
from agentflow.lang.bounds.tables import (
    LEFT_OUT,
    NONE,
    VALUES,
    WAYS,
    Named,
    Outcome,
    State,
    Tables,
    bare_function,
    keywords_of,
)
from agentflow.lang.bounds.values import (
    DATA,
    FOREIGN,
    NEVER,
    AbstractClosure,
    AbstractScope,
    Shape,
    Value,
    constant,
    position,
    result_of,
)
from agentflow.lang.bounds.ways import WaysOut, either
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.environment import UNBOUND
from agentflow.lang.kernel.nodes import Const, Lambda, Node, Prim, Ref, Variable
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


# Bounds had an interpreter for each surface, and an operation a rule in both (decision 74)
class Interpreter:
    """One pass over a program.

    ``facts`` are those about its nodes, ``tables`` follow its functions, ``heap`` knows the containers of a text in Python, ``templates`` are the
    tasks that it finds by name, ``variables`` those from outside; ``kind`` says whether another name is a task or a tool (or ``unknown``);
    ``spend`` pays for visits. ``remembers``: a call has the same outcome as an earlier one with the same arguments, if no
    variable has changed since; ``beside`` counts the enclosing forms that run their parts concurrently;
    ``rest_of_none_fails``: the rest of an empty list is an error; ``seen`` collects the assignments of a part.
    """

    def __init__(
        self,
        facts: NodeFacts,
        tables: Tables,
        heap: Heap,
        inputs: AnalysisInputs,
        templates: Mapping[str, Sequence[Any]],
        variables: Mapping[str, Value],
        kind: Callable[[str], str],
        spend: Spend,
    ) -> None:
        self.facts = facts
        self.tables = tables
        self.heap = heap
        self.python = facts.python
        self.rest_of_none_fails = not self.python
        self.remembers = not self.python  # variables and lists of Python change, and calls change them
        self.reach = Reach()
        self.guards: list[GuardFact] = []
        self.frames: list[CallFrame] = []
        self.loops: dict[Node, Lambda] = {}
        self.seen: list[State] = []
        self.beside = 0
        self.programs = inputs.programs
        self.visits = inputs.visits
        self._inputs = inputs
        self._templates = templates
        self._kind = kind
        self._variables = variables
        self._spend = spend
        self._level = 0
        self._numbers = 0
        self._effects: dict[tuple[str, str], tuple[Value, Cost | str]] = {}
        self._constants: dict[Node, Value] = {}
        self._droppings: dict[Lambda, Dropping | None] = {}
        self._gatherings: dict[Lambda, Gathering | None] = {}
        self._calls: dict[AbstractClosure, deque[_Call]] = {}
        self._epoch = 0
        self._depends_on = _DEEPEST

    # -- nodes ----------------------------------------------------------------------------------------------------

    def follow(self, node: Node, scope: AbstractScope) -> Outcome:
        """The abstract value of a node, and its cost."""
        rule = VALUES.get(type(node))
        if rule is not None:
            return self._visited(rule, node, scope)
        guards = len(self.guards)
        way = self._visited(WAYS[type(node)], node, scope)
        del self.guards[guards:]
        return way.result, way.whole()

    def ways(self, node: Node, scope: AbstractScope) -> WaysOut:
        """The ways out of a node."""
        rule = WAYS.get(type(node))
        if rule is not None:
            return self._visited(rule, node, scope)
        value, cost = self._visited(VALUES[type(node)], node, scope)
        return WaysOut(falls=cost, result=value)

    def told(self, guards: Sequence[GuardFact], node: Node, scope: AbstractScope) -> WaysOut:
        """The ways out of a node that runs only if ``guards`` hold."""
        count = len(self.guards)
        self.guards.extend(guards)
        way = self.ways(node, scope)
        del self.guards[count:]
        return way

    def _visited(self, rule: Callable[[Interpreter, Any, AbstractScope], Any], node: Node, scope: AbstractScope) -> Any:
        left = self.visits = self.visits - 1  # inlined visit(): this is the most frequent call
        if left < 0:
            raise TooManyVisits
        if left % _SLICE == _SLICE - 1:
            self._spend(_SLICE)
        level = self._level = self._level + 1
        try:
            if level % _LEVELS:
                return rule(self, node, scope)
            self.visit(_FRESH_STACK)
            return on_fresh_stack(lambda: rule(self, node, scope))
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

    def in_order(self, nodes: Sequence[Node], scope: AbstractScope) -> tuple[list[Value], Cost]:
        """The abstract values of nodes in sequence, and their cost."""
        values: list[Value] = []
        cost = FREE
        for node in nodes:
            if type(node) is Const:
                values.append(self.constant(node))
                continue
            value, more = self.follow(node, scope)
            values.append(value)
            cost = cost.then(more)
        return values, cost

    def constant(self, node: Const) -> Value:
        """The abstract value of a constant."""
        value = self._constants.get(node)
        if value is None:
            value = self._constants[node] = self._constant(node)
        return value

    def _constant(self, node: Const) -> Value:
        row: Any = node.row
        if node.value is UNBOUND:
            return NEVER
        if isinstance(node.value, Primitive):
            return Value(procedures=frozenset({node.value}))
        if row is None:
            return self.scalar(constant(node.value))
        if isinstance(row, tuple):
            named = Named(str(cast("tuple[Any, ...]", row)[1]), "method", 1)
        else:
            named = Named(row.name, "function", row.least)
        return Value(procedures=frozenset({named}), sites=NOWHERE)

    def scalar(self, value: Value) -> Value:
        """A value other than a container."""
        return scalar(value) if self.python else value

    def peek(self, node: Node, scope: AbstractScope) -> Value:
        """The abstract value of a pure node; FOREIGN for any other."""
        node = self.facts.definition(node)
        if isinstance(node, Const):
            return self.constant(node)
        if isinstance(node, Ref):
            return self.follow(node, scope)[0]
        if not isinstance(node, Prim) or not self.facts.is_lasting(node):
            return FOREIGN
        values = [self.peek(each, scope) for each in node.args]
        return given(node.row.size, values) if isinstance(node.row, Primitive) else self.prim(node, values)[0]

    def guards_in(self, test: Node, scope: AbstractScope) -> Guards:
        """The facts that hold if a test is true, and if it is false."""
        return guards_of(test, lambda each: self.peek(each, scope), self._steady, self.tables.signs)

    def _steady(self, node: Node) -> frozenset[Variable] | None:
        """The variables that determine the value of a node; None if one may change."""
        variables = self.facts.reads(node)
        if variables is None or not self.python:
            return variables
        return None if self.heap.known.all or not all(map(self.facts.once, variables)) else variables

    def loose(self, at: Span | None, reason: str, cost: Cost) -> Cost:
        """``cost`` repeated without an upper bound, for a recorded reason; a cost without effects stays the same."""
        if not cost.quiet:
            self._depends_on = _NEVER_AGAIN  # each pass records its reasons anew
            if not any(each.reason == reason and each.at == at for each in self.reach.loose):
                self.reach.loose.append(Loose(at, reason))
        return cost.times(None)

    def anything(self, at: Span | None, reason: str) -> Cost:
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

    def effect(self, kind: str, name: str, at: Span | None) -> Outcome:
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

    def named(self, name: str, at: Span | None) -> Outcome:
        """A call of the task or tool with this name."""
        kind = self.kind(name)
        if kind in ("task", "tool"):
            return self.effect(kind, name, at)
        if name in ("get_context", "get-context-items"):
            return self.effect("context", name, at)
        return FOREIGN, self.anything(at, f"nothing is known of '{name}'")

    def settings(self, name: str, arguments: Mapping[str, Value], at: Span | None) -> Cost:
        """The extra cost of a task call with its own settings: a history to compact, files to look up."""
        cost = FREE
        for word, tells in SETTINGS.items():
            if word in arguments and arguments[word].may_mention(tells):
                weights = self._weigh(word, name)
                if isinstance(weights, str):
                    return self.anything(at, weights)
                cost = cost.then(Cost({(): Effects({key: Bound.of(each) for key, each in weights.items()})}))
        return cost

    def program(self, inner: Inner | str, what: str, arguments: Mapping[str, Value], at: Span | None) -> Cost:
        """The cost of an inner program; ``what`` names it in reasons."""
        if isinstance(inner, str):
            return self.anything(at, inner)
        self.visits -= inner.visits
        names = arguments.keys() if inner.changes is None else inner.changes & arguments.keys()
        changed = self.changed(what, [arguments[name] for name in sorted(names)], at) if names else FREE
        self.reach.effects |= inner.reaches
        if inner.by_data:
            self.reach.any_name[at] = at
        cost = cost_of(inner, arguments)
        if isinstance(cost, str):
            return self.anything(at, f"{what} depends on the size of '{cost}', which is not known")
        for reason in inner.reasons:
            self.loose(at, f"in {what}: {reason}", cost)
        return cost.then(changed)

    def changed(self, what: str, values: Sequence[Value], at: Span | None) -> Cost:
        """The cost of code after an inner program that changes its arguments: lists of S-expressions are assumed to stay the same."""
        if not self.python:
            return self.anything(at, f"{what} changes the lists that it is given")
        for each in values:
            self.heap.handed(each)
        return FREE

    def task(self, node: Node, name: str, *, raw: bool = False) -> Outcome:
        """A call of a task or tool by a text in Python; ``raw``: its result is not opened."""
        value, cost = self.named(name, node.at)
        value = self.heap.given(node, value)
        return value if raw else value.opened("value"), cost

    # -- programs and branches ------------------------------------------------------------------------------------

    def workflow(self, name: str, arguments: Mapping[str, Value], at: Span | None) -> Outcome:
        """A call of a saved workflow."""
        value, cost = self.effect("workflow", name, at)
        if self.programs is not None:
            inner = self.programs.workflow(name, self.visits)
            cost = cost.then(self.program(inner, f"workflow '{name}'", arguments, at))
        return value, cost

    def reached(self, names: Iterable[str], at: Span | None) -> None:
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

    def mapped(
        self, procedure: Value, item: Value, count: Bound | None, limit: Value | None, at: Span | None
    ) -> Outcome:
        """``count`` concurrent calls of ``procedure``, or at most ``limit`` at once."""
        wide = count
        if limit is not None and limit.high is not None and limit.high.number:
            most = limit.high.number
            wide = Bound.of(min(most, wide.number)) if wide is not None and wide.number is not None else Bound.of(most)
        self.beside += 1
        outcome = self.each(procedure, [item], count, at, wide if wide is not None else ONE)
        self.beside -= 1
        return outcome

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, operator: Value, arguments: list[Value], at: Span | None) -> Outcome:
        """A call of any procedure or name that ``operator`` may be; a text is never a procedure in Python."""
        if operator.never:
            return NEVER, FREE
        outcomes: list[Outcome] = []
        for procedure in sorted(operator.procedures, key=position):
            outcomes.append(self.applied(procedure, arguments, at))
        if operator.foreign:
            outcomes.append((FOREIGN, self.anything(at, "the procedure that is called here comes from elsewhere")))
        elif not self.python and operator.texts is None and operator.size is None:
            self.reach.any_name[at] = at
            outcomes.append(self._any(at))
        for name in sorted(operator.texts or ()) if not self.python else ():
            primitive = PRIMITIVES.get(name) if self.kind(name) == "unknown" else None
            outcomes.append(self.named(name, at) if primitive is None else self.primitive(primitive, arguments, at))
        if not outcomes:
            return NEVER, FREE
        value, cost = outcomes[0]
        for other, more in outcomes[1:]:
            value, cost = value.join(other), cost.otherwise(more)
        return value, cost

    def by_name(
        self, operator: Value, arguments: list[Value], keywords: Mapping[str, Value], at: Span | None
    ) -> Outcome:
        """A call with arguments by name of any procedure that ``operator`` may be."""
        if not keywords:
            return self.call(operator, arguments, at)
        value, cost = NEVER, None
        for each in operator.procedures:
            one = Value(procedures=frozenset({each}))
            placed = self._placed(each, arguments, keywords)
            result, more = (NEVER, FREE) if placed is None else self.call(one, placed, at)
            if isinstance(each, Named) and each.kind == "effect":
                more = more.then(self.settings(each.name, keywords, at))
            value, cost = value.join(result), either(cost, more)
        if operator.foreign:
            result, more = self.call(FOREIGN, arguments, at)
            value, cost = value.join(result), either(cost, more)
        return value, FREE if cost is None else cost

    def _placed(self, procedure: Any, arguments: list[Value], keywords: Mapping[str, Value]) -> list[Value] | None:
        if isinstance(procedure, Named):
            return [*arguments, *keywords.values()] if procedure.kind == "effect" else arguments
        if not isinstance(procedure, AbstractClosure):
            return None
        names = [each.name for each in procedure.code.params]
        if set(keywords) - set(names):
            return None
        return [*arguments, *[keywords.get(name, LEFT_OUT) for name in names[len(arguments) :]]]

    def applied(self, procedure: Any, arguments: list[Value], at: Span | None) -> Outcome:
        """A call of a known procedure."""
        if isinstance(procedure, Primitive):
            return self.primitive(procedure, arguments, at)
        if not isinstance(procedure, Named):
            return self.closure(cast(AbstractClosure, procedure), arguments, at)
        site = cast(Node, _Called(at, procedure))
        if procedure.kind == "effect":
            return self.task(site, procedure.name)
        rules = self.tables.methods if procedure.kind == "method" else self.tables.functions
        return (NEVER, FREE) if len(arguments) < procedure.least else rules[procedure.name](self, site, arguments, {})

    def _any(self, at: Span | None) -> Outcome:
        weights = self._weigh("any", "")
        if isinstance(weights, str):
            return FOREIGN, self.anything(at, weights)
        counts = {"any:": ONE, WIDTH: ONE} | {key: Bound.of(each) for key, each in weights.items()}
        return FOREIGN, Cost({(): Effects(counts)})

    def closure(self, procedure: AbstractClosure, arguments: list[Value], at: Span | None) -> Outcome:
        """A call of a procedure of the program."""
        code, height = procedure.code, len(self.frames)
        completed = self._completed(procedure, arguments)
        if completed is None:
            return NEVER, FREE
        arguments = completed
        for at_frame in range(height - 1, -1, -1):
            frame = self.frames[at_frame]
            if frame.code is code and frame.scope is procedure.scope:
                return self._called_again(at_frame, arguments)
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

    def next_round(self, code: Lambda, arguments: list[Value]) -> Outcome:
        """The next round of a loop that is being followed."""
        heights = range(len(self.frames) - 1, -1, -1)
        return self._called_again(next(each for each in heights if self.frames[each].code is code), arguments)

    def _called_again(self, height: int, arguments: list[Value]) -> Outcome:
        frame = self.frames[height]
        self._depends_on = min(self._depends_on, height)
        return frame.called_again(arguments, self.guards, self.beside), again(frame.number)

    def _completed(self, procedure: AbstractClosure, arguments: list[Value]) -> list[Value] | None:
        """The arguments of a call with the defaults of those that it omits; None if one without a default is missing."""
        defaults = procedure.code.defaults
        if len(arguments) >= len(defaults) and not any(each is LEFT_OUT for each in arguments):
            return arguments
        completed: list[Value] = []
        for at, default in enumerate(defaults):
            if at < len(arguments) and arguments[at] is not LEFT_OUT:
                completed.append(arguments[at])
            elif isinstance(default, Node):
                completed.append(self.follow(default, procedure.scope)[0])
            else:
                return None
        return completed

    def _inlined(self, procedure: AbstractClosure, arguments: list[Value], at: Span | None) -> Outcome:
        """A call followed into the procedure's body."""
        code = procedure.code
        if sum(frame.code is code for frame in self.frames) >= _SAME_CODE or len(self.frames) >= _DEEPEST:
            return FOREIGN, self.anything(
                at, f"'{code.info.name or 'a procedure'}' calls procedures that it creates, without end"
            )
        values = parameter_values(code, arguments)
        if values is None:
            return NEVER, FREE

        def body(bound: list[Value]) -> Outcome:
            inner = AbstractScope(procedure.scope)
            variables = [*code.params, *([code.rest] if code.rest is not None else [])]
            for each in self.facts.own.get(code.frame, ()) if self.python else ():
                inner.bind(each, NEVER)
            for each, value in zip(variables, bound, strict=True):
                inner.bind(each, value)
            if code.gives_body:
                return self.follow(code.body, inner)
            way = self.told((), code.body, inner)
            return way.value if way.falls is None else way.value.join(NONE), way.whole()

        return self.repeated(at, procedure, values, code.info.name, body)

    def repeated(
        self, at: Span | None, procedure: AbstractClosure, values: list[Value], name: str | None, body: Body
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
        if code not in self._gatherings:
            self._gatherings[code] = gathering(code, self.facts, self.tables.lists, self.tables.signs)
        gathers = self._gatherings[code]
        longest = None if gathers is None else gathers.longest(values)
        if (
            gathers is None
            or longest is None
            or (value.length is not None and longest.join(value.length) != value.length)
        ):
            return None
        kept = all(map(self.keeps, [value, *(values[at] for at in gathers.listed)]))
        return longest if kept and self._calls_itself(procedure, gathers.operators) else None

    def _calls_itself(self, procedure: AbstractClosure, operators: Sequence[Node]) -> bool:
        itself = Value(procedures=frozenset({procedure}))
        return all(self.peek(each, procedure.scope) == itself for each in operators)

    def _left(self, procedure: AbstractClosure, values: Sequence[Value]) -> Bound | None:
        """An upper bound of the length of a list after a procedure dropped its first elements; None for any other procedure."""
        code = procedure.code
        if self.python:
            return None
        if code not in self._droppings:
            self._droppings[code] = dropping(code)
        drops = self._droppings[code]
        if drops is None:
            return None
        left = left_of(values[drops.listed], values[drops.count])
        return left if self._calls_itself(procedure, drops.operators) else None

    def prim(self, node: Prim, values: list[Value]) -> Outcome:
        """A call of a function of the language by a node."""
        row: Any = node.row
        if isinstance(row, Primitive):
            return self.primitive(row, values, node.at)
        if row is None:
            function = bare_function(node.function)
            rule = self.tables.coded.get(function)
            if rule is not None:
                return rule(self, node, values)
            if function in self.tables.passing:
                return values[0], FREE
            return FOREIGN, self.anything(node.at, "nothing is known of this call")
        names = keywords_of(node)
        rules = self.tables.methods if row.kinds else self.tables.functions
        count = len(values) - len(names)
        return rules[row.name](self, node, values[:count], dict(zip(names, values[count:], strict=True)))

    def primitive(self, primitive: Primitive, arguments: list[Value], at: Span | None) -> Outcome:
        """A call of a primitive with these arguments."""
        if any(each.never for each in arguments) or not primitive.accepts(len(arguments)):
            return NEVER, FREE
        higher = self.tables.higher.get(primitive.canonical)
        if higher is not None:
            return higher(self, arguments, at)
        if primitive.canonical in (ASK, SIGNAL):
            return DATA, self.effect("ask", primitive.canonical, at)[1]
        return given(primitive.size, arguments), FREE

    def each(
        self, procedure: Value, arguments: list[Value], count: Bound | None, at: Span | None, wide: Bound = ONE
    ) -> Outcome:
        """``count`` calls of ``procedure``, ``wide`` of them at once; the value covers the values of all calls."""
        if count == ZERO:
            return NEVER, FREE
        value, cost = self.call(procedure, arguments, at)
        if count is None or count.terms is None:
            return value, self.loose(at, "how often this is done depends on a length that is not known", cost)
        return value, cost.times(count, wide)

    # -- containers -----------------------------------------------------------------------------------------------

    def made(self, site: Any, value: Value) -> Value:
        """A container created at ``site``."""
        return self.heap.made(site, value) if self.python else value

    def keeps(self, value: Value) -> bool:
        """Whether nothing changes the containers that a value may be."""
        return not self.python or self.heap.keeps(value)

    def iterations(self, value: Value) -> Bound | None:
        """The most rounds of an iteration over a value; None if unknown."""
        length = value.elements
        return size_of_texts(value) if length is None and value.sites == NOWHERE else length

    # -- variables ------------------------------------------------------------------------------------------------

    def read(self, target: Target, scope: AbstractScope) -> Value:
        """The abstract value of a variable."""
        variable = self.facts.variable(target)
        if variable is None:
            return self.from_outside(cast(str, target))
        value = scope.value(variable)
        if value.never:
            self._depends_on = _NEVER_AGAIN  # the value changes when the variable is bound
        return value

    def from_outside(self, name: str) -> Value:
        """The abstract value of a variable from outside."""
        value = self._variables.get(name, FOREIGN)
        return self.heap.given(Given(name), value) if self.python else value

    def begin(self, scope: AbstractScope) -> None:
        """Bind the variables of the environment that the text assigns to their first values."""
        scope.put_back({})
        for name, variable in self.facts.module.items():
            scope.bind(variable, self.from_outside(name) if name in self._variables else NEVER)

    def initial(self, variable: Variable, scope: AbstractScope) -> Value:
        """The abstract value of an unsteady variable before any assignment."""
        value = scope.initial(variable)
        if value.never:
            self._depends_on = _NEVER_AGAIN
        return value

    def assign(self, target: Target, value: Value, scope: AbstractScope) -> None:
        """Give a variable a value."""
        variable = self.facts.variable(target)
        if variable is None:
            return
        if self.seen:
            _put(self.seen[-1], variable, value)
        if self.remembers and not scope.value(variable).never:
            self._epoch += 1
        scope.define(variable, value)

    def kept(self, scope: AbstractScope) -> State:
        """The variables of a scope with values that depend on the way to here; none in S-expressions, where each has one value or any."""
        return scope.kept() if self.python else {}

    def put_back(self, scope: AbstractScope, state: Mapping[Variable, Value]) -> None:
        """Give the variables of a scope their values in ``state``."""
        if self.python:
            scope.put_back(state)

    @contextmanager
    def recorded(self) -> Generator[State]:
        """Collects the assignments of a part."""
        state: State = {}
        self.seen.append(state)
        try:
            yield state
        finally:
            self.seen.pop()
            if self.seen:
                for variable, value in state.items():
                    _put(self.seen[-1], variable, value)


@frozen
class _Called:
    """The site of the containers that a function makes when it is called as a value."""

    at: Span | None
    procedure: Named


def _put(state: State, variable: Variable, value: Value) -> None:
    before = state.get(variable)
    if before is not value:
        state[variable] = value if before is None else before.join(value)


def both(a: Mapping[Variable, Value], b: Mapping[Variable, Value]) -> State:
    """The variables where two paths join."""
    return {each: value if (other := b.get(each, NEVER)) is value else value.join(other) for each, value in a.items()}
