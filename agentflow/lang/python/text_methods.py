"""The methods of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from agentflow.lang.abi import Runtime
from agentflow.lang.charging import charge_collection, charge_string, touch_text
from agentflow.lang.python.errors import kind_of, wanted, wrong_type, wrong_value
from agentflow.lang.python.rows import F, Row, on, rows_in
from agentflow.lang.python.values import elements

_GROWING = 3
"""The most characters of one character in another case."""


def _plain(name: str) -> Callable[[Runtime, str], Any]:
    """A method without arguments and with a result at most as long as the text, in another case."""
    native: Callable[[str], Any] = getattr(str, name)

    def call(rt: Runtime, value: str) -> Any:
        charge_string(rt, len(value) * (_GROWING if name in _CASES else 1), name)
        return native(value)

    return call


_CASES = ("lower", "upper", "title", "capitalize", "swapcase", "casefold")
_TESTS = (
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
)


def _text_method(size: str = "text", **columns: Any) -> Callable[[F], F]:
    return on(str, changes=None, size=size, **columns)


def _text(who: str, value: Any) -> str:
    if type(value) is not str:
        wanted(who, "text", value)
    return value


def _number(who: str, value: Any) -> int:
    if type(value) is not int:
        wanted(who, "an integer", value)
    return max(min(value, 1 << 62), -(1 << 62))


def _maybe(who: str, value: Any) -> str | None:
    return None if value is None else _text(who, value)


@_text_method(takes="S")
def strip(rt: Runtime, value: str, chars: Any = None) -> str:
    touch_text(rt, len(value))
    return value.strip(_few(chars))


@_text_method(takes="S")
def lstrip(rt: Runtime, value: str, chars: Any = None) -> str:
    touch_text(rt, len(value))
    return value.lstrip(_few(chars))


@_text_method(takes="S")
def rstrip(rt: Runtime, value: str, chars: Any = None) -> str:
    touch_text(rt, len(value))
    return value.rstrip(_few(chars))


def _few(chars: Any) -> str | None:
    text = _maybe("strip", chars)
    if text is not None and len(text) > 1_000:
        wrong_value("strip takes at most 1000 characters")
    return text


@_text_method(takes="Si", size="texts")
def split(rt: Runtime, value: str, sep: Any = None, maxsplit: Any = -1) -> list[str]:
    return _split(rt, value, sep, maxsplit, "split")


@_text_method(takes="Si", size="texts")
def rsplit(rt: Runtime, value: str, sep: Any = None, maxsplit: Any = -1) -> list[str]:
    return _split(rt, value, sep, maxsplit, "rsplit")


def _split(rt: Runtime, value: str, sep: Any, maxsplit: Any, who: str) -> list[str]:
    if _maybe(who, sep) == "":
        wrong_value("the separator is not empty")
    parts = (len(value) + 1) // 2 if sep is None else value.count(sep)
    most = _number(who, maxsplit)
    charge_collection(rt, 1 + (parts if most < 0 else min(parts, most)), who)
    charge_string(rt, len(value), who)
    return value.split(sep, most) if who == "split" else value.rsplit(sep, most)


@_text_method(size="texts")
def splitlines(rt: Runtime, value: str, keepends: Any = False) -> list[str]:
    charge_string(rt, len(value), "splitlines")
    lines = value.splitlines(keepends is True)
    charge_collection(rt, len(lines), "splitlines")
    return lines


@_text_method(takes="c", hint='", ".join(xs)')
def join(rt: Runtime, value: str, iterable: Any) -> str:
    parts = elements(rt, iterable, "join")
    size = len(value) * max(len(parts) - 1, 0)
    for at, each in enumerate(parts):
        if type(each) is not str:
            wrong_type(f"join takes texts, and element {at} is of type {kind_of(each)}", "str(x) makes text of a value")
        size += len(each)
    charge_string(rt, size, "join")
    return value.join(parts)


@_text_method(takes="ssi")
def replace(rt: Runtime, value: str, old: Any, new: Any, count: Any = -1) -> str:
    old, new, most = _text("replace", old), _text("replace", new), _number("replace", count)
    touch_text(rt, len(value))
    times = value.count(old)
    size = len(value) + max(times if most < 0 else min(times, most), 0) * (len(new) - len(old))
    charge_string(rt, size, "replace")
    return value.replace(old, new, most)


@_text_method(takes="ui")
def startswith(rt: Runtime, value: str, prefix: Any, start: Any = 0) -> bool:
    return value.startswith(_affixes("startswith", prefix), _number("startswith", start))


@_text_method(takes="ui")
def endswith(rt: Runtime, value: str, suffix: Any) -> bool:
    return value.endswith(_affixes("endswith", suffix))


def _affixes(who: str, value: Any) -> str | tuple[str, ...]:
    if type(value) is tuple:
        return tuple([_text(who, each) for each in cast("tuple[Any, ...]", value)])
    return _text(who, value)


@_text_method(takes="s")
def removeprefix(rt: Runtime, value: str, prefix: Any) -> str:
    touch_text(rt, len(value))
    return value.removeprefix(_text("removeprefix", prefix))


@_text_method(takes="s")
def removesuffix(rt: Runtime, value: str, suffix: Any) -> str:
    touch_text(rt, len(value))
    return value.removesuffix(_text("removesuffix", suffix))


@_text_method(takes="si", size="whole")
def count(rt: Runtime, value: str, sub: Any) -> int:
    touch_text(rt, len(value))
    return value.count(_text("count", sub))


@_text_method(takes="si", size="whole")
def find(rt: Runtime, value: str, sub: Any, start: Any = 0) -> int:
    touch_text(rt, len(value))
    return value.find(_text("find", sub), _number("find", start))


@_text_method(takes="si", size="whole")
def rfind(rt: Runtime, value: str, sub: Any, start: Any = 0) -> int:
    touch_text(rt, len(value))
    return value.rfind(_text("rfind", sub), _number("rfind", start))


@_text_method(takes="si", size="whole")
def index(rt: Runtime, value: str, sub: Any, start: Any = 0) -> int:
    at = find(rt, value, sub, start)
    if at < 0:
        wrong_value("the text has no such part")
    return at


@_text_method(takes="si", size="whole")
def rindex(rt: Runtime, value: str, sub: Any, start: Any = 0) -> int:
    at = rfind(rt, value, sub, start)
    if at < 0:
        wrong_value("the text has no such part")
    return at


@_text_method(takes="s", size="three")
def partition(rt: Runtime, value: str, sep: Any) -> tuple[str, str, str]:
    return _parted(rt, value, sep, str.partition)


@_text_method(takes="s", size="three")
def rpartition(rt: Runtime, value: str, sep: Any) -> tuple[str, str, str]:
    return _parted(rt, value, sep, str.rpartition)


def _parted(
    rt: Runtime, value: str, sep: Any, parted: Callable[[str, str], tuple[str, str, str]]
) -> tuple[str, str, str]:
    charge_string(rt, len(value), "partition")
    if not _text("partition", sep):
        wrong_value("the separator is not empty")
    return parted(value, sep)


@_text_method(takes="i")
def zfill(rt: Runtime, value: str, width: Any) -> str:
    charge_string(rt, max(len(value), _number("zfill", width)), "zfill")
    return value.zfill(width)


@_text_method(takes="is")
def ljust(rt: Runtime, value: str, width: Any, fillchar: Any = " ") -> str:
    return _justified(rt, value, width, fillchar, str.ljust)


@_text_method(takes="is")
def rjust(rt: Runtime, value: str, width: Any, fillchar: Any = " ") -> str:
    return _justified(rt, value, width, fillchar, str.rjust)


@_text_method(takes="is")
def center(rt: Runtime, value: str, width: Any, fillchar: Any = " ") -> str:
    return _justified(rt, value, width, fillchar, str.center)


def _justified(rt: Runtime, value: str, width: Any, fill: Any, justified: Callable[[str, int, str], str]) -> str:
    charge_string(rt, max(len(value), _number("a width", width)), "a width")
    if len(_text("the filling", fill)) != 1:
        wrong_type("the filling is one character")
    return justified(value, width, fill)


TEXT_METHODS: dict[str, Row] = rows_in(
    (*(_text_method(name=name)(_plain(name)) for name in (*_CASES, *_TESTS)), *globals().values()), str
)
"""The methods of a text by name."""
