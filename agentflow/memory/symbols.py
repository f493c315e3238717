"""Finds the names a file defines with one regular expression per language: cheap, and accurate enough for ranking."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

MAX_SYMBOLS = 2_000
"""Symbols kept per file; generated files have more and mean less."""

_PATTERNS: dict[str, re.Pattern[str]] = {
    language: re.compile(pattern, re.M)
    for language, pattern in {
        "python": r"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+(\w+)|^([A-Z][A-Z0-9_]{2,})[ \t]*[:=]",
        "javascript": r"\b(?:function\*?|class|interface|enum|type|namespace)[ \t]+(\w+)"
        r"|^[ \t]*(?:export[ \t]+)?(?:const|let|var)[ \t]+(\w+)[ \t]*=[ \t]*(?:async\b|function\b|\()"
        r"|^[ \t]+(?:async[ \t]+|static[ \t]+|get[ \t]+|set[ \t]+)?(\w+)\([^)\n]*\)[ \t]*\{",
        "c": r"^[ \t]*#[ \t]*define[ \t]+(\w+)|\b(?:struct|enum|union|class|namespace)[ \t]+(\w+)"
        r"|^(?:[A-Za-z_][\w:<>,*& \t]{0,120}?[ \t*&])?(?:\w+::)?([A-Za-z_]\w*)[ \t]*\((?=[^;\n]{0,200}$)",
        "java": r"\b(?:class|interface|enum|record|object|struct|trait|protocol|extension)[ \t]+(\w+)|\b(?:fun|func|def)[ \t]+(\w+)"
        r"|^[ \t]+(?:[\w<>\[\], .?]{1,80}[ \t])(\w+)[ \t]*\([^;\n]{0,200}\{",
        "go": r"^func[ \t]+(?:\([^)\n]*\)[ \t]*)?(\w+)|^type[ \t]+(\w+)",
        "rust": r"\b(?:fn|struct|enum|trait|mod|type|union|macro_rules!)[ \t]+(\w+)|^impl(?:<[^>\n]*>)?[ \t]+(\w+)",
        "ruby": r"^[ \t]*(?:def[ \t]+(?:self\.)?|class[ \t]+|module[ \t]+)(\w+)",
        "php": r"\b(?:function|class|interface|trait)[ \t]+(\w+)",
        "lua": r"\bfunction[ \t]+([\w.:]+)",
        "perl": r"^[ \t]*(?:sub|package)[ \t]+(\w+)",
        "shell": r"^[ \t]*(?:function[ \t]+)?([A-Za-z_][\w-]*)[ \t]*\([ \t]*\)",
        "lisp": r"\((?:def\w*|define\S*)[ \t]+\(?([^\s()]+)",
        "elixir": r"^[ \t]*(?:defp?|defmodule|defmacro)[ \t]+([\w.]+)",
        "sql": r"\b(?:TABLE|VIEW|FUNCTION|PROCEDURE|INDEX|TRIGGER)[ \t]+(?:IF[ \t]+NOT[ \t]+EXISTS[ \t]+)?(\w+)",
        "proto": r"^[ \t]*(?:message|service|rpc|enum)[ \t]+(\w+)",
        "prose": r"^#{1,6}[ \t]+([^\n]{1,120})|^([^\n]{1,120})\n[=\-~^]{3,}[ \t]*$",
    }.items()
}


class Definition(NamedTuple):
    """A name that a text defines, and the lines (from 1, inclusive) from its definition up to the next."""

    name: str
    start: int
    end: int


def definitions(text: str, language: str) -> list[Definition]:
    """What ``text`` defines, in order, at most :data:`MAX_SYMBOLS`.

    A definition ends before the next one that is indented no deeper (a method within its class, not after it).
    """
    pattern = _PATTERNS.get(language)
    if pattern is None:
        return []
    lines = text.splitlines()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    begun: list[tuple[str, int, int]] = []
    for match in pattern.finditer(text):
        if match.lastindex is not None:
            at = bisect_right(starts, match.start(match.lastindex)) - 1
            begun.append((match.group(match.lastindex).strip(), at, len(lines[at]) - len(lines[at].lstrip())))
            if len(begun) >= MAX_SYMBOLS:
                break
    found: list[Definition] = []
    enclosing: list[int] = []
    ends = [len(lines)] * len(begun)
    for number, (_, at, indent) in enumerate(begun):
        while enclosing and begun[enclosing[-1]][2] >= indent:
            ends[enclosing.pop()] = at
        enclosing.append(number)
    for (name, at, _), end in zip(begun, ends, strict=True):
        while end > at + 1 and not lines[end - 1].strip():
            end -= 1
        found.append(Definition(" ".join(name.split()), at + 1, max(end, at + 1)))
    return found


def symbols(text: str, language: str) -> list[str]:
    """The names defined in ``text`` (headings, for prose), in order, each once, at most :data:`MAX_SYMBOLS`."""
    pattern = _PATTERNS.get(language)
    if pattern is None:
        return []
    names: dict[str, None] = {}
    for match in pattern.finditer(text):
        if match.lastindex is not None:
            names[match.group(match.lastindex).strip()] = None
            if len(names) >= MAX_SYMBOLS:
                break
    return list(names)
