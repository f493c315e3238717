"""Lists in records of the host, which programs reach by declared fields: what is put into them keeps its sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, AgentflowError, Labelled, Provenance, ScriptedProvider, Sink
from tests.provenance.strict_programs import SECRETS, Observer, differ


@dataclass
class Open:
    xs: list[Any]


@dataclass(frozen=True, slots=True)
class Closed:
    xs: list[Any]


class Model(BaseModel):
    xs: list[Any]


class Named(NamedTuple):
    xs: list[Any]


@dataclass
class Ring:
    xs: list[Any]
    me: Any = None


def _ring() -> Ring:
    ring = Ring([0])
    ring.me = (ring, [ring])
    return ring


RECORDS: dict[str, Any] = {
    "dataclass": lambda: Open([0]),
    "frozen dataclass": lambda: Closed([0]),
    "model": lambda: Model(xs=[0]),
    "named tuple": lambda: Named([0]),
    "a record that holds itself": _ring,
}
PLACES = {"itself": "o", "in a list": "[o, 1]", "in a tuple in a dict": "{'k': (1, o)}"}


async def _sent(record: Any, text: str, allow: list[str], root: Path, *, strict: bool) -> list[Any]:
    seen: list[Any] = []

    async def send(to: Any) -> str:
        """Send something."""
        seen.append(to)
        return "sent"

    policy = Provenance(rules=[Sink("send", "to", allow=allow)], strict=strict)
    async with AgentFlow(provider=ScriptedProvider([]), root=root, tools=[send], provenance=policy) as flow:
        await flow.run(text, surface="python", bindings={"o": record, "s": Labelled(7, "web")})
    return seen


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", RECORDS)
async def test_a_list_in_a_record_says_what_was_put_into_it(
    kind: str, place: str, strict: bool, tmp_path: Path
) -> None:
    """The whole record depends on it, and a tool that may have it gets the record without boxes."""
    text = f"o.xs.append(s)\nsend({PLACES[place]})"
    with pytest.raises(AgentflowError) as caught:
        await _sent(RECORDS[kind](), text, ["user"], tmp_path, strict=strict)
    assert caught.value.code == "provenance/denied"
    [got] = await _sent(RECORDS[kind](), text, ["user", "web"], tmp_path, strict=strict)
    record: Any = got if place == "itself" else got[0] if place == "in a list" else got["k"][1]
    assert record.xs == [0, 7]
    assert type(record) is type(RECORDS[kind]())
    if kind == "a record that holds itself":
        assert record.me[0] is record
        assert record.me[1][0] is record


async def test_a_record_that_nothing_was_put_into_is_the_same(tmp_path: Path) -> None:
    """A tool gets the record of the host itself."""
    record = Open([0])
    [got] = await _sent(record, "send(o)", ["user"], tmp_path, strict=True)
    assert got is record


WAYS = {
    "an arm": "if s > 1:\n    o.xs.append(1)",
    "a try": "try:\n    [1][s]\n    o.xs.append(1)\nexcept Exception:\n    pass",
    "a loop": "for q in items:\n    o.xs.append(1)",
    "another name": "if s > 1:\n    a.append(1)",
    "a record in a list": "os = [o]\nif s > 1:\n    os[0].xs.append(1)",
}


@pytest.mark.parametrize("look", ["len(o.xs)", "o", "len(a)", "[o]"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_list_in_a_record_says_why_it_was_changed(way: str, look: str, tmp_path: Path) -> None:
    """Under a strict policy the test marks the list, by whichever name it is read."""
    observer = Observer(tmp_path, surface="python")
    text = f"{WAYS[way]}\ntry:\n    send({look})\nexcept Exception:\n    pass\nsend('end')"
    async with observer.flow:
        runs: list[Any] = []
        for each in SECRETS:
            xs: list[Any] = [0]
            runs.append(await observer.run(text, each, o=Open(xs), a=xs))
    assert not any([differ(runs[0], each) for each in runs[1:]]), runs
    assert runs[0] == ("ended", ["end"])


async def test_a_later_run_of_the_flow_knows_why(tmp_path: Path) -> None:
    """The host gives the same record to two runs of a flow."""
    record = Open([0])
    secret = {"s": Labelled(2, "secret")}
    async with AgentFlow(provider=ScriptedProvider([]), provenance=Provenance(strict=True)) as flow:
        await flow.run("if s > 1:\n    o.xs.append(1)", surface="python", bindings={"o": record, **secret})
        assert (await flow.run("len(o.xs)", surface="python", bindings={"o": record})).sources == {"secret"}


async def test_a_branch_changes_no_list_in_a_record_of_others(tmp_path: Path) -> None:
    """Branches run at the same time, so that none changes what others can read."""
    text = "def f():\n    o.xs.append(1)\nparallel(f(), 1)"
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run(text, surface="python", bindings={"o": Open([0])})
    assert caught.value.code == "concurrency/shared-set"
