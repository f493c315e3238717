"""The history of an index: what a commit adds costs that commit, and gives what reading the whole log gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agentflow.lib.text.terms import Tokeniser
from agentflow.memory.builder import Builder
from agentflow.memory.git import GitRepository
from agentflow.memory.index_store import Store
from agentflow.memory.rules import IndexRules
from tests.support.repository import commit, git, repository, write

WORDS = ["walrus", "flamingo", "otter", "badger", "heron", "lynx", "marten", "stoat", "vole", "finch"]


class Index:
    """A store and what fills it, without threads."""

    def __init__(self) -> None:
        self.store = Store(None)
        self._tokeniser = Tokeniser()

    def update(self, root: Path) -> int:
        return Builder(self.store, self._tokeniser, IndexRules(), lambda: None).update(str(root)).commits

    def said(self) -> dict[str, tuple[list[str], float, list[str]]]:
        """By path: messages whose commits touched it, newest first; recency; files that changed with it."""
        rows = {row.id: row for row in self.store.all_rows()}
        said: dict[str, tuple[list[str], float, list[str]]] = {}
        for id, row in rows.items():
            commits = self.store.history.commits_of(id, 1_000)
            beside = [rows[other].path for _, other in self.store.history.files(commits)] if commits else []
            found = [word for word in WORDS if id in self.store.search("messages", [word], 100)]
            said[row.path] = (
                [*(past.subject for past in self.store.history.commits(commits).values()), *found],
                round(row.recency, 6),
                sorted(beside),
            )
        return said


@pytest.mark.parametrize("seed", range(6))
def test_commits_one_by_one_give_what_the_whole_log_gives(tmp_path: Path, seed: int) -> None:
    """Files that are changed, added, removed and moved; an index that saw every commit, one that saw some, a new one."""
    rng = random.Random(seed)
    root = repository(tmp_path / "r", {f"f{n}.py": f"def f{n}(): ...\n" * 5 for n in range(6)}, "begin with it all")
    every, some = Index(), Index()
    for number in range(12):
        files = sorted(path.name for path in root.glob("*.py"))
        name = rng.choice(files)
        match rng.randrange(4):
            case 0:
                git(root, "mv", name, f"moved{number}.py")
            case 1 if len(files) > 3:
                git(root, "rm", "-q", name)
            case 2:
                write(root, {f"new{number}.py": f"def g{number}(): ...\n"})
        others = [other for other in rng.sample(files, min(2, len(files))) if (root / other).exists()]
        commit(root, {o: (root / o).read_text() + f"x{number} = 1\n" for o in others}, f"{rng.choice(WORDS)} {number}")
        assert every.update(root) == number + 2
        if rng.random() < 0.4:
            some.update(root)
    whole = Index()
    assert whole.update(root) == some.update(root) == 13
    assert every.said() == some.said() == whole.said()


def test_a_moved_file_keeps_its_history(tmp_path: Path) -> None:
    """What was said about a file is found under its new path, in a new index and in one that saw the move."""
    root = repository(tmp_path / "r", {"a.py": "x = 1\ny = 2\n", "b.py": "z = 3\n"})
    commit(root, {"a.py": "x = 1\ny = 3\n"}, "stop the flamingo from leaking")
    index = Index()
    index.update(root)
    (root / "deep").mkdir()
    git(root, "mv", "a.py", "deep/c.py")
    git(root, "commit", "-q", "-m", "tidy")
    index.update(root)
    fresh = Index()
    fresh.update(root)
    for each in (index, fresh):
        assert [row.path for row in each.store.rows(list(each.store.search("messages", ["flamingo"], 9))).values()] == [
            "deep/c.py"
        ]


def test_a_commit_is_read_once(tmp_path: Path) -> None:
    """An update after a new commit asks git for that commit only; another branch is read as a whole."""
    root = repository(tmp_path / "r", {"a.py": "1"})
    first = commit(root, {"a.py": "2"}, "second")
    repository_ = GitRepository.find(str(root), lambda: None)
    assert repository_ is not None
    last = commit(root, {"a.py": "3"}, "third")
    assert [entry.digest for entry in repository_.log(100, since=first)] == [last]
    assert repository_.descends_from(first) and repository_.descends_from(last)
    git(root, "checkout", "-q", "-b", "side", first)
    commit(root, {"a.py": "4"}, "fourth")
    assert not repository_.descends_from(last)


@pytest.mark.slow
def test_a_commit_costs_that_commit(tmp_path: Path) -> None:
    """What SQLite does to take in one commit does not grow with the history before it."""
    steps: dict[int, int] = {}
    for past in (3, 24):
        root = repository(tmp_path / str(past), {f"f{n}.py": f"x = {n}\n" for n in range(5)})
        for number in range(past):
            commit(root, {f"f{number % 5}.py": f"y = {number}\n"}, f"change number {number}")
        index = Index()
        index.update(root)
        commit(root, {"f1.py": "flamingo = 1\n"}, "teach the flamingo")
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        index.store._db.set_progress_handler(step, 10)  # pyright: ignore[reportPrivateUsage] - no method counts its steps
        assert index.update(root) == past + 2
        steps[past] = count
    assert 20 < steps[24] < 1.5 * steps[3], steps
