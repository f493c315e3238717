"""The functions that texts call by name: Python's, over exact types, and those of ``json`` and ``math``."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from agentflow.core.data.errors import SexpEvaluationError, cut
from agentflow.core.data.labels import bare
from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import BITS_PER_STEP, Work, slices
from agentflow.lang.abi import Runtime
from agentflow.lang.builtins.data import parse_json, to_json
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.charging import charge_collection, check_bits, touch_product
from agentflow.lang.python import texts
from agentflow.lang.python.boxed.keyed import AT_ONCE
from agentflow.lang.python.boxed.sharing import allowed
from agentflow.lang.python.changes import as_keys, entries_of
from agentflow.lang.python.compare import NUMBERS
from agentflow.lang.python.errors import article, kind_of, wanted, wrong_type, wrong_value
from agentflow.lang.python.rows import Row, code, named, on, rows_in
from agentflow.lang.python.sorting import sorted_values
from agentflow.lang.python.support import call
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


@named(tested="r", takes="n", size="absolute")
def abs_(rt: Runtime, x: Any) -> Any:
    return abs(_number("abs", x))


@named(tested="r", takes="nI")
def round_(rt: Runtime, number: Any, ndigits: Any = None) -> Any:
    value = _number("round", number)
    if ndigits is not None and (type(ndigits) is not int or abs(ndigits) > _LONG_DIGITS):
        wanted("round", "a small integer as digits", ndigits)
    return _finite("round", lambda: round(value, ndigits))


@named(takes="n", size="pair")
def divmod_(rt: Runtime, x: Any, y: Any) -> tuple[Any, Any]:
    return floor_divide(rt, x, y), modulo(rt, x, y)


@named(takes="n", doc="Equivalent to base ** exp.")
def pow_(rt: Runtime, base: Any, exp: Any) -> Any:
    return power(rt, base, exp)


@named(takes="ct", size="sum", long="always")
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


@named(alone="c", size="min", hint="min(xs), or min(a, b)")
async def min_(rt: Runtime, d: int, *values: Any, key: Any = None, default: Any = MISSING) -> Any:
    return await _extreme(rt, d, "min", values, key, default)


@named(alone="c", size="max", hint="max(xs), or max(a, b)")
async def max_(rt: Runtime, d: int, *values: Any, key: Any = None, default: Any = MISSING) -> Any:
    return await _extreme(rt, d, "max", values, key, default)


async def _extreme(rt: Runtime, d: int, who: str, values: Any, key: Any, default: Any) -> Any:
    """The first of the smallest or of the largest values."""
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
    items = list(items)  # the present ones: the procedure may change the list
    keys = items if key is None else [await call(rt, d, key, (each,)) for each in items]
    order = await rt.work(sorted_values(rt, list(range(len(keys))), keys, reverse=who == "max"))
    return items[order[0]]


def _best(numbers: Any, best_of: Callable[[Any], Any]) -> Work[Any]:
    """The smallest or largest of numbers; MISSING if any value is not a number."""
    best = numbers[0]
    for part in slices(numbers):
        if not NUMBERS.issuperset(map(type, part)):
            return MISSING
        best = best_of([best, *part])
        yield 0
    return best


@named(tested="r", takes="v.", gives=int, size="int")
def int_(rt: Runtime, x: Any = 0, base: Any = 10) -> Any:
    if type(x) is str:
        if len(x) > _LONG_DIGITS or type(base) is not int:
            wrong_value("the text is not an integer")
        try:
            return int(x, base)
        except ValueError:
            wrong_value(f"the text {cut(x, 40)!r} is not an integer")
    return _finite("int", lambda: int(_number("int", x)))


@named(tested="r", takes="v", gives=float)
def float_(rt: Runtime, x: Any = 0.0) -> float:
    if type(x) is str:
        if len(x) > _LONG_DIGITS:
            wrong_value("the text is not a number")
        try:
            return float(x)
        except ValueError:
            wrong_value(f"the text {cut(x, 40)!r} is not a number")
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
    except ZeroDivisionError:
        raise SexpEvaluationError("a division by zero", code="number/division-by-zero") from None
    except ValueError as error:
        wrong_value(f"{who}: {error}")


# -- texts --------------------------------------------------------------------------------------------------------


@named(tested="r", gives=str, size="text", long="always")
def str_(rt: Runtime, object: Any = "") -> Any:
    return texts.text(rt, object)


@named(gives=str, size="text", long="always")
def repr_(rt: Runtime, object: Any) -> Any:
    return texts.written(rt, object)


@named(takes="i", gives=str, size="text")
def chr_(rt: Runtime, i: Any) -> str:
    if type(i) is not int or not 0 <= i <= 0x10FFFF:
        wrong_value("chr takes the number of a character")
    return chr(i)


@named(takes="s", gives=int, size="whole")
def ord_(rt: Runtime, c: Any) -> int:
    if type(c) is not str or len(c) != 1:
        wrong_type("ord takes one character")
    return ord(c)


# -- collections --------------------------------------------------------------------------------------------------


@named(flow="o", tested="o", gives=bool)
def bool_(rt: Runtime, x: Any = False) -> bool:
    return truth(x)


@named(flow="n", tested="n", takes="c", gives=int, size="length")
def len_(rt: Runtime, obj: Any) -> int:
    if type(obj) in SEQUENCES or type(obj) is dict or type(obj) is OrderedSet:
        return len(obj)
    return len(elements(rt, obj, "len"))


@named(flow="n", takes="c", gives=list, size="collected", long="always")
def list_(rt: Runtime, iterable: Any = ()) -> Any:
    return _in_parts(_few(rt, iterable, "list"), list)


@named(flow="n", takes="c", gives=tuple, size="collected")
def tuple_(rt: Runtime, iterable: Any = ()) -> tuple[Any, ...]:
    return tuple(_few(rt, iterable, "tuple"))


@named(
    flow="n",
    keys=True,
    within=True,
    takes="c",
    gives=OrderedSet,
    size="collected",
    long="always",
    doc="A set of the elements, in the order in which they first stand.",
)
def set_(rt: Runtime, iterable: Any = ()) -> Any:
    return begun(_set(_few(rt, iterable, "set")))


def _set(values: Any) -> Work[OrderedSet]:
    return OrderedSet.of((yield from as_keys(values)))


@named(
    flow="n",
    keys=True,
    within=True,
    takes="c",
    gives=dict,
    size="dict",
    long="always",
    doc="A dict of pairs, or a copy of a dict.",
)
def dict_(rt: Runtime, pairs: Any = ()) -> Any:
    return begun(_dict(rt, pairs))


def _dict(rt: Runtime, pairs: Any) -> Work[dict[Any, Any]]:
    entries = yield from entries_of(rt, pairs, "dict")
    return entries.copy() if entries is pairs else entries


def _in_parts(values: Any, made_of: Callable[[Any], Iterable[Any]]) -> Any:
    """The list computed from values; for many values the work that computes it part by part, fully charged for."""
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


@named(
    takes="w",
    gives=list,
    size="range",
    long="always",
    usage="range(stop), range(start, stop, step)",
    hint="range(stop), or range(start, stop)",
    doc="A list of the integers from a start, or 0, up to a stop, without it.",
)
def range_(rt: Runtime, *bounds: Any) -> Any:
    numbers = rounds(*bounds)
    charge_collection(rt, len(numbers), "range")
    return _in_parts(numbers, list)


@code(out="each")
def rounds(*bounds: Any) -> range:
    """The numbers of ``range(...)``. Raises unless its arguments are integers."""
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


@named(
    flow="nr",
    takes="ci",
    gives=list,
    size="enumerate",
    long="always",
    doc="A list of pairs: a number, and the element.",
)
def enumerate_(rt: Runtime, iterable: Any, start: Any = 0) -> Any:
    if type(start) is not int:
        wanted("enumerate", "an integer as start", start)
    values = _few(rt, iterable, "enumerate")

    def numbered(part: range) -> Iterable[Any]:
        return enumerate(values[part.start : part.stop], start + part.start)

    return _in_parts(range(len(values)), numbered)


@named(
    flow="n",
    takes="c",
    gives=list,
    size="zip",
    long="always",
    usage="zip(iterable, ..., strict=...)",
    hint="zip(xs, ys)",
    doc="A list of tuples: of the first elements, of the second ones, and so on.",
)
def zip_(rt: Runtime, *iterables: Any, strict: Any = False) -> Any:
    columns = [_few(rt, each, "zip") for each in iterables]
    if truth(strict) and len({len(each) for each in columns}) > 1:
        wrong_value("zip(strict=True) was given lists of different lengths")
    rest = [iter(each) for each in columns]
    shortest = range(min(map(len, columns), default=0))
    # The rows come second: no row may be taken and lost when a part ends.
    return _in_parts(shortest, lambda part: [row for _, row in zip(part, zip(*rest, strict=False), strict=False)])


@named(flow="n", takes="c", gives=list, size="collected", doc="A list of the elements in reverse.")
def reversed_(rt: Runtime, sequence: Any) -> list[Any]:
    return list(_few(rt, sequence, "reversed")[::-1])


@named(takes="c", gives=bool, long="always")
def all_(rt: Runtime, iterable: Any) -> Any:
    return begun(_settled(elements(rt, iterable, "all"), all, False))


@named(takes="c", gives=bool, long="always")
def any_(rt: Runtime, iterable: Any) -> Any:
    return begun(_settled(elements(rt, iterable, "any"), any, True))


def _settled(values: Any, test: Callable[[Iterable[bool]], bool], settles: bool) -> Work[bool]:
    parts = slices(values)
    for part in parts:
        if test(map(truth, part)) is settles:
            return settles
        yield 0
    return not settles


@named(takes="c", gives=list, size="sorted", hint="sorted(xs, key=f)")
async def sorted_(rt: Runtime, d: int, iterable: Any, *, key: Any = None, reverse: Any = False) -> list[Any]:
    backwards = is_backwards(reverse)
    values = list(_few(rt, iterable, "sorted"))
    keys = None if key is None else [await call(rt, d, key, (each,)) for each in values]
    return await rt.work(sorted_values(rt, values, keys, reverse=backwards))


def is_backwards(reverse: Any) -> bool:
    """Whether to sort in reverse order. Raises ``type/argument``."""
    if type(reverse) not in (bool, int):
        wanted("sorted", "True or False as reverse", reverse)
    return bool(reverse)


@on(list, changes="", size="sort")
async def sort(rt: Runtime, d: int, value: Any, *, key: Any = None, reverse: Any = False) -> None:
    """``value.sort(...)``."""
    if type(value) is not list:
        wrong_type(f"{article(kind_of(value))} has no method 'sort'", "sorted(x) gives a list")
    await rt.work(allowed(rt, value))
    value[:] = await sorted_(rt, d, value, key=key, reverse=reverse)


@named(
    flow="ki",
    takes="pc",
    gives=list,
    size="map",
    calls=True,
    usage="map(function, iterable, ...)",
    hint="map(f, xs)",
    doc="A list of the results of a function for each element.",
)
async def map_(rt: Runtime, d: int, function: Any, *iterables: Any) -> list[Any]:
    rows = await _done(rt, zip_(rt, *iterables))
    return [await call(rt, d, function, row) for row in rows]


@named(
    flow="ki",
    takes="Pc",
    gives=list,
    size="filter",
    calls=True,
    hint="filter(f, xs)",
    doc="A list of the elements for which a function returns a true value.",
)
async def filter_(rt: Runtime, d: int, function: Any, iterable: Any) -> list[Any]:
    values = list(_few(rt, iterable, "filter"))
    if bare(function) is None:
        return await _done(rt, _in_parts(values, lambda part: filter(lambda each: truth(bare(each)), part)))
    return [each for each in values if truth(bare(await call(rt, d, function, (each,))))]


async def _done(rt: Runtime, value: Any) -> Any:
    """A value, or the result of unfinished work."""
    return await rt.work(value.work) if type(value) is Sliced else value


# -- json and math ------------------------------------------------------------------------------------------------


@named("json.loads", takes="s", size="data", long="always", doc="The value of a JSON text.")
def loads(rt: Runtime, s: Any) -> Any:
    if type(s) is not str:
        wanted("json.loads", "text", s)
    return parse_json(rt, s)


@named("json.dumps", gives=str, size="text", long="always", doc="The JSON text of a value.")
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


def _math_of_two(name: str) -> Callable[..., Any]:
    native: Callable[..., Any] = getattr(math, name)

    def two(rt: Runtime, a: Any, b: Any) -> Any:
        x, y = _number(name, a), _number(name, b)
        return _finite(name, lambda: native(x, y))

    return two


@named("math.gcd", takes="i", gives=int)
def gcd(rt: Runtime, a: Any, b: Any) -> int:
    for each in (a, b):
        if type(each) is not int:
            wanted("gcd", "integers", each)
    touch_product(rt, a, b)
    return math.gcd(a, b)


@named("math.isclose", takes="n")
def isclose(rt: Runtime, a: Any, b: Any, *, rel_tol: Any = 1e-9, abs_tol: Any = 0.0) -> bool:
    x, y, relative, absolute = (_number("isclose", each) for each in (a, b, rel_tol, abs_tol))
    return _finite("isclose", lambda: math.isclose(x, y, rel_tol=relative, abs_tol=absolute))


@named("math.prod", takes="c.", long="always", size="product")
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


@named("math.log", takes="nN", doc="Return the logarithm of x to the given base, or the natural one.")
def log(rt: Runtime, x: Any, base: Any = None) -> float:
    value, other = _number("log", x), base if base is None else _number("log", base)
    return _finite("log", lambda: math.log(value) if other is None else math.log(value, other))


@named(
    "isinstance",
    flow="ok",
    gives=bool,
    usage="isinstance(value, (int, str))",
    doc="Whether a value is of a type: int float str bool list dict tuple set.",
)
def is_instance(value: Any, kinds: tuple[type[Any], ...]) -> bool:
    """``isinstance(value, ...)``."""
    return type(value) in kinds


_MATH: dict[str, dict[str, Any]] = {
    **{each: {} for each in ("atan", "ceil", "cos", "degrees", "exp", "floor", "isfinite", "isinf", "isnan")},
    "isqrt": {"takes": "w", "gives": int},
    **{each: {} for each in ("log10", "log2", "radians", "sin")},
    "sqrt": {"gives": float},
    **{each: {} for each in ("tan", "trunc")},
}
BUILTINS: dict[str, Row] = rows_in(
    (
        *(each for each in globals().values() if each is not is_instance),
        *(named(f"math.{name}", **{"takes": "n", **columns})(_math(name)) for name, columns in _MATH.items()),
        *(named(f"math.{name}", takes="n")(_math_of_two(name)) for name in ("atan2", "hypot")),
    )
)
"""The functions by name."""
CONSTANTS: dict[str, float] = {"math.pi": math.pi, "math.e": math.e, "math.inf": math.inf, "math.nan": math.nan}
ISINSTANCE = rows_in((is_instance,))["isinstance"]
"""Its calls have their own rule (``calls.py``): its types are names, not values."""
SORT = rows_in((sort,), list)["sort"]
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
"""The types that ``isinstance`` accepts."""
