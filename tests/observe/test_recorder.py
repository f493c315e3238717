"""The recorder, through real files and whole runs: nothing is lost, nothing waits for the disk but what starts effects."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ScriptedProvider, tool
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.event_log import LogEntry
from agentflow.core.events.events import Event, Log, TextDelta, ToolStarted
from agentflow.observe.files import EventFile, EventFiles, read_events
from agentflow.observe.recorder import Recorder
from agentflow.observe.stream import MAX_UNREAD
from tests.support.values import value_of

TASK = {"name": "ask", "params": {"question": "string"}, "instructions": "Say {{question}}"}
ASK = '(ask (question "go on"))'


class Seen:
    """An observer that keeps events as data. ``deltas`` says whether it takes those."""

    def __init__(self, *, deltas: bool = False) -> None:
        self.deltas = deltas
        self.events: list[dict[str, Any]] = []

    def __call__(self, event: Event) -> None:
        self.events.append(json.loads(json.dumps(event.to_dict())))


class Held:
    """A sink that writes nothing until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entries: list[LogEntry] = []

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        self.go.wait()
        self.entries += entries

    def close(self) -> None: ...


class Broken:
    """A sink that cannot write."""

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None: ...


@tool
def search(word: str) -> str:
    """Find a word."""
    return f"found {word}"


async def test_a_log_gives_the_events_as_observers_got_them(tmp_path: Path) -> None:
    """What is read back is what ``to_dict`` gave: requests with all their messages, answers, program texts, pieces."""
    seen = Seen(deltas=True)
    recorder = Recorder(EventFiles(tmp_path), deltas=True)
    calls = [{"tool_calls": [{"name": "search", "arguments": {"word": "a"}}]}, "one two \ud800 three"]
    async with AgentFlow(provider=ScriptedProvider([*calls, "four"]), tools=[search]) as flow:
        flow.task_system.register_template({**TASK, "tools": ["search"]})
        flow.subscribe(seen)
        flow.subscribe(recorder)
        result = await flow.run(f"(list {ASK} {ASK})")
    await recorder.aclose()
    read = list(EventFiles(tmp_path).read(result.run_id))
    assert [_without_times(event) for event in read] == [_without_times(event) for event in seen.events]
    assert sum(event["type"] == "text_delta" for event in read) >= 4


def _without_times(event: dict[str, Any]) -> dict[str, Any]:
    """An event without the times of pieces, which are those of their line."""
    return {name: value for name, value in event.items() if name != "time" or not event["type"].endswith("_delta")}


async def test_messages_tools_and_texts_are_written_once(tmp_path: Path) -> None:
    """Over a conversation of many turns each message, tool and program text is in the file once."""
    recorder = Recorder(EventFile(tmp_path / "log.jsonl"))
    replies = [{"tool_calls": [{"name": "search", "arguments": {"word": f"pear-{n}"}}]} for n in range(10)]
    async with AgentFlow(provider=ScriptedProvider([*replies, "the end"]), tools=[search]) as flow:
        flow.task_system.register_template({**TASK, "tools": ["search"]})
        flow.subscribe(recorder)
        await flow.run('(ask (question "once-in-a-while")) ; a remark')
    await recorder.aclose()
    text = (tmp_path / "log.jsonl").read_text()
    assert text.count("Find a word.") == 1
    assert text.count("a remark") == 1
    assert text.count("Say once-in-a-while") == 1
    assert text.count('"tool_result","call_id"') + text.count('"text":"found pear-3"') <= 11


async def test_more_events_than_a_reader_may_leave_are_all_written(tmp_path: Path) -> None:
    """The recorder is never disconnected, however fast events come."""
    recorder = Recorder(EventFiles(tmp_path))
    async with AgentFlow(root=tmp_path) as flow:
        flow.subscribe(recorder)
        result = await flow.run(f'(map (lambda (n) (log-message "x")) (range {MAX_UNREAD + 1}))')
    await recorder.aclose()
    events = list(EventFiles(tmp_path).read(result.run_id))
    assert sum(event["type"] == "log" for event in events) == MAX_UNREAD + 1
    assert events[-1]["type"] == "run_finished" and recorder.error is None


async def test_a_full_buffer_holds_up_the_next_effect_only() -> None:
    """Publishing goes on without waiting; the next effect starts when there is room, and nothing is lost."""
    sink = Held()
    recorder = Recorder(sink, buffer=20_000)
    done: list[int] = []

    @tool
    def note(n: int, ctx: CallContext) -> int:
        """Say much."""
        ctx.log("x" * 9_000)
        done.append(n)
        return n

    async with AgentFlow(tools=[note]) as flow:
        flow.subscribe(recorder)
        run = asyncio.create_task(flow.run("(map (lambda (n) (note (n n))) (range 6))"))
        while not recorder.congested:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert 0 < len(done) < 6 and not run.done()
        sink.go.set()
        assert (await run).value
        await recorder.aclose()
    logs = [entry for entry in sink.entries if b'"type":"log"' in entry.line]
    assert len(logs) == len(done) == 6


def test_threads_lose_no_event_of_each_other(tmp_path: Path) -> None:
    """Many threads publish at once, with pauses in which the writer ends: every piece and every line is written once."""
    store = EventFiles(tmp_path)
    recorder = Recorder(store, deltas=True, buffer=40_000)

    def publish(run: str) -> None:
        for number in range(1, 2_001):
            text = "x" * 2_000 if number % 500 == 0 else f"{number} "
            recorder(TextDelta(run, 1, number, "0", 1, None, float(number), text=text))
            if number % 1_000 == 0:
                recorder(Log(run, 1, 10_000 + number, "0", None, None, float(number), message="m"))
                time.sleep(1.2)  # longer than an idle writer stays

    runs = ["a", "b", "c"]
    threads = [threading.Thread(target=publish, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(recorder.aclose())
    for run in runs:
        path = tmp_path / f"{run}.jsonl"
        events = list(read_events(path.read_bytes().splitlines()))
        assert [event["seq"] for event in events if event["type"] == "text_delta"] == list(range(1, 2_001))
        assert [event["seq"] for event in events if event["type"] == "log"] == [11_000, 12_000]
        assert path.read_text().count(chr(10)) < 200, "pieces share lines"
    assert not recorder.congested and recorder.error is None


async def test_what_cannot_be_written_is_a_warning_and_no_failure() -> None:
    """The run goes on; it says once that it is not recorded any further, and the recorder keeps the reason."""
    recorder = Recorder(Broken())
    seen = Seen()

    @tool
    async def wait(ctx: CallContext) -> str:
        """Wait until it was tried."""
        await recorder.flush()
        return "waited"

    async with AgentFlow(tools=[wait]) as flow:
        flow.subscribe(recorder)
        flow.subscribe(seen)
        result = await flow.run("(list (wait) (wait))")
    await recorder.aclose()
    assert result.value and isinstance(recorder.error, OSError)
    assert [event["code"] for event in seen.events if event["type"] == "warning"] == ["record/failed"]


async def test_what_fails_after_the_run_is_told_to_whoever_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An end that could not be written is in the log of the process, and the error of a report on that run, no other."""
    async with AgentFlow(record=tmp_path / "runs") as flow:
        (tmp_path / "runs").mkdir()
        for name in ("first", "third"):
            (tmp_path / "runs" / f"{name}.jsonl").mkdir()
        results = [await flow.run("(+ 1 2)", run_id=name) for name in ("first", "second", "third")]
        for name, result in zip(("first", "second", "third"), results, strict=True):
            page = tmp_path / f"{name}.html"
            if name == "second":
                await result.report(page)
                assert page.is_file()
                continue
            with pytest.raises(AgentflowError, match=f"run {name} lacks its end") as caught:
                await result.report(page)
            assert caught.value.code == "record/failed" and not page.exists()
    said = [record.getMessage() for record in caplog.records if record.name == "agentflow.observe.recorder"]
    assert [line.split(" are not")[0] for line in said] == ["the events of run first", "the events of run third"]


async def test_a_log_that_was_cut_off_goes_on_on_a_new_line(tmp_path: Path) -> None:
    """After a kill within a line the next run's events are whole, and what the file holds is not written again."""
    path = tmp_path / "log.jsonl"
    for cut in (True, False):
        recorder = Recorder(EventFile(path))
        async with AgentFlow() as flow:
            flow.subscribe(recorder)
            await flow.run("(+ 1 2) ; once", run_id="r" if cut else "s")
        await recorder.aclose()
        if cut:
            path.write_bytes(path.read_bytes()[:-20])
    lines = path.read_text().splitlines()
    whole = [json.loads(line) for line in lines if line.endswith("}")]
    assert len(whole) == len(lines) - 1
    assert [each["type"] for each in whole if each.get("run_id") == "s"][-1] == "run_finished"
    assert path.read_text().count("; once") == 1


async def test_a_full_disk_is_remembered_not_raised() -> None:
    """A real device without room: the run ends well, and the reason is there afterwards."""
    recorder = Recorder(EventFile(Path("/dev/full")))
    async with AgentFlow() as flow:
        flow.subscribe(recorder)
        assert (await flow.run("(+ 1 2)")).value == 3
    await recorder.aclose()
    assert isinstance(recorder.error, OSError) and recorder.error.strerror == "No space left on device"


def test_one_file_takes_the_runs_of_several_loops(tmp_path: Path) -> None:
    """A recorder of a flow that is used in one loop after another, and by concurrent runs, loses no line."""
    path = tmp_path / "deep" / "events.jsonl"
    recorder = Recorder(EventFile(path))
    flow = AgentFlow(root=tmp_path)
    flow.subscribe(recorder)

    async def runs() -> None:
        await asyncio.gather(*(value_of(flow.run("(+ 1 2)")) for _ in range(5)))

    for _ in range(2):
        asyncio.run(runs())
    asyncio.run(flow.aclose())
    asyncio.run(recorder.aclose())
    events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    by_run: dict[str, list[int]] = {}
    for event in events:
        if event["type"] != "content":
            by_run.setdefault(event["run_id"], []).append(event["seq"])
    assert len(by_run) == 10 and all(seqs == sorted(seqs) for seqs in by_run.values())
    assert sum(event["type"] == "run_finished" for event in events) == 10 and path.stat().st_mode & 0o77 == 0


def test_what_has_no_json_form_is_written_as_its_redacted_text(tmp_path: Path) -> None:
    """The text of an object that redaction cannot look into is redacted when it is written, as key and as value."""

    class Opaque:
        def __str__(self) -> str:
            return "a secret"

    recorder = Recorder(EventFile(tmp_path / "log"), text=lambda value: str(value).replace("secret", "[redacted]"))
    recorder(ToolStarted("r", 1, 1, "0", None, None, 1.0, name="t", arguments={"x": Opaque(), Opaque(): [Opaque()]}))
    recorder(Log("r", 1, 2, "0", None, None, 1.0, message="m"))
    asyncio.run(recorder.aclose())
    first, second = (tmp_path / "log").read_text().splitlines()
    assert json.loads(first)["arguments"] == {"x": "a [redacted]", "a [redacted]": ["a [redacted]"]}
    assert json.loads(second)["message"] == "m"


async def test_pieces_of_streams_side_by_side_keep_their_order(tmp_path: Path) -> None:
    """Pieces of several streams come back one by one in the order of their numbers, apart by stream and kind."""
    recorder = Recorder(EventFiles(tmp_path), deltas=True)
    recorder(Log("r", 1, 1, "0", None, None, 1.0, message="before"))
    for seq in range(2, 200):
        recorder(TextDelta("r", 1, seq, f"0/{seq % 3}", seq % 3, None, 1.0 + seq, text=f"{seq} "))
    recorder(Log("r", 1, 200, "0", None, None, 300.0, message="after"))
    await recorder.aclose()
    path = tmp_path / "r.jsonl"
    path.write_text('{"v":2,"type":"run_started","run_id":"r","slice":1,"seq":0,"time":1.0}\n' + path.read_text())
    events = list(EventFiles(tmp_path).read("r", (1, 0)))
    assert [event["seq"] for event in events] == list(range(1, 201))
    assert all(event["text"] == f"{event['seq']} " for event in events[1:-1])
    assert len(path.read_text().splitlines()) < 10
