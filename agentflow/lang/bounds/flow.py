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
from typing import Any, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Template
from agentflow.lang import ir
from agentflow.lang.builtins import Primitive
from agentflow.lang.checks import children

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


_NONE: frozenset[type[Any]] = frozenset({ir.Const, ir.Quote, ir.Dynamic, ir.CurrentEnvironment, ir.Prim, ir.Lambda})
_NAMES = (ir.Local, ir.Global, ir.Unknown)


class _FlowReader:
    """Reads the flows of an analysed text, node by node; no rule needs more than the parts of its node."""

    def __init__(self) -> None:
        self.flows = Flows()
        self.calls = Calls(self.flows)
        self._procedures: dict[int, Procedure] = {}
        self._followed: set[int] = set()

    def read(self, tree: ir.IR) -> Flows:
        """The flows of a whole text."""
        nodes: list[Any] = []
        pending: list[Any] = [tree]
        while pending:
            node = pending.pop()
            nodes.append(node)
            pending.extend(children(node))
        for node in nodes:
            self._rule(node)
        for node in nodes:
            if id(node) not in self._followed:
                if isinstance(node, ir.Lambda):
                    self.calls.give_away(self._procedure(node))
                elif isinstance(node, _NAMES):
                    self.calls.give_away(_name(node))
                elif isinstance(node, ir.Prim):
                    self.asks(node.primitive, [ANY_ARGUMENT], ANY_RESULT)
        self.calls.join()
        return self.flows

    def _rule(self, node: Any) -> None:
        kind = cast("type[Any]", type(node))
        rule = _RULES.get(kind)
        if rule is not None:
            rule(self, node)
        elif kind not in _NONE:
            self.into(node, children(node))

    def into(self, node: Any, parts: Iterable[Any]) -> None:
        """The value of a node consists of these parts."""
        for each in parts:
            self.flows.flow(id(each), id(node))

    def assign(self, name: str, value: Any) -> None:
        """A variable gets a value."""
        if isinstance(value, ir.Lambda):
            self._followed.add(id(value))
            self.calls.define(name, self._procedure(value))
        else:
            self.calls.assign(name)
            self.flows.flow(id(value), variable(name))

    def _procedure(self, node: ir.Lambda) -> Procedure:
        procedure = self._procedures.get(id(node))
        if procedure is None:
            rest = None if node.rest is None else node.rest.name
            parameters = [each.name for each in node.params]
            for name in (*parameters, *([rest] if rest else [])):
                self.calls.assign(name)
            procedure = self._procedures[id(node)] = Procedure(parameters, rest, id(node.body))
            if node.self_var is not None:
                self.calls.define(node.self_var.name, procedure)
        return procedure

    def apply(self, operator: Any, arguments: Sequence[Any], result: Any, *, spread: bool = False) -> None:
        """``operator`` is called."""
        points = [id(each) for each in arguments]
        what: Procedure | str | None = None
        if isinstance(operator, ir.Prim):
            self._followed.add(id(operator))
            self.into(result, arguments)
            self.asks(operator.primitive, points, id(result))
            return
        if isinstance(operator, ir.Lambda):
            what = self._procedure(operator)
        elif isinstance(operator, _NAMES):
            what = _name(operator)
        self._followed.add(id(operator))
        self.calls.call(what, id(operator), points, id(result), spread=spread)

    def asks(self, primitive: Primitive, arguments: Sequence[Point], result: Point) -> None:
        """A primitive is called, which may be an effect. Its arguments are read before the effect is requested: each depends on all."""
        if primitive.asks:
            self.flows.effects.append(Done("asked", primitive.canonical, [("*", each) for each in arguments], result))


def _name(node: Any) -> str:
    return node.var.name if isinstance(node, ir.Local) else node.name


def _read(r: _FlowReader, node: Any) -> None:
    r.flows.flow(variable(_name(node)), id(node))


def _set(r: _FlowReader, node: Any) -> None:
    r.assign(node.var.name if isinstance(node, ir.SetLocal | ir.Define) else node.name, node.value)


def _let(r: _FlowReader, node: ir.Let) -> None:
    for var, value in node.inits:
        r.assign(var.name, value)
    r.into(node, [node.body])


def _if(r: _FlowReader, node: ir.If) -> None:
    r.into(node, [node.then, node.other])


def _clause(r: _FlowReader, node: ir.Clause) -> None:
    if node.bind is not None:
        r.assign(node.bind.name, node.test)
    r.into(node, [node.body])


def _seq(r: _FlowReader, node: ir.Seq) -> None:
    r.into(node, node.items[-1:])


def _named_loop(r: _FlowReader, node: ir.NamedLoop) -> None:
    for var, value in zip(node.params, node.inits, strict=True):
        r.assign(var.name, value)
    r.calls.define(node.loop.name, Procedure([each.name for each in node.params], None, id(node.body)))
    r.into(node, [node.body])


def _body(r: _FlowReader, node: Any) -> None:
    r.into(node, [node.body])


def _while(r: _FlowReader, node: ir.While) -> None:
    r.into(node, [node.result])


def _try(r: _FlowReader, node: ir.Try) -> None:
    r.into(node, [node.body, *([node.handler] if node.handler is not None else [])])
    if node.var is not None:
        r.calls.assign(node.var.name)
        r.flows.flow(RAISED, variable(node.var.name))


def _call(r: _FlowReader, node: ir.Call) -> None:
    if node.pairs is None:
        r.apply(node.operator, node.args, node)
        return
    for each in node.pairs:  # named arguments of a value that may be a task or tool, chosen by data
        r.flows.flow(id(each.value), AMBIENT)
    r.into(node, [each.value for each in node.pairs])
    r.apply(node.operator, [each.applied for each in node.pairs], node)


def _pair(r: _FlowReader, node: ir.Pair) -> None:
    r.assign(node.var.name, node.value)
    for each in node.links:
        r.flows.flow(id(each.operator), AMBIENT)


def _primitive(r: _FlowReader, node: ir.PrimCall) -> None:
    primitive, at = node.primitive, node.primitive.calls
    if primitive.canonical == "endorse":
        return
    r.into(node, node.args)
    r.asks(primitive, [id(each) for each in node.args], id(node))
    if at is not None and at < len(node.args):
        again = primitive.canonical == "reduce"  # its procedure's result, the argument of the next call
        r.apply(node.args[at], [node] if again else [*node.args[:at], *node.args[at + 1 :]], node, spread=True)


def _effect(r: _FlowReader, node: ir.EffectCall) -> None:
    kind = "context" if node.kind == "items" else node.kind
    points = [(name, id(each)) for name, each in zip(node.names, node.args, strict=True)]
    r.into(node, node.args)
    r.flows.effects.append(Done(kind, node.name, points, id(node)))


def defined_name(node: ir.RuntimeCall) -> str:
    """The name of the task that a definition defines."""
    template: Template | dict[str, Any] = node.constants[0]
    return str(template["name"]) if isinstance(template, dict) else template.name


def _operation(r: _FlowReader, node: ir.RuntimeCall) -> None:
    r.into(node, node.args)
    if node.op in ("pmap", "pmap-on"):
        r.apply(node.args[0], node.args[1:2], node)
    elif node.op in ("parallel-on", "race-on"):
        for each in node.args:
            r.apply(each, [], node)
    elif node.op in ("raise", "error"):
        for each in node.args:
            r.flows.flow(id(each), RAISED)
    elif node.op == "define-task":
        for each in node.args:
            r.flows.flow(id(each), ("task", defined_name(node)))
    elif node.op in ("eval-program", "solve"):
        if node.op == "solve":
            r.flows.effects.append(Done("asked", "solve", [("*", id(each)) for each in node.args], id(node)))
        for each in node.args:
            r.flows.flow(id(each), UNSEEN)
        r.flows.flow(UNSEEN, id(node))
    elif node.op == "director-loop":  # each of its procedures receives the results of the others
        for each in node.args:
            r.flows.flow(id(each), ANY_ARGUMENT)
        r.flows.flow(ANY_RESULT, ANY_ARGUMENT)
        r.flows.flow(ANY_RESULT, id(node))


_RULES: dict[type[Any], Callable[[_FlowReader, Any], None]] = {
    ir.Call: _call,
    ir.Clause: _clause,
    ir.Define: _set,
    ir.DefineGlobal: _set,
    ir.EffectCall: _effect,
    ir.Global: _read,
    ir.If: _if,
    ir.Let: _let,
    ir.Local: _read,
    ir.NamedLoop: _named_loop,
    ir.Pair: _pair,
    ir.PrimCall: _primitive,
    ir.Repeat: _body,
    ir.RuntimeCall: _operation,
    ir.Seq: _seq,
    ir.SetGlobal: _set,
    ir.SetLocal: _set,
    ir.Try: _try,
    ir.Unknown: _read,
    ir.While: _while,
}


def flows_of(tree: ir.IR) -> Flows:
    """The flows of an analysed text."""
    return _FlowReader().read(tree)
