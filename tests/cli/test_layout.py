"""Wide data is printed on several lines, and is the same data."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.cli.shared.printed_values import MAX_TEXT, WIDTH, in_lines, print_data, show_value
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.core.data.values import OrderedSet
from agentflow.lang.reader import read
from agentflow.lang.syntax import datum

ATOMS = st.one_of(st.integers(), st.booleans(), st.text(max_size=12))
DATA: st.SearchStrategy[Any] = st.recursive(
    ATOMS,
    lambda inner: st.one_of(st.lists(inner, max_size=12), st.dictionaries(st.text(max_size=8), inner, max_size=6)),
    max_leaves=40,
)


@given(value=DATA)
@settings(max_examples=50)
def test_lines_are_short_and_read_as_the_same_data(value: Any) -> None:
    """Whatever is nested in what; only what is nested too deep for its indent may be wider."""
    text = in_lines(value, print_data)
    (form,) = read(Source("x", text))
    assert print_data(datum(form)) == print_data(value)
    deepest = max(len(line) - len(line.lstrip(" ({")) for line in text.split("\n"))
    assert deepest > 20 or all(len(line) <= WIDTH + 20 for line in text.split("\n"))


def test_what_fits_stays_on_one_line_and_so_does_what_nobody_reads() -> None:
    """A short value looks as it always did."""
    assert in_lines([1, [2, 3], {"a": 4}], print_data) == '(1 (2 3) {"a" 4})'
    assert "\n" not in in_lines(list(range(MAX_TEXT)), print_data)


def test_atoms_fill_lines_and_nested_values_have_their_own() -> None:
    """A list of numbers is a paragraph; a list of lists is a table of lines."""
    numbers = in_lines(list(range(60)), print_data).split("\n")
    assert len(numbers) == 3 and numbers[1].startswith(" ")
    rows = in_lines([{"path": "a" * 30, "score": n} for n in range(3)], print_data).split("\n")
    assert [row.strip(" ()") for row in rows] == [f'{{"path" "{"a" * 30}" "score" {n}}}' for n in range(3)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([True, None, 1.5, {"a": (1,), 3: ["x"]}], "[True, None, 1.5, {'a': (1,), 3: ['x']}]"),
        (TaskResult.complete("done"), "done"),
        ([1, TaskResult.complete("done")], "[1, 'done']"),
        ("plain", "plain"),
        (OrderedSet([2, 1]), "{2, 1}"),
        ([float("inf"), "x"], "[inf, 'x']"),
    ],
)
def test_values_of_texts_in_python_are_shown_as_python_writes_them(value: object, text: str) -> None:
    """Data in Python's notation, texts and results as they are."""
    assert show_value(value, "python") == text


def test_long_data_of_texts_in_python_is_laid_out() -> None:
    """Over several lines that Python reads as the same data, in its order."""
    value = [{"z": ["x" * 30] * 4, "a": (1, 2)}, {"b": None, "one": ("y" * 50, ["z" * 40]), "last": ({"k": "v" * 50},)}]
    text = show_value(value, "python")
    assert literal_eval(text) == value and text.index("'z'") < text.index("'a'")
    assert max(map(len, text.split("\n"))) <= WIDTH and "\n" in text
