"""The rows of functions and methods: all that any part of the package knows of one stands at its definition, in the decorator.

What code calls and texts do not name has :class:`Traits`; functions and methods that texts call by name have a :class:`Row`. Tables and sets
of names are made of the rows (``builtins.py``, ``methods.py``): no module keeps a list of its own.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeVar

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.lang.charging import check_collection
from agentflow.lib.text.suggest import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
Long = Literal["", "boxed", "always"]
Maker = Literal["", "entries", "gathered", "items"]
_SEVERAL = 2
_TRAITS = "__traits__"
_ROW = "__row__"
_HIDDEN = ("rt", "d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What code and twins know of a function that code calls.

    ``flow`` says what becomes of the arguments that texts give, by the letters of primitives
    (:meth:`~agentflow.lang.builtins.registry.Primitive.flow_at`); ``n``: opened, and what it gives depends on which keys there are; ``i``: as
    ``e``, and of a text its characters are the elements. Without a word all are read. ``tested`` are the letters by which code tests
    the last arguments itself before it calls the twin, of functions that do little, and for functions with a name the letter of each (:mod:`agentflow.lang.python.unboxed`). It ``stores``
    something in a container, of which a strict policy is asked wherever the code is because of something. It makes dicts or sets, or gives what
    depends on which ``keys`` there are. It looks ``within`` what it keeps. It is ``silent`` if a strict policy need not hear of it: it looks at
    nothing, raises what says itself where it came from, or does effects. It is ``long`` if it may leave its work to be carried out in slices, so
    that its value is waited for: ``always``, or for values in boxes. ``maker`` makes its labelled twin, of functions of parts.
    """

    flow: str = "r"
    tested: str | None = None
    stores: bool = False
    keys: bool = False
    within: bool = False
    silent: bool = False
    long: Long = ""
    maker: Maker = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Traits):
    """A function or method that texts call by name: ``names`` its parameters, of which the first ``least`` are required.

    Only the first ``positional`` may be given by position (-1: any number). ``is_async`` functions take the depth too. ``kinds`` are the types
    that have a method, for which ``flow`` is about the arguments behind its value.

    ``takes`` is a word of :mod:`agentflow.lang.takes` for the types of its arguments, ``alone`` that of a call with one. ``gives`` is the type of
    its value. ``size`` is a word of :mod:`agentflow.lang.bounds.python.functions` for how the form of the result follows from the arguments.
    ``calls``: its first argument is called. ``changes`` says by what a method changes its value: by nothing that has sources of its own (empty),
    by its first argument as an index or a key (``i``), by comparing all that there is (``a``), by what is in its arguments (``d``); None: it
    only reads. It ``puts`` its arguments into its value. ``usage`` and ``doc`` are for people, where those of its signature and of Python would not
    do; ``hint`` shows a call in messages.
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


# -- declaring ----------------------------------------------------------------------------------------------------


def code(
    flow: str = "r",
    *,
    tested: str | None = None,
    stores: bool = False,
    keys: bool = False,
    within: bool = False,
    silent: bool = False,
    long: Long = "",
    maker: Maker = "",
) -> Callable[[F], F]:
    """Declare the traits of a function that code calls, of which texts do not know; see :class:`Traits`."""
    traits = Traits(
        flow=flow, tested=tested, stores=stores, keys=keys, within=within, silent=silent, long=long, maker=maker
    )

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
    """Declare a method of values of these exact types. It must say by what it ``changes`` its value, or None; see :class:`Row`."""

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
        names=tuple(each.name.rstrip("_") for each in parameters if each.kind != each.VAR_POSITIONAL),
        least=sum(each.default is each.empty for each in plain),
        positional=-1 if any(each.kind == each.VAR_POSITIONAL for each in parameters) else len(plain),
        is_async=inspect.iscoroutinefunction(function),
        **columns,
    )


def rows_in(functions: Iterable[Any], kind: type[Any] | None = None) -> dict[str, Row]:
    """The rows of those that are functions by name, or of the methods of a type, in their order. Raises TypeError for a name that has two."""
    every = [row for each in functions if isinstance(row := getattr(each, _ROW, None), Row)]
    listed = [row for row in every if (kind in row.kinds if kind is not None else not row.kinds)]
    rows = {row.name: row for row in listed}
    if len(rows) < len(listed):
        raise TypeError(f"two functions have one name: {', '.join(row.name for row in listed)}")
    return rows


# -- looking up ---------------------------------------------------------------------------------------------------

_READING: Final = Traits()
_ELSEWHERE: Final = {operator.is_: Traits(flow="oo"), check_collection: Traits(flow="k", silent=True)}
"""The traits of functions that are not of this package's making, or of both surfaces."""


def traits_of(function: Callable[..., Any]) -> Traits:
    """What is known of a function that code calls. Of one that declares nothing: it reads all of its arguments."""
    traits = getattr(function, _TRAITS, None)
    return traits if isinstance(traits, Traits) else _ELSEWHERE.get(function, _READING)


def takes_long(function: Callable[..., Any], *, labelled: bool = False) -> bool:
    """Whether a function may give work in place of a value; if ``labelled``, its twin."""
    long = traits_of(function).long
    return long == "always" or (labelled and long == "boxed")


def no_such(kind: str, name: str, names: Iterable[str]) -> NoReturn:
    """Raise ``name/not-here``: a value of this kind has no such method."""
    raise SexpEvaluationError(
        f"a {kind} has no method '{name}' here",
        code="name/not-here",
        hint=did_you_mean(name, names) or f"it has {', '.join(sorted(names))}",
    )
