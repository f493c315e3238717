"""A policy changes nothing for a program that has no values from elsewhere: the same values, effects and errors, at the same places."""

from __future__ import annotations

import pytest

from agentflow.core.data.source import Source, Surface
from tests.lang.fuzz import fuzz_policies
from tests.support.kernel.compared import LIMITS
from tests.support.under_policy import POLICIES, outcome_of, policy_difference

TEXTS = {
    "an error in else is not caught": """
def f():
    try:
        x = 1
    except ValueError:
        return "caught"
    else:
        raise ValueError("e")
try:
    r = f()
except ValueError:
    r = "not caught"
r
""",
    "else after a body that failed": """
out = []
for i in [0, 1]:
    try:
        out.append(1 / i)
    except ZeroDivisionError:
        out.append("none")
    else:
        out.append("else")
    finally:
        out.append("finally")
out
""",
    "a comprehension in the iterable of one": """
def f(x, y):
    return [[x, y, z] for z in [x for x in [3, 1, 2] if x > y] if z]
def g(xs):
    return {k: [v for v in [w for w in k] if v] for k in [str(x) for x in xs]}
[f(7, 1), g([12, 3]), any(x for x in [y for y in [0, 2]])]
""",
    "a function in the iterable of a comprehension": """
def f(x):
    return [h() + x for h in [lambda: x + 1, lambda: [x for x in [5]][0]]]
f(3)
""",
    "an error of a method, after long work for its value": "def f():\n    return repr((1, 2))[:2].index('a')\nf()",
    "an error of an operator, after long work in an operand": "def f():\n    x = 1\n    return str([1]) + 1\nf()",
    "an error of an element, after long work for the index": "def f():\n    return [1][len(repr([1]))]\nf()",
    "an error of a key, after long work for a value": "def f():\n    return {'k': str([]), (1, [2]): 3}\nf()",
    "an error of a store, after long work for the index": "def f():\n    [1][len(str([2]))] = 3\nf()",
    "an error of long work in a test": "def f():\n    if [1, 'a'] < [1, 2]:\n        return 1\nf()",
    "an error of long work in an iterable": "def f():\n    return [x for x in sorted([1, 'a'])]\nf()",
    "an order that is neither": "sorted([2, 1], key=lambda x: x, reverse=None)",
    "an order of a list that is neither": "xs = [2, 1]\nxs.sort(reverse='up')\nxs",
}
"""Texts that a policy did change, or kinds beside them."""


@pytest.mark.parametrize("name", TEXTS)
async def test_a_policy_changes_nothing_of(name: str) -> None:
    """These are carried out by the machine of strict policies, by code that follows data, and by plain code."""
    assert await policy_difference(TEXTS[name]) is None


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 4))])
@pytest.mark.parametrize("surface", ["sexp", "python"])
async def test_random_programs_do_the_same_under_policies(surface: Surface, part: int) -> None:
    """So do random programs. More of them: ``python tests/lang/fuzz.py --policy --count 10000 --jobs 2``."""
    report = await fuzz_policies(part * 40, 40, surface)
    assert report.outcomes["same"] == 40, "\n\n".join(report.broken[:3])


async def test_a_difference_is_found() -> None:
    """The comparison can fail: two texts with other values have other outcomes."""
    one = await outcome_of(Source("<text>", "1 + 2", "python"), None, LIMITS)
    assert one != await outcome_of(Source("<text>", "1 + 3", "python"), POLICIES["strict"], LIMITS)
