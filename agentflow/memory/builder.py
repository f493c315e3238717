"""Updates an index: finds the files that changed, reads them, and reads the git history. Blocking."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from agentflow.core.data.errors import DataError
from agentflow.core.data.frozen import frozen
from agentflow.lib.file_writer import text_name
from agentflow.lib.text.terms import Tokeniser, repeated
from agentflow.memory.file_walk import OpenRoot, RootReader, Skip, StampFields, walk
from agentflow.memory.git import Commit, GitFailed, GitRepository
from agentflow.memory.index_rows import KnownFields, PastCommit
from agentflow.memory.index_store import Store
from agentflow.memory.rerank import ReadFile, described, digest_of
from agentflow.memory.rules import IndexRules, is_binary

_BATCH_S = 0.5
"""How long files are read before they are committed: so long other processes wait to write, and so much a kill undoes."""
_RACY_NS = 2_000_000_000
_TOGETHER, _TOGETHER_BYTES = 64, 1 << 18
"""So many files, or bytes of files, are described and stored together. Questions wait for them."""
_ID, _STAMP, _DIGEST = 0, slice(1, 4), 4
"""Fields of :class:`Known`; ``_STAMP`` are those of a :class:`Stamp`."""
_SHOWN_SKIPS = 10_000
_PASSED = 500
"""Number of unchanged files skipped without a look at the clock."""
_HALF_LIFE_COMMITS = 150.0


def busy(database: object = None) -> DataError:
    """The error of an update that another process is in the way of; ``database`` is the file, where it is known."""
    return DataError(
        f"another process is writing the index{f' at {database}' if database else ''}",
        code="memory/busy",
        hint="try again, or name another cache directory",
    )


class BuildStopped(Exception):
    """The caller was cancelled."""


@frozen
class UpdateReport:
    """The result of an update: file counts by outcome, commits read, and which files were left out and why.

    ``skipped`` lists ``(path, reason)``, at most 10,000; ``skipped_count`` counts all. ``duration_s`` in seconds.
    ``git`` says whether git listed the files; ``note`` why not, where there is a repository. ``busy``: nothing was done,
    because another process is at it.
    """

    root: str
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    commits: int = 0
    git: bool = False
    note: str = ""
    skipped: tuple[tuple[str, str], ...] = ()
    skipped_count: int = 0
    duration_s: float = 0.0
    busy: bool = False

    @property
    def files(self) -> int:
        """Number of files of the root that the index holds now."""
        return self.added + self.updated + self.unchanged

    @property
    def changed(self) -> bool:
        """Whether the update changed the index."""
        return bool(self.added or self.updated or self.removed)


@dataclass(slots=True)
class _Tally:
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    skips: dict[str, str] = field(default_factory=dict[str, str])
    skipped: int = 0

    def skip(self, path: str, reason: str) -> None:
        self.skipped += 1
        if len(self.skips) < _SHOWN_SKIPS:
            self.skips[path] = reason


class _Waiting:
    """Files that were read and wait until there are enough to be described and stored together, of the root ``root``."""

    def __init__(self, store: Store, root: int, tally: _Tally) -> None:
        self._store = store
        self._root = root
        self._tally = tally
        self._files: list[ReadFile] = []
        self._olds: list[int | None] = []
        self._bytes = 0

    def add(self, file: ReadFile, old: int | None) -> None:
        """Let ``file`` wait; it replaces the file ``old``, if there is one."""
        self._files.append(file)
        self._olds.append(old)
        self._bytes += len(file.data)
        if self._bytes >= _TOGETHER_BYTES or len(self._files) >= _TOGETHER:
            self.store()

    def store(self) -> None:
        """Store pending rows."""
        files = described(self._root, self._files) if self._files else []
        added = [file for file, old in zip(files, self._olds, strict=True) if old is None]
        if added:
            self._store.add(added)
        for file, old in zip(files, self._olds, strict=True):
            if old is not None:
                self._store.replace(old, file)
        self._tally.added += len(added)
        self._tally.updated += len(files) - len(added)
        self._files, self._olds, self._bytes = [], [], 0


_Listed = tuple[str, StampFields | None]
"""The path of a file to examine, and its stamp if that was read when it was listed."""


class Builder:
    """Updates a store. ``check`` is called before each file, and may read the store, or raise to end the update."""

    def __init__(
        self,
        store: Store,
        tokeniser: Tokeniser,
        rules: IndexRules,
        check: Callable[[], None],
        open_root: OpenRoot | None = None,
    ) -> None:
        self._store = store
        self._tokeniser = tokeniser
        self._rules = rules
        self._check = check
        self._open_root = open_root

    def update(self, root: str) -> UpdateReport:
        """Update the index for everything below ``root``. Raises DataError (``memory/busy``) while another process does."""
        if self._store.written_elsewhere():
            raise busy()
        try:
            return self._update(root)
        except BuildStopped:
            self._store.release()
            raise

    def _update(self, root: str) -> UpdateReport:
        began = time.perf_counter()
        tally = _Tally()
        note = ""
        repository: GitRepository | None = None
        with self._reader(root) as reader:
            try:
                # git is started in a path: a root moved away from its path has no history
                repository = GitRepository.find(text_name(root), self._check) if reader.is_at(root) else None
            except GitFailed as failure:
                note = str(failure)
            with self._store.transaction():
                root_id = self._store.root(root)
                accepted = self._accepted(root_id)
            history = self._new_history(repository, root_id, tally)
            with self._store.transaction():
                for new, old in history.renames():
                    self._store.rename(root_id, old, new)
                first = not self._store.is_built(root)
                if first:
                    self._store.claim()
                    self._store.begin_bulk()
            seen, indexed = self._bring_up_all(
                reader, root_id, self._listed(repository, reader, tally, first), tally, accepted
            )
            with self._store.transaction():
                if self._store.changed_elsewhere():
                    indexed = self._store.known(root_id)
                gone = [row[0] for path, row in indexed.items() if path not in seen]
                self._store.remove(gone)
                tally.removed += len(gone)
                self._store.set_skips(root_id, tally.skips)
                self._store.set_names(root_id, self._rules.names_digest())
                commits = self._remember(history, root_id)
        if first:
            self._store.end_bulk(self._check)
        with self._store.transaction():
            if first:
                self._store.set_built(root_id)
            self._store.release()
        return self._report(root, tally, began, commits=commits, git=repository is not None, note=note)

    def _accepted(self, root: int) -> bool:
        """Whether these rules have allowed the names of all indexed files of ``root``.

        If not, no rules count as having done so until an update has ended: other processes may have other rules.
        """
        accepted = self._store.names(root) == self._rules.names_digest()
        if not accepted:
            self._store.set_names(root, "")
        return accepted

    def _bring_up_all(
        self, reader: RootReader, root: int, listed: Iterator[_Listed], tally: _Tally, accepted: bool
    ) -> tuple[set[str], dict[str, KnownFields]]:
        """Bring the listed files up to date, in committed batches.

        Returns the examined paths, and the files that the index had before, by path.

        Committed batches survive a killed process; other processes write between two batches.
        """
        seen: set[str] = set()
        self._store.changed_elsewhere()
        indexed = self._store.known(root)

        def touched() -> Iterator[str | None]:
            """The files that may have changed; None now and then among many unchanged ones."""
            passed = 0
            for path, stamp in listed:
                if len(seen) >= self._rules.max_files:
                    tally.skip(path, f"more than {self._rules.max_files:,} files; this one and all after it")
                    return
                seen.add(path)
                row = indexed.get(path)
                if accepted and row is not None:
                    at = stamp or reader.stamp_fields(path)
                    if at is not None and _untouched(row, at):
                        tally.unchanged += 1
                        passed += 1
                        if passed % _PASSED == 0:
                            self._check()
                            yield None
                        continue
                yield path

        paths = touched()
        for first in paths:
            if first is None:
                continue
            with self._store.transaction():
                if self._store.changed_elsewhere():
                    indexed = self._store.known(root)
                end = time.monotonic() + _BATCH_S
                waiting = _Waiting(self._store, root, tally)
                for path in chain((first,), paths):
                    if path is not None:
                        self._check()
                        row = indexed.get(path)
                        file = self._examined(reader, path, row, tally, accepted)
                        if file is not None:
                            waiting.add(file, row[_ID] if row else None)
                    if time.monotonic() >= end:
                        self._store.claim()
                        break
                waiting.store()
        return seen, indexed

    def update_paths(self, root: str, paths: Sequence[str]) -> UpdateReport:
        """Update the index for ``paths`` only."""
        began = time.perf_counter()
        tally = _Tally()
        with self._reader(root) as reader, self._store.transaction():
            root_id = self._store.root(root)
            self._accepted(root_id)
            waiting = _Waiting(self._store, root_id, tally)
            for path in dict.fromkeys(path.removeprefix(root + "/").removeprefix("./") for path in paths):
                self._check()
                entry = self._store.known_one(root_id, path)
                file = self._examined(reader, path, entry, tally)
                if file is not None:
                    waiting.add(file, entry.id if entry else None)
                self._store.set_skip(root_id, path, tally.skips.get(path))
            waiting.store()
        return self._report(root, tally, began, commits=self._store.history.head(root_id)[1], git=False, note="")

    def _report(self, root: str, tally: _Tally, began: float, *, commits: int, git: bool, note: str) -> UpdateReport:
        return UpdateReport(
            root=root,
            added=tally.added,
            updated=tally.updated,
            removed=tally.removed,
            unchanged=tally.unchanged,
            commits=commits,
            git=git,
            note=note,
            skipped=tuple(sorted(tally.skips.items())),
            skipped_count=tally.skipped,
            duration_s=time.perf_counter() - began,
        )

    def _reader(self, root: str) -> RootReader:
        try:
            return RootReader(root, self._open_root)
        except OSError as error:
            raise DataError(
                f"cannot index {root!r}: {(error.strerror or str(error)).lower()}",
                code="memory/root",
                hint="give the path of a directory that exists and can be read",
            ) from None

    def _listed(
        self, repository: GitRepository | None, reader: RootReader, tally: _Tally, first: bool
    ) -> Iterator[_Listed]:
        """The files to examine, sorted: those git lists, if it lists any, else those found by walking the tree.

        A ``first`` build opens nearly all of them, which yields their stamps.
        """
        walked = partial(walk, reader, self._rules, tally.skip, self._check, stamps=not first)
        names: list[str] = []
        if repository is not None:
            try:
                names = repository.files()
                nested = repository.submodules() if names else frozenset[str]()
            except GitFailed as failure:
                tally.skip(".", f"{failure}; the directory was walked instead")
                names, nested = [], frozenset[str]()
            for name in names:
                if name in nested or name.endswith("/"):
                    yield from walked(name.rstrip("/"))
                else:
                    yield name, None
        if not names:
            yield from walked()

    def _examined(
        self, reader: RootReader, path: str, entry: KnownFields | None, tally: _Tally, accepted: bool = False
    ) -> ReadFile | None:
        """Read one file; None if there is nothing to describe anew.

        ``accepted``: the rules allow the names of all files that the index has read.
        """
        try:
            untouched = entry is not None and _untouched(entry, reader.stamp(path))
            if not (untouched and accepted):
                refused = self._rules.refuse(path)
                if refused is not None:
                    raise Skip(refused)
            if untouched:
                tally.unchanged += 1
                return None
            read_ns = time.time_ns()
            data, stamp = reader.read(path, self._rules.max_bytes)
            if is_binary(data):
                raise Skip("binary")
        except Skip as reason:
            tally.skip(path, str(reason))
            if entry is not None:
                self._store.remove([entry[_ID]])
                tally.removed += 1
            return None
        digest = digest_of(data)
        if entry is not None and entry[_DIGEST] == digest:
            self._store.touch(entry[_ID], *stamp, read_ns)
            tally.unchanged += 1
            return None
        return ReadFile(path, data, digest, stamp, read_ns)

    def _new_history(self, repository: GitRepository | None, root: int, tally: _Tally) -> _History:
        """The commits that the index lacks; all of them if the indexed ones are not part of the history."""
        head, count = self._store.history.head(root)
        if repository is None or not self._rules.history:
            return _History("", 0, (), anew=bool(head))
        now = repository.head()
        if now == head:
            return _History(head, count, ())
        try:
            if head and repository.descends_from(head):
                return _History(now, count, tuple(repository.log(self._rules.max_commits, since=head)))
            return _History(now, 0, tuple(repository.log(self._rules.max_commits)), anew=True)
        except GitFailed as failure:
            tally.skip(".git", str(failure))
            return _History(head, count, ())

    def _remember(self, history: _History, root: int) -> int:
        """Add ``history`` to the index. Returns the number of commits it holds then."""
        if history.anew:
            self._store.history.clear(root)
        ids = self._store.paths(root) if history.commits else {}
        now_called: dict[str, str] = {}
        added: list[tuple[PastCommit, Counter[str], list[int]]] = []
        messages: dict[int, Counter[str]] = {}
        times: dict[int, list[float]] = {}
        total = history.count + len(history.commits)
        for age, commit in enumerate(history.commits):
            self._check()
            names = {now_called.get(path, path) for path in commit.paths}
            for new, old in commit.renames.items():
                now_called[old] = now_called.get(new, new)
            files = sorted(ids[name] for name in names if name in ids)
            if not files or len(commit.paths) > self._rules.max_files_per_commit:
                continue
            bag = self._tokeniser.bag(commit.subject)
            added.append((PastCommit(root, commit.digest, commit.time, commit.subject), bag, files))
            for file in files:
                messages.setdefault(file, Counter()).update(bag)
                times.setdefault(file, []).append((total - age) / _HALF_LIFE_COMMITS)
        for past, bag, files in reversed(added):
            self._store.history.add(past, _joined(bag), files)
        for file, bag in messages.items():
            self._store.history.add_to_file(file, _joined(bag), times[file])
        if history.commits or history.anew:
            self._store.history.set_head(root, history.head, total)
        return total


@frozen
class _History:
    """An addition to an index: ``commits``, newest first, after the ``count`` it has; ``anew``: instead of those."""

    head: str
    count: int
    commits: tuple[Commit, ...]
    anew: bool = False

    def renames(self) -> Iterator[tuple[str, str]]:
        """``(new path, old path)``, oldest first."""
        for commit in reversed(self.commits):
            yield from commit.renames.items()


def _joined(bag: Counter[str]) -> str:
    return repeated((f"{term} ", times) for term, times in bag.items())


def _untouched(entry: KnownFields, stamp: StampFields) -> bool:
    """Whether size, time and inode prove that a file is unchanged. ``entry`` has the fields of :class:`Known`.

    A file that changes within one tick of the clock after it was read looks unchanged, so a file that was recent when
    it was read is read again (git calls such entries racy).
    """
    return entry[_STAMP] == stamp and entry[2] < entry[5] - _RACY_NS
