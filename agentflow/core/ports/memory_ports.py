"""Ports of memory: who finds files for a question, who proposes and ranks them, who keeps notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.data.frozen import frozen
from agentflow.core.data.remembered import Note


class NotePort(Protocol):
    """Notes that outlast a run, as the tools ``remember`` and ``recall`` see them."""

    async def remember(self, text: str, key: str | None, call: CallContext) -> Note:
        """Store a note; one of the same key is replaced. Raises DataError (``notes/size``, ``notes/database``)."""
        ...

    async def recall(self, question: str, limit: int, call: CallContext) -> list[Note]:
        """The notes a question is about, best first; without a question the last ones. Raises DataError."""
        ...


class MemoryPort(Protocol):
    """The one retrieval entry point. Any object with this method can be a flow's memory."""

    async def get_relevant_context_for(self, input: ContextGenerationInput) -> AssociativeMatchResult:
        """The relevant files, best first; ``error`` is set if the lookup failed."""
        ...


class ContextFinder(Protocol):
    """The memory as services use it: within a call."""

    async def find(self, question: ContextGenerationInput, call: CallContext) -> AssociativeMatchResult:
        """The relevant files, best first; ``error`` is set if the lookup failed."""
        ...


class Ranker(Protocol):
    """Orders candidates by how well they answer a question."""

    async def rank(
        self, question: ContextGenerationInput, candidates: Mapping[str, str], call: CallContext | None
    ) -> list[tuple[str, float]]:
        """``(path, score in 0..1)`` of the best ``question.max_results`` candidates, best first.

        ``candidates`` maps paths to their descriptions, by ``question.matching_strategy``. ``call`` is None outside of
        a run.
        """
        ...


@frozen
class Candidate:
    """A file that a :class:`CandidateSource` proposes: its absolute ``path``, the first and last of the ``lines`` that matter
    (from 1; None: all), a ``score`` (higher is better; compared with others of the same answer only) and ``why``, in words.
    """

    path: str
    lines: tuple[int, int] | None = None
    score: float = 0.0
    why: str = ""


class CandidateSource(Protocol):
    """Proposes files for a question, in addition to those that the index finds."""

    async def candidates(self, question: ContextGenerationInput, limit: int) -> Sequence[Candidate]:
        """The best ``limit`` candidates. An error in it becomes a warning, and the order stays unchanged."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors, near each other for texts with similar meanings."""

    @property
    def model(self) -> str:
        """The name of the model, which distinguishes its stored vectors from those of another."""
        ...

    async def embed(self, texts: Sequence[str], call: CallContext | None) -> list[list[float]]:
        """A vector for each text, in order, paid for by the run of ``call``; None outside of a run.

        Raises ProviderError and LimitExceeded.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
