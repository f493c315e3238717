"""Which exact types the parameters of functions take, a letter for each: what a literal argument is judged by before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentflow.core.data.ordered_set import OrderedSet
from agentflow.core.data.values import Symbol
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
PRIMITIVES: Final[dict[str, str]] = {
    name: word
    for word, names in {
        "n": "* + / < <= = > >= abs max min negative? number->string positive? zero?",
        "nN": "-",
        "nI": "round",
        "i": "even? modulo odd? quotient random range remainder",
        "x": "sleep",
        "l": "append caddr cadr car cddr cdr first rest reverse zip",
        ".l": "assoc assq assv cons member memq memv",
        "o.": "apply reduce",
        "ol": "filter for-each map",
        "lo": "sort",
        "li.": "nth",
        "d": "keys merge values",
        "d.": "put",
        "dk.": "get",
        "df": "get-field",
        "z": "length",
        "f": "gensym",
        "s": "parse-json string->number string->symbol string-append string-contains? string-downcase "
        "string-length string-replace string-trim string-upcase string<? string=? string>?",
        "s.": "format",
        "sd": "ask-human",
        "ls": "string-join",
        "sS": "string-split",
        "siI": "substring",
        "y": "symbol->string",
        "r": "content status value-of",
        "jI": "to-json",
    }.items()
    for name in names.split()
}
"""What primitives take; of one that is not here nothing is said. The last letter is that of all arguments that follow."""
OPERATIONS: Final[dict[str, str]] = {"timeout": "x.", "retry": "i.", "pmap": "olI", "pmap-on": "ol"}
"""What forms take that are operations of the runtime."""
RUNS: Final[dict[str, tuple[int, int]]] = {"timeout": (0, 1), "retry": (0, 1)}
"""Forms with a number and something that they run: where each of the two stands."""


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
