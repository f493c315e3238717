"""Paces the effects of a recorded run: each waits, before it starts, until the recorders have room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.names import NameInfo, Template
from agentflow.core.events.effects import Effect
from agentflow.core.ports.store_ports import Pacer
from agentflow.run.strand.naming import EffectHandler


@dataclass(frozen=True, slots=True)
class Paced:
    """An :class:`~agentflow.run.strand.naming.EffectHandler` that waits for ``pacers``, then passes on to ``inner``.

    It is used only if something records, so that other runs need not check.
    """

    inner: EffectHandler
    pacers: tuple[Pacer, ...]

    def describe(self, name: str) -> NameInfo | None:
        """The description of the task or tool called ``name``; None if there is none."""
        return self.inner.describe(name)

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        """The template of a definition. Raises DataError."""
        return self.inner.prepare(fields)

    def known_names(self) -> Iterable[str]:
        """All task and tool names."""
        return self.inner.known_names()

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        """Carry out an effect once there is room for its events."""
        for pacer in self.pacers:
            if pacer.congested:
                await pacer.room()
        warn_of_failures(self.pacers, call)
        return await self.inner.perform(effect, call)


def warn_of_failures(pacers: tuple[Pacer, ...], call: CallContext) -> None:
    """Publish a Warning (``record/failed``) for each recorder that has stopped recording the run."""
    for pacer in pacers:
        error = pacer.failure(call.run_id)
        if error is not None:
            call.warn("record/failed", f"the events of this run are no longer recorded: {error}")
