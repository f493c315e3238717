"""Clears old results of tools from the requests of a tool loop.

The messages of the loop, and those of the session, keep all results: only the copies that are sent differ. They follow from the
messages, their estimated sizes and the option alone. So a resumed run sends what it would have sent, and the next prompt of a
conversation begins with the messages that the last one sent, which the provider has cached. A model reads a cleared result again with a
second call, or with the tool ``read_result`` where a second call might do harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.messages import Message, ToolResultPart, ToolSpec
from agentflow.core.data.results import TaskResult
from agentflow.core.data.templates import Clear
from agentflow.core.events.events import ToolResultsCleared
from agentflow.core.ports.ports import Tool
from agentflow.core.ports.toolbox import NO_TOOLBOX, Toolbox
from agentflow.handler.token_estimate import (
    CHARACTERS_PER_TOKEN,
    Calibration,
    Estimator,
    size_of,
    size_of_message,
)
from agentflow.handler.tool_lists import duplicate, entry_of
from agentflow.handler.tools import parameters_schema

READ_RESULT = "read_result"
"""The name of the tool that shows a cleared result again."""
_WORTH = 4
"""A clearing saves at least this part of ``after_tokens``: a quarter."""


class Clearing:
    """The messages that a prompt sends, with old results of tools cleared.

    Parameters: ``clear`` is the option, ``find`` finds the tool of a name, ``calibration`` knows the sizes of tools;
    ``estimator`` is corrected for messages that it has measured.
    """

    __slots__ = (
        "_bound",
        "_calibration",
        "_clear",
        "_count",
        "_estimator",
        "_event",
        "_find",
        "_list",
        "_messages",
        "_results",
        "_seen",
        "_sizes",
        "_total",
    )

    def __init__(
        self, clear: Clear, find: Callable[[str], Tool | None], calibration: Calibration, estimator: Estimator | None
    ) -> None:
        self._clear = clear
        self._bound = clear.after_tokens * CHARACTERS_PER_TOKEN
        self._find = find
        self._calibration = calibration
        self._estimator = estimator
        self._list: Sequence[Message] | None = None
        self._messages: list[Message] = []
        self._sizes: list[int] = []
        self._seen: Message | None = None
        self._results: list[tuple[int, int, int]] = []
        """Message, part and number of each result that is sent as it is, oldest first."""
        self._count = 0
        self._total = 0
        self._event: dict[str, Any] | None = None

    def sent(self, messages: Sequence[Message], system: str, tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
        """The messages of the next request, which has these ``messages``; ``system`` and ``tools`` are those of the first one."""
        if messages is not self._list:  # the first request, or the messages are those of a record
            self._list, self._messages, self._sizes, self._results, self._count = messages, [], [], [], 0
            sizes = [self._calibration.size_of_tool(tool) for tool in tools if not tool.deferred]
            self._total = size_of(system) + sum(sizes)
        elif self._seen is not None and messages[len(self._sizes) - 1] is not self._seen:
            self._total -= self._sizes.pop()  # an answer that went on after a pause
            self._messages.pop()
        for at in range(len(self._sizes), len(messages)):
            message = messages[at]
            if message.role == "assistant":
                self._clear_old(at)  # as before the request that it answered
            self._add(message)
        self._seen = messages[-1]
        self._event = self._clear_old(len(messages))
        return tuple(self._messages)

    def announce(self, call: CallContext) -> bool:
        """Publish the clearing before the request that is sent now. Returns whether there was one."""
        event, self._event = self._event, None
        if event is None:
            return False
        call.emit(ToolResultsCleared, **event)
        return True

    def _add(self, message: Message) -> None:
        at = len(self._messages)
        self._messages.append(message)
        self._sizes.append(size_of_message(message))
        self._total += self._sizes[-1]
        if message.role == "user":
            for i, part in enumerate(message.parts):
                if isinstance(part, ToolResultPart):
                    self._count += 1
                    self._results.append((at, i, self._count))

    def _clear_old(self, count: int) -> dict[str, Any] | None:
        """Clear old results of the first ``count`` messages where that is due. Returns the fields of the event."""
        if self._total <= self._bound:
            return None
        read = max((at for at in range(count) if self._messages[at].role == "assistant"), default=-1)
        keep = self._clear.keep
        old = self._results[: len(self._results) - keep] if keep else self._results
        changes: list[tuple[int, int, ToolResultPart, int]] = []
        for at, i, number in old:
            if at > read:
                break
            part = self._messages[at].parts[i]
            assert isinstance(part, ToolResultPart)
            short = replace(part, text=self._line(part, number), parts=())
            saved = _size(part) - _size(short)
            if saved > 0:
                changes.append((at, i, short, saved))
        saving = sum([saved for *_, saved in changes])
        if saving * _WORTH < self._bound:
            return None
        before = self._total
        for at, i, short, saved in changes:
            message = self._messages[at]
            parts = (*message.parts[:i], short, *message.parts[i + 1 :])
            self._messages[at] = replace(message, parts=parts)
            self._sizes[at] -= saved
            self._total -= saved
            if self._estimator is not None:
                self._estimator.shrink(at, saved)
        cleared = {(at, i) for at, i, *_ in changes}
        self._results = [each for each in self._results if each[:2] not in cleared]
        return {
            "results": tuple([short.name for *_, short, _ in changes]),
            "call_ids": tuple([short.call_id for *_, short, _ in changes]),
            "tokens_before": before // CHARACTERS_PER_TOKEN,
            "tokens_after": self._total // CHARACTERS_PER_TOKEN,
        }

    def _line(self, part: ToolResultPart, number: int) -> str:
        """The text that a model reads in place of a result, the one with this ``number`` in the conversation."""
        gone = f"[This result of {len(part.text):,} characters was cleared to make room."
        if is_harmless(self._find(part.name)):
            return f"{gone} To read it again, call {part.name} again with the same arguments.]"
        if self._find(READ_RESULT) is not None:
            return (
                f"{gone} The call was carried out. To read its result again, call {READ_RESULT} with number {number}.]"
            )
        return f"{gone} The tool is no longer offered.]"


def is_harmless(tool: Tool | None) -> bool:
    """Whether a second call of a tool is the way to read its result again."""
    return tool is not None and bool(tool.read_only or tool.idempotent)


class KeptResults:
    """The results of a loop's conversation, whole, for its tool ``read_result``."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages: Callable[[], Sequence[Message]] = list[Message]
        """The messages of the loop."""

    def offered(
        self, specs: tuple[ToolSpec, ...], toolbox: Toolbox | None, find: Callable[[str], Tool | None]
    ) -> tuple[tuple[ToolSpec, ...], Toolbox | None]:
        """The tools ``specs`` of a turn, with ``read_result`` if a second call of one of them might do harm; also in the toolbox.
        Raises ConfigurationError (``tool/duplicate``) where another tool has the name of that."""
        own = toolbox or NO_TOOLBOX
        objects = {spec.name: own.get(spec.name) or find(spec.name) for spec in specs}
        if all([is_harmless(tool) for tool in objects.values()]):
            return specs, toolbox
        reader = self._tool()
        if (other := objects.get(READ_RESULT)) is not None:
            raise duplicate(f"results are cleared, so '{READ_RESULT}' is offered", other, reader)
        return (*specs, reader.spec), own.with_others(Toolbox([entry_of(reader)]))

    def _tool(self) -> Tool:
        async def read(arguments: dict[str, Any], call: CallContext) -> TaskResult:
            number: int = arguments["number"]
            results = [
                part for message in self.messages() for part in message.parts if isinstance(part, ToolResultPart)
            ]
            if not 1 <= number <= len(results):
                return TaskResult.failure(
                    "input_validation_failure", f"the results have the numbers 1 to {len(results)}"
                )
            part = results[number - 1]
            result = TaskResult.complete(part.text)
            return replace(result, notes=replace(result.notes, parts=part.parts)) if part.parts else result

        about = "Show a result again that was cleared from this conversation: the line in its place has its number."
        schema = parameters_schema({"number": {"type": "integer", "minimum": 1}})
        return Tool(spec=ToolSpec(READ_RESULT, about, schema), call=read, builtin=True, read_only=True)


def _size(part: ToolResultPart) -> int:
    return size_of_message(Message("user", (part,)))
