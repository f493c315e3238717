"""The page on tools is executed: what it says is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tools.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


@pytest.mark.parametrize("code", BLOCKS, ids=[f"block {number}" for number in range(1, len(BLOCKS) + 1)])
def test_blocks_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block of docs/tools.md runs as it stands."""
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})
