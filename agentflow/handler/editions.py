"""Tools that servers change while runs go on: each run keeps the ones it began with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from weakref import WeakSet

from agentflow.core.ports import Tool
from agentflow.lib.json_schema import Schema

Entry: TypeAlias = "tuple[Tool, Schema | None]"
"""A tool with what its arguments are checked against."""


class Edition:
    """The tools between two changes by servers, held by the runs that began meanwhile.

    ``kept`` has what names were in it that have changed since; None for no tool.
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
        """Begin the next edition; ``before`` has what each name that changes was until now, None for no tool."""
        for edition in self._held:
            edition.kept = {**before, **edition.kept}
        self.current = Edition()
        self._held.add(self.current)


__all__ = ["Edition", "Editions", "Entry"]
