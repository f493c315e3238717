"""A provider that answers from a script, for tests, examples and trying programs without a model."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from agentflow.core.data.errors import ConfigurationError, ProviderError
from agentflow.core.data.messages import (
    WRITTEN,
    Attempt,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
)
from agentflow.core.data.provider_errors import ServerError
from agentflow.core.data.values import to_json
from agentflow.lib.text.suggest import did_you_mean
from agentflow.providers.dialects.decoding import check_arguments, check_call_count, unique_calls
from agentflow.providers.dialects.wire import estimate_tokens

ReplySource = Iterable[Any] | Callable[[ModelRequest], Any]
_KEYS = ("text", "tool_calls", "error", "thinking", "stop_reason", "usage", "delay_s", "metadata", "cost_usd")
_NO_FUNCTIONS = (BaseException, type)
_WORDS = re.compile(r"\s*\S+\s*$|\s*\S+|\s+$")


class ScriptedProvider:
    """Answers model calls from ``replies``, in call order. Implements ``ProviderAdapter``.

    A reply is text; a dict of ``text``, ``thinking``, ``tool_calls`` (each ``{"name", "arguments"}`` and optionally
    ``id``), ``stop_reason``, ``usage`` (a Usage or its fields), ``delay_s``, ``metadata``, ``cost_usd``, or ``error``
    (an exception to raise after the text, or its message); an exception; a ModelResponse; or a function of the
    ModelRequest, plain or async, that returns one of these. ``replies`` may itself be such a function, which then
    answers every call. ``requests`` records every request, or the last ``keep`` of them, for a process that makes many. Text streams word by word. Calls beyond the script raise
    ConfigurationError.
    """

    def __init__(self, replies: ReplySource = (), *, name: str = "scripted", keep: int | None = None) -> None:
        if keep is not None and (type(keep) is not int or keep < 0):
            raise ConfigurationError(
                f"ScriptedProvider(keep={keep!r}): it is a number of requests, 0 or more, or None for all",
                code="config/provider",
            )
        if isinstance(replies, str | Mapping):
            replies = [replies]
        self._function = replies if callable(replies) else None
        self._replies: list[Any] = [] if callable(replies) else list(replies)
        self._next = 0
        self.name = name
        self.requests: list[ModelRequest] = []
        self._keep = keep

    def profile(self, model: str) -> ModelProfile:
        """A profile without limits that supports JSON schemas."""
        return ModelProfile(self.name, model, self.name, native_json_schema=True, takes_effort=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Stream the next reply."""
        self.requests.append(request)
        if self._keep is not None:
            del self.requests[: len(self.requests) - self._keep]
        reply = await self._take(request)
        attempt = Attempt(1, self.name, request.model)
        yield ModelDelta(attempt=attempt)
        response, error, delay = self._response(reply, request)
        await asyncio.sleep(delay)  # even without a delay: other tasks run while a model answers
        for part in response.parts if request.stream else ():
            for delta in _deltas(part):
                yield delta
                await asyncio.sleep(0)
        if error is not None:
            if isinstance(error, ProviderError):
                error.partial = error.partial or response.text
            yield ModelDelta(attempt=Attempt(1, self.name, request.model, "failed", error))
            raise error
        yield ModelDelta(attempt=Attempt(1, self.name, request.model, "ok"))
        yield ModelDelta(response=response)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens, estimated at four bytes per token."""
        return estimate_tokens(request)

    async def aclose(self) -> None:
        """Nothing to close."""

    async def _take(self, request: ModelRequest) -> Any:
        if self._function is not None:
            reply: Any = self._function
        elif self._next < len(self._replies):
            reply = self._replies[self._next]
            self._next += 1
        else:
            raise ConfigurationError(
                f"the script has {len(self._replies)} replies, and this is model call {self._next + 1}",
                code="provider/script-ended",
                hint="give ScriptedProvider another reply, or a function of the request",
            )
        if callable(reply) and not isinstance(reply, _NO_FUNCTIONS):
            reply = reply(request)
            if hasattr(reply, "__await__"):
                reply = await reply
        return reply

    def _response(self, reply: Any, request: ModelRequest) -> tuple[ModelResponse, BaseException | None, float]:
        if isinstance(reply, ModelResponse):
            return reply, None, 0.0
        if isinstance(reply, str):
            reply = {"text": reply}
        elif isinstance(reply, BaseException):
            reply = {"error": reply}
        if not isinstance(reply, Mapping):
            raise ConfigurationError(
                f"a scripted reply is text, a dict, an exception or a function, not {type(reply).__name__}",
                code="provider/script-reply",
            )
        data = cast(Mapping[str, Any], reply)
        for key in data:
            if key not in _KEYS:
                raise ConfigurationError(
                    f"a scripted reply has no key {key!r}", code="provider/script-reply", hint=did_you_mean(key, _KEYS)
                )
        error = data.get("error")
        if error is not None and not isinstance(error, BaseException):
            error = ServerError(str(error), provider=self.name, model=request.model)
        parts = _parts(data)
        response = ModelResponse(
            parts,
            data.get("stop_reason") or ("tool_calls" if ToolCallPart in map(type, parts) else "end"),
            _usage(data.get("usage"), request, parts),
            model=request.model or self.name,
            provider=self.name,
            cost_usd=data.get("cost_usd"),
            metadata=dict(data.get("metadata") or {}),
        )
        return response, error, float(data.get("delay_s") or 0.0)


def _parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    parts: list[Part] = []
    if data.get("thinking"):
        parts.append(ThinkingPart(str(data["thinking"])))
    if data.get("text") or not (data.get("tool_calls") or data.get("error") or parts):
        parts.append(TextPart(str(data.get("text") or "")))
    calls: Sequence[Mapping[str, Any]] = data.get("tool_calls") or ()
    if calls:
        check_call_count(len(calls))
    for index, call in enumerate(calls):
        if "name" not in call:
            raise ConfigurationError(
                f"tool call {index + 1} of a scripted reply has no name", code="provider/script-reply"
            )
        arguments, problem = check_arguments(call.get("arguments", {}), call["name"])
        parts.append(ToolCallPart(call.get("id") or f"call_{index + 1}", call["name"], arguments, None, problem))
    numbers = itertools.count(len(calls) + 1)
    return unique_calls(parts, lambda: f"call_{next(numbers)}") if calls else tuple(parts)


def _deltas(part: Part) -> Iterable[ModelDelta]:
    if isinstance(part, TextPart):
        return _pieces(part.text)
    if isinstance(part, ThinkingPart):
        return [ModelDelta(thinking=word) for word in _WORDS.findall(part.text)]
    if isinstance(part, ToolCallPart):
        text = to_json(part.arguments)
        half = len(text) // 2
        return [
            ModelDelta(tool_call_id=part.id, tool_name=part.name),
            ModelDelta(tool_call_id=part.id, arguments=text[:half]),
            ModelDelta(tool_call_id=part.id, arguments=text[half:]),
        ]
    return ()


def _pieces(text: str) -> Iterable[ModelDelta]:
    if len(text) < 10_000:
        return [ModelDelta(word) for word in _WORDS.findall(text)]
    return (ModelDelta(word.group()) for word in _WORDS.finditer(text))


def _usage(stated: Any, request: ModelRequest, parts: tuple[Part, ...]) -> Usage:
    if isinstance(stated, Usage):
        return stated
    if stated:
        return Usage(**{"requests": 1, **stated})
    size = 0
    for part in parts:
        if isinstance(part, WRITTEN):
            size += len(part.text)
    return Usage(estimate_tokens(request), size // 4 + 1, requests=1)
