"""Twins made from words: the quick ways to open arguments give what the slow one gives, for every letter and kind of value."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.labels import NO_SOURCES, Label, bare, outer_sources
from agentflow.core.data.values import OrderedSet, SharedList
from agentflow.core.data.walk import finish
from agentflow.lang.builtins.labelled import following
from agentflow.lang.builtins.opening import opened, opened_now
from agentflow.lang.builtins.registry import Out, letters_of
from agentflow.lang.calling import Sliced
from agentflow.lang.python.values import MISSING

A, B = frozenset({"a"}), frozenset({"b"})
VALUES: dict[str, Any] = {
    "number": 3,
    "text": "xy",
    "left out": MISSING,
    "boxed text": Label("xy", A),
    "empty": [],
    "list": [1, "x"],
    "long list": list(range(100)),
    "boxed list": Label([1, "x"], A),
    "list of boxes": [1, Label("x", B)],
    "boxed list of boxes": Label([Label(1, B)], A),
    "list of lists": [[Label(1, B)]],
    "tuple": (1, Label(2, B)),
    "boxed tuple": Label((1, 2), A),
    "dict": {"k": 1},
    "boxed dict": Label({"k": 1}, A),
    "dict of boxes": {Label("k", A): Label(1, B)},
    "set": OrderedSet([1, 2]),
    "set of boxes": OrderedSet([1, Label(2, B)]),
    "boxed set": Label(OrderedSet([1]), A),
    "shared list": SharedList.of([1, Label(2, B)]),
    "function": len,
}
"""Values of each kind that functions tell apart, with boxes around and within."""
LETTERS = "koprneicw"


def view(value: Any) -> Any:
    """What is in a value, with its boxes."""
    if type(value) is Label:
        return ("box", view(value.value), sorted(value.sources))
    if isinstance(value, list | tuple | SharedList | OrderedSet):
        return (type(value).__name__, [view(each) for each in value])
    if isinstance(value, dict):
        return ("dict", [(view(key), view(each)) for key, each in value.items()])
    return repr(value)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("letter", LETTERS)
def test_what_is_opened_at_once_is_what_a_search_gives(letter: str, kind: str) -> None:
    """The quick way gives the same value and sources, or nothing."""
    now = opened_now(letter, [VALUES[kind]])
    searched = finish(opened(letter, [VALUES[kind]]))
    assert now is None or (view(now[0]), now[1]) == (view(searched[0]), searched[1])


@pytest.mark.parametrize("kind", ["number", "text", "boxed text", "tuple", "boxed tuple"])
def test_a_function_of_numbers_texts_and_keys_reads_them_whole(kind: str) -> None:
    """Its letter opens all that is no error for it as a search does."""
    assert opened_now("s", [VALUES[kind]]) == finish(opened("r", [VALUES[kind]]))


def received(*values: Any, **named: Any) -> Any:
    """What a function was called with."""
    return [*values, named]


def with_strand(rt: Any, *values: Any, **named: Any) -> Any:
    """The same for one that takes the strand."""
    return [*values, named]


def failing(*values: Any, **named: Any) -> Any:
    """The same, said by an error."""
    raise SexpEvaluationError("it failed", code="value/invalid", details={"shown": view([*values, named])})


@pytest.mark.parametrize("word", [*LETTERS, *map("".join, itertools.product("koren", repeat=2)), "rkr"])
def test_a_twin_calls_its_function_with_what_its_word_opens(word: str) -> None:
    """However many arguments there are, by position or name, with a strand before them or without; an error says the same sources."""
    twins = [
        (following(received, word, 0), ()),
        (following(with_strand, word, 1), (None,)),
        (following(failing, word, 0), ()),
    ]
    for count, named in itertools.product(range(4), ({}, {"key": VALUES["list of boxes"]})):
        for pair in itertools.product(VALUES.values(), repeat=min(count, 2)):
            values = [*pair, *pair[:1]] if count == 3 else [*pair]
            letters = letters_of(word, count) + "r" * len(named)
            shown, sources = finish(opened(letters, [*values, *named.values()]))
            expected = view([*shown[:count], dict(zip(named, shown[count:], strict=True))])
            for twin, first in twins:
                try:
                    value = twin(*first, *values, **named)
                    value = finish(value.work) if type(value) is Sliced else value
                    got = view(bare(value)), outer_sources(value)
                except AgentflowError as error:
                    got = error.details["shown"], error.sources
                assert got == (expected, sources), (word, values, named)


def pair(value: Any) -> Any:
    """A result."""
    return [1, 2]


def error(value: Any) -> Any:
    """A result that is raised later."""
    return SexpEvaluationError("x", code="value/invalid")


def test_a_result_has_the_form_that_the_row_says() -> None:
    """In a box, without one, with each of its elements in one, or as an error that depends on the sources; without sources it is the function's."""
    shown: dict[Out, Any] = {"box": Label([1, 2], A), "bare": [1, 2]}
    for out, expected in shown.items():
        assert view(following(pair, "o", 0, out=out)(Label(0, A))) == view(expected)
        assert view(following(pair, "o", 0, out=out)(0)) == view([1, 2])
    assert view(list(following(pair, "o", 0, out="each")(Label(0, A)))) == view([Label(1, A), Label(2, A)])
    assert following(error, "o", 0, out="error")(Label(0, A)).sources == A
    assert following(error, "o", 0, out="error")(0).sources == NO_SOURCES
