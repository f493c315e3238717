"""Attacks on files: every way out of the root, every thing that is not a regular file, every name that is none."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.executors.file_access import FileAccessManager
from tests.hostile.arena import Arena
from tests.support.spending import at_most


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
async def files(request: pytest.FixtureRequest, arena: Arena) -> AsyncIterator[FileAccessManager]:
    async with FileAccessManager(arena.root, max_bytes=100_000, kernel=request.param) as manager:
        yield manager


def link(name: str, target: str) -> Callable[[Arena], None]:
    return lambda arena: os.symlink(target.replace("OUTSIDE", str(arena.outside)), arena.root / name)


def nothing(arena: Arena) -> None:
    pass


READS: dict[str, tuple[Callable[[Arena], None], str, str]] = {
    "dot_dot": (nothing, "../outside/secret.txt", "files/outside"),
    "dot_dot_deep": (nothing, "dir/../../outside/secret.txt", "files/outside"),
    "dot_dot_through_file": (nothing, "a.txt/../../outside/secret.txt", "files/outside"),
    "absolute": (nothing, "OUTSIDE/secret.txt", "files/outside"),
    "absolute_with_dots": (nothing, "ROOT/../outside/secret.txt", "files/outside"),
    "sibling_with_the_roots_name_as_prefix": (
        lambda arena: (arena.base / "root-evil").mkdir(),
        "ROOT-evil/x",
        "files/outside",
    ),
    "proc_self_root": (nothing, "/proc/self/root/etc/passwd", "files/outside"),
    "link_to_outside_file": (link("l", "OUTSIDE/secret.txt"), "l", "files/outside"),
    "link_to_outside_directory": (link("l", "OUTSIDE"), "l/secret.txt", "files/outside"),
    "relative_link_out": (link("l", "../outside/secret.txt"), "l", "files/outside"),
    "link_out_and_back": (link("l", "dir/../../outside"), "l/secret.txt", "files/outside"),
    "chain_of_links": (
        lambda arena: [link(f"l{i}", f"l{i + 1}")(arena) for i in range(3)] and link("l3", "OUTSIDE/secret.txt")(arena),
        "l0",
        "files/outside",
    ),
    "link_loop": (lambda arena: [link("l", "m")(arena), link("m", "l")(arena)][0], "l", "files/symlink"),
    "magic_link": (link("l", "/proc/self/cwd"), "l", "files/outside"),
    "magic_link_to_descriptor": (link("l", "/proc/self/fd/0"), "l", "files/outside"),
    "protected": (nothing, ".env", "files/protected"),
    "protected_in_other_case": (nothing, "dir/.ENV", "files/protected"),
    "protected_with_trailing_dot": (nothing, ".git./config", "files/protected"),
    "protected_absent": (nothing, "sub/.git/config", "files/protected"),
    "protected_through_a_link": (link("innocent", ".env"), "innocent", "files/protected"),
    "protected_through_a_linked_directory": (
        lambda arena: [(arena.root / ".git").mkdir(), link("g", ".git")(arena)][0],
        "g/config",
        "files/protected",
    ),
    "own_configuration": (nothing, "agentflow.toml", "files/protected"),
    "nul": (nothing, "a.txt\0.png", "files/name"),
    "empty": (nothing, "", "files/name"),
    "long_name": (nothing, "x" * 256, "files/name"),
    "long_path": (nothing, "x/" * 3_000, "files/name"),
    "surrogate": (nothing, "a\ud800", "files/name"),
    "fifo": (lambda arena: os.mkfifo(arena.root / "f"), "f", "files/not-regular"),
    "directory": (nothing, "dir", "files/not-regular"),
    "too_large": (lambda arena: (arena.root / "big").write_bytes(b"x" * 100_001), "big", "files/too-large"),
    "sparse": (lambda arena: os.truncate(_touch(arena.root / "big"), 1 << 40), "big", "files/too-large"),
    "not_utf8": (lambda arena: (arena.root / "l1").write_bytes(b"caf\xe9"), "l1", "files/encoding"),
}


def _touch(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize("name", READS)
async def test_read_is_refused(name: str, arena: Arena, files: FileAccessManager) -> None:
    """A read that would leave the root, or is of no regular file, is a typed error, quickly."""
    prepare, path, code = READS[name]
    prepare(arena)
    path = path.replace("OUTSIDE", str(arena.outside)).replace("ROOT", str(arena.root))
    with at_most(1):
        await arena.refused(files.read(path), code)
    if code not in ("files/too-large", "files/encoding"):
        with pytest.raises(AgentflowError):
            async with aclosing(files.stream(path)) as stream:
                async for chunk in stream:
                    arena.saw(chunk)


async def test_socket_is_refused(arena: Arena, files: FileAccessManager) -> None:
    """A socket below the root answers as what it is, at once."""
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(arena.root)  # socket addresses are short, test paths are long
        try:
            listener.bind("sock")
        finally:
            os.chdir(here)
        await arena.refused(files.read("sock"), "files/not-regular")


WRITES: dict[str, tuple[Callable[[Arena], None], str, tuple[str, ...]]] = {
    "dot_dot": (nothing, "../outside/new", ("files/outside",)),
    "absolute": (nothing, "OUTSIDE/new", ("files/outside",)),
    "link_to_outside_file": (link("l", "OUTSIDE/secret.txt"), "l", ("files/symlink",)),
    "dangling_link_outside": (link("l", "OUTSIDE/new"), "l", ("files/symlink",)),
    "link_inside": (link("l", "a.txt"), "l", ("files/symlink",)),
    "linked_directory_outside": (link("l", "OUTSIDE"), "l/new", ("files/symlink", "files/outside")),
    "linked_directory_inside": (link("l", "dir"), "l/new", ("files/symlink",)),
    "new_directories_below_a_link": (link("l", "OUTSIDE"), "l/x/y/new", ("files/symlink", "files/outside")),
    "existing": (nothing, "a.txt", ("files/exists",)),
    "directory": (nothing, "dir", ("files/not-regular",)),
    "root": (nothing, ".", ("files/not-regular",)),
    "below_a_file": (nothing, "a.txt/x", ("files/not-directory",)),
    "fifo": (lambda arena: os.mkfifo(arena.root / "f"), "f", ("files/not-regular",)),
    "git_hook": (nothing, ".git/hooks/post-checkout", ("files/protected",)),
    "git_hook_of_a_submodule": (nothing, "sub/.GIT/hooks/x", ("files/protected",)),
    "shell_start_up": (nothing, ".bashrc", ("files/protected",)),
    "dot_env": (nothing, "dir/.env.local", ("files/protected",)),
    "own_configuration": (nothing, "agentflow.toml", ("files/protected",)),
}


@pytest.mark.parametrize("name", WRITES)
async def test_write_is_refused(name: str, arena: Arena, files: FileAccessManager) -> None:
    """A write outside, through a link, or over what must stay, is a typed error and leaves nothing behind."""
    prepare, path, codes = WRITES[name]
    prepare(arena)
    before = sorted(os.listdir(arena.root))
    await arena.refused(
        files.write(path.replace("OUTSIDE", str(arena.outside)), "x", overwrite=name != "existing"), *codes
    )
    assert sorted(os.listdir(arena.root)) == before


async def test_write_through_a_hard_link_leaves_the_other_name_alone(arena: Arena, files: FileAccessManager) -> None:
    """A file outside that has a second name inside keeps its content: a write makes a new file."""
    os.link(arena.outside / "dir" / "kept.txt", arena.root / "hard")
    await files.write("hard", "new", overwrite=True)
    assert (arena.outside / "dir" / "kept.txt").read_text() == "kept"


@pytest.mark.parametrize("attack", ["directory", "file"])
async def test_swapping_for_a_link_never_leads_outside(attack: str, arena: Arena, files: FileAccessManager) -> None:
    """While another process swaps a name for a link, reads give the inside or an error, and writes stay inside."""
    code = (
        "import ctypes, os, sys\n"
        "root, outside, kind = sys.argv[1:]\n"
        "name, other = (root + '/race', outside) if kind == 'directory' else (root + '/race/secret.txt', outside + '/secret.txt')\n"
        "os.symlink(other, root + '/link')\n"
        "exchange = ctypes.CDLL(None).renameat2\n"
        "a, b = name.encode(), (root + '/link').encode()\n"
        "print(flush=True)\n"
        "while True:\n"
        "    exchange(-100, a, -100, b, 2)\n"
    )
    (arena.root / "race").mkdir()
    (arena.root / "race" / "secret.txt").write_text("inside")
    process = await asyncio.create_subprocess_exec(
        *("python3", "-c", code, str(arena.root), str(arena.outside), attack), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    reads = int(os.environ.get("AGENTFLOW_RACE_READS", "1500"))
    writes = int(os.environ.get("AGENTFLOW_RACE_WRITES", "150"))
    inside = 0
    try:
        for _ in range(reads // 4):
            got = await asyncio.gather(*(files.read("race/secret.txt") for _ in range(4)), return_exceptions=True)
            for one in got:
                if isinstance(one, BaseException):
                    assert getattr(one, "code", "").startswith("files/"), one
                else:
                    assert one.text == "inside", "read from outside"
                    inside += 1
        for number in range(writes):
            try:
                await files.write(f"race/w{number % 50}", "x", overwrite=True)
            except Exception as error:
                assert getattr(error, "code", "").startswith("files/"), error
    finally:
        process.kill()
        await process.wait()
    assert inside > 0


async def test_cancelled_reads_leak_nothing(arena: Arena, files: FileAccessManager) -> None:
    """Reads and streams cancelled at any moment leave no descriptor."""
    (arena.root / "big").write_bytes(b"x" * 100_000)

    async def stream() -> None:
        async with aclosing(files.stream("big", chunk_bytes=1_000)) as chunks:
            async for _ in chunks:
                pass

    for turn in range(60):
        work = asyncio.ensure_future(stream() if turn % 2 else files.read("big"))
        await asyncio.sleep(turn * 0.0002)
        work.cancel()
        await asyncio.wait([work])


async def test_a_closed_manager_refuses(arena: Arena) -> None:
    """After close every call is a typed error, also one whose descriptor number is used again."""
    manager = FileAccessManager(arena.root)
    await manager.aclose()
    await arena.refused(manager.read("a.txt"), "files/closed")
    await arena.refused(manager.write("new", "x"), "files/closed")
    await arena.refused(manager.list("."), "files/closed")


async def test_full_disk_loses_nothing(arena: Arena, files: FileAccessManager) -> None:
    """When a write cannot be finished, the old file is whole and no temporary file is left."""
    import resource

    (arena.root / "kept").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    try:
        await arena.refused(files.write("kept", "x" * 50_000, overwrite=True), "files/no-space")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (arena.root / "kept").read_text() == "old"
    assert not [name for name in os.listdir(arena.root) if name.startswith(".agentflow-tmp")]
