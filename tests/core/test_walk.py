"""Data of any size and shape is gone over in parts, each shared part once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.core.data.json_text import encoded
from agentflow.core.data.known_names import content_mark
from agentflow.core.data.values import SharedList, is_long, json_work, plain, plain_lists, text_size, to_json
from agentflow.core.data.walk import TooDeep, finish

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=6),
    max_leaves=40,
)


def doubled(times: int, leaf: Any = 1) -> Any:
    """Lists that share their parts: a few objects that would write out as 2 ** times leaves."""
    for _ in range(times):
        leaf = [leaf, leaf]
    return leaf


def parts(work: Any) -> tuple[int, Any]:
    """In how many parts work is done, and what it gives."""
    count = 0
    while True:
        try:
            next(work)
            count += 1
        except StopIteration as done:
            return count, done.value


@given(JSON, st.sampled_from([None, 0, 1, 2]), st.booleans(), st.sampled_from([2, 9, 40, 64_000]))
@settings(max_examples=150, deadline=None)
def test_text_in_pieces_is_the_text(value: Any, indent: int | None, compact: bool, at_once: int) -> None:
    """However large the pieces are that are encoded at once, the text is that of the encoder."""
    text = finish(encoded(value, indent=indent, compact=compact, at_once=at_once))
    separators = (",", ":") if compact else None
    assert text == json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)


@given(JSON, st.integers(0, 300))
@settings(max_examples=100, deadline=None)
def test_what_is_long_is_known_by_its_text(value: Any, size: int) -> None:
    """Data that counts as long has a text about as long, and the other way round."""
    text = len(json.dumps(value, ensure_ascii=False))
    assert not is_long(value, text) and (is_long(value, size) or text <= 16 * (size + 1))


def test_what_is_long_is_known_without_going_over_all_of_it() -> None:
    """Data that would write out to 10^18 characters is long at once."""
    assert is_long(doubled(60))


@given(JSON)
@settings(max_examples=100, deadline=None)
def test_a_copy_is_equal_and_new(value: Any) -> None:
    """JSON data is its own copy, and shares no list or dict with it."""
    copy = plain(value)
    assert copy == value
    assert not isinstance(value, list | dict) or copy is not value


def test_shared_parts_are_copied_once() -> None:
    """Data that would write out to 10^18 parts is copied, measured and named at once; its text is refused."""
    data = doubled(60)
    copy = plain(data)
    assert copy[0] is copy[1] and copy[0] is not data[0]
    assert finish(text_size(data)) > 10**18
    assert content_mark("x", (data,)) == content_mark("x", (doubled(60),)) != content_mark("x", (doubled(61),))
    with pytest.raises(ValueError, match="more than 10\\^18"):
        to_json(data)


def test_what_is_shared_and_small_is_written_out() -> None:
    """Sharing is seen by nobody as long as the text is of a reasonable length."""
    assert json.loads(to_json(doubled(10))) == doubled(10)


def test_data_within_itself_is_refused() -> None:
    """A host's list that holds itself has no text and no copy without an end."""
    data: list[Any] = []
    data.append(data)
    with pytest.raises(TooDeep):
        to_json(data)


def test_names_do_not_depend_on_sharing() -> None:
    """Equal content has equal names, whichever parts of it are the same object."""
    leaf = ["x" * 500_000]
    assert content_mark("k", ([leaf, leaf, leaf],)) == content_mark("k", ([list(leaf), list(leaf), list(leaf)],))


@pytest.mark.parametrize(
    "value",
    [list(range(200_000)), [[n] for n in range(50_000)], {str(n): n for n in range(100_000)}, "x" * 5_000_000],
    ids=["flat", "nested", "dict", "text"],
)
def test_large_data_is_written_in_many_parts(value: Any) -> None:
    """So that a strand may pause between them."""
    count, text = parts(json_work(value))
    assert count >= 20
    assert text == json.dumps(value)


def test_lists_of_the_language_are_replaced_once() -> None:
    """A shared list that occurs twice is one Python list that occurs twice."""
    inner = SharedList.of(list(range(100))).after(1)
    value = plain_lists([inner, {"a": inner}])
    assert type(value[0]) is list and value[0] is value[1]["a"]
