"""The environment of function templates: lexical bindings, the ``Environment`` of specification document 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentflow.core.data.errors import UnboundSymbolError
from agentflow.lib.text.suggest import did_you_mean


class Environment:
    """The variables of one scope, with an optional ``outer`` scope.

    Parameters: ``bindings`` names and values of this scope; ``outer`` the scope searched next. It is not the language's
    SexpEnvironment: it serves ``{{f(a, b="x")}}`` and FunctionCallNodes.
    """

    __slots__ = ("bindings", "outer")

    def __init__(self, bindings: Mapping[str, Any] | None = None, outer: Environment | None = None) -> None:
        self.bindings: dict[str, Any] = dict(bindings or {})
        self.outer = outer

    def find(self, name: str) -> Any:
        """The value of ``name`` here or in the nearest outer scope. Raises UnboundSymbolError."""
        level: Environment | None = self
        while level is not None:
            if name in level.bindings:
                return level.bindings[name]
            level = level.outer
        raise UnboundSymbolError(
            f"variable '{name}' is not bound", code="tasks/unbound", hint=did_you_mean(name, self.names())
        )

    def extend(self, bindings: Mapping[str, Any]) -> Environment:
        """A new inner scope with ``bindings``."""
        return Environment(bindings, self)

    def names(self) -> list[str]:
        """All bound names, sorted."""
        names: set[str] = set()
        level: Environment | None = self
        while level is not None:
            names.update(level.bindings)
            level = level.outer
        return sorted(names)

    def __contains__(self, name: object) -> bool:
        level: Environment | None = self
        while level is not None:
            if name in level.bindings:
                return True
            level = level.outer
        return False
