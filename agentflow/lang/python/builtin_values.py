"""Functions of the language as values: what ``map(str, xs)``, ``key=len`` and ``key=str.lower`` are given."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.labels import Following, bare
from agentflow.core.data.source import PYTHON_TEXT, Source
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.calling import Sliced
from agentflow.lang.closure import Closure, LambdaInfo
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.python.errors import article, kind_of, wrong_type
from agentflow.lang.python.labelled import twin_of
from agentflow.lang.python.methods import method
from agentflow.lang.python.rows import Row
from agentflow.lang.python.strict_twins import strict_twin_of


def builtin(row: Row) -> Closure:
    """The closure of a function of the table."""

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

    return _closure(row.name, code)


def method_of(kind: type[Any], name: str, title: str, *, labelled: Following = False) -> Closure:
    """The closure of a method, whose first argument is a value of exactly this type; ``title`` is how texts write it.

    ``labelled``: values may stand in boxes; ``"strict"``: what is looked at is told.
    """
    called = strict_twin_of(method) if labelled == "strict" else twin_of(method) if labelled else method

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        if not arguments or type(bare(arguments[0])) is not kind:
            shown = article(kind_of(arguments[0])) if arguments else "nothing"
            wrong_type(f"'{title}' takes a value of its type first, and was given {shown}")
        value = called(rt, name, arguments[0], arguments[1:])
        return await rt.work(value.work) if type(value) is Sliced else value

    return _closure(title, code)


def _closure(title: str, code: Code) -> Closure:
    source = Source(PYTHON_TEXT, title, "python")
    end = len(title)
    info = LambdaInfo(title, (), None, source, 0, end, (0, end), True)
    return Closure(code, -1, info, SexpEnvironment())
