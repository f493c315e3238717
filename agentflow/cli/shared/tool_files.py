"""Tools that a program calls, named on the command line by the files that define them; they are never called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentflow.cli.shared.common import UsageError
from agentflow.core.ports.ports import Tool


def tool_files(texts: Sequence[str]) -> dict[str, Path]:
    """Parse ``search=tools.py`` to files by tool name. Raises UsageError."""
    files: dict[str, Path] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path:
            raise UsageError(f"'{text}' does not name a tool and its file", hint="write --tool NAME=FILE.py")
        files[name] = Path(path)
    return files


def tools_in_files(texts: Sequence[str]) -> list[Tool]:
    """The tools in options such as ``search=tools.py``. Raises UsageError, and ConfigurationError (``explore/tool``)."""
    if not texts:
        return []
    from agentflow.testing.written import load_tool

    return [load_tool(name, file) for name, file in tool_files(texts).items()]
