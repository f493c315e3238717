"""What functions that texts call do with values in boxes, and where code looks for boxes itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WORDS: dict[str, str] = {
    "values.add": "oo",
    "values.subtract": "nn",
    "values.multiply": "oo",
    "values.bitwise": "knn",
    "changes.add_to": "oi",
    "changes.bitwise_to": "kne",
    "changes.subtract_from": "nn",
    "values.element": "or",
    "values.part": "or",
    "values.member": "ok",
    "values.bounded": "k",
    "values.iterated": "k",
    "charging.check_collection": "k",
    "compare.key": "k",
    "methods.append": "ok",
    "support.outcome_of": "k",
    "support.outcome_of_dict": "k",
    "support.data_of": "k",
    "support.data_of_dict": "k",
    "support.arguments_of": "kke",
    "support.task_procedure": "k",
    "support.unbound_name": "k",
    "support.check_global": "k",
    "support.rebound": "k",
    "support.missing_keyword": "k",
    "support.binding": "k",
    "declarations.declared": "k",
    "support.filled": "k",
    "support.context_paths": "o",
    "expressions.gathered": "k",
    "expressions.entries": "k",
    "expressions.as_set": "k",
    "expressions.as_tuple": "k",
    "expressions.assigned": "k",
    "expressions.spread_dict": "e",
    "requests.endorsed": "k",
    "requests.sources_of": "k",
    "requests.unwrapped": "o",
    "builtins.is_instance": "ok",
    "builtins.bool_": "o",
    "builtins.len_": "n",
    "builtins.list_": "n",
    "builtins.tuple_": "n",
    "builtins.set_": "n",
    "builtins.dict_": "n",
    "builtins.enumerate_": "nr",
    "builtins.zip_": "n",
    "builtins.reversed_": "n",
    "builtins.map_": "ki",
    "builtins.filter_": "ki",
    "_operator.is_": "oo",
    "labelled.negated": "o",
}
"""What functions do with the arguments that texts give them; silence means that all are read.

The letters are those of primitives (:meth:`~agentflow.lang.builtins.registry.Primitive.flow_at`); ``n``: opened, and what it gives depends on which
keys there are; ``i``: as ``e``, and of a text its characters are the elements.
"""


TESTED: dict[str, str] = {
    "values.truth": "o",
    "values.add": "oo",
    "values.subtract": "nn",
    "values.multiply": "oo",
    "values.divide": "oo",
    "values.floor_divide": "oo",
    "values.modulo": "oo",
    "values.element": "or",
    "values.part": "oooo",
    "values.member": "oo",
    "compare.eq": "rr",
    "compare.ne": "rr",
    "compare.ordered": "rr",
    "compare.contains": "rc",
    "changes.store": "ooo",
}
"""Functions that do so little that code tests their last arguments itself, before it calls the twin (:mod:`agentflow.lang.python.unboxed`)."""


def tested(function: Callable[..., Any]) -> str | None:
    """How code tests the last arguments of a function, so that it needs no twin; None if it always calls the twin."""
    return TESTED.get(name_of(function))


def is_change(function: Callable[..., Any]) -> bool:
    """Whether a function changes a container in place, of which a strict policy is asked wherever the code is because of something."""
    return name_of(function).startswith("changes.")


def word_of(function: Callable[..., Any]) -> str:
    """What a function does with the arguments that texts give it."""
    return WORDS.get(name_of(function), "r")


def name_of(function: Callable[..., Any]) -> str:
    """The module of a function and its name: what the tables call it."""
    return f"{(function.__module__ or '').rpartition('.')[2]}.{function.__name__}"
