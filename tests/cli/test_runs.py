"""``agentflow runs``: the command records what it runs, and shows it again."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.cli.runs.run_read import event_text, show, show_difference
from agentflow.cli.runs.run_show import show_run
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.templates import Parameter
from agentflow.core.events.journal_rows import NewRun
from agentflow.durable.catalogue import RunSummary
from agentflow.journal.events import SqliteEvents
from agentflow.journal.sqlite import SqliteJournal
from agentflow.lib.text.safe_text import clean
from agentflow.observe.files import EventFiles
from agentflow.observe.joined_runs import pairs_of
from agentflow.settings import load_settings
from agentflow.tasks.workflows import Workflow
from tests.cli.test_command import Done, agentflow

PROGRAM = """(defatom ask (params (q string)) (instructions "{{q}}"))
(define answers (parallel (ask (q "how big is Rome?")) (ask (q Q))))
(map (lambda (x) (/ 1 x)) (list 1 N))
"""


async def runs(tmp_path: Path, *arguments: str) -> Any:
    """What a subcommand says as JSON."""
    done = await agentflow("runs", *arguments, "--json", tmp_path=tmp_path, cwd=tmp_path)
    assert done.code == 0, done.err
    return json.loads(done.out)


async def run(tmp_path: Path, *arguments: str) -> Done:
    (tmp_path / "p.sexp").write_text(PROGRAM)
    return await agentflow("run", "p.sexp", "-m", "offline", *arguments, tmp_path=tmp_path, cwd=tmp_path)


async def test_what_the_command_runs_is_recorded_and_shown(tmp_path: Path) -> None:
    """A run is in the list with its outcome; show gives its text with what each line did, and where it failed."""
    await run(tmp_path, "-b", "Q=a", "-b", "N=1")
    await run(tmp_path, "-b", "Q=b", "-b", "N=0")
    bad, good = await runs(tmp_path)
    assert (bad["state"], good["state"], good["name"]) == ("error", "ok", "p.sexp")
    assert oct(os.stat(good["where"]).st_mode & 0o777) == "0o600"
    shown = await agentflow("runs", "show", tmp_path=tmp_path, cwd=tmp_path)
    lines = shown.out.splitlines()
    second = next(line for line in lines if "define answers" in line)
    assert second.split()[:2] == ["+", "2"]
    third = next(at for at, line in enumerate(lines) if "(/ 1 x)" in line)
    assert lines[third].split()[0] == "x" and "number/division-by-zero" in lines[third + 1]
    assert any(line.startswith("task ask") and " 2 " in line for line in lines)
    data = await runs(tmp_path, "show", good["run_id"])
    assert data["state"] == "ok" and data["tasks"]["task ask"]["calls"] == 2 and data["programs"]["p.sexp"] == PROGRAM


async def test_two_runs_are_compared(tmp_path: Path) -> None:
    """diff says which effects were asked with other inputs and which are the same, by their paths."""
    for question in "ab":
        await run(tmp_path, "-b", f"Q={question}", "-b", "N=1")
    second, first = [each["run_id"] for each in await runs(tmp_path)]
    found = await runs(tmp_path, "diff", first, second)
    tasks = {row["path"]: row["change"] for row in found["effects"] if row["kind"] == "task"}
    assert sorted(tasks.values()) == ["input", "same"]
    shown = await agentflow("runs", "diff", first, second, tmp_path=tmp_path, cwd=tmp_path)
    assert "other input" in shown.out and "line 2" in shown.out


async def test_tail_gives_the_events_and_gc_removes_them(tmp_path: Path) -> None:
    """tail prints every event, following ends with the run; gc leaves as many as it is told."""
    for _ in range(2):
        await run(tmp_path, "-b", "Q=a", "-b", "N=1")
    done = await agentflow("runs", "tail", "-f", "--json", tmp_path=tmp_path, cwd=tmp_path)
    events = [json.loads(line) for line in done.out.splitlines()]
    assert events[0]["type"] == "run_started" and events[-1]["type"] == "run_finished"
    assert "task started  ask" in (await agentflow("runs", "tail", tmp_path=tmp_path, cwd=tmp_path)).out
    oldest = (await runs(tmp_path))[-1]["run_id"]
    assert await runs(tmp_path, "gc", "--keep", "1") == {"removed": [oldest]}
    assert len(await runs(tmp_path)) == 1


async def test_nothing_is_recorded_when_that_is_asked(tmp_path: Path) -> None:
    """--no-record leaves no trace, and --events-file is a file that show reads."""
    await run(tmp_path, "-b", "Q=a", "-b", "N=1", "--no-record", "--events-file", str(tmp_path / "one.jsonl"))
    assert await runs(tmp_path) == []
    data = await runs(tmp_path, "show", str(tmp_path / "one.jsonl"))
    assert data["state"] == "ok" and data["model_calls"] == 2
    missing = await agentflow("runs", "show", "nobody", tmp_path=tmp_path, cwd=tmp_path)
    assert missing.code == 1 and "there is no run 'nobody'" in missing.err


async def test_a_durable_run_is_one_run_of_both_stores(tmp_path: Path) -> None:
    """The log of a durable run is beside its journal, and the list joins both by the run's id."""
    await run(tmp_path, "-b", "Q=a", "-b", "N=1", "--durable", "--db", "sqlite:///mine.db")
    (only,) = await runs(tmp_path, "--db", "sqlite:///mine.db")
    assert (only["state"], only["recorded"], only["durable"]) == ("done", True, True)
    data = await runs(tmp_path, "show", only["run_id"], "--db", "sqlite:///mine.db")
    assert data["tasks"]["task ask"]["calls"] == 2
    assert await runs(tmp_path) == []


async def test_the_library_records_when_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """record= names a directory, or is True: beside the durable runs, else in the state directory; by default nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    stores = {
        "path": ({"record": tmp_path / "logs"}, EventFiles(tmp_path / "logs")),
        "state": ({"record": True}, EventFiles(tmp_path / "state" / "agentflow" / "runs")),
        "table": ({"record": True, "durable": url}, SqliteEvents(tmp_path / "runs.db")),
        "none": ({}, None),
    }
    before: set[str] = set()
    for name, (options, store) in stores.items():
        async with AgentFlow(**options) as flow:
            await flow.run("(+ 1 2)", run_id=name)
        if store is not None:
            assert [event["type"] for event in store.read(name)][-1] == "run_finished"
            assert {log.run_id for log in store.list()} == {name}
            store.close()
            before.add(name)
    assert before == {"path", "state", "table"}


async def test_logs_and_journal_share_a_database_in_either_order(tmp_path: Path) -> None:
    """A database in which runs were only recorded becomes that of durable runs too."""
    events = SqliteEvents(tmp_path / "runs.db")
    events.append("r", [])
    journal = SqliteJournal(tmp_path / "runs.db")
    await journal.create("r", NewRun(program="(f)", digest="d", input={}))
    await journal.aclose()
    assert [log.run_id for log in events.list()] == ["r"]
    events.close()


def test_a_directory_cannot_have_runs_recorded(tmp_path: Path) -> None:
    """record is nothing that agentflow.toml may set, which comes with somebody else's project."""
    (tmp_path / "agentflow.toml").write_text("record = true\n")
    with pytest.raises(ConfigurationError, match="may not set record"):
        load_settings(tmp_path, {})


def test_what_is_shown_of_a_run_controls_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Names, texts and errors that models and tools gave are shown without control and direction characters."""
    bad = "\x1b[2J\u202eevil\r\x07"
    span = {"source": bad, "line": 1, "column": 1, "end_line": 1, "end_column": 4}
    head = {"v": 2, "run_id": "r", "slice": 1, "path": "0", "span": span, "time": 1.0}
    end = {"outcome": "error", "duration_s": 1.0, "error": {"code": bad, "message": bad, "span": span}}
    events: list[dict[str, Any]] = [
        {**head, "type": "run_started", "seq": 1, "parent": None, "name": bad, "labels": {bad: bad}},
        {**head, "type": "program_loaded", "seq": 2, "parent": 1, "name": bad, "text": f"(f) {bad}"},
        {**head, "type": "tool_started", "seq": 3, "parent": 1, "name": bad, "arguments": {}},
        {**head, "type": "tool_finished", "seq": 4, "parent": 1, "started": 3, "name": bad, "sources": [bad], **end},
        {**head, "type": "warning", "seq": 5, "parent": 1, "code": bad, "message": bad},
        {**head, "type": "run_finished", "seq": 6, "parent": None, "started": 1, "sources": [bad], **end},
    ]
    summary = RunSummary(
        run_id="r", state="error", name=bad, started=1.0, updated=2.0, error=bad, labels={bad: bad}, recorded=True
    )
    show_run(summary, events, as_json=False)
    show_difference(summary, summary, pairs_of(events, events[:3]), as_json=False)
    for event in events:
        print(clean(event_text(event, 1.0)))
    out = capsys.readouterr().out
    assert "evil" in out and not {"\x1b", "\u202e", "\x07", "\r"} & {*out}


async def test_durable_runs_without_events_are_compared_by_their_records(tmp_path: Path) -> None:
    """Where the events of a run are not there its journal is: asked with other inputs, answered otherwise, alone in one of them."""
    where = f"sqlite:///{tmp_path}/own.db"

    seen = {"a": "x", "b": "y", "c": "z", "d": "z"}

    async def look(at: str) -> str:
        """Look."""
        return seen[at]

    for run_id, b, text in (
        ("one", "y", '(list (look (at "a")) (look (at "b")) (look (at "c")))'),
        ("two", "Y", '(list (look (at "a")) (look (at "b")) (look (at "d")) (random))'),
    ):
        seen["b"] = b
        async with AgentFlow(tools=[look], durable=where) as flow:
            await (await flow.start(text, run_id=run_id)).result()
    found = await runs(tmp_path, "diff", "one", "two", "--db", where)
    assert [each["change"] for each in found["effects"]] == ["same", "output", "input", "second"]
    assert found["counts"] == {"same": 1, "input": 1, "output": 1, "first": 0, "second": 1}
    assert [each["name"] for each in found["effects"]][:3] == ["look"] * 3
    none = await agentflow("runs", "diff", "one", "nosuch", "--db", where, tmp_path=tmp_path, cwd=tmp_path)
    assert none.code == 1 and "durable/unknown-run" in none.err


async def test_a_generation_is_compared_with_its_base(tmp_path: Path) -> None:
    """What records answered is the same in both runs, though the second has no events of it."""
    program = tmp_path / "p.sexp"
    ask = '(defatom ask (params (q string)) (instructions "{{q}}") (history_config {"use_session_history" #f}))'
    words = ("--durable", "--run-id", "one", "-m", "offline")
    program.write_text(f'{ask} (list (ask (q "a")) (ask (q "b")))')
    assert (await agentflow("run", "p.sexp", *words, tmp_path=tmp_path, cwd=tmp_path)).code == 0
    program.write_text(f'{ask} (list (ask (q "a")) (ask (q "c")))')
    done = await agentflow(
        "resume", "one", "--program", "p.sexp", "-m", "offline", "--json", tmp_path=tmp_path, cwd=tmp_path
    )
    assert done.code == 0, done.err
    (other,) = [each["run_id"] for each in await runs(tmp_path, "--durable") if each["run_id"] != "one"]
    found = await runs(tmp_path, "diff", "one", other)
    assert [(each["change"], each["name"]) for each in found["effects"]] == [("same", "ask"), ("input", "ask")]


async def test_a_run_without_events_is_shown_by_its_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no events were kept, the stored program and the records of a durable run say what ran, how often and at what cost."""
    db = f"sqlite:///{tmp_path}/runs.db"
    text = '(defatom ask (params (q string)) (instructions "{{q}}")) (list (ask (q "one")) (ask (q "two")))'
    async with AgentFlow(provider=ScriptedProvider(lambda _: "yes"), root=tmp_path, durable=db) as flow:
        await (await flow.start(text, run_id="quiet")).result()
    assert await show("quiet", None, db, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["recorded"] is False and list(told["programs"].values()) == [text]
    tasks = told["tasks"]
    ask = tasks["task ask"]
    assert list(tasks) == ["task ask"] and ask["calls"] == 2 and ask["outcomes"] == {"ok": 2}
    assert ask["input_tokens"] > 0 and ask["cost_usd"] is None, "a scripted answer has no price"


MARKED = """(defatom ask (params (q string)) (instructions "{{q}}"))
(define a (ask (q "one")))
(define b (pmap (lambda (i) (look (at i))) (list 1 2)))
(define c (try (look (at 3)) (catch (e) "lost")))
(define d (ask-human "Go on?" {"type" "boolean"}))
(if d (look (at 4)) (ask (q "two")))
"""


MARKED_PYTHON = """@task
def ask(q: str): "{{q}}"
a = ask("one")
b = pmap(lambda i: look(i), [1, 2])
c = outcome(look(3))
d = ask_human("Go on?", output=bool)
e = look(4) if d else ask("two")
"""


async def look(at: int) -> str:
    """Look at something."""
    if at == 3:
        raise ValueError("it is broken")
    return "seen"


def marks_of(shown: str) -> list[str]:
    """The first word of each line of the program that is numbered, or the number itself."""
    return [line.split()[0] for line in shown.splitlines() if "(" in line and line[31:37].strip().isdecimal()]


@pytest.mark.parametrize(
    ("surface", "program", "first", "comment"), [("sexp", MARKED, 1, ";"), ("python", MARKED_PYTHON, 2, "#")]
)
async def test_records_mark_the_text_of_a_run_without_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], surface: Surface, program: str, first: int, comment: str
) -> None:
    """Where no events were kept, each line says what is done, has failed, waits, and was not reached; nothing is carried out
    for that. A generation has its places in its own text. The same in both languages."""
    db = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(provider=ScriptedProvider(lambda _: "yes"), root=tmp_path, durable=db, tools=[look]) as flow:
        handle = await flow.start(program, run_id="quiet", surface=surface)
        assert await handle.wait() == "waiting"
    assert await show("quiet", None, db, as_json=False) == 0
    shown = capsys.readouterr().out
    assert marks_of(shown) == [str(first), "+", "+", "x", "~", str(first + 5)]
    assert "look: " in shown and "it is broken" in shown
    assert await show("quiet", None, db, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)["expressions"]
    assert [(each["line"] - first, each["state"], each["calls"]) for each in told] == [
        (1, "ok", 1), (2, "ok", 2), (3, "failed", 1), (4, "suspended", 1),
    ]  # fmt: skip
    edited = f"{comment} moved by a line\n" + program.replace('"Go on?"', '"Really?"')
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path, durable=db, tools=[look]) as flow:
        generation = await flow.resume("quiet", program=Source.unnamed(edited, surface))
        assert await generation.wait() == "waiting"
    assert await show(generation.run_id, None, db, as_json=False) == 0
    assert marks_of(capsys.readouterr().out) == [str(first + 1), "+", "+", "x", "~", str(first + 6)]


OTHER_TEXTS = """(list (eval-program '(list (look (at 1)) (look (at 2))) (allow look))
      (solve "two looks" (allow look))
      (call-workflow saved (x 3))
      (call-workflow asking))
(eval-program '(look (at 9)) (allow look))
"""


async def test_what_a_program_runs_is_marked_where_it_runs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without events, effects of texts that the program runs are shown at the form that runs them, however deep they are."""
    db = f"sqlite:///{tmp_path}/runs.db"
    model = ScriptedProvider(["```\n(list (look (at 1)) (look (at 2)))\n```"])
    async with AgentFlow(provider=model, root=tmp_path, durable=db, tools=[look]) as flow:
        saved = "(eval-program '(look (at at)) (bindings `((at ,x))) (allow look))"
        await flow.workflows.save(Workflow(name="saved", params={"x": Parameter(type="integer")}, program=saved))
        await flow.workflows.save(Workflow(name="asking", params={}, program='(ask-human "Go on?")'))
        handle = await flow.start(OTHER_TEXTS, run_id="others")
        assert await handle.wait() == "waiting"
    assert await show("others", None, db, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)["expressions"]
    assert [(each["line"], each["state"], each["calls"]) for each in told] == [
        (1, "ok", 2), (2, "ok", 3), (3, "failed", 1), (4, "suspended", 1),
    ]  # fmt: skip


async def test_a_task_that_was_stopped_between_its_turns_is_marked_as_at_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task of which only steps are recorded is at work, in the place where the program calls it."""
    db = f"sqlite:///{tmp_path}/runs.db"
    reached, for_ever = asyncio.Event(), asyncio.Event()

    async def dig() -> str:
        """Dig."""
        reached.set()
        await for_ever.wait()
        return ""

    text = '(defatom work (params) (instructions "w") (tools dig))\n\n(work)'
    model = ScriptedProvider([{"tool_calls": [{"name": "dig", "arguments": {}}]}])
    async with AgentFlow(provider=model, root=tmp_path, durable=db, tools=[dig]) as flow:
        await flow.start(text, run_id="stopped")
        await reached.wait()
    assert await show("stopped", None, db, as_json=True) == 0
    (told,) = json.loads(capsys.readouterr().out)["expressions"]
    assert (told["line"], told["state"], told["running"]) == (3, "running", 1)
