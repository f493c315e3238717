"""Selects the part of a file that answers a question: the best-matching run of lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentflow.core.data.frozen import frozen
from agentflow.lib.text.terms import common_start
from agentflow.memory.weights import WINDOW_SATURATION

WINDOW_LINES = 60
"""Longest window, in lines. A file not much longer is returned whole."""
_WHOLE_UP_TO = 80
_MAX_LINE = 400
_MAX_TERM_HITS = 1_000
_MAX_SHOWN_HITS = 300
"""Occurrences of a term that may choose the lines to show: text that occurs on every page does not locate anything."""


@frozen
class Window:
    """Lines ``start`` to ``end`` (from 1, inclusive) of a file and their text."""

    start: int
    end: int
    text: str


def best_window(text: str, terms: Mapping[str, float]) -> Window:
    """The window of ``text`` with the most and rarest ``terms`` (stem to weight).

    A term counts in full once and a little for each repetition. Without any hit: the first lines. Very long lines are
    truncated. Takes time linear in the length of the text.
    """
    count = text.count("\n") + (not text.endswith("\n"))
    if count <= _WHOLE_UP_TO:
        return Window(1, max(1, count), clipped(text, _WHOLE_UP_TO))
    terms = {common_start(term): weight for term, weight in terms.items() if len(term) > 1}
    hits = _hits(text, sorted(terms, key=len))
    first = _best_start(hits, terms, count) if hits else 0
    last = min(count, first + WINDOW_LINES)
    line, begin = next(((line, at) for line, at, _ in hits if line >= first), (0, 0))
    begin = text.rfind("\n", 0, begin) + 1
    while line > first:
        begin = text.rfind("\n", 0, begin - 1) + 1
        line -= 1
    return Window(first + 1, last, _joined(_lines(text[begin:], last - first)))


def lines_of(text: str, first: int, last: int) -> Window:
    """The lines ``first`` to ``last`` of ``text``, as far as there are such, at most :data:`WINDOW_LINES`."""
    lines = _lines(text)
    start = min(max(1, first), max(1, len(lines)))
    end = min(max(start, last), start + WINDOW_LINES - 1, max(1, len(lines)))
    return Window(start, end, _joined(lines[start - 1 : end]))


def window_score(text: str, terms: Mapping[str, float]) -> float:
    """How much of ``terms`` (stem to weight) the best run of :data:`WINDOW_LINES` lines of ``text`` holds.

    The sum of the weights of the terms that begin, or stand within, a word there; a repetition adds ever less, as in
    BM25. Takes time linear in the length of the text.
    """
    lowered = text.lower()
    find, newlines = lowered.find, lowered.count
    hits: list[tuple[int, int]] = []
    gains: list[list[float]] = []
    for number, (stem, weight) in enumerate(terms.items()):
        term = common_start(stem)
        at, size = find(term), len(term)
        last = len(hits) + _MAX_TERM_HITS
        while at >= 0 and len(hits) < last:
            hits.append((at, number))
            at = find(term, at + size)
        gains.append([weight * gain for gain in _GAIN])
    hits.sort()
    best = score = 0.0
    counts = [0] * len(gains)
    lines: list[int] = []
    first = line = seen = 0
    for at, number in hits:
        line += newlines("\n", seen, at)
        seen = at
        lines.append(line)
        while lines[first] <= line - WINDOW_LINES:
            left = hits[first][1]
            count = counts[left] = counts[left] - 1
            if count < _TOLD:
                score -= gains[left][count]
            first += 1
        count = counts[number]
        counts[number] = count + 1
        if count < _TOLD:
            score += gains[number][count]
            if score > best:
                best = score
    return best


_TOLD = 100
_TOP = WINDOW_SATURATION + 1
_GAIN = [(n + 1) * _TOP / (n + _TOP) - n * _TOP / (n + WINDOW_SATURATION) for n in range(_TOLD)]
"""The gain of one more occurrence after ``n``, as in BM25."""


def clipped(text: str, lines: int = WINDOW_LINES) -> str:
    """The first ``lines`` lines of ``text``, very long ones truncated."""
    return _joined(_lines(text, lines))


def _lines(text: str, most: int = -1) -> list[str]:
    """The lines of ``text``, at most so many, as editors number them: only a line feed ends one."""
    lines = text.split("\n", most)
    if not lines[-1] or len(lines) > most >= 0:
        lines.pop()
    return lines


def matched_terms(text: str, terms: Iterable[str]) -> list[str]:
    """The ``terms`` (stems) that ``text`` holds."""
    lowered = text.lower()
    return [term for term in terms if common_start(term) in lowered]


def _joined(lines: list[str]) -> str:
    whole = (line.removesuffix("\r") for line in lines)
    return "\n".join(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..." for line in whole)


def _hits(text: str, terms: Iterable[str]) -> list[tuple[int, int, str]]:
    """Line (from 0), offset and term of each word, or part of one, that begins with a term: the longest such term.

    ``terms``, the longest last, are searched one by one: a pattern of all would be tried at every letter of the text.
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters become two, and offsets would differ
        text = lowered
    begun: dict[int, str] = {}
    find = lowered.find
    for term in terms:
        at, left, size = find(term), _MAX_SHOWN_HITS, len(term)
        while at >= 0 and left:
            before = text[at - 1] if at else " "
            if not before.isalpha() or (before.islower() and text[at].isupper()):
                begun[at] = term
                left -= 1
            at = find(term, at + size)
    hits: list[tuple[int, int, str]] = []
    line = seen = 0
    for at, term in sorted(begun.items()):
        line += lowered.count("\n", seen, at)
        seen = at
        hits.append((line, at, term))
    return hits


def _best_start(hits: list[tuple[int, int, str]], terms: Mapping[str, float], lines: int) -> int:
    """The first line (from 0), chosen so that the best hits lie some lines into the window."""
    best = (-1.0, 0, 0)
    counts = dict.fromkeys((term for _, _, term in hits), 0)
    score = 0.0
    first = 0
    for last, (line, _, term) in enumerate(hits):
        counts[term] += 1
        score += terms[term] * 0.5 ** counts[term]
        while hits[first][0] <= line - WINDOW_LINES + 4:
            left = hits[first][2]
            score -= terms[left] * 0.5 ** counts[left]
            counts[left] -= 1
            first += 1
        if score > best[0] + 1e-9:
            best = (score, hits[first][0], hits[last][0])
    _, begin, end = best
    room = WINDOW_LINES - (end - begin + 1)
    return max(0, min(begin - min(room // 3, 12), lines - WINDOW_LINES))
