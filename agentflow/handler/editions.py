"""Tools that servers change during runs: each run keeps the ones it began with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from weakref import WeakSet

from agentflow.core.ports.ports import Tool
from agentflow.lib.schema.json_schema import Schema

Entry: TypeAlias = "tuple[Tool, Schema | None]"
"""A tool, and the schema its arguments are checked against."""


class Edition:
    """The tools between two changes, held by the runs that began in between.

    ``kept`` has the tools of this edition that have changed since, by name; None where there was none.
    """

    __slots__ = ("__weakref__", "kept")

    def __init__(self) -> None:
        self.kept: dict[str, Entry | None] = {}


class Editions:
    """The edition that runs begin with, and the earlier ones that runs still hold."""

    def __init__(self) -> None:
        self.current = Edition()
        self._held = WeakSet([self.current])

    def end(self, before: Mapping[str, Entry | None]) -> None:
        """Begin the next edition; ``before`` has the present tool of each name that changes, None for no tool."""
        for edition in self._held:
            edition.kept = {**before, **edition.kept}
        self.current = Edition()
        self._held.add(self.current)
