"""The ground every hostile case is played on, and the one check after it.

A root with ordinary files, a directory outside of it with things that must not change, and a secret planted where
attacks would look: in the environment, outside, in a protected file. After the case: outside is unchanged, no task,
descriptor, socket or child is left, the event loop was never held up, and the secret is nowhere in what was seen.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import psutil

from agentflow.core.data.errors import AgentflowError

SECRET = "sk-ant-planted-9f8e7d6c5b4a3210PLANTED"
LAG_S = 0.25
_TICK_S = 0.01


class Arena:
    """See the module. ``root`` and ``outside`` are directories; what an attacker could see goes through :meth:`saw`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "root"
        self.outside = base / "outside"
        for directory in (self.root, self.outside, self.root / "dir", self.outside / "dir"):
            directory.mkdir()
        (self.root / "a.txt").write_text("inside\n")
        (self.root / "dir" / "b.txt").write_text("inside too\n")
        (self.root / ".env").write_text(f"KEY={SECRET}\n")
        (self.outside / "secret.txt").write_text(SECRET)
        (self.outside / "dir" / "kept.txt").write_text("kept")
        self.seen: list[str] = []
        self._before = self._outside()
        self._tasks = asyncio.all_tasks()
        self._descriptors = _descriptors()
        self._children = _children()
        self._lag = 0.0
        # a full collection walks all that the test process has gathered so far, which no program of this case made
        gc.freeze()
        self._ticker = asyncio.create_task(self._tick())

    def saw(self, thing: object) -> Any:
        """Note what came out, results and errors alike; gives it back."""
        self.seen.append(f"{thing!r} {thing}")
        if isinstance(thing, AgentflowError):
            self.seen.append(f"{thing.render()} {thing.to_dict()}")
        return thing

    async def refused(self, attempt: Awaitable[object], *codes: str) -> AgentflowError:
        """``attempt`` must raise one of agentflow's errors, with one of ``codes`` where some are given."""
        try:
            gave = self.saw(await attempt)
        except AgentflowError as error:
            self.saw(error)
            assert not codes or error.code in codes, f"{error.code}: {error.message}"
            return error
        raise AssertionError(f"not refused: {str(gave)[:300]}")

    async def _tick(self) -> None:
        while True:
            began = time.thread_time()  # of this thread: what the machine does meanwhile holds nobody up
            await asyncio.sleep(_TICK_S)
            self._lag = max(self._lag, time.thread_time() - began)

    def _outside(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for path in [self.outside, *sorted(self.outside.rglob("*"))]:
            known = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (known.st_mode, known.st_uid, known.st_size, known.st_mtime_ns, known.st_ino, content)
        return found

    def _orphans(self) -> list[str]:
        mark = str(self.base).encode()
        found: list[str] = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    told = Path(f"/proc/{name}/cmdline").read_bytes() + Path(f"/proc/{name}/environ").read_bytes()
                except OSError:
                    continue
                if mark in told:
                    found.append(f"{name}: {told[:300]!r}")
        return found

    async def check(self) -> None:
        """The common check."""
        self._ticker.cancel()
        await asyncio.wait([self._ticker])
        gc.unfreeze()
        assert self._outside() == self._before, "something outside of the root changed"
        await until(lambda: not (asyncio.all_tasks() - self._tasks - {asyncio.current_task()}), "a task is left")
        await until(lambda: not (_children() - self._children), lambda: f"a child is left: {_named(self._children)}")
        # what was given to the first process of the machine is not a child any more, but it was started with this place
        await until(lambda: not self._orphans(), lambda: f"an orphan is left: {self._orphans()}")
        await until(
            lambda: not (_descriptors().keys() - self._descriptors.keys()),
            lambda: f"a descriptor is left: {_new(self._descriptors)}",
        )
        assert self._lag <= LAG_S, f"the event loop was held up for {self._lag:.3f} s"
        everything = "\n".join(self.seen)
        for form in (SECRET, base64.b64encode(SECRET.encode()).decode()[:-4], SECRET.encode().hex()):
            assert form not in everything, f"the planted secret got out: {_around(everything, form)}"


def _around(text: str, form: str) -> str:
    at = text.index(form)
    return text[max(0, at - 300) : at] + "<HERE>"


async def until(holds: Any, message: Any, seconds: float = 1.5) -> None:
    """What is closed on a worker thread or by the kernel may take a moment, but no longer than this."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(message() if callable(message) else message)
        await asyncio.sleep(0.01)


def _descriptors() -> dict[str, str]:
    found: dict[str, str] = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if not target.startswith("/proc/"):
            found[f"{fd} {target}"] = target
    return found


def _new(before: dict[str, str]) -> list[str]:
    return sorted(_descriptors().keys() - before.keys())


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _named(before: set[int]) -> list[str]:
    return [" ".join(psutil.Process(pid).cmdline()) for pid in _children() - before if psutil.pid_exists(pid)]
