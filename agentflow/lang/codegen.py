"""Generates a Python ``ast`` from the intermediate form.

The program becomes one function ``link``. Its parameters are the constants and cells that the code uses, and it
returns the coroutine function ``main(rt, d)``. Generated code reads no globals: everything it needs is a parameter of
``link``. ``rt`` is the strand the code runs on, ``d`` its depth in calls.

Compiling an expression returns a Python expression and may emit statements before it; earlier operands are then spilled
to temporaries, so that evaluation stays left to right. Compiling a statement delivers its value to a destination: a
:class:`Dest`. Every generated node has the position of the program node it came from.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentflow.core.data.labels import Following
from agentflow.core.data.source import Source
from agentflow.lang.abi import Operation
from agentflow.lang.calling import AGAIN
from agentflow.lang.closure import LambdaInfo
from agentflow.lang.equality import truth
from agentflow.lang.generated import LOAD, RETURN, STORE, Dest, Loop, PyFn, as_bool, height, is_bool
from agentflow.lang.ir import IR, Lambda, Var
from agentflow.lang.stack import LEVELS, on_fresh_stack
from agentflow.lang.syntax import Node
from agentflow.lang.trace import Positions

_MAX_HEIGHT = 20
MAX_BLOCKS = 8
MAX_CLAUSES = 12


# Programs become Python coroutines: walking their tree took ten times as long (decision 4)
class Generator:
    """One translation. ``constants`` are (name, value) parameters of ``link``, ``cells`` maps names to parameters.

    ``groups`` are the operands of a large form, with a function for each group. ``labelled`` code calls the
    labelled twins of primitives (:mod:`agentflow.lang.builtins.labelled`), and is otherwise the same.
    """

    def __init__(
        self,
        source: Source,
        defined: set[str],
        groups: Mapping[int, list[list[Any]]] | None = None,
        *,
        labelled: Following = False,
    ) -> None:
        self.source = source
        self.groups = groups
        self.labelled: Following = labelled
        self.positions = Positions(source)
        self.defined = defined
        self.constants: list[tuple[str, Any]] = []
        self.constant_names: dict[Any, str] = {}
        self.packed: list[Any] = []
        self.packed_at: dict[Any, int] = {}
        self.cells: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.fn = PyFn("main", tail_ok=False)
        self.main = self.fn
        self.owner: dict[str, PyFn] = {}
        self.body: list[ast.stmt] = []
        self.loc: dict[str, Any] = {}
        self.locations: dict[tuple[int, int], dict[str, Any]] = {}
        self.counter = 0
        self.loops: dict[Var, Loop] = {}
        self.lambda_py: dict[int, str] = {}
        self.global_code: dict[str, Lambda] = {}
        self.global_py: dict[str, tuple[str, str]] = {}
        self.tails: dict[int, bool] = {}
        self.lambdas: dict[str, LambdaInfo] = {}
        self.level = 0
        self.deepest = 0

    # -- small parts ----------------------------------------------------------------------------------------------

    def location_of(self, node: Node) -> dict[str, Any]:
        """The position of a program node, as keyword arguments of Python nodes."""
        start, end = node.start, node.end
        location = self.locations.get((start, end))
        if location is None:
            line, column, end_line, end_column = self.positions.of(start, end)
            location = {"lineno": line, "col_offset": column, "end_lineno": end_line, "end_col_offset": end_column}
            self.locations[start, end] = location
        return location

    def name(self, name: str) -> ast.expr:
        return ast.Name(name, LOAD, **self.loc)

    def const(self, value: Any) -> ast.expr:
        return ast.Constant(value, **self.loc)

    @property
    def start(self) -> dict[str, Any]:
        """The position of an attribute.

        Python places the call of an attribute that goes over several lines at the last of them, and loses the columns.
        """
        loc = self.loc
        if loc["lineno"] == loc["end_lineno"]:
            return loc
        return {**loc, "end_lineno": loc["lineno"], "end_col_offset": loc["col_offset"]}

    def attr(self, value: ast.expr, name: str) -> ast.expr:
        return ast.Attribute(value, name, LOAD, **self.start)

    def rt(self, name: str) -> ast.expr:
        """A member of the strand, one that :class:`~agentflow.lang.abi.Runtime` declares."""
        return ast.Attribute(self.name("rt"), name, LOAD, **self.start)

    def call(self, function: ast.expr, args: Sequence[ast.expr]) -> ast.expr:
        node = ast.Call(function, list(args), [], **self.loc)
        tallest = 0
        for each in args:
            h = getattr(each, "_h", 0)
            if h > tallest:
                tallest = h
        node._h = tallest + 1  # type: ignore[attr-defined]
        return node

    def await_(self, value: ast.expr) -> ast.expr:
        node = ast.Await(value, **self.loc)
        node._h = height(value)  # type: ignore[attr-defined]
        return node

    def operation(self, op: Operation, at: Node, arguments: Sequence[ast.expr]) -> ast.expr:
        """An operation of the runtime, awaited."""
        return self.await_(self.call(self.rt("operation"), [self.const(op), self.name("d"), self.span(at), *arguments]))

    def is_(self, a: ast.expr, b: ast.expr, *, negate: bool = False) -> ast.expr:
        return ast.Compare(a, [ast.IsNot() if negate else ast.Is()], [b], **self.loc)

    def ifexp(self, test: ast.expr, then: ast.expr, other: ast.expr) -> ast.expr:
        node = ast.IfExp(test, then, other, **self.loc)
        node._h = 1 + max(height(test), height(then), height(other))  # type: ignore[attr-defined]
        return node

    def test(self, value: ast.expr) -> ast.expr:
        """Whether a value counts as true: code that calls no method of a host object (:func:`~agentflow.lang.equality.truth`)."""
        if is_bool(value) or isinstance(value, ast.Constant):
            return value
        simple = isinstance(value, ast.Name)
        named = value if simple else ast.NamedExpr(ast.Name("r_", STORE, **self.loc), value, **self.loc)
        again = self.name(value.id if isinstance(value, ast.Name) else "r_")
        other = self.call(self.const_param(truth, "truth"), [again])
        rest = ast.BoolOp(ast.And(), [self.is_(again, self.const(False), negate=True), as_bool(other)], **self.loc)
        code = ast.BoolOp(ast.Or(), [self.is_(named, self.const(True)), rest], **self.loc)
        code._h = height(value) + 3  # type: ignore[attr-defined]
        return code

    def deeper(self, by: int = 1) -> ast.expr:
        """``d + 1``."""
        return ast.BinOp(self.name("d"), ast.Add(), self.const(by), **self.loc)

    def assign(self, name: str, value: ast.expr) -> None:
        """Assign a Python variable, declaring it nonlocal if it belongs to an enclosing function."""
        owner = self.owner.setdefault(name, self.fn)
        if owner is not self.fn:
            self.fn.nonlocals.add(name)
            owner.declared.add(name)
        self.body.append(ast.Assign([ast.Name(name, STORE, **self.loc)], value, **self.loc))

    def tmp(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def const_param(self, value: Any, name: str | None = None) -> ast.expr:
        """A constant as a parameter of ``link``."""
        key = name or id(value)
        param = self.constant_names.get(key)
        if param is None:
            param = self.constant_names[key] = name or f"k{len(self.constants)}"
            self.constants.append((param, value))
        return self.name(param)

    def packed_constant(self, key: Any, make: Callable[[], Any]) -> ast.expr:
        """A constant used once in the program; all of these share one parameter of ``link``, a tuple.

        Python's compiler copies the names of the enclosing scope for each function, so fewer names compile faster.
        """
        index = self.packed_at.get(key)
        if index is None:
            index = self.packed_at[key] = len(self.packed)
            self.packed.append(make())
        return ast.Subscript(self.name("K"), self.const(index), LOAD, **self.loc)

    def datum(self, value: Any) -> ast.expr:
        """A constant of the program's text: a parameter of its own, unless there may be very many."""
        return self.const_param(value) if self.groups is None else self.packed_constant(id(value), lambda: value)

    def span(self, node: Node) -> ast.expr:
        """The span of ``node`` as a constant."""
        return self.packed_constant((node.start, node.end), lambda: self.source.span(node.start, node.end))

    def cell(self, name: str) -> ast.expr:
        """The environment's cell of ``name``."""
        param = self.cells.get(name)
        if param is None:
            param = self.cells[name] = f"c{len(self.cells)}"
        return self.name(param)

    def spill(self, value: ast.expr) -> ast.expr:
        """Assign a value to a temporary."""
        name = self.tmp()
        self.assign(name, value)
        return self.temp(name)

    def temp(self, name: str) -> ast.expr:
        node = self.name(name)
        node._stable = True  # type: ignore[attr-defined]
        return node

    def stable(self, value: ast.expr) -> bool:
        """Whether evaluating it later, or twice, has the same result."""
        return isinstance(value, ast.Constant) or getattr(value, "_stable", False)

    def atom(self, value: ast.expr) -> ast.expr:
        """A value that can be used several times."""
        return value if self.stable(value) else self.spill(value)

    def capture(self, work: Callable[[], Any]) -> tuple[list[ast.stmt], Any]:
        """The statements that ``work`` emits, collected separately, and its result."""
        saved, self.body = self.body, []
        try:
            result = work()
            return self.body, result
        finally:
            self.body = saved

    def operands(self, items: Sequence[IR]) -> list[ast.expr]:
        """Expressions to be evaluated in order; earlier ones are spilled if a later one emits statements."""
        groups = self.groups.get(id(items)) if self.groups else None
        if groups is not None:
            return self._grouped(groups)
        values: list[ast.expr] = []
        for item in items:
            saved, self.body = self.body, []
            value = self.expr(item)
            emitted, self.body = self.body, saved
            if emitted:
                if not all(isinstance(each, ast.AsyncFunctionDef) for each in emitted):
                    values = [self.atom(each) for each in values]
                self.body.extend(emitted)
            values.append(value)
        return values

    def _grouped(self, groups: Sequence[Sequence[IR]]) -> list[ast.expr]:
        """Operands in groups, each evaluated in a separate function."""
        values: list[ast.expr] = []
        for group in groups:
            values += self.apart(len(group), lambda group=group: self.operands(group))
        return values

    def apart(self, count: int, build: Callable[[], list[ast.expr]]) -> list[ast.expr]:
        """The ``count`` values of expressions that ``build`` compiles, evaluated in a nested function."""
        name = self.tmp()
        self.owner[name] = self.fn

        def give_all() -> None:
            self.deliver(ast.Tuple(build(), LOAD, **self.loc), RETURN)

        self.helper([], [], give_all, Dest("assign", name))
        values: list[ast.expr] = [
            ast.Subscript(self.name(name), self.const(index), LOAD, **self.loc) for index in range(count)
        ]
        for value in values:
            value._stable = True  # type: ignore[attr-defined]
        return values

    def atoms(self, items: Sequence[IR]) -> list[ast.expr]:
        """Like :meth:`operands`, but each can be used several times."""
        values = self.operands(items)
        simple = all(self.stable(each) or isinstance(each, ast.Name) for each in values)
        return values if simple else [self.atom(each) for each in values]

    # -- expressions and statements -------------------------------------------------------------------------------

    def expr(self, node: IR) -> ast.expr:
        """Compile ``node`` to a Python expression."""
        self.level += 1
        if not self.level % LEVELS:
            self.deepest = max(self.deepest, self.level)
            value = on_fresh_stack(lambda: self.expr(node))
            self.level -= 1
            return value
        saved, self.loc = self.loc, self.location_of(node.at)
        method = _EXPR.get(type(node))
        if method is not None:
            value = method(self, node)
            if height(value) > _MAX_HEIGHT:
                value = self.spill(value)
        else:
            name = self.tmp()
            self.owner[name] = self.fn
            _STMT[type(node)](self, node, Dest("assign", name))
            value = self.temp(name)
        self.loc = saved
        self.level -= 1
        return value

    def stmt(self, node: IR, dest: Dest) -> None:
        """Compile ``node`` to statements that deliver its value to ``dest``."""
        self.level += 1
        if not self.level % LEVELS:
            self.deepest = max(self.deepest, self.level)
            on_fresh_stack(lambda: self.stmt(node, dest))
            self.level -= 1
            return
        saved, self.loc = self.loc, self.location_of(node.at)
        method = _STMT.get(type(node))
        if method is not None:
            method(self, node, dest)
        else:
            self.deliver(_EXPR[type(node)](self, node), dest)
        self.loc = saved
        self.level -= 1

    def deliver(self, value: ast.expr, dest: Dest) -> None:
        """Deliver a value to ``dest``."""
        if dest.kind == "return":
            self.body.append(ast.Return(value, **self.loc))
            return
        if dest.kind == "drop":
            if not isinstance(value, ast.Constant) and not getattr(value, "_stable", False):
                self.body.append(ast.Expr(value, **self.loc))
        else:
            self.assign(dest.name, value)
        if dest.leave:
            self.body.append(ast.Break(**self.loc))

    def block(self, node: IR, dest: Dest) -> list[ast.stmt]:
        """Compile ``node`` to a separate block."""
        emitted, _ = self.capture(lambda: self.stmt(node, dest))
        return emitted or [ast.Pass(**self.loc)]

    # -- functions ------------------------------------------------------------------------------------------------

    def function(
        self, name: str, params: list[str], rest: str | None, fn: PyFn, build: Callable[[], None], prologue: bool
    ) -> ast.AsyncFunctionDef:
        """``async def name(rt, d, *params)`` with a body that ``build`` emits."""
        saved = self.fn
        self.fn = fn
        for each in params:
            self.owner[each] = fn
        body, _ = self.capture(build)
        self.fn = saved
        head: list[ast.stmt] = []
        if fn.nonlocals:
            head.append(ast.Nonlocal(sorted(fn.nonlocals), **self.loc))
        declared: list[ast.expr] = [ast.Name(each, STORE, **self.loc) for each in sorted(fn.declared - set(params))]
        if declared:
            dead = ast.Assign(declared, self.const(None), **self.loc)
            head.append(ast.If(self.const(False), [dead], [], **self.loc))
        if rest is not None:
            self.owner[rest] = fn
            rest_list = self.call(self.const_param(list, "list_"), [self.name(rest)])
            head.append(ast.Assign([ast.Name(rest, STORE, **self.loc)], rest_list, **self.loc))
        if prologue:
            head.extend(self.fuel())
        args = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(each, None, **self.loc) for each in ("rt", "d", *params)],
            vararg=ast.arg(rest, None, **self.loc) if rest is not None else None,
            kwonlyargs=[],
            kw_defaults=[],
            kwarg=None,
            defaults=[],
        )
        whole = [*head, *body] or [ast.Pass(**self.loc)]
        definition = ast.AsyncFunctionDef(name, args, whole, [], None, **self.loc)
        definition.type_params = []  # type: ignore[attr-defined]
        return definition

    def fuel(self) -> list[ast.stmt]:
        """Take one step; at the end of the slice, call ``rt.tick``."""
        left = ast.Name("f_", STORE, **self.loc)
        target = ast.Attribute(self.name("rt"), "fuel", STORE, **self.loc)
        less = ast.BinOp(self.rt("fuel"), ast.Sub(), self.const(1), **self.loc)
        test = ast.Compare(self.name("f_"), [ast.Lt()], [self.const(0)], **self.loc)
        tick = ast.Expr(self.await_(self.call(self.rt("tick"), [])), **self.loc)
        return [ast.Assign([left, target], less, **self.loc), ast.If(test, [tick], [], **self.loc)]

    def helper(self, params: list[Var], args: list[ast.expr], build: Callable[[], None], dest: Dest) -> None:
        """Continue in a nested function, for fresh variables in a loop and where Python blocks would nest too deep."""
        self.counter += 1
        name = f"h{self.counter}"
        fn = PyFn(self.fn.kind, tail_ok=self.fn.tail_ok and dest is RETURN)
        definition = self.function(name, [each.py for each in params], None, fn, build, prologue=False)
        self.body.append(definition)
        value = self.await_(self.call(self.name(name), [self.name("rt"), self.deeper(), *args]))
        if fn.crossing is None:
            self.deliver(value, dest)
            return
        result = self.spill(value)
        loop = self.loops[fn.crossing]
        test = self.is_(result, self.const_param(AGAIN, "AGAIN"))
        jump: list[ast.stmt]
        if loop.fn is self.fn:
            jump, _ = self.capture(lambda: self._go_round(loop))
        else:
            self.fn.crossing = fn.crossing
            jump = [ast.Return(self.const_param(AGAIN, "AGAIN"), **self.loc)]
        self.body.append(ast.If(test, jump, [], **self.loc))
        self.deliver(result, dest)

    def _go_round(self, loop: Loop) -> None:
        if loop.params:
            targets: list[ast.expr] = [ast.Name(each.py, STORE, **self.loc) for each in loop.params]
            self.body.append(ast.Assign([ast.Tuple(targets, STORE, **self.loc)], self.rt("again"), **self.loc))
        self.body.append(ast.Continue(**self.loc))

    def bind(self, var: Var, value: ast.expr) -> None:
        """Assign a variable its initial value."""
        self.names[var.py] = var.name
        self.assign(var.py, value)
        self.own(var)

    def own(self, var: Var) -> None:
        """Record the strand that a variable belongs to, if ``set!`` elsewhere has to check it."""
        self.names[var.py] = var.name
        if var.shared:
            self.assign(f"o_{var.py}", self.name("rt"))


Expression = Callable[[Generator, Any], ast.expr]
Statement = Callable[[Generator, Any, Dest], None]
_EXPR: dict[type[Any], Expression] = {}
_STMT: dict[type[Any], Statement] = {}


def expression(*kinds: type[Any]) -> Callable[[Expression], Expression]:
    """Declare that the function compiles these kinds of node to Python expressions."""

    def mark(function: Expression) -> Expression:
        for kind in kinds:
            _EXPR[kind] = function
        return function

    return mark


def statement(*kinds: type[Any]) -> Callable[[Statement], Statement]:
    """Declare that the function compiles these kinds of node to Python statements."""

    def mark(function: Statement) -> Statement:
        for kind in kinds:
            _STMT[kind] = function
        return function

    return mark
