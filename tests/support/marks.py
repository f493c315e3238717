"""Marks that tests get from where they stand: their subject, ``fast`` for the inner loop, ``rest`` for most items of long lists."""

from __future__ import annotations

import os
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

NEWCOMERS = "not slow and not rest"
"""What ``-m`` says in the newcomer's run."""

_OF_PROCESSES = {"benchmarks", "cli", "docs", "hostile", "scale", "testing", "vendors"}
"""Subjects whose tests start commands, servers or browsers, or repeat one rule many times."""
_DATA = {"errors", "spec"}
"""Subjects whose few functions read pages of rules: each item is a rule of its own."""
_SLOW_FIXTURES = {"node_clients", "postgres_server", "postgres_url"}
_FIRST = 2
"""Items of one parametrized function in the inner loop."""
_MOST = 16
"""Items of one function in the newcomer's run: of more, so many that stand at equal distances; CI runs the rest."""
_WHOLE = {"benchmarks", "docs", "errors", "spec"}
"""Subjects of which every item runs each time: each page, example, code and rule has one."""


def is_fast(subject: str, earlier: int, marks: Iterable[str], fixtures: Iterable[str]) -> bool:
    """Whether a test belongs to the inner loop; ``earlier`` items of the same function do so already."""
    if subject in _OF_PROCESSES or {"slow", "browser"} & set(marks) or _SLOW_FIXTURES & set(fixtures):
        return False
    return subject in _DATA or earlier < _FIRST


def is_chosen(index: int, count: int) -> bool:
    """Whether the newcomer's run has the item at ``index`` of the ``count`` items of one function."""
    return count <= _MOST or index * _MOST // count != (index - 1) * _MOST // count


def leave_out_rest(metafunc: pytest.Metafunc) -> None:
    """Make no items of the mark ``rest`` where they would be deselected: making them took a fifth of the collection."""
    config = metafunc.config
    by_name = any(["::" in str(each) for each in config.invocation_params.args])
    if (
        config.option.markexpr != NEWCOMERS
        or by_name
        or subject_of(metafunc.definition, config.rootpath) in {*_WHOLE, None}
    ):
        return
    calls = metafunc._calls  # pyright: ignore[reportPrivateUsage] - pytest offers no other way to take one back
    calls[:] = [call for index, call in enumerate(calls) if is_chosen(index, len(calls))]


def subject_of(item: pytest.Item, root: Path) -> str | None:
    """The directory of tests that has it, if one does."""
    tests, path = f"{root / 'tests'}{os.sep}", str(item.path)
    subject = path[len(tests) :].partition(os.sep)[0] if path.startswith(tests) else ""
    return subject if subject in SUBJECTS else None


def mark(items: Sequence[pytest.Item], root: Path) -> None:
    """Give each collected test the mark of its subject; ``fast`` if it is one of the inner loop, ``rest`` if CI alone runs it."""
    functions = [item.nodeid.partition("[")[0] for item in items]
    counts, seen, earlier = Counter(functions), Counter[str](), Counter[str]()
    for item, function in zip(items, functions, strict=True):
        if (subject := subject_of(item, root)) is None:
            continue
        item.add_marker(subject)
        index = seen[function]
        seen[function] += 1
        if subject not in _WHOLE and not is_chosen(index, counts[function]):
            item.add_marker("rest")
            continue
        marks = [each.name for each in item.iter_markers()]
        if is_fast(subject, earlier[function], marks, getattr(item, "fixturenames", ())):
            earlier[function] += 1
            item.add_marker("fast")
