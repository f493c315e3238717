"""What people who know Python write first: it runs, or every refusal says once what to write instead."""

from __future__ import annotations

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import UNKNOWN
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.python.absent import ABSENT, DOTTED, HIDDEN, METHODS_ABSENT, MODULES
from agentflow.lang.python.builtins import BUILTINS, CONSTANTS
from agentflow.lang.python.compiling import findings_of
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.methods import ALL_METHODS
from agentflow.lang.python.statements import IMPORTS
from tests.hostile.test_hostile_python import REFUSED
from tests.support.python_texts import run_text

WRONG: dict[str, list[str]] = {
    "import re\ndef main(s):\n    return re.findall('a', s)": ["of texts"],
    "from collections import Counter\nc = Counter('ab')\nc.update('c')\nc": ["counts"],
    "import os, sys\nos.path.join('a', 'b')\nsys.argv[1]": ["tools read", "parameters of main"],
    "import os\nos.environ['KEY']": ["tools read"],
    "import numpy as np\nnp.array([1]).sum()": ["lists, sum"],
    "from json import loads\nloads('1')": ["write json.loads(...)"],
    "import json as j\nj.loads('1')": ["write import json"],
    "import logging\nlog = logging.getLogger('x')\nlog.info('a')": ["run's log", "run's log"],
    "from datetime import datetime\nx = datetime.now()\nx": ["now()", "now()"],
    "with open('a') as f:\n    pass": ["system.read_files"],
    "import asyncio\nasync def f():\n    async with asyncio.TaskGroup() as g:\n        pass": ["parallel(f(a), g(b))"],
    "import asyncio\nasyncio.create_task(1)": ["parallel(f(a), g(b))"],
    "asyncio.Semaphore(3)": ["limit=3"],
    "async def main():\n    return await asyncio.gather(*[ask(q) for q in 'ab'], return_exceptions=True)": ["outcome"],
    "random.choice([1])": ["xs[random(len(xs))]"],
    "random.randint(1, 6)": ["1 + random(6)"],
    "time.perf_counter()": ["now()"],
    "math.factorial(3)": ["multiply"],
    "math.cosine(3)": ["math.cos"],
    "input('name')": ["ask_human"],
    "next(x for x in [1])": ["found[0]"],
    "class A:\n    def __init__(self):\n        pass\n    def push(self, x):\n        pass\nA().push(1)": [
        "by name",
        "def push(a, x)",
    ],
    "class A:\n    x = 1": ["x: str = 1"],
    "class Kind(str, Enum):\n    LOW = 'low'\nKind.LOW": ["Literal['low']"],
    "class MyError(Exception):\n    pass\ntry:\n    raise MyError('x')\nexcept MyError:\n    pass": [
        "raise ValueError"
    ],
    "class A(Base):\n    x: int": ["lists all its fields"],
    "class A(BaseModel):\n    x: list[int] = Field(default_factory=list)": ["x: list[int]"],
    "class A:\n    x: int\nA(**{'x': 1})": ["a record is a dict"],
    "x = {'a': 1}\nx.a = 2": ['{**x, "a": value}'],
    "def f(g):\n    return g\n@f\ndef h():\n    pass": ["h = f(h)"],
    "@functools.lru_cache\ndef h():\n    pass": ["in a dict"],
    "def f(*args):\n    pass": ["take a list"],
    "f = max\nf(*[1, 2])": ["a, b = xs"],
    "zip(*[[1, 2], [3, 4]])": ["columns"],
    "max(*[1, 2])": ["max(xs)"],
    "print('a', file=1)": ["run's log"],
    "[y for x in 'ab' if (y := x)]": ["in an inner one"],
    "xs = [1]\nxs[0:1] = []": ["*new"],
    "xs = [1]\ndel xs[0:1]": ["xs = [*xs[:a], *xs[b:]]"],
    "'%s' % 1": ["f-string"],
    "def f(x):\n    return f'{x}' % 2\nf(1)": ["f-string"],
    "parallel([ask('a'), ask('b')])": ["parallel(*[...])"],
    "asyncio.gather([ask(q) for q in 'ab'])": ["asyncio.gather(*[...])"],
    "xs = [1]\nxs.sort(reversed=True)": ["'reverse'"],
    "def f(s):\n    return s.trim().toLowerCase()\nf('A')": ["s.lower()"],
    "'{}'.format(1)": ["f-string"],
    "type(1).__name__": ["e.code"],
    "(1).__class__": ["isinstance"],
    "[].__len__()": ["len(x)"],
    "if __name__ == '__main__':\n    print(1)": ["end of the text"],
    "def f():\n    yield 1": ["build a list"],
    "match 1:\n    case 1:\n        pass": ["if and elif"],
    "parallel(1, limit=2)": ["catch failures"],
    "isinstance(1, ValueError)": ["errors are caught"],
    "class A:\n    x: int\nisinstance(A(1), A)": ["isinstance(x, dict)"],
    "dict(a=1, b=2)": ['{"a": 1, "b": 2}'],
    "d = {}\ndict(d, a=1)": ['{**d, "a": 1}'],
    "def main(x):\n    return x\nmain()": ["leave the call out"],
    "def f(*args):\n    return 1\ndef g(*args, **more):\n    return f(*args, **more)\ng(1, 2)": ["take a list"] * 3,
    "class Kind(Enum):\n    A = 'a'\nclass R:\n    kind: Kind\nR(kind='a')": ["Literal['a']"],
    "class P:\n    def __init__(self, x):\n        self.x = x\nP(1)": ["by name"],
    '@task\ndef f(text: str):\n    return f"Say {text}"': ['"""Say {{text}}"""'],
    "m = 'a'\nx = m\nx.group(1)": ["of texts"],
    "from typing import TypeVar\nT = TypeVar('T')": ["mean nothing"],
    "pmap([1])": ["write pmap(f, xs, limit=8)"],
    "sorted([1], lambda x: x)": ["parameters"],
    "def f(a):\n    return a\nf()": ["its parameters are a"],
    "b'x'": ["leave out the b"],
    "1j": ["int and float"],
    "str.maketrans('a', 'b')": ["s.replace"],
    "def f():\n    nonlocal x": ["global x"],
}
"""Texts, and words of the hint of each refusal, in order."""
RIGHT: dict[str, object] = {
    "import asyncio\nasync def main():\n    return 3\nif __name__ == '__main__':\n    asyncio.run(main())": 3,
    "import asyncio\nasync def f(x):\n    return x + 1\nasyncio.run(f(2))": 3,
    "import asyncio\nasync def f(x):\n    return x + 1\ny = asyncio.run(f(2))\ny": 3,
    "def main():\n    return 4\nif '__main__' == __name__:\n    print(main())\n": 4,
    "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: int = 2\np = P(1)\n[p.x, p.y]": [1, 2],
    "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int\nP(x=1)": {"x": 1},
    "from pydantic import BaseModel\nclass P(BaseModel):\n    x: int\nP(x=1).x": 1,
    "from collections.abc import Callable\ndef f(g: Callable[[int], int]) -> int:\n    return g(1)\nf(lambda x: x)": 1,
    "xs = [1, 2]\nprint(*xs, sep=', ', end='', flush=True)\nlen(xs)": 2,
    "[math.gcd(12, 18), math.hypot(3, 4), math.prod([2, 3]), math.isclose(0.1 + 0.2, 0.3)]": [6, 5.0, 6, True],
    "await asyncio.gather(*[str(x) for x in [1, 2]], return_exceptions=False)": ["1", "2"],
}
"""Texts that run, and their values."""


def errors(text: str) -> list[AgentflowError]:
    """All that is wrong with a text before it runs."""
    try:
        return findings_of(Source("t.py", text, "python"), lambda _: UNKNOWN, Limits(), None, None)[0]
    except AgentflowError as error:
        return [error]


@pytest.mark.parametrize("text", WRONG, ids=lambda text: ascii(text)[:50])
def test_a_refusal_says_once_what_to_write_instead(text: str) -> None:
    """One error a mistake, none for what only follows from it, and each with a hint that shows the way out."""
    found = errors(text)
    assert len(found) == len(WRONG[text]), [each.render() for each in found]
    for error, words in zip(found, WRONG[text], strict=True):
        assert words in (error.hint or ""), error.render()


@pytest.mark.parametrize("text", RIGHT, ids=lambda text: ascii(text)[:50])
async def test_idioms_of_scripts_are_read(text: str) -> None:
    """What nearly every script has, and what says nothing about the work, is read and means nothing."""
    assert await run_text(text) == RIGHT[text]


def test_no_refusal_is_without_a_hint() -> None:
    """Whatever is refused before it runs: Python's own words, limits and grants apart, there is something to do about it."""
    silent = [
        each.render()
        for text in [*REFUSED, *WRONG]
        for each in errors(text)
        if each.hint is None and each.code not in ("syntax/python", "syntax/character")
    ]
    assert not silent, silent[0]


def test_what_is_said_to_be_absent_is_absent() -> None:
    """The tables of what is not there name nothing that is."""
    assert not ABSENT.keys() & {*BUILTINS, *FORMS}
    assert not METHODS_ABSENT.keys() & ALL_METHODS
    assert not DOTTED.keys() & {*BUILTINS, *FORMS, *CONSTANTS}
    assert not MODULES.keys() & IMPORTS
    assert all(name.startswith("_") for name in HIDDEN)


@pytest.mark.parametrize(
    "text",
    [
        "from agentflow.workflow import fetch_page\nfetch_pgae('x')",
        "@workflow(allow=['fetch_page'])\ndef main():\n    return fetch_pgae('x')",
    ],
)
def test_names_that_a_text_announces_are_suggested(text: str) -> None:
    """What it imports of ``agentflow.workflow``, and what its workflow is allowed, is known to be called so though nobody tells what it is."""
    found, doubts = findings_of(Source("t.py", text, "python"), lambda _: UNKNOWN, Limits(), None, None)
    assert not found and [each.hint for each in doubts] == ["did you mean 'fetch_page'?"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('@task\ndef f(text: str):\n    """Say it."""', '"""Say it."""'),
        ('@task\ndef f(text: str):\n    """Say {{text}} {text}"""', ""),
        ('@task(system="of {{text}}")\ndef f(text: str):\n    """Say it."""', ""),
        ('@task\ndef f(text: str):\n    """Say {{upper(text)}}"""', ""),
    ],
)
def test_a_parameter_that_a_prompt_does_not_use_is_doubted(text: str, shown: str) -> None:
    """No model would be told of it; and not one that is used anywhere."""
    found, doubts = findings_of(Source("t.py", text, "python"), lambda _: UNKNOWN, Limits(), None, None)
    assert not found and [each.span.text for each in doubts if each.span is not None] == ([shown] if shown else [])
