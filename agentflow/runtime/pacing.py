"""Effects of a run that is recorded: each waits, before it starts, until the recorder has room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentflow.core.call import CallContext
from agentflow.core.effects import Effect
from agentflow.core.names import NameInfo, Template
from agentflow.core.store_ports import Pacer
from agentflow.runtime.naming import EffectHandler


@dataclass(frozen=True, slots=True)
class Paced:
    """An :class:`~agentflow.runtime.naming.EffectHandler` before another, which waits for ``pacers``.

    It stands only where something records, so that effects elsewhere have nothing to ask.
    """

    inner: EffectHandler
    pacers: tuple[Pacer, ...]

    def describe(self, name: str) -> NameInfo | None:
        """What ``name`` is among the flow's tasks and tools."""
        return self.inner.describe(name)

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        """The template of a definition. Raises DataError."""
        return self.inner.prepare(fields)

    def known_names(self) -> Iterable[str]:
        """All task and tool names."""
        return self.inner.known_names()

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        """Carry out an effect when there is room for what it publishes."""
        for pacer in self.pacers:
            if pacer.congested:
                await pacer.room()
        warn_of_failures(self.pacers, call)
        return await self.inner.perform(effect, call)


def warn_of_failures(pacers: tuple[Pacer, ...], call: CallContext) -> None:
    """Publish a Warning (``record/failed``) where the run is not recorded any further."""
    for pacer in pacers:
        error = pacer.failure(call.run_id)
        if error is not None:
            call.warn("record/failed", f"the events of this run are not recorded any further: {error}")
