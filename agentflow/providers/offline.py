"""The offline model: no language model at all, but extracts from the prompt, for trying agentflow without a key.

It answers with the sentences of the prompt that bear most on its question, names the files they stand in, fills a JSON
schema from the text, and says in its answer's metadata what it is. The same prompt gives the same answer, always.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any, cast

from agentflow.core.messages import (
    Message,
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
from agentflow.core.ports import SentenceRanker
from agentflow.lib.tokens import Tokeniser
from agentflow.providers.offline_answer import Answerer, as_json
from agentflow.providers.offline_reading import read_prompt

METADATA: dict[str, Any] = {"model": "offline", "note": "extractive, no language model"}
"""What every answer says of itself."""
_CHARS_PER_TOKEN = 4
_THREADED_FROM = 8_000
_WORD = re.compile(r"\s*\S+\s*")
_WANTS_JSON = re.compile(r"\bJSON\b")


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str
    call: ToolCallPart | None = None


class OfflineProvider:
    """The :class:`~agentflow.core.ports.ProviderAdapter` that extracts.

    Parameters: ``sentence_ranker`` scores sentences against a question. Tools are called only when the request requires
    one by ``tool_choice``; then its arguments are filled from the text like any schema. Usage is estimated at four
    characters a token. Raises nothing.
    """

    def __init__(self, sentence_ranker: SentenceRanker) -> None:
        self._ranker = sentence_ranker
        self._tokeniser = Tokeniser(20_000)

    def profile(self, model: str) -> ModelProfile:
        """The same for every name: no window, no limit."""
        return ModelProfile(provider="offline", model=model or "offline", dialect="offline", native_json_schema=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Answer word by word; the last delta carries the whole response."""
        if _size(request) > _THREADED_FROM:
            answer = await asyncio.to_thread(self._answer, request)
        else:
            answer = self._answer(request)
        text, stop = _limited(answer, request.max_output_tokens)
        parts: tuple[Part, ...]
        if answer.call is not None:
            yield ModelDelta(tool_call_id=answer.call.id, tool_name=answer.call.name)
            yield ModelDelta(tool_call_id=answer.call.id, arguments=text)
            parts = (answer.call,)
        else:
            for word in _WORD.findall(text):
                yield ModelDelta(text=word)
                await asyncio.sleep(0)
            parts = (TextPart(text),)
        usage = Usage(input_tokens=_tokens(_size(request)), output_tokens=_tokens(len(text)), requests=1)
        yield ModelDelta(
            response=ModelResponse(
                parts=parts,
                stop_reason=stop,
                usage=usage,
                model="offline",
                provider="offline",
                cost_usd=0.0,
                metadata=dict(METADATA),
            )
        )

    async def count_tokens(self, request: ModelRequest) -> int:
        """Estimated input tokens."""
        return _tokens(_size(request))

    async def aclose(self) -> None:
        """Nothing to close."""

    def _answer(self, request: ModelRequest) -> _Answer:
        prompt, known = _prompt_and_known(request.messages)
        reading = read_prompt(prompt, known)
        answerer = Answerer(reading, self._ranker, self._tokeniser)
        tool = _required_tool(request)
        if tool is not None:
            arguments = answerer.json(tool.input_schema)
            filled = cast(dict[str, Any], arguments) if isinstance(arguments, dict) else {}
            return _Answer(as_json(filled), ToolCallPart(f"offline-{len(request.messages)}", tool.name, filled))
        if request.output_schema is not None:
            return _Answer(as_json(answerer.json(request.output_schema)))
        if _WANTS_JSON.search(reading.instructions) or "Answer with one JSON value" in prompt:
            return _Answer(as_json(answerer.json(None)))
        return _Answer(answerer.text())


def _prompt_and_known(messages: tuple[Message, ...]) -> tuple[str, str]:
    """The last thing the user said, and the tool results that came after it."""
    last = max((i for i, m in enumerate(messages) if m.role == "user" and m.text.strip()), default=-1)
    prompt = messages[last].text if last >= 0 else ""
    results = [part.text for m in messages[last + 1 :] for part in m.parts if isinstance(part, ToolResultPart)]
    return prompt, "\n\n".join(results)


def _required_tool(request: ModelRequest) -> ToolSpec | None:
    """The tool that must be called now: one that is required and has not answered yet."""
    if request.tool_choice in ("auto", "none") or not request.tools:
        return None
    if any(isinstance(part, ToolResultPart) for part in (request.messages[-1].parts if request.messages else ())):
        return None
    if request.tool_choice == "required":
        return request.tools[0]
    return next((tool for tool in request.tools if tool.name == request.tool_choice), None)


def _limited(answer: _Answer, max_tokens: int | None) -> tuple[str, StopReason]:
    if answer.call is not None:
        return answer.text, "tool_calls"
    if max_tokens is not None and _tokens(len(answer.text)) > max_tokens:
        return answer.text[: max(0, max_tokens) * _CHARS_PER_TOKEN], "max_tokens"
    return answer.text, "end"


def _size(request: ModelRequest) -> int:
    return len(request.system) + sum(len(text) for message in request.messages for text in _texts(message))


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, TextPart | ToolResultPart):
            yield part.text


def _tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)
