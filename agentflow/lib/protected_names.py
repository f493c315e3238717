"""The protected names below a root: the one list that file tools, the index and the sandbox obey.

The rules look at the text only and never at the disk: a protected name is refused whether or not it exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

from agentflow.core.data.errors import PathDenied
from agentflow.lib.text.safe_text import shown

CONFIDENTIAL: tuple[str, ...] = (
    ".aws", ".docker/config.json", ".env", ".env.*", ".git-credentials", ".gnupg", ".htpasswd", ".kube/config", ".netrc",
    ".npmrc", ".pgpass", ".pypirc", ".ssh", "*.jks", "*.key", "*.keystore", "*.p12", "*.pem", "*.pfx", "_netrc",
    "credentials.json", "id_dsa*", "id_ecdsa*", "id_ed25519*", "id_rsa*",
)  # fmt: skip
"""Files and directories that hold secrets: not read, written or indexed, and hidden from commands."""

OBEYED: tuple[str, ...] = (
    # programs that git runs
    ".git", ".gitconfig", ".gitmodules",
    # start-up files of shells
    ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".cshrc", ".envrc", ".kshrc", ".login", ".profile",
    ".tcshrc", ".zlogin", ".zlogout", ".zprofile", ".zshenv", ".zshrc",
    # configuration of agentflow and of other agents
    ".agentflow", "agentflow.toml", ".mcp.json", ".claude/settings.json", ".claude/settings.local.json",
)  # fmt: skip
"""Names that shells, git and agents obey, and that may hold secrets too: neither read nor written by tools."""

EXECUTED: tuple[str, ...] = (
    ".gitattributes", ".github/workflows", ".husky", ".pre-commit-config.yaml", ".vimrc", ".vscode/settings.json",
    ".vscode/tasks.json",
)  # fmt: skip
"""Names that editors, hooks and CI execute: read and indexed like any other, not written by tools."""

PROTECTED: tuple[str, ...] = (*CONFIDENTIAL, *OBEYED)
"""Name patterns of files and directories below a root that may be neither read nor written."""

UNPROTECTED: tuple[str, ...] = (".env.dist", ".env.example", ".env.sample", ".env.template")
"""Harmless names that match a protected pattern."""


class Protection:
    """Decides whether a path is protected.

    Parameters: ``patterns`` shell patterns of one component (``.env.*``), or consecutive components joined by slashes
    (``.github/workflows``), matched without regard to case, as some file systems do; ``except_for`` unprotected
    names.
    """

    __slots__ = ("_endings", "_ends", "_exact", "_free", "_globs", "_rows", "_starts")

    def __init__(self, patterns: Iterable[str] = PROTECTED, *, except_for: Iterable[str] = UNPROTECTED) -> None:
        folded = [pattern.casefold() for pattern in patterns]
        single = [pattern for pattern in folded if "/" not in pattern]
        self._exact = frozenset(filter(_is_literal, single))
        wild = [pattern for pattern in single if not _is_literal(pattern)]
        self._starts = tuple([each[:-1] for each in wild if each.endswith("*") and _is_literal(each[:-1])])
        self._endings = tuple([each[1:] for each in wild if each.startswith("*") and _is_literal(each[1:])])
        globs = [each for each in wild if not _is_literal(each[:-1]) and not _is_literal(each[1:])]
        self._globs = re.compile("|".join(map(translate, globs))) if globs else None
        self._rows = tuple(tuple(pattern.split("/")) for pattern in folded if "/" in pattern)
        self._ends = frozenset(row[-1] for row in self._rows)
        self._free = frozenset(name.casefold() for name in except_for)

    def covers(self, name: str) -> bool:
        """Whether the single component ``name`` is protected by itself."""
        folded = _folded(name)
        if folded in self._exact:
            return True
        matches = (
            folded.startswith(self._starts)
            or folded.endswith(self._endings)
            or (self._globs is not None and self._globs.match(folded) is not None)
        )
        return matches and folded not in self._free

    def ends(self, name: str) -> bool:
        """Whether ``name`` may be the last of consecutive protected components."""
        return _folded(name) in self._ends

    def find(self, parts: Sequence[str]) -> str | None:
        """The protected component, or consecutive components, of a path; None if there are none."""
        for part in parts:
            if self.covers(part):
                return part
        if self._rows and len(parts) > 1:
            folded = tuple([_folded(part) for part in parts])
            for row in () if self._ends.isdisjoint(folded) else self._rows:
                for at in range(len(folded) - len(row) + 1):
                    if folded[at : at + len(row)] == row:
                        return "/".join(parts[at : at + len(row)])
        return None

    def check(self, parts: Iterable[str], path: str) -> None:
        """Refuse ``path`` if one of its ``parts`` is protected. Raises PathDenied (``files/protected``)."""
        name = self.find(tuple(parts))
        if name is not None:
            raise PathDenied(
                f"{shown(path)}: {shown(name)} is a protected name",
                code="files/protected",
                hint="protected names hold secrets or are run by other programs; "
                "the host may pass its own list with FileAccessManager(protected=...)",
            )


def _is_literal(pattern: str) -> bool:
    return not set(pattern) & set("*?[")


def _folded(name: str) -> str:
    # Windows-mounted and macOS file systems ignore trailing dots and blanks, so ".git." opens ".git" there.
    return name.casefold().rstrip(". ")
