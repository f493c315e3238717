"""Functions and methods of the language as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentflow.core.data.labels import Following, bare
from agentflow.core.data.source import PYTHON_TEXT, Source
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.calling import Sliced
from agentflow.lang.closure import Closure, LambdaInfo
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.python.errors import article, kind_of, wrong_type
from agentflow.lang.python.methods import method
from agentflow.lang.python.rows import Row


def builtin(row: Row, *, follows: Following = False, described: type[LambdaInfo] = LambdaInfo) -> Closure:
    """The closure of a function of the table; ``follows``: it is one for values in boxes."""

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        problem = row.problem(len(arguments), ())
        if problem is not None:
            raise problem
        if row.is_async:
            return await row.function(rt, d, *arguments)
        value = row.function(rt, *arguments)
        return await rt.work(value.work) if type(value) is Sliced else value

    return _closure(code, row.name, follows, described)


def method_of(
    kind: type[Any],
    name: str,
    title: str,
    called: Callable[..., Any] = method,
    *,
    follows: Following = False,
    described: type[LambdaInfo] = LambdaInfo,
) -> Closure:
    """The closure of a method for a value of exactly this type as its first argument; ``title`` is its notation in texts.

    ``called`` carries it out, as :func:`~agentflow.lang.python.methods.method` does; ``follows``: it is one for values in boxes.
    """

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        if not arguments or type(bare(arguments[0])) is not kind:
            shown = article(kind_of(arguments[0])) if arguments else "nothing"
            wrong_type(f"'{title}' takes a value of its type first, and was given {shown}")
        value = called(rt, name, arguments[0], arguments[1:])
        return await rt.work(value.work) if type(value) is Sliced else value

    return _closure(code, title, follows, described)


def _closure(code: Code, title: str, follows: Following, described: type[LambdaInfo]) -> Closure:
    """A procedure that no text defines."""
    end = len(title)
    source = Source(PYTHON_TEXT, title, "python")
    info = described(title, (), None, source, 0, end, (0, end), True, follows=follows)
    return Closure(code, -1, info, SexpEnvironment())
