"""Carries out a call of a model through the middleware around it."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, cast

from agentflow.core.call.approval import Denied
from agentflow.core.call.call import CallContext, view_of
from agentflow.core.data.errors import ConfigurationError, TaskError, clip
from agentflow.core.data.limits import added
from agentflow.core.data.message_json import read_response
from agentflow.core.data.messages import ModelDelta, ModelRequest, ModelResponse, Usage, are_long
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.values import is_long, plain
from agentflow.core.data.walk import LONG_TEXT
from agentflow.core.events.events import ModelStarted
from agentflow.core.ports.around import inside, name_of, outcome_of, wrong_outcome
from agentflow.core.ports.ports import ModelMiddleware
from agentflow.handler.around_tools import LateScope
from agentflow.handler.model_turn import OutputSchema, TurnProgress

_RETURN = "return the answer of `await run(request)`, or one of your own, ModelResponse.of_text('text')"
_ENOUGH = 64
"""Deltas that wait for a middleware before the model's stream is read no further."""
_END: Any = object()
Site: TypeAlias = Callable[[], Awaitable[tuple[str, CallContext]]]
"""Returns the digest of a request, and the call that carries it out."""


class Asks(Protocol):
    """The prompt of the model call; ``shown`` gets the texts that are published of its answer."""

    shown: list[str] | None

    async def paid(
        self, request: ModelRequest, call: CallContext, progress: TurnProgress
    ) -> tuple[ModelResponse, Usage, float | None]:
        """Make a model call at ``call`` and charge it. Returns the answer, and its cost with that of attempts without one."""
        ...

    def cost_of(self, response: ModelResponse) -> float | None:
        """The cost of an answer in US dollars; None if it is unknown."""
        ...


class _HeldBack(TurnProgress):
    """Publishes the attempts of a call, and none of its answer: middleware has that first."""

    def show_piece(self, delta: ModelDelta) -> None:
        """Publish nothing."""


class _Tap(_HeldBack):
    """Hands the pieces of an answer to middleware that iterates over them."""

    def __init__(self, call: CallContext) -> None:
        super().__init__(call, None)
        self._pieces: asyncio.Queue[ModelDelta | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self.run = view_of(call.run, congested=lambda: self._pieces.qsize() > _ENOUGH)

    def show_piece(self, delta: ModelDelta) -> None:
        self._pieces.put_nowait(delta)
        if self._pieces.qsize() > _ENOUGH:
            self._room.clear()

    async def room(self, adapter: object, request: ModelRequest) -> None:
        await self._room.wait()

    async def next(self) -> ModelDelta | None:
        """The next piece; None after the last."""
        piece = await self._pieces.get()
        if self._pieces.qsize() <= _ENOUGH // 2:
            self._room.set()
        return piece

    def end(self, _: object) -> None:
        """Say that no more pieces will come."""
        self._pieces.put_nowait(None)


class RunningCall:
    """A :class:`~agentflow.core.ports.ports.ModelCall`, in the two forms of carrying it out in middleware."""

    __slots__ = ("_deltas", "_whole")

    def __init__(
        self, whole: Callable[[], Awaitable[ModelResponse]], deltas: Callable[[], AsyncGenerator[ModelDelta, None]]
    ) -> None:
        self._whole = whole
        self._deltas = deltas

    def __await__(self) -> Generator[Any, Any, ModelResponse]:
        return self._whole().__await__()

    def __aiter__(self) -> AsyncIterator[ModelDelta]:
        return self._deltas()


class WrappedModel:
    """One turn of a prompt with ``middleware`` around its model call, the outermost first.

    ``call`` has a path of its own, ``turn`` is the turn's number, ``shape`` the form that the answer must have; ``asks`` makes the
    model calls.
    """

    def __init__(
        self,
        middleware: tuple[ModelMiddleware, ...],
        request: ModelRequest,
        call: CallContext,
        turn: int,
        shape: OutputSchema | None,
        asks: Asks,
    ) -> None:
        self._middleware = middleware
        self._request = request
        self._call = call
        self._asks = asks
        self._late = LateScope(call.scope(ModelStarted, request=request, turn=turn, model=request.model))
        self._progress = TurnProgress(self._late.scope.call, shape, asks.shown)
        self._usage = NO_USAGE
        self._cost: float | None = 0.0
        self._last: ModelResponse | None = None
        self._digested: tuple[ModelRequest | None, str] = (None, "")
        self._in_order = asyncio.Lock()

    async def answer(self) -> ModelResponse:
        """The answer that the outermost middleware gives, with the usage and cost of all model calls made for it."""
        scope = self._late.scope
        try:
            response = await self._whole(self._link(0, self._request, scope.call))
            response = replace(response, usage=self._usage, cost_usd=self._cost)
            if scope.watched and are_long(response.parts):
                await scope.call.run.examine(response)
        except BaseException as error:  # also when cancelled: a begun call is reported to have ended
            self._late.end(error)
            raise
        self._late.end(
            None,
            model=response.model or self._request.model,
            stop_reason=response.stop_reason,
            request_id=response.request_id,
            cost_usd=response.cost_usd,
            metadata=response.metadata or None,
            usage=response.usage,
            response=response,
        )
        return response

    async def _whole(
        self, outermost: ModelResponse | AsyncGenerator[ModelDelta, None] | Awaitable[Any]
    ) -> ModelResponse:
        """The answer of the outermost middleware; the parts it lets pass are published."""
        run, progress = self._call.run, self._progress
        if not inspect.isasyncgen(outermost):
            response: ModelResponse = await cast("Awaitable[ModelResponse]", outermost)
            pieces = [ModelDelta(text=response.text)] if run.streaming and response.text else []
            for piece in pieces:
                self._late.begin()
                await progress.show_long(piece)
            return response
        answer = _Gathered()
        async with aclosing(cast("AsyncGenerator[ModelDelta, None]", outermost)) as deltas:
            async for delta in deltas:
                if not answer.add(delta):
                    continue
                self._late.begin()
                if len(delta.text) > LONG_TEXT:
                    await progress.show_long(delta)
                else:
                    progress.show_piece(delta)
                if run.congested():
                    await run.room()
        return answer.response(self._last)

    # -- the links of the chain -------------------------------------------------------------------------------------------

    def _link(self, index: int, request: ModelRequest, call: CallContext) -> Any:
        """The outcome of the middleware from ``index`` on: a coroutine of the answer, or a generator of deltas."""
        function = self._middleware[index]
        ctx = inside(function, call)

        def run(changed: ModelRequest) -> RunningCall:
            self._check(function, changed)
            at = partial(self._at, changed, call, ctx)
            if index + 1 == len(self._middleware):
                return RunningCall(partial(self._asked, changed, at), partial(self._tapped, changed, at))
            return RunningCall(
                partial(self._gathered, index + 1, changed, at), partial(self._spread, index + 1, changed, at)
            )

        work = function(request, run, ctx)
        if inspect.isasyncgen(work):
            return self._filtered(function, work, ctx)
        return self._returned(function, cast("Awaitable[Any]", work), ctx)

    async def _at(self, request: ModelRequest, call: CallContext, ctx: CallContext) -> tuple[str, CallContext]:
        """A digest of a request that a link at ``ctx`` runs, and the call at which it does. Equal requests are numbered in the
        order they were begun."""
        async with self._in_order:
            before, digest = self._digested
            if before is not request:
                digest = await asyncio.to_thread(_digest, request) if _is_long(request) else _digest(request)
                self._digested = request, digest
            return digest, call.at(ctx.marked_path("run", digest))

    async def _gathered(self, index: int, request: ModelRequest, at: Site) -> ModelResponse:
        """The answer of an inner link, whichever form it has."""
        work = self._link(index, request, (await at())[1])
        if not inspect.isasyncgen(work):
            return await work
        answer = _Gathered()
        async with aclosing(cast("AsyncGenerator[ModelDelta, None]", work)) as deltas:
            async for delta in deltas:
                answer.add(delta)
        return answer.response(self._last)

    async def _spread(self, index: int, request: ModelRequest, at: Site) -> AsyncGenerator[ModelDelta, None]:
        """The deltas of an inner link, whichever form it has."""
        work = self._link(index, request, (await at())[1])
        if inspect.isasyncgen(work):
            async with aclosing(cast("AsyncGenerator[ModelDelta, None]", work)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        response: ModelResponse = await work
        if response.text:
            yield ModelDelta(text=response.text)
        yield ModelDelta(response=response)

    async def _returned(self, function: ModelMiddleware, work: Awaitable[Any], ctx: CallContext) -> ModelResponse:
        outcome: object = await outcome_of(function, work, ctx)
        if isinstance(outcome, Denied):
            raise _denied(function, outcome)
        if not isinstance(outcome, ModelResponse):
            raise wrong_outcome(function, outcome, "a ModelResponse", _RETURN)
        return outcome

    async def _filtered(
        self, function: ModelMiddleware, work: AsyncGenerator[ModelDelta, None], ctx: CallContext
    ) -> AsyncGenerator[ModelDelta, None]:
        async def step() -> Any:
            return await anext(work, _END)

        try:
            # one step at a time: between two of them, the code of others runs in this context
            while (delta := await outcome_of(function, step(), ctx)) is not _END:
                if isinstance(delta, Denied):
                    raise _denied(function, delta)
                if not isinstance(delta, ModelDelta):
                    raise wrong_outcome(function, delta, "a ModelDelta", "async for delta in run(request): yield delta")
                yield delta
        finally:
            await work.aclose()

    # -- the model itself -------------------------------------------------------------------------------------------------

    async def _asked(self, request: ModelRequest, at: Site) -> ModelResponse:
        held = _HeldBack(self._late.scope.call, None)
        return await self._paid(replace(request, stream=False), await at(), held)

    async def _tapped(self, request: ModelRequest, at: Site) -> AsyncGenerator[ModelDelta, None]:
        tap = _Tap(self._late.scope.call)
        work = asyncio.create_task(self._paid(replace(request, stream=True), await at(), tap))
        work.add_done_callback(tap.end)
        shown = False
        try:
            while (delta := await tap.next()) is not None:
                shown = shown or bool(delta.text)
                yield delta
            response = await work
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        if not shown and response.text:
            yield ModelDelta(text=response.text)
        yield ModelDelta(response=response)

    async def _paid(self, request: ModelRequest, at: tuple[str, CallContext], progress: TurnProgress) -> ModelResponse:
        """The answer of the model, from its record if there is one. It is recorded before the middleware sees it."""
        digest, call = at
        journal, content = call.run.journal, {"the request": digest}
        if journal is not None:
            record = await journal.recall("model", request.model, content, call)
            if record is not None:
                return self._count(read_response(record))
            request = replace(request, idempotency_key=call.idempotency_key)
        scope = self._late.scope
        if scope.watched:
            for message in request.messages:
                if are_long(message.parts):
                    await scope.call.run.examine(message)
        self._late.begin(request=request)
        try:
            response, usage, cost = await self._asks.paid(request, call, progress)
        except BaseException as error:
            progress.ended(error)
            raise
        progress.ended()
        if journal is not None:
            kept = await journal.keep("model", request.model, content, plain(response), call, usage, cost)
            response = read_response(kept)
        return self._count(response)

    def _count(self, response: ModelResponse) -> ModelResponse:
        self._usage += response.usage
        self._cost = added(self._cost, self._asks.cost_of(response))
        self._last = response
        return response

    def _check(self, function: ModelMiddleware, changed: object) -> None:
        if not isinstance(changed, ModelRequest):
            raise ConfigurationError(
                f"the middleware '{name_of(function)}' called run() with a {type(changed).__name__}, not with a ModelRequest",
                code="config/middleware",
                hint="await run(request), or run(dataclasses.replace(request, system='...'))",
            )
        if changed.model != self._request.model:
            raise ConfigurationError(
                f"the middleware '{name_of(function)}' made a call of the model '{self._request.model}' one of "
                f"'{clip(changed.model, 120)}', which was not chosen, priced or limited",
                code="config/middleware",
                hint="the model of a task is its option: model=, or fallbacks=",
            )


class _Gathered:
    """The answer that a sequence of deltas amounts to."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._response: ModelResponse | None = None

    def add(self, delta: ModelDelta) -> bool:
        """Take a delta. Returns whether it is a piece of the answer."""
        if delta.response is not None:
            self._response = delta.response
            return False
        if delta.text:
            self._texts.append(delta.text)
        return True

    def response(self, last: ModelResponse | None) -> ModelResponse:
        """The answer: its text is that of the pieces. ``last`` is that of the model, for middleware that left it out."""
        text, response = "".join(self._texts), self._response or last
        if response is None:
            return ModelResponse.of_text(text)
        return response if text == response.text else response.with_text(text)


def _denied(function: ModelMiddleware, denied: Denied) -> TaskError:
    """The error of a task without a call of its model, or with a withheld answer."""
    why = f": {denied.why}" if denied.why else ""
    return TaskError(
        f"the middleware '{name_of(function)}' refused the call of the model{why}",
        code="middleware/denied",
        reason="tool_execution_error",
    )


def _read_by_model(request: ModelRequest) -> list[Any]:
    return [request.system, request.messages, [tool.name for tool in request.tools], request.settings]


def _is_long(request: ModelRequest) -> bool:
    """Whether the digest of a request would block the loop."""
    return is_long(_read_by_model(request))


def _digest(request: ModelRequest) -> str:
    """A digest of the parts of a request that the model reads."""
    data = plain(_read_by_model(request))
    return blake2b(json.dumps(data, sort_keys=True).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
