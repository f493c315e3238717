"""Generates code for calls and effects."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from agentflow.core.data.source import Span
from agentflow.core.events import effects
from agentflow.lang.calling import AGAIN, MAX_STACK_CALLS, TAIL, TAIL_NEST
from agentflow.lang.closure import Closure
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.code_writer import LESS, STORE
from agentflow.lang.kernel.generate_functions import code_name, may_tail, takes
from agentflow.lang.kernel.generate_values import names_of_global, untailed
from agentflow.lang.kernel.generator import RETURN, Dest, Generator, expression, statement
from agentflow.lang.kernel.nodes import EitherLink, EitherPair, NamedEffect, Ref, Variable

_EQUAL = ast.Eq()
_EFFECTS: dict[str, type[effects.Effect]] = {
    "task": effects.TaskCall,
    "tool": effects.CallTool,
    "workflow": effects.CallWorkflow,
    "context": effects.GetContext,
    "items": effects.GetContext,
}


# -- calls --------------------------------------------------------------------------------------------------------


@statement(nodes.Call)
def call_statement(g: Generator, node: nodes.Call, dest: Dest) -> None:
    if dest is not RETURN or not g.fn.tail_ok:
        g.deliver(call(g, node), dest)
        return
    code = g.spill(callee(g, node, len(node.args))[0])
    make_or_leave(g, code, [g.atom(each) for each in g.operands(node.args)])


@expression(nodes.Call)
def call(g: Generator, node: nodes.Call) -> ast.expr:
    code, tails = callee(g, node, len(node.args))
    block, values = g.capture(lambda: g.operands(node.args))
    if block:
        code = g.spill(code)  # it is chosen before the operands are evaluated
        g.body.extend(block)
    result = g.await_(g.call(code, [g.name("rt"), g.deeper(), *values]))
    return untailed(g, result) if tails else result


def callee(g: Generator, node: nodes.Call, count: int) -> tuple[ast.expr, bool]:
    """The code to call, chosen before the operands are evaluated; and whether its result may be a tail call."""
    operator = node.function
    if isinstance(operator, Ref):
        variable = operator.variable
        function = g.procedures.get(variable) if isinstance(variable, str) else variable.procedure
        if function is not None and takes(function, count):
            near = g.compared(g.name("d"), LESS, g.const(MAX_STACK_CALLS))
            if isinstance(variable, Variable):
                code = g.name(code_name(g, function))
                return g.ifexp(near, code, g.call(g.rt("on_fresh_stack"), [code])), may_tail(g, function)
            cell = g.cell(variable)
            code, condition = names_of_global(g, variable)
            same = g.is_(g.attr(cell, "v"), g.name(condition))
            args = [g.environment(), cell, g.const(variable), g.const(count), g.name("d")]
            test = g.every([near, same])
            # The guard fails when the host or another program has rebound the name: the runtime finishes such a call.
            return g.ifexp(test, g.name(code), g.call(g.rt("pick_global"), args)), may_tail(g, function)
    if g.fn.is_main and not g.fn.loops:
        # Run once: the general way costs less than compiling a short cut.
        return g.call(g.rt("pick"), [g.expr(operator), g.const(count), g.name("d")]), True
    return _code(g, g.atom(g.expr(operator)), count), True


def _code(g: Generator, function: ast.expr, count: int) -> ast.expr:
    """The code of a value in operator position, for ``count`` positional arguments."""
    tests: list[ast.expr] = [
        g.compared(g.name("d"), LESS, g.const(MAX_STACK_CALLS)),
        g.is_(g.call(g.const_param(type, "type_"), [function]), g.const_param(Closure, "CL")),
        g.compared(g.attr(function, "arity"), _EQUAL, g.const(count)),
    ]
    if g.labelled:
        tests.append(g.attr(g.attr(function, "info"), "follows"))
    slow = g.call(g.rt("pick"), [function, g.const(count), g.name("d")])
    return g.ifexp(g.every(tests), g.attr(function, "code"), slow)


def make_or_leave(g: Generator, code: ast.expr, values: list[ast.expr]) -> None:
    """Return the value of a call: made here while the stack is shallow, left to the caller when it is deep."""
    shallow = g.compared(g.name("d"), LESS, g.const(TAIL_NEST))
    result = g.await_(g.call(code, [g.name("rt"), g.deeper(), *values]))
    g.body.append(g.if_(shallow, [g.return_(result)]))
    packed = g.tuple_of([code, *values])
    g.body.append(g.assignment(ast.Attribute(g.name("rt"), "tail", STORE, **g.loc), packed))
    g.body.append(g.return_(g.const_param(TAIL, "TAIL")))


@statement(nodes.Again)
def again(g: Generator, node: nodes.Again, dest: Dest) -> None:
    """The next round of a named let."""
    loop, values = g.loops[node.loop], g.operands(node.args)
    if loop.fn is not g.fn:
        g.fn.crossing = node.loop
        code = g.tuple_of(values)
        g.body.append(g.assignment(ast.Attribute(g.name("rt"), "again", STORE, **g.loc), code))
        g.body.append(g.return_(g.const_param(AGAIN, "AGAIN")))
        return
    set_params(g, loop.params, values)
    g.body.append(ast.Continue(**g.loc))


def set_params(g: Generator, params: Sequence[str], values: list[ast.expr]) -> None:
    """Assign all at once."""
    pairs = [
        (each, value)
        for each, value in zip(params, values, strict=True)
        if not (isinstance(value, ast.Name) and value.id == each)
    ]
    if len(pairs) == 1:
        g.assign(*pairs[0])
    elif pairs:
        targets: list[ast.expr] = [g.stored(each) for each, _ in pairs]
        packed = g.tuple_of([value for _, value in pairs])
        g.body.append(g.assignment(ast.Tuple(targets, STORE, **g.loc), packed))


# -- calls by position or by name ---------------------------------------------------------------------------------


@statement(nodes.Either)
def either(g: Generator, node: nodes.Either, dest: Dest) -> None:
    """A call with pairs as operands: named arguments when the operator names a task or tool, else positional."""
    pairs = node.pairs
    function = g.atom(g.expr(node.function))
    named = g.spill(_takes_names(g, function))
    code = g.spill(g.ifexp(named, g.const(None), _code(g, function, len(pairs))))
    values = [_pair(g, each, named) for each in pairs]
    names = tuple([each.names[0] for each in pairs])
    by_name = g.await_(_named_call(g, function, names, values, node.at))
    if dest is RETURN and g.fn.tail_ok:
        g.body.append(g.if_(named, [g.return_(by_name)]))
        make_or_leave(g, code, values)
        return
    positional = untailed(g, g.await_(g.call(code, [g.name("rt"), g.deeper(), *values])))
    then, _ = g.capture(lambda: g.deliver(by_name, dest))
    other, _ = g.capture(lambda: g.deliver(positional, dest))
    g.body.append(g.if_(named, then, other))


def _takes_names(g: Generator, function: ast.expr) -> ast.expr:
    """Whether a value in operator position takes named arguments; a closure never asks the runtime."""
    plain = g.is_(g.call(g.const_param(type, "type_"), [function]), g.const_param(Closure, "CL"), negate=True)
    takes_names = g.call(g.rt("takes_named_arguments"), [function, g.environment()])
    return g.every([plain, takes_names])


def _named_call(
    g: Generator, function: ast.expr, names: tuple[str, ...], values: list[ast.expr], at: Span | None
) -> ast.expr:
    packed = g.tuple_of(values)
    args = [g.name("d"), function, g.packed_constant(names, lambda: names), packed, g.span(at), g.environment()]
    return g.call(g.rt("call_named"), args)


def _pair(g: Generator, pair: EitherPair, named: ast.expr) -> ast.expr:
    """The value of an operand, an argument's when ``named``: operators from the outside in, then calls inside out.

    An operator with the name of an argument is not looked up; its content is an expression; the operator of that is looked up.
    """
    opened: list[_Opened] = []
    for link in pair.links:
        opened.append(_open(g, link, named))
        named = opened[-1].named
    name = pair.variable.python_name
    g.bind(pair.variable, g.expr(pair.value))
    applied, _ = g.capture(lambda: g.assign(name, g.expr(pair.applied)))
    g.body.append(g.if_(g.not_(named), applied))
    for each, argument in zip(reversed(opened), reversed(pair.names), strict=False):
        _close(g, each, argument, name)
    return g.stable_name(name)


class _Opened:
    """A link with its operator evaluated: ``named`` when it takes a named argument, ``skipped`` when its name is one."""

    __slots__ = ("code", "function", "link", "named", "skipped")

    def __init__(
        self, link: EitherLink, skipped: ast.expr, named: ast.expr, function: ast.expr, code: ast.expr | None
    ) -> None:
        self.link = link
        self.skipped = skipped
        self.named = named
        self.function = function
        self.code = code


def _open(g: Generator, link: EitherLink, skipped: ast.expr) -> _Opened:
    saved = g.move_to(link.at)
    nothing = g.const(None)
    if link.effect is not None:
        opened = _Opened(link, skipped, g.spill(g.not_(skipped)), nothing, None)
    else:
        function = g.spill(g.ifexp(skipped, nothing, g.expr(link.function)))
        named = g.spill(g.every([g.not_(skipped), _takes_names(g, function)]))
        neither = g.some([skipped, named])
        opened = _Opened(link, skipped, named, function, g.spill(g.ifexp(neither, nothing, _code(g, function, 1))))
    g.loc = saved
    return opened


def _close(g: Generator, opened: _Opened, argument: str, name: str) -> None:
    """Call an operator on the value in ``name``, as an ``argument`` or by position; a skipped one not at all."""
    link, value = opened.link, g.stable_name(name)
    saved = g.move_to(link.at)
    if link.effect is not None:
        by_name = _performed(g, link.effect, ast.Dict([g.const(argument)], [value], **g.loc), link.at)
    else:
        by_name = g.await_(_named_call(g, opened.function, (argument,), [value], link.at))
    then, _ = g.capture(lambda: g.assign(name, by_name))
    other: list[ast.stmt] = []
    if opened.code is not None:
        positional = untailed(g, g.await_(g.call(opened.code, [g.name("rt"), g.deeper(), value])))
        applied, _ = g.capture(lambda: g.assign(name, positional))
        other = [g.if_(g.not_(opened.skipped), applied)]
    g.body.append(g.if_(opened.named, then, other))
    g.loc = saved


# -- effects ------------------------------------------------------------------------------------------------------


@expression(nodes.Perform)
def perform(g: Generator, node: nodes.Perform) -> ast.expr:
    effect = node.make
    assert isinstance(effect, NamedEffect)
    values = g.operands(node.args)
    return _performed(g, effect, ast.Dict([g.const(each) for each in effect.names], values, **g.loc), node.at)


def _performed(g: Generator, effect: NamedEffect, arguments: ast.expr, at: Span | None) -> ast.expr:
    kind = _EFFECTS[effect.kind]
    args: list[ast.expr] = [arguments]
    if effect.kind in ("task", "tool", "workflow"):
        args = [g.const(effect.name), arguments, g.environment()]
    elif effect.kind == "items":
        args = [arguments, g.const(True)]
    code = g.call(g.const_param(kind, kind.__name__), args)
    return g.await_(g.call(g.rt("perform"), [code, g.span(at)]))


@expression(nodes.Op)
def operation(g: Generator, node: nodes.Op) -> ast.expr:
    values = g.operands(node.args)
    return g.operation(node.operation, node.at, [*[g.const_param(each) for each in node.constants], *values])
