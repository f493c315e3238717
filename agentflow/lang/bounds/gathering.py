"""Procedures with a result no longer than their lists together: a merge of two lists, a filter, a copy.

Derived from the text of the procedure: each recursive call has to remove as many elements of its lists as are added to its
result. The lengths of lists that recursion builds do not show this, because they do not distinguish one path from another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import as_list
from agentflow.lang.bounds.facts import NodeFacts
from agentflow.lang.bounds.guards import Signs, operator_of
from agentflow.lang.bounds.polynomial import ZERO, Bound
from agentflow.lang.bounds.values import Mark, Value
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.kernel import nodes, text_nodes, walking
from agentflow.lang.kernel.nodes import Const, Lambda, Node, Prim, Ref, Set, Variable
from agentflow.lang.support import fresh


@frozen
class Dropping:
    """A procedure that drops elements: the positions of its list and of the number to drop. This holds only if all ``operators`` of its recursive calls
    are the procedure itself."""

    listed: int
    count: int
    operators: Sequence[Node]


def dropping(code: Lambda) -> Dropping | None:
    """The dropping that a procedure of S-expressions performs; None if it is not recognised.

    It calls itself in tail position with the rest of the list and one less, and returns the list when the number is not above
    0, or an empty list. At most as many elements as the list has, less the number, are then left.
    """
    first = next(_recursive_calls(code.body), None)
    if first is None or code.rest is not None or len(first.args) != len(code.params):
        return None
    listed = [at for at, each in enumerate(first.args) if _is_call(each, "rest", code.params[at])]
    count = [at for at, each in enumerate(first.args) if _is_call(each, "-", code.params[at], 1)]
    if len(listed) != 1 or len(count) != 1:
        return None
    walk = _DroppingWalk(code, listed[0], count[0])
    return Dropping(listed[0], count[0], walk.operators) if walk.leaves(code.body, ended=False) else None


def left_of(listed: Value, count: Value) -> Bound | None:
    """An upper bound of the length of a list without its first ``count`` elements; None if no relation of the two is bounded."""
    length = listed.elements
    if length is None or length.terms is None:
        return None
    for parameter, mark in count.length_of.items():
        if mark.delta is not None and mark.drop == 0 and listed.marks.get(parameter) == Mark():
            share, more = 1 - 1 / mark.divisor, (mark.divisor - 1 - mark.delta) / mark.divisor
            return length * Bound.of(share) + Bound.of(more)
    return None


class _DroppingWalk:
    """Walks the ways that a procedure returns."""

    def __init__(self, code: Lambda, listed: int, count: int) -> None:
        self.operators: list[Node] = []
        self._code = code
        self._at = listed, count
        self._listed, self._count = code.params[listed], code.params[count]

    def leaves(self, node: Node, *, ended: bool) -> bool:
        """Whether every result is the remainder of the list; ``ended``: enough was dropped, or nothing is left."""
        match node:
            case nodes.If():
                for test, arm in node.clauses:
                    if not self.leaves(arm, ended=ended or self._ends(test, truth=True)):
                        return False
                    ended = ended or self._ends(test, truth=False)
                return self.leaves(node.other, ended=ended)
            case nodes.Call(is_tail=True) | nodes.Again():
                return self._goes_on(node)
            case nodes.Seq(items=[only]):
                return self.leaves(only, ended=ended)
            case _:
                return (ended and _is(node, self._listed)) or _length_of_constant(node) == 0

    def _goes_on(self, node: nodes.Call | nodes.Again) -> bool:
        listed, count = self._at
        if isinstance(node, nodes.Call):
            self.operators.append(node.function)
        elif node.loop.params is not self._code.params:
            return False
        return (
            len(node.args) == len(self._code.params)
            and _is_call(node.args[listed], "rest", self._listed)
            and _is_call(node.args[count], "-", self._count, 1)
        )

    def _ends(self, test: Node, *, truth: bool) -> bool:
        """Whether the outcome ``truth`` of a test implies that the number is not above 0, or the list empty."""
        if isinstance(test, nodes.Logic):
            each = [self._ends(item, truth=truth) for item in test.items]
            return any(each) if test.every == truth else all(each)
        name, operands = operator_of(test, {})
        if not operands:
            return False
        first = operands[0]
        if name == "not":
            return self._ends(first, truth=not truth)
        if _is(first, self._listed):
            return (name, truth) in (("null?", True), ("pair?", False))
        if not _is(first, self._count):
            return False
        bound = operands[1].value if len(operands) == 2 and isinstance(operands[1], Const) else None
        return (name, bound if isinstance(bound, int) else None, truth) in _NOT_ABOVE_ZERO


_NOT_ABOVE_ZERO = frozenset(
    {
        ("=", 0, True),
        ("<=", 0, True),
        ("<", 1, True),
        (">", 0, False),
        (">=", 1, False),
        ("zero?", None, True),
        ("positive?", None, False),
    }
)
"""Tests of a number that counts down in steps of 1, with their outcome when it is not above 0 - or, with ``<`` and ``>=``, below 1."""


def _recursive_calls(node: Node) -> Iterator[nodes.Call | nodes.Again]:
    """The calls in tail position of a procedure."""
    pending: list[Node] = [node]
    while pending:
        each = pending.pop()
        match each:
            case nodes.If():
                pending += [*(arm for _, arm in each.clauses), each.other]
            case nodes.Seq(items=[only]):
                pending.append(only)
            case nodes.Call(is_tail=True) | nodes.Again():
                yield each
            case _:
                pass


def _is(node: Node, variable: Variable) -> bool:
    return isinstance(node, Ref) and node.variable is variable and not variable.is_unsteady


def _is_call(node: Node, name: str, variable: Variable, number: int | None = None) -> bool:
    """Whether a node is ``(name variable)``, or ``(name variable number)``."""
    if not isinstance(node, Prim) or not isinstance(node.row, Primitive) or node.row.canonical != name or not node.args:
        return False
    others = [each.value if isinstance(each, Const) else None for each in node.args[1:]]
    return _is(node.args[0], variable) and others == ([] if number is None else [number])


def _length_of_constant(node: Node) -> int | None:
    """The length of a constant list; None for any other node."""
    if isinstance(node, Prim) and node.function is fresh:
        node = node.args[0]
    elif isinstance(node, Prim):
        return 0 if isinstance(node.row, Primitive) and node.row.canonical == "list" and not node.args else None
    if not isinstance(node, Const):
        return None
    elements = [] if node.value is None else as_list(node.value)
    return None if elements is None else len(elements)


Length: TypeAlias = tuple[frozenset[int], int]
"""An upper bound of a length: the lengths of some parameters together, by position, plus a number."""
Words: TypeAlias = Mapping[Any, str]
"""How functions of Python make lists of others, in the words for the sizes of primitives; and ``slice``, ``element``, ``gathered``."""

_NOTHING: Length = frozenset[int](), 0
_MOST_NODES = 400
"""The most nodes of a procedure to examine."""
_DEEPEST = 60
"""The most levels of a procedure to examine."""
_LONGER = frozenset(((">", 0), (">=", 1), ("!=", 0)))
_EMPTY = frozenset((("<", 1), ("<=", 0), ("=", 0)))
"""Comparisons of a length with a number: ``_LONGER`` if true and ``_EMPTY`` if false mean that the list has elements."""


@frozen
class Gathering:
    """A procedure that gathers: the positions of the lists that its result takes elements from. This holds only if all ``operators`` of its recursive
    calls are the procedure itself."""

    listed: Sequence[int]
    operators: Sequence[Node]

    def longest(self, values: Sequence[Value]) -> Bound | None:
        """An upper bound of the length of the result for these arguments; None if a length is unknown."""
        total = ZERO
        for at in self.listed:
            length = values[at].length
            if length is None or length.terms is None:
                return None
            total = total + length
        return total


def gathering(code: Lambda, facts: NodeFacts, words: Words, signs: Signs) -> Gathering | None:
    """The gathering that a procedure performs; None if it is not recognised."""
    steady = all(map(facts.once, code.params)) if facts.python else not any(each.is_unsteady for each in code.params)
    if (
        code.rest is not None
        or not steady
        or (facts.python and (code.gives_body or nodes.MISSING_KEYWORD in code.defaults))
    ):
        return None
    first = _Walk(code, facts, words, signs, frozenset(range(len(code.params))))
    first.whole()
    walk = _Walk(code, facts, words, signs, frozenset(first.touched))
    walk.whole()
    lengths = [each for each in walk.lengths if each is not None]
    if not walk.recurs or not first.touched or len(lengths) < len(walk.lengths):
        return None
    return Gathering(sorted(walk.listed), walk.operators) if max(more for _, more in lengths) <= 0 else None


@dataclass(slots=True)
class _Walk:
    """Walks a procedure. ``listed`` are the parameters that count as lists, ``touched`` those used as lists; ``lengths``
    are the lengths of all returned values. ``full`` are the parameters that have an element when a part is reached."""

    code: Lambda
    facts: NodeFacts
    words: Words
    signs: Signs
    listed: frozenset[int]
    touched: set[int] = field(default_factory=set[int])
    lengths: list[Length | None] = field(default_factory=list["Length | None"])
    operators: list[Node] = field(default_factory=list[Node])
    recurs: bool = False
    _local: dict[Variable | str, Length | None] = field(default_factory=dict[Variable | str, "Length | None"])
    _nodes: int = 0
    _level: int = 0

    def whole(self) -> None:
        """Walk the body."""
        if self.code.gives_body:
            self.lengths.append(self.length(self.code.body, frozenset()))
        else:
            self.steps(self.code.body, frozenset())

    def steps(self, node: Node, full: frozenset[int]) -> frozenset[int] | None:
        """Walk statements: the parameters that have an element after them; None if execution never gets past them."""
        match node:
            case nodes.Seq():
                for each in node.items:
                    after = self.steps(each, full)
                    if after is None:
                        return None
                    full = after
                return full
            case text_nodes.Leave(how="return"):
                value = node.value
                if value is not None and not (isinstance(value, Const) and value.value is None):
                    self.lengths.append(self.length(value, full | self._opened(value)))
                return None
            case text_nodes.Raise() | nodes.Op(operation="raise"):
                return None
            case nodes.If(clauses=[(test, arm)]):
                if_true, if_false = self._facts(test)
                then = self.steps(arm, full | if_true)
                other = self.steps(node.other, full | if_false)
                if then is None or other is None:
                    return other if then is None else then
                return then & other
            case Set():
                self._set(node, full)
                return full
            case nodes.For() | nodes.While() | nodes.Try():
                for each in walking.parts(node):
                    self.steps(each, full)
                return full
            case nodes.Thunk():
                return self.steps(node.body, full)
            case _:
                return full

    def _set(self, node: Set, full: frozenset[int]) -> None:
        variable = self.facts.variable(node.variable)
        if variable is not None and (self.facts.once(variable) if self.facts.python else not variable.is_unsteady):
            self._local[variable] = self.length(node.value, full | self._opened(node.value))

    def length(self, node: Node, full: frozenset[int], *, passed: bool = False) -> Length | None:
        """An upper bound of the length of a list; None if unknown. ``passed``: it is an unchanged argument."""
        self._nodes += 1
        if self._nodes > _MOST_NODES or self._level > _DEEPEST:
            return None
        self._level += 1
        try:
            return self._length(node, full, passed=passed)
        finally:
            self._level -= 1

    def _length(self, node: Node, full: frozenset[int], *, passed: bool) -> Length | None:
        match node:
            case nodes.If():
                lengths: list[Length | None] = []
                for test, arm in node.clauses:
                    if_true, if_false = self._facts(test)
                    lengths.append(self.length(arm, full | if_true))
                    full |= if_false
                return _either([*lengths, self.length(node.other, full)])
            case nodes.Seq():
                for each in node.items[:-1]:
                    if isinstance(each, Set):
                        self._set(each, full)
                return self.length(node.items[-1], full)
            case Ref():
                return self._variable(node, passed=passed)
            case Prim():
                return self._made(node, full)
            case nodes.Call() | nodes.Again() if len(node.args) == len(self.code.params):
                if not self._is_itself(node):
                    return None
                self.recurs = True
                return together(
                    [self.length(each, full, passed=True) for at, each in enumerate(node.args) if at in self.listed]
                )
            case _:
                length = _length_of_constant(node)
                return None if length is None or self.facts.python else (frozenset[int](), length)

    def _is_itself(self, node: nodes.Call | nodes.Again) -> bool:
        """Whether a call may be of the procedure itself, if its operator turns out to be that."""
        if isinstance(node, nodes.Again):
            return node.loop.params is self.code.params
        if self.facts.python:
            return node.callee is not None and node.callee == self.code.number and not node.names
        self.operators.append(node.function)
        return True

    def _variable(self, node: Ref, *, passed: bool) -> Length | None:
        at = self._position(node)
        if at is None:
            variable = self.facts.variable(node.variable)
            return None if variable is None else self._local.get(variable)
        if not passed:
            self.touched.add(at)
        return (frozenset({at}), 0) if at in self.listed else None

    def _word(self, node: Prim) -> str:
        """How a function makes a list of others."""
        if isinstance(node.row, Primitive):
            return node.row.size
        function = node.function
        if isinstance(function, partial):
            named = cast("partial[Any]", function)
            return self.words.get((named.func, *named.args[:1]), self.words.get(named.func, ""))
        return self.words.get(function, "")

    def _made(self, node: Prim, full: frozenset[int]) -> Length | None:
        match self._word(node), node.args:
            case "cons", [_, rest]:
                return more_of(self.length(rest, full), 1)
            case "rest", [whole]:
                return more_of(self.length(whole, full), -1)  # an error for an empty list
            case "append", lists:
                return together([self.length(each, full) for each in lists])
            case "same-length", [whole, *_]:
                return self.length(whole, full)
            case "list", items:
                return frozenset[int](), len(items)
            case "gathered", items:
                (spread,) = cast("partial[Any]", node.function).args
                lists = [each for each, is_spread in zip(items, spread, strict=True) if is_spread]
                return more_of(together([self.length(each, full) for each in lists]), len(items) - len(lists))
            case "slice", [whole, lower, _, Const(value=None)]:
                at = self._position(whole)
                drops = at in full and isinstance(lower, Const) and type(lower.value) is int and lower.value > 0
                return more_of(self.length(whole, full), -1 if drops else 0)
            case _:
                length = _length_of_constant(node)
                return None if length is None else (frozenset[int](), length)

    def _position(self, node: Node) -> int | None:
        """The position of the parameter that a node reads; None if it reads none."""
        variable = node.variable if isinstance(node, Ref) else None
        return next((at for at, each in enumerate(self.code.params) if each is variable), None)

    def _opened(self, node: Node) -> frozenset[int]:
        """The parameters with a first or last element that a node of Python always reads."""
        opened: set[int] = set()
        pending: list[Node] = [node] if self.facts.python else []
        while pending:
            each = pending.pop()
            if isinstance(each, Prim):
                key = each.args[1] if self._word(each) == "element" else None
                at = self._position(each.args[0]) if isinstance(key, Const) and key.value in (0, -1) else None
                opened |= set() if at is None else {at}
            if isinstance(each, Prim | nodes.Call | text_nodes.Effect):
                pending += each.args
        return frozenset(opened)

    def _facts(self, test: Node) -> tuple[frozenset[int], frozenset[int]]:
        """The parameters that have an element if a test of Python is true, and those if it is false."""
        nothing = frozenset[int]()
        if not self.facts.python:
            return nothing, nothing
        if isinstance(test, nodes.Logic):
            each = [self._facts(value) for value in test.items]
            whole = nothing.union(*(facts[0 if test.every else 1] for facts in each))
            return (whole, nothing) if test.every else (nothing, whole)
        if isinstance(test, Ref):
            at = self._position(test)
            return (nothing if at is None else frozenset({at})), nothing
        name, operands = operator_of(test, self.signs)
        if name == "not":
            if_true, if_false = self._facts(operands[0])
            return if_false, if_true
        match operands:
            case [Prim(args=[measured]) as measure, Const(value=int(number))] if self._word(measure) == "length":
                at = self._position(measured)
                here = nothing if at is None else frozenset({at})
                return (here if (name, number) in _LONGER else nothing), (here if (name, number) in _EMPTY else nothing)
            case _:
                return nothing, nothing


def _either(lengths: Sequence[Length | None]) -> Length | None:
    bounded = [length for length in lengths if length is not None]
    if len(bounded) < len(lengths):
        return None
    return frozenset[int]().union(*(used for used, _ in bounded)), max(more for _, more in bounded)


def more_of(length: Length | None, by: int) -> Length | None:
    """A length plus ``by`` elements."""
    return None if length is None else (length[0], length[1] + by)


def together(lengths: Sequence[Length | None]) -> Length | None:
    """The length of several lists in sequence; None if one of them occurs twice."""
    used, more = _NOTHING
    for each in lengths:
        if each is None or used & each[0]:
            return None
        used, more = used | each[0], more + each[1]
    return used, more
