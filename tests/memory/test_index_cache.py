"""``AgentFlow(index_cache=...)``: where the index is kept, and what a run is told where it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow
from agentflow.core.events.events import Event, Warning
from agentflow.memory.file_memory import database_path
from tests.support.repository import write

QUESTION = '(length (get_context (query "flamingo")))'


def directories_of_databases(directory: Path) -> set[Path]:
    return {path.parent for path in directory.rglob("*.db")}


async def warned(root: Path, index_cache: bool | str | Path) -> list[Warning]:
    """The warnings of a run that asks for the one file of a root that holds the word."""
    events: list[Event] = []
    async with AgentFlow(root=root, index_cache=index_cache) as flow:
        flow.subscribe(events.append)
        assert (await flow.run(QUESTION)).value == 1
    return [event for event in events if isinstance(event, Warning)]


@pytest.mark.parametrize("given", [False, True, "text", "path"])
async def test_the_index_is_kept_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool | str
) -> None:
    """Nowhere, in the user's cache directory, or in the named one; a second flow is answered from there too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    root, named = tmp_path / "root", tmp_path / "named"
    write(root, {"a.py": "flamingo", "b.py": "walrus"})
    value = {"text": str(named), "path": named}.get(str(given), given)
    for _ in range(2):
        assert await warned(root, value) == []
    kept = directories_of_databases(tmp_path)
    where = {"True": tmp_path / "user" / "agentflow", "False": None}.get(str(given), named)
    assert kept == (set() if where is None else {where})
    if where is not None:
        assert database_path(where, [str(root)]).stat().st_mode & 0o077 == 0, "it holds what the files say"


async def test_a_run_is_told_of_a_cache_that_was_rebuilt_or_cannot_be_used(tmp_path: Path) -> None:
    """A damaged cache is built anew and one out of reach replaced by memory: the answer is whole, and one warning names the file."""
    root, cache = tmp_path / "root", tmp_path / "cache"
    write(root, {"a.py": "flamingo", "b.py": "walrus"})
    assert await warned(root, cache) == []
    path = database_path(cache, [str(root)])
    path.write_text("not an index" * 100)
    (rebuilt,) = await warned(root, cache)
    assert rebuilt.code == "memory/cache-rebuilt" and str(path) in rebuilt.message
    assert await warned(root, cache) == [], "what was built anew is kept"
    (unusable,) = await warned(root, root / "a.py" / "cache")
    assert unusable.code == "memory/cache-unusable" and "a.py" in unusable.message
