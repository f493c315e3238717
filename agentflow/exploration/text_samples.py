"""Texts for the keywords ``pattern`` and ``format`` of a JSON Schema: a few for each, simplest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agentflow.lib.schema.linear_pattern import LinearPattern

FORMATS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "date": ("2024-02-29", "1999-12-31"),
        "date-time": ("2024-02-29T12:00:00Z", "1999-12-31T23:59:59.5+14:00"),
        "duration": ("P1D", "PT0S"),
        "email": ("ada@example.org", "a.b+c@sub.example.org"),
        "hostname": ("example.org", "localhost"),
        "ipv4": ("192.0.2.1", "0.0.0.0"),
        "ipv6": ("2001:db8::1", "::"),
        "time": ("12:00:00Z", "23:59:59.5+14:00"),
        "uri": ("https://example.org/", "mailto:ada@example.org"),
        "uuid": ("00000000-0000-4000-8000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"),
    }
)
"""Examples of the common formats."""
_VARIANTS = 6
_LONGEST = 2_000
_DEEPEST = 40
_MORE = 3
_ESCAPED: Mapping[str, str] = MappingProxyType(
    {
        "d": "0917",
        "w": "aZ_0",
        "s": " ",
        "D": "a-",
        "W": "- ",
        "S": "a1",
        "n": "\n",
        "t": "\t",
        "r": "\r",
        "b": "",
        "B": "",
    }
)
_OUTSIDE = "a1 -_A~\x7f"


def samples(pattern: str) -> list[str]:
    """Texts that match a pattern, shortest first; none if the pattern is invalid or uses unsupported syntax."""
    try:
        compiled = LinearPattern(pattern)
    except ValueError:
        return []
    texts: dict[str, None] = {}
    for variant in range(_VARIANTS):
        try:
            text = _Sampler(pattern, variant).text()
        except (ValueError, IndexError):
            continue
        if len(text) <= _LONGEST and compiled.matches(text):
            texts[text] = None
    return list(texts)


class _Sampler:
    """Parses a pattern and generates one matching text; ``variant`` selects alternatives, characters and repetitions."""

    def __init__(self, pattern: str, variant: int) -> None:
        self._pattern = pattern
        self._variant = variant
        self._at = 0
        self._depth = 0

    def text(self) -> str:
        """The text. Raises ValueError for an unsupported pattern, IndexError for one that ends too soon."""
        text = self._alternatives()
        if self._at < len(self._pattern):
            raise ValueError(self._pattern)
        return text

    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        self._at += 1
        return self._pattern[self._at - 1]

    def _alternatives(self) -> str:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(self._pattern)
        texts = [self._sequence()]
        while self._next() == "|":
            self._take()
            texts.append(self._sequence())
        self._depth -= 1
        return texts[self._variant % len(texts)]

    def _sequence(self) -> str:
        pieces: list[str] = []
        while self._next() not in ("", "|", ")"):
            piece = self._atom()
            pieces.append(piece * self._repeated() if self._next() in ("*", "+", "?", "{") else piece)
        return "".join(pieces)

    def _repeated(self) -> int:
        sign = self._take()
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign, (1, 1))
        if sign == "{":
            inside = self._pattern[self._at : self._pattern.index("}", self._at)]
            self._at += len(inside) + 1
            first, comma, last = inside.partition(",")
            least = int(first)
            most = least if not comma else int(last) if last else None
        if self._next() == "?":
            self._take()
        return self._times(least, most)

    def _times(self, least: int, most: int | None) -> int:
        more = (0, 1, _MORE, 1, 2, _MORE)[self._variant]
        return least + more if most is None else min(least + more, most) if self._variant != 2 else min(most, _LONGEST)

    def _atom(self) -> str:
        sign = self._take()
        match sign:
            case "(":
                if self._next() == "?":
                    self._take()
                    if self._next() != ":":
                        self._at = self._pattern.index(">", self._at)
                    self._take()
                text = self._alternatives()
                self._take()
                return text
            case "[":
                return self._one_of()
            case "\\":
                return self._picked(self._escaped())
            case "^" | "$":
                return ""
            case ".":
                return self._picked("a1 .")
            case _:
                return sign

    def _escaped(self) -> str:
        sign = self._take()
        if sign in "pP" and self._next() == "{":
            kind = self._pattern[self._at + 1 : self._pattern.index("}", self._at)]
            self._at += len(kind) + 2
            return "A" if kind == "Lu" else {"N": "01", "L": "aZ", "P": ".-"}.get(kind[:1], "A")
        return _ESCAPED.get(sign, sign)

    def _one_of(self) -> str:
        negated = self._next() == "^"
        if negated:
            self._take()
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._next() != "]":
            first = False
            sign = self._take()
            options = self._escaped() if sign == "\\" else sign
            if len(options) == 1 and self._next() == "-" and self._pattern[self._at + 1] != "]":
                self._take()
                end = self._take()
                ranges.append((options, self._escaped() if end == "\\" else end))
            else:
                ranges += [(each, each) for each in options]
        self._take()
        if negated:
            return self._picked("".join(each for each in _OUTSIDE if not any(a <= each <= b for a, b in ranges)))
        ends = [start for start, _ in ranges] + [end for _, end in ranges]
        return self._picked("".join(dict.fromkeys(ends)))

    def _picked(self, options: str) -> str:
        return options[self._variant % len(options)] if options else ""


def fitting(texts: Sequence[str], pattern: str | None, form: str | None) -> list[str]:
    """Texts that satisfy a pattern and a format: matching examples of the format, matching ``texts``, and samples."""
    if pattern is None:
        return list(FORMATS.get(form or "", texts))
    examples = [*FORMATS.get(form or "", ()), *texts]
    try:
        matches = LinearPattern(pattern).matches
    except ValueError:
        return examples
    return list(dict.fromkeys([*filter(matches, examples), *samples(pattern)])) or list(texts)
