"""``agentflow memory``: a person sees, corrects and deletes what was remembered."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_command import agentflow


async def test_what_a_program_remembers_is_listed_edited_and_forgotten(tmp_path: Path) -> None:
    """The command's own database joins run --notes and memory: by id a note is changed or deleted, and stays so."""
    done = await agentflow("run", "-e", '(remember "tea at five" (key "tea"))', "--notes", "flow", tmp_path=tmp_path)
    assert done.code == 0, done.err
    added = await agentflow("memory", "add", "two\nlines", "--json", tmp_path=tmp_path)
    listed = json.loads((await agentflow("memory", "--json", tmp_path=tmp_path)).out)["notes"]
    assert [(note["text"], note["key"]) for note in listed] == [("two\nlines", None), ("tea at five", "tea")]
    assert json.loads(added.out)["note"]["id"] == listed[0]["id"]
    assert len({note["scope"] for note in listed}) == 1  # the root's
    shown = (await agentflow("memory", tmp_path=tmp_path)).out.splitlines()
    assert len(shown) == 2 and shown[1].endswith("[tea] tea at five")
    await agentflow("memory", "edit", listed[1]["id"], "coffee at six", tmp_path=tmp_path)
    recalled = await agentflow("run", "-e", '(recall "coffee")', "--notes", "flow", tmp_path=tmp_path)
    assert "coffee at six" in recalled.out
    gone = await agentflow("memory", "forget", *(note["id"] for note in listed), tmp_path=tmp_path)
    assert gone.code == 0 and "2 notes forgotten" in gone.err
    assert "nothing is remembered" in (await agentflow("memory", tmp_path=tmp_path)).err


async def test_wrong_use_is_named(tmp_path: Path) -> None:
    """An unknown id is an error of the data, forgetting nothing or both ways one of the usage."""
    unknown = await agentflow("memory", "edit", "nosuch", "x", tmp_path=tmp_path)
    assert unknown.code != 0 and "notes/unknown" in unknown.err
    for arguments in ((), ("a", "--all")):
        assert (await agentflow("memory", "forget", *arguments, tmp_path=tmp_path)).code == 2
    wrong = await agentflow("run", "-e", "1", "--notes", "mine", tmp_path=tmp_path)
    assert wrong.code == 2 and "notes='mine'" in wrong.err


async def test_notes_of_durable_runs_are_among_them(tmp_path: Path) -> None:
    """A durable run, one that is not, and the person have one book; with --db that of the database, whoever wrote first."""
    program = tmp_path / "p.sexp"
    program.write_text('(remember "tea at five") (length (recall "five"))')
    for words in ((), ("--db", "sqlite:///" + str(tmp_path / "own.db"))):
        added = await agentflow("memory", "add", "dinner at five", "--root", str(tmp_path), *words, tmp_path=tmp_path)
        assert added.code == 0, added.err
        durable = ("run", str(program), "--durable", "--notes", "flow", "--root", str(tmp_path), *words)
        done = await agentflow(*durable, tmp_path=tmp_path)
        assert (done.code, done.out) == (0, "2\n"), done.err
        listed = json.loads((await agentflow("memory", "--json", *words, tmp_path=tmp_path)).out)["notes"]
        assert [note["text"] for note in listed] == ["tea at five", "dinner at five"]
    ran = await agentflow(
        "run", "-e", '(length (recall "five"))', "--notes", "flow", "--root", str(tmp_path), tmp_path=tmp_path
    )
    assert ran.out == "2\n", ran.err
    shared = json.loads(
        (await agentflow("memory", "--json", "--db", "postgresql://nobody@nowhere/runs", tmp_path=tmp_path)).out
    )
    assert len(shared["notes"]) == 2, "flows that store their runs in PostgreSQL have their notes here too"
