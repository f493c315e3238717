"""The parts that all generated code is written with: small Python nodes with positions, constants, names, and functions being written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from agentflow.core.data.labels import Following
from agentflow.core.data.source import Source
from agentflow.lang.closure import LambdaInfo
from agentflow.lang.trace import Positions

LOAD, STORE = ast.Load(), ast.Store()
LESS = ast.Lt()
_IS, _IS_NOT, _AND, _OR, _NOT, _ADD, _SUB = ast.Is(), ast.IsNot(), ast.And(), ast.Or(), ast.Not(), ast.Add(), ast.Sub()
_new = ast.AST.__new__


class PyFn:
    """A Python function being written: the variables of functions around it that it assigns, and its own that others assign."""

    __slots__ = ("declared", "nonlocals")

    def __init__(self) -> None:
        self.nonlocals: set[str] = set()
        self.declared: set[str] = set()


class CodeWriter:
    """One translation. Its globals are ``constants``, (name, value); ``cells`` maps names of the environment to parameters of ``link``.

    ``labelled`` code takes values in boxes, and is otherwise the same. Nodes that most code consists of are created without calling their
    classes, with their needless checks.
    """

    def __init__(self, source: Source, defined: set[str], *, labelled: Following = False) -> None:
        self.source = source
        self.labelled: Following = labelled
        self.positions = Positions(source)
        self.defined = defined
        self.constants: list[tuple[str, Any]] = []
        self.constant_names: dict[Any, str] = {}
        self.packed: list[Any] = []
        self.packed_at: dict[Any, int] = {}
        self.cells: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.fn = PyFn()
        self.loc: dict[str, Any] = {}
        self.counter: int = 0
        self.lambdas: dict[str, LambdaInfo] = {}
        self.level = 0
        self.deepest = 0

    # -- nodes ----------------------------------------------------------------------------------------------------

    def name(self, name: str) -> ast.expr:
        """A name. Most nodes are names; this takes half the time of their class."""
        node = _new(ast.Name)
        node.__dict__ = {**self.loc, "id": name, "ctx": LOAD}
        return node

    def const(self, value: Any) -> ast.expr:
        """A constant, likewise."""
        node = _new(ast.Constant)
        node.__dict__ = {**self.loc, "value": value, "kind": None}
        return node

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
        """An attribute of a value."""
        node = _new(ast.Attribute)
        node.__dict__ = {**self.start, "value": value, "attr": name, "ctx": LOAD}
        return node

    def rt(self, name: str) -> ast.expr:
        """A member of the strand, one that :class:`~agentflow.lang.abi.Runtime` declares."""
        return self.attr(self.name("rt"), name)

    def call(self, function: ast.expr, args: Sequence[ast.expr]) -> ast.Call:
        """A call."""
        node = _new(ast.Call)
        node.__dict__ = {**self.loc, "func": function, "args": list(args), "keywords": []}
        return node

    def await_(self, value: ast.expr) -> ast.expr:
        """``await value``."""
        node = _new(ast.Await)
        node.__dict__ = {**self.loc, "value": value}
        return node

    def is_(self, a: ast.expr, b: ast.expr, *, negate: bool = False) -> ast.expr:
        """``a is b``, or ``a is not b``."""
        node = _new(ast.Compare)
        node.__dict__ = {**self.loc, "left": a, "ops": [_IS_NOT if negate else _IS], "comparators": [b]}
        return node

    def ifexp(self, test: ast.expr, then: ast.expr, other: ast.expr) -> ast.expr:
        """``then if test else other``."""
        node = _new(ast.IfExp)
        node.__dict__ = {**self.loc, "test": test, "body": then, "orelse": other}
        return node

    def stored(self, name: str) -> ast.expr:
        """A name that is assigned."""
        node = _new(ast.Name)
        node.__dict__ = {**self.loc, "id": name, "ctx": STORE}
        return node

    def named(self, name: str, value: ast.expr) -> ast.expr:
        """``(name := value)``."""
        node = _new(ast.NamedExpr)
        node.__dict__ = {**self.loc, "target": self.stored(name), "value": value}
        return node

    def compared(self, a: ast.expr, op: ast.cmpop, b: ast.expr) -> ast.expr:
        """``a op b``."""
        node = _new(ast.Compare)
        node.__dict__ = {**self.loc, "left": a, "ops": [op], "comparators": [b]}
        return node

    def combined(self, a: ast.expr, op: ast.operator, b: ast.expr) -> ast.expr:
        """``a op b``, of an operator that computes."""
        node = _new(ast.BinOp)
        node.__dict__ = {**self.loc, "left": a, "op": op, "right": b}
        return node

    def every(self, tests: list[ast.expr]) -> ast.expr:
        """The tests joined by ``and``."""
        node = _new(ast.BoolOp)
        node.__dict__ = {**self.loc, "op": _AND, "values": tests}
        return node

    def some(self, tests: list[ast.expr]) -> ast.expr:
        """The tests joined by ``or``."""
        node = _new(ast.BoolOp)
        node.__dict__ = {**self.loc, "op": _OR, "values": tests}
        return node

    def not_(self, value: ast.expr) -> ast.expr:
        """``not value``."""
        node = _new(ast.UnaryOp)
        node.__dict__ = {**self.loc, "op": _NOT, "operand": value}
        return node

    def tuple_of(self, values: list[ast.expr]) -> ast.expr:
        """A tuple."""
        node = _new(ast.Tuple)
        node.__dict__ = {**self.loc, "elts": values, "ctx": LOAD}
        return node

    def if_(self, test: ast.expr, body: list[ast.stmt], other: list[ast.stmt] | None = None) -> ast.If:
        """``if test: body``, and ``else: other``."""
        node = _new(ast.If)
        node.__dict__ = {**self.loc, "test": test, "body": body, "orelse": [] if other is None else other}
        return node

    def return_(self, value: ast.expr) -> ast.stmt:
        """``return value``."""
        node = _new(ast.Return)
        node.__dict__ = {**self.loc, "value": value}
        return node

    def done(self, value: ast.expr) -> ast.stmt:
        """A statement that computes a value and drops it."""
        node = _new(ast.Expr)
        node.__dict__ = {**self.loc, "value": value}
        return node

    def assignment(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        """``target = value``."""
        node = _new(ast.Assign)
        node.__dict__ = {**self.loc, "targets": [target], "value": value, "type_comment": None}
        return node

    def deeper(self, by: int = 1) -> ast.expr:
        """``d + 1``."""
        return self.combined(self.name("d"), _ADD, self.const(by))

    def fuel(self) -> list[ast.stmt]:
        """Take one step; at the end of the slice, call ``rt.tick``."""
        target = ast.Attribute(self.name("rt"), "fuel", STORE, **self.loc)
        less = self.combined(self.rt("fuel"), _SUB, self.const(1))
        test = self.compared(self.name("f_"), LESS, self.const(0))
        taken = ast.Assign([self.stored("f_"), target], less, **self.loc)
        return [taken, self.if_(test, [self.done(self.await_(self.call(self.rt("tick"), [])))])]

    def shared_variables(self, fn: PyFn, parameters: Sequence[str]) -> list[ast.stmt]:
        """The declarations at the beginning of a function: the variables around it that it assigns, and its own that functions within it assign."""
        head: list[ast.stmt] = []
        if fn.nonlocals:
            head.append(ast.Nonlocal(sorted(fn.nonlocals), **self.loc))
        declared: list[ast.expr] = [ast.Name(each, STORE, **self.loc) for each in sorted(fn.declared - set(parameters))]
        if declared:
            dead = ast.Assign(declared, self.const(None), **self.loc)
            head.append(ast.If(self.const(False), [dead], [], **self.loc))
        return head

    def coroutine(
        self, name: str, parameters: Sequence[str], body: list[ast.stmt], rest: str | None = None
    ) -> ast.AsyncFunctionDef:
        """``async def name(rt, d, *parameters)``."""
        args = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(each, None, **self.loc) for each in ("rt", "d", *parameters)],
            vararg=ast.arg(rest, None, **self.loc) if rest is not None else None,
            kwonlyargs=[],
            kw_defaults=[],
            kwarg=None,
            defaults=[],
        )
        definition = ast.AsyncFunctionDef(name, args, body or [ast.Pass(**self.loc)], [], None, **self.loc)
        definition.type_params = []  # type: ignore[attr-defined]
        return definition

    # -- names and constants --------------------------------------------------------------------------------------

    def tmp(self) -> str:
        """The name of a new temporary."""
        self.counter += 1
        return f"t{self.counter}"

    def const_param(self, value: Any, name: str | None = None) -> ast.expr:
        """A constant that is no literal, as a global of the code."""
        key = name or id(value)
        param = self.constant_names.get(key)
        if param is None:
            param = self.constant_names[key] = name or f"k{len(self.constants)}"
            self.constants.append((param, value))
        return self.name(param)

    def packed_constant(self, key: Any, make: Callable[[], Any]) -> ast.expr:
        """A constant used once in the program; all of these share one global, a tuple."""
        index = self.packed_at.get(key)
        if index is None:
            index = self.packed_at[key] = len(self.packed)
            self.packed.append(make())
        return ast.Subscript(self.name("K"), self.const(index), LOAD, **self.loc)

    def cell(self, name: str) -> ast.expr:
        """The environment's cell of ``name``."""
        param = self.cells.get(name)
        if param is None:
            param = self.cells[name] = f"c{len(self.cells)}"
        return self.name(param)

    def link(self, main: ast.AsyncFunctionDef) -> ast.FunctionDef:
        """``def link(E, *cells)``, which returns ``main``."""
        params = [ast.arg(each, None, **self.loc) for each in ("E", *self.cells.values())]
        args = ast.arguments([], params, None, [], [], None, [])
        link = ast.FunctionDef("link", args, [main, ast.Return(self.name("main"), **self.loc)], [], None, **self.loc)
        link.type_params = []  # type: ignore[attr-defined]
        return link


def is_bool(value: ast.expr) -> bool:
    """Whether code always yields True or False."""
    if isinstance(value, ast.Compare) or getattr(value, "_bool", False):
        return True
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.op, ast.Not)
    if isinstance(value, ast.BoolOp):
        return all(map(is_bool, value.values))
    if isinstance(value, ast.IfExp):
        return is_bool(value.body) and is_bool(value.orelse)
    if isinstance(value, ast.Constant):
        return type(value.value) is bool
    return False


def as_bool(value: ast.expr) -> ast.expr:
    """Note that code gives True or False."""
    value._bool = True  # type: ignore[attr-defined]
    return value
