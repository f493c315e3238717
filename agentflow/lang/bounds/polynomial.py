"""Bounds as polynomials in named sizes: ``1 + 2*len(files)``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from operator import add
from typing import TypeAlias

from agentflow.core.data.frozen import frozen

Monomial: TypeAlias = tuple[str, ...]
"""The sizes in a product, in order: ``()`` is 1, ``("len(x)", "len(x)")`` the square of a size."""

_MOST_TERMS = 40
_HIGHEST_DEGREE = 6


@frozen
class Bound:
    """An upper bound: a polynomial in sizes without negative coefficients; None means unbounded.

    Addition, multiplication and :meth:`join` (at least the greater of two) never round down, so that computed bounds hold.
    """

    terms: Mapping[Monomial, float] | None

    @classmethod
    def of(cls, number: float) -> Bound:
        """The bound ``number``, which is at least 0."""
        return Bound({(): number}) if number > 0 else ZERO

    @classmethod
    def size(cls, name: str) -> Bound:
        """The size called ``name``."""
        return Bound({(name,): 1})

    @property
    def number(self) -> float | None:
        """The value of a bound that depends on no size; None for any other."""
        terms = self.terms
        if terms is None or any(terms):
            return None
        return terms.get((), 0)

    @property
    def growing(self) -> Bound:
        """The part that depends on sizes."""
        return self if self.terms is None else Bound({each: factor for each, factor in self.terms.items() if each})

    @property
    def sizes(self) -> frozenset[str]:
        """The names of the sizes that the bound depends on."""
        return frozenset(name for monomial in self.terms or () for name in monomial)

    def at(self, sizes: Mapping[str, float]) -> float | None:
        """The value for these sizes; None without a bound. Raises KeyError for a missing size."""
        if self.terms is None:
            return None
        total = 0.0
        for monomial, coefficient in self.terms.items():
            for name in monomial:
                coefficient *= sizes[name]
            total += coefficient
        return int(total) if total == int(total) else total

    def __add__(self, other: Bound) -> Bound:
        a, b = self.terms, other.terms
        if a and b and len(a) == len(b) == 1 and () in a and () in b:
            return Bound({(): a[()] + b[()]})
        return self._combined(other, add)

    def join(self, other: Bound) -> Bound:
        """At least the greater of both: the greater coefficient of each monomial."""
        if self is other:
            return self
        return self._combined(other, max)

    def _combined(self, other: Bound, combine: Callable[[float, float], float]) -> Bound:
        if self.terms is None or other.terms is None:
            return UNBOUNDED
        if not other.terms or (combine is max and self == other):
            return self
        if not self.terms:
            return other
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = combine(terms.get(monomial, 0), coefficient)
        return Bound(terms) if len(terms) <= _MOST_TERMS else UNBOUNDED

    def __mul__(self, other: Bound) -> Bound:
        if self.terms == {} or other.terms == {}:
            return ZERO
        if self.terms is None or other.terms is None:
            return UNBOUNDED
        terms: dict[Monomial, float] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = tuple(sorted(left + right))
                if len(monomial) > _HIGHEST_DEGREE:
                    return UNBOUNDED
                terms[monomial] = terms.get(monomial, 0) + a * b
        return Bound(terms) if len(terms) <= _MOST_TERMS else UNBOUNDED

    def without(self, name: str) -> tuple[Bound, Bound] | None:
        """The parts ``a`` and ``b`` of a bound ``a * name + b``; None if it does not have that form, or is not a bound."""
        if self.terms is None:
            return None
        factor: dict[Monomial, float] = {}
        rest: dict[Monomial, float] = {}
        for monomial, coefficient in self.terms.items():
            if name not in monomial:
                rest[monomial] = coefficient
                continue
            others = list(monomial)
            others.remove(name)
            if name in others:
                return None
            factor[tuple(others)] = coefficient
        return Bound(factor), Bound(rest)

    def replaced(self, values: Mapping[str, Bound]) -> Bound:
        """The bound with other bounds in place of some sizes."""
        if self.terms is None or not self.sizes & values.keys():
            return self
        total = ZERO
        for monomial, coefficient in self.terms.items():
            product = Bound.of(coefficient)
            for name in monomial:
                product = product * (values[name] if name in values else Bound.size(name))
            total = total + product
        return total

    def __str__(self) -> str:
        if self.terms is None:
            return "no bound"
        return " + ".join(_term(each, self.terms[each]) for each in sorted(self.terms, key=_order)) or "0"


def _order(monomial: Monomial) -> tuple[int, Monomial]:
    return len(monomial), monomial


def _term(monomial: Monomial, coefficient: float) -> str:
    number = f"{coefficient:,.10g}" if coefficient != 1 or not monomial else ""
    powers = [name if count == 1 else f"{name}^{count}" for name, count in Counter(monomial).items()]
    return "*".join(filter(None, [number, *powers]))


ZERO = Bound({})
ONE = Bound({(): 1})
UNBOUNDED = Bound(None)
