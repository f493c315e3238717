"""The constants of a program: values near those it compares with are the interesting answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import name_of
from agentflow.lang import ir
from agentflow.lang.checks import children

_COMPARES = frozenset({"equal?", "eq?", "string=?", "member", "assoc", "string-contains?", "string<?", "string>?"})
_ORDERS = _COMPARES | {"=", "<", ">", "<=", ">=", "eqv?"}
_READS = frozenset({"get", "get-field"})
_PARSES = frozenset({"parse-json"})
_READS_NUMBERS = frozenset({"string->number"})
_LONGEST_WORD = 60
LARGEST = 10**9
"""The largest number that answers are chosen near to."""


@frozen
class Constants:
    """The constants of a program: ``numbers``; ``words`` that it compares with or looks up, compared ones first; ``keys`` that it
    reads from data; whether it ``parses`` JSON, ``reads_numbers`` from text, and has ``deadlines``, which are forms in which a
    late answer loses. ``beside`` maps a field, or a variable of that name, to the constants compared with it."""

    numbers: tuple[int | float, ...] = ()
    words: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    parses: bool = False
    reads_numbers: bool = False
    deadlines: bool = False
    beside: Mapping[str, tuple[int | float | str, ...]] = field(
        default_factory=dict[str, "tuple[int | float | str, ...]"]
    )


class Comparisons:
    """The constants that a program compares with each field or variable."""

    def __init__(self) -> None:
        self._constants: dict[str, dict[int | float | str, None]] = {}

    def note(self, names: Iterable[str], constants: Iterable[Any]) -> None:
        """The operands ``names`` are compared with these; only numbers of a usual size and texts count."""
        usual: list[int | float | str] = []
        for each in constants:
            if isinstance(each, int | float) and not isinstance(each, bool):
                usual += [each] if abs(each) < LARGEST else []
            else:
                usual += words_of(each)
        for name in names if usual else ():
            self._constants.setdefault(plain_name(name), {}).update(dict.fromkeys(usual))

    @property
    def all(self) -> Mapping[str, tuple[int | float | str, ...]]:
        """The constants by name, in the order of the text."""
        return {name: tuple(constants) for name, constants in self._constants.items()}


def plain_name(name: str) -> str:
    """A name in the form for comparing fields, variables and tasks, which may differ in hyphens only."""
    return name.replace("-", "_")


def constants_of(tree: ir.IR) -> Constants:
    """The constants of an analysed program, in the order of its text."""
    numbers: dict[int | float, None] = {}
    compared: dict[str, None] = {}
    others: dict[str, None] = {}
    keys: dict[str, None] = {}
    parses = reads_numbers = deadlines = False
    comparisons = Comparisons()
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        pending.extend(reversed(children(node)))
        if isinstance(node, ir.PrimCall) and node.primitive.canonical in _ORDERS:
            constants = [each.value for each in node.args if isinstance(each, ir.Const | ir.Quote)]
            comparisons.note([name for each in node.args for name in _names(each)], constants)
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
    return Constants(tuple(numbers), tuple(words), tuple(keys), parses, reads_numbers, deadlines, comparisons.all)


def _names(node: Any) -> list[str]:
    """The names of an operand of a comparison: the field, variable or task that it is the value of."""
    match node:
        case ir.Local():
            return [node.var.name]
        case ir.Global():
            return [node.name]
        case ir.EffectCall():
            return [node.name]
        case ir.PrimCall() if node.primitive.canonical in _READS:
            return [word for each in node.args[1:2] for word in words_of(getattr(each, "value", None))]
        case ir.PrimCall() if node.args:  # of a value: its length, its text
            return _names(node.args[0])
        case _:
            return []


def words_of(value: Any) -> list[str]:
    """The strings in quoted data that an answer might equal."""
    if isinstance(value, list | tuple):
        return [word for each in cast("list[Any]", value) for word in words_of(each)]
    text = name_of(value)
    if text is None or not text or len(text) > _LONGEST_WORD or "{" in text or "\n" in text or not text.strip():
        return []
    return [text]
