"""Literal values in a program's text, and whether a JSON Schema accepts them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agentflow.core.data.errors import cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import OrderedSet, Symbol, pairs_to_dict
from agentflow.lang import ir
from agentflow.lang.calling import Sentinel
from agentflow.lang.closure import Closure
from agentflow.lang.ir import IR
from agentflow.lib.text.suggest import did_you_mean

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
"""The types of literals that fit a letter. ``o``: a name may also be a callable. ``r``: no literal fits, only the result of
a call."""


@frozen
class Misfit:
    """An argument of a type that its parameter does not accept. ``swapped``: another parameter accepts it, so the two may have
    been confused."""

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


ANYTHING: Final = Sentinel("anything")
"""A value, or a part of one, known only at run time."""
_MAX_DEPTH = 20
_UNSURE = frozenset({"$dynamicRef", "allOf", "oneOf", "not", "if", "patternProperties"})
"""Keywords too complex for this check: a schema with one of them is not judged."""


@frozen
class Problem:
    """The reason why a schema cannot accept a value. ``key``: a record has a key it may not have."""

    text: str
    key: bool = False
    hint: str | None = None


def literal(node: IR) -> Any:
    """The value of an expression as far as it is literal; :data:`ANYTHING` for each other part."""
    if isinstance(node, ir.Const):
        return node.value
    if isinstance(node, ir.Quote):
        return node.value
    if isinstance(node, ir.MakeDict):
        return dict(zip(node.keys, map(literal, node.values), strict=True))
    if isinstance(node, ir.PrimCall) and node.primitive.name == "list":
        return [literal(each) for each in node.args]
    return ANYTHING


def mismatch(
    value: Any, schema: Mapping[str, Any], *, lenient: bool, root: Mapping[str, Any] | None = None, depth: int = 0
) -> Problem | None:
    """The reason why ``schema`` certainly rejects ``value``; None when it may accept it.

    ``lenient`` parameters take numbers as text, and text that spells a number or data.
    """
    root = schema if root is None else root
    if value is ANYTHING or depth > _MAX_DEPTH or not _UNSURE.isdisjoint(schema):
        return None
    if "$ref" in schema:
        target = _resolve(str(schema["$ref"]), root)
        return None if target is None else mismatch(value, target, lenient=lenient, root=root, depth=depth + 1)
    if isinstance(value, Symbol):
        value = value.name
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        problems = [
            mismatch(value, choice, lenient=lenient, root=root, depth=depth + 1)
            for choice in cast("list[Mapping[str, Any]]", choices)
        ]
        return (
            next((each for each in problems if each is not None and each.key), problems[0]) if all(problems) else None
        )
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(allowed, list) and isinstance(value, str):
        names = cast("list[Any]", allowed)
        if value not in names and all(isinstance(each, str) for each in names):
            return Problem(f"'{value}' is none of {', '.join(map(str, names))}", hint=did_you_mean(value, names))
    kinds = schema.get("type")
    wanted = cast("list[str]", kinds) if isinstance(kinds, list) else [kinds] if isinstance(kinds, str) else []
    if not wanted:
        return None
    fitting = [kind for kind in wanted if _may_be(value, kind, lenient)]
    if not fitting:
        return Problem(f"{_article(' or '.join(wanted))} is wanted, and this is {_shown(value)}")
    if "object" in fitting and not isinstance(value, str):
        return _record(value, schema, lenient, root, depth)
    items = schema.get("items")
    if "array" in fitting and isinstance(value, list) and isinstance(items, Mapping):
        for index, each in enumerate(cast("list[Any]", value)):
            problem = mismatch(each, cast("Mapping[str, Any]", items), lenient=lenient, root=root, depth=depth + 1)
            if problem is not None:
                return Problem(f"item {index}: {problem.text}", problem.key, problem.hint)
    return None


def _record(
    value: Any, schema: Mapping[str, Any], lenient: bool, root: Mapping[str, Any], depth: int
) -> Problem | None:
    """A dict, or a list of pairs in its place, against the keys of an object's schema."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or _holds_unknown_pairs(value):
        return None
    keys = cast("Mapping[str, Mapping[str, Any]]", properties)
    for name, each in (pairs_to_dict(value) or {}).items():
        if name in keys:
            problem = mismatch(each, keys[name], lenient=lenient, root=root, depth=depth + 1)
            if problem is not None:
                return Problem(f"'{name}': {problem.text}", problem.key, problem.hint)
        elif schema.get("additionalProperties") is False:
            hint = did_you_mean(name, keys) or f"the keys are {', '.join(keys)}"
            return Problem(f"there is no key '{name}'", key=True, hint=hint)
    return None


def _holds_unknown_pairs(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    pairs = cast("list[Any]", value)
    return any(pair is ANYTHING or (isinstance(pair, list) and pair[:1] == [ANYTHING]) for pair in pairs)


def _resolve(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    at: Any = root
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        at = cast("Mapping[str, Any]", at).get(part) if isinstance(at, Mapping) else None
    return cast("Mapping[str, Any]", at) if isinstance(at, Mapping) else None


def _may_be(value: Any, kind: str, lenient: bool) -> bool:
    """Whether some tool or task could accept ``value`` for a ``kind``, after the usual conversions."""
    match kind:
        case "string":
            return isinstance(value, str) or (lenient and isinstance(value, bool | int | float))
        case "integer" | "number":
            if isinstance(value, str):
                return _is_number(value)
            whole = not isinstance(value, float) or value.is_integer()
            return isinstance(value, int | float) and (kind == "number" or whole)
        case "boolean":
            return isinstance(value, bool) or value in (0, 1) or isinstance(value, str)
        case "array":
            return isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("["))
        case "object":
            if isinstance(value, str):
                return value.lstrip().startswith("{")
            return isinstance(value, dict) or (
                isinstance(value, list) and (_holds_unknown_pairs(value) or pairs_to_dict(cast(Any, value)) is not None)
            )
        case "null":
            return value is None or value == []
        case _:
            return True


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text.strip() or "x"))
    except ValueError:
        return False


def _article(kinds: str) -> str:
    return f"an {kinds}" if kinds[0] in "aeio" else f"a {kinds}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'the text "{cut(value, 40)}"'
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return "a list" if isinstance(value, list) else "a dict"
