"""Estimates the tokens of a request before it is sent, for the context guard, budgets and rates.

Each message of a prompt is measured once. After an answer the provider's own figures are used for everything it has seen,
and only later messages are estimated, with the tokens per character of the model's last answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import cast

from agentflow.core.data.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    ModelRequest,
    ModelResponse,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from agentflow.core.data.values import to_json

CHARACTERS_PER_TOKEN = 4
"""The initial estimate for every model, right for English text."""
IMAGE_TOKENS = 1_600
_FRAME = 16
"""Characters, at most, that a dialect adds around each message, and around all of them."""
_PRIOR = 1_000
"""Number of characters where a model's reported usage weighs as much as the previous assumption."""
_LOWEST, _HIGHEST = 0.1, 1.0
_MOST = 1_000
"""Number of cached models, and of cached tools."""


class Calibration:
    """Tokens per character of each model, from its last reported usage, and sizes of tools; shared by a turn loop's prompts."""

    __slots__ = ("_ratios", "_tools")

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self._tools: dict[int, tuple[ToolSpec, int]] = {}

    def size_of_tool(self, tool: ToolSpec) -> int:
        """Characters of a tool's description and schema."""
        cached = self._tools.get(id(tool))
        if cached is None:
            if len(self._tools) >= _MOST:
                self._tools.clear()
            cached = self._tools[id(tool)] = (tool, size_of(tool.description) + len(to_json(tool.input_schema)))
        return cached[1]

    def ratio(self, model: str) -> float:
        """Tokens per character of ``model``."""
        return self._ratios.get(model, 1 / CHARACTERS_PER_TOKEN)

    def learn(self, model: str, characters: int, tokens: int) -> None:
        """Record that ``characters`` of a request were ``tokens``."""
        if len(self._ratios) >= _MOST and model not in self._ratios:
            self._ratios.clear()
        ratio = (tokens + _PRIOR / CHARACTERS_PER_TOKEN) / (characters + _PRIOR)
        self._ratios[model] = min(_HIGHEST, max(_LOWEST, ratio))


class Estimator:
    """Estimates the input tokens of one prompt's requests.

    ``before`` is the number of already measured leading messages, and their characters.
    """

    __slots__ = ("_calibration", "_characters", "_covered", "_known", "_measured", "_model", "before")

    def __init__(self, model: str, calibration: Calibration) -> None:
        self._model = model
        self._calibration = calibration
        self._measured = 0
        self._characters = 0
        self._known = 0
        self._covered = 0
        self.before: tuple[int, int] = (0, 0)

    @property
    def counted(self) -> bool:
        """Whether the provider has counted the beginning of the conversation."""
        return self._known > 0

    def input_tokens(self, request: ModelRequest) -> int:
        """Estimated input tokens of ``request``, which begins with the messages of the previous one."""
        if not self._measured:
            self._measured, characters = self.before
            self._characters = _FRAME + size_of(request.system) + characters
            for tool in request.tools:
                if tool.deferred:
                    continue  # its provider counts it once it is found
                self._characters += self._calibration.size_of_tool(tool)
        messages = request.messages
        for at in range(self._measured, len(messages)):
            self._characters += size_of_message(messages[at])
        self._measured = len(messages)
        return self._known + ceil((self._characters - self._covered) * self._calibration.ratio(self._model))

    def shrink(self, at: int, characters: int) -> None:
        """Count ``characters`` less, since message number ``at`` has become shorter, if it was measured."""
        count, size = self.before
        if self._measured:
            self._characters -= characters if at < self._measured else 0
        elif at < count:
            self.before = (count, size - characters)

    def learn(self, response: ModelResponse, messages: Sequence[Message]) -> None:
        """Take over the provider's figures; ``messages`` are those of the request and the answer."""
        usage = response.usage
        if usage.input_tokens:
            self._calibration.learn(self._model, self._characters, usage.input_tokens)
        for at in range(self._measured, len(messages)):
            self._characters += size_of_message(messages[at])
        self._measured = len(messages)
        if usage.input_tokens:
            self._known = usage.input_tokens + usage.output_tokens
            self._covered = self._characters


def size_of(text: str) -> int:
    """Characters of a text, weighted for tokens: scripts other than Latin count by their bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of_message(message: Message) -> int:
    """Characters of a message; an image, document or sound counts as 1,600 tokens."""
    characters = _FRAME
    for part in message.parts:
        kind: type[Part] = part.__class__
        if kind is TextPart or kind is ThinkingPart:
            characters += size_of(cast(TextPart, part).text)
        elif kind is ToolResultPart:
            result = cast(ToolResultPart, part)
            media = [each for each in result.parts if not isinstance(each, TextPart)]
            characters += size_of(result.text) + len(media) * IMAGE_TOKENS * CHARACTERS_PER_TOKEN
        elif isinstance(part, ToolCallPart):
            characters += 40 + sum(len(value) if isinstance(value, str) else 20 for value in part.arguments.values())
        elif kind is ImagePart or kind is DocumentPart or kind is AudioPart:
            characters += IMAGE_TOKENS * CHARACTERS_PER_TOKEN
    return characters
