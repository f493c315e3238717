"""Errors of programs in Python text, and the types of values in words."""

from __future__ import annotations

from typing import Any, NoReturn

from agentflow.core.data.errors import SexpEvaluationError, cut
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import OrderedSet
from agentflow.lang.closure import Closure

_WORDS: dict[type[Any], str] = {type(None): "None", OrderedSet: "set", Closure: "function", TaskResult: "result"}
_PLAIN = frozenset((int, float, str, bool, list, dict, tuple))


def kind_of(value: object) -> str:
    """The type of a value, in Python's words. Runs no code of its class."""
    return kind_of_type(type(value))


def kind_of_type(kind: type[Any]) -> str:
    """A type in Python's words."""
    return kind.__name__ if kind in _PLAIN else _WORDS.get(kind, "object")


def wrong_value(message: str, hint: str | None = None) -> NoReturn:
    """Raise ``value/invalid``, a ValueError of programs."""
    raise SexpEvaluationError(message, code="value/invalid", hint=hint)


def wrong_type(message: str, hint: str | None = None) -> NoReturn:
    """Raise ``type/argument``, a TypeError of programs."""
    raise SexpEvaluationError(message, code="type/argument", hint=hint)


def wanted(who: str, what: str, value: object, hint: str | None = None) -> NoReturn:
    """Raise ``type/argument``: ``who`` takes ``what``, but received ``value``."""
    wrong_type(f"{who} takes {what}, and was given {article(kind_of(value))}", hint)


def article(kind: str) -> str:
    """A noun with its article."""
    if kind == "None":
        return kind
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def outside(index: object, size: int) -> NoReturn:
    """Raise ``list/index``, an IndexError of programs."""
    raise SexpEvaluationError(
        f"there is no element {cut(str(index), 40)}: there are {size}",
        code="list/index",
        hint="the first one has the index 0, the last one -1",
    )
