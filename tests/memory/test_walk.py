"""Finding and reading files never leaves the root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentflow.memory.file_walk import RootReader, Skip, walk
from agentflow.memory.rules import IndexRules
from tests.support.repository import write


def found(root: Path) -> tuple[list[str], dict[str, str]]:
    skipped: dict[str, str] = {}
    with RootReader(str(root)) as reader:
        listed = list(walk(reader, IndexRules(), skipped.__setitem__, lambda: None))
        assert [stamp for _, stamp in listed] == [reader.stamp(path) for path, _ in listed]
        again: dict[str, str] = {}
        assert listed == [
            (path, reader.stamp(path))
            for path, _ in walk(reader, IndexRules(), again.__setitem__, lambda: None, stamps=False)
        ]
        assert again == skipped
    return [path for path, _ in listed], skipped


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    """The order is the same on every file system: names sorted, a directory's files before those of directories in it."""
    write(tmp_path, {"b.py": "", "a/z.py": "", "a/b/c.py": "", "c.py": "", "A.py": ""})
    assert found(tmp_path)[0] == ["A.py", "b.py", "c.py", "a/z.py", "a/b/c.py"]


def test_symbolic_links_are_reported_and_not_followed(tmp_path: Path) -> None:
    """Loops end, and nothing outside is read by way of a link to a file or a directory."""
    outside = tmp_path / "outside"
    write(outside, {"secret.txt": "s"})
    root = tmp_path / "root"
    write(root, {"a/x.py": ""})
    (root / "a/loop").symlink_to(root)
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "dir").symlink_to(outside)
    paths, skipped = found(root)
    assert paths == ["a/x.py"]
    assert set(skipped) == {"a/loop", "link.txt", "dir"} and set(skipped.values()) == {"a symbolic link"}


def test_a_directory_swapped_for_a_link_is_not_entered(tmp_path: Path) -> None:
    """What was a directory when it was listed and is a link when it is read gives no file."""
    outside = tmp_path / "outside"
    write(outside, {"x.txt": "secret"})
    root = tmp_path / "root"
    write(root, {"d/x.txt": "fine"})
    with RootReader(str(root)) as reader:
        (root / "d").rename(root / "e")
        (root / "d").symlink_to(outside)
        with pytest.raises(Skip, match="symbolic link"):
            reader.read("d/x.txt", 1000)
        with pytest.raises(Skip, match="symbolic link"):
            reader.stamp("d/x.txt")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", ".", "a//b", "a/./b", "x\0y"])
def test_a_path_that_is_not_below_the_root_is_refused(tmp_path: Path, path: str) -> None:
    """Only plain relative paths are opened."""
    with RootReader(str(tmp_path)) as reader, pytest.raises(Skip):
        reader.read(path, 1000)


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    """Something that is not a regular file is skipped, without waiting for a writer."""
    os.mkfifo(tmp_path / "pipe")
    with RootReader(str(tmp_path)) as reader:
        with pytest.raises(Skip, match="not a regular file"):
            reader.read("pipe", 1000)
        with pytest.raises(Skip, match="not a regular file"):
            reader.stamp("pipe")


def test_files_deleted_during_the_walk_are_said_to_be_gone(tmp_path: Path) -> None:
    """A file that vanishes between listing and reading is a reason, not an exception; so is a directory."""
    write(tmp_path, {"a.py": "", "b.py": "", "d/c.py": ""})
    skipped: dict[str, str] = {}
    with RootReader(str(tmp_path)) as reader:
        walking = walk(reader, IndexRules(), skipped.__setitem__, lambda: None)
        assert next(walking)[0] == "a.py"
        (tmp_path / "b.py").unlink()
        (tmp_path / "d/c.py").unlink()
        (tmp_path / "d").rmdir()
        assert [path for path, _ in walking] == ["b.py"]
        with pytest.raises(Skip, match="gone"):
            reader.stamp("b.py")
    assert skipped == {"d": "gone before it was read"}


def test_ignore_files_hold_below_themselves_and_deeper_ones_win(tmp_path: Path) -> None:
    """Without git, ``.gitignore`` files mean what git takes them to mean: anchors, negation, directories, nesting."""
    write(
        tmp_path,
        {
            ".gitignore": "*.log\n/build/\n!keep.log\nbad[pattern\n",
            "x.log": "", "keep.log": "", "build/a.py": "", "sub/build/b.py": "",
            "sub/.gitignore": "!x.log\nlocal.*\n", "sub/x.log": "", "sub/local.py": "", "sub/ok.py": "", "local.py": "",
        },
    )  # fmt: skip
    assert found(tmp_path)[0] == [
        ".gitignore", "keep.log", "local.py", "sub/.gitignore", "sub/ok.py", "sub/x.log", "sub/build/b.py",
    ]  # fmt: skip


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """A reader closes everything, also after more directories than it keeps open."""
    write(tmp_path, {f"d{i}/e/f.py": "x" for i in range(120)})
    before = len(os.listdir("/proc/self/fd"))
    with RootReader(str(tmp_path)) as reader:
        for i in range(120):
            assert reader.read(f"d{i}/e/f.py", 10)[0] == b"x"
    assert len(os.listdir("/proc/self/fd")) == before
