"""Primitives called directly: the table's own rules, sizes charged before allocation, no way out to Python."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from pydantic import BaseModel, Field

from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import Symbol
from agentflow.lang.builtins import PRIMITIVES
from tests.support.bounds import Bounds
from tests.support.data import DATA
from tests.support.spending import at_most


def call(name: str, *arguments: Any, limits: Limits | None = None) -> Any:
    """A primitive's value, as a run would get it."""
    made = PRIMITIVES[name]
    made.check_arity(len(arguments))
    assert not made.is_async
    return Bounds(limits or Limits()).call(made, *arguments)


def code_of(function: Callable[[], Any]) -> str:
    """The code of the error a call raises."""
    with pytest.raises(AgentflowError) as caught:
        function()
    return caught.value.code


def test_every_primitive_is_documented() -> None:
    """Usage begins with the name, the documentation is a sentence, the table is sorted and cannot be changed."""
    assert list(PRIMITIVES) == sorted(PRIMITIVES)
    for name, made in PRIMITIVES.items():
        assert made.usage == f"({name})" or made.usage.startswith(f"({name} "), name
        assert made.doc.strip().splitlines()[0].endswith("."), name
    with pytest.raises(TypeError):
        PRIMITIVES["evil"] = PRIMITIVES["list"]  # type: ignore[index]


HOSTILE: list[tuple[str, tuple[Any, ...], str]] = [
    ("range", (10**12,), "limits/collection"),
    ("range", (10**4_000,), "limits/collection"),
    ("range", (0, -(10**12), -1), "limits/collection"),
    ("*", (1 << 900_000, 1 << 900_000), "limits/integer-bits"),
    ("+", ((1 << 1_000_000) - 1, 1), "limits/integer-bits"),
    ("-", (-(1 << 1_000_000) + 1, 1), "limits/integer-bits"),
    ("string-append", tuple(["x" * 2_000_000] * 7), "limits/string"),
    ("string-join", (["x" * 2_000_000] * 7, ""), "limits/string"),
    ("string-replace", ("a" * 100_000, "a", "b" * 1_000_000), "limits/string"),
    ("format", ("{}" * 70, *["x" * 1_000_000] * 70), "limits/string"),
    ("string->number", ("9" * 1_000_000,), "limits/integer-digits"),
    ("number->string", (1 << 900_000,), "limits/integer-digits"),
    ("parse-json", ("[" * 1_000_000,), "limits/depth"),
    ("parse-json", ("9" * 1_000_000,), "json/invalid"),
]


@pytest.mark.parametrize(("name", "arguments", "code"), HOSTILE, ids=[f"{row[0]}-{i}" for i, row in enumerate(HOSTILE)])
def test_sizes_are_charged_before_allocation(name: str, arguments: tuple[Any, ...], code: str) -> None:
    """A call that would make something too large is refused within a second and without the memory."""
    tracemalloc.start()
    try:
        with at_most(1):
            assert code_of(lambda: call(name, *arguments)) == code
        assert tracemalloc.get_traced_memory()[1] < 80_000_000
    finally:
        tracemalloc.stop()


def test_doubling_ends_at_the_limit() -> None:
    """Repeated doubling of a list or string stops at the limit, not at the machine's memory."""
    small = Limits(collection=1_000, string=1_000)
    items: Any = [1]
    text = "x"
    with pytest.raises(LimitExceeded):
        while True:
            items = call("append", items, items, limits=small)
    with pytest.raises(LimitExceeded):
        while True:
            text = call("string-append", text, text, limits=small)
    assert len(items) <= 1_000 and len(text) <= 1_000


class Model(BaseModel):
    """A model with an alias, a property and a private attribute."""

    given_name: str = Field(default="Ada", alias="givenName")
    _secret: str = "hidden"

    @property
    def shout(self) -> str:
        """Never reached."""
        raise AssertionError("a property ran")


@dataclass
class Record:
    """A dataclass with a class attribute and a method."""

    size: int = 3
    _private: int = 4
    kind = "class attribute"

    def method(self) -> None:
        """Never reached."""


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "name", "wanted"),
    [
        (Model(), "given_name", "Ada"),
        (Model(), "givenName", "Ada"),
        (Model(), Symbol("givenName"), "Ada"),
        (Record(), "size", 3),
        (Point(1, 2), "y", 2),
        ({"a": 1}, Symbol("a"), 1),
        (TaskResult(parsedContent=[1]), "parsed_content", [1]),
        (TaskResult(parsedContent=[1]), "parsedContent", [1]),
    ],
)
def test_declared_fields_are_read(value: Any, name: Any, wanted: Any) -> None:
    """Keys of dicts and declared fields, by either spelling."""
    assert call("get-field", value, name) == wanted


UNREACHABLE = [
    "__class__", "__dict__", "__init__", "_secret", "_private", "shout", "method", "kind", "model_dump", "model_fields",
    "_fields", "count", "index", "copy", "__pydantic_extra__", "model_config", "_asdict", "",
]  # fmt: skip


@pytest.mark.parametrize("name", UNREACHABLE)
@pytest.mark.parametrize("value", [Model(), Record(), Point(1, 2), TaskResult()], ids=lambda v: type(v).__name__)
def test_nothing_else_is_reachable(value: Any, name: str) -> None:
    """Methods, properties, class attributes, private and dunder names are missing fields, never values."""
    assert call("get-field", value, name) == []


@pytest.mark.parametrize("value", [len, Model, Record, type, object(), (lambda: 1), 5, "text", Symbol("x"), [1]])
def test_values_without_declared_fields_are_refused(value: Any) -> None:
    """Functions, classes, modules and plain objects have no fields."""
    assert code_of(lambda: call("get-field", value, "__globals__")) == "type/argument"


@pytest.mark.parametrize(
    "template", ["{0}", "{a.b}", "{a[0]}", "{!r}", "{:>10}", "{a!r}", "{", "}", "{ }", "{{}", "{a:{b}}"]
)
def test_format_has_no_engine(template: str) -> None:
    """Only {} and {name} mean anything: no index, attribute, conversion or width."""
    assert code_of(lambda: call("format", template, {"a": "x", "b": 1})).startswith("format/")


@given(DATA, DATA)
@settings(max_examples=150, deadline=None)
def test_equal_agrees_with_python(a: Any, b: Any) -> None:
    """equal? is Python's == on data."""
    assert call("equal?", a, b) == (a == b)
    assert call("equal?", a, a) == (a == a)


@given(DATA)
@settings(max_examples=150, deadline=None)
def test_primitives_never_fail_untyped(value: Any) -> None:
    """Whatever data a primitive is given, it answers or raises an error of agentflow."""
    for made in PRIMITIVES.values():
        if made.is_async:
            continue
        least, most = made.arity
        for count in range(least, min(3, most if most is not None else 3) + 1):
            try:
                call(made.name, *[value] * count, limits=Limits(collection=1_000, string=10_000))
            except AgentflowError as error:
                assert len(str(error)) < 2_500


def test_wrong_arguments_are_named() -> None:
    """An error says which argument of which primitive is wrong, what it was, and how to mend it."""
    with pytest.raises(SexpEvaluationError) as caught:
        call("string-append", "n: ", 5)
    assert caught.value.code == "type/argument"
    assert caught.value.message == "string-append wants a string as argument 2, and was given integer 5"
    assert caught.value.hint is not None and "number->string" in caught.value.hint
