"""A model that keeps to the cap it is sent, and knows what it has written and read in all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any

from agentflow import ScriptedProvider
from agentflow.core.data.messages import ModelDelta, ModelRequest, ModelResponse, TextPart, Usage
from agentflow.providers.dialects.wire import estimate_tokens


class MeteredModel(ScriptedProvider):
    """Answers each prompt ``Write 40`` with that many tokens, at most as many as it may.

    ``paid`` are the tokens of all finished calls, ``begun`` those of the input of every call; ``most`` is how many calls were at work at once; ``yields`` how
    often a call lets others run before it answers.
    """

    def __init__(self, *, name: str = "scripted", yields: int = 3) -> None:
        super().__init__(name=name)
        self.yields = yields
        self.paid = self.begun = self.finished = self.active = self.most = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """One answer."""
        self.requests.append(request)
        wanted = int(re.findall(r"Write (\d+)", request.messages[-1].text)[-1])
        cap = request.max_output_tokens
        written = wanted if cap is None else min(wanted, cap)
        read = estimate_tokens(request)
        self.begun += read
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            yield ModelDelta("word ")
            for _ in range(self.yields):
                await asyncio.sleep(0)
        finally:
            self.active -= 1
        self.paid += read + written
        self.finished += 1
        response = ModelResponse(
            (TextPart("word " * min(written, 20)),),
            "end" if written == wanted else "max_tokens",
            Usage(read, written, requests=1),
            model=request.model,
            provider=self.name,
        )
        yield ModelDelta(response=response)


def asking(**options: Any) -> str:
    """The definition of the task ``ask``, whose answer has ``n`` tokens."""
    extra = "".join(f" ({name.replace('_', '-')} {value})" for name, value in options.items())
    return f'(defatom ask (params (n integer)) (instructions "Write {{{{n}}}}"){extra})'
