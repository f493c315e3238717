"""A text in Python, as its analysis sees it: the variable behind each name, and the code of each function."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from agentflow.lang import ir
from agentflow.lang.ir import Lambda, Var
from agentflow.lang.python.emitter import Emitter, Meaning
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


@dataclass(frozen=True, slots=True)
class Body:
    """What a function of the text does, as a node that is followed."""

    function: Function


@dataclass(eq=False, slots=True)
class ParameterList:
    """How a function is called: its parameters in order, the first ``positional`` also by position; what stands for those left out."""

    names: Sequence[str]
    positional: int
    defaults: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])


class Text:
    """What is known of a text before it is followed.

    ``used`` are the names of the environment that stand for values. ``variables`` is the variable that a name, a definition or a handler stands for, None for one of the environment. A variable that one
    function assigns more than once, or in a loop, while another reads it, may be anything (``mutated``).
    """

    def __init__(self, g: Emitter) -> None:
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
        """Whether a variable is bound in one place, so that it has one value in each call."""
        return self._writes.get(var, 0) == 1 and var not in self._again

    def reads(self, node: ast.expr) -> frozenset[Var] | None:
        """The variables that an expression reads which does nothing but compute; None for any other."""
        if node not in self._reads:
            self._reads[node] = self._variables_in(node) if _is_pure(node) else None
        return self._reads[node]

    def _variables_in(self, node: ast.expr) -> frozenset[Var]:
        names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        return frozenset(var for each in names if (var := self.variables.get(each)) is not None)

    def written(self, loop: ast.For | ast.While) -> Mapping[Var, int]:
        """How often each variable is written in a loop."""
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
        """The code of a function: the same each time."""
        code = self._codes.get(node)
        if code is None:
            name = None if isinstance(node, ast.Lambda) else node.name
            function = ir.Function("lambda", self._home)
            body = cast(ir.IR, Body(node))
            code = self._codes[node] = Lambda(self.place(node), name, self.parameters[node], None, body, function)
            self._signatures[id(code)] = _signature(node.args)
        return code

    def signature(self, code: Lambda) -> ParameterList:
        """How a function is called."""
        return self._signatures[id(code)]

    def place(self, node: ast.AST) -> Node:
        """Where a node stands."""
        site = self._places.get(node)
        if site is None:
            span = self.g.span_at(node)
            site = self._places[node] = Atom(None, span.start, span.end)
        return site

    def meaning(self, node: ast.AST) -> Meaning | None:
        """What a call turned out to be."""
        return self.g.meanings.get(node)


_PURE = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.expr_context, ast.operator, ast.unaryop, ast.Subscript)
_FUNCTIONS = frozenset(("len", "min", "max", "abs", "int"))


def _is_pure(node: ast.expr) -> bool:
    """Whether an expression does nothing but compute, of names, constants, arithmetic and lengths."""
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
    """The function that the code of a scope is part of; None for the module."""
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
