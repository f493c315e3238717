"""Large programs: parts of them become nested functions, which can be compiled separately (:mod:`agentflow.lang.kernel.pieces`)."""

from __future__ import annotations

from typing import Any, TypeAlias

from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.nodes import Const, Node, Seq, Set, Variable
from agentflow.lang.kernel.walking import parts

PIECE = 2_000
"""Number of Python nodes from which on a piece becomes a separate function."""
_CALL = 20
"""Number of Python nodes in the call of such a function."""
_VALUE = 5
"""Number of Python nodes of an operand that such a function returns together with others."""

_SIZES: dict[type[Node], int] = {
    nodes.Const: 1,
    nodes.Seq: 0,
    nodes.If: 4,
    nodes.Logic: 4,
    nodes.Lambda: 45,
    nodes.Thunk: 30,
    nodes.Call: 60,
    nodes.EitherPair: 120,
    nodes.EitherLink: 120,
    nodes.Prim: 20,
    nodes.NamedLet: 35,
    nodes.For: 35,
    nodes.While: 35,
    nodes.Try: 50,
}
"""The Python nodes of a node other than those of its parts."""
_OTHER = 12
_OF_CELLS, _OF_LOCALS = {nodes.Ref: 12, nodes.Set: 20}, {nodes.Ref: 1, nodes.Set: 8}
"""The same of nodes with a variable: one of the environment, or a local one."""
_OPERANDS: dict[type[Node], str] = {
    nodes.Call: "args",
    nodes.Prim: "args",
    nodes.Perform: "args",
    nodes.Op: "args",
    nodes.NamedLet: "inits",
    nodes.Again: "args",
}
"""The field that holds the operands, which are evaluated in order."""
_SINGLE: dict[type[Node], tuple[str, ...]] = {
    nodes.Set: ("value",),
    nodes.EitherPair: ("value", "applied"),
    nodes.NamedLet: ("body",),
    nodes.For: ("body",),
    nodes.While: ("test", "body"),
    nodes.Try: ("body",),
}
"""The fields that hold one part each, which may continue in a function of its own."""
_LEAVES = (nodes.Const, nodes.Ref)
"""Nodes without parts: most are."""
_WHOLE = (nodes.Lambda, nodes.Thunk, nodes.EitherPair, nodes.EitherLink)
"""Nodes that are functions already, or no expressions."""

Groups: TypeAlias = "dict[int, list[list[Any]]]"
"""Operands in groups, by the identity of their list; each group of several is evaluated in a function of its own."""


def hoist(tree: Node, limit: int) -> Groups | None:
    """Let the large pieces of ``tree`` continue in functions of their own; None if its size is below ``limit``."""
    order: list[Node] = [tree]
    size = 0
    for node in order:
        size += _own(node)
        for each in parts(node):
            if type(each) in _LEAVES:
                size += _own(each)
            else:
                order.append(each)
    if size < limit:
        return None
    hoister = _Hoister()
    for node in reversed(order):
        hoister.visit(node)
    return hoister.groups


def _own(node: Node) -> int:
    if isinstance(node, nodes.Ref | Set):
        return (_OF_CELLS if isinstance(node.variable, str) else _OF_LOCALS)[type(node)]
    return _SIZES.get(type(node), _OTHER)


class _Hoister:
    """Sizes of the nodes visited, each at most one item above :data:`PIECE`; parts are visited before the whole."""

    def __init__(self) -> None:
        self.sizes: dict[Node, int] = {}
        self.groups: Groups = {}

    def size(self, node: Node) -> int:
        return _own(node) if type(node) in _LEAVES else self.sizes[node]

    def visit(self, node: Node) -> None:
        for name in _SINGLE.get(type(node), ()):
            setattr(node, name, self.apart(getattr(node, name)))
        if isinstance(node, nodes.Seq):
            self.sequence(node)
        elif isinstance(node, nodes.Logic):
            node.items = self.tested([self.apart(each) for each in node.items], node)
        elif isinstance(node, nodes.If):
            self.choice(node)
        elif isinstance(node, nodes.Try):
            node.handlers = [(names, variable, self.apart(body)) for names, variable, body in node.handlers]
        elif isinstance(node, nodes.Either):
            self.group(node.pairs)
        elif type(node) in _OPERANDS:
            operands: list[Node] = getattr(node, _OPERANDS[type(node)])
            operands[:] = [self.apart(each) for each in operands]
            self.group(operands)
        self.measure(node)

    def measure(self, node: Node) -> None:
        """Record the size of a node with final parts."""
        size = _own(node)
        if isinstance(node, nodes.Lambda | nodes.Thunk):
            body = self.size(node.body)
            size += body if body < PIECE else 0
        else:
            for each in parts(node):
                size += self.size(each)
        self.sizes[node] = size

    def apart(self, node: Node) -> Node:
        """The node, or if it is large the call of a function with its code. A variable belongs to the function that gives it its first value."""
        if self.size(node) < PIECE or isinstance(node, _WHOLE) or (isinstance(node, Set) and node.how != "set"):
            return node
        return self.piece(node.at, [node])

    def piece(self, at: Any, items: list[Node]) -> Node:
        node = Seq(at, items, apart=True)
        self.sizes[node] = _CALL
        return node

    def split(self, items: list[Any]) -> list[list[Any]]:
        """Neighbours in groups of about the size of a piece; a single group when the whole is not large."""
        groups: list[list[Any]] = [[]]
        size = 0
        for item in items:
            if size >= PIECE:
                groups.append([])
                size = 0
            groups[-1].append(item)
            size += self.size(item)
        return groups

    def sequence(self, node: Seq) -> None:
        """The items of a sequence, in pieces if they are large together; these share the variables of its scope."""
        items = [self.apart(each) for each in node.items]
        groups = self.split(items)
        if len(groups) > 1:
            bound = [each.variable for each in items if isinstance(each, Set) and each.how == "bind"]
            variables = [each for each in bound if isinstance(each, Variable)]
            node.variables = list(dict.fromkeys([*node.variables, *variables]))
            items = [self.piece(group[0].at, [*group, self.nothing(group)]) for group in groups[:-1]]
            items.append(self.piece(groups[-1][0].at, groups[-1]) if len(groups[-1]) > 1 else groups[-1][0])
        node.items = items

    def nothing(self, group: list[Node]) -> Const:
        return Const(group[-1].at, None)

    def tested(self, items: list[Node], node: nodes.Logic) -> list[Node]:
        """The items of ``and`` or ``or``, as several of them in a row if they are large together."""
        groups = self.split(items)
        if len(groups) == 1:
            return items
        tests: list[Node] = []
        for group in groups:
            part = nodes.Logic(group[0].at, node.every, group)
            tests.append(self.piece(part.at, [part]) if len(group) > 1 else group[0])
        return tests

    def choice(self, node: nodes.If) -> None:
        """The clauses of a choice; when they are large together, the later ones become the ``other`` of the first."""
        node.other = self.apart(node.other)
        clauses = [(self.apart(test), self.apart(arm)) for test, arm in node.clauses]
        groups: list[list[tuple[Node, Node]]] = [[]]
        size = 0
        for test, arm in clauses:
            if size >= PIECE:
                groups.append([])
                size = 0
            groups[-1].append((test, arm))
            size += self.size(test) + self.size(arm) + _SIZES[nodes.If]
        node.clauses, *others = groups
        for group in reversed(others):
            node.other = self.piece(node.at, [nodes.If(node.at, group, node.other)])

    def group(self, items: list[Any]) -> None:
        """Operands in groups, if they are large together and not for their number alone."""
        if len(items) < 2 or sum(map(self.size, items)) < max(PIECE, 2 * _VALUE * len(items)):
            return
        groups = self.split(items)
        self.groups[id(items)] = groups
        for group in groups:
            if len(group) > 1:
                self.sizes.update(dict.fromkeys(group, _VALUE))
