"""The effects with results that may reach an argument: the data flow of a text, for any order of execution.

Every part of a text is a point, every variable by its name another; an edge means that the value of one may be, or be in, that of the
other. Calls of procedures that the text names where it calls them are followed; any other call may be one of every procedure that the
text gives away. The result errs on the safe side: a flow that it does not list is impossible, a listed one is possible. Like labels in
normal mode, it follows data and not tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import ENDORSE
from agentflow.lang.bounds.facts import NodeFacts, Target, defined_name
from agentflow.lang.builtins import Primitive
from agentflow.lang.kernel import nodes, text_nodes, walking
from agentflow.lang.kernel.nodes import Const, Lambda, Node, Prim, Ref, Set

Point: TypeAlias = Hashable
"""An element with a value: a part of a text, a variable, and the constants below."""
ANY_ARGUMENT: Point = "any argument"
"""The arguments of calls to procedures that the text gave away."""
ANY_RESULT: Point = "any result"
AMBIENT: Point = "ambient"
"""The values that may decide which code runs, so that every effect may depend on them."""
UNSEEN: Point = "unseen"
"""The code that the text does not show: programs that are data, saved workflows."""
RAISED: Point = "raised"


@frozen
class Done:
    """An effect in a text, ``kind`` and ``name`` as for bounds: the origins of each argument (``"*"``: of any), and the point of its result."""

    kind: str
    name: str
    arguments: Sequence[tuple[str, Point]]
    result: Point


@dataclass(eq=False, slots=True)
class Procedure:
    """A procedure of a text: the names of its parameters, and of its rest parameter; the point of its value."""

    parameters: Sequence[str]
    rest: str | None
    result: Point


@dataclass(slots=True)
class Flows:
    """The flow of a text: edges between points, and its effects.

    ``calls`` are the calls of variables by their names: the arguments of each, and whether any of them may be any parameter. ``given_away`` are
    variables with a value that may also be called elsewhere, with :data:`ANY_ARGUMENT`.
    """

    edges: dict[Point, set[Point]] = field(default_factory=dict[Point, set[Point]])
    effects: list[Done] = field(default_factory=list[Done])
    calls: dict[str, list[tuple[Sequence[Point], bool]]] = field(
        default_factory=dict[str, list[tuple[Sequence[Point], bool]]]
    )
    given_away: set[str] = field(default_factory=set[str])

    def flow(self, origin: Point, into: Point) -> None:
        """The value of ``origin`` may flow into that of ``into``."""
        self.edges.setdefault(origin, set()).add(into)

    def reached(self, origins: Mapping[Point, Iterable[str]]) -> dict[Point, set[str]]:
        """The names that reach each point, if each point of ``origins`` is the source of its names."""
        sources: dict[Point, set[str]] = {}
        pending: deque[tuple[Point, frozenset[str]]] = deque()
        pending.extend((point, frozenset(names)) for point, names in origins.items())
        while pending:
            point, names = pending.popleft()
            here = sources.setdefault(point, set())
            new = names - here
            if new:
                here |= new
                pending.extend((after, new) for after in self.edges.get(point, ()))
        return sources


class Calls:
    """Calls of a text's procedures: joined to their possible targets once the whole text is known."""

    def __init__(self, flows: Flows) -> None:
        self.flows = flows
        self.named: dict[str, list[Procedure]] = {}
        self.otherwise: set[str] = set()
        self._calls: list[tuple[Procedure | str | None, Point, Sequence[Point], Point, bool]] = []
        self._given_away: list[Procedure | str] = []

    def define(self, name: str, procedure: Procedure) -> None:
        """A variable is this procedure, unless it is also assigned another value."""
        self.named.setdefault(name, []).append(procedure)

    def assign(self, name: str) -> None:
        """A variable may be anything."""
        self.otherwise.add(name)

    def give_away(self, procedure: Procedure | str) -> None:
        """A procedure, or the value of a variable of this name, goes to code with unknown calls."""
        self._given_away.append(procedure)

    def call(
        self,
        operator: Procedure | str | None,
        at: Point,
        arguments: Sequence[Point],
        result: Point,
        *,
        spread: bool = False,
    ) -> None:
        """A call of a procedure, of a variable by its name, or of the value at ``at``; ``spread``: any argument may be any parameter."""
        self._calls.append((operator, at, arguments, result, spread))

    def join(self) -> None:
        """Draw the edges of all calls: calls by name go through points of the name, so that the edges stay linear in the text."""
        flow = self.flows.flow
        for name, procedures in self.named.items():
            for each in procedures:
                self._parameters(each, name)
                flow(each.result, ("result of", name))
        self.flows.given_away.update([each for each in self._given_away if isinstance(each, str)])
        for number, (operator, at, arguments, result, spread) in enumerate(self._calls):
            if isinstance(operator, str):
                self.flows.calls.setdefault(operator, []).append((arguments, spread))
            called: Hashable = operator if isinstance(operator, str) and operator in self.named else None
            if isinstance(operator, Procedure):
                called = number
                self._parameters(operator, number)
                flow(operator.result, ("result of", number))
            if called is not None:
                for index, argument in enumerate(arguments):
                    flow(argument, ("argument of", called, None if spread else index))
                flow(("result of", called), result)
            if called is None or operator in self.otherwise:
                flow(at, AMBIENT)
                flow(ANY_RESULT, result)
                for argument in arguments:
                    flow(argument, ANY_ARGUMENT)
                    flow(argument, result)
        for away in self._given_away:
            for each in [away] if isinstance(away, Procedure) else self.named.get(away, []):
                for name in (*each.parameters, *([each.rest] if each.rest else [])):
                    flow(ANY_ARGUMENT, variable(name))
                flow(each.result, ANY_RESULT)

    def _parameters(self, procedure: Procedure, name: Hashable) -> None:
        """The arguments of a procedure's calls flow to its parameters: by position, or each to all."""
        for index, parameter in enumerate(procedure.parameters):
            self.flows.flow(("argument of", name, index), variable(parameter))
            self.flows.flow(("argument of", name, None), variable(parameter))
        if procedure.rest is not None:
            self.flows.flow(("argument of", name, None), variable(procedure.rest))
            for index in range(len(procedure.parameters), self._most):
                self.flows.flow(("argument of", name, index), variable(procedure.rest))

    @cached_property
    def _most(self) -> int:
        """The most arguments of a call."""
        return max([len(arguments) for _, _, arguments, _, _ in self._calls], default=0)


def variable(name: str) -> Point:
    """The point of all variables of a name."""
    return ("variable", name)


def _point(target: Target) -> Point:
    """The point of a variable; one without a name is its own."""
    name = target if isinstance(target, str) else target.name
    return variable(name) if name else target


def _name(target: Target) -> str:
    return target if isinstance(target, str) else target.name


@frozen
class Effectful:
    """The effects of functions of Python, other than to give a value of their arguments.

    ``puts``: the positions of a container and of the values that it gets. ``asks``: the name of an effect with any arguments that it makes.
    ``calls``: the positions of arguments that it calls with all the others.
    """

    puts: tuple[int, ...] = ()
    asks: str = ""
    calls: tuple[int, ...] = ()


FlowsOf: TypeAlias = "Callable[[Prim | nodes.Perform], Effectful | Done | None]"
"""The effects of a function that a node calls, or makes an effect with; None if it has none."""


class _FlowReader:
    """Reads the flows of a text, node by node; no rule needs more than the parts of its node.

    Lists, dicts and sets of texts in Python may change under any name: a value put into one may then be in every alias and holder of it.
    """

    def __init__(self, facts: NodeFacts, kind: Callable[[str], str], about: FlowsOf) -> None:
        self.facts = facts
        self.kind = kind
        self.about = about
        self.flows = Flows()
        self.calls = Calls(self.flows)
        self.followed: set[Node] = set()
        self.apart: list[tuple[Point, Point]] = []
        self.puts: list[tuple[Point, Point]] = []
        self._numbered = {
            each.number: each for each in facts.nodes if isinstance(each, Lambda) and each.number is not None
        }
        self._procedures: dict[Lambda, Procedure] = {}
        self._owners: dict[Node, Lambda] = {}

    def read(self) -> Flows:
        """The flows of the whole text."""
        for node in self.facts.nodes:
            if isinstance(node, Lambda):
                self._own(node)
        for node in self.facts.nodes:
            _RULES.get(type(node), _parts)(self, node)
        for node in self.facts.nodes:
            if node in self.followed:
                continue
            if isinstance(node, Lambda):
                self.calls.give_away(self.procedure(node))
            elif isinstance(node, Ref) and _name(node.variable):
                self.calls.give_away(_name(node.variable))
            elif isinstance(node, Const) and isinstance(node.value, Primitive):
                self.asks(node.value, [ANY_ARGUMENT], ANY_RESULT)
        self.calls.join()
        self._join_changes()
        for origin, into in self.apart:
            self.flows.flow(origin, into)
        return self.flows

    def _own(self, node: Lambda) -> None:
        """Note the function of each return in a body."""
        pending = [] if node.gives_body else [node.body]
        while pending:
            each = pending.pop()
            if isinstance(each, text_nodes.Leave):
                self._owners[each] = node
            elif not isinstance(each, Lambda):
                pending.extend(walking.parts(each))

    def owner(self, node: text_nodes.Leave) -> Lambda | None:
        """The function that a node leaves; None for the text."""
        return self._owners.get(node)

    def into(self, node: Node, parts: Iterable[Node]) -> None:
        """The value of a node consists of these parts."""
        for each in parts:
            self.flows.flow(each, node)

    def assign(self, target: Target, value: Node) -> None:
        """A variable gets a value, or a part of it."""
        if isinstance(value, Lambda) and _name(target):
            self.followed.add(value)
            self.calls.define(_name(target), self.procedure(value))
            return
        if _name(target):
            self.calls.assign(_name(target))
        self.flows.flow(value, _point(target))

    def procedure(self, node: Lambda) -> Procedure:
        """The procedure of a function: its parameters, and the point of its results."""
        procedure = self._procedures.get(node)
        if procedure is None:
            rest = None if node.rest is None else node.rest.name
            names = [each.name for each in node.params]
            for name in (*names, *([rest] if rest else [])):
                self.calls.assign(name)
            result = node.body if node.gives_body else ("result", node)
            procedure = self._procedures[node] = Procedure(names, rest, result)
            for name, default in zip(names, node.defaults, strict=True):
                if isinstance(default, Node):
                    self.flows.flow(default, variable(name))
        return procedure

    def apply(self, operator: Node, arguments: Sequence[Point], result: Point, *, spread: bool = False) -> None:
        """``operator`` is called."""
        self.followed.add(operator)
        if isinstance(operator, Const) and isinstance(operator.value, Primitive):
            for each in arguments:
                self.flows.flow(each, result)
            self.asks(operator.value, arguments, result)
            return
        what: Procedure | str | None = None
        if isinstance(operator, Lambda):
            what = self.procedure(operator)
        elif isinstance(operator, Ref) and _name(operator.variable):
            what = _name(operator.variable)
        self.calls.call(what, operator, arguments, result, spread=spread)

    def direct(self, node: nodes.Call) -> bool:
        """A call of a function that the text names, if this is one."""
        callee = self._numbered.get(node.callee) if node.callee is not None else None
        if callee is None:
            return False
        self.followed.add(node.function)
        points: list[Point] = ["left out" if at is None else node.args[at] for at in node.order]
        self.calls.call(self.procedure(callee), node.function, points, node)
        return True

    def asks(self, primitive: Primitive, arguments: Sequence[Point], result: Point) -> None:
        """A primitive is called, which may be an effect. Its arguments are read before the effect is requested: each depends on all."""
        if primitive.asks:
            self.flows.effects.append(Done("asked", primitive.canonical, [("*", each) for each in arguments], result))

    def is_function(self, node: Node) -> bool:
        """Whether an argument is certainly a function of this text."""
        return isinstance(node, Lambda) or (isinstance(node, Ref) and self.facts.always_function(node.variable))

    def _join_changes(self) -> None:
        """A value put into a container reaches each point with a value that may be that container, hold it, or be in it."""
        group: dict[Point, Point] = {}

        def root(point: Point) -> Point:
            above = group.setdefault(point, point)
            while above != group[above]:
                group[above] = above = group[group[above]]
            return above

        if not self.puts:
            return
        for origin, places in self.flows.edges.items():
            for into in places:
                if origin not in _APART and into not in _APART:
                    group[root(origin)] = root(into)
        held = {root(container) for container, _ in self.puts}
        points = [point for point in list(group) if root(point) in held]
        for container, value in self.puts:
            self.flows.flow(value, ("held", root(container)))
        for point in points:
            self.flows.flow(("held", root(point)), point)


_APART: frozenset[Point] = frozenset({AMBIENT, ANY_ARGUMENT, ANY_RESULT, RAISED, UNSEEN})


def _parts(r: _FlowReader, node: Node) -> None:
    r.into(node, walking.parts(node))


def _nothing(r: _FlowReader, node: Node) -> None:
    pass


def _read(r: _FlowReader, node: Ref) -> None:
    r.flows.flow(_point(node.variable), node)


def _set(r: _FlowReader, node: Set) -> None:
    r.assign(node.variable, node.value)
    r.into(node, [node.value])


def _if(r: _FlowReader, node: nodes.If) -> None:
    r.into(node, [*(arm for _, arm in node.clauses), node.other])


def _seq(r: _FlowReader, node: nodes.Seq) -> None:
    r.into(node, node.items[-1:])


def _for(r: _FlowReader, node: nodes.For) -> None:
    if node.item is not None:
        r.assign(node.item, node.over)
    r.into(node, [node.body])


def _named_let(r: _FlowReader, node: nodes.NamedLet) -> None:
    for each, value in zip(node.params, node.inits, strict=True):
        r.assign(each, value)
    r.into(node, [node.body])


def _again(r: _FlowReader, node: nodes.Again) -> None:
    for each, value in zip(node.loop.params, node.args, strict=True):
        r.assign(each, value)
    r.into(node, [node.loop])


def _collect(r: _FlowReader, node: text_nodes.Collect) -> None:
    pending = [node.body]
    while pending:
        each = pending.pop()
        if isinstance(each, text_nodes.Yield):
            r.into(node, [each])
        elif isinstance(each, nodes.For | nodes.Seq | nodes.If):
            pending.extend(walking.parts(each))


def _try(r: _FlowReader, node: nodes.Try) -> None:
    r.into(node, [node.body, *(handler for _, _, handler in node.handlers)])
    for _, caught, _ in node.handlers:
        if caught is not None:
            if _name(caught):
                r.calls.assign(_name(caught))
            r.flows.flow(RAISED, _point(caught))


def _leave(r: _FlowReader, node: text_nodes.Leave) -> None:
    owner = r.owner(node)
    if node.value is not None and owner is not None:
        r.flows.flow(node.value, r.procedure(owner).result)


def _raise(r: _FlowReader, node: text_nodes.Raise) -> None:
    if node.value is not None:
        r.flows.flow(node.value, RAISED)


def _lambda(r: _FlowReader, node: Lambda) -> None:
    r.procedure(node)


def _call(r: _FlowReader, node: nodes.Call) -> None:
    if r.direct(node):
        return
    r.apply(node.function, node.args, node, spread=bool(node.names))
    for each in node.args[len(node.args) - len(node.names) :]:  # may be a task or tool, chosen by data
        r.flows.flow(each, AMBIENT)


def _either(r: _FlowReader, node: nodes.Either) -> None:
    for each in node.pairs:  # named arguments of a value that may be a task or tool, chosen by data
        r.flows.flow(each.value, AMBIENT)
    r.into(node, [each.value for each in node.pairs])
    r.apply(node.function, [each.applied for each in node.pairs], node)


def _pair(r: _FlowReader, node: nodes.EitherPair) -> None:
    r.assign(node.variable, node.value)
    for each in node.links:
        r.flows.flow(each.function, AMBIENT)


def _prim(r: _FlowReader, node: Prim) -> None:
    if isinstance(node.row, Primitive):
        _primitive(r, node, node.row)
        return
    about = r.about(node)
    if isinstance(about, Done):
        r.flows.effects.append(about)
        return
    if about is None:
        r.into(node, node.args)
        return
    if about.asks == ENDORSE:
        return
    r.into(node, node.args)
    if about.puts:
        container, *put = about.puts
        r.puts.extend([(node.args[container], node.args[each]) for each in put])
    called = [node.args[at] for at in about.calls]
    called += [each for each in node.args if r.is_function(each) and each not in called]
    for each in called:
        r.apply(each, [other for other in node.args if other is not each], node, spread=True)


def _primitive(r: _FlowReader, node: Prim, primitive: Primitive) -> None:
    at = primitive.calls
    if primitive.canonical == ENDORSE:
        return
    r.into(node, node.args)
    r.asks(primitive, node.args, node)
    if at is not None and at < len(node.args):
        again = primitive.canonical == "reduce"  # its procedure's result, the argument of the next call
        r.apply(node.args[at], [node] if again else [*node.args[:at], *node.args[at + 1 :]], node, spread=True)


def _perform(r: _FlowReader, node: nodes.Perform) -> None:
    effect: Any = node.make
    if isinstance(effect, nodes.NamedEffect):
        kind = "context" if effect.kind == "items" else effect.kind
        r.into(node, node.args)
        r.flows.effects.append(Done(kind, effect.name, list(zip(effect.names, node.args, strict=True)), node))
        return
    about = r.about(node)
    if isinstance(about, Done):
        r.apart.extend((each, node) for each in node.args)
        r.flows.effects.append(about)
    else:
        r.into(node, node.args)
        if about is not None and about.asks:
            r.flows.effects.append(Done("asked", about.asks, [("*", each) for each in node.args], node))


def _effect(r: _FlowReader, node: text_nodes.Effect) -> None:
    kind = "task" if r.kind(node.name) == "task" else "tool"
    done: list[tuple[str, Point]] = [*zip(node.names, node.args, strict=True)]
    done += [("*", each) for each in node.spread]
    r.flows.effects.append(Done(kind, node.name, done, node))
    r.apart.extend((each, node) for each in (*node.args, *node.spread))


def _operation(r: _FlowReader, node: nodes.Op) -> None:
    r.into(node, node.args)
    if node.operation in ("pmap", "pmap-on"):
        r.apply(node.args[0], node.args[1:2], node)
    elif node.operation in ("parallel-on", "race-on"):
        for each in node.args:
            r.apply(each, [], node)
    elif node.operation in ("raise", "error"):
        for each in node.args:
            r.flows.flow(each, RAISED)
    elif node.operation == "define-task":
        for each in node.args:
            r.flows.flow(each, ("task", defined_name(node)))
    elif node.operation in ("eval-program", "solve"):
        if node.operation == "solve":
            r.flows.effects.append(Done("asked", "solve", [("*", each) for each in node.args], node))
        for each in node.args:
            r.flows.flow(each, UNSEEN)
        r.flows.flow(UNSEEN, node)
    elif node.operation == "director-loop":  # each of its procedures receives the results of the others
        for each in node.args:
            r.flows.flow(each, ANY_ARGUMENT)
        r.flows.flow(ANY_RESULT, ANY_ARGUMENT)
        r.flows.flow(ANY_RESULT, node)


_RULES: Mapping[type[Any], Callable[[_FlowReader, Any], None]] = MappingProxyType(
    {
        Const: _nothing,
        Lambda: _lambda,
        Prim: _prim,
        Ref: _read,
        Set: _set,
        nodes.Again: _again,
        nodes.Call: _call,
        nodes.Either: _either,
        nodes.EitherPair: _pair,
        nodes.Env: _nothing,
        nodes.For: _for,
        nodes.If: _if,
        nodes.NamedLet: _named_let,
        nodes.Op: _operation,
        nodes.Perform: _perform,
        nodes.Seq: _seq,
        nodes.Try: _try,
        nodes.While: _nothing,
        text_nodes.Collect: _collect,
        text_nodes.Effect: _effect,
        text_nodes.Leave: _leave,
        text_nodes.Raise: _raise,
    }
)


def flows_of(facts: NodeFacts, kind: Callable[[str], str], about: FlowsOf = lambda node: None) -> Flows:
    """The flows of a text; ``kind`` gives the kind of a free name, ``about`` the effects of functions of Python."""
    return _FlowReader(facts, kind, about).read()
