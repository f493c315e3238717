"""Processes that tests start: how long they may take before they count as hung, and how pytest is started among them."""

from __future__ import annotations

import sys
from pathlib import Path

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
