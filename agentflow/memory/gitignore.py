"""Matches ``.gitignore`` patterns as git does, in time linear in pattern and name.

The rules are those of git's ``dir.c`` and ``wildmatch.c``, quirks included: names are compared byte by byte, a literal
prefix is removed from pattern and name before wildcards are matched, and a malformed pattern matches nothing. A pattern
becomes one regular expression per part between slashes. Its stars are matched from left to right in atomic groups,
which is exact, because the text between two stars has a fixed length, and never backtracks; ``**`` is matched over
whole parts in the same way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

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
    """A pattern with a slash: a literal ``prefix``, then ``parts``, in which None is ``**``."""

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
    """The expression of a character set whose contents begin at ``at``, and the index after it."""
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
    """What matches a name that any of ``expressions`` matches; None if they are too many to be worth it."""
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
