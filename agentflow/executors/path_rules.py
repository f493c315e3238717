"""Rules for valid file names. They look at the text only and never at the disk."""

from __future__ import annotations

import os

from agentflow.core.data.errors import PathDenied
from agentflow.lib.file_writer import text_name
from agentflow.lib.text.terminal import shown

MAX_NAME = 255
"""Longest path component in bytes (NAME_MAX of Linux file systems)."""
MAX_PATH = 4_096
"""Longest path in bytes (PATH_MAX)."""


def check_text(path: object) -> str:
    """The file name that ``path`` denotes (:func:`~agentflow.lib.file_writer.text_name`), if the kernel accepts it.

    Raises PathDenied (``files/name``) if it is not text, empty, too long, contains a NUL or cannot be encoded.
    """
    if not isinstance(path, str):
        raise PathDenied(
            f"a path is text, not {type(path).__name__}", code="files/name", hint='write it as "dir/file.txt"'
        )
    if not path:
        raise PathDenied("the path is empty", code="files/name", hint='"." names the root itself')
    if "\0" in path:
        raise PathDenied(f"{shown(path)}: a path cannot hold a NUL character", code="files/name")
    try:
        name = text_name(path)
        raw = os.fsencode(name)
    except UnicodeEncodeError:
        raise PathDenied(f"{shown(path)}: it cannot be encoded as a file name", code="files/name") from None
    if len(raw) > MAX_PATH:
        raise PathDenied(f"the path has {len(raw)} bytes, the maximum is {MAX_PATH}", code="files/name")
    for part in raw.split(b"/"):
        if len(part) > MAX_NAME:
            raise PathDenied(
                f"{shown(path)}: a name has {len(part)} bytes, the maximum is {MAX_NAME}", code="files/name"
            )
    return name


def split(path: str) -> tuple[str, ...] | None:
    """The components of ``path`` with ``.`` and ``..`` resolved as text; None if it climbs above its start."""
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not parts:
                return None
            parts.pop()
        else:
            parts.append(part)
    return tuple(parts)
