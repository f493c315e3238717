"""Operators, truth, elements and fields of values: native operations behind tests of exact types, errors for the rest."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.data.errors import SexpEvaluationError, cut
from agentflow.core.data.labels import Label, each_boxed
from agentflow.core.data.mapping_records import Entries, Record
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import OrderedSet, SharedList, Symbol
from agentflow.core.data.walk import LEAVES
from agentflow.lang.abi import Runtime
from agentflow.lang.builtins.records import field_of
from agentflow.lang.calling import Sentinel, begun
from agentflow.lang.charging import (
    charge_collection,
    charge_string,
    check_bits,
    touch_bits,
    touch_elements,
    touch_product,
)
from agentflow.lang.closure import Closure
from agentflow.lang.python.boxed.keyed import combined, joined
from agentflow.lang.python.compare import NUMBERS, key
from agentflow.lang.python.errors import article, kind_of, outside, wanted, wrong_type, wrong_value
from agentflow.lang.python.rows import code
from agentflow.lib.text.suggest import did_you_mean

MISSING = Sentinel("missing")
SEQUENCES = frozenset((list, tuple, str))
_LARGE = 1 << 256


# -- arithmetic ---------------------------------------------------------------------------------------------------


@code("oo", tested="oo")
def add(rt: Runtime, a: Any, b: Any) -> Any:
    """``a + b``: numbers; texts, lists or tuples joined."""
    kind = type(a)
    if kind in NUMBERS and type(b) in NUMBERS:
        return bounded(rt, a + b, "+")
    if kind is type(b):
        if kind is str:
            charge_string(rt, len(a) + len(b), "+")
            return a + b
        if kind is list or kind is tuple:
            charge_collection(rt, len(a) + len(b), "+")
            return a + b
        if kind is SharedList:
            return add(rt, a.plain(), b.plain())
    _unsupported("+", a, b, "str(x) makes text of a number" if str in (kind, type(b)) else None)


@code("nn", tested="nn", keys=True, long="always")
def subtract(rt: Runtime, a: Any, b: Any) -> Any:
    """``a - b``: numbers; for sets, the elements missing in ``b``."""
    if type(a) in NUMBERS and type(b) in NUMBERS:
        return bounded(rt, a - b, "-")
    if type(a) is OrderedSet and type(b) is OrderedSet:
        touch_elements(rt, len(a.items))
        return begun(combined("-", a, b))
    _unsupported("-", a, b)


@code("oo", tested="oo")
def multiply(rt: Runtime, a: Any, b: Any) -> Any:
    """``a * b``: numbers; a text, list or tuple repeated."""
    if type(a) in NUMBERS and type(b) in NUMBERS:
        if type(a) is int and type(b) is int and not (-_LARGE < a < _LARGE and -_LARGE < b < _LARGE):
            check_bits(rt, a.bit_length() + b.bit_length(), "*")
            touch_product(rt, a, b)
        return a * b
    if type(a) is int:
        a, b = b, a
    if type(a) in SEQUENCES and type(b) in (int, bool):
        size = len(a) * max(b, 0)
        (charge_string if type(a) is str else charge_collection)(rt, size, "*")
        return a * b
    _unsupported("*", a, b)


@code(tested="oo")
def divide(rt: Runtime, a: Any, b: Any) -> Any:
    """``a / b``."""
    return _quotient(rt, operator.truediv, "/", a, b)


@code(tested="oo")
def floor_divide(rt: Runtime, a: Any, b: Any) -> Any:
    """``a // b``."""
    if type(a) is int and type(b) is int and 0 < b < _LARGE and -_LARGE < a < _LARGE:
        return a // b
    return _quotient(rt, operator.floordiv, "//", a, b)


@code(tested="oo")
def modulo(rt: Runtime, a: Any, b: Any) -> Any:
    """``a % b`` of numbers."""
    if type(a) is int and type(b) is int and 0 < b < _LARGE and -_LARGE < a < _LARGE:
        return a % b
    if type(a) is str:
        wrong_type("'%' does not format text here", 'write an f-string: f"{x:.2f}"')
    return _quotient(rt, operator.mod, "%", a, b)


def _quotient(rt: Runtime, divided: Callable[[Any, Any], Any], sign: str, a: Any, b: Any) -> Any:
    if type(a) not in NUMBERS or type(b) not in NUMBERS:
        _unsupported(sign, a, b)
    touch_product(rt, a, b)
    try:
        return divided(a, b)
    except ZeroDivisionError:
        raise SexpEvaluationError("a division by zero", code="number/division-by-zero") from None
    except OverflowError as error:
        raise _overflow(sign) from error


def power(rt: Runtime, a: Any, b: Any) -> Any:
    """``a ** b`` of numbers."""
    if type(a) not in NUMBERS or type(b) not in NUMBERS:
        _unsupported("**", a, b)
    if type(a) is not float and type(b) is not float and b > 0:
        bits = int(a).bit_length() * b
        check_bits(rt, bits, "**")
        touch_product(rt, 1 << bits, 1 << bits) if bits > 4_096 else None
    try:
        value = a**b
    except ZeroDivisionError:
        raise SexpEvaluationError("zero has no negative power", code="number/division-by-zero") from None
    except OverflowError as error:
        raise _overflow("**") from error
    if type(value) is complex:
        wrong_value("a negative number has no such power among the real numbers")
    return value


def shift(rt: Runtime, sign: str, a: Any, b: Any) -> Any:
    """``a << b`` and ``a >> b``."""
    if type(a) not in (int, bool) or type(b) not in (int, bool):
        _unsupported(sign, a, b)
    if b < 0:
        wrong_value(f"'{sign}' takes no negative count")
    if sign == "<<":
        check_bits(rt, int(a).bit_length() + b, sign)
    touch_bits(rt, a)
    return a << b if sign == "<<" else a >> min(b, 1 << 40)


_BITS: dict[str, Callable[[Any, Any], Any]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}


@code("knn", keys=True, long="always")
def bitwise(rt: Runtime, sign: str, a: Any, b: Any) -> Any:
    """``a & b``, ``a | b``, ``a ^ b`` of integers and of sets; ``|`` of dicts too."""
    if type(a) in (int, bool) and type(b) in (int, bool):
        touch_bits(rt, a, b)
        return _BITS[sign](a, b)
    if type(a) is OrderedSet and type(b) is OrderedSet:
        charge_collection(rt, len(a.items) + len(b.items), sign)
        return begun(combined(sign, a, b))
    if sign == "|" and type(a) is dict and type(b) is dict:
        charge_collection(rt, len(a) + len(b), sign)
        return begun(joined(a, b))
    _unsupported(sign, a, b)


def negative(rt: Runtime, a: Any) -> Any:
    """``-a``."""
    if type(a) not in NUMBERS:
        wrong_type(f"'-' takes a number, and was given {article(kind_of(a))}")
    touch_bits(rt, a)
    return -a


def positive(rt: Runtime, a: Any) -> Any:
    """``+a``."""
    if type(a) not in NUMBERS:
        wrong_type(f"'+' takes a number, and was given {article(kind_of(a))}")
    return +a


def inverted(rt: Runtime, a: Any) -> Any:
    """``~a``."""
    if type(a) is not int:
        wrong_type(f"'~' takes an integer, and was given {article(kind_of(a))}")
    return -a - 1


@code("k")
def bounded(rt: Runtime, value: Any, who: str) -> Any:
    """``value``, possibly an integer that has grown past 256 bits. Raises LimitExceeded."""
    if type(value) is int and not -_LARGE < value < _LARGE:
        check_bits(rt, value.bit_length(), who)
        touch_bits(rt, value)
    return value


def _overflow(sign: str) -> SexpEvaluationError:
    return SexpEvaluationError(f"the result of '{sign}' is too large for a float", code="number/overflow")


def _unsupported(sign: str, a: Any, b: Any, hint: str | None = None) -> Any:
    wrong_type(f"'{sign}' does not work on {article(kind_of(a))} and {article(kind_of(b))}", hint)


# -- truth and elements -------------------------------------------------------------------------------------------

_TRUTHS = frozenset((bool, int, float, str, list, dict, tuple, type(None)))


@code("o", tested="o", out="bare")
def truth(value: Any) -> bool:
    """Whether a value counts as true, as in Python. Objects of the host always do, regardless of their class."""
    if type(value) in _TRUTHS:
        return bool(value)
    if type(value) is OrderedSet or type(value) is SharedList:
        return len(value) > 0
    return True


@code("o", out="each")
def iterated(rt: Runtime, value: Any) -> Iterable[Any]:
    """The iterable of ``for``: a list itself, for other values the present elements."""
    if type(value) is list or type(value) is tuple:
        return value
    return elements(rt, value, "for")


@code("ik")
def elements(rt: Runtime, value: Any, who: str) -> Sequence[Any]:
    """The elements of a list, tuple, set or text, the keys of a dict; a new list unless it is a list or tuple."""
    kind = type(value)
    if kind is list or kind is tuple:
        touch_elements(rt, len(value))
        return value
    if kind is SharedList:
        charge_collection(rt, len(value), who)
        return value.plain()
    if kind is str or kind is dict or kind is OrderedSet or isinstance(value, Entries):
        charge_collection(rt, len(value), who)
        return list(value)
    if type(value) is Label:
        return each_boxed(elements(rt, value.value, who), value.sources)
    wanted(who, "a list, tuple, set, dict or text", value)


@code(within=True, long="boxed")
def unpacked(rt: Runtime, value: Any, shape: tuple[Any, ...]) -> list[Any]:
    """The parts of a value for the targets of an assignment, flat.

    ``shape`` has an entry for each target: None, ``"*"`` for a starred one, or the shape of a nested one.
    """
    items = elements(rt, value, "unpacking")
    star = shape.index("*") if "*" in shape else None
    if star is None:
        if len(items) != len(shape):
            wrong_value(f"there are {len(items)} values for {len(shape)} names")
        parts: list[Any] = list(items)
    else:
        after = len(shape) - star - 1
        if len(items) < star + after:
            wrong_value(f"there are {len(items)} values for at least {star + after} names")
        end = len(items) - after
        parts = [*items[:star], list(items[star:end]), *items[end:]]
    if all(each is None or each == "*" for each in shape):
        return parts
    flat: list[Any] = []
    for part, inner in zip(parts, shape, strict=True):
        flat += unpacked(rt, part, inner) if type(inner) is tuple else [part]
    return flat


@code("or", tested="or")
def element(rt: Runtime, value: Any, at: Any) -> Any:
    """``value[at]``."""
    kind = type(value)
    if kind is list and type(at) is int and -len(value) <= at < len(value):
        return value[at]
    if kind is dict or isinstance(value, Entries):
        entries = cast("dict[Any, Any]", value)
        name = at if type(at) is str else key(at)
        if name in entries:
            return entries[name]
        raise _no_key(name, entries)
    if kind is SharedList:
        value, kind = value.plain(), list
    if kind in SEQUENCES:
        if type(at) is not int and type(at) is not bool:
            wanted("an index", "an integer", at)
        if -len(value) <= at < len(value):
            return value[at]
        outside(at, len(value))
    hint = "x.name reads a field" if isinstance(value, Record | BaseModel) else None
    if isinstance(value, TaskResult):
        hint = "x.content is the text of a result, x.parsed_content its data"
    wanted("[...]", "a list, tuple, dict or text before it", value, hint)


def _no_key(name: Any, entries: Iterable[Any]) -> SexpEvaluationError:
    near = did_you_mean(name, [each for each in entries if type(each) is str]) if type(name) is str else None
    return SexpEvaluationError(
        f"the dict has no key {cut(str(name), 80)!r}", code="dict/missing", hint=near or "d.get(key) gives None then"
    )


@code("or", tested="oooo")
def part(rt: Runtime, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """``value[start:stop:step]``."""
    if type(value) is SharedList:
        value = value.plain()
    if type(value) not in SEQUENCES:
        wanted("a slice", "a list, tuple or text", value)
    for each in (start, stop, step):
        if each is not None and type(each) is not int and type(each) is not bool:
            wanted("a slice", "integers", each)
    if step is not None and not step:
        wrong_value("the step of a slice is not zero")
    size = len(range(*slice(start, stop, step).indices(len(value))))
    (charge_string if type(value) is str else charge_collection)(rt, size, "a slice")
    return value[start:stop:step]


_FIELDLESS = frozenset((*SEQUENCES, *LEAVES, OrderedSet, SharedList, Closure, Symbol))
"""Types of values without fields."""


@code("ok", tested="oo")
def member(rt: Runtime, value: Any, name: str) -> Any:
    """``value.name``: a key of a dict, or a declared field of a record. No other attribute of a value is ever read."""
    if type(value) is dict or isinstance(value, Entries):
        entries = cast("dict[Any, Any]", value)
        if name in entries:
            return entries[name]
        near = did_you_mean(name, [each for each in entries if type(each) is str])
        raise _no_member(f"the dict has no key '{name}'", near or f"x.get('{name}') gives None then")
    result = MISSING if type(value) in _FIELDLESS else field_of(value, name, MISSING)
    if result is MISSING:
        hint = "methods are called: x.name()" if type(value) in (*SEQUENCES, OrderedSet) else None
        raise _no_member(f"{article(kind_of(value))} has no field '{name}'", hint)
    return result


def _no_member(message: str, hint: str | None) -> SexpEvaluationError:
    return SexpEvaluationError(message, code="field/missing", hint=hint)
