"""Files that the user has looked at: their digests, in the state directory.

A directory's settings may come with somebody else's project. What in them would widen what agentflow may do is read only from
a file that the user has said to trust, as it is, and with the programs that it would run as they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from agentflow.lib.private_files import state_path, write_private

FILE_NAME = "agentflow.toml"
"""The settings of a directory."""


def _store() -> Path:
    return state_path() / "trusted.json"


def _trusted() -> dict[str, str]:
    try:
        read: Any = json.loads(_store().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, str]", read) if isinstance(read, dict) else {}


def is_trusted(path: Path, digest: str) -> bool:
    """Whether the file ``path`` was trusted with what has this digest. Blocking."""
    return _trusted().get(str(path.resolve())) == digest


def trust(path: Path, digest: str | None) -> None:
    """Trust the file ``path`` with what has this digest, and nothing else; None: no more. Raises OSError. Blocking."""
    trusted = _trusted()
    trusted.pop(str(path.resolve()), None)
    if digest is not None:
        trusted[str(path.resolve())] = digest
    write_private(_store(), json.dumps(trusted, indent=1))


__all__ = ["FILE_NAME", "is_trusted", "trust"]
