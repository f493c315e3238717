"""Large functions of generated code: parts of them become nested functions, which can be compiled separately
(:mod:`agentflow.lang.kernel.pieces`).

Like :mod:`agentflow.lang.kernel.hoisting` for the nodes of S-expressions, but on Python's own. The pass goes from the leaves to the
root: large groups of adjacent statements continue in a function, as does a single large expression, or several adjacent
operands. A part shares with the function around it the variables that both use. A part of statements returns None when it
reaches its end, ``(value,)`` where they return, and True or False where they break out of a loop around them or continue
it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast

from agentflow.lang.kernel.pieces import HOLDING, nodes_below

_CALL = 12
"""Number of Python nodes in the call of such a function."""
_WORTH = 0.02
"""The minimum share of a piece for adjacent statements or operands to be worth a function."""
_WHOLE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.JoinedStr)
"""Expressions that cannot contain an await, or that have their own variables."""
_FIXED = (ast.Starred, ast.Slice, ast.FormattedValue)
"""Expressions only valid as parts of others."""
_FUEL = "f_"
"""The variable that a slice test assigns and only the statement after it reads: they stay together, and it is not shared."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def outline(link: ast.FunctionDef, piece: int) -> None:
    """Change the coroutine functions within ``link``, so that none has much more than ``piece`` nodes of its own in one part.

    Functions and their variables are named uniquely.
    """
    functions: list[_Own] = []
    pending: list[ast.AST] = list(link.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.AsyncFunctionDef):
            own = _Own(node)
            functions.append(own)
            pending += own.nested
    names: dict[str, Counter[str]] = {}
    for number, own in enumerate(reversed(functions)):
        _Outliner(own, f"part_{number}_", names, piece).run()


class _Own:
    """The parts of one function: its inner nodes, each with the index of its parent, and its names.

    ``outer`` are names that the function's code always shares with others: its parameters, and variables further out.
    """

    def __init__(self, function: ast.AsyncFunctionDef) -> None:
        self.function = function
        self.nested: list[ast.AsyncFunctionDef] = []
        self.nodes: list[tuple[ast.AST, int]] = [(function, -1)]
        self.sizes: list[int] = [1]
        self.used: Counter[str] = Counter()
        self.outer: set[str] = {each.arg for each in function.args.args}
        at = 0
        while at < len(self.nodes):
            for each in nodes_below(self.nodes[at][0]):
                self._add(each, at)
            at += 1

    def _add(self, node: ast.AST, above: int) -> None:
        if type(node) is ast.Name:
            self.used[node.id] += 1
            self.sizes[above] += 1
        elif isinstance(node, ast.AsyncFunctionDef):
            self.nested.append(node)
            self.used[node.name] += 1
            self.sizes[above] += _CALL
        elif not HOLDING[type(node)]:
            self.sizes[above] += 1
            if isinstance(node, ast.Nonlocal):
                self.outer.update(node.names)
        else:
            if isinstance(node, ast.ExceptHandler) and node.name is not None:
                self.used[node.name] += 1
            self.nodes.append((node, above))
            self.sizes.append(1)


class _Outliner:
    """Works on one function after its nested functions: ``names`` count how often each of them uses which name."""

    def __init__(self, own: _Own, stem: str, names: dict[str, Counter[str]], piece: int) -> None:
        self.own = own
        self.piece = piece
        self.stem = stem
        self.nested = names
        self.sizes: dict[ast.AST, int] = {}
        self.parts: list[ast.AsyncFunctionDef] = []
        self.shared: set[str] = set()
        for each in own.nested:
            own.used.update(names[each.name])
        names[own.function.name] = own.used

    def run(self) -> None:
        """Outline the large parts of the function."""
        self._measure()
        if not self.parts:
            return
        body, where = self.own.function.body, _where(self.own.function)
        first = next((at for at, each in enumerate(body) if not isinstance(each, ast.Nonlocal)), len(body))
        head: list[ast.stmt] = [*self.parts]
        if self.shared:
            # A variable that only parts assign still belongs to this function.
            names: list[ast.expr] = [ast.Name(each, ast.Store(), **where) for each in sorted(self.shared)]
            nothing = ast.Constant(None, **where)
            head.insert(0, ast.If(ast.Constant(False, **where), [ast.Assign(names, nothing, **where)], [], **where))
        body[first:first] = head

    # -- sizes, from the leaves to the root -----------------------------------------------------------------------

    def _measure(self) -> None:
        """Measure the nodes, and cut the large ones."""
        nodes, sizes = self.own.nodes, self.own.sizes
        for at in range(len(nodes) - 1, -1, -1):
            node, above = nodes[at]
            size = sizes[at]
            if size > self.piece and not isinstance(node, _WHOLE):
                size = self._cut(node)
            self.sizes[node] = size
            if above >= 0:
                sizes[above] += size

    def _size(self, node: ast.AST) -> int:
        return _CALL if isinstance(node, ast.AsyncFunctionDef) else self.sizes.get(node, 1)

    def _cut(self, node: ast.AST) -> int:
        """The size of a node, with its large parts outlined."""
        total = 1
        for name in HOLDING[type(node)]:
            value: Any = getattr(node, name, None)
            if type(value) is list:
                total += self._cut_list(node, name, cast("list[Any]", value)) if value else 0
            elif value is not None:
                size = self._size(value)
                if size > self.piece and _can_move(value):
                    setattr(node, name, self._expression(value))
                    size = _CALL
                total += size
        return total

    def _cut_list(self, node: ast.AST, name: str, nodes: list[Any]) -> int:
        size = sum(self._size(each) for each in nodes)
        if size <= self.piece:
            return size
        if isinstance(nodes[0], ast.stmt):
            nodes[:] = self._grouped(nodes, lambda each: not isinstance(each, ast.Nonlocal), self._statements)
        elif isinstance(node, ast.BoolOp):
            op = node.op
            nodes[:] = self._grouped(nodes, _can_move, lambda group: [self._joined(op, group)])
        elif name in ("elts", "args") and not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            nodes[:] = self._grouped(nodes, lambda each: isinstance(each, ast.expr), self._operands)
        elif all(map(_can_move, nodes)):
            nodes[:] = [self._expression(each) if self._size(each) > self.piece else each for each in nodes]
        return sum(self._size(each) for each in nodes)

    def _grouped(
        self, nodes: list[Any], can_move: Callable[[Any], bool], moved: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        """``nodes`` with groups of neighbours outlined."""
        result: list[Any] = []
        group: list[Any] = []
        size = 0

        def close() -> None:
            result.extend(moved(group) if size >= _WORTH * self.piece else group)

        for each in nodes:
            movable = can_move(each)
            if group and (not movable or size + self._size(each) > self.piece) and not _is_fuel(group[-1]):
                close()
                group, size = [], 0
            if movable:
                group.append(each)
                size += self._size(each)
            else:
                result.append(each)
        close()
        return result

    # -- parts ----------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> ast.expr:
        return self._called([ast.Return(node, **_where(node))], node)

    def _joined(self, op: ast.boolop, group: list[ast.expr]) -> ast.expr:
        return self._expression(group[0] if len(group) == 1 else ast.BoolOp(op, group, **_where(group[0])))

    def _operands(self, group: list[ast.expr]) -> list[ast.expr]:
        where = _where(group[0])
        if len(group) == 1 and not isinstance(group[0], ast.Starred):
            return [self._expression(group[0])]
        starred = ast.Starred(self._expression(ast.Tuple(group, ast.Load(), **where)), ast.Load(), **where)
        self.sizes[starred] = _CALL
        return [starred]

    def _statements(self, group: list[ast.stmt]) -> list[ast.stmt]:
        where = _where(group[0])
        leaves = _mark_ways_out(group)
        called = self._called(group, group[0])
        if not leaves:
            statements: list[ast.stmt] = [ast.Expr(called, **where)]
        else:
            statements = _on_the_way_out(f"{self.stem}{len(self.parts)}_out", called, leaves, where)
        for each in statements:
            self.sizes[each] = _CALL
        return statements

    def _called(self, body: list[ast.stmt], first: ast.AST) -> ast.expr:
        """``await part(rt, d + 1)``, of a new function with this body: it takes room on the stack, like any call."""
        where = _where(first)
        used, stored = self._names(body)
        outer = {each for each in stored if each in self.own.outer or self.own.used[each] > used[each]} - {_FUEL}
        self.shared |= outer
        head: list[ast.stmt] = [ast.Nonlocal(sorted(outer), **where)] if outer else []
        name = f"{self.stem}{len(self.parts)}"
        params = [ast.arg(each, None, **where) for each in ("rt", "d")]
        args = ast.arguments([], params, None, [], [], None, [])
        part = ast.AsyncFunctionDef(name, args, [*head, *body], [], None, **where)
        part.type_params = []  # type: ignore[attr-defined]
        self.parts.append(part)
        deeper = ast.BinOp(ast.Name("d", ast.Load(), **where), ast.Add(), ast.Constant(1, **where), **where)
        values: list[ast.expr] = [ast.Name("rt", ast.Load(), **where), deeper]
        call = ast.Await(ast.Call(ast.Name(name, ast.Load(), **where), values, [], **where), **where)
        self.sizes[call] = _CALL
        return call

    def _names(self, body: Iterable[ast.AST]) -> tuple[Counter[str], set[str]]:
        """The number of uses of each name in it, and the assigned names."""
        used: Counter[str] = Counter()
        stored: set[str] = set()
        pending: list[ast.AST] = list(body)
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Name):
                used[node.id] += 1
                if not isinstance(node.ctx, ast.Load):
                    stored.add(node.id)
            elif isinstance(node, ast.AsyncFunctionDef):
                used[node.name] += 1
                stored.add(node.name)
                used.update(self.nested[node.name])
            else:
                if isinstance(node, ast.ExceptHandler) and node.name is not None:
                    used[node.name] += 1
                    stored.add(node.name)
                pending += nodes_below(node)
        return used, stored


def _can_move(node: ast.AST) -> bool:
    """Whether a node is an expression with a value that another function can compute."""
    stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    return isinstance(node, ast.expr) and not isinstance(node, _FIXED) and not stored


def _is_fuel(node: ast.AST) -> bool:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return isinstance(target, ast.Name) and target.id == _FUEL


def _where(node: Any) -> dict[str, Any]:
    return {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}


def _mark_ways_out(body: list[ast.stmt]) -> set[type[ast.stmt]]:
    """Have the statements that leave ``body`` return a marker; returns the kinds of these."""
    kinds: set[type[ast.stmt]] = set()
    pending: list[tuple[list[ast.stmt], bool]] = [(body, False)]
    while pending:
        nodes, in_loop = pending.pop()
        for at, each in enumerate(nodes):
            if isinstance(each, ast.Return):
                kinds.add(ast.Return)
                value = each.value or ast.Constant(None, **_where(each))
                each.value = ast.Tuple([value], ast.Load(), **_where(each))
            elif isinstance(each, ast.Break | ast.Continue) and not in_loop:
                kinds.add(type(each))
                value = ast.Constant(isinstance(each, ast.Break), **_where(each))
                nodes[at] = ast.Return(value, **_where(each))
            elif not isinstance(each, _Function):
                loops = isinstance(each, ast.For | ast.AsyncFor | ast.While)
                blocks = [(name, getattr(each, name, [])) for name in ("body", "orelse", "finalbody")]
                pending += [(block, in_loop or (loops and name == "body")) for name, block in blocks if block]
                pending += [(handler.body, in_loop) for handler in getattr(each, "handlers", ())]
    return kinds


def _on_the_way_out(name: str, called: ast.expr, leaves: set[type[ast.stmt]], where: dict[str, Any]) -> list[ast.stmt]:
    """Call a part, and leave as its statements do."""

    def read() -> ast.expr:
        return ast.Name(name, ast.Load(), **where)

    def case(value: Any, op: ast.cmpop, then: list[ast.stmt]) -> ast.stmt:
        return ast.If(ast.Compare(read(), [op], [ast.Constant(value, **where)], **where), then, [], **where)

    inner: list[ast.stmt] = []
    if ast.Break in leaves:
        inner.append(case(True, ast.Is(), [ast.Break(**where)]))
    if ast.Continue in leaves:
        inner.append(case(False, ast.Is(), [ast.Continue(**where)]))
    if ast.Return in leaves:
        value = ast.Subscript(read(), ast.Constant(0, **where), ast.Load(), **where)
        inner.append(ast.Return(value, **where))
    assign = ast.Assign([ast.Name(name, ast.Store(), **where)], called, **where)
    return [assign, case(None, ast.IsNot(), inner)]
