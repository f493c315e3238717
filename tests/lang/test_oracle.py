"""The compiler against the plain recursive evaluator: the same values, the same errors, the same effects in the same order."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.core.data.values import Symbol
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.printer import print_value
from agentflow.lang.reader import read_datum_nodes
from agentflow.lang.syntax import datum
from tests.support.bounds import Bounds
from tests.support.oracle import Raised, evaluate
from tests.support.programs import sequential
from tests.support.world import World

LIMITS = Limits(steps=200_000, integer_bits=100_000)


def show(value: Any) -> str:
    """A value as text; procedures and errors look alike whoever made them."""
    if isinstance(value, list):
        return f"({' '.join(map(show, value))})"
    if isinstance(value, dict):
        return f"{{{' '.join(f'{key} {show(each)}' for key, each in value.items())}}}"
    return print_value(value) if value is None or isinstance(value, str | int | float | Symbol) else "#"


def by_the_book(text: str) -> tuple[str, list[str]]:
    """The value and the effects according to the oracle."""
    effects: list[str] = []

    def note(*values: Any) -> Any:
        if len(values) != 1:
            raise Raised("arity")
        effects.append(show(values[0]))
        return values[0]

    scope: dict[str, Any] = {"note": note}
    rt = Bounds(LIMITS)
    try:
        for node in read_datum_nodes(Source("<oracle>", text)):
            value = evaluate(datum(node), (scope,), rt)
        return show(value), effects
    except Raised:
        return "error", effects


async def compiled(text: str) -> tuple[str, list[str]]:
    """The value and the effects of the compiled program."""
    effects: list[str] = []

    def note(value: Any) -> Any:
        effects.append(show(value))
        return value

    try:
        return show(await World().run(text, SexpEnvironment({"note": note}), limits=LIMITS)), effects
    except LimitExceeded:
        raise
    except AgentflowError:
        return "error", effects


@given(st.integers(2, 4).flatmap(sequential))
@settings(max_examples=60, deadline=None)
def test_the_compiler_agrees_with_the_oracle(text: str) -> None:
    """A generated program has the same value, or fails likewise, after the same effects in the same order."""
    assert asyncio.run(compiled(text)) == by_the_book(text)
