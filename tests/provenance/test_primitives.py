"""Twins of primitives: what is in a box never shows outside of one, and bare values come out as from the primitive itself."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, Labelled, Provenance, ScriptedProvider, SexpEnvironment
from agentflow.core.data.known_names import GUARDED
from agentflow.core.data.labels import Label, box, strip
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import OrderedSet, SharedList, Symbol
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.builtins.registry import letters_of

A = frozenset({"a"})
VALUES: list[tuple[Any, Any]] = [
    (3, 5),
    ("b a", "c"),
    ([3, 1, 2], [7]),
    (["b", "a"], ["z", "y", "x"]),
    ({"b a": 1}, {"c": [2]}),
    ([["b a", 1], ["c", 2]], [["c", 3]]),
    (TaskResult.complete("yes"), TaskResult.complete("no, later")),
    ('{"x": 1}', "[2]"),
    (Symbol("a"), Symbol("other")),
]
"""Values, each with another one of its kind."""
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
_MOST = 8
"""Calls of one primitive that are tried."""


def view(value: Any) -> Any:
    """What can be seen of a value without opening a box."""
    if type(value) is Label:
        return "box"
    if isinstance(value, list | tuple | SharedList):
        return [view(each) for each in value]
    if isinstance(value, dict):
        return {view(key): view(each) for key, each in value.items()}
    return [view(each) for each in value] if isinstance(value, OrderedSet) else value


class Calls:
    """Calls primitives in a flow with a policy, on values in boxes."""

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


def pools(primitive: Primitive) -> list[tuple[tuple[Any, Any], ...]]:
    """Arguments to be tried: of as many as the primitive needs, and of one more."""
    least, most = primitive.arity
    least -= primitive.name in PROCEDURES and primitive.name != "sort"
    counts = [count for count in (least, least + 1) if most is None or count <= most]
    return [each for count in counts for each in itertools.product(VALUES, repeat=min(count, 3))]


@pytest.fixture
async def calls(tmp_path: Path) -> Any:
    """The calls of one flow."""
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, provenance=Provenance()) as flow:
        yield Calls(flow)


@pytest.fixture
async def strict_calls(tmp_path: Path) -> Any:
    """The same under a strict policy."""
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, provenance=Provenance(strict=True)) as flow:
        yield Calls(flow)


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_in_a_box_shows_outside_of_one(name: str, calls: Calls) -> None:
    """Changing what is in a box changes nothing that can be seen without opening one; bare values give what the primitive gives."""
    await differences(name, calls)


@pytest.mark.parametrize(
    "name", [each if each in PROCEDURES else pytest.param(each, marks=pytest.mark.slow) for each in NAMES]
)
async def test_nothing_in_a_box_shows_under_a_strict_policy(name: str, strict_calls: Calls) -> None:
    """So it is under a strict policy, and there which elements a procedure leaves of a list counts, too."""
    await differences(name, strict_calls, chosen=True)


async def differences(name: str, calls: Calls, *, chosen: bool = False) -> None:
    """Call a primitive on values of which one is in a box, and on others in it; ``chosen``: which elements are left of a list is in one, too."""
    primitive = PRIMITIVES[name]
    tried = 0
    for pairs in pools(primitive):
        plain = tuple(first for first, _ in pairs)
        expected = await calls(primitive, plain)
        if isinstance(expected, AgentflowError) or (not pairs and primitive.arity[0] > 0):
            continue
        tried += 1
        for at, (first, second) in enumerate(pairs):
            one = await calls(primitive, (*plain[:at], box(first, A), *plain[at + 1 :]))
            other = await calls(primitive, (*plain[:at], box(second, A), *plain[at + 1 :]))
            assert view(strip(one)[0]) == view(expected), (name, plain, at)
            if isinstance(other, AgentflowError):
                assert other.sources == A, (name, plain, at)
            else:
                assert view(one) == view(other), (name, plain, at)
            if isinstance(first, list) and (chosen or name not in ("filter",)):
                inner = await calls(primitive, (*plain[:at], [box(first[0], A), *first[1:]], *plain[at + 1 :]))
                changed = await calls(primitive, (*plain[:at], [box(second[0], A), *first[1:]], *plain[at + 1 :]))
                if isinstance(inner, AgentflowError) or isinstance(changed, AgentflowError):
                    for error in (inner, changed):
                        assert not isinstance(error, AgentflowError) or error.sources == A, (name, plain, at)
                else:
                    assert view(inner) == view(changed), (name, plain, at)
        if tried >= _MOST:
            break
    assert tried, f"no call of {name} was tried"


SHORT = sorted(
    {each.canonical or each.name for each in PRIMITIVES.values() if not each.is_async and not each.sliced} & set(NAMES)
)


@pytest.mark.parametrize("name", SHORT)
async def test_a_primitive_whose_work_is_not_sliced_reads_no_lists(name: str, tmp_path: Path) -> None:
    """A list or dict at a position that such a primitive reads is an error that shows nothing in it: its twin looks for no boxes there."""
    primitive = PRIMITIVES[name]
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path) as flow:
        calls = Calls(flow)
        for pairs in pools(primitive):
            values = tuple(first for first, _ in pairs)
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
