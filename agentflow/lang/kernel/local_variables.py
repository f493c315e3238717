"""The variables of functions in texts in Python that may lack a value, or be read by other code."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from agentflow.lang.python.names import (
    FUNCTIONS,
    LocalVariable,
    ProgramScopes,
    PythonScope,
    all_parameters,
    bound_by,
)


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
        bound = {name for each in ast.walk(statement) for name in bound_by(each)} & scope.vars.keys()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            certain.add(statement.name)
        perhaps |= bound - certain - _assigned_here(statement)
        certain |= _assigned_here(statement) - perhaps
    perhaps |= {name for each in scope.nodes if isinstance(each, ast.Delete) for name in _names(each)}
    within = captured(scopes)
    perhaps |= {name for name, var in scope.vars.items() if var.shared or var in within}
    return (perhaps | finally_names(scope)) - first


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
