"""Procedures of Python texts as JSON: dumped, loaded elsewhere, called there, alone and with those in S-expressions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from agentflow.core.data.errors import DataError, SexpEvaluationError
from agentflow.lang.portable import dump_closure, load_closure

CASES: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "a lambda": ("lambda x: x * 2", (4,), 8),
    "a lambda over lines": ("(lambda x:\n  x +\n  1)", (4,), 5),
    "defaults and keywords": ("def f(x, y=[1], *, z=3):\n    return [x, y, z]\nf", (1,), [1, [1], 3]),
    "what it captured": (
        "def make(a, b):\n    c = {(1, 2): {3}}\n    def get(x):\n        '''Of\n  lines.'''\n        return [a, b, c, x, '''p\n  q''']\n    return get\nmake(1, (2, [3]))",
        (5,),
        [1, [2, [3]], {(1, 2): [3]}, 5, "p\n  q"],
    ),
    "itself": ("def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\nfact", (5,), 120),
    "itself, within a function": (
        "def make():\n\tdef fact(n, one=1):\n\t\treturn one if n < 2 else n * fact(n - 1)\n\treturn fact\nmake()",
        (5,),
        120,
    ),
    "each other": (
        "def make():\n    def even(n):\n        return n == 0 or odd(n - 1)\n    def odd(n):\n        return n != 0 and even(n - 1)\n    return even\nmake()",
        (7,),
        False,
    ),
    "functions of the environment": ("k = 3\ndef g(x):\n    return x + k\ndef f(x):\n    return g(x) * 2\nf", (1,), 8),
    "a variable it assigns": (
        "def make():\n    n = 10\n    def up():\n        m = 0\n        def more(x):\n            nonlocal n, m; m = 1\n            n += x\n            return n + m\n        return more\n    return up()\nmake()",
        (5,),
        16,
    ),
    "functions of the language": ("f = len\nlambda xs: list(map(f, xs))", (["a", "bc"],), [1, 2]),
    "a comprehension's variables": ("fs = [lambda x: [x, i] for i in range(3)]\nfs[1]", (5,), [5, 2]),
    "a procedure in S-expressions": ("lambda x: twice(x) + 1", (5,), 11),
    "a task of its own": ("@task\ndef say(q):\n    'Say {{q}}'\nlambda q: say(q)", ("hi",), "heard Say hi"),
    "a question to the model": ("lambda q: ask(q)", ("hi",), "heard hi"),
    "a tool": ("shout", ("hi",), "HI"),
}


def flow() -> AgentFlow:
    """A flow with a tool and a model that repeats what it is sent."""
    made = AgentFlow(provider=ScriptedProvider(lambda request: f"heard {request.messages[-1].text}"))

    @made.tool
    def shout(text: str) -> str:
        """Say it loud."""
        return text.upper()

    return made


@pytest.mark.parametrize("name", CASES)
async def test_a_procedure_goes_through_json(name: str) -> None:
    """It gives what it gave, with the values of the variables that it used; what it says of itself is its surface."""
    text, arguments, value = CASES[name]
    async with flow() as here:
        twice = (await here.run("(lambda (x) (* x 2))")).value
        closure = (await here.run(text, surface="python", bindings={"twice": twice})).value
        data = json.loads(json.dumps(dump_closure(closure)))
    assert data["closures"][0]["surface"] == "python"
    async with flow() as there:
        loaded = load_closure(data, names=there.engine.names())
        assert await there.call(loaded, *arguments) == value
        again = json.loads(json.dumps(dump_closure(loaded)))
        assert await there.call(load_closure(again, names=there.engine.names()), *arguments) is not None


async def test_a_loaded_procedure_may_call_what_its_author_might() -> None:
    """Its grants go along, and can be narrowed."""
    async with flow() as here:
        closure = (await here.run("lambda q: shout(q)", surface="python", allow=["shout"])).value
        data = dump_closure(closure)
        assert await here.call(load_closure(data, names=here.engine.names()), "a") == "A"
        with pytest.raises(AgentflowError, match="not granted"):
            await here.call(load_closure(data, names=here.engine.names(), grants=[]), "a")


async def test_what_cannot_be_dumped_is_named() -> None:
    """A host object by its variable; and a dump of a surface that there is not."""
    async with flow() as here:
        closure = (await here.run("lambda: thing", surface="python", bindings={"thing": object()})).value
        with pytest.raises(SexpEvaluationError, match="'thing'") as caught:
            dump_closure(closure)
        assert caught.value.code == "closure/not-data"
        data = dump_closure((await here.run("lambda: 1", surface="python")).value)
        data["closures"][0]["surface"] = "perl"
        with pytest.raises(DataError) as wrong:
            load_closure(data)
        assert wrong.value.code == "closure/data"
