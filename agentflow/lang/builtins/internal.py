"""Primitives without a name in programs, which special forms call with values."""

from __future__ import annotations

from typing import Any, NoReturn

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.lang.builtins.lists import items
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.charging import Bounded, touch_elements


def _elements(rt: Bounded, value: Any, least: int, more: bool) -> list[Any]:
    """The elements of a list as ``least`` values and, with ``more``, the list of those beyond."""
    elements = items("let-values", 1, value)
    touch_elements(rt, len(elements))
    if len(elements) == least and not more:
        return elements
    if len(elements) < least or not more:
        wanted = f"at least {least}" if more else str(least)
        raise SexpEvaluationError(
            f"let-values: {wanted} value{'' if wanted == '1' else 's'} are named here, and the list has {len(elements)}",
            code="list/values",
            hint="name each element, or take any further ones with ((a . rest) list)",
        )
    return [*elements[:least], elements[least:]]


def _wrong_count(takes: str, count: int) -> NoReturn:
    """Refuse a number of arguments without a clause of a ``case-lambda``."""
    raise SexpEvaluationError(
        f"this case-lambda takes {takes} argument{'' if takes in ('1', 'at least 1') else 's'}, and was given {count}",
        code="arity/closure",
        hint="add a clause, ((name . rest) body ...) for any number",
    )


ELEMENTS = Primitive("let-values", _elements, "", _elements.__doc__ or "", (3, 3), needs_rt=True, flow="o")
WRONG_COUNT = Primitive("case-lambda", _wrong_count, "", _wrong_count.__doc__ or "", (2, 2))
