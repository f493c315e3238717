"""Finds the names a file defines with one regular expression per language: cheap, and accurate enough for ranking."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

MAX_SYMBOLS = 2_000
"""Symbols kept per file; generated files have more and mean less."""

_WORDS = r"(?:[\w@]+(?:\([^()\n]*\))?[ \t]++){0,6}?"
"""Modifiers before a keyword: ``export default``, ``pub(crate) async``, ``@Override public static``."""
_FUNCTION = r"function(?<!\wfunction)"

_PATTERNS: dict[str, tuple[re.Pattern[str], ...]] = {
    language: tuple(re.compile(pattern, re.M) for pattern in patterns)
    for language, patterns in {
        "python": [r"\n(?:[ \t]*+(?:async[ \t]+def|def|class)[ \t]+(\w+)|([A-Z][A-Z0-9_]{2,})[ \t]*[:=])"],
        "javascript": [
            _FUNCTION + r"\*?[ \t]+(\w+)",
            r"\n[ \t]*+(?:(?:export|default|declare|abstract)[ \t]+)*+"
            r"(?:(?:class|interface|enum|type|namespace)[ \t]+(\w+)"
            r"|(?:const|let|var)[ \t]+(\w+)[ \t]*=[ \t]*(?:async\b|function\b|\()"
            r"|(?<=[ \t])(?:async[ \t]+|static[ \t]+|get[ \t]+|set[ \t]+)?+(\w+)\([^)\n]*\)[ \t]*\{)",
        ],
        "c": [
            r"\n(?:[ \t]*+(?:#[ \t]*define[ \t]+(\w+)"
            r"|(?:typedef[ \t]+|static[ \t]+|const[ \t]+|export[ \t]+|inline[ \t]+|template[^\n]{0,80}>[ \t]*)*+"
            r"(?:struct|enum[ \t]+class|enum|union|class|namespace)[ \t]+(\w+)(?=[^;*()\n]*$|[^;\n]*\{))"
            r"|(?=[A-Za-z_][^;(\n]*+\([^;\n]*+$)"
            r"(?:[A-Za-z_][\w:<>,*& \t]{0,120}?[ \t*&])?(?:\w+::)?([A-Za-z_]\w*)[ \t]*\()"
        ],
        "java": [
            r"\n[ \t]*+"
            + _WORDS
            + r"(?:(?:class|interface|enum|record|object|struct|trait|protocol|extension)[ \t]+(\w+)"
            r"|(?:fun|func|def)[ \t]+(\w+))",
            r"\n(?=[ \t]++[^;\n(]++\([^;\n]*+(?<=\{))[ \t]+(?:[\w<>\[\], .?]{1,80}[ \t])(\w+)[ \t]*\(",
        ],
        "go": [r"\n(?:func[ \t]+(?:\([^)\n]*\)[ \t]*)?(\w+)|type[ \t]+(\w+))"],
        "rust": [
            r"\n(?:[ \t]*+" + _WORDS + r"(?:fn|struct|enum|trait|mod|type|union|macro_rules!)[ \t]+(\w+)"
            r"|impl(?:<[^>\n]*>)?[ \t]+(\w+))"
        ],
        "ruby": [r"\n[ \t]*+(?:def[ \t]+(?:self\.)?|class[ \t]+|module[ \t]+)(\w+)"],
        "php": [r"\n[ \t]*+" + _WORDS + r"(?:function|class|interface|trait)[ \t]+(\w+)"],
        "lua": [_FUNCTION + r"[ \t]+([\w.:]+)"],
        "perl": [r"\n[ \t]*+(?:sub|package)[ \t]+(\w+)"],
        "shell": [r"\n[ \t]*+(?:function[ \t]+)?([A-Za-z_][\w-]*)[ \t]*\([ \t]*\)"],
        "lisp": [r"\((?:def\w*|define\S*)[ \t]+\(?([^\s()]+)"],
        "elixir": [r"\n[ \t]*+(?:defp?|defmodule|defmacro)[ \t]+([\w.]+)"],
        "sql": [r"\b(?:TABLE|VIEW|FUNCTION|PROCEDURE|INDEX|TRIGGER)[ \t]+(?:IF[ \t]+NOT[ \t]+EXISTS[ \t]+)?(\w+)"],
        "proto": [r"\n[ \t]*+(?:message|service|rpc|enum)[ \t]+(\w+)"],
        "prose": [r"\n(?:#{1,6}[ \t]+([^\n]{1,120})|([^\n]{1,120})\n[=\-~^]{3,}[ \t]*$)"],
    }.items()
}
"""The searched text follows a newline: a pattern that begins with one is tried once per line, not once per letter."""


class Definition(NamedTuple):
    """A name that a text defines, and the lines (from 1, inclusive) from its definition up to the next."""

    name: str
    start: int
    end: int


def definitions(text: str, language: str) -> list[Definition]:
    """The definitions in ``text``, in order, at most :data:`MAX_SYMBOLS`.

    A definition ends before the next one indented no deeper (a method within its class, not after it).
    """
    matches = list(islice(_matches(text, language), MAX_SYMBOLS))
    if not matches:
        return []
    lines = text.splitlines()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    begun: list[tuple[str, int, int]] = []
    for name, position in matches:
        at = bisect_right(starts, position) - 1
        begun.append((name, at, len(lines[at]) - len(lines[at].lstrip())))
    result: list[Definition] = []
    enclosing: list[int] = []
    ends = [len(lines)] * len(begun)
    for number, (_, at, indent) in enumerate(begun):
        while enclosing and begun[enclosing[-1]][2] >= indent:
            ends[enclosing.pop()] = at
        enclosing.append(number)
    for (name, at, _), end in zip(begun, ends, strict=True):
        while end > at + 1 and not lines[end - 1].strip():
            end -= 1
        result.append(Definition(" ".join(name.split()), at + 1, max(end, at + 1)))
    return result


def symbols(text: str, language: str) -> list[str]:
    """The names defined in ``text`` (headings, for prose), in order, each once, at most :data:`MAX_SYMBOLS`."""
    patterns = _PATTERNS.get(language, ())
    if len(patterns) == 1:  # all at once: half the cost of one match after the other
        matches = patterns[0].findall(f"\n{text}")
        groups = map("".join, matches) if patterns[0].groups > 1 else matches
        names = dict.fromkeys(map(str.strip, groups))
        names.pop("", None)
    else:
        names = dict.fromkeys(name for name, _ in _matches(text, language))
    return list(islice(names, MAX_SYMBOLS))


def _matches(text: str, language: str) -> Iterator[tuple[str, int]]:
    """Each defined name, and where it stands, in order."""
    patterns = _PATTERNS.get(language, ())
    after = f"\n{text}" if patterns else ""
    searches = [pattern.finditer(after) for pattern in patterns]
    for match in searches[0] if len(searches) == 1 else merge(*searches, key=re.Match[str].start):
        if match.lastindex is not None:
            yield match.group(match.lastindex).strip(), match.start(match.lastindex) - 1
