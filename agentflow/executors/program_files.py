"""The files of the workspace that a command would execute: what an approval of the command also covers.

A command names more than its program: the script an interpreter is given, a file with a ``#!`` line, the makefile. Any
of them may be changed between the approval and the start, with the times of the old file put back. So their contents
are hashed before the question, and again right before the start.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from agentflow.core.errors import FileFailure, PathDenied
from agentflow.executors.file_access import FileAccessManager

MAX_FILES = 64
"""Files of one command that are looked at."""
MAX_KEPT = 8_000_000
"""Bytes kept of one file, so that the sandbox can be given what was approved; a larger one is only hashed."""
_CHUNK = 1 << 20

_SUFFIXES = frozenset((
    ".awk", ".bash", ".bat", ".cjs", ".fish", ".js", ".ksh", ".lua", ".mjs", ".php", ".pl", ".ps1", ".py", ".r", ".rb",
    ".sed", ".sexp", ".sh", ".tcl", ".ts", ".zsh",
))  # fmt: skip
_IMPLIED: dict[str, tuple[str, ...]] = {
    "cargo": ("Cargo.toml", "build.rs"),
    "gmake": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "ninja": ("build.ninja",),
    "nox": ("noxfile.py",),
    "npm": ("package.json",),
    "npx": ("package.json",),
    "pnpm": ("package.json",),
    "pytest": ("conftest.py",),
    "tox": ("tox.ini",),
    "yarn": ("package.json",),
}
"""Files of the working directory that a program executes without being told."""


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A file that a command executes: its absolute ``path``, the ``digest`` of its content, and the ``content`` itself.

    ``content`` is None for a file of more than :data:`MAX_KEPT` bytes; ``mode`` are its permission bits.
    """

    path: str
    digest: str
    mode: int
    content: bytes | None


def program_files(
    files: FileAccessManager, executable: str, argv: tuple[str, ...], cwd: str
) -> tuple[ProgramFile, ...]:
    """The files within the roots of ``files`` that the command would execute, by path. Blocking.

    ``executable`` is the program, ``argv`` its arguments, ``cwd`` the directory it starts in. Files that cannot be read
    are left out: neither could the command read them.
    """
    found: dict[str, ProgramFile] = {}
    for path, certain in _candidates(executable, argv, cwd):
        if path in found or len(found) >= MAX_FILES:
            continue
        entry = _read(files, path, certain)
        if entry is not None:
            found[path] = entry
    return tuple(found[path] for path in sorted(found))


def _candidates(executable: str, argv: tuple[str, ...], cwd: str) -> Iterable[tuple[str, bool]]:
    """Paths that the command may execute, and whether it does whatever they look like."""
    yield executable, True
    for name in _IMPLIED.get(os.path.basename(executable), ()):
        yield os.path.join(cwd, name), True
    words = list(argv[1:])
    for word in argv[1:]:
        if any(char.isspace() for char in word):
            try:
                words += shlex.split(word, comments=True)
            except ValueError:
                words += word.split()
    for word in words:
        for name in (word, word.partition("=")[2]):
            if name and "\0" not in name:
                yield os.path.normpath(os.path.join(cwd, name)), False


def _read(files: FileAccessManager, path: str, certain: bool) -> ProgramFile | None:
    try:
        descriptor = files.open_file(path)
    except (PathDenied, FileFailure):
        return None
    try:
        status = os.fstat(descriptor)
        first = os.read(descriptor, _CHUNK)
        executed = certain or status.st_mode & 0o111 or first.startswith(b"#!")
        if not executed and os.path.splitext(path)[1].lower() not in _SUFFIXES:
            return None
        return _hashed(path, descriptor, first, stat.S_IMODE(status.st_mode))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _hashed(path: str, descriptor: int, first: bytes, mode: int) -> ProgramFile:
    digest = hashlib.blake2b(first, digest_size=16)
    pieces = [first]
    size = len(first)
    while piece := os.read(descriptor, _CHUNK):
        digest.update(piece)
        size += len(piece)
        if size <= MAX_KEPT:
            pieces.append(piece)
    return ProgramFile(path, digest.hexdigest(), mode, b"".join(pieces) if size <= MAX_KEPT else None)
