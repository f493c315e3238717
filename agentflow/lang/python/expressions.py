"""The rules for expressions."""

from __future__ import annotations

import ast
from functools import partial

from agentflow.core.data.source import Span
from agentflow.lang.kernel.inline import as_dict, as_list
from agentflow.lang.kernel.lowered_functions import as_set as as_set_of_keys
from agentflow.lang.kernel.lowered_functions import as_tuple, entries_of, gathered_of
from agentflow.lang.kernel.nodes import Const, Node, Prim, Set
from agentflow.lang.python import compare, values
from agentflow.lang.python.absent import DOTTED, HIDDEN, METHODS_ABSENT
from agentflow.lang.python.builtins import CONSTANTS, KINDS
from agentflow.lang.python.displays import as_set, spread_dict
from agentflow.lang.python.function_values import method_of
from agentflow.lang.python.lowering import Lowering, expression
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.names import COMPREHENSIONS
from agentflow.lang.python.texts import formatted, joined, text, written
from agentflow.lib.text.suggest import did_you_mean

# -- atoms --------------------------------------------------------------------------------------------------------


@expression(ast.Constant)
def constant(g: Lowering, node: ast.Constant) -> Node:
    value: object = node.value
    if value is None or type(value) in (bool, int, float, str):
        if type(value) is int and value.bit_length() > g.limits.integer_bits:
            g.wrong(node, "syntax/number", "the number is too large", "give it by bindings")
        return Const(g.span_at(node), value)
    if type(value) is complex:
        g.refuse(node, "a complex number", "numbers are int and float")
    elif type(value) is bytes:
        g.refuse(node, "bytes", "text is str: leave out the b")
    else:
        g.refuse(node, "'...'", "write pass, or None")
    return g.refused()


@expression(ast.JoinedStr)
def f_string(g: Lowering, node: ast.JoinedStr) -> Node:
    at = g.span_at(node)
    parts = [
        _placeholder(g, each, at) if isinstance(each, ast.FormattedValue) else g.value(each) for each in node.values
    ]
    return parts[0] if len(parts) == 1 else Prim(at, joined, parts, takes_rt=True)


def _placeholder(g: Lowering, node: ast.FormattedValue, at: Span) -> Node:
    value = g.value(node.value)
    if node.conversion in (ord("r"), ord("a")):
        value = Prim(at, written, [value], takes_rt=True)
    elif node.conversion == ord("s") or node.format_spec is None:
        value = Prim(at, text, [value], takes_rt=True)
    if node.format_spec is not None:
        value = Prim(at, formatted, [value, g.value(node.format_spec)], takes_rt=True)
    return value


# -- collections --------------------------------------------------------------------------------------------------


@expression(ast.List)
def list_(g: Lowering, node: ast.List) -> Node:
    at = g.span_at(node)
    return _collected(g, node.elts, at) or Prim(at, as_list, g.values(node.elts))


@expression(ast.Tuple)
def tuple_(g: Lowering, node: ast.Tuple) -> Node:
    at = g.span_at(node)
    items = _collected(g, node.elts, at)
    return Prim(at, as_tuple, g.values(node.elts)) if items is None else Prim(at, tuple, [items])


@expression(ast.Set)
def set_(g: Lowering, node: ast.Set) -> Node:
    at = g.span_at(node)
    items = _collected(g, node.elts, at)
    if items is not None:
        return Prim(at, as_set, [items])
    return Prim(at, as_set_of_keys, [Prim(at, compare.key, [each]) for each in g.values(node.elts)])


def _collected(g: Lowering, items: list[ast.expr], at: Span) -> Node | None:
    """The list of items, some of them starred; None if none is."""
    if not any(isinstance(each, ast.Starred) for each in items):
        return None
    parts: list[Node] = []
    for each in items:
        if isinstance(each, ast.Starred):
            parts.append(Prim(at, values.elements, [g.value(each.value), Const(None, "'*'")], takes_rt=True))
        else:
            parts.append(g.value(each))
    spread = tuple([isinstance(each, ast.Starred) for each in items])
    return Prim(at, partial(gathered_of, spread), parts, takes_rt=True)


@expression(ast.Dict)
def dict_(g: Lowering, node: ast.Dict) -> Node:
    at = g.span_at(node)
    keys = [each.value if isinstance(each, ast.Constant) else node for each in node.keys]
    if all(type(each) in (str, bool, type(None)) for each in keys):
        return Prim(at, partial(as_dict, tuple(keys)), g.values(node.values))
    parts: list[Node] = []
    for key, value in zip(node.keys, node.values, strict=True):
        parts.append(Const(None, None) if key is None else g.value(key))
        lowered = g.value(value)
        parts.append(Prim(at, spread_dict, [lowered]) if key is None else lowered)
    spread = tuple([each is None for each in node.keys])
    return Prim(at, partial(entries_of, spread), parts, takes_rt=True)


@expression(ast.Subscript)
def subscript(g: Lowering, node: ast.Subscript) -> Node:
    at, value, index = g.span_at(node), g.value(node.value), node.slice
    if not isinstance(index, ast.Slice):
        return Prim(at, values.element, [value, g.value(index)], takes_rt=True)
    ends = (index.lower, index.upper, index.step)
    bounds = [Const(None, None) if each is None else g.value(each) for each in ends]
    return Prim(at, values.part, [value, *bounds], takes_rt=True)


@expression(ast.Attribute)
def attribute(g: Lowering, node: ast.Attribute) -> Node:
    if node.attr.startswith("_"):
        g.refuse(node, f"'.{node.attr}'", HIDDEN.get(node.attr, "names that begin with _ are out of reach"))
        return g.refused()
    at = g.span_at(node)
    if isinstance(node.value, ast.Name) and g.is_outside(node.value.id):
        dotted = f"{node.value.id}.{node.attr}"
        if node.value.id in KINDS:
            return _method_value(g, node, node.value.id, dotted, at)
        if dotted in CONSTANTS:
            return Const(at, CONSTANTS[dotted])
    if isinstance(node.value, ast.Name) and node.value.id in g.foreign and g.scope.find(node.value.id) is None:
        return g.refused()
    return Prim(at, values.member, [g.value(node.value), Const(None, node.attr)], takes_rt=True)


def _method_value(g: Lowering, node: ast.Attribute, kind: str, dotted: str, at: Span) -> Node:
    """``str.lower`` as a function: for ``key=`` and ``map``."""
    type_ = KINDS[kind][0]
    if node.attr not in METHODS.get(type_, {}):
        hint = DOTTED.get(dotted) or METHODS_ABSENT.get(node.attr) or did_you_mean(node.attr, METHODS.get(type_, {}))
        hint = hint or f"write lambda x: x.{node.attr}()"
        g.wrong(node, "name/not-here", f"'{dotted}' is not there in workflow texts", hint)
        return g.refused()
    described = (type_, node.attr, dotted)
    return Const(at, method_of(*described), described)


@expression(ast.Await)
def awaited(g: Lowering, node: ast.Await) -> Node:
    return g.value(node.value)


@expression(ast.NamedExpr)
def named(g: Lowering, node: ast.NamedExpr) -> Node:
    var = g.scope.find(node.target.id)
    if node.target.id.startswith("_") or not (g.scope.is_function or g.scope.parent is None) or g.in_thunk:
        hint = "assign in a statement before"
        if isinstance(g.scope.node, COMPREHENSIONS):
            hint = "compute it in an inner one: [y for y in [f(x) for x in xs] if y]"
        g.refuse(node, "':=' here", hint)
        return g.refused()
    value = g.value(node.value)
    if var is not None and var.scope is not g.scope:
        g.refuse(node, "':=' to a variable of another function", "assign in a statement")
        return g.refused()
    return Set(g.span_at(node), g.variable(node.target.id), value)
