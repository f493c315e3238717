"""What a typed function says of its parameters reaches the schema, its defaults are what they say, and signatures are shared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, cast

import pytest
from pydantic import Field
from typing_extensions import Doc

from agentflow import AgentFlow, ScriptedProvider
from agentflow.lib.signature import ToolInputError, signature_of


def described(
    plain: Annotated[str, "the plain one"],
    field: Annotated[str, Field(description="the field")],
    both: Annotated[int, "a text", Field(ge=1)],
    doc: Annotated[str, Doc("the documented")],
    last: str = "z",
    n: int = Field(3, description="how many", ge=1, le=9),
    names: list[str] = Field(default_factory=list, max_length=2),  # noqa: B008
    needed: str = Field(description="needed"),
) -> str:
    """Describe.

    Args:
        field: not this
        last: from the docstring
    """
    return f"{plain} {field} {both} {doc} {last} {n} {names} {needed}"


PROPERTIES: dict[str, dict[str, Any]] = {
    "plain": {"type": "string", "description": "the plain one"},
    "field": {"type": "string", "description": "the field"},
    "both": {"type": "integer", "description": "a text", "minimum": 1},
    "doc": {"type": "string", "description": "the documented"},
    "last": {"type": "string", "description": "from the docstring", "default": "z"},
    "n": {"type": "integer", "description": "how many", "default": 3, "minimum": 1, "maximum": 9},
    "names": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    "needed": {"type": "string", "description": "needed"},
}
GIVEN = {"plain": "p", "field": "f", "both": 1, "doc": "d", "needed": "x"}


def test_descriptions_and_defaults_are_those_of_the_annotation() -> None:
    """``Annotated`` texts, ``Doc`` and ``Field`` describe a parameter, before the docstring; ``Field(3)`` is a default."""
    signature = signature_of(described, "described")
    assert signature.schema["properties"] == PROPERTIES
    assert signature.schema["required"] == ["plain", "field", "both", "doc", "needed"]
    bound = signature.bind(dict(GIVEN), None)  # type: ignore[arg-type]
    assert bound == {**GIVEN, "n": 3, "names": []}, "what Python would take for the default is filled in"
    with pytest.raises(ToolInputError, match="less than or equal to 9"):
        signature.bind({**GIVEN, "n": 10}, None)  # type: ignore[arg-type]


async def test_a_field_is_a_default_in_tools_tasks_and_workflows() -> None:
    """The same function as a tool of a model, as a task and as a workflow: ``= Field(3)`` is 3, its bounds hold."""
    calls = [
        {"tool_calls": [{"name": "count", "arguments": {}}]},
        {"tool_calls": [{"name": "count", "arguments": {"n": 0}}]},
    ]
    model = ScriptedProvider([*calls, "done", "ok", "ok"])
    flow = AgentFlow(provider=model)
    seen: list[int] = []

    @flow.tool
    async def count(n: int = Field(3, description="how many", ge=1)) -> int:
        """Count."""
        seen.append(n)
        return n

    @flow.task
    async def ask(n: int = Field(3, description="how many", ge=1)) -> str:
        """How many are {{n}}?"""

    @flow.workflow
    async def whole(n: int = Field(3, ge=1)) -> int:
        return await flow.call_tool("count", n=n) + n

    async with flow:
        await flow.ask("Count.", tools=[count])
        await ask()
        await flow.run("(ask)")
        with pytest.raises(ToolInputError):
            await ask(0)
        assert await whole() == 6 and (await flow.run("(value-of (whole))")).value == 6
    (spec,) = model.requests[0].tools
    assert spec.input_schema["properties"]["n"] == {
        "type": "integer",
        "description": "how many",
        "default": 3,
        "minimum": 1,
    }
    assert seen == [3, 3, 3] and "greater than or equal to 1" in str(model.requests[2].messages)
    assert all("How many are 3?" in str(request.messages) for request in model.requests[3:5])
    params = flow.task_system.find_template("ask")
    assert params is not None and params.params["n"].description == "how many"


def closure(default: Any, kind: Any = int, text: str = "Hold.") -> Callable[..., Any]:
    """A function of one code with another default, annotation or docstring."""

    def hold(value: Any = default) -> Any:
        return value

    hold.__annotations__["value"] = kind
    hold.__doc__ = text
    return hold


def test_closures_share_a_signature_and_what_differs_does_not() -> None:
    """One schema for all closures of a function; another default, annotation, docstring, name or kind is another one."""
    same = signature_of(closure(1), "hold")
    assert signature_of(closure(1), "hold") is same
    others = [
        signature_of(closure(True), "hold"),
        signature_of(closure(1.0), "hold"),
        signature_of(closure(2), "hold"),
        signature_of(closure(1, float), "hold"),
        signature_of(closure(1, Annotated[int, Field(ge=1)]), "hold"),
        signature_of(closure(1, Annotated[int, Field(ge=2)]), "hold"),
        signature_of(closure(1, int | str), "hold"),
        signature_of(closure(1, str | int), "hold"),
        signature_of(closure(1, text="Keep."), "hold"),
        signature_of(closure([1], list[int]), "hold"),
        signature_of(closure([1], list[int]), "hold"),
        signature_of(closure(1), "keep"),
        signature_of(closure(1), "hold", "Another."),
        signature_of(closure(1), "hold", kind="task"),
        signature_of(partial(closure(1), value=5), "hold"),
    ]
    assert len({id(each) for each in [same, *others]}) == len(others) + 1
    assert [each.schema["properties"]["value"].get("default") for each in others[:3]] == [True, 1.0, 2]
    ours: list[int] = [1]
    shared = closure(ours, list[int])
    assert signature_of(shared, "hold").schema["properties"]["value"]["default"] == [1]
    ours.append(2)
    assert signature_of(shared, "hold").schema["properties"]["value"]["default"] == [1, 2]


def test_what_a_partial_holds_is_neither_shown_nor_taken() -> None:
    """A user or a key that is bound by position or by keyword is not a parameter: its value is in no schema, and a model gives no other one."""

    def save(user: str, key: str, text: str = "") -> str:
        return f"{user} {key} {text}"

    bound = partial(partial(save, "ada"), key="sk-123")
    signature = signature_of(bound, "save")
    assert signature.schema["properties"] == {"text": {"type": "string", "default": ""}}
    assert bound(**signature.bind({"text": "x"}, cast(Any, None))) == "ada sk-123 x"
    with pytest.raises(ToolInputError, match="key"):
        signature.bind({"key": "mine"}, cast(Any, None))


def test_a_class_of_the_same_name_is_another_annotation() -> None:
    """A notebook defines a class anew under the same name: a signature made before is not taken for it."""

    def named(field: str) -> type:
        return type("Review", (), {"__annotations__": {field: str}})

    from dataclasses import dataclass

    one, two = dataclass(named("a")), dataclass(named("b"))
    first, second = (signature_of(closure(None, kind), "hold") for kind in (one, two))
    assert first is not second and first.schema != second.schema


def calls_of(work: Callable[[], object]) -> int:
    """How many functions written in Python a piece of work calls."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_second_closure_costs_a_fraction_of_the_first() -> None:
    """Counted in calls of Python functions, not in time."""

    def fresh(scale: int) -> Callable[..., Any]:
        def balance(account: str, currency: str = "EUR") -> str:
            """The balance of an account, fresh."""
            return f"{account} {currency} {scale}"

        return balance

    first, second = (calls_of(lambda: signature_of(fresh(1), "balance")) for _ in range(2))
    assert second * 5 < first
