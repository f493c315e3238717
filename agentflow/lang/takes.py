"""Which exact types the parameters of functions take, a letter for each: what a literal argument is judged by before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentflow.core.data.values import OrderedSet, Symbol
from agentflow.lang.closure import Closure

_NONE = type(None)
_EVERY: Final = frozenset((_NONE, bool, int, float, str, list, dict, tuple, OrderedSet, Symbol, Closure))
TYPES: Final[dict[str, frozenset[type[Any]]]] = {
    ".": _EVERY,
    "n": frozenset((int, float, bool)),
    "N": frozenset((int, float, bool, _NONE)),
    "x": frozenset((int, float)),
    "i": frozenset((int,)),
    "I": frozenset((int, _NONE)),
    "w": frozenset((int, bool)),
    "v": frozenset((int, float, bool, str)),
    "s": frozenset((str,)),
    "S": frozenset((str, _NONE)),
    "u": frozenset((str, tuple)),
    "f": frozenset((str, Symbol)),
    "y": frozenset((Symbol,)),
    "t": _EVERY - {str},
    "j": _EVERY - {Closure},
    "m": frozenset((dict, list, tuple)),
    "l": frozenset((list, tuple)),
    "d": frozenset((dict,)),
    "z": frozenset((str, list, tuple, dict)),
    "c": frozenset((str, list, tuple, dict, OrderedSet)),
    "k": _EVERY - {list, dict, OrderedSet, Closure},
    "p": frozenset((Closure,)),
    "P": frozenset((Closure, _NONE)),
    "o": frozenset((Closure, Symbol, str)),
    "r": frozenset(),
}
"""The types of which a literal fits where a letter stands. ``o``: a name may call, too. ``r``: none does, only what a call gives."""
OPERATIONS: Final[dict[str, str]] = {"timeout": "x.", "retry": "i.", "pmap": "olI", "pmap-on": "ol"}
"""What forms take that are operations of the runtime."""
RUNS: Final = frozenset(("timeout", "retry"))
"""Those that take a number, and then something that they run."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """An argument whose type its parameter does not take. ``swapped``: another parameter takes it, so that two may have been confused."""

    index: int
    letter: str
    kind: type[Any]
    swapped: bool


def letter_at(word: str, index: int) -> str:
    """The letter of the argument at ``index``."""
    return word[min(index, len(word) - 1)]


def misfit(word: str, kinds: Sequence[type[Any] | None]) -> Misfit | None:
    """The first argument that does not fit; the type of one that may have any is None."""
    for index, kind in enumerate(kinds):
        letter = letter_at(word, index)
        if kind is None or kind in TYPES[letter]:
            continue
        others = [letter_at(word, other) for other in range(len(kinds)) if other != index]
        swapped = any(kind in TYPES[each] for each in others if each not in (letter, "."))
        return Misfit(index, letter, kind, swapped)
    return None
