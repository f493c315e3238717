"""An index on disk: killed, damaged, full, locked or out of reach, it answers, and says once what happened."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentflow.memory.file_memory import FileMemory, database_path
from agentflow.memory.index import FileIndex
from agentflow.memory.index_rows import NewFile, Words
from agentflow.memory.index_store import Store
from tests.support.children import HANG_S
from tests.support.repository import repository, write

FILES = {f"d{n % 7}/f{n}.py": f"def walrus_{n}(): return 'flamingo {n}'\n" * 20 for n in range(1_200)}


def python(script: str, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


BUILD = """
    import asyncio, sys
    from agentflow.memory.index import FileIndex
    from pathlib import Path
    async def main():
        index = FileIndex(Path(sys.argv[2]))
        print("begin", flush=True)
        await index.update(sys.argv[1])
        await index.aclose()
    asyncio.run(main())
"""


@pytest.mark.slow
def test_a_killed_build_keeps_what_it_committed(tmp_path: Path) -> None:
    """A build that is killed again and again ends, since each goes on where the one before was killed."""
    write(tmp_path / "root", FILES)
    database = tmp_path / "index.db"
    chance = random.Random(3)
    kept: list[int] = []
    for _ in range(6):
        process = python(BUILD, tmp_path / "root", database)
        assert process.stdout is not None and process.stdout.readline() == "begin\n"
        try:
            process.wait(chance.uniform(0.05, 0.6))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
        store = Store(database)
        kept.append(store.count())
        store.close()
    assert kept == sorted(kept), kept
    last = python(BUILD, tmp_path / "root", database)
    assert last.wait() == 0 and last.stdout is not None
    last.stdout.close()
    store = Store(database)
    assert store.count() == len(FILES)
    store.close()


async def test_a_damaged_cache_is_built_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes changed anywhere, or its end missing: the question is answered, and one line in the log names the file."""
    write(tmp_path / "root", {name: FILES[name] for name in list(FILES)[:50]})
    config = {"cache_dir": str(tmp_path / "cache")}
    path = database_path(tmp_path / "cache", [str(tmp_path / "root")])
    chance = random.Random(5)
    for kind in ("header", "middle", "cut", "text"):
        async with FileMemory(config, roots=[tmp_path / "root"]) as memory:
            assert len(await memory.search("flamingo", 5)) == 5
        caplog.clear()
        whole = path.read_bytes()
        match kind:
            case "header":
                path.write_bytes(b"x" * 32 + whole[32:])
            case "middle":
                damaged = bytearray(whole)
                for at in range(4_096, len(damaged), 512):
                    damaged[at] = chance.randrange(256)
                path.write_bytes(damaged)
            case "cut":
                path.write_bytes(whole[: len(whole) // 3])
            case "text":
                path.write_text("not an index" * 100)
        async with FileMemory(config, roots=[tmp_path / "root"]) as memory:
            assert len(await memory.search("flamingo", 5)) == 5
        assert [str(path) in record.message for record in caplog.records] == [True], (kind, caplog.records)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 100))])
async def test_whatever_a_damaged_cache_gives_the_question_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    """SQLite has no checksums: what is damaged comes back as other numbers, no text, or what cannot be unpacked.

    That is raised nowhere: the file is built anew, in its place, for all roots, and one line names it.
    """
    chance = random.Random(seed)
    names = [f"f{n}.py" for n in range(30)]
    roots = [repository(tmp_path / "one", dict.fromkeys(names, "flamingo = 1\n" * 9), "teach it"), tmp_path / "two"]
    write(tmp_path / "two", {name: f"def flamingo(): return '{name}'\n" * 9 for name in names})
    config = {"cache_dir": str(tmp_path / "cache")}
    async with FileMemory(config, roots=roots) as memory:
        await memory.update_global_index()
    path = database_path(tmp_path / "cache", [str(root) for root in roots])
    damaged = bytearray(path.read_bytes())
    for _ in range(chance.choice((5, 30, 200))):
        at, size = chance.randrange(len(damaged) - 64), chance.choice((1, 4, 64))
        damaged[at : at + size] = chance.randbytes(size)
    path.write_bytes(damaged)
    for root in roots:  # so that what is kept of words to remove is read
        write(root, dict.fromkeys(chance.sample(names, 5), "flamingo = 2\n"))
    async with FileMemory(config, roots=roots) as memory:
        await memory.search("flamingo", 60, kinds=("file", "symbol", "commit"))
        if caplog.records:
            assert len(await memory.search("flamingo", 60)) == 60
    said = [record.message for record in caplog.records]
    assert [f"{path} was damaged and is rebuilt" in line for line in said] in ([], [True]), said
    if said:
        assert path.exists()


async def test_a_look_at_an_unchanged_tree_writes_nothing(tmp_path: Path) -> None:
    """Other processes keep what they remember of the index, and none waits for a look to end."""
    root = repository(tmp_path / "root", {"a.py": "flamingo", "b.py": "walrus", "c.min.js": "otter"}, "begin")
    for name in ("a.py", "b.py"):
        os.utime(root / name, (1, 1))  # what was touched just now is read again
    other = Store(tmp_path / "index.db")
    index = FileIndex(tmp_path / "index.db")
    await index.update(root)
    assert other.changed_elsewhere()
    before = other.version()
    report = await index.update(root)
    assert (report.unchanged, report.changed, report.skipped_count) == (2, False, 1)
    assert other.version() == before
    other.close()
    await index.aclose()


async def test_where_no_cache_can_be_kept_it_is_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory that cannot be made: the question is answered from memory, and the log says why."""
    write(tmp_path / "root", {"a.py": "flamingo"})
    (tmp_path / "file").write_text("in the way")
    async with FileMemory({"cache_dir": str(tmp_path / "file" / "cache")}, roots=[tmp_path / "root"]) as memory:
        assert len(await memory.search("flamingo")) == len(await memory.search("flamingo")) == 1
    assert len(caplog.records) == 1 and str(tmp_path / "file") in caplog.records[0].message


def test_a_full_disk_leaves_the_index_in_memory(tmp_path: Path) -> None:
    """A file that may not grow fails while the index is built; the answer is whole all the same."""
    write(tmp_path / "root", FILES)
    script = """
        import asyncio, logging, resource, signal, sys
        from agentflow.memory.file_memory import FileMemory
        logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        async def main():
            async with FileMemory({"cache_dir": sys.argv[2]}, roots=[sys.argv[1]]) as memory:
                print(len(await memory.search("flamingo", 50)), flush=True)
        asyncio.run(main())
    """
    process = python(script, tmp_path / "root", tmp_path / "cache")
    said, _ = process.communicate(timeout=HANG_S)
    lines = said.splitlines()
    assert lines[-1] == "50" and len(lines) == 2 and "it is in memory" in lines[0], said


def test_a_cache_that_may_only_be_read_is_replaced_by_memory() -> None:
    """Its owner made it for others to read: they index in memory, and one line says so with the path."""
    script = """
        import asyncio, logging, os, sys
        from agentflow.memory.file_memory import FileMemory
        from pathlib import Path
        logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
        top = Path(sys.argv[1])
        async def ask():
            async with FileMemory({"cache_dir": top / "cache"}, roots=[top / "root"]) as memory:
                print(len(await memory.search("flamingo")), flush=True)
        asyncio.run(ask())
        for path, mode in ((next((top / "cache").iterdir()), 0o444), (top / "cache", 0o555), (top, 0o755)):
            path.chmod(mode)
        if os.geteuid() == 0:
            os.setuid(65534)
        asyncio.run(ask())
    """
    with tempfile.TemporaryDirectory() as top:
        write(Path(top, "root"), {"a.py": "flamingo"})
        said, _ = python(script, top).communicate(timeout=HANG_S)
        Path(top, "cache").chmod(0o700)
    first, warning, second = said.splitlines()
    assert first == second == "1" and f"{top}/cache/index-" in warning and "it is in memory" in warning


async def test_a_question_is_answered_while_another_process_writes(tmp_path: Path) -> None:
    """What the index holds is given; an index that holds nothing yet says who is in the way."""
    write(tmp_path / "root", {"a.py": "flamingo"})
    config = {"cache_dir": str(tmp_path / "cache"), "refresh_s": 0}
    path = database_path(tmp_path / "cache", [str(tmp_path / "root")])
    async with FileMemory(config, roots=[tmp_path / "root"]) as memory:
        assert len(await memory.search("flamingo")) == 1
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        write(tmp_path / "root", {"b.py": "flamingo"})
        assert len(await memory.search("flamingo")) == 1
        other.execute("ROLLBACK")
        assert len(await memory.search("flamingo")) == 2
        other.close()


async def test_an_answer_is_of_the_index_as_another_process_left_it(tmp_path: Path) -> None:
    """What was remembered of files and of how many hold a term counts no more once another process has written."""
    write(tmp_path / "root", {"old.py": "flamingo walrus", "b.py": "otter", "c.py": "badger", "d.py": "heron"})
    asking, writing = FileIndex(tmp_path / "index.db"), FileIndex(tmp_path / "index.db")
    await asking.update(tmp_path / "root")
    assert [item.file.path for item in await asking.search("flamingo")] == ["old.py"]
    assert await asking.rarity({"flamingo": "flamingo"}) == {"flamingo": 0.5}
    (tmp_path / "root" / "old.py").unlink()
    write(tmp_path / "root", {"new.py": "flamingo", "e.py": "flamingo otter", "f.py": "flamingo heron"})
    await writing.update(tmp_path / "root")
    assert {item.file.path for item in await asking.search("flamingo")} == {"new.py", "e.py", "f.py"}
    assert await asking.rarity({"flamingo": "flamingo"}) == await writing.rarity({"flamingo": "flamingo"})
    await asking.aclose()
    await writing.aclose()


async def test_text_in_utf16_is_text(tmp_path: Path) -> None:
    """A byte-order mark says so, in either order; a picture of the same bytes stays a picture."""
    (tmp_path / "little.txt").write_bytes("a flamingo\n".encode("utf-16"))
    (tmp_path / "big.txt").write_bytes(b"\xfe\xff" + "a flamingo\n".encode("utf-16-be"))
    (tmp_path / "picture").write_bytes(b"\xff\xfe" + bytes(range(256)) * 20 + bytes(8))
    index = FileIndex()
    report = await index.update(tmp_path)
    assert sorted(item.file.path for item in await index.search("flamingo")) == ["big.txt", "little.txt"]
    assert report.skipped == (("picture", "binary"),)
    await index.aclose()


def test_what_merging_a_first_build_leaves_empty_is_given_back(tmp_path: Path) -> None:
    """Term lists are merged when a first build ends; the file then holds what it needs, and no empty pages."""
    database = tmp_path / "index.db"
    store = Store(database)
    with store.transaction():
        root = store.root("/root")
        store.begin_bulk()
    for batch in range(8):
        with store.transaction():
            for number in range(10):
                terms = " ".join(f"walrus{n * (number + 1)}" for n in range(500))
                put(store, file(root, f"{batch}/{number}", {"body": terms, "path": "", "symbols": ""}), None)
    store.end_bulk(lambda: None)
    store.close()
    with sqlite3.connect(database) as db:
        assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert db.execute("PRAGMA freelist_count").fetchone() == (0,)
    db.close()


def test_files_that_change_and_go_leave_no_terms_behind(tmp_path: Path) -> None:
    """After any changes the index holds the terms that one made anew would, and keeps no words of files that are gone."""
    chance = random.Random(7)
    changed, texts = Store(None), dict[str, str]()
    ids: dict[str, int] = {}
    for _ in range(20):
        with changed.transaction():
            root = changed.root("/root")
            for _ in range(chance.randrange(1, 8)):
                path = f"f{chance.randrange(30)}"
                if path in ids and chance.random() < 0.3:
                    changed.remove([ids.pop(path)])
                    del texts[path]
                else:
                    texts[path] = " ".join(f"t{chance.randrange(200)}" for _ in range(chance.choice((0, 5, 8_000))))
                    terms = {"body": texts[path], "path": path, "symbols": texts[path][:20]}
                    ids[path] = put(changed, file(root, path, terms), ids.get(path))
    anew = Store(None)
    with anew.transaction():
        root = anew.root("/root")
        for path, text in texts.items():
            put(anew, file(root, path, {"body": text, "path": path, "symbols": text[:20]}), None)
    assert texts and contents(changed) == contents(anew)
    assert read(changed, "SELECT file FROM kept ORDER BY 1") == [(id,) for id in sorted(ids.values())]
    changed.remove(ids.values())
    assert read(changed, "SELECT count(*) FROM kept") == read(changed, "SELECT count(*) FROM stale") == [(0,)]


def test_what_a_large_first_build_does_not_keep_is_passed_over(tmp_path: Path) -> None:
    """Its files are found by what they say now and not by what they said; one that changes often leaves one row behind."""
    chance = random.Random(11)
    store, texts = Store(None, all_kept=3), dict[int, str]()

    def saying() -> str:
        return " ".join({f"t{chance.randrange(40)}" for _ in range(5)})

    with store.transaction():
        root = store.root("/root")
        store.begin_bulk()
        for number in range(12):
            text = saying()
            texts[put(store, file(root, f"f{number}", {"body": text, "path": "f", "symbols": text}), None)] = text
    store.end_bulk(lambda: None)
    for _ in range(60):
        with store.transaction():
            id = chance.choice([None, *texts])
            if id is not None and chance.random() < 0.2:
                store.remove([id])
                del texts[id]
            else:
                text = saying()
                words = {"body": text, "path": "f", "symbols": text}
                texts[put(store, file(root, f"n{chance.random()}", words), id)] = text
        for field in ("body", "symbols"):
            for word in chance.sample(range(40), 5):
                holding = {id for id, text in texts.items() if f"t{word}" in text.split()}
                assert set(store.search(field, [f"t{word}"], 100)) == holding
    assert 0 < read(store, "SELECT count(*) FROM stale")[0][0] <= 9


async def test_files_indexed_together_are_indexed_as_each_alone(tmp_path: Path) -> None:
    """What the index holds of a file does not depend on what was read with it: encodings, names, emptiness, order, changes."""
    top = tmp_path / "root"
    chance = random.Random(3)
    pieces = [
        "def getName(): pass\n",
        "class HTTPServer:\n",
        "größe Ä ",
        "索引文件",
        "\n# A Heading\n",
        "x\0y ",
        "",
        "aB",
        "ends in aB",
    ]
    texts = {
        f"d{n % 9}/fileName{n}.{chance.choice(('py', 'md', 'c', 'txt'))}": "".join(chance.choices(pieces, k=n % 12))
        for n in range(200)
    }
    for path, text in texts.items():
        encoding = chance.choice(("utf-8", "utf-8-sig", "utf-16"))
        write(top, {path: ""})
        (top / path).write_bytes((b"a" * 9_000 + text.encode()) if "\0" in text else text.encode(encoding))
    (top / "latin.txt").write_bytes("größeÄnderung".encode("latin-1"))
    together, alone, changed = (FileIndex(tmp_path / f"{name}.db") for name in ("together", "alone", "changed"))
    await together.update(top)
    names = [row.path for row in await together.files()]
    assert set(names) == {*texts, "latin.txt"}
    for path in names:
        await alone.update_paths(top, [path, f"./{path}"])
    for path in names[::2]:
        data = (top / path).read_bytes()
        (top / path).write_bytes(b"something elseFirst")
        await changed.update_paths(top, [path])
        (top / path).write_bytes(data)
    await changed.update(top)
    said = [await index.read_store(contents) for index in (together, alone, changed)]
    assert said[0] == said[1] == said[2] and all(said[0])
    rows = [
        [(row.path, row.language, row.lines, row.symbols) for row in await index.files()]
        for index in (together, alone, changed)
    ]
    assert rows[0] == rows[1] == rows[2]
    for index in (together, alone, changed):
        await index.aclose()


def file(root: int, path: str, words: Mapping[str, str]) -> NewFile:
    said = Words(words["body"].encode(), words["path"].encode(), words["symbols"])
    return NewFile(
        root=root, path=path, size=1, mtime_ns=1, inode=1, digest=b"", language="text", lines=1, symbols="", seen_ns=1,
        words=said,
    )  # fmt: skip


def put(store: Store, file: NewFile, old: int | None) -> int:
    """Add a file, or replace the file ``old``. Returns its id."""
    if old is None:
        return store.add([file])[0]
    store.replace(old, file)
    return old


def read(store: Store, query: str) -> list[tuple[Any, ...]]:
    return store._db.execute(query).fetchall()  # pyright: ignore[reportPrivateUsage] - no method gives every term


def contents(store: Store) -> list[list[tuple[Any, ...]]]:
    """The terms of each field, with the number of files and occurrences of each."""
    for field in ("body", "path", "symbols"):
        read(store, f"CREATE VIRTUAL TABLE temp.{field}_terms USING fts5vocab(main, {field}, row)")
    return [read(store, f"SELECT * FROM {field}_terms ORDER BY term") for field in ("body", "path", "symbols")]
