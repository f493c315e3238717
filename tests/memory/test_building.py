"""Questions that come while an index is being built."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agentflow.cli.admin.search import index_command
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.events.events import Warning
from agentflow.memory import FileMemory
from agentflow.memory.file_memory import database_path
from agentflow.memory.index_store import Store
from tests.support.fakes import FakeRun
from tests.support.repository import write

FILES = {f"f{n:05}.py": f"def walrus_{n}(): return 'flamingo {n}'\n" * 20 for n in range(1_000)}


async def ask(memory: FileMemory, run: FakeRun | None = None) -> AssociativeMatchResult:
    return await memory.find(ContextGenerationInput(query="flamingo walrus 3"), run.call() if run else None)


async def test_a_question_during_the_first_build_is_answered_from_what_is_there_and_says_so(tmp_path: Path) -> None:
    """The answer comes before the build ends, names the root as not indexed yet, and warns; later ones do not."""
    write(tmp_path, FILES)
    run = FakeRun()
    async with FileMemory(roots=[tmp_path]) as memory:
        building = asyncio.create_task(memory.update_global_index())
        while not await memory.index.count():
            pass
        result = await ask(memory, run)
        assert not building.done()
        assert result.matches and result.error is None
        assert result.skipped[0]["path"] == str(tmp_path) and "being indexed" in result.skipped[0]["reason"]
        assert [event.code for event in run.events if isinstance(event, Warning)] == ["memory/building"]
        assert (await building)[0].added == len(FILES)
        assert (await ask(memory, run)).skipped == []


async def test_questions_that_come_before_the_first_file_wait_for_one_build(tmp_path: Path) -> None:
    """Asked at once, all are answered from the whole index, which is built once."""
    write(tmp_path, dict(list(FILES.items())[:300]))
    async with FileMemory(roots=[tmp_path]) as memory:
        results = await asyncio.gather(*(ask(memory) for _ in range(5)))
        assert all(result.skipped == [] for result in results)
        assert len({tuple(result.file_paths) for result in results}) == 1
        assert (await memory.update_global_index())[0].unchanged == 300


async def test_a_cancelled_build_is_taken_over_by_the_next_question(tmp_path: Path) -> None:
    """A question does not inherit the fate of the one that began the build."""
    write(tmp_path, FILES)
    async with FileMemory(roots=[tmp_path]) as memory:
        building = asyncio.create_task(memory.update_global_index())
        while not await memory.index.count():
            pass
        building.cancel()
        await asyncio.wait([building])
        result = await ask(memory)
        assert result.matches and result.skipped == []
        assert await memory.index.count() == len(FILES)


async def test_a_question_while_another_process_indexes_is_answered_at_once_and_says_so(tmp_path: Path) -> None:
    """The answer is from the index as it is, built before or half built, and names the root until the other has ended."""
    write(tmp_path / "root", dict(list(FILES.items())[:20]))
    config = {"cache_dir": tmp_path / "cache", "refresh_s": 0}
    store = Store(database_path(tmp_path / "cache", [str(tmp_path / "root")]))
    run = FakeRun()
    async with FileMemory(config, roots=[tmp_path / "root"]) as memory:
        assert (await ask(memory, run)).skipped == [] and run.events == []
        write(tmp_path / "root", {"new.py": "walrus = 'ocelot'"})
        for built, said in ((True, "another process"), (False, "being indexed: 20 files")):
            if not built:
                root = store.root(str(tmp_path / "root"))
                store.set_built(root, built)
            store.claim()
            result = await ask(memory, run)
            assert len(result.matches) == 20 and said in result.skipped[0]["reason"]
            assert isinstance(run.events[-1], Warning) and run.events[-1].code == "memory/building"
        store.release()
        assert (await ask(memory, run)).skipped == []
        assert await memory.index.count() == 21
    store.close()


def test_a_process_that_was_killed_keeps_nobody_out(tmp_path: Path) -> None:
    """Its claim on the index counts for nothing once it has gone, nor does one that was not renewed."""
    database = tmp_path / "index.db"
    store, other = Store(database), Store(database)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], check=True, capture_output=True)
    other.claim()
    assert store.written_elsewhere() and not other.written_elsewhere()
    with sqlite3.connect(database) as db:
        db.execute("UPDATE writer SET pid = ?", (int(ended.stdout),))
        db.commit()
        assert not store.written_elsewhere()
        db.execute("UPDATE writer SET pid = ?", (os.getpid(),))
        db.commit()
        assert store.written_elsewhere()
        db.execute("UPDATE writer SET until = until - 60")
        db.commit()
        assert not store.written_elsewhere()
    db.close()
    store.close()
    other.close()


@pytest.mark.slow
async def test_a_reader_does_not_fail_while_another_process_writes_the_whole_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing is stored yet the answer is empty and says that the root is being indexed; so does ``index``."""
    write(tmp_path / "root", {"a.py": "flamingo"})
    config = {"cache_dir": tmp_path / "cache"}
    database = database_path(tmp_path / "cache", [str(tmp_path / "root")])
    async with FileMemory(config, roots=[tmp_path / "root"]) as memory:
        assert await memory.index.count() == 0
        other = sqlite3.connect(database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        result = await ask(memory)
        assert (await ask(memory)).skipped == result.skipped  # also while it does not try to write
        await index_command(str(tmp_path / "root"), cache_dir=tmp_path / "cache")
        assert "another process is indexing" in capsys.readouterr().out
        other.execute("ROLLBACK")
        other.close()
        assert result.matches == [] and result.error is None
        assert "being indexed" in result.skipped[0]["reason"]
