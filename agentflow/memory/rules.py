"""Decides which files are indexed: by size, kind, names never read, and ``.gitignore`` files."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from agentflow.core.data.frozen import frozen
from agentflow.lib.protected_names import PROTECTED, Protection

MAX_PATTERNS = 20_000
"""Maximum number of patterns read from one file; later ones are ignored."""
MAX_PATTERN = 4_096
"""Maximum length of a pattern in characters; no path is longer."""
_TOGETHER = 100
"""So many patterns are tried as one first, since hardly a name matches any."""

_SPECIAL = frozenset("*?[\\")
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t-\\r ",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


class _Unmatchable(Exception):
    """The pattern is malformed; git lets it match nothing."""


class _Star(NamedTuple):
    """A run of ``length`` asterisks."""

    length: int


_SLASH = ""  # marks a slash among the elements of a pattern, which otherwise match one character each


class _PathPattern(NamedTuple):
    """A pattern with a slash: a literal ``prefix``, then ``parts``, with None for ``**``."""

    order: int
    include: bool
    directory: bool
    prefix: str
    parts: tuple[re.Pattern[str] | None, ...]


class _NamePattern(NamedTuple):
    """A pattern without a slash: compared with the last name of a path."""

    order: int
    include: bool
    directory: bool
    match: re.Pattern[str]


class _Literal(NamedTuple):
    """The rule behind an exact name or path, or a suffix."""

    order: int
    include: bool
    directory: bool


class GitIgnore:
    """The patterns of one ``.gitignore`` file.

    Parameters: ``text`` of the file. A malformed pattern matches nothing.
    """

    __slots__ = ("_any_pattern", "_endings", "_exact", "_names", "_paths", "_patterns", "_tails")

    def __init__(self, text: str) -> None:
        self._names: dict[str, list[_Literal]] = {}
        self._exact: dict[str, list[_Literal]] = {}
        self._endings: dict[str, list[_Literal]] = {}
        self._patterns: list[_NamePattern] = []
        self._paths: list[_PathPattern] = []
        for order, line in enumerate(text.removeprefix("\ufeff").split("\n")[:MAX_PATTERNS]):
            if line and not line.startswith("#") and len(line) <= MAX_PATTERN:
                self._add(order, _as_bytes(_trimmed(line.removesuffix("\r"))))
        self._tails = tuple(self._endings)
        self._patterns.reverse()
        self._paths.reverse()
        self._any_pattern = _any_of([rule.match for rule in self._patterns])

    def _add(self, order: int, pattern: str) -> None:
        include = pattern.startswith("!")
        pattern = pattern[1:] if include else pattern
        directory = pattern.endswith("/")
        pattern = pattern[:-1] if directory else pattern
        literal = _literal_length(pattern)
        try:
            if "/" in pattern:
                anchored = pattern.removeprefix("/")
                literal = max(0, literal - (len(pattern) - len(anchored)))
                if anchored and literal == len(anchored):
                    self._exact.setdefault(anchored, []).append(_Literal(order, include, directory))
                    return
                parts = _parts(anchored[literal:])
                self._paths.append(_PathPattern(order, include, directory, anchored[:literal], parts))
            elif literal == len(pattern):
                self._names.setdefault(pattern, []).append(_Literal(order, include, directory))
            elif pattern[0] == "*" and _literal_length(pattern[1:]) == len(pattern) - 1:
                self._endings.setdefault(pattern[1:], []).append(_Literal(order, include, directory))
            else:
                expression = _expression(_elements(pattern))
                self._patterns.append(_NamePattern(order, include, directory, expression))
        except _Unmatchable:
            pass

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """Whether ``path``, relative to the file's directory, is ignored; None if no pattern matches.

        The parents of ``path`` are not checked: below an ignored directory nothing can be included again.
        """
        path = _as_bytes(path)
        name = path.rpartition("/")[2]
        best = -1
        include = False
        candidates: list[_Literal] = []
        for literals in (self._names.get(name), self._exact.get(path)):
            if literals is not None:
                candidates += literals
        if self._tails and name.endswith(self._tails):
            candidates += [rule for tail in self._tails if name.endswith(tail) for rule in self._endings[tail]]
        for rule in candidates:
            if rule.order > best and (is_directory or not rule.directory):
                best, include = rule.order, rule.include
        any_pattern = self._any_pattern
        for rule in self._patterns if any_pattern is None or any_pattern.fullmatch(name) else ():
            if rule.order <= best:
                break
            if (is_directory or not rule.directory) and rule.match.fullmatch(name):
                best, include = rule.order, rule.include
                break
        for rule in self._paths:
            if rule.order <= best:
                break
            if path.startswith(rule.prefix) and (is_directory or not rule.directory) and _path_matches(rule, path):
                best, include = rule.order, rule.include
                break
        return None if best < 0 else not include


def _as_bytes(text: str) -> str:
    """``text`` with one character per byte of its encoding, because git compares bytes."""
    return text if text.isascii() else os.fsencode(text).decode("latin-1")


def _trimmed(line: str) -> str:
    """``line`` without trailing spaces, unless a backslash escapes one. Tabs stay, as in git."""
    end = None
    at = 0
    while at < len(line):
        if line[at] == " ":
            end = at if end is None else end
        else:
            end = None
            at += line[at] == "\\"
        at += 1
    return line if end is None else line[:end]


def _literal_length(pattern: str) -> int:
    """Number of characters before the first special one."""
    return next((at for at, char in enumerate(pattern) if char in _SPECIAL), len(pattern))


def _parts(pattern: str) -> tuple[re.Pattern[str] | None, ...]:
    """The pattern as one expression per part between slashes, None for the part ``**``."""
    elements = _elements(pattern)
    parts: list[re.Pattern[str] | None] = []
    begin = 0
    for end in [at for at, element in enumerate(elements) if element == _SLASH] + [len(elements)]:
        part = elements[begin:end]
        begin = end + 1
        whole = len(part) == 1 and isinstance(part[0], _Star) and part[0].length > 1
        parts.append(None if whole else _expression(part))
    return tuple(parts)


def _elements(pattern: str) -> list[str | _Star]:
    """The elements of a pattern: a regular expression per character, stars, and slashes."""
    elements: list[str | _Star] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            count = len(pattern) - at - len(pattern[at:].lstrip("*"))
            elements.append(_Star(count))
            at += count
        elif char == "?":
            elements.append("[^/]")
            at += 1
        elif char == "[":
            expression, at = _bracket(pattern, at + 1)
            elements.append(expression)
        else:
            if char == "\\":
                at += 1
                if at == len(pattern):
                    raise _Unmatchable
                char = pattern[at]
            elements.append(_SLASH if char == "/" else re.escape(char))
            at += 1
    return elements


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """The expression of a character set with contents from ``at`` on, and the index after it."""
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    items: list[str] = []
    previous: str | None = None
    first = True
    while first or pattern[at : at + 1] != "]":
        first = False
        char = pattern[at : at + 1]
        if not char:
            raise _Unmatchable
        if char == "-" and previous is not None and pattern[at + 1 : at + 2] not in ("", "]"):
            at += 1
            at += pattern[at] == "\\"
            last = pattern[at : at + 1]
            if not last:
                raise _Unmatchable
            if previous <= last:
                items.append(f"{re.escape(previous)}-{re.escape(last)}")
            previous = None
        elif char == "[" and pattern[at + 1 : at + 2] == ":":
            end = pattern.find("]", at + 2)
            if end < 0:
                raise _Unmatchable
            if end - at < 3 or pattern[end - 1] != ":":
                items.append("\\[")
                previous = "["
            else:
                named = _CLASSES.get(pattern[at + 2 : end - 1])
                if named is None:
                    raise _Unmatchable
                items.append(named)
                previous = None
                at = end
        else:
            if char == "\\":
                at += 1
                char = pattern[at : at + 1]
                if not char:
                    raise _Unmatchable
            items.append(re.escape(char))
            previous = char
        at += 1
    inside = "".join(items)
    if negated:
        return f"[^/{inside}]", at + 1
    return (f"(?!/)[{inside}]" if inside else "(?!)"), at + 1


def _expression(elements: Sequence[str | _Star]) -> re.Pattern[str]:
    """The expression of one part: each star takes as little as possible, without backtracking."""
    segments: list[str] = [""]
    for element in elements:
        if isinstance(element, _Star):
            segments.append("")
        else:
            segments[-1] += element
    first, *rest = segments
    middle = "".join([f"(?>[^/]*?{segment})" for segment in rest[:-1] if segment])
    last = f"[^/]*{rest[-1]}" if rest else ""
    return re.compile(first + middle + last, re.DOTALL)


def _any_of(expressions: Sequence[re.Pattern[str]]) -> re.Pattern[str] | None:
    """A matcher for names that any of ``expressions`` matches; None if there are too many to be worth it."""
    if len(expressions) > _TOGETHER:
        return None
    return re.compile("|".join([f"(?:{each.pattern})" for each in expressions]) or "(?!)", re.DOTALL)


def _path_matches(rule: _PathPattern, path: str) -> bool:
    """Whether ``path``, which begins with the rule's prefix, matches."""
    parts = rule.parts
    names = path[len(rule.prefix) :].split("/")
    ends, end = len(parts), len(names)
    at = name = 0
    retry_at = retry_name = -1
    while True:
        if at < ends and parts[at] is None:
            if at == ends - 1:
                return name < end
            at += 1
            retry_at, retry_name = at, name
            continue
        if name < end and at < ends and (expression := parts[at]) is not None:
            if expression.fullmatch(names[name]):
                at += 1
                name += 1
                continue
        elif name == end and at == ends:
            return True
        if retry_at < 0 or retry_name >= end:
            return False
        retry_name += 1
        at, name = retry_at, retry_name


SKIPPED_DIRECTORIES: frozenset[str] = frozenset((
    ".git", ".hg", ".svn", ".bzr", "node_modules", "__pycache__", ".venv", ".tox", ".nox", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".eggs", ".idea",
))  # fmt: skip
"""Directories without source code. Those with secrets are protected names, for the index as for file tools."""

_GENERATED = ("package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "go.sum")
_GENERATED_ENDINGS = (".lock", ".min.js", ".min.css", ".map")

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TEXT_CONTROLS = bytes({7, 8, 9, 10, 12, 13, 27} | set(range(0x20, 0x100)) - {0x7F})


@frozen
class IndexRules:
    """The rules for the files of an index.

    Parameters: ``max_bytes`` is the maximum size of an indexed file; ``max_files`` the maximum number of files over all
    roots; ``skip_directories`` are directory names never entered; ``protected`` name patterns never read, those that file
    tools refuse; ``history``: whether git's log is used; ``max_commits`` limits its length; commits that touch more than
    ``max_files_per_commit`` files are left out, since they carry little information about any of them.
    """

    max_bytes: int = 1_000_000
    max_files: int = 200_000
    skip_directories: frozenset[str] = SKIPPED_DIRECTORIES
    protected: tuple[str, ...] = PROTECTED
    history: bool = True
    max_commits: int = 10_000
    max_files_per_commit: int = 40

    def enters(self, path: str) -> bool:
        """Whether the directory ``path``, inside an entered one, may contain files to index."""
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
    """The reason to leave out ``path``, with ``name`` as its last component, or None. The other components were checked before."""
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
        """These rules and those of ``directory``'s ignore file with the text ``text``."""
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
