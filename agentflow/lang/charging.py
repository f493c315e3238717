"""Charges work by its size: in steps, before it is done.

A step pays for 64 elements, 1 KiB of text or 4 Kbit of an integer, rounded down: small operands cost nothing beyond the
step of the call around them. Results are also checked against their limit.
"""

from __future__ import annotations

from typing import Protocol

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.walk import BITS_PER_STEP, CHARACTERS_PER_STEP, ELEMENTS_PER_STEP

BYTES_PER_ELEMENT = 64
"""Memory counted for an element of a new collection: its own, in addition to the reference paid for by its part of a step."""
BYTES_PER_CHARACTER = 4
"""Memory counted for a character of a new string: the most it may take."""


class Bounded(Protocol):
    """The part of the strand for primitives with work that grows with their operands."""

    @property
    def limits(self) -> Limits:
        """The limits of the run."""
        ...

    def charge(self, steps: int) -> None:
        """Take steps. Raises LimitExceeded."""
        ...

    def allocate(self, count: int) -> None:
        """Count bytes of memory. Raises LimitExceeded."""
        ...


def touch_elements(rt: Bounded, count: int) -> None:
    """Charge for iterating over ``count`` elements. Raises LimitExceeded."""
    if count >= ELEMENTS_PER_STEP:
        rt.charge(count // ELEMENTS_PER_STEP)


def touch_text(rt: Bounded, characters: int) -> None:
    """Charge for going over so many characters. Raises LimitExceeded."""
    if characters >= CHARACTERS_PER_STEP:
        rt.charge(characters // CHARACTERS_PER_STEP)


def touch_bits(rt: Bounded, *numbers: float) -> None:
    """Charge for arithmetic in linear time on these numbers. Raises LimitExceeded."""
    bits = sum(each.bit_length() for each in numbers if isinstance(each, int))
    if bits >= BITS_PER_STEP:
        rt.charge(bits // BITS_PER_STEP)


def touch_product(rt: Bounded, a: float, b: float) -> None:
    """Charge for multiplying ``a`` by ``b``, which takes time by the product of their sizes. Raises LimitExceeded."""
    touch_bits(rt, a, b)
    if isinstance(a, int) and isinstance(b, int):
        steps = a.bit_length() * b.bit_length() // BITS_PER_STEP**2
        if steps:
            rt.charge(steps)


def check_collection(rt: Bounded, size: int, who: str) -> None:
    """Refuse a collection of ``size`` elements, before it is built. Raises LimitExceeded (``limits/collection``)."""
    if size > rt.limits.collection:
        message = _too_large(who, "a collection", size, "elements", rt.limits.collection)
        raise LimitExceeded(message, limit="collection", allowed=rt.limits.collection, used=_figure(size))


def charge_collection(rt: Bounded, size: int, who: str) -> None:
    """Charge for building a collection of ``size`` elements, and refuse one beyond the limit. Raises LimitExceeded."""
    check_collection(rt, size, who)
    touch_elements(rt, size)
    if size >= ELEMENTS_PER_STEP:
        rt.allocate(size * BYTES_PER_ELEMENT)


def check_string(rt: Bounded, size: int, who: str) -> None:
    """Refuse a string of ``size`` characters, before it is built. Raises LimitExceeded (``limits/string``)."""
    if size > rt.limits.string:
        message = _too_large(who, "a string", size, "characters", rt.limits.string)
        raise LimitExceeded(message, limit="string", allowed=rt.limits.string, used=_figure(size))


def charge_string(rt: Bounded, size: int, who: str) -> None:
    """Charge for building a string of ``size`` characters, and refuse one beyond the limit. Raises LimitExceeded."""
    check_string(rt, size, who)
    touch_text(rt, size)
    if size >= CHARACTERS_PER_STEP:
        rt.allocate(size * BYTES_PER_CHARACTER)


def check_bits(rt: Bounded, bits: int, who: str) -> None:
    """Refuse an integer of too many ``bits``, before it is computed. Raises LimitExceeded (``limits/integer-bits``)."""
    if bits > rt.limits.integer_bits:
        message = _too_large(who, "an integer", bits, "bits", rt.limits.integer_bits)
        raise LimitExceeded(message, limit="integer_bits", allowed=rt.limits.integer_bits, used=_figure(bits))


def _too_large(who: str, what: str, size: int, unit: str, allowed: int) -> str:
    shown = size if size.bit_length() <= 64 else "more than 10^19"
    return f"{who} would make {what} of {shown} {unit}; at most {allowed} are allowed"


def _figure(size: int) -> float:
    return size if size.bit_length() <= 64 else float("inf")
