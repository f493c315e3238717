"""Objects of the host in programs of both surfaces: comparing and testing them runs no code of their classes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, ScriptedProvider
from tests.hostile.test_hostile_python import Trap

SEXP: dict[str, Any] = {
    "(equal? host 1)": False,
    "(equal? 1 host)": False,
    "(eq? host host)": True,
    "(equal? (list host) (list host))": True,
    '(equal? (dict "a" host) (dict "a" host))': True,
    '(equal? (dict "a" host) (dict "a" 1))': False,
    "(length (member host (list 1 host)))": 1,
    "(member 2 (list host 1))": False,
    "(length (member 1 (list host 1)))": 1,
    "(assoc host (list (list 1 2)))": False,
    "(case host ((1) 2) (else 3))": 3,
    "(if host 1 2)": 1,
    "(not host)": False,
    "(and host 1)": 1,
    "(eq? (or host 1) host)": True,
    "(and 1 host 2)": 2,
    "(or false nil host)": "host",
    "(when host 1)": 1,
    "(unless host 1)": [],
    "(cond (host 1) (else 2))": 1,
    "(cond (host => (lambda (x) 1)) (else 2))": 1,
    "(do ((i 0 (+ i 1))) (host i))": 0,
    "(begin (while (not host) 1) 2)": 2,
    "(length (filter (lambda (x) x) (list host 0)))": 1,
    "(let f ((x host)) (if x 1 (f x)))": 1,
    "(length (sort (list 2 1) (lambda (a b) host)))": 2,
}
PYTHON: dict[str, Any] = {
    "host == 1": False,
    "1 != host": True,
    "host == host": True,
    "{'a': host} == {'a': host}": True,
    "(host,) == (1,)": False,
    "host in [1, host]": True,
    "[1, host].index(host)": 1,
    "[host, 1].count(1)": 1,
    "1 if host else 2": 1,
    "not host": False,
    "host and 1": 1,
    "0 or host": "host",
    "any([host])": True,
    "all([host, 0])": False,
    "[x for x in [host, 0] if x] == [host]": True,
    "list(filter(None, [host])) == [host]": True,
    "bool(host)": True,
    "while not host:\n    pass\n2": 2,
    "max([1, 2], key=lambda x: x if host else -x)": 2,
}


async def value_of(text: str, surface: Any, host: Any) -> Any:
    """The value of a program with an object bound, ``"host"`` if it is that object."""
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        value = (await flow.run(text, bindings={"host": host}, surface=surface)).value
    return "host" if value is host else value


@pytest.mark.parametrize(
    ("text", "surface"), [*((each, "sexp") for each in SEXP), *((each, "python") for each in PYTHON)]
)
async def test_no_code_of_a_class_is_run(text: str, surface: str) -> None:
    """Equality and truth of an object whose class traps everything: it is true, and equals itself alone."""
    trap = Trap()
    value = await value_of(text, surface, trap)
    assert value == (SEXP if surface == "sexp" else PYTHON)[text]
    assert not trap.run


class Key:
    """A key of the host's that takes itself for the text "a", and notes that it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __hash__(self) -> int:
        self.asked.append("hash")
        return hash("a")

    def __eq__(self, other: object) -> bool:
        self.asked.append("eq")
        return True


@pytest.mark.parametrize(
    ("text", "surface"),
    [
        *(
            (each, "sexp")
            for each in ('(equal? d (dict "a" 1))', '(equal? (dict "a" 1) d)', "(equal? (list d) (list e))")
        ),
        *((each, "python") for each in ("d == {'a': 1}", "{'a': 1} == d", "[d] == [e]", "d in [{'a': 1}]")),
    ],
)
async def test_keys_that_are_objects_are_not_compared(text: str, surface: Any) -> None:
    """Dicts of the host whose keys are objects equal themselves alone, whatever their keys would say."""
    key = Key()
    bindings: dict[str, Any] = {"d": {key: 1}, "e": {Key(): 1}}
    key.asked.clear()
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        assert (await flow.run(text, bindings=bindings, surface=surface)).value is False
        assert (await flow.run("(equal? d d)", bindings=bindings)).value is True
    assert not key.asked


class Colour(Enum):
    """An enumeration of the host's."""

    RED = 1


class Point(BaseModel):
    """A model of the host's."""

    x: int


class Loud(dict[str, Any]):
    """A dict of the host's with code of its own."""

    def __len__(self) -> int:
        raise AssertionError("counted")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (datetime(2026, 1, 1), datetime(2026, 1, 1), True),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), False),
        (timedelta(1), timedelta(2), False),
        (Decimal("1.0"), Decimal("1"), True),
        (Decimal(1), 1, True),
        (UUID(int=1), UUID(int=1), True),
        (Path("a"), Path("a"), True),
        (Colour.RED, Colour.RED, True),
        (b"a", b"a", True),
        (frozenset({1}), frozenset({1}), True),
        (Point(x=1), Point(x=1), True),
        (Point(x=1), Point(x=2), False),
        (Loud(a=1), {"a": 1}, True),
        (Loud(a=1), {"a": 2}, False),
        (object(), object(), False),
    ],
)
async def test_values_of_python_itself_are_compared(a: Any, b: Any, same: bool) -> None:
    """Dates, decimals and their like are equal by what they say, models and dicts of the host by their parts."""
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        assert (await flow.run("(equal? a b)", bindings={"a": a, "b": b})).value is same


@pytest.mark.parametrize(
    ("host", "true"), [(timedelta(0), False), (Decimal(0), False), (Decimal(2), True), (b"", False)]
)
async def test_values_of_python_itself_are_tested(host: Any, true: bool) -> None:
    """Truth of types written in C is theirs."""
    assert await value_of("(if host true false)", "sexp", host) is true
