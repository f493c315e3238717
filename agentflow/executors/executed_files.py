"""Finds the files of the workspace that a command would execute, which its approval also covers.

A command may execute more than its program: a script passed to an interpreter, a file with a ``#!`` line, a makefile.
Any of them may be changed between approval and start, with its old times restored. So their contents are hashed before
the approver is asked, and again right before the start.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Iterable

from agentflow.core.data.errors import FileFailure, PathDenied
from agentflow.core.data.frozen import frozen
from agentflow.executors.file_access import FileAccessManager

MAX_FILES = 64
"""Maximum number of files examined per command."""
MAX_KEPT = 8_000_000
"""Maximum size of a file with its content kept, so that the sandbox runs the approved one; larger files are only hashed."""
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
"""Files of the working directory that a program executes by default, by program."""


@frozen
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
    """The files within the roots of ``files`` that the command would execute, sorted by path. Blocking.

    ``executable`` is the program, ``argv`` its arguments, ``cwd`` its working directory. Files that cannot be read are
    left out: the command could not read them either.
    """
    entries: dict[str, ProgramFile] = {}
    for path, certain in _candidates(executable, argv, cwd):
        if path in entries or len(entries) >= MAX_FILES:
            continue
        entry = _read(files, path, certain)
        if entry is not None:
            entries[path] = entry
    return tuple(entries[path] for path in sorted(entries))


def _candidates(executable: str, argv: tuple[str, ...], cwd: str) -> Iterable[tuple[str, bool]]:
    """Paths that the command may execute, each with whether it does so regardless of the content."""
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
