"""The offline model: not a language model but an extractor, for trying agentflow without a key.

It answers with the sentences of the prompt most relevant to its question and the names of their files, or fills a JSON
schema from them, and identifies itself in the answer's metadata. The same prompt always gives the same answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any

from agentflow.core.messages import (
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    Part,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    Usage,
)
from agentflow.core.values import to_json
from agentflow.lib.sentence_rank import LexicalSentenceRanker
from agentflow.providers.offline_extract import Extract
from agentflow.providers.wire import estimate_tokens

METADATA: dict[str, Any] = {"model": "offline", "note": "extractive, no language model"}
"""The metadata of every answer."""
_CHARS_PER_TOKEN = 4
_THREADED_FROM = 2_000
"""Estimated input tokens above which an answer is computed on a thread."""
_WORD = re.compile(r"\s*\S+\s*")


class OfflineProvider:
    """The :class:`~agentflow.core.ports.ProviderAdapter` that extracts its answers.

    It calls a tool only if ``tool_choice`` requires one; the arguments are filled from the text like any schema (except
    ``pattern`` and ``format``). Usage is estimated at four characters a token. Raises nothing.
    """

    def __init__(self) -> None:
        self._ranker = LexicalSentenceRanker()

    def profile(self, model: str) -> ModelProfile:
        """The same profile for every name: no context window, no limits."""
        return ModelProfile("offline", model or "offline", "offline", native_json_schema=True, takes_effort=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Answer word by word; the last delta holds the whole response."""
        tokens = estimate_tokens(request)
        part = await asyncio.to_thread(self._answer, request) if tokens > _THREADED_FROM else self._answer(request)
        stop: StopReason = "end"
        if isinstance(part, ToolCallPart):
            stop, text = "tool_calls", to_json(part.arguments)
            yield ModelDelta(tool_call_id=part.id, tool_name=part.name)
            yield ModelDelta(tool_call_id=part.id, arguments=text)
        else:
            text, limit = part.text, request.max_output_tokens
            if limit is not None and len(text) > limit * _CHARS_PER_TOKEN:
                stop, text = "max_tokens", text[: limit * _CHARS_PER_TOKEN]
                part = TextPart(text)
            for word in _WORD.findall(text):
                yield ModelDelta(word)
                await asyncio.sleep(0)
        usage = Usage(tokens, -(-len(text) // _CHARS_PER_TOKEN), requests=1)
        yield ModelDelta(
            response=ModelResponse(
                (part,), stop, usage, "offline", provider="offline", cost_usd=0.0, metadata=dict(METADATA)
            )
        )

    async def count_tokens(self, request: ModelRequest) -> int:
        """Estimated input tokens."""
        return estimate_tokens(request)

    async def aclose(self) -> None:
        """Nothing to close."""

    def _answer(self, request: ModelRequest) -> TextPart | ToolCallPart:
        prompt, results = _last_exchange(request)
        extract = Extract(prompt, results, self._ranker)
        tool = _required_tool(request)
        if tool is not None:
            arguments = extract.value({"type": "object", **tool.input_schema})
            return ToolCallPart(f"offline-{len(request.messages)}", tool.name, arguments)
        schema = request.output_schema
        if schema is None and "JSON" in prompt:
            schema = {"type": "object", "required": ["answer", "files"]}
        return TextPart(extract.text() if schema is None else to_json(extract.value(schema)))


def _last_exchange(request: ModelRequest) -> tuple[str, str]:
    """The last user message, and the tool results after it."""
    messages = request.messages
    last = max((i for i, m in enumerate(messages) if m.role == "user" and m.text.strip()), default=-1)
    results = [part.text for m in messages[last + 1 :] for part in m.parts if isinstance(part, ToolResultPart)]
    return messages[last].text if last >= 0 else "", "\n\n".join(results)


def _required_tool(request: ModelRequest) -> ToolSpec | None:
    """The tool that must be called now: a required one without a result yet."""
    answered: tuple[Part, ...] = request.messages[-1].parts if request.messages else ()
    if request.tool_choice in ("auto", "none") or any(isinstance(part, ToolResultPart) for part in answered):
        return None
    return next((tool for tool in request.tools if request.tool_choice in ("required", tool.name)), None)
