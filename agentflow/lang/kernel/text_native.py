"""Python's own operations that generated code executes itself: their exact types, and the tests of these in the code.

All others go through functions of this package. Nothing here looks up an attribute of a value: methods of built-in types
are constants, called with a value after a test of its exact type.
"""

from __future__ import annotations

import ast
from functools import reduce
from typing import Any

from agentflow.core.data.walk import CHARACTERS_PER_STEP
from agentflow.lang.charging import check_collection
from agentflow.lang.kernel.code_writer import LOAD
from agentflow.lang.kernel.text_generator import TextGenerator, is_simple
from agentflow.lang.python import changes, compare, values
from agentflow.lang.python.kinds import as_kind
from agentflow.lang.python.methods import append, method
from agentflow.lang.python.names import LocalVariable
from agentflow.lang.python.texts import joined, text, whole_text

NATIVE_BINARY: dict[Any, type[ast.operator]] = {
    values.add: ast.Add,
    values.subtract: ast.Sub,
    values.multiply: ast.Mult,
    values.floor_divide: ast.FloorDiv,
    values.modulo: ast.Mod,
    changes.add_to: ast.Add,
    changes.subtract_from: ast.Sub,
}
"""The functions of operators that code applies itself to integers."""
NATIVE_ORDER: dict[str, type[ast.cmpop]] = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE}
NATIVE_EQUALITY: dict[Any, type[ast.cmpop]] = {compare.eq: ast.Eq, compare.ne: ast.NotEq}
"""The same for comparisons."""
NATIVE_CALLS: dict[str, tuple[Any, tuple[type[Any], ...]]] = {
    "N_append": (list[Any].append, (list,)),
    "N_get": (dict[Any, Any].get, (dict, str)),
    "N_str": (str, (int,)),
    "N_len": (len, (list,)),
}
"""The functions of Python that code calls itself, by their names in code, with the exact types of their operands."""
NATIVE_ELEMENTS: dict[type[Any], tuple[type[Any], ...]] = {int: (list,), str: (dict,)}
"""The exact types with elements that code reads itself, by the type of a constant index or key."""

GROWN = 1 << 256
"""Integers from this size on are charged for."""
_FEW = 1 << 20
_MOST_PARTS = 8
_ROUND = 63
"""A mask of list lengths, one less than a power of two: the size of a list is checked whenever it gives 0."""


def native(g: TextGenerator, name: str, *arguments: ast.expr) -> ast.expr:
    """A call of a function of the table."""
    return g.call(g.const_param(NATIVE_CALLS[name][0], name), arguments)


def _in_order(g: TextGenerator, *operands: ast.expr) -> tuple[list[ast.expr], ast.expr, list[ast.expr]]:
    """Values evaluated in their order and once.

    Returns tests that evaluate them, and are true unless the values are unusual; the first value as it is read first; and all
    values for later reads. After the tests, true or false, all values have been evaluated.
    """
    last = max((at for at, each in enumerate(operands) if not is_simple(each)), default=-1)
    if last <= 0:
        named, again = g.walrus(operands[0]) if last == 0 else (operands[0], operands[0])
        return [], named, [again, *operands[1:]]
    kept = [(each, each) if isinstance(each, ast.Constant) else g.walrus(each) for each in operands[: last + 1]]
    again = [each for _, each in kept]
    first: list[ast.expr] = [named for named, each in kept if named is not each]
    test = g.is_(first[0], first[1], negate=True) if len(first) == 2 else g.tuple_of(first)
    return [test], again[0], [*again, *operands[last + 1 :]]


def small(g: TextGenerator, value: ast.expr) -> ast.expr:
    """Whether an integer is so small that its size is not charged for."""
    ops: list[ast.cmpop] = [ast.Lt(), ast.Lt()]
    return ast.Compare(g.const_param(-GROWN, "LOW"), ops, [value, g.const_param(GROWN, "HIGH")], **g.loc)


def both(g: TextGenerator, *tests: ast.expr) -> ast.expr:
    """Whether all of these tests hold."""
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), list(tests), **g.loc)


# -- lists and dicts ----------------------------------------------------------------------------------------------


def appended(g: TextGenerator, value: ast.expr, item: ast.expr) -> ast.expr:
    """``value.append(item)``: native outside of branches, except for every 64th element, for which the size of the list is checked.

    A list created by its own function belongs to its branch, and to no other. In a loop the size of such a list is checked when
    the slice of steps ends.
    """
    var: LocalVariable | None = getattr(value, "_var", None)
    is_list = not g.labelled and var is not None and var.is_list
    own = is_list and var is not None and var.fn is g.fn
    if own and var is not None and _looked_at(g, value, var):
        return native(g, "N_append", value, item)
    first, head, (xs, new) = _in_order(g, value, item)
    rest = ast.BinOp(native(g, "N_len", xs), ast.BitAnd(), g.const(_ROUND), **g.loc)
    alone = [] if own else [g.is_(g.rt("fork"), g.const(None))]
    if not is_list:
        first.append(g.type_is(head, list))
    test = both(g, *first, rest, *alone)
    return g.ifexp(test, native(g, "N_append", xs, new), g.long(g.ours(append, g.name("rt"), xs, new)))


def _looked_at(g: TextGenerator, xs: ast.expr, var: LocalVariable) -> bool:
    """Whether the innermost loop around checks the size of a list at the end of the slice of steps, as it may if the list exists by then."""
    if not g.rounds:
        return False
    test, suites = g.rounds[-1]
    if not any(var in each for each in g.bound[:suites]):
        return False
    if not any(getattr(each, "_of", None) is var for each in test.body):
        size = g.call(g.const_param(len, "len_"), [xs])
        look = ast.Expr(g.ours(check_collection, g.name("rt"), size, g.const("append")), **g.loc)
        look._of = var  # type: ignore[attr-defined]
        test.body.append(look)
    return True


def got(g: TextGenerator, value: ast.expr, arguments: list[ast.expr]) -> ast.expr:
    """``value.get(key)`` and ``value.get(key, default)``: native for texts as keys."""
    first, head, (entries, *rest) = _in_order(g, value, *arguments)
    tests = [g.type_is(each, kind) for each, kind in ((head, dict), (rest[0], str)) if g.exact(each) is not kind]
    if not first and not tests:
        return native(g, "N_get", entries, *rest)
    slow = g.ours(method, g.name("rt"), g.const("get"), entries, g.tuple_of(rest))
    return g.ifexp(both(g, *first, *tests), native(g, "N_get", entries, *rest), slow)


def element_at(g: TextGenerator, value: ast.expr, at: ast.expr) -> ast.expr:
    """``value[at]``: native for a constant index of a list, and a constant key of a dict."""
    constant = at.value if isinstance(at, ast.Constant) else None
    kinds = NATIVE_ELEMENTS.get(type(constant))
    # For a constant Python's compiler would warn that it has no elements.
    if kinds is None or isinstance(value, ast.Constant) or (type(constant) is int and not -_FEW < constant < _FEW):
        return g.ours(values.element, g.name("rt"), value, at)
    named, again = (value, value) if is_simple(value) else g.walrus(value)
    within: ast.expr = ast.Compare(at, [ast.In()], [again], **g.loc)
    if type(constant) is int:
        least = g.const(constant if constant >= 0 else -constant - 1)
        within = ast.Compare(native(g, "N_len", again), [ast.Gt()], [least], **g.loc)
    test = within if is_simple(value) and g.exact(value) is kinds[0] else both(g, g.type_is(named, kinds[0]), within)
    read = ast.Subscript(again, at, LOAD, **g.loc)
    return g.ifexp(test, read, g.ours(values.element, g.name("rt"), again, at))


# -- texts --------------------------------------------------------------------------------------------------------


def text_of(g: TextGenerator, value: ast.expr) -> ast.expr:
    """``str(value)`` as in an f-string: native for texts, and for integers known to be small."""
    kind = g.exact(value)
    if kind is str:
        return value
    if g.is_counted(value):
        return as_kind(native(g, "N_str", value), str)
    named, again = g.walrus(value)
    if g.labelled:
        number = both(g, g.type_is(again, int), small(g, again))
        other = g.ifexp(number, native(g, "N_str", again), g.long(g.ours(text, g.name("rt"), again)))
        return g.ifexp(g.type_is(named, str), again, other)
    slow = g.await_(g.ours(whole_text, g.name("rt"), again))
    if kind is int:
        return as_kind(g.ifexp(small(g, named), native(g, "N_str", again), slow), str)
    return as_kind(g.ifexp(g.type_is(named, str), again, slow), str)


def joined_texts(g: TextGenerator, parts: list[ast.expr]) -> ast.expr:
    """The text of an f-string with text parts: native for few and short ones."""
    if len(parts) == 1:
        return parts[0]
    constant = sum(len(each.value) for each in parts if isinstance(each, ast.Constant))  # type: ignore[arg-type]
    computed = [each for each in parts if not isinstance(each, ast.Constant)]
    if not computed or len(computed) > _MOST_PARTS or constant >= CHARACTERS_PER_STEP:
        return g.ours(joined, g.name("rt"), *parts)
    size: ast.expr | None = None
    again: list[ast.expr] = []
    texts: list[ast.expr] = []
    length = g.const_param(len, "len_")
    for each in parts:
        if isinstance(each, ast.Constant):
            again.append(each)
            continue
        named, name = g.walrus(each)
        again.append(name)
        if g.labelled:
            texts.append(g.type_is(named, str))
            named = name
        one = g.call(length, [named])
        size = one if size is None else ast.BinOp(size, ast.Add(), one, **g.loc)
    assert size is not None
    short = ast.Compare(size, [ast.Lt()], [g.const(CHARACTERS_PER_STEP - constant)], **g.loc)
    if texts:
        # Texts of values from elsewhere are in boxes. All parts are evaluated before the first is read.
        short = both(g, reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b, **g.loc), texts), short)
    whole = g.call(g.const_param("".join, "JOIN"), [g.tuple_of(again)])
    return g.ifexp(short, whole, g.ours(joined, g.name("rt"), *again))
