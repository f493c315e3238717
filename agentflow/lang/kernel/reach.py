"""The variables that a part of a program may change, the ways to leave it, and the containers that are a function's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.nodes import FrameLayout, Node, Variable
from agentflow.lang.kernel.walking import parts
from agentflow.lang.python import values

Target = Variable | str
Change: TypeAlias = Literal["assigned", "deleted", "held"]


def holder(node: Node, kept: Mapping[Variable, Node] | None = None) -> Target | None:
    """The variable at the head of a chain of elements, fields and calls; ``kept`` are the values of variables without a name."""
    while True:
        if isinstance(node, nodes.Call):
            node = node.function
        elif isinstance(node, nodes.Prim) and node.args:
            node = node.args[0]
        elif kept and isinstance(node, nodes.Ref) and isinstance(node.variable, Variable) and node.variable in kept:
            node = kept[node.variable]
        else:
            return node.variable if isinstance(node, nodes.Ref) else None


def root(node: Node, kept: Mapping[Variable, Node]) -> Target | None:
    """The variable that a value is certainly reached from, by elements and fields alone: marking all that it holds marks the value."""
    while True:
        if isinstance(node, nodes.Prim) and node.function in (values.element, values.member):
            node = node.args[0]
        elif isinstance(node, nodes.Ref) and isinstance(node.variable, Variable) and node.variable in kept:
            node = kept[node.variable]
        else:
            return node.variable if isinstance(node, nodes.Ref) else None


def written(node: Node, changed: Callable[[nodes.Prim], int | None]) -> dict[Target, set[Change]]:
    """The variables that a part may change, other than its own, and how: it assigns or deletes them, or changes the containers in them.

    ``changed`` gives the operand that a function changes, by position; None for one that changes nothing.
    """
    targets: dict[Target, set[Change]] = {}
    inside, own = _within(node)
    kept = {
        at.variable: at.value
        for at in inside
        if isinstance(at, nodes.Set) and isinstance(at.variable, Variable) and not at.variable.name
    }
    for at in inside:
        for target in _assigned(at):
            targets.setdefault(target, set()).update(
                ("assigned", "deleted") if isinstance(at, text_nodes.Del) else ("assigned",)
            )
        if isinstance(at, nodes.Prim) and (operand := changed(at)) is not None:
            target = holder(at.args[operand], kept)
            if target is not None:
                targets.setdefault(target, set()).add("held")
    return {each: how for each, how in targets.items() if _is_outside(each, own)}


def _within(node: Node) -> tuple[list[Node], set[FrameLayout]]:
    """A node and all within it, and the frames of their own variables."""
    inside: list[Node] = []
    pending: list[Node] = [node]
    while pending:
        at = pending.pop()
        inside.append(at)
        pending += parts(at)
    return inside, {frame for at in inside if (frame := getattr(at, "frame", None)) is not None}


def _assigned(node: Node) -> list[Target]:
    """The variables that a node itself assigns or deletes."""
    if isinstance(node, nodes.Set | text_nodes.Del):
        return [node.variable]
    if isinstance(node, nodes.For):
        return [] if node.item is None else [node.item]
    return [each for _, each, _ in node.handlers if each is not None] if isinstance(node, nodes.Try) else []


def _is_outside(target: Target, own: set[FrameLayout]) -> bool:
    """Whether a variable is one of the environment, or has a name and is in none of these frames."""
    return isinstance(target, str) or (target.frame not in own and bool(target.name))


def used(procedure: nodes.Lambda) -> list[Target]:
    """The variables from outside that a procedure reads or writes, in no order."""
    inside, own = _within(procedure)
    read: list[Target] = [at.variable for at in inside if isinstance(at, nodes.Ref)]
    every = dict.fromkeys([*read, *[each for at in inside for each in _assigned(at)]])
    return [each for each in every if _is_outside(each, own)]


def exits(node: Node) -> tuple[bool, bool]:
    """Whether a part may be left by ``return``, and by a jump of a loop around it."""
    returns = jumps = False
    pending: list[tuple[Node, bool]] = [(node, False)]
    while pending:
        at, looping = pending.pop()
        if isinstance(at, text_nodes.Leave):
            returns = returns or at.how == "return"
            jumps = jumps or (at.how != "return" and not looping)
        elif isinstance(at, nodes.Again):
            jumps = jumps or not looping
        elif isinstance(at, text_nodes.Yield):
            returns = True
        elif isinstance(at, nodes.NamedLet):
            pending += [(at.body, True), *[(each, looping) for each in at.inits]]
        elif isinstance(at, nodes.For | nodes.While):
            pending.append((at.body, True))
            if at.other is not None:
                pending.append((at.other, looping))
        elif not isinstance(at, nodes.Lambda | nodes.Thunk | text_nodes.Collect):
            pending += [(each, looping) for each in parts(at)]
    return returns, jumps


def is_left_early(items: list[Node]) -> bool:
    """Whether control may leave other than at the end."""
    return any(True in exits(each) for each in items)


def owned(
    variable: Variable,
    body: Node,
    *,
    is_new: Callable[[nodes.Prim], bool],
    reads: Callable[[nodes.Prim, int], bool],
    gives_back: Callable[[nodes.Prim], int | None],
) -> bool:
    """Whether the container in a variable is made in its function, which stores it nowhere and gives it to no other code before it ends.

    An error that jumps over a change of it then leaves nothing behind. It may be read, changed and given back, and stored nowhere.
    ``is_new`` says whether a function gives a container of its own, ``reads`` whether it only reads, or changes, an operand,
    ``gives_back`` which operand is its value.
    """
    if not variable.private or not variable.name or variable.parameter:
        return False
    pending: list[tuple[Node, bool]] = [(body, False)]
    while pending:
        at, allowed = pending.pop()
        if isinstance(at, nodes.Ref):
            if at.variable is variable and not allowed:
                return False
            continue
        if isinstance(at, nodes.For) and at.item is variable:
            return False
        if isinstance(at, nodes.Try) and any(each is variable for _, each, _ in at.handlers):
            return False
        if isinstance(at, nodes.Set) and at.variable is variable:
            value = at.value
            if isinstance(value, nodes.Prim):
                same = gives_back(value)
                stays = same is not None and isinstance(ref := value.args[same], nodes.Ref) and ref.variable is variable
                if not stays and not is_new(value):
                    return False
            elif not isinstance(value, text_nodes.Collect):
                return False
        if isinstance(at, nodes.Prim):
            pending += [(each, reads(at, index)) for index, each in enumerate(at.args)]
            continue
        if isinstance(at, nodes.If):  # its value is that of an arm
            pending += [(test, True) for test, _ in at.clauses]
            pending += [(arm, allowed) for arm in (*[each for _, each in at.clauses], at.other)]
            continue
        held = isinstance(at, text_nodes.Leave | nodes.For | nodes.While)
        pending += [(each, held) for each in parts(at)]
    return True
