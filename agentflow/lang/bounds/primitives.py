"""The transfer functions of primitives: abstract values of calls, selected by the ``size`` that a primitive declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.values import (
    DATA,
    FOREIGN,
    NIL,
    PLAIN,
    TEXT,
    Mark,
    Value,
    joined,
    number,
    sequence,
    text,
)

Abstract: TypeAlias = Callable[[list[Value]], Value]


def given(word: str, arguments: list[Value]) -> Value:
    """The abstract value of a call of a primitive with the size ``word``; without one, a value that may contain any argument."""
    if any(each.never for each in arguments):
        return joined(arguments[:0])
    rule = RULES.get(word)
    if rule is not None:
        return rule(arguments)
    return FOREIGN if any(each.holds_procedures for each in arguments) else DATA


def shortest(lists: list[Value]) -> Bound | None:
    """An upper bound of the shortest of ``lists``: the least number among the lengths, else the first known length."""
    lengths = [each.elements for each in lists]
    bounded = [each for each in lengths if each is not None and each.terms is not None]
    numbers = [each.number for each in bounded if each.number is not None]
    return Bound.of(min(numbers)) if numbers else bounded[0] if bounded else None


def like(value: Value, size: Bound | None, item: Value) -> Value:
    """A list of at most the length of ``value``."""
    return sequence(size, item).but(marks=_as_long(value.marks))


def _as_long(marks: Mapping[tuple[int, int], Mark], drop: int = 0) -> dict[tuple[int, int], Mark]:
    return {key: Mark(mark.drop + drop, None) for key, mark in marks.items()}


def _elements(value: Value) -> Value:
    return joined([]) if value.size == ZERO else value.element()


def _list(arguments: list[Value]) -> Value:
    return sequence(len(arguments), joined(arguments))


def _cons(arguments: list[Value]) -> Value:
    first, rest = arguments
    size = rest.elements
    return sequence(None if size is None else size + ONE, first.join(_elements(rest)))


def _element(arguments: list[Value]) -> Value:
    return joined([arguments[0].element(), *arguments[2:]])


def _rest(arguments: list[Value]) -> Value:
    return _dropped(arguments[0], 1)


def _dropped(value: Value, count: int) -> Value:
    size = value.size
    if size is not None and size.number is not None:
        size = Bound.of(max(0, size.number - count))
    if value.fields is not None:
        return FOREIGN if value.holds_procedures else DATA
    return value.but(size=size, marks=_as_long(value.marks, count), length_of={})


def _append(arguments: list[Value]) -> Value:
    total: Bound | None = ZERO
    for each in arguments:
        total = total + each.elements if total is not None and each.elements is not None else None
    return sequence(total, joined(map(_elements, arguments)))


def _same_length(arguments: list[Value]) -> Value:
    return like(arguments[0], arguments[0].elements, _elements(arguments[0]))


def _range(arguments: list[Value]) -> Value:
    start, end = (number(0, ZERO, whole=True), arguments[0]) if len(arguments) == 1 else (arguments[0], arguments[1])
    item = number(None, None, whole=True)
    if len(arguments) < 3 or (arguments[2].low or 0) > 0:
        size = _less(end.high, start.low)
        item = number(start.low, end.high, whole=True)
    elif arguments[2].high == ZERO:
        size = _less(start.high, end.low)
    else:
        size = None
    return sequence(size, item)


def _less(high: Bound | None, low: float | None) -> Bound | None:
    """An upper bound of ``high - low``."""
    if high is None or low is None:
        return None
    if low < 0:
        return high + Bound.of(-low)
    return Bound.of(max(0, high.number - low)) if high.number is not None else high


def _zip(arguments: list[Value]) -> Value:
    return sequence(shortest(arguments), sequence(len(arguments), joined(map(_elements, arguments))))


def _dict(arguments: list[Value]) -> Value:
    return _put([NIL, *arguments])


def _put(arguments: list[Value]) -> Value:
    record, entries = arguments[0], arguments[1:]
    keys = [_text(each) for each in entries[::2]]
    values = entries[1::2]
    length = record.length
    size = None if length is None else length + Bound.of(len(values))
    fields = record.fields
    if record.size == ZERO:
        fields = dict[str, Value]()
    if fields is None or None in keys or len(keys) != len(values):
        return sequence(size, joined([*values, _elements(record)]))
    return Value(size=size, fields={**fields, **dict(zip(map(str, keys), values, strict=True))})


def _text(value: Value) -> str | None:
    return next(iter(value.texts)) if value.texts is not None and len(value.texts) == 1 else None


def _merge(arguments: list[Value]) -> Value:
    whole = Value(size=ZERO, fields={})
    for each in arguments:
        lengths = whole.length, each.length
        size = lengths[0] + lengths[1] if lengths[0] is not None and lengths[1] is not None else None
        if whole.fields is not None and each.fields is not None:
            whole = Value(size=size, fields={**whole.fields, **each.fields})
        else:
            whole = sequence(size, joined([_elements(whole), _elements(each)]))
    return whole


def _get(arguments: list[Value]) -> Value:
    record, key, *default = arguments
    name = _text(key)
    value = record.element() if name is None else record.part(name)
    return joined([value, *(default or [NIL])])


def _values(arguments: list[Value]) -> Value:
    return like(arguments[0], arguments[0].length, _elements(arguments[0]))


def _keys(arguments: list[Value]) -> Value:
    return sequence(arguments[0].length, TEXT)


def _length(arguments: list[Value]) -> Value:
    value = arguments[0]
    return number(0, value.length, whole=True).but(length_of=value.marks)


def _plus(arguments: list[Value]) -> Value:
    low: float | None = 0
    high: Bound | None = ZERO
    for each in arguments:
        low = low + each.low if low is not None and each.low is not None else None
        high = high + each.high if high is not None and each.high is not None else None
    total = number(low, high, whole=all(each.whole for each in arguments))
    marked = [each for each in arguments if each.marks]
    others = [each.exactly for each in arguments if not each.marks]
    if len(marked) == 1 and None not in others:
        return total.but(marks=_moved(marked[0].marks, sum(each for each in others if each is not None)))
    lengths = [each for each in arguments if each.length_of]
    others = [each.exactly for each in arguments if not each.length_of]
    if len(lengths) == 1 and None not in others:
        return total.but(length_of=_more(lengths[0], sum(each for each in others if each is not None)))
    return total


def _more(length: Value, by: int) -> dict[tuple[int, int], Mark]:
    """The marks of a number plus ``by``, about the lists with lengths that determine it."""
    return {
        key: replace(mark, delta=mark.delta + by * mark.divisor)
        for key, mark in length.length_of.items()
        if mark.delta is not None
    }


def _shared(length: Value, by: Value) -> dict[tuple[int, int], Mark]:
    """The marks of a number divided by ``by``, about the lists with lengths that determine it."""
    if by.exactly is None or by.exactly < 2:
        return {}
    exact = {key: mark for key, mark in length.length_of.items() if mark.delta is not None}
    return {key: replace(mark, divisor=mark.divisor * by.exactly) for key, mark in exact.items()}


def _moved(marks: Mapping[tuple[int, int], Mark], by: int) -> dict[tuple[int, int], Mark]:
    return {key: Mark(0, None if mark.delta is None else mark.delta + by) for key, mark in marks.items()}


def _minus(arguments: list[Value]) -> Value:
    first, *others = arguments
    if not others:
        return number(
            None if first.high is None or first.high.number is None else -first.high.number, None, whole=first.whole
        )
    other = others[0]
    low = (
        first.low - other.high.number
        if first.low is not None and other.high is not None and other.high.number is not None
        else None
    )
    difference = number(low, _less(first.high, other.low), whole=first.whole and other.whole)
    by = other.exactly
    if by is None:
        return difference
    return difference.but(marks=_moved(first.marks, -by), length_of=_more(first, -by))


def _times(arguments: list[Value]) -> Value:
    whole = all(each.whole for each in arguments)
    if any(each.low is None or each.low < 0 for each in arguments):
        return number(None, None, whole=whole)
    high: Bound | None = ONE
    for each in arguments:
        high = high * each.high if high is not None and each.high is not None else None
    return number(0, high, whole=whole)


def _min(arguments: list[Value]) -> Value:
    lows = [each.low for each in arguments]
    highs = [each.high for each in arguments if each.high is not None]
    numbers = [each.number for each in highs if each.number is not None]
    high = Bound.of(min(numbers)) if numbers else highs[0] if highs else None
    low = None if None in lows else min(each for each in lows if each is not None)
    return number(low, high, whole=all(each.whole for each in arguments))


def _max(arguments: list[Value]) -> Value:
    lows = [each.low for each in arguments if each.low is not None]
    high: Bound | None = ZERO
    for each in arguments:
        high = high.join(each.high) if high is not None and each.high is not None else None
    return number(max(lows, default=None), high, whole=all(each.whole for each in arguments))


def _modulo(arguments: list[Value]) -> Value:
    by = arguments[1]
    return number(0, by.high, whole=True) if (by.low or 0) > 0 else number(None, None, whole=True)


def _quotient(arguments: list[Value]) -> Value:
    value, by = arguments
    marks: Mapping[tuple[int, int], Mark] = {}
    if by.exactly is not None and by.exactly >= 2:
        marks = {key: Mark(0, None, by.exactly) for key, mark in value.marks.items() if mark.delta == 0}
    lengths = _shared(value, by) if value.whole else {}
    if ((value.low or -1) < 0 and value.low != 0) or (by.low or 0) < 1:
        return number(None, None, whole=True).but(marks=marks, length_of=lengths)
    high = value.high
    if high is not None and by.low:
        high = Bound.of(high.number // by.low) if high.number is not None else high * Bound.of(1 / by.low)
    return number(0, high, whole=True).but(marks=marks, length_of=lengths)


def _ratio(arguments: list[Value]) -> Value:
    if len(arguments) != 2:
        return number(None, None, whole=False)
    value, by = arguments
    marks: Mapping[tuple[int, int], Mark] = {}
    if by.exactly is not None and by.exactly >= 2:
        marks = {key: Mark(0, None, by.exactly) for key, mark in value.marks.items() if mark.delta == 0}
    lengths = _shared(value, by)
    if value.low is None or value.low < 0 or value.high is None or by.low is None or by.low < 1:
        return number(None, None, whole=False).but(marks=marks, length_of=lengths)
    return number(0, value.high * Bound.of(1 / by.low), whole=False).but(marks=marks, length_of=lengths)


def _absolute(arguments: list[Value]) -> Value:
    value = arguments[0]
    return value.unmarked() if value.low is not None and value.low >= 0 else number(0, None, whole=value.whole)


def _number(arguments: list[Value]) -> Value:
    return number(None, None, whole=False)


def _content(arguments: list[Value]) -> Value:
    return TEXT


def _value(arguments: list[Value]) -> Value:
    value = arguments[0]
    return value.opened("value") if value.fields is None and value.item is None else DATA.join(value.plain())


def _same(arguments: list[Value]) -> Value:
    return arguments[0]


def _plain(arguments: list[Value]) -> Value:
    return PLAIN


def _found(arguments: list[Value]) -> Value:
    return joined([PLAIN, _elements(arguments[1])])


def _from_found(arguments: list[Value]) -> Value:
    return joined([PLAIN, like(arguments[1], arguments[1].elements, _elements(arguments[1]))])


def _status(arguments: list[Value]) -> Value:
    return text("COMPLETE", "CONTINUATION", "FAILED")


def _data(arguments: list[Value]) -> Value:
    return DATA


def _pieces(arguments: list[Value]) -> Value:
    return sequence(None, TEXT)


def _nil(arguments: list[Value]) -> Value:
    return NIL


RULES: Mapping[str, Abstract] = MappingProxyType(
    {
        "+": _plus,
        "-": _minus,
        "*": _times,
        "/": _ratio,
        "absolute": _absolute,
        "append": _append,
        "cons": _cons,
        "data": _data,
        "dict": _dict,
        "element": _element,
        "entry": _get,
        "found": _found,
        "found-rest": _from_found,
        "keys": _keys,
        "length": _length,
        "list": _list,
        "max": _max,
        "merge": _merge,
        "min": _min,
        "modulo": _modulo,
        "nil": _nil,
        "number": _number,
        "pieces": _pieces,
        "plain": _plain,
        "put": _put,
        "quotient": _quotient,
        "range": _range,
        "rest": _rest,
        "rest-2": lambda arguments: _dropped(arguments[0], 2),
        "same": _same,
        "same-length": _same_length,
        "status": _status,
        "text": _content,
        "value": _value,
        "values": _values,
        "zip": _zip,
    }
)
"""The transfer functions by word. A word says how the form of the result follows from that of the arguments."""
