"""What an analysis knows of variables: their abstract values, scope by scope, and the procedures that see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentflow.lang.bounds.values import FOREIGN, NEVER, Value
from agentflow.lang.ir import Lambda, Var


class AbstractScope:
    """The variables of a part of the program, and their abstract values."""

    __slots__ = ("_initial", "_outer", "_values")

    def __init__(self, outer: AbstractScope | None) -> None:
        self._outer = outer
        self._values: dict[Var, Value] = {}
        self._initial: dict[Var, Value] = {}

    def bind(self, var: Var, value: Value) -> None:
        """Bind a variable of this scope. One that ``set!`` changes may be anything."""
        self._values[var] = FOREIGN if var.mutated else value
        if var.mutated:
            self._initial[var] = self._initial.get(var, NEVER).join(value)

    def initial(self, var: Var) -> Value:
        """The abstract value that a mutated variable is bound to before any assignment."""
        at: AbstractScope | None = self
        while at is not None:
            if var in at._initial:
                return at._initial[var]
            at = at._outer
        return FOREIGN

    def with_value(self, var: Var, value: Value) -> AbstractScope:
        """A scope within this one in which a mutated variable has this value."""
        inner = AbstractScope(self)
        inner._values[var] = value
        return inner

    def define(self, var: Var, value: Value) -> None:
        """Bind a variable to the value of its definition, in the scope that declares it."""
        at: AbstractScope | None = self
        while at is not None and var not in at._values:
            at = at._outer
        (at or self).bind(var, value)

    def value(self, var: Var) -> Value:
        """The abstract value of a variable; NEVER before it is bound."""
        at: AbstractScope | None = self
        while at is not None:
            if var in at._values:
                return at._values[var]
            at = at._outer
        return NEVER

    def has(self, var: Var) -> bool:
        """Whether this scope, or one around it, binds a variable."""
        at: AbstractScope | None = self
        while at is not None and var not in at._values:
            at = at._outer
        return at is not None

    def kept(self) -> dict[Var, Value]:
        """A copy of its own variables, for :meth:`put_back`."""
        return dict(self._values)

    def put_back(self, values: Mapping[Var, Value]) -> None:
        """Give its own variables the values of a copy."""
        self._values = dict(values)

    def inside(self, outer: AbstractScope) -> bool:
        """Whether this scope is within ``outer``."""
        at: AbstractScope | None = self
        while at is not None and at is not outer:
            at = at._outer
        return at is outer


class AbstractClosure:
    """A procedure of the program and the scope that created it. Equal to another of the same code and scope."""

    __slots__ = ("code", "scope")

    def __init__(self, code: Lambda, scope: AbstractScope) -> None:
        self.code = code
        self.scope = scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractClosure) and other.code is self.code and other.scope is self.scope

    def __hash__(self) -> int:
        return hash((id(self.code), id(self.scope)))


def position(procedure: Any) -> tuple[int, str]:
    """What procedures are put in order by: those of the language by name, then those of the text by place."""
    if isinstance(procedure, AbstractClosure):
        return procedure.code.at.start, ""
    return -1, procedure.name
