"""What Python texts ask of the runtime: tasks, tools, branches, time; records, declared tasks, and what branches may change."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.known_names import UNKNOWN
from agentflow.core.data.source import Source
from agentflow.core.events.effects import LogMessage
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.python.compiling import findings_of
from tests.support.python_texts import LIMITS, run_text
from tests.support.world import World

REVIEW = '''class Review:
    worst: str
    grade: Literal["low", "high"] = "low"
@task(model="m")
def review(path: str) -> str:
    """Look at {{path}}."""
'''
VALUES: dict[str, Any] = {
    'shout(text="hi")': "HI",
    "try:\n    broken()\nexcept TaskError as e:\n    out = e.code\nout": "task/failed",
    "outcome(broken()).status": "FAILED",
    'parallel(shout(text="a"), await shout(text="b"), lambda: 3)': ["A", "B", 3],
    'pmap(lambda t: shout(text=t), ("a", "b"), limit=1)': ["A", "B"],
    'import asyncio\nawait asyncio.gather(*[shout(text=x) for x in ["a", "b"]])': ["A", "B"],
    'asyncio.wait_for(shout(text="t"), timeout=5)': "T",
    'race(broken(), shout(text="x"))': "X",
    'retry(2, shout(text="r"))': "R",
    'timeout(5, shout(text="t"))': "T",
    'd = {"text": "d"}\nshout(**d)': "D",
    f'{REVIEW}[review("x"), pmap(review, ["a"]), Review(worst="w")]': [
        "answer of review",
        ["answer of review"],
        {"worst": "w", "grade": "low"},
    ],
    "@workflow\ndef main(a, b=3):\n    return [a, b]": [7, 3],
    "def main(a, *, c):\n    return [a, c]\nmain(1, c=2)": [1, 2],
    "return a + 1": 8,
}


@pytest.mark.parametrize("text", VALUES)
async def test_calls_and_forms_give_what_their_arguments_do(text: str) -> None:
    """A call of a task or tool is its data or text, a failed one raises; forms run their arguments themselves."""
    assert await run_text(text, SexpEnvironment({"a": 7})) == VALUES[text]


REFUSED = {
    "xs = []\ndef f(x):\n    xs.append(x)\npmap(f, [1, 2])": "a list of the environment",
    "def main():\n    d = {}\n    def f(x):\n        d[x] = 1\n    pmap(f, [1, 2])\nmain()": "a dict of the function around",
    "def main():\n    s = set()\n    parallel(s.add(1), s.add(2))\nmain()": "a set, in a thunk",
    'rows = [{"a": 1}]\ndef f(r):\n    r["b"] = 2\npmap(f, rows)': "an element",
    "def main():\n    xs = [[]]\n    def add(ys):\n        ys.append(1)\n    parallel(add(xs[0]), 2)\nmain()": "a part, by a helper",
    "def main():\n    t = ([1],)\n    parallel(parallel(t[0].append(1), 2), 3)\nmain()": "a part of a tuple, two forks deep",
    "def main():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    parallel(g(), g())\nmain()": "a variable",
    "n = 0\ndef g():\n    global n\n    n += 1\nparallel(g(), g())": "a variable of the environment",
    "def main():\n    xs = [2, 1]\n    parallel(xs.sort(), xs.reverse())\nmain()": "a list, by its methods",
    "def main():\n    xs = [1]\n    def f(x):\n        ys = xs\n        ys += [1]\n    pmap(f, [1])\nmain()": "a list, by another name",
}


@pytest.mark.parametrize("text", REFUSED, ids=REFUSED.values())
async def test_branches_change_nothing_that_code_outside_can_reach(text: str) -> None:
    """Whatever way a branch got hold of it, it is ``concurrency/shared-set``."""
    with pytest.raises(SexpEvaluationError) as caught:
        await run_text(text)
    assert caught.value.code == "concurrency/shared-set"


async def test_branches_change_what_they_made_and_joins_end_branches() -> None:
    """Data of a branch's own is free, and so is all data once the branches have ended."""
    text = """def main():
    xs = []
    def f(x):
        ys = [x]
        ys.append(parallel(x, 1))
        return ys
    for row in pmap(f, [1, 2]):
        row.append(0)
        xs.append(row)
    return xs
main()"""
    assert await run_text(text) == [[1, [1, 1], 0], [2, [2, 1], 0]]


async def test_print_is_a_message_and_no_number() -> None:
    """``print`` logs its text, and the effects after it keep their paths."""
    world = World()
    await run_text('print("a", 1, [2])\nshout(text="x")', world=world)
    assert [each.text for each in world.effects if isinstance(each, LogMessage)] == ["a 1 [2]"]


def test_several_mistakes_are_said_at_once() -> None:
    """A wrong slot, a wrong parameter, a misspelled function, a refused statement and a dunder: each at its place, with a hint."""
    text = (
        '@task\ndef review(path: str) -> str:\n    """See {{pth}}."""\nreview(txt=1)\nsortd([1])\n'
        'with open("x") as f:\n    pass\nx.__class__\n'
    )
    found = findings_of(Source("t.py", text, "python"), lambda _: UNKNOWN, LIMITS, None, World(), closed=True)[0]
    lines = [(each.code, each.span.line, bool(each.hint)) for each in found if each.span is not None]
    assert lines == [
        ("defatom/instructions", 3, True),
        ("call/missing-parameter", 4, True),
        ("call/unknown-parameter", 4, True),
        ("name/unknown-operator", 5, True),
        ("syntax/not-here", 6, True),
        ("syntax/not-here", 8, True),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "shout(text='x')",
        "f = shout\nf('x')",
        "list(map(shout, ['x']))",
        "solve('x')",
        "@task\ndef t(a):\n    'x {{a}}'",
    ],
)
async def test_what_is_not_granted_is_refused_before_anything_runs(text: str) -> None:
    """By call, by value, through map, by declaration: ``name/not-granted``, and no effect was reached."""
    world = World()
    with pytest.raises(AgentflowError) as caught:
        await run_text(f"print('first')\n{text}", world=world, allow=["broken"])
    assert caught.value.code == "name/not-granted"
    assert not world.effects
