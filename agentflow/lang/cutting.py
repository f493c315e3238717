"""Compiling a large module in pieces: nested functions one by one, put back where they are created.

Python's compiler holds the interpreter for the whole duration of one call. A nested function is compiled in a module of
its own, within a function with the variables that it shares with those around it as parameters. In its original position a
function of the same name remains that mentions the same variables, so that it is created with the same cells;
:func:`~agentflow.lang.trace.stamp` then puts the real code in its place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any, cast

from agentflow.core.data.frozen import frozen
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.analyzer import nodes_in
from agentflow.lang.calling import TAIL, bounce
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.ir import IR, Seq

PART_NODES = 2_500
"""Number of nodes of a part, unless it is a single form, about 1,000 statements. More code is compiled in pieces."""


@frozen
class Part:
    """A compiled part: ``link`` makes its code from its ``constants`` and the environment's ``cells`` (name, own)."""

    link: Callable[..., Code]
    constants: tuple[Any, ...]
    cells: tuple[tuple[str, bool], ...]

    def code(self, env: SexpEnvironment) -> Code:
        """The part as a coroutine function ``(rt, d)`` on the variables of ``env``."""
        if not self.cells:
            return self.link(env, *self.constants)
        cells = [env.own(name) if own else env.find(name) or env.own(name) for name, own in self.cells]
        return self.link(env, *self.constants, *cells)


def split(tree: Seq) -> list[Seq]:
    """The forms of a program in parts of at most :data:`PART_NODES` nodes; a small program is one part."""
    if nodes_of(tree.items) <= PART_NODES:
        return [tree]
    parts: list[list[IR]] = [[]]
    size = 0
    for item in _flat(tree):
        nodes = nodes_in(item.at)
        if parts[-1] and size + nodes > PART_NODES:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += nodes
    return [Seq(items[-1].at, items) for items in parts]


def nodes_of(items: Sequence[IR]) -> int:
    """The number of nodes of forms."""
    return sum([nodes_in(item.at) for item in items])


def _flat(tree: Seq) -> list[IR]:
    """The forms in order, those within ``begin`` too."""
    flat: list[IR] = []
    pending = list(reversed(tree.items))
    while pending:
        item = pending.pop()
        if isinstance(item, Seq) and item.items:
            pending.extend(reversed(item.items))
        else:
            flat.append(item)
    return flat


def in_order(codes: Sequence[Code]) -> Code:
    """One code that runs all of these, and returns the value of the last."""
    if len(codes) == 1:
        return codes[0]

    async def main(rt: Runtime, d: int) -> Any:
        value: Any = None
        for code in codes:
            value = await code(rt, d)
            if value is TAIL:
                value = await bounce(rt, d)
        return value

    return main


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
    for name in HOLDING[type(node)]:
        part: Any = getattr(node, name, None)
        if type(part) is list:
            nodes += cast("list[Any]", part) if name != "keys" else filter(None, cast("list[Any]", part))
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
    outermost = _Scope(link, None)
    scopes = [outermost]
    pending: list[tuple[Any, _Scope]] = [(each, outermost) for each in link.body]
    while pending:
        node, scope = pending.pop()
        scope.size += 1
        if isinstance(node, ast.Name):
            (scope.used if isinstance(node.ctx, ast.Load) else scope.bound).add(node.id)
            continue
        if isinstance(node, _Function):
            scope.bound.add(node.name)
            inner = _Scope(node, scope)
            scope.inner.append(inner)
            scopes.append(inner)
            pending.extend((each, inner) for each in node.body)
            continue
        if isinstance(node, ast.Nonlocal):
            scope.outer.update(node.names)
            continue
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            scope.bound.add(node.name)
        pending += [(each, scope) for each in nodes_below(node)]
    return scopes


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
