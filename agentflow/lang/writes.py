"""Which variables a part of a program may change: what a test on which it depends has to mark beforehand (``strict`` policies)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias, cast

from agentflow.lang import ir
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.ir import Var

Target: TypeAlias = "Var | str"
"""A variable that is changed: a lexical one, or the name of one of the environment."""


def targets(node: Any) -> tuple[Target, ...]:
    """What code within ``node`` sets, or defines in the environment, procedures and branches in it included; not its own variables."""
    written: dict[int | str, Target] = {}
    inner: set[int] = set()
    pending: list[Any] = [node]
    while pending:
        at = pending.pop()
        if isinstance(at, ir.SetLocal):
            written[id(at.var)] = at.var
        elif isinstance(at, ir.SetGlobal | ir.DefineGlobal):
            written[at.name] = at.name
        for each in _variables(at):
            inner.add(id(each))
        pending.extend(_parts(at))
    return tuple([target for key, target in written.items() if key not in inner])


def _variables(node: Any) -> Iterable[Var]:
    """The variables that a node binds for its parts."""
    match node:
        case ir.Let():
            return node.vars
        case ir.NamedLoop():
            return node.params
        case ir.Lambda():
            return [*node.params, *([node.rest] if node.rest else [])]
        case ir.Clause():
            return [node.bind] if node.bind else []
        case ir.Try():
            return [node.var] if node.var else []
        case ir.Pair():
            return [node.var]
        case _:
            return []


def _parts(node: Any) -> list[Any]:
    if type(node) in (list, tuple):
        return list(cast("list[Any]", node))
    if not is_dataclass(node) or isinstance(node, Primitive):
        return []
    values = [getattr(node, each.name) for each in fields(node)]
    return [each for each in values if type(each) in (list, tuple) or is_dataclass(each)]
