"""The rules for statements."""

from __future__ import annotations

import ast
from typing import Any

from agentflow.core.data.source import Span
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.nodes import Const, Env, Node, Prim, Ref, Set, Variable
from agentflow.lang.python import changes, values
from agentflow.lang.python.absent import MODULES, OTHER_MODULES
from agentflow.lang.python.comprehensions import assignment, iterable, loop_item
from agentflow.lang.python.expressions import operation
from agentflow.lang.python.failure import CLASSES, raised, raised_again
from agentflow.lang.python.lowering import Lowering, statement
from agentflow.lang.python.support import check_global
from agentflow.lang.python.texts import text

_WHOLE = frozenset(("json", "math", "asyncio", "time", "random", "uuid"))
_TYPES = frozenset(
    ("typing", "typing_extensions", "collections.abc", "dataclasses", "pydantic", "annotated_types", "__future__")
)
IMPORTS = frozenset(("agentflow.workflow", *_TYPES, *_WHOLE))
"""Modules with an import that has no effect: their names exist without it."""


@statement(ast.Expr)
def expression_statement(g: Lowering, node: ast.Expr) -> list[Node]:
    return [g.value(node.value)]


@statement(ast.Pass, ast.Global, ast.Nonlocal)
def nothing(g: Lowering, node: ast.stmt) -> list[Node]:
    return []


@statement(ast.Import)
def import_(g: Lowering, node: ast.Import) -> list[Node]:
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
def import_from(g: Lowering, node: ast.ImportFrom) -> list[Node]:
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
def assign(g: Lowering, node: ast.Assign) -> list[Node]:
    value = g.value(node.value)
    if len(node.targets) == 1:
        return assignment(g, node.targets[0], value)
    at, kept = g.span_at(node), g.temporary()
    return [Set(at, kept, value), *[one for each in node.targets for one in assignment(g, each, Ref(at, kept))]]


@statement(ast.AnnAssign)
def annotated(g: Lowering, node: ast.AnnAssign) -> list[Node]:
    return [] if node.value is None else assignment(g, node.target, g.value(node.value))


IN_PLACE: dict[type[ast.operator], tuple[Any, str | None]] = {
    ast.Add: (changes.add_to, None),
    ast.Sub: (changes.subtract_from, None),
    ast.BitAnd: (changes.bitwise_to, "&"),
    ast.BitOr: (changes.bitwise_to, "|"),
    ast.BitXor: (changes.bitwise_to, "^"),
}


@statement(ast.AugAssign)
def augmented(g: Lowering, node: ast.AugAssign) -> list[Node]:
    at, target = g.span_at(node), node.target
    if isinstance(target, ast.Name):
        before = g.value(ast.copy_location(ast.Name(target.id, ast.Load()), target))
        return assignment(g, target, _changed(at, node.op, before, g.value(node.value)))
    if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Slice):
        return assignment(g, target, g.refused())
    whole, key = g.temporary(), g.temporary()
    first: list[Node] = [Set(at, whole, g.value(target.value)), Set(at, key, g.value(target.slice))]
    before = Prim(at, values.element, [Ref(at, whole), Ref(at, key)], takes_rt=True)
    changed = _changed(at, node.op, before, g.value(node.value))
    return [*first, Prim(at, changes.store, [changed, Ref(at, whole), Ref(at, key)], takes_rt=True)]


def _changed(at: Span, op: ast.operator, before: Node, value: Node) -> Node:
    """The value of ``before op= value``; lists, sets and dicts are changed in place."""
    function, sign = IN_PLACE.get(type(op), (None, None))
    if function is None:
        return operation(at, op, before, value)
    return Prim(at, function, [*([] if sign is None else [Const(at, sign)]), before, value], takes_rt=True)


@statement(ast.Delete)
def delete(g: Lowering, node: ast.Delete) -> list[Node]:
    deleted: list[Node] = []
    for target in node.targets:
        at = g.span_at(target)
        if isinstance(target, ast.Name):
            deleted += _unbound(g, target, at)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            deleted.append(Prim(at, changes.remove, [g.value(target.value), g.value(target.slice)], takes_rt=True))
        else:
            whole = ast.unparse(target.value) if isinstance(target, ast.Subscript) else ""
            hint = (
                f"{whole} = [*{whole}[:a], *{whole}[b:]]" if whole.isidentifier() else "del x and del x[key] are there"
            )
            g.refuse(target, "'del' of this", hint)
    return deleted


def _unbound(g: Lowering, target: ast.Name, at: Span) -> list[Node]:
    var, variable = g.scope.find(target.id), g.variable(target.id)
    if var is not None:
        if var.scope is not g.scope:
            g.refuse(target, "'del' of a variable of another function", f"{target.id} = None")
            return []
        return [text_nodes.Del(at, variable)]
    args: list[Node] = [Env(None), Const(None, target.id)]
    return [Ref(at, variable), Prim(at, check_global, args, takes_rt=True), text_nodes.Del(at, variable)]


# -- control ------------------------------------------------------------------------------------------------------


@statement(ast.If)
def if_(g: Lowering, node: ast.If) -> list[Node]:
    test = g.value(node.test)
    return [*g.flushed(), nodes.If(g.span_at(node), [(test, g.suite(node.body))], g.suite(node.orelse))]


@statement(ast.While)
def while_(g: Lowering, node: ast.While) -> list[Node]:
    test = g.value(node.test)
    before = g.flushed()
    with g.nested(node):
        body = g.suite(node.body)
    other = g.suite(node.orelse) if node.orelse else None
    return [*before, nodes.While(g.span_at(node), test, body, other)]


@statement(ast.For)
def for_(g: Lowering, node: ast.For) -> list[Node]:
    at = g.span_at(node)
    over = iterable(g, node.iter, at)
    before = g.flushed()
    with g.nested(node):
        item, inside = loop_item(g, node.target)
        if inside:
            inside = [*g.flushed(), *inside]
        else:
            before += g.flushed()
        body = nodes.Seq(None, [*inside, g.suite(node.body)])
    other = g.suite(node.orelse) if node.orelse else None
    return [*before, nodes.For(at, over, item, body, other)]


@statement(ast.Break)
def break_(g: Lowering, node: ast.Break) -> list[Node]:
    return [text_nodes.Leave(g.span_at(node), "break")]


@statement(ast.Continue)
def continue_(g: Lowering, node: ast.Continue) -> list[Node]:
    return [text_nodes.Leave(g.span_at(node), "continue")]


@statement(ast.Return)
def return_(g: Lowering, node: ast.Return) -> list[Node]:
    at = g.span_at(node)
    return [text_nodes.Leave(at, "return", Const(at, None) if node.value is None else g.value(node.value))]


# -- errors -------------------------------------------------------------------------------------------------------


@statement(ast.Raise)
def raise_(g: Lowering, node: ast.Raise) -> list[Node]:
    at = g.span_at(node)
    if node.exc is None:
        if not g.handlers:
            g.refuse(node, "'raise' outside of 'except'", 'raise ValueError("the fault")')
        return [text_nodes.Raise(at, None)]
    call = node.exc if isinstance(node.exc, ast.Call) else None
    name = node.exc if call is None else call.func
    if isinstance(name, ast.Name) and g.is_outside(name.id):
        if name.id in CLASSES and (call is None or (len(call.args) <= 1 and not call.keywords)):
            message: Node = Const(at, "")
            if call is not None and call.args:
                message = Prim(at, text, [g.value(call.args[0])], takes_rt=True)
            return [text_nodes.Raise(at, Prim(at, raised, [Const(at, name.id), message]))]
        if call is not None:
            if name.id not in g.foreign:
                classes = ", ".join(sorted(CLASSES))
                hint = f'raise ValueError("the fault"); the classes are {classes}'
                g.refuse(node, f"'raise {name.id}(...)'", hint)
            return []
    return [nodes.Op(at, "raise", [], [Prim(at, raised_again, [g.value(node.exc)])])]


@statement(ast.Assert)
def assert_(g: Lowering, node: ast.Assert) -> list[Node]:
    at = g.span_at(node)
    test = g.value(node.test)
    before = g.flushed()
    message = Const(at, "") if node.msg is None else Prim(at, text, [g.value(node.msg)], takes_rt=True)
    failed = text_nodes.Raise(at, Prim(at, raised, [Const(at, "AssertionError"), message]))
    return [*before, nodes.If(at, [(test, Const(None, None))], nodes.Seq(None, [*g.flushed(), failed]))]


@statement(ast.Try)
def try_(g: Lowering, node: ast.Try) -> list[Node]:
    at, final = g.span_at(node), None
    if node.finalbody:
        _check_final(g, node.finalbody)
        frame, body = g.apart(lambda: g.suite(node.finalbody))
        final = nodes.Thunk(at, body, frame)
    # with ``finally``, the code has two more of Python's own around it
    with g.nested(node, 2 if final is None else 4):
        return [_handled(g, node, at, final)]


def _handled(g: Lowering, node: ast.Try, at: Span, final: nodes.Thunk | None) -> Node:
    g.guarded += bool(node.handlers)
    body = g.suite(node.body)
    g.guarded -= bool(node.handlers)
    other = g.suite(node.orelse) if node.orelse else None
    handlers: list[tuple[tuple[str, ...] | None, Variable | str | None, Node]] = []
    g.handlers += 1
    for each in node.handlers:
        names = classes_of(g, each.type)
        caught, bound = g.temporary(), list[Node]()
        if each.name is not None:
            at_handler = g.span_at(each)
            variable = g.target(each.name, at_handler)
            bound = [*g.flushed(), Set(at_handler, variable, Ref(None, caught))]
        handlers.append((names, caught, nodes.Seq(None, [*bound, g.suite(each.body)])))
    g.handlers -= 1
    return nodes.Try(at, body, handlers, other, final)


def _check_final(g: Lowering, body: list[ast.stmt]) -> None:
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


def classes_of(g: Lowering, node: ast.expr | None) -> tuple[str, ...]:
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
