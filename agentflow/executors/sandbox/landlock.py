"""The ``landlock`` back-end: a process gives up its own rights; no helper program and no privilege needed.

Landlock (Linux 5.13; landlock(7)) confines access to files; version 3 (Linux 6.2), the oldest accepted here, includes
truncation. Later versions add TCP (4), device ioctls (5), signals and abstract sockets (6). The filter of
:mod:`agentflow.executors.sandbox.seccomp` closes the remaining gaps.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from agentflow.executors.sandbox import seccomp
from agentflow.executors.sandbox.backend import SYSTEM_PATHS, Running, Spawn, existing, public_in_etc
from agentflow.executors.sandbox.supervised import Walls, spawn_supervised

LEAST_ABI = 3
_EXECUTE, _WRITE, _READ, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_ALL_V3 = (1 << 15) - 1
_LOOK = _EXECUTE | _READ | _READ_DIR
_FILE_WRITE = _READ | _WRITE | _TRUNCATE

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PROC = (
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
)


def abi() -> int:
    """The Landlock version of this kernel; 0 if it has none."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version: int = libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(version, 0)


class Landlock:
    """Confines with Landlock and a system-call filter.

    Stricter than bubblewrap in one respect: owner and attributes of a file cannot be changed by path, since Landlock
    cannot restrict these calls to the workspace. Mode and times are changed by the supervisor.
    """

    name = "landlock"
    confines = True

    def missing(self) -> str | None:
        version = abi()
        if version < LEAST_ABI:
            return f"the kernel offers Landlock version {version}, {LEAST_ABI} is needed (Linux 6.2)"
        if not seccomp.supported():
            return "there is no system-call filter for this architecture"
        return None

    async def spawn(self, spawn: Spawn) -> Running:
        code = seccomp.build(sockets=False, network=spawn.network, metadata=False)
        changes = seccomp.changes((*spawn.changeable, spawn.scratch))
        return await spawn_supervised(spawn, Walls(True, rules(spawn, abi()), code, changes))


def rules(spawn: Spawn, version: int) -> dict[str, Any]:
    """The ruleset for ``spawn`` in the supervisor's format: handled rights, and allowed ``(path, access)`` pairs."""
    handled = _ALL_V3 | (_IOCTL_DEVICE if version >= 5 else 0)
    inside = handled & ~_MAKE_DEVICES
    etc = public_in_etc(network=spawn.network)
    allowed: list[tuple[str, int]] = [(path, _LOOK) for path in existing(SYSTEM_PATHS)]
    allowed += [(path, _only_file(path, _LOOK)) for path in (*etc, *existing(_PROC))]
    allowed += [(path, _only_file(path, _LOOK)) for path in spawn.readable]
    allowed += [(path, _FILE_WRITE) for path in existing(_DEVICES)]
    allowed += [(path, _LOOK) for path in spawn.workspace]
    allowed += [(path, inside) for path in spawn.changeable]
    allowed.append((spawn.scratch, inside))
    return {
        "files": handled,
        # with a granted network, TCP is not handled and so not restricted
        "net": 0 if spawn.network or version < 4 else 3,
        "scoped": 3 if version >= 6 else 0,
        "size": 24 if version >= 6 else 16 if version >= 4 else 8,
        "rules": allowed,
    }


def _only_file(path: str, access: int) -> int:
    return access if os.path.isdir(path) else access & ~_READ_DIR
