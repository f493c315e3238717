"""MemorySystem: the one retrieval entry point, based on the memory over files."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput, MatchItem
from agentflow.core.ports.executor_ports import FilePort
from agentflow.core.ports.memory_ports import CandidateSource, Embedder, Ranker
from agentflow.flow.python import in_run
from agentflow.memory.builder import UpdateReport
from agentflow.memory.file_memory import FileMemory
from agentflow.memory.index import FileIndex
from agentflow.memory.weights import RankWeights
from agentflow.run.engine import Engine
from agentflow.spec.argument_types import check_argument
from agentflow.spec.joining import Face, House, Joint, Parts, over
from agentflow.tasks.prompt_runners import NO_PROMPTS
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.service import TaskService


class MemorySystem(Face):
    """Finds relevant files below some roots.

    Parameters: ``handler`` is the specification's back-reference; it is stored, and ranking uses ``ranker`` instead;
    ``config``, ``roots``, ``ranker``, ``sources``, ``embedder``, ``files`` and ``weights`` as for
    :class:`~agentflow.memory.file_memory.FileMemory`; ``service`` and ``engine`` are the flow's. Raises
    ConfigurationError for an unknown setting.
    """

    def __init__(
        self,
        handler: object | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        roots: Sequence[str | os.PathLike[str]] | None = None,
        ranker: Ranker | None = None,
        sources: Sequence[CandidateSource] = (),
        embedder: Embedder | None = None,
        files: FilePort | None = None,
        weights: RankWeights | None = None,
        service: FileMemory | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.handler = handler
        self.service = service or FileMemory(
            config, roots=roots, ranker=ranker, sources=sources, embedder=embedder, files=files, weights=weights
        )
        self._house = House()
        self.joint = Joint(lambda: self._house, self._alone, engine)

    def _alone(self) -> Parts:
        """The parts of runs that call a ranker."""
        tasks = over(TaskService(AtomicTaskExecutor(NO_PROMPTS)))
        return Parts(self, tasks, NO_PROMPTS, memory=self.service, lookups=self.service)

    @property
    def ranker(self) -> Ranker | None:
        """The ranker that reorders the best candidates, if any."""
        return self.service.ranker

    @property
    def index(self) -> FileIndex:
        """The file index."""
        return self.service.index

    @property
    def roots(self) -> tuple[str, ...]:
        """The indexed directories."""
        return self.service.roots

    @property
    def global_index(self) -> dict[str, str]:
        """Absolute path to a line of metadata (language, length, names defined), as of the last update."""
        return self.service.global_index

    async def get_relevant_context_for(self, input: ContextGenerationInput) -> AssociativeMatchResult:
        """The files relevant to ``input``, best first; see :meth:`~agentflow.memory.file_memory.FileMemory.find`.

        A ranker or source is called within the executing run, or a new one.
        """
        check_argument("get_relevant_context_for", "input", input, ContextGenerationInput)
        if self.service.ranker is None and not self.service.asks_others:
            return await self.service.find(input)
        async with in_run(self.joint.engine, "context") as call:
            return await self.service.find(input, call)

    async def get_relevant_context_with_description(self, query: str, context: str = "") -> AssociativeMatchResult:
        """The files relevant to a description in words; ``context`` is the caller's existing knowledge."""
        check_argument("get_relevant_context_with_description", "query", query, str)
        return await self.get_relevant_context_for(ContextGenerationInput(query=query, inherited_context=context))

    async def search(self, query: str, k: int = 20) -> list[MatchItem]:
        """The ``k`` best matches of a query, without the ranker. Raises AgentflowError if a root cannot be read."""
        check_argument("search", "query", query, str)
        return await self.service.search(query, k)

    async def describe(self, paths: Sequence[str], strategy: str = "content") -> dict[str, str]:
        """The text a ranker is shown for each path: its metadata line and, for ``content``, its first lines."""
        return await self.service.describe(paths, strategy)

    async def index_git_repository(
        self, repo_path: str | os.PathLike[str], options: Mapping[str, Any] | None = None
    ) -> UpdateReport:
        """Add ``repo_path`` to the roots and index it, with its history; any directory will do.

        ``options`` may hold ``history`` (bool). Raises DataError (``memory/root``) if it is not a readable directory.
        """
        check_argument("index_git_repository", "repo_path", repo_path, str, os.PathLike)
        return await self.service.index_git_repository(repo_path, options)

    async def update_global_index(self, index: Mapping[str, str] | None = None) -> list[UpdateReport]:
        """Index all roots; with ``index`` (path to metadata), add those entries to :attr:`global_index`.

        Such entries are matched by their text, whether or not their paths are files.
        """
        check_argument("update_global_index", "index", index, Mapping, optional=True)
        return await self.service.update_global_index(index)

    def watch(self, interval_s: float = 2.0) -> AsyncIterator[UpdateReport]:
        """Look for changes in all roots every ``interval_s`` seconds, without end. Yields a report for each change."""
        return self.service.watch(interval_s)

    async def aclose(self) -> None:
        """Close the index and its thread."""
        await self.service.aclose()

    async def __aenter__(self) -> MemorySystem:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
