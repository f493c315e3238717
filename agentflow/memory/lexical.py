"""The ranker that works without a model."""

from __future__ import annotations

import os
from collections.abc import Mapping

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import ContextGenerationInput
from agentflow.memory.index import FileIndex


class LexicalRanker:
    """The :class:`~agentflow.core.ports.memory_ports.Ranker` over a file index.

    Parameters: ``index`` holds the candidates. Paths are absolute.
    """

    def __init__(self, index: FileIndex) -> None:
        self._index = index

    async def rank(
        self, question: ContextGenerationInput, candidates: Mapping[str, str], call: CallContext | None
    ) -> list[tuple[str, float]]:
        """``(path, score in 0..1)`` of the best candidates, best first.

        Candidates that are not indexed, or share no term with the question, are left out.
        """
        matches = await self._index.search(question.text, max(question.max_results, 2_000))
        scored = ((os.path.join(item.file.root, item.file.path), item.score) for item in matches)
        return [(path, score) for path, score in scored if path in candidates][: question.max_results]
