"""Prints values in program notation, without recursion.

Data reads back equal: ``read(print_value(x)) == x``. Floats print with the digits they need, infinities and NaN as
``+inf.0``, ``-inf.0`` and ``+nan.0``; a symbol with a name that is not valid as a symbol prints as the string it equals. A
model (a match of the memory) prints as the dict of its fields, a closure as its source; any other value prints as
``#<kind name>``, which cannot be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.models import MappingModel
from agentflow.core.data.values import MAX_DATA_DEPTH, SharedList, Symbol
from agentflow.core.data.walk import ELEMENTS_PER_STEP, PART, Work, exact, finish, slices
from agentflow.lang.closure import Closure
from agentflow.lib.text.late_pattern import late_pattern

MAX_DIGITS = 4_300
"""Maximum number of digits of an integer converted to or from text (Python's own guard against quadratic time)."""

_SYMBOL = late_pattern(
    r"""[^\s()\[\]{}"'`,;#|+\-.0-9\x00-\x1f\ufeff\ud800-\udfff][^\s()\[\]{}"'`,;|\x00-\x1f\ufeff\ud800-\udfff]*"""
)
_SIGNED = late_pattern(
    r"""[+\-.](?:[^\s()\[\]{}"'`,;|.0-9\x00-\x1f\ufeff\ud800-\udfff][^\s()\[\]{}"'`,;|\x00-\x1f\ufeff\ud800-\udfff]*)?"""
)
_RESERVED = frozenset({"true", "false", "nil", "none", ".", "+inf.0", "-inf.0", "+nan.0", "-nan.0"})
_SURROGATE = late_pattern(r"[\ud800-\udfff]")
_QUOTES = {"quote": "'", "quasiquote": "`", "unquote": ",", "unquote-splicing": ",@"}
_NUMBERS = frozenset((int, float))
_ATOMS = frozenset((str, int, float, bool, type(None), Symbol))
_RUN = 256
"""Elements examined together: numbers are written without a look at each."""


def print_value(value: object, *, limit: int | None = None, atom: Callable[[Any], str] | None = None) -> str:
    """``value`` in program notation; ``atom`` writes values other than lists and dicts.

    With ``limit``, the text is cut after that many characters and ends in ``...``, for messages and displays. Raises
    LimitExceeded (``limits/depth``) past 1,000 levels of nesting, and for an integer of more than 4,300 digits.
    """
    return finish(print_work(value, limit=limit, atom=atom))


def print_work(value: object, *, limit: int | None = None, atom: Callable[[Any], str] | None = None) -> Work[str]:
    """The work of :func:`print_value`."""
    return _render(value, limit, atom or print_atom)


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


def print_atom(value: Any) -> str:
    """A value other than a list or dict, in program notation."""
    if type(value) not in _ATOMS:
        value = exact(value)
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


def too_deep() -> LimitExceeded:
    """The error for data nested too deep to be written."""
    return LimitExceeded(
        f"data is nested deeper than {MAX_DATA_DEPTH} levels, too deep to write out",
        limit="depth",
        allowed=MAX_DATA_DEPTH,
        hint="write out its parts",
    )


def _render(value: object, limit: int | None, atom: Callable[[Any], str]) -> Work[str]:
    """The text of ``value``, with an explicit stack of closers and iterators."""
    out: list[str] = []
    size = count = 0
    stack: list[Iterator[Any]] = [iter((value,))]
    closers: list[str] = [""]
    while stack:
        for part in stack[-1]:
            count += 1
            if count == PART:
                yield PART // ELEMENTS_PER_STEP
                count = 0
            if isinstance(part, _Text):
                text = part
            else:
                opened = _open(part)
                if opened is not None:
                    opener, inside, closer = opened
                    if len(stack) > MAX_DATA_DEPTH:
                        raise too_deep()
                    out.append(opener)
                    size += len(opener)
                    stack.append(inside)
                    closers.append(closer)
                    break
                text = atom(part)
            out.append(text)
            size += len(text)
            if limit is not None and size > limit:
                return "".join(out)[:limit] + "..."
        else:
            stack.pop()
            out.append(closers.pop())
    return "".join(out)


class _Text(str):
    """Text between values, distinguished from values by its type."""

    __slots__ = ()


_SPACE = _Text(" ")


def _open(value: Any) -> tuple[str, Iterator[Any], str] | None:
    if type(value) in _ATOMS:
        return None
    value = exact(value)
    if isinstance(value, list | tuple | SharedList):
        elements = value.plain() if isinstance(value, SharedList) else cast("list[Any]", value)
        if len(elements) == 2 and isinstance(elements[0], Symbol):
            mark = _QUOTES.get(elements[0].name)
            if mark is not None:
                return mark, iter((elements[1],)), ""
        return "(", _spaced(elements), ")"
    if is_dict(value):
        return "{", _entries(value), "}"
    if isinstance(value, MappingModel):
        return "{", _entries(dict(value)), "}"
    return None


def _spaced(elements: Sequence[Any]) -> Iterator[Any]:
    lead = ""
    for part in slices(elements, _RUN):
        if _NUMBERS.issuperset(map(type, part)):
            yield _Text(lead + " ".join(map(write_number, part)))
        else:
            for index, element in enumerate(part):
                if index or lead:
                    yield _SPACE
                yield element
        lead = " "


def _entries(mapping: Mapping[Any, Any]) -> Iterator[Any]:
    lead = ""
    for key, item in mapping.items():
        yield _Text(f"{lead}{print_atom(key)} ")
        yield item
        lead = " "
