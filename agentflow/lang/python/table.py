"""Functions that texts call by name: their parameters, and calls with a wrong number of arguments or unknown keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.lib.text.suggest import did_you_mean

_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of a table: ``names`` its parameters, of which the first ``least`` are required.

    Only the first ``positional`` may be given by position (-1: any number). ``is_async`` functions take the depth too.
    """

    name: str
    function: Callable[..., Any]
    names: tuple[str, ...]
    least: int
    positional: int
    is_async: bool

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], hidden: int) -> Entry:
        """The entry of a Python function, whose first ``hidden`` parameters texts do not see."""
        parameters = list(inspect.signature(function).parameters.values())[hidden:]
        names = tuple(each.name.rstrip("_") for each in parameters if each.kind != each.VAR_POSITIONAL)
        plain = [each for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
        least = sum(each.default is each.empty for each in plain)
        any_number = any(each.kind == each.VAR_POSITIONAL for each in parameters)
        is_async = inspect.iscoroutinefunction(function)
        return cls(name, function, names, least, -1 if any_number else len(plain), is_async)

    def problem(self, count: int, keywords: Iterable[str]) -> SexpEvaluationError | None:
        """What is wrong with a call with ``count`` positional arguments and these keywords; None if nothing is."""
        names = list(keywords)
        shown = ", ".join(self.names) or "(none)"
        about = "it takes values" if self.positional < 0 else f"it has the parameters {shown}"
        for each in names:
            if each not in self.names:
                return _wrong(f"{self.name}() has no parameter '{each}'", did_you_mean(each, self.names) or about)
            if self.positional >= 0 and self.names.index(each) < count:
                return _wrong(f"{self.name}() is given '{each}' twice", about)
        missing = [each for each in self.names[count : self.least] if each not in names]
        if missing:
            return _wrong(f"{self.name}() misses {', '.join(missing)}", about)
        if 0 <= self.positional < count:
            most = "no arguments" if not self.positional else "at most one argument"
            most = most if self.positional < _SEVERAL else f"at most {self.positional} arguments"
            return _wrong(f"{self.name}() takes {most}, and is given {count}", about)
        return None


def _wrong(message: str, hint: str | None) -> SexpEvaluationError:
    return SexpEvaluationError(message, code="arity/primitive", hint=hint)


def table(functions: Iterable[Callable[..., Any]], hidden: int) -> dict[str, Entry]:
    """The entries of functions by their names, without what the names begin or end with to be none of Python's."""
    entries: dict[str, Entry] = {}
    for function in functions:
        name = function.__name__.rstrip("_")
        entries[name] = Entry.of(name, function, hidden)
    return entries


def no_such(kind: str, name: str, names: Iterable[str]) -> NoReturn:
    """Raise ``name/not-here``: a value of this kind has no such method."""
    raise SexpEvaluationError(
        f"a {kind} has no method '{name}' here",
        code="name/not-here",
        hint=did_you_mean(name, names) or f"it has {', '.join(sorted(names))}",
    )
