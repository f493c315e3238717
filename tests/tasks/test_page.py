"""docs/tasks.md is executed: what it says is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentflow.tasks.template_registry import compile_template
from agentflow.tasks.xml import parse_templates

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[f"block-{number}" for number in range(1, len(BLOCKS) + 1)])
def test_python_blocks_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block runs as it stands, without key or network."""
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/tasks.md", "exec"), {"__name__": "__main__"})


def test_the_template_file_loads() -> None:
    """The XML shown is a template."""
    (text,) = re.findall(r"^```xml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert compile_template(parse_templates(text)[0]).output.schema == {"type": "array", "items": {"type": "string"}}
