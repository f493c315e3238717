"""Carries out a call of a tool through the middleware around it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from agentflow.core.call.approval import Denied, refusal
from agentflow.core.call.call import CallContext, EventScope, QuietScope
from agentflow.core.call.endings import EndOfTask, Finish, Handoff, Retry, handing_over, with_ending
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.results import TaskResult
from agentflow.core.data.walk import LONG_TEXT
from agentflow.core.events.journal_rows import named_arguments
from agentflow.core.ports.around import inside, name_of, outcome_of, wrong_outcome
from agentflow.core.ports.ports import Tool, ToolCall, ToolMiddleware, ToolPort
from agentflow.handler.admitting import judged

_ANSWERS = (Denied, Retry, Finish)
"""The errors that a middleware may raise in place of a result; the last two as a tool may."""
_RETURN = "return the result of `await run(call)`, one of your own, TaskResult.complete('text'), or Denied('why') to refuse the call"


class LateScope:
    """The pair of events of a call with middleware: it begins when the call is first carried out, with the arguments that it
    has then, and ends when the middleware has."""

    __slots__ = ("begun", "scope")

    def __init__(self, scope: EventScope) -> None:
        self.scope = scope
        self.begun = False

    def begin(self, **fields: Any) -> None:
        """Publish the Started event, with these ``fields``, unless already done."""
        if not self.begun:
            self.begun = True
            if fields:
                self.scope.change(**fields)
            self.scope.__enter__()

    def end(self, error: BaseException | None, **values: Any) -> None:
        """Publish the Finished event. A call cancelled before it began has neither."""
        if not self.begun:
            if error is not None and not isinstance(error, Exception):
                return
            self.begin()
        self.scope.set(**values)
        self.scope.__exit__(None if error is None else type(error), error, None)


class _InnerScope(QuietScope):
    """The scope for carrying out the tool itself: that of the whole call, at a ``call`` of its own."""

    __slots__ = ("_late",)

    def __init__(self, late: LateScope, call: CallContext) -> None:
        self._late = late
        self.call = call

    def __enter__(self) -> _InnerScope:
        self._late.begin()
        self.call.parent = self._late.scope.call.parent
        return self

    def change(self, **fields: Any) -> None:
        if not self._late.begun:
            self._late.scope.change(**fields)


class WrappedCall:
    """A call of a ``tool`` with ``middleware`` around it, the outermost first. ``scope`` are its events, not begun; ``tools``
    carries the call out."""

    __slots__ = ("_late", "_middleware", "_original", "_tool", "_tools")

    def __init__(self, tool: Tool, middleware: tuple[ToolMiddleware, ...], scope: EventScope, tools: ToolPort) -> None:
        self._tool = tool
        self._middleware = middleware
        self._late = LateScope(scope)
        self._tools = tools
        self._original: dict[str, Any] = {}

    async def result(self, arguments: dict[str, Any], call_id: str | None) -> TaskResult:
        """The result that the outermost middleware returns. Raises ConfigurationError (``config/middleware``) for anything else."""
        self._original = arguments
        scope = self._late.scope
        try:
            result = await self._link(0, self._asked(arguments, call_id), scope.call)
            if len(result.content) > LONG_TEXT and scope.watched:
                await scope.call.run.examine(result)
        except BaseException as error:  # also when cancelled: a begun call is reported to have ended
            self._late.end(error)
            raise
        self._late.end(None, result=result)
        return result

    def _asked(self, arguments: dict[str, Any], call_id: str | None) -> ToolCall:
        tool = self._tool
        runs = tool.kind == "subtask" or (tool.calls_models and not tool.origin)
        return ToolCall(tool.name, arguments, call_id, runs or tool.read_only or tool.idempotent is True)

    async def _link(self, index: int, asked: ToolCall, call: CallContext) -> TaskResult:
        """The result of the call at ``call``, through the middleware from ``index`` on."""
        if index == len(self._middleware):
            return await self._carry_out(asked, call)
        function = self._middleware[index]
        ctx = inside(function, call)
        ran = False

        async def run(changed: ToolCall) -> TaskResult:
            nonlocal ran
            self._check(function, changed)
            ran = True
            name, arguments = changed.name, changed.arguments
            inner = call.at(ctx.marked_path("run", name, arguments))
            work = partial(self._link, index + 1, changed, inner)
            journal = call.run.journal
            if journal is None:
                return await work()
            return await journal.step(
                "tool", name, named_arguments(arguments), inner, work, write=_stored, read=_restored
            )

        outcome: object = await outcome_of(function, function(asked, run, ctx), ctx, _ANSWERS)
        if isinstance(outcome, Denied):
            return _refused(asked.name, outcome, ran)
        if isinstance(outcome, Retry):
            return TaskResult.from_error(outcome)
        if isinstance(outcome, Finish):
            return with_ending(asked.name, TaskResult.of(outcome.value), outcome.value)
        if isinstance(outcome, Handoff):
            return handing_over(asked.name, outcome, call)
        if not isinstance(outcome, TaskResult):
            raise wrong_outcome(function, outcome, "a TaskResult", _RETURN)
        return outcome

    async def _carry_out(self, asked: ToolCall, call: CallContext) -> TaskResult:
        arguments = asked.arguments
        if arguments is not self._original and arguments != self._original:
            if not self._late.begun:
                self._late.scope.change(arguments=arguments)
            failure = judged(self._tool, arguments, call)
            if failure is not None:
                return failure
        return await self._tools.execute(
            asked.name, arguments, call, call_id=call.call_id, within=_InnerScope(self._late, call)
        )

    def _check(self, function: ToolMiddleware, changed: object) -> None:
        name = name_of(function)
        if not isinstance(changed, ToolCall):
            raise ConfigurationError(
                f"the middleware '{name}' called run() with a {type(changed).__name__}, not with a ToolCall",
                code="config/middleware",
                hint="await run(call), or run(dataclasses.replace(call, arguments={...}))",
            )
        if changed.name != self._tool.name:
            raise ConfigurationError(
                f"the middleware '{name}' made a call of the tool '{self._tool.name}' one of '{clip(changed.name, 120)}'",
                code="config/middleware",
                hint="it may change the arguments; to call another tool, await flow.call_tool(...) in it",
            )
        if not isinstance(changed.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"the middleware '{name}' called run() with arguments that are not a dict",
                code="config/middleware",
                hint="write dataclasses.replace(call, arguments={**call.arguments, 'amount': 5})",
            )


def _stored(result: TaskResult) -> Any:
    """A result for the record of a step of middleware, with the end of the task that it may be."""
    ending = result.notes.ending
    return result if ending is None else {"result": result, "ending": ending.data}


def _restored(data: Any) -> TaskResult:
    if isinstance(data, TaskResult):
        return data
    result: TaskResult = data["result"]
    return replace(result, notes=replace(result.notes, ending=EndOfTask(data["ending"])))


def _refused(name: str, denied: Denied, ran: bool) -> TaskResult:
    """The FAILED result of a call that a middleware refused, before or after it had run."""
    if ran:
        why = f": {denied.why}" if denied.why else ""
        told = f"the tool '{name}' ran, and its result is withheld{why}. Do not ask for the same again"
    else:
        told = refusal(f"the call of the tool '{name}'", denied)
    details = {"cause": "not_approved", "code": "tool/not-approved", "why": denied.why}
    return TaskResult.failure("tool_execution_error", told, details=details)
