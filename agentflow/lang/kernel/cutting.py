"""Generated code of a large program: cut into functions that are not large, which are compiled one by one.

Python's compiler holds the interpreter for the whole duration of one call, so it gets no more than some thousand nodes at once. The
code of a program is one function ``link`` with nested ones. From the innermost out, each of these is cut first: large groups of
adjacent statements continue in functions of their own, its parts, as does a large expression, or several adjacent operands. A part
shares with the function around it the variables that both use. A part of statements returns None when it reaches its end,
``(value,)`` where they return, and True or False where they break out of a loop around them or continue it.

Then nested functions are compiled alone, each in a module of its own, within a function with the variables that it shares with
those around it as parameters. In its original position a function of the same name remains that mentions the same variables, so
that it is created with the same cells; :func:`~agentflow.lang.trace.stamp` puts the real code in its place.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection
from types import CodeType
from typing import Any, cast

from agentflow.lib.text.python_trees import holding

_STUB = 20
"""Python nodes that remain in place of a function that is compiled alone, which has to be worth them."""
_CALL = 12
"""Number of Python nodes in the call of a part."""
_WORTH = 0.02
"""The minimum share of a part's size for adjacent statements or operands to be worth a function."""
_WHOLE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.JoinedStr)
"""Expressions that cannot contain an await, or that have their own variables."""
_FIXED = (ast.Starred, ast.Slice, ast.FormattedValue)
"""Expressions only valid as parts of others."""
_FUEL = "f_"
"""The variable that a slice test assigns and only the statement after it reads: they stay together."""
_PASSING = frozenset((_FUEL, "r_"))
"""Variables that no statement assigns for a later one, but for that: parts of statements have their own."""

_Def = ast.FunctionDef | ast.AsyncFunctionDef


_PLAIN = frozenset(("arg", "attr", "conversion", "ctx", "id", "is_async", "name", "names", "op", "ops"))
"""Fields of generated nodes that hold no nodes, or marks of operators only."""
_HOLDING = holding(_PLAIN, (ast.Constant, ast.arguments))
"""The fields of each kind of generated node that hold nodes, without parameters: most nodes are names and constants, which have none."""


def compile_in_pieces(
    link: ast.FunctionDef, compiler: Callable[[ast.Module], CodeType], room: int
) -> tuple[CodeType, dict[str, CodeType]]:
    """The code of a module of ``link`` in pieces of some ``room`` nodes: the module's, and by name that of functions compiled alone.

    Functions within ``link`` are named uniquely; their globals are constants.
    """
    pieces: dict[str, CodeType] = {}
    functions = [_Function(link, None)]
    for function in functions:
        function.inner = [_Function(each, function) for each in function.defined]
        functions += function.inner
    while functions:
        function = functions.pop()
        parts = _Cutter(function, f"part_{len(functions)}_", room // 3).parts if functions else ()
        for each in (*parts, function):
            _compile_inner(each, compiler, room, pieces)
    return compiler(ast.Module([link], [])), pieces


class _Function:
    """A function, or a part of one: the functions in it, and the names that it uses and binds.

    ``nodes`` are its inner nodes, each with the index of its parent, and ``sizes`` the numbers of nodes in them, until it is cut;
    then ``size`` is that of all. ``outer`` are names that its code always shares with others: its parameters, and variables further out.
    """

    __slots__ = ("around", "bound", "defined", "inner", "node", "nodes", "outer", "size", "sizes", "used")

    def __init__(self, node: _Def, around: _Function | None) -> None:
        self.node = node
        self.around = around
        self.inner: list[_Function] = []
        self.defined: list[ast.AsyncFunctionDef] = []
        self.size = 0
        self.nodes: list[tuple[ast.AST, int]] = [(node, -1)]
        self.sizes: list[int] = []
        args = node.args
        self.outer: set[str] = {each.arg for each in (*args.args, *([args.vararg] if args.vararg else []))}
        self.bound = set(self.outer)
        self.used: Counter[str] = Counter(self._walked())

    def _walked(self) -> list[str]:
        """Walk through its nodes; returns the names that it uses."""
        used: list[str] = []
        nodes, bound = self.nodes, self.bound
        for at, (node, _) in enumerate(nodes):
            size = 1
            held = vars(node)
            for name in _HOLDING[type(node)]:
                value: Any = held.get(name)
                if value is None:
                    continue
                below = cast("list[Any]", value) if type(value) is list else [value]
                for each in below:
                    kind = cast("type[Any]", type(each))
                    if kind is ast.Name:
                        used.append(each.id)
                        if type(each.ctx) is not ast.Load:
                            bound.add(each.id)
                        size += 1
                    elif not _HOLDING.get(kind):
                        size += 1
                        if kind is ast.Nonlocal:
                            self.outer.update(each.names)
                    elif kind is ast.AsyncFunctionDef:
                        used.append(each.name)
                        bound.add(each.name)
                        self.defined.append(each)
                        size += _CALL
                    else:
                        if kind is ast.ExceptHandler and each.name is not None:
                            used.append(each.name)
                            bound.add(each.name)
                        nodes.append((each, at))
            self.sizes.append(size)
        return used

    def is_shared(self, name: str) -> bool:
        """Whether a function around it binds the name."""
        scope = self.around
        while scope is not None and name not in scope.bound:
            scope = scope.around
        return scope is not None


class _Cutter:
    """Cuts one function into ``parts`` of about ``piece`` nodes, from the leaves to the root, after the functions within it."""

    def __init__(self, function: _Function, stem: str, piece: int) -> None:
        self.function = function
        self.piece = piece
        self.stem = stem
        self.sizes: dict[ast.AST, int] = {}
        self.parts: list[_Function] = []
        self.shared: set[str] = set()
        self.within: dict[ast.AST, _Function] = {each.node: each for each in function.inner}
        for each in function.inner:
            function.used.update(each.used)
        self._measure()
        function.inner = [*self.within.values(), *self.parts]
        if self.parts:
            self._define_parts()

    def _define_parts(self) -> None:
        body, where = self.function.node.body, _where(self.function.node)
        first = next((at for at, each in enumerate(body) if not isinstance(each, ast.Nonlocal)), len(body))
        head: list[ast.stmt] = [each.node for each in self.parts]
        if self.shared:
            # A variable that only parts assign still belongs to this function.
            names: list[ast.expr] = [ast.Name(each, ast.Store(), **where) for each in sorted(self.shared)]
            nothing = ast.Constant(None, **where)
            head.insert(0, ast.If(ast.Constant(False, **where), [ast.Assign(names, nothing, **where)], [], **where))
        body[first:first] = head

    # -- sizes, from the leaves to the root -----------------------------------------------------------------------

    def _measure(self) -> None:
        """Measure the nodes, and cut the large ones."""
        function = self.function
        nodes, sizes, function.nodes, function.sizes = function.nodes, function.sizes, [], []
        for at in range(len(nodes) - 1, -1, -1):
            node, above = nodes[at]
            size = sizes[at]
            if size > self.piece and not isinstance(node, _WHOLE):
                size = self._cut(node)
            self.sizes[node] = size
            if above >= 0:
                sizes[above] += size
        function.size = sizes[0]

    def _size(self, node: ast.AST) -> int:
        return _CALL if isinstance(node, ast.AsyncFunctionDef) else self.sizes.get(node, 1)

    def _cut(self, node: ast.AST) -> int:
        """The size of a node, with its large parts in functions."""
        total = 1
        for name in _HOLDING[type(node)]:
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
        elif isinstance(node, ast.Dict) and name == "values":
            entries = [ast.Dict([key], [value], **_where(value)) for key, value in zip(node.keys, nodes, strict=True)]
            self.sizes.update(zip(entries, map(self._size, nodes), strict=True))
            nodes[:] = self._grouped(entries, _can_move, lambda group: [self._merged(group)])
            node.keys = [None] * len(nodes)
        elif all(map(_can_move, nodes)):
            nodes[:] = [self._expression(each) if self._size(each) > self.piece else each for each in nodes]
        return sum(self._size(each) for each in nodes)

    def _grouped(
        self, nodes: list[Any], can_move: Callable[[Any], bool], moved: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        """``nodes`` with groups of neighbours in parts."""
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
        return self._called([ast.Return(node, **_where(node))])

    def _joined(self, op: ast.boolop, group: list[ast.expr]) -> ast.expr:
        return self._expression(group[0] if len(group) == 1 else ast.BoolOp(op, group, **_where(group[0])))

    def _merged(self, entries: list[ast.Dict]) -> ast.expr:
        """A dict of adjacent entries, for ``{**await part(rt, d + 1)}``."""
        keys, values = (
            [key for each in entries for key in each.keys],
            [value for each in entries for value in each.values],
        )
        return self._expression(ast.Dict(keys, values, **_where(entries[0])))

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
        called = self._called(group, _PASSING - self.shared)
        if not leaves:
            statements: list[ast.stmt] = [ast.Expr(called, **where)]
        else:
            statements = _on_the_way_out(f"{self.stem}{len(self.parts)}_out", called, leaves, where)
        for each in statements:
            self.sizes[each] = _CALL
        return statements

    def _called(self, body: list[ast.stmt], own: Collection[str] = ()) -> ast.expr:
        """``await part(rt, d + 1)``, of a new part with this body: it takes room on the stack, like any call. ``own`` are variables that it does not share."""
        function, where = self.function, _where(body[0])
        name = f"{self.stem}{len(self.parts)}"
        params = [ast.arg(each, None, **where) for each in ("rt", "d")]
        node = ast.AsyncFunctionDef(name, ast.arguments([], params, None, [], [], None, []), body, [], None, **where)
        node.type_params = []  # type: ignore[attr-defined]
        part = _Function(node, function)
        part.size = sum(part.sizes)
        part.nodes, part.sizes = [], []
        part.inner = [self.within.pop(each) for each in part.defined]
        for each in part.inner:
            part.used.update(each.used)
        stored = part.bound.difference(part.outer, own)
        outer = [each for each in stored if each in function.outer or function.used[each] > part.used[each]]
        if outer:
            self.shared.update(outer)
            node.body = [ast.Nonlocal(sorted(outer), **where), *body]
        self.parts.append(part)
        function.bound.add(name)
        deeper = ast.BinOp(ast.Name("d", ast.Load(), **where), ast.Add(), ast.Constant(1, **where), **where)
        values: list[ast.expr] = [ast.Name("rt", ast.Load(), **where), deeper]
        call = ast.Await(ast.Call(ast.Name(name, ast.Load(), **where), values, [], **where), **where)
        self.sizes[call] = _CALL
        return call


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
            elif not isinstance(each, _Def):
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


def _compile_inner(
    function: _Function, compiler: Callable[[ast.Module], CodeType], room: int, pieces: dict[str, CodeType]
) -> None:
    """Compile functions within a function alone, the largest first, until it has room in a module."""
    function.size += sum(each.size for each in function.inner)
    for inner in sorted(function.inner, key=lambda each: each.size, reverse=True):
        if function.size <= room or inner.size < 2 * _STUB:
            break
        code = pieces[inner.node.name] = _compiled_alone(inner, compiler)
        _hollow(inner.node, code.co_freevars)
        function.size -= inner.size - _STUB
    function.inner = []


def _compiled_alone(function: _Function, compiler: Callable[[ast.Module], CodeType]) -> CodeType:
    """The code of a function, created within one that has its free variables as parameters."""
    node = function.node
    params = [ast.copy_location(ast.arg(each), node) for each in sorted(filter(function.is_shared, function.used))]
    alone = ast.FunctionDef("alone", ast.arguments([], params, None, [], [], None, []), [node], [])
    alone.type_params = []  # type: ignore[attr-defined]
    module = compiler(ast.Module([ast.copy_location(alone, node)], []))
    (around,) = (each for each in module.co_consts if isinstance(each, CodeType))
    return next(each for each in around.co_consts if isinstance(each, CodeType) and each.co_name == node.name)


def _hollow(node: _Def, free: tuple[str, ...]) -> None:
    """Leave of a function that it shares the variables ``free`` with those around it."""
    where = _where(node)
    names: list[ast.expr] = [ast.Name(each, ast.Load(), **where) for each in free]
    mention = ast.Expr(ast.Tuple(names, ast.Load(), **where), **where)
    node.body = [ast.If(ast.Constant(False, **where), [mention], [], **where), ast.Pass(**where)]
