"""Makes one model call, from request to response, and publishes its progress."""

from __future__ import annotations

from contextlib import aclosing

from agentflow.core.call import CallContext, Scope
from agentflow.core.errors import IncompleteStream
from agentflow.core.events import (
    AttemptStarted,
    ModelStarted,
    PartialOutput,
    TextDelta,
    ThinkingDelta,
    ToolArgumentsDelta,
)
from agentflow.core.messages import Attempt, ModelDelta, ModelRequest, ModelResponse, Notice
from agentflow.core.ports import ProviderAdapter
from agentflow.handler.answer import PartialAnswer


async def model_turn(
    adapter: ProviderAdapter, request: ModelRequest, call: CallContext, turn: int, partial: PartialAnswer | None
) -> ModelResponse:
    """Make one model call within ``call`` and return the complete answer.

    Publishes ModelStarted and ModelFinished, a pair of events per attempt and, if anybody listens, deltas. Closes the
    provider's stream on cancellation and on errors. Raises ProviderError; IncompleteStream if there was no answer.
    """
    run = call.run
    with call.scope(ModelStarted, request=request, turn=turn, model=request.model) as scope:
        scope.set(model=request.model)
        progress = _Progress(scope.call, partial)
        response: ModelResponse | None = None
        try:
            async with aclosing(adapter.stream(request)) as stream:
                async for delta in stream:
                    if delta.response is not None:
                        response = delta.response
                    elif delta.attempt is not None:
                        progress.attempt(delta.attempt)
                    elif delta.notice is not None:
                        progress.notice(delta.notice)
                    elif run.listening:
                        progress.show(delta)
                        if run.congested:
                            await run.room()
        except BaseException as error:
            progress.broken(error)
            raise
        progress.ended()
        if response is None:
            raise IncompleteStream(
                "the model's stream ended without an answer",
                provider=type(adapter).__name__,
                model=request.model,
            )
        if not run.listening:
            return response
        scope.set(
            model=response.model or request.model,
            stop_reason=response.stop_reason,
            request_id=response.request_id,
            cost_usd=response.cost_usd,
            metadata=response.metadata or None,
            usage=response.usage,
        )
        return response


class _Progress:
    """Publishes a provider's deltas as events."""

    __slots__ = ("_attempt", "_call", "_counted", "_names", "_partial")

    def __init__(self, call: CallContext, partial: PartialAnswer | None) -> None:
        self._call = call
        self._partial = partial
        self._names: dict[str, str] = {}
        self._attempt: Scope | None = None
        self._counted = False

    def show(self, delta: ModelDelta) -> None:
        call = self._call
        if delta.text:
            call.emit(TextDelta, text=delta.text)
            if self._partial is not None:
                value = self._partial.feed(delta.text)
                if value is not None:
                    call.emit(PartialOutput, value=value)
        elif delta.thinking:
            call.emit(ThinkingDelta, text=delta.thinking)
        elif delta.tool_name:
            self._names[delta.tool_call_id] = delta.tool_name
            call.emit(ToolArgumentsDelta, call_id=delta.tool_call_id, name=delta.tool_name, text=delta.arguments)
        elif delta.arguments:
            name = self._names.get(delta.tool_call_id, "")
            call.emit(ToolArgumentsDelta, call_id=delta.tool_call_id, name=name, text=delta.arguments)

    def notice(self, notice: Notice) -> None:
        if notice.code:
            self._call.warn(notice.code, notice.message, **notice.details)
        else:
            self._call.log(notice.message, "debug")

    def attempt(self, attempt: Attempt) -> None:
        if not self._call.run.listening:
            self._count(attempt)
        elif attempt.outcome is None:
            self.ended()
            self._attempt = self._call.scope(
                AttemptStarted, number=attempt.number, provider=attempt.provider, model=attempt.model
            )
            self._attempt.__enter__()
            self._attempt.set(number=attempt.number)
        elif self._attempt is not None:
            self._attempt.set(retry_in_s=attempt.retry_in_s, status=attempt.status)
            if attempt.outcome == "failed":
                self._attempt.set(outcome="error", error=attempt.error)
            self.ended()

    def _count(self, attempt: Attempt) -> None:
        """Use up the numbers an observed attempt would have had, so that numbering does not depend on observers."""
        if attempt.outcome is None:
            if self._counted:
                self._call.run.next_seq()
            self._call.next_path()
        elif not self._counted:
            return
        self._call.run.next_seq()
        self._counted = attempt.outcome is None

    def ended(self) -> None:
        if self._counted:
            self._counted = False
            self._call.run.next_seq()
            return
        scope, self._attempt = self._attempt, None
        if scope is not None:
            scope.__exit__(None, None, None)

    def broken(self, error: BaseException) -> None:
        if self._counted:
            self.ended()
            return
        scope, self._attempt = self._attempt, None
        if scope is not None:
            scope.__exit__(type(error), error, error.__traceback__)
