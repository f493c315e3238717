"""Limits the number of processes of the superuser, who is not bound by RLIMIT_NPROC.

If agentflow runs as root, as in many containers, and can create a pids control group (cgroups(7), v1 or v2), the
command runs in one. For all other users the resource limit suffices.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

_MOUNTS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")


class PidGroup:
    """A control group for one command; ``path`` is empty if there is none."""

    __slots__ = ("path",)

    def __init__(self, path: str = "") -> None:
        self.path = path

    @classmethod
    def make(cls, processes: int) -> PidGroup:
        """Create a group for ``processes`` and the supervisor; its ``path`` is empty if that fails. Blocking."""
        if os.geteuid() != 0:
            return cls()
        for mount in _MOUNTS:
            path = f"{mount}/agentflow-{os.getpid()}-{secrets.token_hex(4)}"
            try:
                os.mkdir(path)
            except OSError:
                continue
            group = cls(path)
            try:
                with open(f"{path}/pids.max", "w") as file:
                    file.write(str(processes + 1))
                return group
            except OSError:
                group.remove()  # this hierarchy has no pids controller
        return cls()

    @classmethod
    def sweep(cls) -> None:
        """Remove the empty groups that killed hosts left. Blocking."""
        for mount in _MOUNTS if os.geteuid() == 0 else ():
            with suppress(OSError):
                for name in os.listdir(mount):
                    pid = name.removeprefix("agentflow-").partition("-")[0]
                    if name.startswith("agentflow-") and not os.path.exists(f"/proc/{pid}"):
                        cls(f"{mount}/{name}").remove()

    def join(self, pid: int) -> None:
        """Move the process ``pid``, if it still runs, into the group. Blocks for many milliseconds."""
        if self.path:
            with suppress(ProcessLookupError), open(f"{self.path}/cgroup.procs", "w") as file:
                file.write(str(pid))

    def remove(self) -> None:
        """Remove the group, after its processes have ended. Idempotent."""
        if self.path:
            with suppress(OSError):
                os.rmdir(self.path)
                self.path = ""
