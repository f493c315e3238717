"""Descriptions come from docstrings in Google, NumPy and Sphinx style."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentflow.handler.tools import tool_from_function
from agentflow.lib.signature import describe


def google(a: int, b: str) -> str:
    """Join two things.

    Does it well.

    Args:
        a (int): the first,
            over two lines
        b: the second

    Returns:
        Something.
    """
    return ""


def numpy(a: int, b: str) -> str:
    """Join two things.

    Does it well.

    Parameters
    ----------
    a : int
        the first,
        over two lines
    b
        the second

    Returns
    -------
    str
        Something.
    """
    return ""


def sphinx(a: int, b: str) -> str:
    """Join two things.

    Does it well.

    :param int a: the first,
        over two lines
    :type a: int
    :param b: the second
    :returns: Something.
    """
    return ""


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_styles(function: Callable[..., Any]) -> None:
    """All three styles give the same."""
    about, parameters = describe(function)
    assert about == "Join two things.\n\nDoes it well."
    assert parameters == {"a": "the first, over two lines", "b": "the second"}


def test_none() -> None:
    """Without a docstring there is nothing to say, and that is not an error."""
    assert describe(lambda: None) == ("", {})


def test_several_names_and_stars() -> None:
    """A description of several parameters at once is each one's; stars are not part of a name."""

    def numpy_style(a: int, b: int, *rest: int, **options: int) -> None:
        """Add.

        Parameters
        ----------
        a, b : int
            a number
        *rest
            more of them
        **options
            how
        """

    assert describe(numpy_style)[1] == {"a": "a number", "b": "a number", "rest": "more of them", "options": "how"}


@given(st.lists(st.sampled_from([*"abc:*-", "Args", "Returns", ":param", "---", "\n", "\n    ", " "])).map("".join))
def test_no_docstring_is_an_error(text: str) -> None:
    """Whatever a docstring says, a tool can be made of its function."""

    def function() -> None: ...

    function.__doc__ = text
    assert tool_from_function(function).spec.name == "function"


class Place(BaseModel):
    city: str
    zip: int | None = None


async def test_schema() -> None:
    """The schema says types, defaults, required names, descriptions; nested models and literals included."""

    def visit(place: Place, mode: Literal["car", "train"] = "train", days: list[int] | None = None) -> None:
        """Visit.

        Args:
            place: where to
        """

    schema = tool_from_function(visit).spec.input_schema
    assert schema["required"] == ["place"] and schema["additionalProperties"] is False
    assert schema["properties"]["mode"] == {"default": "train", "enum": ["car", "train"], "type": "string"}
    assert schema["properties"]["place"]["description"] == "where to"
    assert "Place" in schema["$defs"]
