"""The rules for statements."""

from __future__ import annotations

import ast
from typing import Any

from agentflow.lang.environment import UNBOUND
from agentflow.lang.python import changes, values
from agentflow.lang.python.absent import MODULES, OTHER_MODULES
from agentflow.lang.python.comprehensions import assignment, iterable, loop_target, step
from agentflow.lang.python.emitter import Emitter, statement
from agentflow.lang.python.failure import CLASSES, caught, matches, raised, raised_again
from agentflow.lang.python.operators import operation
from agentflow.lang.python.support import check_global
from agentflow.lang.python.texts import text

_WHOLE = frozenset(("json", "math", "asyncio", "time", "random", "uuid"))
_TYPES = frozenset(
    ("typing", "typing_extensions", "collections.abc", "dataclasses", "pydantic", "annotated_types", "__future__")
)
IMPORTS = frozenset(("agentflow.workflow", *_TYPES, *_WHOLE))
"""Modules with an import that has no effect: their names exist without it."""


@statement(ast.Expr)
def expression_statement(g: Emitter, node: ast.Expr) -> list[ast.stmt]:
    return _discarded(g, g.value(node.value))


def _discarded(g: Emitter, value: ast.expr) -> list[ast.stmt]:
    """An unused value. A choice becomes a statement: CPython compiles a call to faster code if its value is dropped at once."""
    if not isinstance(value, ast.IfExp):
        return [ast.Expr(value, **g.loc)]
    return [ast.If(value.test, _discarded(g, value.body), _discarded(g, value.orelse), **g.loc)]


@statement(ast.Pass)
def pass_(g: Emitter, node: ast.Pass) -> list[ast.stmt]:
    return [ast.Pass(**g.loc)]


@statement(ast.Global, ast.Nonlocal)
def declaration(g: Emitter, node: ast.Global | ast.Nonlocal) -> list[ast.stmt]:
    return []


@statement(ast.Import)
def import_(g: Emitter, node: ast.Import) -> list[ast.stmt]:
    for each in node.names:
        if each.name in IMPORTS and each.asname is None:
            continue
        hint = f"write import {each.name}" if each.name in IMPORTS else _instead(each.name)
        g.refuse(each, f"'import {ast.unparse(each)}'", hint)
        g.foreign.add((each.asname or each.name).partition(".")[0])
    return []


def _instead(module: str) -> str:
    return MODULES.get(module) or MODULES.get(module.partition(".")[0]) or OTHER_MODULES


@statement(ast.ImportFrom)
def import_from(g: Emitter, node: ast.ImportFrom) -> list[ast.stmt]:
    module = node.module or ""
    if module in IMPORTS - _WHOLE and not node.level and not any(each.asname for each in node.names):
        return []
    g.foreign.update(each.asname or each.name for each in node.names)
    if module in _WHOLE:
        hint = f"write {module}.{node.names[0].name}(...), without an import"
    else:
        hint = "names stay as they are" if module in IMPORTS else _instead(module)
    g.refuse(node, f"'from {'.' * node.level}{module} import ...'", hint)
    return []


# -- assignments --------------------------------------------------------------------------------------------------


@statement(ast.Assign)
def assign(g: Emitter, node: ast.Assign) -> list[ast.stmt]:
    value = g.value(node.value)
    if len(node.targets) == 1:
        return assignment(g, node.targets[0], value)
    name = g.tmp()
    written: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store(), **g.loc)], value, **g.loc)]
    for target in node.targets:
        written += assignment(g, target, g.name(name))
    return written


@statement(ast.AnnAssign)
def annotated(g: Emitter, node: ast.AnnAssign) -> list[ast.stmt]:
    return [] if node.value is None else assignment(g, node.target, g.value(node.value))


IN_PLACE: dict[type[ast.operator], tuple[Any, str | None]] = {
    ast.Add: (changes.add_to, None),
    ast.Sub: (changes.subtract_from, None),
    ast.BitAnd: (changes.bitwise_to, "&"),
    ast.BitOr: (changes.bitwise_to, "|"),
    ast.BitXor: (changes.bitwise_to, "^"),
}


@statement(ast.AugAssign)
def augmented(g: Emitter, node: ast.AugAssign) -> list[ast.stmt]:
    target = node.target
    if isinstance(target, ast.Name):
        before = g.value(ast.Name(target.id, ast.Load(), **g.loc))
        return assignment(g, target, _changed(g, node.op, before, g.value(node.value)))
    if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Slice):
        return assignment(g, target, g.const(None))
    whole, at = g.tmp(), g.tmp()
    store = ast.Store()
    kept: list[ast.stmt] = [
        ast.Assign([ast.Name(whole, store, **g.loc)], g.value(target.value), **g.loc),
        ast.Assign([ast.Name(at, store, **g.loc)], g.value(target.slice), **g.loc),
    ]
    before = g.ours(values.element, g.name("rt"), g.name(whole), g.name(at))
    changed = _changed(g, node.op, before, g.value(node.value))
    return [*kept, *g.settled(g.ours(changes.store, g.name("rt"), changed, g.name(whole), g.name(at)))]


def _changed(g: Emitter, op: ast.operator, before: ast.expr, value: ast.expr) -> ast.expr:
    """The value of ``before op= value``; lists, sets and dicts are changed in place."""
    function, sign = IN_PLACE.get(type(op), (None, None))
    if function is None:
        return operation(g, op, before, value)
    if sign is not None:
        return g.long(g.ours(function, g.name("rt"), g.const(sign), before, value))
    return operation(g, op, before, value, function)


@statement(ast.Delete)
def delete(g: Emitter, node: ast.Delete) -> list[ast.stmt]:
    written: list[ast.stmt] = []
    for target in node.targets:
        if isinstance(target, ast.Name):
            written += _unbound(g, target)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            written += g.settled(_removed(g, target))
        else:
            whole = ast.unparse(target.value) if isinstance(target, ast.Subscript) else ""
            hint = (
                f"{whole} = [*{whole}[:a], *{whole}[b:]]" if whole.isidentifier() else "del x and del x[key] are there"
            )
            g.refuse(target, "'del' of this", hint)
    return written


def _removed(g: Emitter, target: ast.Subscript) -> ast.expr:
    return g.ours(changes.remove, g.name("rt"), g.value(target.value), g.value(target.slice))


def _unbound(g: Emitter, target: ast.Name) -> list[ast.stmt]:
    var = g.scope.find(target.id)
    if var is not None:
        if var.scope is not g.scope:
            g.refuse(target, "'del' of a variable of another function", f"{target.id} = None")
            return []
        variable = g.target(target.id)
        assert isinstance(variable, ast.Name)
        variable.ctx = ast.Del()
        return [ast.Delete([variable], **g.loc)]
    check = ast.Expr(g.ours(check_global, g.name("rt"), g.env(), g.const(target.id)), **g.loc)
    cell = ast.Attribute(g.cell(target.id), "v", ast.Store(), **g.loc)
    return [ast.Expr(g.read(None, target.id), **g.loc), check, ast.Assign([cell], g.const_param(UNBOUND, "U"), **g.loc)]


# -- control ------------------------------------------------------------------------------------------------------


@statement(ast.If)
def if_(g: Emitter, node: ast.If) -> list[ast.stmt]:
    test = g.true(g.value(node.test))
    before = g.flushed()
    other = g.suite(node.orelse) if node.orelse else []
    return [*before, ast.If(test, g.suite(node.body), other, **g.loc)]


@statement(ast.While)
def while_(g: Emitter, node: ast.While) -> list[ast.stmt]:
    test = g.true(g.value(node.test))
    before = g.flushed()
    with g.nested(node):
        first = _round(g)
        body = [*first, *g.suite(node.body)]
        g.rounds.pop()
    other = g.suite(node.orelse) if node.orelse else []
    return [*before, ast.While(test, body, other, **g.loc)]


@statement(ast.For)
def for_(g: Emitter, node: ast.For) -> list[ast.stmt]:
    source = iterable(g, node.iter)
    before = g.flushed()
    with g.nested(node):
        target, inside = loop_target(g, node.target)
        if inside:
            inside = [*g.flushed(), *inside]
        else:
            before += g.flushed()
        first = _round(g)
        body = [*first, *inside, *g.suite(node.body)]
        g.rounds.pop()
    other = g.suite(node.orelse) if node.orelse else []
    return [*before, ast.For(target, source, body, other, **g.loc)]


def _round(g: Emitter) -> list[ast.stmt]:
    """The beginning of a round; code in it may increase its step."""
    taken, test = step(g, None)
    assert isinstance(test, ast.If)
    g.rounds.append((test, len(g.bound)))
    return [taken, test]


@statement(ast.Break)
def break_(g: Emitter, node: ast.Break) -> list[ast.stmt]:
    return [ast.Break(**g.loc)]


@statement(ast.Continue)
def continue_(g: Emitter, node: ast.Continue) -> list[ast.stmt]:
    return [ast.Continue(**g.loc)]


@statement(ast.Return)
def return_(g: Emitter, node: ast.Return) -> list[ast.stmt]:
    return [ast.Return(g.const(None) if node.value is None else g.value(node.value), **g.loc)]


# -- errors -------------------------------------------------------------------------------------------------------


@statement(ast.Raise)
def raise_(g: Emitter, node: ast.Raise) -> list[ast.stmt]:
    if node.exc is None:
        if not g.handlers:
            g.refuse(node, "'raise' outside of 'except'", 'raise ValueError("the fault")')
        return [ast.Raise(None, None, **g.loc)]
    call = node.exc if isinstance(node.exc, ast.Call) else None
    name = node.exc if call is None else call.func
    if isinstance(name, ast.Name) and g.scope.find(name.id) is None and g.kind(name.id) == "unknown":
        if name.id in CLASSES and (call is None or (len(call.args) <= 1 and not call.keywords)):
            message: ast.expr = g.const("")
            if call is not None and call.args:
                message = g.long(g.ours(text, g.name("rt"), g.value(call.args[0])))
            return [ast.Raise(g.ours(raised, g.const(name.id), message), None, **g.loc)]
        if call is not None:
            if name.id not in g.foreign:
                classes = ", ".join(sorted(CLASSES))
                hint = f'raise ValueError("the fault"); the classes are {classes}'
                g.refuse(node, f"'raise {name.id}(...)'", hint)
            return []
    value = g.ours(raised_again, g.value(node.exc))
    return [ast.Expr(g.operation_at("raise", node, value), **g.loc)]


@statement(ast.Assert)
def assert_(g: Emitter, node: ast.Assert) -> list[ast.stmt]:
    test = ast.UnaryOp(ast.Not(), g.true(g.value(node.test)), **g.loc)
    before = g.flushed()
    message = g.const("") if node.msg is None else g.long(g.ours(text, g.name("rt"), g.value(node.msg)))
    failed = ast.Raise(g.ours(raised, g.const("AssertionError"), message), None, **g.loc)
    return [*before, ast.If(test, [*g.flushed(), failed], [], **g.loc)]


@statement(ast.Try)
def try_(g: Emitter, node: ast.Try) -> list[ast.stmt]:
    if not node.finalbody:
        with g.nested(node, 2):
            return _handled(g, node)
    return _with_finally(g, node)


def _with_finally(g: Emitter, node: ast.Try) -> list[ast.stmt]:
    """``finally`` as a procedure: run by the runtime because of an error, else when control leaves."""
    _check_final(g, node.finalbody)
    g.counter += 1
    final, failed = f"finally_{g.counter}", f"failed_{g.counter}"
    definition = g.define(final, [], None, lambda: g.suite(node.finalbody), step=False)
    with g.nested(node, 4):
        inside = _handled(g, node) if node.handlers else g.suite(node.body)
    mark = ast.Assign([ast.Name(failed, ast.Store(), **g.loc)], g.const(True), **g.loc)
    clean = g.operation_at("finally", node, g.name("x_"), g.name(final))
    handler = ast.ExceptHandler(
        g.const_param(BaseException, "BaseException_"),
        "x_",
        [mark, ast.Expr(clean, **g.loc), ast.Raise(None, None, **g.loc)],
        **g.loc,
    )
    run = g.await_(g.call(g.name(final), [g.name("rt"), g.deeper()]))
    normal = ast.If(ast.UnaryOp(ast.Not(), g.name(failed), **g.loc), [ast.Expr(run, **g.loc)], [], **g.loc)
    inner = ast.Try(inside, [handler], [], [], **g.loc)
    first = ast.Assign([ast.Name(failed, ast.Store(), **g.loc)], g.const(False), **g.loc)
    return [definition, first, ast.Try([inner], [], [], [normal], **g.loc)]


def _check_final(g: Emitter, body: list[ast.stmt]) -> None:
    """Refuse to leave a ``finally`` other than at its end."""
    pending: list[tuple[ast.AST, bool]] = [(each, False) for each in body]
    while pending:
        at, looping = pending.pop()
        if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(at, ast.Return) or (isinstance(at, ast.Break | ast.Continue) and not looping):
            g.refuse(at, f"'{type(at).__name__.lower()}' in 'finally'", "leave after it")
        inside = looping or isinstance(at, ast.For | ast.While)
        pending.extend((each, inside) for each in ast.iter_child_nodes(at))


def _handled(g: Emitter, node: ast.Try) -> list[ast.stmt]:
    g.guarded += 1
    body = g.suite(node.body)
    g.guarded -= 1
    other = g.suite(node.orelse) if node.orelse else []
    g.counter += 1
    failure = f"e_{g.counter}"
    value = g.operation_at("catch", node, g.name("x_"))
    read = ast.Assign([ast.Name(failure, ast.Store(), **g.loc)], g.ours(caught, g.name("x_"), value), **g.loc)
    branches: list[ast.stmt] = [ast.Raise(None, None, **g.loc)]
    g.handlers += 1
    for handler in reversed(node.handlers):
        with g.at(handler):
            names = classes_of(g, handler.type)
            inside: list[ast.stmt] = []
            if handler.name is not None:
                target = g.target(handler.name)
                inside = [*g.flushed(), ast.Assign([target], g.name(failure), **g.loc)]
            inside += g.suite(handler.body)
            test = g.ours(matches, g.name(failure), g.packed_constant(("classes", names), lambda names=names: names))
            branches = [ast.If(test, inside, branches, **g.loc)]
    g.handlers -= 1
    exception = g.const_param(Exception, "Exception_")
    return [ast.Try(body, [ast.ExceptHandler(exception, "x_", [read, *branches], **g.loc)], other, [], **g.loc)]


def classes_of(g: Emitter, node: ast.expr | None) -> tuple[str, ...]:
    """The classes that a handler names; without any, all catchable ones."""
    if node is None:
        return ("Exception",)
    listed = node.elts if isinstance(node, ast.Tuple) else [node]
    names: list[str] = []
    for each in listed:
        name = each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
        if name == "BaseException":
            name = "Exception"
        if name not in CLASSES and name not in g.foreign:
            g.refuse(each, f"the class '{name or '...'}' in 'except'", f"the classes are {', '.join(sorted(CLASSES))}")
        names.append(name)
    return tuple(names)
