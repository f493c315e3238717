"""Definitions of functions, lambdas, and the parts of forms that run their arguments themselves."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from agentflow.lang.closure import LambdaInfo
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.nodes import Lambda, LoweredInfo, Node, Set
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.lowering import Lowering, expression, statement
from agentflow.lang.python.names import COMPREHENSIONS, FUNCTIONS, Function, LocalVariable, parameters

_CACHES = frozenset(("cache", "lru_cache", "cached", "cached_property"))


@statement(ast.FunctionDef, ast.AsyncFunctionDef)
def definition(g: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Node]:
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
        declared = declare(g, node, each)
        if declared is not None:
            return declared
    return _define(g, node)


Declare = Callable[[Lowering, Any, ast.expr], "list[Node] | None"]
DECORATORS: dict[str, Declare] = {}
"""The definition that a decorator turns a function into; None if it stays a function."""


def _define(g: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Node]:
    """A function bound to its name."""
    if node.name.startswith("_"):
        g.refuse(node, f"the name '{node.name}'", "names do not begin with _")
    at = g.span_at(node)
    function = _function(g, node, node.name, lambda: g.suite(without_docstring(node.body)))
    function.number, function.is_small = g.number_of(node), _calls_itself(g, node)
    function.is_global = g.scope.parent is None and g.scopes.function(node.name) is node
    return [Set(at, g.target(node.name, at), function)]


def known_function(g: Lowering, name: str, var: LocalVariable | None) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The definition that a name certainly refers to, judging by this text."""
    node = g.scopes.function(name) if var is None else var.known
    if node is None or node.decorator_list:
        return None
    return node


@expression(ast.Lambda)
def lambda_(g: Lowering, node: ast.Lambda) -> Node:
    return _function(g, node, None, lambda: g.value(node.body), gives_body=True)


def thunk(g: Lowering, node: ast.expr) -> nodes.Thunk:
    """An expression that a form evaluates itself; for a lambda without parameters, its body."""
    g.in_thunk += 1
    if isinstance(node, ast.Lambda) and not parameters(node.args):
        inner = node.body
        frame, body = g.within(node, lambda: g.value(inner))
    else:
        frame, body = g.apart(lambda: g.value(node))
    g.in_thunk -= 1
    return nodes.Thunk(g.span_at(node), body, frame)


def _function(
    g: Lowering, node: Function, name: str | None, build: Callable[[], Node], *, gives_body: bool = False
) -> Lambda:
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
    info = info_of(g, node, name, tuple(positional[:least]), optional)
    defaults: list[Any] = [None] * least + [_default(g, each) for each in args.defaults]
    defaults += [nodes.MISSING_KEYWORD if each is None else _default(g, each) for each in args.kw_defaults]
    frame, body = g.within(node, build)
    params = [g.variables[g.scopes.scopes[node].vars[each]] for each in parameters(args)]
    by_position = len(positional)
    return Lambda(g.span_at(node), info, params, defaults, frame, body, None, gives_body, by_position)


def info_of(
    g: Lowering,
    node: ast.AST,
    name: str | None,
    params: tuple[str, ...],
    optional: tuple[str, ...] = (),
    *,
    portable: bool = True,
) -> LambdaInfo:
    """The description of a procedure of the text."""
    span = g.span_at(node)
    ends = (span.start, span.end)
    kind = LoweredInfo if g.follows == "strict" else LambdaInfo
    return kind(name, params, None, g.source, *ends, ends, portable, optional, follows=g.follows)


def _default(g: Lowering, default: ast.expr) -> Node:
    """The default of a parameter."""
    if not is_literal(default):
        g.refuse(default, "a computed default", "write None, and choose in the body")
        return g.refused()
    return g.value(default)


_FEW_NODES = 80
"""Maximum size of a function with a body in its code twice, the second time for integers only."""


def _calls_itself(g: Lowering, node: Function) -> bool:
    """Whether a function is small, and calls itself by its name, without functions and forms within."""
    own = g.scopes.scopes[node].nodes
    if isinstance(node, ast.Lambda) or len(own) > _FEW_NODES:
        return False
    called = {each.func.id for each in own if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    apart = any(isinstance(each, (*FUNCTIONS, *COMPREHENSIONS, ast.Try)) for each in own)
    return node.name in called and not apart and called.isdisjoint(FORMS)


def is_literal(node: ast.expr) -> bool:
    """Whether an expression is a constant, or a list, tuple, set or dict of constants."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(map(is_literal, node.elts))
    if isinstance(node, ast.Dict):
        return all(each is not None and is_literal(each) for each in (*node.keys, *node.values))
    return isinstance(node, ast.Constant)


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a function after its docstring."""
    first = body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if text else body
