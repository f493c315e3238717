"""What primitives do in slices gives what it would give at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from agentflow.core.data.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.values import Symbol
from agentflow.core.data.walk import finish
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.calling import Sliced
from agentflow.lang.sorting import in_order
from tests.support.bounds import Bounds
from tests.support.fake_run import FakeFlow

N = 50_000
CHANCE = random.Random(7)


def call(name: str, *arguments: Any) -> Any:
    return Bounds().call(PRIMITIVES[name], *arguments)


@pytest.mark.parametrize(
    "generate",
    [
        lambda: [CHANCE.randrange(10**9) for _ in range(N)],
        lambda: CHANCE.choices(range(5), k=N),
        lambda: [1] * N,
        lambda: list(range(N)),
        lambda: list(range(N, 0, -1)),
        lambda: CHANCE.choices([1, 1.0, True, 0, 0.0, False, 2.5], k=N),
        lambda: [str(CHANCE.randrange(10**6)) for _ in range(N)],
        lambda: [(CHANCE.randrange(9), at) for at in range(N)],
    ],
    ids=["random", "few values", "one value", "sorted", "reversed", "equal kinds", "texts", "pairs"],
)
def test_sorting_in_parts_is_sorting(generate: Callable[[], list[Any]]) -> None:
    """The order is Python's, and equal values keep theirs."""
    values = generate()
    assert [repr(each) for each in finish(in_order(values))] == [repr(each) for each in sorted(values)]


async def test_sort_takes_long_texts_and_symbols() -> None:
    """Texts that take long to compare, and symbols among strings, are sorted by their text all the same."""
    long = ["x" * 2_000 + str(CHANCE.randrange(100)) for _ in range(60)]
    mixed = [Symbol(str(at % 7)) if at % 3 else str(at % 7) for at in range(9_000)]
    flow = FakeFlow(watched=False)
    flow.env.define("long", long)
    flow.env.define("mixed", mixed)
    assert await flow("(sort long)") == sorted(long)
    result = await flow("(sort mixed)")
    assert [(type(each), str(each)) for each in result] == [(type(e), str(e)) for e in sorted(mixed, key=str)]


TEXTS: dict[str, Callable[[], str]] = {
    "words": lambda: "".join(CHANCE.choices(["a", "bc", " ", "\n", "\u2003", "def"], k=4 * N)),
    "one word": lambda: "x" * 5 * N,
    "only space": lambda: " " * 5 * N,
    "commas": lambda: "".join(CHANCE.choices(["a", "bc", ",", ",,"], k=4 * N)),
    "one comma": lambda: "x" * 3 * N + "," + "y" * 3 * N,
    "accents": lambda: "".join(CHANCE.choices("a\u00e9\u00df\u0130 \ufb01", k=4 * N)),
    "sigmas": lambda: "\u039f\u03a3 " * N,
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_in_stretches_is_text_at_once(name: str) -> None:
    """Splitting, joining and changing the case of a long text give what Python gives."""
    text = TEXTS[name]()
    assert call("string-split", text) == text.split()
    assert call("string-split", text, ",") == text.split(",")
    assert call("string-split", text, ",,") == text.split(",,")
    assert call("string-join", text.split(","), ", ") == ", ".join(text.split(","))
    assert call("string-upcase", text) == text.upper()
    assert call("string-downcase", text) == text.lower()


def test_many_numbers_are_worked_on_some_at_a_time() -> None:
    """Operations on as many operands as apply gives them."""
    numbers = [CHANCE.randrange(-(10**6), 10**6) for _ in range(N)]
    assert call("+", *numbers) == sum(numbers)
    assert call("min", *numbers) == min(numbers)
    assert call("max", *numbers, 1e7) == 1e7
    assert call("*", *[1, -1] * N) == (-1) ** N
    assert call("/", 2.0**1000, *[2] * 1000) == 1 and call("/", 1, *[1] * N) == 1
    ascending = sorted(numbers)
    for name, holds in (("<", False), ("<=", True), (">", False), (">=", False), ("=", False)):
        assert call(name, *ascending, ascending[-1]) is holds
        assert call(name, *[7] * N) is (name in ("<=", ">=", "="))
    assert call("<", *range(N)) and call(">", *range(N, 0, -1))
    for name in ("+", "*", "/", "min", "max", "<", "<=", ">", ">=", "="):
        with pytest.raises(SexpEvaluationError, match=f"argument {N + 1}"):
            call(name, *[1] * N, "x")


def test_many_operands_are_put_together_some_at_a_time() -> None:
    """Lists, dicts and texts of as many operands as apply gives: the last of equal keys wins, and errors count them all."""
    numbers = [CHANCE.randrange(N) for _ in range(2 * N)]
    pairs = dict(zip(numbers[::2], numbers[1::2], strict=True))
    assert call("list", *numbers) == numbers
    assert call("reverse", 2 * numbers) == 2 * numbers[::-1]
    assert call("append", *[[each] for each in numbers], numbers) == 2 * numbers
    shared = call("cons", 0, numbers)
    assert call("append", numbers, [1], shared).plain() == [*numbers, 1, 0, *numbers]
    assert list(call("dict", *numbers).items()) == list(pairs.items())
    assert list(call("put", pairs, 5, 0, "a", 1).items()) == list({**pairs, 5: 0, "a": 1}.items())
    assert call("put", {}, *numbers) == pairs
    assert list(call("merge", pairs, {"a": 1}, *[{5: 0}] * 300).items()) == list({**pairs, "a": 1, 5: 0}.items())
    assert call("string-append", *map(str, numbers)) == "".join(map(str, numbers))
    wrong = {"append": [], "dict": 1, "merge": {}, "string-append": "x"}
    for name, right in wrong.items():
        with pytest.raises(SexpEvaluationError, match=f"argument {N + 1}"):
            call(name, *[right] * N, print, *[right] * 3)
    with pytest.raises(SexpEvaluationError, match="no value"):
        call("dict", *numbers, 1)


_ONES = [1] * N
LARGE: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("+", "*", "/", "<=", ">=", "=", "min", "max"), tuple(_ONES)),
    "<": tuple(range(N)),
    ">": tuple(range(N, 0, -1)),
    "append": (4 * _ONES, 4 * _ONES),
    "dict": tuple(range(N)),
    "list": tuple(4 * _ONES),
    "merge": (dict.fromkeys(range(N)),),
    "put": (dict.fromkeys(range(N)), 1, 2),
    "reverse": (4 * _ONES,),
    "string-append": ("x",) * N,
    "zip": (_ONES, _ONES),
}
"""What primitives take long for that make something of many operands, or go over all of them."""


@pytest.mark.parametrize("name", LARGE)
def test_what_takes_long_is_left_to_be_carried_out_in_slices(name: str) -> None:
    """A primitive gives its long work back, in several parts, and not what it would take the loop to do."""
    primitive = PRIMITIVES[name]
    bounds = Bounds()
    given = primitive.function(*((bounds,) if primitive.needs_rt else ()), *LARGE[name])
    assert isinstance(given, Sliced) and sum(1 for _ in given.work) > 1


def test_every_primitive_of_many_operands_is_sliced() -> None:
    """A new primitive that takes any number of operands has its row above."""
    variadic = {each.canonical for each in PRIMITIVES.values() if each.arity[1] is None and not each.is_async}
    assert variadic - LARGE.keys() == {"format"}, "format is tested by its template"


def test_long_lists_are_gone_over_as_short_ones() -> None:
    """Searching, zipping and comparing give the same however many parts they take."""
    numbers = list(range(N))
    assert call("member", N - 1, numbers) == [N - 1]
    assert call("member", [N - 1], [[each] for each in numbers]) == [[N - 1]]
    assert call("member", "x", numbers) is False
    assert call("assoc", N - 1, [[each, 1] for each in numbers]) == [N - 1, 1]
    assert call("zip", numbers, numbers[1:]) == [[each, each + 1] for each in numbers[:-1]]
    assert call("equal?", numbers, list(numbers))
    assert not call("equal?", numbers, [*numbers[:-1], 0])
    assert not call("equal?", {str(n): n for n in numbers}, {str(n): n + (n == N - 1) for n in numbers})
    assert call("range", N) == numbers


def test_format_finds_its_slots_in_a_long_template() -> None:
    """Braces far apart, many of them, and none."""
    assert call("format", "x" * N) == "x" * N
    assert call("format", "{{" * N + "{}" + "y" * N, 5) == "{" * N + "5" + "y" * N
    assert call("format", "{}" * 3_000, *range(3_000)) == "".join(map(str, range(3_000)))
    with pytest.raises(LimitExceeded):
        Bounds(Limits(string=1_000)).call(PRIMITIVES["format"], "{}" * 300, *["12345"] * 300)
