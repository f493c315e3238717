"""Code for procedures, calls and effects."""

from __future__ import annotations

import ast
from typing import Any

from agentflow.core.events import effects
from agentflow.lang import ir
from agentflow.lang.calling import AGAIN, MAX_STACK_CALLS, TAIL, TAIL_NEST
from agentflow.lang.closure import Closure, LambdaInfo
from agentflow.lang.codegen import Generator, expression, statement
from agentflow.lang.emit_values import checked_global, environment, give, global_names, untailed
from agentflow.lang.generated import RETURN, STORE, Dest, Loop, PyFn
from agentflow.lang.ir import IR, Lambda, Var

_EFFECTS: dict[str, type[Any]] = {
    "task": effects.TaskCall,
    "tool": effects.CallTool,
    "workflow": effects.CallWorkflow,
    "context": effects.GetContext,
    "items": effects.GetContext,
}


# -- procedures ---------------------------------------------------------------------------------------------------


@expression(ir.Lambda)
def lambda_(g: Generator, node: Lambda) -> ast.expr:
    py = define_code(g, node)
    return closure(g, node, py)


def define_code(g: Generator, node: Lambda) -> str:
    """Emit the function of a lambda; returns its Python name."""
    py = code_name(g, node)
    owner = g.owner.setdefault(py, g.fn)
    if owner is not g.fn:
        g.fn.nonlocals.add(py)
        owner.declared.add(py)
    params = [each.py for each in node.params]
    fn = PyFn("lambda", tail_ok=True)
    everything = [*node.params, *([node.rest] if node.rest else [])]
    outer_loops, g.loops = g.loops, {}

    def build() -> None:
        for each in everything:
            g.own(each)
        g.stmt(node.body, RETURN)

    code = g.function(py, params, node.rest.py if node.rest else None, fn, build, prologue=True)
    g.loops = outer_loops
    g.body.append(code)
    return py


def code_name(g: Generator, node: Lambda) -> str:
    """The Python name of a lambda's function."""
    py = g.lambda_py.get(id(node))
    if py is None:
        g.counter += 1
        stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in (node.name or "lambda"))[:40]
        py = g.lambda_py[id(node)] = f"f{g.counter}_{stem}"
        g.names[py] = node.name or "lambda"
        g.lambdas[py] = LambdaInfo(
            name=node.name,
            params=tuple(each.name for each in node.params),
            rest=node.rest.name if node.rest else None,
            source=g.source,
            start=node.at.start,
            end=node.at.end,
            body=node.body_place,
            portable=node.portable,
            follows=g.labelled,
        )
    return py


def closure(g: Generator, node: Lambda, py: str) -> ast.expr:
    """The procedure value around a function."""
    info = g.lambdas[py]
    count = -1 if node.rest else len(node.params)
    return g.call(
        g.const_param(Closure, "CL"),
        [g.name(py), g.const(count), g.packed_constant(id(info), lambda: info), environment(g), g.rt("grants")],
    )


def may_tail(g: Generator, node: Lambda) -> bool:
    """Whether calling this lambda can return a tail call for the caller to make."""
    tail = g.tails.get(id(node))
    if tail is None:
        g.tails[id(node)] = True
        tail = g.tails[id(node)] = _has_tail_call(node)
    return tail


def _has_tail_call(node: Lambda) -> bool:
    """Walks the tail positions only: each call there may be left to the caller, other than the next round of a loop."""
    pending: list[IR] = [node.body]
    while pending:
        at = pending.pop()
        if isinstance(at, ir.Call):
            if not (isinstance(at.operator, ir.Local) and at.self_tail and at.operator.var.looping):
                return True
        elif isinstance(at, ir.PrimCall):
            if at.primitive.tails:
                return True
        elif isinstance(at, ir.If):
            pending += [at.then, at.other]
        elif isinstance(at, ir.Cond):
            pending += [*[each.body for each in at.clauses], at.other]
        elif isinstance(at, ir.Seq | ir.Logic):
            pending.append(at.items[-1])
        elif isinstance(at, ir.Let | ir.Apart | ir.NamedLoop):
            pending.append(at.body)
        elif isinstance(at, ir.While):
            pending.append(at.result)
        elif type(at) not in _WITHOUT_TAIL:
            return True
    return False


_WITHOUT_TAIL: frozenset[type[Any]] = frozenset(
    (
        ir.Const,
        ir.Quote,
        ir.MakeDict,
        ir.Local,
        ir.Global,
        ir.Unknown,
        ir.Prim,
        ir.Dynamic,
        ir.CurrentEnvironment,
        ir.SetLocal,
        ir.SetGlobal,
        ir.DefineGlobal,
        ir.Define,
        ir.Lambda,
        ir.EffectCall,
        ir.RuntimeCall,
        ir.Thunk,
        ir.ThunkList,
        ir.Repeat,
        ir.Try,
    )
)
"""The kinds of node with a value of their own, whichever calls they make for it."""


# -- calls --------------------------------------------------------------------------------------------------------


@statement(ir.Call)
def call_statement(g: Generator, node: ir.Call, dest: Dest) -> None:
    operator = node.operator
    if node.self_tail and isinstance(operator, ir.Local) and operator.var in g.loops:
        _round(g, g.loops[operator.var], operator.var, node.args)
        return
    if node.pairs is not None:
        _either(g, node, node.pairs, dest)
        return
    if dest is RETURN and g.fn.tail_ok:
        _tail_call(g, node)
        return
    g.deliver(call(g, node), dest)


def _round(g: Generator, loop: Loop, var: Var, args: list[IR]) -> None:
    """The next round of a named let."""
    values = g.operands(args)
    if loop.fn is not g.fn:
        g.fn.crossing = var
        code = ast.Tuple(values, ast.Load(), **g.loc)
        g.body.append(ast.Assign([ast.Attribute(g.name("rt"), "again", STORE, **g.loc)], code, **g.loc))
        g.body.append(ast.Return(g.const_param(AGAIN, "AGAIN"), **g.loc))
        return
    set_params(g, loop.params, values)
    g.body.append(ast.Continue(**g.loc))


def set_params(g: Generator, params: list[Var], values: list[ast.expr]) -> None:
    """Assign all at once."""
    pairs = [
        (each, value)
        for each, value in zip(params, values, strict=True)
        if not (isinstance(value, ast.Name) and value.id == each.py)
    ]
    if len(pairs) == 1:
        g.assign(pairs[0][0].py, pairs[0][1])
    elif pairs:
        targets: list[ast.expr] = [ast.Name(each.py, STORE, **g.loc) for each, _ in pairs]
        packed = ast.Tuple([value for _, value in pairs], ast.Load(), **g.loc)
        g.body.append(ast.Assign([ast.Tuple(targets, STORE, **g.loc)], packed, **g.loc))


def callee(g: Generator, node: ir.Call, count: int) -> tuple[ast.expr, bool]:
    """The code to call, chosen before the operands are evaluated; and whether its result may be a tail call."""
    operator = node.operator
    near = ast.Compare(g.name("d"), [ast.Lt()], [g.const(MAX_STACK_CALLS)], **g.loc)
    if isinstance(operator, ir.Local):
        function = operator.var.known
        if function is not None and function.takes(count):
            code = g.name(code_name(g, function))
            return g.ifexp(near, code, g.call(g.rt("on_fresh_stack"), [code])), may_tail(g, function)
    if isinstance(operator, ir.Global):
        function = g.global_code.get(operator.name)
        cell = g.cell(operator.name)
        if function is not None and function.takes(count):
            code, condition = global_names(operator.name, function, g)
            same = g.is_(g.attr(cell, "v"), g.name(condition))
            args = [environment(g), cell, g.const(operator.name), g.const(count), g.name("d")]
            test = ast.BoolOp(ast.And(), [near, same], **g.loc)
            # The guard fails when the host or another program has rebound the name: the runtime finishes such a call.
            return g.ifexp(test, g.name(code), g.call(g.rt("pick_global"), args)), may_tail(g, function)
    if g.fn.kind == "main" and not g.fn.loops:
        # Run once: the general way costs less than compiling a short cut.
        return g.call(g.rt("pick"), [_operator(g, operator), g.const(count), g.name("d")]), True
    return _code(g, g.atom(_operator(g, operator)), count), True


def _code(g: Generator, function: ast.expr, count: int) -> ast.expr:
    """The code of a value in operator position, for ``count`` positional arguments."""
    tests: list[ast.expr] = [
        ast.Compare(g.name("d"), [ast.Lt()], [g.const(MAX_STACK_CALLS)], **g.loc),
        g.is_(g.call(g.const_param(type, "type_"), [function]), g.const_param(Closure, "CL")),
        ast.Compare(g.attr(function, "arity"), [ast.Eq()], [g.const(count)], **g.loc),
    ]
    if g.labelled:
        tests.append(g.attr(g.attr(function, "info"), "follows"))
    slow = g.call(g.rt("pick"), [function, g.const(count), g.name("d")])
    return g.ifexp(ast.BoolOp(ast.And(), tests, **g.loc), g.attr(function, "code"), slow)


def _operator(g: Generator, operator: IR) -> ast.expr:
    """The value in operator position; a name that was nothing at compile time is looked up again."""
    if isinstance(operator, ir.Unknown):
        return g.call(g.rt("operator"), [environment(g), g.const(operator.name)])
    if isinstance(operator, ir.Global):
        return checked_global(g, operator.name)
    return g.expr(operator)


@expression(ir.Call)
def call(g: Generator, node: ir.Call) -> ast.expr:
    if node.pairs is not None:
        name = g.tmp()
        g.owner[name] = g.fn
        _either(g, node, node.pairs, Dest("assign", name))
        return g.temp(name)
    code, tails = callee(g, node, len(node.args))
    values, code = _arguments(g, node.args, code)
    result = g.await_(g.call(code, [g.name("rt"), g.deeper(), *values]))
    return untailed(g, result) if tails else result


def _arguments(g: Generator, args: list[IR], code: ast.expr) -> tuple[list[ast.expr], ast.expr]:
    """The arguments; the chosen code is kept first when evaluating them takes statements."""
    block, values = g.capture(lambda: g.operands(args))
    if block:
        code = g.spill(code)
        g.body.extend(block)
    return values, code


def _tail_call(g: Generator, node: ir.Call) -> None:
    code = g.spill(callee(g, node, len(node.args))[0])
    make_or_leave(g, code, [g.atom(each) for each in g.operands(node.args)])


def make_or_leave(g: Generator, code: ast.expr, values: list[ast.expr]) -> None:
    """Return the value of a call: made here while the stack is shallow, left to the caller when it is deep."""
    code = g.atom(code)
    shallow = ast.Compare(g.name("d"), [ast.Lt()], [g.const(TAIL_NEST)], **g.loc)
    result = g.await_(g.call(code, [g.name("rt"), g.deeper(), *values]))
    g.body.append(ast.If(shallow, [ast.Return(result, **g.loc)], [], **g.loc))
    packed = ast.Tuple([code, *values], ast.Load(), **g.loc)
    g.body.append(ast.Assign([ast.Attribute(g.name("rt"), "tail", STORE, **g.loc)], packed, **g.loc))
    g.body.append(ast.Return(g.const_param(TAIL, "TAIL"), **g.loc))


def _either(g: Generator, node: ir.Call, pairs: list[ir.Pair], dest: Dest) -> None:
    """A call with pairs as operands: named arguments when the operator names a task or tool, else positional."""
    function = g.atom(_operator(g, node.operator))
    named = g.spill(_takes_names(g, function))
    code = g.spill(g.ifexp(named, g.const(None), _code(g, function, len(pairs))))
    values = _pairs(g, pairs, named)
    names = tuple(each.names[0] for each in pairs)
    by_name = g.await_(_named_call(g, function, names, values, node))
    if dest is RETURN and g.fn.tail_ok:
        g.body.append(ast.If(named, [ast.Return(by_name, **g.loc)], [], **g.loc))
        make_or_leave(g, code, values)
        return
    positional = untailed(g, g.await_(g.call(code, [g.name("rt"), g.deeper(), *values])))
    then, _ = g.capture(lambda: g.deliver(by_name, dest))
    other, _ = g.capture(lambda: g.deliver(positional, dest))
    g.body.append(ast.If(named, then, other, **g.loc))


def _takes_names(g: Generator, function: ast.expr) -> ast.expr:
    """Whether a value in operator position takes named arguments; a closure never asks the runtime."""
    plain = g.is_(g.call(g.const_param(type, "type_"), [function]), g.const_param(Closure, "CL"), negate=True)
    takes_names = g.call(g.rt("takes_named_arguments"), [function, environment(g)])
    return ast.BoolOp(ast.And(), [plain, takes_names], **g.loc)


def _named_call(
    g: Generator, function: ast.expr, names: tuple[str, ...], values: list[ast.expr], node: ir.Call | ir.Link
) -> ast.expr:
    packed = ast.Tuple(values, ast.Load(), **g.loc)
    args = [g.name("d"), function, g.packed_constant(names, lambda: names), packed, g.span(node.at), environment(g)]
    return g.call(g.rt("call_named"), args)


def _pairs(g: Generator, pairs: list[ir.Pair], named: ast.expr) -> list[ast.expr]:
    """The values of operands; those of a large form group by group in functions of their own."""
    groups = g.groups.get(id(pairs)) if g.groups else None
    if groups is None:
        return [_pair(g, each, named) for each in pairs]
    values: list[ast.expr] = []
    for group in groups:
        values += g.apart(len(group), lambda group=group: [_pair(g, each, named) for each in group])
    return values


def _pair(g: Generator, pair: ir.Pair, named: ast.expr) -> ast.expr:
    """The value of an operand, an argument's when ``named``: operators from the outside in, then calls inside out.

    An operator with the name of an argument is not looked up; its content is an expression; the operator of that is looked up.
    """
    opened: list[_Opened] = []
    for link in pair.links:
        opened.append(_open(g, link, named))
        named = opened[-1].named
    py = pair.var.py
    g.bind(pair.var, g.expr(pair.value))
    applied, _ = g.capture(lambda: g.assign(py, g.expr(pair.applied)))
    g.body.append(ast.If(_not(g, named), applied, [], **g.loc))
    for each, name in zip(reversed(opened), reversed(pair.names), strict=False):
        _close(g, each, name, py)
    return g.temp(py)


class _Opened:
    """A link with its operator evaluated: ``named`` when it takes a named argument, ``skipped`` when its name is one."""

    __slots__ = ("code", "function", "link", "named", "skipped")

    def __init__(
        self, link: ir.Link, skipped: ast.expr, named: ast.expr, function: ast.expr, code: ast.expr | None
    ) -> None:
        self.link = link
        self.skipped = skipped
        self.named = named
        self.function = function
        self.code = code


def _open(g: Generator, link: ir.Link, skipped: ast.expr) -> _Opened:
    saved, g.loc = g.loc, g.location_of(link.at)
    nothing = g.const(None)
    if link.effect is not None:
        opened = _Opened(link, skipped, g.spill(_not(g, skipped)), nothing, None)
    else:
        function = g.spill(g.ifexp(skipped, nothing, _operator(g, link.operator)))
        named = g.spill(ast.BoolOp(ast.And(), [_not(g, skipped), _takes_names(g, function)], **g.loc))
        neither = ast.BoolOp(ast.Or(), [skipped, named], **g.loc)
        opened = _Opened(link, skipped, named, function, g.spill(g.ifexp(neither, nothing, _code(g, function, 1))))
    g.loc = saved
    return opened


def _close(g: Generator, opened: _Opened, name: str, py: str) -> None:
    """Call an operator on the value in ``py``, as an argument called ``name`` or by position; a skipped one not at all."""
    link, value = opened.link, g.temp(py)
    saved, g.loc = g.loc, g.location_of(link.at)
    if link.effect is not None:
        by_name = _perform(g, link.effect, link, ast.Dict([g.const(name)], [value], **g.loc))
    else:
        by_name = g.await_(_named_call(g, opened.function, (name,), [value], link))
    then, _ = g.capture(lambda: g.assign(py, by_name))
    other: list[ast.stmt] = []
    if opened.code is not None:
        positional = untailed(g, g.await_(g.call(opened.code, [g.name("rt"), g.deeper(), value])))
        applied, _ = g.capture(lambda: g.assign(py, positional))
        other = [ast.If(_not(g, opened.skipped), applied, [], **g.loc)]
    g.body.append(ast.If(opened.named, then, other, **g.loc))
    g.loc = saved


def _not(g: Generator, value: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), value, **g.loc)


@expression(ir.EffectCall)
def effect(g: Generator, node: ir.EffectCall) -> ast.expr:
    values = g.operands(node.args)
    return _perform(g, node.kind, node, ast.Dict([g.const(each) for each in node.names], values, **g.loc))


def _perform(g: Generator, kind: str, node: ir.EffectCall | ir.Link, arguments: ast.expr) -> ast.expr:
    effect_type = _EFFECTS[kind]
    args: list[ast.expr] = [arguments]
    if kind in ("task", "tool", "workflow"):
        args = [g.const(node.name), arguments, environment(g)]
    elif kind == "items":
        args = [arguments, g.const(True)]
    code = g.call(g.const_param(effect_type, effect_type.__name__), args)
    return g.await_(g.call(g.rt("perform"), [code, g.span(node.at)]))


@expression(ir.RuntimeCall)
def operation(g: Generator, node: ir.RuntimeCall) -> ast.expr:
    values = g.operands(node.args)
    fixed = [g.const_param(each) for each in node.constants]
    return g.operation(node.op, node.at, [*fixed, *values])


@expression(ir.Thunk)
def thunk(g: Generator, node: ir.Thunk) -> ast.expr:
    g.counter += 1
    name = f"{node.function.kind}_{g.counter}"
    fn = PyFn("main" if g.fn.kind == "main" and not g.fn.loops else "lambda", tail_ok=False)
    outer_loops, g.loops = g.loops, {}
    code = g.function(name, [], None, fn, lambda: g.stmt(node.body, RETURN), prologue=node.function.kind == "branch")
    g.loops = outer_loops
    g.body.append(code)
    value = g.name(name)
    value._stable = True  # type: ignore[attr-defined]
    return value


@expression(ir.ThunkList)
def thunk_list(g: Generator, node: ir.ThunkList) -> ast.expr:
    return ast.List(g.operands(node.items), ast.Load(), **g.loc)


@statement(ir.Define)
def define(g: Generator, node: ir.Define, dest: Dest) -> None:
    var, value = node.var, node.value
    if isinstance(value, Lambda) and var.known is value and not var.escapes and dest.kind == "drop":
        g.names[var.py] = var.name
        define_code(g, value)
        g.deliver(g.const(None), dest)
        return
    give(g, g.expr(value), dest, lambda each: g.bind(var, each))
