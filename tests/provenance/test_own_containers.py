"""A container that a function made and keeps to itself may be changed at any place: no other name of it may stay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.provenance.strict_programs import KINDS, SECRETS, Observer, differ

TEXT = """
keep = []
def check(q):
    if q > 1:
        raise ValueError('x')
def same(q):
    return q
def f():
    {made}
    {held}
    check(s)
    {change}
try:
    f()
except Exception:
    pass
try:
    send([len(each) if isinstance(each, list) else each for each in keep])
except Exception:
    pass
send("end")
"""
HELD = {
    "an arm": "keep.append(xs if n else 0)",
    "a variable of an arm": "ys = xs if n else 0\n    keep.append(ys)",
    "an operand": "keep.append(xs or 0)",
    "the start of a sum": "keep.append(sum([], xs))",
    "the greatest": "keep.append(max(xs, [-1]))",
    "an element": "keep.append([xs][0])",
    "a default": "keep.append({}.get('a', xs))",
    "an assignment in an expression": "if (ys := xs):\n        keep.append(ys)",
    "a loop": "for q in [xs]:\n        keep.append(q)",
    "a comprehension": "keep.append([q for q in [xs]][0])",
    "a function": "keep.append(same(xs))",
    "a branch": "keep.append(parallel(xs, 1)[0])",
    "a list changed before": "ys = xs\n    xs += [2]\n    keep.append(ys)",
}
MADE = {
    "its own element": "xs = [keep]\n    xs = xs[0]",
    "its last element": "xs = [keep]\n    xs = xs.pop()",
    "its own entry": "xs = {'a': keep}\n    xs = xs['a']",
    "an element of its copy": "xs = [keep]\n    xs = list(xs)[0]",
    "an element of its sum": "xs = [keep]\n    xs = (xs + [])[0]",
    "one of its values": "xs = {'a': keep}\n    xs = list(xs.values())[0]",
    "another one": "xs = keep",
    "the start of a sum": "xs = sum([], keep)",
    "an arm": "xs = keep if n else []",
}
CHANGES = {
    "a call": "xs.append(1)",
    "an addition": "xs += [1]",
    "a comprehension": "[xs.append(1) for q in [1]]",
    "a nested comprehension": "[[xs.append(1) for q in [1]] for r in [1]]",
    "any": "any(xs.append(1) for q in [1])",
}
TEXTS = {
    **{f"held by {way}": TEXT.format(made="xs = [0]", held=held, change="xs.append(1)") for way, held in HELD.items()},
    **{f"made of {way}": TEXT.format(made=made, held="0", change="xs.append(1)") for way, made in MADE.items()},
    **{
        f"held, changed by {way}": TEXT.format(made="xs = [0]", held="keep.append(xs)", change=change)
        for way, change in CHANGES.items()
    },
    **{
        f"elsewhere, changed by {way}": TEXT.format(made="xs = keep", held="0", change=change)
        for way, change in CHANGES.items()
    },
}


@pytest.fixture
async def observer(tmp_path: Path) -> AsyncIterator[Observer]:
    observer = Observer(tmp_path, surface="python")
    async with observer.flow:
        yield observer


@pytest.mark.parametrize("name", TEXTS)
async def test_no_other_name_of_a_container_tells_a_secret(name: str, observer: Observer) -> None:
    """An error that skips a change of a container leaves its label as it was, so that another name would tell whether it happened."""
    for secrets in (SECRETS, KINDS):
        runs = [await observer.run(TEXTS[name], each) for each in secrets]
        assert not any([differ(runs[0], each) for each in runs[1:]]), runs


@pytest.mark.parametrize("change", ["found.append(q)", "found += [q]", "found = found + [q]"])
async def test_what_is_kept_to_the_function_may_be_changed_and_chosen(change: str, observer: Observer) -> None:
    """The container may be tested, given back by an arm, and read by functions."""
    text = f"def f():\n    found = []\n    for q in items:\n        {change}\n    return found if found and n else None\nf()\nsend(1)"
    assert await observer.run(text, SECRETS[0]) == ("ended", [1])
