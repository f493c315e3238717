"""The memory that this process occupies."""

from __future__ import annotations

import sys

try:
    import resource
except ImportError:  # not on Windows
    resource = None


def resident_bytes() -> int | None:
    """Bytes of memory that the process occupies: now where the system says so, else at its peak; None if it does not."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except OSError:
        pages = None
    if resource is None:
        return None
    if pages is not None:
        return pages * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1_024)
