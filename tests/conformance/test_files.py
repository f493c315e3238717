"""The rules of the file port, on both ways of resolving paths."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentflow.core.data.errors import ConfigurationError, FileFailure, PathDenied
from agentflow.core.ports.executor_ports import FilePort
from agentflow.executors.file_access import FileAccessManager, digest_of


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
async def files(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FileAccessManager]:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "b.txt").write_text("b\n")
    async with FileAccessManager(tmp_path, kernel=request.param) as manager:
        yield manager


async def code_of(attempt: object) -> str:
    with pytest.raises((PathDenied, FileFailure)) as caught:
        await attempt  # type: ignore[misc]
    return caught.value.code


async def test_it_is_a_file_port(files: FileAccessManager, tmp_path: Path) -> None:
    """The manager implements the port; its roots are absolute."""
    port: FilePort = files
    assert port.roots == (tmp_path,)
    assert port.absolute("dir/./x/../b.txt") == str(tmp_path / "dir/b.txt")
    assert port.absolute(str(tmp_path / "q")) == str(tmp_path / "q")


@pytest.mark.parametrize(
    ("text", "newline"), [("a\nb\n", "\n"), ("a\r\nb\r\n", "\r\n"), ("a\rb\r", "\r"), ("", "\n"), ("\ufeffx\n", "\n")]
)
async def test_text_comes_back_as_it_was_written(files: FileAccessManager, text: str, newline: str) -> None:
    """Write and read keep every character, line ends included; the style is told."""
    await files.write("t.txt", text)
    found = await files.read("t.txt")
    assert (found.text, found.newline, found.size) == (text, newline, len(text.encode()))
    assert found.digest == digest_of(text.encode()) and not found.binary


async def test_binary_files_are_flagged(files: FileAccessManager) -> None:
    """NUL bytes make a file binary; its bytes are still to be had."""
    await files.write("b.bin", b"\x00\x01\xff")
    found = await files.read("b.bin")
    assert found.binary and found.text == ""
    assert await files.read_bytes("b.bin") == b"\x00\x01\xff"


async def test_an_encoding_error_says_where(files: FileAccessManager, tmp_path: Path) -> None:
    """What is not UTF-8 is an error that names the encoding, the byte and its offset."""
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(FileFailure, match=r"UTF-8.*0xe9.*offset 3"):
        await files.read("latin")


async def test_the_cap_can_be_lowered_and_raised(files: FileAccessManager) -> None:
    """max_bytes holds for one call; exactly the cap is still read."""
    await files.write("t", "x" * 100)
    assert await code_of(files.read("t", max_bytes=99)) == "files/too-large"
    assert (await files.read("t", max_bytes=100)).size == 100
    assert await code_of(files.read_bytes("t", max_bytes=0)) == "files/too-large"


async def test_links_inside_are_followed_for_reading(files: FileAccessManager, tmp_path: Path) -> None:
    """Relative links, and absolute ones into the root, are read through; listing a linked directory works too."""
    (tmp_path / "rel").symlink_to("dir/b.txt")
    (tmp_path / "abs").symlink_to(tmp_path / "dir")
    (tmp_path / "dir" / "up").symlink_to("../dir/b.txt")
    for path in ("rel", "abs/b.txt", "dir/up"):
        assert (await files.read(path)).text == "b\n"
    assert await files.list("abs") == ["b.txt", "up"]
    assert await files.exists("abs/b.txt")


async def test_overwriting_needs_to_be_said(files: FileAccessManager) -> None:
    """Without overwrite or the right digest an existing file stays as it is."""
    await files.write("t", "one")
    assert await code_of(files.write("t", "two")) == "files/exists"
    assert await code_of(files.write("t", "two", expected_digest="0" * 32)) == "files/changed"
    await files.write("t", "two", expected_digest=digest_of(b"one"))
    await files.write("t", "three", overwrite=True)
    assert (await files.read("t")).text == "three"
    assert await code_of(files.write("absent", "x", expected_digest=digest_of(b""))) == "files/changed"


async def test_of_two_writers_with_one_digest_one_wins(files: FileAccessManager) -> None:
    """Comparing and replacing is one step for all writers of a manager; creating a file likewise."""
    await files.write("t", "start")
    digest = digest_of(b"start")
    ended = await asyncio.gather(
        *(files.write("t", f"w{n}", expected_digest=digest) for n in range(8)), return_exceptions=True
    )
    assert sum(end is None for end in ended) == 1
    created = await asyncio.gather(*(files.write("new", f"w{n}") for n in range(8)), return_exceptions=True)
    assert sum(end is None for end in created) == 1


async def test_modes_are_kept(files: FileAccessManager, tmp_path: Path) -> None:
    """Replacing a file keeps its permission bits and drops set-uid; a new file follows the umask."""
    (tmp_path / "run.sh").write_text("old")
    (tmp_path / "run.sh").chmod(0o4751)
    await files.write("run.sh", "new", overwrite=True)
    assert (tmp_path / "run.sh").stat().st_mode & 0o7777 == 0o751
    mask = os.umask(0o027)
    try:
        await files.write("fresh", "x")
    finally:
        os.umask(mask)
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o640


async def test_missing_directories_are_made(files: FileAccessManager) -> None:
    """A write makes the directories on its way."""
    await files.write("new/deep/er/t.txt", "x")
    assert (await files.read("new/deep/er/t.txt")).text == "x"


async def test_listing(files: FileAccessManager, tmp_path: Path) -> None:
    """Names come sorted; a file and a missing directory are errors; names that are not UTF-8 are written out."""
    (tmp_path / os.fsdecode(b"bad\xff")).touch()
    assert await files.list(".") == ["bad\\xff", "dir"]
    assert await code_of(files.list("dir/b.txt")) == "files/not-directory"
    assert await code_of(files.list("nowhere")) == "files/not-found"


async def test_existence(files: FileAccessManager) -> None:
    """exists is true for files and directories, false for nothing, an error for what may not be asked."""
    assert await files.exists("dir") and await files.exists("dir/b.txt") and not await files.exists("nope")
    assert await code_of(files.exists("../x")) == "files/outside"
    assert await code_of(files.exists(".env")) == "files/protected"


async def test_streams(files: FileAccessManager) -> None:
    """A stream gives all bytes in order, in chunks of the size asked for, past the read cap."""
    data = os.urandom(300_000)
    await files.write("big", data)
    chunks = [chunk async for chunk in files.stream("big", chunk_bytes=70_000)]
    assert b"".join(chunks) == data and max(map(len, chunks)) == 70_000


async def test_leftovers_of_killed_writers_go(files: FileAccessManager, tmp_path: Path) -> None:
    """The next start removes temporary files of writers that are dead, not those of writers that live."""
    dead = tmp_path / "dir" / ".agentflow-tmp-4194304-1-abc"
    alive = tmp_path / f".agentflow-tmp-{os.getpid()}-{_start_time()}-abc"
    dead.touch()
    alive.touch()
    assert await files.list(".") == ["dir"]
    await files.write("t", "x")
    assert not dead.exists() and alive.exists()
    assert await files.sweep() == 0


def _start_time() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


async def test_several_roots(tmp_path: Path) -> None:
    """Relative paths start at the first root; absolute ones belong to the innermost root that holds them."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    async with FileAccessManager([tmp_path / "one", tmp_path / "two"]) as files:
        assert (await files.read("f")).text == "one"
        assert (await files.read(str(tmp_path / "two" / "f"))).text == "two"


async def test_a_root_reached_through_a_link_works(tmp_path: Path) -> None:
    """A link in the root's own path is resolved once, when the root is opened; both spellings name its files."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_text("x")
    (tmp_path / "alias").symlink_to("real")
    async with FileAccessManager(tmp_path / "alias") as files:
        for spelled in ("f", str(tmp_path / "alias" / "f"), str(tmp_path / "real" / "f")):
            assert (await files.read(spelled)).text == "x"


@pytest.mark.parametrize("roots", [[], "/nowhere/at/all", __file__])
def test_roots_must_be_directories(roots: object) -> None:
    """A manager without a usable root is refused when it is made."""
    with pytest.raises(ConfigurationError) as caught:
        FileAccessManager(roots)  # type: ignore[arg-type]
    assert caught.value.code == "files/root"


async def test_a_read_only_manager_writes_nothing(tmp_path: Path) -> None:
    """writable=False refuses every write."""
    async with FileAccessManager(tmp_path, writable=False) as files:
        assert await code_of(files.write("t", "x")) == "files/read-only"


async def test_the_protected_names_are_the_hosts_to_set(tmp_path: Path) -> None:
    """protected= replaces the list."""
    async with FileAccessManager(tmp_path, protected=["*.key"]) as files:
        await files.write(".env", "x")
        assert await code_of(files.write("dir/my.KEY", "x")) == "files/protected"


async def test_the_specifications_names(files: FileAccessManager) -> None:
    """read_file, write_file and list_directory give None, False and an error dict where the others raise."""
    assert await files.write_file("t", "x") and not await files.write_file("t", "y")
    assert await files.read_file("t") == "x" and await files.read_file("nope") is None
    assert await files.list_directory(".") == ["dir", "t"]
    assert "error" in await files.list_directory("nope")
