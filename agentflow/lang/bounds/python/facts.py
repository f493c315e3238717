"""A text in Python, as its analysis sees it: the variable behind each name, and the code of each function."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from agentflow.core.data.frozen import frozen
from agentflow.lang import ir
from agentflow.lang.bounds.gathering import Gathering, Length, more_of, together
from agentflow.lang.ir import Lambda, Var
from agentflow.lang.python.lowering import Lowering, Meaning
from agentflow.lang.python.names import (
    BINDING,
    COMPREHENSIONS,
    FUNCTIONS,
    Comprehension,
    Function,
    PythonScope,
    bound_by,
    own_nodes,
    parameters,
)
from agentflow.lang.syntax import Atom, Node


@frozen
class Body:
    """The body of a function of the text, as a node to follow."""

    function: Function


@dataclass(eq=False, slots=True)
class ParameterList:
    """The parameters of a function in order, the first ``positional`` also by position; and the defaults of omitted arguments."""

    names: Sequence[str]
    positional: int
    defaults: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])


class Text:
    """The facts about a text that are collected before it is followed.

    ``used`` are the names of the environment that stand for values. ``variables`` maps each name, definition or handler to its variable, or to None for one of the environment. A variable that one
    function assigns more than once, or in a loop, while another reads it, may be anything (``mutated``).
    """

    def __init__(self, g: Lowering) -> None:
        self.g = g
        self.variables: dict[ast.AST, Var | None] = {}
        self.parameters: dict[ast.AST, list[Var]] = {}
        self.module: dict[str, Var] = {}
        self.own: dict[ast.AST, list[Var]] = {}
        self.used: dict[str, None] = {}
        self._vars: dict[Hashable, Var] = {}
        self._codes: dict[ast.AST, Lambda] = {}
        self._signatures: dict[int, ParameterList] = {}
        self._places: dict[ast.AST, Node] = {}
        self._home = ir.Function("main", None)
        self._owner: dict[Var, PythonScope] = {}
        self._writes: dict[Var, int] = {}
        self._reads: dict[ast.AST, frozenset[Var] | None] = {}
        self._written: dict[ast.AST, dict[Var, int]] = {}
        self._apart: set[Var] = set()
        self._again: set[Var] = set()
        for node, scope in g.scopes.scopes.items():
            self._note(cast("Function | Comprehension | ast.Module", node), scope)
        for var in self._apart:
            var.mutated = self._writes.get(var, 0) != 1 or var in self._again

    # -- names ----------------------------------------------------------------------------------------------------

    def _note(self, node: Function | Comprehension | ast.Module, scope: PythonScope) -> None:
        nodes = scope.nodes
        naming: list[ast.AST] = []
        called: set[ast.AST] = set()
        loops: list[ast.For | ast.While] = []
        for each in nodes:
            kind = type(each)
            if kind in BINDING:
                naming.append(each)
            elif isinstance(each, ast.Call):
                called.add(each.func)
            elif isinstance(each, ast.For | ast.While):
                loops.append(each)
        again = set(_in_loops(loops)) if not isinstance(node, COMPREHENSIONS) else set(nodes)
        if isinstance(node, FUNCTIONS):
            self.parameters[node] = [self._var(scope, name) for name in parameters(node.args)]
            for var in self.parameters[node]:
                self._writes[var] = self._writes.get(var, 0) + 1
        for each in naming:
            if isinstance(each, ast.Name) and type(each.ctx) is ast.Load:
                var = self.variables[each] = self._find(scope, each.id)
                if var is None and each not in called:
                    self.used[each.id] = None
                elif var is not None and _function_of(scope) is not _function_of(self._owner[var]):
                    self._apart.add(var)
                continue
            for name in bound_by(each):
                var = self.variables[each] = self._find(scope, name)
                if var is not None:
                    self._writes[var] = self._writes.get(var, 0) + 1
                    if each in again:
                        self._again.add(var)
                    if name in scope.globals or name in scope.nonlocals:
                        self._writes[var] += 1
                        self._apart.add(var)
        outermost = scope.parent is None
        self.own[node] = (
            [self._of_module(name) for name in self.g.scopes.defined]
            if outermost
            else [self._var(scope, name) for name in scope.vars]
        )

    def _find(self, scope: PythonScope, name: str) -> Var | None:
        at: PythonScope | None = scope
        while at is not None and name not in at.globals:
            if name in at.vars:
                return self._var(at, name)
            at = at.parent
        defined = name in self.g.scopes.defined and name not in self.g.own_tasks
        return self._of_module(name) if defined else None

    def _var(self, scope: PythonScope, name: str) -> Var:
        var = self._vars.get(scope.vars[name])
        if var is None:
            var = self._vars[scope.vars[name]] = Var(name, scope.vars[name].py, self._home)
            self._owner[var] = scope
        return var

    def _of_module(self, name: str) -> Var:
        var = self.module.get(name)
        if var is None:
            var = self.module[name] = Var(name, name, self._home)
            self._owner[var] = self.g.scopes.module
        return var

    def once(self, var: Var) -> bool:
        """Whether a variable is bound by one statement only, so that it has one value in each call."""
        return self._writes.get(var, 0) == 1 and var not in self._again

    def reads(self, node: ast.expr) -> frozenset[Var] | None:
        """The variables that a pure expression reads; None if the expression is not pure."""
        if node not in self._reads:
            self._reads[node] = self._variables_in(node) if _is_pure(node) else None
        return self._reads[node]

    def _variables_in(self, node: ast.expr) -> frozenset[Var]:
        names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        return frozenset(var for each in names if (var := self.variables.get(each)) is not None)

    def written(self, loop: ast.For | ast.While) -> Mapping[Var, int]:
        """The number of assignments to each variable in a loop."""
        counts = self._written.get(loop)
        if counts is None:
            counts = self._written[loop] = {}
            for each in own_nodes([loop], []):
                var = self.variables.get(each)
                if var is not None and not (isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)):
                    counts[var] = counts.get(var, 0) + 1
        return counts

    # -- code -----------------------------------------------------------------------------------------------------

    def code(self, node: Function) -> Lambda:
        """The code of a function: the same object each time."""
        code = self._codes.get(node)
        if code is None:
            name = None if isinstance(node, ast.Lambda) else node.name
            function = ir.Function("lambda", self._home)
            body = cast(ir.IR, Body(node))
            code = self._codes[node] = Lambda(self.place(node), name, self.parameters[node], None, body, function)
            self._signatures[id(code)] = _signature(node.args)
        return code

    def signature(self, code: Lambda) -> ParameterList:
        """The parameters of a function."""
        return self._signatures[id(code)]

    def place(self, node: ast.AST) -> Node:
        """The span of a node."""
        site = self._places.get(node)
        if site is None:
            span = self.g.span_at(node)
            site = self._places[node] = Atom(None, span.start, span.end)
        return site

    def meaning(self, node: ast.AST) -> Meaning | None:
        """The resolved meaning of a call."""
        return self.g.meanings.get(node)


_PURE = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.expr_context, ast.operator, ast.unaryop, ast.Subscript)
_FUNCTIONS = frozenset(("len", "min", "max", "abs", "int"))


def _is_pure(node: ast.expr) -> bool:
    """Whether an expression is pure: names, constants, arithmetic and lengths only."""
    pending: list[ast.AST] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.Call):
            if not isinstance(each.func, ast.Name) or each.func.id not in _FUNCTIONS or each.keywords:
                return False
        elif not isinstance(each, _PURE):
            return False
        pending.extend(ast.iter_child_nodes(each))
    return True


def _function_of(scope: PythonScope) -> PythonScope | None:
    """The function that contains the code of a scope; None for the module."""
    at: PythonScope | None = scope
    while at is not None and not at.is_function:
        at = at.parent
    return at


def _in_loops(loops: Sequence[ast.For | ast.While]) -> Iterator[ast.AST]:
    for each in loops:
        inner = [each.target] if isinstance(each, ast.For) else [each.test]
        yield from own_nodes([*inner, *each.body], [])


def _signature(args: ast.arguments) -> ParameterList:
    by_position = [*args.posonlyargs, *args.args]
    names = [*(each.arg for each in by_position), *(each.arg for each in args.kwonlyargs)]
    defaults: dict[str, ast.expr] = {}
    if args.defaults:
        last = by_position[-len(args.defaults) :]
        defaults |= {each.arg: default for each, default in zip(last, args.defaults, strict=True)}
    for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if default is not None:
            defaults[each.arg] = default
    return ParameterList(names, len(by_position), defaults)


_COPIES = frozenset(("list", "sorted", "reversed", "tuple"))
_MOST_NODES = 400
"""The most expressions of a function to examine."""
_LONGER = frozenset(((ast.Gt, 0), (ast.GtE, 1), (ast.NotEq, 0)))
_EMPTY = frozenset(((ast.Lt, 1), (ast.LtE, 0), (ast.Eq, 0)))
"""Comparisons of a length with a number: ``_LONGER`` if true and ``_EMPTY`` if false mean that the list has elements."""


def python_gathering(text: Text, code: Lambda, function: Function) -> Gathering | None:
    """The gathering that a function performs; None if it is not recognised."""
    if isinstance(function, ast.Lambda) or not all(map(text.once, code.params)) or function.args.kwonlyargs:
        return None
    first = _PythonWalk(text, code.params, function, frozenset(range(len(code.params))))
    first.block(function.body, frozenset())
    walk = _PythonWalk(text, code.params, function, frozenset(first.touched))
    walk.block(function.body, frozenset())
    lengths = [each for each in walk.lengths if each is not None]
    if not walk.recurs or not first.touched or len(lengths) < len(walk.lengths):
        return None
    return Gathering(sorted(walk.listed), ()) if max(more for _, more in lengths) <= 0 else None


@dataclass(slots=True)
class _PythonWalk:
    """Walks a function. ``listed`` are the parameters that count as lists, ``touched`` those used as lists; ``lengths``
    are the lengths of all returned values. ``full`` are the parameters that have an element when a part is reached."""

    text: Text
    params: Sequence[Var]
    function: Function
    listed: frozenset[int]
    touched: set[int] = field(default_factory=set[int])
    lengths: list[Length | None] = field(default_factory=list["Length | None"])
    recurs: bool = False
    _local: dict[Var, Length | None] = field(default_factory=dict[Var, "Length | None"])
    _nodes: int = 0

    def block(self, nodes: Sequence[ast.stmt], full: frozenset[int]) -> frozenset[int] | None:
        """Statements in sequence: the parameters that have an element after them; None if execution never gets past them."""
        for node in nodes:
            after = self._statement(node, full)
            if after is None:
                return None
            full = after
        return full

    def _statement(self, node: ast.stmt, full: frozenset[int]) -> frozenset[int] | None:
        match node:
            case ast.Return():
                if node.value is not None:
                    self.lengths.append(self.length(node.value, full | self._opened(node.value)))
                return None
            case ast.Raise():
                return None
            case ast.If():
                if_true, if_false = self._facts(node.test)
                then = self.block(node.body, full | if_true)
                other = self.block(node.orelse, full | if_false)
                if then is None or other is None:
                    return other if then is None else then
                return then & other
            case ast.Assign(targets=[ast.Name() as target]):
                var = self.text.variables.get(target)
                if var is not None and self.text.once(var):
                    self._local[var] = self.length(node.value, full | self._opened(node.value))
                return full
            case _ if isinstance(node, FUNCTIONS):
                return full
            case _:
                for name in ("body", "orelse", "finalbody"):
                    self.block(getattr(node, name, ()), full)
                for handler in getattr(node, "handlers", ()):
                    self.block(handler.body, full)
                return full

    def length(self, node: ast.expr, full: frozenset[int], *, passed: bool = False) -> Length | None:
        """An upper bound of the length of a list; None if unknown. ``passed``: it is an unchanged argument."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            return None
        match node:
            case ast.Name():
                return self._variable(node, passed=passed)
            case ast.List() | ast.Tuple():
                return self._elements(node.elts, full)
            case ast.BinOp(op=ast.Add()):
                return together([self.length(node.left, full), self.length(node.right, full)])
            case ast.IfExp():
                if_true, if_false = self._facts(node.test)
                return _either(self.length(node.body, full | if_true), self.length(node.orelse, full | if_false))
            case ast.Await():
                return self.length(node.value, full, passed=passed)
            case ast.Subscript(slice=ast.Slice(step=None) as part):
                at = self._position(node.value)
                drops = at in full and isinstance(part.lower, ast.Constant) and _above_zero(part.lower.value)
                return more_of(self.length(node.value, full), -1 if drops else 0)
            case ast.Call():
                return self._call(node, full)
            case _:
                return None

    def _variable(self, node: ast.Name, *, passed: bool) -> Length | None:
        at = self._position(node)
        if at is None:
            var = self.text.variables.get(node)
            return None if var is None else self._local.get(var)
        if not passed:
            self.touched.add(at)
        return (frozenset({at}), 0) if at in self.listed else None

    def _elements(self, nodes: Sequence[ast.expr], full: frozenset[int]) -> Length | None:
        spread = [self.length(each.value, full) for each in nodes if isinstance(each, ast.Starred)]
        return more_of(together(spread), len(nodes) - len(spread))

    def _call(self, node: ast.Call, full: frozenset[int]) -> Length | None:
        kind, about = self.text.meaning(node) or ("unknown", None)
        if kind == "builtin" and about in _COPIES and len(node.args) == 1:
            return self.length(node.args[0], full)
        if kind == "method" and about == "copy" and isinstance(node.func, ast.Attribute):
            return self.length(node.func.value, full)
        itself = kind == "direct" and about is self.function
        if not itself or node.keywords or len(node.args) != len(self.params):
            return None
        self.recurs = True
        return together(
            [self.length(each, full, passed=True) for at, each in enumerate(node.args) if at in self.listed]
        )

    def _position(self, node: ast.expr) -> int | None:
        """The position of the parameter that a node names; None if it names none."""
        var = self.text.variables.get(node) if isinstance(node, ast.Name) else None
        return self.params.index(var) if var in self.params else None

    def _opened(self, node: ast.expr) -> frozenset[int]:
        """The parameters with a first or last element that an expression always reads."""
        opened: set[int] = set()
        pending: list[ast.expr] = [node]
        while pending:
            each = pending.pop()
            match each:
                case (
                    ast.Subscript(slice=ast.Constant(value=0 | -1))
                    | ast.Subscript(slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)))
                ):
                    at = self._position(each.value)
                    opened |= set() if at is None else {at}
                case ast.List() | ast.Tuple():
                    pending += each.elts
                case ast.BinOp():
                    pending += [each.left, each.right]
                case ast.Starred() | ast.Await():
                    pending.append(each.value)
                case ast.Call():
                    pending += each.args
                case _:
                    pass
        return frozenset(opened)

    def _facts(self, test: ast.expr) -> tuple[frozenset[int], frozenset[int]]:
        """The parameters that have an element if a test is true, and those if it is false."""
        nothing = frozenset[int]()
        match test:
            case ast.UnaryOp(op=ast.Not()):
                if_true, if_false = self._facts(test.operand)
                return if_false, if_true
            case ast.BoolOp():
                each = [self._facts(value) for value in test.values]
                every = isinstance(test.op, ast.And)
                whole = nothing.union(*(facts[0 if every else 1] for facts in each))
                return (whole, nothing) if every else (nothing, whole)
            case ast.Name():
                at = self._position(test)
                return (nothing if at is None else frozenset({at})), nothing
            case ast.Compare(
                left=ast.Call(args=[measured]) as call, ops=[op], comparators=[ast.Constant(value=number)]
            ):
                at = self._position(measured)
                if at is None or self.text.meaning(call) != ("builtin", "len") or type(number) is not int:
                    return nothing, nothing
                here, test_of = frozenset({at}), (type(op), number)
                return (here if test_of in _LONGER else nothing), (here if test_of in _EMPTY else nothing)
            case _:
                return nothing, nothing


def _either(a: Length | None, b: Length | None) -> Length | None:
    return None if a is None or b is None else (a[0] | b[0], max(a[1], b[1]))


def _above_zero(number: Any) -> bool:
    return type(number) is int and number > 0
