"""What happens between two model calls: the tools the model asked for are run and their results go back in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from agentflow.core.call import CallContext
from agentflow.core.errors import DataError, LimitExceeded, ProtocolError, clip
from agentflow.core.messages import ModelResponse, ToolCallPart, ToolResultPart, ToolSpec, Usage
from agentflow.core.ports import ToolPort
from agentflow.core.requests import SubtaskRequest
from agentflow.core.results import TaskResult
from agentflow.core.values import to_json
from agentflow.lib.suggest import did_you_mean


def check_calls(response: ModelResponse) -> None:
    """Refuse tool calls that cannot be answered: an id twice or missing, arguments that are no object.

    Raises ProtocolError; no tool has run then.
    """
    seen: set[str] = set()
    for part in response.tool_calls:
        problem = None
        if not part.id:
            problem = f"the call of '{clip(part.name, 80)}' has no id"
        elif part.id in seen:
            problem = f"two tool calls have the id '{clip(part.id, 80)}'"
        elif not isinstance(part.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - adapters are foreign code
            problem = f"the arguments of '{clip(part.name, 80)}' are no object"
        if problem:
            raise ProtocolError(
                f"the model's tool calls cannot be answered: {problem}",
                request_id=response.request_id,
                provider=response.provider,
                model=response.model,
                partial=response.text,
                hint="the server is at fault; no tool was run",
            )
        seen.add(part.id)


NO_USAGE = Usage()
"""Nothing used yet; told by identity, so that a first sum is not one."""


class ToolTurn:
    """Runs the tool calls of a model's answers with the authority of what was offered, never more.

    Parameters: ``tools`` the registry, ``offered`` the specs the model was shown, ``call`` the place whose grants are
    just those tools. ``usage`` sums up what the tools' own model calls took.
    """

    __slots__ = ("_call", "_offered", "_tools", "usage")

    def __init__(self, tools: ToolPort, offered: Sequence[ToolSpec], call: CallContext) -> None:
        self._tools = tools
        self._offered = {spec.name for spec in offered}
        self._call = call
        self.usage = NO_USAGE

    async def run(self, parts: Sequence[ToolCallPart]) -> tuple[ToolResultPart, ...]:
        """The results of ``parts``, in their order.

        Neighbouring calls run side by side, at most ``Limits.concurrency`` at once; a ``sequential`` tool runs alone, at its place. The first error that is no
        result (TaskError, LimitExceeded) cancels the others and is raised when they have ended.
        """
        call = self._call
        # Each call has a place of its own, numbered before any runs: what happens below it keeps its path however the
        # calls overlap.
        placed = [(part, call.at(call.next_path())) for part in parts]
        if len(placed) == 1:
            return (await self._one(*placed[0]),)
        results: list[ToolResultPart] = []
        together: list[tuple[ToolCallPart, CallContext]] = []
        for part, place in placed:
            tool = self._tools.find(part.name)
            if tool is not None and tool.sequential:
                results += await self._together(together)
                together = []
                results.append(await self._one(part, place))
            else:
                together.append((part, place))
        results += await self._together(together)
        return tuple(results)

    async def _together(self, placed: list[tuple[ToolCallPart, CallContext]]) -> list[ToolResultPart]:
        if len(placed) < 2:
            return [await self._one(part, place) for part, place in placed]
        gate = asyncio.Semaphore(max(1, self._call.run.limits.concurrency))

        async def gated(part: ToolCallPart, place: CallContext) -> ToolResultPart:
            async with gate:
                return await self._one(part, place)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(gated(part, place), name=f"tool {part.name}") for part, place in placed]
        except BaseExceptionGroup as failures:
            raise _most_telling(failures) from None
        return [task.result() for task in tasks]

    async def _one(self, part: ToolCallPart, place: CallContext) -> ToolResultPart:
        name = part.name
        if part.invalid:
            return self._refused(
                part, place, f"the arguments are not a JSON object ({part.invalid}); the tool did not run"
            )
        if name not in self._offered:
            hint = did_you_mean(name, self._offered) or f"there are: {', '.join(sorted(self._offered)) or 'none'}"
            return self._refused(part, place, f"there is no tool '{clip(name, 120)}'; {hint}")
        result = await self._tools.execute(name, part.arguments, place, call_id=part.id)
        if result.status == "CONTINUATION":
            result = await self._continued(name, result, place)
        self.usage += result.usage
        return ToolResultPart(part.id, name, _text(result), result.failed)

    def _refused(self, part: ToolCallPart, place: CallContext, why: str) -> ToolResultPart:
        place.warn("tool/call-refused", why, tool=clip(part.name, 120), call_id=part.id)
        return ToolResultPart(part.id, part.name, f"error: {why}", True)

    async def _continued(self, name: str, result: TaskResult, place: CallContext) -> TaskResult:
        asked = result.notes.get("subtask_request")
        try:
            if isinstance(asked, Mapping):
                asked = SubtaskRequest.of(cast(object, asked))
        except DataError as error:
            return TaskResult.failure("subtask_failure", f"the subtask request of '{name}' is {error.message}")
        if not isinstance(asked, SubtaskRequest):
            return TaskResult.failure(
                "subtask_failure",
                f"the tool '{name}' gave a CONTINUATION without notes['subtask_request']",
                details={"code": "tool/no-subtask-request"},
            )
        return await place.run.run_subtask(asked, place)


def _text(result: TaskResult) -> str:
    if result.failed:
        error = result.notes.get("error")
        reason = cast(dict[str, object], error).get("reason") if isinstance(error, dict) else None
        return f"error ({reason}): {result.content}" if reason else f"error: {result.content}"
    if result.content or result.parsed_content is None:
        return result.content
    return to_json(result.parsed_content)


def _most_telling(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of several failures: a limit of the run before any other, else the first in time."""
    for failure in failures.exceptions:
        if isinstance(failure, LimitExceeded):
            return failure
    first = failures.exceptions[0]
    return (
        _most_telling(cast(BaseExceptionGroup[BaseException], first))
        if isinstance(first, BaseExceptionGroup)
        else first
    )
