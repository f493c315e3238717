"""Attacks by programs that run beside a flow, in every sandbox: they have walls as commands have, and may write nothing."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator

import psutil
import pytest

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.ports.service_port import ServiceCommand
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.services import Service, Services
from tests.hostile.arena import SECRET, Arena
from tests.hostile.backends import CONFINING, needed

ECHO = """
import json, os, socket, sys
for line in sys.stdin:
    try:
        value = eval(line)
    except BaseException as error:
        value = type(error).__name__
    print(json.dumps(value), flush=True)
"""


@pytest.fixture(params=CONFINING)
async def services(request: pytest.FixtureRequest, arena: Arena) -> AsyncIterator[Services]:
    needed(request.param)
    files = FileAccessManager([arena.root])
    async with CommandExecutor(files, sandbox=request.param) as commands:
        yield Services(files, commands.sandbox)
    await files.aclose()


def python(script: str = ECHO, **options: object) -> ServiceCommand:
    return ServiceCommand(argv=("/usr/bin/python3", "-c", script), env={}, **options)  # type: ignore[arg-type]


async def said(service: Service, expression: str) -> object:
    """What the program says of a Python expression."""
    await service.write(f"{expression}\n".encode())
    answer = b""
    while not answer.endswith(b"\n"):
        piece = await service.read()
        assert piece, service.said()
        answer += piece
    return json.loads(answer)


async def test_a_service_reads_the_workspace_and_writes_nothing(services: Services, arena: Arena) -> None:
    """The workspace is readable and not writable, what is outside is neither; its temporary directory is its own."""
    (arena.root / "note.txt").write_text("read me")
    service = await services.start(python())
    try:
        assert await said(service, "open('note.txt').read()") == "read me"
        assert await said(service, "open('new.txt', 'w').write('x')") in ("OSError", "PermissionError")
        assert await said(service, f"open({str(arena.outside / 'secret.txt')!r}).read()") != SECRET
        assert await said(service, f"open({str(arena.outside / 'new')!r}, 'w').write('x')") != 1
        assert await said(service, "open(os.environ['HOME'] + '/mine', 'w').write('x')") == 1
    finally:
        await service.stop(5)
    assert not (arena.root / "new.txt").exists()


async def test_only_named_directories_are_writable(services: Services, arena: Arena) -> None:
    """A directory that was given is writable, what is beside it is not."""
    (arena.root / "out").mkdir()
    service = await services.start(python(writable=("out",)))
    try:
        assert await said(service, "open('out/new.txt', 'w').write('x')") == 1
        assert await said(service, "open('new.txt', 'w').write('x')") in ("OSError", "PermissionError")
    finally:
        await service.stop(5)
    assert (arena.root / "out" / "new.txt").read_text() == "x"
    with pytest.raises(ConfigurationError):
        await services.start(python(writable=("absent",)))


async def test_environment_network_and_descriptors_are_what_was_given(services: Services, arena: Arena) -> None:
    """A service has the variables that were named, no socket, three descriptors, and sees no other process's secrets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2) and 'connected'"
        command = python()
        service = await services.start(ServiceCommand(argv=command.argv, env={"TOKEN": "abc"}))
        try:
            names = await said(service, "sorted(os.environ)")
            assert isinstance(names, list) and SECRET not in str(await said(service, "dict(os.environ)"))
            assert set(names) <= {
                "HOME",
                "LANG",
                "LANGUAGE",
                "LC_ALL",
                "LC_CTYPE",
                "PATH",
                "PWD",
                "TERM",
                "TMPDIR",
                "TOKEN",
                "TZ",
            }
            assert await said(service, connect) != "connected"
            assert await said(service, "sorted(int(n) for n in os.listdir('/proc/self/fd'))[:3]") == [0, 1, 2]
            assert await said(service, "len(os.listdir('/proc/self/fd'))") == 4, "and the one that lists them"
            spied = await said(service, f"open('/proc/{os.getpid()}/environ').read()")
            assert SECRET not in str(spied)
        finally:
            await service.stop(5)


async def test_everything_a_service_started_ends_with_it(services: Services, arena: Arena) -> None:
    """A service that ignores the end of its input is killed after its grace, with what it started."""
    script = "import subprocess, time\nsubprocess.Popen(['sleep', '987'])\nprint('up', flush=True)\ntime.sleep(987)"
    service = await services.start(python(script))
    assert await service.read() == b"up\n"
    assert "killed" in await service.stop(0.05)
    assert not [each for each in psutil.process_iter(["cmdline"]) if "987" in (each.info["cmdline"] or [])]


async def test_what_a_service_says_is_bounded(services: Services, arena: Arena) -> None:
    """Of standard error the last 64 KiB are kept; output that nobody reads keeps the service waiting, not the host."""
    script = "import sys\nsys.stderr.write('x' * 3_000_000 + 'last words')\nsys.stdout.write('y' * 3_000_000)\nsys.stdout.flush()"
    service = await services.start(python(script))
    size = 0
    while piece := await service.read():
        assert len(piece) <= 65_536
        size += len(piece)
    assert await service.stop(5) == "it exited with code 0"
    assert size == 3_000_000
    assert len(service.said()) < 65_600 and service.said().endswith("x" * 65_526 + "last words")


async def test_a_service_that_takes_no_input_is_noticed(services: Services, arena: Arena) -> None:
    """Writing to a program that closed its input, or ended, is an error."""
    service = await services.start(python("import sys\nsys.exit(3)"))
    assert await service.read() == b""
    with pytest.raises(OSError):
        for _ in range(50):
            await service.write(b"x" * 100_000)
    assert await service.stop(5) == "it exited with code 3"
