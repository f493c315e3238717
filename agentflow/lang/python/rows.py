"""The rows of functions and methods: every fact about one is a column of the decorator at its definition.

Functions that only generated code calls have :class:`RowTraits`; functions and methods that texts call by name have a :class:`Row`. Tables and
sets of names are made from the rows (``builtins.py``, ``methods.py``), so a new function cannot be missing in one of them.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NoReturn, TypeVar

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.frozen import frozen
from agentflow.lang.builtins.registry import SEARCHED, Out
from agentflow.lang.charging import check_collection
from agentflow.lib.text.suggest import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
Long = Literal["", "boxed", "always"]
_SEVERAL = 2
_TRAITS = "__traits__"
_ROW = "__row__"
_HIDDEN = ("rt", "d")


@frozen(kw_only=True)
class RowTraits:
    """The treatment of boxed values by a function that generated code calls.

    - ``flow``: a letter for each argument that the text gives, as for primitives (:func:`~agentflow.lang.builtins.registry.letters_of`). By
      default every argument is read whole.
    - ``tested``: the letters by which code tests the last arguments inline before it calls the twin, for cheap functions. A :class:`Row` has
      one letter, for all of its arguments.
    - ``keys``: it makes a dict or set, or its result depends on a set of keys.
    - ``within``: it reads the content of values that it keeps.
    - ``long``: it may return unfinished work, so its value is awaited: ``always``, or only for values in boxes.
    - ``out``: the form of the result of its labelled twin.
    """

    flow: str = "r"
    tested: str | None = None
    keys: bool = False
    within: bool = False
    long: Long = ""
    out: Out = "box"


# One row per function: tables by name disagreed, and refused harmless calls (decision 48)
@frozen(kw_only=True)
class Row(RowTraits):
    """A function or method that texts call by name.

    - ``names``: its parameters. The first ``least`` are required; the first ``positional`` may be given by position (-1: any number).
    - ``is_async``: it takes the depth too, and is awaited.
    - ``kinds``: the exact types that have it, if it is a method; ``flow`` is then about the arguments without the receiver.
    - ``takes``, ``alone``: words of :mod:`agentflow.lang.literals` for the types of its arguments, and of its only argument.
    - ``gives``: the type of its result, if it always has one.
    - ``size``: a word of :mod:`agentflow.lang.bounds.python.functions` for how the size of the result follows from the arguments.
    - ``calls``: it calls its first argument.
    - ``changes``: the input that decides how a method changes its receiver: nothing with its own sources (empty), the first argument as an index
      or key (``i``), a comparison with every element (``a``), the contents of the arguments (``d``). None: it only reads.
    - ``puts``: it puts its arguments into its receiver.
    - ``usage``, ``doc``: for the reference, where signature and Python's own documentation do not fit. ``hint``: an example call for messages.
    """

    name: str
    function: Callable[..., Any]
    names: tuple[str, ...]
    least: int
    positional: int
    is_async: bool
    kinds: tuple[type[Any], ...] = ()
    takes: str | None = None
    alone: str | None = None
    gives: type[Any] | None = None
    size: str = "plain"
    calls: bool = False
    changes: str | None = None
    puts: bool = False
    usage: str = ""
    hint: str = ""
    doc: str = ""

    def problem(self, count: int, keywords: Iterable[str]) -> SexpEvaluationError | None:
        """The mistake in a call with ``count`` positional arguments and these keywords; None without one."""
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


# -- declaring ----------------------------------------------------------------------------------------------------


def code(flow: str = "r", **columns: Any) -> Callable[[F], F]:
    """Declare the traits of a function for code that texts cannot name. The columns are those of :class:`RowTraits`."""
    traits = RowTraits(flow=flow, **columns)

    def mark(function: F) -> F:
        setattr(function, _TRAITS, traits)
        return function

    return mark


def named(name: str = "", **columns: Any) -> Callable[[F], F]:
    """Declare a function that texts call by name: that of the Python function without the ``_`` at its end. The columns are those of :class:`Row`."""

    def mark(function: F) -> F:
        row = _row(function, name, 0, columns)
        setattr(function, _ROW, row)
        setattr(function, _TRAITS, row)
        return function

    return mark


def on(*kinds: type[Any], changes: str | None, name: str = "", **columns: Any) -> Callable[[F], F]:
    """Declare a method of values of these exact types. It must declare how it ``changes`` its value, or None; see :class:`Row`."""

    def mark(function: F) -> F:
        setattr(function, _ROW, _row(function, name, 1, {**columns, "kinds": kinds, "changes": changes}))
        return function

    return mark


def _row(function: Callable[..., Any], name: str, receivers: int, columns: dict[str, Any]) -> Row:
    parameters = list(inspect.signature(function).parameters.values())
    hidden = sum(each.name in _HIDDEN for each in parameters) + receivers
    parameters = parameters[hidden:]
    plain = [each for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
    return Row(
        name=name or function.__name__.rstrip("_"),
        function=function,
        names=tuple(each.name for each in parameters if each.kind != each.VAR_POSITIONAL),
        least=sum(each.default is each.empty for each in plain),
        positional=-1 if any(each.kind == each.VAR_POSITIONAL for each in parameters) else len(plain),
        is_async=inspect.iscoroutinefunction(function),
        **columns,
    )


def rows_in(functions: Iterable[Any], kind: type[Any] | None = None) -> dict[str, Row]:
    """The rows of functions by name, or of the methods of a type, in their order. Raises TypeError for a name with two rows."""
    every = [row for each in functions if isinstance(row := getattr(each, _ROW, None), Row)]
    listed = [row for row in every if (kind in row.kinds if kind is not None else not row.kinds)]
    rows = {row.name: row for row in listed}
    if len(rows) < len(listed):
        raise TypeError(f"two functions have one name: {', '.join(row.name for row in listed)}")
    return rows


# -- looking up ---------------------------------------------------------------------------------------------------

_READING: Final = RowTraits()
_ELSEWHERE: Final = {
    **dict.fromkeys((operator.is_, operator.is_not, operator.not_), RowTraits(flow="o")),
    check_collection: RowTraits(flow="k"),
}
"""The traits of functions from outside this package, or of both surfaces."""


def traits_of(function: Callable[..., Any]) -> RowTraits:
    """The traits of a function that code calls. By default it reads all of its arguments."""
    traits = getattr(function, _TRAITS, None)
    return traits if isinstance(traits, RowTraits) else _ELSEWHERE.get(function, _READING)


def takes_long(function: Callable[..., Any], *, labelled: bool = False) -> bool:
    """Whether a function may give work in place of a value; if ``labelled``, its twin, which searches for boxes in such arguments."""
    traits = traits_of(function)
    return traits.long == "always" or (labelled and (traits.long == "boxed" or not SEARCHED.isdisjoint(traits.flow)))


def no_such(kind: str, name: str, names: Iterable[str]) -> NoReturn:
    """Raise ``name/not-here``: a value of this kind has no such method."""
    raise SexpEvaluationError(
        f"a {kind} has no method '{name}' here",
        code="name/not-here",
        hint=did_you_mean(name, names) or f"it has {', '.join(sorted(names))}",
    )
