"""The nodes within a node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any, cast

from agentflow.lang.kernel.nodes import Const, Node


@cache
def _fields_with_nodes(kind: type[Node]) -> tuple[str, ...]:
    plain = ("at", "loop", "frame", "info", "params", "rest", "variables", "constants")
    return () if kind is Const else tuple([each.name for each in fields(kind) if each.name not in plain])


def parts(node: Node) -> list[Node]:
    """The nodes directly within one, in order."""
    within: list[Node] = []
    for name in _fields_with_nodes(type(node)):
        at = getattr(node, name)
        if isinstance(at, Node):
            within.append(at)
        elif type(at) is list or type(at) is tuple:
            _add_nodes(cast("Iterable[Any]", at), within)
    return within


def _add_nodes(items: Iterable[Any], within: list[Node]) -> None:
    for each in items:
        if isinstance(each, Node):
            within.append(each)
        elif type(each) is tuple or type(each) is list:
            _add_nodes(cast("Iterable[Any]", each), within)
