"""The grammar of the extension for VS Code says of a text what the Pygments lexer says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from pygments.token import Comment, Keyword, Name, Number, String

from agentflow.lang.lexer import WorkflowLexer
from tests.docs.textmate import FILE, grammar, text
from tests.support.children import HANG_S
from tests.support.manual import blocks
from tests.support.node import NodeClients

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [path.read_text("utf-8") for path in sorted((ROOT / "examples").glob("*.sexp"))] + [
    "\n".join(block.text for block in blocks(page)) for page in sorted((ROOT / "tests/spec").glob("*.md"))
]
TYPES = {
    Comment.Single: "comment.line.semicolon",
    Comment.Multiline: "comment.block",
    String.Double: "string.quoted.double",
    Number: "constant.numeric",
    Keyword.Constant: "constant.language",
    Keyword: "keyword.control",
    Name.Builtin: "support.function",
}
SIMPLE = [(re.compile(each["match"], re.MULTILINE), each["name"]) for each in grammar()["patterns"] if "match" in each]


def test_the_file_is_what_the_tables_say() -> None:
    """A form or primitive more is in the grammar when the file is written anew."""
    assert FILE.read_text("utf-8") == text(), "python -m tests.docs.textmate"


def test_the_extension_names_its_files() -> None:
    """Every file that the manifest names is there, and all of its JSON can be read."""
    folder = FILE.parents[1]
    manifest = json.loads((folder / "package.json").read_text("utf-8"))
    named = [
        manifest["main"],
        *(each["configuration"] for each in manifest["contributes"]["languages"]),
        *(each["path"] for each in manifest["contributes"]["grammars"]),
    ]
    assert all((folder / each).is_file() for each in named)
    json.loads((folder / "language-configuration.json").read_text("utf-8"))


def asserted(source: str) -> str:
    """A text with what the lexer says below each line, as the extension's own engine is to be asked."""
    below: dict[int, list[str]] = {}
    for start, kind, value in WorkflowLexer().get_tokens_unprocessed(source):
        line, column = source.count("\n", 0, start), start - source.rfind("\n", 0, start) - 1
        if kind in TYPES and "\n" not in value and value.strip():
            marks = f"<{'-' * len(value)}" if not column else f"{' ' * (column - 1)}{'^' * len(value)}"
            below.setdefault(line, []).append(f";{marks} {TYPES[kind]}.agentflow")
    lines = [[line, *below.get(number, ())] for number, line in enumerate(source.split("\n"))]
    return "\n".join(['; SYNTAX TEST "source.agentflow"', *(each for group in lines for each in group)])


@pytest.mark.slow
def test_the_engine_of_the_editor_agrees(node_clients: NodeClients, tmp_path: Path) -> None:
    """VS Code's own engine colours examples and manual as the lexer does, and texts, slots and comments as a page of cases says."""
    for number, source in enumerate(TEXTS):
        (tmp_path / f"{number}.sexp").write_text(asserted(source), "utf-8")
    test = node_clients.program(
        "vscode-tmgrammar-test", "dist/unit.js", "--config", str(FILE.parents[1] / "package.json")
    )
    cases = str(node_clients.directory / "grammar.sexp")
    done = subprocess.run([*test, cases, str(tmp_path / "*.sexp")], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
    assert done.stdout.count("run successfuly") == len(TEXTS) + 1


@pytest.mark.parametrize("source", TEXTS)
def test_both_say_the_same(source: str) -> None:
    """At each token that the lexer calls a form, primitive, constant or number, the first pattern that fits agrees."""
    seen = 0
    for start, kind, value in WorkflowLexer().get_tokens_unprocessed(source):
        wanted = TYPES.get(kind)
        if wanted is None or wanted.startswith(("string", "comment.block")):
            continue
        match = next(((found, name) for pattern, name in SIMPLE if (found := pattern.match(source, start))), None)
        assert match is not None and match[1].startswith(wanted), (value, match)
        assert match[0][0] == value.rstrip("\r")
        seen += 1
    assert seen
