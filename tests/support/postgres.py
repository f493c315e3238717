"""A PostgreSQL server of this test session, for tests of what is stored in one.

The server runs as another user where the tests run as root, listens on a socket in a directory of its own, ends with this
process, and keeps nothing. Each test gets a schema. Tests skip where there is no server; with ``AGENTFLOW_NEED_POSTGRES``
set, as in CI, they fail.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_DEBIAN = "/usr/lib/postgresql"
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
    "listen_addresses": "",
    "log_min_messages": "error",
}
_START_S = 30.0


def program(name: str) -> str | None:
    """The path of a program of the server; None where it is not installed."""
    versions = sorted(Path(_DEBIAN).glob(f"*/bin/{name}"), reverse=True) if Path(_DEBIAN).is_dir() else []
    return shutil.which(name) or (str(versions[0]) if versions else None)


class Server:
    """A cluster in a new directory, to be started, stopped and stopped at once; ``settings`` replace those for tests."""

    def __init__(self, **settings: str) -> None:
        self._settings = {**_SETTINGS, **settings}
        self._directory = Path(tempfile.mkdtemp(prefix="agentflow-postgres-"))
        self._user = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self._schemas = itertools.count(1)
        if self._user is not None:
            os.chown(self._directory, self._user, -1)
        self._directory.chmod(0o700)
        self._run("initdb", "-D", self._data, "-N", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", "agentflow")

    @property
    def _data(self) -> str:
        return str(self._directory / "data")

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        self._process = subprocess.Popen(
            self._as_user([str(program("postgres")), "-D", self._data, "-k", str(self._directory), *settings]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._directory,
        )
        limit = time.monotonic() + _START_S
        while "ready" not in self._state():
            if self._process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError("the PostgreSQL server did not start")
            time.sleep(0.02)

    def stop(self, how: int = signal.SIGQUIT) -> None:
        """Stop the server at once, as ``pg_ctl stop -m immediate``; with SIGINT it ends its sessions and writes all."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop the server and delete its directory."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def schema(self) -> str:
        """The URL of a new schema."""
        name = f"t{next(self._schemas)}"
        self.sql(f"create schema {name}")
        return f"postgresql://agentflow@/postgres?host={self._directory}&search_path={name}"

    def sql(self, text: str, url: str | None = None) -> str:
        """What a statement gives, as text without frills; in the schema of ``url``."""
        path = "" if url is None else f"set search_path = {url.rpartition('=')[2]}; "
        psql = [str(program("psql")), "-h", str(self._directory), "-U", "agentflow", "-qAtX", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run([*psql, "-c", path + text, "postgres"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def _state(self) -> str:
        with contextlib.suppress(OSError):
            lines = (Path(self._data) / "postmaster.pid").read_text().rpartition("\n")[0].splitlines()
            return lines[-1] if lines else ""  # the server writes it piece by piece
        return ""

    def _run(self, name: str, *args: str) -> None:
        done = subprocess.run(
            self._as_user([str(program(name)), *args]), capture_output=True, text=True, cwd=self._directory, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr)

    def _as_user(self, command: Sequence[str]) -> list[str]:
        """A command as the user of the server, which ends with this process."""
        user = [] if self._user is None else [f"--reuid={self._user}", "--clear-groups"]
        wrap = shutil.which("setpriv")
        return list(command) if wrap is None else [wrap, *user, "--pdeathsig=QUIT", *command]


def _unprivileged() -> int | None:
    """The user that the server runs as: it refuses root. None for that of this process."""
    if os.getuid() != 0:
        return None
    import pwd  # POSIX alone

    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    return None


def missing() -> str | None:
    """Why no server can be started here."""
    if sys.platform == "win32":
        return "the server is started as another user, as POSIX has them"
    absent = [name for name in ("initdb", "postgres", "psql") if program(name) is None]
    if absent:
        return f"PostgreSQL is not installed: {', '.join(absent)}"
    if os.getuid() == 0 and (shutil.which("setpriv") is None or _unprivileged() is None):
        return "PostgreSQL does not run as root, and there is no setpriv, or no user to run it as"
    return None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server of this session."""
    why = missing()
    if why is not None and os.environ.get("AGENTFLOW_NEED_POSTGRES"):
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres_server: Server) -> str:
    """The URL of a new schema of the server."""
    return postgres_server.schema()
