"""The spelling suggestions behind every "unknown name": names, parameters, templates, tools, options."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidates name most similar to ``name``, or None if none is similar enough.

    Similarity is edit distance (a swap of neighbours counts once) over names in lower case with ``_`` as ``-``, at most
    a third of the name's length, or one; a name of one letter resembles none. Ties go to the one nearer as written, then
    to the alphabetically first.
    """
    target = _fold(name)[:80]
    best: tuple[int, int, str] | None = None
    for candidate in candidates:
        folded = _fold(candidate)
        bound = min(len(target) - 1, max(1, len(target) // 3)) if best is None else best[0]
        if abs(len(folded) - len(target)) > bound:
            continue
        distance = _distance(target, folded, bound)
        if distance > bound or candidate == name:
            continue
        exact = (distance, _distance(name[:80], candidate, distance + len(candidate)), candidate)
        if best is None or exact < best:
            best = exact
    return best[2] if best else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint that suggests the most similar candidates name, or None."""
    near = suggest(name, candidates)
    return meant(near) if near else None


def meant(name: str) -> str:
    """The hint that suggests ``name``."""
    return f"did you mean '{name}'?"


def _fold(name: str) -> str:
    return name.lower().replace("_", "-")


def _distance(a: str, b: str, bound: int) -> int:
    """Optimal string alignment: insert, delete, replace, swap of neighbours; stops early past ``bound``."""
    before: list[int] = []
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            cost = min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        if min(current) > bound and (not previous or min(previous) > bound):
            return bound + 1
        before, previous = previous, current
    return previous[-1]
