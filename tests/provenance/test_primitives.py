"""Twins of primitives: what they leave to others, and calls with many arguments. What is in a box shows nowhere: ``test_rows_followed.py``."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, Labelled, Provenance, ScriptedProvider, SexpEnvironment
from agentflow.core.data.known_names import GUARDED
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import Symbol
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.builtins.registry import letters_of

VALUES: list[Any] = [
    *(3, "b a", [3, 1, 2], ["b", "a"], {"b a": 1}, [["b a", 1], ["c", 2]], TaskResult.complete("yes"), '{"x": 1}'),
    Symbol("a"),
]
LEFT_OUT = frozenset({"gensym", "now", "random", "uuid", "sleep", "endorse", "sources", *GUARDED})
"""Primitives whose value is another one each time, or that are about boxes themselves."""
PROCEDURES = {
    "map": "list",
    "for-each": "list",
    "filter": "list?",
    "reduce": "list",
    "apply": "list",
    "sort": "string<?",
}
NAMES = sorted({each.canonical or each.name for each in PRIMITIVES.values()} - LEFT_OUT)


class Calls:
    """Calls primitives in a flow."""

    def __init__(self, flow: AgentFlow) -> None:
        self._flow = flow

    async def __call__(self, primitive: Primitive, values: tuple[Any, ...]) -> Any:
        """The value as programs have it, or the error."""
        names = [f"x{index}" for index in range(len(values))]
        env = SexpEnvironment(dict(zip(names, values, strict=True)))
        head = f"{primitive.name} {PROCEDURES.get(primitive.name, '')}"
        if primitive.name == "sort":
            head, names = "sort", [*names, PROCEDURES["sort"]] if len(values) == 2 else names
        try:
            await self._flow.run(f"(define out ({head} {' '.join(names)}))", env=env)
        except AgentflowError as error:
            return error
        cell = env.find("out")
        return None if cell is None else cell.v


def pools(primitive: Primitive) -> list[tuple[Any, ...]]:
    """Arguments to be tried: of as many as the primitive needs, and of one more."""
    least, most = primitive.arity
    least -= primitive.name in PROCEDURES and primitive.name != "sort"
    counts = [count for count in (least, least + 1) if most is None or count <= most]
    return [each for count in counts for each in itertools.product(VALUES, repeat=min(count, 3))]


SHORT = sorted(
    {each.canonical or each.name for each in PRIMITIVES.values() if not each.is_async and not each.sliced} & set(NAMES)
)


@pytest.mark.parametrize("name", SHORT)
async def test_a_primitive_whose_work_is_not_sliced_reads_no_lists(name: str, tmp_path: Path) -> None:
    """A list or dict at a position that such a primitive reads is an error that shows nothing in it: its twin looks for no boxes there."""
    primitive = PRIMITIVES[name]
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path) as flow:
        calls = Calls(flow)
        for values in pools(primitive):
            for at, value in enumerate(values):
                if letters_of(primitive.flow, len(values))[at] == "r" and isinstance(value, list | dict):
                    inside = [["secret"]] if isinstance(value, list) else {"secret": "secret"}
                    outcome = await calls(primitive, (*values[:at], inside, *values[at + 1 :]))
                    assert isinstance(outcome, AgentflowError) and "secret" not in outcome.render(), (name, values)


@pytest.mark.parametrize("name", ["dict", "string-append", "list", "append", "max", "put", "<"])
async def test_calls_with_many_arguments_follow_each(name: str, tmp_path: Path) -> None:
    """One box among thousands of arguments is opened in slices as one of two is, and bare ones give what they give without a policy."""
    plain: dict[str, list[Any]] = {
        "dict": [str(at) for at in range(20_000)],
        "append": [[1]] * 20_000,
        "put": [{}, *[str(at) for at in range(20_000)]],
        "max": list(range(20_000)),
        "<": list(range(20_000)),
    }
    values = plain.get(name, ["a"] * 20_000)
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, provenance=Provenance()) as flow:
        bare = await flow.run(f"(apply {name} xs)", bindings={"xs": values})
        at = 12_001 if name != "put" else 12_000
        boxed = await flow.run(
            f"(apply {name} xs)", bindings={"xs": [*values[:at], Labelled(values[at], "web"), *values[at + 1 :]]}
        )
    assert (bare.value, bare.sources) == (boxed.value, set())
    assert boxed.sources == {"web"}


def test_letters_of_many_arguments_are_those_of_each() -> None:
    """What becomes of many arguments is worked out at once, and is what is said of each position."""
    for primitive in PRIMITIVES.values():
        for count in (0, 1, 2, 3, 7, 8, 9, 20, 300, 301):
            if primitive.accepts(count) and primitive.name not in ("apply", "reduce", "sort"):
                each = [letters_of(primitive.flow, at + 1)[at] for at in range(count)]
                assert letters_of(primitive.flow, count) == "".join(each)
