"""The memory over files: an index, lexical ranking, and an optional re-ranker."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput, MatchItem, MatchKind
from agentflow.core.data.errors import AgentflowError, ConfigurationError, DataError, RunStopped, clip
from agentflow.core.ports.executor_ports import FilePort
from agentflow.core.ports.memory_ports import Candidate, CandidateSource, Embedder, Ranker
from agentflow.lib.distribution import install
from agentflow.lib.file_writer import name_text, text_name
from agentflow.lib.own_threads import own_thread
from agentflow.lib.text.sentence_rank import LexicalSentenceRanker
from agentflow.lib.text.suggest import did_you_mean
from agentflow.lib.text.terms import Tokeniser
from agentflow.memory.builder import UpdateReport
from agentflow.memory.index import FileIndex, absolute_root
from agentflow.memory.index_store import Store
from agentflow.memory.matches import (
    DEPTH,
    FILES_OF_SYMBOLS,
    Proposal,
    background,
    blended,
    commit_items,
    fused,
    match_items,
    preferred,
    proposals,
    summary,
    symbol_items,
)
from agentflow.memory.ranking import Ranked
from agentflow.memory.rules import IndexRules
from agentflow.memory.weights import BACKGROUND_WEIGHT, RankWeights

_LINES = 40
_TEXT = 1_600
"""Maximum number of characters per embedded text: small models read about 500 tokens."""
_TEXTS_OF_A_FILE = 8
_FILES_AT_ONCE = 16
_TEXTS_AT_ONCE = 32
_QUESTION = 4_000


class EmbeddingSource:
    """The :class:`~agentflow.core.ports.memory_ports.CandidateSource` that uses an embedding model.

    Parameters: ``index`` holds the files, and the vectors in its database; ``embedder`` computes vectors. A file has one per 40
    lines, up to 8. Raises ConfigurationError (``memory/numpy``) without the extra ``embeddings``.
    """

    def __init__(self, index: FileIndex, embedder: Embedder) -> None:
        if importlib.util.find_spec("numpy") is None:
            raise ConfigurationError(
                "embeddings need numpy, which is not installed",
                code="memory/numpy",
                hint=install("embeddings"),
            )
        self.embedder = embedder
        self._index = index

    async def update(self, call: CallContext | None, most: int | None = None) -> int:
        """Compute the vectors of new and changed files, of at most ``most`` files.

        Returns a lower bound of the number of files left. Computed vectors are kept if the server fails. Raises the errors
        of the embedder.
        """
        model = self.embedder.model
        done = 0
        while True:
            wanted = _FILES_AT_ONCE if most is None else min(_FILES_AT_ONCE, most - done)
            # one more than will be processed, to see whether any is left
            files = await self._index.read_store(lambda store, limit=wanted + 1: store.vectors.missing(model, limit))
            some = files[:wanted]
            if not some:
                return len(files)
            texts = await self._index.texts((root, path) for _, root, path, _ in some)
            pieces = [(file, piece) for file in some for piece in _pieces(file[2], texts.get((file[1], file[2]), ""))]
            vectors: list[bytes] = []
            for start in range(0, len(pieces), _TEXTS_AT_ONCE):
                part = [text for _, (_, _, text) in pieces[start : start + _TEXTS_AT_ONCE]]
                vectors += _packed(await self.embedder.embed(part, call))
            vectors_by_file: dict[int, list[tuple[int, int, bytes]]] = {file[0]: [] for file in some}
            for (file, (first, last, _)), vector in zip(pieces, vectors, strict=True):
                vectors_by_file[file[0]].append((first, last, vector))

            def keep(
                store: Store, files: Sequence[Any] = some, vectors_by_file: dict[int, Any] = vectors_by_file
            ) -> None:
                for id, _, _, digest in files:
                    store.vectors.put(id, digest, model, vectors_by_file[id])

            await self._index.change_store(keep)
            done += len(some)

    async def candidates(
        self, question: ContextGenerationInput, limit: int, call: CallContext | None = None
    ) -> list[Candidate]:
        """The ``limit`` files with the texts nearest to the question, each with its nearest lines."""
        (vector,) = await self.embedder.embed([question.text[:_QUESTION]], call)
        near = await self._index.read_store(lambda store: _nearest(store, self.embedder.model, vector, limit))
        if near is None:
            # the server now has another model under this name; its vectors cannot be compared with the stored ones
            await self._index.change_store(lambda store: store.vectors.clear())
            await self.update(call, most=_FILES_AT_ONCE)
            near = await self._index.read_store(lambda store: _nearest(store, self.embedder.model, vector, limit))
        return [
            Candidate(path, (first, last), score, f"similar meaning (similarity {score:.2f})")
            for path, first, last, score in near or ()
        ]


def _pieces(path: str, text: str) -> list[tuple[int, int, str]]:
    """The texts to embed for a file, each with its first and last line; the path gives the model their context."""
    lines = text.splitlines()
    starts = islice(range(0, len(lines), _LINES), _TEXTS_OF_A_FILE)
    return [
        (start + 1, min(start + _LINES, len(lines)), f"{path}\n" + "\n".join(lines[start : start + _LINES])[:_TEXT])
        for start in starts
        if any(line.strip() for line in lines[start : start + _LINES])
    ]


def _packed(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """Unit vectors in half precision: cosines differ by less than a thousandth."""
    import numpy

    rows = numpy.asarray(vectors, dtype=numpy.float32)
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    return [row.tobytes() for row in (rows / numpy.maximum(lengths, 1e-9)).astype(numpy.float16)]


def _nearest(store: Store, model: str, vector: Sequence[float], limit: int) -> list[tuple[str, int, int, float]] | None:
    """Path, lines and similarity of the files nearest to ``vector``; None if the stored vectors have another length."""
    import numpy

    asked = numpy.frombuffer(_packed([vector])[0], dtype=numpy.float16).astype(numpy.float32)
    best: dict[int, tuple[float, int, int]] = {}
    for some in store.vectors.read(model):
        stored = b"".join(map(itemgetter(3), some))
        if len(stored) != len(some) * len(vector) * 2:
            return None
        rows = numpy.frombuffer(stored, dtype=numpy.float16).reshape(len(some), -1).astype(numpy.float32)
        for (file, first, last, _), score in zip(some, (rows @ asked).tolist(), strict=True):
            if score > 0 and (file not in best or score > best[file][0]):
                best[file] = (score, first, last)
    files = sorted(best, key=lambda file: (-best[file][0], file))[:limit]
    rows_of = store.rows(files)
    return [
        (f"{rows_of[file].root.rstrip('/')}/{rows_of[file].path}", best[file][1], best[file][2], best[file][0])
        for file in files
        if file in rows_of
    ]


_log = logging.getLogger(__name__)

_METADATA_FIELDS = ("path", "symbols", "messages")
_SHOWN_SKIPS = 1_000
_FIRST_FILES_S = 1.0
"""Seconds that a question waits for another process to store the first files of an index."""
_TRY_AGAIN_S = 0.1
_EMBEDDED_BY_A_QUESTION = 200
"""Maximum number of changed files that a question computes vectors for; indexing computes all."""
_LOOK_SHARE = 10
"""Scanning for changes takes at most this fraction (1/n) of the time: very large roots are scanned less often."""
_CONFIG_KEYS = ("cache_dir", "candidates", "refresh_s", "history", "max_bytes", "max_files", "max_commits")


class FileMemory:
    """Finds relevant files below its roots.

    The :class:`~agentflow.core.ports.memory_ports.ContextFinder` of a flow. Parameters: ``config`` may hold ``cache_dir``,
    ``candidates`` (number of files shown to a ranker, default 30), ``refresh_s`` (the age in seconds when a question scans for
    changes, default 1.0, more for roots slow to scan; 0 always scans), ``history``, ``max_bytes``, ``max_files``
    and ``max_commits``; ``roots`` are the directories to index, at the first question or by :meth:`update_global_index`
    (default: those of ``files``); ``ranker`` re-orders the best candidates; ``sources`` add candidates; ``embedder`` adds files
    of similar meaning; ``files`` is the flow's file access; ``weights`` are those of the ranking. Without ``cache_dir`` the
    index is in memory. Raises ConfigurationError for an unknown setting.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        roots: Sequence[str | os.PathLike[str]] | None = None,
        ranker: Ranker | None = None,
        sources: Sequence[CandidateSource] = (),
        embedder: Embedder | None = None,
        files: FilePort | None = None,
        weights: RankWeights | None = None,
    ) -> None:
        settings = _checked(config or {})
        self.ranker = ranker
        self.sources = tuple(sources)
        self._roots = [os.fspath(root) for root in (roots if roots is not None else files.roots if files else ())]
        self._candidates = int(settings.get("candidates", 30))
        self._refresh_s = float(settings.get("refresh_s", 1.0))
        defaults = IndexRules()
        rules = IndexRules(
            max_bytes=int(settings.get("max_bytes", defaults.max_bytes)),
            max_files=int(settings.get("max_files", defaults.max_files)),
            history=bool(settings.get("history", defaults.history)),
            max_commits=int(settings.get("max_commits", defaults.max_commits)),
        )
        cache_dir = settings.get("cache_dir")
        database = database_path(Path(cache_dir), self._roots) if cache_dir else None
        self.index = FileIndex(database, cache=True, rules=rules, weights=weights, held=files)
        self.embeddings = EmbeddingSource(self.index, embedder) if embedder is not None else None
        self._tokeniser = Tokeniser(20_000)
        self._sentences = LexicalSentenceRanker()
        self._next_look: dict[str, float] = {}
        self._written_elsewhere: set[str] = set()
        self._tops: dict[str, None] = {}
        self._history: dict[str, bool] = {}
        self._stated: dict[str, str] = {}
        self._metadata: dict[str, str] = {}

    @property
    def roots(self) -> tuple[str, ...]:
        """The indexed directories."""
        return tuple(self._roots)

    @property
    def asks_others(self) -> bool:
        """Whether sources propose files."""
        return bool(self.sources) or self.embeddings is not None

    @property
    def global_index(self) -> dict[str, str]:
        """Absolute path to a line of metadata (language, length, names defined), as of the last update."""
        return {**self._metadata, **self._stated}

    async def index_git_repository(
        self, repo_path: str | os.PathLike[str], options: Mapping[str, Any] | None = None
    ) -> UpdateReport:
        """Add ``repo_path``, any directory, to the roots and index it, with its history.

        ``options`` may hold ``history`` (bool). Raises DataError (``memory/root``) if it is not a readable directory.
        """
        root = await own_thread(absolute_root, repo_path)
        if root not in await own_thread(_resolved, self._roots):
            self._roots.append(root)
        if options and "history" in options:
            self._history[root] = bool(options["history"])
        report = await self._look(root)
        if self.embeddings is not None:
            await self.embeddings.update(None)
        await self._describe()
        return report

    async def update_global_index(self, index: Mapping[str, str] | None = None) -> list[UpdateReport]:
        """Index all roots and return a report for each; with ``index`` (path to metadata), add those entries to :attr:`global_index`.

        Such entries are matched by their text, whether or not their paths are files.
        """
        if index is not None:
            self._stated.update({str(path): str(text) for path, text in index.items()})
            if not self._roots:
                return []
        replaced = -1
        reports: list[UpdateReport] = []
        while replaced != self.index.replaced:  # a damaged file takes with it the entries indexed into it just now
            replaced = self.index.replaced
            reports = [await self._look(root) for root in self._roots]
        if self.embeddings is not None:
            await self.embeddings.update(None)
        await self._describe()
        self._say_notices(None)
        return reports

    async def watch(self, interval_s: float = 2.0) -> AsyncIterator[UpdateReport]:
        """Check all roots for changes every ``interval_s`` seconds, without end. Yields a report for each change."""
        async for report in self.index.watch(list(self._roots), interval_s):
            await self._describe()
            yield report

    async def find(self, question: ContextGenerationInput, call: CallContext | None = None) -> AssociativeMatchResult:
        """The files relevant to ``question``, best first, each with its best-matching lines.

        ``content`` of a match are those lines, ``start_line`` and ``end_line`` their numbers; ``score`` is in 0..1;
        ``metadata`` has ``root``, ``relative_path``, ``language`` and the signals behind the score. ``error`` is set if a
        root cannot be read. ``skipped`` lists files missing from the index, or not yet in it. An error of a source or ranker
        becomes a warning, and the result is computed without it. Both are called within ``call``. With ``fresh_context``
        disabled it finds nothing. Raises only cancellation and RunStopped.
        """
        if question.fresh_context == "disabled":
            return AssociativeMatchResult(context_summary=question.inherited_context)
        try:
            ranked, terms, partial = await self._asked_index(question, call)
        except AgentflowError as error:
            return AssociativeMatchResult(context_summary="the lookup failed", error=error.message)
        ranked, left_out = await self._with_sources(question, ranked, call)
        if self.ranker is not None and ranked:
            ranked = await self._reranked(self.ranker, question, ranked, call)
        matches = await self._of_kinds(question, ranked, terms)
        skipped = [{"path": path, "reason": reason} for path, reason in [*partial, *left_out]]
        for root, path, reason in await self.index.skipped(_SHOWN_SKIPS):
            skipped.append({"path": os.path.join(root, path), "reason": reason})
        return AssociativeMatchResult(context_summary=summary(question.text, matches), matches=matches, skipped=skipped)

    async def search(self, query: str, k: int = 20, *, kinds: Sequence[MatchKind] = ("file",)) -> list[MatchItem]:
        """The best ``k`` matches for ``query``, not re-ranked. Raises AgentflowError if a root is unreadable."""
        question = ContextGenerationInput(query=query, max_results=k, kinds=list(kinds))
        return await self._of_kinds(question, *await self._ranked(question))

    async def ranked(self, query: str, k: int = 20) -> list[Ranked]:
        """The best ``k`` files for ``query`` in the order of :meth:`search`, without their lines. Raises AgentflowError."""
        ranked, _ = await self._ranked(ContextGenerationInput(query=query, max_results=k))
        return ranked[:k]

    async def _ranked(self, question: ContextGenerationInput) -> tuple[list[Ranked], dict[str, float]]:
        """The files for a question asked outside of a run, and its terms with their rarity."""
        ranked, terms, _ = await self._asked_index(question, None)
        ranked, _ = await self._with_sources(question, ranked, None)
        return ranked, terms

    async def _asked_index(
        self, question: ContextGenerationInput, call: CallContext | None
    ) -> tuple[list[Ranked], dict[str, float], list[tuple[str, str]]]:
        """The files for a question, its terms with their rarity, and the roots with an outdated index, with reasons."""
        while True:
            replaced = self.index.replaced
            partial = await self._refresh(call)
            ranked, terms = await self._found(question)
            self._say_notices(call)
            if self.index.replaced == replaced:
                return ranked, terms, partial
            self._next_look.clear()  # the file was damaged, and the one in its place is empty

    async def _of_kinds(
        self, question: ContextGenerationInput, ranked: Sequence[Ranked], terms: Mapping[str, float]
    ) -> list[MatchItem]:
        """The matches of the kinds that the question asks for, best first."""
        count = question.max_results
        items: list[MatchItem] = []
        if "file" in question.kinds:
            items += await self._with_stated(question, await self._matches(ranked[:count], terms))
        if "symbol" in question.kinds:
            texts = await self.index.texts((item.file.root, item.file.path) for item in ranked[:FILES_OF_SYMBOLS])
            # a separate tokeniser, because its cache of words serves one thread only
            items += await own_thread(symbol_items, ranked, texts, terms, Tokeniser(20_000))
        if "commit" in question.kinds:
            items += commit_items(await self.index.commits(question.text, count), terms)
        return sorted(items, key=lambda match: -match.score)[:count] if len(question.kinds) > 1 else items[:count]

    async def describe(self, paths: Sequence[str], strategy: str = "content") -> dict[str, str]:
        """The text shown to a re-ranker for each path: its metadata line and, for ``content``, its first lines."""
        if strategy == "metadata":
            metadata = self.global_index
            return {path: metadata.get(path, "") for path in paths}
        split = {path: self._split(path) for path in paths}
        texts = await self.index.texts(location for location in split.values() if location is not None)
        metadata = self.global_index
        return {
            path: f"{metadata.get(path, '')}\n{texts.get(location, '')[:4_000]}" if location else metadata.get(path, "")
            for path, location in split.items()
        }

    async def aclose(self) -> None:
        """Close the index and its thread, and the embedder's connections."""
        await self.index.aclose()
        if self.embeddings is not None:
            await self.embeddings.embedder.aclose()

    async def __aenter__(self) -> FileMemory:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _refresh(self, call: CallContext | None) -> list[tuple[str, str]]:
        """Update the due roots. Returns ``(root, reason)`` for those with an outdated index.

        A question that arrives during a first build, or while another process indexes, is answered from the stored part.
        """
        now = time.monotonic()
        stale = [root for root in self._roots if now >= self._next_look.get(root, 0.0)]
        changed = False
        partial: list[tuple[str, str]] = []
        for root in self._roots:
            if root in stale and not await self._is_building(root):
                report = await self._look(root)
                changed = report.changed or changed
                (self._written_elsewhere.add if report.busy else self._written_elsewhere.discard)(root)
            reason = await self._behind(root)
            if reason is not None:
                partial.append((root, reason))
                self._warn(call, "memory/building", f"{root}: {reason}")
        if changed or (stale and not self._metadata):
            await self._describe()
        return partial

    async def _is_building(self, root: str) -> bool:
        return self.index.building and await self.index.is_partial(root)

    async def _behind(self, root: str) -> str | None:
        """The reason why the index of ``root`` is behind the disk: it is being built, or another process is updating it."""
        elsewhere = root in self._written_elsewhere
        if elsewhere and await self.index.is_built(root):
            return "another process is updating its index; the answer uses the index as it is now"
        if elsewhere or await self._is_building(root):
            return f"it is being indexed: {await self.index.count():,} files so far; the others cannot be found yet"
        return None

    def _say_notices(self, call: CallContext | None) -> None:
        """Warn of each notice about the index's file, once."""
        notices, self.index.notices = self.index.notices, []
        for code, message in notices:
            self._warn(call, code, message)

    def _warn(self, call: CallContext | None, code: str, message: str) -> None:
        """Publish a warning; outside of a run, log it."""
        if call is not None:
            call.warn(code, message)
        else:
            _log.warning("%s", message)

    async def _look(self, root: str) -> UpdateReport:
        report = await self._updated(root)
        pause = max(self._refresh_s, _LOOK_SHARE * report.duration_s) if self._refresh_s else 0.0
        self._next_look[root] = time.monotonic() + pause
        self._tops[report.root] = None
        return report

    async def _updated(self, root: str) -> UpdateReport:
        began = time.monotonic()
        while True:
            try:
                return await self.index.update(root, history=self._history.get(root))
            except DataError as error:
                if error.code != "memory/busy":
                    raise
                # another process is updating it; the stored part can be used
                waited = time.monotonic() - began
                if waited >= _FIRST_FILES_S or await self.index.count():
                    top = await own_thread(absolute_root, root)
                    return UpdateReport(top, note=error.message, busy=True, duration_s=waited)
                await asyncio.sleep(_TRY_AGAIN_S)

    async def _describe(self) -> None:
        self._metadata = await self.index.descriptions()

    def _split(self, path: str) -> tuple[str, str] | None:
        """Split an absolute path into root and relative path; None if it is outside all roots."""
        for root in self._tops:
            prefix = f"{root.rstrip('/')}/"
            if path.startswith(prefix):
                return root, path.removeprefix(prefix)
        return None

    async def _found(self, input: ContextGenerationInput) -> tuple[list[Ranked], dict[str, float]]:
        fields = _METADATA_FIELDS if input.matching_strategy == "metadata" else ()
        count = max(input.max_results, self._candidates if self.ranker else 0, FILES_OF_SYMBOLS)
        count = max(count, DEPTH) if self.asks_others else count
        if input.target_files:
            count += 200
        ranked = await self.index.search(input.text, count, fields=fields)
        extra = background(input)
        if extra:
            near = await self.index.search(extra, count, fields=fields)
            ranked = blended(ranked, near, BACKGROUND_WEIGHT if ranked else 1.0)
        if input.target_files:
            ranked = preferred(ranked, input.target_files)
        terms = await self.index.rarity(dict(islice(self._tokeniser.query_phrases(input.text or extra).items(), 40)))
        return ranked, terms

    async def _with_sources(
        self, question: ContextGenerationInput, ranked: list[Ranked], call: CallContext | None
    ) -> tuple[list[Ranked], list[tuple[str, str]]]:
        """``ranked`` fused with the proposals of the sources; ``(path, reason)`` of proposals missing from the index."""
        answers: list[list[Proposal]] = []
        left_out: list[tuple[str, str]] = []
        limit = max(DEPTH, question.max_results)
        for source in (*self.sources, *([self.embeddings] if self.embeddings else ())):
            try:
                candidates = await self._asked(source, question, limit, call)
                answer, unknown = await self._proposals(candidates[:limit])
            except RunStopped:
                raise
            except Exception as error:  # noqa: BLE001 - a source belongs to the host, and the answer is valid without it
                self._warn(call, "memory/source", f"{type(source).__name__} proposed nothing: {_describe_error(error)}")
            else:
                answers.append(answer)
                left_out += unknown
        return (fused(ranked, answers) if answers else ranked), left_out

    async def _asked(
        self, source: CandidateSource, question: ContextGenerationInput, limit: int, call: CallContext | None
    ) -> Sequence[Candidate]:
        if not isinstance(source, EmbeddingSource):
            with HostCode(call.at(call.next_path("source"))) if call is not None else contextlib.nullcontext():
                return await source.candidates(question, limit)
        left = 0 if self.index.building else await source.update(call, most=_EMBEDDED_BY_A_QUESTION)
        if left:
            self._warn(
                call,
                "memory/embedding",
                f"{left:,} files or more have no vectors yet, and are found by their words only;"
                " `agentflow index --embeddings MODEL` computes all of them",
            )
        return await source.candidates(question, limit, call)

    async def _proposals(self, candidates: Sequence[Candidate]) -> tuple[list[Proposal], list[tuple[str, str]]]:
        split = {candidate.path: self._split(candidate.path) for candidate in candidates}
        rows = await self.index.rows_at(location for location in split.values() if location is not None)
        return proposals(candidates, {path: rows[at] for path, at in split.items() if at is not None and at in rows})

    async def _reranked(
        self, ranker: Ranker, question: ContextGenerationInput, ranked: list[Ranked], call: CallContext | None
    ) -> list[Ranked]:
        by_path = {os.path.join(item.file.root, item.file.path): item for item in ranked[: self._candidates]}
        described = await self.describe(list(by_path), question.matching_strategy)
        try:
            with HostCode(call) if call is not None else contextlib.nullcontext():
                order = await ranker.rank(question, described, call)
        except RunStopped:
            raise
        except Exception as error:  # noqa: BLE001 - a ranker belongs to the host, and the answer is valid without it
            self._warn(call, "memory/rerank", f"the ranker failed, so its order is not used: {_describe_error(error)}")
            return ranked
        best: list[Ranked] = []
        for path, score in order:
            item = by_path.pop(path, None)
            if item is not None:
                best.append(replace(item, score=min(1.0, max(0.0, score)), signals={**item.signals, "model": score}))
        return best or ranked

    async def _matches(self, ranked: Sequence[Ranked], terms: Mapping[str, float]) -> list[MatchItem]:
        texts = await self.index.texts((item.file.root, item.file.path) for item in ranked)
        past = await self.index.past([item.commit for item in ranked if item.commit is not None])
        return await own_thread(match_items, ranked, texts, terms, past)

    async def _with_stated(self, input: ContextGenerationInput, matches: list[MatchItem]) -> list[MatchItem]:
        """``matches`` merged with the matching entries of :meth:`update_global_index`, best first."""
        matched = {match.path for match in matches}
        entries = [path for path in self._stated if path not in matched]
        if not entries:
            return matches
        scores = self._sentences(input.text, [f"{path} {self._stated[path]}" for path in entries])
        extra = [
            MatchItem(
                path=path, content=self._stated[path], score=round(score, 6), kind="text", relevance="its metadata"
            )
            for path, score in zip(entries, scores, strict=True)
            if score > 0
        ]
        return sorted([*matches, *extra], key=lambda match: (-match.score, match.path))[: input.max_results]


def _checked(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in config:
        if key not in _CONFIG_KEYS:
            raise ConfigurationError(
                f"memory has no setting '{key}'",
                code="memory/setting",
                hint=did_you_mean(key, _CONFIG_KEYS) or f"the settings are {', '.join(_CONFIG_KEYS)}",
            )
    return config


def _describe_error(error: Exception) -> str:
    return error.message if isinstance(error, AgentflowError) else f"{type(error).__name__}: {clip(str(error), 300)}"


def _resolved(roots: Sequence[str]) -> set[str]:
    return {name_text(os.path.realpath(text_name(root))) for root in roots}


def default_cache_dir() -> Path:
    """The directory of stored indexes: ``$XDG_CACHE_HOME/agentflow``, else ``~/.cache/agentflow``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "agentflow"


def database_path(cache_dir: Path, roots: Sequence[str]) -> Path:
    """The index file for these roots below a cache directory: one file per set of roots."""
    named = "\0".join(sorted(_resolved(roots)))
    return cache_dir / f"index-{hashlib.blake2b(named.encode(), digest_size=8).hexdigest()}.db"
