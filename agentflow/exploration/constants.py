"""The constants of a program: values near those it compares with are the interesting answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from agentflow.core.values import name_of
from agentflow.lang import ir
from agentflow.lang.checks import children

_COMPARES = frozenset({"equal?", "eq?", "string=?", "member", "assoc", "string-contains?", "string<?", "string>?"})
_READS = frozenset({"get", "get-field"})
_PARSES = frozenset({"parse-json"})
_READS_NUMBERS = frozenset({"string->number"})
_LONGEST_WORD = 60
LARGEST = 10**9
"""Numbers beyond it are none that an answer is near to."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What a program mentions: ``numbers``; ``words`` that it compares with or looks up, compared ones first; ``keys`` that it
    reads from data; whether it ``parses`` JSON, ``reads_numbers`` from text, and has ``deadlines``, which are forms in which a
    late answer loses."""

    numbers: tuple[int | float, ...] = ()
    words: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    parses: bool = False
    reads_numbers: bool = False
    deadlines: bool = False


def constants_of(tree: ir.IR) -> Constants:
    """The constants of an analysed program, in the order of its text."""
    numbers: dict[int | float, None] = {}
    compared: dict[str, None] = {}
    others: dict[str, None] = {}
    keys: dict[str, None] = {}
    parses = reads_numbers = deadlines = False
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        pending.extend(reversed(children(node)))
        match node:
            case ir.Const(value=int() | float() as number) if not isinstance(number, bool) and abs(number) < LARGEST:
                numbers[number] = None
            case ir.Const() | ir.Quote():
                others.update(dict.fromkeys(words_of(node.value)))
            case ir.MakeDict():
                others.update(dict.fromkeys(words_of(list(node.keys))))
            case ir.PrimCall() if node.primitive.canonical in _COMPARES:
                for each in node.args:
                    compared.update(dict.fromkeys(words_of(getattr(each, "value", None))))
            case ir.PrimCall() if node.primitive.canonical in _READS:
                keys.update(dict.fromkeys(words_of([getattr(each, "value", None) for each in node.args[1:2]])))
            case ir.PrimCall() if node.primitive.canonical in _PARSES:
                parses = True
            case ir.PrimCall() if node.primitive.canonical in _READS_NUMBERS:
                reads_numbers = True
            case ir.RuntimeCall(op="timeout" | "race" | "race-on"):
                deadlines = True
            case _:
                pass
    words = [*compared, *(word for word in others if word not in compared and word not in keys)]
    return Constants(tuple(numbers), tuple(words), tuple(keys), parses, reads_numbers, deadlines)


def words_of(value: Any) -> list[str]:
    """The strings in quoted data that an answer might equal."""
    if isinstance(value, list | tuple):
        return [word for each in cast("list[Any]", value) for word in words_of(each)]
    text = name_of(value)
    if text is None or not text or len(text) > _LONGEST_WORD or "{" in text or "\n" in text or not text.strip():
        return []
    return [text]


__all__ = ["LARGEST", "Constants", "constants_of", "words_of"]
