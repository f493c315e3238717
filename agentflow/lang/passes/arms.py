"""Marks the branches of a program, so that a run reports which of them it reached, and how often its loops went round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Source, Span
from agentflow.lang import ir
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.checks import children
from agentflow.lang.syntax import Node

ArmKind: TypeAlias = Literal["then", "else", "clause", "operand", "body", "handler", "branch", "round"]
"""The kind of a part that some runs reach and others do not. A ``round`` is another round of a ``while``, or a procedure
called from within itself, directly or indirectly."""


@frozen
class Arm:
    """A part of a program that need not be reached: its kind and location; a round with its loop or procedure."""

    kind: ArmKind
    span: Span
    loop: Span | None = None

    def __str__(self) -> str:
        return f"{self.kind} at {self.span.line}:{self.span.column}"


def mark_arms(source: Source, tree: ir.Seq, reach: Callable[[int], None]) -> list[Arm]:
    """Have the program ``tree`` call ``reach`` with the number of each arm that it comes to; the arms, by number.

    The tree is changed in place, and means the same.
    """
    marker = _Marker(source, reach)
    marker.walk(tree)
    marker.mark_recursion()
    return marker.arms


class _NamedCall(NamedTuple):
    """A call of a procedure that has a name, the node it is part of, and the procedures around it, the innermost last."""

    call: ir.Call
    parent: Any
    callee: object
    around: Mapping[object, Node]


class _Marker:
    def __init__(self, source: Source, reach: Callable[[int], None]) -> None:
        self.arms: list[Arm] = []
        self._source = source
        self._mark = Primitive(" arm", reach, "", "", (1, 1))
        self._calls: list[_NamedCall] = []

    def walk(self, tree: ir.IR) -> None:
        """Mark all arms but rounds of recursion."""
        seen: set[int] = set()
        pending: list[tuple[Any, Any, Mapping[object, Node]]] = [(tree, None, {})]
        while pending:
            node, parent, around = pending.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            named = _named_procedures(node)
            for part in reversed(children(node)):
                name = named.get(id(part))
                pending.append((part, node, around if name is None else {**around, name: part.at}))
            if isinstance(node, ir.NamedLoop):
                pending.append((node.body, node, {**around, node.loop: node.at}))
            if isinstance(node, ir.Call) and (callee := _procedure(node.operator)) is not None:
                self._calls.append(_NamedCall(node, parent, callee, around))
            self._visit(node)

    def mark_recursion(self) -> None:
        """Mark the calls that let a procedure reach itself again."""
        calls: defaultdict[object, set[object]] = defaultdict(set)
        for each in self._calls:
            for caller in each.around:
                calls[caller].add(each.callee)
        for call, parent, callee, around in self._calls:
            reached = _reachable(callee, calls)
            loops = [at for name, at in around.items() if name in reached]
            if loops:
                self._mark_call(call, parent, loops[-1])

    def _visit(self, node: Any) -> None:
        match node:
            case ir.If():
                node.then = self._marked("then", node.then)
                node.other = self._marked("else", node.other)
            case ir.Cond():
                for clause in node.clauses:
                    clause.body = self._marked("clause", clause.body)
                node.other = self._marked("else", node.other)
            case ir.Logic():
                node.items[1:] = [self._marked("operand", item) for item in node.items[1:]]
            case ir.Lambda() | ir.Repeat():
                node.body = self._marked("body", node.body)
            case ir.While():
                node.body = self._marked("round", node.body, node.at, node.at)
            case ir.Try() if node.handler is not None:
                node.handler = self._marked("handler", node.handler)
            case ir.Thunk() if node.function.kind == "branch":
                node.body = self._marked("branch", node.body)
            case _:
                pass

    def _mark_call(self, call: ir.Call, parent: Any, loop: Node) -> None:
        """Mark a call by its first operand, since its position decides whether it is a tail call."""
        if call.args and call.pairs is None:
            call.args[0] = self._marked("round", call.args[0], call.at, loop)
        else:
            _replace(parent, call, self._marked("round", call, call.at, loop))

    def _marked(self, kind: ArmKind, body: Any, at: Node | None = None, loop: Node | None = None) -> ir.Seq:
        number = len(self.arms)
        self.arms.append(Arm(kind, self._span(at or body.at), None if loop is None else self._span(loop)))
        return ir.Seq(body.at, [ir.PrimCall(body.at, self._mark, [ir.Const(body.at, number)]), body])

    def _span(self, at: Node) -> Span:
        return Span(self._source, at.start, at.end)


def _reachable(start: object, calls: Mapping[object, set[object]]) -> set[object]:
    """The procedures that one may come to, itself among them."""
    reached, pending = {start}, [start]
    while pending:
        for each in calls.get(pending.pop(), ()):
            if each not in reached:
                reached.add(each)
                pending.append(each)
    return reached


def _named_procedures(node: Any) -> dict[int, object]:
    """The procedures that a node names, by identity, with the keys that identify calls of them."""
    match node:
        case ir.Define() | ir.SetLocal():
            bound: list[tuple[object, Any]] = [(node.var, node.value)]
        case ir.DefineGlobal() | ir.SetGlobal():
            bound = [(node.name, node.value)]
        case ir.Let():
            bound = [*node.inits]
        case _:
            bound = []
    return {id(value): name for name, value in bound if isinstance(value, ir.Lambda)}


def _procedure(operator: ir.IR) -> object:
    """The key that identifies a call of a named procedure; None for other calls."""
    if isinstance(operator, ir.Local):
        return operator.var
    return operator.name if isinstance(operator, ir.Global) else None


def _replace(parent: Any, part: Any, by: Any) -> None:
    """Replace ``part`` in ``parent``, or in its marker there, by another node."""

    def replaced(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([replaced(each) for each in cast("tuple[Any, ...]", value)])
        if isinstance(value, ir.Seq) and value.items and value.items[-1] is part:
            value.items[-1] = by
        return by if value is part else value

    for field in fields(parent):
        value = getattr(parent, field.name)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            items[:] = [replaced(item) for item in items]
        elif field.name != "at":
            setattr(parent, field.name, replaced(value))
