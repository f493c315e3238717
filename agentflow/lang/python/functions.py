"""Definitions of functions, lambdas, and the thunks of forms that run their arguments themselves."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from agentflow.lang.closure import Closure, LambdaInfo
from agentflow.lang.code_writer import STORE
from agentflow.lang.python.emitter import Emitter, expression, statement
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.names import COMPREHENSIONS, FUNCTIONS, Function, LocalVariable, parameters
from agentflow.lang.python.native import both
from agentflow.lang.python.support import filled, missing_keyword
from agentflow.lang.python.values import MISSING

_CACHES = frozenset(("cache", "lru_cache", "cached", "cached_property"))


@statement(ast.FunctionDef, ast.AsyncFunctionDef)
def definition(g: Emitter, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    for each in node.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        attribute = called.attr if isinstance(called, ast.Attribute) else "..."
        name = called.id if isinstance(called, ast.Name) else attribute
        declare = DECORATORS.get(name) if g.scope.find(name) is None else None
        if declare is None:
            own = g.scope.find(name) is not None or name in g.scopes.defined
            hint = f"write {node.name} = {name}({node.name}) below it" if own else "@task and @workflow are there"
            hint = "keep results in a dict: done[x] = f(x)" if name in _CACHES else hint
            g.refuse(each, f"the decorator '@{name}'", hint)
            return []
        written = declare(g, node, each)
        if written is not None:
            return written
    return define(g, node)


Declare = Callable[[Emitter, Any, ast.expr], "list[ast.stmt] | None"]
DECORATORS: dict[str, Declare] = {}
"""The definition that a decorator turns a function into; None if it stays a function."""


def define(g: Emitter, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """The code of a function, and its closure bound to its name."""
    if node.name.startswith("_"):
        g.refuse(node, f"the name '{node.name}'", "names do not begin with _")
    info = _info(g, node, node.name)
    py = code_name(g, node)
    body = _code(g, node, py, lambda: g.suite(without_docstring(node.body)))
    closure = _closure(g, py, info, node)
    if g.scope.parent is not None:
        g.lambdas[py] = info
    target = g.target(node.name)
    before = g.flushed()
    if g.scope.parent is None and g.scopes.function(node.name) is node:
        kept = ast.Name(f"{py}_c", STORE, **g.loc)
        return [body, *before, ast.Assign([kept, target], closure, **g.loc)]
    return [body, *before, ast.Assign([target], closure, **g.loc)]


def code_name(g: Emitter, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The Python name of a function's code."""
    name = g.known_code.get(node)
    if name is None:
        g.counter += 1
        name = g.known_code[node] = f"f_{node.name}_{g.counter}"
        g.names[name] = node.name
    return name


def known_function(g: Emitter, name: str, var: LocalVariable | None) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The definition that a name certainly refers to, judging by this text."""
    node = g.scopes.function(name) if var is None else var.known
    if node is None or node.decorator_list:
        return None
    return node


@expression(ast.Lambda)
def lambda_(g: Emitter, node: ast.Lambda) -> ast.expr:
    info = _info(g, node, None)
    g.counter += 1
    py = f"lambda_{g.counter}"

    def build() -> list[ast.stmt]:
        value = g.value(node.body)
        return [*g.flushed(), ast.Return(value, **g.loc)]

    g.before.append(_code(g, node, py, build))
    return _closure(g, py, info, node)


def thunk(g: Emitter, node: ast.expr) -> ast.expr:
    """The code of an expression that a form evaluates itself; for a lambda without parameters, the code of its body."""
    if isinstance(node, ast.Lambda) and not parameters(node.args):
        scope, node = g.scopes.scopes[node], node.body
    else:
        scope = None
    g.counter += 1
    py = f"thunk_{g.counter}"

    def build() -> list[ast.stmt]:
        value = g.value(node)
        return [*g.flushed(), ast.Return(value, **g.loc)]

    g.in_thunk += 1
    with g.at(node):
        g.before.append(g.define(py, [], scope, build, step=False))
    g.in_thunk -= 1
    return g.name(py)


def _info(g: Emitter, node: Function, name: str | None) -> LambdaInfo:
    args = node.args
    for each in (args.vararg, args.kwarg):
        if each is not None:
            g.foreign.add(each.arg)
            g.refuse(each, "'*args' and '**kwargs' in a definition", "take a list, or a dict")
    positional = [each.arg for each in (*args.posonlyargs, *args.args)]
    for each in positional:
        if each.startswith("_") and each != "_":
            g.refuse(node, f"the name '{each}'", "names do not begin with _")
    least = len(positional) - len(args.defaults)
    optional = (*positional[least:], *(each.arg for each in args.kwonlyargs))
    span = g.span_at(node)
    ends = (span.start, span.end)
    return LambdaInfo(name, tuple(positional[:least]), None, g.source, *ends, ends, True, optional, follows=g.labelled)


def _code(g: Emitter, node: Function, py: str, body: Callable[[], list[ast.stmt]]) -> ast.AsyncFunctionDef:
    scope = g.scopes.scopes[node]
    names = parameters(node.args)
    defaults = _defaults(g, node.args)

    def build() -> list[ast.stmt]:
        head: list[ast.stmt] = []
        params = [scope.vars[each] for each in names]
        if not g.labelled:
            g.remembered.update(
                (each, False) for each in params if each.operations > 1 and each.writes == 1 and not each.shared
            )
        for name, default in defaults:
            target = g.name(scope.vars[name].py)
            value = default if default is not None else g.ours(missing_keyword, g.const(name))
            assign = ast.Assign([ast.Name(scope.vars[name].py, STORE, **g.loc)], value, **g.loc)
            head.append(ast.If(g.is_(target, g.const_param(MISSING, "MISSING")), [assign], [], **g.loc))
        written = body()
        integers = [each for each in params if g.remembered.pop(each, False)]
        if integers and not g.errors and _calls_itself(g, node):
            with g.kinds.tested(integers):
                fast = [*body(), ast.Return(g.const(None), **g.loc)]
            test = both(g, *(g.type_is(g.name(each.py), int) for each in integers))
            head.append(ast.If(test, fast, [], **g.loc))
        for each in integers:
            kind = g.type_is(g.name(each.py), int)
            head.append(ast.Assign([ast.Name(f"i_{each.py}", STORE, **g.loc)], kind, **g.loc))
        return [*head, *written]

    return g.define(py, [scope.vars[each].py for each in names], scope, build)


_FEW_NODES = 80
"""Maximum size of a function with a body written twice, the second time for integers only."""


def _calls_itself(g: Emitter, node: Function) -> bool:
    """Whether a function is small, and calls itself by its name, without functions and forms within."""
    nodes = g.scopes.scopes[node].nodes
    if isinstance(node, ast.Lambda) or len(nodes) > _FEW_NODES:
        return False
    called = {each.func.id for each in nodes if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    apart = any(isinstance(each, (*FUNCTIONS, *COMPREHENSIONS, ast.Try)) for each in nodes)
    return node.name in called and not apart and called.isdisjoint(FORMS)


def _defaults(g: Emitter, args: ast.arguments) -> list[tuple[str, ast.expr | None]]:
    """The optional parameters, with their defaults; None for required keywords."""
    positional = [*args.posonlyargs, *args.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = []
    if args.defaults:
        pairs += zip(positional[-len(args.defaults) :], args.defaults, strict=True)
    pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
    listed: list[tuple[str, ast.expr | None]] = []
    for parameter, default in pairs:
        if default is not None and not is_literal(default):
            g.refuse(default, "a computed default", "write None, and choose in the body")
            default = ast.Constant(None, **g.loc)
        listed.append((parameter.arg, None if default is None else g.value(default)))
    return listed


def is_literal(node: ast.expr) -> bool:
    """Whether an expression is a constant, or a list, tuple, set or dict of constants."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(map(is_literal, node.elts))
    if isinstance(node, ast.Dict):
        return all(each is not None and is_literal(each) for each in (*node.keys, *node.values))
    return isinstance(node, ast.Constant)


def _closure(g: Emitter, py: str, info: LambdaInfo, node: Function) -> ast.expr:
    constant = g.packed_constant(("lambda", py), lambda: info)
    arity = -1 if info.optional else len(info.params)
    code = g.name(py)
    if info.optional:
        by_position = len(node.args.posonlyargs) + len(node.args.args)
        code = g.ours(filled, code, constant, g.const(by_position))
    return g.call(g.const_param(Closure, "CL"), [code, g.const(arity), constant, g.env(), g.rt("grants")])


def procedure(g: Emitter, py: str, params: tuple[str, ...], node: ast.AST) -> ast.expr:
    """The closure of code written for a form, with ``params``."""
    span = g.span_at(node)
    ends = (span.start, span.end)
    info = LambdaInfo(None, params, None, g.source, *ends, ends, False, follows=g.labelled)
    constant = g.packed_constant(("lambda", py), lambda: info)
    return g.call(g.const_param(Closure, "CL"), [g.name(py), g.const(len(params)), constant, g.env(), g.rt("grants")])


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a function after its docstring."""
    first = body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if text else body
