"""How nodes and functions are followed: the rules for each kind of node, and the tables of functions of a surface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, Literal, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Span
from agentflow.lang.bounds.cost import Cost
from agentflow.lang.bounds.heap import NOWHERE
from agentflow.lang.bounds.values import NIL, AbstractScope, Value
from agentflow.lang.bounds.ways import WaysOut
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.nodes import Node, Prim, Variable

Outcome: TypeAlias = tuple[Value, Cost]
State: TypeAlias = "dict[Variable, Value]"
"""The variables of a scope."""
Rule: TypeAlias = "Callable[[Any, Any, AbstractScope], Outcome]"
"""Follows one kind of node with a value. The first parameter of a rule is the :class:`~agentflow.lang.bounds.interpret.Interpreter`."""
WaysRule: TypeAlias = "Callable[[Any, Any, AbstractScope], WaysOut]"
"""Follows one kind of node that may be left otherwise than with a value, or that decides."""
Higher: TypeAlias = "Callable[[Any, list[Value], Span | None], Outcome]"
"""Follows a primitive that calls procedures."""
Function: TypeAlias = "Callable[[Any, Node, list[Value], Mapping[str, Value]], Outcome]"
"""Follows the calls of a function of Python, with arguments by position and by name; the node is the site of its containers."""
Coded: TypeAlias = "Callable[[Any, Prim, list[Value]], Outcome]"
"""Follows the calls of a function that nodes alone call."""
Performed: TypeAlias = "Callable[[Any, nodes.Perform, list[Value]], Outcome]"
"""Follows an effect that a function makes."""
VALUES: dict[type[Any], Rule] = {}
WAYS: dict[type[Any], WaysRule] = {}
"""The rules for each kind of node; the two decorators below fill them when the rooms are imported."""


def value_of(*kinds: type[Any]) -> Callable[[Rule], Rule]:
    """Declare that the function follows these kinds of node."""

    def mark(rule: Rule) -> Rule:
        VALUES.update(dict.fromkeys(kinds, rule))
        return rule

    return mark


def ways_of(*kinds: type[Any]) -> Callable[[WaysRule], WaysRule]:
    """Declare that the function finds the ways out of these kinds of node."""

    def mark(rule: WaysRule) -> WaysRule:
        WAYS.update(dict.fromkeys(kinds, rule))
        return rule

    return mark


@frozen
class Tables:
    """How the functions of a surface are followed: those that nodes alone call, primitives that call procedures, effects, and Python's
    functions and methods by name. ``signs`` are the operators that functions are, ``lists`` says how they make lists of others; ``passing`` return their first argument; ``lasting`` have values that their
    arguments determine, and those that ``takes_one`` accepts remove an element of their first argument, unless they fail."""

    coded: Mapping[Any, Coded]
    higher: Mapping[str, Higher] = field(default_factory=dict[str, "Higher"])
    performed: Mapping[Any, Performed] = field(default_factory=dict[Any, "Performed"])
    functions: Mapping[str, Function] = field(default_factory=dict[str, "Function"])
    methods: Mapping[str, Function] = field(default_factory=dict[str, "Function"])
    signs: Mapping[Any, str] = field(default_factory=dict[Any, str])
    lists: Mapping[Any, str] = field(default_factory=dict[Any, str])
    passing: frozenset[Any] = frozenset()
    lasting: frozenset[Any] = frozenset()
    takes_one: Callable[[Prim], bool] = lambda node: False


def bare_function(function: Any) -> Any:
    """A function without the object or the first arguments that it is bound to."""
    function = getattr(function, "func", function)
    return getattr(function, "__func__", function)


def keywords_of(node: Prim) -> tuple[str, ...]:
    """The names of the last arguments of a function."""
    function: Any = node.function
    return function.args[1] if type(function) is partial else node.names


LEFT_OUT = Value(never=True, origins={"\1left out": None})
"""Marks an argument that a call omits."""
NONE = Value(size=NIL.size, sites=NOWHERE)
"""``None``, which a function without ``return`` gives."""


@frozen
class Named:
    """A function or method of Python, or a task or tool, as a value, under the name that calls use; it takes at least ``least`` arguments."""

    name: str
    kind: Literal["effect", "function", "method"]
    least: int = 0
