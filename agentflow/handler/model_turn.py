"""Makes one model call, from request to response, and publishes its progress."""

from __future__ import annotations

from contextlib import aclosing

from agentflow.core.call import CallContext
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
from agentflow.core.scope import Scope
from agentflow.handler.answer import PartialAnswer


async def model_turn(
    adapter: ProviderAdapter, request: ModelRequest, call: CallContext, turn: int, partial: PartialAnswer | None
) -> ModelResponse:
    """Make one model call within ``call`` and return the complete answer.

    Publishes ModelStarted and ModelFinished, a pair of events per attempt and, if anybody takes them, deltas. Closes the
    provider's stream on cancellation and on errors. Raises ProviderError; IncompleteStream if there was no answer.
    """
    run = call.run
    with call.scope(ModelStarted, request=request, turn=turn, model=request.model) as scope:
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
                    elif run.streaming:
                        progress.show(delta)
                        if run.congested:
                            await run.room()
        except BaseException as error:
            progress.ended(error)
            raise
        progress.ended()
        if response is None:
            raise IncompleteStream(
                "the model's stream ended without an answer",
                provider=type(adapter).__name__,
                model=request.model,
            )
        if not run.watched:
            return response
        scope.set(
            model=response.model or request.model,
            stop_reason=response.stop_reason,
            request_id=response.request_id,
            cost_usd=response.cost_usd,
            metadata=response.metadata or None,
            usage=response.usage,
            response=response,
        )
        return response


class _Progress:
    """Publishes a provider's deltas as events."""

    __slots__ = ("_attempt", "_call", "_names", "_partial")

    def __init__(self, call: CallContext, partial: PartialAnswer | None) -> None:
        self._call = call
        self._partial = partial
        self._names: dict[str, str] = {}
        self._attempt: Scope[CallContext] | None = None

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
        if not self._call.run.watched:
            return  # nothing but events is numbered below a model call
        if attempt.outcome is None:
            self.ended()
            self._attempt = self._call.scope(
                AttemptStarted, number=attempt.number, provider=attempt.provider, model=attempt.model
            )
            self._attempt.__enter__()
        elif self._attempt is not None:
            self._attempt.set(retry_in_s=attempt.retry_in_s, status=attempt.status)
            if attempt.outcome == "failed":
                self._attempt.set(outcome="error", error=attempt.error)
            self.ended()

    def ended(self, error: BaseException | None = None) -> None:
        scope, self._attempt = self._attempt, None
        if scope is not None:
            scope.__exit__(type(error) if error is not None else None, error, None)
