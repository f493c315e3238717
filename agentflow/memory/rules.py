"""Decides which files are indexed: by size, kind, names that are never read, and ``.gitignore`` files."""

from __future__ import annotations

import codecs
import hashlib
from dataclasses import dataclass
from functools import lru_cache

from agentflow.lib.protected_names import PROTECTED, Protection
from agentflow.memory.gitignore import GitIgnore

SKIPPED_DIRECTORIES: frozenset[str] = frozenset((
    ".git", ".hg", ".svn", ".bzr", "node_modules", "__pycache__", ".venv", ".tox", ".nox", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".eggs", ".idea",
))  # fmt: skip
"""Directories without source code. Those with secrets are protected names, for the index as for file tools."""

_GENERATED = ("package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "go.sum")
_GENERATED_ENDINGS = (".lock", ".min.js", ".min.css", ".map")

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TEXT_CONTROLS = bytes({7, 8, 9, 10, 12, 13, 27} | set(range(0x20, 0x100)) - {0x7F})


@dataclass(frozen=True, slots=True)
class IndexRules:
    """The rules for which files an index holds.

    Parameters: ``max_bytes`` is the maximum size of an indexed file; ``max_files`` the maximum number of files over all roots;
    ``skip_directories`` are directory names never entered; ``protected`` name patterns never read, those that file tools
    refuse; ``history``: whether git's log is used; ``max_commits`` limits its length; commits that touch more than
    ``max_files_per_commit`` files are left out, since they say little about any of them.
    """

    max_bytes: int = 1_000_000
    max_files: int = 200_000
    skip_directories: frozenset[str] = SKIPPED_DIRECTORIES
    protected: tuple[str, ...] = PROTECTED
    history: bool = True
    max_commits: int = 10_000
    max_files_per_commit: int = 40

    def enters(self, path: str) -> bool:
        """Whether the directory ``path``, whose parent was entered, may contain files to index."""
        name = path.rpartition("/")[2]
        return name not in self.skip_directories and _protected(self.protected, path, name) is None

    def names_digest(self) -> str:
        """A digest of the inputs of :meth:`refuse`: names accepted before are accepted while it stays the same."""
        inputs = (sorted(self.skip_directories), self.protected, _GENERATED, _GENERATED_ENDINGS)
        return hashlib.blake2b(repr(inputs).encode(), digest_size=8).hexdigest()

    def refuse(self, path: str) -> str | None:
        """The reason to leave out the file ``path`` by its name alone, or None."""
        directory, _, name = path.rpartition("/")
        refused = _refused_directory(self.protected, self.skip_directories, directory) if directory else None
        if refused is not None:
            return refused
        protected = _protected(self.protected, path, name)
        if protected is not None:
            return protected
        if name in _GENERATED or (name.endswith(_GENERATED_ENDINGS) and name not in _GENERATED_ENDINGS):
            return "generated"
        return None


@lru_cache(maxsize=4096)
def _refused_directory(protected: tuple[str, ...], skipped: frozenset[str], directory: str) -> str | None:
    """The reason why nothing in a directory is indexed, or None. Cached, because it is asked for each of its files."""
    parts = directory.split("/")
    if not skipped.isdisjoint(parts):
        return "in a directory that is never indexed"
    return None if _protection(protected).find(parts) is None else "a protected name"


def _protected(protected: tuple[str, ...], path: str, name: str) -> str | None:
    """The reason to leave out ``path``, whose last component is ``name``, or None. The other components were checked before."""
    protection = _protection(protected)
    if protection.covers(name) or (protection.ends(name) and protection.find(path.split("/")) is not None):
        return "a protected name"
    return None


@lru_cache(maxsize=8)
def _protection(patterns: tuple[str, ...]) -> Protection:
    return Protection(patterns)


class IgnoreRules:
    """The ``.gitignore`` files from the root down to one directory; the deepest one that matches decides."""

    __slots__ = ("_levels",)

    def __init__(self, levels: tuple[tuple[str, GitIgnore], ...] = ()) -> None:
        self._levels = levels

    @property
    def any(self) -> bool:
        """Whether there are any ignore files."""
        return bool(self._levels)

    def extended(self, directory: str, text: str) -> IgnoreRules:
        """These rules and those of ``directory``'s ignore file, whose text is ``text``."""
        return IgnoreRules((*self._levels, (directory, GitIgnore(text))))

    def ignored(self, path: str, is_directory: bool) -> bool:
        """Whether ``path`` (relative to the root) is left out."""
        for directory, patterns in reversed(self._levels):
            verdict = patterns.verdict(path[len(directory) + 1 :] if directory else path, is_directory)
            if verdict is not None:
                return verdict
        return False


def is_binary(head: bytes) -> bool:
    """Whether the first 8 KB contain a NUL byte or more than a tenth control characters; UTF-16 text is not binary."""
    head = head[:8192]
    if head.startswith(_UTF16):
        head = head.decode("utf-16", "replace").encode("utf-8", "replace")
    if b"\0" in head:
        return True
    return bool(head) and len(head.translate(None, _TEXT_CONTROLS)) * 10 > len(head)


def decode(data: bytes) -> str:
    """Decode as UTF-16 if a byte-order mark says so, else as UTF-8 (without its mark), else as Latin-1, which cannot fail."""
    if data.startswith(_UTF16):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


LANGUAGES: dict[str, str] = {
    **dict.fromkeys(("py", "pyi", "pyx"), "python"),
    **dict.fromkeys(("js", "mjs", "cjs", "jsx", "ts", "tsx", "mts", "vue", "svelte"), "javascript"),
    **dict.fromkeys(("c", "h", "cc", "cpp", "cxx", "hpp", "hh", "hxx", "m", "mm", "cu"), "c"),
    **dict.fromkeys(("java", "kt", "kts", "scala", "cs", "groovy", "swift", "dart"), "java"),
    **dict.fromkeys(("sh", "bash", "zsh", "fish", "ps1"), "shell"),
    **dict.fromkeys(("sexp", "lisp", "el", "clj", "cljs", "scm", "rkt", "hy", "cl"), "lisp"),
    **dict.fromkeys(("md", "rst", "txt", "adoc", "org", "tex", "markdown", "texi"), "prose"),
    **dict.fromkeys(("json", "yaml", "yml", "toml", "ini", "cfg", "csv", "tsv", "xml", "po", "pot", "svg"), "data"),
    "go": "go", "rs": "rust", "rb": "ruby", "php": "php", "lua": "lua", "pl": "perl", "pm": "perl", "ex": "elixir",
    "exs": "elixir", "erl": "erlang", "hs": "haskell", "ml": "ocaml", "r": "r", "jl": "julia", "sql": "sql",
    "proto": "proto", "css": "style", "scss": "style", "less": "style", "html": "markup", "htm": "markup",
}  # fmt: skip
"""Language by file-name suffix."""


_INTERPRETERS: tuple[tuple[str, str], ...] = (
    ("python", "python"), ("node", "javascript"), ("perl", "perl"), ("ruby", "ruby"), ("php", "php"), ("lua", "lua"),
    ("guile", "lisp"), ("sh", "shell"),
)  # fmt: skip


def language(path: str, text: str = "") -> str:
    """The language of a file by its suffix, else by the interpreter in its first line; ``text`` if unknown."""
    name = path.rsplit("/", 1)[-1]
    by_suffix = LANGUAGES.get(name.rsplit(".", 1)[-1].lower()) if "." in name else None
    if by_suffix is not None:
        return by_suffix
    if text.startswith("#!"):
        interpreter = text[:120].split("\n", 1)[0]
        return next((kind for word, kind in _INTERPRETERS if word in interpreter), "text")
    return "text"
