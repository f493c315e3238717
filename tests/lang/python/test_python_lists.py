"""Lists that a function makes and appends to: native, and still counted, and refused to branches that share them."""

from __future__ import annotations

import pytest

from agentflow.core.data.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.data.limits import Limits
from tests.support.python_texts import run_text

LIMITS = Limits(steps=100_000, collection=2_000)


@pytest.mark.parametrize(
    "body",
    [
        "xs = []\n    while True:\n        xs.append(1)",
        "while True:\n        xs = xs_of() if n else 1\n        xs.append(1)",
        "for i in range(90_000):\n        if i == 0:\n            xs = []\n        xs.append(i)",
        "xs = []\n    for i in range(300):\n        for j in range(300):\n            xs.append(j)",
        "xs = []\n    def put():\n        for i in range(90_000):\n            xs.append(i)\n    put()",
        "xs = []\n    for i in range(90_000):\n        xs = xs if i else []\n        xs.append(i)",
    ],
)
async def test_lists_that_grow_in_loops_are_bounded(body: str) -> None:
    """Whoever appends, and wherever the list was made: it is refused when it is too large, at the latest when the slice of steps ends."""
    text = f"kept = []\ndef xs_of():\n    return kept\ndef f(n):\n    {body}\nf(1)"
    with pytest.raises(LimitExceeded) as refused:
        await run_text(text, limits=LIMITS)
    assert refused.value.code == "limits/collection"
    assert refused.value.details["used"] <= 2_000 + 1_001


@pytest.mark.parametrize(
    "body",
    [
        "def put(n):\n        xs.append(n)\n    pmap(put, [1, 2])",
        "pmap(lambda n: xs.append(n), [1, 2])",
        "parallel(xs.append(1), xs.append(2))",
        "for i in range(2):\n        parallel(xs.append(i), 2)",
        "def put(n):\n        for i in range(3):\n            xs.append(n)\n    pmap(put, [1, 2])",
    ],
)
async def test_a_list_around_branches_is_not_theirs(body: str) -> None:
    """What a function made before its branches began is shared by them, and refused to each; what a branch makes is its own."""
    with pytest.raises(SexpEvaluationError) as refused:
        await run_text(f"def f():\n    xs = []\n    {body}\n    return xs\nf()")
    assert refused.value.code == "concurrency/shared-set"
    own = "def f(n):\n    xs = []\n    for i in range(n):\n        xs.append(i)\n    return xs\npmap(f, [1, 2])"
    assert await run_text(own) == [[0], [0, 1]]


async def test_a_list_made_in_the_round_is_there_when_it_is_looked_at() -> None:
    """A loop that makes its list each round reaches the end of slices before the first list is there."""
    text = "def f():\n    n = 0\n    for i in range(5_000):\n        xs = []\n        xs.append(i)\n        n += len(xs)\n    return n\nf()"
    assert await run_text(text) == 5_000
