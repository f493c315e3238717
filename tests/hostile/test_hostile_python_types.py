"""Texts that try to have a host object taken for the type that a variable certainly has: no code of its class runs, nothing escapes."""

from __future__ import annotations

import pytest

from agentflow.core.data.errors import AgentflowError
from tests.hostile.test_hostile_python import outcome

TEXTS = {
    "assigned after": "def f():\n    n = 1\n    n = host\n    return n + 1\nf()",
    "assigned in a branch of if": "def f(c):\n    n = 1\n    if c:\n        n = host\n    return n + 1\nf(1)",
    "assigned in the loop": "def f():\n    n = 0\n    for i in range(3):\n        n += 1\n        n = host\nf()",
    "by augmented assignment": "def f():\n    n = 0\n    for i in range(3):\n        n += host\nf()",
    "by an inner function": "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n = host\n    g()\n    return n + 1\nf()",
    "by an inner function in the expression": "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n = host\n        return 1\n    return g() + n\nf()",
    "by a walrus in the expression": "def f():\n    n = 0\n    return n + (n := host)\nf()",
    "by a walrus on a parameter": "def f(p):\n    return [p + 1, (p := host), p + 1]\nf(1)",
    "by unpacking": "def f():\n    n = 0\n    n, m = host, 1\n    return n + m\nf()",
    "by a starred target": "def f():\n    xs = []\n    a, *xs = 1, host\n    return xs[0] + 1\nf()",
    "by the loop": "def f():\n    n = 0\n    for n in [host]:\n        n + 1\nf()",
    "by the loop of a comprehension": "def f():\n    n = 0\n    return [n + 1 for n in [host]]\nf()",
    "by a handler": "def f():\n    n = 0\n    try:\n        raise ValueError('x')\n    except ValueError as n:\n        return n + 1\nf()",
    "by a definition": "def f():\n    n = 0\n    def n():\n        return host\n    return n + 1\nf()",
    "by a parameter of the same name": "def f(n=0):\n    n = 1 if n is None else n\n    return n + 1\nf(host)",
    "asked before it is assigned": "def f(p):\n    a = p + 1\n    p = host\n    return p + 1\nf(1)",
    "asked in another function": "def f(p):\n    p + 1\n    p - 1\n    def g(p):\n        return p + 1\n    return g(host)\nf(1)",
    "asked in a branch": "def f(p):\n    return parallel(p + 1, p < 2, p - 1)\nf(host)",
    "a default": "def f(p=None):\n    return p < 1 or p + 1\nf(host)",
    "through a conditional": "def f(c):\n    n = 1 if c else host\n    return n + 1\nf(0)",
    "through another variable": "def f():\n    a = 0\n    b = 0\n    for i in range(3):\n        a = b\n        b = host\n    return a + 1\nf()",
    "through a circle of variables": "def f():\n    a = 0\n    b = 0\n    c = 0\n    for i in range(4):\n        a, b = b, a\n        a = c\n        c = b\n        b = host\n    return c + 1\nf()",
    "a length that is another's": "def len(x):\n    return host\ndef f():\n    n = len([])\n    return n + 1\nf()",
    "a length that a parameter is": "def f(len):\n    n = len([])\n    return n + 1\nf(lambda x: host)",
    "a range that is another's": "def range(x):\n    return [host]\ndef f():\n    for i in range(3):\n        i + 1\nf()",
    "a range that is bound later": "def f():\n    for i in range(3):\n        i + 1\nrange = lambda n: [host]\nf()",
    "a range that a comprehension binds": "def f():\n    return [[i + 1 for i in range(1)] for range in [lambda n: [host]]]\nf()",
    "a range whose end is a host's": "def f():\n    for i in range(host):\n        i + 1\nf()",
    "a list that is none": "def f():\n    xs = []\n    for i in range(2):\n        xs.append(i)\n        xs = host\nf()",
    "a list of an inner function": "def f():\n    xs = []\n    def g():\n        nonlocal xs\n        xs = host\n    for i in range(2):\n        g()\n        xs.append(i)\nf()",
    "a dict that is none": "def f():\n    d = {}\n    d = host\n    return d.get('k')\nf()",
    "a key of a dict": "def f():\n    d = {}\n    k = 'k'\n    k = host\n    return d.get(k)\nf()",
    "a text in a text": "def f():\n    s = ''\n    for i in range(2):\n        s = f'{s}{host}'\n        s = host\n    return f'{s}{s}'\nf()",
    "compared with a constant": "def f(p):\n    return [p == 's', p != 1, p == None, 's' == p]\nf(host)",
    "ordered by a constant": "def f(p):\n    return p < 1\nf(host)",
    "names of generated code": "def f(v_n_1, i_v_n_1, P_add, rt, d, E, K, T_int, type_):\n    n = host\n    return n + rt\nf(1, 2, 3, 4, 5, 6, 7, 8, 9)",
}


@pytest.mark.parametrize("name", TEXTS)
async def test_no_host_object_is_taken_for_a_certain_type(name: str) -> None:
    """Whichever way it gets into the variable: the operation is refused with a code, or gives what it gives without the object's class."""
    value, trap, world, _ = await outcome(TEXTS[name])
    assert not trap.run, value
    assert not world.effects
    if isinstance(value, AgentflowError):
        assert value.code not in ("host/raised", "internal/error", "eval/error"), value.render()
        assert value.span is not None
