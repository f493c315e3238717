"""The kept events of a run, and the stream that sends them: bounds, pieces, pings, readers that do not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.serve.sent_events import EventLog, Position, parse_position
from agentflow.serve.streaming import EventStream
from tests.support.served import Served, served


def test_a_log_keeps_the_newest_within_its_bounds() -> None:
    """By number and by size; the position of the last one that went is known; nothing else goes."""
    by_number = EventLog(max_events=100, max_bytes=10**9)
    by_size = EventLog(max_events=10**9, max_bytes=1_000)
    for seq in range(1, 1_001):
        for log in (by_number, by_size):
            log.add((1, seq), b"x" * 10)
            kept = [each.position[1] for each in log.since((0, 0))]
            assert kept == list(range(seq - len(kept) + 1, seq + 1)) and log.size == 10 * len(kept)
            assert log.cut == (None if seq == len(kept) else (1, seq - len(kept)))
        assert len(by_number) <= 100 and by_size.size <= 1_000
    by_size.add((1, 1_001), b"x" * 5_000)
    assert len(by_size) == 0 and by_size.cut == (1, 1_001), "what is too large alone is not kept either"


def test_pieces_are_kept_until_the_whole_is_there() -> None:
    """Those of one turn go with its end; those of others, and of another slice, stay."""
    log = EventLog()
    for seq, turn in ((3, 1), (4, 2), (5, 1), (6, 2)):
        log.add((1, seq), b"x", piece_of=turn)
    log.add((1, 7), b"end", ends=1)
    assert [each.position[1] for each in log.since((0, 0))] == [4, 6, 7] and log.size == 5
    log.add((2, 3), b"x", piece_of=2)
    log.add((2, 4), b"end", ends=2)
    assert [each.position for each in log.since((0, 0))] == [(1, 4), (1, 6), (1, 7), (2, 4)]


COUNTS = '(define (go n) (if (= n 0) 0 (begin (log-message "x") (go (- n 1))))) (go 200)'


async def cut_run(server: Served) -> tuple[str, list[dict[str, Any]]]:
    """A run that has ended, of whose events the last 50 are kept; its id, and all that there were."""
    run_id = await server.begin("loop", message="x")
    await server.ended(run_id)
    [run] = server.runs
    whole = [event async for event in server.events(run_id)]
    small = EventLog(max_events=50)
    for entry in run.log.since((0, 0)):
        small.add(entry.position, entry.frame)
    small.close()
    run.log = small
    return run_id, whole


async def test_a_reader_is_told_what_is_not_kept() -> None:
    """Where runs are not recorded, a ``gap`` with both ends comes before the rest; a reader that is further on is not told."""
    async with AgentFlow() as flow, served(flow, {"loop": COUNTS}) as server:
        run_id, whole = await cut_run(server)
        first, *rest = [event async for event in server.events(run_id)]
        assert first["type"] == "gap" and first["after"] == "1.0"
        cut = int(first["until"].partition(".")[2])
        assert rest == [event for event in whole if event["seq"] > cut] and 0 < len(rest) <= 50
        assert [each async for each in server.events(run_id, after=first["until"])] == rest


@pytest.mark.parametrize("record", ["files", "database"])
async def test_what_is_not_kept_comes_from_the_record(tmp_path: Path, record: str) -> None:
    """Where runs are recorded, a replay from every event is the rest of the events, kept or not."""
    options: dict[str, Any] = {"record": str(tmp_path)}
    if record == "database":
        options = {"record": True, "durable": f"sqlite:///{tmp_path}/runs.db"}
    async with AgentFlow(**options) as flow, served(flow, {"loop": COUNTS}) as server:
        run_id, whole = await cut_run(server)
        assert len(whole) > 200
        for at in (*range(0, len(whole), 29), len(whole) - 52, len(whole) - 49, len(whole) - 1):
            assert [each async for each in server.events(run_id, after=whole[at]["id"])] == whole[at + 1 :], at


async def test_a_reader_that_falls_behind_loses_nothing(tmp_path: Path) -> None:
    """What goes while it reads comes from the record; without one it is told of the gap where it is."""
    told: list[tuple[Position, Position]] = []

    async def earlier(after: Position, until: Position) -> AsyncIterator[bytes]:
        told.append((after, until))
        yield b"from the record"

    log = EventLog(max_events=10)
    log.add((1, 1), b"first")
    reader = log.follow((0, 0), earlier)
    assert await anext(reader) == b"first"
    for seq in range(2, 40):
        log.add((1, seq), b"x")
    assert await anext(reader) == b"from the record" and told == [((1, 1), log.cut)]
    assert len(await anext(reader)) == len(log)
    log.close()
    assert [frames async for frames in reader] == []


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("3", (1, 3)),
        ("2.7", (2, 7)),
        ("", None),
        ("-1", None),
        ("1.", None),
        ("1.2.3", None),
        ("٣", None),
        ("9" * 50, None),
    ],
)
def test_places_are_read_strictly(text: str, position: tuple[int, int] | None) -> None:
    """Digits, with the slice before a point."""
    assert parse_position(text) == position


class Wire:
    """The two sides of an ASGI connection, set by hand."""

    def __init__(self, *, stalls: bool = False) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.stalls = stalls

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if self.stalls and message["type"] == "http.response.body":
            await asyncio.Event().wait()

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent)


class Chunks:
    """Events that come when they are told to, and whether whoever made them heard of the end."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.closed = False

    async def stream(self) -> AsyncGenerator[bytes, None]:
        try:
            while (chunk := await self.queue.get()) is not None:
                yield chunk
        finally:
            self.closed = True


@pytest.mark.parametrize("end", ["events", "client", "stall", "cancelled"])
async def test_a_stream_ends_with_its_events_its_client_or_its_patience(end: str) -> None:
    """Pings come in between; however it ends its source is closed, and no task is left; only a whole one is ended as whole."""
    before = asyncio.all_tasks()
    wire, chunks = Wire(stalls=end == "stall"), Chunks()
    stream = EventStream(chunks.stream(), ping_s=0.01, send_s=0.05)
    running = asyncio.create_task(stream({"type": "http"}, wire.receive, wire.send))
    if end != "stall":
        while b": ping\n\n" not in wire.body:
            await asyncio.sleep(0.002)
        chunks.queue.put_nowait(b"data: 1\n\n")
        while b"data: 1" not in wire.body:
            await asyncio.sleep(0.002)
    if end == "events":
        chunks.queue.put_nowait(None)
    elif end == "client":
        wire.gone.set()
    elif end == "cancelled":
        running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() is (end == "cancelled") and chunks.closed and asyncio.all_tasks() == before
    assert (wire.sent[-1].get("more_body") is False) is (end == "events")
    head = dict(wire.sent[0]["headers"])
    assert head[b"content-type"].startswith(b"text/event-stream") and b"content-length" not in head
    assert b"\r" not in wire.body
