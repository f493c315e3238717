"""What becomes of the arguments of primitives: kept, opened, given to procedures, or read."""

from __future__ import annotations

import re

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.builtins.registry import letters_of
from agentflow.lang.environment import SexpEnvironment
from tests.support.sealed import Sealed
from tests.support.world import World

WORD = re.compile(r"[koer]*(\([koer]+\))?|[koer]-[koer]|r\|wk")
NAMED = sorted(name for name, each in PRIMITIVES.items() if each.flow and each.canonical == name)
CALLS = {
    "append": "(append a b)",
    "apply": "(apply (lambda (y z) y) a)",
    "assoc": "(assoc k pairs)",
    "caddr": "(caddr three)",
    "cadr": "(cadr a)",
    "cddr": "(cddr a)",
    "cons": "(cons x a)",
    "content": "(content done)",
    "dict": '(dict "k" x "l" x)',
    "endorse": '(endorse x "for a test")',
    "failed?": "(failed? done)",
    "filter": "(filter (lambda (y) true) a)",
    "for-each": "(for-each (lambda (y z) y) a b)",
    "get": '(get d "k" x)',
    "get-field": '(get-field d "k")',
    "identity": "(identity x)",
    "keys": "(keys d)",
    "list": "(list x x)",
    "map": "(map (lambda (y z) y) a b)",
    "merge": "(merge d d)",
    "nth": "(nth a 0 x)",
    "put": '(put d "m" x "n" x)',
    "reduce": "(reduce (lambda (y z) y) a)",
    "sort": "(sort a (lambda (y z) false))",
    "status": "(status done)",
    "value-of": "(value-of done)",
    "values": "(values d)",
    "zip": "(zip a b)",
}
"""A call of each primitive with a word, whose parts nobody can look into; those that are not here take one list."""


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_word_has_a_letter_for_each_argument(name: str) -> None:
    """A word speaks of no more arguments than there may be, and what has none reads them all."""
    primitive = PRIMITIVES[name]
    assert WORD.fullmatch(primitive.flow)
    head, _, turns = primitive.flow.rpartition("|")[2].replace("-", "").rstrip(")").partition("(")
    most = primitive.arity[1]
    assert most is None or (len(head) <= most and not turns)
    letters = {*letters_of(primitive.flow, most if most is not None else 4)}
    assert letters <= {*primitive.flow} - {*"()-|"} if primitive.flow else letters <= {"r"}


def test_letters_follow_in_turns() -> None:
    """The last letter is that of all further arguments; letters in parentheses follow in turns, one after a dash is that of the last argument,
    and a word of its own may be for a number of arguments."""
    assert letters_of(PRIMITIVES["put"].flow, 5) == "orkrk"
    assert letters_of(PRIMITIVES["map"].flow, 3) == "kee"
    assert letters_of(PRIMITIVES["+"].flow, 2) == "rr"
    assert [letters_of(PRIMITIVES["apply"].flow, count) for count in (2, 4)] == ["ke", "kkke"]
    assert [letters_of(PRIMITIVES["sort"].flow, count) for count in (1, 2)] == ["r", "wk"]


@pytest.mark.parametrize("name", NAMED)
async def test_what_is_kept_is_not_looked_into(name: str) -> None:
    """A primitive whose word keeps an argument, or opens it, never reads what is in it."""
    sealed = Sealed()
    bindings = {
        "x": sealed,
        "a": [sealed, sealed],
        "b": [sealed, sealed],
        "three": [sealed, sealed, sealed],
        "d": {"k": sealed, "l": sealed},
        "done": {"status": "COMPLETE", "content": "done", "parsedContent": [sealed], "notes": {}},
    }
    await World({}).run(CALLS.get(name, f"({name} a)"), SexpEnvironment(bindings))


@pytest.mark.parametrize("text", ["(sort a)", "(to-json a)", "(string-join a)"])
async def test_what_reads_does_look(text: str) -> None:
    """The seal breaks where a primitive without a word reads its argument, so it would break above."""
    sealed = Sealed()
    with pytest.raises((AssertionError, AgentflowError)):
        await World({}).run(text, SexpEnvironment({"a": [sealed, sealed]}))
