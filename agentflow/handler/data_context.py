"""Priming: looks up material once, to be sent before every prompt of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentflow.core.call import CallContext
from agentflow.core.context import AssociativeMatchResult, ContextGenerationInput, DataContext, MatchItem
from agentflow.core.errors import AgentflowError, FileFailure, PathDenied, TaskError
from agentflow.core.ports import ContextFinder, FilePort

MAX_CHARACTERS = 400_000
"""Maximum number of characters in a data context; the summary says what is left out."""


@dataclass(frozen=True, slots=True)
class DataContexts:
    """Primes sessions; the :class:`~agentflow.core.ports.DataContextPort`."""

    memory: ContextFinder | None
    files: FilePort | None

    async def prime(self, query: str | None, initial_files: Sequence[str] | None, call: CallContext) -> DataContext:
        """Prime ``call.session`` with the matches of ``query`` and the texts of ``initial_files``.

        Replaces the data context. Raises TaskError (context_priming_failure) and then keeps the old one.
        """
        primed = await gather(self.memory, self.files, query, initial_files, call)
        call.session.data_context = primed
        return primed

    def clear(self, call: CallContext) -> None:
        """Clear the data context of ``call.session``."""
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
    """Look up ``query`` in memory and read ``paths``; files requested by name come first, without duplicates.

    Raises TaskError (reason ``context_priming_failure``) if both are missing, if memory fails, or if nothing could be
    found or read. Otherwise the summary names the files that cannot be read.
    """
    if not query and not paths:
        raise _failure("there is nothing to prime with", hint="give a query, or initial_files, or both")
    answer = await _look_up(memory, query, paths, call) if query else AssociativeMatchResult()
    skipped: list[str] = []
    items: dict[str, MatchItem] = {}
    for path in paths or ():
        item = await _read(files, MatchItem(path=path, score=1.0), skipped)
        if item is not None:
            items.setdefault(path, item)
    for match in answer.matches:
        if match.path not in items:
            item = match if match.content else await _read(files, match, skipped)
            if item is not None:
                items[match.path or f"match {len(items)}"] = item
    if not items and skipped:
        raise _failure(f"nothing could be read: {'; '.join(skipped[:5])}")
    kept = _within(list(items.values()), max_characters, skipped)
    summary = answer.context_summary
    if skipped:
        summary = f"{summary}\nLeft out: {'; '.join(skipped[:20])}".strip()
    return DataContext(source_query=query, items=kept, overall_summary=summary)


async def _look_up(
    memory: ContextFinder | None, query: str, paths: Sequence[str] | None, call: CallContext
) -> AssociativeMatchResult:
    if memory is None:
        raise _failure("a query needs a memory system, and this handler has none", hint="give initial_files instead")
    question = ContextGenerationInput(query=query, target_files=list(paths or ()))
    try:
        answer = await memory.find(question, call)
    except TaskError:
        raise
    except AgentflowError as error:
        raise _failure(f"the lookup of '{query[:200]}' failed: {error.message}") from error
    if answer.error and not answer.matches:
        raise _failure(f"the lookup of '{query[:200]}' failed: {answer.error}")
    return answer


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
