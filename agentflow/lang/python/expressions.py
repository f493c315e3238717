"""The rules for expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, cast

from agentflow.core.data.labels import Following, bare
from agentflow.core.data.source import PYTHON_TEXT, Source
from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import Work
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.charging import charge_collection, check_collection
from agentflow.lang.closure import Closure, LambdaInfo
from agentflow.lang.code_writer import LOAD
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.python import compare, values
from agentflow.lang.python.absent import DOTTED, HIDDEN, METHODS_ABSENT
from agentflow.lang.python.builtins import CONSTANTS, KINDS
from agentflow.lang.python.changes import as_keys
from agentflow.lang.python.emitter import Emitter, expression
from agentflow.lang.python.errors import article, kind_of, wrong_type
from agentflow.lang.python.keyed import merged
from agentflow.lang.python.labelled import twin_of
from agentflow.lang.python.methods import METHODS, method
from agentflow.lang.python.names import COMPREHENSIONS
from agentflow.lang.python.native import element_at, joined_texts, text_of
from agentflow.lang.python.repeated import Repeated, set_of
from agentflow.lang.python.rows import Row, code
from agentflow.lang.python.texts import formatted, text, written
from agentflow.lib.text.suggest import did_you_mean


def builtin(row: Row, *, follows: Following = False, described: type[LambdaInfo] = LambdaInfo) -> Closure:
    """The closure of a function of the table; ``follows``: it is one for values in boxes."""

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        problem = row.problem(len(arguments), ())
        if problem is not None:
            raise problem
        if row.is_async:
            return await row.function(rt, d, *arguments)
        value = row.function(rt, *arguments)
        return await rt.work(value.work) if type(value) is Sliced else value

    return _closure(code, row.name, follows, described)


def method_of(
    kind: type[Any],
    name: str,
    title: str,
    called: Callable[..., Any] = method,
    *,
    follows: Following = False,
    described: type[LambdaInfo] = LambdaInfo,
) -> Closure:
    """The closure of a method for a value of exactly this type as its first argument; ``title`` is its notation in texts.

    ``called`` carries it out, as :func:`~agentflow.lang.python.methods.method` does; ``follows``: it is one for values in boxes.
    """

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        if not arguments or type(bare(arguments[0])) is not kind:
            shown = article(kind_of(arguments[0])) if arguments else "nothing"
            wrong_type(f"'{title}' takes a value of its type first, and was given {shown}")
        value = called(rt, name, arguments[0], arguments[1:])
        return await rt.work(value.work) if type(value) is Sliced else value

    return _closure(code, title, follows, described)


def _closure(code: Code, title: str, follows: Following, described: type[LambdaInfo]) -> Closure:
    """A procedure that no text defines."""
    end = len(title)
    source = Source(PYTHON_TEXT, title, "python")
    info = described(title, (), None, source, 0, end, (0, end), True, follows=follows)
    return Closure(code, -1, info, SexpEnvironment())


# -- atoms --------------------------------------------------------------------------------------------------------


@expression(ast.Constant)
def constant(g: Emitter, node: ast.Constant) -> ast.expr:
    value: object = node.value
    if value is None or type(value) in (bool, int, float, str):
        if type(value) is int and value.bit_length() > g.limits.integer_bits:
            g.wrong(node, "syntax/number", "the number is too large", "give it by bindings")
        return g.const(value)
    if type(value) is complex:
        g.refuse(node, "a complex number", "numbers are int and float")
    elif type(value) is bytes:
        g.refuse(node, "bytes", "text is str: leave out the b")
    else:
        g.refuse(node, "'...'", "write pass, or None")
    return g.const(None)


@expression(ast.JoinedStr)
def f_string(g: Emitter, node: ast.JoinedStr) -> ast.expr:
    parts: list[ast.expr] = []
    for each in node.values:
        if isinstance(each, ast.FormattedValue):
            parts.append(_placeholder(g, each))
        else:
            parts.append(g.value(each))
    return joined_texts(g, parts)


_CONVERSIONS = frozenset(map(ord, "ras"))


def _placeholder(g: Emitter, node: ast.FormattedValue) -> ast.expr:
    value = g.value(node.value)
    if node.conversion in (ord("r"), ord("a")):
        value = g.long(g.ours(written, g.name("rt"), value))
    elif node.conversion == ord("s"):
        value = g.long(g.ours(text, g.name("rt"), value))
    if node.format_spec is not None:
        return g.ours(formatted, g.name("rt"), value, g.value(node.format_spec))
    return value if node.conversion in _CONVERSIONS else text_of(g, value)


# -- collections --------------------------------------------------------------------------------------------------


@expression(ast.List)
def list_(g: Emitter, node: ast.List) -> ast.expr:
    return _collected(g, node.elts) or ast.List([g.value(each) for each in node.elts], LOAD, **g.loc)


@expression(ast.Tuple)
def tuple_(g: Emitter, node: ast.Tuple) -> ast.expr:
    collected = _collected(g, node.elts)
    if collected is not None:
        return g.ours(as_tuple, collected) if g.labelled else g.call(g.const_param(tuple, "tuple_"), [collected])
    return g.tuple_of([g.value(each) for each in node.elts])


@expression(ast.Set)
def set_(g: Emitter, node: ast.Set) -> ast.expr:
    items = _collected(g, node.elts)
    if items is None:
        keys: list[ast.expr] = [g.ours(compare.key, g.value(each)) for each in node.elts]
        kind = g.const_param(set_of, "set_of_") if g.labelled else g.const_param(OrderedSet, "OrderedSet_")
        return g.call(kind, [ast.List(keys, LOAD, **g.loc)])
    return g.long(g.ours(as_set, items))


def _collected(g: Emitter, items: list[ast.expr]) -> ast.expr | None:
    """The list of items, some of them starred; None if none is."""
    if not any(isinstance(each, ast.Starred) for each in items):
        return None
    parts: list[ast.expr] = []
    for each in items:
        starred = isinstance(each, ast.Starred)
        value = g.value(each.value if isinstance(each, ast.Starred) else each)
        if starred:
            value = g.ours(values.elements, g.name("rt"), value, g.const("'*'"))
            value = g.long(value) if g.labelled else value
        parts.append(g.tuple_of([g.const(starred), value]))
    return g.ours(gathered, g.name("rt"), *parts)


@code("k", within=True, maker="gathered")
def gathered(rt: Any, *parts: tuple[bool, Any]) -> list[Any]:
    """The items of ``[a, *b]``."""
    items: list[Any] = []
    for starred, value in parts:
        if starred:
            check_collection(rt, len(items) + len(value), "'*'")
            items.extend(value)
        else:
            items.append(value)
    return items


@code("k", within=True, maker="items")
def as_tuple(items: list[Any]) -> Any:
    """The tuple of items, in a flow with a policy."""
    return tuple(items)


@code("k", keys=True, within=True, long="always", maker="items")
def as_set(items: list[Any]) -> Any:
    """The set of items."""
    return begun(_as_set(items))


def _as_set(items: list[Any]) -> Work[OrderedSet]:
    return OrderedSet.of((yield from as_keys(items)))


@expression(ast.Dict)
def dict_(g: Emitter, node: ast.Dict) -> ast.expr:
    pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True)]
    if all(isinstance(key, ast.Constant) and type(key.value) in (str, bool, type(None)) for key, _ in pairs):
        return ast.Dict([g.const(key.value) for key, _ in pairs], [g.value(value) for _, value in pairs], **g.loc)  # type: ignore[union-attr]
    parts: list[ast.expr] = []
    for key, value in pairs:
        spread = key is None
        first = g.const(None) if key is None else g.value(key)
        code = g.value(value)
        parts.append(g.tuple_of([g.const(spread), first, _spread(g, code) if spread else code]))
    return g.long(g.ours(entries, g.name("rt"), *parts))


def _spread(g: Emitter, code: ast.expr) -> ast.expr:
    value = g.ours(spread_dict, code)
    return g.long(value) if g.labelled else value


@code("e", long="boxed")
def spread_dict(value: Any) -> Any:
    """``value`` of ``{**value}``."""
    if type(value) is not dict:
        values.wanted("'**'", "a dict", value)
    return cast("dict[Any, Any]", value)


@code("k", keys=True, within=True, long="always", maker="entries")
def entries(rt: Any, *parts: tuple[bool, Any, Any]) -> Any:
    """The dict of ``{key: value, **more}``."""
    return begun(_entries(rt, parts))


def _entries(rt: Any, parts: tuple[tuple[bool, Any, Any], ...]) -> Work[dict[Any, Any]]:
    result: dict[Any, Any] = {}
    repeated = Repeated()
    for spread, key, value in parts:
        if not spread:
            repeated.put(result, compare.key(key), value)
            continue
        charge_collection(rt, len(result) + len(value), "'**'")
        yield from repeated.put_all(result, value)
        yield from merged(result, value)
    return (yield from repeated.said(result))


@expression(ast.Subscript)
def subscript(g: Emitter, node: ast.Subscript) -> ast.expr:
    value = g.value(node.value)
    at = node.slice
    if isinstance(at, ast.Slice):
        bounds = [g.const(None) if each is None else g.value(each) for each in (at.lower, at.upper, at.step)]
        return g.ours(values.part, g.name("rt"), value, *bounds)
    return element_at(g, value, g.value(at))


@expression(ast.Attribute)
def attribute(g: Emitter, node: ast.Attribute) -> ast.expr:
    if node.attr.startswith("_"):
        g.refuse(node, f"'.{node.attr}'", HIDDEN.get(node.attr, "names that begin with _ are out of reach"))
        return g.const(None)
    if isinstance(node.value, ast.Name) and g.scope.find(node.value.id) is None:
        dotted = f"{node.value.id}.{node.attr}"
        if node.value.id in KINDS and g.kind(node.value.id) == "unknown":
            return _method_value(g, node, node.value.id, dotted)
        if dotted in CONSTANTS and g.kind(node.value.id) == "unknown":
            return g.const_param(CONSTANTS[dotted], f"M_{node.attr}")
    if isinstance(node.value, ast.Name) and node.value.id in g.foreign and g.scope.find(node.value.id) is None:
        return g.const(None)
    return g.ours(values.member, g.name("rt"), g.value(node.value), g.const(node.attr))


def _method_value(g: Emitter, node: ast.Attribute, kind: str, dotted: str) -> ast.expr:
    """``str.lower`` as a function: for ``key=`` and ``map``."""
    type_ = KINDS[kind][0]
    if node.attr not in METHODS.get(type_, {}):
        hint = DOTTED.get(dotted) or METHODS_ABSENT.get(node.attr) or did_you_mean(node.attr, METHODS.get(type_, {}))
        hint = hint or f"write lambda x: x.{node.attr}()"
        g.wrong(node, "name/not-here", f"'{dotted}' is not there in workflow texts", hint)
        return g.const(None)
    called = twin_of(method) if g.labelled else method
    procedure = method_of(type_, node.attr, dotted, called, follows=g.labelled)
    return g.const_param(procedure, f"M_{kind}_{node.attr}")


@expression(ast.Await)
def awaited(g: Emitter, node: ast.Await) -> ast.expr:
    return g.value(node.value)


@expression(ast.NamedExpr)
def named(g: Emitter, node: ast.NamedExpr) -> ast.expr:
    var = g.scope.find(node.target.id)
    if node.target.id.startswith("_") or not (g.scope.is_function or g.scope.parent is None) or g.in_thunk:
        hint = "assign in a statement before"
        if isinstance(g.scope.node, COMPREHENSIONS):
            hint = "compute it in an inner one: [y for y in [f(x) for x in xs] if y]"
        g.refuse(node, "':=' here", hint)
        return g.const(None)
    value = g.value(node.value)
    if var is None:
        return g.ours(assigned, g.cell(node.target.id), value)
    if var.scope is not g.scope:
        g.refuse(node, "':=' to a variable of another function", "assign in a statement")
        return g.const(None)
    return ast.NamedExpr(cast("ast.Name", g.target(node.target.id)), value, **g.loc)


@code("k")
def assigned(cell: Any, value: Any) -> Any:
    """``name := value`` of a variable of the environment."""
    cell.v = value
    return value
