"""Priming: looks up files once, to be sent before every prompt of a session."""

from __future__ import annotations

from collections.abc import Sequence

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput, DataContext, MatchItem
from agentflow.core.data.errors import AgentflowError, FileFailure, PathDenied, RunStopped, TaskError, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.result_notes import ErrorInfo, FailedPart
from agentflow.core.ports.executor_ports import FilePort
from agentflow.core.ports.memory_ports import ContextFinder

MAX_CHARACTERS = 400_000
"""Maximum number of characters in a data context; the summary names omitted parts."""


@frozen
class DataContexts:
    """Primes sessions; the :class:`~agentflow.core.ports.ports.DataContextPort`."""

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

    Raises TaskError (reason ``context_priming_failure``) if both are missing, if memory fails, or if nothing could be found
    or read. Otherwise the summary names the omitted parts; files of ``paths`` that cannot be read are the ``failed_parts``,
    those of memory a Warning.
    """
    if not query and not paths:
        raise _failure("there is nothing to prime with", hint="give a query, or initial_files, or both")
    answer = await _look_up(memory, query, paths, call) if query else AssociativeMatchResult()
    failed: list[FailedPart] = []
    skipped: list[str] = []
    items: dict[str, MatchItem] = {}
    for path in paths or ():
        try:
            items.setdefault(_identity(files, path), await _read(files, MatchItem(path=path, score=1.0)))
        except AgentflowError as error:
            failed.append(FailedPart(path, ErrorInfo.of_exception(error, "tool_execution_error"), exception=error))
    for match in answer.matches:
        identity = _identity(files, match.path) if match.path else f"match {len(items)}"
        if identity in items:
            continue
        try:
            items[identity] = match if match.content else await _read(files, match)
        except AgentflowError as error:
            skipped.append(f"{match.path} ({error.message})")
    left_out = [f"{each.part} ({each.error.message})" for each in failed] + skipped
    if not items and left_out:
        raise _failure(f"nothing could be read: {'; '.join(left_out[:5])}")
    kept = _within(list(items.values()), max_characters, left_out)
    if skipped:
        call.warn("handler/priming-skipped", f"the data context lacks {'; '.join(skipped[:20])}")
    summary = answer.context_summary
    if left_out:
        summary = f"{summary}\nLeft out: {'; '.join(left_out[:20])}".strip()
    return DataContext(source_query=query, items=kept, overall_summary=summary, failed_parts=tuple(failed))


def _identity(files: FilePort | None, path: str) -> str:
    """The absolute form of a path, to recognise duplicates by; the path unchanged if access is refused."""
    try:
        return files.absolute(path) if files is not None else path
    except PathDenied:
        return path


async def _look_up(
    memory: ContextFinder | None, query: str, paths: Sequence[str] | None, call: CallContext
) -> AssociativeMatchResult:
    if memory is None:
        raise _failure("a query needs a memory system, and this handler has none", hint="give initial_files instead")
    question = ContextGenerationInput(query=query, target_files=list(paths or ()))
    try:
        answer = await memory.find(question, call)
    except (RunStopped, TaskError):
        raise
    except Exception as error:  # the memory may be any object: any error of it is a failed lookup
        said = error.message if isinstance(error, AgentflowError) else f"{type(error).__name__}: {error}"
        raise _failure(f"the lookup of '{cut(query, 200)}' failed: {said}") from error
    if answer.error and not answer.matches:
        raise _failure(f"the lookup of '{cut(query, 200)}' failed: {answer.error}")
    return answer


async def _read(files: FilePort | None, item: MatchItem) -> MatchItem:
    """``item`` with its text. Raises PathDenied and FileFailure."""
    if files is None:
        if not item.relevance:
            raise FileFailure("this handler has no file access", code="handler/priming")
        return item
    text = await files.read(item.path)
    if text.binary:
        raise FileFailure(f"{item.path} is binary", code="files/binary")
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
