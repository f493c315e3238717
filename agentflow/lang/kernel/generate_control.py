"""Generates code for choices, sequences, loops and error handling."""

from __future__ import annotations

import ast
from collections.abc import Callable

from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.code_writer import is_bool
from agentflow.lang.kernel.generate_calls import set_params
from agentflow.lang.kernel.generate_functions import code_name
from agentflow.lang.kernel.generator import (
    DROP,
    MAX_BLOCKS,
    RETURN,
    Dest,
    Generator,
    Round,
    expression,
    height,
    statement,
)

_FEW = 8
"""The most parts of ``and`` and ``or`` that become one expression if not all are tests."""
_MAX_CLAUSES = 12
"""The most clauses of a choice with tests that nest in one function."""


# -- choices ------------------------------------------------------------------------------------------------------


@statement(nodes.If)
def choice(g: Generator, node: nodes.If, dest: Dest) -> None:
    if not dest.final:
        if len(node.clauses) > _MAX_CLAUSES:
            g.helper([], [], lambda: choice(g, node, RETURN), dest)
            return
        if dest.kind != "drop" and len(node.clauses) == 1:
            g.deliver(choice_value(g, node), dest)
            return
    levels: list[list[ast.stmt]] = []
    for test, arm in node.clauses:
        code = g.test(g.expr(test))
        g.body.append(g.if_(code, g.block(arm, dest)))
        if not dest.final:
            levels.append(g.body)
            g.body = []
    g.stmt(node.other, dest)
    while levels:
        inner, g.body = g.body, levels.pop()
        last = g.body[-1]
        assert isinstance(last, ast.If)
        last.orelse = inner


@expression(nodes.If)
def choice_value(g: Generator, node: nodes.If) -> ast.expr:
    if len(node.clauses) > 1:
        return g.stated(node)
    ((tested, arm),) = node.clauses
    test = g.test(g.expr(tested))
    then_out, then = g.capture(lambda: g.expr(arm))
    other_out, other = g.capture(lambda: g.expr(node.other))
    if not then_out and not other_out:
        return g.ifexp(test, then, other)
    name = g.new_temporary()
    target = Dest("assign", name)

    def finish(out: list[ast.stmt], value: ast.expr) -> list[ast.stmt]:
        statements, _ = g.capture(lambda: (g.body.extend(out), g.deliver(value, target)))
        return statements

    g.body.append(g.if_(test, finish(then_out, then), finish(other_out, other)))
    return g.stable_name(name)


@expression(nodes.Logic)
def logic_value(g: Generator, node: nodes.Logic) -> ast.expr:
    parts = [g.capture(lambda each=each: g.expr(each)) for each in node.items]
    plain = all(is_bool(value) for _, value in parts[:-1])
    if not any(out for out, _ in parts[1:]) and (plain or len(parts) <= _FEW):
        g.body.extend(parts[0][0])
        values = [value for _, value in parts]
        if not plain:
            return _chain(g, values, node)
        combined = g.every(values) if node.every else g.some(values)
        combined._h = 1 + max(map(height, values))  # type: ignore[attr-defined]
        return combined
    name = g.new_temporary()
    g.body.extend(parts[0][0])
    g.assign(name, parts[0][1])
    for out, value in parts[1:]:
        test = g.test(g.name(name))
        test = test if node.every else g.not_(test)
        body, _ = g.capture(lambda out=out, value=value: (g.body.extend(out), g.assign(name, value)))
        g.body.append(g.if_(test, body))
    return g.stable_name(name)


def _chain(g: Generator, values: list[ast.expr], node: nodes.Logic) -> ast.expr:
    """The value of ``and`` or ``or``: each value but the last decides, by its truth, whether it is the whole's."""
    code = values[-1]
    for each in reversed(values[:-1]):
        again = g.name(each.id if isinstance(each, ast.Name) else "r_")
        kept = each if isinstance(each, ast.Constant) else again
        test = g.test(each)
        if is_bool(each) and not isinstance(each, ast.Constant):
            test = g.named("r_", each)
        code = g.ifexp(test, code, kept) if node.every else g.ifexp(test, kept, code)
    return code


@statement(nodes.Logic)
def logic(g: Generator, node: nodes.Logic, dest: Dest) -> None:
    if not dest.final:
        g.deliver(logic_value(g, node), dest)
        return
    for each in node.items[:-1]:
        value = g.atom(g.expr(each))
        test = g.test(value)
        statements, _ = g.capture(lambda value=value: g.deliver(value, dest))
        g.body.append(g.if_(g.not_(test) if node.every else test, statements))
    g.stmt(node.items[-1], dest)


# -- sequences and scopes -----------------------------------------------------------------------------------------


@statement(nodes.Seq)
def seq(g: Generator, node: nodes.Seq, dest: Dest) -> None:
    if node.frame is not None and g.fn.loops:
        # Variables that a procedure holds are new in each round.
        g.helper([], [], lambda: _in_order(g, node, RETURN), dest)
    else:
        _in_order(g, node, dest)


def _in_order(g: Generator, node: nodes.Seq, dest: Dest) -> None:
    for each in node.variables:
        g.own(each)
        g.owner[each.python_name] = g.fn
        if each.procedure is not None:
            g.owner[code_name(g, each.procedure)] = g.fn
    for item in node.items[:-1]:
        g.stmt(item, DROP)
    g.stmt(node.items[-1], dest)


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


@statement(nodes.NamedLet)
def named_let(g: Generator, node: nodes.NamedLet, dest: Dest) -> None:
    values = g.operands(node.inits)
    for each in node.params:
        g.names[each.python_name] = each.name
    if len(values) != 1:
        values = [g.atom(each) for each in values]
    variables = [each.python_name if node.frame is None else g.tmp() for each in node.params]
    _in_loop(g, dest, lambda inner: _rounds(g, node, variables, values, inner))


def _rounds(g: Generator, node: nodes.NamedLet, variables: list[str], values: list[ast.expr], dest: Dest) -> None:
    for each in variables:
        g.owner[each] = g.fn
    set_params(g, variables, values)
    if node.frame is None:
        for each in node.params:
            g.own(each)
    inside = dest if dest.kind == "return" else Dest(dest.kind, dest.name, leave=True)
    g.loops[node] = Round(g.fn, variables)

    def fresh() -> None:
        for each in node.params:
            g.own(each)
        g.stmt(node.body, RETURN)

    def build() -> None:
        if node.frame is None:
            g.stmt(node.body, inside)
        else:
            g.helper(node.params, [g.name(each) for each in variables], fresh, inside)

    body, _ = g.capture(build)
    del g.loops[node]
    g.body.append(ast.While(g.const(True), [*g.fuel(), *body], [], **g.loc))
    if dest.leave:
        g.body.append(ast.Break(**g.loc))


@statement(nodes.For)
def for_each(g: Generator, node: nodes.For, dest: Dest) -> None:
    assert node.counts
    over = g.call(g.rt("rounds"), [g.expr(node.over), g.span(node.at)])
    if g.fn.blocks >= MAX_BLOCKS:
        over = g.spill(over)

    def build(inner: Dest) -> None:
        name = g.new_temporary()
        keep = inner.kind != "drop"
        if keep:
            g.assign(name, ast.List([], ast.Load(), **g.loc))
        body = g.block(node.body, Dest("assign", name) if keep else DROP)
        g.body.append(ast.For(g.stored("i_"), over, [*g.fuel(), *body], [], **g.loc))
        g.deliver(g.stable_name(name) if keep else g.const(None), inner)

    _in_loop(g, dest, build)


@statement(nodes.While)
def while_(g: Generator, node: nodes.While, dest: Dest) -> None:
    def build(inner: Dest) -> None:
        before, test = g.capture(lambda: g.test(g.expr(node.test)))
        stop = [g.if_(g.not_(test) if node.sense else test, [ast.Break(**g.loc)])]
        body = g.block(node.body, DROP)
        g.body.append(ast.While(g.const(True), [*g.fuel(), *before, *stop, *body], [], **g.loc))
        g.deliver(g.const(None), inner)

    _in_loop(g, dest, build)


# -- errors -------------------------------------------------------------------------------------------------------


@statement(nodes.Try)
def try_(g: Generator, node: nodes.Try, dest: Dest) -> None:
    if g.fn.blocks >= MAX_BLOCKS - 1:
        g.helper([], [], lambda: _try(g, node, RETURN), dest)
        return
    _try(g, node, dest)


def _try(g: Generator, node: nodes.Try, dest: Dest) -> None:
    g.fn.blocks += 2
    name = g.new_temporary()
    target = Dest("assign", name)
    final = g.expr(node.final) if node.final is not None else None
    if final is None:
        _handled(g, node, target)
    else:
        guarded, _ = g.capture(lambda: _handled(g, node, target))
        clean = g.operation("finally", node.at, [g.name("x_"), final])
        again: list[ast.stmt] = [g.done(clean), ast.Raise(None, None, **g.loc)]
        handler = ast.ExceptHandler(g.const_param(BaseException, "BaseException_"), "x_", again, **g.loc)
        after = g.await_(g.call(final, [g.name("rt"), g.deeper()]))
        g.body.append(ast.Try(guarded, [handler], [g.done(after)], [], **g.loc))
    g.fn.blocks -= 2
    g.deliver(g.stable_name(name), dest)


def _handled(g: Generator, node: nodes.Try, target: Dest) -> None:
    """The body, and the handler that catches every error: the operation ``catch`` raises those again that programs may not catch."""
    if not node.handlers:
        g.stmt(node.body, target)
        return
    guarded = g.block(node.body, target)
    ((_, variable, body),) = node.handlers
    assert isinstance(variable, nodes.Variable)
    caught = variable

    def inside() -> None:
        g.bind(caught, g.operation("catch", node.at, [g.name("x_")]))
        g.stmt(body, target)

    handler, _ = g.capture(inside)
    g.body.append(
        ast.Try(
            guarded,
            [ast.ExceptHandler(g.const_param(Exception, "Exception_"), "x_", handler, **g.loc)],
            [],
            [],
            **g.loc,
        )
    )
