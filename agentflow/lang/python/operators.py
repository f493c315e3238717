"""The rules for operators: the native operation behind tests of exact types, else a function."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from agentflow.core.data.walk import CHARACTERS_PER_STEP
from agentflow.lang.code_writer import as_bool, is_bool
from agentflow.lang.python import compare, values
from agentflow.lang.python.changes import add_to, subtract_from
from agentflow.lang.python.emitter import Emitter, expression, is_simple, unless_boxed
from agentflow.lang.python.kinds import as_counted, as_kind
from agentflow.lang.python.labelled import negated
from agentflow.lang.python.native import (
    NATIVE_BINARY,
    NATIVE_COMPARE,
    both,
    small,
)
from agentflow.lang.python.takes import check_sum
from agentflow.lang.python.values import bounded, truth

_LARGEST = 1 << 62
_DIGIT = (1 << 30) - 1
"""The largest integer of one of CPython's digits: 2 ** 30 itself has two, and a comparison with it is a general one."""

BINARY: dict[type[ast.operator], Any] = {
    ast.Add: values.add,
    ast.Sub: values.subtract,
    ast.Mult: values.multiply,
    ast.Div: values.divide,
    ast.FloorDiv: values.floor_divide,
    ast.Mod: values.modulo,
    ast.Pow: values.power,
}
SIGNED: dict[type[ast.operator], tuple[Any, str]] = {
    ast.LShift: (values.shift, "<<"),
    ast.RShift: (values.shift, ">>"),
    ast.BitAnd: (values.bitwise, "&"),
    ast.BitOr: (values.bitwise, "|"),
    ast.BitXor: (values.bitwise, "^"),
}


@expression(ast.BinOp)
def binary(g: Emitter, node: ast.BinOp) -> ast.expr:
    if isinstance(node.op, ast.Mod) and _is_written_text(node.left):
        g.wrong(node, "name/not-here", "'%' of a text is not there in workflow texts", 'write an f-string: f"{x:.2f}"')
        return g.const(None)
    if g.seeks_failures and isinstance(node.op, ast.Add):
        check_sum(g, node)
    return operation(g, node.op, g.value(node.left), g.value(node.right))


def operation(g: Emitter, op: ast.operator, left: ast.expr, right: ast.expr, in_place: Any = None) -> ast.expr:
    """``left op right``; ``in_place`` is the function for operands that are not both integers, if it differs."""
    if type(op) in SIGNED:
        function, sign = SIGNED[type(op)]
        code = g.ours(function, g.name("rt"), g.const(sign), left, right)
        return g.long(code) if function is values.bitwise else code
    function = in_place or BINARY.get(type(op))
    if function is None:
        return g.const(None)
    if type(op) in _WHOLE:
        return _divided(g, op, left, right, function)
    if type(op) in NATIVE_BINARY and not _is_text(left) and not _is_text(right):
        value = _on_integers(g, left, right, lambda a, b: _sum(g, op, a, b), lambda a, b: _by(g, function, a, b))
        return as_kind(value, int) if g.exact(left) is int and g.exact(right) is int else value
    return _by(g, function, left, right)


_LONG = (values.subtract, add_to, subtract_from)
"""Functions of operators that may leave work, for large sets or within branches."""


def _by(g: Emitter, function: Any, left: ast.expr, right: ast.expr) -> ast.expr:
    code = g.ours(function, g.name("rt"), left, right)
    return g.long(code) if function in _LONG and not _is_settled_at_once(g, left, right) else code


def _is_settled_at_once(g: Emitter, *operands: ast.expr) -> bool:
    """Whether one of the operands is so simple that no operation takes long: it leaves no work."""
    return not g.labelled and any(
        isinstance(each, ast.Constant) and (type(each.value) is not str or len(each.value) < CHARACTERS_PER_STEP)
        for each in operands
    )


_WHOLE = (ast.FloorDiv, ast.Mod)


def _divided(g: Emitter, op: ast.operator, left: ast.expr, right: ast.expr, function: Any) -> ast.expr:
    """``left // right`` and ``left % right``: native for a small integer and a positive constant."""
    if not _exact(right) or right.value < 1 or isinstance(left, ast.Constant):  # type: ignore[attr-defined]
        return g.ours(function, g.name("rt"), left, right)
    if g.is_counted(left):
        return as_counted(ast.BinOp(left, op.__class__(), right, **g.loc))
    named, again = (left, left) if is_simple(left) else g.walrus(left)
    if is_simple(left) and g.exact(left) is int:
        test = small(g, again)
    else:
        test = both(g, g.type_is(named, int), small(g, again))
    return g.ifexp(test, ast.BinOp(again, op.__class__(), right, **g.loc), g.ours(function, g.name("rt"), again, right))


def _is_written_text(node: ast.expr) -> bool:
    """Whether an expression of the text is a literal text."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and type(node.value) is str)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not _exact(value)


def _exact(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and abs(value.value) < _LARGEST


def _sum(g: Emitter, op: ast.operator, a: ast.expr, b: ast.expr) -> ast.expr:
    plain = ast.BinOp(a, op.__class__(), b, **g.loc)
    if (_exact(a) or _exact(b) or (g.is_counted(a) and g.is_counted(b))) and not isinstance(op, ast.Mult):
        return plain
    named, again = g.walrus(plain)
    test = small(g, named)
    if not isinstance(op, ast.Mult):
        # Python compares integers of one digit in a third of the time; most sums have one digit.
        within = ast.Compare(g.const(-_DIGIT), [ast.Lt(), ast.Lt()], [named, g.const(_DIGIT)], **g.loc)
        test = ast.BoolOp(ast.Or(), [within, small(g, again)], **g.loc)
    return g.ifexp(test, again, g.ours(bounded, g.name("rt"), again, g.const("an operation")))


def _on_integers(
    g: Emitter,
    left: ast.expr,
    right: ast.expr,
    fast: Callable[[ast.expr, ast.expr], ast.expr],
    slow: Callable[[ast.expr, ast.expr], ast.expr],
) -> ast.expr:
    """The native operation if both are exactly integers; else the function. Both are evaluated once, in order."""
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        return slow(left, right)  # Python folds nothing then, and the function charges.
    unsure = [each for each in (left, right) if not _exact(each) and g.exact(each) is not int]
    if not unsure:
        return fast(left, right)
    if is_simple(left) and is_simple(right):
        tests = [g.type_is(each, int) for each in unsure]
        return g.ifexp(both(g, *tests), fast(left, right), slow(left, right))
    first, a = (left, left) if _exact(left) else g.walrus(left)
    second, b = (right, right) if _exact(right) else g.walrus(right)
    if _exact(left):
        test = g.type_is(second, int)
    elif _exact(right):
        test = g.type_is(first, int)
    else:
        kind = g.const_param(type, "type_")
        others = [g.call(kind, [second]), g.const_param(int, "T_int")]
        test = ast.Compare(g.call(kind, [first]), [ast.Is(), ast.Is()], others, **g.loc)
    return g.ifexp(test, fast(a, b), slow(a, b))


_UNARY: dict[type[ast.unaryop], Any] = {
    ast.USub: values.negative,
    ast.UAdd: values.positive,
    ast.Invert: values.inverted,
}


@expression(ast.UnaryOp)
def unary(g: Emitter, node: ast.UnaryOp) -> ast.expr:
    if isinstance(node.op, ast.Not):
        return _not(g, g.value(node.operand))
    number = node.operand.value if isinstance(node.operand, ast.Constant) else None
    if isinstance(node.op, ast.USub) and type(number) in (int, float):
        return g.const(-number)  # type: ignore[operator]
    return g.ours(_UNARY[type(node.op)], g.name("rt"), g.value(node.operand))


def _not(g: Emitter, value: ast.expr) -> ast.expr:
    if not g.labelled:
        return ast.UnaryOp(ast.Not(), g.true(value), **g.loc)
    sure = is_bool(value)

    def plain(values: Sequence[ast.expr]) -> ast.expr:
        test = values[0] if sure else g.call(g.const_param(truth, "P_truth"), values)
        return ast.UnaryOp(ast.Not(), test, **g.loc)

    return unless_boxed(g, "o", [value], plain, lambda values: as_bool(g.boxed(negated, values)))


@expression(ast.BoolOp)
def logic(g: Emitter, node: ast.BoolOp) -> ast.expr:
    every = isinstance(node.op, ast.And)
    parts = [g.value(each) for each in node.values]
    value = parts[-1]
    for each in reversed(parts[:-1]):
        if is_bool(each) and is_bool(value):
            operands = [each, *(value.values if isinstance(value, ast.BoolOp) else [value])]
            same = isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) is every
            op = ast.And() if every else ast.Or()
            value = ast.BoolOp(op, operands if same else [each, value], **g.loc)
            continue
        named, again = g.walrus(each)
        test = g.true(named) if not is_bool(each) else named
        value = g.ifexp(test, value, again) if every else g.ifexp(test, again, value)
    return value


@expression(ast.IfExp)
def choice(g: Emitter, node: ast.IfExp) -> ast.expr:
    return g.ifexp(g.true(g.value(node.test)), g.value(node.body), g.value(node.orelse))


ORDERED: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


@expression(ast.Compare)
def comparison(g: Emitter, node: ast.Compare) -> ast.expr:
    tests: list[ast.expr] = []
    left = g.value(node.left)
    for index, (op, each) in enumerate(zip(node.ops, node.comparators, strict=True)):
        right = g.value(each)
        again = right
        if index + 1 < len(node.ops) and not isinstance(right, ast.Constant):
            right, again = g.walrus(right)
        tests.append(_compared(g, op, left, right))
        left = again
    if len(tests) == 1:
        return tests[0]
    return as_bool(ast.BoolOp(ast.And(), tests, **g.loc))


def _compared(g: Emitter, op: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
    if isinstance(op, ast.Is | ast.IsNot):
        return _unless_boxed(g, op, "oo", [left, right], _identical, operator.is_)
    if isinstance(op, ast.In | ast.NotIn):
        return _unless_boxed(g, op, "rc", [left, right], _within, compare.contains)
    if type(op) in ORDERED:
        first: tuple[ast.expr, ...] = (g.const(ORDERED[type(op)]),)
        function: Any = compare.ordered
    else:
        first, function = (), compare.eq if isinstance(op, ast.Eq) else compare.ne

    def fast(a: ast.expr, b: ast.expr) -> ast.expr:
        return ast.Compare(a, [op.__class__()], [b], **g.loc)

    def slow(a: ast.expr, b: ast.expr) -> ast.expr:
        code = g.ours(function, g.name("rt"), *first, a, b)
        return code if _is_settled_at_once(g, a, b) else g.long(code)

    if type(op) not in NATIVE_COMPARE or _is_text(left) or _is_text(right):
        return as_bool(slow(left, right))
    return as_bool(_on_integers(g, left, right, fast, slow))


def _unless_boxed(
    g: Emitter,
    op: ast.cmpop,
    letters: str,
    values: Sequence[ast.expr],
    plain: Callable[[Emitter, ast.cmpop, Sequence[ast.expr]], ast.expr],
    function: Any,
) -> ast.expr:
    """``plain`` for values without boxes, else the twin of ``function``, negated for ``is not`` and ``not in``."""
    if not g.labelled:
        return plain(g, op, values)

    def boxed(values: Sequence[ast.expr]) -> ast.expr:
        strand = [g.name("rt")] if function is compare.contains else []
        code = g.boxed(function, [*strand, *values])
        code = g.long(code) if strand else code
        return as_bool(g.boxed(negated, [code]) if isinstance(op, ast.IsNot | ast.NotIn) else code)

    return unless_boxed(g, letters, values, lambda values: plain(g, op, values), boxed)


def _within(g: Emitter, op: ast.cmpop, values: Sequence[ast.expr]) -> ast.expr:
    """``in`` or ``not in``."""
    code = g.call(g.const_param(compare.contains, "P_contains"), [g.name("rt"), *values])
    within = as_bool(g.long(code))
    return within if isinstance(op, ast.In) else ast.UnaryOp(ast.Not(), within, **g.loc)


def _identical(g: Emitter, op: ast.cmpop, values: Sequence[ast.expr]) -> ast.expr:
    """``is`` or ``is not``."""
    left, right = values
    if any(isinstance(each, ast.Constant) and (each.value is None or type(each.value) is bool) for each in values):
        return as_bool(ast.Compare(left, [op.__class__()], [right], **g.loc))
    same = as_bool(g.call(g.const_param(operator.is_, "P_is_"), values))  # Python's compiler warns of literals here.
    return same if isinstance(op, ast.Is) else ast.UnaryOp(ast.Not(), same, **g.loc)
