"""Selects the part of a file that answers a question: the best-matching run of lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

WINDOW_LINES = 60
"""Longest window, in lines. A file not much longer than that is returned whole."""
_WHOLE_UP_TO = 80
_MAX_LINE = 400
_MAX_TERM_HITS = 1_000


@dataclass(frozen=True, slots=True)
class Window:
    """Lines ``start`` to ``end`` (from 1, inclusive) of a file and their text."""

    start: int
    end: int
    text: str


def best_window(text: str, terms: Mapping[str, float]) -> Window:
    """The window of ``text`` in which the most and rarest ``terms`` (stem to weight) occur.

    A term counts in full once and a little for each repetition. Without any hit: the first lines. Very long lines are
    truncated. Takes time linear in the length of the text.
    """
    lines = text.splitlines(keepends=True)
    if len(lines) <= _WHOLE_UP_TO:
        return Window(1, max(1, len(lines)), clipped(text, _WHOLE_UP_TO))
    hits = _hits(text, lines, sorted((term for term in terms if len(term) > 1), key=len))
    start = _best_start(hits, terms, len(lines)) if hits else 0
    end = min(len(lines), start + WINDOW_LINES)
    return Window(start + 1, end, clipped("".join(lines[start:end])))


def lines_of(text: str, first: int, last: int) -> Window:
    """The lines ``first`` to ``last`` of ``text``, as far as there are such, at most :data:`WINDOW_LINES`."""
    lines = text.splitlines()
    start = min(max(1, first), max(1, len(lines)))
    end = min(max(start, last), start + WINDOW_LINES - 1, max(1, len(lines)))
    return Window(start, end, _joined(lines[start - 1 : end]))


def window_score(text: str, terms: Mapping[str, float]) -> float:
    """How much of ``terms`` (stem to weight) the best run of :data:`WINDOW_LINES` lines of ``text`` holds.

    The sum of the weights of the terms that begin, or stand within, a word there; a repetition adds ever less, as in
    BM25. Takes time linear in the length of the text.
    """
    lowered = text.lower()
    hits: list[tuple[int, str]] = []
    for term in terms:
        at = lowered.find(term)
        last = len(hits) + _MAX_TERM_HITS
        while at >= 0 and len(hits) < last:
            hits.append((at, term))
            at = lowered.find(term, at + len(term))
    hits.sort()
    best = score = 0.0
    counts = dict.fromkeys(terms, 0)
    lines: list[int] = []
    first = line = seen = 0
    for at, term in hits:
        line += lowered.count("\n", seen, at)
        seen = at
        lines.append(line)
        while lines[first] <= line - WINDOW_LINES:
            left = hits[first][1]
            count = counts[left] = counts[left] - 1
            if count < _TOLD:
                score -= terms[left] * _GAIN[count]
            first += 1
        count = counts[term]
        counts[term] = count + 1
        if count < _TOLD:
            score += terms[term] * _GAIN[count]
            if score > best:
                best = score
    return best


_TOLD = 100
_GAIN = [(n + 1) * 2.2 / (n + 2.2) - n * 2.2 / (n + 1.2) for n in range(_TOLD)]
"""What one more occurrence after ``n`` adds, as in BM25."""


def clipped(text: str, lines: int = WINDOW_LINES) -> str:
    """The first ``lines`` lines of ``text``, very long ones truncated."""
    return _joined(text.splitlines()[:lines])


def matched_terms(text: str, terms: Iterable[str]) -> list[str]:
    """The ``terms`` (stems) that ``text`` holds."""
    lowered = text.lower()
    return [term for term in terms if term in lowered]


def _joined(lines: list[str]) -> str:
    return "\n".join(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..." for line in lines)


def _hits(text: str, lines: Sequence[str], terms: Iterable[str]) -> list[tuple[int, str]]:
    """``(line from 0, term)`` of each word, or part of one, that begins with a term: the longest of those it begins with.

    ``terms``, the longest last, are looked for one by one: a pattern of all would be tried at every letter of the text.
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters become two, and what stands where would differ
        text = lowered
    begun: dict[int, str] = {}
    for term in terms:
        at, left = lowered.find(term), _MAX_TERM_HITS
        while at >= 0 and left:
            before = text[at - 1] if at else " "
            if not before.isalpha() or (before.islower() and text[at].isupper()):
                begun[at] = term
                left -= 1
            at = lowered.find(term, at + len(term))
    ends = list(accumulate(map(len, lines)))
    return [(bisect_right(ends, at), term) for at, term in sorted(begun.items())]


def _best_start(hits: list[tuple[int, str]], terms: Mapping[str, float], lines: int) -> int:
    """The line (from 0) at which to begin, so that the best hits lie some lines into the window."""
    best = (-1.0, 0, 0)
    counts = dict.fromkeys((term for _, term in hits), 0)
    score = 0.0
    first = 0
    for last, (line, term) in enumerate(hits):
        counts[term] += 1
        score += terms[term] * 0.5 ** counts[term]
        while hits[first][0] <= line - WINDOW_LINES + 4:
            left = hits[first][1]
            score -= terms[left] * 0.5 ** counts[left]
            counts[left] -= 1
            first += 1
        if score > best[0] + 1e-9:
            best = (score, hits[first][0], hits[last][0])
    _, begin, end = best
    room = WINDOW_LINES - (end - begin + 1)
    return max(0, min(begin - min(room // 3, 12), lines - WINDOW_LINES))
