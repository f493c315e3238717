"""What git knows is used; what a hostile repository wants is not done."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentflow.memory import FileIndex
from agentflow.memory.git import GitFailed, GitRepository
from tests.support.repository import commit, git, repository, write


@pytest.fixture
async def index() -> AsyncIterator[FileIndex]:
    made = FileIndex()
    yield made
    await made.aclose()


async def indexed(index: FileIndex) -> list[str]:
    return [row.path for row in await index.files()]


async def test_tracked_and_untracked_files_without_the_ignored(index: FileIndex, tmp_path: Path) -> None:
    """The files are git's: ``.gitignore`` and ``info/exclude`` hold, a tracked file counts although it is ignored."""
    root = repository(tmp_path / "r", {"kept.log": "x", "a.py": "x"})
    write(root, {".gitignore": "*.log\nout/\n", "new.py": "x", "b.log": "x", "out/c.py": "x", "private.py": "x"})
    write(root, {".git/info/exclude": "private.py\n"})
    report = await index.update(root)
    assert report.git and await indexed(index) == [".gitignore", "a.py", "kept.log", "new.py"]


async def test_a_subdirectory_of_a_repository_is_a_root(index: FileIndex, tmp_path: Path) -> None:
    """Paths, ignore rules and history are relative to the root given."""
    root = repository(tmp_path / "r", {"pkg/a.py": "x", "other.py": "x", ".gitignore": "*.tmp"})
    commit(root, {"pkg/b.py": "y"}, "teach the walrus to sing")
    write(root, {"pkg/c.tmp": "x"})
    await index.update(root / "pkg")
    assert await indexed(index) == ["a.py", "b.py"]
    assert [item.file.path for item in await index.search("walrus")] == ["b.py"]


async def test_an_ignored_directory_given_as_root_is_walked(index: FileIndex, tmp_path: Path) -> None:
    """Where git knows no file of a root, the directory itself is looked at."""
    root = repository(tmp_path / "r", {".gitignore": "venv/"})
    write(root, {"venv/lib.py": "x"})
    await index.update(root / "venv")
    assert await indexed(index) == ["lib.py"]


async def test_nested_repositories_and_submodules_are_walked(index: FileIndex, tmp_path: Path) -> None:
    """Their files belong to the root too."""
    inner = repository(tmp_path / "inner", {"i.py": "x", ".gitignore": "*.o"})
    write(inner, {"x.o": "x"})
    root = repository(tmp_path / "r", {"a.py": "x"})
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    repository(root / "nested", {"n.py": "x"})
    await index.update(root)
    assert [path for path in await indexed(index) if path.endswith(".py")] == ["a.py", "nested/n.py", "sub/i.py"]


async def test_messages_of_past_commits_find_the_files_they_touched(index: FileIndex, tmp_path: Path) -> None:
    """A file is found by what was said when it was changed; without history it is not."""
    root = repository(tmp_path / "r", {"a.py": "x = 1", "b.py": "y = 1"})
    commit(root, {"a.py": "x = 2"}, "stop the flamingo from leaking")
    report = await index.update(root)
    found = await index.search("flamingo leak")
    assert report.commits == 2 and found[0].file.path == "a.py"
    assert found[0].signals["messages"] == 1.0 and found[0].signals["commits"] == 1.0
    await index.update(root, history=False)
    assert await index.search("flamingo leak") == []
    await index.update(root)
    assert (await index.search("flamingo leak"))[0].file.path == "a.py"


async def test_history_follows_the_commit_checked_out(index: FileIndex, tmp_path: Path) -> None:
    """Commits that are not ancestors of what is checked out say nothing: an evaluation cannot see the future."""
    root = repository(tmp_path / "r", {"a.py": "x = 1"})
    commit(root, {"a.py": "x = 2"}, "future flamingo")
    await index.update(root)
    git(root, "checkout", "-q", "HEAD^")
    report = await index.update(root)
    assert report.commits == 1 and await index.search("flamingo") == []


async def test_files_that_change_together_come_together(index: FileIndex, tmp_path: Path) -> None:
    """A file that shares no word with the question is found by its history with one that does."""
    root = repository(tmp_path / "r", {f"f{i}.py": f"n{i} = 0" for i in range(9)})
    for number in range(3):
        commit(root, {"f1.py": f"parser = {number}", "f5.py": f"n5 = {number + 1}"}, f"work {number}")
    await index.update(root)
    found = await index.search("parser")
    assert [item.file.path for item in found][:2] == ["f1.py", "f5.py"] and "cochange" in found[1].signals


async def test_commits_that_touch_everything_say_nothing(index: FileIndex, tmp_path: Path) -> None:
    """A mass edit's message would otherwise stick to every file."""
    root = repository(tmp_path / "r", {f"f{i}.py": "x" for i in range(60)}, "reformat the okapi")
    await index.update(root)
    assert await index.search("okapi") == []


async def test_a_repository_without_commits(index: FileIndex, tmp_path: Path) -> None:
    """There are files and no history."""
    root = repository(tmp_path / "r")
    write(root, {"a.py": "x"})
    report = await index.update(root)
    assert report.git and report.commits == 0 and await indexed(index) == ["a.py"]


async def test_a_linked_worktree_is_a_repository(index: FileIndex, tmp_path: Path) -> None:
    """Its ``.git`` file and the repository name each other, so its history is used."""
    root = repository(tmp_path / "r", {"a.py": "x"}, "hatch the platypus")
    git(root, "worktree", "add", "-q", str(tmp_path / "w"), "-b", "other")
    report = await index.update(tmp_path / "w")
    assert report.git and report.commits == 1 and (await index.search("platypus"))[0].file.path == "a.py"


async def test_a_git_file_that_points_at_another_repository_is_not_followed(index: FileIndex, tmp_path: Path) -> None:
    """Otherwise a directory could have the names and messages of any repository on the machine read."""
    repository(tmp_path / "victim", {"a.py": "x"}, "secret merger with Zebra Corp")
    write(tmp_path / "evil", {"a.py": "x", ".git": f"gitdir: {tmp_path}/victim/.git\n"})
    report = await index.update(tmp_path / "evil")
    assert not report.git and "does not belong to this directory" in report.note
    assert await indexed(index) == ["a.py"] and await index.search("zebra merger") == []


async def test_a_work_tree_moved_by_configuration_is_refused(index: FileIndex, tmp_path: Path) -> None:
    """``core.worktree`` in a hostile repository does not make git look elsewhere."""
    write(tmp_path / "elsewhere", {"secret.txt": "x"})
    root = repository(tmp_path / "r", {"a.py": "x"})
    git(root, "config", "core.worktree", str(tmp_path / "elsewhere"))
    report = await index.update(root)
    assert not report.git and "elsewhere" in report.note and await indexed(index) == ["a.py"]


async def test_a_hostile_repository_runs_nothing(index: FileIndex, tmp_path: Path) -> None:
    """Nothing that a repository's configuration, hooks or attributes name is executed by indexing it."""
    root = repository(tmp_path / "r", {"a.py": "x = 1", ".gitattributes": "* diff=evil filter=evil\n"})
    commit(root, {"a.py": "x = 2"}, "two")
    mark = tmp_path / "executed"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho $0 $@ >> {mark}\ncat\n")
    trap.chmod(0o755)
    for key in (
        "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.gitProxy", "core.askPass",
        "diff.external", "diff.evil.command", "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge",
        "filter.evil.process", "gpg.program", "pager.log", "pager.ls-files", "credential.helper", "alias.log",
        "uploadpack.packObjectsHook", "core.alternateRefsCommand", "interactive.diffFilter",
    ):  # fmt: skip
        git(root, "config", key, str(trap))
    git(root, "config", "core.hooksPath", str(tmp_path))
    git(root, "config", "log.showSignature", "true")
    for hook in ("post-index-change", "fsmonitor-watchman", "post-checkout", "reference-transaction"):
        os.link(trap, root / ".git/hooks" / hook) if not (root / ".git/hooks" / hook).exists() else None
    mark.unlink(missing_ok=True)
    report = await index.update(root)
    assert report.git and report.commits == 2 and not mark.exists()


async def test_hostile_names_and_messages_are_only_data(index: FileIndex, tmp_path: Path) -> None:
    """Control characters, separators and options in names and subjects neither confuse nor inject."""
    root = repository(tmp_path / "r")
    names = ["--help", "a b\tc.py", "new\nline.py", "-rf.py", '"quoted".py', "semi;colon.py", "dollar$(x).py"]
    commit(root, {name: "wombat = 1" for name in names}, 'x \x1e"); DROP TABLE files; --')
    report = await index.update(root)
    assert report.git and sorted(await indexed(index)) == sorted(names)
    assert len(await index.search('wombat "OR" NEAR( * ^ {')) == len(names)


def test_git_that_hangs_or_fails_is_a_reason(tmp_path: Path) -> None:
    """A broken repository is a GitFailed, which the builder reports before it walks the directory."""
    root = repository(tmp_path / "r", {"a.py": "x"})
    (root / ".git/HEAD").write_text("garbage")
    with pytest.raises(GitFailed):
        GitRepository.find(str(root), lambda: None)


async def test_a_broken_repository_is_walked(index: FileIndex, tmp_path: Path) -> None:
    """What git refuses is indexed without it, and the report says so."""
    root = repository(tmp_path / "r", {"a.py": "x"})
    (root / ".git/HEAD").write_text("garbage")
    report = await index.update(root)
    assert not report.git and report.note and await indexed(index) == ["a.py"]


def test_cancelling_ends_gits_process(tmp_path: Path) -> None:
    """When the check raises, the process is killed and reaped before the exception goes on."""
    root = repository(tmp_path / "r", {"a.py": "x"})
    found = GitRepository.find(str(root), lambda: None)
    assert found is not None
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nsleep 60 & wait\n")
    slow.chmod(0o755)

    class Stop(Exception):
        pass

    def check() -> None:
        raise Stop

    hanging = GitRepository(str(root), check)
    hanging._git = str(slow)
    with pytest.raises(Stop):
        hanging.files()
    left = subprocess.run(["pgrep", "-f", f"^/bin/sh {slow}"], capture_output=True, text=True).stdout
    assert left == ""
