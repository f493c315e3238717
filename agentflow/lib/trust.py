"""Files that the user has looked at: their digests, in the state directory.

A directory's settings may come with somebody else's project. What in them would start programs is read only from a file
whose content, byte for byte, the user has said to trust.
"""

from __future__ import annotations

import json
from hashlib import sha256
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


def is_trusted(path: Path, content: bytes) -> bool:
    """Whether the file ``path`` was trusted with this content. Blocking."""
    return _trusted().get(str(path.resolve())) == sha256(content).hexdigest()


def trust(path: Path, content: bytes | None) -> None:
    """Trust the file ``path`` with this content, and no other; None: no more. Raises OSError. Blocking."""
    trusted = _trusted()
    trusted.pop(str(path.resolve()), None)
    if content is not None:
        trusted[str(path.resolve())] = sha256(content).hexdigest()
    write_private(_store(), json.dumps(trusted, indent=1))


__all__ = ["FILE_NAME", "is_trusted", "trust"]
