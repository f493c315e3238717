"""Compiling a large module in pieces: nested functions one by one, put back where they are created.

Python's compiler holds the interpreter for the whole duration of one call. A nested function is compiled in a module of
its own, within a function with the variables that it shares with those around it as parameters. In its original position a
function of the same name remains that mentions the same variables, so that it is created with the same cells;
:func:`~agentflow.lang.trace.stamp` then puts the real code in its place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from types import CodeType
from typing import Any, cast

ROOM = 5_500
"""Python nodes of a module, unless no nested function is left to be cut off: some 10 ms."""
_STUB = 20
"""Python nodes that remain in place of a function that is cut off; the cut has to be worth them."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def holding(plain: Collection[str], leaves: Collection[type[Any]]) -> dict[type[Any], tuple[str, ...]]:
    """The fields of each kind of node that hold nodes: all but the ``plain`` ones, and none of those of ``leaves``."""
    kinds = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
    return {kind: () if kind in leaves else tuple(each for each in kind._fields if each not in plain) for kind in kinds}


_PLAIN = frozenset(
    (
        "arg",
        "attr",
        "conversion",
        "ctx",
        "id",
        "is_async",
        "kind",
        "name",
        "names",
        "op",
        "ops",
        "type_comment",
        "type_params",
    )
)
"""Fields of generated nodes that hold no nodes, or marks of operators only."""
HOLDING = holding(_PLAIN, (ast.Constant, ast.arguments))
"""The fields of each kind of generated node that hold nodes, without parameters: most nodes are names and constants, which have none."""


def nodes_below(node: ast.AST) -> list[Any]:
    """The nodes directly below a generated one, without parameters and marks of operators."""
    nodes: list[Any] = []
    held = vars(node)
    for name in HOLDING[type(node)]:
        part: list[Any] | ast.AST | None = held.get(name)
        if type(part) is list:
            nodes += part if name != "keys" else filter(None, part)
        elif part is not None:
            nodes.append(part)
    return nodes


class _Scope:
    """A function: its number of nodes with the nested functions that stay in it, and the names it uses and binds."""

    __slots__ = ("around", "bound", "inner", "node", "outer", "size", "used")

    def __init__(self, node: _Function, around: _Scope | None) -> None:
        self.node = node
        self.around = around
        self.inner: list[_Scope] = []
        self.size = 0
        self.used: set[str] = set()
        args = node.args
        self.bound = {each.arg for each in (*args.args, *([args.vararg] if args.vararg else []))}
        self.outer: set[str] = set()

    @property
    def free(self) -> set[str]:
        """The names that it uses and does not bind."""
        return (self.used - self.bound) | self.outer

    @property
    def shared(self) -> list[str]:
        """The names of the variables that it shares with the functions around it."""
        return sorted(each for each in self.free if self._is_bound_around(each))

    def _is_bound_around(self, name: str) -> bool:
        scope = self.around
        while scope is not None and name not in scope.bound:
            scope = scope.around
        return scope is not None


def compile_in_pieces(
    link: ast.FunctionDef, compiler: Callable[[ast.Module], CodeType], room: int = ROOM
) -> tuple[CodeType, dict[str, CodeType]]:
    """The code of a module of ``link``, and by name that of the nested functions which were cut off.

    Functions within ``link`` are named uniquely; their globals are constants. The tree is taken apart: freeing it at once would hold the
    interpreter for as long as compiling it.
    """
    pieces: dict[str, CodeType] = {}
    scopes = _scopes(link)
    for scope in reversed(scopes):
        scope.size += sum(each.size for each in scope.inner)
        scope.used.update(*(each.free for each in scope.inner))
        for inner in sorted(scope.inner, key=lambda each: each.size, reverse=True):
            if scope.size <= room or inner.size < 2 * _STUB:
                break
            code = pieces[inner.node.name] = _compiled_alone(inner, compiler)
            _hollow(inner.node, code.co_freevars)
            scope.size -= inner.size - _STUB
    code = compiler(ast.Module([link], []))
    for scope in reversed(scopes):
        scope.inner.clear()
        scope.node.body.clear()
    return code, pieces


def _scopes(link: ast.FunctionDef) -> list[_Scope]:
    """All functions, each after the one around it."""
    scopes = [_Scope(link, None)]
    for scope in scopes:
        scope.size += _fill(scope)
        scopes += scope.inner
    return scopes


def _fill(scope: _Scope) -> int:
    """Note the functions within a function, and the names that it uses and binds; returns the number of its nodes."""
    size, used, bound = 0, scope.used, scope.bound
    pending: list[Any] = list(scope.node.body)
    while pending:
        node = pending.pop()
        size += 1
        kind = cast("type[Any]", type(node))
        if kind is ast.Name:
            (used if type(node.ctx) is ast.Load else bound).add(node.id)
        elif kind is ast.AsyncFunctionDef or kind is ast.FunctionDef:
            bound.add(node.name)
            scope.inner.append(_Scope(node, scope))
        elif kind is ast.Nonlocal:
            scope.outer.update(node.names)
        else:
            if kind is ast.ExceptHandler and node.name is not None:
                bound.add(node.name)
            pending += nodes_below(node)
    return size


def _compiled_alone(scope: _Scope, compiler: Callable[[ast.Module], CodeType]) -> CodeType:
    """The code of a function, created within one that has its free variables as parameters."""
    node = scope.node
    params = [ast.copy_location(ast.arg(each), node) for each in scope.shared]
    alone = ast.FunctionDef("alone", ast.arguments([], params, None, [], [], None, []), [node], [])
    alone.type_params = []  # type: ignore[attr-defined]
    module = compiler(ast.Module([ast.copy_location(alone, node)], []))
    (around,) = (each for each in module.co_consts if isinstance(each, CodeType))
    return next(each for each in around.co_consts if isinstance(each, CodeType) and each.co_name == node.name)


def _hollow(node: _Function, free: tuple[str, ...]) -> None:
    """Leave of a function that it shares the variables ``free`` with those around it."""
    where: dict[str, Any] = {
        name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
    }
    names: list[ast.expr] = [ast.Name(each, ast.Load(), **where) for each in free]
    mention = ast.Expr(ast.Tuple(names, ast.Load(), **where), **where)
    node.body = [ast.If(ast.Constant(False, **where), [mention], [], **where), ast.Pass(**where)]
