"""The rules for comprehensions: each becomes a separate function."""

from __future__ import annotations

import ast
from typing import Any

from agentflow.core.data.values import OrderedSet
from agentflow.lang.charging import check_collection
from agentflow.lang.code_writer import LOAD, STORE, as_bool
from agentflow.lang.python import compare, values
from agentflow.lang.python.builtins import rounds
from agentflow.lang.python.changes import store
from agentflow.lang.python.emitter import Emitter, expression
from agentflow.lang.python.names import Comprehension, is_range
from agentflow.lang.python.repeated import Repeated, said_again
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
        written: list[ast.stmt] = [ast.Assign([g.target(target.id)], value, **g.loc)]
        var = g.scope.find(target.id)
        if var is not None and var.fn is g.fn and g.bound:
            g.bound[-1].add(var)
        return written
    if isinstance(target, ast.Subscript):
        if isinstance(target.slice, ast.Slice):
            g.refuse(target, "assignment to a slice", "build a new list: [*xs[:a], *new, *xs[b:]]")
            return []
        return g.settled(g.ours(store, g.name("rt"), value, g.value(target.value), g.value(target.slice)))
    if isinstance(target, ast.Tuple | ast.List):
        return _unpacking(g, target, value)
    if isinstance(target, ast.Attribute):
        g.refuse(target, "assignment to a field", f'build a new one: {{**x, "{target.attr}": value}}')
    else:
        g.refuse(target, f"assignment to '{type(target).__name__}'", "assign to a name, or to x[key]")
    return []


def loop_target(g: Emitter, target: ast.expr) -> tuple[ast.expr, list[ast.stmt]]:
    """The target of a loop's assignment in each round, and the statements that begin the round with it."""
    if isinstance(target, ast.Name) and (target.id == "_" or not target.id.startswith("_")):
        with g.at(target):
            return g.target(target.id), []
    name = g.tmp()
    return ast.Name(name, STORE, **g.loc), assignment(g, target, g.name(name))


def _unpacking(g: Emitter, target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.stmt]:
    leaves: list[ast.expr] = []
    shape = shape_of(target, leaves)
    parts = g.ours(unpacked, g.name("rt"), value, g.packed_constant(("shape", shape), lambda: shape))
    parts = g.long(parts) if g.labelled else parts
    names_only = all(isinstance(each, ast.Name) and (each.id == "_" or not each.id.startswith("_")) for each in leaves)
    if names_only:
        targets: list[ast.expr] = [g.target(each.id) for each in leaves]  # type: ignore[attr-defined]
        return [ast.Assign([ast.Tuple(targets, STORE, **g.loc)], parts, **g.loc)]
    names = [g.tmp() for _ in leaves]
    targets = [ast.Name(each, STORE, **g.loc) for each in names]
    written: list[ast.stmt] = [ast.Assign([ast.Tuple(targets, STORE, **g.loc)], parts, **g.loc)]
    for leaf, name in zip(leaves, names, strict=True):
        written += assignment(g, leaf, g.name(name))
    return written


def shape_of(target: ast.Tuple | ast.List, leaves: list[ast.expr]) -> tuple[Any, ...]:
    """The shape of a target that takes a value apart: None for a part, ``"*"`` for a starred one; its parts are added to ``leaves``."""
    shape: list[Any] = []
    for each in target.elts:
        if isinstance(each, ast.Tuple | ast.List):
            shape.append(shape_of(each, leaves))
        else:
            shape.append("*" if isinstance(each, ast.Starred) else None)
            leaves.append(each.value if isinstance(each, ast.Starred) else each)
    return tuple(shape)


_AGAIN = "again_"
"""The variable of a dict or set comprehension that collects repeated keys."""


@expression(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
def comprehension(g: Emitter, node: Comprehension) -> ast.expr:
    return collected(g, node, None)


def collected(g: Emitter, node: Comprehension, stop: bool | None) -> ast.expr:
    """A separate function with loops; ``stop`` is the truth value that decides ``any`` or ``all``."""
    g.counter += 1
    py, out = f"comp_{g.counter}", f"out_{g.counter}"
    over = node.generators[0].iter
    first = iterable(g, over)

    def build() -> list[ast.stmt]:
        keyed = isinstance(node, ast.DictComp | ast.SetComp)
        empty = ast.Dict([], [], **g.loc) if keyed else ast.List([], LOAD, **g.loc)
        head: list[ast.stmt] = [ast.Assign([ast.Name(out, STORE, **g.loc)], empty, **g.loc)]
        if keyed and g.labelled:
            again = g.call(g.const_param(Repeated, "Repeated_"), [])
            head.append(ast.Assign([ast.Name(_AGAIN, STORE, **g.loc)], again, **g.loc))
        source: ast.expr = ast.Name("it_", LOAD, **g.loc)
        loops = _rounds(g, node, 0, source, out, stop)
        result: ast.expr = g.name(out)
        if keyed and g.labelled:
            result = g.long(g.call(g.const_param(said_again, "said_again_"), [g.name(_AGAIN), result]))
        if stop is not None:
            result = g.const(not stop)
        elif isinstance(node, ast.SetComp):
            result = g.call(g.const_param(OrderedSet.of, "OrderedSet_of"), [result])
        return [*head, *loops, ast.Return(result, **g.loc)]

    definition = g.define(py, ["it_"], g.scopes.scopes[node], build, step=False)
    g.before.append(definition)
    value = g.await_(g.call(g.name(py), [g.name("rt"), g.deeper(), first]))
    return as_bool(value) if stop is not None else value


def _rounds(g: Emitter, node: Comprehension, at: int, source: ast.expr, out: str, stop: bool | None) -> list[ast.stmt]:
    generator = node.generators[at]
    with g.nested(generator.iter):
        target, inside = loop_target(g, generator.target)
        inside = [*g.flushed(), *inside]
        for each in generator.ifs:
            test = ast.UnaryOp(ast.Not(), g.true(g.value(each)), **g.loc)
            inside += [*g.flushed(), ast.If(test, [ast.Continue(**g.loc)], [], **g.loc)]
        if at + 1 < len(node.generators):
            over = node.generators[at + 1].iter
            again = iterable(g, over)
            before = g.flushed()
            inside += [*before, *_rounds(g, node, at + 1, again, out, stop)]
        else:
            last = _round(g, node, out, stop)
            inside += [*g.flushed(), *last]
        return [ast.For(target, source, [*step(g, out), *inside], [], **g.loc)]


def step(g: Emitter, out: str | None) -> list[ast.stmt]:
    """Take a step; when the slice ends, check the size of the result."""
    taken, test = g.fuel()
    assert isinstance(test, ast.If)
    if out is not None:
        size = g.call(g.const_param(len, "len_"), [g.name(out)])
        checked = g.ours(check_collection, g.name("rt"), size, g.const("a comprehension"))
        test.body.append(ast.Expr(checked, **g.loc))
    return [taken, test]


def _round(g: Emitter, node: Comprehension, out: str, stop: bool | None) -> list[ast.stmt]:
    if isinstance(node, ast.DictComp):
        pair, key = g.tmp(), g.tmp()
        both = g.tuple_of([g.ours(compare.key, g.value(node.key)), g.value(node.value)])
        names: list[ast.expr] = [ast.Name(key, STORE, **g.loc), ast.Name(pair, STORE, **g.loc)]
        first = ast.Assign([ast.Tuple(names, STORE, **g.loc)], both, **g.loc)
        return [first, _put(g, out, g.name(key), g.name(pair))]
    value = g.value(node.elt)
    if stop is not None:
        test = g.true(value)
        settled = test if stop else ast.UnaryOp(ast.Not(), test, **g.loc)
        return [ast.If(settled, [ast.Return(g.const(stop), **g.loc)], [], **g.loc)]
    if isinstance(node, ast.SetComp):
        return [_put(g, out, g.ours(compare.key, value), g.const(None))]
    append = g.call(g.attr(g.name(out), "append"), [value])
    return [ast.Expr(append, **g.loc)]


def _put(g: Emitter, out: str, key: ast.expr, value: ast.expr) -> ast.stmt:
    """``out[key] = value``; in a flow with a policy, a key that exists already also gets the sources of this one."""
    if not g.labelled:
        return ast.Assign([ast.Subscript(g.name(out), key, STORE, **g.loc)], value, **g.loc)
    return ast.Expr(g.call(g.attr(g.name(_AGAIN), "put"), [g.name(out), key, value]), **g.loc)


def iterable(g: Emitter, node: ast.expr) -> ast.expr:
    """The iterable of a ``for``: ``range(...)`` never becomes a list."""
    if is_range(node) and g.scope.find("range") is None and g.kind("range") == "unknown":
        assert isinstance(node, ast.Call)
        g.meanings[node] = ("builtin", "range")
        with g.at(node):
            return g.ours(rounds, *[g.value(each) for each in node.args])
    return g.ours(values.iterated, g.name("rt"), g.value(node))
