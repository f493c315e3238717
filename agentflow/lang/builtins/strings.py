"""Text. Indices count characters from 0; sizes are charged before a string is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from agentflow.core.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.values import Symbol
from agentflow.lang.builtins.lists import items
from agentflow.lang.builtins.numbers import integer, number
from agentflow.lang.builtins.registry import (
    Bounded,
    charge_collection,
    charge_string,
    primitive,
    wrong_element,
    wrong_type,
)
from agentflow.lang.printer import MAX_DIGITS, print_value, write_json, write_number

_NUMBER = re.compile(r"[+-]?(?:(?P<whole>[0-9]+)|(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?)")
_NOT_FINITE = {"+inf.0": float("inf"), "-inf.0": float("-inf"), "+nan.0": float("nan")}


def string(who: str, position: int, value: Any) -> str:
    """``value`` as a string; ``type/argument`` when it is none."""
    if isinstance(value, str):
        return value
    hint = None
    if isinstance(value, Symbol):
        hint = "(symbol->string s) gives a symbol's text"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        hint = "(number->string n) gives a number's text, (format \"{}\" value) any value's"
    wrong_type(who, position, "a string", value, hint=hint)


@primitive("string=?", usage="(string=? a b)", arity=(2, 2))
def string_equal(a: Any, b: Any) -> bool:
    """Whether two strings are the same. Other values are compared by ``equal?``."""
    return string("string=?", 1, a) == string("string=?", 2, b)


@primitive("string?", usage="(string? value)", arity=(1, 1))
def is_string(value: Any) -> bool:
    """Whether the value is a string. A symbol is none."""
    return isinstance(value, str)


@primitive("string-append", usage="(string-append string ...)", arity=(0, None), needs_rt=True)
def string_append(rt: Bounded, *strings: Any) -> str:
    """The strings joined into one. For other values use ``format``."""
    parts = [string("string-append", position, each) for position, each in enumerate(strings, 1)]
    charge_string(rt, sum(map(len, parts)), "string-append")
    return "".join(parts)


@primitive("string-join", usage="(string-join strings [separator])", arity=(1, 2), needs_rt=True)
def string_join(rt: Bounded, strings: Any, separator: Any = " ") -> str:
    """The strings of a list joined into one, with the separator (one space when left out) between them."""
    hint = "the list comes first, then the separator"
    if isinstance(strings, str) and isinstance(separator, list):
        wrong_type("string-join", 1, "a list", strings, hint=hint)
    parts = items("string-join", 1, strings)
    between = string("string-join", 2, separator)
    for at, part in enumerate(parts):
        if not isinstance(part, str):
            hint = 'make texts of them first: (map (lambda (x) (format "{}" x)) list)'
            wrong_element("string-join", at, "string", part, hint=hint)
    charge_string(rt, sum(map(len, parts)) + len(between) * max(0, len(parts) - 1), "string-join")
    return between.join(parts)


@primitive("string-split", usage="(string-split string [separator])", arity=(1, 2), needs_rt=True)
def string_split(rt: Bounded, text: Any, separator: Any = None) -> list[str]:
    """The parts of a string between separators; without a separator, its words."""
    given = string("string-split", 1, text)
    if separator is None:
        return given.split()
    mark = string("string-split", 2, separator)
    if not mark:
        raise _empty("string-split", "separator")
    charge_collection(rt, given.count(mark) + 1, "string-split")
    return given.split(mark)


def _empty(who: str, what: str) -> SexpEvaluationError:
    return SexpEvaluationError(f"{who}: the {what} is empty", code="string/empty", hint="give at least one character")


@primitive("string-replace", usage="(string-replace string old new)", arity=(3, 3), needs_rt=True)
def string_replace(rt: Bounded, text: Any, old: Any, new: Any) -> str:
    """The string with every occurrence of ``old`` replaced by ``new``. Both are plain text, not patterns."""
    given, before, after = (string("string-replace", at, each) for at, each in enumerate((text, old, new), 1))
    if not before:
        raise _empty("string-replace", "text to replace")
    charge_string(rt, len(given) + given.count(before) * (len(after) - len(before)), "string-replace")
    return given.replace(before, after)


@primitive("string-trim", usage="(string-trim string)", arity=(1, 1))
def string_trim(text: Any) -> str:
    """The string without white space at both ends."""
    return string("string-trim", 1, text).strip()


@primitive("string-upcase", usage="(string-upcase string)", arity=(1, 1), needs_rt=True)
def string_upcase(rt: Bounded, text: Any) -> str:
    """The string in upper case."""
    given = string("string-upcase", 1, text)
    charge_string(rt, len(given) * (1 if given.isascii() else 3), "string-upcase")
    return given.upper()


@primitive("string-downcase", usage="(string-downcase string)", arity=(1, 1), needs_rt=True)
def string_downcase(rt: Bounded, text: Any) -> str:
    """The string in lower case."""
    given = string("string-downcase", 1, text)
    charge_string(rt, len(given) * (1 if given.isascii() else 3), "string-downcase")
    return given.lower()


@primitive("substring", usage="(substring string start [end])", arity=(2, 3))
def substring(text: Any, start: Any, end: Any = None) -> str:
    """The characters from start up to, not including, end (the string's end when left out). Outside: ``string/index``."""
    given = string("substring", 1, text)
    first = integer("substring", 2, start)
    last = len(given) if end is None else integer("substring", 3, end)
    if not 0 <= first <= last <= len(given):
        raise SexpEvaluationError(
            f"substring: start and end must satisfy 0 <= start <= end <= {len(given)}, the string's length",
            code="string/index",
            hint="(length string) gives the length; (min end (length string)) stays inside",
        )
    return given[first:last]


@primitive("string-contains?", usage="(string-contains? string part)", arity=(2, 2))
def string_contains(text: Any, part: Any) -> bool:
    """Whether the part occurs in the string. Upper and lower case differ."""
    return string("string-contains?", 2, part) in string("string-contains?", 1, text)


@primitive("number->string", usage="(number->string number)", arity=(1, 1))
def number_to_string(value: Any) -> str:
    """The number as text that reads back as the same number. More than 4,300 digits are refused."""
    return write_number(number("number->string", 1, value))


@primitive("string->number", usage="(string->number string)", arity=(1, 1))
def string_to_number(text: Any) -> Any:
    """The number that a text is, white space around it aside; false when it is none. More than 4,300 digits are refused."""
    given = string("string->number", 1, text).strip()
    if given in _NOT_FINITE:
        return _NOT_FINITE[given]
    found = _NUMBER.fullmatch(given)
    if found is None:
        return False
    if found["whole"] is None:
        return float(given)
    if len(found["whole"]) > MAX_DIGITS:
        raise LimitExceeded(
            f"string->number: the text has {len(found['whole'])} digits; at most {MAX_DIGITS} are read",
            limit="integer_digits",
            allowed=MAX_DIGITS,
            used=len(found["whole"]),
            hint="a number this long is hardly a number: keep it as text",
        )
    return int(given)


@primitive("symbol->string", usage="(symbol->string symbol)", arity=(1, 1))
def symbol_to_string(value: Any) -> str:
    """The symbol's name as a string."""
    if isinstance(value, Symbol):
        return value.name
    wrong_type("symbol->string", 1, "a symbol", value)


@primitive("string->symbol", usage="(string->symbol string)", arity=(1, 1))
def string_to_symbol(text: Any) -> Symbol:
    """The symbol of that name."""
    return Symbol(string("string->symbol", 1, text))


def text_of(value: object, allowed: int) -> str:
    """``value`` as it reads inside a sentence: text as it is, a symbol's name, none as nothing, data as JSON.

    What JSON has no word for reads as it prints. ``allowed`` is the most characters the text may have.
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
        return write_json(value, allowed=allowed)
    except SexpEvaluationError:
        return print_value(value, limit=allowed)


_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PLACE_NAME = re.compile(r"[^\s.\[\]!:{}]+")


@primitive("format", usage="(format template value ... [dict])", arity=(1, None), needs_rt=True)
def format_text(rt: Bounded, template: Any, *values: Any) -> str:
    """The template with its places filled in.

    ``{}`` takes the values in order; ``{name}`` looks the name up in a dict given as the last value. ``{{`` and ``}}``
    are plain braces. Text goes in as it is, a symbol by name, none as nothing, other data as JSON. Nothing else has a
    meaning inside the braces: no index, attribute or width. Too few or too many values are ``format/values``.
    """
    text = string("format", 1, template)
    places = list(_PLACE.finditer(text))
    names = [place[1] for place in places if place[1]]
    last = values[-1] if values else None
    named = cast("Mapping[Any, Any]", last) if names and isinstance(last, Mapping) else None
    positional = values[:-1] if named is not None else values
    out: list[str] = []
    size = at = used = 0
    for place in places:
        filled = place.group()
        if filled in ("{{", "}}"):
            filled = filled[0]
        elif filled == "{}":
            if used >= len(positional):
                raise _values(f"the template has more {{}} than values were given, which is {len(positional)}")
            filled = text_of(positional[used], rt.limits.string)
            used += 1
        else:
            filled = text_of(_named(place, text, named), rt.limits.string)
        size += place.start() - at + len(filled)
        charge_string(rt, size, "format")
        out += (text[at : place.start()], filled)
        at = place.end()
    if used != len(positional):
        raise _values(f"{len(positional)} values were given and the template has {used} {{}}")
    charge_string(rt, size + len(text) - at, "format")
    return "".join([*out, text[at:]])


def _values(message: str) -> SexpEvaluationError:
    return SexpEvaluationError(
        f"format: {message}",
        code="format/values",
        hint="each {} takes one value; a literal brace is written {{ or }}",
    )


def _named(place: re.Match[str], text: str, named: Mapping[Any, Any] | None) -> Any:
    name = place[1]
    if name is None or not _PLACE_NAME.fullmatch(name):
        shown = text[place.start() : place.start() + 30]
        raise SexpEvaluationError(
            f"format: a brace at character {place.start()} begins no place: {shown}",
            code="format/place",
            hint="places are {} and {name}; a literal brace is written {{ or }}",
        )
    if named is None:
        raise _values(f"{{{name}}} needs a dict as the last value")
    if name not in named:
        raise _values(f"the dict given has no key {name[:60]!r} for the place {{{name[:60]}}}")
    return named[name]
