"""Generates code for choices, sequences, scopes, loops and error handling."""

from __future__ import annotations

import ast
from collections.abc import Callable

from agentflow.lang import ir
from agentflow.lang.codegen import MAX_BLOCKS, MAX_CLAUSES, Generator, expression, statement
from agentflow.lang.emit_calls import code_name, define_code, set_params
from agentflow.lang.environment import UNBOUND
from agentflow.lang.generated import DROP, RETURN, STORE, Dest, Loop, height, is_bool
from agentflow.lang.ir import Var
from agentflow.lang.support import rounds

_FEW = 8
"""The most parts of ``and`` and ``or`` that become one expression if not all are tests."""


@statement(ir.If)
def if_statement(g: Generator, node: ir.If, dest: Dest) -> None:
    if not dest.final and dest.kind != "drop":
        g.deliver(if_expression(g, node), dest)
        return
    test = g.test(g.expr(node.test))
    then = g.block(node.then, dest)
    if dest.final:
        g.body.append(ast.If(test, then, [], **g.loc))
        g.stmt(node.other, dest)
        return
    other, _ = g.capture(lambda: g.stmt(node.other, dest))
    g.body.append(ast.If(test, then, other, **g.loc))


@expression(ir.If)
def if_expression(g: Generator, node: ir.If) -> ast.expr:
    test = g.test(g.expr(node.test))
    then_out, then = g.capture(lambda: g.expr(node.then))
    other_out, other = g.capture(lambda: g.expr(node.other))
    if not then_out and not other_out:
        return g.ifexp(test, then, other)
    name = g.tmp()
    g.owner[name] = g.fn
    target = Dest("assign", name)

    def finish(out: list[ast.stmt], value: ast.expr) -> list[ast.stmt]:
        statements, _ = g.capture(lambda: (g.body.extend(out), g.deliver(value, target)))
        return statements

    g.body.append(ast.If(test, finish(then_out, then), finish(other_out, other), **g.loc))
    return g.temp(name)


@statement(ir.Cond)
def cond(g: Generator, node: ir.Cond, dest: Dest) -> None:
    if not dest.final and len(node.clauses) > MAX_CLAUSES:
        g.helper([], [], lambda: cond(g, node, RETURN), dest)
        return
    levels: list[list[ast.stmt]] = []
    for clause in node.clauses:
        test = g.expr(clause.test)
        if clause.bind is not None:
            g.bind(clause.bind, test)
            test = g.name(clause.bind.py)
        branch = ast.If(g.test(test), g.block(clause.body, dest), [], **g.loc)
        g.body.append(branch)
        if not dest.final:
            levels.append(g.body)
            g.body = []
    g.stmt(node.other, dest)
    while levels:
        inner, g.body = g.body, levels.pop()
        last = g.body[-1]
        assert isinstance(last, ast.If)
        last.orelse = inner


@expression(ir.Logic)
def logic_expression(g: Generator, node: ir.Logic) -> ast.expr:
    parts = [g.capture(lambda each=each: g.expr(each)) for each in node.items]
    plain = all(is_bool(value) for _, value in parts[:-1])
    if not any(out for out, _ in parts[1:]) and (plain or len(parts) <= _FEW):
        g.body.extend(parts[0][0])
        values = [value for _, value in parts]
        if not plain:
            return _chain(g, values, node)
        combined = ast.BoolOp(ast.And() if node.every else ast.Or(), values, **g.loc)
        combined._h = 1 + max(map(height, values))  # type: ignore[attr-defined]
        return combined
    name = g.tmp()
    g.owner[name] = g.fn
    g.body.extend(parts[0][0])
    g.assign(name, parts[0][1])
    for out, value in parts[1:]:
        test = g.test(g.name(name))
        test = test if node.every else ast.UnaryOp(ast.Not(), test, **g.loc)
        body, _ = g.capture(lambda out=out, value=value: (g.body.extend(out), g.assign(name, value)))
        g.body.append(ast.If(test, body, [], **g.loc))
    return g.temp(name)


def _chain(g: Generator, values: list[ast.expr], node: ir.Logic) -> ast.expr:
    """The value of ``and`` or ``or``: each value but the last decides, by its truth, whether it is the whole's."""
    code = values[-1]
    for each in reversed(values[:-1]):
        again = g.name(each.id if isinstance(each, ast.Name) else "r_")
        kept = each if isinstance(each, ast.Constant) else again
        test = g.test(each)
        if is_bool(each) and not isinstance(each, ast.Constant):
            test = ast.NamedExpr(ast.Name("r_", STORE, **g.loc), each, **g.loc)
        code = g.ifexp(test, code, kept) if node.every else g.ifexp(test, kept, code)
    return code


@statement(ir.Logic)
def logic_statement(g: Generator, node: ir.Logic, dest: Dest) -> None:
    if not dest.final:
        g.deliver(logic_expression(g, node), dest)
        return
    for each in node.items[:-1]:
        value = g.atom(g.expr(each))
        test = g.test(value)
        test = ast.UnaryOp(ast.Not(), test, **g.loc) if node.every else test
        statements, _ = g.capture(lambda value=value: g.deliver(value, dest))
        g.body.append(ast.If(test, statements, [], **g.loc))
    g.stmt(node.items[-1], dest)


@statement(ir.Seq)
def seq(g: Generator, node: ir.Seq, dest: Dest) -> None:
    for each in node.items[:-1]:
        g.stmt(each, DROP)
    g.stmt(node.items[-1], dest)


@statement(ir.Apart)
def apart(g: Generator, node: ir.Apart, dest: Dest) -> None:
    g.helper([], [], lambda: g.stmt(node.body, RETURN), dest)


@statement(ir.Let)
def let(g: Generator, node: ir.Let, dest: Dest) -> None:
    if g.fn.loops and any(each.captured for each in node.vars):
        g.helper([], [], lambda: _scope(g, node, RETURN), dest)
        return
    _scope(g, node, dest)


def _scope(g: Generator, node: ir.Let, dest: Dest) -> None:
    initialised = {id(var) for var, _ in node.inits}
    for var in node.vars:
        if id(var) not in initialised:
            g.own(var)
            g.owner[var.py] = g.fn
            if var.known is not None:
                g.owner[code_name(g, var.known)] = g.fn
            if var.early:
                g.assign(var.py, g.const_param(UNBOUND, "U"))
    for var, value in node.inits:
        if isinstance(value, ir.Lambda) and var.known is value and not var.escapes:
            g.names[var.py] = var.name
            define_code(g, value)
        else:
            g.bind(var, g.expr(value))
    g.stmt(node.body, dest)


# -- loops --------------------------------------------------------------------------------------------------------


def _in_loop(g: Generator, dest: Dest, build: Callable[[Dest], None]) -> None:
    """Emit a loop, in a nested function if there would be too many nested Python blocks."""
    if g.fn.blocks >= MAX_BLOCKS:
        g.helper([], [], lambda: build(RETURN), dest)
        return
    g.fn.blocks += 1
    g.fn.loops += 1
    build(dest)
    g.fn.blocks -= 1
    g.fn.loops -= 1


@statement(ir.NamedLoop)
def named_loop(g: Generator, node: ir.NamedLoop, dest: Dest) -> None:
    values = g.operands(node.inits)
    for each in node.params:
        g.names[each.py] = each.name
    if len(values) != 1:
        values = [g.atom(each) for each in values]
    fresh = any(each.captured for each in node.params)
    variables = node.params
    if fresh:
        variables = [Var(each.name, g.tmp(), each.function) for each in node.params]
    _in_loop(g, dest, lambda inner: _rounds(g, node, variables, values, inner, fresh=fresh))


def _rounds(
    g: Generator, node: ir.NamedLoop, variables: list[Var], values: list[ast.expr], dest: Dest, *, fresh: bool
) -> None:
    for each in variables:
        g.owner[each.py] = g.fn
    set_params(g, variables, values)
    for each in variables:
        g.own(each)
    inside = dest if dest.kind == "return" else Dest(dest.kind, dest.name, leave=True)
    outer = g.loops.get(node.loop)
    g.loops[node.loop] = Loop(g.fn, variables)

    def build() -> None:
        if not fresh:
            g.stmt(node.body, inside)
            return
        args = [g.name(each.py) for each in variables]

        def body() -> None:
            for each in node.params:
                g.own(each)
            g.stmt(node.body, RETURN)

        g.helper(node.params, args, body, inside)

    body, _ = g.capture(build)
    if outer is None:
        del g.loops[node.loop]
    g.body.append(ast.While(g.const(True), [*g.fuel(), *body], [], **g.loc))
    if dest.leave:
        g.body.append(ast.Break(**g.loc))


@statement(ir.Repeat)
def repeat(g: Generator, node: ir.Repeat, dest: Dest) -> None:
    count = g.call(g.const_param(rounds, "rounds"), [g.expr(node.count)])
    count = g.call(g.rt("rounds"), [count, g.span(node.at)])

    def build(inner: Dest) -> None:
        name = g.tmp()
        g.owner[name] = g.fn
        keep = inner.kind != "drop"
        if keep:
            g.assign(name, ast.List([], ast.Load(), **g.loc))
        body = g.block(node.body, Dest("assign", name) if keep else DROP)
        index = ast.Name("i_", STORE, **g.loc)
        g.body.append(ast.For(index, count, [*g.fuel(), *body], [], **g.loc))
        g.deliver(g.temp(name) if keep else g.const(None), inner)

    if g.fn.blocks >= MAX_BLOCKS:
        count = g.spill(count)
    _in_loop(g, dest, build)


@statement(ir.While)
def while_(g: Generator, node: ir.While, dest: Dest) -> None:
    def build(inner: Dest) -> None:
        before, test = g.capture(lambda: g.test(g.expr(node.test)))
        stop = [ast.If(ast.UnaryOp(ast.Not(), test, **g.loc), [ast.Break(**g.loc)], [], **g.loc)]
        body = g.block(node.body, DROP)
        g.body.append(ast.While(g.const(True), [*g.fuel(), *before, *stop, *body], [], **g.loc))
        g.stmt(node.result, inner)

    _in_loop(g, dest, build)


# -- errors -------------------------------------------------------------------------------------------------------


@statement(ir.Try)
def try_(g: Generator, node: ir.Try, dest: Dest) -> None:
    if g.fn.blocks >= MAX_BLOCKS - 1:
        g.helper([], [], lambda: _try(g, node, RETURN), dest)
        return
    _try(g, node, dest)


def _try(g: Generator, node: ir.Try, dest: Dest) -> None:
    g.fn.blocks += 2
    name = g.tmp()
    g.owner[name] = g.fn
    target = Dest("assign", name)
    final = g.expr(node.final) if node.final is not None else None

    def body() -> None:
        if node.handler is None or node.var is None:
            g.stmt(node.body, target)
            return
        _caught(g, node, target)

    if final is None:
        body()
    else:
        guarded, _ = g.capture(body)
        clean = g.operation("finally", node.at, [g.name("x_"), final])
        again: list[ast.stmt] = [ast.Expr(clean, **g.loc), ast.Raise(None, None, **g.loc)]
        handler = ast.ExceptHandler(g.const_param(BaseException, "BaseException_"), "x_", again, **g.loc)
        after = g.await_(g.call(final, [g.name("rt"), g.deeper()]))
        normal = ast.Expr(after, **g.loc)
        g.body.append(ast.Try(guarded, [handler], [normal], [], **g.loc))
    g.fn.blocks -= 2
    g.deliver(g.temp(name), dest)


def _caught(g: Generator, node: ir.Try, target: Dest) -> None:
    """The body and the handler of a ``catch``."""
    assert node.var is not None
    guarded = g.block(node.body, target)
    g.body.append(ast.Try(guarded, [_handler(g, node, node.var, target)], [], [], **g.loc))


def _handler(g: Generator, node: ir.Try, var: Var, target: Dest) -> ast.ExceptHandler:
    """The handler of a caught error. The operation ``catch`` raises errors again that programs may not catch."""
    assert node.handler is not None
    handled = node.handler

    def separately() -> None:
        g.own(var)
        g.stmt(handled, RETURN)

    def inside() -> None:
        if g.fn.loops and var.captured:
            g.helper([var], [g.name("e_")], separately, target)
            return
        g.bind(var, g.name("e_"))
        g.stmt(handled, target)

    caught = g.operation("catch", node.at, [g.name("x_")])
    prologue: list[ast.stmt] = [ast.Assign([ast.Name("e_", STORE, **g.loc)], caught, **g.loc)]
    out, _ = g.capture(inside)
    return ast.ExceptHandler(g.const_param(Exception, "Exception_"), "x_", [*prologue, *out], **g.loc)
