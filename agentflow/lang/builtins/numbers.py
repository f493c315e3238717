"""Arithmetic on integers and floats.

Booleans count as 1 and 0, as the specification says. A float anywhere makes the result a float. Integers are exact, up
to ``Limits.integer_bits``; a result that a float cannot hold is an error, never silently infinity.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.walk import BITS_PER_STEP, ELEMENTS_PER_STEP, PART, Work
from agentflow.lang.builtins.registry import primitive, wrong_type
from agentflow.lang.calling import MANY_OPERANDS, Sliced
from agentflow.lang.charging import Bounded, check_bits, touch_bits, touch_product

Number = int | float
_REAL = frozenset((int, float))
_WORD = 1 << 64
"""Smaller integers add no cost to the call."""
_FEW = MANY_OPERANDS - 2
"""Numbers that one part of work handles, so that each part is a call with few operands."""


def number(who: str, position: int, value: object) -> Number:
    """``value`` as a number. Raises ``type/argument`` if it is not one."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        wrong_type(who, position, "a number", value, hint="(string->number text) reads a number from text")
    wrong_type(who, position, "a number", value)


def integer(who: str, position: int, value: object) -> int:
    """``value`` as an integer. Raises ``type/argument`` for anything else, booleans and floats included."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    hint = "(round x) gives an integer" if isinstance(value, float) else None
    wrong_type(who, position, "an integer", value, hint=hint)


def _overflow(who: str) -> SexpEvaluationError:
    return SexpEvaluationError(
        f"{who}: the result does not fit into a float",
        code="number/overflow",
        hint="keep to integers, which are exact at any size, or scale the numbers down",
    )


def _by_zero(who: str) -> SexpEvaluationError:
    return SexpEvaluationError(
        f"{who}: division by zero", code="number/division-by-zero", hint="test the divisor first: (if (= d 0) ... )"
    )


def _check(who: str, position: int, numbers: tuple[Any, ...]) -> None:
    """Raise ``type/argument`` for the first value in ``numbers`` of another type; they are the arguments from ``position`` on."""
    if not _REAL.issuperset(map(type, numbers)):
        for index, value in enumerate(numbers, position):
            number(who, index, value)


def _folded(rt: Bounded, who: str, function: Callable[..., Any], numbers: tuple[Any, ...]) -> Work[Any]:
    """An operation on many numbers, some at a time; it charges for their bits."""
    result: Any = None
    for start in range(0, len(numbers), _FEW):
        yield _FEW // ELEMENTS_PER_STEP
        part = numbers[start : start + _FEW]
        _check(who, start + 1, part)
        result = function(rt, *part) if start == 0 else function(rt, result, *part)
    return result


@primitive("+", usage="(+ number ...)", arity=(0, None), needs_rt=True, size="+", takes="n")
def add(rt: Bounded, *numbers: Any) -> Number:
    """The sum; 0 without arguments. A float among them makes the sum a float; booleans count as 1 and 0."""
    if len(numbers) == 2:
        a, b = numbers
        if type(a) is int and type(b) is int and -_WORD < (total := a + b) < _WORD:
            return total
        if type(a) is float and type(b) is float:
            return a + b
    elif len(numbers) >= MANY_OPERANDS:
        return cast("Number", Sliced(_folded(rt, "+", add, numbers)))
    total = cast("Number", 0)
    for position, value in enumerate(numbers, 1):
        try:
            total = total + number("+", position, value)
        except OverflowError:
            raise _overflow("+") from None
    if type(total) is int and total.bit_length() > 64:
        check_bits(rt, total.bit_length(), "+")
        touch_bits(rt, total)
    return total


@primitive("-", usage="(- number [number])", arity=(1, 2), needs_rt=True, size="-", takes="nN")
def subtract(rt: Bounded, a: Any, b: Any = None) -> Number:
    """The first minus the second; with one argument, its negation."""
    left = number("-", 1, a)
    if b is None:
        return -left
    try:
        difference = left - number("-", 2, b)
    except OverflowError:
        raise _overflow("-") from None
    if type(difference) is int and difference.bit_length() > 64:
        check_bits(rt, difference.bit_length(), "-")
        touch_bits(rt, difference)
    return difference


@primitive("*", usage="(* number ...)", arity=(0, None), needs_rt=True, size="*", takes="n")
def multiply(rt: Bounded, *numbers: Any) -> Number:
    """The product; 1 without arguments. A float among them makes the product a float."""
    if len(numbers) >= MANY_OPERANDS:
        return cast("Number", Sliced(_folded(rt, "*", multiply, numbers)))
    product: Number = 1
    for position, value in enumerate(numbers, 1):
        factor = number("*", position, value)
        if isinstance(product, int) and isinstance(factor, int):
            bits = product.bit_length() + factor.bit_length()
            if bits > 64:
                check_bits(rt, bits, "*")
                touch_product(rt, product, factor)
        try:
            product = product * factor
        except OverflowError:
            raise _overflow("*") from None
    return product


@primitive("/", usage="(/ number number ...)", arity=(1, None), needs_rt=True, size="/", takes="n")
def divide(rt: Bounded, *numbers: Any) -> Number:
    """The first divided by the others; with one argument, 1 divided by it.

    Integers that divide without remainder give an integer, other numbers a float. Division by zero is the error
    ``number/division-by-zero``.
    """
    if len(numbers) >= MANY_OPERANDS:
        return cast("Number", Sliced(_folded(rt, "/", divide, numbers)))
    values = [number("/", position, value) for position, value in enumerate(numbers, 1)]
    result: Number = values[0] if len(values) > 1 else 1
    for divisor in values[1:] if len(values) > 1 else values:
        if divisor == 0:
            raise _by_zero("/")
        if isinstance(result, int) and isinstance(divisor, int):
            touch_product(rt, result, divisor)
            if result % divisor == 0:
                result = result // divisor
                continue
        try:
            result = result / divisor
        except OverflowError:
            raise _overflow("/") from None
    return result


def _divided(rt: Bounded, who: str, a: Any, b: Any) -> tuple[int, int]:
    """The operands of an integer division."""
    left, right = integer(who, 1, a), integer(who, 2, b)
    if right == 0:
        raise _by_zero(who)
    if left.bit_length() > 64:
        touch_product(rt, left, right)
    return left, right


@primitive("quotient", usage="(quotient integer integer)", arity=(2, 2), needs_rt=True, size="quotient", takes="i")
def quotient(rt: Bounded, a: Any, b: Any) -> int:
    """The integer quotient, rounded towards zero: ``(quotient -7 2)`` is -3."""
    left, right = _divided(rt, "quotient", a, b)
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


@primitive("modulo", usage="(modulo integer integer)", arity=(2, 2), needs_rt=True, size="modulo", takes="i")
def modulo(rt: Bounded, a: Any, b: Any) -> int:
    """The remainder with the sign of the divisor: ``(modulo -7 2)`` is 1."""
    left, right = _divided(rt, "modulo", a, b)
    return left % right


@primitive("remainder", usage="(remainder integer integer)", arity=(2, 2), needs_rt=True, size="number", takes="i")
def remainder(rt: Bounded, a: Any, b: Any) -> int:
    """The remainder with the sign of the dividend: ``(remainder -7 2)`` is -1."""
    left, right = _divided(rt, "remainder", a, b)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _ordered(who: str, numbers: tuple[Any, ...]) -> list[Number]:
    return [number(who, position, value) for position, value in enumerate(numbers, 1)]


def _neighbours(who: str, numbers: tuple[Any, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Many numbers in parts, each with the first of the next, and the steps that their comparison costs."""
    for start in range(0, len(numbers), PART):
        part = numbers[start : start + PART + 1]
        _check(who, start + 1, part)
        yield sum([each.bit_length() for each in part if isinstance(each, int)]) // BITS_PER_STEP, part


def _holds(who: str, relation: Callable[[Any, Any], bool], numbers: tuple[Any, ...]) -> Any:
    """Whether each number stands in a relation to the next."""
    if len(numbers) < MANY_OPERANDS:
        return all(relation(a, b) for a, b in pairwise(_ordered(who, numbers)))

    def work() -> Work[bool]:
        holds = True
        for cost, part in _neighbours(who, numbers):
            yield cost
            holds = holds and all(map(relation, part, part[1:]))
        return holds

    return Sliced(work())


@primitive("=", usage="(= number number ...)", arity=(1, None), size="plain", takes="n")
def equal_numbers(*numbers: Any) -> bool:
    """Whether all numbers are equal. Use ``equal?`` for other values."""
    if len(numbers) < MANY_OPERANDS and not _REAL.issuperset(map(type, numbers)):
        for position, value in enumerate(numbers, 1):
            if not isinstance(value, int | float):
                wrong_type("=", position, "a number", value, hint="compare other values with equal?")
    return _holds("=", operator.eq, numbers)


@primitive("<", usage="(< number number ...)", arity=(1, None), size="plain", takes="n")
def less(*numbers: Any) -> bool:
    """Whether each number is less than the next."""
    if len(numbers) == 2 and type(numbers[0]) is int and type(numbers[1]) is int:
        return numbers[0] < numbers[1]
    return _holds("<", operator.lt, numbers)


@primitive(">", usage="(> number number ...)", arity=(1, None), size="plain", takes="n")
def greater(*numbers: Any) -> bool:
    """Whether each number is greater than the next."""
    if len(numbers) == 2 and type(numbers[0]) is int and type(numbers[1]) is int:
        return numbers[0] > numbers[1]
    return _holds(">", operator.gt, numbers)


@primitive("<=", usage="(<= number number ...)", arity=(1, None), size="plain", takes="n")
def at_most(*numbers: Any) -> bool:
    """Whether no number is greater than the next."""
    if len(numbers) == 2 and type(numbers[0]) is int and type(numbers[1]) is int:
        return numbers[0] <= numbers[1]
    return _holds("<=", operator.le, numbers)


@primitive(">=", usage="(>= number number ...)", arity=(1, None), size="plain", takes="n")
def at_least(*numbers: Any) -> bool:
    """Whether no number is less than the next."""
    if len(numbers) == 2 and type(numbers[0]) is int and type(numbers[1]) is int:
        return numbers[0] >= numbers[1]
    return _holds(">=", operator.ge, numbers)


def _chosen(who: str, choose: Callable[..., Any], numbers: tuple[Any, ...]) -> Any:
    """The smallest or largest of many numbers."""

    def work() -> Work[Any]:
        best: Any = numbers[0]
        for cost, part in _neighbours(who, numbers):
            yield cost
            best = choose(best, choose(part))
        return best

    return Sliced(work())


@primitive("min", usage="(min number ...)", arity=(1, None), size="min", takes="n")
def smallest(*numbers: Any) -> Number:
    """The smallest number, the first of equal ones."""
    return min(_ordered("min", numbers)) if len(numbers) < MANY_OPERANDS else _chosen("min", min, numbers)


@primitive("max", usage="(max number ...)", arity=(1, None), size="max", takes="n")
def largest(*numbers: Any) -> Number:
    """The largest number, the first of equal ones."""
    return max(_ordered("max", numbers)) if len(numbers) < MANY_OPERANDS else _chosen("max", max, numbers)


@primitive("abs", usage="(abs number)", arity=(1, 1), size="absolute", takes="n")
def absolute(value: Any) -> Number:
    """The absolute value."""
    return abs(number("abs", 1, value))


MAX_ROUND_DIGITS = 1_000


@primitive("round", usage="(round number [digits])", arity=(1, 2), size="number", takes="nI")
def round_number(value: Any, digits: Any = None) -> Number:
    """The nearest integer, halves to the even one; with ``digits``, the nearest float with that many decimals."""
    exact = number("round", 1, value)
    if isinstance(exact, float) and not math.isfinite(exact):
        raise SexpEvaluationError(f"round: {exact} has no nearest integer", code="number/overflow")
    if digits is None:
        return round(exact)
    decimals = integer("round", 2, digits)
    if abs(decimals) > MAX_ROUND_DIGITS:
        wrong_type("round", 2, f"at most {MAX_ROUND_DIGITS} digits", digits)
    try:
        return round(exact, decimals)
    except OverflowError:
        raise _overflow("round") from None


@primitive("number?", usage="(number? value)", arity=(1, 1), size="plain", flow="o")
def is_number(value: Any) -> bool:
    """Whether the value is an integer or a float. Booleans are not, although arithmetic takes them as 1 or 0."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@primitive("zero?", usage="(zero? number)", arity=(1, 1), size="plain", takes="n")
def is_zero(value: Any) -> bool:
    """Whether the number is 0."""
    return number("zero?", 1, value) == 0


@primitive("positive?", usage="(positive? number)", arity=(1, 1), size="plain", takes="n")
def is_positive(value: Any) -> bool:
    """Whether the number is greater than 0."""
    return number("positive?", 1, value) > 0


@primitive("negative?", usage="(negative? number)", arity=(1, 1), size="plain", takes="n")
def is_negative(value: Any) -> bool:
    """Whether the number is less than 0."""
    return number("negative?", 1, value) < 0


@primitive("even?", usage="(even? integer)", arity=(1, 1), size="plain", takes="i")
def is_even(value: Any) -> bool:
    """Whether the integer is a multiple of 2."""
    return integer("even?", 1, value) % 2 == 0


@primitive("odd?", usage="(odd? integer)", arity=(1, 1), size="plain", takes="i")
def is_odd(value: Any) -> bool:
    """Whether the integer is odd."""
    return integer("odd?", 1, value) % 2 == 1
