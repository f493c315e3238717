"""Processes that tests start: how long they may take before they count as hung, how pytest is started among them, and how one ends that was
forked."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

HANG_S = 240.0
"""Seconds after which a child that has not ended counts as hung.

No figure of speed: a busy machine may stretch a second to a minute. Less than the time-out of a test in ``pyproject.toml``, so
that what the child said until then is shown.
"""


def pytest_command(base: Path, *arguments: str) -> list[str]:
    """The command of a test run whose temporary directories lie in ``base``, which it empties.

    Without a directory of its own a test run removes what is older than three runs when it ends, and the directories of the
    test run that started it are such: it may then remove ten thousand directories, for minutes, before it ends.
    """
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={base}", *arguments]


def leave(code: int | None) -> NoReturn:
    """End a forked process with this status, as an interpreter does, but without freeing all that was loaded before the fork.

    Each page of that is still shared with the process it was forked from, so it would be copied first: for the shortest command that
    is more than half of its processor time.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # lost, closed or taken away: Python knows the status for that
            sys.exit(code)
    os._exit(code or 0)
