"""Effects of programs in durable runs: which ones have records, and the content that identifies each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.names import NameInfo, Template
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import is_long
from agentflow.core.events.effects import Effect, HostCall, LogMessage, Step, TaskCall, Timer, ToolCall
from agentflow.core.ports.ports import Tool
from agentflow.durable.journal import RunJournal, beside
from agentflow.durable.values.data_adapter import DataAdapter, adapter_of
from agentflow.durable.values.record_values import (
    as_data,
    fingerprint,
    marks_of,
    output_of,
    parts_of,
    quick_fingerprint,
    sources_in,
)
from agentflow.durable.waiting import slept
from agentflow.lib.schema.json_types import left_out, without
from agentflow.run.strand.perform import EffectRunner


class Journaled:
    """An :class:`~agentflow.run.strand.strand.EffectHandler` that answers from the run's records, or passes on to ``runner``.

    It keeps the digests of tools' parameters, by name.
    """

    def __init__(self, runner: EffectRunner) -> None:
        self.runner = runner
        self._digests: dict[str, tuple[Tool, dict[tuple[str, ...], str]]] = {}

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
        definition = self._definition(effect, call)
        digest = quick_fingerprint(kind, name, arguments, definition)
        if digest is None:
            digest = await beside(is_long(arguments), fingerprint, kind, name, arguments, definition)
        row = await journal.find(kind, name, digest, call, lambda: parts_of(arguments, definition))
        if row is None:
            adapter = self._output_of(effect, call)
            write = None if adapter is None else partial(as_data, adapter)
            work = partial(self.runner.perform, effect, call)
            result = await journal.record(
                kind, name, digest, call, work, write=write, marks=marks_of(arguments, definition)
            )
            return result if adapter is None else await journal.typed(result, adapter, f"the {kind} {name}", call)
        if call.reading is not None:
            sources = sources_in(row)
            if sources is not None:
                call.reading.say(sources, alone=True)
        result = journal.replayed(row, call)
        if not isinstance(result, TaskResult) or result.parsed_content is not None:
            result = await journal.typed(result, self._output_of(effect, call), f"the {kind} {name}", call)
        if call.steps is not None:
            call.steps.append((name, result, call.grants))  # as perform does: later steps may read it
        return result

    def _definition(self, effect: Effect, call: CallContext) -> Any:
        """What else than its arguments identifies an effect at ``call``: of a task its template, model and history, of a
        tool its parameters."""
        if isinstance(effect, TaskCall):
            template = self.runner.tasks.find_compiled(effect.name, call.definitions)
            if template is not None:
                try:
                    request = self.runner.request_from_arguments(template.template, effect.arguments)
                except AgentflowError:
                    return template.fields  # the call fails with the same error every time
                return self.runner.tasks.content(template, request, call)
        if isinstance(effect, TaskCall | ToolCall):
            tool = self.runner.tools.find(effect.name, call)
            return None if tool is None else self._digest(tool, effect.arguments)
        return None

    def _output_of(self, effect: Effect, call: CallContext) -> DataAdapter[Any] | None:
        """What reads and writes the value of an effect by its annotation; None where it gives plain data.

        Raises ConfigurationError for what cannot be stored (``durable/no-value``, ``durable/secret``).
        """
        match effect:
            case TaskCall():
                gives = self.runner.tasks.find_compiled(effect.name, call.definitions) or self.runner.tools.find(
                    effect.name, call
                )
                return None if gives is None else output_of(gives)
            case ToolCall():
                tool = self.runner.tools.find(effect.name, call)
                return None if tool is None else output_of(tool)
            case Step():
                return adapter_of(effect.declared or effect.function, f"the step {effect.name}", checks=True)
            case HostCall():
                return adapter_of(effect.function, effect.name or "the host function", checks=False)
            case _:
                return None

    def _digest(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """A digest of the parameters that a call of a tool depends on, computed once: those that it must be given, and those that
        it is given. A parameter more that may be left out is nothing to a call that leaves it out."""
        schema = tool.spec.input_schema
        cached = self._digests.get(tool.name)
        if cached is None or cached[0] is not tool:
            cached = self._digests[tool.name] = (tool, {})
        absent = left_out(schema, arguments)
        digest = cached[1].get(absent)
        if digest is None:
            digest = cached[1][absent] = fingerprint("tool", without(schema, absent)).hex()
        return digest
