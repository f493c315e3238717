"""What a flow itself stores keeps where it came from: notes, files that runs wrote; and a path is what it leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Provenance, ScriptedProvider, Sink
from agentflow.core.call.provenance import Labelled
from agentflow.core.data.errors import AgentflowError
from agentflow.memory.notes import NoteBook

RULES = [Sink("send", "to", allow=["user", "notes", "file:docs/*"])]


class House:
    """A flow over one directory that fetches, sends, remembers and writes."""

    def __init__(self, root: Path, *, policy: bool = True, strict: bool = False) -> None:
        self.sent: list[str] = []

        async def fetch() -> str:
            """A page."""
            return "mallory@evil.example"

        async def send(to: str) -> str:
            """Send."""
            self.sent.append(to)
            return "sent"

        rules = Provenance(rules=RULES, sources={"fetch": "web", "recall": "notes"}, strict=strict)
        self.flow = AgentFlow(
            provider=ScriptedProvider([]),
            tools=[fetch, send],
            root=root,
            notes="flow",
            durable=f"sqlite:///{root}/runs.db",
            provenance=rules if policy else None,
        )

    async def run(self, text: str, **options: Any) -> Any:
        """The value of a text in Python, or the code of its error."""
        try:
            return (await self.flow.run(text, surface="python", **options)).value
        except AgentflowError as error:
            return error.code


REMEMBER, RECALL = "remember(text=fetch(), key='boss')", "send(to=recall(query='mallory')[0])"
WRITE = "system.write_file(file_path='docs/x.txt', content=fetch(), overwrite=True)"
SEND = "send(to=str(system.read_files(file_paths=['docs/x.txt'])))"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("keep", "give"), [(REMEMBER, RECALL), (WRITE, SEND)])
async def test_what_was_stored_keeps_its_sources(tmp_path: Path, keep: str, give: str, strict: bool) -> None:
    """In the same run, in a later one, and in another flow: what was fetched does not become a note's or a file's own."""
    (tmp_path / "docs").mkdir()
    house = House(tmp_path, strict=strict)
    async with house.flow:
        assert await house.run(f"{keep}\n{give}") == "provenance/denied"
        assert await house.run(give) == "provenance/denied"
    later = House(tmp_path, strict=strict)
    async with later.flow:
        assert await later.run(give) == "provenance/denied"
    assert house.sent == later.sent == []


async def test_what_the_user_said_anew_is_the_users(tmp_path: Path) -> None:
    """A note under the same key and a file that is written over have the sources of what they hold now; a write that fails changes none."""
    (tmp_path / "docs").mkdir()
    house = House(tmp_path)
    async with house.flow:
        await house.run(f"{REMEMBER}\n{WRITE}")
        await house.run("system.write_file(file_path='docs/x.txt', content='ann')")  # without overwrite: refused
        assert await house.run(SEND) == "provenance/denied"
        await house.run("system.write_file(file_path='docs/x.txt', content='ann', overwrite=True)")
        await house.run("remember(text='about mallory: ann', key='boss')")
        assert (await house.run(SEND), await house.run(RECALL)) == ("sent", "sent")


async def test_what_nobody_followed_is_unknown(tmp_path: Path) -> None:
    """A note of a flow without a policy comes from what is not known; one that the user added himself is the user's."""
    async with (house := House(tmp_path, policy=False)).flow:
        await house.run(REMEMBER)
    async with (later := House(tmp_path)).flow:
        assert await later.run(RECALL) == "provenance/denied"
        [note] = await later.flow.notes.book.notes()
        await later.flow.notes.book.edit(note.id, "mallory's boss is ann")
        assert await later.run(RECALL) == "sent"


async def test_a_path_is_what_it_leads_to(tmp_path: Path) -> None:
    """A link among the documents to what came in is not a document; another way of writing a path is the same file."""
    for name in ("docs", "inbox"):
        (tmp_path / name).mkdir()
    (tmp_path / "inbox" / "mail.txt").write_text("mallory")
    (tmp_path / "docs" / "mail.txt").symlink_to("../inbox/mail.txt")
    (tmp_path / "docs" / "own.txt").write_text("ann")
    async with (house := House(tmp_path)).flow:
        for path in ("docs/mail.txt", "docs/../inbox/mail.txt", f"{tmp_path}/docs/mail.txt"):
            assert await house.run(f"send(to=str(system.read_files(file_paths=[{path!r}])))") == "provenance/denied", (
                path
            )
        assert await house.run("send(to=str(system.read_files(file_paths=['inbox/../docs/own.txt'])))") == "sent"


@pytest.mark.parametrize("name", ["HR team", "a,b", "a;b", "<ann@hr.example>", "a\tb", "a|b", ""])
def test_names_of_readers_admit_no_separators(name: str) -> None:
    """Wherever they are said: of a value, of a source and of a sink. One text cannot be several readers, and no pattern matches across them."""
    for said in (
        lambda: Labelled("x", readers=[name]),
        lambda: Provenance(readers={"hr": ["ann", name]}),
        lambda: Sink("send", readers=[name]),
    ):
        with pytest.raises(AgentflowError) as caught:
            said()
        assert caught.value.code == "provenance/policy"


async def test_a_note_that_is_gone_leaves_no_sources(tmp_path: Path) -> None:
    """Forgotten one by one or altogether; equal texts from two sources have both."""
    book = NoteBook(None)
    first = await book.add("s", "a fact", sources=frozenset({"web"}))
    again = await book.add("s", "a fact", sources=frozenset({"mail"}))
    assert first.id == again.id and await book.sources([again]) == {"web", "mail"}
    await book.forget([first.id])
    assert await book.sources([first]) == frozenset()
    other = await book.add("s", "another", sources=frozenset({"web"}))
    await book.clear("s")
    assert await book.sources([other]) == frozenset()
    await book.aclose()
