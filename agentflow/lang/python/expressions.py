"""The rules for expressions."""

from __future__ import annotations

import ast
import operator
from functools import partial
from typing import Any

from agentflow.core.data.source import Span
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.inline import as_dict, as_list
from agentflow.lang.kernel.lowered_functions import as_set as as_set_of_keys
from agentflow.lang.kernel.lowered_functions import as_tuple, entries_of, gathered_of, is_false, is_within
from agentflow.lang.kernel.nodes import Const, Node, Prim, Ref, Set
from agentflow.lang.python import compare, values
from agentflow.lang.python.absent import DOTTED, HIDDEN, METHODS_ABSENT
from agentflow.lang.python.builtins import CONSTANTS, KINDS
from agentflow.lang.python.displays import as_set, spread_dict
from agentflow.lang.python.function_values import method_of
from agentflow.lang.python.lowering import Lowering, expression
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.names import COMPREHENSIONS
from agentflow.lang.python.takes import check_sum
from agentflow.lang.python.texts import formatted, joined, text, written
from agentflow.lib.text.suggest import did_you_mean

_BINARY: dict[type[ast.operator], Any] = {
    ast.Add: values.add,
    ast.Sub: values.subtract,
    ast.Mult: values.multiply,
    ast.Div: values.divide,
    ast.FloorDiv: values.floor_divide,
    ast.Mod: values.modulo,
    ast.Pow: values.power,
}
_SIGNED: dict[type[ast.operator], tuple[Any, str]] = {
    ast.LShift: (values.shift, "<<"),
    ast.RShift: (values.shift, ">>"),
    ast.BitAnd: (values.bitwise, "&"),
    ast.BitOr: (values.bitwise, "|"),
    ast.BitXor: (values.bitwise, "^"),
}
_ORDERED: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_UNARY: dict[type[ast.unaryop], Any] = {
    ast.USub: values.negative,
    ast.UAdd: values.positive,
    ast.Invert: values.inverted,
}


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


# -- operators ----------------------------------------------------------------------------------------------------


@expression(ast.BinOp)
def binary(g: Lowering, node: ast.BinOp) -> Node:
    if isinstance(node.op, ast.Mod) and _is_written_text(node.left):
        g.wrong(node, "name/not-here", "'%' of a text is not there in workflow texts", 'write an f-string: f"{x:.2f}"')
        return g.refused()
    if g.seeks_failures and isinstance(node.op, ast.Add):
        check_sum(g, node)
    return operation(g.span_at(node), node.op, g.value(node.left), g.value(node.right))


def operation(at: Span, op: ast.operator, left: Node, right: Node) -> Node:
    """``left op right``."""
    if type(op) in _SIGNED:
        function, sign = _SIGNED[type(op)]
        return Prim(at, function, [Const(None, sign), left, right], takes_rt=True)
    function = _BINARY.get(type(op))
    return Const(at, None) if function is None else Prim(at, function, [left, right], takes_rt=True)


def _is_written_text(node: ast.expr) -> bool:
    """Whether an expression of the text is a literal text."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and type(node.value) is str)


@expression(ast.UnaryOp)
def unary(g: Lowering, node: ast.UnaryOp) -> Node:
    at = g.span_at(node)
    number = node.operand.value if isinstance(node.operand, ast.Constant) else None
    if isinstance(node.op, ast.USub) and type(number) in (int, float):
        return Const(at, -number)  # type: ignore[operator]
    value = g.value(node.operand)
    if isinstance(node.op, ast.Not):
        return Prim(at, is_false, [value])
    return Prim(at, _UNARY[type(node.op)], [value], takes_rt=True)


@expression(ast.BoolOp)
def logic(g: Lowering, node: ast.BoolOp) -> Node:
    return nodes.Logic(g.span_at(node), isinstance(node.op, ast.And), g.values(node.values))


@expression(ast.IfExp)
def choice(g: Lowering, node: ast.IfExp) -> Node:
    return nodes.If(g.span_at(node), [(g.value(node.test), g.value(node.body))], g.value(node.orelse))


@expression(ast.Compare)
def comparison(g: Lowering, node: ast.Compare) -> Node:
    at, tests = g.span_at(node), list[Node]()
    left = g.value(node.left)
    for index, (op, each) in enumerate(zip(node.ops, node.comparators, strict=True)):
        right = again = g.value(each)
        if index + 1 < len(node.ops):
            kept = g.temporary()
            right, again = Set(at, kept, right), Ref(at, kept)
        tests.append(_compared(at, op, left, right))
        left = again
    return tests[0] if len(tests) == 1 else nodes.Logic(at, True, tests)


def _compared(at: Span, op: ast.cmpop, left: Node, right: Node) -> Node:
    if isinstance(op, ast.Is | ast.IsNot):
        return Prim(at, operator.is_ if isinstance(op, ast.Is) else operator.is_not, [left, right])
    if isinstance(op, ast.In | ast.NotIn):
        within = Prim(at, is_within, [left, right], takes_rt=True)
        return within if isinstance(op, ast.In) else Prim(at, operator.not_, [within])
    if type(op) in _ORDERED:
        return Prim(at, compare.ordered, [Const(None, _ORDERED[type(op)]), left, right], takes_rt=True)
    return Prim(at, compare.eq if isinstance(op, ast.Eq) else compare.ne, [left, right], takes_rt=True)
