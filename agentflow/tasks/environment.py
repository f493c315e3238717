"""The environment of function templates: document 3's ``Environment``, lexical bindings and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentflow.core.errors import UnboundSymbolError
from agentflow.lib.suggest import did_you_mean


class Environment:
    """Variable bindings at one scope level, with an ``outer`` level behind them.

    Parameters: ``bindings`` names and values of this level; ``outer`` the level that is asked next. This is distinct from
    the language's SexpEnvironment: it serves ``{{f(a, b="x")}}`` and FunctionCallNodes.
    """

    __slots__ = ("bindings", "outer")

    def __init__(self, bindings: Mapping[str, Any] | None = None, outer: Environment | None = None) -> None:
        self.bindings: dict[str, Any] = dict(bindings or {})
        self.outer = outer

    def find(self, name: str) -> Any:
        """The value of ``name``, looked for here and then outward. Raises UnboundSymbolError when nothing binds it."""
        level: Environment | None = self
        while level is not None:
            if name in level.bindings:
                return level.bindings[name]
            level = level.outer
        raise UnboundSymbolError(
            f"variable '{name}' is not bound", code="tasks/unbound", hint=did_you_mean(name, self.names())
        )

    def extend(self, bindings: Mapping[str, Any]) -> Environment:
        """A child level with ``bindings``; this level stays as it is."""
        return Environment(bindings, self)

    def names(self) -> list[str]:
        """Every bound name, sorted."""
        found: set[str] = set()
        level: Environment | None = self
        while level is not None:
            found.update(level.bindings)
            level = level.outer
        return sorted(found)

    def __contains__(self, name: object) -> bool:
        level: Environment | None = self
        while level is not None:
            if name in level.bindings:
                return True
            level = level.outer
        return False
