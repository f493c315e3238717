"""Effects of programs in durable runs: which ones have records, and the content that identifies each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from agentflow.core.call import CallContext
from agentflow.core.effects import Effect, LogMessage, Timer
from agentflow.core.errors import JournalError
from agentflow.core.frozen import frozen
from agentflow.core.names import NameInfo, Template
from agentflow.core.results import TaskResult
from agentflow.core.values import is_long
from agentflow.runtime.data_adapter import DataAdapter
from agentflow.runtime.fingerprints import fingerprint, marks_of, parts_of, quick_fingerprint
from agentflow.runtime.journal import RunJournal, beside
from agentflow.runtime.perform import EffectRunner
from agentflow.runtime.record_values import sources_in
from agentflow.runtime.typed_output import as_data, from_data
from agentflow.runtime.waiting import slept


@frozen
class Journaled:
    """An :class:`~agentflow.runtime.naming.EffectHandler` that answers from the run's records, or passes on to ``runner``."""

    runner: EffectRunner

    def describe(self, name: str) -> NameInfo | None:
        """The description of the task or tool called ``name``; None if there is none."""
        return self.runner.describe(name)

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        """The template of a definition. Raises DataError."""
        return self.runner.prepare(fields)

    def known_names(self) -> Iterable[str]:
        """All task and tool names."""
        return self.runner.known_names()

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        """Carry out an effect, or answer it from its record."""
        journal = call.run.journal
        if not isinstance(journal, RunJournal):
            return await self.runner.perform(effect, call)
        asked = effect.asked
        if asked is None:
            if type(effect) is Timer:
                return await slept(journal, effect, call)
            if journal.dry and isinstance(effect, LogMessage):
                return effect.text
            return await self.runner.perform(effect, call)
        kind, name, arguments = asked
        definition = self.runner.definition(effect, call)
        digest = quick_fingerprint(kind, name, arguments, definition)
        if digest is None:
            digest = await beside(is_long(arguments), fingerprint, kind, name, arguments, definition)
        parts = partial(parts_of, arguments, definition)
        row = await journal.find(kind, name, digest, call, parts)
        if row is None:
            adapter = self.runner.output_of(effect, call)
            write = None if adapter is None else partial(as_data, adapter)
            work = partial(self.runner.perform, effect, call)
            result = await journal.record(kind, name, digest, call, work, write=write, marks=marks_of(parts()))
            return (
                result if adapter is None else await self._typed(result, adapter, f"the {kind} {name}", call, journal)
            )
        if call.reading is not None:
            sources = sources_in(row)
            if sources is not None:
                call.reading.say(sources, alone=True)
        result = journal.replayed(row, call)
        if not isinstance(result, TaskResult) or result.parsed_content is not None:
            result = await self._typed(result, self.runner.output_of(effect, call), f"the {kind} {name}", call, journal)
        if call.steps is not None:
            call.steps.append((name, result, call.grants))  # as perform does: later steps may read it
        return result

    async def _typed(
        self, result: Any, adapter: DataAdapter[Any] | None, what: str, call: CallContext, journal: RunJournal
    ) -> Any:
        """An outcome as it was before it was stored. One that does not fit any more ends the run."""
        try:
            return from_data(adapter, result, what, call.path)
        except JournalError as error:
            await journal.records.stop(error)


__all__ = ["Journaled"]
