"""Marks that tests get from where they stand: their subject, and ``fast`` for those of the inner loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

SUBJECTS = tuple(
    sorted(
        path.name
        for path in Path(__file__).parents[1].iterdir()
        if (path / "__init__.py").exists() or list(path.glob("test_*.py"))
    )
)
"""The directories of tests. Each is a mark: ``pytest -m "durable or journal"``."""

_OF_PROCESSES = {"benchmarks", "cli", "docs", "hostile", "scale", "testing", "vendors"}
"""Subjects whose tests start commands, servers or browsers, or repeat one rule many times."""
_DATA = {"errors", "spec"}
"""Subjects whose few functions read pages of rules: each item is a rule of its own."""
_SLOW_FIXTURES = {"node_clients", "postgres_server", "postgres_url"}
_FIRST = 2
"""Items of one parametrized function in the inner loop."""


def is_fast(subject: str, earlier: int, marks: Iterable[str], fixtures: Iterable[str]) -> bool:
    """Whether a test belongs to the inner loop; ``earlier`` items of the same function do so already."""
    if subject in _OF_PROCESSES or {"slow", "browser"} & set(marks) or _SLOW_FIXTURES & set(fixtures):
        return False
    return subject in _DATA or earlier < _FIRST


def mark(items: Sequence[pytest.Item], root: Path) -> None:
    """Give each collected test the mark of its subject, and ``fast`` if it is one of the inner loop."""
    earlier = Counter[str]()
    for item in items:
        subject = item.path.relative_to(root / "tests").parts[0] if item.path.is_relative_to(root / "tests") else ""
        if subject not in SUBJECTS:
            continue
        item.add_marker(subject)
        function = item.nodeid.partition("[")[0]
        marks = [each.name for each in item.iter_markers()]
        if is_fast(subject, earlier[function], marks, getattr(item, "fixturenames", ())):
            earlier[function] += 1
            item.add_marker("fast")
