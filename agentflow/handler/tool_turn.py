"""Runs the tool calls of a model's answer, and returns their results in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, clip
from agentflow.core.data.labels import NO_SOURCES
from agentflow.core.data.message_json import read_part
from agentflow.core.data.messages import TextPart, ToolCallPart, ToolResultPart, Usage
from agentflow.core.data.names import FILES
from agentflow.core.data.results import NO_USAGE, TaskResult
from agentflow.core.data.values import plain, to_json
from agentflow.core.events.journal import named_arguments
from agentflow.core.ports.ports import ToolPort
from agentflow.lib.text.suggest import did_you_mean

NO_TOOLS = frozenset[str]()


class ToolTurn:
    """Runs the tool calls of a model's answers, with no more authority than the offered tools.

    Parameters: ``tools`` is the registry, ``call`` a call whose grants are the offered tools, and the files to pass on.
    ``usage`` is the sum of what the tools' own model calls used.
    """

    __slots__ = ("_call", "_read", "_tools", "usage")

    def __init__(self, tools: ToolPort, call: CallContext) -> None:
        self._tools = tools
        self._call = call
        self._read = NO_SOURCES
        """Where what the prompt had read came from when the model asked for the tools of this turn."""
        self.usage = NO_USAGE

    async def run(self, parts: Sequence[ToolCallPart]) -> tuple[ToolResultPart, ...]:
        """The results of ``parts``, in their order.

        Consecutive calls run concurrently, as the run's ``Limits.concurrency`` allows; a ``sequential`` tool runs alone,
        in its position. The first error that is not a result (TaskError, RunStopped) cancels the others and is raised after
        they have ended.
        """
        call = self._call
        if call.reading is not None:
            self._read = call.reading.sources
        # Each call gets its path before any of them runs, so that paths below it do not depend on how the calls
        # overlap.
        numbered = [(part, call.at(call.next_path())) for part in parts]
        if len(numbered) == 1:
            return (await self._one(*numbered[0]),)
        results: list[ToolResultPart] = []
        together: list[tuple[ToolCallPart, CallContext]] = []
        for part, child in numbered:
            tool = self._tools.find(part.name, call)
            if tool is not None and tool.sequential:
                results += await self._together(together)
                together = []
                results.append(await self._one(part, child))
            else:
                together.append((part, child))
        results += await self._together(together)
        return tuple(results)

    async def _together(self, numbered: list[tuple[ToolCallPart, CallContext]]) -> list[ToolResultPart]:
        if len(numbered) < 2:
            return [await self._one(part, child) for part, child in numbered]
        return await self._call.run.together([partial(self._one, *each) for each in numbered], self._call)

    async def _one(self, part: ToolCallPart, call: CallContext) -> ToolResultPart:
        name = part.name
        if part.invalid:
            return self._refused(
                part, call, f"the arguments are not a JSON object ({part.invalid}); the tool did not run"
            )
        grants = self._call.grants or NO_TOOLS
        if name not in grants or name.startswith(FILES):
            offered = sorted([each for each in grants if not each.startswith(FILES)])
            hint = did_you_mean(name, offered) or f"there are: {', '.join(offered) or 'none'}"
            return self._refused(part, call, f"there is no tool '{clip(name, 120)}'; {hint}")
        reading = call.reading
        if reading is not None:
            labels = dict.fromkeys(part.arguments, NO_SOURCES)
            error = reading.guard.judge(name, labels, self._read, call.span, call, tool=True, arguments=part.arguments)
            if error is not None:
                return self._denied(part, error)
            call.reading = reading.fork(self._read, reading.guard.source_of(name, call))
        answer, usage = await self._recorded(part, call)
        if reading is not None and call.reading is not None:
            sources = call.reading.given()
            reading.add(sources)
            reading.guard.note(name, {}, self._read, sources, call.span)
        if usage is not NO_USAGE:
            self.usage += usage
        return answer

    async def _recorded(self, part: ToolCallPart, call: CallContext) -> tuple[ToolResultPart, Usage]:
        """The result of a tool, from its record if there is one."""
        journal, reading = call.run.journal, call.reading
        if journal is None:
            return await self._execute(part, call)

        def write(answered: tuple[ToolResultPart, Usage]) -> Any:
            data = plain(answered)
            return data if reading is None else [*data, sorted(reading.given())]

        def read(data: Any) -> tuple[ToolResultPart, Usage]:
            if reading is not None:
                reading.say(frozenset(data[2]) if len(data) > 2 else NO_SOURCES, alone=True)
            usage = Usage(**data[1])
            return cast(ToolResultPart, read_part(data[0])), NO_USAGE if usage == NO_USAGE else usage

        work = partial(self._execute, part, call)
        content = {"the id of the call": part.id, **named_arguments(part.arguments)}
        return await journal.step("tool", part.name, content, call, work, write=write, read=read)

    async def _execute(self, part: ToolCallPart, call: CallContext) -> tuple[ToolResultPart, Usage]:
        result = await self._tools.execute(part.name, part.arguments, call, call_id=part.id)
        parts, text = result.notes.parts or (), _text(result)
        if parts and result.failed:
            parts = (TextPart(text), *[part for part in parts if not isinstance(part, TextPart)])
        edited = result.notes.others.get("approved_arguments")
        if edited is not None:
            told = f"whoever approved this call changed its arguments to {to_json(edited)}"
            text, parts = f"{told}\n{text}", (TextPart(told), *parts) if parts else ()
        return ToolResultPart(part.id, part.name, text, result.failed, parts), result.usage

    def _denied(self, part: ToolCallPart, error: AgentflowError) -> ToolResultPart:
        hint = "do it without what was read from there, or say what you would do and why"
        return ToolResultPart(part.id, part.name, f"error ({error.code}): {error.message}; {hint}", True)

    def _refused(self, part: ToolCallPart, call: CallContext, why: str) -> ToolResultPart:
        call.warn("tool/call-refused", why, tool=clip(part.name, 120), call_id=part.id)
        return ToolResultPart(part.id, part.name, f"error: {why}", True)


def _text(result: TaskResult) -> str:
    if result.failed:
        error = result.notes.error
        return f"error ({error.reason}): {result.content}" if error is not None else f"error: {result.content}"
    text = result.content
    if not text and result.parsed_content is not None:
        text = to_json(result.parsed_content)
    failed = [f"error ({each.error.reason}): {each.part}: {each.error.message}" for each in result.failed_parts]
    return "\n".join([text, *failed]) if failed else text
