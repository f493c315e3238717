"""Lookups of other kinds: definitions within files, commits of the past; and what a match says spoke for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow
from agentflow.memory.defined_names import Definition, definitions, symbols
from agentflow.memory.file_memory import FileMemory
from tests.support.repository import commit, repository, write

PYTHON = '''import os


class Walrus:
    """An animal."""

    def sing(self):
        return "a flamingo song"

    def swim(self):
        return 1


def heron():
    return 2
'''


def test_a_definition_ends_where_the_next_of_its_level_begins() -> None:
    """A class holds its methods; blank lines between two definitions belong to neither."""
    assert definitions(PYTHON, "python") == [
        Definition("Walrus", 4, 11),
        Definition("sing", 7, 8),
        Definition("swim", 10, 11),
        Definition("heron", 14, 15),
    ]
    assert definitions("# One\n\ntext\n\n# Two\nmore\n", "prose") == [Definition("One", 1, 3), Definition("Two", 5, 6)]
    assert definitions("no language", "text") == []


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", PYTHON + PYTHON),
        ("prose", "# One \n\ntext\n\nTwo\n===\n# One\n"),
        ("javascript", "export class A {\n  run(x) {\n  }\n}\nfunction b() {}\nconst c = () => 1\nfunction b() {}\n"),
        ("go", "func (a *A) Run() {}\ntype A struct {}\n"),
        ("text", "nothing"),
    ],
)
def test_the_names_of_a_file_are_those_of_its_definitions(language: str, text: str) -> None:
    """Each once, in order, however many patterns a language has."""
    assert symbols(text, language) == list(dict.fromkeys(each.name for each in definitions(text, language)))


async def test_symbols_are_functions_classes_and_headings(tmp_path: Path) -> None:
    """The best definition comes with its lines, its text and the terms it holds."""
    write(tmp_path, {"zoo.py": PYTHON, "other.py": "x = 'flamingo'\n"})
    async with FileMemory(roots=[tmp_path]) as memory:
        best, *_ = await memory.search("flamingo song sing", kinds=["symbol"])
    assert (best.kind, best.path, best.start_line, best.end_line) == ("symbol", f"{tmp_path}/zoo.py", 7, 8)
    assert best.content == '    def sing(self):\n        return "a flamingo song"'
    assert best.metadata["name"] == "sing" and best.metadata["terms"] == ["flamingo", "song", "sing"]


async def test_commits_say_how_it_was_done_before(tmp_path: Path) -> None:
    """A past commit comes with message, date and the files it touched that are still there."""
    root = repository(tmp_path / "r", {"a.py": "1", "b.py": "1", "c.py": "1"})
    digest = commit(root, {"a.py": "2", "b.py": "2"}, "teach the walrus to sing")
    (root / "b.py").unlink()
    async with FileMemory(roots=[root]) as memory:
        (found,) = await memory.search("walrus singing", kinds=["commit"])
    assert found.path == f"commit:{digest}" and found.metadata["paths"] == [f"{root}/a.py"]
    assert found.content == "teach the walrus to sing\na.py" and found.metadata["subject"] in found.relevance


async def test_a_match_says_what_spoke_for_it(tmp_path: Path) -> None:
    """The terms it holds, the commit most like the question, the file it changes with."""
    root = repository(tmp_path / "r", {f"{name}.py": "x = 1\n" for name in ["a", "b", "c", *range(45)]})
    write(root, {"a.py": "walrus = 1\n"})
    commit(root, {"b.py": "x = 2\n"}, "teach the walrus to sing")
    commit(root, {"b.py": "x = 3\n", "c.py": "x = 3\n"}, "tidy up things")
    async with FileMemory(roots=[root]) as memory:
        found = {match.metadata["relative_path"]: match for match in await memory.search("walrus sing")}
    assert found["a.py"].metadata["terms"] == ["walrus"]
    assert found["b.py"].metadata["commit"]["subject"] == "teach the walrus to sing"
    assert "a past commit (teach the walrus to sing)" in found["b.py"].relevance
    assert found["c.py"].metadata["beside"] == "b.py" and "changing with b.py" in found["c.py"].relevance


@pytest.mark.parametrize("kind", ["file", "symbol", "commit"])
async def test_a_program_asks_for_kinds_and_gets_paths(tmp_path: Path, kind: str) -> None:
    """``get_context`` gives paths of files whatever the kinds; the items have the rest."""
    root = repository(tmp_path / "r", {"zoo.py": PYTHON})
    commit(root, {"zoo.py": PYTHON + "\n"}, "teach the flamingo song")
    program = f"""(list (get_context (query "flamingo song") (kinds (list "{kind}")))
                        (map (lambda (m) (get-field m "kind")) (get-context-items (query "flamingo song") (kinds '({kind})))))"""
    async with AgentFlow(root=root) as flow:
        paths, kinds = (await flow.run(program)).value
    assert paths == [f"{root}/zoo.py"] and set(kinds) == {kind}
