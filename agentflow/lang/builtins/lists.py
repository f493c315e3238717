"""Lists: Python lists that no primitive changes in place. A tuple from the host reads as a list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, cast

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.values import SHARED_FROM, SharedList, as_list
from agentflow.core.data.walk import ELEMENTS_PER_STEP, LEAVES, PART, Work, slices
from agentflow.lang.builtins.numbers import integer
from agentflow.lang.builtins.registry import primitive, wrong_element, wrong_type
from agentflow.lang.calling import MANY_OPERANDS, Sliced, begun
from agentflow.lang.charging import Bounded, charge_collection, check_collection, touch_elements
from agentflow.lang.equality import ATOMS, equality

_FEW = 512
"""Elements of any shape that one part of work examines."""
_AT_ONCE = 65_536
"""Elements that one part of work copies or counts."""
_PER_LIST = 64
"""Elements that take as long to copy as a list takes to look at."""


def items(who: str, position: int, value: Any) -> list[Any]:
    """``value`` as a list to read from. Raises ``type/argument`` if it is not a list."""
    elements = as_list(value)
    if elements is not None:
        return elements
    hint = None
    if isinstance(value, str):
        hint = "(string-split text separator) makes a list of a text"
    elif is_dict(value):
        hint = "(keys d) and (values d) make lists of a dict"
    elif value is None:
        hint = "none is not the empty list; (or value '()) gives one"
    wrong_type(who, position, "a list", value, hint=hint)


def _elements(who: str, value: Any) -> list[Any] | tuple[Any, ...]:
    """The elements of an unshared list, without a copy."""
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else items(who, 1, value)


def _not_empty(who: str, value: object) -> list[Any] | tuple[Any, ...]:
    elements = _elements(who, value)
    if not elements:
        raise SexpEvaluationError(
            f"{who} of the empty list", code="list/empty", hint=f"test first: (if (null? x) ... ({who} x))"
        )
    return elements


def _size(value: Any) -> int:
    return value.length if isinstance(value, SharedList) else len(_elements("cddr", value))


def _at(who: str, value: Any, index: int) -> Any:
    """The element at ``index``, which is small. An error if the list is shorter."""
    while index and isinstance(value, SharedList):
        value = value.rest()
        index -= 1
    if isinstance(value, SharedList):
        return value.first()
    elements = _elements(who, value)
    return elements[index] if index < len(elements) else _not_empty(who, [])[0]


@primitive("list", usage="(list value ...)", arity=(0, None), size="list", flow="k")
def make_list(*values: Any) -> list[Any]:
    """A new list of the values, in order."""
    return list(values) if len(values) <= _AT_ONCE else cast("list[Any]", Sliced(_gathered([values])))


@primitive("cons", usage="(cons value list)", arity=(2, 2), needs_rt=True, size="cons", flow="ko", takes=".l")
def cons(rt: Bounded, value: Any, rest: Any) -> list[Any] | SharedList:
    """A new list: the value, then the elements of the list. There are no dotted pairs."""
    if isinstance(rest, SharedList):
        check_collection(rt, rest.length + 1, "cons")
        return rest.after(value)
    tail = items("cons", 2, rest)
    size = len(tail) + 1
    if size < SHARED_FROM:
        return [value, *tail]
    charge_collection(rt, size, "cons")
    return SharedList.of(tail).after(value)


@primitive("first", usage="(first list)", arity=(1, 1), aliases=("car",), size="element", flow="o", takes="l")
def first(value: Any) -> Any:
    """The first element. An empty list is the error ``list/empty``."""
    return value.first() if isinstance(value, SharedList) else _not_empty("first", value)[0]


@primitive("rest", usage="(rest list)", arity=(1, 1), needs_rt=True, aliases=("cdr",), size="rest", flow="o", takes="l")
def rest(rt: Bounded, value: Any) -> list[Any] | SharedList:
    """A list of all elements but the first. An empty list is the error ``list/empty``."""
    if isinstance(value, SharedList):
        return value.rest()
    elements = _not_empty("rest", value)
    if len(elements) <= SHARED_FROM:
        return elements[1:] if isinstance(elements, list) else list(elements[1:])
    touch_elements(rt, len(elements))
    return SharedList.of(elements).rest()


@primitive("cadr", usage="(cadr list)", arity=(1, 1), size="element", flow="o", takes="l")
def second(value: Any) -> Any:
    """The second element. A shorter list is the error ``list/empty``."""
    return _at("cadr", value, 1)


@primitive("caddr", usage="(caddr list)", arity=(1, 1), size="element", flow="o", takes="l")
def third(value: Any) -> Any:
    """The third element. A shorter list is the error ``list/empty``."""
    return _at("caddr", value, 2)


@primitive("cddr", usage="(cddr list)", arity=(1, 1), needs_rt=True, size="rest-2", flow="o", takes="l")
def after_second(rt: Bounded, value: Any) -> list[Any] | SharedList:
    """A list of all elements but the first two. A shorter list is the error ``list/empty``."""
    return rest(rt, rest(rt, value)) if _size(value) > 1 else list(_not_empty("cddr", []))


@primitive(
    "nth", usage="(nth list index [default])", arity=(2, 3), needs_rt=True, size="element", flow="ork", takes="li."
)
def nth(rt: Bounded, value: Any, index: Any, *default: Any) -> Any:
    """The element at an index counted from 0. Outside the list: the default, or the error ``list/index``."""
    if isinstance(value, SharedList):
        touch_elements(rt, value.length)
        value = value.plain()
    elements = _elements("nth", value)
    at = integer("nth", 2, index)
    if 0 <= at < len(elements):
        return elements[at]
    if default:
        return default[0]
    raise SexpEvaluationError(
        f"nth: the list has {len(elements)} element{'' if len(elements) == 1 else 's'}, and index {_short(at)} is outside it",
        code="list/index",
        hint="indices count from 0; a third argument is the value to use instead",
    )


def _short(value: int) -> str:
    return str(value) if value.bit_length() <= 64 else "(a huge number)"


@primitive("length", usage="(length list)", arity=(1, 1), size="length", flow="o", takes="z")
def length(value: Any) -> int:
    """The number of elements of a list, characters of a string, or keys of a dict."""
    if isinstance(value, str | list | tuple | SharedList) or is_dict(value):
        return len(cast("list[Any]", value))
    wrong_type("length", 1, "a list, string or dict", value)


def _gathered(lists: Sequence[Sequence[Any]]) -> Work[list[Any]]:
    """The elements of all ``lists`` in a new list. The caller has charged for them."""
    gathered: list[Any] = []
    copied = 0
    for each in lists:
        for part in slices(each, _AT_ONCE):
            copied += len(part) + _PER_LIST
            if copied > _AT_ONCE:
                yield 0
                copied = 0
            gathered += part
    return gathered


@primitive("append", usage="(append list ...)", arity=(0, None), sliced=True, size="append", flow="o", takes="l")
def append(rt: Bounded, *lists: Any) -> Any:
    """A list of all elements of the lists, in order. Texts are joined by ``string-append``.

    The time grows with the length of all lists, except a last one from ``cons`` or ``rest``.
    """
    if len(lists) < MANY_OPERANDS and all([type(each) is list for each in lists]):
        size = sum(map(len, lists))
        if size <= _AT_ONCE:
            charge_collection(rt, size, "append")
            return list(chain.from_iterable(lists))
    return begun(_appended(rt, lists))


def _appended(rt: Bounded, lists: tuple[Any, ...]) -> Work[list[Any] | SharedList]:
    last = lists[-1]
    parts: list[list[Any]] = []
    for some in slices(lists[:-1]):
        if len(some) >= ELEMENTS_PER_STEP:
            yield len(some) // ELEMENTS_PER_STEP
        parts += [items("append", position, each) for position, each in enumerate(some, len(parts) + 1)]
    if not isinstance(last, SharedList):
        parts.append(items("append", len(lists), last))
        charge_collection(rt, sum(map(len, parts)), "append")
        return (yield from _gathered(parts))
    added = sum(map(len, parts))
    check_collection(rt, added + last.length, "append")
    touch_elements(rt, added)
    count = 0
    for part in reversed(parts):
        for element in reversed(part):
            last = last.after(element)
            count += 1
            if count % PART == 0:
                yield 0
    return last


@primitive("reverse", usage="(reverse list)", arity=(1, 1), sliced=True, size="same-length", flow="o", takes="l")
def reverse(rt: Bounded, value: Any) -> Any:
    """A new list with the elements in reverse order."""
    elements = items("reverse", 1, value)
    touch_elements(rt, len(elements))
    return elements[::-1] if len(elements) <= _AT_ONCE else Sliced(_reversed(elements))


def _reversed(elements: list[Any]) -> Work[list[Any]]:
    backwards: list[Any] = []
    for end in range(len(elements), 0, -_AT_ONCE):
        yield 0
        backwards += elements[max(0, end - _AT_ONCE) : end][::-1]
    return backwards


@primitive("range", usage="(range [start] end [step])", arity=(1, 3), sliced=True, size="range", takes="i")
def integer_range(rt: Bounded, *bounds: Any) -> Any:
    """The integers from start (default 0) up to, not including, end, by step (default 1; may be negative)."""
    values = [integer("range", position, value) for position, value in enumerate(bounds, 1)]
    start, end = (0, values[0]) if len(values) == 1 else (values[0], values[1])
    step = values[2] if len(values) == 3 else 1
    if step == 0:
        raise SexpEvaluationError("range: the step is 0", code="list/range", hint="count up by 1 or down by -1")
    distance = end - start if step > 0 else start - end
    size = max(0, -(-distance // abs(step)))
    charge_collection(rt, size, "range")
    numbers = range(start, end, step)
    return list(numbers) if size <= _AT_ONCE else Sliced(_integers(numbers))


def _integers(numbers: range) -> Work[list[int]]:
    result: list[int] = []
    for part in slices(numbers, _AT_ONCE):
        result += part
        yield 0
    return result


@primitive(
    "member",
    usage="(member value list)",
    arity=(2, 2),
    sliced=True,
    aliases=("memq", "memv"),
    size="found-rest",
    takes=".l",
)
def member(rt: Bounded, value: Any, within: Any) -> Any:
    """The part of the list from the first element equal to the value; false if there is none."""
    return begun(_member(value, items("member", 2, within)))


def _member(value: Any, elements: list[Any]) -> Work[Any]:
    simple = type(value) in LEAVES
    start = 0
    for part in slices(elements, PART if simple else _FEW):
        if len(part) >= ELEMENTS_PER_STEP:
            yield len(part) // ELEMENTS_PER_STEP
        if not simple or type(value) is str:
            for at, each in enumerate(part, start):
                if (yield from equality(each, value)):
                    return elements[at:]
        elif not ATOMS.issuperset(map(type, part)):
            for at, each in enumerate(part, start):
                if type(each) in ATOMS and each == value:
                    return elements[at:]
        elif value in part:
            return elements[elements.index(value, start) :]
        start += len(part)
    return False


@primitive(
    "assoc", usage="(assoc key pairs)", arity=(2, 2), sliced=True, aliases=("assq", "assv"), size="found", takes=".l"
)
def assoc(rt: Bounded, key: Any, pairs: Any) -> Any:
    """The first pair ``(key value)`` of a list whose key is equal; false if there is none."""
    return begun(_assoc(key, items("assoc", 2, pairs)))


def _assoc(key: Any, pairs: list[Any]) -> Work[Any]:
    position = 0
    for part in slices(pairs, _FEW):
        if len(part) >= ELEMENTS_PER_STEP:
            yield len(part) // ELEMENTS_PER_STEP
        for pair in part:
            if isinstance(pair, SharedList):
                name = pair.first()
            elif isinstance(pair, list | tuple) and pair:
                name = cast("list[Any]", pair)[0]
            else:
                wrong_element("assoc", position, "pair", pair)
            if name == key if type(name) in ATOMS and type(key) in ATOMS else (yield from equality(name, key)):
                return cast("Any", pair)
            position += 1
    return False


@primitive("list?", usage="(list? value)", arity=(1, 1), size="plain", flow="o")
def is_list(value: Any) -> bool:
    """Whether the value is a list; the empty list, nil, is one."""
    return isinstance(value, list | tuple | SharedList)


@primitive("pair?", usage="(pair? value)", arity=(1, 1), size="plain", flow="o")
def is_pair(value: Any) -> bool:
    """Whether the value is a list with elements, so that ``first`` and ``rest`` work."""
    return isinstance(value, list | tuple | SharedList) and len(cast("list[Any]", value)) > 0


@primitive("zip", usage="(zip list ...)", arity=(1, None), sliced=True, size="zip", flow="o", takes="l")
def zip_lists(rt: Bounded, *lists: Any) -> Any:
    """A list of lists: the first elements of all lists, then the second ones, up to the shortest list."""
    columns = [items("zip", position, each) for position, each in enumerate(lists, 1)]
    rows = min(map(len, columns))
    charge_collection(rt, rows, "zip")
    return begun(_rows(columns, rows))


def _rows(columns: list[list[Any]], count: int) -> Work[list[list[Any]]]:
    rows: list[list[Any]] = []
    size = max(1, PART // len(columns))
    for start in range(0, count, size):
        if count * len(columns) > PART:
            yield size * len(columns) // ELEMENTS_PER_STEP
        rows += map(list, zip(*[each[start : start + size] for each in columns], strict=False))
    del rows[count:]
    return rows
