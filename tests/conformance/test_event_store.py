"""The rules of the EventStore port, on every implementation that ships."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow.core.data.event_log import LogBounds
from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.events.events import Event, Log, ModelStarted, ProgramLoaded, RunFinished, RunStarted, TextDelta
from agentflow.core.ports.store_ports import EventStore
from agentflow.journal.urls import open_events
from agentflow.observe.files import EventFiles, LogLines, PieceLine
from tests.support.postgres import Server

Opener = Callable[[], EventStore]


@pytest.fixture(params=["files", "sqlite", "postgres", "shards"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same store again and again, as several processes do."""
    if request.param == "files":
        return lambda: EventFiles(tmp_path / "runs")
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'runs.db'}" if sqlite else request.getfixturevalue("postgres_url")
    if request.param == "shards":
        server: Server = request.getfixturevalue("postgres_server")
        url = f"{url} {server.schema()} {server.schema()}"
    return lambda: open_events(url)


def run_of(run: str, *, slice: int = 1, outcome: str = "ok", time: float = 1.0, more: int = 0) -> list[Event]:
    """The events of one stretch of a run, all with the same request."""
    request = ModelRequest((user("hello \ud800 é"),), system="be brief", model="m")
    middle: list[Event] = [
        ProgramLoaded(run, slice, 2, "0", 1, None, time, name="p.sexp", digest="d", text="(f)"),
        ModelStarted(run, slice, 3, "0/0.0", 1, None, time, request=request),
        *[Log(run, slice, 4 + n, "0", 1, None, time, message="x" * 1_000) for n in range(more)],
    ]
    end: Any = {"outcome": outcome, "duration_s": 2.0, "started": 1}
    return [
        RunStarted(run, slice, 1, "0", None, None, time, name="p.sexp"),
        *middle,
        RunFinished(run, slice, 4 + more, "0", None, None, time + 2, **end),
    ]


def write(store: EventStore, events: list[Event], *, last: bool = True) -> None:
    lines = LogLines()
    store.append(events[0].run_id, [lines.entry(event) for event in events], last=last)


def as_read(events: list[Event]) -> list[dict[str, Any]]:
    return json.loads(json.dumps([event.to_dict() for event in events]))


def test_what_is_appended_is_read_back_whole_and_in_order(opener: Opener) -> None:
    """Events come back as ``to_dict`` gives them, after the store was opened anew, from any event on."""
    store, events = opener(), run_of("r")
    write(store, events)
    store.close()
    store = opener()
    assert list(store.read("r")) == as_read(events)
    assert [event["seq"] for event in store.read("r", (1, 2))] == [3, 4]
    assert list(store.read("r", (1, 4))) == list(store.read("q")) == []
    store.close()


def test_stretches_follow_each_other(opener: Opener) -> None:
    """A run that goes on is one log; the second stretch repeats no content, and its events have ids of their own."""
    store = opener()
    first, second = run_of("r", outcome="suspended"), run_of("r", slice=2, time=5.0)
    write(store, first)
    store.close()
    store = opener()
    write(store, second)
    assert list(store.read("r")) == as_read([*first, *second])
    assert list(store.read("r", (1, 4))) == as_read(second)
    log = store.find("r")
    assert log is not None and log.finished is not None
    assert (log.started["slice"], log.finished["slice"], log.finished["outcome"]) == (1, 2, "ok")
    store.close()


def test_the_list_says_how_runs_began_and_ended(opener: Opener) -> None:
    """The last written comes first; a run whose end is missing has none."""
    store = opener()
    for run in ("a", "b", "c"):
        events = run_of(run)
        write(store, events[:-1] if run == "b" else events)
        time.sleep(0.02)
    logs = store.list()
    assert [log.run_id for log in logs] == ["c", "b", "a"]
    assert [log.finished is None for log in logs] == [False, True, False]
    assert all(log.started["name"] == "p.sexp" and log.bytes > 200 for log in logs)
    assert [log.run_id for log in store.list(limit=2)] == ["c", "b"]
    assert store.find("b") == logs[1] and store.find("q") is None and store.find("../a") is None
    store.close()


def test_the_oldest_go_first_and_what_waits_stays(opener: Opener) -> None:
    """Beyond its bounds a store loses its oldest logs: not those to be spared, not a run that waits or is at work."""
    store = opener()
    for run, outcome in (("waits", "suspended"), ("spared", "ok"), ("old", "ok"), ("older", "ok"), ("new", "ok")):
        write(store, run_of(run, outcome=outcome, more=20))
        time.sleep(0.02)
    write(store, run_of("works")[:-1])
    assert store.gc(LogBounds(runs=6)) == []
    assert store.gc(LogBounds(runs=4), {"spared"}) == ["old", "older"]
    assert {log.run_id for log in store.list()} == {"waits", "spared", "new", "works"}
    assert store.gc(LogBounds(bytes=10_000), {"spared"}) == ["new"]
    assert list(store.read("old")) == []
    store.close()


def test_pieces_are_read_one_by_one(opener: Opener) -> None:
    """Deltas that share a line come back singly, and reading may begin within a line."""
    store = opener()
    line = PieceLine([TextDelta("r", 1, 2 + at, "0", 1, None, 5.0 + at, text=text) for at, text in enumerate("abcde")])
    write(store, run_of("r")[:1], last=False)
    store.append("r", [line.entry()])
    assert [(e["type"], e["seq"], e["text"], e["time"]) for e in store.read("r", (1, 3))] == [
        ("text_delta", 4, "c", 7.0),
        ("text_delta", 5, "d", 8.0),
        ("text_delta", 6, "e", 9.0),
    ]
    store.close()


def test_threads_may_read_while_one_writes(opener: Opener) -> None:
    """Reading and writing at once neither fails nor shows half an event."""
    store = opener()
    write(store, run_of("r", more=50))
    wrong: list[object] = []

    def read() -> None:
        for _ in range(20):
            try:
                wrong.extend(
                    event for event in store.read("r") if "message" in event and len(event["message"]) != 1_000
                )
                store.list()
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for slice in range(2, 12):
        write(store, run_of("r", slice=slice, more=50), last=False)
    for reader in readers:
        reader.join()
    assert wrong == []
    store.close()


@pytest.mark.parametrize("opener", ["files", "sqlite"], indirect=True)
def test_a_store_is_closed_to_other_users(opener: Opener, tmp_path: Path) -> None:
    """Whatever the umask, files have mode 0600 and directories 0700."""
    before = os.umask(0)
    try:
        store = opener()
        write(store, run_of("r"))
        store.close()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes and all(mode == (0o700 if name == "runs" else 0o600) for name, mode in modes.items())


def test_damage_is_passed_over(opener: Opener, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A line that is not an event, or cut off, does not keep the others from being read."""
    if request.node.callspec.params["opener"] == "shards":
        return  # each is a store of its own, whose case this is
    store = opener()
    write(store, run_of("r"))
    store.close()
    if (tmp_path / "runs").is_dir():
        path = tmp_path / "runs" / "r.jsonl"
        path.write_bytes(b"no json\n" + path.read_bytes() + b'{"v":2,"type":"lo')
    elif (tmp_path / "runs.db").exists():
        with sqlite3.connect(tmp_path / "runs.db") as db:
            db.execute("update af_event set line = 'no json' where seq = 2")
    else:
        server, url = (request.getfixturevalue(name) for name in ("postgres_server", "postgres_url"))
        server.sql("update af_event set line = 'no json' where seq = 2", url)
    store = opener()
    read = [event["type"] for event in store.read("r")]
    store.close()
    assert read[0] == "run_started" and read[-1] == "run_finished" and len(read) >= 3
