"""The file index: the files below some roots, updated by content and searched by terms.

Blocking work runs on one worker thread of the index; the methods are coroutines that wait for it. Reads run between two files
of an update. A cancelled update stops at the next file and its transaction is rolled back; the caller resumes once the thread
is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.errors import AgentflowError, DataError
from agentflow.core.data.frozen import frozen
from agentflow.core.ports.executor_ports import FilePort
from agentflow.lib.file_writer import name_text, text_name
from agentflow.lib.own_threads import own_thread
from agentflow.lib.text.terms import Tokeniser
from agentflow.memory.builder import Builder, BuildStopped, UpdateReport, busy
from agentflow.memory.file_walk import OpenRoot, RootReader, Skip
from agentflow.memory.index_rows import FileRow, PastCommit
from agentflow.memory.index_store import Store, remove_database
from agentflow.memory.matches import FoundCommit, describe_file, found_commits
from agentflow.memory.ranking import Ranked, rank
from agentflow.memory.rules import IndexRules, decode
from agentflow.memory.weights import RankWeights

T = TypeVar("T")


class FileIndex:
    """An index over several roots.

    Parameters: ``database`` is the file of the index (None: in memory). ``cache``: it is only a cache, so a damaged file is
    replaced, and if the file cannot be written the index is built in memory; :attr:`notices` reports this once each. ``rules``
    decide which files are indexed; ``weights`` are those of the signals; ``held`` opens roots by the descriptors it holds, so
    that a path replaced by another directory is not followed. Close it with :meth:`aclose`.
    """

    def __init__(
        self,
        database: Path | None = None,
        *,
        cache: bool = False,
        rules: IndexRules | None = None,
        weights: RankWeights | None = None,
        held: FilePort | None = None,
    ) -> None:
        self._database = database
        self._cache = cache
        self.notices: list[tuple[str, str]] = []
        """``(code, message)`` of events concerning the file since the index was created; displaying them removes them."""
        self.replaced = 0
        """How often the cache was replaced by an empty one, which the roots have to be indexed into again."""
        self._rebuilt = False
        self.rules = rules or IndexRules()
        self.weights = weights or RankWeights()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentflow-index")
        self._store: Store | None = None
        self._asked_for = False
        self._tokeniser = Tokeniser(50_000)
        self._held = held
        self._questions: deque[_Question] = deque()
        self._updates: dict[tuple[str, IndexRules], tuple[float, UpdateReport | None]] = {}
        self._building: str | None = None
        self._described: tuple[Store, tuple[int, int], dict[str, str]] | None = None
        self._closed = False

    async def update(self, root: str | os.PathLike[str], *, history: bool | None = None) -> UpdateReport:
        """Index ``root`` (a directory): its new, changed and deleted files, and its git history.

        ``history`` overrides the rules' setting. Raises DataError (``memory/root``) if ``root`` is not a readable
        directory. Files that cannot be indexed are listed in the report's ``skipped``; they never raise.
        """
        path = await own_thread(self._absolute, root)
        rules = self.rules if history is None else replace(self.rules, history=history)
        asked = time.monotonic()

        def work(check: Callable[[], None]) -> UpdateReport:
            began, report = self._updates.get((path, rules), (0.0, None))
            if report is not None and began >= asked:
                return report  # an equal update began after this one was requested, and covers it
            began = time.monotonic()
            self._building = None if self._opened().is_built(path) else path
            try:
                report = self._builder(path, rules, check).update(path)
            finally:
                self._building = None
            self._updates[path, rules] = (began, report)
            return report

        return await self._write(work)

    @property
    def building(self) -> bool:
        """Whether this index is indexing a root for the first time; changes to the store wait for the end of that."""
        return self._building is not None

    async def is_partial(self, root: str | os.PathLike[str]) -> bool:
        """Whether this index is indexing ``root`` for the first time, and some of its files can be found already."""
        path = await own_thread(self._absolute, root)
        return self._building == path and not await self._read(lambda store: store.is_empty(path))

    async def is_built(self, root: str | os.PathLike[str]) -> bool:
        """Whether ``root`` has been indexed as a whole, by any process."""
        path = await own_thread(self._absolute, root)
        return await self._read(lambda store: store.is_built(path))

    async def update_paths(self, root: str | os.PathLike[str], paths: Sequence[str]) -> UpdateReport:
        """Index single files of ``root``; ``paths`` are relative to it, or absolute and below it."""
        top = await own_thread(self._absolute, root)
        return await self._write(lambda check: self._builder(top, self.rules, check).update_paths(top, paths))

    def _absolute(self, root: str | os.PathLike[str]) -> str:
        path = name_text(text_name(os.fspath(root)))
        return path if self._opener(path) is not None else absolute_root(path)

    def _opener(self, root: str) -> OpenRoot | None:
        held = self._held
        return held.open_directory if held is not None and root in (name_text(str(top)) for top in held.roots) else None

    def _builder(self, root: str, rules: IndexRules, check: Callable[[], None]) -> Builder:
        return Builder(self._opened(), self._tokeniser, rules, check, self._opener(root))

    async def search(self, text: str, limit: int = 20, *, fields: Sequence[str] = ()) -> list[Ranked]:
        """The best ``limit`` files for ``text``, best first; ``fields`` restricts the searched fields (default all)."""

        def work(store: Store) -> list[Ranked]:
            return rank(store, self._tokeniser, text, self.weights, limit, self._read_rows, fields=fields)

        return await self._read(work)

    async def commits(self, text: str, limit: int = 20) -> list[FoundCommit]:
        """The best ``limit`` past commits with messages that resemble ``text``, best first."""
        return await self._read(lambda store: found_commits(store, self._tokeniser, text, limit))

    async def past(self, commits: Sequence[int]) -> dict[int, PastCommit]:
        """The commits with these ids."""
        return await self._read(lambda store: store.history.commits(commits))

    async def texts(self, files: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The current text on disk of ``(root, path)`` files; files that cannot be read are absent."""
        requested = sorted(set(files))
        return await self._read(lambda store: self._read_texts(requested))

    async def files(self) -> list[FileRow]:
        """Every indexed file, by root and path."""
        return await self._read(lambda store: store.all_rows())

    async def rows_at(self, files: Iterable[tuple[str, str]]) -> dict[tuple[str, str], FileRow]:
        """The indexed ones of ``(root, path)`` files."""
        requested = list(files)
        return await self._read(lambda store: store.rows_at(requested))

    async def read_store(self, work: Callable[[Store], T]) -> T:
        """Run ``work``, which reads the store, on the worker thread, and return its result."""
        return await self._read(work)

    async def change_store(self, work: Callable[[Store], T]) -> T:
        """Run ``work``, which changes the store, in one transaction on the worker thread, and return its result."""

        def changed() -> T:
            store = self._opened()
            with store.transaction():
                return work(store)

        return await self._write(lambda check: changed())

    async def count(self) -> int:
        """Number of indexed files."""
        return await self._read(lambda store: store.count())

    async def descriptions(self) -> dict[str, str]:
        """A line of description for each file, by absolute path."""

        def work(store: Store) -> dict[str, str]:
            version = store.version()
            if self._described is None or self._described[:2] != (store, version):
                lines = {
                    f"{root.rstrip('/')}/{path}": describe_file(language, lines, names)
                    for root, path, language, lines, names in store.described()
                }
                self._described = (store, version, lines)
            return self._described[2]

        return await self._read(work)

    async def skipped(self, limit: int = -1) -> list[tuple[str, str, str]]:
        """``(root, path, reason)`` of every file left out, or of the first ``limit``."""
        return await self._read(lambda store: store.skips(limit))

    async def rarity(self, phrases: Mapping[str, str]) -> dict[str, float]:
        """How rare each term is (with its phrase, see :meth:`~agentflow.lib.text.terms.Tokeniser.query_phrases`): its inverse
        document frequency, scaled to 0..1."""

        def work(store: Store) -> dict[str, float]:
            total = max(1, store.count())
            return {
                term: 1.0 - min(1.0, store.count_holding(phrase) / total) ** 0.5 for term, phrase in phrases.items()
            }

        return await self._read(work)

    async def watch(
        self, roots: Sequence[str | os.PathLike[str]], interval_s: float = 2.0
    ) -> AsyncIterator[UpdateReport]:
        """Check for changes every ``interval_s`` seconds, without end. Yields a report for each change."""
        while True:
            for root in roots:
                try:
                    report = await self.update(root)
                except DataError as error:
                    if error.code != "memory/busy":
                        raise
                    continue  # another process is updating the index
                if report.changed:
                    yield report
            await asyncio.sleep(interval_s)

    async def aclose(self) -> None:
        """Close the database and end the worker thread. May be called twice."""
        if self._closed:
            return
        if self._asked_for:
            await self._write(lambda check: self._close_store())
        self._closed = True
        self._worker.shutdown(wait=False)

    def _read_rows(self, rows: Sequence[FileRow]) -> dict[int, str]:
        texts = self._read_texts([(row.root, row.path) for row in rows])
        return {row.id: text for row in rows if (text := texts.get((row.root, row.path))) is not None}

    def _read_texts(self, files: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        texts: dict[tuple[str, str], str] = {}
        for root in dict.fromkeys(root for root, _ in files):
            try:
                reader = RootReader(root, self._opener(root))
            except (OSError, AgentflowError):
                continue
            with reader:
                for path in (path for top, path in files if top == root):
                    try:
                        texts[root, path] = decode(reader.read(path, self.rules.max_bytes)[0])
                    except Skip:
                        continue
        return texts

    def _opened(self) -> Store:
        if self._store is None:
            self._store = Store(self._database)
        return self._store

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    async def _write(self, work: Callable[[Callable[[], None]], T]) -> T:
        """Run ``work`` on the worker thread. Its argument answers waiting questions, and raises if the caller was cancelled."""
        self._check_open()
        stop = threading.Event()

        def check() -> None:
            if stop.is_set():
                raise BuildStopped
            if self._questions:
                self._opened().forget()
                self._answer(within=True)

        return await _job_result(self._worker.submit(self._tried, lambda: work(check)), stop)

    async def _read(self, work: Callable[[Store], T]) -> T:
        """Run ``work``, which only reads, on the worker thread, between two files if an update is running."""
        self._check_open()
        question = _Question(work, Future[Any]())
        self._questions.append(question)
        self._worker.submit(self._answer)
        return await _job_result(question.answer)

    def _answer(self, within: bool = False) -> None:
        """Answer the waiting questions, ``within`` an update or outside of one."""
        while self._questions:
            question = self._questions.popleft()
            answer = question.answer
            if not (answer.running() or answer.set_running_or_notify_cancel()):
                continue
            try:
                asked = partial(self._asked, question.work)
                answer.set_result(asked() if within else self._tried(asked))
            except Exception as error:  # noqa: BLE001 - raised again for the caller
                if within and (isinstance(error, sqlite3.Error | OSError) or self._may_be_replaced(error)):
                    # the database may have to be replaced, which is impossible during the update
                    self._questions.appendleft(question)
                    return
                answer.set_exception(error)

    def _asked(self, work: Callable[[Store], T]) -> T:
        store = self._opened()
        with store.snapshot():
            return work(store)

    def _check_open(self) -> None:
        if self._closed:
            raise DataError("the index is closed", code="memory/closed", hint="create a new FileIndex")
        self._asked_for = True

    def _tried(self, work: Callable[[], T]) -> T:
        while True:
            try:
                return work()
            except Exception as error:
                if self._may_be_replaced(error):
                    self._replace(error)
                elif isinstance(error, sqlite3.Error | OSError):
                    raise self._failure(error) from error
                else:
                    raise

    def _may_be_replaced(self, error: Exception) -> bool:
        """Whether ``error`` comes from the cache's file, so that the work can be tried again with an empty one.

        SQLite has no checksums: a damaged file may give any value, and code that reads it may raise anything. An error that
        recurs with a new file does not come from it.
        """
        if self._database is None or not self._cache or isinstance(error, AgentflowError | BuildStopped):
            return False
        if isinstance(error, sqlite3.Error | OSError):
            return _code_of(error) not in _BUSY
        return not self._rebuilt

    def _replace(self, error: Exception) -> None:
        """Replace the cache by an empty one: in its file once, then in memory."""
        path, store, self._store = self._database, self._store, None
        assert path is not None
        if store is not None:
            store.close()
        self.replaced += 1
        said = f"{error}" if isinstance(error, sqlite3.Error | OSError) else f"{type(error).__name__}: {error}"
        if not self._rebuilt and not isinstance(error, OSError) and _code_of(error) not in _UNUSABLE:
            self._rebuilt = True
            with contextlib.suppress(OSError):
                remove_database(path)
                self.notices.append(("memory/cache-rebuilt", f"the index at {path} was damaged and is rebuilt: {said}"))
                return
        self._database = None
        self.notices.append(
            ("memory/cache-unusable", f"the index cannot be stored at {path}, so it is in memory: {said}")
        )

    def _failure(self, error: sqlite3.Error | OSError) -> DataError:
        if _code_of(error) in _BUSY:
            return busy(self._database)
        return DataError(
            f"the index at {self._database or 'hand'} failed: {error}",
            code="memory/database",
            hint="delete the file (it is rebuilt from the sources) or name another cache directory",
        )


_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNUSABLE = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOMEM,
    }
)
"""Errors of a file that cannot be written or read at all; any other error means that its contents are wrong."""


def _code_of(error: Exception) -> int:
    """SQLite's primary result code; 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@frozen
class _Question:
    """A read of the store, and its result."""

    work: Callable[[Store], Any]
    answer: Future[Any]


async def _job_result(job: Future[T], stop: threading.Event | None = None) -> T:
    """The result of ``job``. If the caller is cancelled, even repeatedly, stop the job and wait for its end first."""
    future = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        import anyio

        if stop is not None:
            stop.set()
        job.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise


def absolute_root(root: str | os.PathLike[str]) -> str:
    """``root`` as an absolute, resolved path. Raises DataError (``memory/root``) if it is not a readable directory."""
    argument = text_name(os.fspath(root))
    try:
        path = os.path.realpath(argument, strict=True)
        os.scandir(path).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"cannot index {argument!r}: {reason.lower()}",
            code="memory/root",
            hint="give the path of a directory that exists and can be read",
        ) from None
    return name_text(path)


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

        Candidates that the index lacks, or that share no term with the question, are left out.
        """
        matches = await self._index.search(question.text, max(question.max_results, 2_000))
        scored = ((os.path.join(item.file.root, item.file.path), item.score) for item in matches)
        return [(path, score) for path, score in scored if path in candidates][: question.max_results]
