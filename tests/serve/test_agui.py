"""``/agui``: the real ``@ag-ui/client``, in Node, talks to exports over TCP and checks the order of what it is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ModelDelta, ScriptedProvider, tool
from agentflow.core.data.provider_errors import Overloaded
from agentflow.handler.tools import subtask_tool
from agentflow.serve import Export
from tests.support.node import NodeClients
from tests.support.serve_clients import Thinking, talk
from tests.support.served import Served, served

pytestmark = pytest.mark.slow


def thread(server: Served, name: str, *turns: Any, **options: Any) -> dict[str, Any]:
    """A thread: a text is said, a list answers the interrupts, a dict has the results of tools."""
    kinds_of = {str: "message", list: "answers", dict: "results"}
    said = [{kinds_of[type(each)]: each} for each in turns]
    return {"url": f"{server.url}/agui/{name}", "turns": said, **options}


def kinds(turn: dict[str, Any]) -> list[str]:
    """The types of a turn's events, those of one kind in a row once."""
    types = [each["type"] for each in turn["events"]]
    return [each for at, each in enumerate(types) if at == 0 or types[at - 1] != each]


TEXT = """(defatom note (params (x)) (instructions "Note {{x}}."))
  (defatom answer (params (q)) (instructions "Answer {{q}}."))
  (pmap (lambda (x) (note (x x))) (list "one" "two"))
  (look (what "there"))
  (value-of (answer (q message)))"""


@tool
def look(what: str) -> str:
    """Look at something."""
    return f"seen {what}"


async def test_a_run_as_its_client_sees_it(node_clients: NodeClients) -> None:
    """The answer as text and thinking, other tasks as activities, steps and state, tools as calls; nothing the client objects to.

    Where nobody says the value, it is the text; failures are errors with our code, and what is not a request is refused.
    """

    class Model(Thinking):
        async def stream(self, request: Any) -> Any:
            if "fail" in request.messages[-1].text:
                yield ModelDelta(text="half")
                raise Overloaded("busy")
            async for delta in super().stream(request):
                yield delta

    model = Model(lambda request: f"said {request.messages[-1].text}")
    flow = AgentFlow(provider=model, tools=[look])
    exports = {
        "x": TEXT,
        "sum": "(+ 1 (length (list message)))",
        "add": Export(program="(+ a b)", parameters={"a": "integer", "b": "integer"}),
    }
    async with flow, served(flow, exports) as server:
        full, value, broken, unknown, wordless = await talk(
            node_clients, "agui.mjs",
            [thread(server, "x", "hello", "again"), thread(server, "sum", "x"), thread(server, "x", "fail"),
             thread(server, "none", "x"), thread(server, "add", "x")],
        )  # fmt: skip
        [first, second] = full["turns"]
        assert first["error"] is None and second["error"] is None, full
        assert kinds(first)[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"] and kinds(first)[-1] == "RUN_FINISHED"
        assert set(kinds(first)) == {
            "RUN_STARTED", "STATE_SNAPSHOT", "STEP_STARTED", "STATE_DELTA", "STEP_FINISHED", "ACTIVITY_SNAPSHOT",
            "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "REASONING_START",
            "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_END",
            "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED",
        }  # fmt: skip
        assert first["events"][-1]["outcome"] == {"type": "success"}
        assert first["events"][-1]["result"] == "said Answer hello."
        assert first["events"][-1]["usage"][0]["outputTokens"] > 0
        by_role = {
            each["role"]: each for each in full["messages"] if each["id"].startswith(next(iter(server.runs)).run_id)
        }
        assert by_role["assistant"].get("content") == "said Answer hello."
        assert by_role["reasoning"]["content"] == "hm, " and by_role["tool"]["content"] == "seen there"
        assert (
            by_role["activity"]["content"]["task"] == "note" and "said Note" in by_role["activity"]["content"]["text"]
        )
        assert [each["status"] for each in full["state"]["agentflow"]["tasks"].values()] == ["ok"] * 3
        assert [each["content"] for each in value["messages"] if each["role"] == "assistant"] == ["2"]
        [turn] = broken["turns"]
        assert turn["events"][-1]["type"] == "RUN_ERROR" and turn["events"][-1]["code"] == "provider/overloaded"
        assert "404" in unknown["turns"][0]["error"] and "400" in wordless["turns"][0]["error"]


def delegating(*first: Any) -> AgentFlow:
    """A flow whose model hands work on to a task by a tool, once: ``first`` is how it begins."""
    call = {"tool_calls": [{"name": "dig", "arguments": {"q": "gold"}}]}
    flow = AgentFlow(provider=ScriptedProvider([*(first or [call]), "found it", "It is there."]))
    flow.task_system.register_template({"name": "digger", "params": "q", "instructions": "Dig for {{q}}."})
    flow.task_system.register_template({"name": "ask", "params": "what", "instructions": "{{what}}"})
    flow.tools.add(subtask_tool("dig", "Digs.", template="digger", parameters={"q": "string"}))
    return flow


async def test_subtasks_are_subagents(node_clients: NodeClients) -> None:
    """They begin and end as such; what they say is an activity, and none of the answer."""
    async with delegating() as flow, served(flow, ["ask"]) as server:
        [seen] = await talk(node_clients, "agui.mjs", [thread(server, "ask", "Where?")])
    [turn] = seen["turns"]
    assert turn["error"] is None and turn["events"][-1].get("result") == "It is there.", turn["events"]
    subagents = [each for each in turn["events"] if each["type"].startswith("SUBAGENT")]
    assert [each["type"] for each in subagents] == ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"]
    assert subagents[0]["subagentRunId"] == subagents[1]["subagentRunId"]
    said = [each for each in seen["messages"] if each["role"] in ("assistant", "activity")]
    assert {"task": "digger", "text": "found it"} in [each["content"] for each in said if each["role"] == "activity"]
    assert "It is there." in [each.get("content") for each in said if each["role"] == "assistant"]


ASKING = """(define r (pay (amount 7)))
  (list (if (failed? r) "refused" (content r)) (ask-human "Who?" {"type" "string"}))"""


@pytest.mark.parametrize("durable", [False, True])
async def test_interrupts_are_answered_by_the_next_request(
    node_clients: NodeClients, tmp_path: Path, durable: bool
) -> None:
    """An approval is given by a yes alone, and bound to what was shown; a question gets its answer, or ends the run declined."""
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    async with AgentFlow(tools=[pay], durable=f"sqlite:///{tmp_path}/runs.db" if durable else None) as flow:
        export = Export(program=ASKING, allow=["pay", "ask-human"])
        async with served(flow, {"pay": export}) as server:
            yes, wrong, no, gone = await talk(
                node_clients, "agui.mjs",
                [thread(server, "pay", "go", [True], ["Ada"]), thread(server, "pay", "go", [{"approved": "yes"}], [3], ["Bob"]),
                 thread(server, "pay", "go", [None], [None]), thread(server, "pay", "go", [True], ["Eve"], ["Eve"])],
            )  # fmt: skip
            assert [each["error"] for each in yes["turns"]] == [None] * 3, yes
            [interrupt] = yes["turns"][0]["events"][-1]["outcome"]["interrupts"]
            assert "7" in interrupt["message"] and interrupt["reason"] == "tool_call"
            called = [each for each in yes["messages"] if each["role"] == "tool"]
            assert [(each["toolCallId"], each["content"]) for each in called] == [(interrupt["toolCallId"], "paid")]
            assert [each["result"] for each in (yes["turns"][-1]["events"][-1], wrong["turns"][-1]["events"][-1])] == [
                ["paid", "Ada"],
                ["refused", "Bob"],
            ]
            assert wrong["turns"][2]["events"][-1]["outcome"]["type"] == "interrupt", "asked again"
            assert no["turns"][-1]["events"][-1]["outcome"]["type"] == "cancelled"
            assert gone["turns"][-1]["error"] is not None
            assert paid == [7, 7] and not server.runs.live


async def test_a_client_that_leaves_at_any_event_leaves_nothing(node_clients: NodeClients, tmp_path: Path) -> None:
    """After every event of a run, each in turn: the run is cancelled, or had ended, or waits for an answer and is given up in time."""
    model = ScriptedProvider(lambda request: f"said {request.messages[-1].text}")
    async with AgentFlow(provider=model, tools=[look]) as flow:
        text = TEXT.replace("(value-of", '(ask-human "Who?")(value-of')
        async with served(flow, {"x": TEXT, "asking": text}, approval_ttl=0.5) as server:
            cases = [thread(server, name, "hello", leave_after=at) for name in ("x", "asking") for at in range(1, 22)]
            await talk(node_clients, "agui.mjs", cases)
            for run in server.runs:
                await asyncio.wait_for(run.wait(), 10)
            assert not server.runs.live and len(list(server.runs)) == len(cases)
            assert "cancelled" in {run.status for run in server.runs}
            [key] = {run.key for run in server.runs}
            assert key.active == 0
