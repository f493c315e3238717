"""The rules for comprehensions, and for the targets of assignments and loops."""

from __future__ import annotations

import ast
import operator
from typing import Any, Literal, TypeAlias

from agentflow.core.data.source import Span
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.nodes import Const, Node, Prim, Ref, Set, Variable
from agentflow.lang.python import compare, values
from agentflow.lang.python.builtins import rounds
from agentflow.lang.python.changes import store
from agentflow.lang.python.lowering import Lowering, expression
from agentflow.lang.python.names import Comprehension, PythonScope, is_range

Kind: TypeAlias = Literal["list", "set", "dict", "any", "all"]


def assignment(g: Lowering, target: ast.expr, value: Node) -> list[Node]:
    """The nodes that assign ``value`` to ``target``."""
    at = g.span_at(target)
    if isinstance(target, ast.Name):
        if not _is_name(target):
            g.refuse(target, f"the name '{target.id}'", "names do not begin with _")
            return []
        return [Set(at, g.target(target.id, at), value)]
    if isinstance(target, ast.Subscript):
        if isinstance(target.slice, ast.Slice):
            g.refuse(target, "assignment to a slice", "build a new list: [*xs[:a], *new, *xs[b:]]")
            return []
        container, key = g.value(target.value), g.value(target.slice)
        return [Prim(at, store, [value, container, key], takes_rt=True)]
    if isinstance(target, ast.Tuple | ast.List):
        return _unpacking(g, target, at, value)
    if isinstance(target, ast.Attribute):
        g.refuse(target, "assignment to a field", f'build a new one: {{**x, "{target.attr}": value}}')
    else:
        g.refuse(target, f"assignment to '{type(target).__name__}'", "assign to a name, or to x[key]")
    return []


def _is_name(target: ast.Name) -> bool:
    return target.id == "_" or not target.id.startswith("_")


def loop_item(g: Lowering, target: ast.expr) -> tuple[Variable | str, list[Node]]:
    """The variable that gets the element of a round, and the nodes that begin the round with it."""
    if isinstance(target, ast.Name) and _is_name(target):
        return g.target(target.id, g.span_at(target)), []
    item = g.temporary()
    return item, assignment(g, target, Ref(g.span_at(target), item))


def _unpacking(g: Lowering, target: ast.Tuple | ast.List, at: Span, value: Node) -> list[Node]:
    leaves: list[ast.expr] = []
    shape = shape_of(target, leaves)
    parts = g.temporary()
    lowered: list[Node] = [Set(at, parts, Prim(at, values.unpacked, [value, Const(None, shape)], takes_rt=True))]
    taken = [Prim(at, operator.getitem, [Ref(at, parts), Const(None, index)]) for index in range(len(leaves))]
    if all(isinstance(each, ast.Name) and _is_name(each) for each in leaves):
        return lowered + [one for each, part in zip(leaves, taken, strict=True) for one in assignment(g, each, part)]
    kept = [g.temporary() for _ in leaves]
    lowered += [Set(at, each, part) for each, part in zip(kept, taken, strict=True)]
    return lowered + [
        one for each, part in zip(leaves, kept, strict=True) for one in assignment(g, each, Ref(at, part))
    ]


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


@expression(ast.ListComp, ast.GeneratorExp)
def list_(g: Lowering, node: ast.ListComp | ast.GeneratorExp) -> Node:
    return collected(g, node, "list")


@expression(ast.SetComp)
def set_(g: Lowering, node: ast.SetComp) -> Node:
    return collected(g, node, "set")


@expression(ast.DictComp)
def dict_(g: Lowering, node: ast.DictComp) -> Node:
    return collected(g, node, "dict")


def collected(g: Lowering, node: Comprehension, kind: Kind) -> Node:
    """A comprehension, or the test of its elements by ``any`` or ``all``."""
    outer = g.scope
    frame, body = g.within(node, lambda: _rounds(g, node, kind, outer, 0))
    return text_nodes.Collect(g.span_at(node), kind, frame, body)


def _rounds(g: Lowering, node: Comprehension, kind: Kind, outer: PythonScope, index: int) -> Node:
    """The loop over one iterable, around those over the later ones. ``outer`` is the scope of the code around.

    The names in the first iterable mean those of the code around; it is carried out in the frame of the comprehension.
    """
    at = g.span_at(node)
    if index == len(node.generators):
        if isinstance(node, ast.DictComp):
            key = Prim(at, compare.key, [g.value(node.key)])
            return text_nodes.Yield(at, key, g.value(node.value))
        value = g.value(node.elt)
        if kind == "set":
            return text_nodes.Yield(at, Prim(at, compare.key, [value]), None)
        return text_nodes.Yield(at, None, value)
    generator, inner = node.generators[index], g.scope
    with g.nested(generator.iter):
        g.scope = inner if index else outer
        over = iterable(g, generator.iter, at)
        g.scope = inner
        item, inside = loop_item(g, generator.target)
        tests = g.values(generator.ifs)
        body = _rounds(g, node, kind, outer, index + 1)
        for test in reversed(tests):
            body = nodes.If(at, [(test, body)], Const(None, None))
        return nodes.For(at, over, item, nodes.Seq(None, [*g.flushed(), *inside, body]))


def iterable(g: Lowering, node: ast.expr, at: Span) -> Node:
    """The iterable of the loop ``at``: ``range(...)`` never becomes a list."""
    if is_range(node) and g.is_outside("range"):
        assert isinstance(node, ast.Call)
        return Prim(g.span_at(node), rounds, g.values(node.args))
    return Prim(at, values.iterated, [g.value(node)], takes_rt=True)
