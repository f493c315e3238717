"""What is recorded comes back: values of the types that people annotate, at every door of a durable run."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

import agentflow
from agentflow import AgentFlow, ScriptedProvider, TaskResult
from agentflow.core.data.errors import AgentflowError, ConfigurationError, DataError, JournalError
from agentflow.core.data.messages import ToolResultPart
from agentflow.events import Event, Warning
from tests.support.typed_values import REFUSED, TYPES, UNFIT, Customer, Payment, Plain, is_same

YES = '(ask-human "go on?" {"type" "boolean"})'


class Lives:
    """Lives of one flow over one database. ``calls`` counts what the host's function did, ``seen`` is what a door gave."""

    def __init__(self, where: Path, kind: Any, value: Any) -> None:
        self.calls = 0
        self.lives = 0
        self.seen: list[Any] = []
        self.warnings: list[str] = []
        self.kind = kind
        self.value = value
        self._database = f"sqlite:///{where}/runs.db"

    def pay(self) -> Callable[..., Any]:
        """A function that is annotated to give the type, and counts its calls."""

        async def pay() -> Any:
            """Pay."""
            self.calls += 1
            return self.value

        pay.__annotations__["return"] = self.kind
        return pay

    def reply(self, request: Any) -> str:
        """An answer of a model that gives the value."""
        self.calls += 1
        return self.value if self.kind is str else TypeAdapter(self.kind).dump_json(self.value, by_alias=True).decode()

    def flow(self, **options: Any) -> AgentFlow:
        flow = AgentFlow(**{"provider": ScriptedProvider(["x"]), **options}, durable=self._database)

        def note(event: Event) -> None:
            if isinstance(event, Warning):
                self.warnings.append(event.code)

        flow.subscribe(note)
        return flow

    async def twice(self, door: str) -> None:
        """Go through a door, be interrupted behind it, and go through it again."""
        for _ in range(2):
            await DOORS[door](self)


async def step(lives: Lives) -> None:
    flow = lives.flow()

    @flow.workflow
    async def work() -> str:
        lives.seen.append(await flow.step(lives.pay()))
        await flow.ask_human("go on?", bool)
        return "end"

    async with flow:
        handle = await flow.start(work(), run_id="r")
        if await handle.wait() != "waiting":
            await handle.result()


async def argument(lives: Lives) -> None:
    flow = lives.flow()

    async def work(thing: Any) -> str:
        lives.seen.append(thing)
        await flow.ask_human("go on?", bool)
        return "end"

    work.__annotations__["thing"] = lives.kind
    made = flow.workflow(work)
    async with flow:
        handle = await flow.start(made(lives.value), run_id="r")
        if await handle.wait() != "waiting":
            await handle.result()


async def end(lives: Lives) -> None:
    flow = lives.flow()
    work = flow.workflow(lives.pay())
    async with flow:
        lives.seen.append((await (await flow.start(work(), run_id="r")).result()).value)
        recorded = await flow.recorded_result("r")
        assert recorded is not None
        assert is_same(recorded.value, lives.seen[-1])


async def in_a_program(lives: Lives, bindings: dict[str, Any], **options: Any) -> None:
    """Note what ``(pay)`` gives: in the first life before a question, in the second, which answers it, after it."""

    def note(paid: Any) -> None:
        lives.seen.append(data_of(paid))

    flow = lives.flow(**options)
    async with flow:
        text = f"(begin (define paid (pay)) (note paid) {YES} (note paid) 1)"
        handle = await flow.start(text, {"note": note, **bindings}, run_id="r")
        if await handle.wait() != "waiting":
            await handle.result()
        lives.lives += 1
        if lives.lives == 2:
            await flow.send("r", handle.waiting[0].key, True)
            await handle.result()


async def tool(lives: Lives) -> None:
    await in_a_program(lives, {}, tools=[lives.pay()])


async def callable_of_a_program(lives: Lives) -> None:
    await in_a_program(lives, {"pay": lives.pay()})


async def answer(lives: Lives) -> None:
    flow = lives.flow(provider=ScriptedProvider(lives.reply))

    @flow.workflow
    async def work() -> str:
        lives.seen.append(await flow.ask("pay", output=lives.kind))
        await flow.ask_human("go on?", bool)
        return "end"

    async with flow:
        handle = await flow.start(work(), run_id="r")
        if await handle.wait() != "waiting":
            await handle.result()


async def nested(lives: Lives) -> None:
    """What a task gives to the code of a tool, which is interrupted and carried out again."""
    flow = lives.flow(provider=ScriptedProvider(lives.reply))

    @flow.tool
    async def buy() -> str:
        """Buy."""
        lives.seen.append(await flow.ask("pay", output=lives.kind, tools=[]))
        await flow.ask_human("go on?", bool)
        return "bought"

    async with flow:
        handle = await flow.start("(buy)", run_id="r")
        if await handle.wait() != "waiting":
            await handle.result()


async def reused(lives: Lives, flow: AgentFlow) -> None:
    """Note what ``(pay)`` gives in runs of different ids, of which only ``reuse`` answers the second one."""

    def note(paid: Any) -> None:
        lives.seen.append(data_of(paid))

    async with flow:
        lives.lives += 1
        await (await flow.start("(begin (note (pay)) 1)", {"note": note}, run_id=f"r{lives.lives}")).result()


async def reused_tool(lives: Lives) -> None:
    await reused(lives, lives.flow(tools=[agentflow.tool(reuse="1d", reuse_key="this test")(lives.pay())]))


async def reused_task(lives: Lives) -> None:
    async def pay() -> Any:
        """Pay."""

    pay.__annotations__["return"] = lives.kind
    flow = lives.flow(provider=ScriptedProvider(lives.reply))
    flow.task(reuse="1d")(pay)
    await reused(lives, flow)


def stored_in(where: Path) -> bytes:
    return b"".join([each.read_bytes() for each in where.rglob("*") if each.is_file()])


def data_of(result: Any) -> Any:
    if not isinstance(result, TaskResult):
        return result
    return result.content if result.parsed_content is None else result.parsed_content


DOORS: dict[str, Callable[[Lives], Any]] = {
    "step": step,
    "argument": argument,
    "end": end,
    "tool": tool,
    "callable of a program": callable_of_a_program,
    "answer": answer,
    "nested answer": nested,
    "reused tool": reused_tool,
    "reused task": reused_task,
}
ASKED = ("answer", "nested answer", "reused task")
TOOLS = ("tool", "reused tool")
NO_ANSWER = {
    "half a character",
    "infinity",
    "not a number",
    "decimal that is not a number",
    "bytes",
    "model with bytes",
    "model written by another name",
    "model read by a path",
    "model with a computed field",
    "dict with enum keys",
    "boolean or nothing",
    "union of a text and a decimal",
}
"""Types that no JSON of a model stands for, or whose schema no model is asked for."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", TYPES)
async def test_a_value_comes_back(tmp_path: Path, name: str, door: str) -> None:
    """Behind each door there is an equal value of the same type, live and from the record, and nothing was done twice."""
    if door in ASKED and name in NO_ANSWER:
        pytest.skip("no answer of a model")
    if door == "argument" and name == "decimal that is not a number":
        pytest.skip("pydantic takes none")
    kind, value = TYPES[name]
    lives = Lives(tmp_path, kind, value)
    await lives.twice(door)
    expected = value
    if door in (*TOOLS, "callable of a program") and isinstance(value, tuple) and type(value) is tuple:
        expected = list(value)  # of which programs have no other
    if door in TOOLS and (value is None or isinstance(value, str)):
        expected = "" if value is None else str(value)  # the text of its result
    if door == "reused task" and not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        expected = lives.seen[0]  # a value of the class, or JSON data
    assert len(lives.seen) == 2 and all([is_same(each, expected) for each in lives.seen]), lives.seen
    assert lives.calls == (0 if door == "argument" else 1)
    assert lives.warnings == []


@pytest.mark.parametrize("name", [each for each in TYPES if each not in NO_ANSWER])
async def test_a_task_that_a_model_calls_is_recorded_by_its_class(tmp_path: Path, name: str) -> None:
    """The record of a task that answers a tool call of another one has its value as its class writes it, and the model reads
    what it reads without records."""
    read: list[Any] = []
    lives = Lives(tmp_path, *TYPES[name])

    async def pay() -> Any:
        """Pay."""

    def reply(request: Any) -> Any:
        if not request.tools:
            return lives.reply(request)
        last = request.messages[-1].parts[-1]
        if not isinstance(last, ToolResultPart):
            return {"tool_calls": [{"name": "pay", "arguments": {}}]}
        read.append((last.text, last.is_error))
        return "done"

    pay.__annotations__["return"] = lives.kind
    async with AgentFlow(provider=ScriptedProvider(reply)) as bare:
        bare.task(pay)
        await bare.ask("buy", tools=["pay"])
    flow = lives.flow(provider=ScriptedProvider(reply))
    flow.task(pay)

    @flow.workflow
    async def work() -> str:
        return await flow.ask("buy", tools=["pay"])

    async with flow:
        await (await flow.start(work(), run_id="r")).result()
        nested = [each.name for each in (await flow.plan("r")).reused]
    assert read[0] == read[1] and not read[0][1] and lives.warnings == [] and nested, nested


async def test_a_reused_result_whose_class_has_changed_is_made_anew(tmp_path: Path) -> None:
    """What was kept for other runs and is not a value of the class as it is now is carried out again."""
    lives = Lives(tmp_path, Plain, TYPES["model"][1])
    await reused_tool(lives)
    lives.kind, lives.value = Customer, TYPES["model with an alias"][1]
    await lives.twice("reused tool")
    assert lives.calls == 2 and lives.seen[1:] == [lives.value] * 2


@pytest.mark.parametrize("name", ["a secret", "a class of the host"])
@pytest.mark.parametrize("door", ["reused tool", "reused task"])
async def test_what_is_never_stored_is_not_declared_to_be_reused(tmp_path: Path, name: str, door: str) -> None:
    """A tool or task whose results no record could give again says so when it is called, and is not carried out each time."""
    if door == "reused task" and name != "a secret":
        pytest.skip("no model is asked for it")
    lives = Lives(tmp_path, *REFUSED[name])
    with pytest.raises(ConfigurationError) as caught:
        await DOORS[door](lives)
    assert caught.value.code == ("durable/secret" if name == "a secret" else "durable/no-value")
    assert lives.calls == 0 and b"correct-horse" not in stored_in(tmp_path)


@pytest.mark.parametrize("door", ["step", "end", "tool", "callable of a program"])
@pytest.mark.parametrize("name", UNFIT)
async def test_what_cannot_come_back_has_failed_and_is_not_repeated(tmp_path: Path, name: str, door: str) -> None:
    """A value that its record would not give again is a failure of what gave it, the same live and recorded, and not done twice."""
    kind, value = UNFIT[name]
    if name == "another type than is said" and door in ("tool", "callable of a program"):
        pytest.skip("what a tool gives is data, whatever is said of it")
    lives = Lives(tmp_path, kind, value)
    for _ in range(3):
        with pytest.raises(AgentflowError) as caught:
            await DOORS[door](lives)
        assert caught.value.code == "durable/no-value"
        assert "was carried out" in caught.value.message
    assert lives.calls == 1 and lives.seen == []
    async with lives.flow(tools=[lives.pay()]) as flow:  # also where a failed run tries its last failures again
        if door in ("tool",):
            with pytest.raises(AgentflowError):
                await (await flow.resume("r", bindings={"note": print})).result()
    assert lives.calls == 1


@pytest.mark.parametrize("door", ["step", "end", "tool", "callable of a program", "answer"])
@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_never_stored_is_refused_before(tmp_path: Path, name: str, door: str) -> None:
    """Where the annotation tells that no record could give the value again, nothing is carried out."""
    if door == "answer" and name != "a secret":
        pytest.skip("no model is asked for it")
    lives = Lives(tmp_path, *REFUSED[name])
    with pytest.raises(ConfigurationError) as caught:
        await DOORS[door](lives)
    assert caught.value.code == ("durable/secret" if "secret" in name else "durable/no-value")
    assert "correct-horse" not in str(caught.value)
    assert lives.calls == 0 and b"correct-horse" not in stored_in(tmp_path)


@pytest.mark.parametrize("name", ["an excluded field", "a secret", "a secret in a list"])
async def test_an_argument_that_is_not_stored_is_kept_by_reference(tmp_path: Path, name: str) -> None:
    """The run has the argument itself, the database nothing of it, and who resumes the run is asked for it."""
    kind, value = {**UNFIT, **REFUSED}[name]
    lives = Lives(tmp_path, kind, value)
    await lives.twice("argument")
    assert [each == value for each in lives.seen] == [True] * 2
    flow = lives.flow()

    async def work(thing: Any) -> str:
        lives.seen.append(thing)
        return "end"

    work.__annotations__["thing"] = kind
    work.__qualname__ = "argument.<locals>.work"
    flow.workflow(work)
    async with flow:
        with pytest.raises(JournalError) as caught:
            await flow.resume("r")
        assert caught.value.code == "durable/bindings" and "thing" in caught.value.message
        await (await flow.resume("r", bindings={"thing": value})).result()
    assert lives.seen[-1] == value
    assert b"correct-horse" not in stored_in(tmp_path)


@pytest.mark.parametrize("name", TYPES)
async def test_a_binding_of_a_program_is_one_thing(tmp_path: Path, name: str) -> None:
    """What a program is bound to is the same before and after a restart: data as it is, a model the dict of its fields, and what
    no data stands for, for which who resumes the run is asked, the object."""
    lives = Lives(tmp_path, *TYPES[name])
    given: dict[str, Any] = {"note": lives.seen.append, "thing": lives.value}
    async with lives.flow() as flow:
        handle = await flow.start(f"(begin (note thing) {YES} (note thing) 1)", given, run_id="r")
        assert await handle.wait() == "waiting"
    async with lives.flow() as flow:
        try:
            handle = await flow.resume("r", bindings={"note": lives.seen.append})
        except JournalError as error:
            assert error.code == "durable/bindings"
            assert not isinstance(lives.value, BaseModel) or name in ("model read by a path", "model with bytes")
            handle = await flow.resume("r", bindings=given)
        assert await handle.wait() == "waiting"
        await flow.send("r", handle.waiting[0].key, True)
        await handle.result()
    first, second = lives.seen
    assert is_same(first, second)
    assert is_same(first, lives.value) or isinstance(first, dict | list | str | int)


async def test_a_failed_step_may_be_caught(tmp_path: Path) -> None:
    """A workflow that catches the failure of what cannot be stored catches it again when it is resumed."""
    lives = Lives(tmp_path, Any, object())

    async def once() -> None:
        flow = lives.flow()

        @flow.workflow
        async def work() -> str:
            try:
                await flow.step(lives.pay())
            except DataError as error:
                lives.seen.append(error.code)
            await flow.ask_human("go on?", bool)
            return "end"

        async with flow:
            await (await flow.start(work(), run_id="r")).wait()

    await once()
    await once()
    assert lives.calls == 1 and lives.seen == ["durable/no-value"] * 2


NATIVE = {
    "row": {"id": 7, "at": dt.datetime(2026, 1, 2)},
    "decimal": {"amount": decimal.Decimal("9.90")},
    "set": {1, 2},
    "keys": {dt.date(2026, 1, 2): "x"},
    "bytes": [b"\xff", Path("a/b")],
}


@pytest.mark.parametrize("name", NATIVE)
async def test_values_of_python_need_no_annotation(tmp_path: Path, name: str) -> None:
    """Times, numbers, sets and bytes in what a tool gives are what they were, with no annotation."""
    lives = Lives(tmp_path, Any, NATIVE[name])
    await lives.twice("tool")
    assert lives.calls == 1 and lives.seen == [NATIVE[name]] * 2 and lives.warnings == []


class Refusal(Exception):
    """As libraries have them: its arguments are none of its message."""

    def __init__(self, number: int, *, who: str) -> None:
        super().__init__(f"refused with {number}")
        self.number = number
        self.who = who


class Own(AgentflowError):
    """An error of the host's own below ours."""

    default_code = "own/error"


@pytest.mark.parametrize(
    "error",
    [
        Refusal(7, who="bank"),
        ValueError("odd"),
        KeyError("a"),
        Own("own", details={"at": NATIVE["row"], "what": object()}),
        DataError("data", code="data/x", details={"set": {1}}),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_is_the_same_live_and_recorded(tmp_path: Path, error: Exception) -> None:
    """Class, code, message and details of the error that ends a workflow do not depend on who reads them when; live its cause is there."""
    caught: list[AgentflowError] = []
    for _ in range(3):
        flow = AgentFlow(provider=ScriptedProvider(["x"]), durable=f"sqlite:///{tmp_path}/runs.db")

        @flow.workflow
        async def work() -> str:
            raise error

        async with flow:
            with pytest.raises(AgentflowError) as raised:
                await (await flow.start(work(), run_id="r")).result()
            caught.append(raised.value)
    first, *others = caught
    assert first.code != "internal/error"
    assert first.__cause__ is error or first is error or type(error) is Own
    for other in others:
        assert (type(other), other.code, other.message, other.details, other.hint) == (
            *(type(first), first.code, first.message),
            *(first.details, first.hint),
        )


async def test_the_value_of_a_program_is_as_its_record_gives_it(tmp_path: Path) -> None:
    """What a program gives is the same for who waits for it and for who asks again: a model in it the dict of its fields."""
    values: list[Any] = []
    for _ in range(2):
        async with AgentFlow(provider=ScriptedProvider(["x"]), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
            bindings = {"x": (1, 2), "at": dt.date(2026, 1, 2)}
            values.append((await (await flow.start("(list x at)", bindings, run_id="r")).result()).value)
    assert values == [[[1, 2], dt.date(2026, 1, 2)]] * 2


async def test_a_class_that_has_changed_is_said(tmp_path: Path) -> None:
    """A record that its annotation takes no more ends the run with its records, and not with another value."""
    lives = Lives(tmp_path, Plain, TYPES["model"][1])
    await step(lives)

    class Plain2(BaseModel):
        name: int

    lives.kind = Plain2
    with pytest.raises(JournalError) as caught:
        await step(lives)
    assert caught.value.code == "durable/mismatch" and "pay" in caught.value.message
    lives.kind = Plain
    await step(lives)
    assert lives.calls == 1 and len(lives.seen) == 2


async def test_a_workflow_that_a_program_calls_gives_its_data(tmp_path: Path) -> None:
    """As a tool a workflow gives its value as JSON data by alias, with and without durable."""
    values: list[Any] = []
    for durable in (None, f"sqlite:///{tmp_path}/runs.db"):
        flow = AgentFlow(provider=ScriptedProvider(["x"]), durable=durable)

        @flow.workflow
        async def customer(number: int) -> Customer:
            return Customer(customerId=number)

        async with flow:
            text = "(get-field (customer (number 3)) 'parsedContent)"
            values.append(
                (await flow.run(text)).value if durable is None else (await (await flow.start(text)).result()).value
            )
    assert values == [{"customerId": 3}] * 2


async def test_concurrent_values_keep_their_types(tmp_path: Path) -> None:
    """The branches of a map give values of their types, also when it is resumed."""
    flows: list[Any] = []
    calls: list[int] = []

    async def pay(number: int) -> Payment:
        calls.append(number)
        return Payment(dt.datetime(2026, 1, number), decimal.Decimal(number))

    async def once() -> None:
        flow = AgentFlow(provider=ScriptedProvider(["x"]), durable=f"sqlite:///{tmp_path}/runs.db")

        @flow.workflow
        async def work() -> str:
            flows.append(await flow.map(lambda number: flow.step(pay, number), [1, 2, 3]))
            await flow.ask_human("go on?", bool)
            return "end"

        async with flow:
            await (await flow.start(work(), run_id="r")).wait()

    await once()
    await once()
    assert sorted(calls) == [1, 2, 3] and flows[0] == flows[1]
    assert flows[0] == [Payment(dt.datetime(2026, 1, each), decimal.Decimal(each)) for each in (1, 2, 3)]
