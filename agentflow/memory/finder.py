"""The memory of a flow over its files. The index is a large part of the package, so it is imported with the first question."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.ports.executor_ports import FilePort
from agentflow.core.ports.memory_ports import CandidateSource, Embedder
from agentflow.lib.own_threads import loaded

if TYPE_CHECKING:
    from agentflow.memory.file_memory import FileMemory
    from agentflow.memory.rerank import RunTask


class FileFinder:
    """The :class:`~agentflow.core.ports.memory_ports.ContextFinder` over the files of a flow.

    The parameters are those of :class:`~agentflow.memory.file_memory.FileMemory`, but for ``cache``: the directory of stored
    indexes, True for the user's cache directory, or False; and for ``rerank``, which runs a task for a ranker. A flow with any of
    these makes its memory at once, so that a wrong one is refused.
    """

    def __init__(
        self,
        files: FilePort,
        *,
        cache: bool | str | PathLike[str] = False,
        rerank: RunTask | None = None,
        sources: Sequence[CandidateSource] = (),
        embedder: Embedder | None = None,
    ) -> None:
        self._files = files
        self._cache = cache
        self._rerank = rerank
        self._sources = sources
        self._embedder = embedder
        if cache or rerank is not None or sources or embedder is not None:
            _ = self.service

    @cached_property
    def service(self) -> FileMemory:
        """The memory, made when it is first used."""
        from agentflow.memory.file_memory import FileMemory, default_cache_dir
        from agentflow.memory.rerank import LlmRanker

        cache_dir = default_cache_dir() if self._cache is True else self._cache
        return FileMemory(
            {"cache_dir": cache_dir} if cache_dir else {},
            files=self._files,
            ranker=None if self._rerank is None else LlmRanker(self._rerank),
            sources=self._sources,
            embedder=self._embedder,
        )

    async def find(self, question: ContextGenerationInput, call: CallContext) -> AssociativeMatchResult:
        await loaded("agentflow.memory.file_memory")
        return await self.service.find(question, call)

    async def aclose(self) -> None:
        """Close the index, if there is one."""
        if "service" in vars(self):
            await self.service.aclose()
