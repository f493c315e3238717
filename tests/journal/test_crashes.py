"""A process that ends between any two statements of its writer leaves whole transactions, and nothing half done."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import tempfile
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agentflow.core.data.errors import JournalError
from agentflow.core.events.journal_rows import EffectRow, EffectState, NewRun, SessionChanges
from agentflow.journal.sqlite import SqliteJournal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed by signal")

LONG = "x" * 70_000
CHANGES = SessionChanges(turns=[["said"], [LONG]], state={"data_context": None})


def row(path: str, value: Any = "paid", state: EffectState = EffectState.OK) -> EffectRow:
    return EffectRow(path=path, kind="tool", name="t", content=b"c" * 16, state=state, value=value, started=1.0)


async def work(path: Path, say: Any) -> None:
    """All that a store does, with a line for whatever was acknowledged."""
    store = SqliteJournal(path)
    await store.create("r", NewRun(program="(f)", digest="d", input={"long": LONG}, session="ada"))
    say("created")
    epoch = (await store.own("r")).run.epoch
    await store.put("r", epoch, [row("0/0.0"), row("0/1.0", LONG)])
    say("pair")
    waiting = row("0/2.0", state=EffectState.OPEN)
    await store.put("r", epoch, [waiting])
    say("open")
    await store.put("r", epoch, [row("0/3.0")], drop=[row("0/0.0").key])
    say("dropped")
    await store.deliver("r", [replace(waiting, state=EffectState.OK, value="answer")])
    say("answered")
    await store.finish("r", epoch, "done", result={"value": LONG}, session=CHANGES)
    say("done")
    await store.aclose()


def die_at(nth: int) -> None:
    """Kill this process when a thread that it starts comes to its ``nth`` statement of SQL."""
    left = nth

    def count(frame: FrameType, event: str, called: Any) -> None:
        nonlocal left
        if event == "c_call" and isinstance(getattr(called, "__self__", None), sqlite3.Connection):
            left -= called.__name__ in ("execute", "executemany")
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(count)


def crash(path: Path, nth: int) -> tuple[bool, list[str]]:
    """Whether a process that does the work ended before its end, and what was acknowledged to it until then."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            die_at(nth)
            asyncio.run(work(path, lambda word: os.write(writing, f"{word}\n".encode())))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as lines:
        said = lines.read().split()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, said


async def state_of(path: Path) -> dict[str, Any]:
    """What another process finds."""
    store = SqliteJournal(path)
    try:
        run = await store.find("r")
        if run is None:
            return {"run": None, "held": await store.sessions.runs("ada")}
        records = {each.path: (each.state, each.value) for each in await store.effects("r")}
        session = await store.sessions.open("ada")
        assert session is not None
        return {
            "run": run.status,
            "input": run.input,
            "result": run.result,
            "records": records,
            "held": (session.holder, session.last),
            "turns": session.turns,
        }
    finally:
        await store.aclose()


def check(said: list[str], state: dict[str, Any]) -> None:
    """What was acknowledged is there, and what is there is whole."""
    if state["run"] is None:
        assert not said and state["held"] == (None, None), "a run that is not there holds nothing"
        return
    records = state["records"]
    assert state["input"] == {"long": LONG}
    assert {"0/0.0", "0/1.0"} <= records.keys() or "0/3.0" in records or not ({"0/0.0", "0/1.0"} & records.keys())
    assert ("0/0.0" in records) != ("0/3.0" in records) or not records, "dropped when the other was stored"
    assert "pair" not in said or records["0/1.0"] == (EffectState.OK, LONG)
    assert "open" not in said or "0/2.0" in records
    assert "dropped" not in said or "0/3.0" in records
    assert "answered" not in said or records["0/2.0"] == (EffectState.OK, "answer")
    ended = state["run"] == "done"
    assert ended or "done" not in said
    assert (state["result"] == {"value": LONG}) == ended == (state["turns"] == CHANGES.turns)
    assert state["held"] == ((None, "r") if ended else ("r", None))


def crash_at(nth: int) -> bool:
    """Crash at a statement and check what is left. False when the work was done before."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "runs.db"
        died, said = crash(path, nth)
        if path.exists():
            state = asyncio.run(state_of(path))
            check(said, state)
        assert died or said[-1:] == ["done"], said
    return died


@pytest.mark.parametrize("first", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_a_crash_between_statements(first: int) -> None:
    """Killed before any statement of SQLite: every transaction is there or not, and all that was acknowledged is."""
    nth, crashes = first, 0
    while crash_at(nth):
        nth, crashes = nth + 3, crashes + 1
    assert crashes > 10


async def test_another_file_in_the_place_of_the_database(tmp_path: Path) -> None:
    """Deleted under way and made anew by somebody else, a database has no run of ours: that is said, nothing is mixed up."""
    path = tmp_path / "runs.db"
    store = SqliteJournal(path)
    await store.create("r", NewRun(program="", digest="", input={}))
    epoch = (await store.own("r")).run.epoch
    await store.put("r", epoch, [row("0/0.0")])
    for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
        os.unlink(tmp_path / name)
    put = store.put("r", epoch, [row("0/1.0")])
    _, pending = await asyncio.wait([put], timeout=0.2)
    assert pending, "a file that is gone may come back"
    other = SqliteJournal(path)
    assert await other.list() == []
    await other.aclose()
    with pytest.raises(JournalError) as caught:
        await put
    assert caught.value.code == "durable/unknown-run"
    await store.aclose()


_READ_ONLY = """
import asyncio, concurrent.futures.thread, json, os, sys  # all that is imported later, before the change of user
from pathlib import Path
import agentflow.journal.sqlite as journal
from agentflow.core.data.errors import JournalError

if os.getuid() == 0:
    os.setuid(65534)  # permissions say nothing to root

async def code_of(path):
    store = journal.SqliteJournal(Path(path))
    try:
        await store.find("r")
    except JournalError as error:
        return error.code
    finally:
        await store.aclose()

print(json.dumps([asyncio.run(code_of(each)) for each in sys.argv[1:]]))
"""


async def test_a_database_that_cannot_be_written_is_named() -> None:
    """A file, or a directory, that may only be read: an error that says so, before anything runs."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = directory / "runs.db"
        store = SqliteJournal(path)
        await store.create("r", NewRun(program="", digest="", input={}))
        await store.aclose()
        closed = directory / "closed"
        os.mkdir(closed)
        os.chmod(path, 0o444)
        os.chmod(closed, 0o555)
        os.chmod(directory, 0o755)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _READ_ONLY, str(path), str(closed / "new.db"), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        os.chmod(closed, 0o755)
    assert json.loads(said) == ["durable/database", "durable/database"]
