"""Nodes of Python code: most are made in half the time that their classes take."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from agentflow.lang.codegen import Generator
from agentflow.lang.generated import LOAD

_new_name, _new_constant, _new_call, _new_attribute, _new_choice, _new_comparison = (
    each.__new__ for each in (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.IfExp, ast.Compare)
)
_IS, _IS_NOT = ast.Is(), ast.IsNot()


class Nodes(Generator):
    """A generator that makes its small nodes without a call of their classes, which check what is known here."""

    def name(self, name: str) -> ast.expr:
        """A name. Most nodes are such; this makes them in half the time that their class takes."""
        node = _new_name(ast.Name)
        node.__dict__ = {**self.loc, "id": name, "ctx": LOAD}
        return node

    def const(self, value: Any) -> ast.expr:
        """A constant, likewise."""
        node = _new_constant(ast.Constant)
        node.__dict__ = {**self.loc, "value": value, "kind": None}
        return node

    def call(self, function: ast.expr, args: Sequence[ast.expr]) -> ast.Call:
        """A call, likewise."""
        node = _new_call(ast.Call)
        node.__dict__ = {**self.loc, "func": function, "args": list(args), "keywords": []}
        return node

    def attr(self, value: ast.expr, name: str) -> ast.expr:
        """An attribute, likewise."""
        node = _new_attribute(ast.Attribute)
        node.__dict__ = {**self.loc, "value": value, "attr": name, "ctx": LOAD}
        return node

    def rt(self, name: str) -> ast.expr:
        """A member of the strand."""
        return self.attr(self.name("rt"), name)

    def await_(self, value: ast.expr) -> ast.expr:
        """``await value``."""
        return ast.Await(value, **self.loc)

    def ifexp(self, test: ast.expr, then: ast.expr, other: ast.expr) -> ast.expr:
        """``then if test else other``."""
        node = _new_choice(ast.IfExp)
        node.__dict__ = {**self.loc, "test": test, "body": then, "orelse": other}
        return node

    def is_(self, a: ast.expr, b: ast.expr, *, negate: bool = False) -> ast.expr:
        """``a is b``, or ``a is not b``."""
        node = _new_comparison(ast.Compare)
        node.__dict__ = {**self.loc, "left": a, "ops": [_IS_NOT if negate else _IS], "comparators": [b]}
        return node
