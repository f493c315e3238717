"""The index follows what is on disk, and never blocks the loop or survives half done."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentflow.core.data.errors import DataError
from agentflow.lib.text.terms import Tokeniser
from agentflow.memory import FileIndex, IndexRules
from agentflow.memory.builder import Builder, BuildStopped
from agentflow.memory.index_store import Store
from tests.support.repository import write
from tests.support.spending import at_most

FILES = {
    "src/reader.py": "def read_tokens(text):\n    '''Split program text into tokens.'''\n",
    "src/writer.py": "class JsonWriter:\n    '''Write events as JSON lines.'''\n",
    "docs/guide.md": "# Guide\n\nHow to read and write programs.\n",
}


@pytest.fixture
async def index() -> AsyncIterator[FileIndex]:
    made = FileIndex()
    yield made
    await made.aclose()


def real(place: Path) -> str:
    return os.path.realpath(place)


async def paths(index: FileIndex, query: str) -> list[str]:
    return [item.file.path for item in await index.search(query)]


async def test_an_update_brings_new_changed_and_deleted_files_up_to_date(index: FileIndex, tmp_path: Path) -> None:
    """Only what differs is read again, and searches see the difference."""
    write(tmp_path, FILES)
    first = await index.update(tmp_path)
    assert (first.added, first.updated, first.removed, first.unchanged, first.git) == (3, 0, 0, 0, False)
    write(tmp_path, {"src/reader.py": "def lexical_scan(): pass\n", "src/new.py": "quaternion = 1\n"})
    (tmp_path / "docs/guide.md").unlink()
    second = await index.update(tmp_path)
    assert (second.added, second.updated, second.removed, second.unchanged) == (1, 1, 1, 1)
    assert await paths(index, "quaternion") == ["src/new.py"]
    assert await paths(index, "guide") == []
    assert (await paths(index, "lexical scan"))[0] == "src/reader.py"
    assert "src/reader.py" not in await paths(index, "tokens")
    assert not (await index.update(tmp_path)).changed


async def test_a_change_that_keeps_size_and_time_is_seen(index: FileIndex, tmp_path: Path) -> None:
    """A file rewritten within the clock's grain of its reading is read again: content decides, not the stamp."""
    write(tmp_path, {"a.py": "alpha = 1\n"})
    await index.update(tmp_path)
    before = os.stat(tmp_path / "a.py")
    write(tmp_path, {"a.py": "gamma = 1\n"})
    os.utime(tmp_path / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (await index.update(tmp_path)).updated == 1
    assert await paths(index, "gamma") == ["a.py"]


async def test_a_touched_file_with_the_same_content_is_unchanged(index: FileIndex, tmp_path: Path) -> None:
    """A checkout that only moves times costs a read, not an update."""
    write(tmp_path, FILES)
    await index.update(tmp_path)
    os.utime(tmp_path / "src/reader.py", (1, 1))
    report = await index.update(tmp_path)
    assert (report.updated, report.unchanged) == (0, 3)


async def test_single_files_are_updated_by_path(index: FileIndex, tmp_path: Path) -> None:
    """``update_paths`` takes relative and absolute paths, forgets deleted ones, and refuses what is not below the root."""
    write(tmp_path, FILES)
    await index.update(tmp_path)
    write(tmp_path, {"src/reader.py": "zygote = 1\n"})
    (tmp_path / "src/writer.py").unlink()
    report = await index.update_paths(tmp_path, ["src/reader.py", f"{real(tmp_path)}/src/writer.py", "../etc/passwd"])
    assert (report.updated, report.removed) == (1, 1)
    assert dict(report.skipped) == {
        "src/writer.py": "gone before it was read",
        "../etc/passwd": "not a path below the root",
    }
    assert await paths(index, "zygote") == ["src/reader.py"]
    assert "src/writer.py" not in await paths(index, "JsonWriter")


async def test_what_is_left_out_is_listed_with_its_reason(index: FileIndex, tmp_path: Path) -> None:
    """Binary, large, secret and generated files are skipped by name and reason; their text is nowhere in the index."""
    write(tmp_path, {**FILES, ".env": "TOKEN=hunter2hunter2", "key.pem": "hunter2hunter2", "package-lock.json": "{}"})
    (tmp_path / "logo.bin").write_bytes(b"\x89PNG\0\0")
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(1 << 30)
    with at_most(2):
        report = await index.update(tmp_path)
    assert dict(report.skipped) == {
        ".env": "a protected name",
        "key.pem": "a protected name",
        "package-lock.json": "generated",
        "logo.bin": "binary",
        "huge.txt": "larger than 1,000,000 bytes (1,073,741,824)",
    }
    assert await paths(index, "hunter2hunter2") == []
    assert [(path, reason) for _, path, reason in await index.skipped()] == sorted(report.skipped)


async def test_an_index_brought_up_to_date_answers_like_a_new_one(index: FileIndex, tmp_path: Path) -> None:
    """Whatever way the files came in, the same files give the same paths and scores."""
    write(tmp_path, {**FILES, "src/old.py": "tokens tokens tokens"})
    await index.update(tmp_path)
    write(tmp_path, {"src/extra.py": "# write tokens\n", "src/writer.py": "class Writer: 'tokens'\n"})
    (tmp_path / "src/old.py").unlink()
    await index.update(tmp_path)
    fresh = FileIndex()
    await fresh.update(tmp_path)
    for query in ("write tokens", "guide", "json"):
        one, other = await index.search(query), await fresh.search(query)
        assert [(r.file.path, r.score) for r in one] == [(r.file.path, r.score) for r in other]
    await fresh.aclose()


async def test_several_roots_are_searched_together(index: FileIndex, tmp_path: Path) -> None:
    """Each root is brought up to date by itself; answers name the root."""
    write(tmp_path / "one", {"a.py": "pelican = 1"})
    write(tmp_path / "two", {"b.py": "pelican = 2"})
    await index.update(tmp_path / "one")
    await index.update(tmp_path / "two")
    found = await index.search("pelican")
    assert {(os.path.basename(item.file.root), item.file.path) for item in found} == {("one", "a.py"), ("two", "b.py")}


async def test_a_cancelled_build_ends_soon_and_leaves_the_index_usable(index: FileIndex, tmp_path: Path) -> None:
    """The index answers at once from what it holds."""
    write(tmp_path / "small", FILES)
    await index.update(tmp_path / "small")
    write(tmp_path / "big", {f"d{i % 50}/f{i}.py": f"value_{i} = {i}\n" * 50 for i in range(2_000)})
    task = asyncio.create_task(index.update(tmp_path / "big"))
    await asyncio.sleep(0.05)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError), at_most(1):  # the whole of it takes several times that
        await task
    assert 3 <= len(await index.files()) < 2_003
    assert (await paths(index, "tokens"))[0] == "src/reader.py"


def test_what_a_stopped_build_has_not_committed_is_rolled_back(tmp_path: Path) -> None:
    """It stops at the next file; of the batch that was open nothing stays."""
    write(tmp_path, {f"f{i}.py": f"value_{i} = {i}\n" for i in range(50)})
    store = Store(None)
    left = iter(range(20))

    def check() -> None:
        if next(left, None) is None:
            raise BuildStopped

    with pytest.raises(BuildStopped):
        Builder(store, Tokeniser(), IndexRules(), check).update(str(tmp_path))
    assert store.count() == 0
    assert Builder(store, Tokeniser(), IndexRules(), lambda: None).update(str(tmp_path)).added == 50
    store.close()


async def test_the_loop_runs_on_while_an_index_is_built(index: FileIndex, tmp_path: Path) -> None:
    """Building happens on a thread: the loop turns meanwhile, as often as it can; a build on the loop would leave it a turn or two."""
    write(tmp_path, {f"f{i}.py": f"value_{i} = {i}\n" * 100 for i in range(400)})
    task = asyncio.create_task(index.update(tmp_path))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert (await task).added == 400 and turns >= 20


async def test_an_index_in_a_file_is_there_the_next_time(tmp_path: Path) -> None:
    """With a database file, a second process finds everything unchanged."""
    write(tmp_path / "root", FILES)
    database = tmp_path / "cache" / "index.db"
    index = FileIndex(database)
    await index.update(tmp_path / "root")
    await index.aclose()
    again = FileIndex(database)
    report = await again.update(tmp_path / "root")
    assert (report.added, report.unchanged) == (0, 3)
    assert (await paths(again, "tokens"))[0] == "src/reader.py"
    await again.aclose()


async def test_an_index_of_another_version_is_built_anew(tmp_path: Path) -> None:
    """The index holds nothing that cannot be had again, so an old one is replaced."""
    write(tmp_path / "root", FILES)
    database = tmp_path / "index.db"
    with sqlite3.connect(database) as old:
        old.execute("CREATE TABLE files (x)")
        old.execute("PRAGMA user_version = 999")
    old.close()
    index = FileIndex(database)
    assert (await index.update(tmp_path / "root")).added == 3
    await index.aclose()


@pytest.mark.parametrize("content", [b"this is not a database, it is a text of some length" * 50, b""])
async def test_a_file_that_is_no_index(tmp_path: Path, content: bytes) -> None:
    """Somebody's file is not overwritten; an empty one becomes an index."""
    write(tmp_path / "root", FILES)
    database = tmp_path / "index.db"
    database.write_bytes(content)
    index = FileIndex(database)
    if content:
        with pytest.raises(DataError) as caught:
            await index.update(tmp_path / "root")
        assert caught.value.code == "memory/database" and database.read_bytes() == content
    else:
        assert (await index.update(tmp_path / "root")).added == 3
    await index.aclose()


async def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    """A SQLite file that holds something else is refused."""
    database = tmp_path / "index.db"
    with sqlite3.connect(database) as other:
        other.execute("CREATE TABLE precious (x)")
    other.close()
    index = FileIndex(database)
    with pytest.raises(DataError, match="something else"):
        await index.update(tmp_path)
    await index.aclose()


@pytest.mark.parametrize("bad", ["missing", "file.txt", "nul\0name"])
async def test_a_root_that_is_no_directory(index: FileIndex, tmp_path: Path, bad: str) -> None:
    """The error names the root as it was given, and the mend."""
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(DataError) as caught:
        await index.update(f"{tmp_path}/{bad}")
    assert caught.value.code == "memory/root" and caught.value.hint


async def test_a_closed_index_says_so(tmp_path: Path) -> None:
    """Closing twice is fine, using it afterwards is an error."""
    index = FileIndex()
    await index.aclose()
    await index.aclose()
    with pytest.raises(DataError) as caught:
        await index.search("x")
    assert caught.value.code == "memory/closed"


async def test_no_more_files_than_allowed(tmp_path: Path) -> None:
    """Past ``max_files`` the rest is left out, and the report says from where."""
    write(tmp_path, {f"f{i:02}.py": "x = 1" for i in range(10)})
    index = FileIndex(rules=IndexRules(max_files=4))
    report = await index.update(tmp_path)
    assert report.added == 4 and report.skipped[0][0] == "f04.py" and "more than 4 files" in report.skipped[0][1]
    await index.aclose()


async def test_watching_reports_each_change_once(index: FileIndex, tmp_path: Path) -> None:
    """The watch gives a report when something differs and is silent otherwise."""
    write(tmp_path, {"a.py": "x = 1"})
    watching = index.watch([tmp_path], interval_s=0.01)
    async with asyncio.timeout(10):
        first = await anext(watching)
        write(tmp_path, {"b.py": "y = 2"})
        second = await anext(watching)
    assert (first.added, second.added, second.unchanged) == (1, 1, 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await anext(watching)


async def test_descriptions_follow_the_files_whoever_indexed_them(tmp_path: Path) -> None:
    """They are made again when this index or another one of the same file has changed it, and only then."""
    write(tmp_path / "root", {"a.py": "def one(): pass"})
    index, other = FileIndex(tmp_path / "index.db"), FileIndex(tmp_path / "index.db")
    await index.update(tmp_path / "root")
    first = await index.descriptions()
    await index.update(tmp_path / "root")
    assert await index.descriptions() is first and "one" in first[f"{real(tmp_path)}/root/a.py"]
    for changing, name in ((index, "two"), (other, "three")):
        write(tmp_path / "root", {"a.py": f"def {name}(): pass"})
        await changing.update(tmp_path / "root")
        assert name in (await index.descriptions())[f"{real(tmp_path)}/root/a.py"]
    await index.aclose()
    await other.aclose()
