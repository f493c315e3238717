"""A memory that answers as told: the MemoryPort of tests."""

from __future__ import annotations

from collections.abc import Iterable

from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput, MatchItem


class FakeMemory:
    """A MemoryPort that records its questions and gives the same matches (or failure) to each.

    ``matches`` are MatchItems or paths; ``error`` is what the result says went wrong; ``raises`` is raised instead.
    """

    def __init__(
        self,
        matches: Iterable[MatchItem | str] = (),
        *,
        summary: str = "",
        error: str | None = None,
        raises: BaseException | None = None,
    ) -> None:
        self.matches = [m if isinstance(m, MatchItem) else MatchItem(path=m, score=0.5) for m in matches]
        self.summary = summary
        self.error = error
        self.raises = raises
        self.asked: list[ContextGenerationInput] = []

    async def get_relevant_context_for(self, input: ContextGenerationInput) -> AssociativeMatchResult:
        self.asked.append(input)
        if self.raises is not None:
            raise self.raises
        return AssociativeMatchResult(context_summary=self.summary, matches=self.matches, error=self.error)
