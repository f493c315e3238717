"""Whatever function, method, operator or primitive of either surface is called, and wherever in its arguments a secret is: what depends on it says so, and the rest does not."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    AgentFlow,
    AgentflowError,
    Labelled,
    Limits,
    Provenance,
    ScriptedProvider,
    SexpEnvironment,
    Sink,
)
from agentflow.core.data.labels import Label, box, strip
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import OrderedSet, SharedList, Symbol
from tests.support.row_calls import (
    DONE,
    FAILED,
    OPERATIONS,
    Operation,
    Procedure,
    calls_of,
    others,
    places,
    planted,
    procedures_of,
    written,
)
from tests.support.row_calls import Path as Place
from tests.support.sealed import Sealed

WEB = frozenset({"web"})
LIMITS = Limits(steps=20_000, wall_s=20.0, depth=200, collection=5_000, string=20_000, integer_bits=5_000)
UNIQUE: tuple[Any, ...] = ("§", 7719, ["§", 7719], {"§": 7719}, ("§",))
"""Secrets whose parts are nowhere else."""
ALL_SORTS = (*UNIQUE, None, True, False, "", 0, 1.5, [], {}, (), OrderedSet(), Symbol("§"), DONE, FAILED, len)
"""What a call has in the same place if it does not look there."""


READ_WHOLE = frozenset(
    [
        *("function all", "function any", "function max", "function min", "function int", "function sum"),
        *("function math.prod", "method list.count", "method tuple.count", "method str.join", "method str.splitlines"),
        *[f"method OrderedSet.{name}" for name in ("difference", "intersection", "issubset", "issuperset", "union")],
        *(
            "method OrderedSet.update",
            "method dict.update",
            "syntax any_of",
            "syntax bitwise_to",
            "syntax contains",
            "syntax eq",
            "syntax ne",
        ),
        *("primitive assoc", "primitive eq?", "primitive member"),
    ]
)
"""Rows that read more than decides what they give: some could stop at a first part, others compare what cannot be equal, or take only the keys of a dict."""


LOOKS_UP = frozenset(
    [
        *("method dict.get", "method dict.pop", "method dict.setdefault", "method OrderedSet.remove"),
        *("syntax contains", "syntax element", "syntax member"),
    ]
)
"""Rows that look a key up: whether it is there does not count where data is followed (``docs/provenance.md``)."""


GIVES_PARTS = frozenset(
    [
        *("function max", "function min", "function sum", "function math.prod", "method dict.get"),
        *("syntax element", "syntax member", "syntax truth"),
    ]
)
"""Rows that may give a part of an argument, or the argument."""


def view(value: Any, *, sealed: Any = ..., boxed: Any = ...) -> Any:
    """What can be seen of a value: its parts; of what is sealed or in a box that which is said here, if anything."""
    if (isinstance(value, Sealed) and sealed is not ...) or (type(value) is Label and boxed is not ...):
        return sealed if isinstance(value, Sealed) else boxed
    if isinstance(value, list | tuple | SharedList):
        return [view(each, sealed=sealed, boxed=boxed) for each in value]
    if isinstance(value, dict | OrderedSet):
        keys = [view(key, sealed=sealed, boxed=boxed) for key in value]
        if any("box" in repr(each) for each in keys):
            return ["keys"]  # how many there are depends on them, and that is read with their labels
        entries = value.values() if isinstance(value, dict) else ()
        return {"keys": keys, "values": [view(each, sealed=sealed, boxed=boxed) for each in entries]}
    if isinstance(value, Symbol | TaskResult):
        return repr(value)
    return value if isinstance(value, int | float | str | None) else type(value).__name__


def without_boxes(value: Any) -> Any:
    """What shows of a value outside of boxes."""
    return view(value, boxed="box")


def differ(shown: list[Any]) -> bool:
    """Whether some of them are not alike."""
    return len({repr(each) for each in shown}) > 1


def leaves(value: Any) -> set[Any]:
    """The numbers and texts that are seen in a view."""
    if isinstance(value, list | tuple):
        return {leaf for each in value for leaf in leaves(each)}
    return leaves(list(value.values())) if isinstance(value, dict) else {value}


Outcome = AgentflowError | list[Any]


@dataclass
class Faults:
    """What is wrong with a call: what shows although nothing says so, and what says so although it could not show."""

    lost: list[str] = field(default_factory=list[str])
    too_much: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Call:
    """A call of an operation with a secret at a place of one of its operands."""

    operation: Operation
    operands: tuple[Any, ...]
    at: int
    place: Place

    def __str__(self) -> str:
        return f"{self.operation.template} of {self.operands}, with the secret at {self.place} of the one at {self.at}"

    def written(self) -> list[str]:
        """Its operands in the text of a program, with ``s`` as the secret."""
        return [written(each, self.place if index == self.at else None) for index, each in enumerate(self.operands)]


class Rows:
    """Makes calls in three flows: one without a policy, one that follows data, and one with a strict policy."""

    def __init__(self, plain: AgentFlow, data: AgentFlow, strict: AgentFlow) -> None:
        self.plain, self.data, self.strict = plain, data, strict
        self._procedures: dict[Any, Any] = {}

    async def bound(self, flow: AgentFlow, call: Call, secret: Any) -> dict[str, Any]:
        """The operands of a call as variables of its program."""
        surface = call.operation.surface
        called = any(isinstance(each, Procedure) for each in call.operands)
        if called and (id(flow), surface) not in self._procedures:
            self._procedures[id(flow), surface] = await procedures_of(flow, surface)
        made, bound = self._procedures.get((id(flow), surface), {}), dict[str, Any]()
        for index, each in enumerate(call.operands):
            own = (
                made[each] if isinstance(each, Procedure) else each if isinstance(each, TaskResult) else deepcopy(each)
            )
            bound[f"a{index}"] = planted(own, call.place, secret) if index == call.at else own
        return bound | {"s": secret}

    async def outcome(self, flow: AgentFlow, call: Call, secret: Any) -> Outcome:
        """What comes of a call with this at its place: its value, and what its first operand is then, also for others."""
        env, operation = SexpEnvironment(await self.bound(flow, call, secret)), call.operation
        head = "k = [a0]\nout = 0\n" if operation.surface == "python" else "(define out 0) "
        if "key" in call.place and operation.surface == "python":
            head = f"a{call.at} = {call.written()[call.at]}\n{head}"
        try:
            await flow.run(head + operation.code(), surface=operation.surface, env=env)
        except AgentflowError as error:
            assert not error.code.startswith(("syntax/", "host/", "internal/")), (str(call), error.render())
            return error
        names = ("out", "a0", "k") if operation.changes else ("out",)
        return [cell.v for name in names if (cell := env.find(name)) is not None]

    async def plainly(self, call: Call, secret: Any) -> Outcome:
        """What comes of it without a policy."""
        return await self.outcome(self.plain, call, deepcopy(secret))


def given_out(value: Any) -> Any:
    """A value as the host is given it: sets are lists."""
    if isinstance(value, dict | OrderedSet):
        keys = list(map(given_out, value))
        return (
            dict(zip(map(repr, keys), map(given_out, value.values()), strict=True)) if isinstance(value, dict) else keys
        )
    return list(map(given_out, value)) if isinstance(value, list | tuple | SharedList) else view(value)


def ending(outcome: Outcome) -> Any:
    """What comes of a call, without boxes: the values, or the message of the error."""
    return outcome.message if isinstance(outcome, AgentflowError) else given_out(strip(outcome)[0])


async def template(rows: Rows, call: Call, secrets: list[Any]) -> list[Any] | None:
    """The outcome of a call around what is at its place, if nothing of that is looked at: neither itself, nor its type."""
    if "key" in call.place or call.operation.by_keyword:
        return None
    try:
        sealed = await rows.outcome(rows.plain, call, Sealed())
    except AssertionError:
        return None
    for secret in () if isinstance(sealed, AgentflowError) else (*secrets, *ALL_SORTS):
        outcome = await rows.plainly(call, secret)
        if isinstance(outcome, AgentflowError) or differ([view(sealed, sealed=view(secret)), view(outcome)]):
            return None
    return None if isinstance(sealed, AgentflowError) else sealed


async def data_faults(rows: Rows, call: Call, secrets: list[Any], around: list[Any] | None) -> Faults:
    """What is wrong where data is followed: what is outside of boxes must not depend on what is in one."""
    faults, outcomes = Faults(), list[Outcome]()
    for secret in (*secrets, *UNIQUE):
        if "key" in call.place and isinstance(secret, list | dict):
            continue
        outcome = await rows.outcome(rows.data, call, box(deepcopy(secret), WEB))
        outcomes.append(outcome)
        if differ([ending(outcome), expected := ending(await rows.plainly(call, secret))]):
            faults.lost.append(f"with {secret!r} it is {ending(outcome)}, and without a policy {expected}")
        if isinstance(outcome, list) and leaves(without_boxes(outcome)) & {"§", 7719}:
            faults.lost.append(f"with {secret!r} in a box, a part of it is outside of one: {without_boxes(outcome)}")
    if call.operation.surface == "sexp":
        shown = [without_boxes(each) for each in outcomes if isinstance(each, list)]
        faults.lost += [
            f"a key is in a box, where nothing looks for one: {each}" for each in shown if "['keys']" in repr(each)
        ]
    ended = [each for each in outcomes if isinstance(each, AgentflowError)]
    values = [each[0] for each in outcomes if isinstance(each, list)]
    looks_up = "key" in call.place and call.operation.title in LOOKS_UP
    if not looks_up and len({each.message for each in ended}) + bool(values) > 1:
        faults.lost += [f"an error does not say so: {each.message}" for each in ended if "web" not in each.sources][:1]
    shown, content = [without_boxes(each) for each in values], [view(strip(each)[0]) for each in values]
    if call.operation.tests or not shown or looks_up:
        return faults
    if differ(shown) and differ(content):
        faults.lost.append(f"what is outside of boxes depends on it: {shown}")
    elif around is not None and differ([shown[0], expected := view(around[0], sealed="box")]):
        faults.too_much.append(f"{expected} would do, and it gives {shown[0]}")
    return faults


def looks_at(name: str, values: list[Any], surface: str) -> list[str]:
    """Expressions of what can be seen of a value that is one of these."""
    looks = [name]
    containers = (list, tuple, dict, OrderedSet, SharedList)
    if values and all(isinstance(each, containers) for each in values):
        looks.append(f"len({name})" if surface == "python" else f"(length {name})")
        if all(len(each) for each in values):
            looks += (
                [f"list({name})[0]", f"list({name})[-1]"]
                if surface == "python"
                else []
                if isinstance(values[0], dict)
                else [f"(first {name})"]
            )
            if surface == "python" and all(isinstance(each, dict) for each in values):
                looks.append(f"list({name}.values())[-1]")
    return looks


def strict_text(call: Call, plain: list[Outcome]) -> tuple[str, list[str]]:
    """A program that makes the call and says of all that can be seen what it is and what it depends on; and the expressions that see it."""
    operation = call.operation
    python, changes = operation.surface == "python", operation.changes
    ended = any(isinstance(each, AgentflowError) for each in plain)
    values = [each for each in plain if isinstance(each, list)]
    seen = ["done", *looks_at("out", [each[0] for each in values], operation.surface)]
    failed = {"list(out.values())[-1]": "{'failed': 0}", "len(out)": "['failed']"}
    if changes and ended and not call.at and not call.place:
        seen += ["a0", "k[0]"]
    elif changes:
        seen += looks_at("a0", [each[1] for each in values], "python")
        seen += looks_at("k[0]", [each[2][0] for each in values], "python")
    if not python:
        first = '(list "failed")' if "(length out)" in seen else '"failed"'
        code = f"(begin {operation.code()} (set! done 1))"
        code = f"(try {code} (catch (e) 0))" if ended else code
        told = " ".join([f"{each} (sources {each})" for each in seen])
        return f"(define out {first}) (define done 0) {code} (list {told})", seen
    first = next((each for look, each in failed.items() if look in seen), "'failed'")
    head = [f"a{index} = {each}" for index, each in enumerate(call.written()) if changes or "key" in call.place]
    code = f"{operation.code()}\ndone = 1"
    if ended:
        code = "try:\n" + "\n".join([f"    {line}" for line in code.split("\n")]) + "\nexcept Exception:\n    0"
    told = ", ".join([f"{each}, sources({each})" for each in seen])
    return "\n".join([*head, "k = [a0]", f"out = {first}", "done = 0", code, f"[{told}]"]), seen


async def strict_faults(rows: Rows, call: Call, secrets: list[Any], around: list[Any] | None) -> Faults:
    """What is wrong under a strict policy: what depends on a secret, if only on whether the call fails, must say so."""
    plain = [await rows.plainly(call, each) for each in secrets]
    faults = await told_strictly(rows, call, secrets, plain, around)
    done: list[tuple[Any, Outcome]] = [
        (each, outcome) for each, outcome in zip(secrets, plain, strict=True) if isinstance(outcome, list)
    ]
    if call.operation.changes and 1 < len(done) < len(plain):  # in try all depends on what may fail
        chosen, endings = [each for each, _ in done], [each for _, each in done]
        faults.lost += (await told_strictly(rows, call, chosen, endings, None)).lost
    return faults


async def told_strictly(
    rows: Rows, call: Call, secrets: list[Any], plain: list[Outcome], around: list[Any] | None
) -> Faults:
    """The same of runs with these secrets, which end without a policy as said here."""
    faults = Faults()
    text, seen = strict_text(call, plain)
    ended = any(isinstance(each, AgentflowError) for each in plain)
    outcomes: list[list[Any]] = []
    for secret, expected in zip(secrets, plain, strict=True):
        hidden = box(deepcopy(secret), WEB)
        bound = {"s": hidden} if call.operation.changes else await rows.bound(rows.strict, call, hidden)
        try:
            outcomes.append(
                (await rows.strict.run(text, surface=call.operation.surface, env=SexpEnvironment(bound))).value
            )
        except AgentflowError as error:  # nothing is told after it
            if error.code != "provenance/write" and "key" not in call.place:
                faults.lost.append(f"it ends with {error.message}\n{text}")
            continue
        if isinstance(expected, list) and not (ended and call.operation.changes):
            names = {"out": 0, "a0": 1, "k[0]": 2} if call.operation.changes else {"out": 0}
            for name, at in names.items():
                shown = given_out(outcomes[-1][2 * seen.index(name)])
                if not call.operation.is_statement or at:
                    wanted = given_out(expected[at][0] if at == 2 else expected[at])
                    if differ([shown, wanted]):
                        faults.lost.append(f"with {secret!r} {name} is {shown}, and without a policy {wanted}\n{text}")
    for index, look in enumerate(seen):
        shown = [(each[2 * index], each[2 * index + 1]) for each in outcomes]
        depends = differ([each for each, _ in shown])
        if depends and not all("web" in told for _, told in shown):
            faults.lost.append(f"{look} does not say that it depends: {shown}\n{text}")
        if not depends and around is not None and any("web" in told for _, told in shown):
            faults.too_much.append(f"{look} says that it depends: {shown}\n{text}")
    return faults


_CHANGES = {list: "out.append(1)", dict: "out['q'] = 1", OrderedSet: "out.add(9)"}


async def own_faults(rows: Rows, operation: Operation, operands: tuple[Any, ...]) -> list[str]:
    """A container that a call makes is its own: it may be changed, also by a name that does not say why it is as it is."""
    at = next((at for at, each in enumerate(operands) if not isinstance(each, Procedure)), None)
    if at is None or operation.is_statement or operation.changes or operation.title in GIVES_PARTS:
        return []
    call = Call(operation, operands, at, ())
    plain = await rows.plainly(call, operands[at])
    made = type(plain[0]) if isinstance(plain, list) else None
    if made not in _CHANGES:
        return []
    bound = await rows.bound(rows.strict, call, box(deepcopy(operands[at]), WEB))
    text = f"{operation.code().replace('out = ', 'made = ', 1)}\nout = made\n{_CHANGES[made]}"
    try:
        await rows.strict.run(text, surface="python", env=SexpEnvironment(bound))
    except AgentflowError as error:
        return [f"what {call} gives cannot be changed: {error.message}"]
    return []


async def arm_faults(rows: Rows, operation: Operation, operands: tuple[Any, ...]) -> list[str]:
    """What is changed in an arm says so also where the arm was not done."""
    if not operation.changes:
        return []
    head = [f"a{index} = {written(each)}" for index, each in enumerate(operands)]
    code = "\n".join([f"    {line}" for line in operation.code().split("\n")])
    text = "\n".join([*head, "k = [a0]", "out = 0", "if s:", code, "[k[0], sources(k[0])]"])
    outcomes: list[Any] = []
    for secret in (True, False):
        outcomes.append(
            (await rows.strict.run(text, surface="python", env=SexpEnvironment({"s": box(secret, WEB)}))).value
        )
    lost = differ([each for each, _ in outcomes]) and not all("web" in told for _, told in outcomes)
    return [f"{operation.template} of {operands} in an arm is not told: {outcomes}"] if lost else []


async def faults_of(rows: Rows, title: str) -> tuple[Faults, int]:
    """What is wrong with the calls of a row, and the number of places that were tried."""
    faults, tried = Faults(), 0
    for operation in OPERATIONS[title]:
        for operands, positions in await calls_of(rows.plain, operation):
            chosen = any(isinstance(each, Procedure) and each.tests for each in operands)
            if operation.surface == "python":
                faults.lost += await own_faults(rows, operation, operands) + await arm_faults(rows, operation, operands)
            for at in positions:
                for place, value in (
                    () if isinstance(operands[at], Procedure) else places(operands[at], operation.surface)
                ):
                    call, secrets = Call(operation, operands, at, place), others(value, place, operands)
                    around = await template(rows, call, secrets)
                    told = {} if chosen else {"data": await data_faults(rows, call, secrets, around)}
                    for mode, each in (told | {"strict": await strict_faults(rows, call, secrets, around)}).items():
                        faults.lost += [f"{call}, {mode}: {fault}" for fault in each.lost]
                        faults.too_much += [f"{call}, {mode}: {fault}" for fault in each.too_much]
                    tried += 1
    return faults, tried


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Rows]:
    """The flows."""
    async with (
        AgentFlow(provider=ScriptedProvider(), root=tmp_path, limits=LIMITS) as plain,
        AgentFlow(provider=ScriptedProvider(), root=tmp_path, limits=LIMITS, provenance=Provenance()) as data,
        AgentFlow(
            provider=ScriptedProvider(), root=tmp_path, limits=LIMITS, provenance=Provenance(strict=True)
        ) as strict,
    ):
        yield Rows(plain, data, strict)


@pytest.mark.parametrize("title", OPERATIONS)
async def test_what_depends_on_a_secret_says_so_and_nothing_else(title: str, rows: Rows) -> None:
    """Whatever the row is called with, by position and by keyword, and wherever in its arguments the secret is; where data is followed, and where tests are, too."""
    faults, tried = await faults_of(rows, title)
    assert tried and not faults.lost, "\n\n".join(faults.lost[:5])
    assert bool(faults.too_much) == (title in READ_WHOLE), "\n\n".join(faults.too_much[:5]) or "it is exact now"


async def send(to: object) -> str:
    """Send it."""
    return "sent"


@pytest.mark.parametrize("title", OPERATIONS)
async def test_what_a_row_gives_is_foretold(title: str, rows: Rows) -> None:
    """If what is sent came from a page by whatever row, the bounds of the program have said that it may."""
    policy = Provenance(rules=[Sink("send", "to", allow=["user"])])
    async with AgentFlow(provider=ScriptedProvider(), tools=[send], provenance=policy) as flow:
        for operation in OPERATIONS[title]:
            for operands, _ in (await calls_of(rows.plain, operation))[:1]:
                for at in [at for at, each in enumerate(operands) if not isinstance(each, Procedure)]:
                    call = Call(operation, operands, at, ())
                    outcome = await rows.outcome(rows.data, call, box(deepcopy(operands[at]), WEB))
                    name = "a0" if operation.is_statement and operation.changes else "out"
                    if isinstance(outcome, AgentflowError) or not strip(outcome[1 if name == "a0" else 0])[1]:
                        continue
                    bound = await rows.bound(rows.plain, call, Labelled(deepcopy(operands[at]), "web"))
                    code = operation.code()
                    text = (
                        f"{code}\nsend(to={name})"
                        if operation.surface == "python"
                        else f"(define out 0) {code} (send (to out))"
                    )
                    sinks = (await flow.bounds(text, surface=operation.surface, bindings=bound)).authority.sinks
                    assert ["web" in each.refused for each in sinks] == [True], text
