"""The flows of a text in Python (:mod:`agentflow.lang.bounds.flow`).

Lists, dicts and sets of such a text may change under any name: a value put into one may then be in every alias and in every holder of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from agentflow.lang.bounds.flow import (
    AMBIENT,
    ANY_ARGUMENT,
    ANY_RESULT,
    RAISED,
    UNSEEN,
    Calls,
    Done,
    Flows,
    Point,
    Procedure,
    variable,
)
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.lowering import Lowering
from agentflow.lang.python.methods import METHOD_ROWS
from agentflow.lang.python.names import FUNCTIONS, Function, parameters

_PUTTING = frozenset(row.name for row in METHOD_ROWS if row.puts)
"""Methods that put their arguments into the receiver."""
_APART: frozenset[Point] = frozenset({AMBIENT, ANY_ARGUMENT, ANY_RESULT, RAISED, UNSEEN})


class _PythonFlowReader:
    """Reads the flows of a text, node by node."""

    def __init__(self, g: Lowering) -> None:
        self.g = g
        self.flows = Flows()
        self.calls = Calls(self.flows)
        self._procedures: dict[ast.AST, Procedure] = {}
        self._followed: set[ast.AST] = set()
        self._put: list[tuple[Point, Point]] = []
        self._apart: list[tuple[Point, Point]] = []

    def read(self) -> Flows:
        """The flows of the whole text."""
        nodes: list[tuple[ast.AST, Function | None]] = []
        pending: list[tuple[ast.AST, Function | None]] = [(self.g.tree, None)]
        while pending:
            node, owner = pending.pop()
            nodes.append((node, owner))
            inner = node if isinstance(node, FUNCTIONS) else owner
            pending.extend([(each, inner) for each in ast.iter_child_nodes(node)])
        for node, owner in nodes:
            self._rule(node, owner)
        for node, _ in nodes:
            if node in self._followed:
                continue
            if isinstance(node, ast.Lambda):
                self.calls.give_away(self.procedure(node))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.calls.give_away(node.id)
        self.calls.join()
        self._join_changes()
        for origin, into in self._apart:
            self.flows.flow(origin, into)
        return self.flows

    def _rule(self, node: ast.AST, owner: Function | None) -> None:
        rule = _RULES.get(type(node))
        if isinstance(node, ast.Return):
            if node.value is not None and owner is not None:
                self.flows.flow(id(node.value), self.procedure(owner).result)
        elif rule is not None:
            rule(self, node)
        elif isinstance(node, ast.expr | ast.keyword):
            self.into(node, [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr | ast.keyword)])

    def into(self, node: ast.AST, parts: Iterable[ast.AST]) -> None:
        """The value of a node consists of these parts."""
        for each in parts:
            self.flows.flow(id(each), id(node))

    def apart(self, parts: Iterable[ast.AST], node: ast.AST) -> None:
        """The value of a node depends on these parts, and is another object."""
        self._apart.extend((id(each), id(node)) for each in parts)

    def put(self, container: Point, value: Point) -> None:
        """A value is put into a container, which may have other names."""
        self._put.append((container, value))

    def called(self, operator: ast.expr) -> None:
        """A function named as the operator of a call is not given away."""
        self._followed.add(operator)

    def assign(self, target: ast.AST, value: Point) -> None:
        """A target receives a value, or parts of it."""
        for each in ast.walk(target):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                self.calls.assign(each.id)
                self.flows.flow(value, variable(each.id))
            elif isinstance(each, ast.Subscript | ast.Attribute) and isinstance(each.ctx, ast.Store):
                self.put(id(each.value), value)
                if isinstance(each, ast.Subscript):
                    self.put(id(each.value), id(each.slice))

    def procedure(self, node: Function) -> Procedure:
        """The procedure of a function: its parameters, and the point of its results."""
        procedure = self._procedures.get(node)
        if procedure is None:
            names = parameters(node.args)
            for name in names:
                self.calls.assign(name)
            result = id(node.body) if isinstance(node, ast.Lambda) else ("result", id(node))
            procedure = self._procedures[node] = Procedure(names, None, result)
            by_position = [*node.args.posonlyargs, *node.args.args]
            defaults = [*zip(reversed(by_position), reversed(node.args.defaults), strict=False)]
            defaults += [
                (a, b) for a, b in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if b is not None
            ]
            for parameter, default in defaults:
                self.flows.flow(id(default), variable(parameter.arg))
        return procedure

    def apply(self, operator: ast.expr, arguments: Sequence[ast.AST], result: ast.AST, *, spread: bool = False) -> None:
        """``operator`` is called."""
        what: Procedure | str | None = None
        if isinstance(operator, ast.Lambda):
            what = self.procedure(operator)
        elif isinstance(operator, ast.Name):
            what = operator.id
        self.called(operator)
        self.calls.call(what, id(operator), [id(each) for each in arguments], id(result), spread=spread)

    def is_function(self, node: ast.AST) -> bool:
        """Whether an argument is certainly a function of this text."""
        return isinstance(node, ast.Lambda) or (
            isinstance(node, ast.Name) and self.g.scopes.function(node.id) is not None
        )

    def _join_changes(self) -> None:
        """A value put into a container reaches each point with a value that may be that container, hold it, or be in it."""
        group: dict[Point, Point] = {}

        def root(point: Point) -> Point:
            above = group.setdefault(point, point)
            while above != group[above]:
                group[above] = above = group[group[above]]
            return above

        if not self._put:
            return
        for origin, places in self.flows.edges.items():
            for into in places:
                if origin not in _APART and into not in _APART:
                    group[root(origin)] = root(into)
        held = {root(container) for container, _ in self._put}
        points = [point for point in list(group) if root(point) in held]
        for container, value in self._put:
            self.flows.flow(value, ("held", root(container)))
        for point in points:
            self.flows.flow(("held", root(point)), point)


def _name(r: _PythonFlowReader, node: ast.Name) -> None:
    if isinstance(node.ctx, ast.Load):
        r.flows.flow(variable(node.id), id(node))


def _assign(r: _PythonFlowReader, node: ast.Assign) -> None:
    for each in node.targets:
        r.assign(each, id(node.value))


def _annotated(r: _PythonFlowReader, node: ast.AnnAssign) -> None:
    if node.value is not None:
        r.assign(node.target, id(node.value))


def _augmented(r: _PythonFlowReader, node: ast.AugAssign) -> None:
    r.assign(node.target, id(node.value))
    if isinstance(node.target, ast.Name):
        r.put(variable(node.target.id), id(node.value))


def _walrus(r: _PythonFlowReader, node: ast.NamedExpr) -> None:
    r.assign(node.target, id(node.value))
    r.into(node, [node.value])


def _for(r: _PythonFlowReader, node: ast.For | ast.comprehension) -> None:
    r.assign(node.target, id(node.iter))


def _comprehension(r: _PythonFlowReader, node: Any) -> None:
    r.into(node, [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])


def _choice(r: _PythonFlowReader, node: ast.IfExp) -> None:
    r.into(node, [node.body, node.orelse])


def _function(r: _PythonFlowReader, node: ast.FunctionDef) -> None:
    r.calls.define(node.name, r.procedure(node))


def _handler(r: _PythonFlowReader, node: ast.ExceptHandler) -> None:
    if node.name is not None:
        r.calls.assign(node.name)
        r.flows.flow(RAISED, variable(node.name))


def _raise(r: _PythonFlowReader, node: ast.Raise) -> None:
    if node.exc is not None:
        r.flows.flow(id(node.exc), RAISED)


def _match(r: _PythonFlowReader, node: ast.Match) -> None:
    for case in node.cases:
        for each in ast.walk(case.pattern):
            name = getattr(each, "rest", None) if isinstance(each, ast.MatchMapping) else getattr(each, "name", None)
            if isinstance(name, str):
                r.calls.assign(name)
                r.flows.flow(id(node.subject), variable(name))


def _lambda(r: _PythonFlowReader, node: ast.Lambda) -> None:
    r.procedure(node)


def _call(r: _PythonFlowReader, node: ast.Call) -> None:
    meaning = r.g.meanings.get(node)
    kind, about = ("generic", cast(Any, None)) if meaning is None else meaning
    arguments: list[ast.expr] = [each.value if isinstance(each, ast.Starred) else each for each in node.args]
    everything = [*arguments, *[each.value for each in node.keywords]]
    if isinstance(node.func, ast.Name):
        r.called(node.func)
    if kind == "effect" or (kind == "form" and about == "get_context"):
        done = [(each.arg or "*", id(each.value)) for each in node.keywords]
        done += [("*", id(each)) for each in arguments]
        shown = "context" if kind == "form" else "task" if r.g.kind(about) == "task" else "tool"
        r.flows.effects.append(Done(shown, about, done, id(node)))
        r.apart(everything, node)
    elif kind == "form":
        _form(r, node, str(about), arguments, everything)
    elif kind == "direct":
        _direct(r, node, about, arguments)
    elif kind == "generic":
        spread = bool(node.keywords) or any(isinstance(each, ast.Starred) for each in node.args)
        r.apply(node.func, everything, node, spread=spread)
        is_ours = isinstance(node.func, ast.Name) and r.g.scopes.function(node.func.id) is not None
        for each in node.keywords if not is_ours else ():  # may be a task or tool, chosen by data
            r.flows.flow(id(each.value), AMBIENT)
    elif kind == "method" and isinstance(node.func, ast.Attribute):
        receiver = node.func.value
        r.into(node, [receiver, *everything])
        for each in everything if node.func.attr in _PUTTING else ():
            r.put(id(receiver), id(each))
        for each in node.keywords if node.func.attr == "sort" else ():
            r.apply(each.value, [receiver], node, spread=True)
    else:
        _applied(r, node, str(about), arguments, everything)


def _applied(
    r: _PythonFlowReader, node: ast.Call, name: str, arguments: list[ast.expr], everything: list[ast.expr]
) -> None:
    """A function of the language that may call one of its arguments with all the others."""
    r.into(node, everything)
    called = [each for each in everything if r.is_function(each)]
    called += [each.value for each in node.keywords if each.arg == "key" and each.value not in called]
    row = BUILTINS.get(name) or FORMS.get(name)
    called += [each for each in arguments[:1] if row is not None and row.calls and each not in called]
    for each in called:
        r.apply(each, [other for other in everything if other is not each], node, spread=True)


def _form(
    r: _PythonFlowReader, node: ast.Call, name: str, arguments: list[ast.expr], everything: list[ast.expr]
) -> None:
    if name == "endorse":
        return
    asks = FORMS[name].asks
    if asks is not None:
        r.flows.effects.append(Done("asked", asks, [("*", id(each)) for each in everything], id(node)))
    if name in ("call_workflow", "eval_program", "solve"):
        for each in everything:
            r.flows.flow(id(each), UNSEEN)
        r.flows.flow(UNSEEN, id(node))
    elif name == "director_evaluator_loop":
        r.into(node, everything)
        for each in everything:  # each of its functions receives the results of the others
            r.apply(each, [node, *everything], node, spread=True)
    else:
        _applied(r, node, name, arguments, everything)


def _direct(r: _PythonFlowReader, node: ast.Call, callee: Function, arguments: list[ast.expr]) -> None:
    procedure = r.procedure(callee)
    spread = any(isinstance(each, ast.Starred) for each in node.args)
    points = [id(each) for each in arguments]
    r.calls.call(procedure, id(node.func), points, id(node), spread=spread)
    for each in node.keywords:
        for name in [each.arg] if each.arg is not None else procedure.parameters:
            r.flows.flow(id(each.value), variable(name))


_RULES: dict[type[ast.AST], Callable[[_PythonFlowReader, Any], None]] = {
    ast.AnnAssign: _annotated,
    ast.Assign: _assign,
    ast.AsyncFunctionDef: cast(Any, _function),
    ast.AugAssign: _augmented,
    ast.Call: _call,
    ast.DictComp: _comprehension,
    ast.ExceptHandler: _handler,
    ast.For: _for,
    ast.FunctionDef: _function,
    ast.GeneratorExp: _comprehension,
    ast.IfExp: _choice,
    ast.Lambda: _lambda,
    ast.ListComp: _comprehension,
    ast.Match: _match,
    ast.Name: _name,
    ast.NamedExpr: _walrus,
    ast.Raise: _raise,
    ast.SetComp: _comprehension,
    ast.comprehension: _for,
}


def python_flows(g: Lowering) -> Flows:
    """The flows of a text that ``g`` compiled."""
    return _PythonFlowReader(g).read()
