"""The variables that a part of a text may change, and the ways to leave it: the marks that a condition must set beforehand (``strict``
policies)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agentflow.lang.python.names import (
    COMPREHENSIONS,
    FUNCTIONS,
    LocalVariable,
    ProgramScopes,
    PythonScope,
    all_parameters,
    bound_by,
    parts_of,
)
from agentflow.lang.python.reader import children
from agentflow.lang.python.strict import CHANGING

Variable: TypeAlias = "LocalVariable | str"
"""A variable: a local one, or the name of one of the environment."""


@dataclass
class Target:
    """A variable that is ``assigned``, or has a container changed in place."""

    variable: Variable
    assigned: bool = False


def targets(scopes: ProgramScopes, scope: PythonScope, nodes: Iterable[ast.AST]) -> list[Target]:
    """The variables that code within ``nodes`` of ``scope`` may change, including functions written in it; not their own
    variables."""
    written: dict[Variable, Target] = {}
    inner: set[PythonScope] = set()
    pending: list[tuple[ast.AST, PythonScope]] = [(each, scope) for each in nodes]
    while pending:
        node, at = pending.pop()
        for name, assigned in _written(node):
            variable: Variable = at.find(name) or name
            if isinstance(variable, str) or variable.scope not in inner:
                target = written.setdefault(variable, Target(variable))
                target.assigned = target.assigned or assigned
        if isinstance(node, (*FUNCTIONS, *COMPREHENSIONS)):
            own = scopes.scopes[node]
            inner.add(own)
            first = node.generators[0].iter if isinstance(node, COMPREHENSIONS) else None
            pending += [(each, at if each is first else own) for each in _inside(node)]
        elif not isinstance(node, ast.ClassDef):
            pending += [(each, at) for each in children(node)]
    return list(written.values())


def _inside(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Lambda):
        return [node.body]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return list(node.body)
    assert isinstance(node, COMPREHENSIONS)
    parts: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    for each in node.generators:
        parts += [each.iter, each.target, *each.ifs]
    return parts


def _written(node: ast.AST) -> Iterable[tuple[str, bool]]:
    """The variables that a node itself writes, and whether it assigns them; otherwise it changes their contents."""
    for name in bound_by(node):
        yield name, True
    base: ast.expr | None = None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        base = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        base = node.func.value
    while isinstance(base, ast.Attribute | ast.Call | ast.Subscript | ast.Await):
        base = base.func if isinstance(base, ast.Call) else base.value
    if isinstance(base, ast.Name):
        yield base.id, False


@dataclass(frozen=True)
class Exits:
    """The ways to leave statements other than at their end: by ``return``, or to or out of a loop around them."""

    returns: bool
    jumps: bool


def exits(nodes: Sequence[ast.AST]) -> Exits:
    """The ways to leave statements."""
    returns = jumps = False
    pending = [(each, False) for each in nodes]
    while pending:
        node, looping = pending.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.expr)):
            continue
        if isinstance(node, ast.Return):
            returns = True
        elif isinstance(node, ast.Break | ast.Continue):
            jumps = jumps or not looping
        elif isinstance(node, ast.For | ast.While):
            pending += [(each, True) for each in node.body]
            pending += [(each, looping) for each in node.orelse]
        else:
            pending += [(each, looping) for each in ast.iter_child_nodes(node)]
    return Exits(returns, jumps)


def perhaps_unbound(scopes: ProgramScopes, scope: PythonScope) -> set[str]:
    """The variables of a function that may have no value when they are read or marked."""
    node = scope.node
    if not isinstance(node, FUNCTIONS):
        return set()
    body: Sequence[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else node.body
    certain = {each.arg for each in all_parameters(node.args)}
    first = set(certain)
    perhaps: set[str] = set()
    for statement in body:
        bound = _own_names(targets(scopes, scope, [statement]), scope)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            certain.add(statement.name)
        perhaps |= bound - certain - _assigned_here(statement)
        certain |= _assigned_here(statement) - perhaps
    perhaps |= {name for each in scope.nodes if isinstance(each, ast.Delete) for name in _names(each)}
    within = captured(scopes)
    perhaps |= {name for name, var in scope.vars.items() if var.shared or var in within}
    return (perhaps | finally_names(scope)) - first


def certainly_bound(scopes: ProgramScopes) -> set[str]:
    """The module's names that certainly have a value after one of its own statements."""
    certain: set[str] = set()
    for statement in parts_of(scopes.module.node):
        certain |= _assigned_here(statement)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            certain.add(statement.name)
    for scope in scopes.scopes.values():
        for node in scope.nodes:
            if isinstance(node, ast.Delete):
                certain -= {name for name in _names(node) if scope.find(name) is None}
    return certain


def captured(scopes: ProgramScopes) -> set[LocalVariable]:
    """The variables of a function that functions inside it read: these may outlive it, and read its last values."""
    outliving = scopes.captured
    if outliving is None:
        outliving = scopes.captured = set()
        for scope in scopes.scopes.values():
            for node in scope.nodes:
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    var = scope.find(node.id)
                    if var is not None and _is_within_function(scope, var.scope):
                        outliving.add(var)
    return outliving


def _is_within_function(scope: PythonScope, outer: PythonScope) -> bool:
    at: PythonScope | None = scope
    while at is not None and at is not outer:
        if at.is_function:
            return True
        at = at.parent
    return False


def _own_names(written: Iterable[Target], scope: PythonScope) -> set[str]:
    variables = [each.variable for each in written]
    return {each.name for each in variables if isinstance(each, LocalVariable) and each.scope is scope}


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}


def _assigned_here(statement: ast.AST) -> set[str]:
    """The variables that a simple statement assigns in any case."""
    if isinstance(statement, ast.Assign):
        return {name for each in statement.targets for name in _names(each)}
    return _names(statement.target) if isinstance(statement, ast.AnnAssign) and statement.value is not None else set()


def finally_names(scope: PythonScope) -> set[str]:
    """The variables that a ``finally`` of the scope assigns: it becomes a separate function."""
    names: set[str] = set()
    for each in scope.nodes:
        if isinstance(each, ast.Try):
            for inner in each.finalbody:
                names |= {name for at in ast.walk(inner) for name in bound_by(at)}
    return names
