"""Functions of the language as values: what ``map(str, xs)`` and ``key=len`` are given."""

from __future__ import annotations

from typing import Any

from agentflow.core.source import PYTHON_TEXT, Source
from agentflow.lang.abi import Runtime
from agentflow.lang.calling import Sliced
from agentflow.lang.closure import Closure, LambdaInfo
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.python.table import Entry


def builtin(entry: Entry) -> Closure:
    """The closure of a function of the table."""

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        problem = entry.problem(len(arguments), ())
        if problem is not None:
            raise problem
        if entry.is_async:
            return await entry.function(rt, d, *arguments)
        value = entry.function(rt, *arguments)
        return await rt.work(value.work) if type(value) is Sliced else value

    source = Source(PYTHON_TEXT, entry.name, "python")
    end = len(entry.name)
    info = LambdaInfo(entry.name, (), None, source, 0, end, (0, end), True)
    return Closure(code, -1, info, SexpEnvironment())
