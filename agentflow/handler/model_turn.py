"""Makes one model call, from request to response, and publishes its progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from agentflow.core.call.call import CallContext, EventScope, RunPort, contained, is_stray, view_of
from agentflow.core.call.spending import may_be_billed
from agentflow.core.data.errors import ProviderError, ResourceExhausted
from agentflow.core.data.message_json import are_long
from agentflow.core.data.messages import (
    Attempt,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    Notice,
    Usage,
    Waiting,
)
from agentflow.core.data.provider_errors import CallTimeout, IncompleteStream
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.walk import LONG_TEXT
from agentflow.core.events.events import (
    AttemptStarted,
    Event,
    ModelStarted,
    PartialOutput,
    TextDelta,
    ThinkingDelta,
    ToolArgumentsDelta,
    WaitStarted,
)
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.handler.answer import OutputSchema, PartialAnswer
from agentflow.handler.estimate import Estimator

Show = Callable[[Event, Callable[[], int]], Iterable[Event]]
ALLOWANCE = 64
"""Number of unread events at which the producer waits for the reader."""


class PromptEvents:
    """A queue of the events of a prompt in ``run``, for one reader; delta producers wait for it.

    Parameters: ``show`` returns the events to show the reader for an event, with numbers from its second argument.
    """

    def __init__(self, run: RunPort, show: Show | None = None) -> None:
        self._run = run
        self._show = show
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._room = asyncio.Event()

    def congested(self) -> bool:
        """Whether the reader, or the run's own stream, is behind."""
        return self.queue.qsize() > ALLOWANCE or self._run.congested()

    def publish(self, event: Event) -> None:
        """Publish to the run's observers and to the reader."""
        self._run.publish(event)
        for shown in (event,) if self._show is None else self._show(event, self._run.next_seq):
            self.queue.put_nowait(shown)

    async def room(self) -> None:
        """Wait until the reader and the run's own stream take deltas again."""
        if self._run.congested():
            await self._run.room()
        while self.queue.qsize() > ALLOWANCE:
            self._room.clear()
            await self._room.wait()

    async def next(self) -> Event | None:
        """The next event; None after the last."""
        event = await self.queue.get()
        if self.queue.qsize() <= ALLOWANCE // 2:
            self._room.set()
        return event

    def end(self) -> None:
        """End the stream: no more events will come."""
        self.queue.put_nowait(None)


def watch(call: CallContext, *content: object, show: Show | None = None) -> tuple[PromptEvents, CallContext]:
    """The events of a prompt, and its call, which has the same path as without watching.

    ``content`` identifies the prompt if ``call`` is not ordered; ``show`` as for :class:`PromptEvents`.
    """
    inner, events = call.start(call.span, "Prompt", *content), PromptEvents(call.run, show)
    inner.run = view_of(
        call.run, watched=True, streaming=True, publish=events.publish, congested=events.congested, room=events.room
    )
    return events, inner


_log = logging.getLogger(__name__)

WARN_AT = 0.8
"""Share of the window at which a warning is published."""


class ContextGuard:
    """Watches how much of its model's context window a prompt uses. ``window`` is its size in tokens."""

    __slots__ = ("_adapter", "_call", "_estimator", "_profile", "_warned", "_window")

    def __init__(
        self, adapter: ProviderAdapter, profile: ModelProfile, window: int, estimator: Estimator, call: CallContext
    ) -> None:
        self._adapter = adapter
        self._profile = profile
        self._window = window
        self._estimator = estimator
        self._call = call
        self._warned = False

    async def before(self, request: ModelRequest, used: int) -> None:
        """Check a request of about ``used`` tokens before it is sent. Raises ResourceExhausted if it cannot fit."""
        window = self._window
        if used < window * WARN_AT:
            return
        if not self._estimator.counted and self._profile.counts_tokens:
            used = await self._count(request, used)
        self._look(used)
        if used >= window:
            raise ResourceExhausted(
                f"the prompt needs about {used:,} tokens, {self._profile.model} has a context window of {window:,}",
                resource="context",
                used=used,
                limit=window,
                hint="give it less: fewer files, fewer history turns, or split the task",
            )

    async def _count(self, request: ModelRequest, otherwise: int) -> int:
        try:
            return await self._adapter.count_tokens(request)
        except ProviderError as error:  # a failed count must not fail a call that may succeed
            _log.info("tokens could not be counted (%s); the estimate stands", error.code)
            return otherwise

    def after(self, response: ModelResponse) -> None:
        """Check the provider's own figures after an answer, and warn if the window is nearly full."""
        usage = response.usage
        if usage.input_tokens:
            self._look(usage.input_tokens + usage.output_tokens)

    def _look(self, used: int) -> None:
        window = self._window
        if used >= window * WARN_AT and not self._warned:
            self._warned = True
            self._call.warn(
                "context/near-limit",
                f"{used:,} of {window:,} tokens of {self._profile.model}'s context window are in use",
                used=used,
                limit=window,
            )


class Payer(Protocol):
    """The prompt that makes a model call, and accounts for its cost.

    ``arrived`` characters of an answer have come so far; ``due`` says that the call was sent and is not charged yet.
    """

    arrived: int
    due: bool

    def broken(self, request: ModelRequest, arrived: int) -> Usage:
        """Charge a call that was cancelled or broke after ``arrived`` characters had come. Returns its usage."""
        ...

    def unwanted(self, response: ModelResponse) -> None:
        """Charge an answer that an adapter gave although its call was cancelled, and with which nothing goes on."""
        ...

    async def again(self, request: ModelRequest) -> None:
        """Reserve for sending ``request`` again after it broke. Raises LimitExceeded if too little is left."""
        ...

    def waits(self, over: bool) -> None:
        """Note that the call begins to wait for its rate or budget, or with ``over`` that it has waited."""
        ...


def model_turn(
    adapter: ProviderAdapter,
    request: ModelRequest,
    call: CallContext,
    turn: int,
    shape: OutputSchema | None,
    account: Payer,
) -> Coroutine[Any, Any, ModelResponse]:
    """Make one model call within ``call``; the returned coroutine gives the complete answer.

    ``turn`` is its number in the prompt, ``shape`` the required form of the answer. ``account`` is told of waits, and of a
    call without an answer. Publishes ModelStarted and ModelFinished, a pair of events per attempt and, if anybody takes
    them, deltas. Closes the provider's stream on cancellation and on errors. Raises ProviderError; IncompleteStream if there was no answer.
    """
    if call.run.watched:
        return _watched(adapter, request, call, turn, shape, account)
    call.next_path()  # paths must not depend on observers
    return _answer(adapter, request, None, account)


async def _watched(
    adapter: ProviderAdapter,
    request: ModelRequest,
    call: CallContext,
    turn: int,
    shape: OutputSchema | None,
    account: Payer,
) -> ModelResponse:
    for message in request.messages:
        if are_long(message.parts):
            await call.run.examine(message)
    with call.scope(ModelStarted, request=request, turn=turn, model=request.model) as scope:
        progress = _Progress(scope.call, shape)
        try:
            response = await _answer(adapter, request, progress, account)
        except BaseException as error:  # also when cancelled: the event reports the tokens that are lost
            progress.ended(error)
            scope.set(usage=sum(progress.lost, NO_USAGE) if progress.lost else None)
            raise
        progress.ended()
        if are_long(response.parts):
            await call.run.examine(response)
        scope.set(
            model=response.model or request.model,
            stop_reason=response.stop_reason,
            request_id=response.request_id,
            cost_usd=response.cost_usd,
            metadata=response.metadata or None,
            usage=sum(progress.lost, response.usage),
            response=response,
        )
        return response


async def _answer(
    adapter: ProviderAdapter, request: ModelRequest, progress: _Progress | None, account: Payer
) -> ModelResponse:
    """The answer that ends a model call; ``progress`` publishes the deltas before it."""
    response: ModelResponse | None = None
    sent = charged = account.due = False
    arrived = account.arrived = 0
    lost: list[Usage] = []
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    stream = adapter.stream(request)
    try:
        async for delta in stream:
            if size := len(delta.text) + len(delta.thinking) + len(delta.arguments):
                sent = account.due = True
                arrived += size
                account.arrived = arrived
            elif delta.response is not None:
                response = delta.response
                continue
            elif delta.wait is not None:
                sent = account.due = delta.wait.over
                account.waits(delta.wait.over)
            elif (attempt := delta.attempt) is not None:
                sent = True
                if attempt.outcome is None:
                    if charged:
                        await account.again(request)
                    charged, account.due = False, True
                elif attempt.error is not None:
                    account.due = False
                    if arrived or may_be_billed(attempt.error):
                        lost.append(account.broken(request, arrived))
                        charged = True
                        if progress is not None:
                            progress.lost = lost
            elif delta.notice is None:
                sent = account.due = True
            if progress is not None:
                if size > LONG_TEXT:
                    await progress.show_long(delta)
                elif size:
                    progress.show_piece(delta)
                else:
                    progress.show(delta)
                if progress.run.congested():
                    await progress.room(adapter, request)
        if task is not None and task.cancelling() > before:  # the adapter caught its cancellation
            if response is not None:
                account.unwanted(response)
            raise asyncio.CancelledError
        if response is None:
            raise IncompleteStream(
                "the model's stream ended without an answer", provider=type(adapter).__name__, model=request.model
            )
    except BaseException as error:  # also when cancelled: the server may bill an attempt that was sent
        if response is None and sent and not charged and (arrived or may_be_billed(error)):
            lost.append(account.broken(request, arrived))
            if progress is not None:
                progress.lost = lost
        account.due = False
        if is_stray(error, task is None or task.cancelling() > before):  # an adapter is code of the host
            raise contained(error) from error
        raise
    finally:
        await stream.aclose()
    return response


class _Progress:
    """Publishes a provider's deltas as events."""

    __slots__ = ("_attempt", "_began", "_call", "_names", "_partial", "_wait", "lost", "run")

    def __init__(self, call: CallContext, shape: OutputSchema | None) -> None:
        self.run = call.run
        self._call = call
        self._partial = PartialAnswer(shape) if shape is not None and self.run.streaming else None
        self._names: dict[str, str] = {}
        self._attempt: EventScope[CallContext] | None = None
        self._began: float | None = None
        self._wait: EventScope[CallContext] | None = None
        self.lost: Sequence[Usage] = ()
        """What attempts without an answer have cost."""

    async def room(self, adapter: ProviderAdapter, request: ModelRequest) -> None:
        """Wait until the caller's own stream has been read far enough.

        Raises CallTimeout at twice the time limit of the call, even if nobody reads.
        """
        wall = request.timeout_s if request.timeout_s is not None else adapter.profile(request.model).wall_s
        end = None if wall is None or self._began is None else self._began + 2 * wall
        timer = asyncio.timeout_at(end)
        try:
            async with timer:
                await self.run.room()
        except TimeoutError:
            if not timer.expired():
                raise
            raise CallTimeout(
                "the model call took longer than its time limit: its stream is not read",
                model=request.model,
                hint="read the stream to its end, or raise timeout_s or Clocks(wall_s=...)",
            ) from None

    async def show_long(self, delta: ModelDelta) -> None:
        """Publish a long delta in several pieces, and let other tasks run in between."""
        for start in range(0, max(len(delta.text), len(delta.thinking), len(delta.arguments)), LONG_TEXT):
            end = start + LONG_TEXT
            piece = replace(
                delta,
                text=delta.text[start:end],
                thinking=delta.thinking[start:end],
                arguments=delta.arguments[start:end],
            )
            self.show_piece(piece if not start else replace(piece, tool_name=""))
            await asyncio.sleep(0)

    def show(self, delta: ModelDelta) -> None:
        """Publish the event of a delta."""
        if delta.attempt is not None:
            self._show_attempt(delta.attempt)
        elif delta.wait is not None:
            self._show_wait(delta.wait)
        elif delta.notice is not None:
            self._show_notice(delta.notice)
        else:
            self.show_piece(delta)

    def show_piece(self, delta: ModelDelta) -> None:
        """Publish a piece of the answer, if anybody takes deltas."""
        if not self.run.streaming:
            return
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

    def _show_notice(self, notice: Notice) -> None:
        if notice.code:
            self._call.warn(notice.code, notice.message, **notice.details)
        else:
            self._call.log(notice.message, "debug")

    def _show_wait(self, wait: Waiting) -> None:
        if wait.over:
            self._waited()
        else:
            self._wait = self._call.scope(WaitStarted, self._call.path, reason=wait.reason)
            self._wait.__enter__()

    def _waited(self, error: BaseException | None = None) -> None:
        scope, self._wait = self._wait, None
        if scope is not None:
            scope.__exit__(type(error) if error is not None else None, error, None)

    def _show_attempt(self, attempt: Attempt) -> None:
        if attempt.outcome is None:
            if self._began is None:
                self._began = asyncio.get_running_loop().time()
            self.ended()
            self._attempt = self._call.scope(
                AttemptStarted,
                number=attempt.number,
                provider=attempt.provider,
                model=attempt.model,
                server=attempt.server,
            )
            self._attempt.__enter__()
        elif self._attempt is not None:
            self._attempt.set(retry_in_s=attempt.retry_in_s, status=attempt.status)
            if attempt.outcome == "failed":
                self._attempt.set(outcome="error", error=attempt.error)
            self.ended()

    def ended(self, error: BaseException | None = None) -> None:
        if self._wait is not None:
            self._waited(error)
        scope, self._attempt = self._attempt, None
        if scope is not None:
            scope.__exit__(type(error) if error is not None else None, error, None)
