"""Secrets of durable runs: wherever one turns up in a run, it stands nowhere in the files of the database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agentflow import Secret, Session, tool
from agentflow.core.data.errors import AgentflowError, ConfigurationError, JournalError
from tests.durable.world import Flow, World

KEY = "Zq7x" * 12
PART = b"Zq7x"
PROGRAM = """
(defatom ask (params (q string)) (instructions "{{q}}") (history_config true))
(defatom again (params (q string)) (instructions "{{q}}") (reuse "1d") (history_config (record_in_session_history true)))
(list (content (look (at key))) (content (ask (q key))) (content (ask (q "file") (files (list "notes.txt"))))
      (content (again (q key))) (content (long (of key))) (ask-human (string-append filler key))
      (content (pay (to key))) key)
"""


def stored(directory: Path) -> bytes:
    """The bytes of the database, with what is not yet in its main file."""
    files = [each for each in directory.glob("runs.db*") if each.is_file()]
    assert len(files) >= 2
    return b"".join([each.read_bytes() for each in files])


@tool
async def long(of: str) -> str:
    """Give much, with a secret in it."""
    return "much " * 20_000 + of + "more"


@tool(approval=True)
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@tool
async def refuse(to: str) -> str:
    """Fail."""
    raise AgentflowError(f"no {to}", hint=to, details={"to": to})


async def test_a_secret_is_nowhere_in_the_database(world: World, flow: Flow, tmp_path: Path) -> None:
    """Not of a question (cut anywhere in it), an approval, a label, a file, a step, a long value, an answer or an end."""
    (tmp_path / "notes.txt").write_text(f"the key is {KEY}")
    tools = [world.look, long, pay, refuse]
    async with flow(api_key=Secret(KEY), tools=tools) as opened:
        async with opened.session("talk") as session:
            handle = await opened.start(
                PROGRAM,
                {"key": KEY, "filler": "f" * 60},
                run_id="r",
                labels={"user": KEY, KEY: "user"},
                allow=["look", "long", "pay", "defatom", "ask-human"],
                session=session,
            )
            for answer in (KEY, True):
                assert await handle.wait() == "waiting"
                assert PART not in stored(tmp_path)
                await opened.send("r", handle.waiting[0].key, answer)
            value = (await handle.result()).value
        assert value[-1] == "[redacted]" and value[-2] == "paid [redacted]" and world.done[KEY] == 3
        assert PART not in stored(tmp_path)
        for run_id, text in (("f", '(raise (string-append "no " key))'), ("g", "(refuse (to key))")):
            failed = await opened.start(text, {"key": KEY}, run_id=run_id)
            assert await failed.wait() == "failed"
        assert PART not in stored(tmp_path)
    assert PART not in (tmp_path / "runs.db").read_bytes()
    with sqlite3.connect(tmp_path / "runs.db") as db:
        names = {name for (name,) in db.execute("select name from af_effect")}
        assert any(name.startswith("ffff") and "[redacted]" in name for name in names), names
        for table in ("af_blob", "af_result"):
            assert db.execute(f"select count(*) from {table}").fetchone()[0] > 0


async def test_an_override_with_a_secret_is_refused(world: World, flow: Flow, tmp_path: Path) -> None:
    """Overrides are stored as they are, and a run depends on them: like a program's text they may hold no secret."""
    text = '(defatom ask (params (q string)) (instructions "{{q}}")) (content (ask (q "one")))'
    async with flow(api_key=Secret(KEY)) as opened:
        await (await opened.start(text, run_id="r")).result()
        with pytest.raises(JournalError) as caught:
            await opened.resume("r", overrides={"ask": {"instructions": f"say {KEY}"}})
        assert caught.value.code == "durable/secret" and "override" in caught.value.message
        assert [run.run_id for run in await opened.runs()] == ["r"]
        assert PART not in stored(tmp_path)
    assert world.done == {"one": 1}


async def test_a_name_with_a_secret_is_refused(world: World, flow: Flow, tmp_path: Path) -> None:
    """What is found again by its name is stored under it: an id or a session's name with a secret is refused, unshown."""
    async with flow(api_key=Secret(KEY)) as opened:
        await (await opened.start("1", run_id="r")).result()
        for code, name in (
            ("config/run-id", lambda: opened.start("1", run_id=f"run-{KEY}")),
            ("config/run-id", lambda: opened.run("1", run_id=f"run-{KEY}")),
            ("config/run-id", lambda: opened.fork("r", "0/0.0", as_run=KEY)),
            ("config/run-id", lambda: opened.schedule("0 7 * * *", "1", name=KEY)),
            ("config/session", lambda: opened.store.delete_session(KEY)),
        ):
            with pytest.raises(ConfigurationError) as caught:
                await name()
            assert caught.value.code == code and KEY not in str(caught.value)
        with pytest.raises(ConfigurationError):
            opened.session(f"of {KEY}")
        with pytest.raises(JournalError) as refused:
            await opened.start("1", session=Session(scope=KEY))
        assert refused.value.code == "durable/secret" and "scope" in refused.value.message
        assert PART not in stored(tmp_path)
