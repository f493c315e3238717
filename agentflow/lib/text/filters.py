"""The language of filters: ``status=failed label.product=support name=answer* score.judge<0.5 since=7d``.

A filter is a conjunction of terms. A term is the name of a field, one of ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, and a value:
a word, or a text in quotes, where ``*`` stands for any characters and ``?`` for one. The owner of a filter defines the fields and their kinds.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.data.durations import seconds_of
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.lib.text.suggest import did_you_mean

Sign: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
Kind: TypeAlias = Literal["text", "number", "seconds", "since", "until", "any"]
"""The kind of value of a field. ``since`` and ``until`` are bounds of a time; ``any`` is a number where it is compared as one."""

_NAME = late_pattern(r"[A-Za-z_][\w-]*(?:\.[^\s=!<>'\"]+)?")
_SIGN = late_pattern(r"\s*(!=|<=|>=|=(?!=)|<|>)")
_VALUE = late_pattern(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s\"']\S*)?")
_SIGNS = late_pattern(r"[=<>~]")
_WORDS: Mapping[str, str] = {
    "and": "leave it out: all terms hold",
    "or": "there is no 'or': a filter matches the runs for which all terms hold",
    "not": "write != instead of =",
}
_NUMBERS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


@frozen(kw_only=True)
class FilterField:
    """A field that filters may name: its ``kind``; with ``keys`` its name is followed by a dot and another name; ``words`` are
    all values that it has, if they are few."""

    kind: Kind = "text"
    keys: bool = False
    words: tuple[str, ...] = ()


@frozen(kw_only=True)
class Term:
    """One condition: the ``field`` with its ``key`` (empty without), the ``sign``, and the ``value``: a text, a number, or a unix
    time. In a text ``*`` stands for any characters and ``?`` for one, unless it is ``literal``."""

    field: str
    key: str = ""
    sign: Sign = "="
    value: str | float = ""
    literal: bool = False

    @property
    def begins(self) -> tuple[str, bool]:
        """The text that a fitting value begins with, and whether it is the whole value."""
        text = str(self.value)
        at = len(text) if self.literal else min([each for each in map(text.find, "*?") if each >= 0], default=len(text))
        return text[:at], at == len(text)

    def fits(self, value: Any) -> bool:
        """Whether a field with this value fits; a missing number (None) fits nothing, a missing text is an empty one."""
        if isinstance(self.value, str):
            values = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]
            return any([self._matches("" if each is None else _text(each)) for each in values]) == (self.sign == "=")
        number = _number(value)
        if number is None:
            return False
        return _COMPARED[self.sign](number, self.value)

    def _matches(self, text: str) -> bool:
        begin, whole = self.begins
        if whole:
            return text == begin
        parts = re.split(r"([*?])", str(self.value))
        pattern = "".join([{"*": ".*", "?": "."}.get(each, re.escape(each)) for each in parts])
        return re.fullmatch(pattern, text, re.DOTALL) is not None


_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


@frozen
class Filter:
    """A conjunction of ``terms``; without any, everything fits."""

    terms: tuple[Term, ...] = field(default=())

    def __add__(self, other: Filter) -> Filter:
        return Filter(self.terms + other.terms)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def fits(self, get: Callable[[str, str], Any]) -> bool:
        """Whether all terms hold; ``get`` gives the value of a field and key, None where there is none."""
        return all([term.fits(get(term.field, term.key)) for term in self.terms])


def parse_filter(text: str, fields: Mapping[str, FilterField], example: str) -> Filter:
    """Read a filter over ``fields``; ``example`` is one. Lengths of time before now are taken from the present moment.

    Raises ConfigurationError (``config/filter``) that names the term, its position, and the way to write it.
    """
    if not isinstance(cast(object, text), str):
        problem = f"a filter is a text, and {clip(repr(text), 60)} was given"
        raise ConfigurationError(problem, code="config/filter", hint=f"for example '{example}'")
    return Filter(tuple(_FilterReader(text, fields, example).terms()))


class _FilterReader:
    """Reads the terms of one filter."""

    def __init__(self, text: str, fields: Mapping[str, FilterField], example: str) -> None:
        self._text = text
        self._fields = fields
        self._example = example
        self._at = 0

    def terms(self) -> list[Term]:
        terms: list[Term] = []
        while self._space():
            terms.append(self._term())
        return terms

    def _space(self) -> bool:
        """Skip spaces. Returns whether anything is left."""
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        return self._at < len(self._text)

    def _term(self) -> Term:
        began, rest = self._at, self._text[self._at :]
        word = rest.split(maxsplit=1)[0]
        if (hint := _WORDS.get(word.lower().strip("()"))) is not None:
            raise self._wrong(began, f"'{word}' is not a term", hint)
        named = _NAME.match(rest)
        signed = None if named is None else _SIGN.match(rest, named.end())
        if named is None or signed is None:
            raise self._no_sign(began, word, "" if named is None else rest[named.end() :])
        name, _, key = named[0].partition(".")
        chosen = self._field(began, name, key)
        at = signed.end()
        spaces = len(rest[at:]) - len(rest[at:].lstrip())
        value = _VALUE.match(rest, at + spaces)
        bare = None if value is None else value[3]
        if value is None or not value[0] or (spaces and bare and _SIGN.search(bare)):
            shown = f"{named[0]}{signed[1]}"
            hint = f'write the value behind the sign, an empty one as {named[0]}=""'
            raise self._wrong(began, f"'{shown}' has no value, or one without its closing quote", hint)
        self._at = began + value.end()
        quoted = value[1] if value[1] is not None else value[2]
        text = str(bare) if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        return self._read(began, chosen, Term(field=name, key=key, sign=cast(Sign, signed[1])), text)

    def _field(self, at: int, name: str, key: str) -> FilterField:
        named = self._fields.get(name)
        names = [f"{each}.NAME" if entry.keys else each for each, entry in self._fields.items()]
        if named is None:
            hint = did_you_mean(name, self._fields) or f"the fields are {', '.join(names)}"
            raise self._wrong(at, f"there is no field '{clip(name, 60)}'", hint)
        if named.keys and not key:
            raise self._wrong(at, f"'{name}' is not a field by itself", f"write which: {name}.NAME")
        if key and not named.keys:
            raise self._wrong(at, f"'{name}' has no part '{clip(key, 60)}'", f"write {name}")
        return named

    def _read(self, at: int, named: FilterField, term: Term, text: str) -> Term:
        """The term with its value, read as the field says."""
        shown = f"{term.field}.{term.key}" if term.key else term.field
        if named.kind in ("since", "until") and term.sign != "=":
            raise self._wrong(at, f"'{shown}' is a bound already", f"write {shown}=7d, or {shown}=2026-11-01")
        if named.kind in ("since", "until"):
            return _with(term, self._moment(at, shown, text), sign=">=" if named.kind == "since" else "<")
        number = self._measure(at, shown, named.kind, text)
        if number is not None and (named.kind != "any" or term.sign not in ("=", "!=")):
            return _with(term, number, sign=term.sign)
        if term.sign not in ("=", "!="):
            raise self._wrong(at, f"'{shown}' is not a number, and is compared by = and !=", f"write {shown}={text}")
        if named.words and not re.search(r"[*?]", text) and text not in named.words:
            hint = did_you_mean(text, named.words) or f"it is one of {', '.join(named.words)}"
            raise self._wrong(at, f"'{clip(text, 60)}' is not a {shown}", hint)
        return _with(term, text, sign=term.sign)

    def _measure(self, at: int, shown: str, kind: Kind, text: str) -> float | None:
        """The number that a text is, in a field of this kind; None for a text. Raises ConfigurationError."""
        if kind == "text":
            return None
        if kind == "seconds" and text[-1:].isalpha():
            try:
                return seconds_of(text)
            except ValueError as error:
                raise self._wrong(at, str(error), f"for example {shown}>90s") from None
        number = _number(text)
        if number is None and kind != "any":
            example = {"seconds": f"{shown}>90s"}.get(kind, f"{shown}<0.5")
            raise self._wrong(at, f"'{clip(text, 60)}' is not a number, as '{shown}' is", f"for example {example}")
        return number

    def _moment(self, at: int, shown: str, text: str) -> float:
        """The unix time that a length of time before now, or a date, says."""
        try:
            return time.time() - seconds_of(text)
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            hint = f"for example {shown}=7d, {shown}=2026-11-01 or {shown}=2026-11-01T09:30"
            raise self._wrong(at, f"'{clip(text, 60)}' is neither a length of time nor a date", hint) from None

    def _no_sign(self, at: int, word: str, rest: str) -> ConfigurationError:
        if rest.startswith("=="):
            return self._wrong(at, f"'{clip(word, 60)}' has the sign ==", "write =")
        if _SIGNS.search(word):
            return self._wrong(at, f"'{clip(word, 60)}' is not a term", "the signs are =, !=, <, <=, > and >=")
        names = " or ".join([f"{name}={word}*" for name in ("name",) if name in self._fields])
        return self._wrong(
            at, f"'{clip(word, 60)}' has no sign", f"write a field and a value: {names or self._example}"
        )

    def _wrong(self, at: int, problem: str, hint: str) -> ConfigurationError:
        where = f"the filter '{clip(self._text, 120)}', at character {at + 1}"
        return ConfigurationError(f"{where}: {problem}", code="config/filter", hint=f"{hint}; example: {self._example}")


def _with(term: Term, value: str | float, *, sign: Sign) -> Term:
    return Term(field=term.field, key=term.key, sign=sign, value=value)


def _number(value: Any) -> float | None:
    """A value as a number; None for any other."""
    if isinstance(value, str):
        if (said := _NUMBERS.get(value.lower())) is not None:
            return said
        try:
            number = float(value)
        except ValueError:
            return None
        return None if math.isnan(number) else number
    return float(value) if isinstance(value, bool | int | float) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
