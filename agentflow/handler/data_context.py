"""Priming: material looked up once and sent ahead of every prompt of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentflow.core.call import CallContext
from agentflow.core.context import AssociativeMatchResult, ContextGenerationInput, DataContext, MatchItem
from agentflow.core.errors import AgentflowError, FileFailure, PathDenied, TaskError
from agentflow.core.ports import ContextFinder, FilePort

MAX_CHARACTERS = 400_000
"""Text a data context holds at most; what is beyond it is left out and said so in the summary."""


@dataclass(frozen=True, slots=True)
class DataContexts:
    """Primes sessions; the :class:`~agentflow.core.ports.DataContextPort`."""

    memory: ContextFinder | None
    files: FilePort | None

    async def prime(self, query: str | None, initial_files: Sequence[str] | None, call: CallContext) -> DataContext:
        """Put what is found for ``query`` and in ``initial_files`` ahead of every later prompt of ``call.session``.

        Replaces what was there. Raises TaskError (context_priming_failure); then nothing has changed.
        """
        primed = await gather(self.memory, self.files, query, initial_files, call)
        call.session.data_context = primed
        return primed

    def clear(self, call: CallContext) -> None:
        """Forget what ``call.session`` was primed with."""
        call.session.data_context = None


async def gather(
    memory: ContextFinder | None,
    files: FilePort | None,
    query: str | None,
    paths: Sequence[str] | None,
    call: CallContext,
    *,
    max_characters: int = MAX_CHARACTERS,
) -> DataContext:
    """Look up ``query`` in memory and read ``paths``; the files asked for by name come first, each path once.

    Raises TaskError (reason ``context_priming_failure``) when neither is given, when memory fails, or when nothing
    asked for could be had; a file that cannot be read is named in the summary otherwise.
    """
    if not query and not paths:
        raise _failure("there is nothing to prime with", hint="give a query, or initial_files, or both")
    found = await _look_up(memory, query, paths, call) if query else AssociativeMatchResult()
    skipped: list[str] = []
    items: dict[str, MatchItem] = {}
    for path in paths or ():
        item = await _read(files, MatchItem(path=path, score=1.0), skipped)
        if item is not None:
            items.setdefault(path, item)
    for match in found.matches:
        if match.path not in items:
            item = match if match.content else await _read(files, match, skipped)
            if item is not None:
                items[match.path or f"match {len(items)}"] = item
    if not items and skipped:
        raise _failure(f"nothing could be read: {'; '.join(skipped[:5])}")
    kept = _within(list(items.values()), max_characters, skipped)
    summary = found.context_summary
    if skipped:
        summary = f"{summary}\nLeft out: {'; '.join(skipped[:20])}".strip()
    return DataContext(source_query=query, items=kept, overall_summary=summary)


async def _look_up(
    memory: ContextFinder | None, query: str, paths: Sequence[str] | None, call: CallContext
) -> AssociativeMatchResult:
    if memory is None:
        raise _failure("a query needs a memory system, and this handler has none", hint="give initial_files instead")
    asked = ContextGenerationInput(query=query, target_files=list(paths or ()))
    try:
        found = await memory.find(asked, call)
    except TaskError:
        raise
    except AgentflowError as error:
        raise _failure(f"the lookup of '{query[:200]}' failed: {error.message}") from error
    if found.error and not found.matches:
        raise _failure(f"the lookup of '{query[:200]}' failed: {found.error}")
    return found


async def _read(files: FilePort | None, item: MatchItem, skipped: list[str]) -> MatchItem | None:
    if files is None:
        if not item.relevance:
            skipped.append(f"{item.path} (this handler has no file access)")
            return None
        return item
    try:
        text = await files.read(item.path)
    except (PathDenied, FileFailure) as error:
        skipped.append(f"{item.path} ({error.message})")
        return None
    if text.binary:
        skipped.append(f"{item.path} (binary)")
        return None
    return item.model_copy(update={"content": text.text})


def _within(items: list[MatchItem], most: int, skipped: list[str]) -> list[MatchItem]:
    kept: list[MatchItem] = []
    for item in items:
        if len(item.content) > most:
            skipped.append(f"{item.path} (too much text)")
            continue
        most -= len(item.content)
        kept.append(item)
    return kept


def _failure(message: str, hint: str | None = None) -> TaskError:
    return TaskError(message, reason="context_priming_failure", code="handler/priming", hint=hint)
