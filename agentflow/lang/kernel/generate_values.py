"""Generates code for constants, variables, and the functions of the language."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.calling import MANY_OPERANDS, TAIL, Sliced, bounce
from agentflow.lang.environment import UNBOUND
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.code_writer import STORE, as_bool
from agentflow.lang.kernel.generate_functions import closure_of, code_name, code_of
from agentflow.lang.kernel.generator import RETURN, Dest, Generator, expression, height, statement
from agentflow.lang.kernel.inline import as_dict, as_list, operator_of, owned
from agentflow.lang.kernel.nodes import Const, Lambda, Prim, Variable
from agentflow.lang.support import bounded, fresh, uninitialised

_SMALL = 16
"""Elements of quoted data up to which the code makes a list of its own."""
_ARITHMETIC: dict[str, ast.operator] = {"+": ast.Add(), "-": ast.Sub(), "*": ast.Mult()}
_COMPARE: dict[str, ast.cmpop] = {"<": ast.Lt(), ">": ast.Gt(), "<=": ast.LtE(), ">=": ast.GtE(), "=": ast.Eq()}


# -- constants and variables --------------------------------------------------------------------------------------


@expression(nodes.Const)
def const(g: Generator, node: Const) -> ast.expr:
    return constant(g, node.value)


def constant(g: Generator, value: Any) -> ast.expr:
    if value is None or type(value) in (int, float, str, bool):
        return g.const(value)
    code = g.const_param(value, "U") if value is UNBOUND else g.const_param(value)
    code._stable = True  # type: ignore[attr-defined]
    return code


@expression(nodes.Env)
def here(g: Generator, node: nodes.Env) -> ast.expr:
    return g.environment()


@expression(nodes.Ref)
def ref(g: Generator, node: nodes.Ref) -> ast.expr:
    variable = node.variable
    if isinstance(variable, str):
        return cell_value(g, variable, node.near)
    code = g.name(variable.python_name)
    if variable in g.emptied:
        read = g.call(g.const_param(uninitialised, "uninitialised"), [g.const(variable.name)])
        return g.ifexp(g.is_(code, g.const_param(UNBOUND, "U"), negate=True), code, read)
    if not variable.is_assigned:
        code._stable = True  # type: ignore[attr-defined]
    if variable.unsure:
        code._unsure = True  # type: ignore[attr-defined]
    return code


def cell_value(g: Generator, name: str, near: tuple[str, ...]) -> ast.expr:
    """The value in the environment's cell; the runtime handles an unbound one."""
    value = g.named("r_", g.attr(g.cell(name), "v"))
    slow = g.call(g.rt("unbound"), [g.environment(), g.const(name), *([g.const_param(near)] if near else [])])
    return g.ifexp(g.is_(value, g.const_param(UNBOUND, "U"), negate=True), g.name("r_"), slow)


@expression(nodes.Set)
def set_value(g: Generator, node: nodes.Set) -> ast.expr:
    variable = node.variable
    if isinstance(variable, str):
        return g.stated(node)
    store(g, variable, g.expr(node.value), node.how)
    return g.name(variable.python_name) if variable.is_assigned else g.stable_name(variable.python_name)


@statement(nodes.Set)
def set_statement(g: Generator, node: nodes.Set, dest: Dest) -> None:
    variable, value = node.variable, node.value
    if isinstance(variable, str):
        give_cell(g, node, variable, dest)
        return
    if isinstance(value, Const) and value.value is UNBOUND:
        g.emptied.add(variable)
    if dest.kind != "drop":
        kept = g.atom(g.expr(value))
        store(g, variable, kept, node.how)
        g.deliver(kept, dest)
        return
    if isinstance(value, Lambda) and variable.procedure is value and not variable.is_value and node.how != "set":
        g.names[variable.python_name] = variable.name
        code_of(g, value)
    else:
        store(g, variable, g.expr(value), node.how)
    g.deliver(g.const(None), dest)


def store(g: Generator, variable: Variable, value: ast.expr, how: str) -> None:
    if how == "set":
        g.assign(variable.python_name, value)
    else:
        g.bind(variable, value)


def give_cell(g: Generator, node: nodes.Set, name: str, dest: Dest) -> None:
    """Give a variable of the environment a value."""
    value = g.expr(node.value)
    if node.how != "set" or dest.kind != "drop":
        value = g.atom(value)
    if node.how == "set":
        set_cell(g, name, value, dest)
        return
    if isinstance(node.value, Lambda) and g.procedures.get(name) is node.value:
        code, closure = names_of_global(g, name)
        g.assign(code, g.name(code_name(g, node.value)))
        g.assign(closure, value)
    g.body.append(g.assignment(ast.Attribute(g.cell(name), "v", STORE, **g.loc), value))
    g.deliver(value, dest)


def set_cell(g: Generator, name: str, value: ast.expr, dest: Dest) -> None:
    cell = g.cell(name)
    test = g.is_(g.attr(cell, "v"), g.const_param(UNBOUND, "U"))
    if g.in_procedures:
        # A procedure may be called on a branch, which may not assign it.
        test = g.some([g.rt("branch"), test])
    value = g.atom(value)
    slow = g.done(g.call(g.rt("set_global"), [g.environment(), cell, g.const(name), value]))
    fast = g.assignment(ast.Attribute(cell, "v", STORE, **g.loc), value)
    g.body.append(g.if_(test, [slow], [fast]))
    g.deliver(value, dest)


def names_of_global(g: Generator, name: str) -> tuple[str, str]:
    """The Python variables that hold the code and the closure of a procedure defined once at top level."""
    names = g.global_names.get(name)
    if names is None:
        number = len(g.global_names)
        names = g.global_names[name] = (f"code_{number}", f"closure_{number}")
        for each in names:
            g.owner[each] = g.main
            g.main.declared.add(each)
        g.names[names[0]] = name
    return names


@expression(nodes.Lambda)
def procedure(g: Generator, node: Lambda) -> ast.expr:
    return closure_of(g, node, code_of(g, node))


# -- the functions of the language --------------------------------------------------------------------------------


@statement(nodes.Prim)
def prim_statement(g: Generator, node: Prim, dest: Dest) -> None:
    primitive = node.row
    if isinstance(primitive, Primitive) and primitive.tails and dest is RETURN and g.fn.tail_ok:
        g.body.append(g.return_(called(g, node, g.operands(node.args))))
        return
    g.deliver(prim(g, node), dest)


@expression(nodes.Prim)
def prim(g: Generator, node: Prim) -> ast.expr:
    primitive = node.row
    if not isinstance(primitive, Primitive):
        function: Any = node.function
        written = _WRITTEN.get(function.func if isinstance(function, partial) else function)
        return called(g, node, g.operands(node.args)) if written is None else written(g, node)
    name = primitive.canonical or primitive.name
    if name == "list":
        return list_of(g, node)
    if name == "not" and not g.labelled:
        return g.not_(g.test(g.expr(node.args[0])))
    if len(node.args) == 2 and (name in _ARITHMETIC or name in _COMPARE) and (not g.fn.is_main or g.fn.loops):
        return _inline(g, node, name)
    value = called(g, node, g.operands(node.args))
    if not g.labelled and (name.endswith("?") or name in _COMPARE):
        as_bool(value)
    return untailed(g, value) if primitive.tails else value


def called(g: Generator, node: Prim, args: list[ast.expr]) -> ast.expr:
    """A call of the function of a node, or of its twin that follows data."""
    primitive = node.row
    if not isinstance(primitive, Primitive):
        function = g.const_param(node.function)
        return g.call(function, [g.name("rt"), *args] if node.takes_rt else args)
    if g.labelled:
        from agentflow.lang.builtins.labelled import twin_of  # few flows have a policy

        primitive = twin_of(primitive)
    function = g.const_param(primitive.function)
    if node.waits is not None:
        return g.await_(g.call(function, [g.name("rt"), g.deeper(node.waits), *args]))
    value = g.call(function, [g.name("rt"), *args] if primitive.needs_rt else args)
    return in_slices(g, value) if primitive.sliced or len(args) >= MANY_OPERANDS else value


def in_slices(g: Generator, value: ast.expr) -> ast.expr:
    """The result of a function that may have long work: the work is carried out first."""
    kind = g.call(g.const_param(type, "type_"), [g.named("r_", value)])
    done = g.is_(kind, g.const_param(Sliced, "SL"), negate=True)
    code = g.ifexp(done, g.name("r_"), g.await_(g.call(g.rt("work"), [g.attr(g.name("r_"), "work")])))
    code._h = height(value) + 2  # type: ignore[attr-defined]
    return code


def untailed(g: Generator, value: ast.expr) -> ast.expr:
    """The value of a call, once the tail calls it ends in are made."""
    rest = g.await_(g.call(g.const_param(bounce, "bounce"), [g.name("rt"), g.name("d")]))
    code = g.ifexp(g.is_(g.named("r_", value), g.const_param(TAIL, "TAIL"), negate=True), g.name("r_"), rest)
    code._h = height(value) + 2  # type: ignore[attr-defined]
    return code


def _inline(g: Generator, node: Prim, name: str) -> ast.expr:
    """The fast path for exact integers; everything else is the function's."""
    a, b = g.atoms(node.args)
    tests = [_is_int(g, each) for each in (a, b) if not _exact(each)]
    plain: ast.expr
    if name in _COMPARE:
        plain = g.compared(a, _COMPARE[name], b)
    else:
        plain = g.combined(a, _ARITHMETIC[name], b)
        if name == "*" or not (_exact(a) or _exact(b)):
            plain = _bounded(g, plain, node.row)
    if any(isinstance(each, ast.Constant) and not _exact(each) for each in (a, b)):
        return called(g, node, [a, b])
    if not tests:
        return plain
    test = tests[0] if len(tests) == 1 else g.every(tests)
    other = called(g, node, [a, b])
    return g.ifexp(test, plain, as_bool(other) if name in _COMPARE and not g.labelled else other)


def _exact(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and abs(value.value) < 1 << 62


def _is_int(g: Generator, value: ast.expr) -> ast.expr:
    return g.is_(g.call(g.const_param(type, "type_"), [value]), g.const_param(int, "int_"))


_BOUND = 1 << 256


def _bounded(g: Generator, value: ast.expr, primitive: Primitive) -> ast.expr:
    """A result that may have grown: past 256 bits the runtime looks at the limit."""
    low, high = g.const_param(-_BOUND, "LOW"), g.const_param(_BOUND, "HIGH")
    test = ast.Compare(low, [ast.Lt(), ast.Lt()], [g.named("r_", value), high], **g.loc)
    checked = g.call(g.const_param(bounded, "bounded"), [g.name("rt"), g.name("r_"), g.const(primitive.name)])
    return g.ifexp(test, g.name("r_"), checked)


# -- functions that the code writes out ---------------------------------------------------------------------------


def list_of(g: Generator, node: Prim) -> ast.expr:
    items = g.operands(node.args)
    code = ast.List(items, ast.Load(), **g.loc)
    code._h = 1 + max(map(height, items), default=0)  # type: ignore[attr-defined]
    return code


def _dict(g: Generator, node: Prim) -> ast.expr:
    values = g.operands(node.args)
    (keys,) = cast("partial[Any]", node.function).args
    code = ast.Dict([g.const(key) for key in keys], values, **g.loc)
    code._h = 1 + max(map(height, values), default=0)  # type: ignore[attr-defined]
    return code


def _quoted(g: Generator, node: Prim) -> ast.expr:
    (data,) = node.args
    assert isinstance(data, Const)
    value = data.value
    if type(value) is list:
        items = cast("list[Any]", value)
        if len(items) <= _SMALL and not any(isinstance(each, list | dict) for each in items):
            return ast.List([constant(g, each) for each in items], ast.Load(), **g.loc)
    return g.call(g.const_param(fresh, "fresh"), [g.const_param(value)])


def _owned(g: Generator, node: Prim) -> ast.expr:
    """A value, once it is certain that the strand may assign the variable that gets it."""
    value, owner, name = node.args
    assert isinstance(owner, nodes.Ref) and isinstance(owner.variable, Variable)
    code = g.atom(g.expr(value))
    strand = g.name(owner.variable.python_name)
    refuse = g.done(g.call(g.rt("check_owner"), [strand, g.expr(name)]))
    g.body.append(g.if_(g.is_(strand, g.name("rt"), negate=True), [refuse]))
    return code


def _operator(g: Generator, node: Prim) -> ast.expr:
    """A name that was nothing at compile time is looked up again."""
    return g.call(g.rt("operator"), g.operands(node.args))


_WRITTEN: dict[Callable[..., Any], Callable[[Generator, Prim], ast.expr]] = {
    as_list: list_of,
    as_dict: _dict,
    fresh: _quoted,
    owned: _owned,
    operator_of: _operator,
}
