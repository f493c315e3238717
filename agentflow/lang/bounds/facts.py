"""The facts about the nodes of a text that are collected before it is followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentflow.core.data.known_names import Template
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.nodes import Const, FrameLayout, Lambda, Node, Prim, Ref, Set, Variable
from agentflow.lang.kernel.walking import parts

Target = Variable | str


@dataclass(slots=True)
class _Assigned:
    """The nodes that assign a variable; ``again``: one of them may do so twice in one call; ``apart``: another function reads or assigns it."""

    by: list[Node] = field(default_factory=list[Node])
    again: bool = False
    apart: bool = False
    elsewhere: int = 0


class NodeFacts:
    """The facts about a text, from its nodes.

    ``nodes`` are all of them. ``module`` has a variable for each name of the environment that the text assigns, ``own`` the variables of each
    frame. ``templates`` are those that the text defines, by name. ``used`` are other names of the environment that stand for values. ``lasting`` are functions with values that their arguments determine.

    A variable that other code may assign meanwhile is *unsteady*: it may have any value. In S-expressions these are all that ``set!``
    changes, or that are defined more than once; in texts in Python those that several functions share, unless they are assigned once.
    """

    def __init__(self, root: Node, *, python: bool, lasting: frozenset[Any] = frozenset()) -> None:
        self.python = python
        self.lasting = lasting
        self.nodes: list[Node] = []
        self.module: dict[str, Variable] = {}
        self.own: dict[FrameLayout, list[Variable]] = {}
        self.templates: dict[str, list[Any]] = {}
        self.used: dict[str, None] = {}
        self._outermost = FrameLayout(None)
        self._assigned: dict[Variable, _Assigned] = {}
        self._unnamed: dict[Variable, list[Node]] = {}
        self._owners: dict[FrameLayout, Node | None] = {}
        self._reads: dict[Node, frozenset[Variable] | None] = {}
        self._written: dict[Node, dict[Variable, int]] = {}
        self._collect(root)
        top = set(root.items) if isinstance(root, nodes.Seq) else {root}
        for name, variable in self.module.items():
            by = self._assigned[variable].by
            fixed = len(by) == 1 and by[0] in top and isinstance(by[0], Set) and by[0].how != "set"
            variable.is_assigned = not fixed
            self.used.pop(name, None)
        for variable, each in self._assigned.items():
            shared = each.apart and (len(each.by) + each.elsewhere != 1 or each.again)
            variable.is_unsteady = shared if python else variable.is_assigned

    # -- collecting -----------------------------------------------------------------------------------------------

    def _collect(self, root: Node) -> None:
        """Walk the text: each node with the function that it belongs to, and whether one call of that may reach it again."""
        read: list[tuple[Target, Node | None]] = []
        pending: list[tuple[Node, Node | None, bool]] = [(root, None, False)]
        while pending:
            node, owner, again = pending.pop()
            self.nodes.append(node)
            if isinstance(node, Const):
                continue
            if isinstance(node, Prim):  # with constants, most nodes
                pending += [(each, owner, again) for each in node.args]
                continue
            if isinstance(node, Ref):
                read.append((node.variable, owner))
                if isinstance(node.variable, str):
                    self.used[node.variable] = None
                continue
            within, looped = parts(node), list[Node]()
            if isinstance(node, Lambda):
                inside = (
                    node if node.info.portable or not self.python else owner
                )  # a comprehension of branches belongs to the code around
                self._owners[node.frame] = inside
                for each in (*node.params, *([node.rest] if node.rest is not None else [])):
                    self._assign(each, node, inside, again=False)
                pending.append((node.body, inside, inside is owner))
                within = [each for each in within if each is not node.body]
            elif isinstance(node, nodes.For | nodes.While):
                looped = [node.body, *([node.test] if isinstance(node, nodes.While) else [])]
                within = [each for each in within if each not in looped]
            elif isinstance(node, text_nodes.Collect):
                within, looped = [], within
            elif isinstance(node, nodes.Op) and node.operation == "define-task":
                self.templates.setdefault(defined_name(node), []).append(node.constants[0])
            elif isinstance(node, nodes.Call) and isinstance(node.function, Ref):
                read.append((node.function.variable, owner))
                self.nodes.append(node.function)
                within = within[1:]
            frame = getattr(node, "frame", None)
            if frame is not None and not isinstance(node, Lambda):
                self._owners[frame] = owner
            for target in assigned_by(node):
                self._assign(target, node, owner, again=again or isinstance(node, nodes.For))
            pending += [(each, owner, again) for each in within]
            pending += [(each, owner, True) for each in looped]
        for target, owner in read:
            variable = self.variable(target)
            if variable is not None and variable in self._assigned and self._owners.get(variable.frame) is not owner:
                self._assigned[variable].apart = True

    def _assign(self, target: Target, node: Node, owner: Node | None, *, again: bool) -> None:
        if isinstance(target, str):
            variable = self.module.get(target)
            if variable is None:
                variable = self.module[target] = Variable(target, self._outermost)
        else:
            variable = target
        if not variable.name:
            self._unnamed.setdefault(variable, []).append(node)
            return
        assigned = self._assigned.get(variable)
        if assigned is None:
            assigned = self._assigned[variable] = _Assigned()
            self.own.setdefault(variable.frame, []).append(variable)
        assigned.by.append(node)
        assigned.again = assigned.again or again
        if self._owners.get(variable.frame) is not owner:
            assigned.apart = True
            assigned.elsewhere += 1

    # -- asking ---------------------------------------------------------------------------------------------------

    def variable(self, target: Target) -> Variable | None:
        """The variable that a node reads or assigns; None for one of the environment that the text does not assign."""
        return self.module.get(target) if isinstance(target, str) else target

    def once(self, variable: Variable) -> bool:
        """Whether one node assigns a variable, once in each call, so that it has one value there."""
        assigned = self._assigned.get(variable)
        return assigned is not None and len(assigned.by) + assigned.elsewhere == 1 and not assigned.again

    def setters(self, variable: Variable) -> list[Node]:
        """The nodes that change a variable by ``set!``."""
        assigned = self._assigned.get(variable)
        return [] if assigned is None else [each for each in assigned.by if isinstance(each, Set) and each.how == "set"]

    def defined(self, variable: Variable) -> int:
        """The number of definitions of a variable."""
        assigned = self._assigned.get(variable)
        return 0 if assigned is None else sum(isinstance(each, Set) and each.how == "define" for each in assigned.by)

    def definition(self, node: Node) -> Node:
        """The node with the value of a variable without a name that only one assigns; any other node as it is."""
        while isinstance(node, Ref | Set):
            if isinstance(node, Ref):
                by = self._unnamed.get(node.variable, ()) if isinstance(node.variable, Variable) else ()
                if len(by) != 1 or not isinstance(by[0], Set):
                    return node
                node = by[0]
            node = node.value
        return node

    def reads(self, node: Node) -> frozenset[Variable] | None:
        """The variables that determine the value of a node; None if they do not."""
        if node not in self._reads:
            self._reads[node] = self._read(self.definition(node))
        return self._reads[node]

    def _read(self, node: Node) -> frozenset[Variable] | None:
        if isinstance(node, Const):
            return frozenset()
        if isinstance(node, Ref):
            variable = self.variable(node.variable)
            if variable is None:
                return frozenset()
            return None if variable.is_unsteady and not self.python else frozenset({variable})
        if not isinstance(node, Prim) or not self.is_lasting(node):
            return None
        whole = frozenset[Variable]()
        for each in node.args:
            within = self.reads(each)
            if within is None:
                return None
            whole |= within
        return whole

    def is_lasting(self, node: Prim) -> bool:
        """Whether the arguments of a function determine its value."""
        if isinstance(node.row, Primitive):
            return not node.row.is_async
        return node.function in self.lasting and not node.names

    def written(self, loop: Node) -> Mapping[Variable, int]:
        """The number of assignments to each variable in a loop."""
        counts = self._written.get(loop)
        if counts is None:
            counts = self._written[loop] = {}
            for node in own_nodes(loop):
                for target in assigned_by(node):
                    variable = self.variable(target)
                    if variable is not None and variable.name:
                        counts[variable] = counts.get(variable, 0) + 1
        return counts

    def always_function(self, target: Target) -> bool:
        """Whether a name of the environment always stands for one function of the text."""
        variable = self.module.get(target) if isinstance(target, str) else None
        by = self._assigned[variable].by if variable is not None else ()
        return len(by) == 1 and isinstance(by[0], Set) and isinstance(by[0].value, Lambda)


def defined_name(node: nodes.Op) -> str:
    """The name of the task that a definition defines."""
    template: Template | dict[str, Any] = node.constants[0]
    return str(template["name"]) if isinstance(template, dict) else template.name


def assigned_by(node: Node) -> list[Target]:
    """The variables that a node assigns itself."""
    match node:
        case Set() | text_nodes.Del() | nodes.EitherPair():
            return [node.variable]
        case nodes.For():
            return [] if node.item is None else [node.item]
        case nodes.NamedLet():
            return [*node.params]
        case nodes.Try():
            return [variable for _, variable, _ in node.handlers if variable is not None]
        case _:
            return []


def own_nodes(*roots: Node) -> Iterator[Node]:
    """The nodes within some, without those of functions in them."""
    pending = [*roots]
    while pending:
        node = pending.pop()
        yield node
        pending.extend([] if isinstance(node, Lambda) else parts(node))
