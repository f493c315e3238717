"""The index gives out nothing that the file tools refuse, and reads only the directory it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import MemorySystem
from agentflow.core.context import ContextGenerationInput
from agentflow.core.errors import PathDenied
from agentflow.executors.file_access import FileAccessManager
from agentflow.lib.protected_names import EXECUTED, PROTECTED


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
