"""Printing: data reads back equal, nothing recurses, nothing is larger than allowed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings

from agentflow.core.data.context import MatchItem
from agentflow.core.data.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import Symbol, text_size, to_json
from agentflow.core.data.walk import finish
from agentflow.lang.equality import equal
from agentflow.lang.json_writer import json_work
from agentflow.lang.printer import print_value
from agentflow.lang.reader import read
from agentflow.lang.syntax import datum
from tests.support.bounds import Bounds
from tests.support.data import DATA, same


def write_json(value: Any) -> str:
    """``value`` as to-json writes it."""
    return finish(json_work(value, Bounds()))


def nested(levels: int) -> list[Any]:
    """A list that many levels deep."""
    made: list[Any] = []
    for _ in range(levels - 1):
        made = [made]
    return made


def doubled(times: int) -> list[Any]:
    """A list that shares its structure: it takes ``times`` small lists and would write out as 2 ** times parts."""
    made: list[Any] = [1]
    for _ in range(times):
        made = [made, made]
    return made


@given(DATA)
@settings(max_examples=150, deadline=None)
def test_printed_data_reads_back_equal(value: Any) -> None:
    """read(print(x)) == x, types included; a symbol that cannot be spelled comes back as the string it equals."""
    (node,) = read(print_value(value))
    back = datum(node)
    assert same(value, back)
    assert equal(value, back)


@given(DATA)
@settings(max_examples=100, deadline=None)
def test_measuring_is_a_lower_bound_of_the_text(value: Any) -> None:
    """The size charged before a text is made is never more than the text comes to."""
    assert finish(text_size(value)) <= len(to_json([value]))


def test_floats_without_digits() -> None:
    """Infinities and not-a-number have names that read back."""
    text = print_value([math.inf, -math.inf, math.nan])
    assert text == "(+inf.0 -inf.0 +nan.0)"
    back = datum(read(text)[0])
    assert back[:2] == [math.inf, -math.inf] and math.isnan(back[2])


def test_quotes_print_as_they_are_written() -> None:
    """(quote x) prints as 'x, and a list that only begins with quote does not."""
    assert print_value([Symbol("quote"), [Symbol("unquote"), Symbol("x")]]) == "',x"
    assert print_value([Symbol("quote"), 1, 2]) == "(quote 1 2)"


def test_deep_data_is_printed_or_refused() -> None:
    """A thousand levels print; one more is limits/depth, in the program notation and in JSON alike."""
    assert print_value(nested(1_000)) == "(" * 1_000 + ")" * 1_000
    assert json.loads("[" * 150 + "]" * 150) == json.loads(write_json(nested(150)))
    assert write_json(nested(1_000)) == "[" * 1_000 + "]" * 1_000
    for write in (print_value, write_json):
        with pytest.raises(LimitExceeded) as caught:
            write(nested(1_001))
        assert caught.value.code == "limits/depth"


def test_shared_structure_is_measured_before_it_is_written() -> None:
    """Sixty doublings would write out to 10^18 characters: refused at once, and compared at once."""
    with pytest.raises(LimitExceeded) as caught:
        write_json(doubled(60))
    assert caught.value.code == "limits/string"
    assert equal(doubled(60), doubled(60))
    assert not equal(doubled(60), doubled(61))
    assert print_value(doubled(60), limit=100).endswith("...")


def test_long_integers_are_refused() -> None:
    """Writing an integer of more than 4,300 digits would take quadratic time."""
    with pytest.raises(LimitExceeded) as caught:
        print_value([10**4_300])
    assert caught.value.code == "limits/integer-digits"
    assert print_value(10**4_299) == "1" + "0" * 4_299


def test_json_of_models_and_symbols() -> None:
    """A result is an object of its declared fields under their JSON names; a symbol is a string."""
    made = json.loads(write_json({Symbol("r"): TaskResult(content="x", parsedContent={"a": Symbol("b")})}))
    assert made["r"]["parsedContent"] == {"a": "b"} and made["r"]["status"] == "COMPLETE"


@pytest.mark.parametrize("value", [math.inf, math.nan, print, [object()]])
def test_what_json_has_no_word_for_is_an_error(value: Any) -> None:
    """No made-up JSON: infinities and procedures are refused by name."""
    with pytest.raises(SexpEvaluationError) as caught:
        write_json(value)
    assert caught.value.code == "json/unrepresentable"


def test_opaque_values_print_without_running_their_code() -> None:
    """An object of the host prints as its kind; its own __repr__ and __str__ are never called."""

    class Secret:
        def __repr__(self) -> str:
            raise AssertionError("printed by its own code")

        __str__ = __repr__

    assert print_value([Secret(), print]) == "(#<object Secret> #<procedure print>)"


def test_a_match_prints_as_its_fields() -> None:
    """What a lookup found is data: it prints as a dict, wherever it stands, and reads back as one."""
    match = MatchItem(path="a.py", content='say "hi"', score=0.5, metadata={"terms": ["hi"]})
    (data,) = datum(read(print_value([match]))[0])
    assert data == {**dict(match), "metadata": {"terms": ["hi"]}}
