"""What is remembered is found again, by whom it is meant for, until it is forgotten."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, Session
from agentflow.core.data.errors import AgentflowError, ConfigurationError, DataError
from agentflow.core.data.messages import ToolResultPart
from agentflow.core.data.remembered import MAX_NOTE
from agentflow.memory.notes import NoteBook

FACTS = """(remember "The deploy key is in the vault" (key "deploy"))
           (remember "Anna likes green tea") (remember "Anna likes green tea")"""


def keeping(tmp_path: Path, notes: Any = "flow", **arguments: Any) -> AgentFlow:
    return AgentFlow(
        provider=ScriptedProvider(arguments.pop("replies", [])),
        root=tmp_path,
        notes=notes,
        durable=f"sqlite:///{tmp_path}/runs.db",
        **arguments,
    )


async def test_another_process_recalls_what_was_remembered(tmp_path: Path) -> None:
    """Notes outlive the flow; the best come first, a question without words gives the last, an unrelated one nothing."""
    async with keeping(tmp_path) as flow:
        await flow.run(FACTS)
    async with keeping(tmp_path) as flow:
        assert (await flow.run('(recall "what does Anna drink with milk or as tea?")')).value == [
            "Anna likes green tea"
        ]
        assert (await flow.run('(recall "where are the deploy keys?")')).value == ["The deploy key is in the vault"]
        assert (await flow.run('(recall "")')).value == ["Anna likes green tea", "The deploy key is in the vault"]
        assert (await flow.run('(recall "" (limit 1))')).value == ["Anna likes green tea"]
        assert (await flow.run('(recall "zebra")')).value == []


async def test_a_key_replaces_what_it_named(tmp_path: Path) -> None:
    """A second note of a key takes the place of the first, in the search too, and keeps its id."""
    async with keeping(tmp_path) as flow:
        before = (await flow.run('(remember "the key is in the vault" (key "deploy"))')).value
        assert (await flow.run('(remember "the token is in the safe" (key "deploy"))')).value == before
        assert (await flow.run('(list (recall "vault") (recall "safe"))')).value == [[], ["the token is in the safe"]]


async def test_a_session_recalls_only_its_own(tmp_path: Path) -> None:
    """``notes="session"``: branches share their conversation's notes, others do not see them, a named one lasts."""
    anna, unnamed = Session(scope="anna"), Session()
    async with keeping(tmp_path, "session") as flow:
        await flow.run('(parallel (remember "a") (remember "b"))', session=anna)
        assert sorted((await flow.run('(recall "")', session=anna)).value) == ["a", "b"]
        assert (await flow.run('(recall "")', session=Session(scope="bob"))).value == []
        await flow.run('(remember "c")', session=unnamed)
        assert (await flow.run('(recall "")', session=unnamed)).value == ["c"]
        assert (await flow.run('(recall "")')).value == []
    async with keeping(tmp_path, "session") as flow:
        again = Session.from_json(anna.to_json())
        assert sorted((await flow.run('(recall "")', session=again)).value) == ["a", "b"]
        assert (await flow.run('(recall "")', session=unnamed)).value == []


async def test_a_model_remembers_and_recalls(tmp_path: Path) -> None:
    """A task that names the tools offers them; what a model remembers has its day, and is text like any tool's."""
    replies = [
        {"tool_calls": [{"name": "remember", "arguments": {"text": "Ada's birthday is in May", "key": "ada"}}]},
        {"tool_calls": [{"name": "recall", "arguments": {"query": "birthday"}}]},
        "In May.",
    ]
    text = """(defatom chat (params (say string)) (instructions "{{say}}") (tools "remember" "recall"))
              (value-of (chat (say "remember Ada's birthday")))"""
    model = ScriptedProvider(replies)
    async with AgentFlow(provider=model, root=tmp_path, notes="session") as flow:
        assert (await flow.run(text)).value == "In May."
    assert [tool.name for tool in model.requests[0].tools] == ["remember", "recall"]
    answer = model.requests[2].messages[-1].parts[0]
    assert isinstance(answer, ToolResultPart) and json.loads(answer.text)[0]["text"] == "Ada's birthday is in May"


@pytest.mark.parametrize("text", ['(remember "x")', '(recall "x")'])
async def test_untrusted_programs_need_a_grant(tmp_path: Path, text: str) -> None:
    """A program with grants remembers and recalls only by these names."""
    async with keeping(tmp_path) as flow:
        with pytest.raises(AgentflowError, match="is not granted"):
            await flow.run(text, allow=[])
        await flow.run(text, allow=["remember", "recall"])


async def test_without_notes_the_error_says_how_to_have_them(tmp_path: Path) -> None:
    """The forms exist, the tools do not, and the error names the switch; a wrong switch is refused."""
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        with pytest.raises(AgentflowError, match="notes='session'"):
            await flow.run('(remember "x")')
        with pytest.raises(AgentflowError) as offered:
            await flow.run('(defatom keep (params) (instructions "x") (tools "remember")) (value-of (keep))')
        assert "notes='session'" in (offered.value.hint or "")
        assert flow.tools.find("remember") is None
    with pytest.raises(ConfigurationError, match="notes='all' is not a way"):
        AgentFlow(provider=ScriptedProvider([]), root=tmp_path, notes="all")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "  ", "x" * (MAX_NOTE + 1)])
async def test_a_note_has_a_size(tmp_path: Path, text: str) -> None:
    """Nothing and too much are refused, by the tool and by the book, before anything is stored."""
    async with keeping(tmp_path) as flow:
        with pytest.raises(AgentflowError):
            await flow.run("(remember text)", bindings={"text": text})
        with pytest.raises(DataError) as caught:
            await flow.notes.book.add("flow:x", text)  # type: ignore[union-attr]
        assert caught.value.code == "notes/size"
        assert await flow.notes.book.notes() == []  # type: ignore[union-attr]


async def test_secrets_are_not_remembered(tmp_path: Path) -> None:
    """A key of a known kind and the flow's own key never reach the file."""
    key = "sk-ant-" + "a1B2" * 20
    async with keeping(tmp_path, api_key="my-own-secret-key-123") as flow:
        await flow.run("(remember text)", bindings={"text": f"use {key} and my-own-secret-key-123"})
    kept = (
        (tmp_path / "runs.db").read_bytes() + (tmp_path / "runs.db-wal").read_bytes()
        if (tmp_path / "runs.db-wal").exists()
        else (tmp_path / "runs.db").read_bytes()
    )
    assert b"use " in kept and key.encode() not in kept and b"my-own-secret-key-123" not in kept


async def test_the_file_is_its_owners_and_damage_is_reported(tmp_path: Path) -> None:
    """0600 whatever the umask; a file that is not a database is left as it is and named, not replaced."""
    path = tmp_path / "state" / "notes.db"
    before = os.umask(0)
    try:
        book = NoteBook(path)
        await book.add("s", "x")
        await book.aclose()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database " * 100)
    book = NoteBook(broken)
    with pytest.raises(DataError, match=r"broken\.db") as caught:
        await book.notes()
    await book.aclose()
    assert caught.value.code == "notes/database" and broken.read_bytes() == b"no database " * 100


async def test_writers_of_two_processes_wait_for_each_other(tmp_path: Path) -> None:
    """A note is added while another connection holds the database for a moment, and nothing is lost."""
    path = tmp_path / "notes.db"
    book = NoteBook(path)
    await book.add("s", "first")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    adding = asyncio.create_task(book.add("s", "second"))
    await asyncio.sleep(0.05)
    other.execute("commit")
    other.close()
    await adding
    assert [note.text for note in await book.notes("s")] == ["second", "first"]
    await book.aclose()


async def test_notes_are_edited_and_forgotten_all_or_none(tmp_path: Path) -> None:
    """An edited note is found by its new words only; an unknown id among several forgets none."""
    book = NoteBook(None)
    first, second = await book.add("s", "alpha"), await book.add("s", "beta")
    assert (await book.edit(first.id, "gamma")).text == "gamma"
    assert await book.search("s", "alpha") == [] and [n.id for n in await book.search("s", "gamma")] == [first.id]
    with pytest.raises(DataError) as caught:
        await book.forget([first.id, "nosuch"])
    assert caught.value.code == "notes/unknown" and len(await book.notes()) == 2
    assert await book.forget([first.id, second.id]) == 2 and await book.notes() == []
    await book.aclose()


async def test_a_durable_run_remembers_once(tmp_path: Path) -> None:
    """A note is an effect with a record: forgotten since, it is not remembered again by a run that goes on."""
    text = '(remember "once") (fail-first)'
    calls: list[int] = []

    async def fail_first() -> str:
        """Fail the first time."""
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no")
        return "ok"

    program = text.replace("(fail-first)", "(value-of (fail_first))")
    async with keeping(tmp_path, tools=[fail_first]) as flow:
        handle = await flow.start(program, run_id="r")
        with pytest.raises(AgentflowError):
            await handle.result()
        assert await flow.notes.book.clear() == 1  # type: ignore[union-attr]
        assert (await (await flow.resume("r")).result()).value == "ok"
        assert await flow.notes.book.notes() == []  # type: ignore[union-attr]
