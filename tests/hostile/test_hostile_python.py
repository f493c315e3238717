"""Attacks by Python texts: into the object graph, through formats, errors and host objects, out of limits and grants."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.lang.environment import SexpEnvironment
from tests.support.python_texts import run_text
from tests.support.world import World

LIMITS = Limits(steps=200_000, depth=2_000, collection=50_000, string=200_000, integer_bits=20_000, branches=500)
REFUSED = [
    "().__class__.__base__.__subclasses__()",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__",
    "[].__cla\u017f\u017f__",
    "x = 1\nx.\uff3f\uff3fclass\uff3f\uff3f",
    "__import__('os')",
    "__builtins__",
    "getattr([], 'append')",
    "type([])",
    "type('X', (), {})",
    "eval('1')",
    "exec('1')",
    "open('/etc/passwd')",
    "globals()",
    "vars()",
    "'{0.__class__.__mro__}'.format(1)",
    "'{0.__class__}'.format_map({})",
    "f'{1:{\"1000000000\"}}'",
    "f'{1:1000000000}'",
    "f'{1.5:.1000000f}'",
    "'%1000000000d' % 1",
    "import os",
    "import agentflow.core",
    "from os import system",
    "from json import decoder",
    "def g():\n    yield 1\ng()",
    "(x for x in [1]).gi_frame",
    "class A:\n    def __del__(self):\n        pass",
    "class A(dict):\n    x: int",
    "class A:\n    __eq__: int",
    "try:\n    1/0\nexcept* ValueError:\n    pass",
    "match 1:\n    case int():\n        pass",
    "def f(*args):\n    pass",
    "def f(x=[].append):\n    pass",
    "@staticmethod\ndef f():\n    pass",
    "@(lambda f: f)\ndef f():\n    pass",
    "try:\n    1/0\nexcept BaseException as e:\n    e.__traceback__",
    "try:\n    1/0\nexcept Exception as e:\n    e._error",
    "def f():\n    try:\n        pass\n    finally:\n        return 1\nf()",
    "for i in [1]:\n    try:\n        1/0\n    finally:\n        break",
    "x = []\nx.append = 1",
    "_ = K\n_x = 1",
    "def f(_rt):\n    pass",
    "json.decoder",
    "json.codecs.open('x')",
    "math.__loader__",
    "asyncio.create_subprocess_shell('ls')",
    "os.system('ls')",
    "host.run()",
    "host.secret",
    "host()[0]",
    "host + 1",
    "host[0]",
    "len(host)",
    "list(host)",
    "1 in host",
    "for x in host:\n    pass",
    "sorted([host, host])",
    "json.dumps(host)",
    "f'{host:>10}'",
    "{host: 1}",
    "int(host)",
    "sum([host])",
    "min(host, host)",
    "a, b = host",
    "[*host]",
    "{**host}",
    "host < 1",
    "-host",
    "'x'.join([host])",
    "t = (1,)\nfor i in range(60):\n    t = (t, t)\n{t: 1}",
    "t = 1\nfor i in range(60):\n    t = (t, t)\nhash(t)",
    "x = []\nfor i in range(3000):\n    x = [x]\nrepr(x)",
    "x = []\nfor i in range(3000):\n    x = [x]\nx == [x]",
    "x = {}\nx['x'] = x\njson.dumps(x)",
    "'a' * 10**9",
    "[0] * 10**9",
    "10 ** 10 ** 10",
    "1 << 10**9",
    "list(range(10**12))",
    "[x for x in range(10**9)]",
    "x = 2\nwhile True:\n    x = x * x",
    "s = 'ab'\nwhile True:\n    s += s",
    "s = 'ab'\nwhile True:\n    s = f'{s}{s}'",
    "xs = [1]\nfor x in xs:\n    xs.append(x)",
    "xs = [1]\nwhile True:\n    xs.extend(xs)",
    "'a'.zfill(10**9)",
    "'a'.ljust(10**9)",
    "('a' * 1000).replace('a', 'b' * 1000)",
    "('a' * 1000).join(['b'] * 1000)",
    "while True:\n    try:\n        while True:\n            pass\n    except:\n        pass",
    "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "def f(n):\n    return f(n + 1)\nf(0)",
    "f = lambda g: g(g)\nf(f)",
    "[" * 150 + "]" * 150,
    "-" * 5000 + "1",
    "(" * 5000,
    "x = " + "+".join(["1"] * 5000),
    "\n".join("  " * i + "while 1:" for i in range(40)) + "\n" + "  " * 40 + "pass",
    "\n".join("  " * i + "try:" for i in range(1)) + "\n  pass",
    "x = 1\0",
    "x = 1\rimport os",
    "x = 1\x0c",
    "9" * 5000,
    "x = 'a" + "\\",
    "b'bytes'",
    "1j",
    "nonlocal x",
    "def f():\n    nonlocal q",
    "await_ = yield",
    "shout(text='x')",
    "s = shout\ns('x')",
    "list(map(shout, ['x']))",
    "parallel(shout(text='x'))",
    "system.execute_shell_command(command='ls')",
    "solve('x')",
    "call_workflow('x')",
    "@task\ndef t(a):\n    'x {{a}}'",
    "del parallel",
    "pmap = 1\nparallel = 2\npmap(1, 2)",
    "[(y := x) for x in [1]]",
    "(lambda: (z := 1))()[0]",
    "print(*1)",
    "print(*host)",
    "print(1, file=host)",
    "isinstance(1, object)",
    "max(key=1)",
    "sorted([1, 'a'])",
    "sorted([(1, None), (1, 2)])",
    "[].sort(1)",
    "''.join(1)",
    "'a'.split('')",
    "int('1' * 10000)",
    "chr(-1)",
    "round(1.5, 10**10)",
    "math.sqrt(-1)",
    "math.isqrt(-1)",
    "math.exp(10**6)",
    "(-8) ** 0.5",
    "0.0 ** -1",
    "1.0 / 0",
    "float('1' * 5000)",
    "[1, 2][10**30]",
    "[1, 2][::0]",
    "[1, 2]['a']",
    "{}[[]]",
    "a, b = 1, 2, 3",
    "raise 1",
    "raise OSError('x')",
    "raise",
    "assert 0",
    "x",
    "def f(a):\n    return a\nf()",
    "g = lambda a: a\ng(1, 2)",
    "g = lambda a: a\ng(b=2)",
    "None()",
    "None.x",
    "'a'.nothing()",
    "return_ = return 1",
]
FINE = [
    "host == 1",
    "host != host",
    "bool(host)",
    "1 if host else 2",
    "str(host)",
    "repr([host])",
    "f'{host}'",
    "host is host",
    "[host] == [host]",
    "host in [1, host]",
    "print(host)",
    "x = []\nx.append(x)\nrepr(x)",
    "\n".join("  " * i + "if 1:" for i in range(60)) + "\n" + "  " * 60 + "pass",
    "try:\n    1/0\nexcept Exception as e:\n    str(e)",
]


class Trap:
    """A host object that notes whenever code of its class is run."""

    def __init__(self) -> None:
        self.run: list[str] = []
        self.secret = "secret"

    def __getattribute__(self, name: str) -> Any:
        if name not in ("run", "secret") and not name.startswith("__"):
            object.__getattribute__(self, "run").append(name)
        return object.__getattribute__(self, name)


def _noting(name: str) -> Any:
    def method(self: Trap, *arguments: Any) -> Any:
        self.run.append(name)
        return NotImplemented

    return method


for _name in ("eq", "ne", "bool", "len", "iter", "contains", "getitem", "add", "radd", "lt", "hash", "str", "repr", "format", "index", "int", "float", "neg", "missing", "reversed"):  # fmt: skip
    setattr(Trap, f"__{_name}__", _noting(f"__{_name}__"))


async def outcome(text: str) -> tuple[Any, Trap, World, float]:
    """The error of an untrusted text with a trap bound, or its value; what it touched, and how long the processor took."""
    trap, world = Trap(), World()
    started = time.process_time()
    try:
        value: Any = await run_text(text, SexpEnvironment({"host": trap}), world=world, allow=["broken"], limits=LIMITS)
    except AgentflowError as error:
        value = error
    return value, trap, world, time.process_time() - started


UNWINDING = "def f():\n    try:\n        f()\n    finally:\n        f()\nf()"
"""Every clean-up of 2,000 has its thousand steps when the limit is met: some 15 s in all."""


@pytest.mark.parametrize(
    "text", [*REFUSED, pytest.param(UNWINDING, marks=pytest.mark.slow)], ids=lambda text: ascii(text)[:40]
)
async def test_attacks_end_in_an_error_with_a_code(text: str) -> None:
    """No escape, no effect, no code of the host's class, and an error that says what was wrong and where."""
    value, trap, world, _ = await outcome(text)
    assert isinstance(value, AgentflowError), value
    assert value.code not in ("host/raised", "internal/error", "eval/error"), value.render()
    assert value.span is not None or isinstance(value, LimitExceeded), value.render()
    assert not world.effects
    assert not trap.run


@pytest.mark.parametrize("text", FINE)
async def test_host_objects_are_compared_tested_and_shown_without_their_code(text: str) -> None:
    """``==``, truth, ``str`` and ``in`` give a value, and run no code of the object's class."""
    value, trap, _, _ = await outcome(text)
    assert not isinstance(value, AgentflowError), value.render()
    assert not trap.run
    assert "secret" not in str(type(value)) + (value if isinstance(value, str) else "")
