"""Template texts: what is substituted, what never is, and what the errors say."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentflow.core.data.errors import DataError, TaskError
from agentflow.core.data.requests import FunctionCallNode
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import Symbol
from agentflow.tasks.template import parse_text


def render(text: str, **values: Any) -> str:
    return parse_text(text).render(values)


def test_places_are_filled_in_one_pass() -> None:
    """Every ``{{name}}`` becomes its value; text around it stays as it is."""
    assert render("a {{x}} b {{ y }}{{x}}", x="1", y=2) == "a 1 b 21"


@given(st.text(), st.text())
def test_substituted_text_is_never_scanned_again(x: str, y: str) -> None:
    """A value that looks like a place stays the text it is, whatever it holds."""
    assert render("<{{x}}|{{y}}>", x=x + "{{y}}", y="{{x}}" + y) == f"<{x}{{{{y}}}}|{{{{x}}}}{y}>"


def test_plain_braces_can_be_written() -> None:
    """``\\{{`` stands for two braces; single braces need nothing."""
    assert render('\\{{x}} {"a": {"b": 1}} {{x}}', x=1) == '{{x}} {"a": {"b": 1}} 1'


class Point(BaseModel):
    x: int = 1
    long_name: str = Field(default="v", alias="longName")

    @property
    def secret(self) -> str:
        return "no"


@dataclasses.dataclass
class Pair:
    left: str = "l"
    _hidden: str = "h"


class Named(NamedTuple):
    first: int = 7


def test_fields_reach_data_only() -> None:
    """Dict keys, list indices and declared fields can be read, at any depth."""
    assert render("{{v.a.b.1}}", v={"a": {"b": [0, "one"]}}) == "one"
    assert render("{{v.x}} {{w.left}} {{n.first}}", v=Point(), w=Pair(), n=Named()) == "1 l 7"
    assert render("{{r.content}} {{r.notes.k}}", r=TaskResult(content="c", notes={"k": 1})) == "c 1"
    assert render("{{r.parsedContent}}", r=TaskResult(parsedContent={"k": 1})) == '{"k": 1}'


@pytest.mark.parametrize("path", ["secret", "model_dump", "copy", "nothing"])
def test_no_way_to_attributes_and_methods(path: str) -> None:
    """A name that is not a declared field is an error naming parameter and field, and offers the ones there are."""
    with pytest.raises(TaskError, match=f"parameter 'v' has no field '{path}'") as caught:
        render(f"{{{{v.{path}}}}}", v=Point())
    assert caught.value.code == "tasks/missing-field"
    assert caught.value.reason == "input_validation_failure"


@pytest.mark.parametrize("text", ["{{v._hidden}}", "{{v.__class__}}", "{{v.a.__init__}}"])
def test_names_with_underscore_are_no_syntax(text: str) -> None:
    """A field beginning with ``_`` is refused when the template is parsed."""
    with pytest.raises(DataError) as caught:
        parse_text(text)
    assert caught.value.code == "tasks/template-syntax"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("s", "s"),
        (Symbol("sym"), "sym"),
        (None, ""),
        (True, "true"),
        ([1, "a"], '[1, "a"]'),
        ({"k": "é"}, '{"k": "é"}'),
        (TaskResult(content="answer", notes={"x": 1}), "answer"),
    ],
)
def test_values_read_as_text(value: object, text: str) -> None:
    """Text as it is, symbols by name, results by content, nothing as nothing, other data as JSON."""
    assert render("{{v}}", v=value) == text


@pytest.mark.parametrize(
    "text",
    ["{{", "{{}}", "{{ 1 }}", "{{x", "{{x y}}", "{{x.}}", "{{f(}}", "{{f(a,)}}", "{{f(a b)}}", "{{f(k=1, 2)}}",
     "{{f(k=1, k=2)}}", '{{f("a)}}', "{{x | upper}}", "{{f(" * 30 + "1" + ")" * 30 + "}}"],
)  # fmt: skip
def test_bad_syntax_has_a_place_and_a_mend(text: str) -> None:
    """What cannot be a place is an error with a span and what to write."""
    with pytest.raises(DataError) as caught:
        parse_text("line one\n" + text)
    error = caught.value
    assert error.code == "tasks/template-syntax"
    assert error.span is not None and error.span.line == 2
    assert error.hint and "\\{{" in error.hint


async def calls_of(text: str, **values: Any) -> list[FunctionCallNode]:
    seen: list[FunctionCallNode] = []

    async def call(node: FunctionCallNode) -> str:
        seen.append(node)
        return f"<{node.template_name}>"

    seen_text = await parse_text(text).render_with(values, call)
    assert "<f>" in seen_text
    return seen


async def test_function_arguments_are_variables_first_then_literals() -> None:
    """A bare word is a variable when there is one, else the text it is; quoted text is always text."""
    (node,) = await calls_of(
        '{{f(x, y, "x", k=x, l=\'it\\\'s "q"\', 1.5, -2, true, null)}}'.replace(", 1.5, -2, true, null", ""), x=[1]
    )
    assert node.arguments == [[1], "y", "x"]
    assert node.named_arguments == {"k": [1], "l": 'it\'s "q"'}
    (node,) = await calls_of("{{f(1.5, -2, true, null, x.a)}}", x={"a": "deep"})
    assert node.arguments == [1.5, -2, True, None, "deep"]


async def test_function_calls_nest() -> None:
    """A call may be an argument; inner calls run first and their text is the value."""
    nodes = await calls_of("{{f(g(1), k=g(2))}}")
    assert [node.template_name for node in nodes] == ["g", "g", "f"]
    assert nodes[-1].arguments == ["<g>"]


def test_compiled_text_knows_what_it_needs() -> None:
    """Variables and functions are known without rendering."""
    text = parse_text("{{a}} {{b.c}} {{f(d, g(e))}}")
    assert text.variables == ("a", "b")
    assert text.functions == ("f", "g")
