"""The rules for operators."""

from __future__ import annotations

import ast
import operator
from typing import Any

from agentflow.core.data.source import Span
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.lowered_functions import is_false, is_within
from agentflow.lang.kernel.nodes import Const, Node, Prim, Ref, Set
from agentflow.lang.python import compare, values
from agentflow.lang.python.lowering import Lowering, expression
from agentflow.lang.python.takes import check_sum

BINARY: dict[type[ast.operator], Any] = {
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
ORDERED: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_UNARY: dict[type[ast.unaryop], Any] = {
    ast.USub: values.negative,
    ast.UAdd: values.positive,
    ast.Invert: values.inverted,
}


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
    function = BINARY.get(type(op))
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
    if type(op) in ORDERED:
        return Prim(at, compare.ordered, [Const(None, ORDERED[type(op)]), left, right], takes_rt=True)
    return Prim(at, compare.eq if isinstance(op, ast.Eq) else compare.ne, [left, right], takes_rt=True)
