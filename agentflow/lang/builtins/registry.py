"""Declaration of primitives, and their helpers for raising errors.

A primitive is a plain function of evaluated arguments. Its decorator declares name, usage and arity; its docstring is
its documentation. The topic modules hold the functions, :mod:`agentflow.lang.builtins` collects them into one table.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, cast

from agentflow.core.data.errors import ConfigurationError, SexpEvaluationError, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import SharedList, Symbol
from agentflow.core.data.walk import Work, exact
from agentflow.lang.calling import MANY_OPERANDS

F = TypeVar("F", bound=Callable[..., Any])
Arity = tuple[int, int | None]
Out = Literal["box", "bare", "each", "error"]
"""The result of a labelled twin: in a box with the sources that were read, without, each of its elements in one, or an error that depends on them."""
SEARCHED = frozenset("cneiw")
"""The letters of arguments in which boxes are searched for, which may take long. ``r`` is another one, unless only numbers and texts are read."""
_MARK = "__primitives__"


@frozen
class Primitive:
    """A procedure of the language itself; a first-class value of programs.

    ``name`` is its name in programs; ``function`` the Python function; ``usage`` the form of a call and ``doc`` its
    documentation; ``arity`` the minimum and maximum number of arguments (None: any number). With ``needs_rt`` the function
    takes the strand first, since its work grows with its operands: it charges for their size and keeps to the limits.
    Without, it takes about the same time for all arguments. With ``is_async`` it is ``async def f(rt, d, *arguments)`` and
    may call procedures; with ``sliced``, and for many operands, it may return :class:`~agentflow.lang.calling.Sliced` work in
    place of a value. ``topic`` is the module that defines it, ``canonical`` the main name of an alias. ``size`` is a word
    of :mod:`agentflow.lang.bounds.primitives` for how the form of the result follows from the arguments, or ``called``
    where that depends on procedures that it calls. ``flow`` is the treatment of its arguments, see :func:`letters_of`.
    ``takes`` is a word of :mod:`agentflow.lang.literals` for their types, ``calls`` the position of the argument that it calls.
    It ``asks`` for an effect that a policy may guard. ``of_many``, for twins, is the work of a call with the strand and a
    tuple of very many arguments, without copying it.
    """

    is_procedure: ClassVar[bool] = True

    name: str
    function: Callable[..., Any]
    usage: str
    doc: str
    arity: Arity
    needs_rt: bool = False
    is_async: bool = False
    sliced: bool = False
    topic: str = ""
    canonical: str = ""
    tails: bool = False
    size: str = ""
    flow: str = ""
    takes: str | None = None
    calls: int | None = None
    asks: bool = False
    of_many: Callable[[Any, tuple[Any, ...]], Work[Any]] | None = None

    def accepts(self, count: int) -> bool:
        """Whether it can be called with ``count`` arguments."""
        least, most = self.arity
        return count >= least and (most is None or count <= most)

    def check_arity(self, count: int) -> None:
        """Raise SexpEvaluationError (``arity/primitive``) if it cannot be called with ``count`` arguments."""
        if not self.accepts(count):
            raise SexpEvaluationError(
                f"{self.name} takes {describe_arity(self.arity)}, and was given {count}",
                code="arity/primitive",
                hint=f"write {self.usage}",
            )

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"#<primitive {self.name}>"


def letters_of(word: str, count: int) -> str:
    """The treatment of each of ``count`` arguments, by the word ``flow`` of a function of either surface.

    - ``k``: it is kept unopened. ``o``: it is opened, its parts are kept unopened. ``r``: all of it is read.
    - ``e``: it is opened, and its elements carry its sources, since procedures are called with them, or they are kept. ``i``: the same, and
      the elements of a text are its characters. ``w``: the same as ``e``, and the result depends on each of the elements.
    - ``n``: it is opened, and the result depends on the keys of a dict or set, as with ``e`` and ``i``. ``c``: it is opened, and read unless it
      is a dict or set.
    - ``p``: a procedure is opened, and its effects depend on its sources.

    A word has a letter for each argument, the last one for all that follow; letters in parentheses at its end follow in turns, and a letter
    after a dash is that of the last argument. Of words with ``|`` between them the one of ``count`` letters counts. Without a word all is read.
    """
    return _few_letters(word, count) if count < MANY_OPERANDS else _letters(word, count)


def _letters(word: str, count: int) -> str:
    words = word.split("|")
    head, _, last = next((each for each in words if len(each) == count), words[0]).partition("-")
    head, _, turns = head.rstrip(")").partition("(")
    many = max(count - len(last), 0)
    return ((head + (turns or head[-1:] or "r") * many)[:many] + last)[:count]


_few_letters = lru_cache(1_024)(_letters)


def describe_arity(arity: Arity) -> str:
    """``arity`` in words: ``2 arguments``, ``at least 1 argument``, ``1 to 3 arguments``."""
    least, most = arity
    if most is None:
        return f"at least {least} argument{'' if least == 1 else 's'}"
    if least == most:
        return "no arguments" if least == 0 else f"{least} argument{'' if least == 1 else 's'}"
    return f"{least} to {most} arguments"


def primitive(
    name: str,
    *,
    usage: str,
    arity: Arity,
    needs_rt: bool = False,
    is_async: bool = False,
    sliced: bool = False,
    aliases: tuple[str, ...] = (),
    tails: bool = False,
    size: str = "",
    flow: str = "",
    takes: str | None = None,
    calls: int | None = None,
    asks: bool = False,
) -> Callable[[F], F]:
    """Declare the decorated function as the primitive ``name``, with ``aliases``.

    The function is returned unchanged; its docstring, which is required, is the documentation.
    """

    def mark(function: F) -> F:
        doc = inspect.getdoc(function)
        if not doc and sys.flags.optimize > 1:
            raise ConfigurationError(
                "Python was started with -OO, which removes docstrings: agentflow reads prompts and descriptions from them",
                code="config/no-docstrings",
                hint="start it with -O, or without, and unset PYTHONOPTIMIZE=2",
            )
        if not doc:
            raise TypeError(f"primitive {name} has no docstring")
        topic = function.__module__.rpartition(".")[2]
        declared = [
            Primitive(
                each,
                function,
                usage.replace(f"({name}", f"({each}", 1),
                doc,
                arity,
                needs_rt=needs_rt or sliced,
                is_async=is_async,
                sliced=sliced,
                topic=topic,
                canonical=name,
                tails=tails,
                size=size,
                flow=flow,
                takes=takes,
                calls=calls,
                asks=asks,
            )
            for each in (name, *aliases)
        ]
        setattr(function, _MARK, [*getattr(function, _MARK, []), *declared])
        return function

    return mark


def collect(modules: Iterable[ModuleType]) -> Mapping[str, Primitive]:
    """The primitives declared in ``modules``, sorted by name, immutable. Raises TypeError for a duplicate name."""
    primitives: dict[str, Primitive] = {}
    for module in modules:
        for value in vars(module).values():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            for each in getattr(value, _MARK, ()):
                if each.name in primitives:
                    raise TypeError(f"two primitives are called {each.name}")
                primitives[each.name] = each
    return MappingProxyType(dict(sorted(primitives.items())))


def type_name(value: object) -> str:
    """The name of the type of ``value`` in programs: ``integer``, ``string``, ``list``, ... (see ``type-of``)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Symbol):
        return "symbol"
    if isinstance(value, list | tuple | SharedList):
        return "list"
    if is_dict(value):
        return "dict"
    if isinstance(value, TaskResult):
        return "result"
    return "procedure" if callable(value) or getattr(type(value), "is_procedure", False) else "object"


def wrong_type(who: str, position: int, wanted: str, value: Any, *, hint: str | None = None) -> NoReturn:
    """Raise ``type/argument``: argument ``position`` (from 1) of ``who`` is not ``wanted``."""
    raise SexpEvaluationError(
        f"{who} wants {wanted} as argument {position}, and was given {_show(value)}",
        code="type/argument",
        hint=hint,
        details={"procedure": who, "argument": position},
    )


def wrong_element(who: str, index: int, wanted: str, value: Any, *, hint: str | None = None) -> NoReturn:
    """Raise ``type/element``: the element at ``index`` (from 0) of the list passed to ``who`` is not ``wanted``."""
    raise SexpEvaluationError(
        f"{who} wants a list of {wanted}s, and its element {index} (counted from 0) is {_show(value)}",
        code="type/element",
        hint=hint,
    )


def _show(value: Any) -> str:
    """A value with its type, short enough for a message; runs no code of the value's class."""
    kind, value = type_name(value), exact(value)
    article = "an" if kind[0] in "aeiou" else "a"
    if value is None or isinstance(value, bool | float):
        return f"{kind} {value}" if value is not None else "none"
    if isinstance(value, int):
        return f"integer {value}" if value.bit_length() <= 256 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        return f'string "{cut(value, 40)}"'
    if isinstance(value, Symbol):
        return f"symbol {cut(value.name, 40)}"
    if isinstance(value, list | SharedList) or is_dict(value):
        size = len(cast("list[Any]", value))
        return f"{article} {kind} of {size}" if size else f"an empty {kind}"
    return f"{article} {kind}"
