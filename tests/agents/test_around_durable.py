"""Middleware in durable runs: what it ran is paid once, however long it waits afterwards, and it is not left out on resuming."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agentflow
from agentflow import (
    AgentFlow,
    CallContext,
    Denied,
    ModelRequest,
    ModelResponse,
    Retry,
    ScriptedProvider,
    TaskResult,
    ToolCall,
    tool,
)
from agentflow.core.data.errors import ConfigurationError, JournalError
from agentflow.core.data.messages import ToolResultPart
from agentflow.core.ports.ports import ModelCall
from tests.support.children import HANG_S

RunTool = Callable[[ToolCall], Awaitable[TaskResult]]
RunModel = Callable[[ModelRequest], ModelCall]
CALL: dict[str, Any] = {"tool_calls": [{"name": "transfer", "arguments": {"amount": 5}}]}
TASK = '(defatom pay (params) (instructions "Pay.") (tools "transfer")) (value-of (pay))'


class Bank:
    """A tool, and middleware that asks a person what to do with a result that there is already."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.entered = 0

    async def transfer(self, amount: int) -> str:
        """Send money."""
        self.sent.append(amount)
        return f"sent {amount}"

    async def after(self, call: ToolCall, run: RunTool, ctx: CallContext) -> TaskResult:
        """Asks once the tool has run."""
        self.entered += 1
        result = await run(replace(call, arguments={"amount": call.arguments["amount"] + 1}))
        if not await ctx.ask_human("keep it?", {"type": "boolean"}):
            raise Denied("taken back")
        return replace(result, content=result.content + "!")

    async def after_answer(self, request: ModelRequest, run: RunModel, ctx: CallContext) -> ModelResponse:
        """Asks once the model has answered."""
        self.entered += 1
        response = await run(request)
        if not response.tool_calls:
            await ctx.ask_human("send it?", {"type": "boolean"})
            return response.with_text(response.text + "!")
        return response


def opened(database: Path, bank: Bank, model: ScriptedProvider, **options: Any) -> AgentFlow:
    """A flow of one process."""
    return AgentFlow(provider=model, durable=f"sqlite:///{database}", tools=[bank.transfer], **options)


@pytest.mark.parametrize("who", ["program", "model"])
async def test_a_tool_is_paid_once_although_middleware_waits_after_it(tmp_path: Path, who: str) -> None:
    """A run that waits for a person after the tool has run goes on, in another process, without running it again."""
    database, bank = tmp_path / "runs.db", Bank()
    model = ScriptedProvider([CALL, "done"])
    text = TASK if who == "model" else "(value-of (transfer (amount 5)))"
    async with opened(database, bank, model, around_tool=[bank.after]) as flow:
        await flow.start(text, run_id="r1")
        await parked(flow, "r1")
    async with opened(database, bank, model, around_tool=[bank.after]) as flow:
        (question,) = await flow.questions("r1")
        await flow.send("r1", question.key, True)
        run = await flow.resume("r1")
        assert (await run.result()).value == ("done" if who == "model" else "sent 6!")
    assert bank.sent == [6] and bank.entered == 2
    if who == "model":
        assert "sent 6!" in str(model.requests[-1].messages[-1])
    async with opened(database, bank, model, around_tool=[bank.after]) as flow:
        run = await flow.resume("r1")
        assert (await run.result()).value == ("done" if who == "model" else "sent 6!")
    assert bank.sent == [6] and bank.entered == 2, "what has a record runs neither tool nor middleware"


async def parked(flow: AgentFlow, run_id: str) -> None:
    """Wait until a run has a question."""
    async with asyncio.timeout(20):
        while not await flow.questions(run_id):
            await asyncio.sleep(0.01)


async def test_a_model_is_paid_once_although_middleware_waits_after_it(tmp_path: Path) -> None:
    """The same for the answer of a model, in the middle of a tool loop and at its end; the account says what was paid."""
    database, bank = tmp_path / "runs.db", Bank()
    last = {"text": "done", "usage": {"input_tokens": 10, "output_tokens": 5}, "cost_usd": 0.01}
    model = ScriptedProvider([{**CALL, "usage": {"input_tokens": 20, "output_tokens": 5}, "cost_usd": 0.02}, last])
    async with opened(database, bank, model, around_model=[bank.after_answer]) as flow:
        await flow.start(TASK, run_id="r1")
        await parked(flow, "r1")
    async with opened(database, bank, model, around_model=[bank.after_answer]) as flow:
        (question,) = await flow.questions("r1")
        await flow.send("r1", question.key, True)
        result = await (await flow.resume("r1")).result()
    assert (result.value, len(model.requests), bank.sent) == ("done!", 2, [5])
    assert (result.usage.total_tokens, result.cost) == (40, 0.03)


SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from agentflow import AgentFlow, ScriptedProvider

async def transfer(amount: int) -> str:
    \"\"\"Send money.\"\"\"
    with Path(sys.argv[2]).open("a") as file:
        file.write("sent ")
    return "sent"

async def guard(call, run, ctx):
    result = await run(call)
    if sys.argv[3] == "die":
        os._exit(9)
    return result

async def main():
    database = "sqlite:///" + sys.argv[1]
    async with AgentFlow(provider=ScriptedProvider("x"), durable=database, tools=[transfer], around_tool=[guard]) as flow:
        if sys.argv[3] == "die":
            run = await flow.start("(value-of (transfer (amount 1)))", run_id="r1")
        else:
            run = await flow.resume("r1")
        print((await run.result()).value)

asyncio.run(main())
"""


def test_a_kill_between_the_tool_and_the_return_of_middleware(tmp_path: Path) -> None:
    """A process that is killed when the tool has run, and middleware has not returned, does not run the tool twice."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, "utf-8")
    database, sent = tmp_path / "runs.db", tmp_path / "sent"
    command = [sys.executable, str(script), str(database), str(sent)]
    killed = subprocess.run([*command, "die"], capture_output=True, text=True, timeout=HANG_S)
    assert killed.returncode == 9, killed.stderr
    again = subprocess.run([*command, "live"], capture_output=True, text=True, timeout=HANG_S)
    assert again.stdout.strip() == "sent", again.stderr
    assert sent.read_text() == "sent "


async def test_a_tool_that_ends_its_task_does_so_through_middleware(tmp_path: Path) -> None:
    """``@tool(ends=True)`` and ``Finish`` end the task with middleware around the call too, plain and durable."""

    async def watched(call: ToolCall, run: Any, ctx: CallContext) -> TaskResult:
        return await run(call)

    @tool(ends=True)
    async def submit(answer: str) -> str:
        """Submit the answer."""
        return answer

    reply = {"tool_calls": [{"name": "submit", "arguments": {"answer": "42"}}]}
    for durable in (None, f"sqlite:///{tmp_path}/endings.db"):
        model = ScriptedProvider([reply])
        async with AgentFlow(provider=model, durable=durable, around_tool=[watched]) as flow:

            @flow.task(name="ask_it", tools=[submit])
            async def ask_it(question: str) -> str:
                """{{question}}"""

            if durable is None:
                assert await ask_it("?") == "42"
            else:
                run = await flow.start('(content (ask_it (question "?")))', run_id="r")
                assert (await run.result()).value == "42"


async def test_a_run_is_not_resumed_without_the_middleware_that_guarded_it(tmp_path: Path) -> None:
    """A flow that leaves out ``around_tool=`` cannot resume the run: ``durable/guards`` before any code; with it, it can."""

    async def watched(call: ToolCall, run: RunTool, ctx: CallContext) -> TaskResult:
        return await run(call)

    url = f"sqlite:///{tmp_path}/guards.db"
    async with AgentFlow(durable=url, around_tool=[watched]) as flow:
        await (await flow.start('(ask-human "on?")', run_id="r")).wait()
    async with AgentFlow(durable=url) as flow:
        with pytest.raises(JournalError, match="around_tool=") as error:
            await flow.resume("r")
        assert error.value.code == "durable/guards"
    async with AgentFlow(durable=url, around_tool=[watched]) as flow:
        await (await flow.resume("r")).wait()
        await flow.send("r", (await flow.questions("r"))[0].key, "yes")
        assert (await (await flow.resume("r")).result()).value == "yes"


ENDING = """
import asyncio, os, sys
from pathlib import Path
from agentflow import AgentFlow, Finish, Handoff, ScriptedProvider

def answer(request):
    with Path(sys.argv[2]).open("a") as file:
        file.write("asked ")
    first = {"tool_calls": [{"name": sys.argv[4], "arguments": {}}]}
    return first if len(request.messages) == 1 and "Billing" not in request.messages[0].text else "from billing"

async def submit() -> str:
    \"\"\"Submit.\"\"\"
    raise Finish("42")

async def give() -> str:
    \"\"\"Hand over.\"\"\"
    return Handoff("billing", {}, keep=None)

async def guard(call, run, ctx):
    result = await run(call)
    if sys.argv[3] == "die":
        os._exit(9)
    return result

async def main():
    database = "sqlite:///" + sys.argv[1]
    async with AgentFlow(provider=ScriptedProvider(answer), durable=database, around_tool=[guard]) as flow:
        @flow.task
        async def billing() -> str:
            \"\"\"Billing.\"\"\"
        @flow.task(tools=[submit, give])
        async def work() -> str:
            \"\"\"Work.\"\"\"
        run = await (flow.start(work(), run_id="r1") if sys.argv[3] == "die" else flow.resume("r1"))
        print((await run.result()).value)

asyncio.run(main())
"""


@pytest.mark.parametrize(("ends", "value", "asked"), [("submit", "42", 1), ("give", "from billing", 2)])
def test_a_kill_after_a_tool_has_ended_the_task(tmp_path: Path, ends: str, value: str, asked: int) -> None:
    """A process that is killed between a ``Finish``, or a ``Handoff``, and the return of middleware ends the task when it is
    resumed: the model is not asked what to do next."""
    script, asks = tmp_path / "script.py", tmp_path / "asks"
    script.write_text(ENDING, "utf-8")
    command = [sys.executable, str(script), str(tmp_path / "runs.db"), str(asks)]
    killed = subprocess.run([*command, "die", ends], capture_output=True, text=True, timeout=HANG_S)
    assert killed.returncode == 9, killed.stderr
    again = subprocess.run([*command, "live", ends], capture_output=True, text=True, timeout=HANG_S)
    assert again.stdout.strip() == value, again.stderr
    assert asks.read_text() == "asked " * asked


MODEL = """
import asyncio, os, sys
from pathlib import Path
from agentflow import AgentFlow, ScriptedProvider

def answer(request):
    with Path(sys.argv[2]).open("a") as file:
        file.write("asked ")
    return "answer to " + request.messages[-1].text

async def whole(request, run, ctx):
    if sys.argv[3] == "before":
        os._exit(9)
    response = await run(request)
    if sys.argv[3] == "after":
        os._exit(9)
    return response.with_text(response.text + "!")

async def parts(request, run, ctx):
    if sys.argv[3] == "before":
        os._exit(9)
    async for delta in run(request):
        yield delta
    if sys.argv[3] == "after":
        os._exit(9)

async def main():
    database, around = "sqlite:///" + sys.argv[1], globals()[sys.argv[4]]
    async with AgentFlow(provider=ScriptedProvider(answer), durable=database, around_model=[around]) as flow:
        @flow.task
        async def work(n: int) -> str:
            \"\"\"{{n}}\"\"\"
        @flow.workflow
        async def both() -> str:
            return await work(1) + await work(2)
        live = await flow.find_run("r1")
        run = await (flow.start(both(), run_id="r1") if live is None else flow.resume("r1"))
        print((await run.result()).value)

asyncio.run(main())
"""


@pytest.mark.parametrize("around", [pytest.param("whole", marks=pytest.mark.slow), "parts"])
def test_kills_around_a_model_call_in_middleware(tmp_path: Path, around: str) -> None:
    """A process that is killed before the model is asked asks it when it is resumed; one that is killed when the answer is
    there, and middleware has not returned, does not ask again."""
    script, asks = tmp_path / "script.py", tmp_path / "asks"
    script.write_text(MODEL, "utf-8")

    def process(dies: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), str(tmp_path / "runs.db"), str(asks), dies, around]
        return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)

    for dies, asked in (("before", 0), ("after", 1), ("after", 1)):
        assert process(dies).returncode == 9
        assert (asks.read_text() if asks.exists() else "") == "asked " * asked
    mark = "!" if around == "whole" else ""
    ended = process("")
    assert ended.stdout.strip() == f"answer to 1{mark}answer to 2{mark}", ended.stderr
    assert asks.read_text() == "asked asked "


async def test_a_run_is_not_resumed_without_what_approved_its_calls(tmp_path: Path) -> None:
    """``approve=`` of a flow or of ``flow.start`` is a guard: resumed without one, the run is ``durable/guards``; with another, of
    either kind, it goes on. Workers have that of their flow, so that of a start is refused."""
    url = f"sqlite:///{tmp_path}/approved.db"

    def yes(request: Any) -> bool:
        return True

    async with AgentFlow(durable=url, approve=yes) as flow:
        await (await flow.start('(ask-human "on?")', run_id="flow")).wait()
    async with AgentFlow(durable=url) as flow:
        await (await flow.start('(ask-human "on?")', run_id="own", approve=yes)).wait()
        await (await flow.start('(ask-human "on?")', run_id="free")).wait()
        with pytest.raises(ConfigurationError, match="workers carry this run out"):
            await flow.start('(ask-human "on?")', where="workers", approve=yes)
    async with AgentFlow(durable=url) as flow:
        for run in ("flow", "own"):
            with pytest.raises(JournalError, match="approve=") as error:
                await flow.resume(run)
            assert error.value.code == "durable/guards" and "flow.resume(" in (error.value.hint or "")
        await (await flow.resume("free")).wait()
        await (await flow.resume("flow", approve=yes)).wait()
    async with AgentFlow(durable=url, approve=yes) as flow:
        await (await flow.resume("own")).wait()
        await flow.send("own", (await flow.questions("own"))[0].key, "yes")
        assert (await (await flow.resume("own")).result()).value == "yes"


async def test_a_durable_handoff_goes_to_the_task_that_was_listed(tmp_path: Path) -> None:
    """The task in ``handoffs=`` is that object, though a record holds its name alone: a copy, or one without a flow, which the
    flow does not know by name."""
    reply = {"tool_calls": [{"name": "transfer_to_billing", "arguments": {"problem": "x"}}]}
    for durable in (None, f"sqlite:///{tmp_path}/handoffs.db"):
        model = ScriptedProvider([reply, "paid"])
        async with AgentFlow(provider=model, durable=durable) as flow:

            @flow.task(handoffs=[billing])
            async def triage(question: str) -> str:
                """{{question}}"""

            call = triage("?")
            value = (await (await flow.start(call)).result()).value if durable else (await flow.run(call)).value
            assert value == "paid" and model.requests[1].messages[-1].text == "Billing: x"


@agentflow.task
async def billing(problem: str) -> str:
    """Billing: {{problem}}"""


@pytest.mark.parametrize("raised_by", ["tool", "middleware"])
async def test_a_recorded_retry_reads_as_it_did(tmp_path: Path, raised_by: str) -> None:
    """Middleware that waits after a ``Retry``: the model reads the same reason when the run goes on as it would have without the wait."""

    async def waits(call: ToolCall, run: Any, ctx: CallContext) -> TaskResult:
        result = await run(call)
        await ctx.ask_human("on?")
        return result

    async def refuses(call: ToolCall, run: Any, ctx: CallContext) -> TaskResult:
        if raised_by == "middleware":
            raise Retry("say a city")
        return await run(call)

    async def weather(city: str) -> str:
        """The weather."""
        raise Retry("say a city")

    def app(*replies: Any) -> tuple[AgentFlow, ScriptedProvider]:
        model = ScriptedProvider(replies)
        flow = AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/retry.db", around_tool=[waits, refuses])

        @flow.task(name="advise", tools=[weather])
        async def advise(question: str) -> str:
            """{{question}}"""

        return flow, model

    flow, _ = app({"tool_calls": [{"name": "weather", "arguments": {"city": "x"}}]})
    async with flow:
        await (await flow.start('(content (advise (question "?")))', run_id="r")).wait()
    flow, model = app("Rain.")
    async with flow:
        await flow.send("r", (await flow.questions("r"))[0].key, "yes")
        assert (await (await flow.resume("r")).result()).value == "Rain."
    (part,) = model.requests[0].messages[-1].parts
    assert isinstance(part, ToolResultPart) and part.text == "say a city" and part.is_error
