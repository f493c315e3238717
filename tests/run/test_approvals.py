"""Approvals: what counts as a yes, at every door an answer comes in by, and what happens with a yes that changes the call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult

from agentflow import (
    AgentFlow,
    ApprovalRequest,
    Approved,
    CallContext,
    Denied,
    Provenance,
    ScriptedProvider,
    Sink,
    tool,
)
from agentflow.core.call.approval import decided, of_wire
from agentflow.core.events.events import Event, ToolStarted, Warning
from agentflow.core.events.questions import Question
from agentflow.errors import ConfigurationError, SexpEvaluationError
from agentflow.run.handle import RunResult
from agentflow.serve import Export
from agentflow.serve.mcp.tool_calls import answer_of
from tests.support.served import served

WIRE = {"approved": True, "arguments": {"path": "other.txt"}}


class Yes:
    """Anything that is true, and says so."""

    approved = True

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def later() -> Awaitable[bool]:
    async def yes() -> bool:
        return True

    return yes()


SILENT: list[Any] = [False, None, "no", "yes", "true", "", Denied(), Denied("not today")]
"""What is a no by its meaning."""
UNCLEAR: list[Any] = [
    1, 0, -1, 1.0, 2, b"yes", b"", [], [True], [False], (True,), (False, "why"), (True, "why"), {}, {"approved": True},
    {"approved": False}, {"approved": "yes"}, {"approved": 1, "arguments": {}}, {"approved": True, "arguments": None},
    {"approved": True, "arguments": []}, {"approved": True, "arguments": {}, "more": 1}, {"answer": True}, {"yes": True},
    set(), {True}, object(), Yes(), Approved, Denied, bool, int, ValueError("no"), lambda: True, Path("yes"), 1j, range(1),
]  # fmt: skip
"""What is not a yes, and not a no that anybody means either."""


@tool(approval=True)
async def write(path: str) -> str:
    """Write a file."""
    WRITTEN.append(path)
    return f"wrote {path}"


WRITTEN: list[str] = []


@dataclass
class Seen:
    """What a run of one call wrote, published and told its model."""

    written: list[str]
    warnings: list[str] = field(default_factory=list[str])
    read: str = ""
    ran_with: list[Any] = field(default_factory=list[Any])


async def by_model(
    answer: Any = None, *, flow_options: dict[str, Any] | None = None, tools: Any = (write,), **run: Any
) -> Seen:
    """A model asks once for the tool; what it reads is what it answers with."""
    WRITTEN.clear()
    events: list[Event] = []

    def model(request: Any) -> Any:
        last = request.messages[-1].parts[-1]
        if getattr(last, "call_id", None) or request.messages[-1].role == "tool" or len(request.messages) > 1:
            return last.text
        return {"tool_calls": [{"name": "write", "arguments": {"path": "a.txt"}}]}

    def approve(request: ApprovalRequest) -> Any:
        if isinstance(answer, BaseException) and not isinstance(answer, ValueError | Denied):
            raise answer
        return answer

    options = {"approve": approve} if flow_options is None else flow_options
    async with AgentFlow(provider=ScriptedProvider(model), tools=list(tools), **options) as flow:
        flow.subscribe(events.append)
        result: RunResult[Any] = await flow.run('(defatom go (params) (instructions "Go.")) (content (go))', **run)
    codes = [each.code for each in events if isinstance(each, Warning)]
    ran = [each.arguments for each in events if isinstance(each, ToolStarted)]
    return Seen(list(WRITTEN), codes, result.value, ran)


@pytest.mark.parametrize("number", range(len(SILENT) + len(UNCLEAR)))
async def test_what_is_no_yes_is_a_no(number: int) -> None:
    """Of an approver, only True and Approved let a call run. What nobody would call an answer is also a warning."""
    seen = await by_model([*SILENT, *UNCLEAR][number])
    assert seen.written == [] and "was not approved and did not run" in seen.read
    assert ("tool/unclear-approval" in seen.warnings) == (number >= len(SILENT))


@pytest.mark.parametrize("answer", [True, Approved()])
async def test_a_yes_is_a_yes(answer: Any) -> None:
    """True and Approved run the call, plain and from an async approver."""
    assert (await by_model(answer)).read == "wrote a.txt"

    async def approve(request: ApprovalRequest) -> Any:
        await asyncio.sleep(0)
        return answer

    assert (await by_model(flow_options={"approve": approve})).written == ["a.txt"]


@pytest.mark.parametrize("answer", ["only on Mondays", Denied("only on Mondays"), RuntimeError])
async def test_a_model_reads_why(answer: Any) -> None:
    """A text and a Denied, returned or raised, are a no with a reason; an approver that fails is a no, and a warning."""

    def approve(request: ApprovalRequest) -> Any:
        if answer is RuntimeError:
            raise RuntimeError("terminal gone")
        if isinstance(answer, Denied):
            raise answer
        return answer

    seen = await by_model(flow_options={"approve": approve})
    assert seen.written == []
    if answer is RuntimeError:
        assert seen.warnings == ["tool/approver-failed"] and "terminal" not in seen.read
    else:
        assert "did not run: only on Mondays. " in seen.read and not seen.warnings
    assert "continue without it" in seen.read and "approve=" not in seen.read


async def test_nobody_there_is_a_no_that_the_developer_is_told_of() -> None:
    """Without an approver the model reads that no approver was available, and a warning names the options."""
    events: list[Event] = []
    async with AgentFlow(tools=[write]) as flow:
        flow.subscribe(events.append)
        read = (await flow.run('(content (write (path "a")))', allow=["write"])).value
    (warning,) = [each for each in events if isinstance(each, Warning)]
    assert "no approver was available" in read and "approve=" not in read
    assert warning.code == "tool/nobody-approves" and "approve=..." in warning.message


# -- other doors -----------------------------------------------------------------------------------------------------------


async def by_callable(answer: Any, tmp_path: Path) -> bool:
    return bool((await by_model(answer)).written)


async def by_send(answer: Any, tmp_path: Path) -> bool:
    """The run is in memory and waits for ``flow.send``."""
    return await sent(answer, {"approval_ttl": 30})


async def by_send_durable(answer: Any, tmp_path: Path) -> bool:
    """The run is in a database."""
    return await sent(answer, {"durable": f"sqlite:///{tmp_path}/runs.db"})


async def sent(answer: Any, options: dict[str, Any]) -> bool:
    async with AgentFlow(tools=[write], **options) as flow:
        text = '(failed? (write (path "a.txt")))'
        if "durable" in options:
            handle = await flow.start(text, run_id="r", allow=["write"])
            assert await handle.wait() == "waiting"
            await flow.send("r", handle.waiting[0].key, answer)
            return not (await handle.result()).value
        running = asyncio.create_task(flow.run(text, run_id="r", allow=["write"]))
        while not await flow.questions("r"):
            await asyncio.sleep(0.001)
        await flow.send("r", (await flow.questions("r"))[0].key, answer)
        return not (await running).value


async def by_endorsement(answer: Any, tmp_path: Path) -> bool:
    async with AgentFlow(approve=lambda request: answer) as flow:
        try:
            await flow.run('(endorse "x" "looked up")', allow=["endorse"])
        except SexpEvaluationError as error:
            assert error.code == "provenance/not-endorsed"
            return False
        return True


async def by_manifest(answer: Any, tmp_path: Path) -> bool:
    WRITTEN.clear()
    provider = ScriptedProvider(['(write (path "a.txt"))', "'nothing", "'nothing"])
    async with AgentFlow(provider=provider, tools=[write], approve=lambda request: answer) as flow:
        await flow.run('(solve "write" (allow write))')
    return bool(WRITTEN)


async def by_command(answer: Any, tmp_path: Path) -> bool:
    name = "system:execute_shell_command"
    async with AgentFlow(root=tmp_path, sandbox="none", approve=lambda request: answer) as flow:
        await flow.run(f'({name} (command "touch made"))', allow=[name])
    made = tmp_path / "made"
    return made.exists() and made.unlink() is None


async def by_http(answer: Any, tmp_path: Path) -> bool:
    """Over the server's API of runs; what JSON cannot say is not sent."""
    try:
        json.dumps(answer)
    except TypeError:
        answer = None if not isinstance(answer, Approved) else True
    WRITTEN.clear()
    export = Export(program='(failed? (write (path "a.txt")))', parameters={}, allow=["write"])
    async with AgentFlow(tools=[write]) as flow, served(flow, {"x": export}) as server:
        run_id = await server.begin("x")
        while not (asked := (await server.get(f"/runs/{run_id}")).json()["waiting"]):
            await asyncio.sleep(0.001)
        told = await server.post(f"/runs/{run_id}/answers/{asked[0]['key']}", {"answer": answer})
        refused = (await server.ended(run_id))["value"]
        assert told.json()["answer"] is not refused, "the reply says what was decided"
    return bool(WRITTEN)


async def by_form(answer: Any, tmp_path: Path) -> bool:
    """In a form of MCP, whose field has the value."""
    asked = Question(question="write?", reason="approval")
    wanted = True if isinstance(answer, Approved) else answer
    reply = ElicitResult.model_construct(action="accept", content={"approve": wanted})
    return isinstance(decided(of_wire(answer_of(asked, reply)), REQUEST, lambda code, message: None), Approved)


REQUEST = ApprovalRequest("write", "write", "digest", editable=True)


DOORS: list[Callable[[Any, Path], Awaitable[bool]]] = [
    by_callable,
    by_send,
    by_send_durable,
    by_endorsement,
    by_manifest,
    by_command,
    by_http,
    by_form,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_every_door_decides_alike(door: Callable[[Any, Path], Awaitable[bool]], tmp_path: Path) -> None:
    """What is a yes at one door is one at all; nothing else is."""
    for answer in [*SILENT, *UNCLEAR]:
        (tmp_path / "runs.db").unlink(missing_ok=True)
        assert not await door(answer, tmp_path), answer
    for answer in (True, Approved()):
        (tmp_path / "runs.db").unlink(missing_ok=True)
        assert await door(answer, tmp_path), answer


# -- other arguments ------------------------------------------------------------------------------------------------------


async def test_a_yes_may_change_the_arguments() -> None:
    """The call runs with them, its event shows them, and the model reads what they were."""
    seen = await by_model(Approved(arguments={"path": "b.txt"}))
    assert seen.written == ["b.txt"] and seen.ran_with == [{"path": "b.txt"}]
    assert seen.read == 'the approver changed the arguments of this call to {"path": "b.txt"}\nwrote b.txt'


@pytest.mark.parametrize("arguments", [{}, {"path": 3}, {"path": "b.txt", "more": 1}, {"file": "b.txt"}])
async def test_changed_arguments_must_fit_the_schema(arguments: dict[str, Any]) -> None:
    """They are checked as the model's own are."""
    seen = await by_model(Approved(arguments=arguments))
    assert seen.written == [] and "tool 'write'" in seen.read


async def test_nobody_is_asked_about_arguments_that_do_not_fit() -> None:
    """A call that could not run is refused before anybody is asked."""
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    async with AgentFlow(tools=[write], approve=approve) as flow:
        result = (await flow.run("(write (path p))", bindings={"p": 3}, allow=["write"])).value
    assert result.notes["error"]["details"]["code"] == "tool/invalid-arguments" and not asked


@pytest.mark.parametrize("answer", [Approved(arguments={"path": "b.txt"}), {**WIRE, "arguments": {"path": "b.txt"}}])
async def test_changed_arguments_are_recorded(answer: Any, tmp_path: Path) -> None:
    """``flow.send`` takes them as an object and as JSON; a run that is resumed goes on with them."""
    options: dict[str, Any] = {"tools": [write], "durable": f"sqlite:///{tmp_path}/runs.db"}
    text = '(define r (write (path "a.txt"))) (ask-human "?") (list (content r) (get-field (get-field r "notes") "approved_arguments"))'
    async with AgentFlow(**options) as flow:
        handle = await flow.start(text, run_id="r", allow=["write", "ask-human"])
        await handle.wait()
        await flow.send("r", handle.waiting[0].key, answer)
        assert await handle.wait() == "waiting"
    async with AgentFlow(**options) as flow:
        handle = await flow.resume("r")
        assert await handle.wait() == "waiting"
        await flow.send("r", handle.waiting[0].key, 1)
        assert (await handle.result()).value == ["wrote b.txt", {"path": "b.txt"}]


async def test_changed_arguments_meet_the_policy() -> None:
    """What an approver fills in depends on what the model had read, as its own arguments do; readers are judged by the new value."""
    sent: list[str] = []

    @tool(approval=True)
    async def send(to: str, text: str) -> str:
        """Send."""
        sent.append(to)
        return "sent"

    @tool(source="web")
    async def fetch() -> str:
        """Read a page."""
        return "a page"

    policy = Provenance(rules=[Sink("send", readers_in="to")], readers={"web": ["*@work.example"]})
    answers: list[Any] = [True, Approved(arguments={"to": "eve@evil.example", "text": "x"})]
    for answer, expected in zip(answers, [["ann@work.example"], []], strict=True):
        sent.clear()
        async with AgentFlow(tools=[send, fetch], provenance=policy, approve=lambda request, a=answer: a) as flow:
            text = '(send (to "ann@work.example") (text (value-of (fetch))))'
            await flow.run(f"(failed? {text})", allow=["send", "fetch"])
        assert sent == expected


async def test_what_takes_no_other_arguments_is_refused_with_them(tmp_path: Path) -> None:
    """A command, an endorsement or a whole program is approved as it is, or not at all."""
    for door in (by_command, by_endorsement, by_manifest):
        assert not await door(Approved(arguments={"command": "ls"}), tmp_path)


# -- when it is asked -----------------------------------------------------------------------------------------------------


def large(arguments: dict[str, Any], ctx: CallContext) -> bool:
    return len(arguments["path"]) > 1


async def large_later(arguments: dict[str, Any], ctx: CallContext) -> bool:
    assert isinstance(ctx, CallContext)
    await asyncio.sleep(0)
    return large(arguments, ctx)


@pytest.mark.parametrize("says", [large, large_later])
async def test_a_function_says_which_calls_are_asked_about(says: Any) -> None:
    """``approval=f`` asks where ``f`` of the arguments and the call does not give False."""
    asked: list[Any] = []

    @tool(approval=says)
    async def save(path: str) -> str:
        """Save."""
        return f"saved {path}"

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.arguments)
        return True

    async with AgentFlow(tools=[save], approve=approve) as flow:
        text = '(list (content (save (path "a"))) (content (save (path "ab"))))'
        assert (await flow.run(text, allow=["save"])).value == ["saved a", "saved ab"]
        assert asked == [{"path": "ab"}]
        await flow.run('(save (path "abc"))')
        assert len(asked) == 1, "the host's own call is not asked about"


@pytest.mark.parametrize("said", [None, 0, "", "no", [], RuntimeError("x"), 1])
async def test_a_function_that_does_not_say_false_asks(said: Any) -> None:
    """None, numbers and an exception are not permission: somebody is asked, and a warning says so."""

    def says(arguments: dict[str, Any], ctx: CallContext) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    @tool(approval=says)
    async def save() -> str:
        """Save."""
        return "saved"

    events: list[Event] = []
    async with AgentFlow(tools=[save], approve=lambda request: False) as flow:
        flow.subscribe(events.append)
        assert (await flow.run("(failed? (save))", allow=["save"])).value is True
    assert [each.code for each in events if isinstance(each, Warning)] == ["tool/approval-function"]


@pytest.mark.parametrize("wrong", [lambda: True, lambda arguments: True, "always", 1, None])
def test_what_cannot_say_when_to_ask_is_refused_at_once(wrong: Any) -> None:
    """A function of something else, and what is none, are told where the tool is declared."""
    with pytest.raises(ConfigurationError, match="approval=") as caught:
        tool(approval=wrong)
    assert "lambda arguments, ctx" in str(caught.value.hint)


async def test_a_parked_run_keeps_what_the_function_said(tmp_path: Path) -> None:
    """A run that waits in the database is asked about its call, whatever the function says when the run is resumed."""
    says = [True]

    @tool(approval=lambda arguments, ctx: says[0])
    async def save() -> str:
        """Save."""
        return "saved"

    options: dict[str, Any] = {"tools": [save], "durable": f"sqlite:///{tmp_path}/runs.db"}
    async with AgentFlow(**options) as flow:
        handle = await flow.start("(content (save))", run_id="r", allow=["save"])
        assert await handle.wait() == "waiting"
    says[0] = False
    async with AgentFlow(**options) as flow:
        (question,) = await flow.questions("r")
        await flow.send("r", question.key, Denied("not any more"))
        handle = await flow.resume("r")
        assert "not any more" in (await handle.result()).value


# -- time-outs --------------------------------------------------------------------------------------------------------------


async def test_no_time_out_covers_somebody_who_thinks() -> None:
    """Neither the tool's, whose function asks, nor the prompt's around an approval."""

    @tool(timeout_s=0.05)
    async def ask(ctx: CallContext) -> str:
        """Ask."""
        return await ctx.ask_human("?")

    async def slow(request: Any) -> Any:
        await asyncio.sleep(0.12)
        return True if isinstance(request, ApprovalRequest) else "Ada"

    async with AgentFlow(tools=[ask, write], answer=slow, approve=slow) as flow:
        assert (await flow.run("(content (ask))")).value == "Ada"
    model = ScriptedProvider([{"tool_calls": [{"name": "write", "arguments": {"path": "a"}}]}, "done"])
    async with AgentFlow(provider=model, tools=[write], approve=slow) as flow:

        @flow.task(tools=["write"], timeout_s=0.1)
        async def go() -> str:
            """Go."""

        assert await flow.run(go()) is not None
