"""Values as text, as Python writes them: ``str``, ``repr`` and f-strings."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from agentflow.core.data.errors import LimitExceeded, cut
from agentflow.core.data.limits import Limits
from agentflow.core.data.values import MAX_DATA_DEPTH, OrderedSet, SharedList, Symbol
from agentflow.core.data.walk import CHARACTERS_PER_STEP, ELEMENTS_PER_STEP, LEAVES, PART, Work, finish
from agentflow.lang.abi import Runtime
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.charging import Bounded, charge_string, check_string, touch_bits, touch_text
from agentflow.lang.closure import Closure
from agentflow.lang.printer import opaque
from agentflow.lang.python.errors import article, kind_of, wrong_type, wrong_value
from agentflow.lang.python.failure import Failure
from agentflow.lang.python.rows import code

_DIGITS_BITS = 14_000
"""The most bits of an integer that Python writes in decimal."""
_SMALL = 1 << 256
_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?(\d*)[,_]?(?:\.(\d+))?[bcdeEfFgGosxX%]?", re.DOTALL)
_BRACKETS: dict[type[Any], tuple[str, str]] = {list: ("[", "]"), dict: ("{", "}"), OrderedSet: ("{", "}")}


@code(long="always")
def text(rt: Runtime, value: Any) -> Any:
    """``str(value)``; for large values the work that writes them."""
    if type(value) is str:
        return value
    if type(value) in LEAVES:
        return _atom(rt, value)
    if isinstance(value, Failure):
        return value.message
    return value.name if type(value) is Symbol else written(rt, value)


async def whole_text(rt: Runtime, value: Any) -> str:
    """The whole of ``str(value)``."""
    result = text(rt, value)
    return await rt.work(result.work) if type(result) is Sliced else result


@code(long="always")
def written(rt: Runtime, value: Any) -> Any:
    """``repr(value)``; for large values the work that writes them."""
    if type(value) in LEAVES:
        return _atom(rt, value)
    return begun(_written(rt, value))


def notation(value: Any, named: Callable[[Any], str | None]) -> str:
    """``repr(value)`` for displays outside a run; ``named`` may write values without a notation. Raises LimitExceeded."""
    return finish(_written(_Unbounded(), value, lambda each: named(each) or _named(each)))


class _Unbounded:
    """Unlimited steps and memory."""

    limits = Limits(string=1 << 40)

    def charge(self, steps: int) -> None: ...

    def allocate(self, count: int) -> None: ...


def formatted(rt: Runtime, value: Any, spec: Any) -> str:
    """``f"{value:spec}"`` of a number or text."""
    if type(value) not in LEAVES or value is None:
        wrong_type(f"{article(kind_of(value))} takes no format", "write it with {x} or {x!r}")
    match = _SPEC.fullmatch(spec) if type(spec) is str and len(spec) <= 40 else None
    if match is None:
        wrong_value(f"this is not a format: {cut(str(spec), 40)!r}", 'for example f"{x:.2f}", f"{x:>10}", f"{x:,}"')
    width, precision = int(match[1] or 0), int(match[2] or 0)
    if width > 9_999 or precision > 999:
        wrong_value("a format has at most width 9999 and precision 999")
    touch_bits(rt, value if type(value) is int else 0)
    charge_string(rt, (len(value) if type(value) is str else 0) + width + precision, "a format")
    try:
        return format(value, spec)
    except (ValueError, OverflowError) as error:
        wrong_value(f"the format does not fit the value: {error}")


def joined(rt: Runtime, *parts: str) -> str:
    """The text of an f-string."""
    length = sum(map(len, parts))
    if length >= CHARACTERS_PER_STEP:
        charge_string(rt, length, "an f-string")
    return "".join(parts)


def _atom(rt: Bounded, value: Any) -> str:
    if type(value) is int:
        if -_SMALL < value < _SMALL:
            return repr(value)
        if value.bit_length() > _DIGITS_BITS:
            raise LimitExceeded(
                f"an integer of {value.bit_length():,} bits is too long to be written in decimal",
                limit="integer_digits",
                allowed=4_300,
                used=value.bit_length() * 3 // 10,
                hint="write it in hexadecimal: f'{x:x}'",
            )
        touch_bits(rt, value)
    elif type(value) is str:
        check_string(rt, len(value) + 2, "repr")
        touch_text(rt, len(value))
    return repr(value)


def _written(rt: Bounded, value: Any, named: Callable[[Any], str] | None = None) -> Work[str]:
    """The text of containers, with an explicit stack of iterators and closing brackets."""
    out: list[str] = []
    size = count = 0
    stack: list[Iterator[Any]] = [iter((value,))]
    closers, inside = [""], [0]
    while stack:
        for each in stack[-1]:
            count += 1
            if count == PART:
                yield PART // ELEMENTS_PER_STEP
                count = 0
            if type(each) is _PythonText:
                piece = str(each)
            elif (parts := _parts(each)) is not None:
                opener, items, closer = parts
                if id(each) in inside:
                    piece = f"{opener}...{closer}"
                elif len(stack) > MAX_DATA_DEPTH:
                    raise _too_deep()
                else:
                    out.append(opener)
                    stack.append(items)
                    closers.append(closer)
                    inside.append(id(each))
                    break
            else:
                piece = _atom(rt, each) if type(each) in LEAVES else (named or _named)(each)
            out.append(piece)
            size += len(piece)
            check_string(rt, size, "repr")
        else:
            stack.pop()
            inside.pop()
            out.append(closers.pop())
    yield size // CHARACTERS_PER_STEP
    return "".join(out)


class _PythonText(str):
    """Text between values, distinguished from values by its type."""

    __slots__ = ()


_COMMA = _PythonText(", ")


def _parts(value: Any) -> tuple[str, Iterator[Any], str] | None:
    kind = cast("type[Any]", type(value))
    if kind is SharedList:
        value, kind = value.plain(), list
    if kind is tuple:
        return "(", _separated(value), ",)" if len(value) == 1 else ")"
    if kind is OrderedSet and not value.items:
        return "set(", iter(()), ")"
    brackets = _BRACKETS.get(kind)
    if brackets is None:
        return None
    return brackets[0], _entries(value) if kind is dict else _separated(value), brackets[1]


def _separated(values: Any) -> Iterator[Any]:
    first = True
    for each in values:
        if not first:
            yield _COMMA
        first = False
        yield each


def _entries(mapping: dict[Any, Any]) -> Iterator[Any]:
    first = True
    for name, value in mapping.items():
        if not first:
            yield _COMMA
        first = False
        yield name
        yield _PythonText(": ")
        yield value


def _named(value: Any) -> str:
    if type(value) is Symbol:
        return repr(value.name)
    if isinstance(value, Failure):
        return f"{value.name}({value.message!r})"
    return f"<function {value.name or 'lambda'}>" if type(value) is Closure else opaque(value)


def _too_deep() -> LimitExceeded:
    return LimitExceeded(
        f"data is nested deeper than {MAX_DATA_DEPTH} levels, too deep to write out",
        limit="depth",
        allowed=MAX_DATA_DEPTH,
        hint="write out its parts",
    )
