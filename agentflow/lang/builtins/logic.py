"""Equality, truth and types of values."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.values import SharedList, Symbol
from agentflow.lang.builtins.registry import primitive, type_name
from agentflow.lang.charging import Bounded
from agentflow.lang.equality import compared, truth


@primitive("eq?", usage="(eq? a b)", arity=(2, 2), sliced=True, aliases=("equal?",), size="plain")
def is_equal(rt: Bounded, a: Any, b: Any) -> Any:
    """Whether two values are equal: lists and dicts by their elements, symbols and strings by their text.

    Numbers are equal by value, so ``(eq? 1 1.0)`` is true; ``none`` and ``nil`` are different. Data nested deeper than
    1,000 levels is refused with ``limits/depth``.
    """
    return compared(a, b)


@primitive("null?", usage="(null? value)", arity=(1, 1), aliases=("nil?",), size="plain", flow="o")
def is_null(value: Any) -> bool:
    """Whether the value is the empty list or none."""
    return value is None or (isinstance(value, list | tuple | SharedList) and not value)


@primitive("not", usage="(not value)", arity=(1, 1), size="plain", flow="o")
def negate(value: Any) -> bool:
    """Whether the value is false: ``false``, ``0``, ``0.0``, ``""``, ``()``, ``{}`` or none."""
    return not truth(value)


@primitive("identity", usage="(identity value)", arity=(1, 1), size="same", flow="k")
def identity(value: Any) -> Any:
    """The value itself."""
    return value


@primitive("symbol?", usage="(symbol? value)", arity=(1, 1), size="plain", flow="o")
def is_symbol(value: Any) -> bool:
    """Whether the value is a symbol. A string is not."""
    return isinstance(value, Symbol)


@primitive("boolean?", usage="(boolean? value)", arity=(1, 1), size="plain", flow="o")
def is_boolean(value: Any) -> bool:
    """Whether the value is true or false."""
    return isinstance(value, bool)


@primitive("procedure?", usage="(procedure? value)", arity=(1, 1), size="plain", flow="o")
def is_procedure(value: Any) -> bool:
    """Whether the value can be called: a closure, a primitive or a callable of the host."""
    return type_name(value) == "procedure"


@primitive("type-of", usage="(type-of value)", arity=(1, 1), size="text", flow="o")
def type_of(value: Any) -> Symbol:
    """The type of the value, as a symbol.

    One of ``integer``, ``float``, ``boolean``, ``string``, ``symbol``, ``list``, ``dict``, ``null`` (of none),
    ``procedure``, ``result`` (of a task or tool), else ``object``.
    """
    return Symbol(type_name(value))
