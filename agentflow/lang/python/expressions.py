"""The rules for expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, cast

from agentflow.core.ordered_set import OrderedSet
from agentflow.core.work import Work
from agentflow.lang.calling import begun
from agentflow.lang.charging import charge_collection, check_collection
from agentflow.lang.codegen import LOAD, STORE, as_bool, is_bool
from agentflow.lang.python import compare, values
from agentflow.lang.python.absent import DOTTED, HIDDEN, METHODS_ABSENT
from agentflow.lang.python.builtin_values import method_of
from agentflow.lang.python.builtins import CONSTANTS, KINDS, rounds
from agentflow.lang.python.changes import add_to, as_keys, subtract_from
from agentflow.lang.python.emitter import Emitter, expression
from agentflow.lang.python.keyed import merged
from agentflow.lang.python.labelled import negated
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.names import COMPREHENSIONS, Comprehension
from agentflow.lang.python.native import (
    NATIVE_BINARY,
    NATIVE_COMPARE,
    both,
    element_at,
    is_simple,
    joined_texts,
    small,
    text_of,
)
from agentflow.lang.python.targets import assignment
from agentflow.lang.python.texts import formatted, text, written
from agentflow.lang.python.values import bounded
from agentflow.lib.suggest import did_you_mean

_LARGEST = 1 << 62
_DIGIT = (1 << 30) - 1
"""The largest integer of one of CPython's digits: 2 ** 30 itself has two, and a comparison with it is a general one."""


# -- atoms --------------------------------------------------------------------------------------------------------


@expression(ast.Constant)
def constant(g: Emitter, node: ast.Constant) -> ast.expr:
    value: object = node.value
    if value is None or type(value) in (bool, int, float, str):
        if type(value) is int and value.bit_length() > g.limits.integer_bits:
            g.wrong(node, "syntax/number", "the number is too large", "give it by bindings")
        return g.const(value)
    if type(value) is complex:
        g.refuse(node, "a complex number", "numbers are int and float")
    elif type(value) is bytes:
        g.refuse(node, "bytes", "text is str: leave out the b")
    else:
        g.refuse(node, "'...'", "write pass, or None")
    return g.const(None)


@expression(ast.JoinedStr)
def f_string(g: Emitter, node: ast.JoinedStr) -> ast.expr:
    parts: list[ast.expr] = []
    for each in node.values:
        if isinstance(each, ast.FormattedValue):
            parts.append(_placeholder(g, each))
        else:
            parts.append(g.value(each))
    return joined_texts(g, parts)


_CONVERSIONS = frozenset(map(ord, "ras"))


def _placeholder(g: Emitter, node: ast.FormattedValue) -> ast.expr:
    value = g.value(node.value)
    if node.conversion in (ord("r"), ord("a")):
        value = g.long(g.ours(written, g.name("rt"), value))
    elif node.conversion == ord("s"):
        value = g.long(g.ours(text, g.name("rt"), value))
    if node.format_spec is not None:
        return g.ours(formatted, g.name("rt"), value, g.value(node.format_spec))
    return value if node.conversion in _CONVERSIONS else text_of(g, value)


# -- operators ----------------------------------------------------------------------------------------------------

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


@expression(ast.BinOp)
def binary(g: Emitter, node: ast.BinOp) -> ast.expr:
    return operation(g, node.op, g.value(node.left), g.value(node.right))


def operation(g: Emitter, op: ast.operator, left: ast.expr, right: ast.expr, in_place: Any = None) -> ast.expr:
    """``left op right``; ``in_place`` is the function for operands that are not both integers, if it is another."""
    if type(op) in _SIGNED:
        function, sign = _SIGNED[type(op)]
        code = g.ours(function, g.name("rt"), g.const(sign), left, right)
        return g.long(code) if function is values.bitwise else code
    function = in_place or _BINARY.get(type(op))
    if function is None:
        return g.const(None)
    if type(op) in _WHOLE:
        return _divided(g, op, left, right, function)
    if type(op) in NATIVE_BINARY and not _is_text(left) and not _is_text(right):
        return _on_integers(g, left, right, lambda a, b: _sum(g, op, a, b), lambda a, b: _by(g, function, a, b))
    return _by(g, function, left, right)


_LONG = (values.subtract, add_to, subtract_from)
"""Functions of operators that may leave work, of large sets or within branches."""


def _by(g: Emitter, function: Any, left: ast.expr, right: ast.expr) -> ast.expr:
    code = g.ours(function, g.name("rt"), left, right)
    return g.long(code) if function in _LONG else code


_WHOLE = (ast.FloorDiv, ast.Mod)


def _divided(g: Emitter, op: ast.operator, left: ast.expr, right: ast.expr, function: Any) -> ast.expr:
    """``left // right`` and ``left % right``: native for a small integer and a positive constant."""
    if not _exact(right) or right.value < 1 or isinstance(left, ast.Constant):  # type: ignore[attr-defined]
        return g.ours(function, g.name("rt"), left, right)
    named, again = (left, left) if is_simple(left) else g.walrus(left)
    test = both(g, g.type_is(named, int), small(g, again))
    return g.ifexp(test, ast.BinOp(again, op.__class__(), right, **g.loc), g.ours(function, g.name("rt"), again, right))


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not _exact(value)


def _exact(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and abs(value.value) < _LARGEST


def _sum(g: Emitter, op: ast.operator, a: ast.expr, b: ast.expr) -> ast.expr:
    plain = ast.BinOp(a, op.__class__(), b, **g.loc)
    if (_exact(a) or _exact(b)) and not isinstance(op, ast.Mult):
        return plain
    named, again = g.walrus(plain)
    test = small(g, named)
    if not isinstance(op, ast.Mult):
        # Of integers of one digit Python makes comparisons in a third of the time; most sums are such.
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
    """The native operation where both are exactly integers; else the function. Both are evaluated once, in order."""
    if _exact(left) and _exact(right):
        return slow(left, right)  # Python folds nothing then, and the function charges.
    if is_simple(left) and is_simple(right):
        tests = [g.type_is(each, int) for each in (left, right) if not _exact(each)]
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
        if g.labelled:
            return g.ours(negated, g.value(node.operand))
        return ast.UnaryOp(ast.Not(), g.true(g.value(node.operand)), **g.loc)
    number = node.operand.value if isinstance(node.operand, ast.Constant) else None
    if isinstance(node.op, ast.USub) and type(number) in (int, float):
        return g.const(-number)  # type: ignore[operator]
    return g.ours(_UNARY[type(node.op)], g.name("rt"), g.value(node.operand))


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


_ORDERED: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


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
    if g.labelled and isinstance(op, ast.IsNot | ast.NotIn):
        return g.ours(negated, _compared(g, ast.Is() if isinstance(op, ast.IsNot) else ast.In(), left, right))
    if isinstance(op, ast.Is | ast.IsNot):
        if g.labelled or not any(
            isinstance(each, ast.Constant) and (each.value is None or type(each.value) is bool)
            for each in (left, right)
        ):
            same = g.ours(operator.is_, left, right)  # Python's compiler warns of literals here.
            return as_bool(same) if isinstance(op, ast.Is) else ast.UnaryOp(ast.Not(), same, **g.loc)
        return as_bool(ast.Compare(left, [op.__class__()], [right], **g.loc))
    if isinstance(op, ast.In | ast.NotIn):
        within = as_bool(g.long(g.ours(compare.contains, g.name("rt"), left, right)))
        return within if isinstance(op, ast.In) else ast.UnaryOp(ast.Not(), within, **g.loc)
    if type(op) in _ORDERED:
        first: tuple[ast.expr, ...] = (g.const(_ORDERED[type(op)]),)
        function: Any = compare.ordered
    else:
        first, function = (), compare.eq if isinstance(op, ast.Eq) else compare.ne

    def fast(a: ast.expr, b: ast.expr) -> ast.expr:
        return ast.Compare(a, [op.__class__()], [b], **g.loc)

    def slow(a: ast.expr, b: ast.expr) -> ast.expr:
        return g.long(g.ours(function, g.name("rt"), *first, a, b))

    if type(op) not in NATIVE_COMPARE or _is_text(left) or _is_text(right):
        return as_bool(slow(left, right))
    return as_bool(_on_integers(g, left, right, fast, slow))


# -- collections --------------------------------------------------------------------------------------------------


@expression(ast.List)
def list_(g: Emitter, node: ast.List) -> ast.expr:
    return _collected(g, node.elts) or ast.List([g.value(each) for each in node.elts], LOAD, **g.loc)


@expression(ast.Tuple)
def tuple_(g: Emitter, node: ast.Tuple) -> ast.expr:
    collected = _collected(g, node.elts)
    if collected is not None:
        return g.call(g.const_param(tuple, "tuple_"), [collected])
    return g.tuple_of([g.value(each) for each in node.elts])


@expression(ast.Set)
def set_(g: Emitter, node: ast.Set) -> ast.expr:
    items = _collected(g, node.elts)
    if items is None:
        keys: list[ast.expr] = [g.ours(compare.key, g.value(each)) for each in node.elts]
        return g.call(g.const_param(OrderedSet, "OrderedSet_"), [ast.List(keys, LOAD, **g.loc)])
    return g.long(g.ours(as_set, items))


def _collected(g: Emitter, items: list[ast.expr]) -> ast.expr | None:
    """The list of items of which some are starred; None without one."""
    if not any(isinstance(each, ast.Starred) for each in items):
        return None
    parts: list[ast.expr] = []
    for each in items:
        starred = isinstance(each, ast.Starred)
        value = g.value(each.value if isinstance(each, ast.Starred) else each)
        if starred:
            value = g.ours(values.elements, g.name("rt"), value, g.const("'*'"))
        parts.append(g.tuple_of([g.const(starred), value]))
    return g.ours(gathered, g.name("rt"), *parts)


def gathered(rt: Any, *parts: tuple[bool, Any]) -> list[Any]:
    """The items of ``[a, *b]``."""
    items: list[Any] = []
    for starred, value in parts:
        if starred:
            check_collection(rt, len(items) + len(value), "'*'")
            items.extend(value)
        else:
            items.append(value)
    return items


def as_set(items: list[Any]) -> Any:
    """The set of items."""
    return begun(_as_set(items))


def _as_set(items: list[Any]) -> Work[OrderedSet]:
    return OrderedSet.of((yield from as_keys(items)))


@expression(ast.Dict)
def dict_(g: Emitter, node: ast.Dict) -> ast.expr:
    pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True)]
    if all(isinstance(key, ast.Constant) and type(key.value) in (str, bool, type(None)) for key, _ in pairs):
        return ast.Dict([g.const(key.value) for key, _ in pairs], [g.value(value) for _, value in pairs], **g.loc)  # type: ignore[union-attr]
    parts: list[ast.expr] = []
    for key, value in pairs:
        spread = key is None
        first = g.const(None) if key is None else g.value(key)
        code = g.value(value)
        parts.append(g.tuple_of([g.const(spread), first, g.ours(spread_dict, code) if spread else code]))
    return g.long(g.ours(entries, g.name("rt"), *parts))


def spread_dict(value: Any) -> Any:
    """``value`` of ``{**value}``."""
    if type(value) is not dict:
        values.wanted("'**'", "a dict", value)
    return cast("dict[Any, Any]", value)


def entries(rt: Any, *parts: tuple[bool, Any, Any]) -> Any:
    """The dict of ``{key: value, **more}``."""
    return begun(_entries(rt, parts))


def _entries(rt: Any, parts: tuple[tuple[bool, Any, Any], ...]) -> Work[dict[Any, Any]]:
    result: dict[Any, Any] = {}
    for spread, key, value in parts:
        if not spread:
            result[compare.key(key)] = value
            continue
        charge_collection(rt, len(result) + len(value), "'**'")
        yield from merged(result, value)
    return result


@expression(ast.Subscript)
def subscript(g: Emitter, node: ast.Subscript) -> ast.expr:
    value = g.value(node.value)
    at = node.slice
    if isinstance(at, ast.Slice):
        bounds = [g.const(None) if each is None else g.value(each) for each in (at.lower, at.upper, at.step)]
        return g.ours(values.part, g.name("rt"), value, *bounds)
    return element_at(g, value, g.value(at))


@expression(ast.Attribute)
def attribute(g: Emitter, node: ast.Attribute) -> ast.expr:
    if node.attr.startswith("_"):
        g.refuse(node, f"'.{node.attr}'", HIDDEN.get(node.attr, "names that begin with _ are out of reach"))
        return g.const(None)
    if isinstance(node.value, ast.Name) and g.scope.find(node.value.id) is None:
        dotted = f"{node.value.id}.{node.attr}"
        if node.value.id in KINDS and g.kind(node.value.id) == "unknown":
            return _method_value(g, node, node.value.id, dotted)
        if dotted in CONSTANTS and g.kind(node.value.id) == "unknown":
            return g.const_param(CONSTANTS[dotted], f"M_{node.attr}")
    if isinstance(node.value, ast.Name) and node.value.id in g.foreign and g.scope.find(node.value.id) is None:
        return g.const(None)
    return g.ours(values.member, g.name("rt"), g.value(node.value), g.const(node.attr))


def _method_value(g: Emitter, node: ast.Attribute, kind: str, dotted: str) -> ast.expr:
    """``str.lower`` as a function: what ``key=`` and ``map`` are given."""
    type_ = KINDS[kind][0]
    if node.attr not in METHODS.get(type_, {}):
        hint = DOTTED.get(dotted) or METHODS_ABSENT.get(node.attr) or did_you_mean(node.attr, METHODS.get(type_, {}))
        hint = hint or f"write lambda x: x.{node.attr}()"
        g.wrong(node, "name/not-here", f"'{dotted}' is not there in workflow texts", hint)
        return g.const(None)
    procedure = method_of(type_, node.attr, dotted, labelled=g.labelled)
    return g.const_param(procedure, f"M_{kind}_{node.attr}")


@expression(ast.Await)
def awaited(g: Emitter, node: ast.Await) -> ast.expr:
    return g.value(node.value)


@expression(ast.NamedExpr)
def named(g: Emitter, node: ast.NamedExpr) -> ast.expr:
    var = g.scope.find(node.target.id)
    if node.target.id.startswith("_") or not (g.scope.is_function or g.scope.parent is None) or g.in_thunk:
        hint = "assign in a statement before"
        if isinstance(g.scope.node, COMPREHENSIONS):
            hint = "compute it in an inner one: [y for y in [f(x) for x in xs] if y]"
        g.refuse(node, "':=' here", hint)
        return g.const(None)
    value = g.value(node.value)
    if var is None:
        return g.ours(assigned, g.cell(node.target.id), value)
    if var.scope is not g.scope:
        g.refuse(node, "':=' to a variable of another function", "assign in a statement")
        return g.const(None)
    return ast.NamedExpr(ast.Name(var.py, STORE, **g.loc), value, **g.loc)


def assigned(cell: Any, value: Any) -> Any:
    """``name := value`` of a variable of the environment."""
    cell.v = value
    return value


# -- comprehensions -----------------------------------------------------------------------------------------------


@expression(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
def comprehension(g: Emitter, node: Comprehension) -> ast.expr:
    return collected(g, node, None)


def collected(g: Emitter, node: Comprehension, stop: bool | None) -> ast.expr:
    """A function of its own with loops; ``stop`` is the truth at which ``any`` or ``all`` is settled."""
    g.counter += 1
    py, out = f"comp_{g.counter}", f"out_{g.counter}"
    first = iterable(g, node.generators[0].iter)

    def build() -> list[ast.stmt]:
        keyed = isinstance(node, ast.DictComp | ast.SetComp)
        empty = ast.Dict([], [], **g.loc) if keyed else ast.List([], LOAD, **g.loc)
        head: list[ast.stmt] = [ast.Assign([ast.Name(out, STORE, **g.loc)], empty, **g.loc)]
        loops = _rounds(g, node, 0, ast.Name("it_", LOAD, **g.loc), out, stop)
        result: ast.expr = g.name(out)
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
        name = g.tmp()
        inside = assignment(g, generator.target, g.name(name))
        inside = [*g.flushed(), *inside]
        for each in generator.ifs:
            test = ast.UnaryOp(ast.Not(), g.true(g.value(each)), **g.loc)
            inside += [*g.flushed(), ast.If(test, [ast.Continue(**g.loc)], [], **g.loc)]
        if at + 1 < len(node.generators):
            again = iterable(g, node.generators[at + 1].iter)
            before = g.flushed()
            inside += [*before, *_rounds(g, node, at + 1, again, out, stop)]
        else:
            last = _round(g, node, out, stop)
            inside += [*g.flushed(), *last]
        return [ast.For(ast.Name(name, STORE, **g.loc), source, [*step(g, out), *inside], [], **g.loc)]


def step(g: Emitter, out: str | None) -> list[ast.stmt]:
    """Take a step; when the slice ends, look at the size of what is built."""
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
        target = ast.Subscript(g.name(out), g.name(key), STORE, **g.loc)
        return [
            ast.Assign([ast.Tuple(names, STORE, **g.loc)], both, **g.loc),
            ast.Assign([target], g.name(pair), **g.loc),
        ]
    value = g.value(node.elt)
    if stop is not None:
        test = g.true(value)
        settled = test if stop else ast.UnaryOp(ast.Not(), test, **g.loc)
        return [ast.If(settled, [ast.Return(g.const(stop), **g.loc)], [], **g.loc)]
    if isinstance(node, ast.SetComp):
        target = ast.Subscript(g.name(out), g.ours(compare.key, value), STORE, **g.loc)
        return [ast.Assign([target], g.const(None), **g.loc)]
    append = g.call(g.attr(g.name(out), "append"), [value])
    return [ast.Expr(append, **g.loc)]


def iterable(g: Emitter, node: ast.expr) -> ast.expr:
    """What a ``for`` goes over: ``range(...)`` is never a list."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and not node.keywords
        and not any(isinstance(each, ast.Starred) for each in node.args)
        and g.scope.find("range") is None
        and g.kind("range") == "unknown"
    ):
        g.meanings[node] = ("builtin", "range")
        with g.at(node):
            return g.ours(rounds, *[g.value(each) for each in node.args])
    return g.ours(values.iterated, g.name("rt"), g.value(node))
