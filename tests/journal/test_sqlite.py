"""The SQLite journal: the file, what may be wrong with it, and what happens when it cannot be written to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentflow.core.data.errors import JournalError
from agentflow.core.events.journal_rows import EffectRow, EffectState, NewRun
from agentflow.journal import rows
from agentflow.journal.sqlite import SqliteJournal
from agentflow.journal.writer import Put, Unavailable, WriteJob, Writer
from tests.support.children import HANG_S

EFFECTS = 150
NEW = NewRun(program="(f)", digest="d", input={"bindings": {}})


def row(number: int, value: object = "paid") -> EffectRow:
    return EffectRow(
        path=f"0/{number}.0",
        kind="tool",
        name="look",
        content=b"c" * 16,
        state=EffectState.OK,
        value=value,
        started=number,
    )


async def filled(path: Path) -> None:
    """A database with one run of some effects, all in the one file."""
    store = SqliteJournal(path)
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    await asyncio.gather(*[store.put("r", epoch, [row(number, f"value {number}")]) for number in range(EFFECTS)])
    await store.finish("r", epoch, "queued")
    await store.aclose()


async def code_of_opening(path: Path) -> str | None:
    """The code of the error with which the run cannot be taken up; None when it can, with all its values right."""
    store = SqliteJournal(path)
    try:
        owned = await store.own("r")
        assert [each.value for each in owned.records] == [f"value {number}" for number in range(EFFECTS)]
        assert owned.run.program == "(f)" and owned.run.input == {"bindings": {}}
        return None
    except JournalError as error:
        return error.code
    finally:
        await store.aclose()


async def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """The file, its companions and the owners' directory are closed to other users, whatever the umask."""
    before = os.umask(0)
    try:
        path = tmp_path / "new" / "runs.db"
        store = SqliteJournal(path)
        await store.create("r", NEW)
        await store.own("r")
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.rglob("*")}
        await store.aclose()
    finally:
        os.umask(before)
    assert modes.pop("runs.db.owners") == 0o700 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(modes) >= 4 and set(modes.values()) == {0o600}, modes


def test_damage_has_a_name_before_anything_runs(tmp_path: Path) -> None:
    """Bytes flipped anywhere: the run is taken up with exactly what was stored, or there is an error that says why not."""
    whole = tmp_path / "whole.db"
    asyncio.run(filled(whole))
    data = whole.read_bytes()
    dice = random.Random(7)
    codes: set[str | None] = set()
    for number in range(200):
        flipped = bytearray(data)
        flipped[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        hurt = tmp_path / f"{number}.db"
        hurt.write_bytes(flipped)
        codes.add(asyncio.run(code_of_opening(hurt)))
    assert "durable/corrupt" in codes
    assert codes <= {None, "durable/corrupt", "durable/database", "durable/unknown-run", "durable/version"}, codes


@pytest.mark.parametrize("left", [0.3, 0.7, 0.99])
async def test_a_truncated_file_is_named(tmp_path: Path, left: float) -> None:
    """A file whose end is missing is damaged."""
    path = tmp_path / "runs.db"
    await filled(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * left)])
    assert await code_of_opening(path) == "durable/corrupt"


async def test_what_is_no_journal_is_named(tmp_path: Path) -> None:
    """A later version, an earlier one, a database of something else, a file that is not a database, a directory: each has its error."""
    path = tmp_path / "runs.db"
    await filled(path)
    with sqlite3.connect(path) as db:
        db.execute("update af_meta set value = '99'")
    assert await code_of_opening(path) == "durable/version"
    with sqlite3.connect(path) as db:
        db.execute("update af_meta set value = '1'")
    db.close()
    assert await code_of_opening(path) == "durable/version"
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("create table mine(x)")
    db.close()
    assert await code_of_opening(other) == "durable/database"
    text = tmp_path / "text.db"
    text.write_text("no database" * 1_000)
    assert await code_of_opening(text) == "durable/corrupt"
    assert await code_of_opening(tmp_path) == "durable/database"


async def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    """While another process writes, records wait; afterwards they are stored, and nothing failed."""
    path = tmp_path / "runs.db"
    store = SqliteJournal(path)
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("begin immediate")
    puts = [store.put("r", epoch, [row(number)]) for number in range(20)]
    _, pending = await asyncio.wait(puts, timeout=1.5)
    assert len(pending) == 20
    db.execute("rollback")
    db.close()
    await asyncio.gather(*puts)
    assert len(await store.effects("r")) == 20
    await store.aclose()


async def test_a_file_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """While the file is gone records wait; when it is back they are stored in it."""
    path = tmp_path / "runs.db"
    store = SqliteJournal(path)
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    await store.put("r", epoch, [row(0)])
    path.rename(tmp_path / "away")
    put = store.put("r", epoch, [row(1)])
    _, pending = await asyncio.wait([put], timeout=0.2)
    assert pending
    (tmp_path / "away").rename(path)
    await put
    await store.aclose()
    again = SqliteJournal(path)
    assert len(await again.effects("r")) == 2
    await again.aclose()


async def test_closing_ends_the_wait_for_a_database_that_does_not_come_back(tmp_path: Path) -> None:
    """Who closes the store is told that what was queued could not be stored."""
    path = tmp_path / "runs.db"
    store = SqliteJournal(path)
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    path.rename(tmp_path / "away")
    put = store.put("r", epoch, [row(1)])
    await store.aclose()
    with pytest.raises(JournalError) as caught:
        await put
    assert caught.value.code == "durable/database"


_FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from agentflow.journal import rows
from agentflow.journal.sqlite import SqliteJournal
from tests.journal.test_sqlite import NEW, row

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteJournal(Path(sys.argv[1]))
    await store.create("r", NEW)
    epoch = (await store.own("r")).run.epoch
    await store.put("r", epoch, [row(0)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    puts = [store.put("r", epoch, [row(number, "x" * 250_000)]) for number in range(1, 20)]
    _, pending = await asyncio.wait(puts, timeout=0.5)
    print(len(pending), flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await asyncio.gather(*puts)
    print(len(await store.effects("r")), flush=True)
    await store.aclose()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits on the size of files are POSIX")
def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """Where nothing more can be written records wait, and are stored when there is room again."""
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "runs.db")],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    assert done.stdout.split() == ["19", "20"], done.stderr


_KILLED = """
import asyncio, sys
from pathlib import Path
from agentflow.journal import rows
from agentflow.journal.sqlite import SqliteJournal
from tests.journal.test_sqlite import NEW, row

async def main():
    store = SqliteJournal(Path(sys.argv[1]))
    await store.create("r", NEW)
    owned = await store.own("r")
    async def strand(number):
        for at in range(number, 1_000_000, 8):
            await store.put("r", owned.run.epoch, [row(at, f"value {at}" * 50)])
            print(at, flush=True)
    await asyncio.gather(*map(strand, range(8)))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by signal")
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """SIGKILL at any moment: every record whose put had returned is there, whole, and the owner's lock is free."""
    dice = random.Random(3)
    for number in range(6):
        path = tmp_path / f"{number}.db"
        with subprocess.Popen([sys.executable, "-c", _KILLED, str(path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(dice.randrange(1, 400))]
            process.send_signal(signal.SIGKILL)
            said += process.stdout.read().splitlines(keepends=True)
        acknowledged = {int(line) for line in said if line.endswith("\n")}

        async def stored(path: Path = path) -> dict[str, object]:
            store = SqliteJournal(path)
            owned = await store.own("r")
            await store.aclose()
            return {each.path: each.value for each in owned.records}

        values = asyncio.run(stored())
        assert acknowledged and {f"0/{at}.0" for at in acknowledged} <= values.keys()
        assert all(value == f"value {path.split('/')[1][:-2]}" * 50 for path, value in values.items())


async def test_a_record_whose_column_was_changed_is_damaged(tmp_path: Path) -> None:
    """Whatever column of a record holds another value, or one of another type, the run is not taken up."""
    await filled(tmp_path / "whole.db")
    for column in (*rows.EFFECT.split(", "), "sum"):
        path = Path(shutil.copy(tmp_path / "whole.db", tmp_path / f"{column}.db"))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            wrong = 7.5 if column in ("leaf", "content") else b"\xff"
            db.execute(f"update af_effect set {column} = ? where path = '0/3.0'", (wrong,))
        assert await code_of_opening(path) in ("durable/corrupt", "durable/database"), column


async def test_a_transaction_that_is_undone_leaves_nothing_and_spoils_no_later_one(tmp_path: Path) -> None:
    """A run whose opening is not data is not stored; one that is stored afterwards, by the same connection, is whole."""
    store = SqliteJournal(tmp_path / "runs.db")
    with pytest.raises(JournalError, match="set is not JSON"):
        await store.create("r", NewRun(program="(f)", digest="d", input={}, session="s", opening=[{1, 2}]))
    assert await store.find("r") is None and await store.sessions.list(10) == []
    await store.create("r", NewRun(program="(f)", digest="d", input={}, session="s"))
    await store.aclose()
    again = SqliteJournal(tmp_path / "runs.db")
    assert (await again.own("r")).run.program == "(f)" and (await again.sessions.runs("s")) == ("r", None)
    await again.aclose()


@pytest.mark.parametrize(
    "data",
    ["", "\ud83d\0\u2028", 1.5, None, [], {}, [1, [True, {"a": None, '"b': [-0.0, 10**40]}]], {"$d": [["k", "é"]]}],
)
def test_text_is_that_of_json(data: object) -> None:
    """Records are written as the standard library writes JSON, in ASCII and without spaces; other floats are none."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    assert rows.dump([data]) == encode([data]) and rows.dump(data) == (None if data is None else encode(data))
    with pytest.raises(ValueError):
        rows.dump([data, float("inf")])


class Memory:
    """A :class:`~agentflow.journal.writer.Database` that stores nothing and says how many records each transaction had."""

    def __init__(self) -> None:
        self.transactions: list[int] = []
        self.reached = threading.Event()

    def transact(self, jobs: Sequence[WriteJob]) -> None:
        self.transactions.append(sum([len(job.rows) for job in jobs if isinstance(job, Put)]))
        self.reached.set()

    def close(self) -> None:
        pass


async def test_records_of_a_few_turns_are_one_transaction() -> None:
    """What branches record that start in turns of the loop that follow each other is committed once; and no record waits
    for others for ever."""
    database = Memory()
    writer: Writer[None] = Writer(database, "memory")
    futures: list[asyncio.Future[None]] = []

    async def submit(turns: int, each: int) -> None:
        for _ in range(turns):
            for _ in range(each):
                futures.append(asyncio.get_running_loop().create_future())
                writer.submit(Put(futures[-1], run="r", rows=[row(1)]))
            await asyncio.sleep(0)

    await submit(5, 10)
    await asyncio.gather(*futures)
    assert database.transactions == [50]
    await submit(1, 1)
    await futures[-1]
    assert database.transactions == [50, 1]
    first = len(futures)
    await submit(1, 2)
    while not futures[first].done():
        await submit(1, 2)
    await asyncio.gather(*futures)
    assert len(database.transactions) > 3 and sum(database.transactions) == len(futures)
    await writer.aclose()


async def test_a_record_after_one_that_was_alone_waits_for_no_turn_of_the_loop() -> None:
    """Records that come one by one reach the thread at once, though the loop takes no turn; the first waits for others."""
    database = Memory()
    writer: Writer[None] = Writer(database, "memory")

    def submit() -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writer.submit(Put(future, run="r", rows=[row(1)]))
        return future

    first = submit()
    assert not database.reached.wait(0.05)
    await first
    database.reached.clear()
    second = submit()
    assert database.reached.wait(30)
    await second
    assert database.transactions == [1, 1]
    await writer.aclose()


async def test_one_record_of_another_owner_or_of_no_data_is_refused_alone(tmp_path: Path) -> None:
    """A transaction of one record, with or without long values, knows the run's owner and what a record may hold."""
    store = SqliteJournal(tmp_path / "runs.db")
    await store.create("r", NEW)
    owned = await store.own("r")
    epoch = owned.run.epoch
    await store.put("r", epoch, [row(1, value={"ok": "x" * 100_000})])
    await store.put("r", epoch, [row(1, value={"ok": "another"})])
    stored = {each.path: each.value for each in await store.effects("r")}
    assert stored[row(1).path] == {"ok": "x" * 100_000}, "what has ended stays"
    for value in ("short", "y" * 100_000):
        with pytest.raises(JournalError) as late:
            await store.put("r", epoch - 1, [row(2, value={"ok": value})])
        assert late.value.code == "durable/owned"
        with pytest.raises(JournalError):
            await store.put("nobody", epoch, [row(2, value={"ok": value})])
    with pytest.raises(TypeError):
        await store.put("r", epoch, [row(2, value={"ok": {1, 2}})])
    assert len(await store.effects("r")) == 1
    await store.aclose()


class Away(Memory):
    """A database that cannot be used."""

    def transact(self, jobs: Sequence[WriteJob]) -> None:
        raise Unavailable("the file is gone")


async def test_who_leaves_waits_for_no_database_that_does_not_come_back() -> None:
    """A job waits until its process is about to leave, and then for a moment; those that come later fail as well."""
    writer: Writer[None] = Writer(Away(), "away")
    waiting = asyncio.create_task(writer.do(lambda _: None))
    _, pending = await asyncio.wait([waiting], timeout=0.1)
    assert pending
    writer.leave(0.05)
    for job in (waiting, writer.do(lambda _: None)):
        with pytest.raises(JournalError) as caught:
            await job
        assert caught.value.code == "durable/database"
    await writer.aclose()
