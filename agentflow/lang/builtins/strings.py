"""Strings. Indices count characters from 0; sizes are charged before a string is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from agentflow.core.data.errors import LimitExceeded, SexpEvaluationError, cut
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.values import Symbol
from agentflow.core.data.walk import CHARACTERS_PER_STEP, ELEMENTS_PER_STEP, Work, slices
from agentflow.lang.builtins.lists import items
from agentflow.lang.builtins.numbers import integer, number
from agentflow.lang.builtins.registry import primitive, wrong_element, wrong_type
from agentflow.lang.calling import MANY_OPERANDS, Sliced, begun
from agentflow.lang.charging import (
    Bounded,
    charge_collection,
    charge_string,
    check_collection,
    check_string,
    touch_bits,
    touch_text,
)
from agentflow.lang.json_writer import json_work
from agentflow.lang.printer import MAX_DIGITS, print_work, write_number
from agentflow.lib.text.late_pattern import late_pattern

_NUMBER = late_pattern(r"[+-]?(?:(?P<whole>[0-9]+)|(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?)")
_LONG = 65_536
"""Characters, or strings, per part of quick work."""
_SPACE = late_pattern(r"\s")
_LONGEST_NUMBER = 2 * MAX_DIGITS
"""Characters past which a text that looks like a number is not read as one."""
_DIGITS = late_pattern(r"[0-9+\-.eE]+")
_FEW = 512
"""Slots or parts of text per part of work."""
_NOT_FINITE = {"+inf.0": float("inf"), "-inf.0": float("-inf"), "+nan.0": float("nan")}


def string(who: str, position: int, value: Any) -> str:
    """``value`` as a string. Raises ``type/argument`` if it is not one."""
    if isinstance(value, str):
        return value
    hint = None
    if isinstance(value, Symbol):
        hint = "(symbol->string s) gives a symbol's text"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        hint = "(number->string n) gives a number's text, (format \"{}\" value) any value's"
    wrong_type(who, position, "a string", value, hint=hint)


def _both(rt: Bounded, who: str, a: Any, b: Any) -> tuple[str, str]:
    """Two strings to be compared."""
    left, right = string(who, 1, a), string(who, 2, b)
    touch_text(rt, min(len(left), len(right)))
    return left, right


@primitive("string=?", usage="(string=? a b)", arity=(2, 2), needs_rt=True, size="plain", takes="s")
def string_equal(rt: Bounded, a: Any, b: Any) -> bool:
    """Whether two strings are equal. Use ``equal?`` for other values."""
    left, right = _both(rt, "string=?", a, b)
    return left == right


@primitive("string<?", usage="(string<? a b)", arity=(2, 2), needs_rt=True, size="plain", takes="s")
def string_less(rt: Bounded, a: Any, b: Any) -> bool:
    """Whether the first string comes before the second, by code point; the order of ``sort``."""
    left, right = _both(rt, "string<?", a, b)
    return left < right


@primitive("string>?", usage="(string>? a b)", arity=(2, 2), needs_rt=True, size="plain", takes="s")
def string_greater(rt: Bounded, a: Any, b: Any) -> bool:
    """Whether the first string comes after the second, by code point."""
    left, right = _both(rt, "string>?", a, b)
    return left > right


@primitive("string-length", usage="(string-length string)", arity=(1, 1), size="length", takes="s")
def string_length(value: Any) -> int:
    """The number of characters."""
    return len(string("string-length", 1, value))


@primitive("string?", usage="(string? value)", arity=(1, 1), size="plain", flow="o")
def is_string(value: Any) -> bool:
    """Whether the value is a string. A symbol is not."""
    return isinstance(value, str)


@primitive("string-append", usage="(string-append string ...)", arity=(0, None), needs_rt=True, size="text", takes="s")
def string_append(rt: Bounded, *strings: Any) -> str:
    """The strings concatenated. Use ``format`` for other values."""
    if len(strings) >= MANY_OPERANDS:
        return cast("str", Sliced(_appended(rt, strings)))
    parts = [string("string-append", position, each) for position, each in enumerate(strings, 1)]
    charge_string(rt, sum(map(len, parts)), "string-append")
    return "".join(parts)


def _appended(rt: Bounded, strings: tuple[Any, ...]) -> Work[str]:
    parts: list[str] = []
    size = 0
    for some in slices(strings):
        yield len(some) // ELEMENTS_PER_STEP
        parts += [string("string-append", position, each) for position, each in enumerate(some, len(parts) + 1)]
        size += sum(map(len, some))
    charge_string(rt, size, "string-append")
    return (yield from _concatenated(parts, ""))


@primitive("string-join", usage="(string-join strings [separator])", arity=(1, 2), sliced=True, size="text", takes="ls")
def string_join(rt: Bounded, strings: Any, separator: Any = " ") -> Any:
    """The strings of a list joined by the separator (default: one space)."""
    hint = "the list comes first, then the separator"
    if isinstance(strings, str) and isinstance(separator, list):
        wrong_type("string-join", 1, "a list", strings, hint=hint)
    parts = items("string-join", 1, strings)
    between = string("string-join", 2, separator)
    return begun(_joined(rt, parts, between))


def _joined(rt: Bounded, parts: list[Any], between: str) -> Work[str]:
    size = at = 0
    for some in slices(parts):
        if len(some) >= ELEMENTS_PER_STEP:
            yield len(some) // ELEMENTS_PER_STEP
        for part in some:
            if not isinstance(part, str):
                hint = 'make texts of them first: (map (lambda (x) (format "{}" x)) list)'
                wrong_element("string-join", at, "string", part, hint=hint)
            size += len(part)
            at += 1
    charge_string(rt, size + len(between) * max(0, len(parts) - 1), "string-join")
    return (yield from _concatenated(parts, between))


def _concatenated(parts: list[str], between: str) -> Work[str]:
    if len(parts) <= _LONG:
        return between.join(parts)
    joined: list[str] = []
    for some in slices(parts, _LONG):
        yield 0
        joined.append(between.join(some))
    return between.join(joined)


@primitive(
    "string-split", usage="(string-split string [separator])", arity=(1, 2), sliced=True, size="pieces", takes="sS"
)
def string_split(rt: Bounded, text: Any, separator: Any = None) -> Any:
    """The parts of a string between separators; without a separator, its words."""
    source = string("string-split", 1, text)
    touch_text(rt, len(source))
    if separator is None:
        return begun(_words(rt, source))
    mark = string("string-split", 2, separator)
    if not mark:
        raise _empty("string-split", "separator")
    charge_collection(rt, source.count(mark) + 1, "string-split")
    return source.split(mark) if len(source) < _LONG else Sliced(_split(source, mark))


def _words(rt: Bounded, source: str) -> Work[list[str]]:
    """The words of a text, one stretch at a time: the last word of a stretch may continue in the next."""
    words: list[str] = []
    at = 0
    while at < len(source):
        end = min(at + _LONG, len(source))
        if at or end < len(source):
            yield 0
        while end < len(source) and not source[end - 1].isspace():
            gap = _SPACE.search(source, end, min(end + _LONG, len(source)))
            end = gap.end() if gap is not None else min(end + _LONG, len(source))
            yield 0
        words += source[at:end].split()
        check_collection(rt, len(words), "string-split")
        at = end
    charge_collection(rt, len(words), "string-split")
    return words


def _split(source: str, mark: str) -> Work[list[str]]:
    """The parts of a long text, one stretch at a time; the text after the last separator belongs to the next stretch."""
    parts: list[str] = []
    at = 0
    while at + _LONG < len(source):
        *some, rest = source[at : at + _LONG].split(mark)
        if some:
            parts += some
            at += _LONG - len(rest)
        else:  # a part that is longer than a stretch
            end = source.find(mark, at)
            if end < 0:
                break
            parts.append(source[at:end])
            at = end + len(mark)
        yield 0
    return parts + source[at:].split(mark)


def _empty(who: str, what: str) -> SexpEvaluationError:
    return SexpEvaluationError(f"{who}: the {what} is empty", code="string/empty", hint="give at least one character")


@primitive(
    "string-replace", usage="(string-replace string old new)", arity=(3, 3), needs_rt=True, size="text", takes="s"
)
def string_replace(rt: Bounded, text: Any, old: Any, new: Any) -> str:
    """The string with every ``old`` replaced by ``new``. Both are plain text, not patterns."""
    source, before, after = (string("string-replace", at, each) for at, each in enumerate((text, old, new), 1))
    if not before:
        raise _empty("string-replace", "text to replace")
    touch_text(rt, len(source))
    charge_string(rt, len(source) + source.count(before) * (len(after) - len(before)), "string-replace")
    return source.replace(before, after)


@primitive("string-trim", usage="(string-trim string)", arity=(1, 1), needs_rt=True, size="text", takes="s")
def string_trim(rt: Bounded, text: Any) -> str:
    """The string without leading and trailing white space."""
    source = string("string-trim", 1, text)
    touch_text(rt, len(source))
    return source.strip()


def _recased(source: str, change: Callable[[str], str]) -> Work[str]:
    """A text in another case. The form of a sigma depends on its neighbours, so a text with one is changed as a whole."""
    if len(source) <= _LONG or source.isascii() or "\u03a3" in source:
        return change(source)
    out: list[str] = []
    for start in range(0, len(source), _LONG):
        yield 0
        out.append(change(source[start : start + _LONG]))
    return "".join(out)


@primitive("string-upcase", usage="(string-upcase string)", arity=(1, 1), sliced=True, size="text", takes="s")
def string_upcase(rt: Bounded, text: Any) -> Any:
    """The string in upper case."""
    source = string("string-upcase", 1, text)
    charge_string(rt, len(source) * (1 if source.isascii() else 3), "string-upcase")
    return begun(_recased(source, str.upper))


@primitive("string-downcase", usage="(string-downcase string)", arity=(1, 1), sliced=True, size="text", takes="s")
def string_downcase(rt: Bounded, text: Any) -> Any:
    """The string in lower case."""
    source = string("string-downcase", 1, text)
    charge_string(rt, len(source) * (1 if source.isascii() else 3), "string-downcase")
    return begun(_recased(source, str.lower))


@primitive("substring", usage="(substring string start [end])", arity=(2, 3), needs_rt=True, size="text", takes="siI")
def substring(rt: Bounded, text: Any, start: Any, end: Any = None) -> str:
    """The characters from start up to, not including, end (default: the string's end). Outside: ``string/index``."""
    source = string("substring", 1, text)
    first = integer("substring", 2, start)
    last = len(source) if end is None else integer("substring", 3, end)
    if not 0 <= first <= last <= len(source):
        raise SexpEvaluationError(
            f"substring: start and end must satisfy 0 <= start <= end <= {len(source)}, the string's length",
            code="string/index",
            hint="(length string) gives the length; (min end (length string)) stays inside",
        )
    touch_text(rt, last - first)
    return source[first:last]


@primitive(
    "string-contains?", usage="(string-contains? string part)", arity=(2, 2), needs_rt=True, size="plain", takes="s"
)
def string_contains(rt: Bounded, text: Any, part: Any) -> bool:
    """Whether the part occurs in the string. Case matters."""
    sought, source = string("string-contains?", 2, part), string("string-contains?", 1, text)
    touch_text(rt, len(source) + len(sought))
    return sought in source


@primitive("number->string", usage="(number->string number)", arity=(1, 1), needs_rt=True, size="text", takes="n")
def number_to_string(rt: Bounded, value: Any) -> str:
    """The number as text that reads as the same number. More than 4,300 digits are refused."""
    exact = number("number->string", 1, value)
    touch_bits(rt, exact)
    return write_number(exact)


@primitive("string->number", usage="(string->number string)", arity=(1, 1), needs_rt=True, size="number", takes="s")
def string_to_number(rt: Bounded, text: Any) -> Any:
    """The number that a text denotes, ignoring surrounding white space; false if none. At most 4,300 digits."""
    source = string("string->number", 1, text)
    touch_text(rt, len(source))
    source = source.strip()
    if len(source) > _LONGEST_NUMBER:
        if not _DIGITS.fullmatch(source, 0, _LONGEST_NUMBER):
            return False
        raise _too_many_digits(len(source))
    if source in _NOT_FINITE:
        return _NOT_FINITE[source]
    match = _NUMBER.fullmatch(source)
    if match is None:
        return False
    if match["whole"] is None:
        return float(source)
    if len(match["whole"]) > MAX_DIGITS:
        raise _too_many_digits(len(match["whole"]))
    return int(source)


def _too_many_digits(count: int) -> LimitExceeded:
    return LimitExceeded(
        f"string->number: the text has {count} digits; at most {MAX_DIGITS} are read",
        limit="integer_digits",
        allowed=MAX_DIGITS,
        used=count,
        hint="a number this long is hardly a number: keep it as text",
    )


@primitive("symbol->string", usage="(symbol->string symbol)", arity=(1, 1), size="text", takes="y")
def symbol_to_string(value: Any) -> str:
    """The symbol's name as a string."""
    if isinstance(value, Symbol):
        return value.name
    wrong_type("symbol->string", 1, "a symbol", value)


@primitive("string->symbol", usage="(string->symbol string)", arity=(1, 1), size="text", takes="s")
def string_to_symbol(text: Any) -> Symbol:
    """The symbol of that name."""
    return Symbol(string("string->symbol", 1, text))


def text_work(rt: Bounded, value: object) -> Work[str]:
    """``value`` as text inside a sentence: text unchanged, a symbol's name, none as nothing, data as JSON.

    A value without a JSON form is printed.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Symbol):
        return value.name
    if value is None:
        return ""
    if isinstance(value, int | float):
        return write_number(value)
    try:
        return (yield from json_work(value, rt))
    except SexpEvaluationError:
        return (yield from print_work(value, limit=rt.limits.string))


_PLACE = late_pattern(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PLACE_NAME = late_pattern(r"[^\s.\[\]!:{}]+")


@primitive("format", usage="(format template value ... [dict])", arity=(1, None), sliced=True, size="text", takes="s.")
def format_text(rt: Bounded, template: Any, *values: Any) -> Any:
    """The template with its slots filled in.

    ``{}`` takes the values in order; ``{name}`` is looked up in the last value, a dict. ``{{`` and ``}}`` are plain
    braces. Text is inserted unchanged, a symbol as its name, none as nothing, other data as JSON. Braces hold nothing
    else: no index, attribute or width. Too few or too many values are ``format/values``.
    """
    return begun(_filled(rt, string("format", 1, template), values))


def _filled(rt: Bounded, text: str, values: tuple[Any, ...]) -> Work[str]:
    if len(text) >= CHARACTERS_PER_STEP:
        yield len(text) // CHARACTERS_PER_STEP
    slots = yield from _slots(text)
    last = values[-1] if values else None
    named = last if is_dict(last) and any(slot[1] for slot in slots) else None
    positional = values[:-1] if named is not None else values
    out: list[str] = []
    size = at = used = 0
    for count, slot in enumerate(slots, 1):
        if count % _FEW == 0:
            yield _FEW // ELEMENTS_PER_STEP
        filled = slot.group()
        if filled in ("{{", "}}"):
            filled = filled[0]
        elif filled == "{}":
            if used >= len(positional):
                raise _values(f"the template has more {{}} than values were given, which is {len(positional)}")
            filled = yield from text_work(rt, positional[used])
            used += 1
        else:
            filled = yield from text_work(rt, _named(slot, text, named))
        size += slot.start() - at + len(filled)
        check_string(rt, size, "format")
        out += (text[at : slot.start()], filled)
        at = slot.end()
    if used != len(positional):
        raise _values(f"{len(positional)} values were given and the template has {used} {{}}")
    size += len(text) - at
    charge_string(rt, size, "format")
    return "".join([*out, text[at:]])


def _slots(text: str) -> Work[list[re.Match[str]]]:
    """Everything in braces. Finding a brace is fast; the pattern is asked only there."""
    slots: list[re.Match[str]] = []
    at, opening, closing = 0, text.find("{"), text.find("}")
    while opening >= 0 or closing >= 0:
        slot = _PLACE.match(text, min(opening, closing) if opening >= 0 and closing >= 0 else max(opening, closing))
        assert slot is not None, "a brace is a slot of its own at the least"
        slots.append(slot)
        at = slot.end()
        opening = text.find("{", at) if 0 <= opening < at else opening
        closing = text.find("}", at) if 0 <= closing < at else closing
        if len(slots) % _FEW == 0:
            yield _FEW // ELEMENTS_PER_STEP
    return slots


def _values(message: str) -> SexpEvaluationError:
    return SexpEvaluationError(
        f"format: {message}",
        code="format/values",
        hint="each {} takes one value; a literal brace is written {{ or }}",
    )


def _named(slot: re.Match[str], text: str, named: Mapping[Any, Any] | None) -> Any:
    name = slot[1]
    if name is None or not _PLACE_NAME.fullmatch(name):
        shown = text[slot.start() : slot.start() + 30]
        raise SexpEvaluationError(
            f"format: a brace at character {slot.start()} begins no place: {shown}",
            code="format/place",
            hint="places are {} and {name}; a literal brace is written {{ or }}",
        )
    if named is None:
        raise _values(f"{{{name}}} needs a dict as the last value")
    if name not in named:
        raise _values(f"the dict given has no key {cut(name, 60)!r} for the place {{{cut(name, 60)}}}")
    return named[name]
