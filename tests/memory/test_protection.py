"""The index gives out nothing that the file tools refuse, and reads only the directory it was given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentflow import MemorySystem
from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.errors import PathDenied
from agentflow.executors.file_access import FileAccessManager
from agentflow.lib.protected_names import EXECUTED, PROTECTED
from agentflow.memory.index import FileIndex
from agentflow.memory.rules import IndexRules
from tests.support.repository import commit, git, repository


def _instance(pattern: str) -> str:
    return pattern.replace("*", "one")


async def _indexed(root: Path, files: FileAccessManager) -> set[str]:
    memory = MemorySystem(files=files)
    try:
        found = await memory.get_relevant_context_for(ContextGenerationInput(query="marmalade", max_results=1_000))
        return {str(Path(match.path).relative_to(root)) for match in found.matches}
    finally:
        await memory.aclose()


async def test_index_and_file_tools_refuse_the_same_names(tmp_path: Path) -> None:
    """Every protected pattern, at the top and deeper down, as a file and as a directory: refused by both."""
    names = {
        f"{above}{_instance(pattern)}{below}"
        for pattern in PROTECTED
        for above in ("", "deep/er/")
        for below in ("", "/inside.txt")
    }
    for name in sorted(names):
        path = tmp_path / ("f" if name.endswith("/inside.txt") else "d") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("marmalade")
    (tmp_path / "plain.txt").write_text("marmalade")
    async with FileAccessManager(tmp_path) as files:
        assert await _indexed(tmp_path, files) == {"plain.txt"}
        for name in sorted(names):
            with pytest.raises(PathDenied, match="protected"):
                await files.read(f"d/{name}")


async def test_what_other_programs_execute_is_read_and_not_written(tmp_path: Path) -> None:
    """CI workflows, hooks and editors' tasks are found and read like any file; the file tools do not write them."""
    async with FileAccessManager(tmp_path) as files:
        for name in EXECUTED:
            path = (
                tmp_path / name
                if "." in Path(name).name[1:] or Path(name).name.startswith(".")
                else tmp_path / name / "x"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("marmalade")
            relative = str(path.relative_to(tmp_path))
            assert (await files.read(relative)).text == "marmalade"
            with pytest.raises(PathDenied, match="protected"):
                await files.write(relative, "x", overwrite=True)
        assert len(await _indexed(tmp_path, files)) == len(EXECUTED)


async def test_a_root_that_is_swapped_is_not_followed(tmp_path: Path) -> None:
    """The index reads the directory that was opened, whatever its path leads to by now."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine.txt").write_text("marmalade")
    other = tmp_path / "other"
    other.mkdir()
    (other / "theirs.txt").write_text("marmalade")
    async with FileAccessManager(root) as files:
        root.rename(tmp_path / "moved")
        root.symlink_to(other)
        assert await _indexed(root, files) == {"mine.txt"}


@pytest.mark.parametrize("by_path", [False, True], ids=["update", "update_paths"])
async def test_a_name_that_other_rules_accepted_is_judged_again(tmp_path: Path, by_path: bool) -> None:
    """Rules are kept beside an index that lasts: an unchanged file that narrower rules refuse leaves it."""
    root, database = tmp_path / "root", tmp_path / "index.db"
    root.mkdir()
    for name in (".env", "plain.txt"):
        (root / name).write_text("marmalade")
        os.utime(root / name, (1e9, 1e9))  # long ago, so that it is known to be unchanged

    async def files(protected: tuple[str, ...], paths: list[str] | None = None) -> list[str]:
        index = FileIndex(database, rules=IndexRules(protected=protected))
        try:
            await (index.update(root) if paths is None else index.update_paths(root, paths))
            return [row.path for row in await index.files()]
        finally:
            await index.aclose()

    assert await files(PROTECTED) == ["plain.txt"]
    assert await files((), [".env"] if by_path else None) == [".env", "plain.txt"]
    assert await files(PROTECTED) == ["plain.txt"]
    assert await files(PROTECTED) == ["plain.txt"]


async def test_a_known_file_that_is_moved_to_a_protected_name_leaves_the_index(tmp_path: Path) -> None:
    """A moved file keeps its history, and not the verdict on its name."""
    repository(tmp_path, {"plain.txt": "marmalade"})
    index = FileIndex()
    try:
        await index.update(tmp_path)
        git(tmp_path, "mv", "plain.txt", ".env")
        commit(tmp_path, {}, "Hide it")
        os.utime(tmp_path / ".env", (1e9, 1e9))
        await index.update(tmp_path)
        assert await index.files() == []
    finally:
        await index.aclose()
