"""Code for data, variables and primitives."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, cast

from agentflow.lang import ir
from agentflow.lang.builtins.labelled import twin_of
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.calling import MANY_OPERANDS, TAIL, Sliced, bounce
from agentflow.lang.codegen import Generator, expression, statement
from agentflow.lang.environment import UNBOUND
from agentflow.lang.generated import RETURN, STORE, Dest, as_bool, height
from agentflow.lang.support import bounded, fresh, uninitialised

_SMALL = 16
_ARITHMETIC: dict[str, type[ast.operator]] = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}
_COMPARE: dict[str, type[ast.cmpop]] = {"<": ast.Lt, ">": ast.Gt, "<=": ast.LtE, ">=": ast.GtE, "=": ast.Eq}


@expression(ir.Const)
def const(g: Generator, node: ir.Const) -> ast.expr:
    value = node.value
    if value is None or type(value) in (int, float, str, bool):
        return g.const(value)
    code = g.datum(value)
    code._stable = True  # type: ignore[attr-defined]
    return code


@expression(ir.Quote)
def quote(g: Generator, node: ir.Quote) -> ast.expr:
    value = node.value
    if isinstance(value, list):
        items = cast(list[Any], value)
        if len(items) <= _SMALL and not any(isinstance(each, list | dict) for each in items):
            return ast.List([const(g, ir.Const(node.at, each)) for each in items], ast.Load(), **g.loc)
    return g.call(g.const_param(fresh, "fresh"), [g.datum(value)])


@expression(ir.MakeDict)
def make_dict(g: Generator, node: ir.MakeDict) -> ast.expr:
    values = g.operands(node.values)
    code = ast.Dict([g.const(key) for key in node.keys], values, **g.loc)
    code._h = 1 + max(map(height, values), default=0)  # type: ignore[attr-defined]
    return code


@expression(ir.Local)
def local(g: Generator, node: ir.Local) -> ast.expr:
    var = node.var
    code = g.name(var.py)
    if var.early:
        read = g.call(g.const_param(uninitialised, "uninitialised"), [g.const(var.name)])
        return g.ifexp(g.is_(code, g.const_param(UNBOUND, "U"), negate=True), code, read)
    if not var.mutated:
        code._stable = True  # type: ignore[attr-defined]
    return code


@expression(ir.Global)
def global_(g: Generator, node: ir.Global) -> ast.expr:
    return checked_global(g, node.name)


def checked_global(g: Generator, name: str) -> ast.expr:
    """The value in the environment's cell; the runtime handles an unbound one."""
    value = ast.NamedExpr(ast.Name("r_", STORE, **g.loc), g.attr(g.cell(name), "v"), **g.loc)
    slow = g.call(g.rt("unbound"), [environment(g), g.const(name)])
    return g.ifexp(g.is_(value, g.const_param(UNBOUND, "U"), negate=True), g.name("r_"), slow)


@expression(ir.CurrentEnvironment)
def here(g: Generator, node: ir.CurrentEnvironment) -> ast.expr:
    return environment(g)


def environment(g: Generator) -> ast.expr:
    """The environment the program is linked to."""
    code = g.name("E")
    code._stable = True  # type: ignore[attr-defined]
    return code


@expression(ir.Unknown)
def unknown(g: Generator, node: ir.Unknown) -> ast.expr:
    return g.call(g.rt("unbound"), [environment(g), g.const(node.name)])


@expression(ir.Prim)
def prim(g: Generator, node: ir.Prim) -> ast.expr:
    code = g.const_param(node.primitive, None)
    code._stable = True  # type: ignore[attr-defined]
    return code


@expression(ir.Dynamic)
def dynamic(g: Generator, node: ir.Dynamic) -> ast.expr:
    return g.operation("loop-config", node.at, [])


@statement(ir.SetLocal)
def set_local(g: Generator, node: ir.SetLocal, dest: Dest) -> None:
    value = g.expr(node.value)
    var = node.var
    if node.foreign:
        value = g.atom(value)
        owner = g.name(f"o_{var.py}")
        refuse = ast.Expr(g.call(g.rt("check_owner"), [owner, g.const(var.name)]), **g.loc)
        g.body.append(ast.If(g.is_(owner, g.name("rt"), negate=True), [refuse], [], **g.loc))
    give(g, value, dest, lambda each: g.assign(var.py, each))


def give(g: Generator, value: ast.expr, dest: Dest, store: Callable[[ast.expr], None]) -> None:
    """Store a value and then deliver it, evaluating it once."""
    if dest.kind == "drop":
        store(value)
        g.deliver(g.const(None), dest)
        return
    value = g.atom(value)
    store(value)
    g.deliver(value, dest)


@statement(ir.SetGlobal)
def set_global(g: Generator, node: ir.SetGlobal, dest: Dest) -> None:
    value = g.atom(g.expr(node.value)) if node.foreign or dest.kind != "drop" else g.expr(node.value)
    cell = g.cell(node.name)
    bound = g.is_(g.attr(cell, "v"), g.const_param(UNBOUND, "U"))
    test: ast.expr = bound
    if node.foreign:
        test = ast.BoolOp(ast.Or(), [g.rt("branch"), bound], **g.loc)
    value = g.atom(value)
    slow = ast.Expr(g.call(g.rt("set_global"), [environment(g), cell, g.const(node.name), value]), **g.loc)
    fast = ast.Assign([ast.Attribute(cell, "v", STORE, **g.loc)], value, **g.loc)
    g.body.append(ast.If(test, [slow], [fast], **g.loc))
    g.deliver(value, dest)


@statement(ir.DefineGlobal)
def define_global(g: Generator, node: ir.DefineGlobal, dest: Dest) -> None:
    value = g.expr(node.value)
    is_function = isinstance(node.value, ir.Lambda) and g.global_code.get(node.name) is node.value
    value = g.atom(value)
    if is_function and isinstance(node.value, ir.Lambda):
        lam = node.value
        code, closure = global_names(node.name, lam, g)
        g.assign(code, g.name(g.lambda_py[id(lam)]))
        g.assign(closure, value)
    cell = g.cell(node.name)
    g.body.append(ast.Assign([ast.Attribute(cell, "v", STORE, **g.loc)], value, **g.loc))
    g.deliver(value, dest)


def global_names(name: str, lam: ir.Lambda, g: Generator) -> tuple[str, str]:
    """The Python variables that hold the code and the closure of a procedure defined once at top level."""
    names = g.global_py.get(name)
    if names is None:
        number = len(g.global_py)
        names = g.global_py[name] = (f"code_{number}", f"closure_{number}")
        for each in names:
            g.owner[each] = g.main
            g.main.declared.add(each)
        g.names[names[0]] = name
    return names


@statement(ir.PrimCall)
def prim_statement(g: Generator, node: ir.PrimCall, dest: Dest) -> None:
    primitive = node.primitive
    if primitive.tails and dest is RETURN and g.fn.tail_ok and primitive.accepts(len(node.args)):
        g.body.append(ast.Return(slow(g, primitive, g.operands(node.args)), **g.loc))
        return
    g.deliver(prim_call(g, node), dest)


@expression(ir.PrimCall)
def prim_call(g: Generator, node: ir.PrimCall) -> ast.expr:
    primitive = node.primitive
    count = len(node.args)
    if not primitive.accepts(count):
        return g.call(g.attr(g.const_param(primitive), "check_arity"), [g.const(count)])
    name = primitive.canonical or primitive.name
    if name == "list":
        items = g.operands(node.args)
        code = ast.List(items, ast.Load(), **g.loc)
        code._h = 1 + max(map(height, items), default=0)  # type: ignore[attr-defined]
        return code
    if name == "not" and not g.labelled:
        return ast.UnaryOp(ast.Not(), g.test(g.expr(node.args[0])), **g.loc)
    if count == 2 and (g.fn.kind != "main" or g.fn.loops) and (name in _ARITHMETIC or name in _COMPARE):
        return _inline(g, node, name)
    value = slow(g, primitive, g.operands(node.args))
    if not g.labelled and (name.endswith("?") or name in _COMPARE):
        as_bool(value)
    return untailed(g, value) if primitive.tails else value


def slow(g: Generator, primitive: Primitive, args: list[ast.expr]) -> ast.expr:
    """A call of a primitive's function."""
    if g.labelled:
        primitive = twin_of(primitive)
    function = g.const_param(primitive.function)
    if primitive.is_async:
        return g.await_(g.call(function, [g.name("rt"), g.deeper(), *args]))
    value = g.call(function, [g.name("rt"), *args] if primitive.needs_rt else args)
    return in_slices(g, value) if primitive.sliced or len(args) >= MANY_OPERANDS else value


def in_slices(g: Generator, value: ast.expr) -> ast.expr:
    """The result of a primitive that may have long work: the work is carried out first."""
    named = ast.NamedExpr(ast.Name("r_", STORE, **g.loc), value, **g.loc)
    done = g.is_(g.call(g.const_param(type, "type_"), [named]), g.const_param(Sliced, "SL"), negate=True)
    code = g.ifexp(done, g.name("r_"), g.await_(g.call(g.rt("work"), [g.attr(g.name("r_"), "work")])))
    code._h = height(value) + 2  # type: ignore[attr-defined]
    return code


def untailed(g: Generator, value: ast.expr) -> ast.expr:
    """The value of a call, once the tail calls it ends in are made."""
    named = ast.NamedExpr(ast.Name("r_", STORE, **g.loc), value, **g.loc)
    rest = g.await_(g.call(g.const_param(bounce, "bounce"), [g.name("rt"), g.name("d")]))
    code = g.ifexp(g.is_(named, g.const_param(TAIL, "TAIL"), negate=True), g.name("r_"), rest)
    code._h = getattr(value, "_h", 0) + 2  # type: ignore[attr-defined]
    return code


def _inline(g: Generator, node: ir.PrimCall, name: str) -> ast.expr:
    """The fast path for exact integers; everything else is the primitive's."""
    a, b = g.atoms(node.args)
    tests = [_is_int(g, each) for each in (a, b) if not _exact(each)]
    plain: ast.expr
    if name in _COMPARE:
        plain = ast.Compare(a, [_COMPARE[name]()], [b], **g.loc)
    else:
        plain = ast.BinOp(a, _ARITHMETIC[name](), b, **g.loc)
        if name == "*" or not (_exact(a) or _exact(b)):
            plain = _bounded(g, plain, node.primitive)
    if any(isinstance(each, ast.Constant) and not _exact(each) for each in (a, b)):
        return slow(g, node.primitive, [a, b])
    if not tests:
        return plain
    test = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests, **g.loc)
    other = slow(g, node.primitive, [a, b])
    return g.ifexp(test, plain, as_bool(other) if name in _COMPARE and not g.labelled else other)


def _exact(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and abs(value.value) < 1 << 62


def _is_int(g: Generator, value: ast.expr) -> ast.expr:
    return g.is_(g.call(g.const_param(type, "type_"), [value]), g.const_param(int, "int_"))


_BOUND = 1 << 256


def _bounded(g: Generator, value: ast.expr, primitive: Primitive) -> ast.expr:
    """A result that may have grown: past 256 bits the runtime looks at the limit."""
    named = ast.NamedExpr(ast.Name("r_", STORE, **g.loc), value, **g.loc)
    test = ast.Compare(
        g.const_param(-_BOUND, "LOW"), [ast.Lt(), ast.Lt()], [named, g.const_param(_BOUND, "HIGH")], **g.loc
    )
    checked = g.call(g.const_param(bounded, "bounded"), [g.name("rt"), g.name("r_"), g.const(primitive.name)])
    return g.ifexp(test, g.name("r_"), checked)
