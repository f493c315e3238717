"""The path that a sandbox kept from a program, if the program's own output names it.

A refusal looks like any other error: "permission denied" under landlock, "no such file" under bubblewrap. The command
already determines whether a path in such a line may be read, so nothing is looked up: the author of the command
learns nothing about the files outside.
"""

from __future__ import annotations

import os
import re

from agentflow.executors.sandbox.backend import SYSTEM_PATHS, Spawn

_REFUSED = re.compile(
    r"permission denied|operation not permitted|no such file|cannot open|not found|EACCES|EPERM|ENOENT", re.IGNORECASE
)
_PATH = re.compile(r"""'(/[^'\n]+)'|"(/[^"\n]+)"|`(/[^`'\n]+)[`']|(?<![\w./-])(/[^\s'"`:,;()<>]+)""")
_OWN = ("/proc", "/dev", "/sys", "/etc", *SYSTEM_PATHS)
"""The paths that each command has a copy of, or cannot be granted."""
_MOST_LINES = 200


def refused_path(said: str, spawn: Spawn) -> str | None:
    """The last path in the output ``said`` that a program of ``spawn`` was refused and may not read; None without one."""
    seen = (*_OWN, *spawn.readable, *spawn.workspace, *spawn.writable, spawn.scratch)
    for line in reversed(said.splitlines()[-_MOST_LINES:]):
        if _REFUSED.search(line) is None:
            continue
        for match in _PATH.finditer(line):
            path = os.path.normpath(next(filter(None, match.groups())))
            if not any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in seen):
                return path
    return None
