"""Generates values of texts in Python: constants, variables, operators, calls and effects.

An operator is Python's own where tests of exact types allow it, else a function of the package.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import CHARACTERS_PER_STEP
from agentflow.lang.calling import MAX_STACK_CALLS
from agentflow.lang.environment import UNBOUND
from agentflow.lang.kernel import lowered_functions as lowered
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.code_writer import LESS, LOAD, as_bool, is_bool
from agentflow.lang.kernel.inline import as_dict, as_list
from agentflow.lang.kernel.nodes import Const, Prim, Ref, Variable
from agentflow.lang.kernel.text_generator import TextGenerator, is_simple, text_expression, unless_boxed
from agentflow.lang.kernel.text_native import (
    NATIVE_BINARY,
    NATIVE_EQUALITY,
    NATIVE_ORDER,
    appended,
    both,
    element_at,
    got,
    joined_texts,
    small,
    text_of,
)
from agentflow.lang.python import builtins, compare, displays, methods, requests, support, texts, values
from agentflow.lang.python.boxed.labelled import OF_KEYS, labelled_entry, twin_of
from agentflow.lang.python.boxed.repeated import set_of
from agentflow.lang.python.function_values import builtin, method_of
from agentflow.lang.python.kinds import as_counted, as_kind
from agentflow.lang.python.rows import Row, takes_long
from agentflow.lang.python.values import MISSING, bounded, truth

_LARGEST = 1 << 62
_DIGIT = (1 << 30) - 1
"""The largest integer of one of CPython's digits: 2 ** 30 itself has two, and a comparison with it is a general one."""
_FEW = 2
"""Arguments of methods that code tests itself."""


# -- constants and variables --------------------------------------------------------------------------------------


@text_expression(Const)
def const(g: TextGenerator, node: Const) -> ast.expr:
    row = node.row
    if row is None:
        return g.constant(node.value)
    if isinstance(row, Row):
        entry = labelled_entry(row) if g.labelled else row
        return g.const_param(builtin(entry, follows=g.labelled), f"B_{row.name.replace('.', '_')}")
    kind, name, dotted = row
    called = twin_of(methods.method) if g.labelled else methods.method
    return g.const_param(method_of(kind, name, dotted, called, follows=g.labelled), f"M_{dotted.replace('.', '_')}")


@text_expression(nodes.Env)
def here(g: TextGenerator, node: nodes.Env) -> ast.expr:
    return g.environment()


@text_expression(Ref)
def ref(g: TextGenerator, node: Ref) -> ast.expr:
    variable = node.variable
    if isinstance(variable, str):
        named, again = g.walrus(g.attr(g.cell(variable), "v"))
        more = [] if node.hint is None else [g.const(node.hint)]
        missing = g.ours(support.unbound_name, g.name("rt"), g.environment(), g.const(variable), *more)
        return g.ifexp(g.is_(named, g.const_param(UNBOUND, "U"), negate=True), again, missing)
    if variable in g.temporaries:
        return g.const(g.temporaries[variable].value)
    code = g.name(variable.python_name)
    if variable.local is not None:
        code._var = variable.local  # type: ignore[attr-defined]
    return code


@text_expression(nodes.Set)
def set_value(g: TextGenerator, node: nodes.Set) -> ast.expr:
    value, variable = g.expr(node.value), node.variable
    if isinstance(variable, str):
        return g.ours(support.assigned, g.cell(variable), value)
    if variable.local is None and isinstance(value, ast.Constant):
        g.temporaries[variable] = value
        return value
    target = g.target(variable)
    assert isinstance(target, ast.Name)
    return ast.NamedExpr(target, value, **g.loc)


@text_expression(nodes.Seq)
def sequence(g: TextGenerator, node: nodes.Seq) -> ast.expr:
    """Values in order: the last is its own."""
    *first, last = g.exprs(node.items)
    if isinstance(last, ast.Constant):
        return ast.Subscript(g.tuple_of([last, *first]), g.const(0), LOAD, **g.loc)
    return ast.Subscript(g.tuple_of([*first, last]), g.const(len(first)), LOAD, **g.loc)


# -- choices ------------------------------------------------------------------------------------------------------


@text_expression(nodes.If)
def choice(g: TextGenerator, node: nodes.If) -> ast.expr:
    ((test, arm),) = node.clauses
    return g.ifexp(g.true(g.expr(test)), g.expr(arm), g.expr(node.other))


@text_expression(nodes.Logic)
def logic(g: TextGenerator, node: nodes.Logic) -> ast.expr:
    parts = g.exprs(node.items)
    value = parts[-1]
    for each in reversed(parts[:-1]):
        if is_bool(each) and is_bool(value):
            same = isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) is node.every
            operands = [each, *(value.values if same and isinstance(value, ast.BoolOp) else [value])]
            value = g.every(operands) if node.every else g.some(operands)
            continue
        named, again = g.walrus(each)
        test = g.true(named) if not is_bool(each) else named
        value = g.ifexp(test, value, again) if node.every else g.ifexp(test, again, value)
    return value


# -- calls and effects --------------------------------------------------------------------------------------------


@text_expression(nodes.Call)
def call(g: TextGenerator, node: nodes.Call) -> ast.expr:
    if node.callee is not None:
        return _direct(g, node, node.callee)
    function, args = g.expr(node.function), g.tuple_of(g.exprs(node.args))
    more = [g.names_constant(node.names)] if node.names else []
    return g.await_(g.ours(support.call, g.name("rt"), g.name("d"), function, args, *more))


def _direct(g: TextGenerator, node: nodes.Call, callee: int) -> ast.expr:
    """A call of a function of the text, with known parameters."""
    assert isinstance(node.function, Ref)
    variable = node.function.variable
    args = _in_order(g, g.exprs(node.args), node)
    near = g.compared(g.name("d"), LESS, g.const(MAX_STACK_CALLS))
    if isinstance(variable, Variable):
        py = g.number_name(callee, variable.name)
        code = g.ifexp(near, g.name(py), g.call(g.rt("on_fresh_stack"), [g.name(py)]))
    else:
        py, cell = g.number_name(callee, variable), g.cell(variable)
        g.called.add(py)
        same = g.is_(g.attr(cell, "v"), g.name(f"{py}_c"))
        other = g.ours(support.rebound, g.name("rt"), g.environment(), cell, g.const(variable))
        code = g.ifexp(g.every([near, same]), g.name(py), other)
    return g.await_(g.call(code, [g.name("rt"), g.deeper(), *args]))


def _in_order(g: TextGenerator, args: list[ast.expr], node: nodes.Call) -> list[ast.expr]:
    """The arguments of a call in the order of the parameters, each evaluated at its own position."""
    used = [at for at in node.order if at is not None]
    if used != sorted(used):
        # Python evaluates arguments in the order of the text: a tuple keeps them for the order of the parameters.
        kept, again = g.walrus(g.tuple_of(args))
        args = [ast.Subscript(again, g.const(at), LOAD, **g.loc) for at in range(len(args))]
        args[used[0]] = ast.Subscript(kept, g.const(used[0]), LOAD, **g.loc)
    return [g.const_param(MISSING, "MISSING") if at is None else args[at] for at in node.order]


@text_expression(text_nodes.Effect)
def effect(g: TextGenerator, node: text_nodes.Effect) -> ast.expr:
    args, names = g.tuple_of(g.exprs(node.args)), g.names_constant(node.names)
    first = [g.name("rt"), g.name("d"), g.environment(), g.const(node.name)]
    if node.spread:
        function: Any = support.data_of_dict if node.gives == "data" else support.outcome_of_dict
        every = _called(g, support.arguments_of, [names, args, *g.exprs(node.spread)])
        return g.await_(g.ours(function, *first, g.span(node.at), every))
    function = support.data_of if node.gives == "data" else support.outcome_of
    return g.await_(g.ours(function, *first, names, args, g.span(node.at)))


@text_expression(nodes.Perform)
def perform(g: TextGenerator, node: nodes.Perform) -> ast.expr:
    args = g.exprs(node.args)
    code = args[0] if node.make is lowered.itself else g.call(g.const_param(node.make), [g.environment(), *args])
    return g.await_(g.call(g.rt("perform"), [code, g.span(node.at)]))


@text_expression(nodes.Op)
def operation(g: TextGenerator, node: nodes.Op) -> ast.expr:
    args = g.exprs(node.args)
    return g.operation(node.operation, node.at, [*map(g.constant, node.constants), *args])


# -- functions of the language ------------------------------------------------------------------------------------


@text_expression(Prim)
def prim(g: TextGenerator, node: Prim) -> ast.expr:
    function: Any = node.function
    rule = _RULES.get(function.func if isinstance(function, partial) else function)
    if rule is not None:
        return rule(g, node)
    if isinstance(node.row, Row):
        return _builtin(g, node, node.row)
    args = g.exprs(node.args)
    return _called(g, function, [g.name("rt"), *args] if node.takes_rt else args)


def _called(g: TextGenerator, function: Any, args: Sequence[ast.expr]) -> ast.expr:
    """A call of a function of the package, and its work, if it may leave some."""
    code = g.ours(function, *args)
    return g.long(code) if takes_long(function, labelled=bool(g.labelled)) else code


def _builtin(g: TextGenerator, node: Prim, row: Row) -> ast.expr:
    """A function that texts call by name."""
    args = g.exprs(node.args)
    function: Any = node.function
    names: tuple[str, ...] = node.names if row.is_async else function.args[1] if isinstance(function, partial) else ()
    count = len(args) - len(names)
    first = [g.name("rt"), g.name("d")] if row.is_async else [g.name("rt")]
    title = row.name.replace(".", "_")
    called = labelled_entry(row).function if g.labelled else row.function
    code = g.const_param(called, f"{'L' if g.labelled else 'B'}_{title}_f")
    if g.labelled and row.tested is not None and not names:
        itself = g.const_param(row.function, f"B_{title}_f")
        after = takes_long(row.function, labelled=True) and not takes_long(row.function)

        def boxed(values: Sequence[ast.expr]) -> ast.expr:
            result = g.call(code, [*first, *values])
            return g.long(result) if after else result

        result = unless_boxed(g, row.tested * count, args, lambda values: g.call(itself, [*first, *values]), boxed)
        late = takes_long(row.function)
    else:
        late = takes_long(row.function, labelled=bool(g.labelled))
        result = g.call(code, [*first, *args[:count]])
        result.keywords = [ast.keyword(each, arg, **g.loc) for each, arg in zip(names, args[count:], strict=True)]
    if row.is_async:
        return g.await_(result)
    if title == "bool":
        return as_bool(result)
    if title == "len" and not g.labelled:
        return as_counted(result)
    return g.long(result) if late else result


def _sort(g: TextGenerator, node: Prim) -> ast.expr:
    value, *args = g.exprs(node.args)
    result = g.ours(builtins.sort, g.name("rt"), g.name("d"), value)
    assert isinstance(result, ast.Call)
    result.keywords = [ast.keyword(each, arg, **g.loc) for each, arg in zip(node.names, args, strict=True)]
    return g.await_(result)


def _append(g: TextGenerator, node: Prim) -> ast.expr:
    value, item = g.exprs(node.args)
    return appended(g, value, item)


def _method(g: TextGenerator, node: Prim) -> ast.expr:
    """A method of a value."""
    name, names = cast("partial[Any]", node.function).args
    value, *args = g.exprs(node.args)
    if name == "get" and len(args) in (1, 2) and not names:
        return got(g, value, args)
    if not g.labelled or names or len(args) > _FEW or name in OF_KEYS:
        more = [g.names_constant(names)] if names else []
        result = g.ours(methods.method, g.name("rt"), g.const(name), value, g.tuple_of(args), *more)
        return result if name in methods.OF_TEXTS and not g.labelled else g.long(result)

    def arguments(values: Sequence[ast.expr]) -> list[ast.expr]:
        return [g.name("rt"), g.const(name), values[0], g.tuple_of(list(values[1:]))]

    itself = g.const_param(methods.method, "P_method")
    return g.long(
        unless_boxed(
            g,
            "c" + "r" * len(args),
            [value, *args],
            lambda values: g.call(itself, arguments(values)),
            lambda values: g.boxed(methods.method, arguments(values)),
        )
    )


def _is_instance(g: TextGenerator, node: Prim) -> ast.expr:
    return as_bool(g.ours(builtins.is_instance, *g.exprs(node.args)))


def _main(g: TextGenerator, node: Prim) -> ast.expr:
    """``main`` of the text, with bindings of the names of its parameters."""
    function, *bound = g.exprs(node.args)
    code = g.const_param(lowered.call_main, "P_call_main")
    return g.await_(g.call(code, [g.name("rt"), g.name("d"), function, *bound]))


def _log_text(g: TextGenerator, node: Prim) -> ast.expr:
    return g.await_(g.ours(support.log_text, g.name("rt"), *g.exprs(node.args)))


def _endorsed(g: TextGenerator, node: Prim) -> ast.expr:
    value, reason = g.exprs(node.args[:2])
    return g.await_(g.ours(requests.endorsed, g.name("rt"), value, reason, g.span(node.at)))


# -- collections --------------------------------------------------------------------------------------------------


def _list(g: TextGenerator, node: Prim) -> ast.expr:
    return ast.List(g.exprs(node.args), LOAD, **g.loc)


def _tuple(g: TextGenerator, node: Prim) -> ast.expr:
    return g.tuple_of(g.exprs(node.args))


def _tuple_of(g: TextGenerator, node: Prim) -> ast.expr:
    items = g.exprs(node.args)
    return g.ours(displays.as_tuple, *items) if g.labelled else g.call(g.const_param(tuple, "tuple_"), items)


def _set(g: TextGenerator, node: Prim) -> ast.expr:
    kind = g.const_param(set_of, "set_of_") if g.labelled else g.const_param(OrderedSet, "OrderedSet_")
    return g.call(kind, [_list(g, node)])


def _dict(g: TextGenerator, node: Prim) -> ast.expr:
    (keys,) = cast("partial[Any]", node.function).args
    return ast.Dict([g.const(key) for key in keys], g.exprs(node.args), **g.loc)


def _gathered(g: TextGenerator, node: Prim) -> ast.expr:
    (spread,) = cast("partial[Any]", node.function).args
    parts = [g.tuple_of([g.const(each), value]) for each, value in zip(spread, g.exprs(node.args), strict=True)]
    return _called(g, displays.gathered, [g.name("rt"), *parts])


def _entries(g: TextGenerator, node: Prim) -> ast.expr:
    (spread,) = cast("partial[Any]", node.function).args
    items = g.exprs(node.args)
    parts = [g.tuple_of([g.const(each), *items[2 * at : 2 * at + 2]]) for at, each in enumerate(spread)]
    return _called(g, displays.entries, [g.name("rt"), *parts])


def _element(g: TextGenerator, node: Prim) -> ast.expr:
    value, at = g.exprs(node.args)
    return element_at(g, value, at)


def _text(g: TextGenerator, node: Prim) -> ast.expr:
    (value,) = g.exprs(node.args)
    return text_of(g, value)


def _joined(g: TextGenerator, node: Prim) -> ast.expr:
    return joined_texts(g, g.exprs(node.args))


# -- operators ----------------------------------------------------------------------------------------------------


def _operator(g: TextGenerator, node: Prim) -> ast.expr:
    """``left op right`` of an operator that Python's own carries out for integers."""
    left, right = g.exprs(node.args)
    function, op = node.function, NATIVE_BINARY[node.function]
    if op in (ast.FloorDiv, ast.Mod):
        return _divided(g, op(), left, right, function)
    if _is_text(left) or _is_text(right):
        return _by(g, function, left, right)
    value = _on_integers(g, left, right, lambda a, b: _sum(g, op(), a, b), lambda a, b: _by(g, function, a, b))
    return as_kind(value, int) if g.exact(left) is int and g.exact(right) is int else value


def _by(g: TextGenerator, function: Any, left: ast.expr, right: ast.expr) -> ast.expr:
    code = g.ours(function, g.name("rt"), left, right)
    return g.long(code) if takes_long(function) and not _is_settled_at_once(g, left, right) else code


def _is_settled_at_once(g: TextGenerator, *operands: ast.expr) -> bool:
    """Whether one of the operands is so simple that no operation takes long: it leaves no work."""
    return not g.labelled and any(
        isinstance(each, ast.Constant) and (type(each.value) is not str or len(each.value) < CHARACTERS_PER_STEP)
        for each in operands
    )


def _divided(g: TextGenerator, op: ast.operator, left: ast.expr, right: ast.expr, function: Any) -> ast.expr:
    """``left // right`` and ``left % right``: native for a small integer and a positive constant."""
    if not _exact(right) or right.value < 1 or isinstance(left, ast.Constant):  # type: ignore[attr-defined]
        return g.ours(function, g.name("rt"), left, right)
    if g.is_counted(left):
        return as_counted(g.combined(left, op, right))
    named, again = (left, left) if is_simple(left) else g.walrus(left)
    if is_simple(left) and g.exact(left) is int:
        test = small(g, again)
    else:
        test = both(g, g.type_is(named, int), small(g, again))
    return g.ifexp(test, g.combined(again, op, right), g.ours(function, g.name("rt"), again, right))


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not _exact(value)


def _exact(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and abs(value.value) < _LARGEST


def _sum(g: TextGenerator, op: ast.operator, a: ast.expr, b: ast.expr) -> ast.expr:
    plain = g.combined(a, op, b)
    if (_exact(a) or _exact(b) or (g.is_counted(a) and g.is_counted(b))) and not isinstance(op, ast.Mult):
        return plain
    named, again = g.walrus(plain)
    test = small(g, named)
    if not isinstance(op, ast.Mult):
        # Python compares integers of one digit in a third of the time; most sums have one digit.
        within = ast.Compare(g.const(-_DIGIT), [LESS, LESS], [named, g.const(_DIGIT)], **g.loc)
        test = g.some([within, small(g, again)])
    return g.ifexp(test, again, g.ours(bounded, g.name("rt"), again, g.const("an operation")))


def _on_integers(
    g: TextGenerator,
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


def _not(g: TextGenerator, node: Prim) -> ast.expr:
    value = g.expr(node.args[0])
    if not g.labelled:
        return g.not_(g.true(value))
    sure = is_bool(value)

    def plain(values: Sequence[ast.expr]) -> ast.expr:
        return g.not_(values[0] if sure else g.call(g.const_param(truth, "P_truth"), values))

    return unless_boxed(g, "o", [value], plain, lambda values: as_bool(g.boxed(lowered.is_false, values)))


# -- comparisons --------------------------------------------------------------------------------------------------


def _ordered(g: TextGenerator, node: Prim) -> ast.expr:
    sign, *operands = node.args
    assert isinstance(sign, Const)
    left, right = g.exprs(operands)
    return _compared(g, NATIVE_ORDER[sign.value](), compare.ordered, [g.const(sign.value)], left, right)


def _equal(g: TextGenerator, node: Prim) -> ast.expr:
    left, right = g.exprs(node.args)
    return _compared(g, NATIVE_EQUALITY[node.function](), node.function, [], left, right)


def _compared(
    g: TextGenerator, op: ast.cmpop, function: Any, first: list[ast.expr], left: ast.expr, right: ast.expr
) -> ast.expr:
    def slow(a: ast.expr, b: ast.expr) -> ast.expr:
        code = g.ours(function, g.name("rt"), *first, a, b)
        return code if _is_settled_at_once(g, a, b) else g.long(code)

    if _is_text(left) or _is_text(right):
        return as_bool(slow(left, right))
    return as_bool(_on_integers(g, left, right, lambda a, b: g.compared(a, op, b), slow))


def _identical(g: TextGenerator, node: Prim) -> ast.expr:
    """``is`` or ``is not``."""
    negate = node.function is operator.is_not

    def plain(values: Sequence[ast.expr]) -> ast.expr:
        left, right = values
        if any(isinstance(each, ast.Constant) and (each.value is None or type(each.value) is bool) for each in values):
            return as_bool(g.is_(left, right, negate=negate))
        same = as_bool(
            g.call(g.const_param(operator.is_, "P_is_"), values)
        )  # Python's compiler warns of literals here.
        return g.not_(same) if negate else same

    def boxed(values: Sequence[ast.expr]) -> ast.expr:
        return g.boxed(operator.is_, values)

    return _tested(g, "oo", g.exprs(node.args), plain, boxed, negate=negate)


def _within(g: TextGenerator, node: Prim) -> ast.expr:
    return _membership(g, node, negate=False)


def _not_within(g: TextGenerator, node: Prim) -> ast.expr:
    (within,) = node.args
    assert isinstance(within, Prim)
    return _membership(g, within, negate=True)


def _membership(g: TextGenerator, node: Prim, *, negate: bool) -> ast.expr:
    """``in`` or ``not in``."""

    def plain(values: Sequence[ast.expr]) -> ast.expr:
        code = g.call(g.const_param(compare.contains, "P_contains"), [g.name("rt"), *values])
        within = as_bool(g.long(code))
        return g.not_(within) if negate else within

    def boxed(values: Sequence[ast.expr]) -> ast.expr:
        return g.long(g.boxed(compare.contains, [g.name("rt"), *values]))

    return _tested(g, "rc", g.exprs(node.args), plain, boxed, negate=negate)


def _tested(
    g: TextGenerator,
    letters: str,
    operands: Sequence[ast.expr],
    plain: Callable[[Sequence[ast.expr]], ast.expr],
    boxed: Callable[[Sequence[ast.expr]], ast.expr],
    *,
    negate: bool,
) -> ast.expr:
    """``plain`` for values without boxes, else the test of ``boxed`` ones, which is negated here."""
    if not g.labelled:
        return plain(operands)

    def tested(values: Sequence[ast.expr]) -> ast.expr:
        code = boxed(values)
        return as_bool(g.boxed(lowered.is_false, [code]) if negate else code)

    return unless_boxed(g, letters, operands, plain, tested)


_RULES: dict[Any, Callable[[TextGenerator, Prim], ast.expr]] = {
    **dict.fromkeys(NATIVE_BINARY, _operator),
    **dict.fromkeys(NATIVE_EQUALITY, _equal),
    compare.ordered: _ordered,
    operator.is_: _identical,
    operator.is_not: _identical,
    operator.not_: _not_within,
    lowered.is_within: _within,
    lowered.is_false: _not,
    lowered.call_main: _main,
    lowered.call_method: _method,
    lowered.endorsed: _endorsed,
    lowered.log_text: _log_text,
    lowered.as_set: _set,
    lowered.as_tuple: _tuple,
    lowered.gathered_of: _gathered,
    lowered.entries_of: _entries,
    as_list: _list,
    as_dict: _dict,
    tuple: _tuple_of,
    values.element: _element,
    texts.text: _text,
    texts.joined: _joined,
    methods.append: _append,
    builtins.sort: _sort,
    builtins.is_instance: _is_instance,
}
"""The functions of the package with code of their own, by the function that lowered texts call."""
