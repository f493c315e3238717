"""Tests for boxes in code of a flow with a policy: values in none of them go to the function itself, the others to its twin."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import reduce

from agentflow.core.data.labels import UNBOXED, Label
from agentflow.core.data.values import OrderedSet
from agentflow.lang.codegen import Generator
from agentflow.lang.generated import STORE

_KINDS = {
    "r": (UNBOXED, "UNBOXED"),
    "c": (frozenset((*UNBOXED, dict, OrderedSet)), "KEYED"),
    "n": (frozenset((*UNBOXED, list, tuple)), "LISTED"),
}
Written = Callable[[Sequence[ast.expr]], ast.expr]
"""Writes the code for values, which are simple."""


def is_simple(value: ast.expr) -> bool:
    """Whether reading an expression again is nothing but that."""
    return isinstance(value, ast.Name | ast.Constant)


def unless_boxed(g: Generator, letters: str, values: Sequence[ast.expr], plain: Written, boxed: Written) -> ast.expr:
    """``plain`` for values that stand in no box, and cannot hold one that counts; else ``boxed``.

    For the letter ``o`` of a value no box that it holds counts, for ``r`` all do, for ``c`` those in lists and tuples, for ``n`` those of keys.
    The values are evaluated once, in their order, before the first of them is tested.
    """
    last = max((at for at, each in enumerate(values) if not is_simple(each)), default=-1)
    first: list[ast.expr] = []
    again: list[ast.expr] = []
    for at, each in enumerate(values):
        kept = at <= last and not isinstance(each, ast.Constant)
        named = _named(g, each) if kept else each
        first.append(named)
        again.append(g.name(named.target.id) if isinstance(named, ast.NamedExpr) else each)
    looked = [at for at, each in enumerate(values) if not isinstance(each, ast.Constant)]
    if not looked:
        return plain(again)
    tests = [_test(g, letters[at], first[at]) for at in looked]
    # ``and`` leaves out the tests after one that fails, and with them what they were to evaluate.
    early = [test for at, test in zip(looked, tests, strict=True) if at <= last]
    late = [test for at, test in zip(looked, tests, strict=True) if at > last]
    if early:
        late.insert(0, reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b, **g.loc), early))
    test = late[0] if len(late) == 1 else ast.BoolOp(ast.And(), late, **g.loc)
    return g.ifexp(test, plain(again), boxed(again))


def _named(g: Generator, value: ast.expr) -> ast.expr:
    return ast.NamedExpr(ast.Name(g.tmp(), STORE, **g.loc), value, **g.loc)


def _test(g: Generator, letter: str, value: ast.expr) -> ast.expr:
    kind = g.call(g.const_param(type, "type_"), [value])
    if letter == "o":
        return g.is_(kind, g.const_param(Label, "T_Label"), negate=True)
    kinds, name = _KINDS[letter]
    return ast.Compare(kind, [ast.In()], [g.const_param(kinds, name)], **g.loc)
