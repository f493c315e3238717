"""The functions that texts call by name: Python's, over exact types, and those of ``json`` and ``math``."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from agentflow.core.data.errors import SexpEvaluationError, cut
from agentflow.core.data.labels import bare
from agentflow.core.data.ordered_set import OrderedSet
from agentflow.core.data.work import BITS_PER_STEP, Work, slices
from agentflow.lang.abi import Runtime
from agentflow.lang.builtins.data import parse_json, to_json
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.charging import charge_collection, check_bits, touch_product
from agentflow.lang.python import texts
from agentflow.lang.python.changes import as_keys, entries_of
from agentflow.lang.python.compare import NUMBERS
from agentflow.lang.python.errors import article, kind_of, wanted, wrong_type, wrong_value
from agentflow.lang.python.keyed import AT_ONCE
from agentflow.lang.python.sharing import allowed
from agentflow.lang.python.sorting import sorted_values
from agentflow.lang.python.support import call
from agentflow.lang.python.table import Entry, table
from agentflow.lang.python.values import (
    MISSING,
    SEQUENCES,
    add,
    elements,
    floor_divide,
    modulo,
    multiply,
    power,
    truth,
)

_LONG_DIGITS = 4_300


# -- numbers ------------------------------------------------------------------------------------------------------


def abs_(rt: Runtime, x: Any) -> Any:
    return abs(_number("abs", x))


def round_(rt: Runtime, number: Any, ndigits: Any = None) -> Any:
    value = _number("round", number)
    if ndigits is not None and (type(ndigits) is not int or abs(ndigits) > _LONG_DIGITS):
        wanted("round", "a small integer as digits", ndigits)
    return _finite("round", lambda: round(value, ndigits))


def divmod_(rt: Runtime, x: Any, y: Any) -> tuple[Any, Any]:
    return floor_divide(rt, x, y), modulo(rt, x, y)


def pow_(rt: Runtime, base: Any, exp: Any) -> Any:
    return power(rt, base, exp)


def sum_(rt: Runtime, iterable: Any, start: Any = 0) -> Any:
    values = elements(rt, iterable, "sum")
    if type(start) is str:
        wrong_type("sum takes no texts", '"".join(parts) joins them')
    return begun(_sum(rt, values, start))


def _sum(rt: Runtime, values: Any, start: Any) -> Work[Any]:
    for part in slices(values):
        if type(start) in NUMBERS and NUMBERS.issuperset(map(type, part)):
            bits = sum([each.bit_length() for each in part if type(each) is int])
            if bits >= BITS_PER_STEP or len(part) < len(values):
                yield bits // BITS_PER_STEP
            start = sum(part, start)
            if type(start) is int:
                check_bits(rt, start.bit_length(), "sum")
            continue
        for each in part:
            start = add(rt, start, each)
            if type(start) in SEQUENCES and len(start) > AT_ONCE:
                yield 0
        yield 0
    return start


async def min_(rt: Runtime, d: int, *values: Any, key: Any = None, default: Any = MISSING) -> Any:
    return await _extreme(rt, d, "min", values, key, default)


async def max_(rt: Runtime, d: int, *values: Any, key: Any = None, default: Any = MISSING) -> Any:
    return await _extreme(rt, d, "max", values, key, default)


async def _extreme(rt: Runtime, d: int, who: str, values: Any, key: Any, default: Any) -> Any:
    """The first of the smallest or largest values."""
    if not values:
        wrong_type(f"{who} takes values, or a list of them")
    items = elements(rt, values[0], who) if len(values) == 1 else values
    if not items:
        if default is MISSING:
            wrong_value(f"{who} of nothing", f"{who}(xs, default=...) gives something then")
        return default
    if key is None and type(items[0]) in NUMBERS:
        best = await rt.work(_best(items, min if who == "min" else max))
        if best is not MISSING:
            return best
    keys = list(items) if key is None else [await call(rt, d, key, (each,)) for each in items]
    order = await rt.work(sorted_values(rt, list(range(len(keys))), keys, reverse=who == "max"))
    return items[order[0]]


def _best(numbers: Any, best_of: Callable[[Any], Any]) -> Work[Any]:
    """The smallest or largest of numbers; MISSING when there is anything else among them."""
    best = numbers[0]
    for part in slices(numbers):
        if not NUMBERS.issuperset(map(type, part)):
            return MISSING
        best = best_of([best, *part])
        yield 0
    return best


def int_(rt: Runtime, x: Any = 0, base: Any = 10) -> Any:
    if type(x) is str:
        if len(x) > _LONG_DIGITS or type(base) is not int:
            wrong_value("the text is no integer")
        try:
            return int(x, base)
        except ValueError:
            wrong_value(f"the text {cut(x, 40)!r} is no integer")
    return _finite("int", lambda: int(_number("int", x)))


def float_(rt: Runtime, x: Any = 0.0) -> float:
    if type(x) is str:
        if len(x) > _LONG_DIGITS:
            wrong_value("the text is no number")
        try:
            return float(x)
        except ValueError:
            wrong_value(f"the text {cut(x, 40)!r} is no number")
    return _finite("float", lambda: float(_number("float", x)))


def _number(who: str, value: Any) -> Any:
    if type(value) not in NUMBERS:
        wanted(who, "a number", value)
    return value


def _finite(who: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except OverflowError:
        raise SexpEvaluationError(f"the number is too large for {who}", code="number/overflow") from None
    except ValueError as error:
        wrong_value(f"{who}: {error}")


# -- texts --------------------------------------------------------------------------------------------------------


def str_(rt: Runtime, object: Any = "") -> Any:
    return texts.text(rt, object)


def repr_(rt: Runtime, object: Any) -> Any:
    return texts.written(rt, object)


def chr_(rt: Runtime, i: Any) -> str:
    if type(i) is not int or not 0 <= i <= 0x10FFFF:
        wrong_value("chr takes the number of a character")
    return chr(i)


def ord_(rt: Runtime, c: Any) -> int:
    if type(c) is not str or len(c) != 1:
        wrong_type("ord takes one character")
    return ord(c)


# -- collections --------------------------------------------------------------------------------------------------


def bool_(rt: Runtime, x: Any = False) -> bool:
    return truth(x)


def len_(rt: Runtime, obj: Any) -> int:
    if type(obj) in SEQUENCES or type(obj) is dict or type(obj) is OrderedSet:
        return len(obj)
    return len(elements(rt, obj, "len"))


def list_(rt: Runtime, iterable: Any = ()) -> Any:
    return _in_parts(_few(rt, iterable, "list"), list)


def tuple_(rt: Runtime, iterable: Any = ()) -> tuple[Any, ...]:
    return tuple(_few(rt, iterable, "tuple"))


def set_(rt: Runtime, iterable: Any = ()) -> Any:
    return begun(_set(_few(rt, iterable, "set")))


def _set(values: Any) -> Work[OrderedSet]:
    return OrderedSet.of((yield from as_keys(values)))


def dict_(rt: Runtime, pairs: Any = ()) -> Any:
    return begun(_dict(rt, pairs))


def _dict(rt: Runtime, pairs: Any) -> Work[dict[Any, Any]]:
    entries = yield from entries_of(rt, pairs, "dict")
    return entries.copy() if entries is pairs else entries


def _in_parts(values: Any, made_of: Callable[[Any], Iterable[Any]]) -> Any:
    """The list of what is made of values; of many the work of making it part by part, all of which has been paid for."""
    return list(made_of(values)) if len(values) <= AT_ONCE else begun(_parts(values, made_of))


def _parts(values: Any, made_of: Callable[[Any], Iterable[Any]]) -> Work[list[Any]]:
    parts: list[Any] = []
    for start in range(0, len(values), AT_ONCE):
        yield 0
        parts += made_of(values[start : start + AT_ONCE])
    return parts


def _few(rt: Runtime, iterable: Any, who: str) -> Any:
    values = elements(rt, iterable, who)
    charge_collection(rt, len(values), who)
    return values


def range_(rt: Runtime, *bounds: Any) -> Any:
    numbers = rounds(*bounds)
    charge_collection(rt, len(numbers), "range")
    return _in_parts(numbers, list)


def rounds(*bounds: Any) -> range:
    """The numbers of ``range(...)``. Raises for what is no integer."""
    if not 1 <= len(bounds) <= 3:
        wrong_type("range takes a stop, or a start and a stop, and perhaps a step")
    for each in bounds:
        if type(each) is not int and type(each) is not bool:
            wanted("range", "integers", each)
        if not -(1 << 60) < each < 1 << 60:
            wrong_value("the numbers of range have at most 60 bits")
    if len(bounds) == 3 and not bounds[2]:
        wrong_value("the step of range is not zero")
    return range(*bounds)


def enumerate_(rt: Runtime, iterable: Any, start: Any = 0) -> Any:
    if type(start) is not int:
        wanted("enumerate", "an integer as start", start)
    values = _few(rt, iterable, "enumerate")

    def numbered(part: range) -> Iterable[Any]:
        return enumerate(values[part.start : part.stop], start + part.start)

    return _in_parts(range(len(values)), numbered)


def zip_(rt: Runtime, *iterables: Any, strict: Any = False) -> Any:
    columns = [_few(rt, each, "zip") for each in iterables]
    if truth(strict) and len({len(each) for each in columns}) > 1:
        wrong_value("zip(strict=True) was given lists of different lengths")
    rest = [iter(each) for each in columns]
    shortest = range(min(map(len, columns), default=0))
    # The rows come second: of them nothing may be taken when a part has ended.
    return _in_parts(shortest, lambda part: [row for _, row in zip(part, zip(*rest, strict=False), strict=False)])


def reversed_(rt: Runtime, sequence: Any) -> list[Any]:
    return list(_few(rt, sequence, "reversed")[::-1])


def all_(rt: Runtime, iterable: Any) -> Any:
    return begun(_settled(elements(rt, iterable, "all"), all, False))


def any_(rt: Runtime, iterable: Any) -> Any:
    return begun(_settled(elements(rt, iterable, "any"), any, True))


def _settled(values: Any, test: Callable[[Iterable[bool]], bool], settles: bool) -> Work[bool]:
    parts = slices(values)
    for part in parts:
        if test(map(truth, part)) is settles:
            return settles
        yield 0
    return not settles


async def sorted_(rt: Runtime, d: int, iterable: Any, *, key: Any = None, reverse: Any = False) -> list[Any]:
    if type(reverse) not in (bool, int):
        wanted("sorted", "True or False as reverse", reverse)
    values = list(_few(rt, iterable, "sorted"))
    keys = None if key is None else [await call(rt, d, key, (each,)) for each in values]
    return await rt.work(sorted_values(rt, values, keys, reverse=bool(reverse)))


async def sort(rt: Runtime, d: int, value: Any, *, key: Any = None, reverse: Any = False) -> None:
    """``value.sort(...)``."""
    if type(value) is not list:
        wrong_type(f"{article(kind_of(value))} has no method 'sort'", "sorted(x) gives a list")
    await rt.work(allowed(rt, value))
    value[:] = await sorted_(rt, d, value, key=key, reverse=reverse)


async def map_(rt: Runtime, d: int, function: Any, *iterables: Any) -> list[Any]:
    rows = await _done(rt, zip_(rt, *iterables))
    return [await call(rt, d, function, row) for row in rows]


async def filter_(rt: Runtime, d: int, function: Any, iterable: Any) -> list[Any]:
    values = _few(rt, iterable, "filter")
    if bare(function) is None:
        return await _done(rt, _in_parts(values, lambda part: filter(lambda each: truth(bare(each)), part)))
    return [each for each in values if truth(bare(await call(rt, d, function, (each,))))]


async def _done(rt: Runtime, value: Any) -> Any:
    """A value, or that of work that was left to be carried out."""
    return await rt.work(value.work) if type(value) is Sliced else value


# -- json and math ------------------------------------------------------------------------------------------------


def loads(rt: Runtime, s: Any) -> Any:
    if type(s) is not str:
        wanted("json.loads", "text", s)
    return parse_json(rt, s)


def dumps(rt: Runtime, obj: Any, *, indent: Any = None, ensure_ascii: Any = False) -> Any:
    if truth(ensure_ascii):
        wrong_value("json.dumps leaves texts as they are", "leave out ensure_ascii")
    if indent is not None and type(indent) is not int:
        wanted("json.dumps", "a number of spaces as indent", indent)
    return to_json(rt, obj, indent)


def _math(name: str) -> Callable[..., Any]:
    native: Callable[..., Any] = getattr(math, name)

    def one(rt: Runtime, x: Any) -> Any:
        value = _number(name, x)
        return _finite(name, lambda: native(value))

    return one


_MATH = (
    "atan",
    "ceil",
    "cos",
    "degrees",
    "exp",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "isqrt",
    "log10",
    "log2",
    "radians",
    "sin",
    "sqrt",
    "tan",
    "trunc",
)


def _math_of_two(name: str) -> Callable[..., Any]:
    native: Callable[..., Any] = getattr(math, name)

    def two(rt: Runtime, a: Any, b: Any) -> Any:
        x, y = _number(name, a), _number(name, b)
        return _finite(name, lambda: native(x, y))

    return two


def gcd(rt: Runtime, a: Any, b: Any) -> int:
    for each in (a, b):
        if type(each) is not int:
            wanted("gcd", "integers", each)
    touch_product(rt, a, b)
    return math.gcd(a, b)


def isclose(rt: Runtime, a: Any, b: Any, *, rel_tol: Any = 1e-9, abs_tol: Any = 0.0) -> bool:
    x, y, relative, absolute = (_number("isclose", each) for each in (a, b, rel_tol, abs_tol))
    return _finite("isclose", lambda: math.isclose(x, y, rel_tol=relative, abs_tol=absolute))


def prod(rt: Runtime, iterable: Any, start: Any = 1) -> Any:
    return begun(_prod(rt, elements(rt, iterable, "prod"), start))


def _prod(rt: Runtime, values: Any, product: Any) -> Work[Any]:
    for part in slices(values):
        for each in part:
            product = multiply(rt, product, _number("prod", each))
            if type(product) is int and product.bit_length() > BITS_PER_STEP:
                yield 0
        if len(part) < len(values):
            yield 0
    return product


def log(rt: Runtime, x: Any, base: Any = None) -> float:
    value, other = _number("log", x), base if base is None else _number("log", base)
    return _finite("log", lambda: math.log(value) if other is None else math.log(value, other))


BUILTINS: dict[str, Entry] = {
    **table(
        (
            *(
                abs_,
                round_,
                divmod_,
                pow_,
                sum_,
                int_,
                float_,
                str_,
                repr_,
                chr_,
                ord_,
                bool_,
                len_,
                list_,
                tuple_,
                set_,
            ),
            *(dict_, range_, enumerate_, zip_, reversed_, all_, any_),
        ),
        1,
    ),
    **table((min_, max_, sorted_, map_, filter_), 2),
    "json.loads": Entry.of("json.loads", loads, 1),
    "json.dumps": Entry.of("json.dumps", dumps, 1),
    **{f"math.{name}": Entry.of(f"math.{name}", _math(name), 1) for name in _MATH},
    **{f"math.{name}": Entry.of(f"math.{name}", _math_of_two(name), 1) for name in ("atan2", "hypot")},
    **{f"math.{each.__name__}": Entry.of(f"math.{each.__name__}", each, 1) for each in (gcd, isclose, log, prod)},
}
"""The functions by name."""
CONSTANTS: dict[str, float] = {"math.pi": math.pi, "math.e": math.e, "math.inf": math.inf, "math.nan": math.nan}
SORT = Entry.of("sort", sort, 3)
KINDS: dict[str, tuple[type[Any], ...]] = {
    "int": (int, bool),
    "float": (float,),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
    "tuple": (tuple,),
    "set": (OrderedSet,),
}
"""What ``isinstance`` knows."""


def is_instance(value: Any, kinds: tuple[type[Any], ...]) -> bool:
    """``isinstance(value, ...)``."""
    return type(value) in kinds
