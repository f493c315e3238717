"""The gates of a changed program text: it is checked, bounded, explored, and its reach compared, before it costs anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Source
from agentflow.core.events.facts import Authority
from agentflow.lang.environment import SexpEnvironment
from agentflow.run.bounds.estimate import Bounds
from agentflow.run.engine import Engine

Explore: TypeAlias = Callable[[Source, Mapping[str, Any]], Awaitable[frozenset[str]]]
"""Explores a text with these inputs, without models: gives the errors and endless loops that it can reach, each as a text."""


@frozen
class TextReach:
    """The bounds of a text, and the ``errors`` that it can reach."""

    bounds: Bounds
    errors: frozenset[str]


@frozen
class Gates:
    """The gates of one search. ``bounds`` computes those of a text, ``explore`` tries it, ``usd`` is the money of one case at most."""

    engine: Engine
    bounds: Callable[..., Awaitable[Bounds]]
    explore: Explore
    inputs: Mapping[str, Any]
    usd: float | None

    async def reach(self, source: Source) -> TextReach:
        """The reach of a text that is not checked yet. Raises the errors of the text."""
        compiler, environment = self.engine.compiler, SexpEnvironment(dict(self.inputs))
        await compiler.compiled(source, env=environment, grants=None)
        bounds = await self.bounds(source, bindings=self.inputs)
        return TextReach(bounds, await self.explore(source, self.inputs))

    async def why_refused(self, source: Source, parent: TextReach) -> str | None:
        """Why a text does not pass, compared with that of its parent; None if it passes."""
        try:
            mine = await self.reach(source)
        except AgentflowError as error:
            return f"it is invalid: {error.message}"
        if len(mine.bounds.unbounded) > len(parent.bounds.unbounded):
            return f"it has no bound: {mine.bounds.unbounded[-1].reason}"
        cost, before = mine.bounds.at({})["usd"], parent.bounds.at({})["usd"]
        if cost is None and before is not None:
            return "its cost has no bound"
        if cost is not None and self.usd is not None and cost > self.usd:
            return f"a case of it may cost ${cost:.4f}, more than the limit"
        if new := sorted(mine.errors - parent.errors):
            return f"it has a new way to fail: {new[0]}"
        wider = _wider(mine.bounds.authority, parent.bounds.authority)
        return None if wider is None else f"it reaches more than its parent: {wider}"


def _wider(mine: Authority, parent: Authority) -> str | None:
    """Something that one manifest has and the other has not; None if there is nothing. Tasks count by their reach."""
    if parent.complete and not mine.complete:
        return "code that the text does not show"
    for name in ("models", "files", "workflows"):
        if more := sorted(set(getattr(mine, name)) - set(getattr(parent, name))):
            return f"{name} {', '.join(more)}"
    more = sorted({each.name for each in mine.tools} - {each.name for each in parent.tools})
    return f"tools {', '.join(more)}" if more else None
