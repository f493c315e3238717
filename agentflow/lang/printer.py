"""Prints values in program notation and as JSON, without recursion.

Data reads back equal: ``read(print_value(x)) == x``. Floats print with the digits they need, infinities and NaN as
``+inf.0``, ``-inf.0`` and ``+nan.0``; a symbol whose name is not valid as a symbol prints as the string it equals. A
closure prints as its source; any other value prints as ``#<kind name>``, which cannot be read.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.records import is_dict
from agentflow.core.shared_list import SharedList
from agentflow.core.values import MAX_DATA_DEPTH, Symbol
from agentflow.lang.charging import ELEMENTS_PER_STEP, Bounded, charge_string
from agentflow.lang.closure import Closure

MAX_DIGITS = 4_300
"""Maximum number of digits of an integer converted to or from text (Python's own guard against quadratic time)."""

_SYMBOL = re.compile(
    r"""[^\s()\[\]{}"'`,;#|+\-.0-9\x00-\x1f\ufeff\ud800-\udfff][^\s()\[\]{}"'`,;|\x00-\x1f\ufeff\ud800-\udfff]*"""
)
_SIGNED = re.compile(
    r"""[+\-.](?:[^\s()\[\]{}"'`,;|.0-9\x00-\x1f\ufeff\ud800-\udfff][^\s()\[\]{}"'`,;|\x00-\x1f\ufeff\ud800-\udfff]*)?"""
)
_RESERVED = frozenset({"true", "false", "nil", "none", ".", "+inf.0", "-inf.0", "+nan.0", "-nan.0"})
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_QUOTES = {"quote": "'", "quasiquote": "`", "unquote": ",", "unquote-splicing": ",@"}
_PLAIN_JSON_DEPTH = 150


@dataclass(frozen=True, slots=True)
class Notation:
    """The punctuation of a notation, and its ``atom``, which prints anything but lists and dicts."""

    list_open: str
    list_close: str
    dict_open: str
    dict_close: str
    between: str
    after_key: str
    atom: Callable[[Any], str]
    key: Callable[[Any], str]
    quotes: bool = False


def print_value(value: object, *, limit: int | None = None, notation: Notation | None = None) -> str:
    """``value`` in program notation, or in another.

    With ``limit``, the text is cut after that many characters and ends in ``...``, for messages and displays.
    Raises LimitExceeded (``limits/depth``) past 1,000 levels of nesting, and for an integer of more than 4,300 digits.
    """
    return _render(value, notation or LISP, limit)


def is_symbol_text(name: str) -> bool:
    """Whether a symbol of this name reads back as that symbol."""
    return name not in _RESERVED and bool(_SYMBOL.fullmatch(name) or _SIGNED.fullmatch(name))


def write_string(text: str) -> str:
    """``text`` as a string literal, with the JSON escapes."""
    written = json.dumps(text, ensure_ascii=False)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", written)


def write_number(value: float) -> str:
    """An integer or float as its literal. Raises LimitExceeded for an integer of more than 4,300 digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        try:
            return int.__repr__(value)
        except ValueError:
            raise LimitExceeded(
                f"an integer of {value.bit_length()} bits has more than {MAX_DIGITS} digits, too many to write out",
                limit="integer_digits",
                allowed=MAX_DIGITS,
                hint="divide it into parts, or keep it as a number",
            ) from None
    if math.isfinite(value):
        return float.__repr__(value)
    return "+nan.0" if math.isnan(value) else "+inf.0" if value > 0 else "-inf.0"


def _atom(value: Any) -> str:
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, Symbol):
        return value.name if is_symbol_text(value.name) else write_string(value.name)
    if value is None:
        return "none"
    if isinstance(value, int | float):
        return write_number(value)
    return value.source if isinstance(value, Closure) else opaque(value)


def opaque(value: object) -> str:
    """``#<kind name>``, for a value without a notation. Runs no code of the value's class."""
    kind = type(value)
    if kind.__module__.startswith("agentflow."):
        name = getattr(value, "name", None)
        return f"#<{kind.__name__.lower()}{f' {name}' if isinstance(name, str) else ''}>"
    name = getattr(value, "__name__", None) if callable(value) else None
    return f"#<procedure {name}>" if isinstance(name, str) else f"#<object {kind.__name__}>"


LISP = Notation("(", ")", "{", "}", " ", " ", _atom, _atom, quotes=True)


def _json_atom(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise SexpEvaluationError(
            f"JSON has no word for {write_number(value)}",
            code="json/unrepresentable",
            hint="replace it with a number or none before to-json",
        )
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return write_number(value)
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, Symbol):
        return write_string(value.name)
    raise SexpEvaluationError(
        f"JSON has no word for {opaque(value)}", code="json/unrepresentable", hint="give to-json data, not procedures"
    )


def _json_key(key: Any) -> str:
    if isinstance(key, Symbol):
        return write_string(key.name)
    return write_string(key if isinstance(key, str) else _json_atom(key))


JSON = Notation("[", "]", "{", "}", ", ", ": ", _json_atom, _json_key)


def as_data(value: Any) -> Any:
    """A model, dataclass or named tuple as a dict of its declared fields; other values unchanged. One level only."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            info.serialization_alias or info.alias or name: getattr(value, name)
            for name, info in fields.items()
            if not info.exclude
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, Mapping):
            return dict(cast("Mapping[Any, Any]", value))
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.repr and f.name[:1] != "_"}
    if isinstance(value, set | frozenset):
        return sorted(cast("set[Any]", value), key=str)
    return value


def write_json(value: object, *, indent: int | None = None, rt: Bounded | None = None) -> str:
    """``value`` as JSON; models and dataclasses are objects of their declared fields, symbols strings.

    The text is charged to ``rt``, before it is built (``limits/string``). Raises SexpEvaluationError
    (``json/unrepresentable``) for infinities and procedures, LimitExceeded (``limits/depth``) past 1,000 levels.
    """
    size, depth = measure(value, data=True, charge=None if rt is None else rt.charge)
    if rt is not None:
        charge_string(rt, size, "to-json")
    if depth <= _PLAIN_JSON_DEPTH:
        return _SURROGATE.sub(
            lambda match: f"\\u{ord(match.group()):04x}",
            json.dumps(_plain_json(value), ensure_ascii=False, indent=indent),
        )
    return _render(value, JSON, None)


def _plain_json(value: Any) -> Any:
    """JSON data for a value that is known to be shallow."""
    value = as_data(value)
    if is_dict(value):
        return {
            key if type(key) is str else json.loads(_json_key(key)): _plain_json(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple | SharedList):
        return [_plain_json(item) for item in cast("list[Any]", value)]
    if isinstance(value, Symbol):
        return value.name
    if value is None or type(value) in (str, bool):
        return value
    _json_atom(value)
    return value


def measure(value: object, *, data: bool = False, charge: Callable[[int], None] | None = None) -> tuple[int, int]:
    """The minimum number of characters to print ``value``, and its nesting depth.

    A shared part is measured once, so a value that would print as 10^18 characters is recognised at once. With
    ``data``, models count as dicts of their fields; with ``charge``, the elements gone over are charged.
    Raises LimitExceeded past 1,000 levels.
    """
    sizes: dict[int, tuple[int, int]] = {}
    keep: list[Any] = []  # keeps objects alive, so that no id in `sizes` is reused
    root = [0, 0]
    stack: list[tuple[Any, Iterator[Any], list[int]]] = [(None, iter((value,)), root)]
    while stack:
        owner, children, total = stack[-1]
        for child in children:
            child = as_data(child) if data else child
            if type(child) is str:
                total[0] += len(child) + 3
            elif _is_container(child):
                size = sizes.get(id(child))
                if size is None:
                    if len(stack) > MAX_DATA_DEPTH:
                        raise _too_deep()
                    if charge is not None and len(child) >= ELEMENTS_PER_STEP:
                        charge(len(child) // ELEMENTS_PER_STEP)
                    keep.append(child)
                    stack.append((child, _parts(child), [2, 1]))
                    break
                total[0] += size[0]
                total[1] = max(total[1], size[1] + 1)
            else:
                total[0] += 2
        else:
            stack.pop()
            if stack:
                sizes[id(owner)] = (total[0], total[1])
                above = stack[-1][2]
                above[0] += total[0]
                above[1] = max(above[1], total[1] + 1)
                if len(stack) + total[1] > MAX_DATA_DEPTH + 1:
                    raise _too_deep()
    return root[0], max(0, root[1] - 1)


def _is_container(value: Any) -> bool:
    return isinstance(value, list | tuple | SharedList) or is_dict(value)


def _parts(value: Any) -> Iterator[Any]:
    if is_dict(value):
        for key, item in value.items():
            yield key
            yield item
    else:
        yield from value


def _too_deep() -> LimitExceeded:
    return LimitExceeded(
        f"data is nested deeper than {MAX_DATA_DEPTH} levels, too deep to write out",
        limit="depth",
        allowed=MAX_DATA_DEPTH,
        hint="write out its parts",
    )


def _render(value: object, notation: Notation, limit: int | None) -> str:
    """The text of ``value``, with an explicit stack of closers and iterators."""
    out: list[str] = []
    size = 0
    stack: list[Iterator[Any]] = [iter((value,))]
    closers: list[str] = [""]
    while stack:
        for part in stack[-1]:
            if isinstance(part, _Text):
                text = part
            else:
                opened = _open(part, notation)
                if opened is not None:
                    opener, inside, closer = opened
                    if len(stack) > MAX_DATA_DEPTH:
                        raise _too_deep()
                    out.append(opener)
                    size += len(opener)
                    stack.append(inside)
                    closers.append(closer)
                    break
                text = notation.atom(as_data(part) if notation is JSON else part)
            out.append(text)
            size += len(text)
            if limit is not None and size > limit:
                return "".join(out)[:limit] + "..."
        else:
            stack.pop()
            out.append(closers.pop())
    return "".join(out)


class _Text(str):
    """Punctuation between values; its type tells it from values."""

    __slots__ = ()


def _open(value: Any, notation: Notation) -> tuple[str, Iterator[Any], str] | None:
    if notation is JSON:
        value = as_data(value)
    if isinstance(value, list | tuple | SharedList):
        elements = value.plain() if isinstance(value, SharedList) else cast("list[Any]", value)
        if notation.quotes and len(elements) == 2 and isinstance(elements[0], Symbol):
            mark = _QUOTES.get(elements[0].name)
            if mark is not None:
                return mark, iter((elements[1],)), ""
        return notation.list_open, _spaced(elements, notation), notation.list_close
    if is_dict(value):
        return notation.dict_open, _entries(value, notation), notation.dict_close
    return None


def _spaced(elements: list[Any], notation: Notation) -> Iterator[Any]:
    between = _Text(notation.between)
    for index, element in enumerate(elements):
        if index:
            yield between
        yield element


def _entries(mapping: Mapping[Any, Any], notation: Notation) -> Iterator[Any]:
    first = True
    for key, item in mapping.items():
        lead = "" if first else notation.between
        yield _Text(f"{lead}{notation.key(key)}{notation.after_key}")
        yield item
        first = False
