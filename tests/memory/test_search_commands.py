"""``agentflow index``, ``search`` and ``search --serve-jsonl`` as functions and as a process."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentflow.cli.admin.search import index_command, search_command, serve_jsonl
from agentflow.cli.main import app
from agentflow.cli.shared.common import UsageError
from tests.support.children import HANG_S
from tests.support.repository import git, repository, write
from tests.support.terminal import in_terminal

ROOT = Path(__file__).resolve().parents[2]
FILES = {"src/pelican.py": "def pelican():\n    return 'fish'\n", "b.py": "heron = 1\n", "x.pem": "secret"}
SERVE = (
    "import asyncio; from agentflow.cli.admin.search import serve_jsonl; raise SystemExit(asyncio.run(serve_jsonl()))"
)


async def serve(*requests: object) -> list[dict[str, Any]]:
    text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests)
    answers: list[str] = []
    assert await serve_jsonl(io.BytesIO(text.encode()), answers.append) == 0
    assert all(answer.endswith("\n") and answer.count("\n") == 1 for answer in answers)
    return [json.loads(answer) for answer in answers]


async def test_index_query_and_update_by_json_lines(tmp_path: Path) -> None:
    """Paths are relative to the root with ``/``; an update is seen by the next query."""
    write(tmp_path, FILES)
    indexed, found = await serve({"op": "index", "root": str(tmp_path)}, {"op": "query", "q": "pelican", "k": 3})
    assert (indexed["added"], indexed["files"]) == (2, 2)
    assert indexed["skipped"] == [{"path": "x.pem", "reason": "a protected name"}]
    assert found["paths"] == ["src/pelican.py"] and 0 < found["scores"][0] <= 1 and set(found) == {"paths", "scores"}


async def test_history_is_chosen_by_the_request(tmp_path: Path) -> None:
    """``history`` false leaves commit messages out; the same root again only brings it up to date."""
    root = repository(tmp_path / "r", {"a.py": "x", "b.py": "y"}, "wake the axolotl")
    query = {"op": "query", "q": "axolotl"}
    answers = await serve(
        {"op": "index", "root": str(root), "history": False}, query, {"op": "index", "root": str(root)}, query
    )
    assert answers[1] == {"paths": [], "scores": []} and answers[2]["unchanged"] == 2
    assert answers[3]["paths"] == ["a.py", "b.py"]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ("nonsense", "cli/usage"),
        ("[1]", "cli/usage"),
        ("[" * 10_000, "cli/usage"),
        ({"op": "dance"}, "cli/usage"),
        ({"op": "query", "q": "x"}, "cli/usage"),
        ({"op": "query"}, "cli/usage"),
        ({"op": "update", "paths": ["a"]}, "cli/usage"),
        ({"op": "index"}, "cli/usage"),
        ({"op": "index", "root": "/no/such/place"}, "memory/root"),
        ({"op": "index", "root": ".", "history": "yes"}, "cli/usage"),
    ],
)
async def test_a_bad_request_is_answered_and_the_next_one_served(tmp_path: Path, request_: object, code: str) -> None:
    """Each answer has a code, a message and a mend; the server goes on."""
    write(tmp_path, FILES)
    answers = await serve(request_, {"op": "index", "root": str(tmp_path)}, {"op": "query", "q": "heron", "k": 1})
    assert answers[0]["error"]["code"] == code and answers[0]["error"]["hint"]
    assert answers[2]["paths"] == ["b.py"]


async def test_bad_numbers_of_results(tmp_path: Path) -> None:
    """``k`` is a number from one."""
    answers = await serve(
        {"op": "index", "root": str(tmp_path)}, *({"op": "query", "q": "x", "k": k} for k in (0, -1, True, "5", 10**9))
    )
    assert all("error" in answer for answer in answers[1:])


@pytest.mark.parametrize("way", ["pipe", "file"])
def test_the_server_as_a_process(tmp_path: Path, way: str) -> None:
    """It answers each line as it comes, over a pipe or from a file, and ends with its input."""
    write(tmp_path / "r", FILES)
    requests = [json.dumps(r) for r in ({"op": "index", "root": str(tmp_path / "r")}, {"op": "query", "q": "pelican"})]
    command = [sys.executable, "-c", SERVE]
    if way == "file":
        (tmp_path / "in.jsonl").write_text("\n".join(requests))
        with (tmp_path / "in.jsonl").open() as source:
            done = subprocess.run(command, stdin=source, capture_output=True, text=True, cwd=ROOT, timeout=HANG_S)
        lines = done.stdout.splitlines()
    else:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdin is not None and process.stdout is not None
            lines: list[str] = []
            for request in requests:
                process.stdin.write(request + "\n")
                process.stdin.flush()
                lines.append(process.stdout.readline())
            process.stdin.close()
            assert process.wait(10) == 0
    assert json.loads(lines[1])["paths"] == ["src/pelican.py"]


async def test_index_then_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people one line a file; with ``--json`` everything; what was skipped goes to standard error."""
    write(tmp_path / "root", FILES)
    options: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    assert await index_command(str(tmp_path / "root"), **options) == 0
    shown = capsys.readouterr()
    assert "2 files indexed" in shown.out and "skipped x.pem" in shown.err
    assert await search_command("pelican", str(tmp_path / "root"), **options) == 0
    assert "src/pelican.py:1-2" in capsys.readouterr().out
    assert await search_command("pelican", str(tmp_path / "root"), as_json=True, **options) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["matches"][0]["path"] == "src/pelican.py" and answer["matches"][0]["content"].startswith(
        "def pelican"
    )
    assert await index_command(str(tmp_path / "root"), as_json=True, **options) == 0
    assert json.loads(capsys.readouterr().out)["unchanged"] == 2


@pytest.mark.parametrize(("query", "k"), [("", 5), ("  ", 5), ("x", 0)])
async def test_a_search_for_nothing_is_a_usage_error(tmp_path: Path, query: str, k: int) -> None:
    """With the mend."""
    with pytest.raises(UsageError) as caught:
        await search_command(query, str(tmp_path), k=k, cache_dir=tmp_path)
    assert caught.value.hint


async def test_terminal_escapes_in_names_are_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hostile file name cannot steer the terminal."""
    write(tmp_path / "root", {"evil\x1b[31m.py": "pelican"})
    await search_command("pelican", os.fspath(tmp_path / "root"), cache_dir=tmp_path / "cache")
    assert "\x1b" not in capsys.readouterr().out


async def test_a_match_is_one_row_whatever_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and messages with line ends and escapes neither break a row nor reach the terminal; nothing is cut in a pipe."""
    root = repository(tmp_path / "r", {f"{n}.py": "x\n" for n in range(45)})
    (root / "a\nb\x1b[31m.py").write_text("pelican = 1 # " + "long " * 60 + "\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "feed the pelican\x1b[2J")
    for kinds in (["file"], ["symbol", "commit"]):
        await search_command("feed the pelican", str(root), kinds=kinds, cache_dir=tmp_path / "cache")
        shown = capsys.readouterr().out
        assert "\x1b" not in shown and "…" not in shown
        assert all(line[:5].replace(".", "").isdigit() for line in shown.splitlines()), shown
    said = re.search(r"\d{4}-\d\d-\d\d: feed the pelican.*  a b.*\.py", shown)
    assert said is not None, "a commit's row has its date, its message and the files it touched"
    with pytest.raises(UsageError, match="no kind 'walrus'"):
        await search_command("pelican", str(root), kinds=["walrus"])


@pytest.mark.parametrize("words", [["{root}"], ["--root", "{root}"]], ids=["argument", "option"])
def test_index_and_search_take_their_directory_the_same_way(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an argument or by ``--root``."""
    write(tmp_path / "root", FILES)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    where = [word.format(root=tmp_path / "root") for word in words]
    indexed = CliRunner().invoke(app, ["index", *where])
    found = CliRunner().invoke(app, ["search", "pelican", *where])
    assert indexed.exit_code == found.exit_code == 0
    assert indexed.stdout.startswith("2 files indexed") and "src/pelican.py" in found.stdout


async def test_rows_have_colours_on_a_terminal(tmp_path: Path) -> None:
    """The place, and the words that matched; one row a match, cut to the width."""
    write(tmp_path / "root", {"pelican.py": "pelican = 1 # query " + "long " * 60 + "\n"})
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    code, terminal = await in_terminal("search", "pelican", str(tmp_path / "root"), environment=environment, columns=99)
    assert code == 0 and b"\x1b[1;36m" in terminal.raw and b"\x1b[1;3;33mpelican" in terminal.raw
    assert len([line for line in terminal.lines if line.strip()]) == 1
    code, terminal = await in_terminal("search", "queries", str(tmp_path / "root"), environment=environment, columns=99)
    assert code == 0 and b"\x1b[1;3;33mquer" in terminal.raw, "other forms of a word are marked, too"
