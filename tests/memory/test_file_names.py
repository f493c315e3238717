r"""Names that are not UTF-8 are found, said, read and written as ``\xNN``, the same text everywhere."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import AgentFlow
from agentflow.core.data.errors import PathDenied
from agentflow.executors.file_access import FileAccessManager
from agentflow.lib.file_writer import name_text, text_name
from agentflow.memory.file_memory import FileMemory

LATIN = os.fsdecode(b"caf\xe9")
WRITTEN = "caf\\xe9"


@given(st.lists(st.sampled_from([b"\\", b"x", b"5", b"c", b"e", b"9", b"\xe9", b"\xc3", b"\xa9", b"a", b"/", b"\xff"])))
def test_every_name_has_one_text_which_gives_it_back(pieces: list[bytes]) -> None:
    """The text is UTF-8, and no two names share one: backslashes of a name are told from escapes."""
    name = os.fsdecode(b"".join(pieces))
    text = name_text(name)
    text.encode("utf-8")
    assert text_name(text) == name


@pytest.mark.parametrize("git", [False, True])
async def test_a_file_of_such_a_name_is_indexed_found_and_read(tmp_path: Path, git: bool) -> None:
    """The path that a lookup gives opens the file, in directories, roots and files of such names, with git or not."""
    root = tmp_path / os.fsdecode(b"r\xf6ot")
    (root / LATIN).mkdir(parents=True)
    (root / LATIN / f"{LATIN}.py").write_text("def zebra(): ...\n")
    (root / LATIN / f"{LATIN}.log").write_text("zebra zebra\n")
    (root / ".gitignore").write_bytes(b"caf\xe9.log\n")
    if git:
        await asyncio.to_thread(subprocess.run, ["git", "init", "-q", root], check=True)
    with FileAccessManager(root) as files:
        async with FileMemory(files=files) as memory:
            matches = await memory.search("zebra")
        path = f"{tmp_path}/r\\xf6ot/{WRITTEN}/{WRITTEN}.py"
        assert [match.path for match in matches] == [path]
        assert (await files.read(path)).text == "def zebra(): ...\n"
        assert files.absolute(f"{WRITTEN}/{WRITTEN}.py") == path
        assert await files.list(WRITTEN) == [f"{WRITTEN}.log", f"{WRITTEN}.py"]
        await files.write(f"{WRITTEN}/{WRITTEN}.py", "def yak(): ...\n", overwrite=True)
    assert (root / LATIN / f"{LATIN}.py").read_text() == "def yak(): ...\n"


async def test_a_program_reads_what_it_listed(tmp_path: Path) -> None:
    """The text survives programs, JSON and events, which lone surrogates would not."""
    (tmp_path / f"{LATIN}.txt").write_text("bonjour")
    program = """(let ((names (value-of (system:list_directory (directory_path ".")))))
                   (list names (get-field (system:read_files (file_paths names)) "content")))"""
    async with AgentFlow(root=tmp_path) as flow:
        names, content = (await flow.run(program)).value
    assert json.loads(json.dumps(names)) == [f"{WRITTEN}.txt"]
    assert "bonjour" in content


async def test_an_escape_is_no_second_spelling_of_a_protected_name(tmp_path: Path) -> None:
    """Only bytes that are not UTF-8 are escaped: what spells a protected name in escapes is not that name."""
    (tmp_path / ".env").write_text("KEY=1")
    with FileAccessManager(tmp_path) as files:
        for path in ("\\x2eenv", "\\x5cx2eenv", ".\\x65nv"):
            assert await files.read_file(path) is None
            assert not await files.exists(path)


async def test_escapes_that_spell_utf8_are_the_characters(tmp_path: Path) -> None:
    """Rules on names see one spelling: an escaped long s is folded to the s of a protected name, as the letter is."""
    with FileAccessManager(tmp_path) as files:
        for path in (".\u017fsh/key", ".\\xc5\\xbfsh/key"):
            with pytest.raises(PathDenied) as caught:
                await files.read(path)
            assert caught.value.code == "files/protected"
