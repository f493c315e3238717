"""Functions that may leave their work to be carried out in slices: whoever writes a call of one has its value waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentflow.lang.python.words import name_of

_LONG = frozenset(
    (
        "values.subtract",
        "values.bitwise",
        "changes.add_to",
        "changes.bitwise_to",
        "changes.subtract_from",
        "changes.store",
        "changes.remove",
        "compare.eq",
        "compare.ne",
        "compare.ordered",
        "compare.contains",
        "methods.method",
        "methods.append",
        "texts.text",
        "texts.written",
        "expressions.as_set",
        "expressions.entries",
        "requests.sources_of",
        *(f"builtins.{each}_" for each in ("str", "repr", "sum", "list", "set", "dict", "range", "zip", "enumerate")),
        *(f"builtins.{each}" for each in ("all_", "any_", "loads", "dumps", "prod")),
    )
)
_LONG_IN_BOXES = frozenset(
    (
        "expressions.spread_dict",
        "support.arguments_of",
        "support.listed",
        "values.elements",
        "values.unpacked",
        "builtins.len_",
    )
)
"""Those whose work is long for values in boxes, or with keys in boxes: in code of a flow with a policy."""


def takes_long(function: Callable[..., Any], *, labelled: bool = False) -> bool:
    """Whether a function may give work in place of a value; if ``labelled``, its twin."""
    name = name_of(function)
    return name in _LONG or (labelled and name in _LONG_IN_BOXES)
