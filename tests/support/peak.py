"""The most memory that this process has had."""

from __future__ import annotations

import re
import resource
from pathlib import Path


def peak_bytes() -> int:
    """Peak resident memory of this process since it was started, in bytes.

    ``ru_maxrss`` begins with what the parent had when it forked, so Linux is asked for the figure of this program's memory.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, which does not inherit it
    found = re.search(r"^VmHWM:\s*(\d+) kB", status, re.M)
    assert found is not None
    return int(found[1]) * 1_024
