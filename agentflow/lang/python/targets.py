"""Assignments to names, elements and several of these at once."""

from __future__ import annotations

import ast
from typing import Any

from agentflow.lang.generated import STORE
from agentflow.lang.python.changes import store
from agentflow.lang.python.emitter import Emitter
from agentflow.lang.python.values import unpacked


def assignment(g: Emitter, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    """The statements that assign ``value`` to ``target``."""
    with g.at(target):
        return _assignment(g, target, value)


def _assignment(g: Emitter, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    if isinstance(target, ast.Name):
        if target.id.startswith("_") and target.id != "_":
            g.refuse(target, f"the name '{target.id}'", "names do not begin with _")
            return []
        if g.followed is not None:
            return g.followed.bind(target.id, value)
        written: list[ast.stmt] = [ast.Assign([g.target(target.id)], value, **g.loc)]
        var = g.scope.find(target.id)
        if var is not None and var.fn is g.fn and g.bound:
            g.bound[-1].add(var)
        return written
    if isinstance(target, ast.Subscript):
        if isinstance(target.slice, ast.Slice):
            g.refuse(target, "assignment to a slice", "build a new list: [*xs[:a], *new, *xs[b:]]")
            return []
        if g.followed is not None:
            return _stored(g, target, value)
        return g.settled(g.ours(store, g.name("rt"), value, g.value(target.value), g.value(target.slice)))
    if isinstance(target, ast.Tuple | ast.List):
        return _unpacking(g, target, value)
    if isinstance(target, ast.Attribute):
        g.refuse(target, "assignment to a field", f'build a new one: {{**x, "{target.attr}": value}}')
    else:
        g.refuse(target, f"assignment to '{type(target).__name__}'", "assign to a name, or to x[key]")
    return []


def loop_target(g: Emitter, target: ast.expr) -> tuple[ast.expr, list[ast.stmt]]:
    """What a loop assigns each round, and the statements that begin the round with it."""
    if g.followed is None and isinstance(target, ast.Name) and (target.id == "_" or not target.id.startswith("_")):
        with g.at(target):
            return g.target(target.id), []
    name = g.tmp()
    return ast.Name(name, STORE, **g.loc), assignment(g, target, g.name(name))


def _stored(g: Emitter, target: ast.Subscript, value: ast.expr) -> list[ast.stmt]:
    """``x[key] = value``, before which the variable that holds the container is marked."""
    assert g.followed is not None
    new = g.tmp()
    at = g.value(target.slice)

    def change(again: list[ast.expr]) -> ast.expr:
        return g.ours(store, g.name("rt"), g.name(new), g.value(target.value), again[0])

    code = g.followed.before_change(target.value, "[]=", [at], [target.slice], change)
    return [ast.Assign([ast.Name(new, STORE, **g.loc)], value, **g.loc), *g.settled(code)]


def _unpacking(g: Emitter, target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.stmt]:
    leaves: list[ast.expr] = []
    shape = _shape(target, leaves)
    parts = g.ours(unpacked, g.name("rt"), value, g.packed_constant(("shape", shape), lambda: shape))
    parts = g.long(parts) if g.labelled else parts
    names_only = all(isinstance(each, ast.Name) and (each.id == "_" or not each.id.startswith("_")) for each in leaves)
    if g.followed is None and names_only:
        targets: list[ast.expr] = [g.target(each.id) for each in leaves]  # type: ignore[attr-defined]
        return [ast.Assign([ast.Tuple(targets, STORE, **g.loc)], parts, **g.loc)]
    names = [g.tmp() for _ in leaves]
    targets = [ast.Name(each, STORE, **g.loc) for each in names]
    written: list[ast.stmt] = [ast.Assign([ast.Tuple(targets, STORE, **g.loc)], parts, **g.loc)]
    for leaf, name in zip(leaves, names, strict=True):
        written += assignment(g, leaf, g.name(name))
    return written


def _shape(target: ast.Tuple | ast.List, leaves: list[ast.expr]) -> tuple[Any, ...]:
    shape: list[Any] = []
    for each in target.elts:
        if isinstance(each, ast.Tuple | ast.List):
            shape.append(_shape(each, leaves))
        else:
            shape.append("*" if isinstance(each, ast.Starred) else None)
            leaves.append(each.value if isinstance(each, ast.Starred) else each)
    return tuple(shape)
