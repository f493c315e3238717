"""Which file names are names at all, and which are protected.

Everything here looks at text only and touches no disk: a protected name is refused whether or not it exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase

from agentflow.core.errors import PathDenied
from agentflow.lib.terminal import escape

MAX_NAME = 255
"""Longest path component in bytes (NAME_MAX of Linux file systems)."""
MAX_PATH = 4_096
"""Longest path in bytes (PATH_MAX)."""

PROTECTED: tuple[str, ...] = (
    # what git runs and where it keeps credentials
    ".git",
    ".git-credentials",
    ".gitconfig",
    ".gitmodules",
    # what a shell runs when it starts
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cshrc",
    ".envrc",
    ".kshrc",
    ".login",
    ".profile",
    ".tcshrc",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    # keys and tokens
    ".aws",
    ".env",
    ".env.*",
    ".gnupg",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".ssh",
    # what agentflow itself obeys
    ".agentflow",
    "agentflow.toml",
)
"""Name patterns that files and directories below a root may not match, for reading as for writing."""

CONFIDENTIAL: tuple[str, ...] = (
    ".aws",
    ".env",
    ".env.*",
    ".git-credentials",
    ".gnupg",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".ssh",
)
"""Those of the protected names that hold secrets; the others may be read where a command needs them, not changed."""

UNPROTECTED: tuple[str, ...] = (".env.example", ".env.sample", ".env.template")
"""Names that match a protected pattern and are harmless."""


class Protection:
    """Decides whether a path component is protected.

    Parameters: ``patterns`` are shell patterns (``.env.*``) matched without regard to case, because a file system may
    not regard it either; ``except_for`` are names that stay free.
    """

    __slots__ = ("_exact", "_free", "_globs")

    def __init__(self, patterns: Iterable[str] = PROTECTED, *, except_for: Iterable[str] = UNPROTECTED) -> None:
        folded = [pattern.casefold() for pattern in patterns]
        self._exact = frozenset(pattern for pattern in folded if not set(pattern) & set("*?["))
        self._globs = tuple(pattern for pattern in folded if set(pattern) & set("*?["))
        self._free = frozenset(name.casefold() for name in except_for)

    def covers(self, name: str) -> bool:
        """Whether the single component ``name`` is protected."""
        # Windows-mounted and macOS file systems ignore trailing dots and blanks, so ".git." opens ".git" there.
        folded = name.casefold().rstrip(". ")
        if folded in self._exact:
            return True
        if not self._globs or folded in self._free:
            return False
        return any(fnmatchcase(folded, pattern) for pattern in self._globs)

    def check(self, parts: Iterable[str], path: str) -> None:
        """Refuse ``path`` when one of its ``parts`` is protected. Raises PathDenied (``files/protected``)."""
        for part in parts:
            if self.covers(part):
                raise PathDenied(
                    f"{shown(path)}: {shown(part)} is a protected name",
                    code="files/protected",
                    hint="protected names hold secrets or are run by other programs; "
                    "the host may pass its own list with FileAccessManager(protected=...)",
                )


def shown(path: str) -> str:
    """``path`` as it may stand in a message: quoted, controls escaped, at most 200 characters."""
    text = path if len(path) <= 200 else f"{path[:120]}...{path[-60:]}"
    return repr(escape(text))


def check_text(path: object) -> str:
    """``path`` as a string that can be given to the kernel.

    Raises PathDenied (``files/name``) for anything that is no text, empty, over-long, holds a NUL or cannot be encoded.
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
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise PathDenied(f"{shown(path)}: not encodable as a file name", code="files/name") from None
    if len(raw) > MAX_PATH:
        raise PathDenied(f"the path has {len(raw)} bytes, at most {MAX_PATH} are possible", code="files/name")
    for part in raw.split(b"/"):
        if len(part) > MAX_NAME:
            raise PathDenied(
                f"{shown(path)}: a name has {len(part)} bytes, at most {MAX_NAME} are possible", code="files/name"
            )
    return path


def split(path: str) -> tuple[str, ...] | None:
    """The components of ``path`` with ``.`` and ``..`` taken out as text; None when it climbs above its start."""
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
