"""Sessions that last: one conversation, whatever processes it is carried on in, and never two runs at once in it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, ScriptedProvider, Secret, Session
from agentflow.core.data.context import DataContext
from agentflow.core.data.errors import JournalError, SessionBusy
from agentflow.core.data.messages import ModelRequest
from tests.durable.world import Flow

CHAT = '(defatom chat (params (say string)) (instructions "{{say}}") (history_config true)) (content (chat (say text)))'
HELD = f'{CHAT} (hold) (content (chat (say "more")))'


class Talk:
    """A model that says how many messages it was sent, and a callable that hangs while ``held``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asked = 0
        self.held = False
        self.failing = False
        self.reached = asyncio.Event()

    def answer(self, request: ModelRequest) -> str:
        self.asked += 1
        return f"{request.messages[-1].text} is message {len(request.messages)}"

    async def hold(self) -> str:
        """Hang, or not."""
        if self.held:
            self.reached.set()
            await asyncio.Event().wait()
        if self.failing:
            raise ValueError("failing")
        return "went on"

    def flow(self, **options: Any) -> AgentFlow:
        return AgentFlow(
            provider=ScriptedProvider(self.answer),
            root=self.directory,
            tools=[],
            durable=f"sqlite:///{self.directory}/runs.db",
            **options,
        )

    async def say(self, flow: AgentFlow, text: str, session: Session) -> str:
        return (await flow.run(CHAT, bindings={"text": text}, session=session)).value

    async def interrupt(self, run_id: str = "r", name: str = "ada") -> None:
        """Start a durable run in the session and end the process while it works."""
        self.held = True
        self.reached.clear()
        async with self.flow() as flow, flow.session(name) as session:
            await flow.start(HELD, {"text": "hello", "hold": self.hold}, run_id=run_id, session=session)
            await self.reached.wait()
        self.held = False


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


async def said(flow: AgentFlow, name: str = "ada") -> list[str]:
    """The user's texts of a stored conversation."""
    async with flow.session(name) as session:
        return [turn[0].text for turn in session.turns()]


async def test_a_conversation_goes_on_in_another_process(talk: Talk) -> None:
    """Turns, a primed context and a cleared history are there when the session is opened again; names do not mix."""
    async with talk.flow() as flow, flow.session("ada") as session:
        assert await talk.say(flow, "one", session) == "one is message 1"
        session.data_context = DataContext(overall_summary="about \ud800", retrieved_at=1.0)
    async with talk.flow() as flow:
        async with flow.session("ada") as session:
            assert await talk.say(flow, "two", session) == "two is message 3"
            assert session.data_context == DataContext(overall_summary="about \ud800", retrieved_at=1.0)
            assert session.scope == "ada" and session.compaction is None
            session.compact(1, "they said one")
        async with flow.session("eve") as session:
            assert await talk.say(flow, "other", session) == "other is message 1"
        async with flow.session("ada") as session:
            assert session.compaction is not None and session.compaction.summary == "they said one"
            session.reset()
            session.data_context = None
            await talk.say(flow, "anew", session)
    async with talk.flow() as flow:
        assert await said(flow) == ["anew"] and await said(flow, "eve") == ["other"]
        async with flow.session("ada") as session:
            assert session.data_context is None and session.compaction is None


async def test_one_block_has_a_session_at_a_time(talk: Talk) -> None:
    """A second block, here or in another process, is refused at once, or gets the session in time when it may wait."""
    async with talk.flow() as flow, talk.flow() as other:
        async with flow.session("ada") as session:
            for each in (flow, other):
                with pytest.raises(SessionBusy) as caught:
                    async with each.session("ada"):
                        pytest.fail("the session was given twice")
                assert caught.value.code == "session/busy"
            waiting = asyncio.ensure_future(said_when_free(other))
            await talk.say(flow, "one", session)
        assert await waiting == ["one"]


async def said_when_free(flow: AgentFlow) -> list[str]:
    async with flow.session("ada", wait_s=30) as session:
        return [turn[0].text for turn in session.turns()]


_HOLDER = """
import asyncio, sys
from agentflow import AgentFlow, ScriptedProvider
async def main():
    async with AgentFlow(provider=ScriptedProvider(lambda request: "hi"), durable=sys.argv[1]) as flow:
        async with flow.session("ada") as session:
            await flow.run('(defatom chat (params) (instructions "first") (history_config true)) (chat)', session=session)
            print("held", flush=True)
            await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process is killed by signal")
async def test_a_killed_process_leaves_its_finished_turns(talk: Talk) -> None:
    """While its process lives a session is nobody else's; killed, it leaves every turn whose run had ended, and no lock."""
    url = f"sqlite:///{talk.directory}/runs.db"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _HOLDER, url, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    async with talk.flow() as flow:
        with pytest.raises(SessionBusy):
            await said(flow)
        process.kill()
        await process.wait()
        assert await said(flow) == ["first"]


async def test_an_interrupted_run_keeps_its_session(talk: Talk) -> None:
    """No other run begins in it until the run has ended; then the session has the run's turns, once."""
    async with talk.flow() as flow, flow.session("ada") as session:
        await talk.say(flow, "before", session)
    await talk.interrupt()
    async with talk.flow() as flow, flow.session("ada") as session:
        assert len(session.turns()) == 1, "what the run has said is its own until it ends"
        with pytest.raises(SessionBusy) as caught:
            await talk.say(flow, "between", session)
        assert caught.value.code == "session/held" and caught.value.details["run_id"] == "r"
        with pytest.raises(SessionBusy) as caught:
            await flow.start(CHAT, {"text": "between"}, run_id="s", session=session)
        assert caught.value.code == "session/held"
        handle = await flow.start(HELD, {"text": "hello", "hold": talk.hold}, run_id="r", session=session)
        assert (await handle.result()).value == "more is message 5"
        assert await talk.say(flow, "after", session) == "after is message 7"
    assert talk.asked == 4
    async with talk.flow() as flow:
        assert await said(flow) == ["before", "hello", "more", "after"]
        again = await flow.start(CHAT, {"text": "x"}, run_id="t")
        await again.result()
        with pytest.raises(JournalError, match="session"):
            await flow.start(HELD, {"text": "hello", "hold": talk.hold}, run_id="r")


@pytest.mark.parametrize("opened", [True, False])
async def test_resuming_a_run_takes_its_session(talk: Talk, opened: bool) -> None:
    """A run is resumed by its id, whether its session is open here or not; cancelled, it leaves the session to others."""
    await talk.interrupt()
    async with talk.flow() as flow:
        if opened:
            async with flow.session("ada") as session:
                await (await flow.resume("r", bindings={"hold": talk.hold})).result()
                assert [turn[0].text for turn in session.turns()] == ["hello", "more"]
        else:
            await (await flow.resume("r", bindings={"hold": talk.hold})).result()
        assert await said(flow) == ["hello", "more"]
    await talk.interrupt("q")
    async with talk.flow() as flow:
        await flow.cancel("q")
        async with flow.session("ada") as session:
            assert await talk.say(flow, "free", session) == "free is message 5"


async def test_a_run_outlives_the_block(talk: Talk) -> None:
    """A session whose block ends while a run has it stays locked until the run ends, and is stored then."""
    talk.held = True
    async with talk.flow() as flow, talk.flow() as other:
        async with flow.session("ada") as session:
            handle = await flow.start(HELD, {"text": "hello", "hold": talk.hold}, run_id="r", session=session)
            await talk.reached.wait()
        with pytest.raises(SessionBusy):
            await said(other)
        await handle.cancel()
        assert await said(other) == ["hello"]
        with pytest.raises(JournalError) as caught:
            await talk.say(flow, "late", session)
        assert caught.value.code == "session/closed"


async def test_a_conversation_is_stored_once(talk: Talk, tmp_path: Path) -> None:
    """However many durable runs a conversation has had, the database has grown by what was said in each, not by all of it."""
    sizes: list[int] = []
    async with talk.flow() as flow, flow.session("ada") as session:
        for number in range(12):
            text = f"{number} " + "word " * 1_000
            handle = await flow.start(CHAT, {"text": text}, session=session)
            assert (await handle.result()).value == f"{text} is message {2 * number + 1}"
            with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as db:
                columns = db.execute(
                    "select (select sum(length(input)) from af_run) + (select sum(length(value)) from af_exchange)"
                )
                sizes.append(columns.fetchone()[0] or 0)
    grown = [after - before for before, after in itertools.pairwise(sizes[1:])]
    assert max(grown) < 1.2 * min(grown) and max(grown) < 4 * 5_000


@pytest.mark.parametrize(
    "damage", ["update af_exchange set value = '[]'", "delete from af_exchange", "delete from af_opening"]
)
async def test_a_damaged_opening_has_a_name(talk: Talk, tmp_path: Path, damage: str) -> None:
    """A run whose conversation is damaged or missing is not gone on with as if nothing had been said."""
    async with talk.flow() as flow, flow.session("ada") as session:
        await talk.say(flow, "before", session)
    await talk.interrupt()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as db:
        db.execute(damage)
    async with talk.flow() as flow:
        with pytest.raises(JournalError) as caught:
            await flow.resume("r", bindings={"hold": talk.hold})
    assert caught.value.code == "durable/corrupt"


async def test_a_failed_run_is_tried_again_only_where_nothing_was_said_since(talk: Talk) -> None:
    """A failure leaves what was said before it. Tried again, the run has its turns once, unless the session went on."""
    talk.failing = True
    async with talk.flow() as flow:
        for run_id, name in (("r", "ada"), ("s", "eve")):
            async with flow.session(name) as session:
                handle = await flow.start(HELD, {"text": "hello", "hold": talk.hold}, run_id=run_id, session=session)
                with pytest.raises(Exception, match="failing"):
                    await handle.result()
                assert len(session.turns()) == 1
        talk.failing = False
        await (await flow.resume("r", bindings={"hold": talk.hold})).result()
        assert await said(flow) == ["hello", "more"] and talk.asked == 3
        async with flow.session("eve") as session:
            await talk.say(flow, "meanwhile", session)
        with pytest.raises(JournalError) as caught:
            await flow.resume("s", bindings={"hold": talk.hold})
        assert caught.value.code == "durable/session"
        assert await said(flow, "eve") == ["hello", "meanwhile"]


async def test_a_session_of_the_caller_goes_into_the_run(talk: Talk) -> None:
    """A session that does not last is stored with the run: it goes on with the same history, and the caller's gets the turns."""
    session = Session()
    async with talk.flow() as flow:
        await talk.say(flow, "before", session)
        talk.held = True
        text = session.to_json()
        await flow.start(HELD, {"text": "hello", "hold": talk.hold}, run_id="r", session=session)
        await talk.reached.wait()
        assert await talk.say(flow, "between", session) == "between is message 3", "each sees what was said before it"
    talk.held = False
    assert not session.busy and len(session.turns()) == 2
    for _ in range(2):
        loaded = Session.from_json(text)
        async with talk.flow() as flow:
            handle = await flow.start(HELD, {"text": "hello", "hold": talk.hold}, run_id="r", session=loaded)
            assert (await handle.result()).value == "more is message 5"
        assert [turn[0].text for turn in loaded.turns()] == ["before", "hello", "more"]
    async with talk.flow() as flow:
        with pytest.raises(JournalError) as caught:
            await flow.start(HELD, {"text": "hello", "hold": talk.hold}, run_id="r", session=Session())
        assert caught.value.code == "durable/mismatch"


async def test_no_secret_is_stored_with_a_session(talk: Talk) -> None:
    """What is said in a session goes to the file without secrets, of runs that are durable and of those that are not."""
    key = "sk-ant-api03-" + "Zq7x" * 20
    async with talk.flow(api_key=Secret(key)) as flow, flow.session("ada") as session:
        assert key in await talk.say(flow, key, session)
        await (await flow.start(CHAT, {"text": key}, run_id="r", session=session)).result()
    files = [each for each in talk.directory.rglob("*") if each.is_file()]
    assert files and not [each for each in files if b"Zq7xZq7x" in each.read_bytes()]
    async with talk.flow() as flow:
        assert await said(flow) == ["[redacted]", "[redacted]"]


async def test_what_is_no_session_is_said(talk: Talk) -> None:
    """Without a database there are no sessions that last, and a session has a name."""
    async with AgentFlow(provider=ScriptedProvider([]), root=talk.directory) as plain, talk.flow() as flow:
        with pytest.raises(ConfigurationError) as caught:
            plain.session("ada")
        assert caught.value.code == "config/durable"
        for name in ("", "x" * 201, 7):
            with pytest.raises(ConfigurationError) as caught:
                flow.session(name)  # type: ignore[arg-type]
            assert caught.value.code == "config/session"


async def test_a_run_that_waits_keeps_its_session(talk: Talk) -> None:
    """While a run waits for an answer, in no process's memory, nobody goes on with its session; afterwards it has its turns."""
    text = '(defatom chat (params (say string)) (instructions "{{say}}") (history_config true)) (chat (say "one")) (chat (say (ask-human "?")))'
    async with talk.flow() as flow, flow.session("ada") as session:
        assert await (await flow.start(text, run_id="r", session=session)).wait() == "waiting"
    async with talk.flow() as flow, flow.session("ada") as session:
        with pytest.raises(SessionBusy) as caught:
            await talk.say(flow, "between", session)
        assert caught.value.code == "session/held" and session.turns() == []
        (question,) = await flow.questions("r")
        await flow.send("r", question.key, "two")
        await (await flow.resume("r")).result()
        assert await talk.say(flow, "three", session) == "three is message 5"
    async with talk.flow() as flow:
        assert await said(flow) == ["one", "two", "three"]


async def test_conversations_are_listed(flow: Flow) -> None:
    """Each by its name, with the number of its exchanges and the run that has it; the last changed first."""
    ask = '(defatom chat (params (text string)) (instructions "{{text}}") (history_config true)) (chat (text "one")) (chat (text (ask-human "?")))'
    async with flow() as opened:
        assert await opened.store.sessions() == []
        for name in ("ada", "eve"):
            async with opened.session(name) as session:
                await opened.run(
                    '(defatom chat (params) (instructions "hello") (history_config true)) (chat)', session=session
                )
        async with opened.session("ada") as session:
            handle = await opened.start(ask, run_id="r", session=session)
            assert await handle.wait() == "waiting"
        listed = await opened.store.sessions()
        assert [(each.name, each.exchanges, each.run_id) for each in listed] == [("ada", 1, "r"), ("eve", 1, None)]
        assert listed[0].created <= listed[1].updated <= listed[0].updated
        await opened.send("r", handle.waiting[0].key, "two")
        await handle.result()
        assert [(each.name, each.exchanges, each.run_id) for each in await opened.store.sessions(1)] == [
            ("ada", 3, None)
        ]


async def test_a_conversation_is_deleted(flow: Flow) -> None:
    """Deleted, a conversation begins anew; nobody deletes one that is in use, or that a run holds."""
    chat = '(defatom chat (params (text string)) (instructions "{{text}}") (history_config true)) (value-of (chat (text "hello")))'
    async with flow() as opened:
        async with opened.session("user") as session:
            await opened.run(chat, session=session)
            with pytest.raises(SessionBusy):
                await opened.store.delete_session("user")
        assert await opened.store.delete_session("user") and not await opened.store.delete_session("user")
        async with opened.session("user") as session:
            assert session.turns() == []
            handle = await opened.start('(ask-human "?")', run_id="r", session=session)
            assert await handle.wait() == "waiting"
        with pytest.raises(SessionBusy):
            await opened.store.delete_session("user")
        await opened.cancel("r")
        assert await opened.store.delete_session("user")
