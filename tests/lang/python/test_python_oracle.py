"""Texts in the subset of Python mean what CPython says they mean: the same values and the same classes of errors, or a refusal."""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.data.values import OrderedSet
from agentflow.lang.python.failure import CLASSES, caught
from agentflow.run.strand.recovery import ErrorValue
from tests.support.python_kinds import KindsAuthor
from tests.support.python_texts import Author, run_text
from tests.support.python_variables import VariablesAuthor

CASES = {
    "loops": "out = []\nfor i in range(5):\n    if i == 1: continue\n    if i == 4: break\n    out.append(i)\nelse:\n    out.append('no')\nout",
    "while else": "i = 0\nwhile i < 3:\n    i += 1\nelse:\n    i = 100\ni",
    "closures": "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n    return up\nf = counter()\n[f(), f(), counter()()]",
    "late binding": "fs = [lambda: i for i in range(3)]\n[f() for f in fs]",
    "defaults": "def f(a, b=2, *, c=3, d):\n    return [a, b, c, d]\n[f(1, d=4), f(1, c=0, d=9, b=5)]",
    "keyword order": "log = []\ndef note(x):\n    log.append(x)\n    return x\ndef f(a, b, c):\n    return [a, b, c]\n[f(c=note(1), a=note(2), b=note(3)), log]",
    "an item's value comes before its container and key": "log = []\ndef note(x, y):\n    log.append(x)\n    return y\nd = {}\nnote(2, d)[note(3, 'k')] = note(1, 5)\nnote(4, d)[note(5, 'k')] += note(6, 1)\n[log, d]",
    "return in finally's try": "log = []\ndef f():\n    for i in range(3):\n        try:\n            if i == 1: return 'r'\n        finally:\n            log.append(i)\n[f(), log]",
    "break through finally": "log = []\nfor i in range(3):\n    try:\n        if i == 1: break\n    finally:\n        log.append(i)\nlog",
    "error in finally": "log = []\ntry:\n    try:\n        [][0]\n    finally:\n        log.append(1)\nexcept IndexError:\n    log.append(2)\nlog",
    "walrus in finally": "def f():\n    a = 1\n    try:\n        pass\n    finally:\n        if (b := a + 1) and (a := b):\n            pass\n    return [a, b]\nf()",
    "del in finally": "def f():\n    a = 1\n    try:\n        pass\n    finally:\n        del a\n    a = 3\n    return a\nf()",
    "else of try": "log = []\ntry:\n    pass\nexcept ValueError:\n    log.append(1)\nelse:\n    log.append(2)\nlog",
    "raise again": "log = []\ntry:\n    try:\n        {}['x']\n    except LookupError:\n        log.append(1)\n        raise\nexcept KeyError:\n    log.append(2)\nlog",
    "raised text": "try:\n    raise ValueError('what')\nexcept ValueError as e:\n    out = str(e)\nout",
    "classes": "out = []\nfor f in [lambda: 1/0, lambda: [][1], lambda: int('x'), lambda: 'a' + 1, lambda: {}['k'], lambda: len(1)]:\n    try:\n        f()\n    except (ZeroDivisionError, IndexError):\n        out.append(1)\n    except LookupError:\n        out.append(2)\n    except ValueError:\n        out.append(3)\n    except TypeError:\n        out.append(4)\nout",
    "unpacking": "a, (b, *c), d = 1, (2, 3, 4), 'x'\n[*rest, last] = 'abc'\n[a, b, c, d, rest, last]",
    "swaps": "a, b = 1, 2\na, b = b, a\nxs = [1, 2]\nxs[0], xs[1] = xs[1], xs[0]\n[a, b, xs]",
    "chained": "a = b = []\na.append(1)\n[a, b, a is b, 1 < 2 < 3, 1 < 3 < 2]",
    "walrus": "out = []\nif (n := 3) > 2:\n    out.append(n)\nout",
    "augmented": "d = {'a': [1]}\nd['a'] += [2]\nd['n'] = 0\nd['n'] += 5\nx = [1]\ny = x\nx += (2,)\n[d, x, y]",
    "sets": "s = {1, 2} | {3}\ns.add(4)\n[sorted(s), 3 in s, s - {1}, s & {1, 9}, {1} < s, len(s)]",
    "comprehensions": "[[x * y for x in range(3) for y in range(x)], {k: v for k, v in zip('ab', [1, 2])}, sorted({c for c in 'hello'})]",
    "nested comprehension": "[[[i * j for j in range(2)] for i in range(2)], [x for row in [[1], [2, 3]] for x in row if x > 1]]",
    "any and all": "log = []\ndef t(x):\n    log.append(x)\n    return x > 1\n[any(t(x) for x in [0, 2, 5]), all(t(x) for x in [3, 0, 9]), log]",
    "slices": "xs = list(range(6))\n[xs[1:4], xs[::-1], xs[-2:], 'hello'[1:3], xs[10:], (1, 2, 3)[::2]]",
    "f-strings": "x, y = 3.14159, 'a'\n[f'{x:.2f}|{y:>4}|{y!r}|{1000000:,}|{5:03d}|{x:{8}.{2}f}|{{}}', f'{[1, None]}{True}']",
    "texts": "['a,b'.split(','), ' x '.strip(), 'abc'.replace('b', 'x'), '-'.join(['a', 'b']), 'Ab'.swapcase(), 'a-b'.partition('-'), 'ab'.zfill(5), 'aXb'.lower().title(), 'x=1'.startswith(('y', 'x'))]",
    "repr": "[repr([1, 'a', None, (1,), {'k': {2}}, True, 1.0, 1e100, float('inf')]), str({}), str(()), str(-0.0)]",
    "sorting": "xs = [3, 1, 2]\nxs.sort(reverse=True)\n[xs, sorted('banana'), sorted([('b', 1), ('a', 2), ('a', 1)]), sorted(['bb', 'a'], key=len), sorted([1, 2, 3, 4], key=lambda x: x % 2, reverse=True)]",
    "least and most": "[min(3, 1, 2), max([1, 5, 2]), max('ab', 'b', key=len), min([], default=7), max([(1, 'a'), (1, 'b')])]",
    "dicts": "d = {'b': 1, **{'a': 2}}\nd.update({'c': 3})\n[d, d.pop('b'), d.setdefault('z', []), list(d), d.get('q'), d.get('q', 1), [k for k in d], list(d.items()), 'a' in d, {**d, 'a': 0} | {'y': 1}]",
    "numbers": "[7 // 2, -7 // 2, 7 % -3, 2 ** 10, 2 ** -1, 7 / 2, 1 << 5, 255 >> 3, 6 & 3, 6 | 3, 6 ^ 3, ~5, abs(-3), round(2.5), round(3.14159, 2), divmod(7, 2), int('12'), float('1.5'), int(3.9), True + 1]",
    "equality": "[[1, [2]] == [1, [2]], [1] == (1,), {'a': 1} == {'a': 1.0}, 1 == True, 'a' == 1, None is None, (1, 2) < (1, 3), [1, 2] < [1], {1, 2} == {2, 1}]",
    "deletion": "d = {'a': 1, 'b': 2}\ndel d['a']\nxs = [1, 2, 3]\ndel xs[0]\n[d, xs]",
    "recursion": "def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\nfact(30)",
    "mutual recursion": "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n != 0 and even(n - 1)\n[even(10), odd(7), even(301)]",
    "global": "n = 0\ndef up():\n    global n\n    n += 1\nup()\nup()\nn",
    "long lists": "xs = list(range(40000))\nys = list(zip(xs, xs[1:]))\nzs = list(enumerate(xs, 5))\n[len(ys), ys[20000], ys[-1], len(zs), zs[20000], zs[-1], len(set(xs)), len(dict(ys)), dict(ys)[39998], all(xs[1:]), all(xs), any(xs[:1]), min(xs), max(xs), list(reversed(xs))[0], len(list(filter(None, xs))), xs == xs[:-1] + [39999], xs == xs[:-1] + [1], xs < xs[:-1] + [40000], xs[:-1] < xs, sum(xs)]",
    "functions as values": "[list(map(str, [1, 2])), list(filter(None, [0, 1, 2])), list(map(lambda a, b: a + b, [1, 2], [3, 4])), sorted(['B', 'a'], key=str.lower)]",
    "is tests": "[isinstance(1, int), isinstance(True, int), isinstance('a', (int, str)), isinstance([], dict)]",
    "json": "import json\n[json.loads('{\"a\": [1, null, true]}'), json.loads(json.dumps({'x': [1, 2.5, None]}))]",
    "json with indents": "import json\n[json.dumps({'a': [1, {}], 'b': [], 'c': {'d': None}}, indent=2), json.dumps([1], ensure_ascii=False)]",
    "math": "import math\n[math.floor(2.7), math.ceil(2.1), math.sqrt(16), math.pi > 3, math.isnan(float('nan'))]",
    "conditions": "[1 if [] else 2, not '', 0 or 'x', 1 and 'y', None or [] or 3, 1 and 0 and 2]",
    "lambda defaults": "f = lambda x, y=2: x * y\n[f(3), f(3, y=5)]",
    "enumerate": "[list(enumerate('ab', 1)), list(reversed([1, 2])), list(zip([1, 2], 'ab')), sum([1, 2.5]), sum([[1], [2]], [])]",
    "assert": "try:\n    assert 1 == 2, 'no'\nexcept AssertionError as e:\n    out = str(e)\nout",
    "annotations": "x: int = 3\ndef f(a: list[str], b: int | None = None) -> str:\n    y: str\n    y = 'q'\n    return y\n[x, f([])]",
    "async is read": "async def f(x):\n    return x + 1\nasync def g():\n    return await f(1)\n",
    "nested functions in loops": "out = []\nfor i in range(3):\n    def f():\n        return i\n    out.append(f)\n[g() for g in out]",
}


def normal(value: Any) -> Any:
    """A value for comparison: with types where they tell, and sets without order."""
    if isinstance(value, OrderedSet | set):
        return ("set", sorted(map(repr, value)))
    if isinstance(value, list | tuple):
        return (type(value).__name__, [normal(each) for each in value])
    if isinstance(value, Mapping):
        return ("dict", [(key, normal(each)) for key, each in value.items()])
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if value is None or isinstance(value, bool | int | float | str):
        return (type(value).__name__, value)
    return "opaque"


def by_cpython(text: str) -> tuple[str, Any]:
    """Value or class of error, as CPython has it. Iterators are lists, as the subset says."""
    space: dict[str, Any] = {"__builtins__": __builtins__}
    for name in ("map", "filter", "zip", "enumerate", "reversed", "range"):
        native = (__builtins__ if isinstance(__builtins__, dict) else vars(__builtins__))[name]
        space[name] = lambda *args, native=native, **named: list(native(*args, **named))
    *head, last = text.rstrip("\n").split("\n")
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec("\n".join(head), space)
            value = eval(last, space)
        return "value", normal(value if not isinstance(value, type({}.keys())) else list(value))
    except Exception as error:
        return "error", type(error).__name__


async def by_us(text: str) -> tuple[str, Any]:
    """Value or class of error of the compiled text; ``refused`` for one that is not of the subset."""
    try:
        return "value", normal(await run_text(text))
    except RecursionError as error:  # data within itself
        return "error", type(error).__name__
    except LimitExceeded:
        return "refused", None
    except AgentflowError as error:
        if error.code.startswith(("syntax/", "name/not-here", "form/", "arity/")):
            return "refused", error.code
        failure = caught(error, ErrorValue.of(error))
        return "error", failure.name


@pytest.mark.parametrize("name", CASES)
async def test_the_language_means_what_python_says(name: str) -> None:
    """Control flow, closures, errors, unpacking, comprehensions, text and data: the value is CPython's."""
    text = CASES[name]
    if name == "async is read":
        assert await run_text(text + "await g()") == 2
        return
    assert await by_us(text) == by_cpython(text)


def agree(ours: tuple[str, Any], theirs: tuple[str, Any]) -> bool:
    """Whether an outcome is CPython's, or a refusal.

    A method that a value has not is a TypeError here, found after the arguments are evaluated, and in CPython an
    AttributeError, found before.
    """
    if ours[0] == theirs[0] == "error":
        return ours[1] in CLASSES and theirs[1] in (ours[1], "AttributeError")
    return ours[0] == "refused" or ours == theirs


async def compare(seeds: range, author: type[Author | VariablesAuthor | KindsAuthor] = Author) -> tuple[int, list[str]]:
    """How many made-up texts gave CPython's outcome, and those that gave neither it nor a refusal."""
    equal, wrong = 0, list[str]()
    for seed in seeds:
        text = author(seed).text()
        ours, theirs = await by_us(text), by_cpython(text)
        equal += ours == theirs
        if not agree(ours, theirs):
            wrong.append(f"seed {seed}: {ours} and not {theirs}\n{text}")
    return equal, wrong


def test_generated_texts_are_equal_or_refused() -> None:
    """A text that the author makes up gives CPython's value or class of error, or an error that says it is not of the subset."""
    equal, wrong = asyncio.run(compare(range(30)))
    assert not wrong, wrong[0]
    assert equal > 15


def test_variables_hold_what_they_are_assigned() -> None:
    """The same for functions whose variables keep their types, or change them in loops, branches, inner functions and handlers: code tests no type that is certain."""
    equal, wrong = asyncio.run(compare(range(60), VariablesAuthor))
    assert not wrong, wrong[0]
    assert equal > 30


@pytest.mark.slow
def test_three_hundred_generated_texts_are_equal_or_refused() -> None:
    """The same for ten times as many."""
    equal, wrong = asyncio.run(compare(range(30, 330)))
    assert not wrong, wrong[0]
    assert equal > 200


@pytest.mark.slow
def test_what_code_takes_for_certain_of_variables_is_so() -> None:
    """Recursion on integers and on what is none, variables that inner functions, handlers and ``finally`` assign, globals that callees change."""
    equal, wrong = asyncio.run(compare(range(40), KindsAuthor))
    assert not wrong, wrong[0]
    assert equal > 20
