"""Which tests are the inner loop, and which the run of a newcomer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.support.marks import SUBJECTS, is_chosen, is_fast


@pytest.mark.parametrize(
    ("subject", "earlier", "marks", "fixtures", "fast"),
    [
        ("lang", 0, (), (), True),
        ("lang", 2, (), (), False),  # the third item of a parametrized function
        ("spec", 40, (), (), True),  # a row of a page is a rule
        ("lang", 0, ("slow",), (), False),
        ("journal", 0, (), ("postgres_url",), False),
        ("cli", 0, (), (), False),
    ],
)
def test_the_inner_loop_has_each_rule_and_no_process(
    subject: str, earlier: int, marks: Sequence[str], fixtures: Sequence[str], fast: bool
) -> None:
    """Two items of a function, all rows of pages, nothing that is slow or starts a process."""
    assert is_fast(subject, earlier, marks, fixtures) is fast


def test_a_test_has_the_mark_of_its_directory(request: pytest.FixtureRequest) -> None:
    """This one is about the architecture, and every directory of tests is a mark."""
    assert "architecture" in SUBJECTS and len(SUBJECTS) > 25
    assert {"architecture", "fast"} <= {mark.name for mark in request.node.iter_markers()}


@pytest.mark.parametrize("count", [1, 16, 17, 31, 480])
def test_the_newcomers_run_has_items_of_all_parts_of_a_list(count: int) -> None:
    """All items of a short list; of a long one 16, with equal distances and the first among them."""
    chosen = [index for index in range(count) if is_chosen(index, count)]
    assert chosen[0] == 0 and len(chosen) == min(count, 16)
    steps = {later - earlier for earlier, later in pairwise(chosen)}
    assert max(steps, default=0) - min(steps, default=0) <= 1
