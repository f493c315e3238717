"""Primitives that call procedures, and those that act through the run.

They call a procedure's code directly, as generated code does: an element costs one call and nothing else.
"""

from __future__ import annotations

from typing import Any

from agentflow.core.call.host_calls import CUTTING, keep_partial
from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.values import Symbol, name_of, text_work
from agentflow.core.data.walk import ELEMENTS_PER_STEP, TooDeep, TooLong, Work, exact, slices
from agentflow.core.events.effects import LogMessage
from agentflow.lang.abi import Runtime
from agentflow.lang.builtins.lists import items
from agentflow.lang.builtins.registry import Primitive, primitive, wrong_type
from agentflow.lang.calling import MANY_OPERANDS, TAIL, Sliced, bounce
from agentflow.lang.charging import charge_string, check_string, touch_elements
from agentflow.lang.equality import truth
from agentflow.lang.printer import too_deep
from agentflow.lang.sorting import in_order, long_texts_in_order

_LONGEST_STEM = 100
_LONG_TEXT = 512
"""Characters from which on comparing texts takes longer than scanning them."""


@primitive(
    "map",
    usage="(map procedure list ...)",
    arity=(2, None),
    is_async=True,
    flow="ke",
    size="called",
    takes="ol",
    calls=0,
)
async def map_lists(rt: Runtime, d: int, procedure: Any, *lists: Any) -> list[Any]:
    """The results of calling the procedure on each element, in order; with several lists, on one element of each.

    Ends with the shortest list.
    """
    if len(lists) == 1:
        elements = items("map", 2, lists[0])
        code = rt.pick(procedure, 1, d)
        inner = d + 1
        results: list[Any] = []
        keep = results.append
        try:
            for element in elements:
                value = await code(rt, inner, element)
                keep(value if value is not TAIL else await bounce(rt, d))
        except CUTTING as error:
            keep_partial(error, results)
            raise
        return results
    rows = [items("map", position, each) for position, each in enumerate(lists, 2)]
    code = rt.pick(procedure, len(rows), d)
    results = []
    try:
        for row in zip(*rows, strict=False):
            value = await code(rt, d + 1, *row)
            results.append(value if value is not TAIL else await bounce(rt, d))
    except CUTTING as error:
        keep_partial(error, results)
        raise
    return results


@primitive(
    "filter",
    usage="(filter procedure list)",
    arity=(2, 2),
    is_async=True,
    flow="ke",
    size="called",
    takes="ol",
    calls=0,
)
async def filter_list(rt: Runtime, d: int, procedure: Any, elements: Any) -> list[Any]:
    """The elements for which the procedure returns a true value, in order."""
    kept: list[Any] = []
    code = rt.pick(procedure, 1, d)
    try:
        for element in items("filter", 2, elements):
            value = await code(rt, d + 1, element)
            if truth(value if value is not TAIL else await bounce(rt, d)):
                kept.append(element)
    except CUTTING as error:
        keep_partial(error, kept)
        raise
    return kept


@primitive(
    "for-each",
    usage="(for-each procedure list ...)",
    arity=(2, None),
    is_async=True,
    flow="ke",
    size="called",
    takes="ol",
    calls=0,
)
async def for_each(rt: Runtime, d: int, procedure: Any, *lists: Any) -> list[Any]:
    """Calls the procedure on every element, in order; with several lists, on one element of each. Returns nil.

    Ends with the shortest list.
    """
    rows = [items("for-each", position, each) for position, each in enumerate(lists, 2)]
    code = rt.pick(procedure, len(rows), d)
    for row in zip(*rows, strict=False):
        if await code(rt, d + 1, *row) is TAIL:
            await bounce(rt, d)
    return []


@primitive(
    "reduce",
    usage="(reduce procedure [initial] list)",
    arity=(2, 3),
    is_async=True,
    flow="k-e",
    size="called",
    takes="o.",
    calls=0,
)
async def reduce_list(rt: Runtime, d: int, procedure: Any, *rest: Any) -> Any:
    """Combines the elements from the left: (procedure (procedure initial first) second) ...

    Without an initial value it starts with the first element, and an empty list is an error.
    """
    elements = items("reduce", len(rest) + 1, rest[-1])
    start = 0
    if len(rest) == 2:
        total = rest[0]
    elif elements:
        total = elements[0]
        start = 1
    else:
        raise SexpEvaluationError(
            "reduce of the empty list needs an initial value",
            code="list/empty",
            hint="write (reduce procedure initial list)",
        )
    code = rt.pick(procedure, 2, d)
    for index in range(start, len(elements)):
        total = await code(rt, d + 1, total, elements[index])
        if total is TAIL:
            total = await bounce(rt, d)
    return total


@primitive(
    "apply",
    usage="(apply procedure [argument ...] list)",
    arity=(2, None),
    is_async=True,
    tails=True,
    flow="k-e",
    size="called",
    takes="o.",
    calls=0,
)
async def apply(rt: Runtime, d: int, procedure: Any, *rest: Any) -> Any:
    """Calls the procedure with the arguments, followed by the elements of the list."""
    last = items("apply", len(rest) + 1, rest[-1])
    arguments = [*rest[:-1], *last] if len(rest) > 1 else last
    touch_elements(rt, len(arguments))
    if len(arguments) >= MANY_OPERANDS and isinstance(procedure, Primitive) and not procedure.is_async:
        return await _applied(rt, procedure, arguments)
    rt.tail = (rt.pick(procedure, len(arguments), d), *arguments)
    return TAIL


async def _applied(rt: Runtime, primitive: Primitive, arguments: list[Any]) -> Any:
    """Call a primitive with many arguments, copying them in parts on the way."""
    primitive.check_arity(len(arguments))
    return await rt.work(_spread(rt, primitive, arguments))


def _spread(rt: Runtime, primitive: Primitive, arguments: list[Any]) -> Work[Any]:
    yield 1
    if primitive.of_many is not None:
        return (yield from primitive.of_many(rt, tuple(arguments)))
    operands: Any = [rt, *arguments] if primitive.needs_rt else arguments
    yield 0
    operands = tuple(operands)  # a tuple is passed on as it is; any other value after a star would be copied twice
    yield 0
    value = primitive.function(*operands)
    del operands
    return value if type(value) is not Sliced else (yield from value.work)


@primitive(
    "sort",
    usage="(sort list [before?])",
    arity=(1, 2),
    is_async=True,
    flow="r|wk",
    size="called",
    takes="lo",
    calls=1,
)
async def sort(rt: Runtime, d: int, elements: Any, *before: Any) -> list[Any]:
    """A new list in ascending order, of numbers or of strings; or in the order of `before?`, called on two elements.

    Equal elements keep their order.
    """
    values = items("sort", 1, elements)
    if before:
        return await _merge_sort(rt, d, values, before[0])
    return await rt.work(_sorted(values)) if len(values) > 1 else list(values)


def _sorted(values: list[Any]) -> Work[list[Any]]:
    """The work of sorting numbers, or strings and symbols by their text."""
    texts = isinstance(values[0], str | Symbol)
    symbols = False
    kind: Any = str | Symbol if texts else int | float
    keys: list[Any] = []
    longest = 0
    for part in slices(values):
        if len(part) >= ELEMENTS_PER_STEP:
            yield len(part) // ELEMENTS_PER_STEP
        kinds = set(map(type, part))
        symbols = symbols or Symbol in kinds
        if not all(issubclass(each, kind) for each in kinds):
            position = len(keys) + next(at for at, each in enumerate(part) if not isinstance(each, kind))
            raise SexpEvaluationError(
                f"sort without a procedure takes all numbers or all strings; element {position} is neither like the rest",
                code="type/element",
                hint="write (sort list (lambda (a b) ...)), true when a comes before b",
            )
        keys += map(str, part) if texts else part
        if texts:
            longest = max(longest, max(map(len, keys[-len(part) :])))
    if longest > _LONG_TEXT:
        keys = yield from long_texts_in_order(keys)
        return keys
    if not symbols:
        return (yield from in_order(keys))
    placed = yield from in_order(list(zip(keys, range(len(keys)), strict=True)))
    ordered: list[Any] = []
    for part in slices(placed):
        yield 0
        ordered += [values[index] for _, index in part]
    return ordered


async def _merge_sort(rt: Runtime, d: int, elements: list[Any], before: Any) -> list[Any]:
    """Bottom-up merge sort: stable; every comparison is a call of the program's procedure."""
    code = rt.pick(before, 2, d)
    runs = [[each] for each in elements]
    while len(runs) > 1:
        merged: list[list[Any]] = []
        for index in range(0, len(runs) - 1, 2):
            left, right = runs[index], runs[index + 1]
            out: list[Any] = []
            i = j = 0
            while i < len(left) and j < len(right):
                value = await code(rt, d + 1, right[j], left[i])
                if truth(value if value is not TAIL else await bounce(rt, d)):
                    out.append(right[j])
                    j += 1
                else:
                    out.append(left[i])
                    i += 1
            out += left[i:]
            out += right[j:]
            merged.append(out)
        if len(runs) % 2:
            merged.append(runs[-1])
        runs = merged
    return runs[0] if runs else []


@primitive("gensym", usage="(gensym [stem])", arity=(0, 1), needs_rt=True, size="text", takes="f")
def gensym(rt: Runtime, *stem: Any) -> Symbol:
    """A new symbol, unlike any in the program, that begins with `stem`: for variables that a macro's template binds."""
    name = name_of(stem[0]) if stem else "g"
    if name is None or len(name) > _LONGEST_STEM:
        wrong_type("gensym", 1, f"a short name (at most {_LONGEST_STEM} characters)", stem[0])
    return Symbol(rt.fresh_name(name))


@primitive("log-message", usage="(log-message value ...)", arity=(0, None), is_async=True, size="text", asks=True)
async def log_message(rt: Runtime, d: int, *values: Any) -> str:
    """Publishes the values, as text separated by spaces, in the run's log and logger `agentflow.program`; returns the text."""
    texts = [exact(each) if isinstance(each, str) else await rt.work(_text(rt, each)) for each in values]
    charge_string(rt, sum(map(len, texts)) + len(texts), "log-message")
    text = " ".join(texts)
    return await rt.perform(LogMessage(text), None)


def _text(rt: Runtime, value: Any) -> Work[str]:
    try:
        return (yield from text_work(value, limit=rt.limits.string))
    except TooLong as error:
        check_string(rt, error.size, "log-message")
        raise
    except TooDeep:
        raise too_deep() from None
