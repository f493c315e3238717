"""What makes a file relevant, and which of its lines."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.core.data.context import ContextGenerationInput
from agentflow.memory import FileIndex, LexicalRanker, weights
from agentflow.memory.defined_names import symbols
from agentflow.memory.rules import is_binary, language
from agentflow.memory.window import WINDOW_LINES, best_window
from tests.support.repository import write


@pytest.fixture
async def index() -> AsyncIterator[FileIndex]:
    made = FileIndex()
    yield made
    await made.aclose()


async def test_scores_lie_between_zero_and_one_and_fall(index: FileIndex, tmp_path: Path) -> None:
    """Best first, each score and signal in 0..1, ties in the order of paths."""
    write(tmp_path, {"b.py": "pelican", "a.py": "pelican", "pelican.py": "class Pelican: pass", "z.py": "heron"})
    await index.update(tmp_path)
    found = await index.search("pelican")
    assert [item.file.path for item in found] == ["pelican.py", "a.py", "b.py"]
    scores = [item.score for item in found]
    assert scores == sorted(scores, reverse=True) and all(0 < score <= 1 for score in scores)
    assert all(0 <= value <= 1 for item in found for value in item.signals.values())


@pytest.mark.parametrize("query", ["", "   ", "???", "the of and", "zzzzqqq"])
async def test_a_question_about_nothing_finds_nothing(index: FileIndex, tmp_path: Path, query: str) -> None:
    """No words, only punctuation, unknown words: an empty list."""
    write(tmp_path, {"a.py": "pelican"})
    await index.update(tmp_path)
    assert await index.search(query) == []


async def test_a_defining_file_beats_one_that_mentions(index: FileIndex, tmp_path: Path) -> None:
    """The file that defines a name comes before files that use it more often."""
    write(
        tmp_path,
        {
            "registry.py": "class ToolRegistry:\n    '''Holds tools.'''\n" + "x = 1\n" * 30,
            "uses.py": "registry = make()\n" + "registry.tool(1)\n" * 10,
            "other.py": "tool = 1\n",
        },
    )
    await index.update(tmp_path)
    assert (await index.search("tool registry"))[0].file.path == "registry.py"


async def test_a_test_is_kin_of_what_it_tests(index: FileIndex, tmp_path: Path) -> None:
    """Files named alike lift each other; none is its own kin."""
    write(tmp_path, {"src/zebra.py": "flamingo", "tests/test_zebra.py": "flamingo", "tests/test_a.py": "flamingo"})
    await index.update(tmp_path)
    first, second, third = await index.search("flamingo")
    assert [first.file.path, second.file.path] == ["src/zebra.py", "tests/test_zebra.py"]
    assert second.signals["kin"] == 1.0 and "kin" not in third.signals


async def test_a_kind_the_question_speaks_of_is_not_held_back(index: FileIndex, tmp_path: Path) -> None:
    """Code comes before documents, data and tests that match alike, unless the question is about those."""
    write(
        tmp_path,
        {
            "sub/heron.py": "x = 'flamingo heron'\n", "config/heron.yml": "x: flamingo heron\n",
            "a/heron.md": "x flamingo heron\n", "spec/heron.py": "x = 'flamingo heron'\n",
        },
    )  # fmt: skip
    await index.update(tmp_path)
    best = {q: (await index.search(f"{q} flamingo heron", 2))[0].file.path for q in ("the", "doc", "ci", "test")}
    assert best == {"the": "sub/heron.py", "doc": "sub/heron.py", "ci": "sub/heron.py", "test": "spec/heron.py"}
    plain = {item.file.path: item.score for item in await index.search("the flamingo heron")}
    for word, path in (("doc", "a/heron.md"), ("ci", "config/heron.yml"), ("test", "spec/heron.py")):
        assert {item.file.path: item.score for item in await index.search(f"{word} flamingo heron")}[path] > plain[path]


async def test_a_long_file_is_judged_by_its_best_lines_too(index: FileIndex, tmp_path: Path) -> None:
    """All the words in one function of a long file say more than the same words strewn over another."""
    filler = "value = other\n" * 200
    strewn = filler.join(["flamingo\n", "heron\n", "otter\n"])
    together = filler * 2 + "flamingo\nheron\notter\n"
    write(tmp_path, {"a.py": strewn, "b.py": together})
    await index.update(tmp_path)
    first, second = await index.search("flamingo heron otter")
    assert first.file.path == "b.py" and first.signals["window"] == 1.0 > second.signals["window"]


async def test_metadata_fields_leave_the_text_out(index: FileIndex, tmp_path: Path) -> None:
    """Searching path, symbols and messages alone does not find words of the body."""
    write(tmp_path, {"a.py": "pelican = 1", "pelican.py": "x = 1"})
    await index.update(tmp_path)
    found = await index.search("pelican", fields=("path", "symbols", "messages"))
    assert [item.file.path for item in found] == ["pelican.py"]


async def test_the_lexical_ranker_orders_candidates(index: FileIndex, tmp_path: Path) -> None:
    """Only candidates that the index knows and that match come back."""
    write(tmp_path, {"a.py": "pelican", "b.py": "pelican pelican", "c.py": "heron"})
    await index.update(tmp_path)
    top = (await index.files())[0].root
    candidates = dict.fromkeys([f"{top}/a.py", f"{top}/c.py", f"{top}/gone.py"], "")
    order = await LexicalRanker(index).rank(ContextGenerationInput(query="pelican"), candidates, None)
    assert [path for path, _ in order] == [f"{top}/a.py"]


def test_the_best_window_holds_the_telling_lines() -> None:
    """In a long file, the lines with the most of the question's rare terms are chosen, with some lead."""
    lines = [f"line {n} about nothing" for n in range(1000)]
    lines[700] = "def quaternion_slerp(a, b):"
    lines[705] = "    # slerp between quaternions"
    lines[100] = "slerp"
    window = best_window("\n".join(lines), {"quaternion": 1.0, "slerp": 0.9})
    assert window.start <= 701 and window.end >= 706 and window.end - window.start < WINDOW_LINES
    assert window.text.splitlines() == lines[window.start - 1 : window.end]


def test_a_short_file_is_given_whole() -> None:
    """Nothing is cut where nothing needs to be."""
    assert best_window("a\nb\nc", {"zzz": 1.0}).text == "a\nb\nc"
    assert best_window("", {"zzz": 1.0}).text == ""


def test_the_best_window_counts_lines_as_editors_do() -> None:
    """Only a line feed ends a line: form feeds, as in old sources, move no line number."""
    lines = [f"filler {n}\f" for n in range(300)]
    lines[200] = "quaternion slerp"
    window = best_window("\n".join(lines), {"quaternion": 1.0, "slerp": 0.9})
    assert window.start <= 201 <= window.end and window.text.split("\n")[201 - window.start] == "quaternion slerp"
    assert window.end - window.start + 1 == WINDOW_LINES == len(window.text.split("\n"))


@given(st.lists(st.text(max_size=40), max_size=150), st.lists(st.text(min_size=1, max_size=6), max_size=4))
def test_a_window_is_a_run_of_the_files_lines(lines: list[str], terms: list[str]) -> None:
    """Whatever the text and the terms, the window is lines ``start`` to ``end`` of it."""
    text = "\n".join(lines)
    window = best_window(text, dict.fromkeys(terms, 1.0))
    whole = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    assert 1 <= window.start <= window.end and window.end <= max(1, len(whole))
    assert window.text == "\n".join(whole[window.start - 1 : window.end])


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("a.py", "async def run():\n    class Inner: ...\nLIMIT_X = 3\n", ["run", "Inner", "LIMIT_X"]),
        ("a.ts", "export const f = (x) => x\nclass A {\n  go(x) {\n}}\ninterface B {}", ["f", "A", "go", "B"]),
        ("a.c", "#define MAX 3\nstatic int\nadd (int a)\n{\n}\nstruct node { int x; };", ["MAX", "add", "node"]),
        ("a.go", "func (s *S) Run() {}\ntype S struct {}", ["Run", "S"]),
        ("a.rs", "pub fn run() {}\nimpl Node {}\nenum E {}", ["run", "Node", "E"]),
        ("a.sh", "build() {\n}\n", ["build"]),
        ("a.sexp", "(defatom ask (params))\n(define (f x) x)\n(define y 1)", ["ask", "f", "y"]),
        ("a.md", "# One\ntext\n\nTwo\n---\n", ["One", "Two"]),
        ("a.bin", "def x", []),
    ],
)
def test_names_that_files_define(path: str, text: str, names: list[str]) -> None:
    """Each language's definitions are found, in order."""
    assert symbols(text, language(path)) == names


def test_kinds_of_files() -> None:
    """By ending, else by the interpreter a script names; binary by NUL or control bytes, not by UTF-8."""
    assert language("x/Makefile") == "text" and language("run", "#!/usr/bin/env python3\n") == "python"
    assert language("a.PY") == "python" and language("build", "#!/bin/sh\n") == "shell"
    assert is_binary(b"ab\0c") and is_binary(bytes(range(1, 7)) * 50)
    assert not is_binary("größe → 日本\t\r\n".encode()) and not is_binary(b"")


def test_every_weight_says_where_it_comes_from() -> None:
    """The numbers of ranking stand in one table: tuned, taken from the literature, or judged, and each says which."""
    body = ast.parse(inspect.getsource(weights)).body
    told = 0
    for at, node in enumerate(body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple):
            following = body[at + 1]
            assert isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant), ast.unparse(node)
            assert re.search(r"\b(Tuned|Literature|Judgement)\b", str(following.value.value)), ast.unparse(node)
            told += 1
    assert told >= 7 and "tuned together" in (weights.RankWeights.__doc__ or "")
