"""docs/specification.md names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import agentflow
from agentflow.spec.host_tasks import LOOKED_UP, RUN

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "specification.md").read_text("utf-8")


def test_its_classes_files_and_tests_exist() -> None:
    """Each class is exported and defined in the file beside it, and each test file is there."""
    rows = re.findall(r"^\| [^|]*\| (?:`(\w+)`)? ?\| `(agentflow/[\w/.]+)` \| (.*) \|$", PAGE, re.M)
    assert len(rows) >= 12
    for name, path, tests in rows:
        text = (ROOT / path).read_text("utf-8")
        if name:
            assert name in agentflow.__all__ and (f"class {name}" in text or path.endswith("tasks/runner.py"))
        for test in re.findall(r"`(tests/[\w/.]+)`", tests):
            assert (ROOT / test).is_file(), test


def test_its_methods_exist() -> None:
    """Each method that the others call is one of the class, and those of the task system are those that are asked."""
    table = PAGE.partition("| class | the others call |")[2].partition("\n\n")[0]
    for name, methods in re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.M):
        for method in re.findall(r"`([a-z_]+)`", methods):
            assert callable(getattr(getattr(agentflow, name), method)), f"{name}.{method}"
        if name == "TaskSystem":
            assert set(re.findall(r"`([a-z_]+)`", methods)) == {*LOOKED_UP, *RUN}
