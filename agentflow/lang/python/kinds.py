"""The exact types that variables and expressions always have, found before code is written: code does not test these.

A variable has one if all its assignments are visible and of that type: no inner function assigns it, and no outer
code can.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from agentflow.lang.python.names import LocalVariable, PythonScope, is_range

_MOST_STEPS = 12
"""The greatest distance from a variable in the search for its type: through expressions and other variables."""
_WHOLE = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
"""Operators that return only integers for integers."""
_DISPLAYS: dict[type[ast.AST], type[Any]] = {
    ast.JoinedStr: str,
    ast.List: list,
    ast.ListComp: list,
    ast.Dict: dict,
    ast.DictComp: dict,
}
"""Expressions with a form that determines their type."""


class Kinds:
    """The exact types of one text's variables. ``is_free`` returns whether a name without a variable means Python's own function."""

    def __init__(self, is_free: Callable[[str], bool]) -> None:
        self._is_free = is_free
        self._settled: dict[LocalVariable, type[Any] | None] = {}
        self._assumed: dict[LocalVariable, type[Any]] = {}
        self._tested: frozenset[LocalVariable] = frozenset()

    @contextmanager
    def tested(self, parameters: Iterable[LocalVariable]) -> Generator[None]:
        """A context for code that runs only after parameters were tested to be integers, and that nothing assigns again."""
        saved = (self._settled, self._tested)
        self._settled, self._tested = {}, frozenset(parameters)
        yield
        self._settled, self._tested = saved

    def of(self, code: ast.expr) -> type[Any] | None:
        """The exact type of the value of code; None if it may have any."""
        if isinstance(code, ast.Constant):
            return type(code.value)
        kind: type[Any] | None = getattr(code, "_kind", None)
        if kind is not None:
            return kind
        var: LocalVariable | None = getattr(code, "_var", None)
        return None if var is None else self.of_variable(var)

    def of_variable(self, var: LocalVariable) -> type[Any] | None:
        """The exact type that a variable always has; None if it may have any."""
        return self._of_variable(var, 0)

    def is_counted(self, code: ast.expr) -> bool:
        """Whether code certainly returns an integer that counts something: of at most 61 bits, so that its size is not charged for."""
        if getattr(code, "_counted", False):
            return True
        var: LocalVariable | None = getattr(code, "_var", None)
        if var is None or not var.is_seen or not var.values:
            return False
        return all(isinstance(each, ast.For | ast.comprehension) for each in var.values) and self.of(code) is int

    def _of_variable(self, var: LocalVariable, steps: int) -> type[Any] | None:
        if var in self._tested:
            return int
        if var in self._settled:
            return self._settled[var]
        if var in self._assumed:
            return self._assumed[var]
        if steps > _MOST_STEPS or not var.is_seen or not var.values:
            return None
        kind = self._by_form(var.values[0])
        if kind is None:
            kind = int
        before = len(self._assumed)
        self._assumed[var] = kind
        if all(self._assigned(each, var, steps + 1) is kind for each in var.values):
            if not before:
                self._settled.update(self._assumed)
                self._assumed.clear()
            return kind
        # Conclusions from the assumption are dropped with it; that this variable has no type holds without it all the more.
        for each in list(self._assumed)[before:]:
            del self._assumed[each]
        self._settled[var] = None
        return None

    def _by_form(self, node: ast.AST) -> type[Any] | None:
        if isinstance(node, ast.Constant):
            return type(node.value) if type(node.value) in (int, str) else None
        return _DISPLAYS.get(type(node))

    def _assigned(self, node: ast.AST, var: LocalVariable, steps: int) -> type[Any] | None:
        """The type of the value that one assignment gives to ``var``."""
        if isinstance(node, ast.AugAssign):
            if not isinstance(node.op, _WHOLE) or self._of_variable(var, steps) is not int:
                return None
            return int if self._of(node.value, var.scope, steps + 1) is int else None
        if isinstance(node, ast.For | ast.comprehension):
            return int if is_range(node.iter) and self._is_builtin("range", var.scope) else None
        return self._of(node, var.scope, steps)

    def _of(self, node: ast.AST, scope: PythonScope, steps: int) -> type[Any] | None:
        if steps > _MOST_STEPS:
            return None
        if isinstance(node, ast.Name):
            var = scope.find(node.id)
            return None if var is None else self._of_variable(var, steps + 1)
        if isinstance(node, ast.BinOp):
            whole = isinstance(node.op, _WHOLE) and self._of(node.left, scope, steps + 1) is int
            return int if whole and self._of(node.right, scope, steps + 1) is int else None
        if isinstance(node, ast.Call):
            plain = len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            return int if plain and name == "len" and self._is_builtin(name, scope) else None
        if isinstance(node, ast.IfExp):
            kind = self._of(node.body, scope, steps + 1)
            return kind if kind is not None and self._of(node.orelse, scope, steps + 1) is kind else None
        return self._by_form(node)

    def _is_builtin(self, name: str, scope: PythonScope) -> bool:
        return scope.find(name) is None and self._is_free(name)


def as_kind(code: ast.expr, kind: type[Any]) -> ast.expr:
    """Note the exact type of a code's value."""
    code._kind = kind  # type: ignore[attr-defined]
    return code


def as_counted(code: ast.expr) -> ast.expr:
    """Note that code returns an integer that counts something."""
    code._counted = True  # type: ignore[attr-defined]
    return as_kind(code, int)
