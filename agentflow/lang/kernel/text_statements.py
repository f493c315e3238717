"""Generates statements, functions and comprehensions of texts in Python."""

from __future__ import annotations

import ast
import operator
from typing import Any, cast

from agentflow.core.data.values import OrderedSet
from agentflow.lang.charging import check_collection
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.code_writer import LOAD, as_bool
from agentflow.lang.kernel.inline import owned
from agentflow.lang.kernel.nodes import Const, Node, Prim, Ref, Seq, Set, Variable
from agentflow.lang.kernel.text_generator import TextGenerator, discarded, text_expression, text_statement
from agentflow.lang.kernel.text_native import both
from agentflow.lang.python import changes, values
from agentflow.lang.python.boxed.repeated import Repeated, said_again
from agentflow.lang.python.failure import caught, matches
from agentflow.lang.python.names import LocalVariable
from agentflow.lang.python.support import filled, missing_keyword
from agentflow.lang.python.values import MISSING

# -- sequences and assignments ------------------------------------------------------------------------------------


@text_statement(Seq)
def sequence(g: TextGenerator, node: Seq) -> list[ast.stmt]:
    code: list[ast.stmt] = []
    at = 0
    while at < len(node.items):
        item = node.items[at]
        at += 1
        if type(item) is Const:
            continue
        parts = _parts_after(node.items, at) if type(item) is Set and type(item.value) is Prim else []
        code += _unpacking(g, item, parts) if parts else g.statements(item)
        at += len(parts)
    return code


def _parts_after(items: list[Node], at: int) -> list[Set]:
    """The assignments of the parts of a value that the item before takes apart, if all of them follow it."""
    item = items[at - 1]
    if not isinstance(item, Set) or not isinstance(item.value, Prim) or item.value.function is not values.unpacked:
        return []
    shape: tuple[Any, ...] = cast("Const", item.value.args[1]).value
    parts = items[at : at + _leaves(shape)]
    taken = [each for each in parts if isinstance(each, Set) and _is_part(each.value, item.variable)]
    return taken if len(taken) == _leaves(shape) else []


def _leaves(shape: tuple[Any, ...]) -> int:
    return sum([_leaves(cast("tuple[Any, ...]", each)) if type(each) is tuple else 1 for each in shape])


def _is_part(node: Node, whole: Variable | str) -> bool:
    return isinstance(node, Prim) and node.function is operator.getitem and cast("Ref", node.args[0]).variable is whole


def _unpacking(g: TextGenerator, whole: Node, parts: list[Set]) -> list[ast.stmt]:
    """All parts assigned at once."""
    assert isinstance(whole, Set)
    saved = g.move_to(whole.at)
    value = g.expr(whole.value)
    before = g.flushed()
    targets = ast.Tuple([g.target(each.variable) for each in parts], ast.Store(), **g.loc)
    code = g.assignment(targets, value)
    g.loc = saved
    return [*before, code]


@text_statement(Set)
def assign(g: TextGenerator, node: Set) -> list[ast.stmt]:
    value = g.expr(node.value)
    variable = node.variable
    target = g.target(variable)
    if isinstance(node.value, nodes.Lambda) and node.value.is_global and node.value.number is not None:
        kept = g.stored(f"{g.numbered[node.value.number]}_c")
        return [ast.Assign([kept, target], value, **g.loc)]
    if g.bound and isinstance(variable, Variable) and variable.local is not None and variable.local.fn is g.fn:
        g.bound[-1].add(variable.local)
    return [g.assignment(target, value)]


@text_statement(text_nodes.Del)
def delete(g: TextGenerator, node: text_nodes.Del) -> list[ast.stmt]:
    target = g.target(node.variable)
    if isinstance(node.variable, str):
        return [g.assignment(target, g.const_param(UNBOUND, "U"))]
    assert isinstance(target, ast.Name)
    target.ctx = ast.Del()
    return [ast.Delete([target], **g.loc)]


@text_statement(Prim)
def called(g: TextGenerator, node: Prim) -> list[ast.stmt]:
    if node.function is owned:
        owner, name = node.args[1:]
        strand = g.expr(owner)
        check = g.done(g.call(g.rt("check_owner"), [strand, g.expr(name)]))
        return [g.if_(g.is_(strand, g.name("rt"), negate=True), [check])]
    if node.function in (changes.store, changes.remove):
        return g.settled(g.ours(node.function, g.name("rt"), *g.exprs(node.args)))
    return discarded(g, g.expr(node))


# -- choices and loops --------------------------------------------------------------------------------------------


@text_statement(nodes.If)
def choice(g: TextGenerator, node: nodes.If) -> list[ast.stmt]:
    ((tested, arm),) = node.clauses
    test = g.true(g.expr(tested))
    before = g.flushed()
    if isinstance(arm, Const):
        return [*before, g.if_(g.not_(test), g.suite(node.other))]
    return [*before, g.if_(test, _body(g, arm), g.suite(node.other) if not isinstance(node.other, Const) else [])]


def _body(g: TextGenerator, node: Node) -> list[ast.stmt]:
    return g.suite(node) or [ast.Pass(**g.loc)]


@text_statement(nodes.While)
def while_(g: TextGenerator, node: nodes.While) -> list[ast.stmt]:
    test = g.true(g.expr(node.test))
    before = g.flushed()
    first = _round(g)
    body = [*first, *g.suite(node.body)]
    g.rounds.pop()
    return [*before, ast.While(test, body, g.suite(node.other), **g.loc)]


@text_statement(nodes.For)
def for_(g: TextGenerator, node: nodes.For) -> list[ast.stmt]:
    return _for(g, node, g.expr(node.over))


def _for(g: TextGenerator, node: nodes.For, over: ast.expr) -> list[ast.stmt]:
    before = g.flushed()
    assert node.item is not None
    target = g.target(node.item)
    if g.out is not None:  # a comprehension
        return [*before, ast.For(target, over, [*_step(g, g.out[0]), *g.suite(node.body)], [], **g.loc)]
    first = _round(g)
    body = [*first, *g.suite(node.body)]
    g.rounds.pop()
    return [*before, ast.For(target, over, body, g.suite(node.other), **g.loc)]


def _round(g: TextGenerator) -> list[ast.stmt]:
    """The beginning of a round; code in it may increase its step."""
    taken, test = g.fuel()
    assert isinstance(test, ast.If)
    g.rounds.append((test, len(g.bound)))
    return [taken, test]


def _step(g: TextGenerator, out: str) -> list[ast.stmt]:
    """Take a step; when the slice ends, check the size of the result."""
    taken, test = g.fuel()
    assert isinstance(test, ast.If)
    size = g.call(g.const_param(len, "len_"), [g.name(out)])
    test.body.append(g.done(g.ours(check_collection, g.name("rt"), size, g.const("a comprehension"))))
    return [taken, test]


@text_statement(text_nodes.Leave)
def leave(g: TextGenerator, node: text_nodes.Leave) -> list[ast.stmt]:
    if node.how == "break":
        return [ast.Break(**g.loc)]
    if node.how == "continue":
        return [ast.Continue(**g.loc)]
    assert node.value is not None
    return [g.return_(g.expr(node.value))]


# -- errors -------------------------------------------------------------------------------------------------------


@text_statement(text_nodes.Raise)
def raise_(g: TextGenerator, node: text_nodes.Raise) -> list[ast.stmt]:
    return [ast.Raise(None if node.value is None else g.expr(node.value), None, **g.loc)]


@text_statement(nodes.Try)
def try_(g: TextGenerator, node: nodes.Try) -> list[ast.stmt]:
    return _handled(g, node) if node.final is None else _with_finally(g, node, node.final)


def _with_finally(g: TextGenerator, node: nodes.Try, final: nodes.Thunk) -> list[ast.stmt]:
    """``finally`` as a procedure: run by the runtime because of an error, else when control leaves."""
    g.counter += 1
    clean, failed = f"finally_{g.counter}", f"failed_{g.counter}"
    definition = g.define(clean, [], None, lambda: _body(g, final.body))
    inside = _handled(g, node) if node.handlers else _body(g, node.body)
    mark = g.assignment(g.stored(failed), g.const(True))
    cleaned = g.done(g.operation("finally", node.at, [g.name("x_"), g.name(clean)]))
    handler = ast.ExceptHandler(
        g.const_param(BaseException, "BaseException_"), "x_", [mark, cleaned, ast.Raise(None, None, **g.loc)], **g.loc
    )
    run = g.await_(g.call(g.name(clean), [g.name("rt"), g.deeper()]))
    normal = g.if_(g.not_(g.name(failed)), [g.done(run)])
    inner = ast.Try(inside, [handler], [], [], **g.loc)
    first = g.assignment(g.stored(failed), g.const(False))
    return [definition, first, ast.Try([inner], [], [], [normal], **g.loc)]


def _handled(g: TextGenerator, node: nodes.Try) -> list[ast.stmt]:
    body = _body(g, node.body)
    other = g.suite(node.other)
    g.counter += 1
    failure = f"e_{g.counter}"
    value = g.operation("catch", node.at, [g.name("x_")])
    read = g.assignment(g.stored(failure), g.ours(caught, g.name("x_"), value))
    branches: list[ast.stmt] = [ast.Raise(None, None, **g.loc)]
    for names, variable, handler in reversed(node.handlers):
        assert isinstance(variable, Variable) and names is not None
        variable.python_name = failure
        inside = _body(g, handler)
        test = g.ours(matches, g.name(failure), g.packed_constant(("classes", names), lambda names=names: names))
        branches = [g.if_(test, inside, branches)]
    exception = g.const_param(Exception, "Exception_")
    return [ast.Try(body, [ast.ExceptHandler(exception, "x_", [read, *branches], **g.loc)], other, [], **g.loc)]


# -- functions ----------------------------------------------------------------------------------------------------


@text_expression(nodes.Lambda)
def procedure(g: TextGenerator, node: nodes.Lambda) -> ast.expr:
    info = node.info
    if node.number is not None and info.name is not None:
        py = g.number_name(node.number, info.name)
    else:
        g.counter += 1
        py = f"{'lambda' if info.portable else 'each'}_{g.counter}"
    params: list[LocalVariable] = [each.local for each in node.params]
    defaults = g.exprs([each for each in node.defaults if isinstance(each, Node)])
    g.before.append(
        g.define(py, [each.py for each in params], node.frame, lambda: _code(g, node, params, defaults), steps=True)
    )
    if node.number is not None and g.fn is not g.main:
        g.lambdas[py] = info
    constant = g.packed_constant(("lambda", py), lambda: info)
    code = g.name(py)
    if info.optional:
        code = g.ours(filled, code, constant, g.const(node.by_position))
    arity = -1 if info.optional else len(info.params)
    return g.call(g.const_param(Closure, "CL"), [code, g.const(arity), constant, g.environment(), g.rt("grants")])


def _code(
    g: TextGenerator, node: nodes.Lambda, params: list[LocalVariable], defaults: list[ast.expr]
) -> list[ast.stmt]:
    """The statements of a function: its defaults, and its body."""
    head: list[ast.stmt] = []
    if not g.labelled:
        g.remembered.update(
            (each, False) for each in params if each.operations > 1 and each.writes == 1 and not each.shared
        )
    computed = iter(defaults)
    for each, default in zip(params, node.defaults, strict=True):
        if default is not None:
            is_required = default is nodes.MISSING_KEYWORD
            value = g.ours(missing_keyword, g.const(each.name)) if is_required else next(computed)
            test = g.is_(g.name(each.py), g.const_param(MISSING, "MISSING"))
            head.append(g.if_(test, [g.assignment(g.stored(each.py), value)]))
    body = _inside(g, node)
    integers = [each for each in params if g.remembered.pop(each, False)]
    if integers and node.is_small:
        with g.kinds.tested(integers):
            fast = [*_inside(g, node), g.return_(g.const(None))]
        head.append(g.if_(both(g, *(g.type_is(g.name(each.py), int) for each in integers)), fast))
    head += [g.assignment(g.stored(f"i_{each.py}"), g.type_is(g.name(each.py), int)) for each in integers]
    return [*head, *body]


def _inside(g: TextGenerator, node: nodes.Lambda) -> list[ast.stmt]:
    return g.returning(node.body) if node.gives_body else g.suite(node.body)


@text_expression(nodes.Thunk)
def thunk(g: TextGenerator, node: nodes.Thunk) -> ast.expr:
    g.counter += 1
    py = f"thunk_{g.counter}"
    g.before.append(g.define(py, [], node.frame, lambda: g.returning(node.body)))
    return g.name(py)


# -- comprehensions -----------------------------------------------------------------------------------------------

_AGAIN = "again_"
"""The variable of a dict or set comprehension that collects repeated keys."""


@text_expression(text_nodes.Collect)
def collected(g: TextGenerator, node: text_nodes.Collect) -> ast.expr:
    """A separate function with loops; ``any`` and ``all`` return at the value that decides."""
    g.counter += 1
    py, out = f"comp_{g.counter}", f"out_{g.counter}"
    checks, loop = (node.body.items[:-1], node.body.items[-1]) if isinstance(node.body, Seq) else ([], node.body)
    assert isinstance(loop, nodes.For)
    first = g.expr(loop.over)
    kind = node.kind

    def build() -> list[ast.stmt]:
        g.out = (out, kind)
        keyed = kind in ("dict", "set")
        empty = ast.Dict([], [], **g.loc) if keyed else ast.List([], LOAD, **g.loc)
        head = [*[one for each in checks for one in g.statements(each)], g.assignment(g.stored(out), empty)]
        if keyed and g.labelled:
            head.append(g.assignment(g.stored(_AGAIN), g.call(g.const_param(Repeated, "Repeated_"), [])))
        loops = _for(g, loop, g.name("it_"))
        result: ast.expr = g.name(out)
        if keyed and g.labelled:
            result = g.long(g.call(g.const_param(said_again, "said_again_"), [g.name(_AGAIN), result]))
        if kind in ("any", "all"):
            result = g.const(kind == "all")
        elif kind == "set":
            result = g.call(g.const_param(OrderedSet.of, "OrderedSet_of"), [result])
        return [*head, *loops, g.return_(result)]

    g.before.append(g.define(py, ["it_"], node.frame, build))
    value = g.await_(g.call(g.name(py), [g.name("rt"), g.deeper(), first]))
    return as_bool(value) if kind in ("any", "all") else value


@text_statement(text_nodes.Yield)
def element(g: TextGenerator, node: text_nodes.Yield) -> list[ast.stmt]:
    assert g.out is not None
    out, kind = g.out
    if kind == "dict":
        assert node.key is not None and node.value is not None
        pair, key = g.tmp(), g.tmp()
        both_values = g.tuple_of(g.exprs([node.key, node.value]))
        names: list[ast.expr] = [g.stored(key), g.stored(pair)]
        first = g.assignment(ast.Tuple(names, ast.Store(), **g.loc), both_values)
        return [first, _put(g, out, g.name(key), g.name(pair))]
    if kind == "set":
        assert node.key is not None
        return [_put(g, out, g.expr(node.key), g.const(None))]
    assert node.value is not None
    value = g.expr(node.value)
    if kind == "list":
        return [g.done(g.call(g.attr(g.name(out), "append"), [value]))]
    test = g.true(value)
    return [g.if_(test if kind == "any" else g.not_(test), [g.return_(g.const(kind == "any"))])]


def _put(g: TextGenerator, out: str, key: ast.expr, value: ast.expr) -> ast.stmt:
    """``out[key] = value``; in a flow with a policy, a key that exists already also gets the sources of this one."""
    if not g.labelled:
        return g.assignment(ast.Subscript(g.name(out), key, ast.Store(), **g.loc), value)
    return g.done(g.call(g.attr(g.name(_AGAIN), "put"), [g.name(out), key, value]))
