"""Durable runs of Python workflows: what is stored of them, and what is done again after a kill."""

from __future__ import annotations

import json
import linecache
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, ScriptedProvider
from agentflow.errors import AgentflowError, ConfigurationError, DataError, JournalError, SexpEvaluationError
from agentflow.events import Warning
from tests.support.children import HANG_S

CHILD = '''
import asyncio, os, signal, sys
from pathlib import Path
from pydantic import BaseModel
from agentflow import AgentFlow, ScriptedProvider

ledger, dies = Path(sys.argv[1]), sys.argv[3]
model = ScriptedProvider(lambda request: request.messages[-1].parts[0].text)
flow = AgentFlow(provider=model, durable=f"sqlite:///{sys.argv[2]}")


class Receipt(BaseModel):
    number: int


def note(line: str) -> None:
    with ledger.open("a") as file:
        file.write(line + "\\n")
    if line == dies:
        os.kill(os.getpid(), signal.SIGKILL)


@flow.task
async def echo(text: str) -> str:
    """{{text}}"""
    ...


@flow.tool
async def pay(n: int) -> int:
    """Pay."""
    note(f"pay {n}")
    return n


def reserve(n: int) -> Receipt:
    note(f"reserve {n}")
    return Receipt(number=n)


async def one(n: int) -> int:
    receipt = await flow.step(reserve, n)
    return receipt.number + await flow.call_tool("pay", n=n)


@flow.workflow
async def shop(count: int) -> str:
    """Buy several things."""
    drawn = await flow.uuid()
    totals = [await one(n) for n in range(count)]
    both = await flow.parallel(one(10), one(11))
    paid = await flow.timeout(60, flow.retry(2, lambda: one(20)))
    note("end")
    return f"{drawn} {totals} {both} {paid} {await echo('thanks')} {await flow.uuid() != drawn}"


async def main() -> None:
    async with flow:
        if len(sys.argv) > 4:
            handle = await flow.resume("shop-1")
        else:
            handle = await flow.start(shop(2), run_id="shop-1")
        print((await handle.result()).value)


if __name__ == "__main__":
    asyncio.run(main())
'''


class Receipt(BaseModel):
    """What a step gives."""

    number: int


def child(tmp_path: Path, dies: str = "", *more: str) -> subprocess.CompletedProcess[str]:
    """Run the shop in a process of its own, which kills itself when it notes the line ``dies``."""
    script = tmp_path / "shop.py"
    script.write_text(CHILD)
    return subprocess.run(
        [sys.executable, str(script), str(tmp_path / "ledger"), str(tmp_path / "runs.db"), dies, *more],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "dies", ["pay 1", *(pytest.param(line, marks=pytest.mark.slow) for line in ("reserve 1", "pay 20", "end"))]
)
def test_a_killed_run_goes_on_without_doing_anything_twice(tmp_path: Path, dies: str) -> None:
    """After SIGKILL another process goes on: only what was at work is done again, and the value is that of one run."""
    killed = child(tmp_path, dies)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = child(tmp_path, "", *(["resume"] if dies != "pay 1" else []))
    assert resumed.returncode == 0, resumed.stderr
    assert " [0, 2] (20, 22) 40 thanks True" in resumed.stdout
    lines = (tmp_path / "ledger").read_text().split("\n")[:-1]
    expected = {f"{what} {n}" for what in ("reserve", "pay") for n in (0, 1, 10, 11, 20)} | {"end"}
    repeated = {line for line in lines if lines.count(line) > 1}
    assert set(lines) == expected and repeated == {dies}
    again = child(tmp_path)
    assert again.stdout == resumed.stdout, "a run that has ended gives its recorded end"
    with sqlite3.connect(tmp_path / "runs.db") as database:
        (text,) = database.execute("select program from af_run").fetchone()
    stored = json.loads(json.loads(text))
    assert stored["python"] == "__main__:shop" and len(stored["digest"]) == 32


def flow_of(tmp_path: Path, *replies: Any) -> AgentFlow:
    """A durable flow whose model answers by a script."""
    return AgentFlow(
        provider=ScriptedProvider(replies), root=str(tmp_path), durable=f"sqlite:///{tmp_path / 'runs.db'}"
    )


def receipt(number: int) -> Receipt:
    """A step that gives a model."""
    return Receipt(number=number)


def give(number: int) -> int:
    """A step that gives what it is given."""
    return number


async def failing() -> int:
    """A step that fails."""
    raise KeyError("mine")


async def test_values_are_typed_whether_they_are_recorded_or_not(tmp_path: Path) -> None:
    """What a step, a task and a run give is of its annotated type, the first time and when it is read from records."""
    async with flow_of(tmp_path, '{"number": 7}') as flow:

        @flow.task
        async def ask(topic: str) -> Receipt:
            """About {{topic}}."""

        @flow.workflow
        async def work(first: Receipt) -> list[Receipt]:
            """Collect receipts."""
            assert isinstance(first, Receipt)
            return [first, await ask("x"), await flow.step(receipt, number=2)]

        wanted = [Receipt(number=1), Receipt(number=7), Receipt(number=2)]
        handle = await flow.start(work(Receipt(number=1)), run_id="r-1")
        assert (await handle.result()).value == wanted
        assert (await (await flow.start(work(Receipt(number=1)), run_id="r-1")).result()).value == wanted
        with pytest.raises(JournalError) as other:
            await flow.start(work(Receipt(number=2)), run_id="r-1")
        assert other.value.code == "durable/mismatch"
        (info,) = await flow.runs()
        assert info.name == "work"


async def test_a_prompt_by_a_body_is_recorded_with_its_task(tmp_path: Path) -> None:
    """The body of a task that has ended is not run again, nor what it asked; that of one that had not is run again with its task."""
    began: list[str] = []

    def described(flow: AgentFlow, *, fails: bool) -> Any:
        @flow.task
        async def ask(topic: str) -> Receipt:
            began.append(topic)
            how = await flow.ask("How?")
            number = await flow.step(failing) if fails and topic == "y" else 1
            return f"{how}: {topic} {number}"  # type: ignore[return-value]

        @flow.workflow
        async def work() -> list[Receipt]:
            """Ask twice."""
            return [await ask("x"), await ask("y")]

        return work

    async with flow_of(tmp_path, "shortly", '{"number": 1}', "at length") as flow:
        with pytest.raises(SexpEvaluationError, match="mine"):
            await (await flow.start(described(flow, fails=True)(), run_id="r-1")).result()
    assert began == ["x", "y"]
    async with flow_of(tmp_path, "in a word", '{"number": 2}') as flow:
        described(flow, fails=False)
        result = await (await flow.resume("r-1")).result()
    assert result.value == [Receipt(number=1), Receipt(number=2)] and result.usage.requests == 5
    assert began == ["x", "y", "y"]


async def test_a_changed_workflow_goes_on_as_far_as_it_asks_for_the_same(tmp_path: Path) -> None:
    """An edit that asks for the same effects goes on; one that asks for another stops with the error of programs."""
    async with flow_of(tmp_path) as flow:

        async def work() -> int:
            """Work."""
            first = await flow.step(receipt, 1)
            return first.number + await flow.step(failing)

        for run_id in ("r-1", "r-2"):
            started = await flow.start(flow.workflow(work)(), run_id=run_id)
            with pytest.raises(SexpEvaluationError) as failed:
                await started.result()
            assert failed.value.code == "host/raised" and "KeyError" in failed.value.message
    async with flow_of(tmp_path) as flow:

        async def work() -> int:
            """Work, edited above and below."""
            one = 1
            first = await flow.step(receipt, one)
            return first.number + 10

        flow.workflow(work)
        assert (await (await flow.resume("r-1")).result()).value == 11
    async with flow_of(tmp_path) as flow:

        async def work() -> int:
            """Work that asks for something else."""
            return (await flow.step(receipt, 2)).number

        changed = flow.workflow(work)
        ended = await flow.start(changed(), run_id="r-1")
        assert (await ended.result()).value == 11, "it has ended"
        with pytest.raises(JournalError) as mismatch:
            await (await flow.resume("r-2")).result()
        assert mismatch.value.code == "durable/mismatch" and "0/0.0" in mismatch.value.message


async def test_a_changed_file_is_warned_of(tmp_path: Path) -> None:
    """A run that goes on in a workflow whose file was edited says so by an event, and one whose file is the same does not."""
    text = 'async def work() -> int:\n    "Work."\n    return await step(give, 1) + await step({second})\n'
    module = tmp_path / "edited.py"

    async def go_on(second: str) -> tuple[Any, list[str]]:
        module.write_text(text.replace("{second}", second))
        linecache.checkcache(str(module))  # which another process had not read
        async with flow_of(tmp_path) as flow:
            space: dict[str, Any] = {"step": flow.step, "give": give, "failing": failing, "__name__": "edited"}
            exec(compile(module.read_text(), str(module), "exec"), space)
            work = flow.workflow(space["work"])
            codes: list[str] = []
            flow.subscribe(lambda event: codes.append(event.code) if isinstance(event, Warning) else None)
            handle = await (flow.resume("r-1") if await flow.find_run("r-1") else flow.start(work(), run_id="r-1"))
            try:
                return (await handle.result()).value, codes
            except SexpEvaluationError as error:
                return error.code, codes

    assert await go_on("failing") == ("host/raised", [])
    assert await go_on("failing") == ("host/raised", [])
    assert await go_on("give, 2") == (3, ["durable/changed"])


async def test_what_cannot_be_durable_says_so(tmp_path: Path) -> None:
    """Only calls of tasks and workflows are durable, and a run of a function that is not there names it."""
    async with flow_of(tmp_path) as flow:

        @flow.workflow
        async def work() -> int:
            """Work."""
            return await flow.step(failing)

        with pytest.raises(ConfigurationError) as nameless:
            await flow.start(flow.sleep(1))
        assert nameless.value.code == "python/not-durable"
        with pytest.raises(ConfigurationError) as bound:
            await flow.start(work(), {"x": 1})  # type: ignore[call-overload]
        assert bound.value.code == "python/bindings"
        with pytest.raises(SexpEvaluationError):
            await (await flow.start(work(), run_id="r-1")).result()
    async with flow_of(tmp_path) as flow:
        with pytest.raises(JournalError) as missing:
            await flow.resume("r-1")
        assert missing.value.code == "durable/unknown-function" and "work" in missing.value.message
        assert "--app" in (missing.value.hint or "")


class Vote(BaseModel):
    """What somebody is asked for."""

    name: str
    pay: bool


async def test_a_workflow_waits_for_people(tmp_path: Path) -> None:
    """Questions in branches are open at once, outside of the memory; answers are checked, and come as what was asked for."""

    def opened() -> tuple[AgentFlow, Any]:
        flow = AgentFlow(provider=ScriptedProvider([]), root=tmp_path, durable=f"sqlite:///{tmp_path}/runs.db")

        @flow.workflow
        async def vote(names: list[str]) -> list[int]:
            async def one(name: str) -> int:
                return (await flow.ask_human(f"Pay {name}?", Vote)).pay + (await flow.ask_human("How often?", int))

            return await flow.map(one, names)

        return flow, vote

    flow, vote = opened()
    async with flow:
        handle = await flow.start(vote(["Ada", "Bo"]), run_id="r")
        assert await handle.wait() == "waiting"
        ada, bo = handle.waiting
        assert (ada.question, bo.question) == ("Pay Ada?", "Pay Bo?") and ada.schema is not None
        with pytest.raises(DataError) as caught:
            await flow.send("r", ada.key, {"name": "Ada"})
        assert caught.value.code == "question/answer"
        await flow.send("r", ada.key, {"name": "Ada", "pay": True})
    flow, vote = opened()
    async with flow:
        await flow.send("r", bo.key, {"name": "Bo", "pay": False})
        handle = await flow.resume("r")
        assert await handle.wait() == "waiting" and len(handle.waiting) == 2
        for number, each in enumerate(handle.waiting, 5):
            await flow.send("r", each.key, number)
        assert (await handle.result()).value == [6, 6]
    with pytest.raises(ConfigurationError, match="no JSON Schema"):
        flow.ask_human("x", type("Thing", (), {})).close()


async def test_a_workflow_goes_by_the_kind_of_a_recorded_exception(tmp_path: Path) -> None:
    """The class of a step's exception is in the error's details, the first time and when the run goes on."""
    seen: list[object] = []

    def declared(flow: AgentFlow) -> Any:
        async def work() -> str:
            try:
                await flow.step(failing)
            except AgentflowError as error:
                seen.append(error.details["exception"])
            return await flow.ask_human("on?", str)

        return flow.workflow(work)

    async with flow_of(tmp_path) as flow:
        await (await flow.start(declared(flow)(), run_id="r")).wait()
    async with flow_of(tmp_path) as flow:
        declared(flow)
        await flow.send("r", (await flow.questions("r"))[0].key, "yes")
        assert (await (await flow.resume("r")).result()).value == "yes"
    assert seen == ["KeyError", "KeyError"]


async def test_code_of_the_host_that_raises_names_the_class() -> None:
    """A step, a check, the body of a task and middleware: the error's details have the name of the exception's class."""
    flow = AgentFlow(provider=ScriptedProvider("x"))

    def broken(*_: Any) -> Any:
        raise KeyError("x")

    async def guard(call: Any, run: Any, ctx: Any) -> Any:
        raise KeyError("x")

    @flow.task
    async def bodied(topic: str) -> str:
        """Do it."""
        return {"a": "b"}[topic]

    @flow.workflow
    async def stepped() -> Any:
        return await flow.step(failing)

    flow.tools.add(give)
    async with flow:
        for work in (
            stepped(),
            bodied("x"),
            flow.ask("?", check=lambda value, ctx: broken()),
            flow.run("(value-of (give (number 1)))", around_tool=[guard]),
        ):
            with pytest.raises(AgentflowError) as error:
                await work
            assert error.value.details["exception"] == "KeyError"
